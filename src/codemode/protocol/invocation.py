"""One run of one program as a state machine without I/O: events in, effects out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ..cached_property import cached_property
from ..data.json_values import utf8_length
from ..data.large_strings import cut_large_strings, may_have_places
from ..errors import CodeModeBridgeLimitError, CodeModeError, CodeModeProtocolError
from ..profile import HostErrors, SidecarRules
from . import ending_errors, events, messages
from .events import CallSettled, CheckProgram, ExecutionStarted, Failed, Finish, Interrupted, Replayed, Send
from .guest_errors import error_again, rejection
from .guest_output import Writing, Written
from .in_flight import HostWork, Turns, delay_ms
from .ledger import OF_PROGRAMS, Fulfilled, Ledger, LedgerEntry, Outcome, Rejected, Waiting
from .messages import CallRequested
from .references import Contents, Sidecar
from .settings import Settings, analysis_face


class Replay:
    """A recorded ledger beside the one that grows again. Raises `CodeModeProtocolError` where the two differ.

    With ``hides_inputs`` its errors quote none. ``is_empty``: nothing was recorded.
    """

    def __init__(self, recorded: Ledger | None, *, hides_inputs: bool = False) -> None:
        self._hides_inputs = hides_inputs
        self.has_record = recorded is not None
        self._recorded = recorded if recorded is not None else Ledger()
        self.is_empty = not self._recorded.entries

    def entry_for(self, request: CallRequested, ledger: Ledger) -> LedgerEntry | None:
        """Return the recorded entry of a request, None for one that is new."""
        if self.is_empty:
            return None
        if request.id not in self._recorded:
            if self.is_unfinished(ledger):
                raise ending_errors.diverged(request.id, f"{self._text(request)} was not made in the recorded run")
            return None
        recorded = self._recorded[request.id]
        if not recorded.same_request(request):
            raise ending_errors.diverged(request.id, f"recorded {self._text(recorded)}, now {self._text(request)}")
        return recorded

    def _text(self, request: LedgerEntry | CallRequested) -> str:
        return f"{request.kind} {request.name}" if self._hides_inputs else ending_errors.request_text(request)

    def is_unfinished(self, ledger: Ledger) -> bool:
        """True while recorded outcomes are still to be handed in."""
        return len(ledger.deliveries) < len(self._recorded.deliveries)

    def next_delivery(self, ledger: Ledger) -> LedgerEntry | None:
        """Return the entry whose outcome comes next, if its request has been made again."""
        if not self.is_unfinished(ledger):
            return None
        request_id = self._recorded.deliveries[len(ledger.deliveries)]
        has_been_made = request_id in ledger
        return ledger[request_id] if has_been_made else None

    def outcomes(self) -> list[LedgerEntry]:
        """Return the entries whose outcomes are handed in again, in that order."""
        return [self._recorded[request_id] for request_id in self._recorded.deliveries]

    @property
    def recorded(self) -> Ledger:
        """What was recorded, which is empty where nothing was."""
        return self._recorded

    def __getitem__(self, request_id: int) -> LedgerEntry:
        return self._recorded[request_id]

    def settle(self, event: CallSettled) -> LedgerEntry:
        """Record how a request has ended that runs on meanwhile; it is delivered behind the rest. Returns its entry."""
        recorded = self._recorded
        settled = recorded.settle(event.id, event.outcome, event.now_ms, event.shown_json, event.lasted_us)
        entry = recorded.handed(settled)
        if not isinstance(event.outcome, Waiting):
            recorded.deliveries.append(event.id)
        return entry

    def start(self, event: ExecutionStarted) -> LedgerEntry:
        """Record that the tool of such a request begins, and return its entry."""
        return self._recorded.start(event.id, event.executed_input_json, is_approved=event.is_approved)

    def require_seen(self, ledger: Ledger) -> None:
        """A program that ends or comes to rest before all of its record was seen is another program."""
        if self.is_empty:
            return
        if len(ledger.entries) < len(self._recorded.entries) or self.is_unfinished(ledger):
            position = min(len(ledger.entries) + 1, len(self._recorded.entries))
            raise ending_errors.diverged(position, "the program did not get as far as in the recorded run")

    def complete(self, ledger: Ledger) -> None:
        """Add what the replay had not come to yet: a run that is cut short must not forget which calls are done."""
        ledger.entries += self._recorded.entries[len(ledger.entries) :]
        ledger.deliveries += self._recorded.deliveries[len(ledger.deliveries) :]
        ledger.notices = max(ledger.notices, self._recorded.notices)
        ledger.progress = max(ledger.progress, self._recorded.progress)


def sidecar_of(rules: SidecarRules, recorded: Ledger | None) -> Sidecar:
    """Return where an invocation's large strings go, with those that were recorded."""
    return Sidecar(rules) if recorded is None or recorded.sidecar is None else recorded.sidecar


