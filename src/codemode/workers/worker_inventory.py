"""The inventory of a pool: spare workers, workers in use, and reusable idle ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..errors import CodeModeWorkerError
from ..host.forks import forkable_lock, forkable_rlock
from ..host.imports import importing
from ..host.threads import Errands
from .process import is_readable
from .worker_generations import Generation, PooledWorker, Share, WorkerSource

if TYPE_CHECKING:
    from .worker_generations import PooledWorker


# So many that are not ready yet are waited for rather than a spare worker taken, which then has to be replaced.
_MOST_UNREADY = 2


class KeptWorkers:
    """Those that wait, ``most`` of them, in the order in which they came. Not safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[PooledWorker, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[PooledWorker]:
        return iter(self._waiting)

    def add(self, worker: PooledWorker) -> PooledWorker | None:
        """Let one wait; return the one, of whatever share, that has to go for it."""
        self._waiting[worker] = None
        return self._removed(next(iter(self._waiting))) if len(self._waiting) > self._most else None

    def take(self, share: Share, *, has_spare: bool) -> PooledWorker | None:
        """Return the worker of a share that has waited longest, None when there is none.

        None too while it is still getting ready and there is a spare worker, unless others do so already.
        """
        of_share = [worker for worker in self._waiting if worker.tenure is not None and worker.tenure.share == share]
        if not of_share:
            return None
        first = of_share[0]
        return None if has_spare and len(of_share) < _MOST_UNREADY and not _is_ready(first) else self._removed(first)

    def remove(self, share: Share) -> list[PooledWorker]:
        """Return those of a share and of its parts, which wait no more."""
        part = slice(len(share))
        found = [worker for worker in self._waiting if worker.tenure is not None and worker.tenure.share[part] == share]
        return [self._removed(worker) for worker in found]

    def clear(self) -> list[PooledWorker]:
        """Return all, which wait no more."""
        found = list(self._waiting)
        self._waiting.clear()
        return found

    def _removed(self, worker: PooledWorker) -> PooledWorker:
        del self._waiting[worker]
        return worker


def _is_ready(worker: PooledWorker) -> bool:
    has_said = worker.tenure is not None and worker.tenure.said
    return bool(has_said) or is_readable(worker.process.channel.fileno(), 0)


# An event loop gets and gives back workers here and never waits for a process: where something might have to be waited
# for (the first worker of a source, one started by exec, the end of one that was killed, the end of a source), a thread
# of the stock's own does it. Safe to use from several threads and loops. Knows nothing of slots.

_CLOSING_THREADS = 4
ResultT = TypeVar("ResultT")


class Stock:
    """Gives workers of the sources that ``make_source`` makes, with up to ``most_spares`` of them made ahead.

    ``is_quiet`` says whether there is time to prepare a new one. Up to ``most_kept`` are kept for another program.
    """

    def __init__(
        self,
        make_source: Callable[[], WorkerSource],
        most_spares: int,
        is_quiet: Callable[[], bool],
        most_kept: int = 0,
    ) -> None:
        self._make_source = make_source
        self._most_spares = most_spares
        self._is_quiet = is_quiet
        self._lock = forkable_rlock()  # never held while something is waited for: loops take it
        self._starting = forkable_rlock()  # held by who starts processes and may wait: no loop takes it
        self._starts = Errands("codemode-start", 1)
        self._closings = Errands("codemode-close", _CLOSING_THREADS)
        self.spares: deque[PooledWorker] = deque()
        self.kept = KeptWorkers(most_kept)
        self.in_use: set[PooledWorker] = set()
        self.done: deque[PooledWorker] = deque()
        """Workers in use whose program has ended: the next refill closes them, or whatever comes before it."""
        self._closing: set[PooledWorker] = set()  # of those, what a thread closes
        self._generation: Generation | None = None
        self._retired: list[Generation] = []
        self.is_closed = False

    @property
    def has_begun(self) -> bool:
        """False when the next worker is the first one of its source, and a spare could be made ahead of it."""
        return self._generation is not None or self.is_closed or not self._most_spares

    def start(self) -> None:
        """Start a first spare, unless there is a source. May wait. Failures show when a worker is needed."""
        if not self.has_begun:
            self._make_spares(1)

    async def off_loop(self, work: Callable[[], ResultT]) -> ResultT:
        """Do something in the thread that starts workers, and return what came of it."""
        return await self._starts.run(work)

    async def take(self) -> PooledWorker:
        """Return a worker that is starting or ready. Raises `CodeModeWorkerError` when there is none.

        For when `take_at_once` gives none: it waits for a thread.
        """
        taken = _Handover(self.close_worker)
        try:
            await self._starts.run(lambda: taken.give(self._take()))
            return taken.take()
        except BaseException:
            taken.refuse()
            raise

    def keep(self, worker: PooledWorker) -> None:
        """Let a worker that is done wait for another program, the oldest of those that wait making way."""
        with self._lock:
            is_current = worker.generation is self._generation and not self.is_closed
            in_the_way = self.kept.add(worker) if is_current else worker
            if in_the_way is not worker:
                self.in_use.discard(worker)
        if in_the_way is not None:
            self.done.append(in_the_way)

    def take_kept(self, share: Share) -> PooledWorker | None:
        """Return a worker that has waited for a program of this share, or None for a new one to be taken."""
        with self._lock:
            self._look_after_source()
            worker = self.kept.take(share, has_spare=bool(self.spares))
            if worker is not None:
                self.in_use.add(worker)
            return worker

    def end_kept(self, share: Share) -> None:
        """Close the workers that wait for programs of this share, and of its parts."""
        with self._lock:
            ended = self.kept.remove(share)
        for worker in ended:
            self.close_worker(worker)

    def close_worker(self, worker: PooledWorker) -> None:
        """Kill a worker that was in use."""
        if worker.closes_at_once():
            self._close(worker)
        else:
            with self._lock:
                self._closing.add(worker)
            self._closings.send(partial(self._close, worker))

    def did_not_start(self, worker: PooledWorker, *, has_ended: bool) -> None:
        """Kill a worker that never became ready, and replace what made it.

        ``has_ended``: it only ended, as one does that somebody kills. Its source is replaced where that is repeated.
        """
        with self._lock:
            # Neither its sibling spares nor what made them can be trusted to work. Another invocation may
            # have found out before and have replaced them.
            if worker.generation is self._generation and not (has_ended and worker.generation.may_lose_one()):
                self._retire_generation()
        self.close_worker(worker)

    def refill(self, wanted: int) -> None:
        """Start spares until there are as many as wanted, and no more than allowed. Closes what is done first."""
        self._close_done()
        with self._lock:
            while self.lacks_spares(wanted):
                worker = self._spawn_at_once()
                if worker is None:
                    self._starts.send(partial(self._make_spares, wanted))
                    return
                self.spares.append(worker)

    def lacks_spares(self, wanted: int) -> bool:
        """Tell whether there are fewer than that, and more are allowed."""
        return not self.is_closed and len(self.spares) < min(wanted, self._most_spares)

    def close(self) -> None:
        """Kill spares and sources, and with a zygote every worker. Waits for the end of those that nobody uses."""
        with self._lock:
            self.is_closed = True
        with self._starting:
            self._retire_generation()
        for generation in list(self._retired):
            generation.end()
        self._close_done()
        for worker in list(self._closing):
            self._close(worker)
        for worker in list(self.in_use):
            worker.process.kill()

    @property
    def has_processes(self) -> bool:
        """False when none of its processes is left, as far as it has not been told to end them."""
        is_retired = any(not old.has_ended for old in self._retired)
        return bool(self._generation or is_retired or self.in_use or self._closing)

    def end(self) -> None:
        """Do what `close` does, and close the workers in use too: for when nobody can be using them."""
        self.close()
        for worker in list(self.in_use):
            self._close(worker)

    def abandon(self) -> None:
        """In a forked child of the host: give up every descriptor, and touch no process of the parent's."""
        for worker in {*self.spares, *self.kept, *self.in_use, *self._closing}:  # what is done is still in use
            worker.process.abandon()
        for generation in (*self._retired, *([self._generation] if self._generation else ())):
            generation.source.abandon()

    # --- what never waits ---

    def take_at_once(self) -> PooledWorker | None:
        """Return a worker, None when there may be something to wait for."""
        if self.done:
            self._close_done()
        with self._lock:
            if self.is_closed:
                raise CodeModeWorkerError("the worker pool is closed")
            self._look_after_source()
            while self.spares:
                worker = self.spares.popleft()
                if not worker.process.is_dead():
                    break
                self.close_worker(worker)
            else:
                worker = self._spawn_at_once()
            if worker is not None:
                self.in_use.add(worker)
            return worker

    def _look_after_source(self) -> None:
        if self._generation is not None and not self._generation.source.is_alive():
            # Those that wait are about to die with it.
            self._retire_generation()

    def _spawn_at_once(self) -> PooledWorker | None:
        generation = self._generation
        if generation is None or not generation.is_usable or not generation.source.spawns_at_once():
            return None
        try:
            return generation.spawn(rehearsed=self._rehearses(generation))
        except CodeModeWorkerError:
            return None

    def _rehearses(self, generation: Generation) -> bool:
        # With several at once the processors are busy: rehearsing would only move work, and add some. The first of a
        # source is needed at once.
        return generation.has_started and self._is_quiet()

    def _close_done(self) -> None:
        while self.done:
            try:
                worker = self.done.popleft()
            except IndexError:  # another thread was faster
                return
            self.close_worker(worker)

    def _retire_generation(self) -> None:
        """Give up the spares and take no more from what made them; workers in use go on."""
        with self._lock:
            spares, generation = [*self.spares, *self.kept.clear()], self._generation
            self.spares.clear()
            self._generation = None
            self._retired = [old for old in self._retired if not old.has_ended]
            if generation is not None:
                self._retired.append(generation)
                if generation.retire():
                    self._end(generation)
        for worker in spares:
            self.close_worker(worker)

    def _end(self, generation: Generation) -> None:
        if generation.source.ends_at_once():
            generation.end()
        else:
            self._closings.send(generation.end)

    # --- what may wait: in a thread of the stock, or of a caller that has no loop ---

    def _take(self) -> PooledWorker:
        with self._starting:
            worker = self.take_at_once()
            if worker is None:
                # A fork that came in between would leave the child with descriptors that it knows nothing of.
                with importing:
                    worker = self._spawn_in_two_attempts()
                    with self._lock:
                        self.in_use.add(worker)
            return worker

    def _spawn_in_two_attempts(self) -> PooledWorker:
        try:
            return self._spawn()
        except CodeModeWorkerError:
            self._retire_generation()
            return self._spawn()

    def _make_spares(self, wanted: int) -> None:
        with self._starting:
            try:
                while self.lacks_spares(wanted):
                    with importing:  # as above
                        self._add_spare(self._spawn(), wanted)
            except CodeModeWorkerError:
                self._retire_generation()

    def _add_spare(self, worker: PooledWorker, wanted: int) -> None:
        with self._lock:
            if self.lacks_spares(wanted):  # a loop may have refilled meanwhile
                self.spares.append(worker)
                return
        self.close_worker(worker)

    def _spawn(self) -> PooledWorker:
        generation = self._generation
        if generation is None or not generation.is_usable:
            self._retire_generation()
            generation = Generation(self._make_source())
            with self._lock:
                self._generation = generation
        if self.is_closed:
            self._retire_generation()
            raise CodeModeWorkerError("the worker pool is closed")
        return generation.spawn(rehearsed=self._rehearses(generation))

    def _close(self, worker: PooledWorker) -> None:
        worker.close()
        with self._lock:
            self.in_use.discard(worker)
            self._closing.discard(worker)


class _Handover:
    """Hands a worker from the thread that got it to the task that wants it, which may be gone by then."""

    def __init__(self, close: Callable[[PooledWorker], None]) -> None:
        self._close = close
        self._lock = forkable_lock()
        self._worker: PooledWorker | None = None
        self._is_refused = False

    def give(self, worker: PooledWorker) -> None:
        """Offer it, from the thread."""
        with self._lock:
            self._worker = worker
        if self._is_refused:
            self.refuse()

    def take(self) -> PooledWorker:
        """Return it, in the task."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is None:
            raise CodeModeWorkerError("no worker started")
        return worker

    def refuse(self) -> None:
        """Want it no more: what comes, or has come, is closed."""
        with self._lock:
            self._is_refused = True
            worker, self._worker = self._worker, None
        if worker is not None:
            self._close(worker)
