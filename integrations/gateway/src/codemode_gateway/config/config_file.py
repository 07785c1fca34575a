"""Read configuration files in JSON with comments or TOML; errors name the position."""

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

from codemode.data.similar_names import find_nearest_names
from codemode.trace.unseen import has_only_visible_characters

from .model import ConfigError


class ConfigFieldError(ValueError):
    """A mistake at ``path`` of the file. The message has names of keys, never values: they may be secrets.

    ``lacks_value``: the file is right, but a variable or a file that it names is missing.
    """

    def __init__(self, path: str, message: str, *, lacks_value: bool = False) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message
        self.lacks_value = lacks_value


def join_field_path(path: str, key: str) -> str:
    """Return the path of ``key`` in the object at ``path``, such as ``a.b`` or ``a["b c"]``."""
    if len(key) <= 100 and has_only_visible_characters(key) and key.replace("-", "_").isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{quote_name(key)}]"


def quote_name(name: str) -> str:
    """Return a name in quotes, shortened and with invisible characters escaped: files may be hostile."""
    shortened = name if len(name) <= 100 else f"{name[:100]}…"
    return (
        '"'
        + "".join(
            character if has_only_visible_characters(character) else character.encode("unicode_escape").decode()
            for character in shortened
        )
        + '"'
    )


def format_name_suggestion(name: str, valid_names: Iterable[str]) -> str:
    """Return "; did you mean ...?" for an unknown ``name``, or nothing if no known name resembles it."""
    valid_names = list(valid_names)
    matches = [candidate for candidate in valid_names if candidate.lower() == name.lower()] or find_nearest_names(
        name[:100], valid_names
    )
    return f"; did you mean {matches[0]}?" if matches else ""


def format_choices(names: Sequence[str]) -> str:
    quoted = [f'"{name}"' for name in names]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}" if len(quoted) > 1 else quoted[0]


MAX_DEPTH = 64
MAX_VALUES = 1_000_000

SPACE_PATTERN = re.compile(r"(?:[ \t\r\n\f\v\ufeff\xa0]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING_PATTERN = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_NUMBER_PATTERN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.+-])")
_LITERAL_PATTERN = re.compile(r"(?:true|false|null)(?!\w)")
SURROGATE_PATTERN = re.compile("[\ud800-\udfff]")
_LINE_END_PATTERN = re.compile(r"\r\n|\r|\n")
_LITERALS = {"true": True, "false": False, "null": None}
_MAX_NUMBER_CHARACTERS = 400


class JsonError(ValueError):
    """Invalid JSON at ``line`` and ``column``, which count from 1; columns are characters."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.message = message
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class JsonMember:
    """One member of an object: its key, the position of the key in the text, and its value."""

    key: str
    start: int
    node: JsonNode


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value at ``start`` to ``end`` of the text; objects and arrays include their brackets."""

    start: int
    end: int
    kind: str
    value: Any = None
    members: tuple[JsonMember, ...] = ()
    items: tuple[JsonNode, ...] = ()

    def to_python(self) -> Any:
        """Return the value as Python objects. The last of duplicate keys counts."""
        if self.kind == "object":
            return {child.key: child.node.to_python() for child in self.members}
        return [child.to_python() for child in self.items] if self.kind == "array" else self.value

    def get(self, key: str) -> JsonNode | None:
        """Return the value of ``key``, the last one if it is duplicate."""
        return next((member.node for member in reversed(self.members) if member.key == key), None)


@dataclass(frozen=True)
class ParsedJson:
    """A parsed text. ``warnings``: valid JSON that is a mistake, such as duplicate keys or half surrogate pairs."""

    text: str
    root: JsonNode
    warnings: tuple[JsonError, ...] = ()


def parse_jsonc(text: str) -> ParsedJson:
    """Parse JSON with comments. Raises `JsonError`."""
    return _JsoncParser(text).parse()


