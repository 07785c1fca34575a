"""Performs the effects of one invocation: messages, clock, calls. Holds no rules: the invocation decides."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import CodeModeError, CodeModeProtocolError
from ..host import steps
from ..host.clock import Clock
from ..host.threads import LARGE_CHARACTERS, run_check
from ..observe.reporter import CallRecord, Reporter
from ..protocol import events
from ..protocol.invocation import Invocation
from ..protocol.ledger import LedgerEntry, Rejected, Waiting
from ..protocol.messages import HostMessage, RunModule, TimeStoodStill, WorkerMessage
from .call_time import call_timeout_ms, unanswered
from .kept_errors import KeptErrors
from .nested_call import NestedCalls
from .progress import JournaledProgress, Progress
from .seat import Channel, Preparation, ProgramCheck, Seat, max_frame_bytes, said_since
from .timers import Timers

if TYPE_CHECKING:
    from .journaled import InvocationJournal
    from .journaling import Journaling

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
        reporter: Reporter,
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
        self._errors = KeptErrors()
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
        return lease.channel(
            max_frame_bytes(self._machine.settings),
            on_message=self.feed,
            on_end=self._worker_ended,
            on_violation=self._cut_off,
            on_failure=self._fail,
        )

    def start(self, effects: Iterable[events.Effect]) -> None:
        """Perform the first effects; what can wait until the worker has begun comes after them."""
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
                self._perform(self._effects.popleft())
        finally:
            self._performing = False
            self._effects.clear()  # of those that one failed before

    async def close(self) -> None:
        """End everything that still runs. The slot is given back once all of it has ended."""
        if self._loop.is_closed():
            self._lease.leave()  # it was closed in the middle of the run: nothing can be cancelled or awaited any more
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
            self._lease.give_back()

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.Send(message):
                self._send(message)
            case events.Invoke(entry):
                self._tasks[entry.id] = self._loop.create_task(self._call(entry))
            case events.SetTimers() | events.StopTimer():
                self._change_timers(effect)
            case events.PauseClock():
                self._stand_still()
            case events.GiveGrace():
                self._clock = self._clock_of(_GRACE_MS, lambda: self.feed(events.DeadlinePassed()))
                self._clock.start()
            case events.ResumeClock():
                self._clock.start()
            case events.Finish(ending):
                self._finish(ending)
            case events.CheckProgram():
                self._check_program(effect)
            case events.WriteConsole(level, text):
                self._write(level, text)
            case events.TellNotice(kind, payload_json):
                self._reporter.notice(kind, payload_json)
            case events.Replayed(entry):
                self._replayed(entry)
            case _:
                self._perform_resting(effect)

    def _write(self, level: str, text: str) -> None:
        self._reporter.console_written(level, text)

    def _perform_resting(self, effect: events.RestingEffect) -> None:
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
            self._channel.send(TimeStoodStill(milliseconds), hold=len(self._tasks) > 1)

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
        try:
            self._checked(steps.run_on_the_loop(lambda: self._check(found.js, found.facts, found.size)))
        except steps.TooLongForTheLoop:
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
            self._machine.keep_room()
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
        said = said_since(ending, self._channel, is_idle=not self._tasks) if self._lease.may_go_on else None
        self._channel.close()
        self._clock.close()
        if self._timers is not None:
            self._timers.close()
        if said is not None:
            self._lease.ended_well(said)
        elif not isinstance(ending, events.Completed):
            # Killing beats draining: a worker that is no longer ours can still write frames.
            self._lease.kill()
        self._calls.aborted.set()
        if not self.ended.done():
            self.ended.set_result(ending)

    async def _call(self, entry: LedgerEntry) -> None:
        # Not a done callback: that would cost each call one more turn of the event loop.
        self._lease.place.enter()
        clock = None
        try:
            record = self._reporter.call_started(entry)
            timeout_ms = call_timeout_ms(entry, self._machine.settings, self._calls.options.execution_policy)
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
            self._call_done(entry.id)

    def _cut_off(self, error: CodeModeError) -> None:
        self.feed(events.HostFailed(error))

    def _fail(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)

    def _call_done(self, request_id: int) -> None:
        self._tasks.pop(request_id, None)
        if self.ended.done() and not self._tasks:
            self._lease.give_back()

    def _settle(self, settled: events.CallSettled, record: CallRecord) -> None:
        journal = self._journal
        if journal is not None and journal.has_settled(settled.id):
            return
        is_hidden = record.is_input_hidden and isinstance(settled.outcome, Rejected)
        shown_json = record.shown_json if is_hidden else settled.shown_json
        more = settled.error, shown_json, self._reporter.measure(record)
        settled = self._machine.admitted(events.CallSettled(settled.id, settled.outcome, settled.now_ms, *more))
        self._reporter.call_ended(record, settled.outcome, settled.error)
        if settled.error is not None:
            self._errors.add(settled.error)
        self._hand_in(settled) if journal is None else journal.settled(settled, self._hand_in)

    def _hand_in(self, settled: events.CallSettled) -> None:
        try:
            self._calls.kept_inputs.let_go(settled.id)
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
        self._reporter.call_ended(self._reporter.call_started(entry, replayed=True), outcome, error)
