"""A pattern as a program: what Rust's engine goes through when it looks whether a text fits. Matches nothing.

It is read as that engine writes patterns. What cannot be told is read as more than there is, never as less.
"""

from __future__ import annotations

import re
from dataclasses import field

from ..dataclass import dataclass
from ..host import steps

MOST_NODES = 1 << 15
_MAX_READ_CHARACTERS = 1 << 15
_FLAGS = re.compile(r"\(\?([A-Za-z]+)")
_FLAGS_OF_ALL = re.compile(r"\(\?[is]+\)")
_PART = re.compile(
    r"\\[pPxuUb]\{[^}]{0,64}\}|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\[pP]?."
    r"|\{[0-9 ]*(?:,[0-9 ]*)?\}|\(\?P?<[^>]{0,500}>|\(\?[A-Za-z-]*[:)]|\[\^?\]?|.",
    re.DOTALL,
)
_IN_CLASS = re.compile(r"\\.|\[\^?\]?|\]|[^\\\[\]]+", re.DOTALL)
_BOUNDARIES = (r"\b", r"\B", r"\<", r"\>")

Node = int | tuple[int, ...]
"""The number of an atom, which takes one character; `BEGIN`; `END`; or how far it is to the nodes that come next."""

BEGIN = -1
END: Node = ()


class Unread(Exception):  # noqa: N818 - never leaves these files
    """It cannot be told what a pattern does, or it is too long."""


@dataclass(frozen=True, slots=True)
class Program:
    """The nodes of a pattern; who comes to their end has found it. ``atoms`` are patterns of one character each.

    ``is_exact``: none of the ways through it is open only at the edge of a word or of a line, or to fewer characters.
    """

    nodes: list[Node]
    atoms: tuple[str, ...]
    is_exact: bool


def program_of(pattern: str) -> Program:
    """Read a pattern. Raises `Unread`."""
    if len(pattern) > _MAX_READ_CHARACTERS:
        raise Unread
    reader = _Reader(pattern)
    return Program(reader.read(), tuple(reader.atoms), reader.is_exact)


@dataclass(slots=True)
class _Group:
    """What has been read of a group: its alternatives, and of the last one what it is of, so far."""

    alternatives: list[list[Node]] = field(default_factory=list[list[Node]])
    parts: list[list[Node]] = field(default_factory=list[list[Node]])

    def close(self) -> list[Node]:
        """Return the nodes of the whole group."""
        self.alternative()
        last = self.alternatives.pop()
        behind = list[list[Node]]([last])  # from the end on, for each has to know how much comes after it
        size = len(last)
        while self.alternatives:
            nodes = self.alternatives.pop()
            on, either = list[Node]([(size + 1,)]), list[Node]([(1, len(nodes) + 2)])
            behind += [on, nodes, either]
            size += len(nodes) + 2
        return _joined(behind[::-1])

    def alternative(self) -> None:
        """Begin another one."""
        self.alternatives.append(_joined(self.parts))
        self.parts = []


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._flags = {*"".join(_FLAGS.findall(pattern))}
        if self._flags & {"x", "U"}:
            raise Unread
        self._prefix = "".join(f"(?{flag})" for flag in "is" if flag in self._flags)
        self._position = 0
        self._groups = [_Group()]
        self.atoms: dict[str, int] = {}
        leading = _FLAGS_OF_ALL.match(pattern)
        self.is_exact = not _FLAGS.search(pattern, leading.end() if leading else 0)

    def read(self) -> list[Node]:
        """Return the nodes of all of it."""
        while self._position < len(self._pattern):
            steps.take()
            self._part(self._take(_PART))
        if len(self._groups) > 1:
            raise Unread
        return self._groups.pop().close()

    def _take(self, what: re.Pattern[str]) -> str:
        found = what.match(self._pattern, self._position)
        if found is None:
            raise Unread
        self._position = found.end()
        return found[0]

    def _part(self, part: str) -> None:
        group = self._groups[-1]
        if part[0] == "(" and part[-1] != ")":
            self._groups.append(_Group())
        elif part == "|":
            group.alternative()
        elif part == ")":
            if len(self._groups) == 1:
                raise Unread
            self._groups[-2].parts.append(self._groups.pop().close())
        elif part in ("*", "+", "?") or (part[0] == "{" and part != "{"):
            self._repeat(group, part)
        elif part[0] != "(":  # else it sets flags from here on
            group.parts.append(self._single(part))

    def _single(self, part: str) -> list[Node]:
        is_begin = part == "^"
        if is_begin or part == "$":
            return [] if "m" in self._flags else [BEGIN if is_begin else END]
        if part in (r"\A", r"\z"):
            return [BEGIN if part == r"\A" else END]
        if part in _BOUNDARIES or part.startswith(r"\b{"):
            self.is_exact = False
            return []
        if part[0] == "[":
            part += self._rest_of_class()
        return [self.atoms.setdefault(self._prefix + part, len(self.atoms))]

    def _rest_of_class(self) -> str:
        start, depth = self._position, 1
        while depth:
            part = self._take(_IN_CLASS)
            depth += (part[0] == "[") - (part == "]")
        return self._pattern[start : self._position]

    def _repeat(self, group: _Group, part: str) -> None:
        if not group.parts:
            raise Unread
        is_lazy = self._pattern.startswith("?", self._position)
        self._position += is_lazy
        group.parts.append(_repeated(group.parts.pop(), *_times(part), is_lazy=is_lazy))


def _times(part: str) -> tuple[int, int | None]:
    if len(part) == 1:
        return (1 if part == "+" else 0), (1 if part == "?" else None)
    least, comma, most = part[1:-1].replace(" ", "").partition(",")
    if not least and not most:
        raise Unread
    if not comma:
        return int(least), int(least)
    return int(least or 0), int(most) if most else None


def _joined(parts: list[list[Node]]) -> list[Node]:
    if sum(map(len, parts)) > MOST_NODES:
        raise Unread
    return [node for part in parts for node in part]


def _repeated(piece: list[Node], least: int, most: int | None, *, is_lazy: bool) -> list[Node]:
    size = len(piece)
    if (size + 1) * max(least, most or 0) > MOST_NODES:
        raise Unread
    if not size:
        return []
    if most is None and least:
        return piece * least + [_ways(-size, 1, is_lazy=is_lazy)]
    nodes = piece * least
    if most is None:
        return [_ways(1, size + 2, is_lazy=is_lazy), *piece, (-size - 1,)]
    for left in range(most - least, 0, -1):
        nodes += [_ways(1, left * (size + 1), is_lazy=is_lazy), *piece]
    return nodes


def _ways(again: int, on: int, *, is_lazy: bool) -> tuple[int, int]:
    return (on, again) if is_lazy else (again, on)
