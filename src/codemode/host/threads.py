"""The threads in which host code runs that may keep the event loop: sync tools, and checks of large values."""

from __future__ import annotations

import contextvars
import inspect
import logging
import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..records import record
from . import steps
from .forks import forkable_lock
from .job_threads import IDLE_SECONDS, FairQueue, JobThreads

if TYPE_CHECKING:
    import asyncio


# Checks hold the interpreter while they run: more of them at once would only keep the event loop longer. Knows nothing
# of queues and of what is checked.

_MAX_TURN_SECONDS = 0.01
_PAUSE_INTERVAL_SECONDS = 0.0015
_PAUSE_SECONDS = 0.00005
HUNG_SECONDS = 2.0


class CheckJob(Protocol):
    """Work that somebody waits for."""

    work: Callable[[], Any]
    variables: contextvars.Context

    @property
    def is_abandoned(self) -> bool:
        """True once nobody waits for it."""
        ...


@dataclass(slots=True, eq=False)
class _Turn:
    """The right of one thread to run a check, and when it was last seen to go on with it.

    ``replace_hung`` takes how many threads more there are to be beside it: 1 while it hangs, -1 when it goes on.
    """

    replace_hung: Callable[[int], None]
    progressed_at: float = 0.0
    is_skipped: bool = False
    gate: threading.Lock = field(default_factory=threading.Lock)


class _TurnQueue:
    """Lets one thread at a time run checks, in order of arrival."""

    def __init__(self) -> None:
        self._lock = forkable_lock()
        self._holder: _Turn | None = None
        self._waiting: deque[_Turn] = deque()

    def acquire(self, turn: _Turn) -> None:
        """Wait for the turn."""
        with self._lock:
            if self._holder is None:
                self._give_to(turn)
                return
            turn.gate.acquire()
            self._waiting.append(turn)
        turn.gate.acquire()
        turn.gate.release()

    def release(self, turn: _Turn) -> None:
        """Hand the turn to whoever waits longest."""
        with self._lock:
            if self._holder is turn:
                self._pass_turn()
        if turn.is_skipped:
            turn.is_skipped = False
            turn.replace_hung(-1)

    def yield_turn(self, turn: _Turn) -> None:
        """Let the others have theirs first."""
        if self._waiting or turn.is_skipped:
            self.release(turn)
            self.acquire(turn)

    def skip_hung(self) -> None:
        """Hand the turn on when its holder has not gone on for long, as when a validator waits for something."""
        with self._lock:
            hung = self._holder
            if hung is None or time.monotonic() - hung.progressed_at < HUNG_SECONDS:
                return
            hung.is_skipped = True
            self._pass_turn()
        hung.replace_hung(1)

    def _pass_turn(self) -> None:
        self._holder = None
        if self._waiting:
            next_turn = self._waiting.popleft()
            self._give_to(next_turn)
            next_turn.gate.release()

    def _give_to(self, turn: _Turn) -> None:
        self._holder, turn.progressed_at = turn, time.monotonic()


def run_in_turn(job: CheckJob, replace_hung: Callable[[int], None]) -> Any:
    """Run a job's work in this thread once its turn has come. It stops at its next step when nobody wants it."""
    turns, turn = _turns, _Turn(replace_hung)
    started = paused = 0.0

    def on_exhausted() -> int:
        nonlocal started, paused
        if job.is_abandoned:
            raise steps.WorkStopped
        turn.progressed_at = now = time.monotonic()
        if now - started > _MAX_TURN_SECONDS:
            turns.yield_turn(turn)
            started = time.monotonic()
        if now - paused > _PAUSE_INTERVAL_SECONDS:
            # An event loop asks for the interpreter after each system call, and would wait five milliseconds for it.
            time.sleep(_PAUSE_SECONDS)
            paused = time.monotonic()
        return steps.TURN_STEPS

    turns.acquire(turn)
    try:
        started = paused = time.monotonic()
        return job.variables.run(steps.run_metered, job.work, steps.TURN_STEPS, on_exhausted)
    finally:
        turns.release(turn)


def skip_hung_check() -> None:
    """Let the next thread have its turn when the one whose turn it is hangs."""
    _turns.skip_hung()


_turns = _TurnQueue()


def _reset_turns() -> None:
    """In a forked child: the thread whose turn it was did not come along."""
    global _turns  # noqa: PLW0603 - one turn for the process
    _turns = _TurnQueue()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_turns)


