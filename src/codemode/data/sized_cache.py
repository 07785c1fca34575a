"""Values that were made and may be used again, as many as fit: what strangers make large leaves when others come."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from ..host.forks import forkable_lock, reset_in_forks

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class SizedCache(Generic[KeyT, ValueT]):
    """The values used last, whose sizes come to at most ``most`` together. Safe to use from several threads.

    Sizes are of any one unit. At most ``most_entries`` are kept, however small, and none larger than ``most_of_one``.
    """

    def __init__(self, max_size: int, *, max_entries: int, max_entry_size: int | None = None) -> None:
        self._max_size = max_size
        self._max_entries = max_entries
        self._max_entry_size = max_size if max_entry_size is None else max_entry_size
        self._entries: OrderedDict[KeyT, tuple[ValueT, int]] = OrderedDict()
        self._size = 0
        self._lock = forkable_lock()
        reset_in_forks(self)

    def after_fork(self) -> None:
        """In a forked child: a thread that is not in it may have changed half of this."""
        self._entries, self._size = OrderedDict(), 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: KeyT) -> ValueT | None:
        """Return the value, which is then the one used last; None when there is none any more."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: KeyT, value: ValueT, size: int) -> None:
        """Keep a value of this size, and forget those used longest ago that there is no room for any more."""
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
