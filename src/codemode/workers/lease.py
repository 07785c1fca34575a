"""Leases: slots, who is next in line for them, and the worker that a run has until it ends."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import CodeModeConcurrencyError
from ..host.forks import forkable_lock
from .supply import HARD_MAXIMUM, Supply
from .worker_generations import PooledWorker

if TYPE_CHECKING:
    import asyncio

    from ..host.threads import InvocationThreads
    from .channel import WorkerChannel


# Kept in a context variable, which tasks, `asyncio.to_thread` and this package's own threads take along. A bare
# `threading.Thread` does not: what it runs counts as an invocation of its own.


class Place:
    """The slot of one invocation, as the code of its calls sees it. Made where the invocation is made."""

    __slots__ = ("is_taken", "outer")

    def __init__(self) -> None:
        outer = _place.get()
        self.outer = None if outer is None else _taken(outer)
        self.is_taken = True

    def enter(self) -> None:
        """From here on this task, and what it starts, is part of the invocation."""
        _place.set(self)


def nesting_depth() -> int:
    """Return how many invocations that still have a slot wait for the code that asks."""
    count, place = 0, _place.get()
    while place is not None and (place := _taken(place)) is not None:
        count, place = count + 1, place.outer
    return count


def _taken(place: Place | None) -> Place | None:
    """Return the nearest that has its slot: one that has ended waits for nothing, whatever it left running."""
    while place is not None and not place.is_taken:
        place = place.outer
    return place


_place: ContextVar[Place | None] = ContextVar("codemode_place", default=None)


# They are handed out in order of arrival, to threads and event loops alike; what another invocation waits for comes
# before what none does.

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


class Keeper(Protocol):
    """Who gave a lease and takes it back when somebody else needs its slots, as `WorkerPool` does."""

    def keep(self, lease: Lease) -> bool:
        """Take note of a lease that can be given up; False: somebody needs its slots now, or none is free beside."""
        ...

    def keep_no_more(self, lease: Lease) -> None:
        """Forget it."""
        ...

    @property
    def is_closed(self) -> bool:
        """True when no other program will come from there."""
        ...


class Lease:
    """One worker of a supply and its slots, for one invocation. Keeps ``owner``, the pool that gave it, alive."""

    def __init__(self, supply: Supply, admissions: tuple[Admission, ...], worker: PooledWorker, owner: Keeper) -> None:
        self._supply = supply
        # Those of now: in a forked child of the host the pool has new ones, where these slots were never taken.
        self._admissions = admissions
        self._worker: PooledWorker | None = worker
        self._owner: Keeper | None = owner
        self._given_up: list[Callable[[], None]] = []  # at most one: whoever takes it out decides what becomes of it
        self.threads: InvocationThreads | None = None
        """Where tools run: slots that are given back stay taken until none does any more."""
        self.has_run = worker.tenure is not None and worker.tenure.programs > 0
        """True when the worker has run a program before, which may have changed it."""
        self.may_go_on = worker.tenure is not None
        """True where the pool keeps workers: this one may have another program."""
        self._left = False
        self._has_rested = False
        self._said_since: bytes | None = None
        self.place = Place()
        self.worker = worker.process

    @property
    def lacks_spare(self) -> bool:
        """True when the next invocation would find no worker that is ready."""
        return self._supply.stock.lacks_spares(1)

    def channel(self, max_frame_bytes: int, **heard: Any) -> WorkerChannel:
        """Return a channel to the worker; ``heard`` are its callbacks."""
        worker = self._worker
        first = None if worker is None or worker.tenure is None else self._supply.first_message(worker.tenure)
        on_end: Callable[[str], None] = heard.pop("on_end")

        def told(reason: str) -> None:
            on_end("its pool was closed" if self._owner is not None and self._owner.is_closed else reason)

        return _channels()(self.worker, max_frame_bytes, first=first, on_end=told, **heard)

    def refill(self, wanted: int | None = None) -> None:
        """Let the next spare be started; meant for a moment when nobody waits for it."""
        self._supply.refill(wanted)

    def ended_well(self, said: bytes) -> None:
        """Let the worker have another program, where its pool keeps workers. ``said``: the frame it has sent since."""
        self._said_since = None if self._has_rested else said

    def kill(self) -> None:
        """Kill the worker; the slots stay taken. Safe to call twice."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._supply.close_worker(worker)

    def leave(self) -> None:
        """Kill the worker and give the slots back. Safe to call twice."""
        self.kill()
        self.give_back()

    def keep(self, given_up: Callable[[], None]) -> bool:
        """Keep worker and slots only until somebody else needs the slots; ``given_up`` is then called, in any thread.

        False: they are needed now. Until `take_back` the worker is not to be used.
        """
        self._has_rested = True
        self._given_up.append(given_up)
        is_kept = self._owner is not None and self._owner.keep(self)
        return is_kept or not self.take_back()

    def take_back(self) -> bool:
        """Have the worker for oneself again; False where it was given up."""
        try:
            self._given_up.pop()
        except IndexError:
            return False
        if self._owner is not None:
            self._owner.keep_no_more(self)
        return True

    def give_up(self) -> bool:
        """Give the slots of a lease that was only kept to somebody else. False when it is in use again."""
        try:
            tell = self._given_up.pop()
        except IndexError:
            return False
        if self._owner is not None:
            self._owner.keep_no_more(self)
        if not self._left:
            self._left = True
            self._leave_slots()
        tell()
        return True

    def let_go(self) -> None:
        """Do what `leave` does, though what runs in the threads of the run goes on: it needs no slot any more."""
        self.take_back()
        self.threads = None
        self.leave()

    def give_back(self) -> None:
        """Give a worker that was not killed back, to be kept or closed soon, and the slots. Safe to call twice."""
        worker, self._worker = self._worker, None
        if worker is not None:
            if self._said_since is None or self._owner is None or self._owner.is_closed:
                self._supply.stock.done.append(worker)
            else:
                self._supply.keep(worker, self._said_since)
        if not self._left:
            self._left = True
            if self.threads is None or not self.threads.running:
                self._leave_slots()
            else:
                self.threads.call_when_free(self._leave_slots)

    def _leave_slots(self) -> None:
        self.place.is_taken = False
        for admission in reversed(self._admissions):
            admission.leave()
        self._owner = None


@cache
def _channels() -> type[WorkerChannel]:
    from .channel import WorkerChannel  # late: the first worker starts before asyncio is imported

    return WorkerChannel


class KeptLeases:
    """In the order in which they came. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = forkable_lock()
        self.leases: dict[Lease, None] = {}

    def add(self, lease: Lease) -> None:
        """Take one."""
        with self._lock:
            self.leases[lease] = None

    def remove(self, lease: Lease) -> None:
        """Forget one, if it is there."""
        with self._lock:
            self.leases.pop(lease, None)

    def give_up_oldest(self) -> None:
        """Give up the oldest that still can be."""
        while True:
            with self._lock:
                lease = next(iter(self.leases), None)
                if lease is None:
                    return
                del self.leases[lease]
            if lease.give_up():
                return
