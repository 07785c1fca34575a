"""Perform the effects of one invocation: messages, clock, timers and calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from ..errors import CALL_TIMEOUT, CodeModeError, CodeModeFetchError, CodeModeProtocolError, CodeModeToolError
from ..host.clock import PausableTimer
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..interrupts.resolutions import has_edited_input
from ..observe.reporter import CallRecord, InvocationReporter
from ..options.parts import MAX_SOURCE_BYTES, ExecutionPolicy
from ..protocol import events
from ..protocol.events import CallSettled
from ..protocol.in_flight import parse_timer_delay_ms
from ..protocol.invocation import Invocation
from ..protocol.ledger import Fulfilled, LedgerEntry, Rejected, Waiting
from ..protocol.messages import AddPausedTime, HostMessage, RunModule, WorkerMessage
from ..protocol.settings import InvocationSettings
from ..trace.failures import get_group_members
from ..workers.lease import InvocationSlot
from .nested_call import MAX_INLINE_TOOLS, CallProgressReporter, JournaledCallProgressReporter, NestedCalls

if TYPE_CHECKING:
    from ..data.program_facts import ProgramFacts
    from .journal import InvocationJournal
    from .journal_opening import RunJournaling


def get_call_timeout_ms(entry: LedgerEntry, settings: InvocationSettings, policy: ExecutionPolicy) -> int | None:
    """Return how long a request may take, in milliseconds; None: no limit of its own."""
    if entry.kind == "catalog":
        return None
    if (
        entry.kind in ("fetch", "state")
        and policy.tool_timeout_ms is None
        and not settings.limits.timeout_includes_tools
    ):
        # The program's limit is the only one here: without it, a server or state backend could block the invocation
        # forever.
        return settings.limits.timeout_ms
    return policy.tool_timeout_ms


def make_timeout_error(entry: LedgerEntry, timeout_ms: int) -> CodeModeError:
    """Return the error for a request that took too long. A started call may still have its effect."""
    message = f"did not answer within {timeout_ms} ms"
    code = None
    if entry.is_started:
        message += "; it may have happened all the same"
        code = CALL_TIMEOUT
    if entry.kind == "fetch":
        return CodeModeFetchError(f"fetch {message}", code=code, details={"timeout_ms": timeout_ms})
    details = {"tool_name": entry.name, "tool_call_id": entry.tool_call_id, "timeout_ms": timeout_ms}
    error = CodeModeToolError(f"tool {entry.name!r} {message}", code=code, details=details)
    error.reason = "timeout"
    return error


# A traceback holds frames, and frames hold the decoded values of a call, some thirty times their text. A program may
# catch hundreds of errors.

_MAX_ERRORS_WITH_TRACEBACK = 4


def clear_tracebacks(error: BaseException) -> None:
    """Remove the tracebacks from an error, its causes and the members of groups."""
    pending, seen = [error], set[int]()
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = None
        related = (current.__cause__, current.__context__, *get_group_members(current))
        pending += [each for each in related if each is not None]


_MAX_TIMERS_PER_TURN = 64  # then other tasks of the loop run


class TimerQueue:
    """Calls ``on_fired`` with the outcome of each due timer, in the order of their requests if due together.

    ``now_ms`` is the clock that programs see: a timer never fires before its own time by it.
    """

    def __init__(self, now_ms: Callable[[], int], on_fired: Callable[[CallSettled], None]) -> None:
        self._now_ms = now_ms
        self._on_fired = on_fired
        self._loop = asyncio.get_running_loop()
        self._due_heap: list[tuple[float, int]] = []  # a heap; withdrawn timers stay in it
        self._fire_at_ms: dict[int, int] = {}  # by request id: the earliest time in its outcome
        self._handle: asyncio.TimerHandle | None = None

    def start_timers(self, entries: Iterable[LedgerEntry]) -> None:
        """Start timers from the current time."""
        now, guest_now_ms = self._loop.time(), self._now_ms()
        for entry in entries:
            delay = parse_timer_delay_ms(entry.name, entry.input_json)
            self._fire_at_ms[entry.id] = guest_now_ms + delay
            heappush(self._due_heap, (now + delay / 1000, entry.id))
        self._schedule_next()

    def stop_timer(self, request_id: int) -> None:
        """Cancel a timer."""
        self._fire_at_ms.pop(request_id, None)
        self._schedule_next()

    def close(self) -> None:
        """Cancel all timers and report nothing more."""
        self._fire_at_ms.clear()
        self._schedule_next()
        self._on_fired = _ignore_outcome

    def _schedule_next(self) -> None:
        """Schedule a call for the first timer that was not withdrawn."""
        due = self._due_heap
        while due and due[0][1] not in self._fire_at_ms:
            heappop(due)
        if self._handle is not None:
            if due and self._handle.when() == due[0][0]:
                return
            self._handle.cancel()
        self._handle = self._loop.call_at(due[0][0], self._fire_due_timers) if due else None

    def _fire_due_timers(self) -> None:
        self._handle = None
        # A loop fires within its clock's resolution; later timers may be due by now.
        now, remaining = max(self._loop.time(), self._due_heap[0][0] if self._due_heap else 0.0), _MAX_TIMERS_PER_TURN
        while self._due_heap and self._due_heap[0][0] <= now and remaining:
            request_id = heappop(self._due_heap)[1]
            fire_at_ms = self._fire_at_ms.pop(request_id, None)
            if fire_at_ms is not None:
                remaining -= 1
                self._on_fired(CallSettled(request_id, Fulfilled(None), max(self._now_ms(), fire_at_ms)))
        self._schedule_next()


def _ignore_outcome(_settled: CallSettled) -> None:
    """Ignore the outcome of a closed timer."""


# The worker's analysis: text and facts, each escaped to at most six bytes per byte.
_MAX_ANALYSIS_BYTES = 12 * MAX_SOURCE_BYTES
_FRAME_SLACK_BYTES = 1 << 20


CheckProgram: TypeAlias = "Callable[[str, ProgramFacts | None, int], events.ProgramAccepted | events.ProgramRefused]"
"""Compares an analysed program with the tools and returns whether it may run."""
PrepareTools: TypeAlias = "Callable[[ProgramFacts | None], Awaitable[None] | None]"
"""Returns the work that tools need before a program is checked, if any."""


class MessageChannel(Protocol):
    """The connection to a worker; implemented by `WorkerChannel`."""

    def start_receiving(self) -> None:
        """Start to receive messages."""
        ...

    def send(self, message: HostMessage, *, hold: bool = False) -> None:
        """Send one message; with ``hold`` more may follow at once."""
        ...

    def take_undelivered_frame(self) -> bytes | None:
        """Return the one frame that was received and not handled, b"" if none; None if there is more or unsent data."""
        ...

    def close(self) -> None:
        """Stop receiving and sending."""
        ...


class WorkerLease(Protocol):
    """The worker of an invocation; implemented by `PooledWorkerLease`."""

    @property
    def slot(self) -> InvocationSlot:
        """The slot that nested invocations belong to."""
        ...

    @property
    def is_reusable(self) -> bool:
        """True if the worker may run another program after this one."""
        ...

    @property
    def needs_spare(self) -> bool:
        """True if the next worker should be started at once."""
        ...

    def open_channel(
        self,
        max_frame_bytes: int,
        *,
        on_message: Callable[[WorkerMessage], None],
        on_end: Callable[[str], None],
        on_violation: Callable[[CodeModeProtocolError], None],
        on_failure: Callable[[Exception], None],
    ) -> MessageChannel:
        """Open the channel to the worker."""
        ...

    def refill_spares(self, wanted: int | None = None) -> None:
        """Start spare workers."""
        ...

    def offer_for_reuse(self, frame: bytes) -> None:
        """Offer the worker for another program. ``frame`` is what it has sent since its program ended."""
        ...

    def kill(self) -> None:
        """Kill the worker at once."""
        ...

    def kill_and_release(self) -> None:
        """Kill the worker at once and release its slots."""
        ...

    def release(self) -> None:
        """Release worker and slots."""
        ...


@lru_cache(maxsize=64)
def compute_max_frame_bytes(max_result_bytes: int, max_tool_input_bytes: int) -> int:
    """Return the largest frame of a worker under these limits, in bytes."""
    # A text travels as a JSON string: escaping at most doubles ASCII, and the guest runtime counts UTF-16 units.
    value_bytes = 3 * max(max_result_bytes, max_tool_input_bytes)
    return max(value_bytes, _MAX_ANALYSIS_BYTES) + _FRAME_SLACK_BYTES


def take_ready_frame_if_ended_cleanly(ending: events.Ending, channel: MessageChannel, *, is_idle: bool) -> bytes | None:
    """Return the frame that a worker sent after its program ended cleanly, b"" if none; None if it did not end cleanly.

    Clean: it returned, no call runs (``is_idle``) or was abandoned, and nothing is left to send or read except one
    frame that says the worker is ready again.
    """
    is_well = is_idle and isinstance(ending, events.Completed) and not ending.abandoned
    return channel.take_undelivered_frame() if is_well else None


_CANCEL_GRACE_SECONDS = 1.0  # how long the caller waits for cancelled calls
_DEADLINE_GRACE_MS = 2000  # how long after the deadline the worker may send output
_PROGRAM_TASK, _PREPARATION_TASK = 0, -1  # tasks before the program runs, next to those of requests
ResultT = TypeVar("ResultT")


class Runner:
    """Drives one invocation on one worker from `start` to its end. ``ended`` gets the ending; `close` must follow."""

    def __init__(
        self,
        machine: Invocation,
        lease: WorkerLease,
        calls: NestedCalls,
        reporter: InvocationReporter,
        check: CheckProgram,
        prepare: PrepareTools | None = None,
        journaling: RunJournaling | None = None,
    ) -> None:
        self._machine = machine
        self._lease = lease
        self._calls = calls
        self._reporter = reporter
        self._check = check
        self._prepare = prepare
        self._journaling = journaling
        self._journal: InvocationJournal | None = None
        self._effects: deque[events.Effect] = deque()
        self._is_performing = self._is_preparing = False
        self._errors: deque[BaseException] = deque()  # the last few
        self._timers: TimerQueue | None = None
        stops_itself = machine.settings.profile.guest.stops_itself and machine.settings.limits.timeout_includes_tools
        self._reported_paused_seconds = 0.0 if stops_itself else None  # as far as the worker knows
        self._tasks: dict[int, asyncio.Future[Any]] = {}  # by request id
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[events.Ending] = self._loop.create_future()
        self._clock = self._make_clock(machine.settings.limits.timeout_ms, self._on_deadline)
        self._channel = self._open_channel(lease)

    def _on_deadline(self) -> None:
        self.feed_event(events.DeadlinePassed(round(self._clock.late_seconds * 1000)))

    def _open_channel(self, lease: WorkerLease) -> MessageChannel:
        limits = self._machine.settings.limits
        return lease.open_channel(
            compute_max_frame_bytes(limits.max_result_bytes, limits.max_tool_input_bytes),
            on_message=self.feed_event,
            on_end=self._on_worker_ended,
            on_violation=self._feed_host_failure,
            on_failure=self._end_with_exception,
        )

    def start(self, effects: Iterable[events.Effect]) -> None:
        """Perform the first effects, then listen to the worker."""
        if self._journaling is not None:
            self._attach_journal_and_feed_accepted()
        self.perform_effects(effects)
        self._channel.start_receiving()
        if not self.ended.done() and not self._is_preparing:
            self._clock.start()

    def feed_event(self, event: WorkerMessage | events.HostEvent) -> None:
        """Give an event to the invocation and perform its effects."""
        if effects := self._machine.receive(event):
            self.perform_effects(effects)

    def _on_worker_ended(self, reason: str) -> None:
        self.feed_event(events.WorkerEnded(reason))

    def perform_effects(self, effects: Iterable[events.Effect]) -> None:
        """Perform effects in order. Effects caused meanwhile are queued."""
        self._effects.extend(effects)
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while self._effects:
                effect = self._effects.popleft()
                match effect:
                    case events.SendMessage(message):
                        self._send(message)
                    case events.PerformRequest(entry):
                        self._tasks[entry.id] = self._loop.create_task(self._perform_call(entry))
                    case events.FinishInvocation(ending):
                        self._finish(ending)
                    case _:
                        self._perform_rare_effect(effect)
        finally:
            self._is_performing = False
            self._effects.clear()  # left over after a failure

    def _perform_rare_effect(self, effect: events.RareEffect) -> None:
        match effect:
            case events.StartTimers() | events.CancelTimer():
                self._start_or_stop_timers(effect)
            case events.PauseDeadlineClock():
                self._pause_clock()
            case events.GrantGracePeriod():
                self._clock = self._make_clock(_DEADLINE_GRACE_MS, lambda: self.feed_event(events.DeadlinePassed()))
                self._clock.start()
            case events.ResumeDeadlineClock():
                self._clock.start()
            case events.CheckProgram():
                self._prepare_tools_and_check_program(effect)
            case events.WriteConsole(level, text):
                self._report_console_line(level, text)
            case events.SendNotification(kind, payload_json):
                self._reporter.report_guest_message(kind, payload_json)
            case events.ReportReplayedRequest(entry):
                self._apply_and_report_replay(entry)
            case _:
                self._perform_suspension_effect(effect)

    async def close(self) -> None:
        """End everything that runs. The slot is released once all of it has ended."""
        if self._loop.is_closed():
            # The loop was closed during the run: nothing can be cancelled or awaited.
            self._lease.kill_and_release()
            return
        if self._machine.ending is None:
            self.feed_event(events.AbortRequested())
        tasks = list(self._tasks.items())
        for request_id, task in tasks:
            # A task cancelled before its first step runs nothing, not even its `finally`.
            task.add_done_callback(lambda _, request_id=request_id: self._remove_task_and_release_if_last(request_id))
            task.cancel()
        if tasks:
            await asyncio.wait([task for _, task in tasks], timeout=_CANCEL_GRACE_SECONDS)
        if not self._tasks:
            self._lease.release()

    def _report_console_line(self, level: str, text: str) -> None:
        self._reporter.report_console_line(level, text)

    def _perform_suspension_effect(self, effect: events.SuspensionEffect) -> None:
        """Ignore effects that only suspendable invocations have."""

    def _send(self, message: HostMessage) -> None:
        if self._reported_paused_seconds is not None:
            self._report_paused_time(message, self._reported_paused_seconds)
        self._channel.send(
            message, hold=len(self._tasks) > 1 or (self._journal is not None and self._journal.has_more_to_deliver)
        )

    def _report_paused_time(self, message: HostMessage, reported_seconds: float) -> None:
        """Report paused time to a worker that measures its program's time."""
        paused_seconds = self._clock.paused_seconds
        milliseconds = int((paused_seconds - reported_seconds) * 1000)
        if isinstance(message, RunModule):
            self._reported_paused_seconds = paused_seconds  # the worker measures from here
        elif milliseconds > 0:
            self._reported_paused_seconds = reported_seconds + milliseconds / 1000
            self._channel.send(AddPausedTime(milliseconds), hold=len(self._tasks) > 1)

    def _prepare_tools_and_check_program(self, request: events.CheckProgram) -> None:
        preparation = None if self._prepare is None else self._prepare(request.facts)
        if preparation is None:
            self._check_inline_or_in_thread(request)
        else:
            self._run_with_clock_stopped(
                preparation, lambda _: self._check_inline_or_in_thread(request), "the tools could not be prepared"
            )

    def _run_with_clock_stopped(
        self, work: Awaitable[ResultT], then: Callable[[ResultT], None], failure_text: str
    ) -> None:
        """Run work outside the program's time, then call ``then`` with its result."""
        self._is_preparing = True
        self._pause_clock()
        task: asyncio.Future[ResultT] = asyncio.ensure_future(work)
        self._tasks[_PREPARATION_TASK] = task
        task.add_done_callback(lambda _: self._on_clock_stopped_work_done(task, then, failure_text))

    def _on_clock_stopped_work_done(
        self, task: asyncio.Future[ResultT], then: Callable[[ResultT], None], failure_text: str
    ) -> None:
        self._remove_task_and_release_if_last(_PREPARATION_TASK)
        if task.cancelled():  # by the end of the run, or by the work itself
            self._end_with_exception(CodeModeError(f"{failure_text}: the work was cancelled"))
            return
        if (error := task.exception()) is not None:
            self._end_with_exception(error)
        elif not self.ended.done():
            self._is_preparing = False
            self._clock.start()
            try:
                then(task.result())
            except Exception as error:  # noqa: BLE001 - the loop would only log it, and the program would wait for ever
                self._end_with_exception(error)

    def _check_inline_or_in_thread(self, request: events.CheckProgram) -> None:
        # A wrong name is compared with the names of all tools.
        if len(request.js) < LARGE_CHARACTERS and len(self._calls.catalog) <= MAX_INLINE_TOOLS:
            self._on_program_checked(self._check(request.js, request.facts, request.size))
        else:
            self._tasks[_PROGRAM_TASK] = self._loop.create_task(self._check_in_thread(request))

    async def _check_in_thread(self, request: events.CheckProgram) -> None:
        try:
            checked = await run_in_thread_if_large_or_slow(
                LARGE_CHARACTERS, lambda: self._check(request.js, request.facts, request.size)
            )
            self._on_program_checked(checked)
        except Exception as error:  # noqa: BLE001 - the waiting caller gets it
            self._end_with_exception(error)
        finally:
            self._remove_task_and_release_if_last(_PROGRAM_TASK)

    def _on_program_checked(self, result: events.ProgramAccepted | events.ProgramRefused) -> None:
        journaling = self._journaling
        if journaling is None or isinstance(result, events.ProgramRefused) or result.compile_only:
            self.feed_event(result)
        else:
            self._run_with_clock_stopped(
                journaling.open_journal_and_restore_progress(self._machine, result),
                self._attach_journal_and_feed_accepted,
                "the journal was not opened",
            )

    def _attach_journal_and_feed_accepted(self, accepted: events.ProgramAccepted | None = None) -> None:
        if self._journaling is not None and self._journaling.journal is not None:
            self._journal = self._journaling.journal
            self._machine.enable_outcome_reservation()
            self._journal.attach_ledger(self._machine.ledger, self._feed_host_failure, lambda: len(self._tasks) < 2)
        if accepted is not None:
            self.feed_event(accepted)

    def _pause_clock(self) -> None:
        self._clock.pause()

    def _start_or_stop_timers(self, effect: events.StartTimers | events.CancelTimer) -> None:
        if self._timers is None:
            self._timers = TimerQueue(self._calls.now_ms, self._journal_and_deliver_timer_outcome)
        if isinstance(effect, events.StartTimers):
            self._timers.start_timers(effect.entries)
        else:
            self._timers.stop_timer(effect.id)

    def _journal_and_deliver_timer_outcome(self, settled: events.CallSettled) -> None:
        self._deliver_outcome(settled) if self._journal is None else self._journal.write_and_deliver_call_outcome(
            settled, self._deliver_outcome
        )

    def _finish(self, ending: events.Ending) -> None:
        ready_frame = (
            take_ready_frame_if_ended_cleanly(ending, self._channel, is_idle=not self._tasks)
            if self._lease.is_reusable
            else None
        )
        self._channel.close()
        self._clock.close()
        if self._timers is not None:
            self._timers.close()
        if ready_frame is not None:
            self._lease.offer_for_reuse(ready_frame)
        elif not isinstance(ending, events.Completed):
            # Killing beats draining: a worker that escaped can still write frames.
            self._lease.kill()
        self._calls.aborted.set()
        if not self.ended.done():
            self.ended.set_result(ending)

    async def _perform_call(self, entry: LedgerEntry) -> None:
        # Not a done callback: that would cost each call one more turn of the event loop.
        self._lease.slot.make_current()
        clock = None
        try:
            answer = self._calls.answers.get(entry.id)
            is_input_edited = answer is not None and has_edited_input(answer)
            record = self._reporter.report_call_start(entry, is_input_edited=is_input_edited)
            policy = self._calls.options.execution_policy
            timeout_ms = policy.tool_timeout_ms
            if entry.kind != "tool":
                timeout_ms = get_call_timeout_ms(entry, self._machine.settings, policy)
            if timeout_ms is not None:
                clock = self._start_call_clock(entry, record, timeout_ms)
            plain, journal = (
                CallProgressReporter(self.feed_event, self._reporter, entry.id, record, clock),
                self._journal,
            )
            progress = plain if journal is None else JournaledCallProgressReporter(plain, entry, self._calls, journal)
            try:
                settled = await self._calls.perform_request(entry, progress)
            except CodeModeProtocolError as error:
                self.feed_event(events.HostFailed(error))
            else:
                self._on_call_settled(settled, record)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            is_over = self.ended.done()
            self._end_with_exception(error)
            if is_over or isinstance(error, KeyboardInterrupt):  # else the caller of the run raises it once
                raise
        finally:
            if clock is not None:
                clock.close()
            self._tasks.pop(entry.id, None)
            if self.ended.done():
                self._remove_task_and_release_if_last(entry.id)

    def _feed_host_failure(self, error: CodeModeError) -> None:
        self.feed_event(events.HostFailed(error))

    def _end_with_exception(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)

    def _remove_task_and_release_if_last(self, request_id: int) -> None:
        self._tasks.pop(request_id, None)
        if self.ended.done() and not self._tasks:
            self._lease.release()

    def _on_call_settled(self, settled: events.CallSettled, record: CallRecord) -> None:
        journal = self._journal
        if journal is not None and journal.has_call_outcome(settled.id):
            return
        is_hidden = record.is_input_hidden and isinstance(settled.outcome, Rejected)
        displayed_input_json = record.displayed_input_json if is_hidden else settled.displayed_input_json
        more = settled.error, displayed_input_json, self._reporter.record_call_end_and_get_duration_us(record)
        settled = self._machine.admit_or_replace_outcome(
            events.CallSettled(settled.id, settled.outcome, settled.now_ms, *more)
        )
        self._reporter.report_call_end(record, settled.outcome, settled.error)
        if settled.error is not None:
            self._errors.append(settled.error)
            if len(self._errors) > _MAX_ERRORS_WITH_TRACEBACK:  # the first was logged or reported to a hook
                clear_tracebacks(self._errors.popleft())
        self._deliver_outcome(settled) if journal is None else journal.write_and_deliver_call_outcome(
            settled, self._deliver_outcome
        )

    def _deliver_outcome(self, settled: events.CallSettled) -> None:
        try:
            self._calls.saved_inputs.pop(settled.id, None)
            self.feed_event(settled)
        except Exception as error:  # noqa: BLE001 - else it is lost and the program waits forever
            self._end_with_exception(error)

    def _start_call_clock(self, entry: LedgerEntry, record: CallRecord, timeout_ms: int) -> PausableTimer | None:
        task = asyncio.current_task()
        if task is None:
            return None

        def on_timeout() -> None:
            # Answer first: the cancelled call may take its time or ignore the cancellation.
            error = make_timeout_error(self._machine.ledger[entry.id], timeout_ms)
            self._on_call_settled(self._calls.reject_call(entry, error), record)
            task.cancel()

        clock = self._make_clock(timeout_ms, on_timeout)
        clock.start()
        return clock

    def _make_clock(self, milliseconds: int, on_passed: Callable[[], None]) -> PausableTimer:
        # Time in which hooks blocked the event loop does not count.
        return PausableTimer(milliseconds / 1000, on_passed, uncounted=self._reporter.hooks)

    def _apply_and_report_replay(self, entry: LedgerEntry) -> None:
        outcome = entry.outcome
        self._calls.apply_replayed_request(entry)
        if entry.kind in ("catalog", "timer", "state") or outcome is None or isinstance(outcome, Waiting):
            return
        error = self._machine.host_errors.get(entry.id) if isinstance(outcome, Rejected) else None
        self._reporter.report_call_end(self._reporter.report_call_start(entry, replayed=True), outcome, error)
