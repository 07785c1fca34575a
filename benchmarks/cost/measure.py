"""What a run costs on this machine: its CPU from nine loads, its memory from hosts that hold programs."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from ..table import CPUS
from ..whole_process import held_mib
from .figures import OF_A_PAUSE, Costs, Memory, Operation
from .load import Found, on_a_host
from .runs import Load

_FEW, _MANY = 2, 10
_STORED = 0.4
# With all processors busy and with hardly any, without a call, with few and with many; and one program at a time.
LOADS: Mapping[str, Load] = {
    "busy, none": Load(0, 0, in_flight=16),
    "busy, few": Load(_FEW, 10, in_flight=32),
    "busy, many": Load(_MANY, 5, in_flight=32),
    "busy, pausing": Load(_FEW, 10, in_flight=32, pausing=1.0, answer_s=0.05),
    "busy, stored": Load(_FEW, 10, in_flight=16, pausing=_STORED, answer_s=0.3),
    "light, few": Load(_FEW, 60, in_flight=4),
    "light, many": Load(_MANY, 15, in_flight=4),
    "light, stored": Load(_FEW, 60, in_flight=4, pausing=_STORED, answer_s=0.3),
    "alone": Load(0, 0, in_flight=1),
}
_ONE_RUN = ("busy, none", "busy, few", "busy, many")
_TELLING, _TELLING_SECONDS = "busy, few", 1.0
_SEVERAL = "busy, few, in two processes"
_HELD = (8, 32)


class Pace:
    """How fast the machine computes, which others change by a third within minutes.

    One load tells: it is run before and after whatever else is measured, and what a run of it takes at first is 1.
    """

    def __init__(self, seed: int) -> None:
        self._load = replace(LOADS[_TELLING], seconds=_TELLING_SECONDS, seed=seed)
        self._first = self._latest = self._taken()

    def during(self, load: Load, processes: int = 1) -> Found:
        """Return what a load in so many processes came to, with its slowness."""
        found, before, self._latest = on_a_host(load, processes), self._latest, self._taken()
        return replace(found, slowness=(before + self._latest) / 2 / self._first)

    def _taken(self) -> float:
        return on_a_host(self._load).cpu_ms


@dataclass(frozen=True, slots=True)
class Calibration:
    """The costs in one round, and how many processors others left to it while it took what it got."""

    costs: Costs
    cores: float


def calibrated(seconds: float, pace: Pace, seed: int, dsn: str, operations: Mapping[str, Operation]) -> Calibration:
    """Measure once, with the Postgres of ``dsn``, where each of these operations takes so much alone."""
    found: dict[str, Found] = {}
    for name, load in LOADS.items():
        kept = dsn if name.endswith("stored") else ""
        found[name] = pace.during(replace(load, seconds=seconds, seed=seed, dsn=kept))
    half = replace(LOADS[_TELLING], seconds=seconds, seed=seed, in_flight=LOADS[_TELLING].in_flight // 2)
    found[_SEVERAL] = pace.during(half, processes=2)
    cores = CPUS - statistics.mean(found[name].others for name in _ONE_RUN)
    return Calibration(costs_of(found, cores, operations), cores)


def costs_of(found: Mapping[str, Found], cores: float, operations: Mapping[str, Operation]) -> Costs:
    """Return the costs that explain what was measured with so many processors."""
    idle = {name: max(0.0, 1 - one.busy / cores) for name, one in found.items()}
    found = {name: one.steady for name, one in found.items()}
    host = _parts({name: one.host_ms for name, one in found.items()}, idle, steps=2, replays=0)
    worker = _parts({name: one.worker_ms for name, one in found.items()}, idle, steps=1, replays=1)
    alone = found["alone"]
    asked = _asked(found, idle, host, [operations[name] for name in OF_A_PAUSE])
    return Costs(
        host_run=host.run,
        host_first=host.first,
        host_call=host.call,
        host_wake=host.wake,
        host_pause=host.pause,
        host_ask=asked["host"][0],
        host_ask_wake=asked["host"][1],
        zygote_run=statistics.mean(found[name].zygote_ms for name in _ONE_RUN),
        worker_run=worker.run,
        worker_first=worker.first,
        worker_call=worker.call,
        worker_wake=worker.wake,
        worker_pause=worker.pause,
        rehearsal=max(0.0, alone.worker_ms - worker.of(0, idle["alone"])),
        store_ask=asked["store"][0],
        store_ask_wake=asked["store"][1],
        several=max(1.0, found[_SEVERAL].cpu_ms / found[_TELLING].cpu_ms),
    )


def _asked(
    found: Mapping[str, Found], idle: Mapping[str, float], host: _Parts, asked: list[Operation]
) -> dict[str, tuple[float, float]]:
    """Return what a statement takes more than alone, in the host and in Postgres: awake, and after sleep."""
    more: dict[str, list[float]] = {"host": [], "store": []}
    statements = sum(one.statements for one in asked)
    for name in ("busy, stored", "light, stored"):
        one, asleep = found[name], idle[name]
        unstored = (1 - one.pausing) * host.of(_FEW, asleep) + one.pausing * host.of_pausing(_FEW, asleep)
        for side, took, alone in (
            ("host", one.host_ms - unstored, sum(each.client_ms for each in asked)),
            ("store", one.store_ms, sum(each.server_ms for each in asked)),
        ):
            more[side].append((took / one.pausing - alone) / statements)
    busy, light = idle["busy, stored"], idle["light, stored"]
    return {side: _line(busy, light, *values) for side, values in more.items()}


def _line(at: float, other: float, value: float, other_value: float) -> tuple[float, float]:
    """Return the values at 0 and 1 of the line through two points, neither below 0."""
    slope = (other_value - value) / max(0.2, other - at)
    return max(0.0, value - slope * at), max(0.0, value + slope * (1 - at))


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a run costs, its first call beside what each one does, a call, a wake-up and a pause."""

    run: float
    first: float
    call: float
    wake: float
    pause: float
    steps: int
    replays: int

    def of(self, calls: int, idle: float) -> float:
        """Return what a run with so many calls costs."""
        return self.run + (self.first + calls * self.call if calls else 0) + self._waking(calls + 1, idle)

    def of_pausing(self, calls: int, idle: float) -> float:
        """Return what one costs that pauses behind them: it is two, of which the second ends with the call asked for.

        Where it ``replays``, calls before a pause are gone through once more after it.
        """
        runs = 2 * self.run + (1 + self.replays) * self.first
        return runs + (calls + 1 + self.replays * calls) * self.call + self.pause + self._waking(2 * calls + 3, idle)

    def _waking(self, times: int, idle: float) -> float:
        return self.wake * self.steps * times * idle


