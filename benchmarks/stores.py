"""What durable pauses cost: from a decision to the tool's first line by a `Resumer`, against a direct resume; and what
a journal adds to programs that call.

`python -m benchmarks.stores [--rounds N] [--dsn DSN]`: on SQLite, and on Postgres where a dsn is given or the machine
has its programs: then on the tests' cluster, which does not wait for its disk. Both ways of a pair are taken in turn,
with the same tool, guard and worker pool.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from codemode import CallContext, CodeModeTool, Tool, WorkerPool, create_code_mode_tool
from codemode.stores import ALL_TENANTS, PostgresInterruptStore, Resumer, SqliteInterruptStore

from .programs import PROGRAMS, Program
from .table import Row, machine, table
from .workloads import noop

_PROGRAM = "return await tools.refund({ order: 'a' });"
_KEY = secrets.token_hex(32)
_APPROVED = {"approved": True}
_JOURNAL_TARGETS = {"W3": 1.5, "W4": 1.2}
_TARGETS = {"SQLite": 3.0, "Postgres": 5.0}


class Refund:
    """A tool that tells when its first line ran."""

    def __init__(self) -> None:
        self.begun = 0.0

    async def __call__(self, _value: Mapping[str, Any]) -> str:
        """Tell."""
        self.begun = time.perf_counter()
        return "refunded"


class Pair:
    """One store, and the two ways from a pause to the tool."""

    def __init__(self, name: str, store: Any, pool: WorkerPool) -> None:
        self.name = name
        self._store = store
        self._refund = Refund()
        options: dict[str, Any] = {
            "approval": {"mode": "interrupt"},
            "continuation": {"guard": store.guard, "keys": _KEY, "max_age_ms": 86_400_000},
        }
        tool = Tool("refund", execute=self._refund, needs_approval=True)
        self._tool: CodeModeTool = create_code_mode_tool([tool], options, pool=pool)
        self.direct: list[float] = []
        self.decided: list[float] = []

    async def measure(self, rounds: int) -> None:
        """Take both ways in turn."""
        async with self._store, Resumer(self._store, tenant=ALL_TENANTS, resume=self._tool.resume):
            for _ in range(rounds + 3):
                self.direct.append(await self._directly())
                self.decided.append(await self._by_decision())
        del self.direct[:3], self.decided[:3]

    def row(self) -> Row:
        """Return what it came to."""
        ours, direct, target = statistics.median(self.decided), statistics.median(self.direct), _TARGETS[self.name]
        return Row(
            "W16",
            f"decision to first line, {self.name}",
            ours,
            floor=direct,
            ratio=ours / direct,
            target=f"<= {target:g}x a resume",
            met=ours <= target * direct,
        )

    async def _directly(self) -> float:
        paused = await self._paused()
        begun = time.perf_counter()
        await self._tool.resume(paused, _APPROVED)
        return (self._refund.begun - begun) * 1000

    async def _by_decision(self) -> float:
        paused = await self._paused()
        record_id = await self._store.put(paused, tool=self._tool, tenant="bench")
        begun = time.perf_counter()
        await self._store.decide({paused.interrupt_id: _APPROVED}, actor="ana", tenant="bench")
        await self._store.outcome(record_id, tenant="bench", timeout_ms=30_000)
        return (self._refund.begun - begun) * 1000

    async def _paused(self) -> Any:
        paused = await self._tool.execute({"js": _PROGRAM})
        await asyncio.sleep(0.005)  # a spare worker is ready
        return paused


class Journaled:
    """A program with the journal of a store and without, under the same options."""

    def __init__(self, name: str, store: Any, program: Program, pool: WorkerPool) -> None:
        self.name = name
        self._program = program
        without: dict[str, Any] = {"keys": _KEY, "conversation_id": "bench"}
        kept = {**without, "journal": store.journal(tenant="bench", app="bench")}
        self._tools = [
            create_code_mode_tool(
                [noop], {"execution_policy": {"max_bridge_requests": 300}, "continuation": one}, pool=pool
            )
            for one in (without, kept)
        ]
        self._taken: tuple[list[float], list[float]] = ([], [])

    async def measure(self, runs: int) -> None:
        """Take both in turn, the journal first every second time."""
        for at in range(runs + 2):
            for which in (0, 1) if at % 2 else (1, 0):
                await asyncio.sleep(0.005)  # a spare worker is ready
                begun = time.perf_counter()
                given = await self._tools[which].execute(
                    {"js": self._program.js},
                    call=CallContext(tool_call_id=f"{self.name}-{self._program.name}-{which}-{at}"),
                )
                self._taken[which].append((time.perf_counter() - begun) * 1000)
                assert given == self._program.expected, given

    def row(self) -> Row:
        """Return what it came to."""
        without, kept = (statistics.median(one[2:]) for one in self._taken)
        target = _JOURNAL_TARGETS[self._program.name] if self.name == "SQLite" else None
        return Row(
            "W17",
            f"{self._program.what} with a journal, {self.name}",
            kept,
            floor=without,
            ratio=kept / without,
            target="" if target is None else f"<= {target:g}x without",
            met=None if target is None else kept <= target * without,
        )


async def store_rows(rounds: int, dsn: str | None = None) -> list[Row]:
    """Return a row for each database there is."""
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stores: dict[str, Any] = {"SQLite": SqliteInterruptStore(f"{folder}/pauses.sqlite")}
        if dsn is None:
            dsn = own_cluster(stack)
        if dsn is not None:
            stores["Postgres"] = PostgresInterruptStore(dsn)
        for name, store in stores.items():
            async with WorkerPool() as pool:
                pair = Pair(name, store, pool)
                await pair.measure(rounds)
                rows.append(pair.row())
                for program in (one for one in PROGRAMS if one.name in _JOURNAL_TARGETS):
                    async with store:
                        journaled = Journaled(name, store, program, pool)
                        await journaled.measure(max(1, rounds // 3))
                        rows.append(journaled.row())
    return rows


def own_cluster(stack: ExitStack) -> str | None:
    """Return the dsn of a database in a cluster of its own; None where there is no Postgres."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    made: Any = import_module("postgres_cluster")
    try:
        return made.new_database(stack.enter_context(made.cluster()), "bench")
    except BaseException as error:  # noqa: BLE001 - a test's way to say that there is none
        print(f"without Postgres: {error}", file=sys.stderr)
        return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--dsn")
    arguments = parser.parse_args()
    print(machine(), "\n")
    print(table(asyncio.run(store_rows(arguments.rounds, arguments.dsn))))
