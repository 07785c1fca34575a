"""Run one program as a state machine without I/O: events in, effects out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ..cached_property import cached_property
from ..data.json_values import count_utf8_bytes
from ..data.large_strings import extract_large_strings, may_have_references
from ..errors import CodeModeBridgeLimitError, CodeModeError, CodeModeProtocolError
from ..profile import HostErrorRules, LargeStringRules
from . import ending_errors, events, messages
from .events import (
    CallSettled,
    CheckProgram,
    Failed,
    FinishInvocation,
    Interrupted,
    ReportReplayedRequest,
    SendMessage,
    ToolStarted,
)
from .guest_errors import make_rejection, restore_host_error
from .guest_output import GuestOutputRecorder, OutputMessage
from .in_flight import RequestQueue, TurnCounter, parse_timer_delay_ms
from .ledger import INTERNAL_KINDS, Fulfilled, Ledger, LedgerEntry, Outcome, Rejected, Waiting
from .messages import CallRequested
from .references import ContentRegistry, LargeStringRegistry
from .settings import InvocationSettings, get_analysis_mode


class LedgerReplay:
    """Compares a recorded ledger with the new one. Raises `CodeModeProtocolError` where they differ.

    With ``hides_inputs`` its errors quote no inputs. ``is_empty``: nothing was recorded.
    """

    def __init__(self, recorded: Ledger | None, *, hides_inputs: bool = False) -> None:
        self._hides_inputs = hides_inputs
        self.has_record = recorded is not None
        self._recorded = recorded if recorded is not None else Ledger()
        self.is_empty = not self._recorded.entries

    def match_recorded_entry_or_raise(self, request: CallRequested, ledger: Ledger) -> LedgerEntry | None:
        """Return the recorded entry of a request, None for a new one."""
        if self.is_empty:
            return None
        if request.id not in self._recorded:
            if self.is_unfinished(ledger):
                raise ending_errors.make_replay_divergence_error(
                    request.id, f"{self._format_request(request)} was not made in the recorded run"
                )
            return None
        entry = self._recorded[request.id]
        if not entry.matches_request(request):
            raise ending_errors.make_replay_divergence_error(
                request.id, f"recorded {self._format_request(entry)}, now {self._format_request(request)}"
            )
        return entry

    def _format_request(self, request: LedgerEntry | CallRequested) -> str:
        return f"{request.kind} {request.name}" if self._hides_inputs else ending_errors.format_request(request)

    def is_unfinished(self, ledger: Ledger) -> bool:
        """True while recorded outcomes are not delivered yet."""
        return len(ledger.deliveries) < len(self._recorded.deliveries)

    def find_next_delivery(self, ledger: Ledger) -> LedgerEntry | None:
        """Return the entry of the next recorded delivery, if its request was issued again."""
        if not self.is_unfinished(ledger):
            return None
        request_id = self._recorded.deliveries[len(ledger.deliveries)]
        has_been_made = request_id in ledger
        return ledger[request_id] if has_been_made else None

    def list_delivered_entries(self) -> list[LedgerEntry]:
        """Return the entries of recorded deliveries, in order."""
        return [self._recorded[request_id] for request_id in self._recorded.deliveries]

    def __getitem__(self, request_id: int) -> LedgerEntry:
        return self._recorded[request_id]

    def record_outcome(self, event: CallSettled) -> LedgerEntry:
        """Record the outcome of a request that ended during the replay; it is delivered last. Returns its entry."""
        ledger = self._recorded
        settled_entry = ledger.record_outcome(
            event.id, event.outcome, event.now_ms, event.displayed_input_json, event.duration_us
        )
        entry = ledger.register_large_strings(settled_entry)
        if not isinstance(event.outcome, Waiting):
            ledger.deliveries.append(event.id)
        return entry

    def record_tool_start(self, event: ToolStarted) -> LedgerEntry:
        """Record that the tool of such a request starts, and return its entry."""
        return self._recorded.record_tool_start(event.id, event.executed_input_json, is_approved=event.is_approved)

    def require_complete(self, ledger: Ledger) -> None:
        """Raise if the program ended or was suspended before it repeated its whole record."""
        if self.is_empty:
            return
        if len(ledger.entries) < len(self._recorded.entries) or self.is_unfinished(ledger):
            position = min(len(ledger.entries) + 1, len(self._recorded.entries))
            raise ending_errors.make_replay_divergence_error(
                position, "the program did not get as far as in the recorded run"
            )

    def append_missing_entries_and_deliveries(self, ledger: Ledger) -> None:
        """Append what the replay has not reached: a stopped run must not lose finished calls."""
        ledger.entries += self._recorded.entries[len(ledger.entries) :]
        ledger.deliveries += self._recorded.deliveries[len(ledger.deliveries) :]
        ledger.notice_count = max(ledger.notice_count, self._recorded.notice_count)
        ledger.progress = max(ledger.progress, self._recorded.progress)


def get_or_create_large_string_registry(rules: LargeStringRules, recorded: Ledger | None) -> LargeStringRegistry:
    """Return the store of an invocation's large strings, with recorded ones."""
    return LargeStringRegistry(rules) if recorded is None or recorded.sidecar is None else recorded.sidecar


