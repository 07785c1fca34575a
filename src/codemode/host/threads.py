"""Threads for host code that would block the event loop: sync tools and large checks."""

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
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..records import record
from . import steps
from .forks import create_fork_safe_lock
from .job_threads import IDLE_SECONDS, FairQueue, JobThreads

if TYPE_CHECKING:
    import asyncio


# Checks hold the interpreter lock: several at once would only block the event loop longer.

_MAX_TURN_SECONDS = 0.01
_PAUSE_INTERVAL_SECONDS = 0.0015
_PAUSE_SECONDS = 0.00005
HUNG_SECONDS = 2.0


class CpuBoundJob(Protocol):
    """Work with a waiting caller."""

    work: Callable[[], Any]
    variables: contextvars.Context

    @property
    def is_abandoned(self) -> bool:
        """True once nothing waits for it."""
        ...


class _CpuTurn:
    """A thread's right to run a check, and when it last made progress.

    ``adjust_max_threads`` adds a thread (1) while this one hangs, and removes it (-1) when it continues.
    """

    def __init__(self, adjust_max_threads: Callable[[int], None]) -> None:
        self.adjust_max_threads = adjust_max_threads
        self.progressed_at = 0.0
        self.is_skipped = False
        self.gate = threading.Lock()


class _TurnQueue:
    """Lets one thread at a time run checks, in order of arrival."""

    def __init__(self) -> None:
        self._lock = create_fork_safe_lock()
        self._holder: _CpuTurn | None = None
        self._waiting: deque[_CpuTurn] = deque()

    def acquire(self, turn: _CpuTurn) -> None:
        """Wait for the turn."""
        with self._lock:
            if self._holder is None:
                self._grant_turn(turn)
                return
            turn.gate.acquire()
            self._waiting.append(turn)
        turn.gate.acquire()
        turn.gate.release()

    def release(self, turn: _CpuTurn) -> None:
        """Pass the turn to the thread that has waited longest."""
        with self._lock:
            if self._holder is turn:
                self._pass_turn()
        if turn.is_skipped:
            turn.is_skipped = False
            turn.adjust_max_threads(-1)

    def yield_turn(self, turn: _CpuTurn) -> None:
        """Let waiting threads run first."""
        if self._waiting or turn.is_skipped:
            self.release(turn)
            self.acquire(turn)

    def skip_hung_holder(self) -> None:
        """Pass the turn on if its holder made no progress for long, as when a validator blocks."""
        with self._lock:
            hung = self._holder
            if hung is None or time.monotonic() - hung.progressed_at < HUNG_SECONDS:
                return
            hung.is_skipped = True
            self._pass_turn()
        hung.adjust_max_threads(1)

    def _pass_turn(self) -> None:
        self._holder = None
        if self._waiting:
            next_turn = self._waiting.popleft()
            self._grant_turn(next_turn)
            next_turn.gate.release()

    def _grant_turn(self, turn: _CpuTurn) -> None:
        self._holder, turn.progressed_at = turn, time.monotonic()


def run_cpu_bound_in_turn(job: CpuBoundJob, replace_hung: Callable[[int], None]) -> Any:
    """Run a job's work in this thread when it has the turn. It stops at the next step if the job is abandoned."""
    turns, turn = _turns, _CpuTurn(replace_hung)
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
            # An event loop requests the GIL after each system call, and would wait five milliseconds for it.
            time.sleep(_PAUSE_SECONDS)
            paused = time.monotonic()
        return steps.TURN_STEPS

    turns.acquire(turn)
    try:
        started = paused = time.monotonic()
        return job.variables.run(steps.run_with_step_budget, job.work, steps.TURN_STEPS, on_exhausted)
    finally:
        turns.release(turn)


def skip_hung_job() -> None:
    """Pass the turn on if the thread that has it hangs."""
    _turns.skip_hung_holder()


_turns = _TurnQueue()


def _reset_turns() -> None:
    """In a forked child: the thread with the turn does not exist."""
    global _turns  # noqa: PLW0603 - one turn for the process
    _turns = _TurnQueue()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_turns)


# Threads belong to one pool or one share of it, so that tenants do not compete. Checks run one at a time, the shares in
# turn; a hanging one is skipped. Idle threads end, and no thread keeps the interpreter from exiting.

