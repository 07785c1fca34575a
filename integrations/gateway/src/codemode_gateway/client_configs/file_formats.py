"""Edit the JSON and TOML files of clients, and leave the rest of each file as it is."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from ..config.config_file import SPACE, Member, Node, read_jsonc
from ..config.model import ConfigError

_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\r\n]*|(?:/\*[^\r\n]*?\*/[ \t]*)+(?=[\r\n]))?")

Edit = tuple[int, int, str]


# Some clients keep all they know in the file of their servers, and each step of a change looks at the same text.
_read = lru_cache(maxsize=2)(read_jsonc)


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Return the text with each span from start to end replaced; spans do not overlap."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


@dataclass(frozen=True)
class JsonEdits:
    """A text that is to be changed: its root, its newline, and one step of its indentation."""

    text: str
    root: Node
    newline: str
    step: str

    @classmethod
    def of(cls, text: str) -> JsonEdits:
        """Read a text; a blank one is an empty object. Raises `JsonError`."""
        text = text if text.strip() else "{}\n"
        root = _read(text).root
        newline = "\r\n" if "\r\n" in text else "\n"
        first = root.members[0].start if root.members else 0
        return cls(text, root, newline, _before_on_line(text, first) or "  ")

    def at(self, keys: Sequence[str]) -> Node | None:
        """Return the object that ``keys`` lead to, or None."""
        node: Node | None = self.root
        for key in keys:
            node = node.get(key) if node else None
        return node

    def added(self, keys: Sequence[str], name: str, value: Any) -> str:
        """Return the text with a member added at the end of the object that ``keys`` lead to; it is made if need be."""
        depth, node = 0, self.root
        while depth < len(keys) and (found := node.get(keys[depth])) is not None:
            depth, node = depth + 1, found
        first, *rest = [*keys[depth:], name]
        for key in reversed(rest):
            value = {key: value}
        return self._appended(node, first, value)

    def with_items(self, key: str, values: Sequence[Any]) -> str:
        """Return the text with values added to the array that is the root's member ``key``; it is made if need be."""
        node = self.root.get(key)
        if node is None:
            return self.added((), key, list(values))
        new = ", ".join(json.dumps(one, ensure_ascii=False) for one in values)
        place, comma = (node.items[-1].end, ", ") if node.items else (node.start + 1, "")
        return edited(self.text, [(place, place, f"{comma}{new}")])

    def _appended(self, node: Node, name: str, value: Any) -> str:
        if not node.members:
            return self._first(node, name, value)
        last = node.members[-1]
        comma = self._comma(last)
        end = last.node.end if comma is None else comma + 1
        if "\n" not in self.text[node.start : node.end]:
            new = f"{', ' if comma is None else ' '}{self.member(name, value, None)}"
            return edited(self.text, [(end, end, new)])
        indent = self._indent(last, node)
        rest = _REST_OF_LINE.match(self.text, end)
        place = rest.end() if rest else end
        new = f"{self.newline}{indent}{self.member(name, value, indent)}"
        if comma is not None:
            return edited(self.text, [(place, place, f"{new},")])
        return edited(self.text, [(end, place, f",{self.text[end:place]}{new}")])

    def _first(self, node: Node, name: str, value: Any) -> str:
        outer = self._line_indent(node.start)
        indent = outer + self.step
        inside = self.text[node.start + 1 : node.end - 1]
        new = f"{self.newline}{indent}{self.member(name, value, indent)}"
        if not inside.strip():
            return edited(self.text, [(node.start + 1, node.end - 1, f"{new}{self.newline}{outer}")])
        # A comment on the line of the bracket goes on to be on a line of its own.
        gap = "" if inside.lstrip(" \t").startswith(("\r", "\n")) else f"{self.newline}{indent}"
        return edited(self.text, [(node.start + 1, node.start + 1, new + gap)])

    def member(self, name: str, value: Any, indent: str | None) -> str:
        """Return a member as text, its lines indented; on one line where ``indent`` is None."""
        key = json.dumps(name, ensure_ascii=False)
        if indent is None:
            return f"{key}: {json.dumps(value, ensure_ascii=False)}"
        lines = json.dumps(value, ensure_ascii=False, indent=self.step).split("\n")
        return f"{key}: " + f"{self.newline}{indent}".join(lines)

    def without(self, node: Node, names: Collection[str], instead: Mapping[str, str]) -> list[Edit]:
        """Return the edits that take members away; those of ``instead`` are replaced by a text. Comments stay."""
        edits = [(one.start, one.node.end, instead[one.key]) for one in node.members if one.key in instead]
        kept = [one for one in node.members if one.key not in names or one.key in instead]
        for one in node.members:
            if one.key in names and one.key not in instead:
                edits += self._taken_away(one)
        is_cut = node.members and self._comma(node.members[-1]) is None and kept and kept[-1] != node.members[-1]
        if is_cut and (comma := self._comma(kept[-1])) is not None:
            edits.append((comma, comma + 1, ""))
        return edits

    def _taken_away(self, one: Member) -> list[Edit]:
        comma = self._comma(one)
        before = _before_on_line(self.text, one.start)
        start = one.start - len(before or "")
        end = one.node.end if comma is None else comma + 1
        parts = [(one.start, one.node.end, "")]
        if comma is not None and not self.text[one.node.end : comma].strip():
            parts = [(one.start, end, "")]
        elif comma is not None:
            parts.append((comma, end, ""))
        following = re.compile(r"[ \t]*(\r\n|\r|\n)").match(self.text, end)
        is_own_line = before is not None and following is not None and len(parts) == 1
        return [(start, following.end(), "")] if following and is_own_line else parts

    def _comma(self, one: Member) -> int | None:
        space = SPACE.match(self.text, one.node.end)
        place = space.end() if space else one.node.end
        return place if self.text.startswith(",", place) else None

    def _indent(self, one: Member, node: Node) -> str:
        found = _before_on_line(self.text, one.start)
        return self._line_indent(node.start) + self.step if found is None else found

    def indent_of(self, one: Member, node: Node) -> str:
        """Return what stands before a member on its line."""
        return self._indent(one, node)

    def _line_indent(self, place: int) -> str:
        line = _line_before(self.text, place)
        return line[: len(line) - len(line.lstrip(" \t"))]


