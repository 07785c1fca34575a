"""Programs that a worker has already analysed. Pure: a bounded map from source text to stripped text and facts."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..data.sized_cache import SizedCache
from ..dataclass import dataclass

if TYPE_CHECKING:
    from ..data.program_facts import Facts


@dataclass(slots=True)
class AnalysedProgram:
    """Plain JavaScript and what is known about it; facts None: nothing is known.

    ``fitted`` is how it was last compared with tools and found to fit.
    """

    js: str
    facts: Facts | None
    fitted: Fitted | None = None


@dataclass(frozen=True, slots=True)
class Fitted:
    """That a program fits an unchanging set of tools under some rules. ``found`` is what else came of that, if kept."""

    tools: ref[Any]
    rules: object
    found: Any = None

    def is_of(self, tools: object, rules: object) -> bool:
        """True when it was these very tools, and equal rules."""
        return self.tools() is tools and self.rules == rules


class ProgramCache:
    """Least recently used programs by SHA-256 of their source. Safe to use from several threads.

    Sizes are bytes of what the worker has said of a program, its text and facts: those it chose, and what they take in
    memory grows with them. Larger ones are not kept (requirement A35).
    """

    def __init__(self, *, max_entries: int = 256, max_bytes: int = 4 << 20, max_entry_bytes: int = 64 << 10) -> None:
        self._entries: SizedCache[bytes, AnalysedProgram] = SizedCache(
            max_bytes, most_entries=max_entries, most_of_one=max_entry_bytes
        )

    def get(self, key: bytes) -> AnalysedProgram | None:
        """Return what is known about a program."""
        return self._entries.get(key)

    def put(self, key: bytes, program: AnalysedProgram, size: int) -> None:
        """Keep a program of this size, forgetting the least recently used ones beyond the bounds."""
        self._entries.put(key, program, size)


def program_key(source: str, profile: str) -> bytes:
    """Return what names a program here: its source under a profile of this name."""
    return hashlib.sha256(f"{profile}\n{source}".encode("utf-8", "surrogatepass")).digest()
