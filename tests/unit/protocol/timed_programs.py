"""Simulated programs that set timers, a kernel that has them, and a world in which time passes when nobody acts."""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any

from hypothesis import strategies as st
from invocation_driver import SETTINGS, fulfil, reject, wait
from simulated_kernel import All, AllSettled, Call, Detach, Forget, Promise, Race, Retry, Sequence_, SimulatedKernel

from codemode.protocol import events
from codemode.protocol.invocation import Invocation
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, Waiting
from codemode.protocol.messages import (
    CallRequested,
    DeliverError,
    DeliverValue,
    RequestWithdrawn,
    RunProgram,
    WorkerMessage,
)

TIMED = replace(
    SETTINGS,
    profile=replace(SETTINGS.profile, request_kinds=SETTINGS.profile.request_kinds | {"timer"}, unawaited="abandon"),
)


@dataclass(frozen=True, slots=True)
class Sleep:
    """``await new Promise((done) => setTimeout(done, delay))``."""

    delay: int


@dataclass(frozen=True, slots=True)
class Timeout:
    """``body`` raced against a timer, which is cleared when either is done."""

    body: Any
    delay: int


@dataclass(frozen=True, slots=True)
class Alarm:
    """A timer that is set, and that nobody waits for."""

    delay: int


class TimedKernel(SimulatedKernel):
    """The simulated kernel with timers: one may be cleared until it is delivered, and then that is ignored."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._cleared: set[int] = set()
        self._timers: dict[int, int] = {}

    def deliver(self, message: DeliverValue | DeliverError) -> list[WorkerMessage]:
        if message.id in self._timers:
            self._in_flight += 1
        if message.id in self._cleared:
            self._promises[message.id] = Promise(self._jobs)
        return super().deliver(message)

    async def _evaluate(self, program: Any) -> Any:
        match program:
            case Sleep(delay):
                await self._set(delay)[1]
                return "slept"
            case Alarm(delay):
                self._set(delay)
                return None
            case Timeout(body, delay):
                number, late = self._set(delay)
                try:
                    return await self._race([self._spawn(self._evaluate(body)), late])
                finally:
                    self._clear(number)
            case _:
                return await super()._evaluate(program)

    def _set(self, delay: int) -> tuple[int, Promise]:
        promise = Promise(self._jobs)
        promise.is_observed = True
        request = CallRequested(len(self.issued) + 1, "timer", "setTimeout", str(delay), None)
        self.issued.append(request)
        self._promises[request.id] = promise
        self._timers[request.id] = delay
        self._lines.append(request)
        return request.id, promise

    def _clear(self, number: int) -> None:
        if number not in self._cleared and number not in self.delivered:
            self._cleared.add(number)
            self._lines.append(RequestWithdrawn(number))


_DELAYS = st.integers(0, 12)
_CALLS = st.builds(Call, st.sampled_from(["t", "gated"]), st.integers(0, 3))
_LEAVES = st.one_of(_CALLS, _CALLS, st.builds(Sleep, _DELAYS), st.builds(Alarm, _DELAYS), st.builds(Forget, _CALLS))


def _combined(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = st.lists(children, min_size=1, max_size=4).map(tuple)
    return st.one_of(
        st.builds(Sequence_, parts),
        st.builds(All, parts),
        st.builds(AllSettled, parts),
        st.builds(Race, st.lists(st.one_of(_CALLS, st.builds(Sleep, _DELAYS)), min_size=1, max_size=4).map(tuple)),
        st.builds(Timeout, children, _DELAYS),
        st.builds(lambda body, delay, call: All((Timeout(body, delay), call)), children, _DELAYS, _CALLS),
        st.builds(lambda call, body, delay: Sequence_((call, Timeout(body, delay))), _CALLS, children, _DELAYS),
        st.builds(Retry, children, children),
        st.builds(Detach, children),
    )


def _numbered(program: Any) -> Any:
    numbers = count(1)

    def walk(node: Any) -> Any:
        match node:
            case Call(name):
                return replace(node, name=f"{name}{next(numbers)}")
            case Sequence_(parts) | All(parts) | AllSettled(parts) | Race(parts):
                return replace(node, parts=tuple(walk(part) for part in parts))
            case Retry(body, fallback):
                return Retry(walk(body), walk(fallback))
            case Forget(call):
                return Forget(walk(call))
            case Detach(body):
                return Detach(walk(body))
            case Timeout(body, delay):
                return Timeout(walk(body), delay)
            case _:
                return node

    return walk(program)


timed_programs = _combined(st.recursive(_LEAVES, _combined, max_leaves=8)).map(_numbered)
"""Programs whose calls and timers race each other. Calls named ``gated`` wait for a person."""


class TimedRun:
    """One invocation in a world of its own, in which time passes only when nothing else can happen.

    A gated call of ``pauses`` waits, and is else answered when nothing else runs: a person answers at last.
    """

    def __init__(
        self,
        program: Any,
        *,
        seed: int,
        pauses: bool,
        recorded: Ledger | None = None,
        resolved: Collection[int] = (),
    ) -> None:
        self.kernel = TimedKernel(program, TIMED)
        self.machine = Invocation(TIMED, recorded=recorded, answered_ids=resolved)
        self.set_timers: list[int] = []
        self._seed = seed
        self._steps = Random(seed)
        self._pauses = pauses
        self._now = 0
        self._due: dict[int, tuple[int, LedgerEntry]] = {}
        self._gated: dict[int, LedgerEntry] = {}
        self._to_worker: deque[Any] = deque()
        self._to_host: deque[WorkerMessage] = deque()
        self._perform(self.machine.start("program", analysis_ms=None))

    def finish(self) -> events.Ending:
        while self.machine.ending is None:
            can_work = bool(self._to_worker) and not self.kernel.finished
            if can_work and (not self._to_host or self._steps.random() < 0.5):
                message = self._to_worker.popleft()
                turn = self.kernel.run() if isinstance(message, RunProgram) else self.kernel.deliver(message)
                self._to_host.extend(turn)
            elif self._to_host:
                self._perform(self.machine.receive(self._to_host.popleft()))
            elif self._due:
                request_id = min(self._due, key=lambda one: (self._due[one][0], one))
                self._now, entry = self._due.pop(request_id)
                self._on_call_settled(entry)
            else:
                self._on_call_settled(self._gated.pop(min(self._gated)))
        return self.machine.ending

    def _on_call_settled(self, entry: LedgerEntry) -> None:
        now_ms = TIMED.started_ms + self._now
        if entry.kind == "timer":
            settled = events.CallSettled(entry.id, Fulfilled(None), now_ms)
        else:
            settled = reject(entry) if self._number(entry.name, 10) > 7 else fulfil(entry)
        self._perform(self.machine.receive(settled))

    def _number(self, name: str, below: int) -> int:
        return zlib.crc32(f"{self._seed} {name}".encode()) % below

    def _perform(self, effects: list[events.Effect]) -> None:
        for effect in effects:
            match effect:
                case events.SendMessage(message):
                    self._to_worker.append(message)
                case events.PerformRequest(entry):
                    self._invoke(entry)
                case events.StartTimers(entries):
                    for entry in entries:
                        self.set_timers.append(entry.id)
                        self._due[entry.id] = self._now + int(entry.input_json or ""), entry
                case events.CancelTimer(request_id):
                    del self._due[request_id]
                case _:
                    pass

    def _invoke(self, entry: LedgerEntry) -> None:
        if not entry.name.startswith("gated"):
            self._due[entry.id] = self._now + self._number(entry.name + "?", 12), entry
        elif not self._pauses:
            self._gated[entry.id] = entry
        elif isinstance(entry.outcome, Waiting):
            self._on_call_settled(entry)
        else:
            self._perform(self.machine.receive(wait(entry)))


def outcome_of(run: TimedRun) -> tuple[Any, ...]:
    """What a person sees of how a run has ended, and in which order its program heard of what."""
    ending, ledger = run.machine.ending, run.machine.ledger
    told: Any = ending
    if isinstance(ending, events.Completed):
        told = json.loads(ending.value_json or "null"), [one["name"] for one in ending.abandoned]
    elif isinstance(ending, events.Failed):
        told = ending.error.code, ending.error.message
    made = [(entry.kind, entry.name, entry.input_json, entry.is_withdrawn) for entry in ledger.entries]
    return told, made, list(ledger.deliveries)
