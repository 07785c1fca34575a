"""The processes of `tests.soak.pauses`: resumers, whose tools write to a file, and people who decide.

What they do is written to files that take whole lines, so that a kill leaves what had happened and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
import zlib
from pathlib import Path
from typing import Any

from codemode import CodeModeError, CodeModeTool, Tool, ToolCallContext, WorkerPool, create_code_mode_tool
from codemode.continuations import guard
from codemode.continuations.guard import GuardClock
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import (
    ALL_TENANTS,
    MemoryResumeGuard,
    PostgresInterruptStore,
    Resumer,
    SqliteInterruptStore,
    StoredRequest,
)
from codemode.stores import resumer as resumers

APP, LEASE_MS, LAPSE_SECONDS = "chaos", 600, 1.0
APPROVED, DENIED, UNKNOWN = "approved", "denied", "unknown"


def hurry() -> None:
    """Let whatever waits for the death of a process in production do so for a second or two."""
    guard.LAPSE_SECONDS, guard._MIN_WATCH_SECONDS = LAPSE_SECONDS, LAPSE_SECONDS / 4
    guard._MAX_WATCH_STEP_SECONDS = LAPSE_SECONDS / 10
    guard.RENEW_SECONDS, guard._SAFE_CLAIM_SECONDS = LAPSE_SECONDS / 10, LAPSE_SECONDS / 2
    resumers._RETRY_MS = 300
    resumers._SWEEP_SECONDS = 1.0


def store_of(kind: str, where: str, clock: GuardClock | None = None) -> Any:
    """A store with few connections, for many processes have one."""
    if kind == "sqlite":
        return SqliteInterruptStore(where, clock=clock)
    return PostgresInterruptStore(where, max_connections=3, clock=clock)


class Lines:
    """A file to which many processes write whole lines."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def write(self, *line: Any) -> None:
        """Write a line, in one call to the system."""
        os.write(self._fd, (json.dumps(line) + "\n").encode())

    def read(self) -> list[Any]:
        """Return all whole lines: of one that is just being written, a reader sees what fits on a page of memory."""
        whole, _, _ = self.path.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def close(self) -> None:
        """Write no more."""
        os.close(self._fd)


