"""Search over a set of tools: made once, by whoever asks first, off the event loop. Never runs a tool."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from heapq import nsmallest
from typing import NamedTuple

from ...host import steps
from ...signatures.described_tool import DescribedTool
from .text_index import TextIndex
from .words import MAX_QUERY_CHARACTERS, asked_words, words_of

_WAIT_SECONDS = 0.005
_PLACES = 6  # of a score: what differs less is equal


class Found(NamedTuple):
    """A tool that was found: its place in the order of registration, and how well it fits, 0 to 1."""

    position: int
    score: float


class ToolIndex:
    """Finds tools by words in their names, descriptions, parameters and examples. Made by the first search, and once.

    Making it for thousands of tools takes a second: in metered work it leaves the loop, and can be stopped. Safe to use
    from several threads.
    """

    def __init__(self, tools: Iterable[tuple[str, DescribedTool]]) -> None:
        self._tools = list(tools)
        self._lock = threading.Lock()
        self._index: TextIndex | None = None

    def search(self, query: str, limit: int, among: Collection[int] | None = None) -> list[Found]:
        """Return at most ``limit`` tools that fit any word of ``query``, best first, equal ones in their order.

        ``among`` are the positions to choose from: a set, where there are many.
        """
        words = asked_words(query)
        if not words or limit <= 0:
            return []
        # Even when the index is there: what a query finds has to be put in order.
        steps.take(steps.STEPS_ON_THE_LOOP + 1)
        with self._locked():
            if self._index is None:
                self._index = _built(self._tools)
                weakref.finalize(self, self._index.close)  # Python 3.13 warns of one that is left open
            scores = self._index.scores(words, "".join(words_of(query[:MAX_QUERY_CHARACTERS])))
        found = (
            Found(position, round(score, _PLACES))
            for position, score in scores.items()
            if among is None or position in among
        )
        return nsmallest(limit, found, key=lambda one: (-one.score, one.position))

    @contextmanager
    def _locked(self) -> Generator[None]:
        # Whoever makes the index may have given its turn to this very work: neither would ever go on.
        while not self._lock.acquire(timeout=_WAIT_SECONDS):
            steps.take(steps.STEPS_BETWEEN_LOOKS + 1)
        try:
            yield
        finally:
            self._lock.release()


def _built(tools: list[tuple[str, DescribedTool]]) -> TextIndex:
    index = TextIndex()
    try:
        for name, tool in tools:
            index.add(name, tool)
    except BaseException:  # the work may be stopped at any tool
        index.close()
        raise
    return index
