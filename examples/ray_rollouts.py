"""Ten thousand programs over a Ray cluster, by Ray Data and by an actor on each node. No network, no key.

Four nodes are simulated on this machine. Each Ray process has the tools and a pool of its own, which starts with its
first program and ends with it. All share a journal. In the middle of each run a node is killed: Ray runs again what
the node had, under the same names, so what had finished is answered from the journal, what had not begun is made, and
what had begun and not ended is looked up in the shop's list of orders. Each order was made once.

Needs this package and Ray: ``pip install . 'psycopg[binary,pool]' 'ray[data]'`` in the root of the repository.
Arguments: how many programs, how many nodes, and the connection string of a Postgres for the journal; without one it
is a file.
"""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
import collections
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

try:
    import ray
    import ray.data
    from ray.cluster_utils import Cluster
    from ray.util.actor_pool import ActorPool
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from codemode import (
        CallContext,
        CodeModeAbortedError,
        CodeModeError,
        Interrupt,
        Tool,
        WorkerPool,
        create_code_mode_tool,
    )
    from codemode.errors import CodeModeWorkerError
    from codemode.stores import PostgresInterruptStore, SqliteInterruptStore
except ImportError as error:
    needed = "pip install . 'psycopg[binary,pool]' 'ray[data]'"
    sys.exit(f"{error}. This example needs what `{needed}` in the root of the repository brings.")


def say(text: str) -> None:
    """Print, until nobody reads any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


ATTEMPTS = 5  # of a program within one Ray process
AT_ONCE = 8  # programs of one Ray process at a time
BATCH = 50  # programs of one task for an actor
CONNECTIONS = 4  # of one Ray process to Postgres, at most
SMALL = 100 * 2**20  # bytes; what Ray keeps of objects here are a few rows
PRICES = {"axle": 90, "bolt": 3, "gear": 40, "nut": 2, "rod": 12, "wheel": 60}
PROGRAM = """\
const episode = EPISODE;
const prices = await tools.prices({});
const affordable = Object.keys(prices).filter((product) => prices[product] <= 2 + episode % 100).sort();
let spent = 0;
for (const product of affordable) {
  const order = await tools.buy({ episode, product });
  spent += order.cents;
}
return { bought: affordable.length, spent };
"""


def episodes(count: int) -> list[dict[str, Any]]:
    """Return the rollouts: in earnest, what a model has written for each."""
    return [{"episode": number, "js": PROGRAM.replace("EPISODE", str(number))} for number in range(count)]


def expected(episode: int) -> list[str]:
    """Return what an episode buys."""
    return [product for product, price in PRICES.items() if price <= 2 + episode % 100]


class Shop:
    """What the tools change: a list of orders that outlives every process, a line for each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def book(self, episode: int, product: str) -> None:
        """Add an order."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{episode} {product} {os.getpid()}\n")

    def orders(self) -> list[tuple[int, str, int]]:
        """Return all orders so far: episode, product, and the process that made it."""
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        return [(int(episode), product, int(pid)) for episode, product, pid in map(str.split, lines)]


class Rollouts:
    """The programs of one Ray process, with their tools in it. Ray makes one for each process that it starts."""

    def __init__(self, folder: str, dsn: str | None = None, at_once: int = AT_ONCE) -> None:
        self._shop = Shop(Path(folder) / "orders")
        # No process starts yet. What waits for a worker waits here, and not in Ray.
        self._pool = WorkerPool({"max_workers": at_once, "on_saturation": "wait"})
        if dsn is None:
            self._store = SqliteInterruptStore(Path(folder) / "programs.sqlite")
        else:  # for nodes that share no disk; it connects when the first program runs
            self._store = PostgresInterruptStore(dsn, max_connections=CONNECTIONS)
        continuation = {
            "keys": "32 random bytes, the same in every process",
            "conversation_id": Path(folder).name,  # this run of all rollouts; a new one begins anew
            "guard": self._store.guard,
            # How long after the last sign of life of a process another one goes on with what it had.
            "journal": self._store.journal(tenant="research", app="rollouts", lease_ms=5000),
        }
        tools = [
            Tool("prices", execute=self._prices, annotations={"readOnlyHint": True}),
            Tool("buy", execute=self._buy, input_schema={"type": "object", "required": ["episode", "product"]}),
        ]
        self._code_mode = create_code_mode_tool(tools, {"continuation": continuation}, pool=self._pool)

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Run one program: the way of Ray Data."""
        told: dict[str, Any] = {"episode": row["episode"], "asked": 0, "pid": os.getpid()}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                result = await self._result(row, told)
            except (CodeModeWorkerError, CodeModeAbortedError) as error:
                # Its worker was killed, or this process stood still beyond its lease: made again it goes on.
                result = {"error": error.code, "message": error.message}
            except CodeModeError as error:  # how a program fails is what came of it: it would fail again
                return {**told, "attempts": attempt, "result": {"error": error.code, "message": error.message}}
            else:
                break
        return {**told, "attempts": attempt, "result": result}

    async def _result(self, row: dict[str, Any], told: dict[str, Any]) -> Any:
        # In every attempt, also of Ray, the episode is the name of the call.
        call = CallContext(tool_call_id=f"episode {row['episode']}")
        result = await self._code_mode.execute(row["js"], call)
        while isinstance(result, Interrupt):
            told["asked"] += len(result.requests)
            result = await self._code_mode.resume(result, resolutions=self._answers(result))
        return result

    async def run(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run many programs: the way of an actor."""
        return await asyncio.gather(*map(self, rows))

    async def aclose(self) -> None:
        """End the pool, where a process goes on without it. One that ends, or is killed, takes it along."""
        await self._pool.aclose()
        await self._store.aclose()

    async def _prices(self, _input: Any, _context: Any) -> dict[str, int]:
        await asyncio.sleep(0.005)
        return PRICES

    async def _buy(self, order: dict[str, Any], _context: Any) -> dict[str, Any]:
        await asyncio.sleep(0.005)
        self._shop.book(order["episode"], order["product"])
        await asyncio.sleep(0.005)
        return {"cents": PRICES[order["product"]]}

    def _answers(self, interrupt: Interrupt) -> dict[str, Any]:
        """Say what became of calls of which nobody knows: whether they are among the orders."""
        done = {(episode, product) for episode, product, _ in self._shop.orders()}
        answers: dict[str, Any] = {}
        for request in interrupt.requests:
            order = request.input["episode"], request.input["product"]
            is_done = order in done
            answers[request.interrupt_id] = {"value": {"cents": PRICES[order[1]]}} if is_done else {"runAgain": True}
        return answers


def by_ray_data(
    rows: list[dict[str, Any]], folder: Path, nodes: int, dsn: str | None = None
) -> Iterable[dict[str, Any]]:
    """Run them as a step of a data set: Ray Data makes the actors, feeds them, and runs again what a dead one had."""
    data = ray.data.from_items(rows, override_num_blocks=max(nodes, len(rows) // BATCH))
    compute = ray.data.ActorPoolStrategy(size=nodes)
    return data.map(Rollouts, fn_constructor_args=[str(folder), dsn], compute=compute, num_cpus=1).iter_rows()


def by_actors(rows: list[dict[str, Any]], folder: Path, nodes: int, dsn: str | None = None) -> Iterator[dict[str, Any]]:
    """Run them by an actor on each node that has a CPU; one whose node dies starts again on another node."""
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    remote: Any = ray.remote(Rollouts)
    actors = [
        remote.options(
            num_cpus=1,
            max_restarts=-1,
            max_task_retries=-1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True),
        ).remote(str(folder), dsn)
        for node in alive[:nodes]
    ]
    batches = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
    for done in ActorPool(actors).map_unordered(lambda actor, batch: actor.run.remote(batch), batches):
        yield from done


def cluster_of(nodes: int, **head: Any) -> Cluster:
    """Return a cluster on this machine, with a head that has no CPU and so outlives the nodes that have one."""
    head = {"object_store_memory": SMALL, "include_dashboard": False, "num_cpus": 0, **head}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(nodes):
        add_a_node(cluster)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    return cluster


def add_a_node(cluster: Cluster) -> None:
    """Start one more node, with room for its own actor and for one whose node has died."""
    cluster.add_node(num_cpus=2, object_store_memory=SMALL)


def kill_a_node(cluster: Cluster) -> None:
    """Kill one node's processes, as when a machine is gone."""
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)


