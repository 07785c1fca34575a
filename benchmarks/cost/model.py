"""The simulation: arrivals, pauses and failures over a fleet of hosts, and what it comes to."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import simpy

from .figures import OF_A_PAUSE, Costs, Database, Host, Operation, Traffic
from .hosts import Journey, Machine, Postgres, Process, Steps

_SAMPLE_MS = 5.0


@dataclass(slots=True)
class Counts:
    """What became of runs. Each that arrived has ended once, failed, or is under way."""

    arrived: int = 0
    ended: int = 0
    failed: int = 0
    paused: int = 0
    decided: int = 0
    waiting: int = 0
    moved: int = 0
    took_ms: list[float] = field(default_factory=list[float])


class Fleet:
    """Hosts of one kind, what comes to them, and their Postgres. ``others``: as many hosts more, of which only what
    they ask of Postgres is simulated, as one stream of random arrivals."""

    def __init__(
        self,
        costs: Costs,
        host: Host,
        traffic: Traffic,
        *,
        hosts: int = 1,
        others: int = 0,
        operations: dict[str, Operation] | None = None,
        database: Database | None = None,
        seed: int = 1,
    ) -> None:
        self.env = simpy.Environment()
        self.rng = random.Random(seed)
        costs = costs.on(host)
        self.costs, self.host, self.traffic = costs, host, traffic
        self.machines = [Machine(self) for _ in range(hosts)]
        beside = self.machines[0].processors
        self.postgres = Postgres(self.env, database or Database(), operations or {}, costs, beside)
        self.counts = Counts()
        self._next = 0
        self._has_ended = False
        if traffic.rate:
            self.env.process(self._arrivals(traffic.rate * hosts))
            if others:
                self.env.process(self._elsewhere(traffic.rate * others))
        for machine in self.machines:
            for at in range(host.processes * traffic.in_flight):
                self.env.process(self._again_and_again(machine, at % host.processes))

    def tool_ms(self) -> float:
        """Return how long a tool takes."""
        return self.rng.expovariate(1 / self.traffic.latency_ms) if self.traffic.latency_ms else 0.0

    def stop(self) -> None:
        """Let nothing more arrive; what is under way goes on to its end."""
        self._has_ended = True

    def fill(self, rate: float, horizon_ms: float) -> None:
        """Begin as if ``rate`` runs a second had come to each host for ever: with as many pauses that wait."""
        mean_ms = self.traffic.answer_s * 1000
        waiting = rate * len(self.machines) * self.traffic.pausing * self.traffic.answer_s
        self.counts.waiting = round(waiting)
        self.counts.paused += self.counts.waiting
        if not waiting:
            return
        # What waits has no memory: of those answered within the horizon, the times are those of a Poisson stream.
        at = 0.0
        for _ in range(round(waiting)):
            at += self.rng.expovariate(waiting / mean_ms)
            if at > horizon_ms:
                break
            self.env.process(self._answered(at))

    def _arrivals(self, rate: float) -> Steps:
        while True:
            yield self.env.timeout(self.rng.expovariate(rate / 1000))
            if self._has_ended:
                return
            self.env.process(self._journey(self._arrival()))

    def _arrival(self) -> Journey:
        self.counts.arrived += 1
        return Journey(self.env.now, pauses=self.rng.random() < self.traffic.pausing)

    def _again_and_again(self, machine: Machine, process: int) -> Steps:
        while True:
            yield from self._journey(self._arrival(), machine, process)

    def _process(self) -> tuple[Machine, Process] | None:
        """In turn, as a proxy does; None where no host is up."""
        for _ in self.machines:
            self._next += 1
            machine = self.machines[self._next % len(self.machines)]
            if machine.is_up:
                return machine, machine.processes[self._next // len(self.machines) % len(machine.processes)]
        return None

    def _journey(self, journey: Journey, machine: Machine | None = None, process: int = 0) -> Steps:
        while True:
            found = self._process() if machine is None else (machine, machine.processes[process])
            if found is None:
                yield self.env.timeout(self.traffic.restart_s * 100)
                continue
            running = self.env.process(found[1].run(journey))
            found[0].running.add(running)
            try:
                yield running
                break
            except simpy.Interrupt:
                self.counts.moved += 1
                journey.has_ended = False
            finally:
                found[0].running.discard(running)
        self._count(journey)

    def _count(self, journey: Journey) -> None:
        counts = self.counts
        if not journey.has_ended:
            counts.failed += 1
        elif journey.pauses:
            counts.paused += 1
            counts.waiting += 1
            self.env.process(self._answered(self.rng.expovariate(1 / self.traffic.answer_s) * 1000))
        else:
            counts.ended += 1
        if not journey.was_decided:
            counts.took_ms.append(self.env.now - journey.arrived)

    def _answered(self, after_ms: float) -> Steps:
        yield self.env.timeout(after_ms)
        self.counts.waiting -= 1
        self.counts.decided += 1
        found = self._process()
        yield from self.postgres.ask("decide", found[1] if found else None)
        yield from self._journey(Journey(self.env.now, was_decided=True, done=self.traffic.calls))

    def _elsewhere(self, rate: float) -> Steps:
        asked = asked_by_a_run(self.traffic)
        while True:
            yield self.env.timeout(self.rng.expovariate(rate / 1000))
            for name, times in asked.items():
                for _ in range(int(times) + (self.rng.random() < times % 1)):
                    self.env.process(self.postgres.ask(name, None))


def asked_by_a_run(traffic: Traffic) -> dict[str, float]:
    """Return how often a run asks what of Postgres, on average."""
    pausing = dict.fromkeys(OF_A_PAUSE, traffic.pausing)
    lines = {"journal open": 1.0, "journal line": 2.0 * traffic.calls, "journal end": 1.0} if traffic.journal else {}
    return {name: times for name, times in (pausing | lines).items() if times}


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of them lies; 0 of none."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))] if ranked else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A second of a fleet: ``rate`` runs for each host, ``busy`` processors of each, milliseconds that runs took,
    workers that run ``at_once`` in each and that did ``at_most``; Postgres' processors, and its locks' share of time.
    """

    rate: float
    busy: float
    p50_ms: float
    p99_ms: float
    at_once: float
    at_most: int
    waiting: float
    postgres_busy: float
    store_busy: float
    guard_busy: float
    cpu_ms: float


