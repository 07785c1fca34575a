"""How many invocations may run at once, and who is next. Decides; starts no process.

Slots are handed out in order of arrival, to threads and event loops alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CodeModeConcurrencyError

if TYPE_CHECKING:
    import asyncio

_HARD_MAXIMUM = 32
_MEMORY_INTERVAL_SECONDS = 0.25
_OVERHEAD_BYTES = 48 << 20  # one worker beside its engine heap (requirement A22)


def memory_based_limit(active: int, memory_limit_bytes: int, available_bytes: int) -> int:
    """Return how many workers fit: at least one, at most 32 (requirement A22)."""
    fitting = active + available_bytes // (memory_limit_bytes + _OVERHEAD_BYTES)
    return max(1, min(_HARD_MAXIMUM, fitting))


class AvailableMemory:
    """How many bytes new processes can use, read at most four times a second."""

    def __init__(self) -> None:
        self._read_at = float("-inf")
        self._bytes = 0

    def __call__(self) -> int:
        """Return the bytes; a large number where the platform does not say."""
        now = time.monotonic()
        if now - self._read_at > _MEMORY_INTERVAL_SECONDS:
            self._bytes, self._read_at = _read_available_bytes(), now
        return self._bytes


def _read_available_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return _HARD_MAXIMUM << 30


class Admission:
    """Counts taken slots and keeps the queue. Safe to use from several threads."""

    def __init__(self, maximum: Callable[[int, int], int]) -> None:
        self._maximum = maximum  # (active, memory_limit_bytes) -> how many may be active
        self._lock = threading.Lock()
        self._waiting: dict[_Waiter, None] = {}  # in order of arrival
        self.active = 0

    def try_enter(self, memory_limit_bytes: int) -> bool:
        """Take a slot if one is free and nobody waits for one."""
        with self._lock:
            if self._waiting or self.active >= self._maximum(self.active, memory_limit_bytes):
                return False
            self.active += 1
            return True

    def refusal(self, memory_limit_bytes: int, waited_ms: int | None = None) -> CodeModeConcurrencyError:
        """Return the error for an invocation that got no slot."""
        maximum = self._maximum(self.active, memory_limit_bytes)
        after = "" if waited_ms is None else f" after waiting {waited_ms} ms"
        return CodeModeConcurrencyError(
            f"all {maximum} code mode workers are busy{after}", details={"max_workers": maximum}
        )

    async def enter(self, memory_limit_bytes: int, timeout_ms: int | None) -> None:
        """Take a slot, waiting in order of arrival. Raises `CodeModeConcurrencyError` when ``timeout_ms`` passes."""
        if self.try_enter(memory_limit_bytes):
            return
        import asyncio

        waiter = _Waiter(asyncio.get_running_loop(), asyncio.Event(), memory_limit_bytes)
        with self._lock:
            self._waiting[waiter] = None
        self._wake()  # a slot may have become free between the two
        try:
            # Not wait_for(): in Python 3.11 it swallows a cancellation that comes together with the slot.
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await waiter.admitted.wait()
        except TimeoutError:
            if self._withdraw(waiter):
                raise self.refusal(memory_limit_bytes, timeout_ms) from None
        except BaseException:  # cancelled, or the loop was closed with this still waiting
            if not self._withdraw(waiter):
                self.leave()
            raise

    def leave(self) -> None:
        """Give a slot back."""
        with self._lock:
            self.active -= 1
        self._wake()

    def _withdraw(self, waiter: _Waiter) -> bool:
        """Leave the queue; False when the slot has been given meanwhile."""
        with self._lock:
            was_waiting = waiter in self._waiting
            if was_waiting:
                del self._waiting[waiter]
        self._wake()  # the next one may need less memory than this one did
        return was_waiting

    def _wake(self) -> None:
        with self._lock:
            while self._waiting:
                waiter = next(iter(self._waiting))
                if self.active >= self._maximum(self.active, waiter.memory_limit_bytes):
                    return
                del self._waiting[waiter]
                if waiter.admit():
                    self.active += 1


class _Waiter:
    """One invocation in the queue, on whatever loop it runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, admitted: asyncio.Event, memory_limit_bytes: int) -> None:
        self._loop = loop
        self.memory_limit_bytes = memory_limit_bytes
        self.admitted = admitted

    def admit(self) -> bool:
        """Tell it that it has a slot; False when its loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self.admitted.set)
        except RuntimeError:
            return False
        return True
