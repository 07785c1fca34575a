"""Values that were made and may be used again, as many as fit: what strangers make large leaves when others come."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from ..host.forks import begin_anew_in_forks, forkable_lock

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class SizedCache(Generic[KeyT, ValueT]):
    """The values used last, whose sizes come to at most ``most`` together. Safe to use from several threads.

    Sizes are of any one unit. At most ``most_entries`` are kept, however small, and none larger than ``most_of_one``.
    """

    def __init__(self, most: int, *, most_entries: int, most_of_one: int | None = None) -> None:
        self._most = most
        self._most_entries = most_entries
        self._most_of_one = most if most_of_one is None else most_of_one
        self._entries: OrderedDict[KeyT, tuple[ValueT, int]] = OrderedDict()
        self._size = 0
        self._lock = forkable_lock()
        begin_anew_in_forks(self)

    def after_fork(self) -> None:
        """In a forked child: a thread that is not in it may have changed half of this."""
        self._entries, self._size = OrderedDict(), 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: KeyT) -> ValueT | None:
        """Return the value, which is then the one used last; None when there is none any more."""
        with self._lock:
            kept = self._entries.get(key)
            if kept is None:
                return None
            self._entries.move_to_end(key)
            return kept[0]

    def put(self, key: KeyT, value: ValueT, size: int) -> None:
        """Keep a value of this size, and forget those used longest ago that there is no room for any more."""
        if size > self._most_of_one:
            return
        with self._lock:
            self._discard(key)
            self._entries[key] = (value, size)
            self._size += size
            while len(self._entries) > self._most_entries or self._size > self._most:
                self._discard(next(iter(self._entries)))

    def _discard(self, key: KeyT) -> None:
        kept = self._entries.pop(key, None)
        if kept is not None:
            self._size -= kept[1]