def _parts(cpu: Mapping[str, float], idle: Mapping[str, float], *, steps: int, replays: int) -> _Parts:
    """Return the parts of what loads took; a run has ``steps``, and as many for each call.

    Where others disturb a round, none of them is taken for less than nothing.
    """
    more: list[float] = []
    for much, calls in (("few", _FEW), ("many", _MANY)):
        light, busy = f"light, {much}", f"busy, {much}"
        more.append((cpu[light] - cpu[busy]) / (steps * (calls + 1) * max(0.2, idle[light] - idle[busy])))
    wake = max(0.0, statistics.mean(more))
    none, few, many = (
        cpu[f"busy, {much}"] - wake * steps * (calls + 1) * min(0.3, idle[f"busy, {much}"])
        for much, calls in (("none", 0), ("few", _FEW), ("many", _MANY))
    )
    call = max(0.0, many - few) / (_MANY - _FEW)
    first = max(0.0, few - _FEW * call - none)
    unpaused = _Parts(none, first, call, wake, 0.0, steps, replays)
    pausing = cpu["busy, pausing"] - unpaused.of_pausing(_FEW, min(0.3, idle["busy, pausing"]))
    return replace(unpaused, pause=max(0.0, pausing))


def middle(costs: list[Costs]) -> Costs:
    """Return the median of each."""
    return Costs(*(statistics.median(getattr(one, field.name) for one in costs) for field in fields(Costs)))


def memory() -> Memory:
    """Measure the memory of a host process and of its workers, shared pages as shares. Raises `OSError`."""
    few, many = (held_mib([sys.executable, "-m", "benchmarks.host", "hold", str(count)]) for count in _HELD)
    worker = (many - few) / (_HELD[1] - _HELD[0])
    return Memory(process_mib=few - _HELD[0] * worker, worker_mib=worker)
