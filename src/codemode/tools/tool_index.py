"""Full text search over a set of tools. Knows no words of a query but quoted ones, and never runs a tool."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..data.narrowing import mapping_or_empty
from ..host import steps
from ..signatures.described_tool import DescribedTool

if TYPE_CHECKING:
    import sqlite3

MAX_QUERY_CHARACTERS = 500
MAX_QUERY_WORDS = 16
_MAX_INDEXED_CHARACTERS = 10_000  # of a description
_MAX_INDEXED_PARAMETERS = 1000
_MIN_PREFIX_CHARACTERS = 3  # of less than that nearly everything is found
_STEPS_OF_A_TOOL = 20
_WAIT_SECONDS = 0.005

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Weights of the columns: a word in the name says more than one in the description, or in a parameter.
_FIND = """\
SELECT position FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 0.0, 8.0, 3.0, 1.0), position LIMIT ?"""


class ToolIndex:
    """Finds tools by words in their names, descriptions and parameters. Made by the first search, and once.

    Making it for thousands of tools takes a second: in metered work it leaves the loop, and can be stopped. Safe to use
    from several threads.
    """

    def __init__(self, tools: Iterable[tuple[str, DescribedTool]]) -> None:
        self._tools = list(tools)
        self._lock = threading.Lock()
        self._index: sqlite3.Connection | None = None

    def search(self, query: str, limit: int) -> list[int]:
        """Return the positions of the tools that fit any word of ``query``, best first."""
        expression = match_expression(query)
        if not expression:
            return []
        # Even when the index is there: what a query finds has to be put in order.
        steps.take(steps.STEPS_ON_THE_LOOP + 1)
        with self._locked():
            if self._index is None:
                self._index = _built(self._tools)
                weakref.finalize(self, self._index.close)  # Python 3.13 warns of one that is left open
            rows: list[tuple[int]] = self._index.execute(_FIND, (expression, limit)).fetchall()
        return [position for (position,) in rows]

    @contextmanager
    def _locked(self) -> Generator[None]:
        # Whoever makes the index may have given its turn to this very work: neither would ever go on.
        while not self._lock.acquire(timeout=_WAIT_SECONDS):
            steps.take(steps.STEPS_BETWEEN_LOOKS + 1)
        try:
            yield
        finally:
            self._lock.release()


def words_of(text: str) -> list[str]:
    """Return lower-case words, with ``readFile``, ``read_file`` and ``HTTPServer`` taken apart."""
    return [part.lower() for word in _WORD.findall(text) for part in _CAMEL.split(word)]


def match_expression(query: str) -> str:
    """Return an FTS5 expression for any word of a query, or a word that begins like it."""
    # Only letters and digits reach the engine, each word quoted: no query can be read as FTS5 syntax.
    words = dict.fromkeys(words_of(query[:MAX_QUERY_CHARACTERS]))
    return " OR ".join(
        f'"{word}"' + "*" * (len(word) >= _MIN_PREFIX_CHARACTERS) for word in list(words)[:MAX_QUERY_WORDS]
    )


def _built(tools: list[tuple[str, DescribedTool]]) -> sqlite3.Connection:
    import sqlite3

    index = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        index.execute(
            "CREATE VIRTUAL TABLE tools USING fts5"
            "(position UNINDEXED, name, description, parameters, tokenize = 'porter unicode61')"
        )
        rows = ((position, *_row(name, tool)) for position, (name, tool) in enumerate(tools))
        index.executemany("INSERT INTO tools VALUES (?, ?, ?, ?)", rows)
    except BaseException:  # the work may be stopped at any row
        index.close()
        raise
    return index


def _row(name: str, tool: DescribedTool) -> tuple[str, str, str]:
    from ..signatures.declarations import summary_of

    steps.take(_STEPS_OF_A_TOOL)
    return (
        " ".join([*words_of(name), name.lower()]).encode("utf-8", "replace").decode(),
        " ".join(words_of(summary_of(tool)[:_MAX_INDEXED_CHARACTERS])),
        " ".join(word for parameter in _parameter_names(tool) for word in words_of(parameter)),
    )


def _parameter_names(tool: DescribedTool) -> list[str]:
    properties: Any = mapping_or_empty(mapping_or_empty(tool.input_json_schema).get("properties"))
    return [name for name in properties if isinstance(name, str)][:_MAX_INDEXED_PARAMETERS]
