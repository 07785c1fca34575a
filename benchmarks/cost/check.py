"""The model beside real hosts under load on this machine, each with the costs of the same round."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..table import CPUS
from .figures import Host, Traffic
from .load import Found, Load, found_of
from .measure import Calibration, calibrated
from .model import Fleet, Outcome, simulated

GOAL = 0.15
_WARM_UP_SECONDS, _SECONDS = 1.0, 6.0


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
    ]


def checked(rounds: int, seconds: float) -> tuple[list[Case], list[Calibration]]:
    """Measure costs and loads in turn, and simulate each load with the costs of its round."""
    found, calibrations = cases(), list[Calibration]()
    for number in range(rounds):
        calibrations.append(calibrated(seconds, number))
        for case in found:
            load = replace(case.load, seconds=seconds, seed=number)
            real = together(found_of([replace(load, seed=load.seed + at * 100) for at in range(case.processes)]))
            cores = CPUS - real.others if case.is_full else calibrations[-1].cores
            case.rounds.append((real, modelled(calibrations[-1], case, real, cores)))
    return found, calibrations


def together(found: list[Found]) -> Found:
    """Return what processes of one host came to that ran at the same time."""
    runs = sum(one.runs for one in found)

    def mean(name: str) -> float:
        return sum(getattr(one, name) * one.runs for one in found) / runs

    others = max(0.0, statistics.mean(one.others for one in found) - sum(one.busy for one in found[1:]))
    return replace(
        found[0],
        runs=runs,
        arriving=sum(one.arriving for one in found),
        others=others,
        mib=sum(one.mib for one in found),
        **{name: mean(name) for name in ("host_ms", "zygote_ms", "worker_ms", "p50_ms", "p99_ms")},
    )


def modelled(calibration: Calibration, case: Case, real: Found, cores: float) -> Outcome:
    """Simulate a case; at random arrive as many as did."""
    load = case.load
    host = Host(cores, case.processes, load.max_workers)
    traffic = Traffic(load.calls, load.latency_ms, real.arriving if load.rate else 0.0, load.in_flight)
    return simulated(Fleet(calibration.costs, host, traffic), _SECONDS, _WARM_UP_SECONDS)


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