_TOOL_THREADS = 64
# A validator takes up to ten milliseconds for this much.
LARGE_CHARACTERS = 1 << 11

ResultT = TypeVar("ResultT")


async def run_in_thread_if_large_or_slow(characters: int, work: Callable[[], ResultT]) -> ResultT:
    """Run host work on a value of ``characters`` length: at once if it is small, else in a thread.

    A check that needs many steps is started again in a thread: ``work`` must have no side effects. If the caller is
    cancelled it stops at its next step.
    """
    if characters < LARGE_CHARACTERS:
        try:
            return steps.run_with_step_budget(work)
        except steps.LoopBudgetExceeded:
            pass
    try:
        return await (current_threads.get() or _default_threads).run_cpu_bound(work)
    except Exception as error:
        clear_error_frames(error)
        raise


def clear_error_frames(error: BaseException) -> None:
    """Clear the frames of a stored error, which would keep the value alive."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            traceback.clear_frames(current.__traceback__)
            if current.__suppress_context__:
                current.__context__ = None  # never displayed, and a validator's own error refers to the value
            pending += [current.__cause__, current.__context__]


class HostThreads:
    """The threads of a pool or a share of it. They end after ``idle_seconds``, or at once if it is closed."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self.lock = create_fork_safe_lock()
        """Protects the counts of its invocations."""
        self._tools: dict[int, JobThreads] = {}
        self._idle_seconds = idle_seconds
        self.checks = JobThreads("codemode-check", 1, FairQueue(), idle_seconds=idle_seconds)

    def get_or_create_tool_threads(self, depth: int) -> JobThreads:
        """Return the threads for tools of invocations at a nesting depth.

        Each depth has its own: tools that wait for nested programs must not block those programs' tools.
        """
        threads = self._tools.get(depth)
        if threads is None:
            created = JobThreads("codemode-tool", _TOOL_THREADS, idle_seconds=self._idle_seconds)
            threads = self._tools.setdefault(depth, created)
        return threads

    def end_threads_when_idle(self) -> None:
        """End threads when they have nothing to do. Later jobs still run."""
        for threads in (self.checks, *self._tools.values()):
            threads.end_threads_when_idle()

    def __del__(self) -> None:
        self.end_threads_when_idle()


class InvocationThreads:
    """The threads of a pool as one invocation uses them, with a count of its running jobs.

    ``depth`` is its nesting depth.
    """

    def __init__(self, share: HostThreads, depth: int = 0) -> None:
        self._share = share
        self._depth = depth
        self._lock = share.lock
        self.running = 0
        """The number of its running jobs."""
        self._on_free: Callable[[], None] | None = None

    def run_tool(self, work: Callable[[], ResultT]) -> Coroutine[Any, Any, ResultT]:
        """Run a sync tool, with the caller's context variables."""
        return self._share.get_or_create_tool_threads(self._depth).run(_InvocationJob(self, work, _run_in_job_context))

    async def run_cpu_bound(self, work: Callable[[], ResultT]) -> ResultT:
        """Run heavy host work with the caller's context variables, when it is this share's turn."""
        checks = self._share.checks
        job = _InvocationJob(self, work, lambda job: run_cpu_bound_in_turn(job, checks.adjust_max_threads))

        watch = _HungJobWatchdog(job.loop)
        try:
            return await checks.run(job)
        finally:
            watch.stop()

    def call_when_idle(self, call: Callable[[], None]) -> None:
        """Call once nothing runs here: at once, or in the thread of the last job. Threads cannot be stopped."""
        with self._lock:
            if self.running:
                self._on_free = call
                return
        call()

    def run_counted_job(self, job: _InvocationJob, run: Callable[[_InvocationJob], Any]) -> Any:
        """Run a job in this thread. The invocation keeps its slot until it has ended."""
        with self._lock:
            self.running += 1
        try:
            return run(job)
        finally:
            with self._lock:
                self.running -= 1
                call, is_free = self._on_free, not self.running
                self._on_free = None if is_free else call  # once: a suspended run starts jobs again later
            if is_free and call is not None:
                call()


