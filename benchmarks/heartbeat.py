"""How late a heartbeat on the event loop is while hostile programs run at default limits.

`python -m benchmarks.heartbeat [seconds] [names]` prints each of them alone too.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from codemode import CodeModeError, CodeModeTool, Tool, WorkerPool, continue_interrupt, create_code_mode_tool

from .table import Row

BEAT_SECONDS = 0.005
TARGET_MS = 50.0
WARM_UP_SECONDS = 1.0
_SEARCHES = 5
_MEGABYTE = 1 << 20
_PAUSING = {"approval": {"mode": "interrupt"}}
_ALTERNATIVES = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "items": {"oneOf": [{"type": "object", "properties": {"k": {"const": n}}} for n in range(8)]},
        }
    },
}
_LOOK_AHEAD = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^(?=(a+)+$)b"}}}
_ROWS = [{"id": number, "name": f"name {number}", "on": True, "none": None, "part": 0.5} for number in range(36_000)]


@dataclass(frozen=True, slots=True)
class Hostile:
    """One program over its own tools; whatever it ends with counts as its end."""

    name: str
    run: Callable[[WorkerPool], Awaitable[object]]


class Heartbeat:
    """Milliseconds by which each beat came late."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []

    @asynccontextmanager
    async def beating(self) -> AsyncGenerator[None]:
        """Beat while the block runs."""
        task = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            task.cancel()

    async def _beat(self) -> None:
        while True:
            due = time.perf_counter() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            self.late_ms.append((time.perf_counter() - due) * 1000)

    def percentile(self, percent: int) -> float:
        """Return a percentile of all beats; 100 is the worst."""
        beats = sorted(self.late_ms)
        return beats[min(len(beats) - 1, len(beats) * percent // 100)]

    def text(self) -> str:
        """Return p50, p99 and p100."""
        return " / ".join(f"{self.percentile(percent):.1f}" for percent in (50, 99, 100))


def _program(js: str, *tools: Tool, options: dict[str, Any] | None = None) -> Callable[[WorkerPool], Awaitable[object]]:
    async def run(pool: WorkerPool) -> object:
        tool = create_code_mode_tool(tools, options, pool=pool)
        try:
            return await tool.execute({"js": js})
        except CodeModeError as error:
            return error

    return run


def _tool(name: str, give: Callable[[Any], object], **settings: Any) -> Tool:
    async def execute(value: Any) -> object:
        return give(value)

    return Tool(name, execute=execute, **settings)


async def _paused_and_resumed(pool: WorkerPool) -> object:
    tools = [_tool("text", lambda _: "x" * 3 * _MEGABYTE), _tool("refund", lambda _: 1, needs_approval=True)]
    js = "for (let i = 0; i < 35; i++) await tools.text({}); return await tools.refund({});"
    interrupt = await create_code_mode_tool(tools, _PAUSING, pool=pool).execute({"js": js})
    return await continue_interrupt(interrupt, {"approved": True}, tools=tools, options=_PAUSING, pool=pool)


async def _large_shown_input(pool: WorkerPool) -> object:
    tools = [_tool("refund", lambda _: 1, needs_approval=True)]
    js = "return await tools.refund({ rows: Array.from({ length: 40000 }, (_, i) => ({ id: i })) });"
    interrupt = await create_code_mode_tool(tools, _PAUSING, pool=pool).execute({"js": js})
    return await continue_interrupt(interrupt, {"approved": True}, tools=tools, options=_PAUSING, pool=pool)


class _Search:
    """First searches among 10,000 tools. The tools are made before anything is measured, as hosts make theirs."""

    def __init__(self) -> None:
        self._waiting: list[CodeModeTool] = []

    def make(self, pool: WorkerPool, count: int) -> None:
        tools = [_tool(f"readOrder{n}", lambda _: 1, description=f"Read orders {n}.") for n in range(10_000)]
        self._waiting = [create_code_mode_tool(tools, pool=pool) for _ in range(count)]

    async def __call__(self, _pool: WorkerPool) -> object:
        tool = self._waiting.pop() if len(self._waiting) > 1 else self._waiting[0]
        return await tool.execute({"js": "return (await tools.$search('orders')).length"})


_search_and_count_event = _Search()


class _Response:
    """What a custom fetch may give: 40,000 headers, half of them of one name."""

    status_code, reason_phrase, url = 200, "OK", "https://example.com/"
    headers = [("x-many" if number % 2 else f"x-{number}", "v" * 20) for number in range(40_000)]  # noqa: RUF012

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        yield b"{}"


async def _fetch(_url: str, **_request: Any) -> _Response:
    return _Response()


_FETCHING = {
    "fetch_policy": {"allowed_origins": ["https://example.com"], "refuse_private_addresses": False, "fetch": _fetch}
}


def _look_ahead(pool: WorkerPool) -> Awaitable[object]:
    async def refused() -> object:
        try:
            tool = _tool("match", lambda _: 1, input_schema=_LOOK_AHEAD)
        except ValueError as error:
            return error
        return await _program("return await tools.match({ text: 'a'.repeat(41) })", tool)(pool)

    return refused()


_LARGE_OUTPUT = "for (;;) await tools.rows({})"
_OBJECTS = "for (let i = 0; i < 250; i++) try { await tools.take({ all: Array(340000).fill({}) }) } catch {}"
_KEYS = """
const items = Array.from({ length: 300 }, (_, k) => ({ k }));
for (let i = 0; i < 250; i++) try { await tools.pick({ items }) } catch {}"""
_FETCHES = "for (let i = 0; i < 250; i++) try { await fetch('https://example.com/') } catch {}"

HOSTILE = (
    Hostile("large outputs", _program(_LARGE_OUTPUT, _tool("rows", lambda _: _ROWS))),
    Hostile("empty objects", _program(_OBJECTS, _tool("take", lambda _: 1, input_schema={"type": "object"}))),
    Hostile("alternatives", _program(_KEYS, _tool("pick", lambda _: 1, input_schema=_ALTERNATIVES))),
    Hostile("headers", _program(_FETCHES, options=_FETCHING)),
    Hostile("large ledger", _paused_and_resumed),
    Hostile("large shown input", _large_shown_input),
    Hostile("first search", _search_and_count_event),
    Hostile("look-ahead", _look_ahead),
)


async def late(hostile: tuple[Hostile, ...], seconds: float) -> Heartbeat:
    """Return the heartbeat while each of them runs, over and over for so long, and as they are cancelled."""
    beat, pool = Heartbeat(), WorkerPool()
    _search_and_count_event.make(pool, _SEARCHES)
    # Hosts with thousands of tools do well to: a full collection goes through all of them, and holds the loop as long.
    gc.collect()
    gc.freeze()

    async def keep_going(one: Hostile) -> None:
        while True:
            with suppress(CodeModeError):  # under load a program may run out of time
                await one.run(pool)
            await asyncio.sleep(0)

    try:
        # What is imported by the first of them is no data.
        tasks = [asyncio.create_task(keep_going(one)) for one in hostile]
        await asyncio.sleep(WARM_UP_SECONDS if hostile else 0)
        async with beat.beating():
            await asyncio.sleep(seconds)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        pool.close()
        gc.unfreeze()
    return beat


async def heartbeat_rows(seconds: float) -> list[Row]:
    """Return the row of the benchmark: the worst beat, beside that of a quiet loop."""
    quiet = await late((), min(seconds, 2.0))
    busy = await late(HOSTILE, seconds)
    worst, floor = busy.percentile(100), quiet.percentile(100)
    note = f"ms late, p50 / p99 / p100 of {len(busy.late_ms)} beats: {busy.text()}; quiet: {quiet.text()}"
    what = f"heartbeat, {len(HOSTILE)} hostile programs"
    return [Row("W12", what, worst, floor=floor, target=f"<= {TARGET_MS:.0f} ms", met=worst <= TARGET_MS, note=note)]


def _chosen(names: list[str]) -> Iterator[Hostile]:
    return (one for one in HOSTILE if not names or one.name in names)


async def _each(seconds: float, names: list[str]) -> None:
    print(f"{'quiet':>20} {(await late((), 1.0)).text()}")
    for one in _chosen(names):
        print(f"{one.name:>20} {(await late((one,), seconds)).text()}", flush=True)
    everything = tuple(_chosen(names))
    print(f"{'all at once':>20} {(await late(everything, seconds)).text()}")


if __name__ == "__main__":
    asyncio.run(_each(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0, sys.argv[2:]))
