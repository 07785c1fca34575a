"""What a call leaves behind in the host's process once it is over: nothing, on any surface, however it ends.

What is kept on purpose is bounded, and tested where it is kept: texts of programs, claims until they expire, what is
told of runs that have ended.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from census import census, left_by
from pausing import OK
from suite import full_only, rounds
from waiting import WAIT_SECONDS, within

from codemode import (
    CallContext,
    CodeModeError,
    Interrupt,
    MediaContent,
    ModuleServer,
    Tool,
    WorkerPool,
    audit_log,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
)
from codemode.stores import MemoryInterruptStore, Resumer, SqliteInterruptStore

CALLS = rounds(2, 3)
FULL = pytest.mark.full
# Until they expire, so that a continuation is resumed once; what is told of runs of exec that have ended.
KEPT = ("guard._ClaimRow", "guard.Claim", "program_run.ProgramRun")
Call = Callable[[], Awaitable[Any]]


def ways(*names: str) -> list[Any]:
    """Return what a test is for: all these ways in which a call goes, and each of them alone, to find which it was."""
    return [pytest.param(names, id="every way"), *(pytest.param((one,), id=one, marks=FULL) for one in names)]


class Desk:
    """Tools that end in every way, and what makes each surface over them."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self.hanging = asyncio.Event()

    def tools(self) -> list[Tool]:
        async def look(value: Any) -> Any:
            return {"seen": value, "text": "y" * 100}

        async def boom(_value: Any) -> Any:
            raise ValueError("broken")

        async def hang(_value: Any) -> Any:
            self.hanging.set()
            await asyncio.Event().wait()

        return [
            Tool("look", execute=look),
            Tool("boom", execute=boom),
            Tool("hang", execute=hang),
            Tool("shot", execute=lambda _: {"picture": MediaContent(b"x" * 5000, "image/png")}),
            Tool("plain", execute=lambda _: 1),
            Tool("pay", execute=lambda _: "paid", needs_approval=True),
        ]

    def code_mode(self, **options: Any) -> Any:
        return create_code_mode_tool(self.tools(), {"approval": {"mode": "interrupt"}, **options}, pool=self.pool)

    async def cancelled(self, work: Awaitable[Any]) -> None:
        """Cancel a call whose tool hangs."""
        self.hanging.clear()
        task = asyncio.ensure_future(work)
        await self.hanging.wait()
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture(autouse=True)
def unlogged(caplog: pytest.LogCaptureFixture) -> None:
    """Let nobody keep errors that are logged: pytest does."""
    caplog.set_level(logging.CRITICAL + 1, logger="codemode")


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    # A worker that is kept stays, and what it says of a text is not remembered, unlike what a fresh one says.
    with WorkerPool({"max_workers": 2, "programs_per_worker": 1}) as made:
        yield made


def nothing_stays(*calls: Call) -> None:
    """Make these calls some times, and see that there is no class of ours of which each has left something."""
    within(stays_nothing(*calls), 2 * WAIT_SECONDS)


async def stays_nothing(*calls: Call) -> None:
    gc.freeze()  # what other tests imported is not looked at
    for call in calls * 2:  # whatever is made once
        await call()
    before = census()
    for call in calls * CALLS:
        await call()
    deadline = time.monotonic() + WAIT_SECONDS
    while left := _left(before):
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.01)  # threads that close something may be at it yet


def _left(before: Counter[str]) -> dict[str, int]:
    left = left_by(CALLS, before, census())
    return {name: more for name, more in left.items() if not name.endswith(KEPT)}


async def failing(work: Awaitable[Any]) -> None:
    with suppress(CodeModeError):
        await work


PROGRAMS = {
    "value": "return await Promise.all([tools.look({}), tools.plain({})])",
    "thrown": "console.log('a'); throw new TypeError('broken')",
    "no JavaScript": "return ((",
    "tool raised": "return await tools.boom({})",
    "no such tool": "return await tools.nope({})",
    "not awaited": "tools.look({}); return 1",
    "content": "const { picture } = await tools.shot({}); content(picture); return picture",
    "paused": "return await tools.pay({})",
}


