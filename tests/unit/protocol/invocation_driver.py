"""Drives an `Invocation` against a simulated kernel: outcomes in any order, frames pipelined in any way."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection
from random import Random
from typing import Any

import invocation_settings
from invocation_settings import limited
from simulated_kernel import Program, SimulatedKernel

from codemode.errors import CodeModeToolError
from codemode.protocol import events
from codemode.protocol.invocation import Invocation
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, Rejected, Waiting
from codemode.protocol.messages import DeliverError, DeliverValue, RunProgram, WorkerMessage
from codemode.protocol.settings import InvocationSettings

SETTINGS = limited(
    invocation_settings.SETTINGS,
    timeout_ms=30_000,
    max_result_bytes=1 << 20,
    max_tool_input_bytes=1 << 20,
    max_bridge_requests=256,
    max_in_flight_bridge_requests=32,
    max_catalog_requests=4,
)

Answer = Callable[[LedgerEntry], events.CallSettled]


def fulfil(entry: LedgerEntry) -> events.CallSettled:
    """Every call returns its own name."""
    return events.CallSettled(entry.id, Fulfilled(json.dumps(entry.name)), 2_000 + entry.id)


def reject(entry: LedgerEntry) -> events.CallSettled:
    error = CodeModeToolError(f"{entry.name} failed")
    return events.CallSettled(
        entry.id, Rejected("CodeModeToolError", error.message, error.code), 2_000 + entry.id, error
    )


def wait(entry: LedgerEntry) -> events.CallSettled:
    return events.CallSettled(entry.id, Waiting(f"interrupt-{entry.id}", "{}", entry.input_json, 1), 2_000 + entry.id)


class Run:
    """One invocation on the way. ``steps`` says in which order things happen; every choice is a legal one."""

    def __init__(
        self,
        program: Program,
        *,
        settings: InvocationSettings = SETTINGS,
        answer: Answer = fulfil,
        steps: Random | None = None,
        recorded: Ledger | None = None,
        resolved: Collection[int] = (),
        asks: bool = False,
        kernel: type[SimulatedKernel] = SimulatedKernel,
    ) -> None:
        self.kernel = kernel(program, settings)
        self.machine = Invocation(settings, recorded=recorded, answered_ids=resolved)
        self.invoked: list[int] = []
        self.sent: list[DeliverValue | DeliverError] = []
        self.replayed: list[int] = []
        self.outcomes: dict[int, events.CallSettled] = {}
        self.steps_taken = 0
        self.clock_paused = False
        self._answer = answer
        self._steps = steps if steps is not None else Random(0)
        self._asks = asks
        self._asked: set[int] = set()
        self._timers: set[int] = set()  # of those that run
        self._running: dict[int, LedgerEntry] = {}
        self._to_worker: deque[RunProgram | DeliverValue | DeliverError] = deque()
        self._to_host: deque[WorkerMessage] = deque()
        self._turns_read = 0
        self._perform(self.machine.start("program", analysis_ms=None))

    @property
    def ending(self) -> events.Ending | None:
        return self.machine.ending

    @property
    def ledger(self) -> Ledger:
        return self.machine.ledger

    def recording(self) -> Ledger:
        """Return what a continuation of this moment would store."""
        return Ledger(list(self.ledger.entries), list(self.ledger.deliveries))

    def finish(self) -> events.Ending:
        """Go on to the end. Every choice ahead is taken sooner or later, so an end that never comes is a fault."""
        while self.ending is None:
            assert self.step(), "nothing is left to happen, and the invocation has not ended"
        return self.ending

    def stop(self) -> None:
        """End in the middle; some of the calls that run are done a little later."""
        self._perform(self.machine.receive(events.DeadlinePassed()))
        while self._running and self._steps.random() < 0.7:
            self._call_settles()

    def step(self) -> bool:
        """Let one thing happen; False when nothing can."""
        choices: list[Callable[[], None]] = []
        if self._to_worker and not self.kernel.finished:
            choices.append(self._worker_takes_a_frame)
        if self._to_host:
            choices.append(self._host_reads_a_message)
        if self._running:
            choices.append(self._call_settles)
            if self._asks and self._running.keys() - self._timers:
                choices.append(self._person_acts)
        if not choices or self.ending is not None:
            return False
        self.steps_taken += 1
        self._steps.choice(choices)()
        return True

    def _worker_takes_a_frame(self) -> None:
        message = self._to_worker.popleft()
        turn = self.kernel.run() if isinstance(message, RunProgram) else self.kernel.deliver(message)
        self._to_host.extend(turn)

    def _host_reads_a_message(self) -> None:
        message = self._to_host.popleft()
        self._turns_read += type(message).__name__ == "TurnEnded"
        self._perform(self.machine.receive(message))

    def _call_settles(self) -> None:
        request_id = self._steps.choice(sorted(self._running))
        if request_id not in self._timers and self._steps.random() < 0.5:
            self._perform(self.machine.receive(events.ToolStarted(request_id, None, is_approved=False)))
        settled = self._answer(self._running.pop(request_id))
        self._asked.discard(request_id)
        self._timers.discard(request_id)
        self.outcomes[request_id] = settled
        self._perform(self.machine.receive(settled))

    def _person_acts(self) -> None:
        request_id = self._steps.choice(sorted(self._running.keys() - self._timers))
        if request_id in self._asked:
            self._asked.discard(request_id)
            self._perform(self.machine.receive(events.PersonAnswered(request_id)))
        else:
            self._asked.add(request_id)
            self._perform(self.machine.receive(events.PersonAsked(request_id)))

    def _perform(self, effects: list[events.Effect]) -> None:
        for position, effect in enumerate(effects):
            match effect:
                case events.SendMessage(message):
                    assert isinstance(message, RunProgram | DeliverValue | DeliverError)
                    if not isinstance(message, RunProgram):
                        self.sent.append(message)
                    self._to_worker.append(message)
                case events.PerformRequest(entry):
                    assert entry.id not in self.invoked, "a request was invoked twice"
                    self.invoked.append(entry.id)
                    self._running[entry.id] = entry
                case events.StartTimers(entries):
                    self.invoked += [entry.id for entry in entries]
                    self._running |= {entry.id: entry for entry in entries}
                    self._timers |= {entry.id for entry in entries}
                case events.CancelTimer(request_id):
                    self._timers.remove(request_id)
                    del self._running[request_id]
                case events.ReportReplayedRequest(entry):
                    self.replayed.append(entry.id)
                case events.PauseDeadlineClock():
                    assert not self.clock_paused
                    self.clock_paused = True
                case events.ResumeDeadlineClock():
                    assert self.clock_paused
                    self.clock_paused = False
                case events.FinishInvocation():
                    assert position == len(effects) - 1, "something happens after the end"
                case _:
                    raise AssertionError(f"unexpected effect {effect}")
        assert len(self._running) - len(self._timers) <= self.machine.settings.limits.max_in_flight_bridge_requests
        if self.ending is None:
            guest_is_idle = self._turns_read == 1 + len(self.sent)
            running = set(self._running)
            stands = running == self._asked or not self.machine.settings.limits.timeout_includes_tools
            assert self.clock_paused == (guest_is_idle and bool(running) and stands and not self._timers)


def with_limits(**limits: Any) -> InvocationSettings:
    return limited(SETTINGS, **limits)
