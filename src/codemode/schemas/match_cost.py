"""What a match of a pattern takes, found out in steps, before it is one call into C that holds the interpreter.

Rust's engine goes through a text once, but at each character it looks at every place of the pattern where a match may
be by then: with repetitions that are counted these are thousands. Here the same places are followed, character by
character, where each step is counted and what was seen once is remembered. Whether a text matches is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ..data.sized_cache import SizedCache
from ..host.steps import TooMuchWork
from .compiled_size import compiled_bytes
from .pattern_programs import BEGIN, END, Program, Unread, program_of
from .patterns import Match, PatternRefused, compile_linear, linear

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
