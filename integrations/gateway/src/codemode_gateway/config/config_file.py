"""Read configuration files: JSON with comments, TOML, and errors with their place."""

from __future__ import annotations

import errno
import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from codemode.data.similar_names import nearest_names
from codemode.trace.unseen import all_seen

from .model import ConfigError


class MistakeError(ValueError):
    """A mistake at ``path`` of the file. Its message quotes names of keys, never values: they may be secrets.

    ``lacks_value`` says that the file is right, and only what it names is not there: a variable, a file.
    """

    def __init__(self, path: str, message: str, *, lacks_value: bool = False) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message
        self.lacks_value = lacks_value


def inside(path: str, key: str) -> str:
    """Return the path of ``key`` in the object at ``path``, as a reader writes it."""
    if len(key) <= 100 and all_seen(key) and key.replace("-", "_").isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{short(key)}]"


def short(name: str) -> str:
    """Return a name in quotes, all of it seen, and bounded: names come from files that anybody may have written."""
    shown = name if len(name) <= 100 else f"{name[:100]}…"
    return '"' + "".join(one if all_seen(one) else one.encode("unicode_escape").decode() for one in shown) + '"'


def near(name: str, known: Iterable[str]) -> str:
    """Return the question that follows a message about an unknown ``name``; nothing where no name resembles it."""
    known = list(known)
    found = [one for one in known if one.lower() == name.lower()] or nearest_names(name[:100], known)
    return f"; did you mean {found[0]}?" if found else ""


def one_of(names: Sequence[str]) -> str:
    quoted = [f'"{one}"' for one in names]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}" if len(quoted) > 1 else quoted[0]


MAX_DEPTH = 64
MAX_VALUES = 1_000_000

SPACE = re.compile(r"(?:[ \t\r\n\f\v\ufeff\xa0]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.+-])")
_WORD = re.compile(r"(?:true|false|null)(?!\w)")
HALF = re.compile("[\ud800-\udfff]")
_LINE_END = re.compile(r"\r\n|\r|\n")
_WORDS = {"true": True, "false": False, "null": None}
_MOST_DIGITS = 400


