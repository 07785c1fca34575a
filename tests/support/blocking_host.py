"""A host that lets nothing block its event loop: what would raises, and is printed. Argument: names of scenarios."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import traceback
from pathlib import Path
from typing import Any

from blockbuster import blockbuster
from passing_time import PassingTime

import codemode.errors
import codemode.stores
from codemode import CallContext

# A key without a guard that both processes see is warned of, rightly, and noise here.
logging.getLogger("codemode.continuations").addHandler(logging.NullHandler())
FOUND: list[str] = []
PASSING_TIME = PassingTime()  # its own Clock is imported early, as nothing that blocks would be


class Noted(blockbuster.BlockingError):
    """Notes where, for what raises may be caught on its way."""

    def __init__(self, function: str) -> None:
        super().__init__(function)
        FOUND.append(f"{function}\n{''.join(traceback.format_stack(limit=14))}")


async def echo(value: Any) -> Any:
    return value


def in_a_thread(value: Any) -> Any:
    return value


TOOLS = [codemode.Tool("echo", execute=echo), codemode.Tool("in_a_thread", execute=in_a_thread)]
EXEC = {"start_method": "exec", "max_workers": 8}


def _typed(n: int) -> int:
    return n


async def first_run() -> None:
    other = codemode.Tool("other", execute=echo, input_schema={"type": "array"})
    assert await codemode.run_code_mode("return await tools.echo(1)", TOOLS) == 1
    js = "return [await tools.typed({ n: 1 }), await tools.other([])]"
    assert await codemode.run_code_mode(js, {"typed": _typed, "other": other}) == [1, []]


async def many_runs(pool: codemode.WorkerPool | None = None) -> None:
    js = "return await Promise.all([tools.echo(1), tools.in_a_thread(2)])"
    for _ in range(5):
        runs = [codemode.run_code_mode(js, TOOLS, pool=pool) for _ in range(6)]
        assert await asyncio.gather(*runs) == [[1, 2]] * 6
        await asyncio.sleep(0.01)


async def by_exec() -> None:
    async with codemode.WorkerPool(EXEC) as pool:
        await many_runs(pool)
        await timeouts(pool)


async def without_spares() -> None:
    async with codemode.WorkerPool({"spare_workers": 0, "max_workers": 8}) as pool:
        await many_runs(pool)


async def timeouts(pool: codemode.WorkerPool | None = None) -> None:
    options = {"execution_policy": {"timeout_ms": 150}}
    for js in ("for (;;);", "await tools.hang()"):
        hang = codemode.Tool("hang", execute=lambda: asyncio.Event().wait())
        runs = [codemode.run_code_mode(js, [hang], options=options, pool=pool) for _ in range(4)]
        for error in await asyncio.gather(*runs, return_exceptions=True):
            assert isinstance(error, codemode.CodeModeTimeoutError), error

    async def late() -> None:
        PASSING_TIME.skip(61)
        await asyncio.Event().wait()

    again = {"execution_policy": {"tool_timeout_ms": 60_000, "timeout_includes_tools": False}}
    js = "try { await tools.late() } catch (e) { return e.code }"
    made = [codemode.Tool("late", execute=late)]
    assert await codemode.run_code_mode(js, made, options=again, pool=pool) == "CODE_MODE_CALL_TIMEOUT"


async def cancelled() -> None:
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(codemode.run_code_mode("await tools.wait()", [codemode.Tool("wait", execute=wait)]))
    await started.wait()
    task.cancel()
    await asyncio.wait([task])
    # Before there is a worker: somebody else has to close it.
    for turns in range(12):
        pool = codemode.WorkerPool({"spare_workers": turns % 2})
        task = asyncio.create_task(codemode.run_code_mode("return 1", [], pool=pool))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await pool.aclose()


async def workers_that_die() -> None:
    begun = asyncio.Semaphore(0)

    async def begin() -> None:
        begun.release()

    js, tools = "await tools.begin(); for (;;);", [codemode.Tool("begin", execute=begin)]
    async with codemode.WorkerPool({"max_workers": 8}) as pool:
        tasks = [asyncio.create_task(codemode.run_code_mode(js, tools, pool=pool)) for _ in range(3)]
        for _ in range(3):
            await begun.acquire()
        await asyncio.to_thread(lambda: [worker.process.kill() for worker in list(pool.supply.inventory.busy)])
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, codemode.errors.CodeModeWorkerError), error
        generation = pool.supply.inventory._current_source
        await asyncio.to_thread(generation.source.kill)
        await many_runs(pool)
        assert pool.supply.inventory._current_source is not generation


async def paused(pool: codemode.WorkerPool | None = None, **continuation: Any) -> None:
    pay = codemode.Tool("pay", execute=lambda: "paid", needs_approval=True)
    options = {"approval": {"mode": "interrupt"}, "continuation": continuation}
    tool = codemode.create_code_mode_tool([pay, *TOOLS], options, pool=pool)
    for _ in range(3):
        pause = await tool.execute({"js": "await tools.echo(1); return await tools.pay()"})
        stored = codemode.Interrupt.from_dict(pause.to_dict())
        assert await tool.resume(stored, {"approved": True}) == "paid"
        assert await tool.resume(stored, {"approved": True}) == "paid"


async def paused_elsewhere() -> None:
    """Only the second half happens here: the first thing that this process does is a resume."""
    made = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "pauses", stdout=asyncio.subprocess.PIPE, env={"KEY": "x"}
    )
    text, _ = await made.communicate()
    import json

    pay = codemode.Tool("pay", execute=lambda: "paid", needs_approval=True)
    options = {"continuation": {"keys": ["a key that both have"]}}
    value = await codemode.continue_interrupt(json.loads(text), {"approved": True}, tools=[pay], options=options)
    assert value == "paid"


async def pauses() -> None:
    import json

    pay = codemode.Tool("pay", execute=lambda: "paid", needs_approval=True)
    options = {"approval": {"mode": "interrupt"}, "continuation": {"keys": ["a key that both have"]}}
    pause = await codemode.run_code_mode("return await tools.pay()", [pay], options=options)
    print(json.dumps(pause.to_dict()))


async def shares_and_waiting() -> None:
    async with codemode.WorkerPool({"max_workers": 2, "on_saturation": "wait"}) as pool:
        share = pool.share("tenant", max_workers=1)
        await many_runs(share)
        await many_runs(pool)
    async with codemode.WorkerPool() as by_memory:
        await many_runs(by_memory)


async def closed_on_the_loop() -> None:
    with codemode.WorkerPool() as pool:
        await many_runs(pool)
    with codemode.WorkerPool(EXEC) as pool:
        await many_runs(pool)


async def sealed() -> None:
    guard = codemode.stores.SqliteInterruptStore(Path(sys.argv[2]) / "claims.db").guard
    await paused(guard=guard)
    await paused(guard=guard, seal=True, keys=["a key of some length"], compress=True)


async def with_schemas() -> None:
    """Tools made on the loop, of every kind of schema; checked inputs and outputs, small and large."""
    usual = {"type": "object", "properties": {"n": {"type": "integer"}}}
    other = {"type": "object", "properties": {"n": {"oneOf": [{"type": "integer"}, {"type": "array"}]}}}

    def typed(n: int, names: list[str]) -> dict[str, int]:
        return dict.fromkeys(names, n)

    tools = [
        codemode.Tool("usual", execute=echo, input_schema=usual),
        codemode.Tool("other", execute=echo, input_schema=other, output_schema=other),
        codemode.tool(typed),
    ]
    tool = codemode.create_code_mode_tool(tools)
    assert "oneOf" not in tool.description
    js = """
    await tools.usual({ n: 1 });
    await tools.other({ n: Array.from({ length: 5000 }, (_, i) => i) });
    const refused = await tools.other({ n: JSON.parse('"x"') }).catch((e) => e.code);
    const names = Array.from({ length: 500 }, (_, i) => "name" + i);
    return [refused, Object.keys(await tools.typed({ n: 1, names })).length, (await tools.$search("usual")).length];
    """
    assert await tool.execute({"js": js}) == ["CODE_MODE_TOOL_ERROR", 500, 1]


async def fetching() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    options = {"fetch_policy": {"allowed_origins": [origin]}}
    for _ in range(2):
        js = f"return await (await fetch('{origin}/')).text()"
        assert await codemode.run_code_mode(js, [], options=options) == "hello"
    server.close()
    await server.wait_closed()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
    await writer.drain()
    writer.close()


async def traced() -> None:
    from opentelemetry.trace import NoOpTracer

    told: list[Any] = []
    options = {
        "telemetry": {"is_enabled": True, "tracer": NoOpTracer()},
        "lifecycle": {"on_trace": told.append},
        "model_output": {"include_nested_tool_summary": True},
    }
    tool = codemode.create_code_mode_tool(TOOLS, options)
    value = await tool.execute({"js": "console.log(1); return await tools.echo(1)"}, call=CallContext(tool_call_id="a"))
    tool.to_model_output(value, tool_call_id="a")
    assert "echo" in told[0].to_text()
    assert "<" in told[0]._repr_html_()


SCENARIOS = {
    work.__name__: work
    for work in (
        first_run, many_runs, by_exec, without_spares, timeouts, cancelled, workers_that_die, paused, paused_elsewhere,
        shares_and_waiting, closed_on_the_loop, sealed, with_schemas, fetching, traced, pauses,
    )
}  # fmt: skip


def main() -> None:
    names = sys.argv[1].split(",")
    if "with_schemas" in names:
        # Making a tool compiles its schemas, and is no coroutine: it imports where it is called.
        codemode.create_code_mode_tool([_typed, codemode.Tool("dict", execute=echo, input_schema={})])
    blockbuster.BlockingError = Noted
    watch = blockbuster.BlockBuster()
    watch.activate()
    try:
        for name in names:
            asyncio.run(asyncio.wait_for(SCENARIOS[name](), 60))
    finally:
        watch.deactivate()
        print("\n".join(FOUND), file=sys.stderr)
    gc.collect()
    if names != ["pauses"]:
        print("ok" if not FOUND else "blocked")


if __name__ == "__main__":
    main()