@dataclass
class _JsoncParser:
    text: str
    position: int = 0
    depth: int = 0
    count: int = 0
    warnings: list[JsonError] = field(default_factory=list[JsonError])
    _line_starts: list[int] = field(default_factory=list[int])

    def parse(self) -> ParsedJson:
        self._skip_space()
        if self.position == len(self.text):
            raise self._create_error('the file is empty; it needs an object, as in {"mcpServers": {}}')
        root = self._parse_value()
        self._skip_space()
        if self.position < len(self.text):
            raise self._create_error(
                "something follows the end of the value; remove it, or a bracket above closes too early"
            )
        return ParsedJson(self.text, root, tuple(self.warnings))

    def _parse_value(self) -> JsonNode:
        self.count += 1
        if self.count > MAX_VALUES:
            raise self._create_error(f"the file holds more than {MAX_VALUES:,} values; is it a configuration?")
        opening = self.text[self.position : self.position + 1]
        if opening in ("{", "["):
            if self.depth == MAX_DEPTH:
                raise self._create_error(f"objects and arrays are nested more than {MAX_DEPTH} deep")
            self.depth += 1
            node = self._parse_object() if opening == "{" else self._parse_array()
            self.depth -= 1
            return node
        if opening == '"':
            return self._parse_string()
        if word := _LITERAL_PATTERN.match(self.text, self.position):
            return self._create_scalar(word, "word", _LITERALS[word[0]])
        if number := _NUMBER_PATTERN.match(self.text, self.position):
            return self._create_scalar(number, "number", self._parse_number(number[0]))
        raise self._create_error(self._describe_missing_value(opening))

    def _describe_missing_value(self, opening: str) -> str:
        if not opening:
            return "the file ends where a value is missing; is it cut off?"
        if opening == "'":
            return "strings need double quotes"
        return "expected a value: a string in double quotes, a number, true, false, null, an object or an array"

    def _create_scalar(self, match: re.Match[str], kind: str, value: Any) -> JsonNode:
        self.position = match.end()
        return JsonNode(match.start(), match.end(), kind, value)

    def _parse_number(self, number_text: str) -> int | float:
        if len(number_text) > _MAX_NUMBER_CHARACTERS:
            raise self._create_error("this number has too many digits")
        value = float(number_text) if any(mark in number_text for mark in ".eE") else int(number_text)
        if not math.isfinite(value):
            raise self._create_error("this number is too large")
        return value

    def _parse_string(self) -> JsonNode:
        match = _STRING_PATTERN.match(self.text, self.position)
        if match is None:
            raise self._create_error("this string is not closed on its line, or holds a control character")
        try:
            value = json.loads(match[0])
        except ValueError:
            message = 'this string has an escape that JSON does not know; a backslash itself is written "\\\\"'
            raise self._create_error(message) from None
        if SURROGATE_PATTERN.search(value):
            self.warnings.append(self._create_error("this string has an escape of half a surrogate pair"))
        return self._create_scalar(match, "string", value)

    def _parse_array(self) -> JsonNode:
        start, items = self.position, list[JsonNode]()
        self.position += 1
        while not self._consume_closing("]", start):
            items.append(self._parse_value())
            self._skip_comma("]", start)
        return JsonNode(start, self.position, "array", items=tuple(items))

    def _parse_object(self) -> JsonNode:
        start, members, key_positions = self.position, list[JsonMember](), dict[str, int]()
        self.position += 1
        while not self._consume_closing("}", start):
            members.append(member := self._parse_member())
            if member.key in key_positions:
                first = self._to_line_and_column(key_positions[member.key])[0]
                message = (
                    f"the key {quote_name(member.key)} is a duplicate (first on line {first}); remove one of the two"
                )
                self.warnings.append(self._create_error(message, member.start))
            key_positions.setdefault(member.key, member.start)
            self._skip_comma("}", start)
        return JsonNode(start, self.position, "object", members=tuple(members))

    def _parse_member(self) -> JsonMember:
        if self.text[self.position] != '"':
            raise self._create_error("expected a key in double quotes, or the end of the object")
        key = self._parse_string()
        self._skip_space()
        if self.text[self.position : self.position + 1] != ":":
            raise self._create_error("a colon is missing after this key")
        self.position += 1
        self._skip_space()
        return JsonMember(key.value, key.start, self._parse_value())

    def _consume_closing(self, closing: str, start: int) -> bool:
        self._skip_space()
        if self.position == len(self.text):
            raise self._create_error(f'the file ends before the "{closing}" for this bracket', start)
        if self.text[self.position] != closing:
            return False
        self.position += 1
        return True

    def _skip_comma(self, closing: str, start: int) -> None:
        self._skip_space()
        following = self.text[self.position : self.position + 1]
        if following == ",":
            self.position += 1
        elif following != closing:
            if not following:
                raise self._create_error(f'the file ends before the "{closing}" for this bracket', start)
            raise self._create_error(f'expected a comma or "{closing}"; is a comma missing before?')

    def _skip_space(self) -> None:
        match = SPACE_PATTERN.match(self.text, self.position)
        self.position = match.end() if match else self.position
        if self.text.startswith("/*", self.position):
            raise self._create_error("this comment is not closed")

    def _create_error(self, message: str, error_position: int | None = None) -> JsonError:
        return JsonError(
            message, *self._to_line_and_column(self.position if error_position is None else error_position)
        )

    def _to_line_and_column(self, position: int) -> tuple[int, int]:
        self._line_starts = self._line_starts or [
            0,
            *(line_end.end() for line_end in _LINE_END_PATTERN.finditer(self.text)),
        ]
        line = bisect_right(self._line_starts, position)
        return line, position - self._line_starts[line - 1] + 1