@pytest.mark.parametrize("how", ways(*PROGRAMS))
@pytest.mark.parametrize("hears", ["state, audit and telemetry", *full_only("nobody")])
def test_code_mode(pool: WorkerPool, how: tuple[str, ...], hears: str) -> None:
    async def sink(_record: Any) -> None:
        await asyncio.sleep(0)

    heard = {"state": {}, "lifecycle": audit_log(sink), "telemetry": {"is_enabled": True}}
    code_mode = Desk(pool).code_mode(**({} if hears == "nobody" else heard))

    nothing_stays(*(lambda js=PROGRAMS[one]: failing(code_mode.execute({"js": js})) for one in how))


def test_code_mode_that_is_cancelled_late_or_resumed(pool: WorkerPool) -> None:
    desk = Desk(pool)
    code_mode, late = desk.code_mode(), desk.code_mode(execution_policy={"timeout_ms": 30})
    hangs = {"js": "return await tools.hang({})"}

    async def call() -> None:
        await desk.cancelled(code_mode.execute(hangs))
        await failing(late.execute(hangs))
        paused = await code_mode.execute({"js": PROGRAMS["paused"]})
        assert await code_mode.resume(paused, OK) == "paid"
        assert await code_mode.resume(paused, OK) == "paid"
        await failing(code_mode.resume(paused, {"approved": False}))

    nothing_stays(call)


def test_shares_of_a_pool_and_tools_that_are_made_for_one_call(pool: WorkerPool) -> None:
    numbers = iter(range(1000))

    async def call() -> None:
        share = pool.share(f"tenant {next(numbers)}", max_workers=1)
        code_mode = create_code_mode_tool(Desk(share).tools(), pool=share)
        assert await code_mode.execute({"js": "return await tools.plain({})"}) == 1

    nothing_stays(call)


SCRIPTS = {
    "value": "return await callTool('look', {})",
    "thrown": "throw new Error('broken')",
    "tool raised": "return await callTool('boom', {})",
    "no such tool": "return await callTool('nope', {})",
    "paused": "return await callTool('pay', {})",
}


@pytest.mark.parametrize("how", ways(*SCRIPTS, "search", "describe", "invoke", "update", "cancelled"))
def test_code_call(pool: WorkerPool, how: tuple[str, ...]) -> None:
    desk, numbers = Desk(pool), iter(range(1000))
    tools = create_code_call_tools(desk.tools(), {"direct_calls": {"enabled": True}}, pool=pool)

    def update() -> Awaitable[Any]:
        tools.update([*desk.tools(), Tool(f"tool{next(numbers)}", execute=None)])
        return tools.execute({"script": SCRIPTS["value"]})

    does: dict[str, Call] = {
        **{name: lambda script=script: tools.execute({"script": script}) for name, script in SCRIPTS.items()},
        "search": lambda: tools.search({"queries": ["look at it"]}),
        "describe": lambda: tools.describe({"toolNames": ["look"]}),
        "invoke": lambda: tools.invoke({"tool": "look", "input": {}}),
        "update": update,
        "cancelled": lambda: desk.cancelled(tools.execute({"script": "return await callTool('hang', {})"})),
    }

    nothing_stays(*(does[one] for one in how))


@pytest.mark.parametrize("is_stored", [True, *full_only(False)])
@pytest.mark.parametrize("how", ways("value", "thrown", "waited for", "ended", "cancelled", "resumed"))
def test_exec_and_wait(pool: WorkerPool, tmp_path: Path, how: tuple[str, ...], *, is_stored: bool) -> None:
    desk = Desk(pool)
    settings = {"continuation": {"keys": "a key of this test"}}

    async def cancel() -> None:
        await desk.cancelled(run("return await tools.hang({})"))

    async def end() -> None:
        waits = await run("await yield_control('x'); return 1")
        assert await pair.abort(conversation_id="one", run_id=waits["runId"]) == 1

    async def wait() -> None:
        waits = await run("text('a'); await yield_control('x'); return 1")
        ended: Any = await pair.wait.execute({"runId": waits["runId"]}, call=CallContext(conversation_id="one"))
        assert ended["status"] == "completed", ended

    async def resume() -> None:
        ended: Any = await pair.resume(
            await run("return await tools.pay({})"), OK, call=CallContext(conversation_id="one")
        )
        assert ended["value"] == "paid"

    does: dict[str, Call] = {
        "value": lambda: run("return await tools.look({})"),
        "thrown": lambda: run("throw new Error('broken')"),
        "cancelled": cancel,
        "ended": end,
        "waited for": wait,
        "resumed": resume,
    }

    async def run(code: str) -> Any:
        return await pair.exec.execute({"code": code}, call=CallContext(conversation_id="one"))

    store = SqliteInterruptStore(tmp_path / "runs.sqlite") if is_stored else None
    pair = create_exec_wait_tools(desk.tools(), {"waitTimeoutMs": 30_000}, settings=settings, pool=pool, store=store)

    nothing_stays(*(does[one] for one in how))

    async def close() -> None:
        await pair.aclose()
        if store is not None:
            await store.aclose()

    within(close())


