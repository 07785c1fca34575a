"""Run one program that may be suspended, through every suspension to its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, cast

from ..data.json_values import count_utf8_bytes
from ..errors import CodeModeAbortedError, CodeModeConcurrencyError, CodeModeError, CodeModeProtocolError
from ..host.cancellation import shield_until_done, wait_or_pass_late_result
from ..host.clock import now_ms
from ..host.threads import InvocationThreadsScope, run_in_thread_if_large_or_slow
from ..interrupts.interrupt import Interrupt
from ..options.parts import CodeModeOptions
from ..profile import SurfaceSettings
from ..protocol import events
from ..protocol.invocation import Invocation
from ..protocol.ledger import Ledger, ProgramProgress
from ..protocol.suspension import SuspendableInvocation, answer_open_yields
from ..tools.catalog import ToolCatalog
from ..tools.prepared import PreparedTool
from ..workers.image import find_engine_version
from ..workers.pool import WorkerPool
from .call_content import store_and_retain_content_until_expiry
from .call_context import OuterCallSettings
from .call_values import AnsweredPause
from .execution import Execution, decode_program_value
from .journal_opening import RunJournaling
from .outcome import OutputItem, PendingCall, RunOutcome, Suspension, list_pending_calls, replace_outcome_fields
from .programs import accept_checked_program
from .recovery import RecoveryLedgerBuilder, make_continuation, make_signed_interrupt
from .suspendable_runner import SuspendableRunner

if TYPE_CHECKING:
    from .suspendable_runner import EncodedOutputItem


ResultT = TypeVar("ResultT")
_GRACE_SECONDS = 4.0
_POLL_SECONDS = 0.5  # how often to check whether the other loop still runs
_LOOP_CLOSED = "the event loop on which this run was started is closed"
_LOOP_STOPPED = "the event loop on which this run was started is not running"


class _CrossLoopCall:
    """Work for another event loop; ``done`` gets its result."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.done: Future[Any] = Future()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._is_wanted = True

    def start(self) -> None:
        if self._is_wanted:
            self._task = self._loop.create_task(self._work())
            self._task.add_done_callback(self._on_task_done)

    def cancel(self) -> None:
        """Cancel the work, if it has started. Works from any thread."""
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        self._is_wanted = False
        if self._task is not None:
            self._task.cancel()
        else:
            self.done.cancel()

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.done.cancel()
        elif (error := task.exception()) is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(task.result())


