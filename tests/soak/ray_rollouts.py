"""Programs on a Ray cluster of simulated nodes on this machine, with nodes that are killed.

``python -m tests.soak.ray_rollouts [programs] [nodes] [sqlite|postgres]`` prints what came of it, with a journal there.
Needs Ray: `make ray`. Every call of every program must have happened exactly once, whichever node died, and nothing may
be left of any process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from examples.ray_rollouts import (
    AT_ONCE,
    Rollouts,
    Shop,
    add_a_node,
    by_actors,
    by_ray_data,
    checked,
    cluster_of,
    episodes,
    expected,
    some_lost,
)
from tests.soak.pauses import database_of
from tests.soak.ray_inside import PATIENCE_SECONDS, await_ends, check_actors, check_tasks, watch
from tests.support.leftovers import children, kill_all, no_orphan_left

Way = Callable[[list[dict[str, Any]], Path, int, str | None], Iterable[dict[str, Any]]]
_COMPARED = 2000
# How soon a node is known to be dead, which is what most of a short run waits for.
_HEALTH = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "health_check_failure_threshold": 5}


class Runs:
    """All runs over one cluster, and what they print."""

    def __init__(self, count: int, nodes: int, dsn: str | None) -> None:
        self._count, self._nodes, self._dsn = count, nodes, dsn
        self._rows = episodes(count)
        self._cluster: Any = None
        self._watched: list[int] = []

    def run(self) -> None:
        """Run everything. Raises AssertionError."""
        self._cluster = cluster_of(self._nodes, _system_config=_HEALTH)
        try:
            print(f"  in Ray's tasks     as outside, by the doctor:\n{check_tasks()}")
            print(f"  actors ended       {check_actors(is_short=self._count < _COMPARED)}", flush=True)
            if self._count >= _COMPARED:  # of fewer the starts of Ray's processes would be most
                self._compare(self._rows[:_COMPARED])
            self._lost(by_ray_data, self._lose_raylet, "its raylet killed alone")
            self._lost(by_actors, self._lose_node, "all its processes killed in the middle of a program")
        finally:
            ray.shutdown()
            self._cluster.shutdown()
        await_ends(self._watched)

    def _compare(self, rows: list[dict[str, Any]]) -> None:
        alone = _Cost(rows, _alone(rows, self._nodes, self._dsn))
        print(f"  one process        {alone.told}, of {len(rows)}", flush=True)
        for way in (by_ray_data, by_actors):
            cost = _Cost(rows, lambda folder, way=way: way(rows, folder, self._nodes, self._dsn))
            ratio = f"{cost.rate / alone.rate:.2f} of one process, {cost.cpu_ms / alone.cpu_ms:.2f} times its CPU"
            print(f"  {way.__name__:18} {cost.told}: {ratio}; the first ones after {cost.start:.0f} s", flush=True)

    def _lost(self, way: Way, lose: Callable[[Shop], None], how: str) -> None:
        folder = Path(tempfile.mkdtemp(prefix="codemode-ray-"))
        shop, started = Shop(folder / "orders"), time.monotonic()
        done = self._struck(way(self._rows, folder, self._nodes, self._dsn), shop)
        rows = some_lost(done, self._count, lambda: lose(shop))
        told = checked(rows, shop.orders(), self._count)
        # A process whose raylet alone is dead may come to the end of what it has, before it notices.
        assert lose != self._lose_node or "; 0 programs begun" not in told, told
        print(f"  {way.__name__}, a node lost, {how}\n    {told}; {time.monotonic() - started:.0f} s", flush=True)
        add_a_node(self._cluster)
        shutil.rmtree(folder)

    def _lose_raylet(self, shop: Shop) -> None:
        """Kill what Ray takes for the node: its processes live on until they notice."""
        self._lose(shop, lambda _: None)

    def _lose_node(self, shop: Shop) -> None:
        """Kill all of a node at once."""
        self._lose(shop, lambda raylet: kill_all(children(raylet)))

    def _lose(self, shop: Shop, kill: Callable[[int], None]) -> None:
        """Kill the node in which a program has made some of its orders and not the others."""
        nodes = {_raylet(node): node for node in self._cluster.worker_nodes}
        raylet = _parent(_underway(shop))
        for process in children(raylet):
            self._watched += watch(children(process))
        kill(raylet)
        self._cluster.remove_node(nodes[raylet], allow_graceful=False)

    def _struck(self, done: Iterable[dict[str, Any]], shop: Shop) -> Iterator[dict[str, Any]]:
        """Before any node is lost, kill the workers of one process, as the kernel does where memory is short."""
        for number, row in enumerate(done):
            if number == self._count // 6:
                kill_all({worker for zygote in children(_underway(shop)) for worker in children(zygote)})
            yield row


class _Cost:
    """What a run took from before anything starts: how many programs a second, and CPU of all processes for each.

    ``start``: the seconds until the first ones are told of.
    """

    def __init__(self, rows: list[dict[str, Any]], work: Callable[[Path], Iterable[dict[str, Any]]]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="codemode-ray-"))
        before, started, told = _ticks(), time.monotonic(), list[dict[str, Any]]()
        ticks, self.start = Counter(before), 0.0
        for row in work(folder):
            self.start = self.start or time.monotonic() - started
            told.append(row)
            if len(told) % 25 == 0:  # Ray ends processes as soon as it can, and what they took is told no more
                ticks |= Counter(_ticks())
        self.rate = len(told) / (time.monotonic() - started)
        checked(told, Shop(folder / "orders").orders(), len(rows))
        self.cpu_ms = 1000 * (ticks.total() - sum(before.values())) / os.sysconf("SC_CLK_TCK") / len(rows)
        self.told = f"{self.rate:.0f} programs a second, {self.cpu_ms:.1f} ms of CPU for each"
        shutil.rmtree(folder)


def _ticks() -> dict[int, int]:
    """Return what this process and all that came of it have taken, each with the children it has waited for."""
    left, ticks = [os.getpid()], dict[int, int]()
    while left:
        pid = left.pop()
        with suppress(OSError):
            ticks[pid] = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                left += map(int, task.read_text().split())
    return ticks


def _alone(rows: list[dict[str, Any]], nodes: int, dsn: str | None) -> Callable[[Path], Iterator[dict[str, Any]]]:
    """Run them in this process, as many at a time as all nodes would."""

    async def run(folder: Path) -> list[dict[str, Any]]:
        rollouts, left, done = Rollouts(str(folder), dsn, AT_ONCE * nodes), iter(rows), list[dict[str, Any]]()

        async def work() -> None:
            for row in left:
                done.append(await rollouts(row))

        await asyncio.gather(*(work() for _ in range(AT_ONCE * nodes)))
        await rollouts.aclose()
        return done

    return lambda folder: iter(asyncio.run(run(folder)))


def _underway(shop: Shop) -> int:
    """Return a process that is in the middle of a program."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        orders = shop.orders()
        made = Counter(episode for episode, _, _ in orders)
        for episode, _, pid in reversed(orders):
            if made[episode] < len(expected(episode)) - 1 and Path(f"/proc/{pid}").exists():
                return pid
        assert time.monotonic() < deadline, "no program is underway"


def _raylet(node: Any) -> int:
    return node.all_processes["raylet"][0].process.pid


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def main() -> None:
    """Run it, and print the figures."""
    count, nodes, kind, *_ = [*sys.argv[1:], *("10000", "4", "sqlite")[len(sys.argv) - 1 :]]
    on = f"{nodes} simulated nodes, {os.cpu_count()} cores, Ray {ray.__version__}, a journal on {kind}"
    print(f"ray: {count} programs, {on}", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, database_of(kind, Path(folder)) as where, no_orphan_left():
        Runs(int(count), int(nodes), where if kind == "postgres" else None).run()
    print(f"  left afterwards    no process; {time.monotonic() - started:.0f} s in all")


if __name__ == "__main__":
    main()