SHOP = 'import { look, boom, hang, pay } from "@codemode/servers/shop";\nglobalThis.__codemode_result__ = '
MODULES = {
    "value": f"{SHOP}await look({{}})",
    "tool raised": f"{SHOP}await boom({{}})",
    "left": f"{SHOP}1; hang({{}});",
    "timers": f"{SHOP}await new Promise((end) => setTimeout(end, 1)); setTimeout(() => 1, 100000);",
    "no such export": 'import { nope } from "@codemode/servers/shop";',
    "discovery": 'import { searchTools } from "@codemode/discovery"; await searchTools("look");',
    "paused": f"{SHOP}await pay({{}})",
}


@pytest.mark.parametrize("how", ways(*MODULES, "tools that change", "cancelled", "resumed"))
def test_modules(pool: WorkerPool, how: tuple[str, ...]) -> None:
    desk = Desk(pool)

    class Changing:
        revision = 0

        async def tools(self) -> list[Tool]:
            return [*desk.tools(), Tool(f"tool{self.revision}", execute=None, input_schema={"type": "object"})]

    changing = Changing()
    settings = {"approval": {"mode": "interrupt"}}
    run = create_modules_tool([ModuleServer("shop", changing)], settings=settings, pool=pool)

    async def go(how: str) -> None:
        if how == "cancelled":
            return await desk.cancelled(run.execute({"code": f"{SHOP}await hang({{}})"}))
        if how == "tools that change":
            changing.revision += 1
        code = MODULES.get(how) or MODULES["paused" if how == "resumed" else "value"]
        answer: Any = await run.execute({"code": code, "requestedCapabilities": ["shop"]})
        assert isinstance(answer, Interrupt) == (how in ("paused", "resumed"))
        assert run.declarations("shop")
        if how == "resumed":
            answer = await run.resume(answer, OK)
            assert answer["result"] == "paid"
        return None

    nothing_stays(*(partial(go, one) for one in how))


@pytest.mark.parametrize("kind", ["sqlite", *full_only("memory")])
@pytest.mark.parametrize("how", ways("journaled", "put", "resumed", "watched", "given up"))
def test_stores(pool: WorkerPool, tmp_path: Path, kind: str, how: tuple[str, ...]) -> None:
    numbers = iter(range(1000))

    async def scenario() -> None:
        store: Any = SqliteInterruptStore(tmp_path / "pauses.sqlite") if kind == "sqlite" else MemoryInterruptStore()
        keys: dict[str, Any] = {"keys": "a key of this test", "guard": store.guard}
        journal = {**keys, "journal": store.journal(tenant="acme", app="tests"), "conversation_id": "one"}
        desk = Desk(pool)
        journaled, plain = desk.code_mode(continuation=journal), desk.code_mode(continuation=keys)

        async def go(how: str) -> None:
            if how == "journaled":
                await journaled.execute(
                    {"js": PROGRAMS["value"]}, call=CallContext(tool_call_id=f"call-{next(numbers)}")
                )
                return
            if how == "watched":
                with store.watch() as watch:
                    await asyncio.wait({asyncio.ensure_future(watch.wait(0.001))})
                return
            paused = await plain.execute({"js": PROGRAMS["paused"]})
            record_id = await store.put(paused, tenant="acme")
            if how == "resumed":
                await store.decide({paused.interrupt_id: OK}, actor="ana", tenant="acme")
                assert await store.outcome(record_id, tenant="acme", timeout_ms=60_000) == "paid"
            elif how == "given up":
                waiting = asyncio.ensure_future(store.outcome(record_id, tenant="acme", timeout_ms=60_000))
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait([waiting])

        async with Resumer(store, tenant="acme", resume=plain.resume):
            await stays_nothing(*(partial(go, one) for one in how))
        await store.aclose()

    within(scenario(), 2 * WAIT_SECONDS)
