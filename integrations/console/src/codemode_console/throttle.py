"""How often an address may fail to sign in, or fill the audit with what was refused. Pure: knows no clock."""

from __future__ import annotations

import math
from collections import deque

MOST_FAILURES = 10
WINDOW_SECONDS = 60.0
_MOST_ADDRESSES = 10_000


class Throttle:
    """Failures by address: after 10 within a minute, no other is counted until the first of them is a minute old.

    Of at most 10,000 addresses; more push out those that have not failed for longest. Times are seconds of any clock.
    """

    def __init__(self, *, most_addresses: int = _MOST_ADDRESSES) -> None:
        self._most_addresses = most_addresses
        self._failures: dict[str, deque[float]] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def wait_seconds(self, address: str, now: float) -> int:
        """Return how long an address that has failed is to wait; 0 when its failure is counted now."""
        failures = self._recent(address, now)
        return max(1, math.ceil(failures[0] + WINDOW_SECONDS - now)) if len(failures) >= MOST_FAILURES else 0

    def failed(self, address: str, now: float) -> None:
        """Count a failure."""
        failures = self._recent(address, now)
        failures.append(now)
        self._failures.pop(address, None)  # the last one that failed stands last
        self._failures[address] = failures
        while len(self._failures) > self._most_addresses:
            del self._failures[next(iter(self._failures))]

    def _recent(self, address: str, now: float) -> deque[float]:
        failures = self._failures.get(address)
        if failures is None:
            return deque(maxlen=MOST_FAILURES)
        # What lies ahead was counted before the clock was set back.
        while failures and not now - WINDOW_SECONDS < failures[0] <= now:
            failures.popleft()
        if not failures:
            del self._failures[address]
        return failures
