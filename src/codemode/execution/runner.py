"""Perform the effects of one invocation: messages, clock, timers and calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from ..errors import CALL_TIMEOUT, CodeModeError, CodeModeFetchError, CodeModeProtocolError, CodeModeToolError
from ..host.clock import Clock
from ..host.threads import LARGE_CHARACTERS, run_check
from ..observe.reporter import CallRecord, InvocationReporter
from ..options.parts import MAX_SOURCE_BYTES, ExecutionPolicy
from ..protocol import events
from ..protocol.events import CallSettled
from ..protocol.in_flight import read_timer_delay_ms
from ..protocol.invocation import Invocation
from ..protocol.ledger import Fulfilled, LedgerEntry, Rejected, Waiting
from ..protocol.messages import AddPausedTime, HostMessage, RunModule, WorkerMessage
from ..protocol.settings import Settings
from ..trace.failures import group_members
from ..workers.lease import InvocationSlot
from .nested_call import FEW_TOOLS, JournaledProgress, NestedCalls, Progress

if TYPE_CHECKING:
    from ..data.program_facts import Facts
    from .journal import InvocationJournal
    from .journal_opening import Journaling


def call_timeout_ms(entry: LedgerEntry, settings: Settings, policy: ExecutionPolicy) -> int | None:
    """Return how long a request may take; None: as long as the invocation."""
    if entry.kind == "catalog":
        return None
    if entry.kind in ("fetch", "state") and policy.tool_timeout_ms is None and settings.limits.clock == "program":
        # The client's own limit is the program's: without one, a server or a place could hold the invocation for ever.
        return settings.limits.timeout_ms
    return policy.tool_timeout_ms


def unanswered(entry: LedgerEntry, timeout_ms: int) -> CodeModeError:
    """Return the error for a request that took longer than it may. What has begun may happen all the same."""
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


# A traceback holds frames, and these the values that a call was given and gave: decoded, some thirty times their text.
# A program may catch hundreds of errors.

_WITH_TRACEBACKS = 4


def forget_tracebacks(error: BaseException) -> None:
    """Take the tracebacks off an error, its causes, and what they are groups of."""
    pending, seen = [error], set[int]()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = None
        behind = (one.__cause__, one.__context__, *group_members(one))
        pending += [each for each in behind if each is not None]


_AT_ONCE = 64  # that fire before something else has its turn on the loop


class Timers:
    """Calls ``fired`` with the outcome of each timer that is due, of equal ones in the order of their requests.

    ``now_ms`` is the clock that programs are told of: with a timer it is never behind the moment for which it was set.
    """

    def __init__(self, now_ms: Callable[[], int], fired: Callable[[CallSettled], None]) -> None:
        self._now_ms = now_ms
        self._fired = fired
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[float, int]] = []  # a heap; of those withdrawn too
        self._set: dict[int, int] = {}  # by request: the earliest time that its answer may show
        self._handle: asyncio.TimerHandle | None = None

    def set(self, entries: Iterable[LedgerEntry]) -> None:
        """Let timers run, all from this moment."""
        now, shown = self._loop.time(), self._now_ms()
        for entry in entries:
            delay = read_timer_delay_ms(entry.name, entry.input_json)
            self._set[entry.id] = shown + delay
            heappush(self._due, (now + delay / 1000, entry.id))
        self._wait()

    def stop(self, request_id: int) -> None:
        """Let a timer run no more."""
        self._set.pop(request_id, None)
        self._wait()

    def close(self) -> None:
        """Stop all, and let go of what is to be told."""
        self._set.clear()
        self._wait()
        self._fired = _nobody

    def _wait(self) -> None:
        """Be called when the first is due, and for none that is withdrawn."""
        due = self._due
        while due and due[0][1] not in self._set:
            heappop(due)
        if self._handle is not None:
            if due and self._handle.when() == due[0][0]:
                return
            self._handle.cancel()
        self._handle = self._loop.call_at(due[0][0], self._ring) if due else None

    def _ring(self) -> None:
        self._handle = None
        # A loop calls what is due within its clock's resolution; those behind the first may be due by now too.
        now, left = max(self._loop.time(), self._due[0][0] if self._due else 0.0), _AT_ONCE
        while self._due and self._due[0][0] <= now and left:
            request_id = heappop(self._due)[1]
            shown = self._set.pop(request_id, None)
            if shown is not None:
                left -= 1
                self._fired(CallSettled(request_id, Fulfilled(None), max(self._now_ms(), shown)))
        self._wait()


def _nobody(_settled: CallSettled) -> None:
    """Stand in for what closed timers told."""


# What a worker says of a program: its text and its facts, each escaped to at most six bytes a byte.
_MAX_ANALYSIS_BYTES = 12 * MAX_SOURCE_BYTES
_FRAME_SLACK_BYTES = 1 << 20


ProgramCheck: TypeAlias = "Callable[[str, Facts | None, int], events.ProgramAccepted | events.ProgramRefused]"
"""Compares an analysed program with the tools: returns that it may run, or what is certainly wrong with it."""
Preparation: TypeAlias = "Callable[[Facts | None], Awaitable[None] | None]"
"""Returns what the tools have to do before a program is checked, if there is anything."""


class Channel(Protocol):
    """The way to a worker, as `WorkerChannel` is."""

    def listen(self) -> None:
        """Begin to hear it."""
        ...

    def send(self, message: HostMessage, *, hold: bool = False) -> None:
        """Send one message; with ``hold`` more may follow at once."""
        ...

    def take_unread_frame(self) -> bytes | None:
        """Return the one frame that was heard and not told, empty for none; None: more, or something was not sent."""
        ...

    def close(self) -> None:
        """Hear and send nothing more."""
        ...


class Seat(Protocol):
    """What an invocation runs on, as `Lease` is."""

    @property
    def slot(self) -> InvocationSlot:
        """The place that what it starts is part of."""
        ...

    @property
    def is_reusable(self) -> bool:
        """True where a worker may have another program when this one has ended well."""
        ...

    @property
    def needs_spare(self) -> bool:
        """True when the next one is to be made ready at once."""
        ...

    def open_channel(
        self,
        max_frame_bytes: int,
        *,
        on_message: Callable[[WorkerMessage], None],
        on_end: Callable[[str], None],
        on_violation: Callable[[CodeModeProtocolError], None],
        on_failure: Callable[[Exception], None],
    ) -> Channel:
        """Open the way to the worker."""
        ...

    def refill(self, wanted: int | None = None) -> None:
        """Let the next one be made ready."""
        ...

    def mark_reusable(self, frame: bytes) -> None:
        """Let the worker have another program, where there are such. ``said``: what it has said since."""
        ...

    def kill(self) -> None:
        """End the worker at once."""
        ...

    def kill_and_release(self) -> None:
        """End the worker at once, and give all back."""
        ...

    def release(self) -> None:
        """Give all back."""
        ...


@lru_cache(maxsize=64)
def max_frame_bytes(max_result_bytes: int, max_tool_input_bytes: int) -> int:
    """Return how long a frame of a worker may be whose program has these limits."""
    # A text travels as a JSON string: escaping at most doubles ASCII, and the kernel counts UTF-16 units.
    value_bytes = 3 * max(max_result_bytes, max_tool_input_bytes)
    return max(value_bytes, _MAX_ANALYSIS_BYTES) + _FRAME_SLACK_BYTES


def said_since(ending: events.Ending, channel: Channel, *, is_idle: bool) -> bytes | None:
    """Return what a worker has said since its program ended well, None where that has not ended so.

    Well: it has given its result and left nothing behind. No call is under way (``is_idle``) or was abandoned, and
    nothing is left to be sent or read, but for the one frame in which a worker may say that it is ready for another.
    """
    is_well = is_idle and isinstance(ending, events.Completed) and not ending.abandoned
    return channel.take_unread_frame() if is_well else None


_CANCEL_GRACE_SECONDS = 1.0  # how long the caller waits for cancelled calls to see the cancellation
_GRACE_MS = 2000  # how much later than a program's time is over its worker may say what it has written
_PROGRAM, _PREPARATION = 0, -1  # the tasks of what comes before the program runs, beside those of requests
ResultT = TypeVar("ResultT")


class Runner:
    """Drives one invocation on one worker, from `start` to its end. ``ended`` gives that; `close` must follow it."""

    def __init__(
        self,
        machine: Invocation,
        lease: Seat,
        calls: NestedCalls,
        reporter: InvocationReporter,
        check: ProgramCheck,
        prepare: Preparation | None = None,
        journaling: Journaling | None = None,
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
        self._performing = self._is_preparing = False
        self._errors: deque[BaseException] = deque()  # the last few
        self._timers: Timers | None = None
        stops_itself = machine.settings.profile.guest.stops_itself and machine.settings.limits.clock == "wall"
        self._worker_time = 0.0 if stops_itself else None  # in which the clock stood still, as far as its worker knows
        self._tasks: dict[int, asyncio.Future[Any]] = {}  # by request id
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[events.Ending] = self._loop.create_future()
        self._clock = self._clock_of(machine.settings.limits.timeout_ms, self._too_late)
        self._channel = self._channel_to(lease)

    def _too_late(self) -> None:
        self.feed(events.DeadlinePassed(round(self._clock.late_seconds * 1000)))

    def _channel_to(self, lease: Seat) -> Channel:
        limits = self._machine.settings.limits
        return lease.open_channel(
            max_frame_bytes(limits.max_result_bytes, limits.max_tool_input_bytes),
            on_message=self.feed,
            on_end=self._worker_ended,
            on_violation=self._cut_off,
            on_failure=self._fail,
        )

    def start(self, effects: Iterable[events.Effect]) -> None:
        """Perform the first effects; what can wait until the worker has begun comes after them."""
        if self._journaling is not None:
            self._follow()
        self.perform(effects)
        self._channel.listen()
        if not self.ended.done() and not self._is_preparing:
            self._clock.start()

    def feed(self, event: WorkerMessage | events.HostEvent) -> None:
        """Tell the invocation what happened and do what it answers."""
        if effects := self._machine.receive(event):
            self.perform(effects)

    def _worker_ended(self, reason: str) -> None:
        self.feed(events.WorkerEnded(reason))

    def perform(self, effects: Iterable[events.Effect]) -> None:
        """Perform effects in order. Performing one may cause more; they wait their turn."""
        self._effects.extend(effects)
        if self._performing:
            return
        self._performing = True
        try:
            while self._effects:
                effect = self._effects.popleft()
                match effect:
                    case events.Send(message):
                        self._send(message)
                    case events.Invoke(entry):
                        self._tasks[entry.id] = self._loop.create_task(self._call(entry))
                    case events.Finish(ending):
                        self._finish(ending)
                    case _:
                        self._perform_rare(effect)
        finally:
            self._performing = False
            self._effects.clear()  # of those that one failed before

    def _perform_rare(self, effect: events.RareEffect) -> None:
        match effect:
            case events.SetTimers() | events.StopTimer():
                self._change_timers(effect)
            case events.PauseClock():
                self._stand_still()
            case events.GrantGracePeriod():
                self._clock = self._clock_of(_GRACE_MS, lambda: self.feed(events.DeadlinePassed()))
                self._clock.start()
            case events.ResumeClock():
                self._clock.start()
            case events.CheckProgram():
                self._check_program(effect)
            case events.WriteConsole(level, text):
                self._write(level, text)
            case events.SendNotice(kind, payload_json):
                self._reporter.report_guest_message(kind, payload_json)
            case events.ReportReplay(entry):
                self._replayed(entry)
            case _:
                self._perform_resting(effect)

    async def close(self) -> None:
        """End everything that still runs. The slot is given back once all of it has ended."""
        if self._loop.is_closed():
            # It was closed in the middle of the run: nothing can be cancelled or awaited any more.
            self._lease.kill_and_release()
            return
        if self._machine.ending is None:
            self.feed(events.AbortRequested())
        tasks = list(self._tasks.items())
        for request_id, task in tasks:
            # What is cancelled before its first step runs nothing, not even its `finally`.
            task.add_done_callback(lambda _, request_id=request_id: self._call_done(request_id))
            task.cancel()
        if tasks:
            await asyncio.wait([task for _, task in tasks], timeout=_CANCEL_GRACE_SECONDS)
        if not self._tasks:
            self._lease.release()

    def _write(self, level: str, text: str) -> None:
        self._reporter.report_console_line(level, text)

    def _perform_resting(self, effect: events.SuspensionEffect) -> None:
        """Do nothing: no other programs than those that may rest have such effects."""

    def _send(self, message: HostMessage) -> None:
        if self._worker_time is not None:
            self._tell_time(message, self._worker_time)
        self._channel.send(message, hold=len(self._tasks) > 1 or (self._journal is not None and self._journal.has_more))

    def _tell_time(self, message: HostMessage, told: float) -> None:
        """Tell a worker that measures its program's time of that in which the clock stood still."""
        still = self._clock.still_seconds
        milliseconds = int((still - told) * 1000)
        if isinstance(message, RunModule):
            self._worker_time = still  # from here on it measures
        elif milliseconds > 0:
            self._worker_time = told + milliseconds / 1000
            self._channel.send(AddPausedTime(milliseconds), hold=len(self._tasks) > 1)

    def _check_program(self, found: events.CheckProgram) -> None:
        doing = None if self._prepare is None else self._prepare(found.facts)
        if doing is None:
            self._check_now(found)
        else:
            self._await(doing, lambda _: self._check_now(found), "the tools were not made ready")

    def _await(self, doing: Awaitable[ResultT], then: Callable[[ResultT], None], otherwise: str) -> None:
        """Do something that is no part of the program's time, and go on ``then``."""
        self._is_preparing = True
        self._stand_still()
        task: asyncio.Future[ResultT] = asyncio.ensure_future(doing)
        self._tasks[_PREPARATION] = task
        task.add_done_callback(lambda _: self._done(task, then, otherwise))

    def _done(self, task: asyncio.Future[ResultT], then: Callable[[ResultT], None], otherwise: str) -> None:
        self._call_done(_PREPARATION)
        if task.cancelled():  # by the end of the run, or from inside
            self._fail(CodeModeError(f"{otherwise}: what does it was cancelled"))
            return
        if (error := task.exception()) is not None:
            self._fail(error)
        elif not self.ended.done():
            self._is_preparing = False
            self._clock.start()
            try:
                then(task.result())
            except Exception as error:  # noqa: BLE001 - the loop would only log it, and the program would wait for ever
                self._fail(error)

    def _check_now(self, found: events.CheckProgram) -> None:
        # A wrong name is compared with those of all tools.
        if len(found.js) < LARGE_CHARACTERS and len(self._calls.catalog) <= FEW_TOOLS:
            self._checked(self._check(found.js, found.facts, found.size))
        else:
            self._tasks[_PROGRAM] = self._loop.create_task(self._check_elsewhere(found))

    async def _check_elsewhere(self, found: events.CheckProgram) -> None:
        try:
            checked = await run_check(LARGE_CHARACTERS, lambda: self._check(found.js, found.facts, found.size))
            self._checked(checked)
        except Exception as error:  # noqa: BLE001 - whoever waits for the end gets it, as if the loop had raised it
            self._fail(error)
        finally:
            self._call_done(_PROGRAM)

    def _checked(self, found: events.ProgramAccepted | events.ProgramRefused) -> None:
        journaling = self._journaling
        if journaling is None or isinstance(found, events.ProgramRefused) or found.compile_only:
            self.feed(found)
        else:
            self._await(journaling.accepted(self._machine, found), self._follow, "the journal was not opened")

    def _follow(self, accepted: events.ProgramAccepted | None = None) -> None:
        if self._journaling is not None and self._journaling.journal is not None:
            self._journal = self._journaling.journal
            self._machine.reserve_space()
            self._journal.follow(self._machine.ledger, self._cut_off, lambda: len(self._tasks) < 2)
        if accepted is not None:
            self.feed(accepted)

    def _stand_still(self) -> None:
        self._clock.stop()

    def _change_timers(self, effect: events.SetTimers | events.StopTimer) -> None:
        if self._timers is None:
            self._timers = Timers(self._calls.now_ms, self._deliver)
        if isinstance(effect, events.SetTimers):
            self._timers.set(effect.entries)
        else:
            self._timers.stop(effect.id)

    def _deliver(self, settled: events.CallSettled) -> None:
        self._hand_in(settled) if self._journal is None else self._journal.settled(settled, self._hand_in)

    def _finish(self, ending: events.Ending) -> None:
        said = said_since(ending, self._channel, is_idle=not self._tasks) if self._lease.is_reusable else None
        self._channel.close()
        self._clock.close()
        if self._timers is not None:
            self._timers.close()
        if said is not None:
            self._lease.mark_reusable(said)
        elif not isinstance(ending, events.Completed):
            # Killing beats draining: a worker that is no longer ours can still write frames.
            self._lease.kill()
        self._calls.aborted.set()
        if not self.ended.done():
            self.ended.set_result(ending)

    async def _call(self, entry: LedgerEntry) -> None:
        # Not a done callback: that would cost each call one more turn of the event loop.
        self._lease.slot.make_current()
        clock = None
        try:
            record = self._reporter.report_call_start(entry)
            policy = self._calls.options.execution_policy
            timeout_ms = policy.tool_timeout_ms
            if entry.kind != "tool":
                timeout_ms = call_timeout_ms(entry, self._machine.settings, policy)
            if timeout_ms is not None:
                clock = self._call_clock(entry, record, timeout_ms)
            plain, journal = Progress(self.feed, self._reporter, entry.id, record, clock), self._journal
            progress = plain if journal is None else JournaledProgress(plain, entry, self._calls, journal)
            try:
                settled = await self._calls.perform(entry, progress)
            except CodeModeProtocolError as error:
                self.feed(events.HostFailed(error))
            else:
                self._settle(settled, record)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            is_over = self.ended.done()
            self._fail(error)
            if is_over or isinstance(error, KeyboardInterrupt):  # else it is told once, by whoever awaits the run
                raise
        finally:
            if clock is not None:
                clock.close()
            self._tasks.pop(entry.id, None)
            if self.ended.done():
                self._call_done(entry.id)

    def _cut_off(self, error: CodeModeError) -> None:
        self.feed(events.HostFailed(error))

    def _fail(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)

    def _call_done(self, request_id: int) -> None:
        self._tasks.pop(request_id, None)
        if self.ended.done() and not self._tasks:
            self._lease.release()

    def _settle(self, settled: events.CallSettled, record: CallRecord) -> None:
        journal = self._journal
        if journal is not None and journal.has_settled(settled.id):
            return
        is_hidden = record.is_input_hidden and isinstance(settled.outcome, Rejected)
        displayed_input_json = record.displayed_input_json if is_hidden else settled.displayed_input_json
        more = settled.error, displayed_input_json, self._reporter.measure_call(record)
        settled = self._machine.admit(events.CallSettled(settled.id, settled.outcome, settled.now_ms, *more))
        self._reporter.report_call_end(record, settled.outcome, settled.error)
        if settled.error is not None:
            self._errors.append(settled.error)
            if len(self._errors) > _WITH_TRACEBACKS:  # the first has been logged by now, or told to a hook
                forget_tracebacks(self._errors.popleft())
        self._hand_in(settled) if journal is None else journal.settled(settled, self._hand_in)

    def _hand_in(self, settled: events.CallSettled) -> None:
        try:
            self._calls.kept_inputs.pop(settled.id, None)
            self.feed(settled)
        except Exception as error:  # noqa: BLE001 - nobody else would hear of it, and the program would wait for ever
            self._fail(error)

    def _call_clock(self, entry: LedgerEntry, record: CallRecord, timeout_ms: int) -> Clock | None:
        task = asyncio.current_task()
        if task is None:
            return None

        def passed() -> None:
            # First the answer: what is cancelled may take its time, or take no notice.
            error = unanswered(self._machine.ledger[entry.id], timeout_ms)
            self._settle(self._calls.rejected(entry, error), record)
            task.cancel()

        clock = self._clock_of(timeout_ms, passed)
        clock.start()
        return clock

    def _clock_of(self, milliseconds: int, on_passed: Callable[[], None]) -> Clock:
        # How long hooks have kept the event loop no deadline counts.
        return Clock(milliseconds / 1000, on_passed, uncounted=self._reporter.hooks)

    def _replayed(self, entry: LedgerEntry) -> None:
        outcome = entry.outcome
        self._calls.recall(entry)
        if entry.kind in ("catalog", "timer", "state") or outcome is None or isinstance(outcome, Waiting):
            return
        error = self._machine.host_errors.get(entry.id) if isinstance(outcome, Rejected) else None
        self._reporter.report_call_end(self._reporter.report_call_start(entry, replayed=True), outcome, error)
