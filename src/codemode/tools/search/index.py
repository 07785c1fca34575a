"""Search over a set of tools: made once, by whoever asks first, off the event loop. Never runs a tool."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ...host.forks import forkable_lock
from ...signatures.described_tool import DescribedTool
from .postings import NamedTools, Postings, named_tools
from .query import Query, read_query
from .text_index import FIRST_TOOLS, NO_WORD, TextIndex, doubt_of, is_foreign

_PLACES = 6  # of a score: what differs less is equal
_LEAST_DIFFERENCE = 1e-6


class Found(NamedTuple):
    """A tool that was found: its place in the order of registration, and how well it fits, 0 to 1."""

    position: int
    score: float


class Answer(NamedTuple):
    """What a search found, best first, and what whoever asked should know about it."""

    found: list[Found]
    warnings: tuple[str, ...]


class ToolIndex:
    """Finds tools by words in their names, descriptions, parameters and examples. Made by the first search, and once.

    Making it for thousands of tools takes a second: search in a thread. Unchanging, and safe to use from several
    threads.
    """

    def __init__(self, tools: Iterable[tuple[str, DescribedTool]], base: Postings | None = None) -> None:
        self._tools = named_tools(tools)
        self._base = base  # what an earlier index has done already
        self._lock = forkable_lock()
        self._index: TextIndex | None = None

    def updated(self, tools: Iterable[tuple[str, DescribedTool]]) -> ToolIndex:
        """Return an index of these tools, in this order; this one goes on answering for its own.

        It indexes only those that are not in this one with the same name and texts. The very tool object of this one is
        taken to say what it said. Made by its first search, as any index.
        """
        base, index = self._base, self._index
        return ToolIndex(tools, index.postings if index else base)

    def prepare(self) -> None:
        """Make the index now, unless it is made: work for a thread."""
        self._made()

    def answer(self, query: str, limit: int, among: Collection[int] | None = None) -> Answer:
        """Return what `search` finds, and warnings: why it is nothing, or why it may not be what was meant."""
        read = read_query(query)
        if not (read.words or read.forms):
            return Answer([], (NO_WORD,))
        found = self._search(read, limit, among)
        index = self._made()
        doubt = doubt_of(read, index, index.postings.slots[found[0].position] if found else None)
        if not found and is_foreign(read):
            found, doubt = self._first(limit, among), f"{doubt} {FIRST_TOOLS}"
        return Answer(found, (doubt,) if doubt and limit > 0 else ())

    def _first(self, limit: int, among: Collection[int] | None) -> list[Found]:
        # No word leads from one script to another: whoever asks is shown what there is.
        positions = range(len(self._tools)) if among is None else sorted(at for at in among if at < len(self._tools))
        return [Found(position, 0.0) for position in positions[: max(limit, 0)]]

    def search(self, query: str, limit: int, among: Collection[int] | None = None) -> list[Found]:
        """Return at most ``limit`` tools that fit any word of ``query``, best first, equal ones in their order.

        ``among`` are the positions to choose from: a set, where there are many.
        """
        return self._search(read_query(query), limit, among)

    def _search(self, read: Query, limit: int, among: Collection[int] | None) -> list[Found]:
        if not (read.words or read.forms) or limit <= 0:
            return []
        index = self._made()
        slots, positions = index.postings.slots, index.postings.positions
        chosen = None if among is None else {slots[at] for at in among if 0 <= at < len(slots)}
        scores = index.scores(read, limit, chosen)
        least = 0.0
        if len(scores) > limit:
            least = sorted(scores.values(), reverse=True)[limit - 1] - _LEAST_DIFFERENCE
        found = [Found(positions[slot], round(score, _PLACES)) for slot, score in scores.items() if score >= least]
        return sorted(found, key=lambda one: (-one.score, one.position))[:limit]

    def _made(self) -> TextIndex:
        index = self._index
        if index is None:
            with self._lock:
                if self._index is None:
                    self._index = _built(self._tools) if self._base is None else _changed(self._tools, self._base)
                    self._base = None
                index = self._index
        return index


def _built(tools: NamedTools) -> TextIndex:
    return TextIndex(Postings(tools))


def _changed(tools: NamedTools, base: Postings) -> TextIndex:
    return TextIndex(Postings(tools, base))
