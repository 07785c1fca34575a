"""The one object through which tools are looked up: by name, by resemblance, by search. Never runs a tool."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .errors import CodeModeToolError
from .signatures.described_tool import DescribedTool
from .signatures.narrowing import mapping_or_empty

if TYPE_CHECKING:
    import sqlite3

MAX_QUERY_CHARACTERS = 500
MAX_QUERY_WORDS = 32
MAX_RESULTS = 50
MAX_NAME_CHARACTERS = 100
LANGUAGE_NAMES = frozenset({"constructor", "prototype", "toJSON", "toLocaleString", "toString", "valueOf"})
"""What the language reads of an object. A name is passed on only when there is such a tool (and ``then`` never)."""

ToolT = TypeVar("ToolT", bound=DescribedTool)

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Weights of the columns: a word in the name says more than one in the description, or in a parameter.
_FIND = """\
SELECT position FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 0.0, 8.0, 3.0, 1.0), position LIMIT ?"""


class Catalog(Generic[ToolT]):
    """An unchanging set of tools. Safe to use from several threads."""

    def __init__(self, tools: Mapping[str, ToolT]) -> None:
        self._tools = dict(tools)
        self._by_plain_name = {_plain(name): name for name in reversed(self._tools)}
        self._lock = threading.Lock()
        self._index: sqlite3.Connection | None = None

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def names(self) -> tuple[str, ...]:
        """All names, in the order of registration."""
        return tuple(self._tools)

    def tools(self) -> tuple[ToolT, ...]:
        """All tools, in the order of registration."""
        return tuple(self._tools.values())

    @cached_property
    def language_names(self) -> tuple[str, ...]:
        """Paths on ``tools`` that lead to tools by names that JavaScript itself reads of every object."""
        return tuple(dict.fromkeys(path for name in self._tools for path in _language_paths(name)))

    def get(self, name: str) -> ToolT | None:
        """The tool registered under exactly ``name``."""
        return self._tools.get(name)

    def nearest(self, name: str) -> list[str]:
        """At most three registered names that ``name`` may have meant, best first."""
        from .similar_names import nearest_names

        plain = _plain(name[:MAX_NAME_CHARACTERS])
        return [self._by_plain_name[match] for match in nearest_names(plain, self._by_plain_name)]

    def unknown_tool(self, name: str) -> CodeModeToolError:
        """The error for a name that is not registered; its message suggests the nearest ones."""
        shown, near = name[:MAX_NAME_CHARACTERS], self.nearest(name)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        details = {"tool_name": shown, "available_tools": list(self._tools)}
        return CodeModeToolError(f"There is no tool named {shown!r}.{hint}", details=details)

    def search(self, query: str, limit: int = 10) -> list[dict[str, str]]:
        """Name and first sentence of the tools that fit any word of ``query``, best first; at most 50."""
        from .signatures.prompt import first_sentence, summary_of

        expression = _match_expression(query)
        if not expression:
            return []
        with self._lock:
            if self._index is None:
                self._index = _build_index(self._tools)
                weakref.finalize(self, self._index.close)  # Python 3.13 warns of one that is left open
            rows: list[tuple[int]] = self._index.execute(
                _FIND, (expression, min(max(limit, 0), MAX_RESULTS))
            ).fetchall()
        named = list(self._tools.items())
        return [
            {"name": name, "description": first_sentence(summary_of(tool))}
            for name, tool in (named[position] for (position,) in rows)
        ]

    def describe(self, name: str) -> str:
        """The declaration of one tool as TypeScript. Raises `CodeModeToolError` when there is none of that name."""
        from .signatures.prompt import declare_tools

        found = self.get(name)
        if found is None:
            raise self.unknown_tool(name)
        return declare_tools([found])


def _language_paths(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: at + 1]) for at, part in enumerate(parts) if part in LANGUAGE_NAMES)


def _plain(name: str) -> str:
    return "".join(_words(name))


def _words(text: str) -> list[str]:
    """Lower-case words, with ``readFile``, ``read_file`` and ``HTTPServer`` taken apart."""
    return [part.lower() for word in _WORD.findall(text) for part in _CAMEL.split(word)]


def _match_expression(query: str) -> str:
    # Only letters and digits reach the engine, each word quoted: no query can be read as FTS5 syntax.
    words = dict.fromkeys(_words(query[:MAX_QUERY_CHARACTERS]))
    return " OR ".join(f'"{word}"*' for word in list(words)[:MAX_QUERY_WORDS])


def _build_index(tools: Mapping[str, Any]) -> sqlite3.Connection:
    import sqlite3

    index = sqlite3.connect(":memory:", check_same_thread=False)
    index.execute(
        "CREATE VIRTUAL TABLE tools USING fts5"
        "(position UNINDEXED, name, description, parameters, tokenize = 'porter unicode61')"
    )
    rows = ((position, *_row(name, tool)) for position, (name, tool) in enumerate(tools.items()))
    index.executemany("INSERT INTO tools VALUES (?, ?, ?, ?)", rows)
    return index


def _row(name: str, tool: DescribedTool) -> tuple[str, str, str]:
    from .signatures.prompt import summary_of

    return (
        " ".join([*_words(name), name.lower()]).encode("utf-8", "replace").decode(),
        " ".join(_words(summary_of(tool))),
        " ".join(word for name in _parameter_names(tool) for word in _words(name)),
    )


def _parameter_names(tool: DescribedTool) -> list[str]:
    properties = mapping_or_empty(mapping_or_empty(tool.input_json_schema).get("properties"))
    return [name for name in properties if isinstance(name, str)]
