"""Perform the effects of a suspendable invocation and own its calls across workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from ..errors import CodeModeTimeoutError
from ..host.clock import PausableTimer
from ..protocol import events
from ..protocol.ledger import Fulfilled
from ..protocol.suspension import SuspendableInvocation
from ..records import record
from .runner import Runner

if TYPE_CHECKING:
    from types import CoroutineType

    from ..protocol.ledger import LedgerEntry
    from ..workers.lease import PooledWorkerLease


_REPLAY_EXTRA_MS = 5_000


@record
class EncodedOutputItem:
    """A console line or an output item: its text, or the JSON text of its value."""

    kind: Literal["text", "json", "content", "console"]
    text: str
    level: str = ""


class SuspendableRunner(Runner):
    """Drives one invocation on one worker after another, or on none while it is suspended.

    ``stop_reason`` gets the reason of each suspension, None once the invocation has ended; ``ended`` gets the
    ending. ``on_ended`` is called if it ends while suspended. ``output`` is what the program has written and no
    caller has taken. ``on_change`` is called when an outcome arrives while it is suspended.
    """

    def __init__(
        self, machine: SuspendableInvocation, lease: PooledWorkerLease, *more: Any, wait_ms: int, compute_ms: int
    ) -> None:
        super().__init__(machine, lease, *more)
        self.compute_seconds = compute_ms / 1000
        self.output: list[EncodedOutputItem] = []
        self.is_warm = True
        self.is_wait_over = False  # the wait of a caller without a worker has expired
        self.on_change: Callable[[], None] = _ignore_change
        self.on_ended: Callable[[], None] = _ignore_change
        self._reported_ids: set[int] = set()  # requests reported to listeners
        if machine.is_replaying:
            self._clock = self._make_replay_clock()
        self.stop_reason: asyncio.Future[events.SuspensionReason | None] = self._loop.create_future()
        # While the guest's own clock runs, a longer wait cannot expire first: no clock is needed until then.
        is_covered_by_guest_clock = not machine.is_replaying and wait_ms >= machine.settings.limits.timeout_ms
        self._wait_ms = wait_ms
        self._wait_clock = None if is_covered_by_guest_clock else self._make_clock(wait_ms, self.end_wait)

    @property
    def machine(self) -> SuspendableInvocation:
        """The current invocation."""
        return self._machine

    @property
    def compute_ms(self) -> int:
        """How long the guest has computed, in milliseconds."""
        machine = self._machine
        is_counted = not (machine.is_replaying or machine.suspension_reason or self.ended.done())
        return int((self.compute_seconds + (self._clock.active_seconds if is_counted else 0)) * 1000)

    def start(self, effects: Iterable[events.Effect]) -> None:
        """Perform the first effects on this worker."""
        super().start(effects)
        if not self.ended.done():
            self._start_wait_clock()

    def continue_run(self, wait_ms: int) -> None:
        """Continue on the held worker; without one, as far as possible."""
        self._wait_clock = self._replace_clock_and_make_wait_clock(wait_ms)
        self._clock.start()
        self._start_wait_clock()
        self.feed_event(events.ContinueRequested(self._calls.now_ms()))

    def continue_on_worker(
        self, lease: PooledWorkerLease, accepted: events.ProgramAccepted, wait_ms: int
    ) -> SuspendableInvocation:
        """Continue on another worker and return the invocation that replaces this one."""
        machine = self.machine.answer_yields_and_create_successor(self._calls.now_ms())
        self._machine, self._lease, self.is_warm = machine, lease, True
        self._channel = self._open_channel(lease)
        self._wait_clock = self._replace_clock_and_make_wait_clock(wait_ms)
        self.start(machine.receive(accepted))
        return machine

    def start_waiting_for_outcome(self, wait_ms: int) -> None:
        """Start the wait clock of a caller that waits for an outcome without a worker."""
        self.is_wait_over = False
        self._wait_clock = self._reset_stop_reason_and_make_wait_clock(wait_ms)
        self._start_wait_clock()

    @property
    def waited_ms(self) -> int:
        """How long the caller has waited, in milliseconds."""
        return 0 if self._wait_clock is None else int(self._wait_clock.active_seconds * 1000)

    def make_worker_revocable_or_release(self) -> None:
        """Hold the worker of a suspended run until another run needs its slot."""
        lease = self._lease
        if self.is_warm and not lease.make_revocable(lambda: self._on_worker_revoked(lease)):
            self.release_worker()

    def reclaim_worker_or_release(self) -> None:
        """Use the held worker again, if it was not revoked."""
        if self.is_warm and not self._lease.make_irrevocable():
            self.release_worker()

    def _on_worker_revoked(self, lease: PooledWorkerLease) -> None:
        def on_revoked() -> None:
            if self._lease is lease:
                self.release_worker()

        try:
            self._loop.call_soon_threadsafe(on_revoked)
        except RuntimeError:  # the loop is closed, so the worker is not needed
            lease.kill()

    def release_worker(self) -> None:
        """Release the worker and its slot, if any, and suspend the program if it runs."""
        if self.is_warm:
            self.is_warm = False
            self._channel.close()
            self._lease.kill_and_release_despite_threads()
        if self.machine.suspension_reason is None and self.machine.ending is None:
            self.compute_seconds = self.compute_ms / 1000
            self.machine.suspend_now()
            self._close_clocks()

    async def answer_open_yields(self) -> None:
        """Answer open yields of a suspended run. Returns once the journal, if any, has them."""
        answered = self._loop.create_future()

        def deliver_and_notify(settled: events.CallSettled) -> None:
            self._deliver_outcome(settled)
            if not self.machine.open_yields and not answered.done():
                answered.set_result(None)

        for request_id in tuple(self.machine.open_yields):
            settled = events.CallSettled(request_id, Fulfilled(None), self._calls.now_ms())
            if self._journal is None:
                deliver_and_notify(settled)
            else:
                self._journal.write_and_deliver_call_outcome(settled, deliver_and_notify)
        if self.machine.open_yields:
            await asyncio.wait((answered, self.ended), return_when=asyncio.FIRST_COMPLETED)

    def refill_spares(self) -> None:
        """Prepare the next spare worker."""
        self._lease.refill_spares()

    def take_output(self) -> list[EncodedOutputItem]:
        """Return the output since the last call of this method."""
        written, self.output = self.output, []
        return written

    def _replace_clock_and_make_wait_clock(self, wait_ms: int) -> PausableTimer:
        self._clock.close()
        self._clock = self._make_replay_clock() if self._machine.is_replaying else self._make_guest_clock()
        return self._reset_stop_reason_and_make_wait_clock(wait_ms)

    def _reset_stop_reason_and_make_wait_clock(self, wait_ms: int) -> PausableTimer:
        """Return the clock that limits how long the caller waits for a suspension or an ending."""
        self.stop_reason = self._loop.create_future()
        return self._make_clock(wait_ms, self.end_wait)

    def _pause_clock(self) -> None:
        super()._pause_clock()
        if self._wait_clock is None:
            waited_ms = int(self._clock.active_seconds * 1000)
            self._wait_clock = self._make_clock(max(1, self._wait_ms - waited_ms), self.end_wait)
            self._start_wait_clock()

    def _make_guest_clock(self) -> PausableTimer:
        limit_ms = self.machine.settings.limits.timeout_ms
        return self._make_clock(limit_ms, self._on_deadline)

    def _make_replay_clock(self) -> PausableTimer:
        limit_ms = 2 * int(self.compute_seconds * 1000) + _REPLAY_EXTRA_MS
        message = f"the program did not repeat its progress within {limit_ms} ms"
        error = CodeModeTimeoutError(message, details={"timeout_ms": limit_ms, "origin": "replay"})
        return self._make_clock(limit_ms, lambda: self.feed_event(events.HostFailed(error)))

    def _start_wait_clock(self) -> None:
        if self._wait_clock is not None and not self._machine.is_wait_paused:
            self._wait_clock.start()

    def _stop_wait_clock(self) -> None:
        if self._wait_clock is not None:
            self._wait_clock.pause()

    def _close_wait_clock(self) -> None:
        if self._wait_clock is not None:
            self._wait_clock.close()

    def end_wait(self) -> None:
        """End the caller's wait: the program is suspended as soon as it is idle."""
        if self.machine.suspension_reason is None:
            self.feed_event(events.CallerWaitExpired())
        else:
            self.is_wait_over = True
            self._end_wait_with_pending_tools()

    def _end_wait_with_pending_tools(self) -> None:
        self._stop_wait_clock()
        if not self.stop_reason.done():
            self.stop_reason.set_result("pending_tools")

    def _report_console_line(self, level: str, text: str) -> None:
        self.output.append(EncodedOutputItem("console", text, level))
        super()._report_console_line(level, text)

    def _perform_call(self, entry: LedgerEntry) -> CoroutineType[Any, Any, None]:
        self._reported_ids.add(entry.id)
        return super()._perform_call(entry)

    def _perform_suspension_effect(self, effect: events.SuspensionEffect) -> None:
        match effect:
            case events.WriteOutputItem(kind, text):
                self.output.append(EncodedOutputItem(kind, text))
            case events.ReportReplayEnd():
                self._clock.close()
                self._clock = self._make_guest_clock()
                self._clock.start()
            case events.PauseWaitClock():
                self._stop_wait_clock()
            case events.ResumeWaitClock():
                if not self.stop_reason.done():
                    self._start_wait_clock()
            case events.SuspendProgram(reason):
                self.compute_seconds += self._clock.active_seconds
                self._close_clocks()
                if not self.stop_reason.done():
                    self.stop_reason.set_result(reason)
            case events.ReportQueuedOutcome():
                self._end_wait_with_pending_tools()
                self.on_change()

    def _apply_and_report_replay(self, entry: LedgerEntry) -> None:
        if entry.kind != "yield" and entry.id not in self._reported_ids:
            self._reported_ids.add(entry.id)
            super()._apply_and_report_replay(entry)

    def _close_clocks(self) -> None:
        self._clock.close()
        self._close_wait_clock()

    def _finish(self, ending: events.Ending) -> None:
        if self._machine.suspension_reason is None:
            self.compute_seconds = self.compute_ms / 1000
        self._close_wait_clock()
        self._lease.make_irrevocable()
        super()._finish(ending)
        self._notify_end()

    def _end_with_exception(self, error: BaseException) -> None:
        super()._end_with_exception(error)
        self._notify_end()

    def _notify_end(self) -> None:
        if self.stop_reason.done():
            self.on_ended()
        else:
            self.stop_reason.set_result(None)

    def _on_worker_ended(self, reason: str) -> None:
        if self._machine.suspension_reason is not None:
            self.release_worker()
        super()._on_worker_ended(reason)


def _ignore_change() -> None:
    """Ignore a change while no listener is set."""
