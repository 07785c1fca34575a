"""What a run costs on this machine: its CPU from five loads, its memory from hosts that hold programs."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from ..table import CPUS
from ..whole_process import held_mib
from .figures import Costs, Memory
from .load import Found, Load, found_of

_FEW, _MANY = 2, 10
# With all processors busy and with hardly any, with few calls and with many; and one program at a time.
LOADS: Mapping[str, Load] = {
    "busy, few": Load(_FEW, 10, in_flight=32),
    "busy, many": Load(_MANY, 5, in_flight=32),
    "light, few": Load(_FEW, 60, in_flight=4),
    "light, many": Load(_MANY, 15, in_flight=4),
    "alone": Load(0, 0, in_flight=1),
}
_HELD = (8, 32)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The costs in one round, and how many processors others left to it while it took what it got."""

    costs: Costs
    cores: float


def calibrated(seconds: float, seed: int) -> Calibration:
    """Measure once."""
    found = {name: found_of([replace(load, seconds=seconds, seed=seed)])[0] for name, load in LOADS.items()}
    cores = CPUS - statistics.mean(found[name].others for name in ("busy, few", "busy, many"))
    return Calibration(costs_of(found, cores), cores)


def costs_of(found: Mapping[str, Found], cores: float) -> Costs:
    """Return the costs that explain what was measured with so many processors."""
    idle = {name: max(0.0, 1 - one.busy / cores) for name, one in found.items()}
    host_run, host_call, host_wake = _parts({name: one.host_ms for name, one in found.items()}, idle, steps=2)
    worker_run, worker_call, worker_wake = _parts({name: one.worker_ms for name, one in found.items()}, idle, steps=1)
    return Costs(
        host_run=host_run,
        host_call=host_call,
        host_wake=host_wake,
        zygote_run=statistics.mean(one.zygote_ms for name, one in found.items() if name.startswith("busy")),
        worker_run=worker_run,
        worker_call=worker_call,
        worker_wake=worker_wake,
        rehearsal=max(0.0, found["alone"].worker_ms - worker_run - worker_wake * idle["alone"]),
    )


def _parts(cpu: Mapping[str, float], idle: Mapping[str, float], steps: int) -> tuple[float, float, float]:
    """Return what a run, a call and a wake-up cost; a run has ``steps``, and as many for each call.

    Where others disturb a round, none of them is taken for less than nothing.
    """
    more: list[float] = []
    for much, calls in (("few", _FEW), ("many", _MANY)):
        light, busy = f"light, {much}", f"busy, {much}"
        more.append((cpu[light] - cpu[busy]) / (steps * (calls + 1) * max(0.2, idle[light] - idle[busy])))
    wake = max(0.0, statistics.mean(more))
    few, many = (
        cpu[f"busy, {much}"] - wake * steps * (calls + 1) * min(0.3, idle[f"busy, {much}"])
        for much, calls in (("few", _FEW), ("many", _MANY))
    )
    call = max(0.0, many - few) / (_MANY - _FEW)
    return few - _FEW * call, call, wake


def middle(costs: list[Costs]) -> Costs:
    """Return the median of each."""
    return Costs(*(statistics.median(getattr(one, field.name) for one in costs) for field in fields(Costs)))


def memory() -> Memory:
    """Measure the memory of a host process and of its workers, shared pages as shares. Raises `OSError`."""
    few, many = (held_mib([sys.executable, "-m", "benchmarks.host", "hold", str(count)]) for count in _HELD)
    worker = (many - few) / (_HELD[1] - _HELD[0])
    return Memory(process_mib=few - _HELD[0] * worker, worker_mib=worker)
