"""Leases: the worker and the slots that a run has until it ends, and suspended leases."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from ..host.forks import forkable_lock
from .admission import Admission
from .nesting import Place
from .supply import Supply
from .worker_generations import PooledWorker

if TYPE_CHECKING:
    from ..host.threads import InvocationThreads
    from .channel import WorkerChannel


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
                self._supply.stock.give_up(worker)
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
