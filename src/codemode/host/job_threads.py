"""Threads with a queue of jobs, and work in a thread of its own."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .forks import create_fork_safe_rlock, never_finalize_in_child, register_fork_reset

if TYPE_CHECKING:
    import asyncio

IDLE_SECONDS = 5.0
_LOCK_TIMEOUT_SECONDS = 0.05


class Job(Protocol):
    """A job with a waiting caller: ``future`` gets its result."""

    owner: Any
    future: asyncio.Future[Any]

    def perform(self) -> None:
        """Do the work; raises nothing."""
        ...


class JobThreads:
    """At most ``max_threads`` threads with one queue, started as needed, ended after ``idle_seconds``.

    The thread that became idle last is woken first, so that unneeded ones end. One is woken at a time, and wakes the
    next if there are more jobs: a burst of short jobs does not wake them all.
    """

    def __init__(
        self, name: str, max_threads: int, jobs: FairQueue | None = None, *, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._name = name
        self._idle_seconds = idle_seconds
        self._max_threads = max_threads
        self._jobs: deque[Job] | FairQueue = deque() if jobs is None else jobs
        self._count = 0
        self._idle_gates: list[threading.Lock] = []  # the lock that each idle thread waits for
        self._is_waking = False  # a woken thread that has not taken a job yet; not in the list any more
        self._lock = create_fork_safe_rlock()
        register_fork_reset(self)

    def after_fork(self) -> None:
        """In a forked child: the threads do not exist."""
        never_finalize_in_child(self._jobs)
        self._jobs = type(self._jobs)()
        self._count, self._idle_gates, self._is_waking = 0, [], False

    def end_threads_when_idle(self) -> None:
        """End idle threads now and the others when they become idle: hardly any job will follow."""
        self._idle_seconds = 0
        # At interpreter exit or in a child, the lock may belong to a thread that does not run any more.
        if self._lock.acquire(timeout=_LOCK_TIMEOUT_SECONDS):
            while self._idle_gates:
                self._idle_gates.pop().release()
            self._lock.release()

    def put(self, job: Any) -> None:
        """Queue a job. Raises `RuntimeError` if no thread can be started."""
        with self._lock:
            if self._count < self._max_threads and self._has_too_few_idle_threads():
                self._start_thread()
            self._jobs.append(job)
            if self._idle_gates and not self._is_waking:
                self._wake_idle_thread()

    async def run(self, job: Job) -> Any:
        """Queue a job and return its result."""
        self.put(job)
        try:
            return await job.future
        finally:
            if job.future.cancelled():
                self._remove_job(job)

    def adjust_max_threads(self, by: int) -> None:
        """Allow one thread more while one hangs, and one less (-1) when it continues."""
        with self._lock, suppress(RuntimeError):
            self._max_threads += by
            if self._jobs and self._count < self._max_threads and self._has_too_few_idle_threads():
                self._start_thread()

    def _has_too_few_idle_threads(self) -> bool:
        """Return whether the queued jobs outnumber the idle threads."""
        return len(self._idle_gates) + self._is_waking <= len(self._jobs)

    def _start_thread(self) -> None:
        # A daemon: the interpreter must be able to exit although a tool hangs.
        thread = threading.Thread(target=self._run_jobs, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system limit is reached: the existing threads do the work.
            if not self._count:
                raise
        else:
            self._count += 1

    def _remove_job(self, job: Job) -> None:
        with self._lock, suppress(ValueError):
            self._jobs.remove(job)

    def _run_jobs(self) -> None:
        gate = threading.Lock()
        gate.acquire()
        while (job := self._wait_and_take_job(gate)) is not None:
            job.perform()
            del job

    def _wait_and_take_job(self, gate: threading.Lock) -> Job | None:
        with self._lock:
            is_awake = True
            while not self._jobs and self._count <= self._max_threads and is_awake:
                is_awake = self._wait_until_woken(gate)
            job = self._jobs.popleft() if self._jobs and self._count <= self._max_threads else None
            if job is None:
                self._count -= 1
            if self._jobs and self._idle_gates and not self._is_waking:
                self._wake_idle_thread()
            return job

    def _wake_idle_thread(self) -> None:
        self._is_waking = True
        self._idle_gates.pop().release()

    def _wait_until_woken(self, gate: threading.Lock) -> bool:
        """Wait to be woken, releasing the lock. Returns False after the idle time."""
        self._idle_gates.append(gate)
        self._lock.release()
        gate.acquire(timeout=self._idle_seconds)
        self._lock.acquire()
        if gate in self._idle_gates:
            self._idle_gates.remove(gate)
            return False
        gate.acquire(blocking=False)  # it may have been woken after its idle time
        self._is_waking = False
        return True


class FairQueue:
    """A queue that serves the owners of jobs in turn, however many jobs each has."""

    def __init__(self) -> None:
        self._queues: dict[Any, deque[Job]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def append(self, job: Job) -> None:
        self._queues.setdefault(job.owner, deque()).append(job)

    def remove(self, job: Job) -> None:
        queue = self._queues.get(job.owner, deque())
        queue.remove(job)
        if not queue:
            del self._queues[job.owner]

    def popleft(self) -> Job:
        owner = next(iter(self._queues))
        queue = self._queues.pop(owner)
        job = queue.popleft()
        if queue:
            self._queues[owner] = queue
        return job


ResultT = TypeVar("ResultT")


async def run_in_dedicated_thread(work: Callable[[], ResultT], name: str) -> ResultT:
    """Run work in its own thread, as the loop's may be busy. It continues if the caller is cancelled."""
    import asyncio  # late: the first worker starts before asyncio is imported

    loop = asyncio.get_running_loop()
    future: asyncio.Future[ResultT] = loop.create_future()

    def run_and_deliver() -> None:
        settle: Callable[[Any], None] = future.set_result
        try:
            outcome: Any = work()
        except BaseException as error:  # noqa: BLE001 - raised in the waiting caller
            settle, outcome = future.set_exception, error
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(_settle_if_pending, future, settle, outcome)

    try:
        thread = _idle_threads.pop()
    except IndexError:
        thread = _ReusableThread()
    thread.assign_work(run_and_deliver, name)
    return await future


class _ReusableThread:
    """A thread for one piece of work at a time, which is reused: starting one takes longer than most work."""

    def __init__(self) -> None:
        self._work_queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._work_until_retired, daemon=True)
        self._thread.start()

    def assign_work(self, work: Callable[[], None], name: str) -> None:
        self._thread.name = name
        self._work_queue.put(work)

    def _work_until_retired(self) -> None:
        work: Callable[[], None] | None = self._work_queue.get()
        while work is not None:
            work()
            work = None  # release what the work refers to while the thread waits
            _idle_threads.append(self)
            work = self._wait_for_work_or_retire()

    def _wait_for_work_or_retire(self) -> Callable[[], None] | None:
        try:
            return self._work_queue.get(timeout=IDLE_SECONDS)
        except Empty:
            try:
                _idle_threads.remove(self)
            except ValueError:  # another caller has just taken it
                return self._work_queue.get()
            return None


def _settle_if_pending(done: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not done.done():
        settle(outcome)


_idle_threads: list[_ReusableThread] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle_threads.clear)