def some_lost(done: Iterable[dict[str, Any]], count: int, lose: Callable[[], None]) -> list[dict[str, Any]]:
    """Return all rows, and lose a node when a third of them has come."""
    rows: list[dict[str, Any]] = []
    for row in done:
        rows.append(row)
        if len(rows) == count // 3:
            lose()
    return rows


def checked(rows: list[dict[str, Any]], orders: list[tuple[int, str, int]], count: int) -> str:
    """Tell what came of it. Raises AssertionError where a program or an order is missing, wrong or there twice."""
    assert sorted(row["episode"] for row in rows) == list(range(count))
    for row in rows:
        bought = expected(row["episode"])
        assert row["result"] == {"bought": len(bought), "spent": sum(map(PRICES.__getitem__, bought))}, row
    made = collections.Counter((episode, product) for episode, product, _ in orders)
    assert made == {(episode, product): 1 for episode in range(count) for product in expected(episode)}
    makers = collections.defaultdict(set)
    for episode, _, pid in orders:
        makers[episode].add(pid)
    carried, asked = sum(len(pids) > 1 for pids in makers.values()), sum(row["asked"] for row in rows)
    again = sum(row["attempts"] > 1 for row in rows)
    processes = len(set().union(*makers.values()))
    return (
        f"{len(rows)} programs, {len(orders)} orders, each once, by {processes} processes; {carried} programs begun in"
        f" one and ended in another, {again} gone on with in theirs; {asked} calls whose outcome was looked up"
    )


def main() -> None:
    """Run them in both ways."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    dsn = sys.argv[3] if len(sys.argv) > 3 else None
    rows = episodes(count)
    cluster = cluster_of(nodes)
    try:
        for way in (by_ray_data, by_actors):
            folder = Path(tempfile.mkdtemp(prefix="codemode-example-"))
            started = time.monotonic()
            done = some_lost(way(rows, folder, nodes, dsn), count, lambda: kill_a_node(cluster))
            told = checked(done, Shop(folder / "orders").orders(), count)
            say(f"{way.__name__}: {told}; {time.monotonic() - started:.0f} s")
            add_a_node(cluster)
            shutil.rmtree(folder)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