# Threads belong to one pool or one share of it, so that no tenant takes those of another. Checks hold the interpreter
# while they run: however many wait, one runs at a time, each share in turn; one that hangs is passed over. Every thread
# ends when it is idle, and none keeps the interpreter from ending. Knows nothing of calls and of what is checked.

_TOOL_THREADS = 64
# A validator takes up to ten milliseconds for so much.
LARGE_CHARACTERS = 1 << 11

ResultT = TypeVar("ResultT")


async def run_check(characters: int, work: Callable[[], ResultT]) -> ResultT:
    """Run host work on a value whose text has so many ``characters``: at once when it is small, else in a thread.

    A check by a schema that turns out to need many steps is begun again in a thread: ``work`` must change nothing. When
    the caller is cancelled it stops at its next step.
    """
    if characters < LARGE_CHARACTERS:
        try:
            return steps.run_metered(work)
        except steps.LoopBudgetExceeded:
            pass
    try:
        return await (current_threads.get() or _default_threads).run_check(work)
    except Exception as error:
        clear_error_frames(error)
        raise


def clear_error_frames(error: BaseException) -> None:
    """Empty the frames of an error that is kept: they would keep the value that it is about."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            traceback.clear_frames(current.__traceback__)
            if current.__suppress_context__:
                current.__context__ = None  # nobody is shown it, and a validator's own error holds the value
            pending += [current.__cause__, current.__context__]


class HostThreads:
    """The threads of one pool, or of one share of a pool. They end when they were idle for ``idle_seconds``.

    Those of a pool or share that is closed, or that nobody has any more, do not wait.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self.lock = forkable_lock()
        """For what its invocations count."""
        self._tools: dict[int, JobThreads] = {}
        self._idle_seconds = idle_seconds
        self.checks = JobThreads("codemode-check", 1, FairQueue(), idle_seconds=idle_seconds)

    def tool_threads(self, depth: int) -> JobThreads:
        """Return the threads for tools of invocations that are so deep in nested calls of others.

        Each depth has its own: tools that wait for the programs which they run must not take the threads of those.
        """
        threads = self._tools.get(depth)
        if threads is None:
            created = JobThreads("codemode-tool", _TOOL_THREADS, idle_seconds=self._idle_seconds)
            threads = self._tools.setdefault(depth, created)
        return threads

    def end_idle(self) -> None:
        """Let them end when they have nothing to do. What still comes is done all the same."""
        for threads in (self.checks, *self._tools.values()):
            threads.end_idle()

    def __del__(self) -> None:
        self.end_idle()


class InvocationThreads:
    """What one invocation has of the threads of its pool. Knows which of its tools and checks still run.

    ``depth``: in how many nested calls of others it is.
    """

    def __init__(self, share: HostThreads, depth: int = 0) -> None:
        self._share = share
        self._depth = depth
        self._lock = share.lock
        self.running = 0
        """How many of its jobs run now. Nobody else can begin one."""
        self._on_free: Callable[[], None] | None = None

    def run_tool(self, work: Callable[[], ResultT]) -> Coroutine[Any, Any, ResultT]:
        """Run a sync tool, with the caller's context variables."""
        return self._share.tool_threads(self._depth).run(_Job(self, work, _run_in_context))

    async def run_check(self, work: Callable[[], ResultT]) -> ResultT:
        """Run heavy host work, with the caller's context variables, when it is this share's turn."""
        checks = self._share.checks
        job = _Job(self, work, lambda job: run_in_turn(job, checks.replace_hung))

        watch = _HungCheckWatch(job.loop)
        try:
            return await checks.run(job)
        finally:
            watch.stop()

    def call_when_idle(self, call: Callable[[], None]) -> None:
        """Call once nothing runs here: at once, or from the thread of the last job. No thread can be stopped."""
        with self._lock:
            if self.running:
                self._on_free = call
                return
        call()

    def run(self, job: _Job, run: Callable[[_Job], Any]) -> Any:
        """Run a job in this thread. Until it has ended the invocation keeps its slot."""
        with self._lock:
            self.running += 1
        try:
            return run(job)
        finally:
            with self._lock:
                self.running -= 1
                call, is_free = self._on_free, not self.running
                self._on_free = None if is_free else call  # once: a run that rests has work here again afterwards
            if is_free and call is not None:
                call()


