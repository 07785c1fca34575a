"""Programs that a worker has already analysed. Pure: a bounded map from source text to stripped text and facts."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..data.json_shape import weigh
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

    Sizes count characters of the stripped text, and what the facts weigh; larger ones are not kept (requirement A35).
    """

    def __init__(
        self, *, max_entries: int = 256, max_characters: int = 4 << 20, max_entry_characters: int = 64 << 10
    ) -> None:
        self._max_entry_characters = max_entry_characters
        self._entries: SizedCache[bytes, AnalysedProgram] = SizedCache(
            max_characters, most_entries=max_entries, most_of_one=max_entry_characters
        )

    def get(self, source: str, profile: str) -> AnalysedProgram | None:
        """Return what is known about this source under a profile of this name."""
        return self._entries.get(_key(source, profile))

    def put(self, source: str, program: AnalysedProgram, profile: str) -> None:
        """Keep a program, forgetting the least recently used ones beyond the bounds."""
        # A worker chose text and facts: they may be any size, whatever the source's, and are weighed on the event loop.
        most = self._max_entry_characters
        if max(len(source), len(program.js)) <= most:
            size = len(program.js) + (weigh(program.facts, most + 1) if program.facts else 0)
            self._entries.put(_key(source, profile), program, size)


def _key(source: str, profile: str) -> bytes:
    return hashlib.sha256(f"{profile}\n{source}".encode("utf-8", "surrogatepass")).digest()
