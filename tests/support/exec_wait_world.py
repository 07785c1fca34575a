"""Tools, pairs and stores for runs of exec that outlive their process: the same ones in every process of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calls import with_call
from waiting import WAIT_SECONDS

from codemode import Tool
from codemode.stores import PostgresInterruptStore, SqliteInterruptStore
from codemode.surfaces.exec_wait.exec_wait_tools import ExecWaitTools, create_exec_wait_tools

SCOPE = "a conversation"
KEYED: dict[str, Any] = {"continuation": {"keys": "a key of this test"}}
_MAY_RUN_AGAIN = {"look": {"readOnlyHint": True}, "put": {"idempotentHint": True}}


def store_of(kind: str, where: str, clock: Any = None) -> Any:
    """A store on a file or in a database."""
    return SqliteInterruptStore(where, clock=clock) if kind == "sqlite" else PostgresInterruptStore(where, clock=clock)


class Shop:
    """Tools that write each call into a file that all processes share. The calls of those that are ``held`` do not end.

    ``pay`` may run once, ``look`` and ``put`` again; ``refund`` needs a person.
    """

    def __init__(self, notes: Path, held: tuple[str, ...] = (), began: Callable[[str], None] = lambda _: None) -> None:
        self._notes = notes
        self._began = began
        self.held = held
        self.released = asyncio.Event()

    def tools(self) -> list[Tool]:
        plain = [self._tool(name, annotations=_MAY_RUN_AGAIN.get(name)) for name in ("pay", "look", "put")]
        return [*plain, self._tool("refund", needs_approval=True)]

    def _tool(self, name: str, **settings: Any) -> Tool:
        async def execute(value: Any, _context: Any) -> str:
            with self._notes.open("a", encoding="utf-8") as notes:
                notes.write(f"{name} {value}\n")
            self._began(f"{name} {value}")
            if name in self.held:
                await self.released.wait()
            return f"{name} {value}"

        return Tool(name, execute=execute, **settings)


def executed(notes: Path) -> list[str]:
    """Every execution of a tool in any process, sorted."""
    return sorted(notes.read_text(encoding="utf-8").splitlines()) if notes.exists() else []


def pair_of(shop: Shop, store: Any, pool: Any = None, **options: Any) -> ExecWaitTools:
    return create_exec_wait_tools(shop.tools(), options, settings=KEYED, pool=pool, store=store)


async def run(pair: ExecWaitTools, code: str, **more: Any) -> Any:
    return await pair.exec.execute({"code": code}, **with_call(more, conversation_id=SCOPE))


async def opened(pair: ExecWaitTools) -> None:
    """Wait until the store is open: a first connection may take longer than a call of a test waits."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (await run(pair, "return 1"))["status"] != "completed":
            continue


async def wait(pair: ExecWaitTools, result: Any, **more: Any) -> Any:
    return await pair.wait.execute({"runId": result["runId"]}, **with_call(more, conversation_id=SCOPE))