class _HungCheckWatch:
    """Looks now and then, while a check is waited for, whether one hangs. Knows itself no longer once it is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._later = loop.call_later(HUNG_SECONDS, self._look, loop)

    def stop(self) -> None:
        self._later.cancel()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        skip_hung_check()
        self._later = loop.call_later(HUNG_SECONDS, self._look, loop)


class UsingThreads:
    """Let `run_check` in this task, and in those that it starts, run in these threads."""

    def __init__(self, threads: InvocationThreads) -> None:
        self._threads = threads

    def __enter__(self) -> None:
        self._token = current_threads.set(self._threads)

    def __exit__(self, *_: object) -> None:
        try:  # noqa: SIM105 - each run comes here, and `suppress` is three calls more
            current_threads.reset(self._token)
        except ValueError:  # a coroutine that nobody awaits any more is closed in another context
            pass


class BackgroundThreads:
    """Threads for what may wait and belongs to no invocation. They too end when they are idle, or nobody has them."""

    def __init__(self, name: str, most: int, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._threads = JobThreads(name, most, idle_seconds=idle_seconds)

    def __del__(self) -> None:
        self.end_idle()

    def end_idle(self) -> None:
        """Let them end when they have nothing to do. What still comes is done all the same."""
        self._threads.end_idle()

    def submit(self, work: Callable[[], None]) -> None:
        """Have it done soon; nobody waits for it. Where the system gives no thread it is done here."""
        try:
            self._threads.put(_BackgroundJob(work))
        except RuntimeError:
            work()

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Have it done and return what came of it."""
        return await self._threads.run(_Job(_default_threads, work, _run_in_context))


async def run_off_loop(work: Callable[[], ResultT]) -> ResultT:
    """Have something done once, in a thread that nobody else can keep busy, and that ends with it."""
    return await BackgroundThreads("codemode-once", 1, idle_seconds=0).run(work)


async def run_check_alone(work: Callable[[], ResultT]) -> ResultT:
    """Run heavy host work of no invocation in a thread of its own, in turn with others, until nobody waits for it."""
    return await InvocationThreads(HostThreads(idle_seconds=0)).run_check(work)


@record
class _BackgroundJob:
    work: Callable[[], None]

    def perform(self) -> None:
        try:
            self.work()
        except BaseException:
            logging.getLogger("codemode.workers").exception("an errand of a worker pool failed")


class _Job:
    """Work for a thread, and the future of whoever waits for it."""

    def __init__(self, owner: InvocationThreads, work: Callable[[], Any], run: Callable[[_Job], Any]) -> None:
        import asyncio  # late: a pool is made without it

        self.owner = owner
        self.work = work
        self.variables = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self._run = run

    @property
    def is_abandoned(self) -> bool:
        """True once nobody waits for it."""
        return self.future.cancelled() or self.loop.is_closed()

    def perform(self) -> None:
        """Run it in this thread and hand over what came of it."""
        if self.is_abandoned:
            return
        try:
            settle, outcome = self._fulfil, self.owner.run(self, self._run)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
            # Without this frame, which still runs when it is received and could not be emptied.
            traceback_entry = error.__traceback__
            settle, outcome = self._reject, error.with_traceback(traceback_entry and traceback_entry.tb_next)
            if isinstance(error, StopIteration):  # a future that is given one is never done
                outcome = RuntimeError("host code raised StopIteration")
                outcome.__cause__ = error
        self.work = _already_done
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self.loop.call_soon_threadsafe(settle, outcome)

    def _fulfil(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)
        elif inspect.iscoroutine(value):  # of a function that was cut off meanwhile: it is not to begin
            value.close()

    def _reject(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def _already_done() -> None:
    """Stand in for work that is done, and may hold much."""


def _run_in_context(job: _Job) -> Any:
    return job.variables.run(job.work)


current_threads: contextvars.ContextVar[InvocationThreads | None] = contextvars.ContextVar(
    "codemode_threads", default=None
)
"""The threads in which `run_check` runs in this task, and in those that it starts."""
_default_threads = InvocationThreads(HostThreads())


def _reset_default_threads() -> None:
    """In a forked child: the threads did not come along, and one of them may have held a lock."""
    global _default_threads  # noqa: PLW0603 - one for the process
    _default_threads = InvocationThreads(HostThreads())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_default_threads)
