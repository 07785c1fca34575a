"""Everything of the plugin that runs on an event loop, in a process in which no call may block one.

Run by test_langchain_promises_blocking.py, as `langgraph dev` runs agents: with blockbuster. Prints "done" at the end
when no call was found to block, also none whose error somebody caught.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import Any

from blockbuster import BlockBuster, blockbuster
from codemode_langchain import CodeModeMiddleware, create_code_mode_tool
from langchain_core.tools import ToolException, tool
from langgraph.types import Command, interrupt
from scripted_agent import CONFIG, START, agent, content, model, results

from codemode import PoolOptions, WorkerPool
from codemode.stores import SqliteInterruptStore

FOUND: list[str] = []


class Noted(blockbuster.BlockingError):
    """Notes where, for what raises may be caught on its way."""

    def __init__(self, function: str) -> None:
        super().__init__(function)
        FOUND.append(f"{function}\n{''.join(traceback.format_stack(limit=14))}")


async def agents(directory: str) -> None:
    """Build agents, and run them to their end and to a pause."""
    guard = SqliteInterruptStore(f"{directory}/guard.db").guard

    @tool
    async def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @tool
    def multiply(a: int, b: int = 2) -> int:
        """Multiply two numbers, in a thread."""
        return a * b

    @tool
    async def broken() -> str:
        """Fail."""
        raise KeyError("reason")

    @tool
    async def unwilling() -> str:
        """Say no."""
        raise ToolException("no")

    @tool
    async def ask(question: str) -> str:
        """Ask a person."""
        return interrupt(question)

    tools = [add, multiply, broken, unwilling, ask]
    options: dict[str, Any] = {
        "model_output": {"include_nested_tool_summary": True},
        "continuation": {"keys": "for this test", "guard": guard, "seal": True},
    }

    async def run(js: str, **settings: Any) -> Any:
        graph = agent([js], tools, CodeModeMiddleware(options=options, **settings))
        output = await graph.ainvoke(START, CONFIG)
        while waiting := output.get("__interrupt__"):
            answer = {"type": "approve"} if isinstance(waiting[0].value, dict) else "yes"
            output = await graph.ainvoke(Command(resume={waiting[0].id: answer}), CONFIG)
        return output

    both = "return [await tools.add({ a: 1 }), await tools.multiply({ a: 4 })]"
    assert "[3, 8]" in content(await run(both))
    assert "[3, 8]" in content(await run(both, approve={"add": True, "multiply": lambda args: args["a"] > 3}))
    assert "yes" in content(await run("return await tools.ask({ question: 'really?' })"))
    assert "[3, 8]" in content(await run("const a: number = 1; " + both))
    for js in (
        "await tools.broken({})",
        "await tools.unwilling({})",
        "syntax error",
        "throw new Error('x')",
        "for (;;);",
    ):
        limited = {**options, "execution_policy": {"timeout_ms": 500 if js == "for (;;);" else 60_000}}
        graph = agent([js], tools, CodeModeMiddleware(options=limited))
        assert results(await graph.ainvoke(START, CONFIG))[0].status == "error"
    large = "return (await Promise.all([...Array(20).keys()].map((a) => tools.add({ a })))).length + 'x'.repeat(300000)"
    assert "20x" in content(await run(large))
    events = agent((), tools, CodeModeMiddleware(), model=_unstreamed(model(both))).astream_events(START, CONFIG)
    assert "on_tool_end" in [one["event"] async for one in events]
    await cancelled()
    code_mode = create_code_mode_tool(tools)
    assert await code_mode.ainvoke({"js": both}) == [3, 8]
    await asyncio.gather(*(code_mode.ainvoke({"js": both}) for _ in range(12)))


async def cancelled() -> None:
    """Cancel an agent while its program waits for a tool."""
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    running = asyncio.create_task(agent(["await tools.wait({})"], [wait], CodeModeMiddleware()).ainvoke(START, CONFIG))
    await asyncio.wait_for(begun.wait(), 60)
    running.cancel()
    try:
        await running
    except asyncio.CancelledError:
        return
    raise AssertionError("it was not cancelled")


async def pools() -> None:
    """Bring pools of one's own, one of each kind."""

    @tool
    async def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    for start_method in ("auto", "exec"):
        pool = await asyncio.to_thread(WorkerPool, PoolOptions(start_method=start_method, max_workers=2))
        code_mode = create_code_mode_tool([add], pool=pool.share("tenant", max_workers=1))
        assert await code_mode.ainvoke({"js": "return await tools.add({ a: 1 })"}) == 3
        await asyncio.to_thread(pool.close)


def _unstreamed(scripted: Any) -> Any:
    scripted.disable_streaming = True
    return scripted


def development_server() -> BlockBuster:
    """What `langgraph dev` watches: less than blockbuster does by itself."""
    watching = BlockBuster()
    left_out = ["os.stat", "os.listdir", "os.remove", "threading.Lock.acquire"]
    for name in [*left_out, *(name for name in watching.functions if name.startswith(("os.path.", "io.")))]:
        watching.functions.pop(name)
    return watching


def main(which: str, directory: str) -> None:
    """Run it all on one loop, under what is watched by blockbuster or by `langgraph dev`."""
    watching = development_server() if which == "langgraph dev" else BlockBuster()
    blockbuster.BlockingError = Noted
    watching.activate()
    try:
        asyncio.run(agents(directory))
        asyncio.run(pools())
    finally:
        watching.deactivate()
    print("\n".join(FOUND) or "done")


if __name__ == "__main__":
    main(*sys.argv[1:])