MAX_BYTES = 4 * 1024 * 1024

_READ_ERRORS = {
    errno.ENOENT: "there is no such file; make one with `codemode mcp init`, or name another with --config",
    errno.ENOTDIR: "a part of this path is a file, not a folder",
    errno.EISDIR: "this is a folder; name a file in it",
    errno.EACCES: "this file may not be read; change its permissions",
    errno.ENAMETOOLONG: "this path is too long",
    errno.ELOOP: "the symbolic links of this path form a loop",
}


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a file. Raises `ConfigError` if it is unreadable, too large or not UTF-8."""
    return decode_text(read_bounded_bytes(path, max_bytes), path)


def read_bounded_bytes(path: Path, max_bytes: int) -> bytes:
    """Return the bytes of a file. Raises `ConfigError` if it is unreadable or larger than ``max_bytes``."""
    try:
        is_other = path.exists() and not path.is_file()
        content = b"" if is_other else _read_bytes(path, max_bytes + 1)
    except (OSError, ValueError) as problem:
        reason = _READ_ERRORS.get(getattr(problem, "errno", None) or 0, "this file cannot be read")
        raise ConfigError(f"{path}: {reason}") from None
    if is_other:
        raise ConfigError(f"{path}: {_READ_ERRORS[errno.EISDIR] if path.is_dir() else 'this is not a regular file'}")
    if len(content) > max_bytes:
        raise ConfigError(f"{path}: this file is larger than {max_bytes:,} bytes; is it a configuration?")
    return content


def _read_bytes(path: Path, max_bytes: int) -> bytes:
    with path.open("rb") as file:
        return file.read(max_bytes)


def is_path_present(path: Path) -> bool:
    """Return whether a file exists at ``path``, as far as this process can see."""
    with suppress(OSError, ValueError):
        return path.exists()
    return False


def decode_text(content: bytes, path: Path) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{path}: this file is UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise ConfigError(f"{path}, line {line}: this file is not UTF-8; save it as UTF-8") from None


def parse_config_text(text: str, path: Path) -> Mapping[str, Any]:
    """Parse a configuration: TOML if the file name ends in .toml, else JSON with comments."""
    if path.suffix.lower() == ".toml":
        return _parse_toml(text, path)
    try:
        parsed = parse_jsonc(text)
        if parsed.warnings:
            raise parsed.warnings[0]
    except JsonError as mistake:
        raise ConfigError(f"{path}, {mistake}") from None
    if parsed.root.kind != "object":
        raise ConfigError(f'{path}, line 1: this must be an object, as in {{"mcpServers": {{}}}}')
    return cast("Mapping[str, Any]", parsed.root.to_python())


def _parse_toml(text: str, path: Path) -> Mapping[str, Any]:
    import tomllib  # late import: only Codex uses TOML

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        # Security: the parser's message may quote a value, so only the position is used.
        position = str(problem).rpartition("(at ")[2].rstrip(")")
        raise ConfigError(f"{path}, {position or 'somewhere'}: this is not TOML, or has a duplicate key") from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{path}: this TOML is nested too deep, or has a number that is too large") from None