class World:
    """What the tools change, and what can be known of it by whoever looks."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._random = random.Random()

    def tools(self) -> list[Tool]:
        """One that is asynchronous, one that runs in a thread, and one that no person is asked about.

        All may be cut off before and after the effect.
        """
        return [
            Tool("pay", execute=self._pay, needs_approval=True),
            Tool("book", execute=self._book, needs_approval=True),
            Tool("note", execute=self._pay),
        ]

    async def _pay(self, value: Any, context: ToolCallContext) -> Any:
        self._lines.write("began", value, os.getpid())
        try:
            await asyncio.sleep(self._random.choice((0, 0.002, 0.01)))
            self._lines.write("effect", value, os.getpid())
            await asyncio.sleep(self._random.choice((0, 0.005, 0.03)))
        finally:
            self._lines.write("ended", value, os.getpid())
        return value_of(value)

    def _book(self, value: Any, context: ToolCallContext) -> Any:
        self._lines.write("began", value, os.getpid())
        time.sleep(self._random.choice((0, 0.002, 0.01)))
        # A thread cannot be cut off: it has to look itself whether its invocation has ended.
        if not context.aborted.is_set():
            self._lines.write("effect", value, os.getpid())
            time.sleep(self._random.choice((0, 0.005, 0.03)))
        self._lines.write("ended", value, os.getpid())
        return value_of(value)


def value_of(value: Any) -> int:
    """What a call returns."""
    return 10 * value["run"] + value["number"]


def code_mode_over(
    tools: list[Tool], store: Any, mode: str, pool: WorkerPool | None = None, lease_ms: int = LEASE_MS
) -> CodeModeTool:
    """The tool that all hosts have alike; of a control run (``unguarded``) each has a guard of its own."""
    continuation: dict[str, Any] = {"keys": "chaos", "max_age_ms": 7_200_000, "conversation_id": "talk"}
    continuation["guard"] = MemoryResumeGuard() if mode == "unguarded" else store.guard
    if mode == "journal":
        continuation["journal"] = store.journal(tenant="acme", app=APP, lease_ms=lease_ms)
    return create_code_mode_tool(tools, {"approval": {"mode": "interrupt"}, "continuation": continuation}, pool=pool)


def resume_for_ever(kind: str, where: str, world: str, mode: str) -> None:
    """Apply decisions until killed."""
    hurry()

    async def main() -> None:
        store = store_of(kind, where)
        code_mode = code_mode_over(World(Lines(world)).tools(), store, mode)

        async def resume(interrupt: Any, resolutions: Any) -> Any:
            return await code_mode.resume(interrupt, resolutions=resolutions)

        async with Resumer(store, tenant=ALL_TENANTS, app=APP, resume=resume, lease_ms=LEASE_MS):
            await asyncio.Event().wait()

    asyncio.run(main())


def decide_for_ever(kind: str, where: str, world: str, decided: str, actor: str, after: int) -> None:
    """Decide about everything that comes up behind a sequence, twice, until killed."""
    asyncio.run(Person(store_of(kind, where), Lines(world), Lines(decided), actor).work(after))


class Person:
    """Clicks on everything twice, though another one does so too; asked what became of a call looks first."""

    def __init__(self, store: Any, world: Lines, decided: Lines, actor: str) -> None:
        self._store = store
        self._world = world
        self._decided = decided
        self._actor = actor
        self._clicked: set[str] = set()
        self._unsure: dict[str, tuple[str, StoredRequest]] = {}

    async def work(self, after: int) -> None:
        """Follow what happens; of what has been dealt with a line is written."""
        looking = asyncio.create_task(self._look_again())
        try:
            async for change in self._store.changes(tenant=ALL_TENANTS, after=after):
                if change.kind in ("put", "paused", "released"):
                    await self._deal_with(change.record_id)
                self._decided.write("seen", self._actor, change.sequence)
        finally:
            looking.cancel()

    async def _deal_with(self, record_id: str) -> None:
        record = await self._store.record(record_id, tenant=ALL_TENANTS)
        for request in random.sample(record.requests, len(record.requests)):
            if request.interrupt_id in self._clicked:
                continue
            self._clicked.add(request.interrupt_id)
            if request.kind == UNKNOWN_OUTCOME_KIND:
                self._unsure[request.interrupt_id] = record_id, request
            else:
                await self._click(record_id, request, self._opinion(request))

    def _opinion(self, request: StoredRequest) -> dict[str, Any]:
        # Of a process that was killed the next one must think the same.
        is_allowed = zlib.crc32(f"{self._actor}{request.interrupt_id}".encode()) % 5 > 0
        return {"approved": is_allowed, "reason": self._actor}

    async def _look_again(self) -> None:
        while True:
            for record_id, request in list(self._unsure.values()):
                answer = self._found_out(request.input)
                if answer is not None:
                    del self._unsure[request.interrupt_id]
                    await self._click(record_id, request, answer)
            await asyncio.sleep(0.1)

    def _found_out(self, value: Any) -> dict[str, Any] | None:
        """Return what became of a call; None while a process that is alive may be at it."""
        lines = self._world.read()
        if ["effect", value] in [line[:2] for line in lines]:
            return {"value": value_of(value)}
        at_it = {pid for kind, one, pid in lines if one == value and kind == "began"}
        at_it -= {pid for kind, one, pid in lines if one == value and kind == "ended"}
        return None if any(Path(f"/proc/{pid}").exists() for pid in at_it) else {"runAgain": True}

    async def _click(self, record_id: str, request: StoredRequest, decision: dict[str, Any]) -> None:
        name = request.interrupt_id
        for _ in range(2):
            try:
                made = await self._store.decide({name: decision}, actor=self._actor, tenant=ALL_TENANTS)
            except CodeModeError as error:
                said = error.details.get("actor")
                self._decided.write("refused", self._actor, name, type(error).__name__, said)
            else:
                self._decided.write("decided", self._actor, name, made[name].actor, request.input, decision)
