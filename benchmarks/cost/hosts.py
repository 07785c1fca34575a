# pyright: reportUnknownVariableType=false
# SimPy does not say of what its requests are generic.
"""A host of the simulation: processors, event loops, zygotes and pools; and the Postgres that all hosts share.

Time is in milliseconds. A processor does one step after the other; a step of the event loop (or of a thread of the same
Python process) holds the loop, then a processor. A run takes a spare worker, and the zygote forks another behind it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

import simpy

from .figures import MOST_ATTEMPTS, Costs, Database, Host, Operation, Traffic

Steps = Generator[Any, Any, None]
_SPARES = 2
_OF_LATE_MS = 50.0
# Of a worker's CPU: how much it has had when it says that it is ready. Moves latency, no throughput.
_BOOT = 0.5
# Of the host's CPU for one run: how much comes before its program is sent.
_BEFORE = 0.5


class Processors:
    """So many steps at a time. A share of one more makes each step longer instead."""

    def __init__(self, env: simpy.Environment, cores: float) -> None:
        self._env = env
        self._all = simpy.Resource(env, max(1, round(cores)))
        self._slower = max(1, round(cores)) / cores
        self._busy, self._looked_at, self._taken_away = 0.0, env.now, 0.0
        self.used_ms = 0.0

    @property
    def idle(self) -> float:
        """The share of them that had nothing to do of late."""
        return 1 - self._busy

    def take(self, milliseconds: float, *, wake: float = 0.0, switch: float = 0.0, goes_first: bool = False) -> Steps:
        """Compute for so long, and ``wake`` more where all slept, ``switch`` where none did.

        What sleeps most of the time, as an event loop, goes first: it interrupts what computes, which ends later then.
        """
        if goes_first and self._all.count == self._all.capacity:
            milliseconds += self.idle * wake + (1 - self.idle) * switch
            self._taken_away += milliseconds
            self.used_ms += milliseconds
            yield self._env.timeout(milliseconds * self._slower)
            return
        with self._all.request() as turn:
            yield turn
            self._look(self._all.count - 1)
            milliseconds += self.idle * wake + (1 - self.idle) * switch
            self.used_ms += milliseconds
            while milliseconds:
                yield self._env.timeout(milliseconds * self._slower)
                milliseconds = 0.0 if goes_first else self._taken_away
                self._taken_away -= milliseconds
            self._look(self._all.count)

    def _look(self, were_busy: int) -> None:
        now = self._env.now
        kept = math.exp((self._looked_at - now) / _OF_LATE_MS)
        self._busy = kept * self._busy + (1 - kept) * were_busy / self._all.capacity
        self._looked_at = now


class Postgres:
    """Its processors, and the two locks that one transaction holds at a time: the store's and the guard's."""

    def __init__(
        self,
        env: simpy.Environment,
        database: Database,
        operations: dict[str, Operation],
        costs: Costs,
        beside: Processors,
    ) -> None:
        self._env = env
        self._asked = {"wake": costs.store_ask_wake, "switch": costs.store_ask}
        self._operations = operations
        self._trip_ms = database.trip_ms
        self._processors = beside if database.is_beside else Processors(env, database.cores)
        self.used_ms = 0.0
        self.locks = {name: simpy.Resource(env, 1) for name in ("store", "guard")}
        self.held_ms = dict.fromkeys(self.locks, 0.0)
        self.done = Counter[str]()

    def ask(self, name: str, process: Process | None) -> Steps:
        """Do one operation, from a host's process or from one of those that are not simulated themselves."""
        operation = self._operations[name]
        self.done[name] += 1
        yield from self._statements(operation, operation.statements - operation.held, process)
        if not operation.lock:
            return
        with self.locks[operation.lock].request() as turn:
            yield turn
            begun = self._env.now
            yield from self._statements(operation, operation.held, process)
            self.held_ms[operation.lock] += self._env.now - begun

    def _statements(self, operation: Operation, count: int, process: Process | None) -> Steps:
        client_ms, server_ms = operation.client_ms / operation.statements, operation.server_ms / operation.statements
        for _ in range(count):
            if process is None:
                yield self._env.timeout(client_ms)
            else:
                yield from process.ask(client_ms)
            yield self._env.timeout(self._trip_ms)
            yield from self._processors.take(server_ms, **self._asked, goes_first=True)
            self.used_ms += server_ms


@dataclass(slots=True)
class Journey:
    """One run from its arrival to its end: how far it is, and whether it shall pause or was decided after a pause."""

    arrived: float
    pauses: bool = False
    was_decided: bool = False
    done: int = 0
    attempts: int = 0
    has_ended: bool = False


class Shared(Protocol):
    """What hosts have in common."""

    env: simpy.Environment
    rng: random.Random
    costs: Costs
    host: Host
    traffic: Traffic
    postgres: Postgres

    def tool_ms(self) -> float:
        """Return how long a tool takes."""
        ...