class JsonError(ValueError):
    """What is no JSON at one place; ``line`` and ``column`` count from 1, columns in characters."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.message = message
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Member:
    """One key of an object, with the place where its name begins, and its value."""

    key: str
    start: int
    node: Node


@dataclass(frozen=True, slots=True)
class Node:
    """A value from ``start`` to ``end`` of the text. Of object and array, ``end`` is behind the closing bracket."""

    start: int
    end: int
    kind: str
    value: Any = None
    members: tuple[Member, ...] = ()
    items: tuple[Node, ...] = ()

    def plain(self) -> Any:
        """Return it as Python has it; of keys that stand twice, the last."""
        if self.kind == "object":
            return {one.key: one.node.plain() for one in self.members}
        return [one.plain() for one in self.items] if self.kind == "array" else self.value

    def get(self, key: str) -> Node | None:
        """Return the value of ``key``, the last where it stands twice."""
        return next((one.node for one in reversed(self.members) if one.key == key), None)


@dataclass(frozen=True)
class JsonText:
    """A text that was read, and what of it is JSON and can not be meant: keys that stand twice, half characters."""

    text: str
    root: Node
    doubts: tuple[JsonError, ...] = ()


def read_jsonc(text: str) -> JsonText:
    """Read ``text``. Raises `JsonError` where it is no JSON with comments."""
    return _Reader(text).whole()


@dataclass
class _Reader:
    text: str
    at: int = 0
    depth: int = 0
    count: int = 0
    doubts: list[JsonError] = field(default_factory=list[JsonError])
    _lines: list[int] = field(default_factory=list[int])

    def whole(self) -> JsonText:
        self._space()
        if self.at == len(self.text):
            raise self._mistake('the file is empty; it needs an object, as in {"mcpServers": {}}')
        root = self._value()
        self._space()
        if self.at < len(self.text):
            raise self._mistake(
                "something follows the end of the value; remove it, or a bracket above closes too early"
            )
        return JsonText(self.text, root, tuple(self.doubts))

    def _value(self) -> Node:
        self.count += 1
        if self.count > MAX_VALUES:
            raise self._mistake(f"the file holds more than {MAX_VALUES:,} values; is it a configuration?")
        opening = self.text[self.at : self.at + 1]
        if opening in ("{", "["):
            if self.depth == MAX_DEPTH:
                raise self._mistake(f"objects and arrays are nested more than {MAX_DEPTH} deep")
            self.depth += 1
            node = self._object() if opening == "{" else self._array()
            self.depth -= 1
            return node
        if opening == '"':
            return self._string()
        if word := _WORD.match(self.text, self.at):
            return self._scalar(word, "word", _WORDS[word[0]])
        if number := _NUMBER.match(self.text, self.at):
            return self._scalar(number, "number", self._number(number[0]))
        raise self._mistake(self._no_value(opening))

    def _no_value(self, opening: str) -> str:
        if not opening:
            return "the file ends where a value is missing; is it cut off?"
        if opening == "'":
            return "strings stand in double quotes"
        return "here must be a value: a string in double quotes, a number, true, false, null, an object or an array"

    def _scalar(self, found: re.Match[str], kind: str, value: Any) -> Node:
        self.at = found.end()
        return Node(found.start(), found.end(), kind, value)

    def _number(self, written: str) -> int | float:
        if len(written) > _MOST_DIGITS:
            raise self._mistake("this number has too many digits")
        value = float(written) if any(one in written for one in ".eE") else int(written)
        if not math.isfinite(value):
            raise self._mistake("this number is too large")
        return value

    def _string(self) -> Node:
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise self._mistake("this string is not closed on its line, or holds a control character")
        try:
            value = json.loads(found[0])
        except ValueError:
            message = 'this string has an escape that JSON does not know; a backslash itself is written "\\\\"'
            raise self._mistake(message) from None
        if HALF.search(value):
            self.doubts.append(self._mistake("this string has an escape of half a character"))
        return self._scalar(found, "string", value)

    def _array(self) -> Node:
        start, items = self.at, list[Node]()
        self.at += 1
        while not self._closes("]", start):
            items.append(self._value())
            self._comma("]", start)
        return Node(start, self.at, "array", items=tuple(items))

    def _object(self) -> Node:
        start, members, places = self.at, list[Member](), dict[str, int]()
        self.at += 1
        while not self._closes("}", start):
            members.append(one := self._member())
            if one.key in places:
                first = self._place(places[one.key])[0]
                message = f"the key {short(one.key)} stands here again (first on line {first}); remove one of the two"
                self.doubts.append(self._mistake(message, one.start))
            places.setdefault(one.key, one.start)
            self._comma("}", start)
        return Node(start, self.at, "object", members=tuple(members))

    def _member(self) -> Member:
        if self.text[self.at] != '"':
            raise self._mistake("here must be a key in double quotes, or the end of the object")
        key = self._string()
        self._space()
        if self.text[self.at : self.at + 1] != ":":
            raise self._mistake("a colon is missing behind this key")
        self.at += 1
        self._space()
        return Member(key.value, key.start, self._value())

    def _closes(self, closing: str, start: int) -> bool:
        self._space()
        if self.at == len(self.text):
            raise self._mistake(f'the file ends before "{closing}" closes what begins here', start)
        if self.text[self.at] != closing:
            return False
        self.at += 1
        return True

    def _comma(self, closing: str, start: int) -> None:
        self._space()
        following = self.text[self.at : self.at + 1]
        if following == ",":
            self.at += 1
        elif following != closing:
            if not following:
                raise self._mistake(f'the file ends before "{closing}" closes what begins here', start)
            raise self._mistake(f'here must be a comma or "{closing}"; is a comma missing before?')

    def _space(self) -> None:
        found = SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        if self.text.startswith("/*", self.at):
            raise self._mistake("this comment is not closed")

    def _mistake(self, message: str, place: int | None = None) -> JsonError:
        return JsonError(message, *self._place(self.at if place is None else place))

    def _place(self, at: int) -> tuple[int, int]:
        self._lines = self._lines or [0, *(found.end() for found in _LINE_END.finditer(self.text))]
        line = bisect_right(self._lines, at)
        return line, at - self._lines[line - 1] + 1


MAX_BYTES = 4 * 1024 * 1024

_REASONS = {
    errno.ENOENT: "there is no such file; make one with `codemode mcp init`, or name another with --config",
    errno.ENOTDIR: "a part of this path is a file, no folder",
    errno.EISDIR: "this is a folder; name a file in it",
    errno.EACCES: "this file may not be read; change its permissions",
    errno.ENAMETOOLONG: "this path is too long to be one",
    errno.ELOOP: "the symbolic links of this path lead in a circle",
}


def text_of(path: Path, most: int = MAX_BYTES) -> str:
    """Return the text of the file. Raises `ConfigError` where it cannot be read, is too large or is not UTF-8."""
    return decoded(content_of(path, most), path)


def content_of(path: Path, most: int) -> bytes:
    """Return the bytes of the file. Raises `ConfigError` where it cannot be read or is too large."""
    try:
        is_other = path.exists() and not path.is_file()
        content = b"" if is_other else _content(path, most + 1)
    except (OSError, ValueError) as problem:
        reason = _REASONS.get(getattr(problem, "errno", None) or 0, "this file cannot be read")
        raise ConfigError(f"{path}: {reason}") from None
    if is_other:
        raise ConfigError(f"{path}: {_REASONS[errno.EISDIR] if path.is_dir() else 'this is no regular file'}")
    if len(content) > most:
        raise ConfigError(f"{path}: this file is larger than {most:,} bytes; is it a configuration?")
    return content


def _content(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def is_there(path: Path) -> bool:
    """Return whether there is something at ``path`` that this process may see."""
    with suppress(OSError, ValueError):
        return path.exists()
    return False


def decoded(content: bytes, path: Path) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{path}: this file is UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise ConfigError(f"{path}, line {line}: this file is not UTF-8; save it as UTF-8") from None


def object_of(text: str, path: Path) -> Mapping[str, Any]:
    """Return the object that the text says, TOML where the file's name ends so, else JSON with comments."""
    if path.suffix.lower() == ".toml":
        return _toml(text, path)
    try:
        found = read_jsonc(text)
        if found.doubts:
            raise found.doubts[0]
    except JsonError as mistake:
        raise ConfigError(f"{path}, {mistake}") from None
    if found.root.kind != "object":
        raise ConfigError(f'{path}, line 1: this must be an object, as in {{"mcpServers": {{}}}}')
    return cast("Mapping[str, Any]", found.root.plain())


def _toml(text: str, path: Path) -> Mapping[str, Any]:
    import tomllib  # late: one client alone writes it

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        # The reader's own words may repeat a part of a value; the place is enough.
        place = str(problem).rpartition("(at ")[2].rstrip(")")
        raise ConfigError(f"{path}, {place or 'somewhere'}: this is no TOML, or says something twice") from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{path}: this TOML is nested too deep, or has a number that is too large") from None
