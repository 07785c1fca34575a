"""An invocation that can be suspended and resumed on the same or another worker."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar

from . import events, messages
from .events import ReportQueuedOutcome, SendMessage, SuspendProgram, SuspensionReason
from .invocation import Invocation
from .ledger import Fulfilled, Ledger, LedgerEntry, ProgramProgress, Waiting
from .settings import InvocationSettings

# A worker is a cache of the ledger: a suspended program consists of its text, its settings and its ledger, and a held
# worker only saves a replay. A suspended program's worker gets no messages. Calls continue, and their outcomes go into
# ledger and delivery order at once, so that the result does not depend on the worker.
#
# TurnEnded: an idle guest that has yielded is suspended, even with calls in flight.
# CallerWaitExpired: a guest with calls in flight is suspended, now or as soon as it is idle.
# CallSettled: queued while suspended; during a replay delivered after recorded outcomes.
# ContinueRequested: yields are answered, queued outcomes are delivered, and the guest continues.
# WorkerEnded: changes nothing while suspended.
#
# `answer_yields_and_create_successor` returns the invocation that replaces this one on another worker. Its clock
# measures the guest's compute time; a replay has a clock of its own, until `ReportReplayEnd`.

# Stored for a running call in addition to its entry, because its outcome may have to be reported.
_RUNNING_REQUEST_BYTES = 400


class SuspendableInvocation(Invocation):
    """The state of a suspendable invocation. ``suspension_reason`` is None while it is not suspended.

    Inherited requests run on the host already, started by the invocation whose ledger was ``recorded``.
    """

    def __init__(
        self,
        settings: InvocationSettings,
        *,
        recorded: Ledger | None = None,
        answered_ids: Collection[int] = (),
        identify: Callable[[InvocationSettings, str], InvocationSettings] | None = None,
        predecessor: SuspendableInvocation | None = None,
    ) -> None:
        super().__init__(settings, recorded=recorded, answered_ids=answered_ids, identify=identify)
        self.suspension_reason: SuspensionReason | None = None
        self.is_replaying = recorded is not None and recorded.progress.turn_count > 0
        self._recorded_turns = 0 if recorded is None else recorded.progress.turn_count
        self._inherited_ids: frozenset[int] = frozenset()
        self._invoked_ids: set[int] = set()
        self._open_yields: list[int] = []  # without an answer yet
        self._queued: list[LedgerEntry] = []  # whose outcomes arrived while suspended
        self._is_mid_turn = False  # suspended in the middle of a turn
        self._is_wait_over = False
        self._is_wait_paused = False
        if recorded is not None:
            self.ledger.progress = recorded.progress
        if predecessor is not None:
            self._inherit_requests(predecessor)

    @property
    def has_pending_deliveries(self) -> bool:
        """True if it is suspended and has outcomes to deliver."""
        return bool(self._open_yields or self._queued or self._is_mid_turn)

    @property
    def open_yields(self) -> Collection[int]:
        """The open requests by which the guest has yielded."""
        return self._open_yields

    @property
    def has_running_requests(self) -> bool:
        """True while a request runs on the host."""
        return bool(self._requests.running)

    @property
    def is_wait_paused(self) -> bool:
        """True while only a person's decision is outstanding."""
        return self._is_wait_paused

    @property
    def stored_ledger_bytes(self) -> int:
        """The approximate bytes of its ledger when stored."""
        return self._size_limit.estimate_stored_bytes(self.ledger.entries) + _RUNNING_REQUEST_BYTES * len(
            self._requests.running
        )

    @property
    def output_count(self) -> int:
        """How many items and lines the program has written."""
        return self._guest_output.output_count

    @property
    def turn_count(self) -> int:
        """How many turns the guest has had, including those that a replay repeats."""
        return max(self._turns.ended_count, self._recorded_turns if self.is_replaying else 0)

    def get_entry(self, request_id: int) -> LedgerEntry:
        """Return the entry of a request, also before a replay has issued it again."""
        is_not_replayed = bool(self._inherited_ids) and request_id not in self.ledger
        return self._replay[request_id] if is_not_replayed else self.ledger[request_id]

    def suspend_now(self) -> None:
        """Suspend at once, without the worker: the guest repeats its unfinished turn."""
        if self.ending is None and self.suspension_reason is None:
            self._replay.append_missing_entries_and_deliveries(self.ledger)
            self._is_mid_turn = True
            self.suspension_reason = "pending_tools"

    def answer_yields_and_create_successor(self, now_ms: int) -> SuspendableInvocation:
        """Return the invocation that continues on another worker with the running calls. This one is done."""
        self._answer_yields(now_ms)
        self.ledger.progress = ProgramProgress(self.output_count, self.ledger.progress.compute_ms, self.turn_count)
        waiting = self._answered_ids - self._invoked_ids
        return SuspendableInvocation(self.settings, recorded=self.ledger, answered_ids=waiting, predecessor=self)

    def _inherit_requests(self, predecessor: SuspendableInvocation) -> None:
        self.host_errors = predecessor.host_errors
        self._size_limit = predecessor._size_limit
        self._size_limit.includes_recorded = True
        self._invoked_ids = predecessor._invoked_ids
        self._inherited_ids = frozenset(predecessor._requests.running)
        self._requests.running |= predecessor._requests.running
        self._requests.running_calls |= predecessor._requests.running_calls
        self._requests.awaiting_person |= predecessor._requests.awaiting_person
        self._requests.running_timers |= predecessor._requests.running_timers

    # -- handlers that differ

    def _on_turn_ended(self, event: messages.TurnEnded) -> None:
        if self.is_replaying and self._turns.ended_count + 1 >= self._recorded_turns:
            self.is_replaying = False
            self._effects.append(events.ReportReplayEnd())
        super()._on_turn_ended(event)

    def _queue_unless_answered(self, entry: LedgerEntry) -> None:
        if entry.kind == "yield":
            if entry.is_open:
                self._open_yields.append(entry.id)
        elif entry.id not in self._inherited_ids:
            super()._queue_unless_answered(entry)

    def _start_pending_requests(self) -> None:
        super()._start_pending_requests()
        if self._answered_ids:
            self._invoked_ids |= self._answered_ids & self._requests.running

    def _on_settled(self, event: events.CallSettled) -> None:
        if event.id in self._open_yields and self.suspension_reason is not None:
            self._open_yields.remove(event.id)
            self._queue_outcome(event)
        elif event.id not in self._requests.running:
            return
        elif self.suspension_reason is not None:
            self._queue_outcome(event)
        elif self._inherited_ids and self._is_ahead_of_replay(event.id):
            self._record_outcome_before_replay(event)
        else:
            super()._on_settled(event)

    def _queue_outcome(self, event: events.CallSettled) -> None:
        entry = self._record_outcome(self._end_request_and_admit_outcome(event), self.ledger[event.id])
        if not isinstance(entry.outcome, Waiting):
            self.ledger.deliveries.append(entry.id)
            self._queued.append(entry)
        self._effects.append(ReportQueuedOutcome(entry.id))
        self._start_pending_requests()
        self._update_wait_clock(is_idle=True)

    def _end_request_and_admit_outcome(self, event: events.CallSettled) -> events.CallSettled:
        """Return the outcome of a request for the ledger; the request does not run any more."""
        self._requests.record_request_end(event.id)
        event = self.admit_or_replace_outcome(event)
        if event.error is not None:
            self.host_errors[event.id] = event.error
        return event

    def _is_ahead_of_replay(self, request_id: int) -> bool:
        """True for a call that runs while the replay has not reached it, or the program is suspended."""
        return request_id in self._inherited_ids and (
            request_id not in self.ledger or self._replay.is_unfinished(self.ledger)
        )

    def _record_outcome_before_replay(self, event: events.CallSettled) -> None:
        event = self._end_request_and_admit_outcome(event)
        previous = self.get_entry(event.id)
        entry = self._replay.record_outcome(event)
        self._update_inherited_entry(previous, entry)
        if not isinstance(entry.outcome, Waiting):
            self._effects.append(SendMessage(entry.make_delivery_message()))

    def _update_inherited_entry(self, previous: LedgerEntry, entry: LedgerEntry) -> None:
        self._size_limit.recount_entry_and_release_reservation(previous, entry)
        if entry.id in self.ledger:
            self.ledger.entries[entry.id - 1] = entry

    def _on_tool_started(self, event: events.ToolStarted) -> None:
        if self._inherited_ids and event.id in self._requests.running and self._is_ahead_of_replay(event.id):
            previous = self.get_entry(event.id)
            self._update_inherited_entry(previous, self._replay.record_tool_start(event))
        else:
            super()._on_tool_started(event)

    def _finish_or_update_clocks(self) -> None:
        if self.js is None:
            return
        if self.suspension_reason is not None:
            self._update_wait_clock(is_idle=True)
            return
        is_idle = not self._turns.owed_count
        if is_idle and self._open_yields:
            self._suspend("yield")
        elif is_idle and self._requests.running and self._is_wait_over:
            self._suspend("pending_tools")
        else:
            super()._finish_or_update_clocks()

    def _suspend(self, reason: SuspensionReason) -> None:
        self._replay.require_complete(self.ledger)
        self.suspension_reason = reason
        self._effects.append(SuspendProgram(reason))

    def _update_clocks(self, *, is_idle: bool) -> None:
        if is_idle != self._is_clock_paused:
            self._is_clock_paused = is_idle
            self._effects.append(events.PauseDeadlineClock() if is_idle else events.ResumeDeadlineClock())
        self._update_wait_clock(is_idle=is_idle)

    def _update_wait_clock(self, *, is_idle: bool) -> None:
        requests = self._requests
        is_paused = (
            is_idle
            and not requests.running_timers
            and bool(requests.awaiting_person)
            and requests.running == requests.awaiting_person
        )
        if is_paused != self._is_wait_paused:
            self._is_wait_paused = is_paused
            self._effects.append(events.PauseWaitClock() if is_paused else events.ResumeWaitClock())

    def _on_wait_expired(self, _event: events.CallerWaitExpired) -> None:
        if self.settings.profile.at_deadline == "fail":
            return self._on_external_stop(events.DeadlinePassed())
        self._is_wait_over = True
        return self._finish_or_update_clocks()

    def _on_continue(self, event: events.ContinueRequested) -> None:
        if self.suspension_reason is None:
            return
        self._answer_yields(event.now_ms)
        self.suspension_reason = None
        self._is_wait_over = self._is_clock_paused = False
        queued, self._queued = self._queued, []
        for entry in queued:
            self._effects.append(SendMessage(entry.make_delivery_message()))
            self._turns.count_recorded_delivery()
        self._finish_or_update_clocks()

    def _answer_yields(self, now_ms: int) -> None:
        yields, self._open_yields = self._open_yields, []
        for request_id in yields:
            self._queued.append(self.ledger.record_outcome(request_id, Fulfilled(None), now_ms))
            self.ledger.deliveries.append(request_id)

    def _on_worker_ended(self, event: events.WorkerEnded) -> None:
        if self.suspension_reason is None:
            self._on_external_stop(event)

    HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        **Invocation.HANDLERS,
        messages.TurnEnded: _on_turn_ended,
        events.CallSettled: _on_settled,
        events.ToolStarted: _on_tool_started,
        events.CallerWaitExpired: _on_wait_expired,
        events.ContinueRequested: _on_continue,
        events.WorkerEnded: _on_worker_ended,
    }


def answer_open_yields(ledger: Ledger, now_ms: int) -> list[events.CallSettled]:
    """Answer the open yields of a saved program; return the new outcomes in its ledger."""
    yields = [entry.id for entry in ledger.entries if entry.kind == "yield" and entry.is_open]
    settled = [events.CallSettled(request_id, Fulfilled(None), now_ms) for request_id in yields]
    for event in settled:
        ledger.record_outcome(event.id, event.outcome, event.now_ms)
        ledger.deliveries.append(event.id)
    return settled
