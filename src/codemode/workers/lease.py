"""What an invocation has while it runs: one worker and one slot. Knows nothing of programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .admission import Admission
from .nesting import Place
from .source import PooledWorker

if TYPE_CHECKING:
    from ..host_threads import InvocationThreads
    from .pool import WorkerPool


class Lease:
    """One worker and one slot for one invocation."""

    def __init__(self, pool: WorkerPool, admission: Admission, worker: PooledWorker) -> None:
        self._pool = pool
        # The pool's own is a new one in a forked child of the host, where this slot was never taken.
        self._admission = admission
        self._worker: PooledWorker | None = worker
        self._share: tuple[WorkerPool, Admission] | None = None
        self._threads: InvocationThreads | None = None
        self._left = False
        self.place = Place()
        self.worker = worker.process

    def refill(self, wanted: int | None = None) -> None:
        """Let the pool start the next spare; meant for a moment when nobody waits for it."""
        self._pool.refill(wanted)

    def kill(self) -> None:
        """Kill the worker; the slot stays taken. Safe to call twice."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._pool.close_worker(worker)

    def leave(self) -> None:
        """Kill the worker and give the slot back. Safe to call twice."""
        self.kill()
        self.give_back()

    def give_back(self) -> None:
        """Give a worker that was not killed to the pool, to be closed soon, and the slot back. Safe to call twice."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._pool.give_up(worker)
        if not self._left:
            self._left = True
            if self._threads is None:
                self._leave_slots()
            else:
                self._threads.call_when_free(self._leave_slots)

    def wait_for(self, threads: InvocationThreads) -> None:
        """Keep the slot, when it is given back, until no tool runs in these threads any more."""
        self._threads = threads

    def _leave_slots(self) -> None:
        self.place.is_taken = False
        self._admission.leave()
        if self._share is not None:
            self._share[1].leave()

    def belong_to(self, share: WorkerPool, admission: Admission) -> None:
        """Keep ``share`` until the end, and then give a slot back to its ``admission`` too."""
        self._share = share, admission
