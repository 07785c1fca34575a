"""Search a set of tools. The index is built on first use, off the event loop."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ...host.forks import create_fork_safe_lock
from ...signatures.described_tool import DescribedTool
from .postings import NamedToolList, Postings, to_named_tool_list
from .query import ParsedQuery, parse_query
from .text_index import FIRST_TOOLS, NO_WORD, TextIndex, describe_weak_match, has_non_latin_word

_SCORE_DIGITS = 6  # of a score: what differs less is equal
_MIN_SCORE_DIFFERENCE = 1e-6


class ScoredTool(NamedTuple):
    """A found tool: its position in the order of registration, and its score from 0 to 1."""

    position: int
    score: float


class SearchResults(NamedTuple):
    """The results of a search, best first, and warnings about them."""

    found: list[ScoredTool]
    warnings: tuple[str, ...]


class ToolIndex:
    """Finds tools by words in names, descriptions, parameters and examples. Built on first use.

    Building it for thousands of tools takes a second: search in a thread. Immutable and thread-safe.
    """

    def __init__(self, tools: Iterable[tuple[str, DescribedTool]], base: Postings | None = None) -> None:
        self._tools = to_named_tool_list(tools)
        self._base = base  # postings of an earlier index
        self._lock = create_fork_safe_lock()
        self._index: TextIndex | None = None

    def with_tools(self, tools: Iterable[tuple[str, DescribedTool]]) -> ToolIndex:
        """Return an index of these tools, in this order; this one stays usable.

        Only tools with a new name or texts are indexed. An identical tool object is assumed to be unchanged. Built on
        first use.
        """
        base, index = self._base, self._index
        return ToolIndex(tools, index.postings if index else base)

    def build_index(self) -> None:
        """Build the index now, in the caller's thread."""
        self._get_or_build_index()

    def search_with_warnings(self, query: str, limit: int, among: Collection[int] | None = None) -> SearchResults:
        """Search, with warnings: why nothing was found, or why the results may be wrong."""
        parsed = parse_query(query)
        if not (parsed.terms or parsed.forms):
            return SearchResults([], (NO_WORD,))
        found = self._search_parsed_query(parsed, limit, among)
        index = self._get_or_build_index()
        warning = describe_weak_match(parsed, index, index.postings.slots[found[0].position] if found else None)
        if not found and has_non_latin_word(parsed):
            found, warning = self._list_first_tools(limit, among), f"{warning} {FIRST_TOOLS}"
        return SearchResults(found, (warning,) if warning and limit > 0 else ())

    def _list_first_tools(self, limit: int, among: Collection[int] | None) -> list[ScoredTool]:
        # Words do not match across scripts: show the first tools instead.
        positions = (
            range(len(self._tools)) if among is None else sorted(index for index in among if index < len(self._tools))
        )
        return [ScoredTool(position, 0.0) for position in positions[: max(limit, 0)]]

    def search(self, query: str, limit: int, among: Collection[int] | None = None) -> list[ScoredTool]:
        """Return at most ``limit`` tools that match any word of ``query``, best first, ties in their order.

        ``among`` are the candidate positions: a set, if there are many.
        """
        return self._search_parsed_query(parse_query(query), limit, among)

    def _search_parsed_query(self, parsed: ParsedQuery, limit: int, among: Collection[int] | None) -> list[ScoredTool]:
        if not (parsed.terms or parsed.forms) or limit <= 0:
            return []
        index = self._get_or_build_index()
        slots, positions = index.postings.slots, index.postings.positions
        candidate_slots = (
            None if among is None else {slots[position] for position in among if 0 <= position < len(slots)}
        )
        scores = index.compute_scores(parsed, limit, candidate_slots)
        min_score = 0.0
        if len(scores) > limit:
            min_score = sorted(scores.values(), reverse=True)[limit - 1] - _MIN_SCORE_DIFFERENCE
        found = [
            ScoredTool(positions[slot], round(score, _SCORE_DIGITS))
            for slot, score in scores.items()
            if score >= min_score
        ]
        return sorted(found, key=lambda tool: (-tool.score, tool.position))[:limit]

    def _get_or_build_index(self) -> TextIndex:
        index = self._index
        if index is None:
            with self._lock:
                if self._index is None:
                    self._index = (
                        _create_text_index(self._tools)
                        if self._base is None
                        else _create_text_index_from_base(self._tools, self._base)
                    )
                    self._base = None
                index = self._index
        return index


def _create_text_index(tools: NamedToolList) -> TextIndex:
    return TextIndex(Postings(tools))


def _create_text_index_from_base(tools: NamedToolList, base: Postings) -> TextIndex:
    return TextIndex(Postings(tools, base))
