"""A least-recently-used cache bounded by the total size of its values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from ..host.forks import create_fork_safe_lock, register_fork_reset

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class SizedCache(Generic[KeyT, ValueT]):
    """An LRU cache whose sizes add up to at most ``max_size``. Thread-safe.

    Sizes have any unit. At most ``max_entries`` are stored, none larger than ``max_entry_size``.
    """

    def __init__(self, max_size: int, *, max_entries: int, max_entry_size: int | None = None) -> None:
        self._max_size = max_size
        self._max_entries = max_entries
        self._max_entry_size = max_size if max_entry_size is None else max_entry_size
        self._entries: OrderedDict[KeyT, tuple[ValueT, int]] = OrderedDict()
        self._size = 0
        self._lock = create_fork_safe_lock()
        register_fork_reset(self)

    def after_fork(self) -> None:
        """In a forked child: another thread may have left it half changed."""
        self._entries, self._size = OrderedDict(), 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: KeyT) -> ValueT | None:
        """Return the value and mark it as used last; None if it is not stored."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: KeyT, value: ValueT, size: int) -> None:
        """Store a value of this size, and evict the least recently used ones to make room."""
        if size > self._max_entry_size:
            return
        with self._lock:
            self._discard(key)
            self._entries[key] = (value, size)
            self._size += size
            while len(self._entries) > self._max_entries or self._size > self._max_size:
                self._discard(next(iter(self._entries)))

    def _discard(self, key: KeyT) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= entry[1]
