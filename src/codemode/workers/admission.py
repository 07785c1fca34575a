"""Slots: how many invocations may run at once, and who is next. Decides; starts no process.

They are handed out in order of arrival, to threads and event loops alike; what another invocation waits for comes
before what none does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import CodeModeConcurrencyError
from ..host.forks import forkable_lock

if TYPE_CHECKING:
    import asyncio

HARD_MAXIMUM = 32
MAX_BEYOND = 4
_OVERHEAD_BYTES = 48 << 20  # one worker beside its engine heap (requirement A22)


def memory_based_limit(active: int, memory_limit_bytes: int, available_bytes: int) -> int:
    """Return how many workers fit: at least one, at most 32 (requirement A22)."""
    fitting = active + available_bytes // (memory_limit_bytes + _OVERHEAD_BYTES)
    return max(1, min(HARD_MAXIMUM, fitting))


class Admission:
    """Counts taken slots and keeps the queue. Safe to use from several threads.

    An invocation inside a nested call of another one would wait for what waits for it. So it comes before those that
    are less deep, and one of depth n takes a slot beyond the maximum while fewer than n, and fewer than four, are
    taken so: of the deepest that have slots none can be waiting in vain.
    """

    def __init__(self, maximum: Callable[[int, int], int], whose: str = "") -> None:
        self._maximum = maximum  # (active, memory_limit_bytes) -> how many may be active
        self._whose = whose
        self._lock = forkable_lock()
        # Those who wait, by depth, each in order of arrival.
        self._waiting: tuple[dict[_Waiter, None], ...] = tuple({} for _ in range(MAX_BEYOND + 1))
        self._beyond = 0  # how many slots more are taken than were free
        self.active = 0

    def try_enter(self, memory_limit_bytes: int, depth: int = 0) -> bool:
        """Take a slot if one is free and nobody waits for one who comes before."""
        with self._lock:
            if any(self._waiting[min(depth, MAX_BEYOND) :]):
                return False
            return self._take(memory_limit_bytes, depth)

    def has_room(self, memory_limit_bytes: int) -> bool:
        """Tell whether a slot is free, and nobody waits for one."""
        with self._lock:
            return not any(self._waiting) and self.active < self._maximum(self.active, memory_limit_bytes)

    def refusal(
        self, memory_limit_bytes: int, waited_ms: int | None = None, depth: int = 0
    ) -> CodeModeConcurrencyError:
        """Return the error for an invocation that got no slot."""
        maximum = self._maximum(self.active, memory_limit_bytes)
        message = f"all {maximum} code mode workers{self._whose} are busy"
        if waited_ms is not None:
            message += f" after waiting {waited_ms} ms"
        if depth > MAX_BEYOND:
            message += f", and a program more than {MAX_BEYOND} deep in nested calls of others does not wait for them"
        elif waited_ms is None:
            message += ', and on_saturation is "fail"'
        details = {"max_workers": maximum, **({"depth": depth} if depth else {})}
        return CodeModeConcurrencyError(message, details=details)

    async def enter(self, memory_limit_bytes: int, timeout_ms: int | None, depth: int = 0) -> None:
        """Take a slot, waiting in order of arrival. Raises `CodeModeConcurrencyError` when ``timeout_ms`` passes.

        What is too deep does not wait: it could be for itself.
        """
        if self.try_enter(memory_limit_bytes, depth):
            return
        if depth > MAX_BEYOND:
            raise self.refusal(memory_limit_bytes, depth=depth)
        import asyncio

        waiter = _Waiter(asyncio.get_running_loop(), asyncio.Event(), memory_limit_bytes, depth)
        with self._lock:
            self._waiting[depth][waiter] = None
        self._wake()  # a slot may have become free between the two
        try:
            # Not wait_for(): in Python 3.11 it swallows a cancellation that comes together with the slot.
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await waiter.admitted.wait()
        except TimeoutError:
            if self._withdraw(waiter):
                raise self.refusal(memory_limit_bytes, timeout_ms, depth) from None
        except BaseException:  # cancelled, or the loop was closed with this still waiting
            if not self._withdraw(waiter):
                self.leave()
            raise

    def leave(self) -> None:
        """Give a slot back."""
        with self._lock:
            self._free()
            if any(self._waiting):
                self._admit_waiting()

    def _take(self, memory_limit_bytes: int, depth: int) -> bool:
        if self.active >= self._maximum(self.active, memory_limit_bytes):
            if self._beyond >= min(depth, MAX_BEYOND):
                return False
            self._beyond += 1
        self.active += 1
        return True

    def _free(self) -> None:
        self.active -= 1
        self._beyond = max(0, self._beyond - 1)

    def _withdraw(self, waiter: _Waiter) -> bool:
        """Leave the queue; False when the slot has been given meanwhile."""
        with self._lock:
            was_waiting = waiter in self._waiting[waiter.depth]
            self._waiting[waiter.depth].pop(waiter, None)
        self._wake()  # the next one may need less memory than this one did
        return was_waiting

    def _wake(self) -> None:
        with self._lock:
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        while deepest := next(filter(None, reversed(self._waiting)), None):
            waiter = next(iter(deepest))
            if not self._take(waiter.memory_limit_bytes, waiter.depth):
                return
            del deepest[waiter]
            if not waiter.admit():
                self._free()


class _Waiter:
    """One invocation in the queue, on whatever loop it runs."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, admitted: asyncio.Event, memory_limit_bytes: int, depth: int
    ) -> None:
        self._loop = loop
        self.depth = depth
        self.memory_limit_bytes = memory_limit_bytes
        self.admitted = admitted

    def admit(self) -> bool:
        """Tell it that it has a slot; False when its loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self.admitted.set)
        except RuntimeError:
            return False
        return True
