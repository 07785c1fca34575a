"""Estimate what a match of a pattern costs before it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from ..data.sized_cache import SizedCache
from ..host import steps
from ..host.steps import WorkLimitError
from ..records import record
from .patterns import (
    Match,
    PatternRefusedError,
    compile_linear_matcher,
    estimate_compiled_bytes,
    get_or_compile_linear_pattern,
)

# Patterns are read in that engine's syntax. Where the cost is uncertain, the higher one counts.

MAX_NODES = 1 << 15
_MAX_READ_CHARACTERS = 1 << 15
_FLAGS = re.compile(r"\(\?([A-Za-z]+)")
_LEADING_FLAGS = re.compile(r"\(\?[is]+\)")
_LEXEME = re.compile(
    r"\\[pPxuUb]\{[^}]{0,64}\}|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\[pP]?."
    r"|\{[0-9 ]*(?:,[0-9 ]*)?\}|\(\?P?<[^>]{0,500}>|\(\?[A-Za-z-]*[:)]|\[\^?\]?|.",
    re.DOTALL,
)
_CLASS_LEXEME = re.compile(r"\\.|\[\^?\]?|\]|[^\\\[\]]+", re.DOTALL)
_BOUNDARIES = (r"\b", r"\B", r"\<", r"\>")

Node = int | tuple[int, ...]
"""The number of an atom, which takes one character; `BEGIN`; `END`; or how far it is to the nodes that come next."""

BEGIN = -1
END: Node = ()


class UnreadablePatternError(Exception):
    """A pattern is too long, or has syntax that is not analysed here."""


@record
class RegexProgram:
    """The nodes of a pattern; its last node means a match. ``atoms`` are patterns of one character each.

    ``is_exact``: no path through it depends on a word or line boundary, or on fewer characters.
    """

    nodes: list[Node]
    atoms: tuple[str, ...]
    is_exact: bool


def parse_pattern(pattern: str) -> RegexProgram:
    """Read a pattern. Raises `UnreadablePatternError`."""
    if len(pattern) > _MAX_READ_CHARACTERS:
        raise UnreadablePatternError
    reader = _RegexParser(pattern)
    return RegexProgram(reader.parse(), tuple(reader.atoms), reader.is_exact)


@dataclass(slots=True)
class _RegexGroup:
    """The state of reading a group: its alternatives, and the parts of the last one so far."""

    alternatives: list[list[Node]] = field(default_factory=list[list[Node]])
    parts: list[list[Node]] = field(default_factory=list[list[Node]])

    def build_nodes(self) -> list[Node]:
        """Return the nodes of the whole group."""
        self.finish_alternative()
        last = self.alternatives.pop()
        blocks = list[list[Node]]([last])  # from the end on, for each has to know how much comes after it
        size = len(last)
        while self.alternatives:
            nodes = self.alternatives.pop()
            skip, split = list[Node]([(size + 1,)]), list[Node]([(1, len(nodes) + 2)])
            blocks += [skip, nodes, split]
            size += len(nodes) + 2
        return _join_nodes(blocks[::-1])

    def finish_alternative(self) -> None:
        """Finish the current alternative and begin another one."""
        self.alternatives.append(_join_nodes(self.parts))
        self.parts = []


class _RegexParser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._inline_flags = {*"".join(_FLAGS.findall(pattern))}
        if self._inline_flags & {"x", "U"}:
            raise UnreadablePatternError
        self._prefix = "".join(f"(?{flag})" for flag in "is" if flag in self._inline_flags)
        self._position = 0
        self._groups = [_RegexGroup()]
        self.atoms: dict[str, int] = {}
        leading = _LEADING_FLAGS.match(pattern)
        self.is_exact = not _FLAGS.search(pattern, leading.end() if leading else 0)

    def parse(self) -> list[Node]:
        """Return the nodes of all of it."""
        while self._position < len(self._pattern):
            steps.count_steps()
            self._parse_lexeme(self._consume_lexeme(_LEXEME))
        if len(self._groups) > 1:
            raise UnreadablePatternError
        return self._groups.pop().build_nodes()

    def _consume_lexeme(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._pattern, self._position)
        if match is None:
            raise UnreadablePatternError
        self._position = match.end()
        return match[0]

    def _parse_lexeme(self, lexeme: str) -> None:
        group = self._groups[-1]
        if lexeme[0] == "(" and lexeme[-1] != ")":
            self._groups.append(_RegexGroup())
        elif lexeme == "|":
            group.finish_alternative()
        elif lexeme == ")":
            if len(self._groups) == 1:
                raise UnreadablePatternError
            self._groups[-2].parts.append(self._groups.pop().build_nodes())
        elif lexeme in ("*", "+", "?") or (lexeme[0] == "{" and lexeme != "{"):
            self._repeat_last_part(group, lexeme)
        elif lexeme[0] != "(":  # else it sets flags from here on
            group.parts.append(self._parse_atom(lexeme))

    def _parse_atom(self, lexeme: str) -> list[Node]:
        is_begin = lexeme == "^"
        if is_begin or lexeme == "$":
            return [] if "m" in self._inline_flags else [BEGIN if is_begin else END]
        if lexeme in (r"\A", r"\z"):
            return [BEGIN if lexeme == r"\A" else END]
        if lexeme in _BOUNDARIES or lexeme.startswith(r"\b{"):
            self.is_exact = False
            return []
        if lexeme[0] == "[":
            lexeme += self._consume_character_class()
        return [self.atoms.setdefault(self._prefix + lexeme, len(self.atoms))]

    def _consume_character_class(self) -> str:
        start, depth = self._position, 1
        while depth:
            lexeme = self._consume_lexeme(_CLASS_LEXEME)
            depth += (lexeme[0] == "[") - (lexeme == "]")
        return self._pattern[start : self._position]

    def _repeat_last_part(self, group: _RegexGroup, lexeme: str) -> None:
        if not group.parts:
            raise UnreadablePatternError
        is_lazy = self._pattern.startswith("?", self._position)
        self._position += is_lazy
        group.parts.append(_repeat_nodes(group.parts.pop(), *_parse_repetition(lexeme), is_lazy=is_lazy))


def _parse_repetition(lexeme: str) -> tuple[int, int | None]:
    if len(lexeme) == 1:
        return (1 if lexeme == "+" else 0), (1 if lexeme == "?" else None)
    minimum, comma, maximum = lexeme[1:-1].replace(" ", "").partition(",")
    if not minimum and not maximum:
        raise UnreadablePatternError
    if not comma:
        return int(minimum), int(minimum)
    return int(minimum or 0), int(maximum) if maximum else None


def _join_nodes(parts: list[list[Node]]) -> list[Node]:
    if sum(map(len, parts)) > MAX_NODES:
        raise UnreadablePatternError
    return [node for part in parts for node in part]


def _repeat_nodes(piece: list[Node], minimum: int, maximum: int | None, *, is_lazy: bool) -> list[Node]:
    size = len(piece)
    if (size + 1) * max(minimum, maximum or 0) > MAX_NODES:
        raise UnreadablePatternError
    if not size:
        return []
    if maximum is None and minimum:
        return piece * minimum + [_create_branch_node(-size, 1, is_lazy=is_lazy)]
    nodes = piece * minimum
    if maximum is None:
        return [_create_branch_node(1, size + 2, is_lazy=is_lazy), *piece, (-size - 1,)]
    for remaining in range(maximum - minimum, 0, -1):
        nodes += [_create_branch_node(1, remaining * (size + 1), is_lazy=is_lazy), *piece]
    return nodes


def _create_branch_node(repeat_offset: int, next_offset: int, *, is_lazy: bool) -> tuple[int, int]:
    return (next_offset, repeat_offset) if is_lazy else (repeat_offset, next_offset)


# Rust's engine goes through a text once, but at each character it visits every place of the pattern that a match may
# have reached: thousands with counted repetitions. The code below visits the same places, character by character,
# counts each step and caches results. It does not decide whether a text matches.

MAX_UNITS_PER_MATCH = 1_000_000
"""What one match may take: a unit is one place at one byte of the text, up to ten nanoseconds."""

UNITS_PER_STEP = 200
_MAX_UNITS_WITHOUT_ESTIMATE = 4000
_MAX_BYTES_PER_CHARACTER = 4
_CHARACTERS_PER_STEP = 1 << 7
_CHUNK_CHARACTERS = 1 << 10
_NODES_PER_STEP = 8
_MAX_NEW_NODES = 200_000
# As long as there are few sets of places, the engine remembers them all and reads a byte in two nanoseconds.
_MAX_CACHED_STATES = 1000
_BYTES_PER_UNIT_WITH_FEW_STATES = 5
_MAX_COMPILED_BYTES_WITH_FEW_STATES = 1 << 22
_MIN_LONG_TEXT_CHARACTERS = 1 << 11
_MATCHED, _MATCHED_AT_END = -1, -2
_ASCII = "".join(map(chr, range(128)))
_MAX_NODES_TO_EXPLORE, _MAX_STATES_TO_EXPLORE = 20_000, 200
_MAX_MEMO_SIZE = 30_000
_BYTES_PER_MEMO_ENTRY = 64

CountSteps = Callable[[int], None]


def search_within_budget(pattern: str, text: str, count_steps: CountSteps, *, is_rust_syntax: bool = False) -> bool:
    """Tell whether a text holds what a pattern describes; what that takes is accounted for by ``count_steps``, before.

    ``is_rust_syntax`` is as in `compile_linear_matcher`. Raises `WorkLimitError` for a match that may take too long,
    `PatternRefusedError`, and what ``count_steps`` raises.
    """
    compiled = get_or_compile_linear_pattern(pattern, is_rust_syntax=is_rust_syntax)
    match, units = compiled.match, compiled.places * len(text) * _get_max_bytes_per_character(text)
    if units > _MAX_UNITS_WITHOUT_ESTIMATE:
        automaton = _get_or_create_automaton(compiled.text, count_steps)
        if automaton is not None:
            match, units = automaton.match, automaton.estimate_match_units(text, count_steps)
            _automata.put(automaton.pattern, automaton, automaton.size)
    if units > MAX_UNITS_PER_MATCH:
        raise WorkLimitError
    count_steps(1 + units // UNITS_PER_STEP)
    return match(text)


def _get_max_bytes_per_character(text: str) -> int:
    return 1 if text.isascii() else _MAX_BYTES_PER_CHARACTER


class _MatchState:
    """The places of a pattern where a match may be, in the order in which the engine prefers them.

    ``weight`` is how many it goes through to find them; 0: nothing more is looked for.
    """

    __slots__ = ("next_states", "places", "weight")

    def __init__(self, places: tuple[int, ...], weight: int) -> None:
        self.places = places
        self.weight = weight
        self.next_states: dict[frozenset[int], _MatchState] = {}


class _MatchMemo:
    """The cache of a pattern: its states, and for each character the atoms that it fits."""

    def __init__(self) -> None:
        self.states: dict[tuple[int, ...], _MatchState] = {}
        self.atoms_by_character: dict[str, frozenset[int]] = {}
        self.interned_symbols: dict[frozenset[int], frozenset[int]] = {}
        self.multibyte_prefixes: set[int] = set()  # of characters beyond ASCII: all but the last byte
        self.size = 0
        self.start_state: _MatchState | None = None

    @property
    def has_few_states(self) -> bool:
        """True while the engine has no more of them than it remembers."""
        return len(self.states) * (1 + len(self.multibyte_prefixes)) <= _MAX_CACHED_STATES


class _PatternAutomaton:
    """A pattern and what has been seen of it. Used by several threads: each begins with the memo that there is."""

    def __init__(self, pattern: str, program: RegexProgram) -> None:
        self.pattern = pattern
        self._program = program
        self._atom_by_literal = {
            atom: number for number, atom in enumerate(program.atoms) if len(atom) == 1 and atom != "."
        }
        self._atom_matchers = [
            (number, _compile_atom(atom))
            for number, atom in enumerate(program.atoms)
            if atom not in self._atom_by_literal
        ]
        self._engine_may_cache_states = (
            program.is_exact and estimate_compiled_bytes(pattern) <= _MAX_COMPILED_BYTES_WITH_FEW_STATES
        )
        self._memo = _MatchMemo()
        self._has_few_ascii_states: bool | None = None
        # One that begins anywhere the engine looks for from its end, too, or from the middle, in ways of their own.
        is_at_start = not self.compute_epsilon_closure([0], is_start=False)[0]
        searched_pattern = pattern if is_at_start else f"\\A(?s:.*?)(?:{pattern})"
        self.match = compile_linear_matcher(searched_pattern, is_rust_syntax=True)
        self._size = len(program.nodes) * 8 + sum(map(estimate_compiled_bytes, (searched_pattern, *program.atoms)))

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return self._size + self._memo.size * _BYTES_PER_MEMO_ENTRY

    def estimate_match_units(self, text: str, count_steps: CountSteps) -> int:
        """Return what a match takes. Raises `WorkLimitError` when that is too much."""
        if len(text) >= _MIN_LONG_TEXT_CHARACTERS and text.isascii() and self._has_few_states_in_ascii(count_steps):
            return len(text) // _BYTES_PER_UNIT_WITH_FEW_STATES
        if self._memo.size > _MAX_MEMO_SIZE:
            self._memo = _MatchMemo()
        is_new = not self._memo.states
        units = self._measure_text_units(text, self._memo, count_steps)
        if units is None and not is_new:
            self._memo = _MatchMemo()  # there may be few states for this text, if many for others
            units = self._measure_text_units(text, self._memo, count_steps)
        if units is None:
            raise WorkLimitError
        return units

    def _has_few_states_in_ascii(self, count_steps: CountSteps) -> bool:
        """Return, once for all texts, whether the pattern has few states with any text."""
        if self._has_few_ascii_states is None:
            self._has_few_ascii_states = self._engine_may_cache_states and self._has_few_reachable_states(
                _StateExplorer(self, _MatchMemo(), count_steps)
            )
        return self._has_few_ascii_states

    def _has_few_reachable_states(self, search: _StateExplorer) -> bool:
        pending, symbols = [search.get_or_create_start_state()], search.cache_characters_and_get_symbols(_ASCII)
        while pending:
            state = pending.pop()
            for symbol in symbols:
                state_count = search.state_count
                next_state = search.get_or_create_next_state(state, symbol)
                if search.state_count > state_count:
                    pending.append(next_state)
                if search.node_count > _MAX_NODES_TO_EXPLORE or search.state_count > _MAX_STATES_TO_EXPLORE:
                    return False
        return True

    def _measure_text_units(self, text: str, memo: _MatchMemo, count_steps: CountSteps) -> int | None:
        search, width = _StateExplorer(self, memo, count_steps), _get_max_bytes_per_character(text)
        state, total, read_count, size_before = search.get_or_create_start_state(), 0, 0, memo.size
        while read_count < len(text) and state.weight:
            chunk = text[read_count : read_count + _CHUNK_CHARACTERS]
            count_steps(1 + len(chunk) // _CHARACTERS_PER_STEP)
            read_count += len(chunk)
            search.cache_characters_and_get_symbols(chunk)
            for symbol in map(memo.atoms_by_character.__getitem__, chunk):
                state = state.next_states.get(symbol) or search.get_or_create_next_state(state, symbol)
                total += state.weight
            if total * width > MAX_UNITS_PER_MATCH and not (self._engine_may_cache_states and memo.has_few_states):
                return None
        if self._engine_may_cache_states and memo.has_few_states:
            return min(total * width, memo.size - size_before + read_count * width // _BYTES_PER_UNIT_WITH_FEW_STATES)
        return total * width

    def find_matching_atoms(self, character: str) -> frozenset[int]:
        """Return which atoms a character fits."""
        atoms = {number for number, matches in self._atom_matchers if matches(character)}
        if character in self._atom_by_literal:
            atoms.add(self._atom_by_literal[character])
        return frozenset(atoms)

    @property
    def steps_per_character(self) -> int:
        """The steps of one call of `find_matching_atoms`."""
        return 1 + len(self._atom_matchers) // _NODES_PER_STEP

    def compute_epsilon_closure(self, start_nodes: Iterable[int], *, is_start: bool) -> tuple[list[int], int]:
        """Return the places that are reachable without a character, and the number of nodes visited."""
        nodes, end = self._program.nodes, len(self._program.nodes)
        seen, places, pending = set[int](), list[int](), [*start_nodes]
        pending.reverse()
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen.add(at)
            node = BEGIN if at == end else nodes[at]
            if at == end:
                places.append(_MATCHED)
            elif node == END:
                places.append(_MATCHED_AT_END)
            elif isinstance(node, tuple):
                pending += [at + offset for offset in reversed(node)]
            elif node != BEGIN:
                places.append(at)
            elif is_start:
                pending.append(at + 1)
        return places, len(seen)

    def compute_next_places(self, state: _MatchState, symbol: frozenset[int]) -> list[int]:
        """Return where a match may be once a character was read, its beginning last."""
        nodes = self._program.nodes
        return [*(at + 1 for at in state.places if nodes[at] in symbol), 0]

    def stops_at_match(self, places: list[int]) -> bool:
        """Tell whether the engine stops there."""
        return _MATCHED in places and self._program.is_exact


class _StateExplorer:
    """One look at one text: what is new to the memo is worked out, and counted."""

    def __init__(self, automaton: _PatternAutomaton, memo: _MatchMemo, count_steps: CountSteps) -> None:
        self._automaton = automaton
        self._memo = memo
        self._count_steps = count_steps
        self.node_count = 0

    @property
    def state_count(self) -> int:
        """How many states there are."""
        return len(self._memo.states)

    def get_or_create_start_state(self) -> _MatchState:
        """Return where a match begins."""
        memo = self._memo
        if memo.start_state is None:
            memo.start_state = self._intern_state([0], is_start=True)
        return memo.start_state

    def cache_characters_and_get_symbols(self, text: str) -> Collection[frozenset[int]]:
        """Add the text's characters to the cache, and return their entries."""
        memo = self._memo
        for character in {*text} - memo.atoms_by_character.keys():
            self._count_steps(self._automaton.steps_per_character)
            symbol = self._automaton.find_matching_atoms(character)
            memo.atoms_by_character[character] = memo.interned_symbols.setdefault(symbol, symbol)
            if character > "\x7f":
                memo.multibyte_prefixes.add(ord(character) >> 6)
        return memo.interned_symbols

    def get_or_create_next_state(self, state: _MatchState, symbol: frozenset[int]) -> _MatchState:
        """Return the state behind a character."""
        next_state = state if not state.weight else None
        if next_state is None:
            next_state = self._intern_state(self._automaton.compute_next_places(state, symbol), is_start=False)
        self._memo.size += 1
        return state.next_states.setdefault(symbol, next_state)

    def _intern_state(self, start_nodes: list[int], *, is_start: bool) -> _MatchState:
        places, seen_nodes = self._automaton.compute_epsilon_closure(start_nodes, is_start=is_start)
        self._count_nodes(seen_nodes)
        is_matched_or_dead = self._automaton.stops_at_match(places) or not places
        key = (_MATCHED,) if is_matched_or_dead else tuple(place for place in places if place >= 0)
        new_state = _MatchState(() if is_matched_or_dead else key, 0 if is_matched_or_dead else seen_nodes)
        state = self._memo.states.setdefault(key, new_state)
        if state is new_state:
            self._memo.size += 1 + len(key)
        return state

    def _count_nodes(self, nodes: int) -> None:
        self._count_steps(1 + nodes // _NODES_PER_STEP)
        self.node_count += nodes
        if self.node_count > _MAX_NEW_NODES:
            raise WorkLimitError


def _compile_atom(atom: str) -> Match:
    try:
        return compile_linear_matcher(atom, is_rust_syntax=True)
    except PatternRefusedError:
        return lambda _text: True


_automata: SizedCache[str, _PatternAutomaton] = SizedCache(64 << 20, max_entries=64)
_unreadable_patterns: SizedCache[str, bool] = SizedCache(1 << 20, max_entries=256)


def _get_or_create_automaton(pattern: str, count_steps: CountSteps) -> _PatternAutomaton | None:
    """Return the automaton of a pattern; None where it cannot be read."""
    automaton = _automata.get(pattern)
    if automaton is not None or _unreadable_patterns.get(pattern):
        return automaton
    count_steps(1 + len(pattern) // _NODES_PER_STEP)
    try:
        program = parse_pattern(pattern)
        count_steps(1 + len(program.nodes) // _CHARACTERS_PER_STEP)
        return _PatternAutomaton(pattern, program)
    except (UnreadablePatternError, PatternRefusedError):
        _unreadable_patterns.put(pattern, value=True, size=len(pattern))
        return None
