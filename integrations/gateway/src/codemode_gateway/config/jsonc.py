"""JSON with comments and trailing commas, read into nodes that know their places in the text. Pure."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from .mistakes import short

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
