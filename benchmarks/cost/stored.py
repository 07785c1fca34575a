"""What pauses and journals cost in Postgres: by operation, with one process and with several, on a cluster of its own.

`python -m benchmarks.cost.stored '<JSON>'` is one of those processes: it does one operation after the other, each so
many times, and says how long it took when it is told to begin.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from codemode import CodeModeTool, Interrupt, Tool, WorkerPool, create_code_mode_tool
from codemode.continuations.guard import Claim
from codemode.stores import PostgresInterruptStore, SqliteInterruptStore

from ..processes import ROOT, environment, family
from .clocks import go_first, server_ms, since
from .figures import Operation

_OPERATIONS = (
    "put",
    "decide",
    "claim",
    "guard claim",
    "guard record",
    "settle",
    "journal open",
    "journal line",
    "journal end",
)
_LINE = '["call",3,"tools.look_up",{"id":"4711","fields":["name","state","owner"]}]'
_LOCKED = {"codemode_store FOR UPDATE": "store", "pg_advisory_xact_lock": "guard"}


@dataclass(frozen=True, slots=True)
class Share:
    """What one process does: each operation ``count`` times, ``at_once`` under way."""

    dsn: str
    name: str
    count: int
    at_once: int


class Work:
    """The operations of one process, one after the other over the same pauses and journals."""

    def __init__(self, store: Any, tool: CodeModeTool, pauses: list[Interrupt], name: str) -> None:
        self._store, self._tool, self._pauses, self._name = store, tool, pauses, name
        self._journal = store.journal(tenant=name, app="bench")
        self._leases: list[Any] = []
        self._opened: list[Any] = []

    async def one(self, operation: str, at: int) -> None:
        """Do one operation for the pause or journal of this number."""
        pause, store = self._pauses[at], self._store
        match operation:
            case "put":
                await store.put(pause, tool=self._tool, tenant=self._name)
            case "decide":
                await store.decide({pause.interrupt_id: {"approved": True}}, actor="ana", tenant=self._name)
            case "claim":
                self._leases.append(await store.claim(owner=self._name, tenant=self._name))
            case "guard claim":
                await store.guard.claim(Claim(pause.interrupt_id, "answers", round(time.time() * 1000) + 86_400_000))
            case "guard record":
                await store.guard.record(pause.interrupt_id, '{"value": "refunded"}')
            case "settle":
                assert await store.settle(self._leases.pop(), "refunded", tool=self._tool)
            case "journal open":
                self._opened.append(await self._journal.open(f"{self._name} {at}", "{}"))
            case "journal line":
                assert await self._journal.write(self._opened[at], [_LINE])
            case _:
                assert await self._journal.end(self._opened.pop(), '{"value": 1}', is_final=True)


async def paused(tool: CodeModeTool, count: int) -> list[Interrupt]:
    """Return so many runs that wait for a person."""
    js = "return await tools.refund({ order: 'A-4711', amount: 12.5, reason: 'arrived broken' })"
    return [await tool.execute({"js": js}) for _ in range(count)]


def pausing_tool(store: Any, pool: WorkerPool) -> CodeModeTool:
    """Return codeMode over a tool that a person has to let through."""
    options: dict[str, Any] = {
        "approval": {"mode": "interrupt"},
        "continuation": {"guard": store.guard, "keys": "0" * 64, "max_age_ms": 86_400_000},
    }
    return create_code_mode_tool([Tool("refund", execute=_refund, needs_approval=True)], options, pool=pool)


async def _refund(_: object) -> str:
    return "refunded"


async def work(share: Share) -> None:
    """Do the share of one process, each operation when a line comes in."""
    store = PostgresInterruptStore(share.dsn)
    async with store, WorkerPool() as pool:
        tool = pausing_tool(store, pool)
        doing = Work(store, tool, await paused(tool, share.count), share.name)
        for operation in _OPERATIONS:
            left = iter(range(share.count))

            async def keep_going(operation: str = operation, left: Any = left) -> None:
                for at in left:
                    await doing.one(operation, at)

            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            cpu, begun = time.process_time(), time.perf_counter()
            await asyncio.gather(*(keep_going() for _ in range(share.at_once)))
            taken, cpu = time.perf_counter() - begun, time.process_time() - cpu
            print(json.dumps({"seconds": taken, "client_ms": cpu * 1000 / share.count}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # what Postgres had for it is counted while it is connected


@dataclass(frozen=True, slots=True)
class Measured:
    """An operation with so many processes: how many a second, and milliseconds of CPU of one."""

    rate: float
    client_ms: float
    server_ms: float


def measured(dsn: str, server: int, processes: int, count: int, at_once: int, name: str) -> dict[str, Measured]:
    """Measure all operations with so many processes at the same time, which do ``count`` each."""
    found: dict[str, Measured] = {}
    with ExitStack() as stack:
        shares = [Share(dsn, f"{name}{at}", count, at_once) for at in range(processes)]
        clients = [stack.enter_context(_started(share)) for share in shares]
        for operation in _OPERATIONS:
            for client in clients:
                _line(client)
            for pid in family(server) + [client.pid for client in clients]:  # each has a session of its own
                go_first(pid)
            before = server_ms(server)
            for client in clients:
                assert client.stdin is not None
                client.stdin.write("\n")
                client.stdin.flush()
            said = [json.loads(_line(client)) for client in clients]
            of_server = since(before, server)
            found[operation] = Measured(
                rate=processes * count / max(one["seconds"] for one in said),
                client_ms=sum(one["client_ms"] for one in said) / processes,
                server_ms=of_server / processes / count,
            )
    return found


def _started(share: Share) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.cost.stored", json.dumps(asdict(share))]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=environment(), start_new_session=True
    )


def _line(client: subprocess.Popen[str]) -> str:
    assert client.stdout is not None
    line = client.stdout.readline()
    if not line:
        raise OSError("a process that uses the store ended early")
    return line


def operation_of(name: str, measured: Measured, statements: Sequence[str]) -> Operation:
    """Return an operation as the model takes it; what it has sent to the database, in order, says what it holds."""
    for at, statement in enumerate(statements):
        for words, lock in _LOCKED.items():
            if words in statement:
                # The driver begins and ends the guard's transactions, with a statement each that is not seen here.
                more = lock == "guard"
                held = len(statements) - at + more
                return Operation(name, measured.client_ms, measured.server_ms, len(statements) + 2 * more, held, lock)
    return Operation(name, measured.client_ms, measured.server_ms, len(statements))


async def statements_of(dsn: str) -> dict[str, list[str]]:
    """Return what each operation sends to the database."""
    from unittest.mock import patch

    from psycopg import Cursor

    sent: list[str] = []

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(self: Any, query: Any, *values: Any, **settings: Any) -> Any:
            sent.append(str(query))
            return method(self, query, *values, **settings)

        return counted

    found: dict[str, list[str]] = {}
    store = PostgresInterruptStore(dsn)
    async with store, WorkerPool() as pool:
        tool = pausing_tool(store, pool)
        doing = Work(store, tool, await paused(tool, 1), "statements")
        with (
            patch.object(Cursor, "execute", counting(Cursor.execute)),
            patch.object(Cursor, "executemany", counting(Cursor.executemany)),
        ):
            for operation in _OPERATIONS:
                sent.clear()
                await doing.one(operation, 0)
                found[operation] = [*sent]
    return found


async def sqlite_bytes(count: int) -> float:
    """Return the bytes by which a SQLite store grows with each pause."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pauses.sqlite"
        async with WorkerPool() as pool:
            sizes: list[int] = []
            for first in (True, False):
                async with SqliteInterruptStore(str(path)) as store:
                    tool = pausing_tool(store, pool)
                    for pause in await paused(tool, 20 if first else count):
                        await store.put(pause, tool=tool, tenant="bench")
                sizes.append(_folder_bytes(folder))
    return (sizes[1] - sizes[0]) / count


def _folder_bytes(folder: str) -> int:
    return sum(one.stat().st_size for one in Path(folder).iterdir())


async def postgres_bytes(dsn: str, count: int) -> float:
    """Return the bytes by which a Postgres database grows with each pause, indexes and all."""
    import psycopg

    sizes: list[int] = []
    store = PostgresInterruptStore(dsn)
    async with store, WorkerPool() as pool:
        tool = pausing_tool(store, pool)
        for first in (True, False):
            for pause in await paused(tool, 20 if first else count):
                await store.put(pause, tool=tool, tenant="bytes")
            with psycopg.connect(dsn) as connection:
                (size,) = connection.execute("SELECT pg_database_size(current_database())").fetchone() or (0,)
            sizes.append(size)
    return (sizes[1] - sizes[0]) / count


if __name__ == "__main__":
    asyncio.run(work(Share(**json.loads(sys.argv[1]))))