def restore_large_strings(
    recorded: Ledger, rules: LargeStringRules, sidecar: LargeStringRegistry | None = None
) -> Ledger:
    """Return a recorded ledger with its large strings, which are derived from its texts.

    They are added to an empty ``sidecar``, if given.
    """
    sidecar = LargeStringRegistry(rules) if sidecar is None else sidecar

    def restore_entry(entry: LedgerEntry) -> LedgerEntry:
        if entry.kind != "tool":
            return entry
        outcome, text = entry.outcome, entry.input_json
        if isinstance(outcome, Fulfilled) and outcome.value_json is not None:
            outcome = Fulfilled(outcome.value_json, extract_large_strings(outcome.value_json, rules.threshold_bytes))
        return entry._replace(outcome=outcome, sidecar=sidecar if may_have_references(text) else None)

    entries, deliveries = [restore_entry(entry) for entry in recorded.entries], list(recorded.deliveries)
    ledger = Ledger(entries, deliveries, recorded.notice_count, sidecar, recorded.progress, recorded.contents)
    for request_id in ledger.deliveries:
        ledger.register_large_strings(ledger[request_id])
    return ledger


# So that a program that catches the error of a full ledger can still make small calls.
_EXTRA_INPUT_BYTES = 64 << 10
# Size of an entry without its texts: keys, status and time.
_ENTRY_BYTES = 130