def with_references(recorded: Ledger, rules: SidecarRules, sidecar: Sidecar | None = None) -> Ledger:
    """Return a recorded ledger with the large strings that its program was handed, which follow from its texts.

    They go into an empty ``sidecar`` where there is one.
    """
    sidecar = Sidecar(rules) if sidecar is None else sidecar

    def again(entry: LedgerEntry) -> LedgerEntry:
        if entry.kind != "tool":
            return entry
        outcome, text = entry.outcome, entry.input_json
        if isinstance(outcome, Fulfilled) and outcome.value_json is not None:
            outcome = Fulfilled(outcome.value_json, cut_large_strings(outcome.value_json, rules.threshold_bytes))
        return entry._replace(outcome=outcome, sidecar=sidecar if may_have_places(text) else None)

    entries, deliveries = [again(entry) for entry in recorded.entries], list(recorded.deliveries)
    ledger = Ledger(entries, deliveries, recorded.notices, sidecar, recorded.progress, recorded.contents)
    for request_id in ledger.deliveries:
        ledger.handed(ledger[request_id])
    return ledger


# So that a program which catches that the ledger is full can go on with calls that need little.
_ROOM_FOR_INPUTS = 64 << 10
# What is kept of an entry beside its texts: its keys, its status, and when it was answered.
_ENTRY_BYTES = 130


