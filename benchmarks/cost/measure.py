"""What a run costs on this machine: its CPU from eight loads, its memory from hosts that hold programs."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from ..table import CPUS
from ..whole_process import held_mib
from .figures import OF_A_PAUSE, Costs, Memory, Operation
from .load import Found, found_of
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
    "alone": Load(0, 0, in_flight=1),
}
_ONE_RUN = ("busy, none", "busy, few", "busy, many")
_HELD = (8, 32)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The costs in one round, and how many processors others left to it while it took what it got."""

    costs: Costs
    cores: float


def calibrated(seconds: float, seed: int, dsn: str, operations: Mapping[str, Operation]) -> Calibration:
    """Measure once, with the Postgres of ``dsn``, where each of these operations takes so much alone."""
    found: dict[str, Found] = {}
    for name, load in LOADS.items():
        kept = dsn if name == "busy, stored" else ""
        found[name] = found_of([replace(load, seconds=seconds, seed=seed, dsn=kept)])[0]
    cores = CPUS - statistics.mean(found[name].others for name in _ONE_RUN)
    return Calibration(costs_of(found, cores, operations), cores)


def costs_of(found: Mapping[str, Found], cores: float, operations: Mapping[str, Operation]) -> Costs:
    """Return the costs that explain what was measured with so many processors."""
    idle = {name: max(0.0, 1 - one.busy / cores) for name, one in found.items()}
    host = _parts({name: one.host_ms for name, one in found.items()}, idle, steps=2, replays=0)
    worker = _parts({name: one.worker_ms for name, one in found.items()}, idle, steps=1, replays=1)
    asked = [operations[name] for name in OF_A_PAUSE]
    statements, stored = sum(one.statements for one in asked), found["busy, stored"]
    unstored = (1 - _STORED) * found["busy, few"].host_ms + _STORED * found["busy, pausing"].host_ms
    in_host = (stored.host_ms - unstored) / _STORED - sum(one.client_ms for one in asked)
    in_store = stored.store_ms / _STORED - sum(one.server_ms for one in asked)
    return Costs(
        host_run=host.run,
        host_first=host.first,
        host_call=host.call,
        host_wake=host.wake,
        host_pause=host.pause,
        host_switch=max(0.0, in_host / statements),
        zygote_run=statistics.mean(found[name].zygote_ms for name in _ONE_RUN),
        worker_run=worker.run,
        worker_first=worker.first,
        worker_call=worker.call,
        worker_wake=worker.wake,
        worker_pause=worker.pause,
        rehearsal=max(0.0, found["alone"].worker_ms - worker.run - worker.wake * idle["alone"]),
        store_switch=max(0.0, in_store / statements),
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a run costs, its first call beside what each one does, a call, a wake-up and a pause."""

    run: float
    first: float
    call: float
    wake: float
    pause: float


def _parts(cpu: Mapping[str, float], idle: Mapping[str, float], *, steps: int, replays: int) -> _Parts:
    """Return the parts of what loads took; a run has ``steps``, and as many for each call. ``replays``: 1 where calls
    before a pause are gone through once more after it.

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
    # A run that pauses is two, of which the second ends with a call that the first has asked for.
    pausing = cpu["busy, pausing"] - wake * steps * (2 * _FEW + 3) * min(0.3, idle["busy, pausing"])
    pause = max(0.0, pausing - 2 * none - (1 + replays) * first - (_FEW + 1 + replays * _FEW) * call)
    return _Parts(none, first, call, wake, pause)


def middle(costs: list[Costs]) -> Costs:
    """Return the median of each."""
    return Costs(*(statistics.median(getattr(one, field.name) for one in costs) for field in fields(Costs)))


def memory() -> Memory:
    """Measure the memory of a host process and of its workers, shared pages as shares. Raises `OSError`."""
    few, many = (held_mib([sys.executable, "-m", "benchmarks.host", "hold", str(count)]) for count in _HELD)
    worker = (many - few) / (_HELD[1] - _HELD[0])
    return Memory(process_mib=few - _HELD[0] * worker, worker_mib=worker)
