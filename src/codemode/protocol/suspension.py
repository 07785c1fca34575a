"""An invocation that can be suspended and resumed on the same or another worker."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar

from . import events, messages
from .events import OutcomeKept, Rest, RestReason, Send
from .invocation import Invocation
from .ledger import Fulfilled, Ledger, LedgerEntry, Progress, Waiting
from .settings import Settings

# A worker is a cache of the ledger: a program at rest is its text, its settings and its ledger, and a worker that is
# kept only saves replaying them. At rest nothing is sent to a worker. Calls go on, and what becomes of them goes into
# ledger and delivery order at once, as it would if there were none; so it makes no difference whether there is one.
#
# event what it does -----------
# ----------------------------------------------------------------------------------------------- TurnEnded an idle
# guest that has yielded rests, whatever is in flight WaitOver an idle guest with something in flight rests, now or as
# soon as it is idle CallSettled at rest it is kept; during a replay it is delivered behind what was recorded GoOn
# yields are answered, what was kept is handed in, and the guest goes on WorkerEnded at rest it changes nothing
#
# `renewed` gives the invocation that goes on in the place of one whose worker was given up. Its clock measures what
# the guest computes; a replay has one of its own, until `ReplayEnded`.

# What is kept of a call that runs beside its entry: whoever finds it may have to decide what becomes of it.
_ASKED_BYTES = 400


class RestingInvocation(Invocation):
    """The state of one invocation that may rest. ``resting`` says why it does; None: it does not.

    Requests that are ``carried`` run on the host already, begun by the invocation whose ledger was ``recorded``.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        recorded: Ledger | None = None,
        resolved: Collection[int] = (),
        identify: Callable[[Settings, str], Settings] | None = None,
        before: RestingInvocation | None = None,
    ) -> None:
        super().__init__(settings, recorded=recorded, resolved=resolved, identify=identify)
        self.resting: RestReason | None = None
        self.is_replaying = recorded is not None and recorded.progress.turns > 0
        self._old_turns = 0 if recorded is None else recorded.progress.turns
        self._carried: frozenset[int] = frozenset()
        self._invoked: set[int] = set()
        self._yields: list[int] = []  # without an answer yet
        self._kept: list[LedgerEntry] = []  # whose outcomes came at rest
        self._is_cut = False  # whether it rests in the middle of a turn
        self._is_wait_over = False
        self._wait_paused = False
        if recorded is not None:
            self.ledger.progress = recorded.progress
        if before is not None:
            self._carry(before)

    @property
    def has_news(self) -> bool:
        """True at rest when there is something that the guest is handed when it goes on."""
        return bool(self._yields or self._kept or self._is_cut)

    @property
    def yields(self) -> Collection[int]:
        """The requests at which the guest has yielded, without an answer yet."""
        return self._yields

    @property
    def has_work(self) -> bool:
        """True while something runs on the host."""
        return bool(self._work.running)

    @property
    def wait_stands(self) -> bool:
        """True while nothing is outstanding but what a person is being asked."""
        return self._wait_paused

    @property
    def size_bytes(self) -> int:
        """About the bytes of its ledger as it is kept."""
        return self._size.kept_bytes(self.ledger.entries) + _ASKED_BYTES * len(self._work.running)

    @property
    def output(self) -> int:
        """How many items and lines the program has written."""
        return self._written.output

    @property
    def turns(self) -> int:
        """How many turns the guest has had, those included that a replay still has to take again."""
        return max(self._turns.ended, self._old_turns if self.is_replaying else 0)

    def entry(self, request_id: int) -> LedgerEntry:
        """Return what is known of a request, be it that it has not been made again yet."""
        is_ahead = bool(self._carried) and request_id not in self.ledger
        return self._replay[request_id] if is_ahead else self.ledger[request_id]

    def rest_where_it_is(self) -> None:
        """Come to rest without its worker, whatever the guest is doing: what it did not get to it does again."""
        if self.ending is None and self.resting is None:
            self._replay.complete(self.ledger)
            self._is_cut = True
            self.resting = "pending_tools"

    def renewed(self, now_ms: int) -> RestingInvocation:
        """Return the invocation that goes on from here on another worker, with the calls that run. This one is done."""
        self._answer_yields(now_ms)
        self.ledger.progress = Progress(self.output, self.ledger.progress.own_ms, self.turns)
        waiting = self._resolved - self._invoked
        return RestingInvocation(self.settings, recorded=self.ledger, resolved=waiting, before=self)

    def _carry(self, old: RestingInvocation) -> None:
        self.host_errors = old.host_errors
        self._size = old._size
        self._size.is_whole = True
        self._invoked = old._invoked
        self._carried = frozenset(old._work.running)
        self._work.running |= old._work.running
        self._work.calls |= old._work.calls
        self._work.asked |= old._work.asked
        self._work.timers |= old._work.timers

    # -- the table, where it differs

    def _turn_ended(self, event: messages.TurnEnded) -> None:
        if self.is_replaying and self._turns.ended + 1 >= self._old_turns:
            self.is_replaying = False
            self._effects.append(events.ReplayEnded())
        super()._turn_ended(event)

    def _release(self, entry: LedgerEntry) -> None:
        if entry.kind == "yield":
            if entry.is_open:
                self._yields.append(entry.id)
        elif entry.id not in self._carried:
            super()._release(entry)

    def _invoke_held(self) -> None:
        super()._invoke_held()
        if self._resolved:
            self._invoked |= self._resolved & self._work.running

    def _settled(self, event: events.CallSettled) -> None:
        if event.id in self._yields and self.resting is not None:
            self._yields.remove(event.id)
            self._keep(event)
        elif event.id not in self._work.running:
            return
        elif self.resting is not None:
            self._keep(event)
        elif self._carried and self._runs_ahead(event.id):
            self._settle_ahead(event)
        else:
            super()._settled(event)

    def _keep(self, event: events.CallSettled) -> None:
        entry = self._noted(self._taken(event), self.ledger[event.id])
        if not isinstance(entry.outcome, Waiting):
            self.ledger.deliveries.append(entry.id)
            self._kept.append(entry)
        self._effects.append(OutcomeKept(entry.id))
        self._invoke_held()
        self._set_wait(is_idle=True)

    def _taken(self, event: events.CallSettled) -> events.CallSettled:
        """Return how a call has ended as it goes into the ledger; it runs no more."""
        self._work.ended(event.id)
        event = self.admitted(event)
        if event.error is not None:
            self.host_errors[event.id] = event.error
        return event

    def _runs_ahead(self, request_id: int) -> bool:
        """True for a call that runs on while the program has not come to where it was made, or rests now."""
        return request_id in self._carried and (
            request_id not in self.ledger or self._replay.is_unfinished(self.ledger)
        )

    def _settle_ahead(self, event: events.CallSettled) -> None:
        event = self._taken(event)
        was = self.entry(event.id)
        entry = self._replay.settle(event)
        self._changed_ahead(was, entry)
        if not isinstance(entry.outcome, Waiting):
            self._effects.append(Send(entry.delivery()))

    def _changed_ahead(self, was: LedgerEntry, entry: LedgerEntry) -> None:
        self._size.changed(was, entry)
        if entry.id in self.ledger:
            self.ledger.entries[entry.id - 1] = entry

    def _execution_started(self, event: events.ExecutionStarted) -> None:
        if self._carried and event.id in self._work.running and self._runs_ahead(event.id):
            was = self.entry(event.id)
            self._changed_ahead(was, self._replay.start(event))
        else:
            super()._execution_started(event)

    def _rest(self) -> None:
        if self.js is None:
            return
        if self.resting is not None:
            self._set_wait(is_idle=True)
            return
        is_idle = not self._turns.owed
        if is_idle and self._yields:
            self._come_to_rest("yield")
        elif is_idle and self._work.running and self._is_wait_over:
            self._come_to_rest("pending_tools")
        else:
            super()._rest()

    def _come_to_rest(self, reason: RestReason) -> None:
        self._replay.require_seen(self.ledger)
        self.resting = reason
        self._effects.append(Rest(reason))

    def _set_clocks(self, *, is_idle: bool) -> None:
        if is_idle != self._clock_paused:
            self._clock_paused = is_idle
            self._effects.append(events.PauseClock() if is_idle else events.ResumeClock())
        self._set_wait(is_idle=is_idle)

    def _set_wait(self, *, is_idle: bool) -> None:
        work = self._work
        stands = is_idle and not work.timers and bool(work.asked) and work.running == work.asked
        if stands != self._wait_paused:
            self._wait_paused = stands
            self._effects.append(events.PauseWait() if stands else events.ResumeWait())

    def _wait_over(self, _event: events.WaitOver) -> None:
        if self.settings.profile.at_deadline == "fail":
            return self._cut_short(events.DeadlinePassed())
        self._is_wait_over = True
        return self._rest()

    def _gone_on(self, event: events.GoOn) -> None:
        if self.resting is None:
            return
        self._answer_yields(event.now_ms)
        self.resting = None
        self._is_wait_over = self._clock_paused = False
        kept, self._kept = self._kept, []
        for entry in kept:
            self._effects.append(Send(entry.delivery()))
            self._turns.handed()
        self._rest()

    def _answer_yields(self, now_ms: int) -> None:
        yields, self._yields = self._yields, []
        for request_id in yields:
            self._kept.append(self.ledger.settle(request_id, Fulfilled(None), now_ms))
            self.ledger.deliveries.append(request_id)

    def _worker_ended(self, event: events.WorkerEnded) -> None:
        if self.resting is None:
            self._cut_short(event)

    TABLE: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        **Invocation.TABLE,
        messages.TurnEnded: _turn_ended,
        events.CallSettled: _settled,
        events.ExecutionStarted: _execution_started,
        events.WaitOver: _wait_over,
        events.GoOn: _gone_on,
        events.WorkerEnded: _worker_ended,
    }


def answer_yields(ledger: Ledger, now_ms: int) -> list[events.CallSettled]:
    """Let a program that was kept at rest go on from where it has yielded; return what is new in its ledger."""
    yields = [entry.id for entry in ledger.entries if entry.kind == "yield" and entry.is_open]
    settled = [events.CallSettled(request_id, Fulfilled(None), now_ms) for request_id in yields]
    for one in settled:
        ledger.settle(one.id, one.outcome, one.now_ms)
        ledger.deliveries.append(one.id)
    return settled