class LedgerSizeLimit:
    """Limits the UTF-8 bytes of the texts in a ledger to ``maximum``.

    Traces and events hold the same texts, so they are covered. A call whose input does not fit ends the program; a
    call whose outcome does not fit gets an error instead, though the tool has run.
    """

    def __init__(self, maximum: int, host_errors: HostErrorRules, sidecar: LargeStringRegistry | None = None) -> None:
        self.maximum = maximum
        self._host_errors = host_errors
        self._sidecar = sidecar
        self._bytes = 0
        self.includes_recorded = False  # recorded entries are counted already
        self.reserves_space = False  # for admitted outcomes that are not in the ledger yet
        self._reserved: dict[int, CallSettled] = {}
        self._reserved_bytes = 0
        self.last_admitted: CallSettled | None = None  # and its size
        self._last_admitted_bytes = 0
        self._measured_entries, self._measured_bytes = 0, 0

    @property
    def total_bytes(self) -> int:
        """The number of bytes."""
        return self._bytes

    def estimate_stored_bytes(self, entries: Sequence[LedgerEntry]) -> int:
        """Return the approximate size of a stored ledger, including fields next to its texts.

        Entries are measured once, so that the cost of a suspension stays low.
        """
        for entry in entries[self._measured_entries :]:
            self._measured_bytes += _ENTRY_BYTES + count_utf8_bytes(entry.name) + _count_utf8_bytes(entry.tool_call_id)
        self._measured_entries = max(self._measured_entries, len(entries))
        return self._bytes + self._measured_bytes

    def count_recorded_entry(self, entry: LedgerEntry) -> None:
        """Count an entry of a recorded ledger, which fitted before."""
        if self.includes_recorded:
            return
        self._bytes += (
            _count_utf8_bytes(entry.input_json)
            + _count_utf8_bytes(entry.executed_input_json)
            + _count_outcome_bytes(entry.outcome)
        )

    def count_new_request(self, entry: LedgerEntry) -> None:
        """Count a new request. Raises `CodeModeBridgeLimitError` if it does not fit."""
        text = entry.input_json
        if text is not None:
            self._bytes += len(text) if text.isascii() else count_utf8_bytes(text)
        if self._bytes > self.maximum + _EXTRA_INPUT_BYTES:
            raise ending_errors.make_ledger_limit_error(self.maximum)

    def admit_or_replace_outcome(self, event: CallSettled, entry: LedgerEntry) -> CallSettled:
        """Return the outcome of a call, replaced by an error if ledger or sidecar are full.

        An admitted outcome stays admitted.
        """
        if event is self.last_admitted or entry.kind in INTERNAL_KINDS or self._reserved.get(event.id) is event:
            return event  # the program's own requests store nothing and do not fail
        size = _count_outcome_bytes(event.outcome)
        if self._bytes + self._reserved_bytes + size > self.maximum:
            error = ending_errors.make_ledger_limit_error(self.maximum)
        else:
            error = None if self._sidecar is None else self._find_large_string_error(event.outcome, self._sidecar)
        if error is not None:
            rejected = make_rejection(entry, error, self._host_errors)
            event = CallSettled(event.id, rejected, event.now_ms, error, event.displayed_input_json, event.duration_us)
            size = _count_outcome_bytes(event.outcome)
        if self.reserves_space:
            self._reserved[event.id] = event
            self._reserved_bytes += size
        self.last_admitted, self._last_admitted_bytes = event, size
        return event

    def _find_large_string_error(self, outcome: Outcome, sidecar: LargeStringRegistry) -> CodeModeError | None:
        if not isinstance(outcome, Fulfilled) or outcome.large is None:
            return None
        undelivered = [event.outcome for event in self._reserved.values()]
        undelivered_strings = [
            event.large for event in undelivered if isinstance(event, Fulfilled) and event.large is not None
        ]
        return sidecar.find_limit_error(outcome.large, undelivered_strings)

    def recount_entry_and_release_reservation(self, previous: LedgerEntry, current: LedgerEntry) -> None:
        """Count an entry again after its call has started or ended."""
        if self._reserved and (reserved := self._reserved.pop(current.id, None)) is not None:
            self._reserved_bytes -= _count_outcome_bytes(reserved.outcome)
        # Most calls run with the issued input and have one outcome.
        if current.executed_input_json is not previous.executed_input_json:
            self._bytes += _count_utf8_bytes(current.executed_input_json) - _count_utf8_bytes(
                previous.executed_input_json
            )
        if previous.outcome is not None:
            self._bytes -= _count_outcome_bytes(previous.outcome)
        if (outcome := current.outcome) is not None:
            is_measured = self.last_admitted is not None and self.last_admitted.outcome is outcome
            self._bytes += self._last_admitted_bytes if is_measured else _count_outcome_bytes(outcome)


