"""The inventory of a pool: spare workers, workers in use, and reusable idle ones."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..errors import CodeModeWorkerError
from ..host.forks import create_fork_safe_lock, create_fork_safe_rlock
from ..host.imports import importing
from ..host.threads import BackgroundThreads
from .process import wait_until_readable
from .worker_generations import PooledWorker, RetirableWorkerSource, SharePath, WorkerSource

if TYPE_CHECKING:
    from .worker_generations import PooledWorker


# So many that are not ready yet are waited for rather than a spare worker taken, which then has to be replaced.
_MAX_UNREADY_WORKERS = 2


class IdleWorkers:
    """Idle workers, at most ``max_count``, the longest idle first. Not safe to use from several threads."""

    def __init__(self, max_count: int) -> None:
        self._max_count = max_count
        self._workers: dict[PooledWorker, None] = {}

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[PooledWorker]:
        return iter(self._workers)

    def add(self, worker: PooledWorker) -> PooledWorker | None:
        """Add a waiting worker; return the one, of any share, that it displaces."""
        self._workers[worker] = None
        return self._remove_worker(next(iter(self._workers))) if len(self._workers) > self._max_count else None

    def take(self, share: SharePath, *, has_spare: bool) -> PooledWorker | None:
        """Return the worker of a share that has waited longest, or None.

        Also None while it is still getting ready, a spare worker exists and no others get ready.
        """
        share_workers = [worker for worker in self._workers if worker.reuse is not None and worker.reuse.share == share]
        if not share_workers:
            return None
        first = share_workers[0]
        return (
            None
            if has_spare and len(share_workers) < _MAX_UNREADY_WORKERS and not _is_worker_ready(first)
            else self._remove_worker(first)
        )

    def remove_share_workers(self, share: SharePath) -> list[PooledWorker]:
        """Return those of a share and of its parts, which wait no more."""
        prefix = slice(len(share))
        workers = [
            worker for worker in self._workers if worker.reuse is not None and worker.reuse.share[prefix] == share
        ]
        return [self._remove_worker(worker) for worker in workers]

    def remove_all(self) -> list[PooledWorker]:
        """Return all, which wait no more."""
        workers = list(self._workers)
        self._workers.clear()
        return workers

    def _remove_worker(self, worker: PooledWorker) -> PooledWorker:
        del self._workers[worker]
        return worker


def _is_worker_ready(worker: PooledWorker) -> bool:
    has_frame = worker.reuse is not None and worker.reuse.frame
    return bool(has_frame) or wait_until_readable(worker.process.channel.fileno(), 0)


# An event loop gets and gives back workers here and never waits for a process: where something might have to be waited
# for (the first worker of a source, one started by exec, the end of one that was killed, the end of a source), a thread
# of the inventory's own does it. Safe to use from several threads and loops. Knows nothing of slots.

_CLOSING_THREADS = 4
# Programs that follow each other more closely would wait for the end of the warm-up, which takes longer than it saves.
MIN_WARM_UP_INTERVAL_SECONDS = 0.004
ResultT = TypeVar("ResultT")


class WorkerInventory:
    """Gives workers of the sources that ``make_source`` makes, with up to ``max_spares`` of them made ahead.

    ``is_quiet`` says whether there is time to prepare a new one. Up to ``max_idle`` are kept for another program.
    """

    def __init__(
        self,
        make_source: Callable[[], WorkerSource],
        max_spares: int,
        is_quiet: Callable[[], bool],
        max_idle: int = 0,
    ) -> None:
        self._make_source = make_source
        self._max_spares = max_spares
        self._is_quiet = is_quiet
        self._lock = create_fork_safe_rlock()  # never held while something is waited for: loops take it
        self._start_lock = create_fork_safe_rlock()  # held by who starts processes and may wait: no loop takes it
        self._start_thread = BackgroundThreads("codemode-start", 1)
        self._close_threads = BackgroundThreads("codemode-close", _CLOSING_THREADS)
        self.spares: deque[PooledWorker] = deque()
        self.idle = IdleWorkers(max_idle)
        self.busy: set[PooledWorker] = set()
        self.finished: deque[PooledWorker] = deque()
        """Workers in use whose program has ended: the next refill closes them, or whatever comes before it."""
        self._being_closed: set[PooledWorker] = set()  # of those, what a thread closes
        self._current_source: RetirableWorkerSource | None = None
        self._retired_sources: list[RetirableWorkerSource] = []
        self._last_taken_at, self._seconds_between_programs = float("-inf"), float("inf")
        self.is_closed = False

    @property
    def has_started(self) -> bool:
        """False when the next worker is the first one of its source, and a spare could be made ahead of it."""
        return self._current_source is not None or self.is_closed or not self._max_spares

    def start_first_spare(self) -> None:
        """Start a first spare, unless there is a source. May wait. Failures show when a worker is needed."""
        if not self.has_started:
            self._spawn_missing_spares(1)

    async def run_in_start_thread(self, function: Callable[[], ResultT]) -> ResultT:
        """Do something in the thread that starts workers, and return what came of it."""
        return await self._start_thread.run(function)

    async def take_worker_in_thread(self) -> PooledWorker:
        """Return a worker that is starting or ready. Raises `CodeModeWorkerError` if the start fails.

        Use it when `take_worker_nowait` returns None: it waits for a thread.
        """
        handover = _WorkerHandover(self.close_worker)
        try:
            await self._start_thread.run(lambda: handover.offer(self._take_or_spawn_worker()))
            return handover.take()
        except BaseException:
            handover.cancel()
            raise

    def keep_idle_worker_or_mark_finished(self, worker: PooledWorker) -> None:
        """Keep a finished worker for another program, in place of the one that waited longest."""
        with self._lock:
            is_current = worker.retirable_source is self._current_source and not self.is_closed
            displaced = self.idle.add(worker) if is_current else worker
            if displaced is not worker:
                self.busy.discard(worker)
        if displaced is not None:
            self.finished.append(displaced)

    def take_idle_worker(self, share: SharePath) -> PooledWorker | None:
        """Return a worker that has waited for a program of this share, or None for a new one to be taken."""
        with self._lock:
            self._retire_dead_source()
            worker = self.idle.take(share, has_spare=bool(self.spares))
            if worker is not None:
                self.busy.add(worker)
            return worker

    def close_idle_workers(self, share: SharePath) -> None:
        """Close the workers that wait for programs of this share, and of its parts."""
        with self._lock:
            removed = self.idle.remove_share_workers(share)
        for worker in removed:
            self.close_worker(worker)

    def close_worker(self, worker: PooledWorker) -> None:
        """Kill a worker that was in use."""
        if worker.can_close_immediately():
            self._close_and_remove_worker(worker)
        else:
            with self._lock:
                self._being_closed.add(worker)
            self._close_threads.submit(partial(self._close_and_remove_worker, worker))

    def close_failed_worker_and_retire_source(self, worker: PooledWorker, *, has_ended: bool) -> None:
        """Close a worker that never became ready, and retire its source.

        ``has_ended``: it ended on its own or was killed. Its source is then retired only after several.
        """
        with self._lock:
            # Neither its sibling spares nor what made them can be trusted to work. Another invocation may
            # have found out before and have replaced them.
            if worker.retirable_source is self._current_source and not (
                has_ended and worker.retirable_source.record_early_exit_and_check_source()
            ):
                self._retire_source_and_close_unused()
        self.close_worker(worker)

    def refill_spares(self, wanted: int) -> None:
        """Start spares until there are as many as wanted, and no more than allowed. Closes what is done first."""
        self._close_finished_workers()
        with self._lock:
            while self.lacks_spares(wanted):
                worker = self._spawn_worker_nowait()
                if worker is None:
                    self._start_thread.submit(partial(self._spawn_missing_spares, wanted))
                    return
                self.spares.append(worker)

    def lacks_spares(self, wanted: int) -> bool:
        """Tell whether there are fewer than that, and more are allowed."""
        return not self.is_closed and len(self.spares) < min(wanted, self._max_spares)

    def close(self) -> None:
        """Kill spares and sources, and with a zygote every worker. Waits for the end of unused workers."""
        with self._lock:
            self.is_closed = True
        with self._start_lock:
            self._retire_source_and_close_unused()
        for generation in list(self._retired_sources):
            generation.kill_source()
        self._close_finished_workers()
        for worker in list(self._being_closed):
            self._close_and_remove_worker(worker)
        for worker in list(self.busy):
            worker.process.kill()

    @property
    def has_processes(self) -> bool:
        """False when none of its processes is left, as far as it has not been told to end them."""
        is_retired = any(not old.has_ended for old in self._retired_sources)
        return bool(self._current_source or is_retired or self.busy or self._being_closed)

    def close_including_busy_workers(self) -> None:
        """Do what `close` does, and close the workers in use too: only when no run can use them."""
        self.close()
        for worker in list(self.busy):
            self._close_and_remove_worker(worker)

    def close_descriptors(self) -> None:
        """In a forked child of the host: give up every descriptor, and touch no process of the parent's."""
        for worker in {*self.spares, *self.idle, *self.busy, *self._being_closed}:  # what is done is still in use
            worker.process.close_descriptors()
        for generation in (*self._retired_sources, *([self._current_source] if self._current_source else ())):
            generation.source.close_descriptors()

    # --- what never waits ---

    def take_worker_nowait(self) -> PooledWorker | None:
        """Return a worker, None when there may be something to wait for."""
        if self.finished:
            self._close_finished_workers()
        with self._lock:
            if self.is_closed:
                raise CodeModeWorkerError("the worker pool is closed")
            self._retire_dead_source()
            while self.spares:
                worker = self.spares.popleft()
                if not worker.process.is_dead():
                    break
                self.close_worker(worker)
            else:
                worker = self._spawn_worker_nowait()
            if worker is not None:
                self.busy.add(worker)
                now = time.monotonic()
                self._seconds_between_programs, self._last_taken_at = now - self._last_taken_at, now
            return worker

    def _retire_dead_source(self) -> None:
        if self._current_source is not None and not self._current_source.source.is_alive():
            # Those that wait are about to die with it.
            self._retire_source_and_close_unused()

    def _spawn_worker_nowait(self) -> PooledWorker | None:
        generation = self._current_source
        if generation is None or not generation.is_usable or not generation.source.can_spawn_immediately():
            return None
        try:
            return generation.spawn(warm_up=self._should_warm_up(generation))
        except CodeModeWorkerError:
            return None

    def _should_warm_up(self, generation: RetirableWorkerSource) -> bool:
        # With several at once the processors are busy: a warm-up would only move work, and add some.
        # The first worker of a source is needed at once.
        has_time = self._seconds_between_programs >= MIN_WARM_UP_INTERVAL_SECONDS
        return generation.has_started and has_time and self._is_quiet()

    def _close_finished_workers(self) -> None:
        while self.finished:
            try:
                worker = self.finished.popleft()
            except IndexError:  # another thread was faster
                return
            self.close_worker(worker)

    def _retire_source_and_close_unused(self) -> None:
        """Drop the spares and take no more from their source; workers in use continue."""
        with self._lock:
            spares, generation = [*self.spares, *self.idle.remove_all()], self._current_source
            self.spares.clear()
            self._current_source = None
            self._retired_sources = [old for old in self._retired_sources if not old.has_ended]
            if generation is not None:
                self._retired_sources.append(generation)
                if generation.retire():
                    self._kill_retired_source(generation)
        for worker in spares:
            self.close_worker(worker)

    def _kill_retired_source(self, generation: RetirableWorkerSource) -> None:
        if generation.source.can_kill_immediately():
            generation.kill_source()
        else:
            self._close_threads.submit(generation.kill_source)

    # --- what may wait: in a thread of the inventory, or of a caller that has no loop ---

    def _take_or_spawn_worker(self) -> PooledWorker:
        with self._start_lock:
            worker = self.take_worker_nowait()
            if worker is None:
                # A fork that came in between would leave the child with descriptors that it knows nothing of.
                with importing:
                    worker = self._spawn_worker_with_retry()
                    with self._lock:
                        self.busy.add(worker)
            return worker

    def _spawn_worker_with_retry(self) -> PooledWorker:
        try:
            return self._spawn_worker()
        except CodeModeWorkerError:
            self._retire_source_and_close_unused()
            return self._spawn_worker()

    def _spawn_missing_spares(self, wanted: int) -> None:
        with self._start_lock:
            try:
                while self.lacks_spares(wanted):
                    with importing:  # as above
                        self._add_or_close_spare(self._spawn_worker(), wanted)
            except CodeModeWorkerError:
                self._retire_source_and_close_unused()

    def _add_or_close_spare(self, worker: PooledWorker, wanted: int) -> None:
        with self._lock:
            if self.lacks_spares(wanted):  # a loop may have refilled meanwhile
                self.spares.append(worker)
                return
        self.close_worker(worker)

    def _spawn_worker(self) -> PooledWorker:
        generation = self._current_source
        if generation is None or not generation.is_usable:
            self._retire_source_and_close_unused()
            generation = RetirableWorkerSource(self._make_source())
            with self._lock:
                self._current_source = generation
        if self.is_closed:
            self._retire_source_and_close_unused()
            raise CodeModeWorkerError("the worker pool is closed")
        return generation.spawn(warm_up=self._should_warm_up(generation))

    def _close_and_remove_worker(self, worker: PooledWorker) -> None:
        worker.close()
        with self._lock:
            self.busy.discard(worker)
            self._being_closed.discard(worker)


class _WorkerHandover:
    """Hands a worker from the thread that got it to the task that wants it, which may be gone by then."""

    def __init__(self, close: Callable[[PooledWorker], None]) -> None:
        self._close = close
        self._lock = create_fork_safe_lock()
        self._worker: PooledWorker | None = None
        self._is_cancelled = False

    def offer(self, worker: PooledWorker) -> None:
        """Offer it, from the thread."""
        with self._lock:
            self._worker = worker
        if self._is_cancelled:
            self.cancel()

    def take(self) -> PooledWorker:
        """Return it, in the task."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is None:
            raise CodeModeWorkerError("no worker started")
        return worker

    def cancel(self) -> None:
        """Want it no more: what comes, or has come, is closed."""
        with self._lock:
            self._is_cancelled = True
            worker, self._worker = self._worker, None
        if worker is not None:
            self._close(worker)