def simulated(fleet: Fleet, seconds: float, warm_up_seconds: float) -> Outcome:
    """Run a fleet, and return what the time after the warm-up came to."""
    env, counts, postgres = fleet.env, fleet.counts, fleet.postgres
    env.run(until=warm_up_seconds * 1000)
    begun, used = len(counts.took_ms), sum(one.processors.used_ms for one in fleet.machines)
    asked, held = postgres.used_ms, dict(postgres.held_ms)
    sampled: list[int] = []

    def sample() -> Steps:
        while True:
            sampled.append(sum(one.slots.count for machine in fleet.machines for one in machine.processes))
            yield env.timeout(_SAMPLE_MS)

    env.process(sample())
    env.run(until=(warm_up_seconds + seconds) * 1000)
    hosts, took = len(fleet.machines), counts.took_ms[begun:]
    used = sum(one.processors.used_ms for one in fleet.machines) - used
    locks = {name: (postgres.held_ms[name] - held.get(name, 0.0)) / seconds / 1000 for name in postgres.locks}
    return Outcome(
        rate=len(took) / seconds / hosts,
        busy=used / seconds / 1000 / hosts,
        p50_ms=quantile(took, 0.5),
        p99_ms=quantile(took, 0.99),
        at_once=sum(sampled) / len(sampled) / hosts,
        at_most=max(sampled),
        waiting=counts.waiting / hosts,
        postgres_busy=(postgres.used_ms - asked) / seconds / 1000,
        store_busy=locks["store"],
        guard_busy=locks["guard"],
        cpu_ms=used / max(1, len(took)),
    )