class LedgerSize:
    """Counts the UTF-8 bytes of the texts in a ledger against ``maximum``.

    Traces and events keep these very texts, so that they are counted too. A call whose input no longer goes in ends the
    program; of one whose outcome does not, the program gets an error instead, as ``told``, and the tool has run.
    """

    def __init__(self, maximum: int, told: HostErrors, sidecar: Sidecar | None = None) -> None:
        self.maximum = maximum
        self._told = told
        self._sidecar = sidecar
        self._bytes = 0
        self.is_whole = False  # whether it has what was recorded, so that it is not counted again
        self.keeps_room = False  # for what was admitted, until it comes into the ledger
        self._kept_for: dict[int, CallSettled] = {}
        self._kept_bytes = 0
        self.last: CallSettled | None = None  # what was admitted last, and how much its outcome takes
        self._last_bytes = 0
        self._entered, self._entries_bytes = 0, 0

    @property
    def bytes(self) -> int:
        """How many there are."""
        return self._bytes

    def kept_bytes(self, entries: Sequence[LedgerEntry]) -> int:
        """Return about how many a kept ledger has, with what stands in it beside the texts of its calls.

        Entries are looked at once, be it that their program makes them again: what is asked for at each rest is cheap.
        """
        for entry in entries[self._entered :]:
            self._entries_bytes += _ENTRY_BYTES + utf8_length(entry.name) + _bytes(entry.tool_call_id)
        self._entered = max(self._entered, len(entries))
        return self._bytes + self._entries_bytes

    def recorded(self, entry: LedgerEntry) -> None:
        """Count an entry of a recorded ledger, which went in once."""
        if self.is_whole:
            return
        self._bytes += _bytes(entry.input_json) + _bytes(entry.executed_input_json) + _outcome_bytes(entry.outcome)

    def issued(self, entry: LedgerEntry) -> None:
        """Count a new request. Raises `CodeModeBridgeLimitError` when it does not go in."""
        text = entry.input_json
        if text is not None:
            self._bytes += len(text) if text.isascii() else utf8_length(text)
        if self._bytes > self.maximum + _ROOM_FOR_INPUTS:
            raise ending_errors.ledger_full(self.maximum)

    def admitted(self, event: CallSettled, entry: LedgerEntry) -> CallSettled:
        """Return how a call ended as far as ledger and sidecar take it: the error of a full one instead.

        What was admitted is so when it is asked about again.
        """
        if event is self.last or entry.kind in OF_PROGRAMS or self._kept_for.get(event.id) is event:
            return event  # what is a program's own has nothing to keep, and does not fail
        size = _outcome_bytes(event.outcome)
        if self._bytes + self._kept_bytes + size > self.maximum:
            error = ending_errors.ledger_full(self.maximum)
        else:
            error = None if self._sidecar is None else self._refusal(event.outcome, self._sidecar)
        if error is not None:
            rejected = rejection(entry, error, self._told)
            event = CallSettled(event.id, rejected, event.now_ms, error, event.shown_json, event.lasted_us)
            size = _outcome_bytes(event.outcome)
        if self.keeps_room:
            self._kept_for[event.id] = event
            self._kept_bytes += size
        self.last, self._last_bytes = event, size
        return event

    def _refusal(self, outcome: Outcome, sidecar: Sidecar) -> CodeModeError | None:
        if not isinstance(outcome, Fulfilled) or outcome.large is None:
            return None
        to_come = [one.outcome for one in self._kept_for.values()]
        before = [one.large for one in to_come if isinstance(one, Fulfilled) and one.large is not None]
        return sidecar.refusal(outcome.large, before)

    def changed(self, was: LedgerEntry, now: LedgerEntry) -> None:
        """Count an entry anew whose call has begun or ended."""
        if self._kept_for and (kept := self._kept_for.pop(now.id, None)) is not None:
            self._kept_bytes -= _outcome_bytes(kept.outcome)
        # Most calls begin with what the guest issued, and have no outcome before the one they end with.
        if now.executed_input_json is not was.executed_input_json:
            self._bytes += _bytes(now.executed_input_json) - _bytes(was.executed_input_json)
        if was.outcome is not None:
            self._bytes -= _outcome_bytes(was.outcome)
        if (outcome := now.outcome) is not None:
            is_measured = self.last is not None and self.last.outcome is outcome
            self._bytes += self._last_bytes if is_measured else _outcome_bytes(outcome)


def _outcome_bytes(outcome: Outcome | None) -> int:
    if isinstance(outcome, Fulfilled):
        text = outcome.value_json or ""
        return len(text) if text.isascii() else utf8_length(text)
    if isinstance(outcome, Rejected):
        return utf8_length(outcome.message) + _bytes(outcome.fields_json)
    if isinstance(outcome, Waiting):
        return utf8_length(outcome.payload_json) + _bytes(outcome.input_json)
    return 0


def _bytes(text: str | None) -> int:
    return 0 if text is None else utf8_length(text)


# The worker owes one turn for the start of the program and one for every delivered outcome. Deliveries may be sent
# ahead; the worker takes them one at a time, in order, so everything below depends only on the order of requests and
# deliveries:
#
# event what it does -------------------
# --------------------------------------------------------------------------------------- ProgramAnalysed CheckProgram;
# the host answers ProgramAccepted or ProgramRefused ProgramAccepted Send(RunProgram); what could not be checked is
# compiled, and told as what it is CallRequested noted; the call is not made before the turn ends, and never if the
# program ends in it TurnEnded Invoke the requests of the turn, in order; with nothing in flight and nobody asked: a
# deadlock RequestWithdrawn a timer that has not fired never does; what has been sent of it the guest takes no notice
# of CallSettled the outcome goes into the ledger and is delivered, or the request waits for somebody; Invoke what had
# no room among the calls at once ProgramReturned a call not delivered, then a call never observed, is an error; else
# the result ProgramThrew the guest's error, or the host's own error when it is the one that answered a request
# anything else ends the invocation with its error
#
# An invocation pauses (`Interrupted`) when the guest is idle, nothing runs on the host and some request waits. A timer
# is a request like any other, but counts as no call, and the clock measures it: it is the program that waits.
#
# With a recorded ledger the guest first has to issue the same requests again. Each is compared, and recorded outcomes
# are delivered in the recorded order, which is sent ahead as a whole; only then do requests that were waiting or
# unknown, and new ones, go out.