def _count_outcome_bytes(outcome: Outcome | None) -> int:
    if isinstance(outcome, Fulfilled):
        text = outcome.value_json or ""
        return len(text) if text.isascii() else count_utf8_bytes(text)
    if isinstance(outcome, Rejected):
        return count_utf8_bytes(outcome.message) + _count_utf8_bytes(outcome.fields_json)
    if isinstance(outcome, Waiting):
        return count_utf8_bytes(outcome.payload_json) + _count_utf8_bytes(outcome.input_json)
    return 0


def _count_utf8_bytes(text: str | None) -> int:
    return 0 if text is None else count_utf8_bytes(text)


# The worker owes one turn for the start of the program and one for every delivered outcome. Deliveries may be sent
# ahead; the worker takes them one at a time, in order, so everything below depends only on the order of requests and
# deliveries:
#
# ProgramAnalysed: CheckProgram; the host answers ProgramAccepted or ProgramRefused.
# ProgramAccepted: SendMessage(RunProgram); a program that could not be analysed is compiled for its error.
# CallRequested: recorded; performed only after the turn ends, and not at all if the program ends in it.
# TurnEnded: PerformRequest for the requests of the turn, in order; a deadlock if nothing is in flight or waiting.
# RequestWithdrawn: a timer that has not fired never does; the guest ignores a delivery that was sent.
# CallSettled: the outcome goes into the ledger and is delivered, or the request waits; PerformRequest for queued calls.
# ProgramReturned: an undelivered or unobserved call may be an error; else the result.
# ProgramThrew: the guest's error, or the host's own error if it answered a request.
# All other events end the invocation with their error.
#
# An invocation pauses (`Interrupted`) if the guest is idle, nothing runs on the host and a request waits. A timer is a
# request that does not count as a call, and the clock measures it: the program itself waits.
#
# With a recorded ledger the guest first has to issue the same requests again. Each is compared, and recorded outcomes
# are delivered in the recorded order, sent ahead as a whole; then waiting, unknown and new requests are performed.

_OUTPUT_MESSAGES = (messages.ConsoleWritten, messages.OutputItemWritten, messages.GuestNotification)
_RUNNING_MESSAGES = frozenset(
    (messages.CallRequested, messages.RequestWithdrawn, messages.TurnEnded, *_OUTPUT_MESSAGES)
)
_TURN_MESSAGES = _RUNNING_MESSAGES | {messages.ProgramReturned, messages.ProgramThrew}