async def run_on_loop(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run a coroutine on another event loop. A cancelled caller waits until the coroutine has ended.

    Raises `CodeModeAbortedError` if the loop is closed or ends meanwhile, and `CodeModeConcurrencyError` if it does
    not run.
    """
    if asyncio.get_running_loop() is loop:
        return await work()
    call = _CrossLoopCall(loop, work)
    try:
        loop.call_soon_threadsafe(call.start)
    except RuntimeError as error:
        raise CodeModeAbortedError(_LOOP_CLOSED) from error
    local_future = asyncio.wrap_future(call.done)
    try:
        await _wait_while_loop_runs(loop, local_future)
    except BaseException:
        call.cancel()
        if loop.is_running():
            await asyncio.wait([local_future], timeout=_GRACE_SECONDS)
        if local_future.done() and not local_future.cancelled():
            local_future.exception()  # retrieved, so that asyncio does not log it
        raise
    if local_future.cancelled():  # by its loop as it ended, not by the caller
        raise CodeModeAbortedError(_LOOP_CLOSED)
    return local_future.result()


async def _wait_while_loop_runs(loop: asyncio.AbstractEventLoop, local_future: asyncio.Future[Any]) -> None:
    while not local_future.done():
        did_run = loop.is_running()
        await asyncio.wait([local_future], timeout=_POLL_SECONDS)
        if local_future.done() or (did_run and loop.is_running()):
            continue
        if loop.is_closed():
            raise CodeModeAbortedError(_LOOP_CLOSED)
        if not did_run and not loop.is_running():
            raise CodeModeConcurrencyError(_LOOP_STOPPED)


_ITEM_LABEL = "an item of the program's output"


async def decode_output_items(written: list[EncodedOutputItem], max_values: int) -> tuple[OutputItem, ...]:
    """Return the output of the program as values. Raises `CodeModeError` if `decode_program_value` refuses one."""
    if not written:
        return ()

    def decode_item(item: EncodedOutputItem) -> OutputItem:
        if item.kind not in ("json", "content"):
            return OutputItem(item.kind, item.text, item.level)
        return OutputItem(item.kind, decode_program_value(item.text, max_values, label=_ITEM_LABEL))

    return await run_in_thread_if_large_or_slow(
        sum(len(entry.text) for entry in written), lambda: tuple(map(decode_item, written))
    )


_StopReason: TypeAlias = events.Ending | events.SuspensionReason


class SuspendableExecution(Execution):
    """Runs one program of a profile that suspends at its deadline.

    A suspended outcome is continued with `continue_run`.

    It lives on the event loop of its start, with its calls. A suspended run may have no worker and continue on any
    other one; the result is the same.
    """

    _machine_type: ClassVar[type[Invocation]] = SuspendableInvocation

    def __init__(
        self,
        profile: SurfaceSettings,
        catalog: ToolCatalog[PreparedTool],
        options: CodeModeOptions,
        outer: OuterCallSettings,
        pool: WorkerPool | None,
        answered: AnsweredPause | None = None,
        invocation_data: Mapping[str, Any] | None = None,
        journaling: RunJournaling | None = None,
    ) -> None:
        if answered is not None:
            answer_open_yields(answered.continuation.ledger, (outer.call.clock_ms or now_ms)())
        super().__init__(profile, catalog, options, outer, pool, answered, invocation_data, journaling)
        self._progress = self._machine.ledger.progress
        self._runner: SuspendableRunner | None = None
        self._loop = asyncio.get_running_loop()
        self._is_starting, self._is_continuing, self._is_over = True, False, False
        self._has_segment_ended = False  # the current segment of the run
        self._closing: asyncio.Task[None] | None = None
        self._unclaimed_outcome: RunOutcome | None = None  # an outcome whose caller was cancelled before it arrived
        self.on_change: Callable[[], None] = _ignore_change

    # -- suspended

    @property
    def has_started(self) -> bool:
        """True once it has had a worker, so that `abort` ends it. Before that, cancel its start."""
        return self._runner is not None

    @property
    def is_suspended(self) -> bool:
        """True while it can be continued, or has an outcome that no caller has received."""
        return self._unclaimed_outcome is not None or self._is_machine_suspended

    @property
    def _is_machine_suspended(self) -> bool:
        runner = self._runner
        return runner is not None and runner.machine.suspension_reason is not None and not runner.ended.done()

    @property
    def is_warm(self) -> bool:
        """True while it holds a worker and a slot."""
        return self._runner is not None and self._runner.is_warm and not self._runner.ended.done()

    @property
    def has_pending_deliveries(self) -> bool:
        """True if it is suspended and has outcomes to deliver."""
        return self._runner is not None and self._runner.machine.has_pending_deliveries

    @property
    def is_event_loop_closed(self) -> bool:
        """True once the event loop of its start is closed."""
        return self._loop.is_closed()

    @property
    def size_bytes(self) -> int:
        """The bytes of program, invocation data, ledger and output that no caller has taken."""
        runner = self._runner
        if runner is None:
            return 0
        machine = runner.machine
        texts = (
            machine.js or "",
            machine.settings.invocation_data_json or "",
            *(entry.text for entry in runner.output),
        )
        return machine.stored_ledger_bytes + sum(map(count_utf8_bytes, texts))

    @property
    def pending_calls(self) -> tuple[PendingCall, ...]:
        """The calls that run or wait for a person."""
        return () if self._runner is None else list_pending_calls(self._runner.machine.ledger.entries)

    async def continue_run(self, wait_ms: int | None = None) -> RunOutcome:
        """Continue a suspended run and return its next outcome. Works from any event loop and thread.

        Raises `CodeModeConcurrencyError` or `CodeModeWorkerError` if it needs a worker and none is free; it
        stays suspended. Raises `CodeModeProtocolError` if it is not suspended or another caller continues it.
        If the caller is cancelled it stays suspended, and the next caller gets the outcome.
        """
        return await self._run_on_run_loop(
            lambda: self._continue_on_run_loop(self._wait_ms if wait_ms is None else wait_ms)
        )

    def release_worker(self) -> None:
        """Release worker and slot of a suspended run, on its own loop. The result stays the same."""
        if self._is_machine_suspended and not self._is_continuing:
            cast("SuspendableRunner", self._runner).release_worker()

    async def abort(self, reason: str = "the run was aborted") -> RunOutcome:
        """End it with its calls and return its failed outcome. Works from any event loop and thread."""
        return await self._run_on_run_loop(lambda: self._abort_on_run_loop(CodeModeAbortedError(reason)))

    async def store_content_and_sign_interrupt(self) -> Interrupt:
        """Return a suspended run as a signed interrupt: program, settings and ledger.

        The outcome of running calls is unknown in it. `resume` with the same tools continues from there.
        """
        return await self._run_on_run_loop(self._store_content_and_sign_on_run_loop)

    # -- the run

    @property
    def _wait_ms(self) -> int:
        return self._outer.wait_ms or self._machine.settings.limits.timeout_ms

    def _reset_machine(self) -> None:
        super()._reset_machine()
        self._runner = None
        self._progress = self._machine.ledger.progress

    async def _run_until_stop(self, source: str) -> RunOutcome:
        try:
            try:
                stop = await self._start_on_worker_and_wait(source)
            except BaseException:
                await self._close_runner_and_refill_spares()
                raise
        except asyncio.CancelledError as cancelled:
            raise cancelled from await self._complete_and_report_error(
                CodeModeAbortedError("the invocation was cancelled")
            )
        except CodeModeError as error:  # there was no worker
            return self.make_failed_outcome(await self._complete_and_report_error(error))
        try:
            return await self._finish_segment(stop)
        except BaseException:  # cancelled before its worker was released
            await self._close_runner_and_refill_spares()
            raise

    async def _start_on_worker_and_wait(self, source: str) -> _StopReason:
        machine = self._machine
        lease = await self._acquire_worker()
        try:
            program = self._make_program_checker(source, lease)
            check = (accept_checked_program, None) if program is None else (program.check, program.prepare_tools)
            if self._journaling is not None and program is not None:
                self._journaling.waits_without_worker, self._journaling.waits_ms = True, self._wait_ms
            calls, compute_ms = self._make_nested_calls(), self._progress.compute_ms
            more = (calls, self._reporter, *check, self._journaling)
            runner = SuspendableRunner(machine, lease, *more, wait_ms=self._wait_ms, compute_ms=compute_ms)
        except BaseException:
            lease.kill_and_release()
            raise
        self._runner = runner
        runner.on_change = self._notify_change
        runner.on_ended = self._on_ended_while_suspended
        if lease.needs_spare:
            self._loop.call_soon(lease.refill_spares, 1)
        if program is None:
            runner.start(machine.receive(self._accept_unchecked_program(source)))
        else:
            runner.start(self._start_machine_and_get_effects(source, program))
        return await _wait_for_stop(runner)

    async def _continue_on_run_loop(self, wait_ms: int) -> RunOutcome:
        runner, unclaimed = self._runner, self._unclaimed_outcome
        if runner is None or not self.is_suspended or self._is_continuing:
            raise CodeModeProtocolError("the program is not suspended, or another caller continues it")
        if unclaimed is not None:
            self._unclaimed_outcome = None
            return unclaimed
        self._is_continuing, self._has_segment_ended = True, False
        try:
            segment = self._loop.create_task(
                self._run_and_journal_segment(lambda: self._run_next_segment(runner, wait_ms))
            )
            return await wait_or_pass_late_result(
                segment, self._store_unclaimed_outcome, lambda: not (self._has_segment_ended or runner.ended.done())
            )
        finally:
            self._is_continuing = False

    def _store_unclaimed_outcome(self, outcome: RunOutcome) -> None:
        self._unclaimed_outcome = outcome

    async def _run_next_segment(self, runner: SuspendableRunner, wait_ms: int) -> _StopReason:
        try:
            stop = await self._deliver_outcomes_and_wait(runner, wait_ms)
        except BaseException as error:
            if not runner.ended.done():
                if isinstance(error, asyncio.CancelledError):
                    runner.release_worker()
                raise
            stop = None
        self._has_segment_ended = True
        try:
            return runner.ended.result() if stop is None else stop  # it ended at the same moment
        except BaseException:
            await self._close_runner_and_refill_spares()
            raise

    async def _run_and_journal_segment(self, work: Callable[[], Awaitable[_StopReason]]) -> RunOutcome:
        """Return the outcome of the next segment of the run and write or end its journal."""

        async def run_and_make_outcome() -> RunOutcome:
            return await self._finish_segment(await work())

        with InvocationThreadsScope(self._threads):
            return await (
                run_and_make_outcome()
                if self._journaling is None
                else self._run_with_journal(run_and_make_outcome, self._journaling)
            )

    async def _deliver_outcomes_and_wait(self, runner: SuspendableRunner, wait_ms: int) -> _StopReason:
        """Deliver outcomes on the held worker or a new one. Without a worker, first wait for an outcome."""
        runner.reclaim_worker_or_release()
        while not runner.is_warm and runner.machine.has_running_requests and not runner.machine.has_pending_deliveries:
            runner.start_waiting_for_outcome(wait_ms)
            stop = await _wait_for_stop(runner)
            if not isinstance(stop, str) or runner.is_wait_over:
                return stop
            wait_ms = max(1, wait_ms - runner.waited_ms)
        await runner.answer_open_yields()
        if runner.ended.done():
            return runner.ended.result()
        if runner.is_warm or not runner.machine.has_pending_deliveries:
            runner.continue_run(wait_ms)
            return await _wait_for_stop(runner)
        lease = await self._acquire_worker()
        if runner.ended.done():
            lease.kill_and_release()
        else:
            js = runner.machine.js or ""
            self._machine = runner.continue_on_worker(lease, self._accept_unchecked_program(js), wait_ms)
        return await _wait_for_stop(runner)

    async def _finish_segment(self, stop: _StopReason) -> RunOutcome:
        """Return the outcome of a program that was suspended or has ended."""
        runner = cast("SuspendableRunner", self._runner)
        written = runner.take_output()
        machine, previous_count = runner.machine, self._progress.output_count
        try:
            output = await decode_output_items(written, self._options.execution_policy.max_values)
        except CodeModeError as error:
            runner.feed_event(events.HostFailed(error))
            output, stop = (), events.Failed(error)
        is_delivered_now = not isinstance(stop, events.Interrupted) or self._outer.takes_output
        is_delivered = is_delivered_now and not self._outer.keeps_output
        self._progress = ProgramProgress(
            machine.output_count if is_delivered else previous_count, runner.compute_ms, machine.turn_count
        )
        if isinstance(stop, str):
            self._is_starting = False
            runner.make_worker_revocable_or_release()
            output_bytes = sum(count_utf8_bytes(entry.text) for entry in written)
            suspension = Suspension(stop, self.pending_calls, self, output_bytes)
            warnings = self._warning_fields
            self._output_warnings.clear()  # each is reported once
            return RunOutcome("resting", *self._outcome_fields, output=output, suspension=suspension, **warnings)
        machine.ledger.progress = self._progress
        self._is_over = True
        await self._close_runner_and_refill_spares()
        outcome = await (
            self._report_end_and_make_completed_outcome(stop)
            if isinstance(stop, events.Completed)
            else self._report_end_and_make_incomplete_outcome(stop)
        )
        return replace_outcome_fields(outcome, output=output) if output else outcome

    async def _report_end_and_make_incomplete_outcome(self, ending: events.Failed | events.Interrupted) -> RunOutcome:
        if isinstance(ending, events.Failed):
            return self.make_failed_outcome(await self._complete_and_report_error(ending.error))
        return await self._report_end_and_make_interrupted_outcome()

    async def _close_runner_and_refill_spares(self) -> None:
        runner = self._runner
        if runner is not None:
            await runner.close()
            if not self._loop.is_closed():
                self._loop.call_soon(runner.refill_spares)

    async def _abort_on_run_loop(self, error: CodeModeError) -> RunOutcome:
        runner = self._runner
        if runner is None or self._is_continuing or self._is_over or runner.machine.suspension_reason is None:
            if runner is not None:
                runner.feed_event(events.HostFailed(error))  # the waiting caller handles it
            return self.make_failed_outcome(error)
        runner.feed_event(events.HostFailed(error))
        return await shield_until_done(self._run_and_journal_segment(lambda: _wait_for_stop(runner)))

    async def _store_content_and_sign_on_run_loop(self) -> Interrupt:
        runner = self._runner
        if runner is None or not self._is_machine_suspended:
            raise CodeModeProtocolError("the program is not suspended")
        machine, continuation_options = runner.machine, self._options.continuation
        was, settings, js = machine.ledger, machine.settings, machine.js or ""
        ledger = Ledger([*was.entries], [*was.deliveries], was.notice_count, was.sidecar, self._progress, was.contents)
        recovery = RecoveryLedgerBuilder(self._catalog, self._saved_inputs, settings.has_rich_values)

        def build_interrupt() -> Interrupt:
            recovered = recovery.build_ledger(ledger, settings.salt)
            continuation = make_continuation(js, find_engine_version(), settings, recovered, continuation_options)
            return make_signed_interrupt(continuation, continuation_options, self._outer.call.conversation_id)

        with InvocationThreadsScope(self._threads):
            interrupt = await run_in_thread_if_large_or_slow(len(js) + machine.stored_ledger_bytes, build_interrupt)
            await store_and_retain_content_until_expiry(interrupt, ledger, settings.salt, continuation_options)
            return interrupt

    def _on_ended_while_suspended(self) -> None:
        """End the calls of a run that ended while suspended, through a lost journal or a protocol violation."""
        if not (self._is_continuing or self._is_over or self._is_starting or self._loop.is_closed()):
            self._closing = self._loop.create_task(self._close_runner_and_refill_spares())
            self.on_change()

    def _notify_change(self) -> None:
        self.on_change()

    async def _run_on_run_loop(self, work: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        return await run_on_loop(self._loop, work)


def _ignore_change() -> None:
    """Ignore a change while no listener is set."""


async def _wait_for_stop(runner: SuspendableRunner) -> _StopReason:
    """Wait until the run ends or is suspended; return its ending or the reason."""
    reason = None if runner.ended.done() else await runner.stop_reason
    return runner.ended.result() if reason is None or runner.ended.done() else reason