class _HungJobWatchdog:
    """Periodically detects a hanging check while a check is waited for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._later = loop.call_later(HUNG_SECONDS, self._skip_hung_and_reschedule, loop)

    def stop(self) -> None:
        self._later.cancel()

    def _skip_hung_and_reschedule(self, loop: asyncio.AbstractEventLoop) -> None:
        skip_hung_job()
        self._later = loop.call_later(HUNG_SECONDS, self._skip_hung_and_reschedule, loop)


class InvocationThreadsScope:
    """Make `run_check` use these threads in this task and the tasks that it starts."""

    def __init__(self, threads: InvocationThreads) -> None:
        self._threads = threads

    def __enter__(self) -> None:
        self._token = current_threads.set(self._threads)

    def __exit__(self, *_: object) -> None:
        try:  # noqa: SIM105 - each run comes here, and `suppress` is three calls more
            current_threads.reset(self._token)
        except ValueError:  # an abandoned coroutine is closed in another context
            pass


class BackgroundThreads:
    """Threads for background work of no invocation. They end when idle or garbage-collected."""

    def __init__(self, name: str, most: int, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._threads = JobThreads(name, most, idle_seconds=idle_seconds)

    def __del__(self) -> None:
        self.end_threads_when_idle()

    def end_threads_when_idle(self) -> None:
        """End threads when they have nothing to do. Later jobs still run."""
        self._threads.end_threads_when_idle()

    def submit(self, work: Callable[[], None]) -> None:
        """Run work soon, without a result; in this thread if the system gives none."""
        try:
            self._threads.put(_BackgroundJob(work))
        except RuntimeError:
            work()

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Run work and return its result."""
        return await self._threads.run(_InvocationJob(_default_threads, work, _run_in_job_context))


async def run_in_single_use_thread(work: Callable[[], ResultT]) -> ResultT:
    """Run work once in a thread that is not shared and ends with it."""
    return await BackgroundThreads("codemode-once", 1, idle_seconds=0).run(work)


async def run_cpu_bound_in_dedicated_thread(work: Callable[[], ResultT]) -> ResultT:
    """Run heavy host work of no invocation in a thread of its own, in turn with others, until it is abandoned."""
    return await InvocationThreads(HostThreads(idle_seconds=0)).run_cpu_bound(work)


@record
class _BackgroundJob:
    work: Callable[[], None]

    def perform(self) -> None:
        try:
            self.work()
        except BaseException:
            logging.getLogger("codemode.workers").exception("an errand of a worker pool failed")


class _InvocationJob:
    """Work for a thread, and the future of its caller."""

    def __init__(self, owner: InvocationThreads, work: Callable[[], Any], run: Callable[[_InvocationJob], Any]) -> None:
        import asyncio  # late: a pool is created without asyncio

        self.owner = owner
        self.work = work
        self.variables = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self._run = run

    @property
    def is_abandoned(self) -> bool:
        """True once nothing waits for it."""
        return self.future.cancelled() or self.loop.is_closed()

    def perform(self) -> None:
        """Run the work in this thread and set the result."""
        if self.is_abandoned:
            return
        try:
            settle, outcome = self._fulfil_future, self.owner.run_counted_job(self, self._run)
        except BaseException as error:  # noqa: BLE001 - raised in the waiting caller
            # Without this frame, which is still running and could not be cleared.
            traceback_entry = error.__traceback__
            settle, outcome = self._reject_future, error.with_traceback(traceback_entry and traceback_entry.tb_next)
            if isinstance(error, StopIteration):  # a future cannot carry it
                outcome = RuntimeError("host code raised StopIteration")
                outcome.__cause__ = error
        self.work = _do_nothing
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self.loop.call_soon_threadsafe(settle, outcome)

    def _fulfil_future(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)
        elif inspect.iscoroutine(value):  # the caller is gone: the coroutine must not start
            value.close()

    def _reject_future(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def _do_nothing() -> None:
    """Replaces work that is done, to release what it refers to."""


def _run_in_job_context(job: _InvocationJob) -> Any:
    return job.variables.run(job.work)


current_threads: contextvars.ContextVar[InvocationThreads | None] = contextvars.ContextVar(
    "codemode_threads", default=None
)
"""The threads that `run_check` uses in this task and the tasks that it starts."""
_default_threads = InvocationThreads(HostThreads())


def _reset_default_threads() -> None:
    """In a forked child: the threads do not exist, and one may have held a lock."""
    global _default_threads  # noqa: PLW0603 - one for the process
    _default_threads = InvocationThreads(HostThreads())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_default_threads)