_WRITINGS = (messages.ConsoleWritten, messages.ItemWritten, messages.GuestNotice)
_OF_A_RUN = frozenset((messages.CallRequested, messages.RequestWithdrawn, messages.TurnEnded, *_WRITINGS))
_IN_A_TURN = _OF_A_RUN | {messages.ProgramReturned, messages.ProgramThrew}


class Invocation:
    """The state of one invocation. `start` and `receive` return the effects that somebody else performs."""

    def __init__(
        self,
        settings: Settings,
        *,
        recorded: Ledger | None = None,
        resolved: Collection[int] = (),
        identify: Callable[[Settings, str], Settings] | None = None,
    ) -> None:
        self.settings = settings
        self._identify = identify  # by the program, once it is known what the engine is given
        profile = settings.profile
        sidecar = None if profile.sidecar is None else sidecar_of(profile.sidecar, recorded)
        contents = None if recorded is None else recorded.contents
        # It belongs to the invocation (`Contents.under`) once its program is accepted.
        contents = (Contents() if contents is None else contents) if profile.has_content else None
        self.ledger = Ledger(sidecar=sidecar, contents=contents)
        self.js: str | None = None
        self._source: str | None = None  # as it was sent; None for one that goes on
        self._is_asked = False  # the worker, what the program is
        self.ending: events.Ending | None = None
        self._draft: messages.Draft | None = None
        self.host_errors: dict[int, CodeModeError] = {}
        self._resolved = frozenset(resolved)  # requests recorded as waiting that now have an answer
        self._replay = Replay(recorded, hides_inputs=settings.hides_inputs)
        most = settings.limits.max_ledger_bytes
        self._size: LedgerSize = LedgerSize(most, settings.profile.host_errors, self.ledger.sidecar)
        self._effects: list[events.Effect] = []
        self._turn_requests: list[LedgerEntry] = []
        self._turns = Turns(settings, self.ledger)
        self._tool_calls = 0
        self._recorded = recorded
        self._compiles_only = False
        self._work = HostWork()
        self._withdrawals: set[int] = set()
        self._clock_paused = False
        self._is_overdue = False  # the deadline has passed once

    @property
    def ledger_bytes(self) -> int:
        """How many bytes of texts its ledger has."""
        return self._size.bytes

    def start(self, source: str, *, analysis_ms: int | None, known: CheckProgram | None = None) -> list[events.Effect]:
        """Begin. ``analysis_ms`` is the time the worker has to analyse ``source``; None: it is plain JavaScript.

        ``known`` is what an earlier analysis has found: that is compared with the tools, and the worker has none to do.
        """
        if analysis_ms is None:
            return self.receive(events.ProgramAccepted(source))
        self._source = source
        if known is not None:
            return [known]
        self._is_asked = True
        return [Send(messages.AnalyseProgram(source, analysis_ms, analysis_face(self.settings.profile)))]

    def receive(self, event: messages.WorkerMessage | events.HostEvent) -> list[events.Effect]:
        """Return the effects of one event. After the end there are none."""
        if self.ending is not None:
            self._after_end(event)
            return []
        self._effects = []
        kind = type(event)
        try:
            if not self._turns.owed and kind in _IN_A_TURN:
                raise CodeModeProtocolError("the worker spoke out of turn")
            if self._compiles_only and kind in _OF_A_RUN:
                raise CodeModeProtocolError("the worker runs a program that it was to compile")
            self.TABLE[kind](self, event)
        except (CodeModeProtocolError, CodeModeBridgeLimitError) as error:
            self._fail(error)
        return self._effects

    def keep_room(self) -> None:
        """Keep room for what was admitted until it is handed in: others may be admitted before."""
        self._size.keeps_room = True

    def admitted(self, event: events.CallSettled) -> events.CallSettled:
        """Return how a call ended as it will stand in the ledger, which may be full."""
        return self._size.admitted(event, self.entry(event.id))

    def entry(self, request_id: int) -> LedgerEntry:
        """Return what is known of a request that was made."""
        return self.ledger.entries[request_id - 1]

    @cached_property
    def _written(self) -> Written:  # most programs write nothing
        return Written(self.settings, self.ledger, self._recorded)

    # -- the program before it runs

    def _analysed(self, event: messages.ProgramAnalysed) -> None:
        if not self._is_asked:  # each answer is checked, which may take long
            raise CodeModeProtocolError("the worker analysed a program that it was not asked about, or twice")
        self._is_asked = False
        if event.js is None:
            self._refused(events.ProgramRefused(event.problems))
        else:
            self._draft = event.draft
            self._effects.append(CheckProgram(event.js, event.facts, event.size))

    def _accepted(self, event: events.ProgramAccepted) -> None:
        if self.js is not None:
            raise CodeModeProtocolError("a program was accepted while another one runs")
        self.js = event.js
        settings, given_json = self.settings, event.given_json
        if event.settings is not None:
            settings = event.settings
        elif given_json is not None or self._identify is not None:
            settings = self.identified(event)
        self.settings = settings
        if self._source not in (None, event.js):
            self.settings = replace(self.settings, source=self._source)
        if event.settings is not None:  # an earlier host may have begun it under other limits
            self._turns = Turns(self.settings, self.ledger)
            self._size.maximum = self.settings.limits.max_ledger_bytes
        if self.ledger.contents is not None:
            recorded = event.recorded and event.recorded.contents
            self.ledger.contents.under(self.settings.limits, self.settings.salt, recorded)
        self._compiles_only = event.compile_only
        if event.recorded is not None:
            self._replay = Replay(event.recorded, hides_inputs=self.settings.hides_inputs)
            self._recorded = event.recorded
            vars(self).pop("_written", None)
        self._turns.owed = 1
        self._effects.append(Send(self.settings.program(event.js, self._draft, event.compile_only, event.with_places)))
        # Sent ahead, and accounted for when their requests are made again: each that is waited for would cost a trip.
        if not self._replay.is_empty:
            self._effects += [Send(entry.delivery()) for entry in self._replay.outcomes()]

    def identified(self, event: events.ProgramAccepted) -> Settings:
        """Return the settings under which an accepted program runs, unless it has others."""
        given_json, settings = event.given_json, self.settings
        settings = settings if given_json is None else settings.giving(given_json)
        return settings if self._identify is None else self._identify(settings, event.js)

    def _refused(self, event: events.ProgramRefused) -> None:
        self._fail(ending_errors.not_analysable(self._draft) if event.is_unclear else ending_errors.refusal(event))

    # -- turns

    def _requested(self, event: messages.CallRequested) -> None:
        ledger = self.ledger
        if event.id != len(ledger.entries) + 1:
            raise CodeModeProtocolError(f"the worker used request id {event.id} out of order")
        if event.kind not in self.settings.profile.request_kinds:
            raise CodeModeProtocolError(f"the worker made a request of kind {event.kind!r}, which this program has not")
        if event.kind == "state" and not self.settings.state:
            raise CodeModeProtocolError("the worker asks for state, which this program has not")
        if event.kind == "timer":
            delay_ms(event.name, event.input_json)
        self._turns.issued(event.kind)
        tool_call_id = None
        if event.kind == "tool":
            self._tool_calls += 1
            tool_call_id = f"{self.settings.outer_tool_call_id}:tool-{self._tool_calls}"
        entry = None if self._replay.is_empty else self._replay.entry_for(event, ledger)
        if entry is not None:
            self._size.recorded(entry)
        else:
            entry = ledger.issue(event, tool_call_id)
            self._size.issued(entry)
        ledger.entries.append(entry)
        self._turn_requests.append(entry)

    def _withdrawn(self, event: messages.RequestWithdrawn) -> None:
        if event.id not in self.ledger or self.ledger[event.id].kind != "timer" or event.id in self._withdrawals:
            raise CodeModeProtocolError(f"the worker withdraws request {event.id}, which is no timer that runs")
        self._withdrawals.add(event.id)
        if self.ledger[event.id].is_open:  # else it had fired, and the guest takes no notice of that
            self.ledger.withdraw(event.id)
            if self._work.withdraw(event.id):
                self._effects.append(events.StopTimer(event.id))

    def _turn_ended(self, event: messages.TurnEnded) -> None:
        self._turns.one_ended(event.in_flight)
        requests, self._turn_requests = self._turn_requests, []
        for entry in requests:
            self._release(entry if entry.kind != "timer" else self.ledger[entry.id])
        if not self._replay.is_empty:
            self._pump_replay()
        if self._work.held:
            self._invoke_held()
        self._rest()

    def _release(self, entry: LedgerEntry) -> None:
        outcome = entry.outcome
        if isinstance(outcome, Rejected):
            self.host_errors.setdefault(entry.id, error_again(outcome))
        is_open = outcome is None and not entry.is_withdrawn
        if is_open or (isinstance(outcome, Waiting) and entry.id in self._resolved):
            self._work.held.append(entry)

    def _pump_replay(self) -> None:
        """Hand in recorded outcomes, in the recorded order, as far as their requests have been made again."""
        while (entry := self._replay.next_delivery(self.ledger)) is not None:
            self._effects.append(Replayed(entry))
            self._turns.delivered(entry.id)

    def _invoke_held(self) -> None:
        # Outcomes of calls made now must come after every recorded one.
        if self._work.held and (self._replay.is_empty or not self._replay.is_unfinished(self.ledger)):
            self._effects += self._work.begin(self.settings.limits.max_in_flight_bridge_requests)

    def _settled(self, event: events.CallSettled) -> None:
        if event.id not in self._work.running:
            return
        self._work.ended(event.id)
        ledger, was = self.ledger, self.ledger.entries[event.id - 1]
        if event is not self._size.last:
            event = self._size.admitted(event, was)
        entry = ledger.settle(event.id, event.outcome, event.now_ms, event.shown_json, event.lasted_us)
        self._size.changed(was, entry)
        if ledger.sidecar is not None:
            entry = ledger.handed(entry)
        if event.error is not None:
            self.host_errors[event.id] = event.error
        if not isinstance(event.outcome, Waiting):
            self._effects.append(Send(entry.delivery()))
            self._turns.delivered(event.id)
        if self._work.held:
            self._invoke_held()
        self._rest()

    def _execution_started(self, event: events.ExecutionStarted) -> None:
        if event.id in self._work.running:
            was, text = self.ledger.entries[event.id - 1], event.executed_input_json
            self._size.changed(was, self.ledger.start(event.id, text, is_approved=event.is_approved))

    def _noted(self, event: events.CallSettled, was: LedgerEntry) -> LedgerEntry:
        entry = self.ledger.settle(event.id, event.outcome, event.now_ms, event.shown_json, event.lasted_us)
        self._size.changed(was, entry)
        return entry if self.ledger.sidecar is None else self.ledger.handed(entry)

    def _after_end(self, event: messages.WorkerMessage | events.HostEvent) -> None:
        # What a call did is worth knowing even when the program is gone: a recovery does not ask about it.
        if isinstance(event, events.CallSettled) and event.id in self._work.running:
            self._work.ended(event.id)
            entry = self._noted(self.admitted(event), self.ledger[event.id])
            if not isinstance(entry.outcome, Waiting):
                self.ledger.deliveries.append(event.id)

    def _person_asked(self, event: events.PersonAsked) -> None:
        self._work.person_asked(event.id)
        self._rest()

    def _person_answered(self, event: events.PersonAnswered) -> None:
        self._work.person_answered(event.id)
        self._rest()

    def _rest(self) -> None:
        """Look at what is left to wait for: the guest, the host, a person, or nothing at all."""
        is_idle = not self._turns.owed
        if is_idle and not self._replay.is_empty:
            self._replay.require_seen(self.ledger)
        if is_idle and not self._work.running:
            return self._finish(Interrupted() if self.ledger.waiting else Failed(ending_errors.deadlock()))
        return self._set_clocks(is_idle=is_idle)

    def _set_clocks(self, *, is_idle: bool) -> None:
        work = self._work
        # An idle program waits for others alone: timers are its own, all else by the wall's clock.
        pause = is_idle and not work.timers and (self.settings.limits.clock == "program" or work.running == work.asked)
        if pause != self._clock_paused:
            self._clock_paused = pause
            self._effects.append(events.PauseClock() if pause else events.ResumeClock())

    def _wrote(self, event: Writing) -> None:
        self._effects += self._written.take(event)

    # -- endings

    def _returned(self, event: messages.ProgramReturned) -> None:
        if self._compiles_only:
            return self._fail(ending_errors.not_analysable(self._draft))
        if event.warnings and self.settings.profile.guest.result != "sanitised":
            raise CodeModeProtocolError("the worker cut a result that is taken as it is")
        if not self._replay.is_empty:
            self._replay.require_seen(self.ledger)
        if self.settings.profile.output is not None:
            self._written.value(event.value_json)
        taken, unsent, queued = self.ledger.deliveries[: self._turns.ended], self._turn_requests, self._work.held
        return self._finish(ending_errors.after_return(event, self.settings, self.ledger, taken, unsent, queued))

    def _threw(self, event: messages.ProgramThrew) -> None:
        if event.origin != "syntax":
            self._replay.require_seen(self.ledger)
        taken = self.ledger.deliveries[: self._turns.ended]
        self._fail(ending_errors.after_throw(event, self.settings, self.ledger, taken, self.host_errors))

    def _deadline_passed(self, event: events.DeadlinePassed) -> None:
        may_stop_itself = self._turns.owed and self.settings.profile.guest.stops_itself
        if self._is_overdue or not may_stop_itself:
            return self._cut_short(event)
        self._is_overdue = True
        return self._effects.append(events.GiveGrace())

    def _engine_failed(self, event: messages.EngineFailed) -> None:
        if event.origin == "request":  # a program that did not ask for what it was sent ahead
            self._replay.require_seen(self.ledger)
        self._cut_short(event)

    def _cut_short(self, event: Any) -> None:
        self._fail(ending_errors.cut_short(event, self.settings))

    def _fail(self, error: CodeModeError) -> None:
        self._finish(Failed(error))

    def _finish(self, ending: events.Ending) -> None:
        if self._replay.has_record:
            self._replay.complete(self.ledger)
        self.ending = ending
        self._effects.append(Finish(ending))

    TABLE: ClassVar[dict[type, Callable[[Invocation, Any], None]]] = {
        messages.ProgramAnalysed: _analysed,
        messages.CallRequested: _requested,
        messages.RequestWithdrawn: _withdrawn,
        messages.ConsoleWritten: _wrote,
        messages.ItemWritten: _wrote,
        messages.GuestNotice: _wrote,
        messages.TurnEnded: _turn_ended,
        messages.ProgramReturned: _returned,
        messages.ProgramThrew: _threw,
        messages.EngineFailed: _engine_failed,
        events.ProgramAccepted: _accepted,
        events.ProgramRefused: _refused,
        events.CallSettled: _settled,
        events.ExecutionStarted: _execution_started,
        events.PersonAsked: _person_asked,
        events.PersonAnswered: _person_answered,
        events.DeadlinePassed: _deadline_passed,
        events.AbortRequested: _cut_short,
        events.WorkerEnded: _cut_short,
        events.HostFailed: _cut_short,
    }
