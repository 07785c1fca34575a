"""Programs that a worker has already analysed. Pure: a bounded map from source text to stripped text and facts."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from weakref import ref

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

    Sizes count characters of the stripped text; larger programs are not kept (requirement A35).
    """

    def __init__(
        self, *, max_entries: int = 256, max_characters: int = 4 << 20, max_entry_characters: int = 64 << 10
    ) -> None:
        self._max_entries = max_entries
        self._max_characters = max_characters
        self._max_entry_characters = max_entry_characters
        self._entries: OrderedDict[bytes, tuple[AnalysedProgram, int]] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def get(self, source: str, profile: str) -> AnalysedProgram | None:
        """Return what is known about this source under a profile of this name."""
        key = _key(source, profile)
        with self._lock:
            kept = self._entries.get(key)
            if kept is None:
                return None
            self._entries.move_to_end(key)
            return kept[0]

    def put(self, source: str, program: AnalysedProgram, profile: str) -> None:
        """Keep a program, forgetting the least recently used ones beyond the bounds."""
        # A worker chose text and facts: they may be any size, whatever the source's.
        size = len(program.js) + (len(json.dumps(program.facts)) if program.facts else 0)
        if max(len(source), size) > self._max_entry_characters:
            return
        key = _key(source, profile)
        with self._lock:
            self._discard(key)
            self._entries[key] = (program, size)
            self._characters += size
            while len(self._entries) > self._max_entries or self._characters > self._max_characters:
                self._discard(next(iter(self._entries)))

    def _discard(self, key: bytes) -> None:
        kept = self._entries.pop(key, None)
        if kept is not None:
            self._characters -= kept[1]


def _key(source: str, profile: str) -> bytes:
    return hashlib.sha256(f"{profile}\n{source}".encode("utf-8", "surrogatepass")).digest()
