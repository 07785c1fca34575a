"""Leases: slots, the queue for them, and the worker of a run until it ends."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import CodeModeConcurrencyError
from ..host.forks import create_fork_safe_lock
from .supply import HARD_MAX_WORKERS, WorkerSupply
from .worker_generations import PooledWorker

if TYPE_CHECKING:
    import asyncio

    from ..host.threads import InvocationThreads
    from .channel import WorkerChannel


# Kept in a context variable, which tasks, `asyncio.to_thread` and this package's own threads take along. A bare
# `threading.Thread` does not: what it runs counts as an invocation of its own.


class InvocationSlot:
    """The slot of one invocation, as the code of its calls sees it. Made where the invocation is made."""

    __slots__ = ("is_held", "outer")

    def __init__(self) -> None:
        outer = _current_slot.get()
        self.outer = None if outer is None else _find_nearest_held_slot(outer)
        self.is_held = True

    def make_current(self) -> None:
        """From here on this task, and what it starts, is part of the invocation."""
        _current_slot.set(self)


def compute_nesting_depth() -> int:
    """Return how many invocations that still have a slot wait for the code that asks."""
    count, slot = 0, _current_slot.get()
    while slot is not None and (slot := _find_nearest_held_slot(slot)) is not None:
        count, slot = count + 1, slot.outer
    return count


def _find_nearest_held_slot(slot: InvocationSlot | None) -> InvocationSlot | None:
    """Return the nearest enclosing run with a slot: an ended run waits for nothing, even with work left."""
    while slot is not None and not slot.is_held:
        slot = slot.outer
    return slot


_current_slot: ContextVar[InvocationSlot | None] = ContextVar("codemode_slot", default=None)


# They are handed out in order of arrival, to threads and event loops alike; what another invocation waits for comes
# before what none does.

MAX_EXTRA_SLOTS = 4
_WORKER_OVERHEAD_BYTES = 48 << 20  # one worker without its engine heap (requirement A22)


def compute_worker_limit(active: int, memory_limit_bytes: int, available_bytes: int) -> int:
    """Return how many workers fit: at least one, at most 32 (requirement A22)."""
    fitting_workers = active + available_bytes // (memory_limit_bytes + _WORKER_OVERHEAD_BYTES)
    return max(1, min(HARD_MAX_WORKERS, fitting_workers))


class SlotQueue:
    """Counts taken slots and keeps the queue. Safe to use from several threads.

    An invocation inside a nested call of another one would wait for what waits for it. So it comes before those that
    are less deep, and one of depth n takes a slot beyond the maximum while fewer than n, and fewer than four, are
    taken so: of the deepest that have slots none can be waiting in vain.
    """

    def __init__(self, max_active: Callable[[int, int], int], scope_text: str = "") -> None:
        self._max_active = max_active  # (active, memory_limit_bytes) -> how many may be active
        self._scope_text = scope_text
        self._lock = create_fork_safe_lock()
        # Those who wait, by depth, each in order of arrival.
        self._waiting: tuple[dict[_SlotWaiter, None], ...] = tuple({} for _ in range(MAX_EXTRA_SLOTS + 1))
        self._extra_slots = 0  # how many slots more are taken than were free
        self.active = 0

    def try_acquire(self, memory_limit_bytes: int, depth: int = 0) -> bool:
        """Take a slot if one is free and no earlier waiter is queued."""
        with self._lock:
            if any(self._waiting[min(depth, MAX_EXTRA_SLOTS) :]):
                return False
            return self._try_take_slot_locked(memory_limit_bytes, depth)

    def has_free_slot_and_no_waiters(self, memory_limit_bytes: int) -> bool:
        """Return whether a slot is free and the queue is empty."""
        with self._lock:
            return not any(self._waiting) and self.active < self._max_active(self.active, memory_limit_bytes)

    def create_busy_error(
        self, memory_limit_bytes: int, waited_ms: int | None = None, depth: int = 0
    ) -> CodeModeConcurrencyError:
        """Return the error for an invocation that got no slot."""
        max_workers = self._max_active(self.active, memory_limit_bytes)
        message = f"all {max_workers} code mode workers{self._scope_text} are busy"
        if waited_ms is not None:
            message += f" after waiting {waited_ms} ms"
        if depth > MAX_EXTRA_SLOTS:
            message += (
                f", and a program more than {MAX_EXTRA_SLOTS} deep in nested calls of others does not wait for them"
            )
        elif waited_ms is None:
            message += ', and on_saturation is "fail"'
        details = {"max_workers": max_workers, **({"depth": depth} if depth else {})}
        return CodeModeConcurrencyError(message, details=details)

    async def acquire(self, memory_limit_bytes: int, timeout_ms: int | None, depth: int = 0) -> None:
        """Take a slot, waiting in order of arrival. Raises `CodeModeConcurrencyError` when ``timeout_ms`` passes.

        What is too deep does not wait: it could be for itself.
        """
        if self.try_acquire(memory_limit_bytes, depth):
            return
        if depth > MAX_EXTRA_SLOTS:
            raise self.create_busy_error(memory_limit_bytes, depth=depth)
        import asyncio

        waiter = _SlotWaiter(asyncio.get_running_loop(), asyncio.Event(), memory_limit_bytes, depth)
        with self._lock:
            self._waiting[depth][waiter] = None
        self._lock_and_admit_waiters()  # a slot may have become free between the two
        try:
            # Not wait_for(): in Python 3.11 it swallows a cancellation that comes together with the slot.
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await waiter.admitted.wait()
        except TimeoutError:
            if self._leave_queue_and_admit_others(waiter):
                raise self.create_busy_error(memory_limit_bytes, timeout_ms, depth) from None
        except BaseException:  # cancelled, or the loop was closed with this still waiting
            if not self._leave_queue_and_admit_others(waiter):
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back."""
        with self._lock:
            self._free_slot()
            if any(self._waiting):
                self._admit_waiters()

    def _try_take_slot_locked(self, memory_limit_bytes: int, depth: int) -> bool:
        if self.active >= self._max_active(self.active, memory_limit_bytes):
            if self._extra_slots >= min(depth, MAX_EXTRA_SLOTS):
                return False
            self._extra_slots += 1
        self.active += 1
        return True

    def _free_slot(self) -> None:
        self.active -= 1
        self._extra_slots = max(0, self._extra_slots - 1)

    def _leave_queue_and_admit_others(self, waiter: _SlotWaiter) -> bool:
        """Leave the queue; False when the slot has been given meanwhile."""
        with self._lock:
            was_waiting = waiter in self._waiting[waiter.depth]
            self._waiting[waiter.depth].pop(waiter, None)
        self._lock_and_admit_waiters()  # the next one may need less memory than this one did
        return was_waiting

    def _lock_and_admit_waiters(self) -> None:
        with self._lock:
            self._admit_waiters()

    def _admit_waiters(self) -> None:
        while deepest_waiters := next(filter(None, reversed(self._waiting)), None):
            waiter = next(iter(deepest_waiters))
            if not self._try_take_slot_locked(waiter.memory_limit_bytes, waiter.depth):
                return
            del deepest_waiters[waiter]
            if not waiter.notify_admitted():
                self._free_slot()


