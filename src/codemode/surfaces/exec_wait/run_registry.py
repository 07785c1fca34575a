"""The runs of exec and wait: capacity, states and expiry timers."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...host.clock import monotonic_seconds, now_ms
from ...host.forks import create_fork_safe_lock, never_finalize_in_child, register_fork_reset
from .options import ExecWaitOptions
from .program_run import ABORTED, ACTIVE_STATES, COMPLETED, EXPIRED, RUNNING, WAITING, ProgramRun, RunInfo, UsageCounts

if TYPE_CHECKING:
    from ...execution.outcome import SuspendedRun
    from ...interrupts.interrupt import Interrupt

WARM_SECONDS = 30.0
MAX_ENDED_RUNS = 10_000


class NoCapacityError(Exception):
    """The limit of active runs is reached: ``waiting`` runs, in one conversation if ``is_conversation_limit``."""

    def __init__(self, waiting: int, *, is_conversation_limit: bool = False) -> None:
        super().__init__(waiting)
        self.waiting = waiting
        self.is_conversation_limit = is_conversation_limit


class RunRegistry:
    """All runs by id. Thread-safe; the timers of a run belong to its event loop."""

    def __init__(
        self,
        options: ExecWaitOptions,
        counts: UsageCounts,
        on_expired: Callable[[ProgramRun, SuspendedRun | None], Coroutine[Any, Any, None]],
    ) -> None:
        self._options = options
        self._counts = counts
        self._on_expired = on_expired
        self._lock = create_fork_safe_lock()
        self._reset()
        register_fork_reset(self)

    def _reset(self) -> None:
        self._runs: dict[str, ProgramRun] = {}
        self._active_count = 0
        self._active_by_scope = Counter[str]()
        self._warm: set[ProgramRun] = set()  # runs that may keep their workers; some may have lost them
        self._ended_runs: deque[ProgramRun] = deque()  # ended runs, oldest first
        self._parked: dict[str, ProgramRun] = {}  # runs that wait for a decision, oldest first
        self._stopping: set[asyncio.Future[Any]] = set()  # keeps tasks alive; an event loop does not

    def after_fork(self) -> None:
        """Forget all runs in a forked child: they belong to the parent."""
        never_finalize_in_child(self._runs, self._warm, self._stopping)
        self._reset()

    def reserve_run_or_raise(self, scope: str, code: str) -> ProgramRun:
        """Return a new active run. Raises `NoCapacityError`."""
        with self._lock:
            share = self._options.get_max_waiting_runs(scope)
            if self._active_count >= self._options.max_waiting_runs or self._active_by_scope[scope] >= share:
                self._end_all_orphaned()
            if self._active_count >= self._options.max_waiting_runs:
                raise NoCapacityError(self._active_count)
            if self._active_by_scope[scope] >= share:
                raise NoCapacityError(self._active_by_scope[scope], is_conversation_limit=True)
            run = ProgramRun(scope, code)
            run.loop = asyncio.get_running_loop()
            self._runs[run.run_id] = run
            self._active_count += 1
            self._active_by_scope[scope] += 1
            return run

    def change_run_id(self, run: ProgramRun, run_id: str) -> None:
        """Give a run the id of its record in the store."""
        with self._lock:
            is_registered = self._runs.get(run.run_id) is run
            self._unregister(run)
            run.run_id, previous = run_id, self._runs.get(run_id)
            if is_registered:
                self._runs[run_id] = run
            self._parked.pop(run_id, None)
        if previous is not None:
            previous.call_on_loop(previous.cancel_timers)

    def forget(self, run: ProgramRun) -> None:
        """Remove a run that another process continues or may continue."""
        with self._lock:
            self._unregister(run)
            if run.is_active:
                self._record_end(run, COMPLETED)
        run.call_on_loop(run.cancel_timers)

    def park(self, run: ProgramRun, run_id: str, asked_tools: tuple[str, ...], expires_at_ms: int) -> None:
        """Record that a run waits for a decision in the store; it stays visible until it expires, but is not active."""
        parked = ProgramRun(
            run.scope, "", run_id, WAITING, "pending_tools", loop=run.loop, suspension_count=run.suspension_count + 1
        )
        parked.is_parked, parked.asked_tools, parked.expires_at_ms = True, asked_tools, expires_at_ms
        self.forget(run)
        with self._lock:
            self._runs[run_id] = self._parked[run_id] = parked
            oldest = self._parked.pop(next(iter(self._parked))) if len(self._parked) > MAX_ENDED_RUNS else None
            if oldest is not None:
                del self._runs[oldest.run_id]
        if oldest is not None:
            oldest.call_on_loop(oldest.cancel_timers)
        parked.call_on_loop(lambda: self._start_expiry_timer(parked))

    def park_with_interrupt(self, run: ProgramRun, run_id: str, interrupt: Interrupt) -> None:
        """Park a run that waits for the requests of an interrupt."""
        asked_tools = tuple(request.tool_name for request in interrupt.requests)
        self.park(run, run_id, asked_tools, interrupt.continuation["auth"]["expiresAtMs"])

    def end_parked_by_id(self, run_id: str, state: str) -> None:
        """Record the end of a parked run."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or not run.is_waiting_for_person:
                return
            self._end_parked(run, state)
        run.call_on_loop(run.cancel_timers)

    def find(self, run_id: str) -> ProgramRun | None:
        """Return the run of an id in any state, or None."""
        with self._lock:
            self._forget_old_ended_runs()
            return self._runs.get(run_id)

    def keep_undelivered_result(self, run_id: str, result: Any) -> None:
        """Keep the result of a cancelled caller for the next wait."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is not None:
                run.undelivered_result = result

    def take_undelivered_result(self, scope: str, run_id: str) -> Any:
        """Return the undelivered result of a run once, or None."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or run.scope != scope:
                return None
            result, run.undelivered_result = run.undelivered_result, None
            return result

    def list_runs_in_scope(self, scope: str, run_id: str | None = None) -> list[ProgramRun]:
        """Return the runs of a scope, or the one with this id."""
        with self._lock:
            self._forget_old_ended_runs()
            return [run for run in self._runs.values() if run.scope == scope and run_id in (None, run.run_id)]

    def list_active(self) -> list[ProgramRun]:
        """Return all active runs."""
        with self._lock:
            return [run for run in self._runs.values() if run.is_active]

    def forget_parked(self) -> None:
        """Forget parked runs, which stay in the store."""
        with self._lock:
            parked = [*self._parked.values()]
            self._parked.clear()
            for run in parked:
                del self._runs[run.run_id]
        for run in parked:
            run.call_on_loop(run.cancel_timers)

    def list_infos(self, scope: str) -> tuple[RunInfo, ...]:
        """Return the public information about the runs of a scope."""
        return tuple(run.to_info() for run in self.list_runs_in_scope(scope))

    def try_claim(self, run: ProgramRun) -> bool:
        """Return True if this caller now has the run, which no other caller can take."""
        with self._lock:
            if run.state != WAITING:
                return False
            run.state = RUNNING
            run.expires_at_ms = None
        run.call_on_loop(run.cancel_timers)
        return True

    def record_suspension_and_start_timers(
        self, run: ProgramRun, execution: SuspendedRun, reason: str | None, size: int
    ) -> bool:
        """Record that a run is suspended until it is continued or expires. Returns False if it has ended."""
        ttl = self._options.snapshot_ttl_seconds
        with self._lock:
            if not run.is_active:
                return False
            run.execution, run.reason, run.size_bytes = execution, reason, size
            run.suspension_count += 1
            run.state = WAITING
            run.expires_at_ms = now_ms() + ttl * 1000
            keeps_worker = self._reserve_warm_slot(run)
        self._counts.count_event("rests", run=run)
        run.call_on_loop(lambda: self._set_timers_or_drop_worker(run, execution, ttl, keeps_worker=keeps_worker))
        return True

    def _reserve_warm_slot(self, run: ProgramRun) -> bool:
        self._warm = {other for other in self._warm if other.is_warm and other is not run}
        has_room = len(self._warm) < self._options.max_warm_runs
        if has_room:
            self._warm.add(run)
        return has_room

    def restore_suspension(self, run: ProgramRun) -> None:
        """Record that a taken run stays suspended."""
        if run.execution is not None:
            run.suspension_count -= 1
            self.record_suspension_and_start_timers(run, run.execution, run.reason, run.size_bytes)

    def end(self, run: ProgramRun, state: str) -> bool:
        """End an active run with this state. Returns False if it was not active."""
        with self._lock:
            if run.state not in ACTIVE_STATES:
                return False
            self._record_end(run, state)
        if run.suspension_count:  # timers are set at the first suspension
            run.call_on_loop(run.cancel_timers)
        return True

    def set_end_message(self, run: ProgramRun, text: str) -> None:
        """Set the message for later waits on an ended run."""
        with self._lock:
            run.end_message = text
            registered = self._runs.get(run.run_id)
            if registered is not None and registered.scope == run.scope:
                registered.end_message = text

    def end_orphaned(self, run: ProgramRun) -> bool:
        """End a run whose event loop has ended. Returns False if it was not active."""
        execution = run.execution
        is_ended = self.end(run, ABORTED)
        drop_orphaned_worker(execution)
        return is_ended

    def end_and_abort_program(self, run: ProgramRun) -> None:
        """End a run whose call was cancelled, and abort its program."""
        execution = run.execution
        self.end(run, ABORTED)
        self.abort_suspended_program(run, execution)

    def abort_suspended_program(self, run: ProgramRun, execution: SuspendedRun | None) -> None:
        """Abort a suspended program that no caller has. Call it on the loop of the run."""
        run.cancel_lease_renewal()
        if execution is not None and execution.is_suspended:
            self.run_in_background(_abort_after_cancellation(execution))

    def _record_end(self, run: ProgramRun, state: str) -> None:
        run.state, run.expires_at_ms = state, None
        run.execution = None
        self._active_count -= 1
        self._active_by_scope[run.scope] -= 1
        if not self._active_by_scope[run.scope]:
            del self._active_by_scope[run.scope]
        if run.suspension_count == 0:  # its id was never returned
            self._unregister(run)
        elif self._runs.get(run.run_id) is run:
            run.ended_at = monotonic_seconds()
            self._runs[run.run_id] = ended_run = run.to_ended_run()
            self._ended_runs.append(ended_run)
            self._forget_old_ended_runs()

    def _set_timers_or_drop_worker(
        self, run: ProgramRun, execution: SuspendedRun, ttl: float, *, keeps_worker: bool
    ) -> None:
        run.cancel_timers()
        if run.state != WAITING or run.execution is not execution or run.loop is None:
            return
        if execution.is_warm and not keeps_worker:
            self._drop_idle_worker(run, execution)
        elif execution.is_warm:
            run.timers.append(run.loop.call_later(WARM_SECONDS, self._drop_idle_worker, run, execution))
        run.timers.append(run.loop.call_later(ttl, self._expire_suspended, run, execution))

    def _drop_idle_worker(self, run: ProgramRun, execution: SuspendedRun) -> None:
        if run.state == WAITING and run.execution is execution and execution.is_warm:
            self._counts.count_event("evictions", run=run)
            execution.release_worker()

    def _start_expiry_timer(self, parked: ProgramRun) -> None:
        if parked.loop is not None and parked.state == WAITING and parked.expires_at_ms is not None:
            remaining_seconds = max(0, parked.expires_at_ms - now_ms()) / 1000
            parked.timers.append(parked.loop.call_later(remaining_seconds, self._expire_parked, parked))

    def _expire_parked(self, run: ProgramRun) -> None:
        with self._lock:
            if run.state != WAITING:
                return
            self._end_parked(run, EXPIRED)
        self._counts.count_event("expiries", run=run)
        self.run_in_background(self._on_expired(run, None))

    def _end_parked(self, run: ProgramRun, state: str) -> None:
        run.state, run.ended_at, run.expires_at_ms = state, monotonic_seconds(), None
        self._parked.pop(run.run_id, None)
        self._ended_runs.append(run)
        self._forget_old_ended_runs()

    def _expire_suspended(self, run: ProgramRun, execution: SuspendedRun) -> None:
        with self._lock:
            if run.state != WAITING or run.execution is not execution:
                return
            self._record_end(run, EXPIRED)
        run.cancel_timers()
        self._counts.count_event("expiries", run=run)
        self.run_in_background(self._on_expired(run, execution))

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends a run; `wait_for_background_work` waits for it."""
        stopping = asyncio.ensure_future(work)
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    async def wait_for_background_work(self) -> None:
        """Wait for the coroutines of `run_in_background` on this loop."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(task for task in self._stopping if task.get_loop() is loop), return_exceptions=True)

    def _end_all_orphaned(self) -> None:
        """End all runs whose event loop has ended."""
        for run in [*self._runs.values()]:
            if run.is_active and run.loop is not None and run.loop.is_closed():
                execution = run.execution
                self._record_end(run, ABORTED)
                drop_orphaned_worker(execution)

    def _forget_old_ended_runs(self) -> None:
        """Forget runs that ended longer ago than a run may wait."""
        oldest_kept = monotonic_seconds() - self._options.snapshot_ttl_seconds
        ended_runs = self._ended_runs
        while ended_runs and ((ended_runs[0].ended_at or 0.0) < oldest_kept or len(ended_runs) > MAX_ENDED_RUNS):
            self._unregister(ended_runs.popleft())

    def _unregister(self, run: ProgramRun) -> None:
        """Remove a run unless its id belongs to another run now."""
        if self._runs.get(run.run_id) is run:
            del self._runs[run.run_id]


async def _abort_after_cancellation(execution: SuspendedRun) -> None:
    await execution.abort("the call was cancelled")


def drop_orphaned_worker(execution: SuspendedRun | None) -> None:
    """Release the worker of a run whose event loop has ended, as far as possible."""
    if execution is not None:
        with suppress(RuntimeError):  # the loop is closed
            execution.release_worker()
