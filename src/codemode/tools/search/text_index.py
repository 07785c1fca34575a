"""The words of tools in SQLite's FTS5, and how well each tool fits the words of a query. Knows nothing of threads.

A tool's score is the sum over the words, each counted by how rare it is among the tools, times the part of the words
that the tool has: of two tools the one with more of them comes first, unless the words say next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...host import steps
from ...signatures.described_tool import DescribedTool
from .columns import columns_of
from .known_words import KnownWords
from .readings import SYNONYM, Asked, Reading, asked_readings, corrected
from .words import words_of

_STEPS_OF_A_TOOL = 20
_CHARACTERS_OF_A_STEP = 100
# Each text is looked for and never read again: nothing of it is kept but its words.
_CREATE = """\
CREATE VIRTUAL TABLE tools USING fts5
(name, sentence, rest, parameters, examples, content = '', tokenize = 'porter unicode61')"""
_INSERT = "INSERT INTO tools(rowid, name, sentence, rest, parameters, examples) VALUES (?, ?, ?, ?, ?, ?)"
# The weights of the columns, in their order; measured with benchmarks/search.py.
_FIND = "SELECT rowid, bm25(tools, 8.0, 3.0, 1.0, 0.5, 2.0) FROM tools WHERE tools MATCH ?"
# FTS5: k1 is 1.2, so that a word gives less than k1 + 1 times its rarity; and nothing is less rare than this.
_MOST = 2.2
_LEAST_RARITY = 1e-6
_ALMOST_ONE = 0.999  # 1 is for a tool whose very name was asked for

_Hits = dict[
    int, tuple[float, float]
]  # by position: how well it fits one word, and how sure the reading of the word is


class TextIndex:
    """The texts of tools, in the order in which they are added."""

    def __init__(self) -> None:
        import sqlite3

        self.connection = sqlite3.connect(":memory:", check_same_thread=False)
        self.connection.execute(_CREATE)
        self._count = 0
        self._known = KnownWords()
        self._by_name: dict[str, list[int]] = {}

    def close(self) -> None:
        """Give the memory back; the index is of no use any more."""
        self.connection.close()

    def add(self, name: str, tool: DescribedTool) -> None:
        """Index the next tool."""
        columns = columns_of(name, tool)
        steps.take(_STEPS_OF_A_TOOL + sum(map(len, columns)) // _CHARACTERS_OF_A_STEP)
        self._known.add(set(" ".join(columns).split()))
        self._by_name.setdefault("".join(words_of(name)), []).append(self._count)
        self.connection.execute(_INSERT, (self._count, *columns))
        self._count += 1

    def scores(self, words: list[str], plain: str) -> dict[int, float]:
        """Return how well tools fit the words, above 0 and up to 1, by position; ``plain`` is the query in one word."""
        gained: dict[int, float] = {}
        had: dict[int, float] = {}
        possible = 0.0
        for asked in asked_readings(words, self._known):
            hits = self._hits(asked)
            rarity = self._rarity(len(hits) or 1)
            possible += rarity
            for position, (score, weight) in hits.items():
                gained[position] = gained.get(position, 0.0) + rarity * score
                had[position] = had.get(position, 0.0) + weight / len(words)
        scores = {position: min(gain / possible * had[position], _ALMOST_ONE) for position, gain in gained.items()}
        return scores | dict.fromkeys(self._by_name.get(plain, ()), 1.0)

    def _hits(self, asked: Asked) -> _Hits:
        hits: _Hits = {}
        self._read(hits, asked.readings)
        if not hits:
            self._read(hits, corrected(asked.word, self._known))
        if asked.synonyms:
            rows = self._rows(asked.synonyms)
            best = max((score for _, score in rows), default=1.0)
            _keep(hits, ((position, score / best) for position, score in rows), SYNONYM)
        return hits

    def _read(self, hits: _Hits, readings: Iterable[Reading]) -> None:
        for expression, weight in readings:
            rows = self._rows(expression)
            # What one word gives is the same share of itself however common it is.
            odds = (self._count - len(rows) + 0.5) / (len(rows) + 0.5)
            full = _MOST * (math.log(odds) if odds > 1 else _LEAST_RARITY)
            _keep(hits, ((position, score / full) for position, score in rows), weight)

    def _rows(self, expression: str) -> list[tuple[int, float]]:
        found = self.connection.execute(_FIND, (expression,)).fetchall()
        return [(position, -score) for position, score in found]

    def _rarity(self, count: int) -> float:
        """Tell words apart by how many tools have them; above 0 even when all do, which FTS5's own measure is not."""
        return math.log(1 + (self._count - count + 0.5) / (count + 0.5))


def _keep(hits: _Hits, found: Iterable[tuple[int, float]], weight: float) -> None:
    for position, score in found:
        steps.take()
        before = hits.get(position, (0.0, 0.0))
        hits[position] = (max(before[0], weight * score), max(before[1], weight))