class Invocation:
    """The state of one invocation. `start` and `receive` return effects for the caller to perform."""

    def __init__(
        self,
        settings: InvocationSettings,
        *,
        recorded: Ledger | None = None,
        answered_ids: Collection[int] = (),
        identify: Callable[[InvocationSettings, str], InvocationSettings] | None = None,
    ) -> None:
        self.settings = settings
        self._identify = identify  # called once the program and its invocation data are known
        profile = settings.profile
        sidecar = None if profile.sidecar is None else get_or_create_large_string_registry(profile.sidecar, recorded)
        contents = None if recorded is None else recorded.contents
        # It is assigned to the invocation (`ContentRegistry.assign_to_invocation`) once its program is accepted.
        contents = (ContentRegistry() if contents is None else contents) if profile.has_content else None
        self.ledger = Ledger(sidecar=sidecar, contents=contents)
        self.js: str | None = None
        self._source: str | None = None  # as it was sent; None for a resumed program
        self._awaits_analysis = False  # of the worker
        self.ending: events.Ending | None = None
        self._draft: messages.PartiallyStrippedProgram | None = None
        self.host_errors: dict[int, CodeModeError] = {}
        self._answered_ids = frozenset(answered_ids)  # recorded as waiting, with an answer now
        self._replay = LedgerReplay(recorded, hides_inputs=settings.hides_inputs)
        max_bytes = settings.limits.max_ledger_bytes
        self._size_limit: LedgerSizeLimit = LedgerSizeLimit(
            max_bytes, settings.profile.host_errors, self.ledger.sidecar
        )
        self._effects: list[events.Effect] = []
        self._turn_requests: list[LedgerEntry] = []
        self._turns = TurnCounter(settings, self.ledger)
        self._tool_calls = 0
        self._recorded = recorded
        self._compiles_only = False
        self._requests = RequestQueue()
        self._withdrawals: set[int] = set()
        self._is_clock_paused = False
        self._is_overdue = False  # the deadline has passed before

    @property
    def ledger_bytes(self) -> int:
        """The bytes of texts in its ledger."""
        return self._size_limit.total_bytes

    def start(self, source: str, *, analysis_ms: int | None, known: CheckProgram | None = None) -> list[events.Effect]:
        """Start. ``analysis_ms`` limits the worker's analysis of ``source``; None: it is plain JavaScript.

        ``known`` is the result of an earlier analysis: it is compared with the tools, and the worker has
        nothing to analyse.
        """
        if analysis_ms is None:
            return self.receive(events.ProgramAccepted(source))
        self._source = source
        if known is not None:
            return [known]
        self._awaits_analysis = True
        return [SendMessage(messages.AnalyseProgram(source, analysis_ms, get_analysis_mode(self.settings.profile)))]

    def receive(self, event: messages.WorkerMessage | events.HostEvent) -> list[events.Effect]:
        """Return the effects of one event; after the end an empty list."""
        if self.ending is not None:
            self._record_late_outcome(event)
            return []
        self._effects = []
        kind = type(event)
        try:
            if not self._turns.owed_count and kind in _TURN_MESSAGES:
                raise CodeModeProtocolError("the worker sent a message out of turn")
            if self._compiles_only and kind in _RUNNING_MESSAGES:
                raise CodeModeProtocolError("the worker runs a program that it was to compile")
            self.HANDLERS[kind](self, event)
        except (CodeModeProtocolError, CodeModeBridgeLimitError) as error:
            self._finish_with_error(error)
        return self._effects

    def enable_outcome_reservation(self) -> None:
        """Reserve space for admitted outcomes until they are delivered: others may be admitted first."""
        self._size_limit.reserves_space = True

    def admit_or_replace_outcome(self, event: events.CallSettled) -> events.CallSettled:
        """Return the outcome of a call as the ledger, which may be full, will hold it."""
        return self._size_limit.admit_or_replace_outcome(event, self.get_entry(event.id))

    def get_entry(self, request_id: int) -> LedgerEntry:
        """Return the entry of a request."""
        return self.ledger.entries[request_id - 1]

    @cached_property
    def _guest_output(self) -> GuestOutputRecorder:  # most programs write nothing
        return GuestOutputRecorder(self.settings, self.ledger, self._recorded)

    # -- before the program runs

    def _on_analysed(self, event: messages.ProgramAnalysed) -> None:
        if not self._awaits_analysis:  # each answer is checked, which may take long
            raise CodeModeProtocolError("the worker analysed a program that it was not asked about, or twice")
        self._awaits_analysis = False
        if event.js is None:
            self._on_refused(events.ProgramRefused(event.problems))
        else:
            self._draft = event.draft
            self._effects.append(CheckProgram(event.js, event.facts, event.size))

    def _on_accepted(self, event: events.ProgramAccepted) -> None:
        if self.js is not None:
            raise CodeModeProtocolError("a program was accepted while another one runs")
        self.js = event.js
        settings, invocation_data_json = self.settings, event.invocation_data_json
        if event.settings is not None:
            settings = event.settings
        elif invocation_data_json is not None or self._identify is not None:
            settings = self.derive_program_settings(event)
        self.settings = settings
        if self._source not in (None, event.js):
            self.settings = replace(self.settings, source=self._source)
        if event.settings is not None:  # an earlier host may have started it under other limits
            self._turns = TurnCounter(self.settings, self.ledger)
            self._size_limit.maximum = self.settings.limits.max_ledger_bytes
        if self.ledger.contents is not None:
            recorded = event.recorded and event.recorded.contents
            self.ledger.contents.assign_to_invocation(self.settings.limits, self.settings.salt, recorded)
        self._compiles_only = event.compile_only
        if event.recorded is not None:
            self._replay = LedgerReplay(event.recorded, hides_inputs=self.settings.hides_inputs)
            self._recorded = event.recorded
            vars(self).pop("_guest_output", None)
        self._turns.owed_count = 1
        self._effects.append(
            SendMessage(
                self.settings.make_start_message(event.js, self._draft, event.compile_only, event.reports_locations)
            )
        )
        # Sent ahead and counted when their requests are issued again: waiting for each would cost a round trip.
        if not self._replay.is_empty:
            self._effects += [
                SendMessage(entry.make_delivery_message()) for entry in self._replay.list_delivered_entries()
            ]

    def derive_program_settings(self, event: events.ProgramAccepted) -> InvocationSettings:
        """Return the settings of an accepted program."""
        invocation_data_json, settings = event.invocation_data_json, self.settings
        settings = settings if invocation_data_json is None else settings.with_invocation_data(invocation_data_json)
        return settings if self._identify is None else self._identify(settings, event.js)

    def _on_refused(self, event: events.ProgramRefused) -> None:
        self._finish_with_error(
            ending_errors.make_unanalysable_program_error(self._draft)
            if event.is_unclear
            else ending_errors.make_program_refusal_error(event)
        )

    # -- turns

    def _on_request(self, event: messages.CallRequested) -> None:
        ledger = self.ledger
        if event.id != len(ledger.entries) + 1:
            raise CodeModeProtocolError(f"the worker used request id {event.id} out of order")
        if event.kind not in self.settings.profile.request_kinds:
            raise CodeModeProtocolError(f"the worker made a request of kind {event.kind!r}, which is not available")
        if event.kind == "state" and not self.settings.state:
            raise CodeModeProtocolError("the worker asks for state, which this program does not have")
        if event.kind == "timer":
            parse_timer_delay_ms(event.name, event.input_json)
        self._turns.count_request(event.kind)
        tool_call_id = None
        if event.kind == "tool":
            self._tool_calls += 1
            tool_call_id = f"{self.settings.outer_tool_call_id}:tool-{self._tool_calls}"
        entry = None if self._replay.is_empty else self._replay.match_recorded_entry_or_raise(event, ledger)
        if entry is not None:
            self._size_limit.count_recorded_entry(entry)
        else:
            entry = ledger.create_entry(event, tool_call_id)
            self._size_limit.count_new_request(entry)
        ledger.entries.append(entry)
        self._turn_requests.append(entry)

    def _on_withdrawn(self, event: messages.RequestWithdrawn) -> None:
        if event.id not in self.ledger or self.ledger[event.id].kind != "timer" or event.id in self._withdrawals:
            raise CodeModeProtocolError(f"the worker withdraws request {event.id}, which is not a running timer")
        self._withdrawals.add(event.id)
        if self.ledger[event.id].is_open:  # else it had fired, and the guest ignores the withdrawal
            self.ledger.record_timer_withdrawal(event.id)
            if self._requests.cancel_timer(event.id):
                self._effects.append(events.CancelTimer(event.id))

    def _on_turn_ended(self, event: messages.TurnEnded) -> None:
        self._turns.check_and_count_turn_end(event.in_flight)
        requests, self._turn_requests = self._turn_requests, []
        for entry in requests:
            self._queue_unless_answered(entry if entry.kind != "timer" else self.ledger[entry.id])
        if not self._replay.is_empty:
            self._record_and_report_replayed_deliveries()
        if self._requests.pending:
            self._start_pending_requests()
        self._finish_or_update_clocks()

    def _queue_unless_answered(self, entry: LedgerEntry) -> None:
        outcome = entry.outcome
        if isinstance(outcome, Rejected):
            self.host_errors.setdefault(entry.id, restore_host_error(outcome))
        is_open = outcome is None and not entry.is_withdrawn
        if is_open or (isinstance(outcome, Waiting) and entry.id in self._answered_ids):
            self._requests.pending.append(entry)

    def _record_and_report_replayed_deliveries(self) -> None:
        """Deliver recorded outcomes in order, as far as their requests were issued again."""
        while (entry := self._replay.find_next_delivery(self.ledger)) is not None:
            self._effects.append(ReportReplayedRequest(entry))
            self._turns.record_delivery(entry.id)

    def _start_pending_requests(self) -> None:
        # New calls must start after every recorded outcome.
        if self._requests.pending and (self._replay.is_empty or not self._replay.is_unfinished(self.ledger)):
            self._effects += self._requests.start_pending_requests(self.settings.limits.max_in_flight_bridge_requests)

    def _on_settled(self, event: events.CallSettled) -> None:
        if event.id not in self._requests.running:
            return
        self._requests.record_request_end(event.id)
        ledger, previous = self.ledger, self.ledger.entries[event.id - 1]
        if event is not self._size_limit.last_admitted:
            event = self._size_limit.admit_or_replace_outcome(event, previous)
        entry = ledger.record_outcome(
            event.id, event.outcome, event.now_ms, event.displayed_input_json, event.duration_us
        )
        self._size_limit.recount_entry_and_release_reservation(previous, entry)
        if ledger.sidecar is not None:
            entry = ledger.register_large_strings(entry)
        if event.error is not None:
            self.host_errors[event.id] = event.error
        if not isinstance(event.outcome, Waiting):
            self._effects.append(SendMessage(entry.make_delivery_message()))
            self._turns.record_delivery(event.id)
        if self._requests.pending:
            self._start_pending_requests()
        self._finish_or_update_clocks()

    def _on_tool_started(self, event: events.ToolStarted) -> None:
        if event.id in self._requests.running:
            previous, text = self.ledger.entries[event.id - 1], event.executed_input_json
            self._size_limit.recount_entry_and_release_reservation(
                previous, self.ledger.record_tool_start(event.id, text, is_approved=event.is_approved)
            )

    def _record_outcome(self, event: events.CallSettled, previous: LedgerEntry) -> LedgerEntry:
        entry = self.ledger.record_outcome(
            event.id, event.outcome, event.now_ms, event.displayed_input_json, event.duration_us
        )
        self._size_limit.recount_entry_and_release_reservation(previous, entry)
        return entry if self.ledger.sidecar is None else self.ledger.register_large_strings(entry)

    def _record_late_outcome(self, event: messages.WorkerMessage | events.HostEvent) -> None:
        # Record what a call did after the end: a recovery then does not ask about it.
        if isinstance(event, events.CallSettled) and event.id in self._requests.running:
            self._requests.record_request_end(event.id)
            entry = self._record_outcome(self.admit_or_replace_outcome(event), self.ledger[event.id])
            if not isinstance(entry.outcome, Waiting):
                self.ledger.deliveries.append(event.id)

    def _on_person_asked(self, event: events.PersonAsked) -> None:
        self._requests.record_person_asked(event.id)
        self._finish_or_update_clocks()

    def _on_person_answered(self, event: events.PersonAnswered) -> None:
        self._requests.record_person_answered(event.id)
        self._finish_or_update_clocks()

    def _finish_or_update_clocks(self) -> None:
        """Pause, suspend or fail if the guest is idle and nothing is left to wait for; else update the clocks."""
        is_idle = not self._turns.owed_count
        if is_idle and not self._replay.is_empty:
            self._replay.require_complete(self.ledger)
        if is_idle and not self._requests.running:
            return self._finish(
                Interrupted() if self.ledger.waiting_entries else Failed(ending_errors.make_deadlock_error())
            )
        return self._update_clocks(is_idle=is_idle)

    def _update_clocks(self, *, is_idle: bool) -> None:
        requests = self._requests
        # An idle program waits for others, except for its timers.
        is_paused = (
            is_idle
            and not requests.running_timers
            and (not self.settings.limits.timeout_includes_tools or requests.running == requests.awaiting_person)
        )
        if is_paused != self._is_clock_paused:
            self._is_clock_paused = is_paused
            self._effects.append(events.PauseDeadlineClock() if is_paused else events.ResumeDeadlineClock())

    def _on_output(self, event: OutputMessage) -> None:
        self._effects += self._guest_output.record_output(event)

    # -- endings

    def _on_returned(self, event: messages.ProgramReturned) -> None:
        if self._compiles_only:
            return self._finish_with_error(ending_errors.make_unanalysable_program_error(self._draft))
        if event.warnings and self.settings.profile.guest.result != "sanitised":
            raise CodeModeProtocolError("the worker cut a result that is taken as it is")
        if not self._replay.is_empty:
            self._replay.require_complete(self.ledger)
        if self.settings.profile.output is not None:
            self._guest_output.count_result(event.value_json)
        delivered_ids, unsent, queued = (
            self.ledger.deliveries[: self._turns.ended_count],
            self._turn_requests,
            self._requests.pending,
        )
        return self._finish(
            ending_errors.make_return_ending(
                event, self.settings, self.ledger, delivered_ids, unsent, queued, self.js or ""
            )
        )

    def _on_threw(self, event: messages.ProgramThrew) -> None:
        if event.origin != "syntax":
            self._replay.require_complete(self.ledger)
        delivered_ids = self.ledger.deliveries[: self._turns.ended_count]
        self._finish_with_error(
            ending_errors.select_ending_error(event, self.settings, self.ledger, delivered_ids, self.host_errors)
        )

    def _on_deadline_passed(self, event: events.DeadlinePassed) -> None:
        may_stop_itself = self._turns.owed_count and self.settings.profile.guest.stops_itself
        if self._is_overdue or not may_stop_itself:
            return self._on_external_stop(event)
        self._is_overdue = True
        return self._effects.append(events.GrantGracePeriod())

    def _on_engine_failed(self, event: messages.EngineFailed) -> None:
        if event.origin == "request":  # a program that did not issue a request whose outcome was sent ahead
            self._replay.require_complete(self.ledger)
        self._on_external_stop(event)

    def _on_external_stop(self, event: Any) -> None:
        self._finish_with_error(ending_errors.make_external_stop_error(event, self.settings))

    def _finish_with_error(self, error: CodeModeError) -> None:
        self._finish(Failed(error))

    def _finish(self, ending: events.Ending) -> None:
        if self._replay.has_record:
            self._replay.append_missing_entries_and_deliveries(self.ledger)
        self.ending = ending
        self._effects.append(FinishInvocation(ending))

    HANDLERS: ClassVar[dict[type, Callable[[Invocation, Any], None]]] = {
        messages.ProgramAnalysed: _on_analysed,
        messages.CallRequested: _on_request,
        messages.RequestWithdrawn: _on_withdrawn,
        messages.ConsoleWritten: _on_output,
        messages.OutputItemWritten: _on_output,
        messages.GuestNotification: _on_output,
        messages.TurnEnded: _on_turn_ended,
        messages.ProgramReturned: _on_returned,
        messages.ProgramThrew: _on_threw,
        messages.EngineFailed: _on_engine_failed,
        events.ProgramAccepted: _on_accepted,
        events.ProgramRefused: _on_refused,
        events.CallSettled: _on_settled,
        events.ToolStarted: _on_tool_started,
        events.PersonAsked: _on_person_asked,
        events.PersonAnswered: _on_person_answered,
        events.DeadlinePassed: _on_deadline_passed,
        events.AbortRequested: _on_external_stop,
        events.WorkerEnded: _on_external_stop,
        events.HostFailed: _on_external_stop,
    }