def _line_before(text: str, place: int) -> str:
    return text[max(text.rfind("\n", 0, place), text.rfind("\r", 0, place)) + 1 : place]


def _before_on_line(text: str, place: int) -> str | None:
    """Return the blanks between the begin of the line and ``place``, None where something else stands there."""
    line = _line_before(text, place)
    return None if line.strip(" \t") else line


@dataclass(frozen=True)
class JsonFile:
    """A text with servers where ``keys`` lead to. Raises `ConfigError` where something else is there."""

    keys: tuple[str, ...]

    def servers(self, text: str) -> dict[str, Any]:
        node = self._servers(JsonEdits.of(text))
        return {one.key: one.node.plain() for one in node.members} if node else {}

    def inputs(self, text: str) -> list[Any]:
        """Return what VS Code asks its user for."""
        node = JsonEdits.of(text).at((*self.keys[:-1], "inputs"))
        return node.plain() if node and node.kind == "array" else []

    def put(self, text: str, moved: Collection[str], name: str, entry: Mapping[str, Any]) -> str:
        """Return the text with ``entry`` in the place of the servers that are ``moved``."""
        doc = JsonEdits.of(text)
        node = self._servers(doc)
        if node is None:
            return doc.added(self.keys, name, entry)
        members = {one.key: one for one in node.members}
        place = name if name in members else next((one for one in members if one in moved), None)
        if place is None:
            return doc.added(self.keys, name, entry)
        gone = [one for one in moved if one != place]
        is_same = place == name and members[name].node.plain() == entry
        instead = {} if is_same else {place: self._written(doc, node, members[place], name, entry)}
        return edited(doc.text, doc.without(node, gone, instead))

    def restored(self, text: str, before: str, name: str, names: Collection[str]) -> str:
        """Return the text with the servers ``names`` of the text ``before`` in the place of the gateway ``name``."""
        doc, old = JsonEdits.of(text), JsonEdits.of(before)
        node, source = self._servers(doc), self._servers(old)
        if node is None:
            return text
        moved = [one for one in (source.members if source else ()) if one.key in names]
        if not moved:
            return edited(doc.text, doc.without(node, [name], {}))
        mine = next(one for one in node.members if one.key == name)
        between = f",{doc.newline}{doc.indent_of(mine, node)}"
        parts = [old.text[one.start : one.node.end] for one in moved]
        return edited(doc.text, [(mine.start, mine.node.end, between.join(parts))])

    def _written(self, doc: JsonEdits, node: Node, one: Member, name: str, entry: Mapping[str, Any]) -> str:
        is_one_line = "\n" not in doc.text[node.start : node.end]
        return doc.member(name, entry, None if is_one_line else doc.indent_of(one, node))

    def _servers(self, doc: JsonEdits) -> Node | None:
        node = doc.root
        for depth, key in enumerate(self.keys):
            if node.kind != "object":
                where = ".".join(self.keys[:depth]) or "the file"
                raise ConfigError(f"{where} is no object, so that no server can be there; mend it by hand")
            following = node.get(key)
            if following is None:
                return None
            node = following
        if node.kind != "object":
            raise ConfigError(f"{'.'.join(self.keys)} is no object, so that no server can be there; mend it by hand")
        return node


