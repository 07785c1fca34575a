"""The model beside real hosts under load on this machine, each with the costs of the same round."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from ..stores import own_cluster
from ..table import CPUS
from .clocks import server_of
from .figures import Costs, Database, Host, Operation, Traffic
from .load import Found
from .measure import Calibration, Pace, calibrated
from .model import Fleet, Outcome, simulated
from .runs import Load
from .stored import measured, operation_of, statements_of

GOAL = 0.15
_WARM_UP_SECONDS, _SECONDS = 1.0, 15.0
_WARM_UP_ANSWERS = 3.0
_ASKED = 150
_ANSWER_S = 0.7


@dataclass(slots=True)
class Case:
    """A load that no cost was taken from. ``is_full``: it takes all processors that others leave to it."""

    what: str
    load: Load
    is_full: bool = True
    processes: int = 1
    rounds: list[tuple[Found, Outcome]] = field(default_factory=list[tuple[Found, Outcome]])

    def off(self, measured: Callable[[Found], float], modelled: Callable[[Outcome], float]) -> float:
        """Return by how much the model is off, as a share of what was measured: the median of the rounds."""
        return statistics.median(modelled(model) / measured(real) - 1 for real, model in self.rounds)


def cases() -> list[Case]:
    """Return what is run."""
    return [
        Case("no call, 8 in flight", Load(0, 0, in_flight=8)),
        Case("3 calls of 20 ms, 32 in flight", Load(3, 20, in_flight=32)),
        Case("5 calls of 5 ms, 16 in flight", Load(5, 5, in_flight=16)),
        Case("3 calls of 50 ms, 64 in flight", Load(3, 50, in_flight=64, max_workers=64)),
        Case("3 calls of 10 ms, 64 for 16 workers", Load(3, 10, in_flight=64, max_workers=16)),
        Case("3 calls of 20 ms, 2 processes with 16", Load(3, 20, in_flight=16), processes=2),
        Case("3 calls of 50 ms, 8 in flight", Load(3, 50, in_flight=8), is_full=False),
        Case("3 calls of 50 ms, 60 a second", Load(3, 50, rate=60), is_full=False),
        Case("3 calls of 50 ms, 150 a second", Load(3, 50, rate=150, max_workers=64), is_full=False),
        Case("3 calls of 20 ms, 32 in flight, 25% killed", Load(3, 20, in_flight=32, failing=0.25)),
        Case("3 calls of 50 ms, 60 a second, 25% killed", Load(3, 50, rate=60, failing=0.25), is_full=False),
        Case("3 calls of 20 ms, 32 in flight, 10% pause", Load(3, 20, in_flight=32, pausing=0.1, answer_s=_ANSWER_S)),
        Case(
            "3 calls of 50 ms, 40 a second, 20% pause",
            Load(3, 50, rate=40, pausing=0.2, answer_s=_ANSWER_S),
            is_full=False,
        ),
    ]


def checked(rounds: int, seconds: float) -> tuple[list[Case], list[Calibration]]:
    """Measure costs and loads in turn, and simulate each load with the costs of its round.

    Raises `OSError` where there is no Postgres.
    """
    found, calibrations = cases(), list[Calibration]()
    with ExitStack() as stack:
        dsn = own_cluster(stack)
        if dsn is None:
            raise OSError("without Postgres nothing can be said of pauses")
        statements = asyncio.run(statements_of(dsn))
        for number in range(rounds):
            asked = measured(dsn, server_of(dsn), 1, _ASKED, 1, f"round {number} ")
            operations = {name: operation_of(name, one, statements[name]) for name, one in asked.items()}
            pace = Pace(number)
            calibrations.append(calibrated(seconds, pace, number, dsn, operations))
            for case in found:
                load = replace(case.load, seconds=seconds, seed=number, dsn=dsn if case.load.pausing else "")
                real = pace.during(load, case.processes)
                cores = CPUS - real.others if case.is_full else calibrations[-1].cores
                case.rounds.append((real, modelled(calibrations[-1].costs, operations, case, real, cores)))
    return found, calibrations


def modelled(costs: Costs, operations: dict[str, Operation], case: Case, real: Found, cores: float) -> Outcome:
    """Simulate a case on a machine as fast as it was then; at random arrive, pause and die as many as did.

    Postgres, where it is asked, is on the same processors.
    """
    load = case.load
    costs, operations = costs.times(real.slowness), {name: one.times(real.slowness) for name, one in operations.items()}
    host = Host(cores, case.processes, load.max_workers)
    traffic = Traffic(
        load.calls,
        load.latency_ms,
        real.arriving if load.rate else 0.0,
        load.in_flight,
        pausing=real.pausing,
        answer_s=load.answer_s,
        failing=real.failing,
    )
    fleet = Fleet(costs, host, traffic, operations=operations, database=Database(trip_ms=0.0, is_beside=True))
    return simulated(fleet, _SECONDS, _WARM_UP_SECONDS + _WARM_UP_ANSWERS * load.answer_s)


def check_table(found: list[Case]) -> str:
    """Return a line for each case: what was measured and modelled, medians, and by how much the model is off."""
    lines = [
        "| load | runs/s | model | off | CPU, ms a run | model | off | p50, ms | model | p99, ms | model | load |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case in found:
        real, model = zip(*case.rounds, strict=True)
        cells = [case.what]
        for name, is_judged in (("rate", True), ("cpu_ms", True), ("p50_ms", False), ("p99_ms", False)):
            cells += [f"{statistics.median(getattr(one, name) for one in side):.3g}" for side in (real, model)]
            if is_judged:
                cells.append(
                    f"{case.off(lambda one, n=name: getattr(one, n), lambda one, n=name: getattr(one, n)):+.0%}"
                )
        loads = [one.load for one in real]
        lines.append("| " + " | ".join([*cells, f"{min(loads):.0f} to {max(loads):.0f}"]) + " |")
    return "\n".join(lines)


def worst(found: list[Case]) -> float:
    """Return the largest difference in runs a second or CPU."""
    return max(
        max(
            abs(case.off(lambda one: one.rate, lambda one: one.rate)),
            abs(case.off(lambda one: one.cpu_ms, lambda one: one.cpu_ms)),
        )
        for case in found
    )