class _SlotWaiter:
    """One invocation in the queue, on any loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, admitted: asyncio.Event, memory_limit_bytes: int, depth: int
    ) -> None:
        self._loop = loop
        self.depth = depth
        self.memory_limit_bytes = memory_limit_bytes
        self.admitted = admitted

    def notify_admitted(self) -> bool:
        """Tell it that it has a slot; False when its loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self.admitted.set)
        except RuntimeError:
            return False
        return True


class LeaseOwner(Protocol):
    """The giver of a lease, which reclaims it when another run needs its slots, as `WorkerPool` does."""

    def try_add_revocable_lease(self, lease: PooledWorkerLease) -> bool:
        """Record a lease that can be given up; False if its slots are needed now, or no other is free."""
        ...

    def remove_revocable_lease(self, lease: PooledWorkerLease) -> None:
        """Remove the record of a lease."""
        ...

    @property
    def is_closed(self) -> bool:
        """True when no other program will come from there."""
        ...


class PooledWorkerLease:
    """One worker of a supply and its slots, for one invocation. Keeps ``owner``, the pool that gave it, alive."""

    def __init__(
        self, supply: WorkerSupply, slot_queues: tuple[SlotQueue, ...], worker: PooledWorker, owner: LeaseOwner
    ) -> None:
        self._supply = supply
        # Those of now: in a forked child of the host the pool has new ones, where these slots were never taken.
        self._slot_queues = slot_queues
        self._worker: PooledWorker | None = worker
        self._owner: LeaseOwner | None = owner
        self._revoke_callbacks: list[Callable[[], None]] = []  # at most one: its remover decides how it is used
        self.threads: InvocationThreads | None = None
        """Where tools run: slots that are given back stay taken until none does any more."""
        self.has_run_program = worker.reuse is not None and worker.reuse.program_count > 0
        """True when the worker has run a program before, which may have changed it."""
        self.is_reusable = worker.reuse is not None
        """True where the pool keeps workers: this one may have another program."""
        self._has_released_slots = False
        self._was_revocable = False
        self._frame_after_program: bytes | None = None
        self.slot = InvocationSlot()
        self.process = worker.process
        self.refill_spares = supply.refill_spares

    @property
    def needs_spare(self) -> bool:
        """True when the next invocation would find no worker that is ready."""
        return self._supply.inventory.lacks_spares(1)

    def open_channel(self, max_frame_bytes: int, **callbacks: Any) -> WorkerChannel:
        """Return a channel to the worker; ``callbacks`` are those of `WorkerChannel`."""
        worker = self._worker
        first_message = (
            None
            if worker is None or worker.reuse is None
            else self._supply.create_next_program_announcement(worker.reuse)
        )
        on_end: Callable[[str], None] = callbacks.pop("on_end")

        def report_end(reason: str) -> None:
            on_end("its pool was closed" if self._owner is not None and self._owner.is_closed else reason)

        channel_class = _import_channel_class()
        return channel_class(self.process, max_frame_bytes, first_message=first_message, on_end=report_end, **callbacks)

    def offer_for_reuse(self, frame: bytes) -> None:
        """Let `release` return the worker to its pool for another program. ``frame``: what it sent since."""
        self._frame_after_program = None if self._was_revocable else frame

    def kill(self) -> None:
        """Kill the worker; the slots stay taken. Safe to call twice."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._supply.close_worker(worker)

    def kill_and_release(self) -> None:
        """Kill the worker and give the slots back. Safe to call twice."""
        self.kill()
        self.release()

    def make_revocable(self, on_revoked: Callable[[], None]) -> bool:
        """Keep worker and slots until another run needs the slots; ``on_revoked`` is then called, in any thread.

        False if they are needed now. The worker must not be used before `reclaim_worker_or_release`.
        """
        self._was_revocable = True
        self._revoke_callbacks.append(on_revoked)
        is_revocable = self._owner is not None and self._owner.try_add_revocable_lease(self)
        return is_revocable or not self.make_irrevocable()

    def make_irrevocable(self) -> bool:
        """Make the lease irrevocable again; False if it was revoked."""
        try:
            self._revoke_callbacks.pop()
        except IndexError:
            return False
        if self._owner is not None:
            self._owner.remove_revocable_lease(self)
        return True

    def revoke_if_unused(self) -> bool:
        """Give the slots of a revocable lease to another run. False if it is in use again."""
        try:
            notify_revoked = self._revoke_callbacks.pop()
        except IndexError:
            return False
        if self._owner is not None:
            self._owner.remove_revocable_lease(self)
        if not self._has_released_slots:
            self._has_released_slots = True
            self._release_slots()
        notify_revoked()
        return True

    def kill_and_release_despite_threads(self) -> None:
        """Do what `kill_and_release` does although threads of the run still work: they need no slot."""
        self.make_irrevocable()
        self.threads = None
        self.kill_and_release()

    def release(self) -> None:
        """Give a worker that was not killed back, to be kept or closed soon, and the slots. Safe to call twice."""
        worker, self._worker = self._worker, None
        if worker is not None:
            if self._frame_after_program is None or self._owner is None or self._owner.is_closed:
                self._supply.inventory.finished.append(worker)
            else:
                self._supply.keep_worker_or_mark_finished(worker, self._frame_after_program)
        if not self._has_released_slots:
            self._has_released_slots = True
            if self.threads is None or not self.threads.running:
                self._release_slots()
            else:
                self.threads.call_when_idle(self._release_slots)

    def _release_slots(self) -> None:
        self.slot.is_held = False
        for slot_queue in reversed(self._slot_queues):
            slot_queue.release()
        self._owner = None


@cache
def _import_channel_class() -> type[WorkerChannel]:
    from .channel import WorkerChannel  # late: the first worker starts before asyncio is imported

    return WorkerChannel


class RevocableLeases:
    """Leases that may be revoked, oldest first. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = create_fork_safe_lock()
        self.leases: dict[PooledWorkerLease, None] = {}

    def add(self, lease: PooledWorkerLease) -> None:
        """Add a lease."""
        with self._lock:
            self.leases[lease] = None

    def remove(self, lease: PooledWorkerLease) -> None:
        """Remove a lease, if it is there."""
        with self._lock:
            self.leases.pop(lease, None)

    def revoke_oldest(self) -> None:
        """Revoke the oldest lease that is still revocable."""
        while True:
            with self._lock:
                lease = next(iter(self.leases), None)
                if lease is None:
                    return
                del self.leases[lease]
            if lease.revoke_if_unused():
                return
