"""Changes single members of a JSON text with comments, and leaves each other character as it is. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..config.jsonc import SPACE, Member, Node, read_jsonc

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
