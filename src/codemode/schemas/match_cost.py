"""Estimate what a match of a pattern costs before it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from ..data.sized_cache import SizedCache
from ..host import steps
from ..host.steps import TooMuchWork
from ..records import record
from .patterns import Match, PatternRefused, compile_linear, compiled_bytes, linear

# It is read as that engine writes patterns. What cannot be told is read as more than there is, never as less.

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


@record
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


# Rust's engine goes through a text once, but at each character it looks at every place of the pattern where a match
# may be by then: with repetitions that are counted these are thousands. Here the same places are followed, character
# by character, where each step is counted and what was seen once is remembered. Whether a text matches is not decided
# here.

MOST_UNITS = 1_000_000
"""What one match may take: a unit is one place at one byte of the text, up to ten nanoseconds."""

UNITS_OF_A_STEP = 200
_FEW_UNITS = 4000
_BYTES_OF_A_CHARACTER = 4
_CHARACTERS_OF_A_STEP = 1 << 7
_PIECE_CHARACTERS = 1 << 10
_NODES_OF_A_STEP = 8
_MOST_NEW_NODES = 200_000
# As long as there are few sets of places, the engine remembers them all and reads a byte in two nanoseconds.
_FEW_STATES = 1000
_BYTES_OF_A_UNIT_THEN = 5
_MOST_COMPILED_BYTES_THEN = 1 << 22
_LONG_TEXT = 1 << 11
_FOUND, _FOUND_AT_THE_END = -1, -2
_ASCII = "".join(map(chr, range(128)))
_MOST_NODES_TO_EXPLORE, _MOST_STATES_TO_EXPLORE = 20_000, 200
_MOST_KEPT = 30_000
_BYTES_OF_A_KEPT = 64

Take = Callable[[int], None]


def find(pattern: str, text: str, take: Take, *, is_rusts: bool = False) -> bool:
    """Tell whether a text holds what a pattern describes; what that takes is accounted for by ``take``, before.

    ``is_rusts`` is as in `compile_linear`. Raises `TooMuchWork` for what may take too long, what ``take`` raises, and
    `PatternRefused`.
    """
    one = linear(pattern, is_rusts=is_rusts)
    match, units = one.match, one.places * len(text) * _width(text)
    if units > _FEW_UNITS:
        automaton = _automaton(one.text, take)
        if automaton is not None:
            match, units = automaton.match, automaton.units(text, take)
            _kept.put(automaton.pattern, automaton, automaton.size)
    if units > MOST_UNITS:
        raise TooMuchWork
    take(1 + units // UNITS_OF_A_STEP)
    return match(text)


def _width(text: str) -> int:
    return 1 if text.isascii() else _BYTES_OF_A_CHARACTER


class _State:
    """The places of a pattern where a match may be, in the order in which the engine prefers them.

    ``weight`` is how many it goes through to find them; 0: nothing more is looked for.
    """

    __slots__ = ("after", "places", "weight")

    def __init__(self, places: tuple[int, ...], weight: int) -> None:
        self.places = places
        self.weight = weight
        self.after: dict[frozenset[int], _State] = {}


class _Memo:
    """What has been seen of a pattern: its states, and of each character which atoms it fits."""

    def __init__(self) -> None:
        self.states: dict[tuple[int, ...], _State] = {}
        self.symbols: dict[str, frozenset[int]] = {}
        self.known: dict[frozenset[int], frozenset[int]] = {}
        self.beginnings: set[int] = set()  # of characters beyond ASCII: all but the last byte
        self.size = 0
        self.start: _State | None = None

    @property
    def has_few_states(self) -> bool:
        """True while the engine has no more of them than it remembers."""
        return len(self.states) * (1 + len(self.beginnings)) <= _FEW_STATES


class _Automaton:
    """A pattern and what has been seen of it. Used by several threads: each begins with the memo that there is."""

    def __init__(self, pattern: str, program: Program) -> None:
        self.pattern = pattern
        self._program = program
        self._literals = {atom: number for number, atom in enumerate(program.atoms) if len(atom) == 1 and atom != "."}
        self._sets = [
            (number, _match_of(atom)) for number, atom in enumerate(program.atoms) if atom not in self._literals
        ]
        self._may_remember = program.is_exact and compiled_bytes(pattern) <= _MOST_COMPILED_BYTES_THEN
        self._memo = _Memo()
        self._is_small: bool | None = None
        # One that begins anywhere the engine looks for from its end, too, or from the middle, in ways of their own.
        is_at_start = not self.closure([0], is_start=False)[0]
        whole = pattern if is_at_start else f"\\A(?s:.*?)(?:{pattern})"
        self.match = compile_linear(whole, is_rusts=True)
        self._size = len(program.nodes) * 8 + sum(map(compiled_bytes, (whole, *program.atoms)))

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return self._size + self._memo.size * _BYTES_OF_A_KEPT

    def units(self, text: str, take: Take) -> int:
        """Return what a match takes. Raises `TooMuchWork` when that is too much."""
        if len(text) >= _LONG_TEXT and text.isascii() and self._has_few_states_in_ascii(take):
            return len(text) // _BYTES_OF_A_UNIT_THEN
        if self._memo.size > _MOST_KEPT:
            self._memo = _Memo()
        is_new = not self._memo.states
        units = self._followed(text, self._memo, take)
        if units is None and not is_new:
            self._memo = _Memo()  # there may be few states for this text, if many for others
            units = self._followed(text, self._memo, take)
        if units is None:
            raise TooMuchWork
        return units

    def _has_few_states_in_ascii(self, take: Take) -> bool:
        """Tell, once for all texts, whether there are few states whatever comes."""
        if self._is_small is None:
            self._is_small = self._may_remember and self._explored(_Look(self, _Memo(), take))
        return self._is_small

    def _explored(self, look: _Look) -> bool:
        pending, symbols = [look.start()], look.learn(_ASCII)
        while pending:
            state = pending.pop()
            for symbol in symbols:
                before = look.states
                following = look.follow(state, symbol)
                if look.states > before:
                    pending.append(following)
                if look.nodes > _MOST_NODES_TO_EXPLORE or look.states > _MOST_STATES_TO_EXPLORE:
                    return False
        return True

    def _followed(self, text: str, memo: _Memo, take: Take) -> int | None:
        look, width = _Look(self, memo, take), _width(text)
        state, total, read, before = look.start(), 0, 0, memo.size
        while read < len(text) and state.weight:
            piece = text[read : read + _PIECE_CHARACTERS]
            take(1 + len(piece) // _CHARACTERS_OF_A_STEP)
            read += len(piece)
            look.learn(piece)
            for symbol in map(memo.symbols.__getitem__, piece):
                state = state.after.get(symbol) or look.follow(state, symbol)
                total += state.weight
            if total * width > MOST_UNITS and not (self._may_remember and memo.has_few_states):
                return None
        if self._may_remember and memo.has_few_states:
            return min(total * width, memo.size - before + read * width // _BYTES_OF_A_UNIT_THEN)
        return total * width

    def fitting(self, character: str) -> frozenset[int]:
        """Return which atoms a character fits."""
        found = {number for number, matches in self._sets if matches(character)}
        if character in self._literals:
            found.add(self._literals[character])
        return frozenset(found)

    @property
    def steps_of_a_character(self) -> int:
        """What `fitting` takes."""
        return 1 + len(self._sets) // _NODES_OF_A_STEP

    def closure(self, begins: Iterable[int], *, is_start: bool) -> tuple[list[int], int]:
        """Return the places that can be come to without a character, and how many nodes are seen on the way."""
        nodes, end = self._program.nodes, len(self._program.nodes)
        seen, places, pending = set[int](), list[int](), [*begins]
        pending.reverse()
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen.add(at)
            node = BEGIN if at == end else nodes[at]
            if at == end:
                places.append(_FOUND)
            elif node == END:
                places.append(_FOUND_AT_THE_END)
            elif isinstance(node, tuple):
                pending += [at + far for far in reversed(node)]
            elif node != BEGIN:
                places.append(at)
            elif is_start:
                pending.append(at + 1)
        return places, len(seen)

    def places_after(self, state: _State, symbol: frozenset[int]) -> list[int]:
        """Return where a match may be once a character was read, its beginning last."""
        nodes = self._program.nodes
        return [*(at + 1 for at in state.places if nodes[at] in symbol), 0]

    def is_found(self, places: list[int]) -> bool:
        """Tell whether the engine stops there."""
        return _FOUND in places and self._program.is_exact


class _Look:
    """One look at one text: what is new to the memo is worked out, and counted."""

    def __init__(self, automaton: _Automaton, memo: _Memo, take: Take) -> None:
        self._automaton = automaton
        self._memo = memo
        self._take = take
        self.nodes = 0

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self._memo.states)

    def start(self) -> _State:
        """Return where a match begins."""
        memo = self._memo
        if memo.start is None:
            memo.start = self._state([0], is_start=True)
        return memo.start

    def learn(self, piece: str) -> Collection[frozenset[int]]:
        """Let the memo know the characters of a text, and return what there is of them by now."""
        memo = self._memo
        for character in {*piece} - memo.symbols.keys():
            self._take(self._automaton.steps_of_a_character)
            symbol = self._automaton.fitting(character)
            memo.symbols[character] = memo.known.setdefault(symbol, symbol)
            if character > "\x7f":
                memo.beginnings.add(ord(character) >> 6)
        return memo.known

    def follow(self, state: _State, symbol: frozenset[int]) -> _State:
        """Return the state behind a character."""
        following = state if not state.weight else None
        if following is None:
            following = self._state(self._automaton.places_after(state, symbol), is_start=False)
        self._memo.size += 1
        return state.after.setdefault(symbol, following)

    def _state(self, begins: list[int], *, is_start: bool) -> _State:
        places, seen = self._automaton.closure(begins, is_start=is_start)
        self._count(seen)
        is_over = self._automaton.is_found(places) or not places
        key = (_FOUND,) if is_over else tuple(place for place in places if place >= 0)
        made = _State(() if is_over else key, 0 if is_over else seen)
        kept = self._memo.states.setdefault(key, made)
        if kept is made:
            self._memo.size += 1 + len(key)
        return kept

    def _count(self, nodes: int) -> None:
        self._take(1 + nodes // _NODES_OF_A_STEP)
        self.nodes += nodes
        if self.nodes > _MOST_NEW_NODES:
            raise TooMuchWork


def _match_of(atom: str) -> Match:
    try:
        return compile_linear(atom, is_rusts=True)
    except PatternRefused:
        return lambda _text: True


_kept: SizedCache[str, _Automaton] = SizedCache(64 << 20, most_entries=64)
_unread: SizedCache[str, bool] = SizedCache(1 << 20, most_entries=256)


def _automaton(pattern: str, take: Take) -> _Automaton | None:
    """Return the automaton of a pattern; None where it cannot be read."""
    known = _kept.get(pattern)
    if known is not None or _unread.get(pattern):
        return known
    take(1 + len(pattern) // _NODES_OF_A_STEP)
    try:
        program = program_of(pattern)
        take(1 + len(program.nodes) // _CHARACTERS_OF_A_STEP)
        return _Automaton(pattern, program)
    except (Unread, PatternRefused):
        _unread.put(pattern, value=True, size=len(pattern))
        return None
