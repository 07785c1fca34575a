"""Leases whose programs rest: their workers are kept as long as nobody else needs the slots. Knows no programs."""

from __future__ import annotations

from ..host.forks import forkable_lock
from .lease import Lease


class KeptLeases:
    """In the order in which they came. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = forkable_lock()
        self._leases: dict[Lease, None] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, lease: Lease) -> None:
        """Take one."""
        with self._lock:
            self._leases[lease] = None

    def remove(self, lease: Lease) -> None:
        """Forget one, if it is there."""
        with self._lock:
            self._leases.pop(lease, None)

    def give_up_oldest(self) -> None:
        """Give up the oldest that still can be."""
        while True:
            with self._lock:
                lease = next(iter(self._leases), None)
                if lease is None:
                    return
                del self._leases[lease]
            if lease.give_up():
                return
