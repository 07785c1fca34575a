"""Codemode beside the public packages that do the same, their rounds interleaved with ours in one run.

`python -m benchmarks.peers.run [--rounds N] [--only ai-sdk,monty] [--json]`, after `python -m benchmarks.peers.install`
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.kept import kept_pool
from benchmarks.latency import SPARE_READY_SECONDS, Latencies
from benchmarks.measure import Samples
from benchmarks.programs import HOLD_JS, PROGRAMS, rows
from benchmarks.scaling import IN_FLIGHT, throughput_rows
from benchmarks.table import Row, machine
from benchmarks.whole_process import cold_rows, memory_rows
from benchmarks.workloads import code_mode_tool

from .install import problems
from .peer import Conversation, Peer, PeerFailedError, PeerSamples, known_peers
from .report import KEPT, Versions, side_by_side

_MEMORY_COUNTS = (0, 8)
_MOST_COLD_STARTS = 5


@dataclass(slots=True)
class Measured:
    """What is known of one peer; figures are by the label of ours that they stand beside."""

    peer: Peer
    conversation: Conversation | None = None
    samples: dict[str, PeerSamples] = field(default_factory=dict[str, PeerSamples])
    figures: dict[str, float] = field(default_factory=dict[str, float])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    absent: str = ""

    def round(self, workload: str, runs: int) -> None:
        """Measure a workload once more; one that failed is not tried again."""
        if workload in self.failures or self.conversation is None:
            return
        request = {"do": "time", "workload": workload, "runs": runs, "gap_ms": SPARE_READY_SECONDS * 1000}
        try:
            answer = self.conversation.ask(request)
        except PeerFailedError as error:
            self.failures[workload] = str(error)
            return
        found = self.samples.setdefault(workload, PeerSamples(Samples(), Samples()))
        found.runs.add(answer["ms"])
        if answer["direct_ms"]:
            found.direct.add(answer["direct_ms"])

    def note(self, label: str, measure: Callable[[], float]) -> None:
        """Keep a figure, or why there is none."""
        if self.absent:
            return
        try:
            self.figures[label] = measure()
        except (PeerFailedError, OSError) as error:
            self.failures[label] = str(error)


def measure(peers: list[Peer], rounds: int, runs: int, seconds: float) -> tuple[list[Row], list[Measured]]:
    """Return our rows and what was found of each peer."""
    absent = problems()
    found = [Measured(peer, absent=absent.get(peer.package, "")) for peer in peers]
    with ExitStack() as stack:
        for one in found:
            _start(one, stack)
        rows = asyncio.run(_latencies(found, rounds, runs))
    rows += asyncio.run(throughput_rows(1, seconds))
    rows += _of_kept_workers(asyncio.run(throughput_rows(1, seconds, pool=kept_pool())))
    rows += cold_rows(min(rounds, _MOST_COLD_STARTS))
    rows += memory_rows()
    for one in found:
        print(f"rates, starts and memory of {one.peer.name}", file=sys.stderr)
        _measure_whole(one, min(rounds, _MOST_COLD_STARTS), seconds)
    for one in found:
        one.figures.update({name: samples.net_ms for name, samples in one.samples.items()})
    return rows, found


def _start(one: Measured, stack: ExitStack) -> None:
    if one.absent:
        return
    try:
        one.conversation = stack.enter_context(one.peer.started())
    except (PeerFailedError, OSError, ValueError) as error:
        one.absent = f"does not start: {error}"


async def _latencies(found: list[Measured], rounds: int, runs: int) -> list[Row]:
    pool = kept_pool()
    ours, kept = Latencies(list(PROGRAMS)), Latencies(list(PROGRAMS), code_mode_tool(pool))
    try:
        await ours.warm_up()
        await kept.warm_up()
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            await ours.round()
            await kept.round()
            for program in PROGRAMS:
                for one in found:
                    one.round(program.name, min(program.runs, runs))
    finally:
        ours.close()
        kept.close()
        pool.close()
    return [*ours.rows(), *_of_kept_workers(kept.rows())]


def _of_kept_workers(rows: list[Row]) -> list[Row]:
    for row in rows:
        row.what += KEPT
    return rows


def _measure_whole(one: Measured, rounds: int, seconds: float) -> None:
    def rate(count: int) -> float:
        with one.peer.started() as conversation:
            conversation.ask({"do": "time", "workload": "W2", "runs": 3, "gap_ms": 5})
            answer = conversation.ask({"do": "rate", "in_flight": count, "seconds": seconds})
        return answer["runs_per_second"]

    for count in IN_FLIGHT:
        one.note(f"W5 W2 with {count} in flight", lambda count=count: rate(count))
    one.note("W0 cold, return 1", lambda: one.peer.cold_ms("W1", rounds))
    one.note("W0 cold, 3 calls", lambda: one.peer.cold_ms("W2", rounds))
    for count, label in zip(_MEMORY_COUNTS, ("memory, 1 warm worker", "memory, 8 in flight"), strict=True):
        one.note(f"W8 {label}", lambda count=count: one.peer.memory_mib(count))


def _programs_file(folder: str) -> Path:
    path = Path(folder) / "programs.json"
    programs = {one.name: {"js": one.js, "expected": one.expected, "unseen": one.unseen} for one in PROGRAMS}
    path.write_text(json.dumps({"programs": programs, "rows": rows(), "hold": HOLD_JS}), encoding="utf-8")
    return path


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", type=int, default=20, help="at most so many runs of a peer's program in a round")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", default="", help="peers, such as ai-sdk,monty")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peers = [one for one in known_peers(_programs_file(folder)) if one.name in (given.only or one.name).split(",")]
        rows, found = measure(peers, given.rounds, given.runs, given.seconds)
    versions = Versions.installed()
    if given.json:
        print(json.dumps(_as_json(rows, found, versions), indent=2))
    else:
        today = dt.datetime.now(tz=dt.UTC).date()
        print(f"{today}, {machine()}\n{versions}\n\n{side_by_side(rows, found)}")


def _as_json(rows: list[Row], found: list[Measured], versions: Versions) -> dict[str, Any]:
    peers = {one.peer.name: {"figures": one.figures, "failures": one.failures, "absent": one.absent} for one in found}
    return {
        "date": str(dt.datetime.now(tz=dt.UTC).date()),
        "machine": machine(),
        "versions": versions.found,
        "ours": [row.figures() for row in rows],
        "peers": peers,
    }


if __name__ == "__main__":
    main()