class Process:
    """A host process: its event loop, its zygote and its pool."""

    def __init__(self, fleet: Shared, machine: Machine) -> None:
        env = fleet.env
        self._fleet, self._machine, self._env = fleet, machine, env
        self._python, self._zygote = simpy.PriorityResource(env, 1), simpy.Resource(env, 1)
        self.slots = simpy.Resource(env, fleet.host.max_workers)
        self._spares = simpy.Container(env, _SPARES, _SPARES)

    def step(self, milliseconds: float) -> Steps:
        """Compute in the event loop."""
        yield from self._computed(milliseconds, 1, wake=self._fleet.costs.host_wake)

    def ask(self, milliseconds: float) -> Steps:
        """Compute in a thread, for a statement to the store."""
        costs = self._fleet.costs
        yield from self._computed(milliseconds, 0, wake=costs.host_ask_wake, switch=costs.host_ask)

    def _computed(self, milliseconds: float, priority: int, **more: float) -> Steps:
        # Python is one thread's at a time. The loop gives it away between two steps, whatever waits for the loop.
        with self._python.request(priority) as turn:
            yield turn
            yield from self._machine.processors.take(milliseconds, goes_first=True, **more)

    def _work(self, milliseconds: float) -> Steps:
        yield from self._machine.processors.take(milliseconds, wake=self._fleet.costs.worker_wake)

    def _fork(self) -> Steps:
        costs, is_quiet = self._fleet.costs, self.slots.count <= 1
        with self._zygote.request() as turn:
            yield turn
            yield from self._machine.processors.take(costs.zygote_run)
        yield from self._machine.processors.take(costs.worker_run * _BOOT + is_quiet * costs.rehearsal)
        yield self._spares.put(1)

    def attempt(self, journey: Journey) -> Steps:
        """Run a program that may have calls behind it until its worker dies, or it ends or asks a person."""
        fleet, costs, calls = self._fleet, self._fleet.costs, self._fleet.traffic.calls
        dies_at = fleet.rng.randrange(max(1, calls)) if fleet.rng.random() < fleet.traffic.failing else -1
        with self._spares.get(1) as spare:
            yield spare
        self._env.process(self._fork())
        yield from self.step(costs.host_run * _BEFORE)
        yield from self._work(costs.worker_run * (1 - _BOOT))
        for call in range(calls + journey.was_decided):
            first = call == 0
            if call >= journey.done:
                yield from self.step(costs.host_call / 2 + first * costs.host_first)
                yield from self._journaled("journal line")
                yield self._env.timeout(fleet.tool_ms())
            if call == dies_at:
                break
            if call >= journey.done:
                yield from self.step(costs.host_call / 2)
                yield from self._journaled("journal line")
                journey.done = call + 1
            yield from self._work(costs.worker_call + first * costs.worker_first)
        else:
            journey.has_ended = dies_at < 0
        if (journey.pauses or journey.was_decided) and journey.has_ended:
            yield from self._work(costs.worker_pause / 2)
            yield from self.step(costs.host_pause / 2)
        yield from self.step(costs.host_run * (1 - _BEFORE))

    def _journaled(self, name: str) -> Steps:
        if self._fleet.traffic.journal:
            yield from self._fleet.postgres.ask(name, self)

    def run(self, journey: Journey) -> Steps:
        """Run a program to its end or its pause, or go on with one that was decided."""
        postgres = self._fleet.postgres
        if journey.was_decided:
            yield from postgres.ask("claim", self)
        with self.slots.request() as slot:
            yield slot
            yield from self._journaled("journal open")
            if journey.was_decided:
                yield from postgres.ask("guard claim", self)
            while journey.attempts < MOST_ATTEMPTS and not journey.has_ended:
                journey.attempts += 1
                if not self._fleet.traffic.journal and not journey.was_decided:
                    journey.done = 0
                yield from self.attempt(journey)
            if journey.was_decided:
                yield from postgres.ask("guard record", self)
            yield from self._journaled("journal end")
        if journey.was_decided:
            yield from postgres.ask("settle", self)
        if journey.pauses and journey.has_ended:
            yield from postgres.ask("put", self)


class Machine:
    """A host: its processors and its processes; what runs on it ends when it goes away."""

    def __init__(self, fleet: Shared) -> None:
        self._fleet = fleet
        self.processors = Processors(fleet.env, fleet.host.cores)
        self.running: set[simpy.Process] = set()
        self.is_up = True
        self._begin()
        if fleet.traffic.host_lasts_s:
            fleet.env.process(self._go_away())

    def _begin(self) -> None:
        self.processes = [Process(self._fleet, self) for _ in range(self._fleet.host.processes)]

    def _go_away(self) -> Steps:
        traffic, rng = self._fleet.traffic, self._fleet.rng
        while True:
            yield self._fleet.env.timeout(rng.expovariate(1 / traffic.host_lasts_s) * 1000)
            if not self._fleet.traffic.host_lasts_s:
                return
            self.is_up = False
            for one in [*self.running]:
                if one.is_alive:
                    one.interrupt()
            yield self._fleet.env.timeout(traffic.restart_s * 1000)
            self._begin()
            self.is_up = True
