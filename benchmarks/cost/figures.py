"""What was measured, and what is asked of the model: values alone, as JSON too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_name("measured.json")
MOST_ATTEMPTS = 3
OF_A_PAUSE = ("put", "decide", "claim", "guard claim", "guard record", "settle")


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU of one run, in milliseconds: once for the run, and again for each of its calls.

    ``first``: what the first call of a run costs more than each other one: a worker that calls nothing never sleeps in
    the middle of its program, and writes fewer pages. ``wake``: what a step of the host, and of a worker, costs more
    where all processors slept: caches are cold, and nothing else is done at one go with it. ``rehearsal``: what a spare
    worker takes that is made while at most one program runs. ``pause``: what asking a person and going on takes, beside
    what a program with its calls does before and after; half of it each. ``ask``: what each statement to a store takes
    more than one that is asked behind another: in the host (``host_ask``, where no processor sleeps and its event loop
    has Python meanwhile; ``host_ask_wake``, where all did) and in Postgres. ``several``: how many times as much all of
    it takes where several processes of a host share its processors.
    """

    host_run: float
    host_first: float
    host_call: float
    host_wake: float
    host_pause: float
    host_ask: float
    host_ask_wake: float
    zygote_run: float
    worker_run: float
    worker_first: float
    worker_call: float
    worker_wake: float
    worker_pause: float
    rehearsal: float
    store_ask: float
    store_ask_wake: float
    several: float

    def times(self, factor: float) -> Costs:
        """Return them where everything takes so many times as long."""
        return replace(Costs(*(getattr(self, one.name) * factor for one in fields(Costs))), several=self.several)

    def on(self, host: Host) -> Costs:
        """Return them on such a host."""
        return self.times(self.several) if host.processes > 1 else self

    def run_ms(self, calls: int) -> float:
        """Return the CPU of a run in all processes while none of them sleeps."""
        run, first = self.zygote_run + self.worker_run, self.worker_first if calls else 0.0
        return self.loop_ms(calls) + run + first + calls * self.worker_call

    def loop_ms(self, calls: int) -> float:
        """Return the part of it that is the event loop's, which has one processor at the most."""
        return self.host_run + (self.host_first if calls else 0.0) + calls * self.host_call


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB: a host process with zygote and two spare workers, and each worker that runs."""

    process_mib: float
    worker_mib: float


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that is asked of a store: milliseconds of CPU of the host and of the database, and its statements.

    Each statement is a round trip. The last ``held`` of them hold ``lock``, "store" or "guard", which one transaction
    of all hosts has at a time.
    """

    name: str
    client_ms: float
    server_ms: float
    statements: int
    held: int = 0
    lock: str = ""

    def times(self, factor: float) -> Operation:
        """Return it on a machine that takes so many times as long."""
        return replace(self, client_ms=self.client_ms * factor, server_ms=self.server_ms * factor)


@dataclass(frozen=True, slots=True)
class Figures:
    """All of it, with what it was measured on. ``rates``: so many a second, by operation and processes."""

    machine: str
    load: str
    costs: Costs
    memory: Memory
    operations: Mapping[str, Operation] = field(default_factory=dict[str, Operation])
    pause_bytes: Mapping[str, float] = field(default_factory=dict[str, float])
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    local_trip_ms: float = 0.0

    def write(self, path: Path = KEPT) -> None:
        """Write them as JSON."""
        path.write_text(json.dumps(rounded(asdict(self)), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path = KEPT) -> Figures:
        """Read what was written. Raises `OSError` and `ValueError`."""
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found["costs"], found["memory"] = Costs(**found["costs"]), Memory(**found["memory"])
        found["operations"] = {name: Operation(**one) for name, one in found["operations"].items()}
        return cls(**found)


@dataclass(frozen=True, slots=True)
class Host:
    """A machine with so many processors and host processes, each with a pool of ``max_workers``.

    ``cores`` may be a share of one more, where others use the machine too.
    """

    cores: float
    processes: int = 1
    max_workers: int = 32


@dataclass(frozen=True, slots=True)
class Traffic:
    """What comes. ``rate`` a second for each host, at random; or ``in_flight`` in each process, without end.

    Tools take an exponential time of ``latency_ms``; ``pausing`` is the share of runs that end with a call more, which
    waits for a person, whose answer takes ``answer_s`` on average; ``failing`` that of workers that die in the middle,
    during a call, and whose run is begun again, ``MOST_ATTEMPTS`` times in all. A host goes away every
    ``host_lasts_s`` (0: never) for ``restart_s``. ``journal``: each step is written.
    """

    calls: int = 3
    latency_ms: float = 100.0
    rate: float = 0.0
    in_flight: int = 0
    pausing: float = 0.0
    answer_s: float = 1800.0
    failing: float = 0.0
    host_lasts_s: float = 0.0
    restart_s: float = 30.0
    journal: bool = False


@dataclass(frozen=True, slots=True)
class Database:
    """The Postgres of all hosts: processors, or ``is_beside`` and on those of the first host; and the milliseconds of a
    round trip to it."""

    cores: int = 8
    trip_ms: float = 0.3
    is_beside: bool = False


def rounded(value: Any) -> Any:
    """Return JSON with four significant digits."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return float(f"{value:.4g}") if isinstance(value, float) else value