# Reads just so much that each statement's beginning and end are known; what is no TOML is for `tomllib` to say.

_GAP = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*")
_KEY = re.compile(r'[ \t]*(?:([A-Za-z0-9_-]+)|"((?:[^"\\\r\n]|\\.)*)"|\'([^\'\r\n]*)\')[ \t]*')
_PIECE = re.compile(
    r"""
    \"{3}(?:[^\\]|\\.)*?\"{3,5} | '{3}.*?'{3,5}   # of several lines: one or two quotes more belong to the text
    | "(?:[^"\\\r\n]|\\.)*" | '[^'\r\n]*'
    | \#[^\r\n]* | [^"'\#\[\]{}\r\n]+ | .
    """,
    re.DOTALL | re.VERBOSE,
)
_END = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n|\Z)")


@dataclass(frozen=True)
class Statement:
    """One statement from ``start`` to ``end``, its line end included. ``keys`` is the full path of what it says."""

    start: int
    end: int
    keys: tuple[str, ...]
    is_header: bool


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a text that is TOML."""
    table: tuple[str, ...] = ()
    at = _after(_GAP, text, 0)
    while at < len(text):
        start = at
        is_header = text[at] == "["
        if is_header:
            depth = 2 if text.startswith("[[", at) else 1
            keys, at = _keys(text, at + depth)
            at, table = at + depth, keys
        else:
            said, at = _keys(text, at)
            keys, at = (*table, *said), _value_end(text, at + 1)
        at = _after(_END, text, at)
        yield Statement(start, at, keys, is_header)
        at = _after(_GAP, text, at)


def _keys(text: str, at: int) -> tuple[tuple[str, ...], int]:
    found = list[str]()
    while True:
        one = _KEY.match(text, at)
        if one is None:
            raise ValueError("no key of TOML")
        bare, basic, literal = one.groups()
        found.append(bare if bare is not None else literal if literal is not None else _unescaped(basic))
        at = one.end()
        if not text.startswith(".", at):
            return tuple(found), at
        at += 1


def _unescaped(written: str) -> str:
    # What TOML escapes with eight digits JSON does not know.
    short = re.sub(r"\\U([0-9A-Fa-f]{8})", lambda one: json.dumps(chr(int(one[1], 16)))[1:-1], written)
    return json.loads(f'"{short}"', strict=False)


def _value_end(text: str, at: int) -> int:
    depth = 0
    while at < len(text):
        if depth == 0 and text[at] in "\r\n#":
            return at
        piece = _PIECE.match(text, at)
        if piece is None:
            return len(text)
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(piece[0], 0)
        at = piece.end()
    return at


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


@dataclass(frozen=True)
class TomlFile:
    """A text with a table of servers of the name ``keys[0]``."""

    keys: tuple[str, ...]

    def servers(self, text: str) -> dict[str, Any]:
        found = tomllib.loads(text).get(self.keys[0], {})
        if not isinstance(found, dict):
            raise ConfigError(f"{self.keys[0]} is no table, so that no server can be there; mend it by hand")
        return cast("dict[str, Any]", found)

    def inputs(self, text: str) -> list[Any]:
        """Return nothing: Codex asks its user for nothing."""
        del text
        return []

    def put(self, text: str, moved: Collection[str], name: str, entry: Mapping[str, Any]) -> str:
        """Return the text with ``entry`` in the place of the servers that are ``moved``."""
        if self.servers(text).get(name) == entry:
            return edited(text, [(start, _behind(text, end), "") for start, end, _ in self._spans(text, moved)])
        return self._placed(text, {*moved, name}, self._written(text, name, entry))

    def restored(self, text: str, before: str, name: str, names: Collection[str]) -> str:
        """Return the text with the servers ``names`` of the text ``before`` in the place of the gateway ``name``."""
        tables = [before[start:end] for start, end, is_table in self._spans(before, names) if is_table]
        lines = [before[start:end] for start, end, is_table in self._spans(before, names) if not is_table]
        if lines:
            # Without a table they belong to whatever comes before; only their file as it was has the place for them.
            raise ConfigError("its servers were written without a table each; put them back by hand, from the backup")
        newline = _newline(text)
        return self._placed(text, {name}, newline.join(one.rstrip("\r\n") + newline for one in tables))

    def _placed(self, text: str, gone: Collection[str], new: str) -> str:
        spans = self._spans(text, gone)
        edits: list[Edit] = [(start, _behind(text, end), "") for start, end, _ in spans]
        place = next((index for index, (_, _, is_table) in enumerate(spans) if is_table), None)
        if place is not None:
            start, end, _ = spans[place]
            edits[place] = (start, end, new)
            return edited(text, edits)
        left = edited(text, edits)
        newline = _newline(text)
        gap = "" if not left or left.endswith(newline * 2) else newline if left.endswith(("\n", "\r")) else newline * 2
        return left + (gap + new if new else "")

    def _spans(self, text: str, names: Collection[str]) -> list[tuple[int, int, bool]]:
        """Return the parts of the text about the servers, and whether each is a table of its own."""
        found, table = list[tuple[int, int, bool]](), False
        for one in statements(text):
            is_meant = self._is_about(one, names)
            if one.is_header:
                table = is_meant
            if not is_meant:
                continue
            if table and not one.is_header and found:
                found[-1] = (found[-1][0], one.end, True)
            else:
                found.append((one.start, one.end, one.is_header))
        return found

    def _is_about(self, one: Statement, names: Collection[str]) -> bool:
        if one.keys[0] != self.keys[0]:
            return False
        # A whole inline table goes: it can have no server added elsewhere.
        return not one.is_header if len(one.keys) == 1 else one.keys[1] in names

    def _written(self, text: str, name: str, entry: Mapping[str, Any]) -> str:
        lines = [f"[{self.keys[0]}.{name}]", *(f"{key} = {_value(one)}" for key, one in entry.items())]
        newline = _newline(text)
        return newline.join(lines) + newline


def _behind(text: str, end: int) -> int:
    """Return where the blank lines behind a table end: without it they would pile up."""
    found = re.compile(r"(?:[ \t]*(?:\r\n|\n))*").match(text, end)
    return found.end() if found else end


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _value(value: Any) -> str:
    """Return a text, a number or an array of them as TOML has it: as JSON, but for one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
