"""Programs over an agent's tools: what the model sees, and that nested calls are calls like any other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from codemode_pydantic_ai import (
    CodeMode,
    CodeModeToolset,
    create_code_mode_tool,
)
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, ToolReturn, UsageLimits
from pydantic_ai.capabilities import Hooks, Instrumentation, PrepareTools
from pydantic_ai.exceptions import ToolFailed, UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, program

WAIT_SECONDS = 60.0


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


def ran(script: Script, tools: Any = (), *, capabilities: Any = None, deps: Any = None, **settings: Any) -> Any:
    """Run an agent over a script and return its result."""
    limits = settings.pop("usage_limits", None)
    agent = Agent(script.model, tools=tools, capabilities=capabilities or [CodeMode()], **settings)
    return within(agent.run("go", deps=deps, usage_limits=limits))


def double(n: int) -> int:
    """Twice a number."""
    return n * 2


def test_the_model_sees_one_tool() -> None:
    script = Script(program("return await tools.double({ n: 21 })"), "done")
    assert ran(script, [double]).output == "done"
    assert script.tool_names == ["codeMode"]
    assert script.returned() == 42
    description = script.seen[0][1].function_tools[0].description or ""
    assert "/** Twice a number. */" in description
    assert "Promise<number>" in description


def test_named_tools_stay_native() -> None:
    def clock() -> str:
        return "noon"

    script = Script("done")
    ran(script, [double, clock], capabilities=[CodeMode(keep=["clock"])])
    assert sorted(script.tool_names) == ["clock", "codeMode"]


def test_a_tool_that_a_program_cannot_name_stays_native() -> None:
    script = Script("done")
    ran(script, [double, Tool(treble, name="then")])
    assert sorted(script.tool_names) == ["codeMode", "then"]


def test_a_program_that_returns_nothing_says_so() -> None:
    script = Script(program("await tools.double({ n: 1 })"), "done")
    ran(script, [double])
    assert "Its last statement has this value: 2" in script.returned()


def test_null_is_a_result_too() -> None:
    script = Script(program("await tools.double({ n: 1 }); return null"), "done")
    ran(script, [double])
    assert script.returned() is None


def test_without_other_tools_there_is_no_code_mode() -> None:
    script = Script("done")
    ran(script)
    assert script.tool_names == []


def test_output_tools_stay_native() -> None:
    class Answer(BaseModel):
        n: int

    agent = Agent(TestModel(call_tools=[]), tools=[double], output_type=Answer, capabilities=[CodeMode()])
    assert isinstance(within(agent.run("go")).output, Answer)


def treble(n: int) -> int:
    """Thrice a number."""
    return n * 3


def test_a_tool_that_is_not_revealed_is_not_in_the_program() -> None:
    script = Script(program("return await tools.treble({ n: 2 })"), "done")
    ran(script, [double, Tool(treble, defer_loading=True)])
    assert "treble" not in (script.seen[0][1].function_tools[0].description or "")
    assert "tools.treble does not exist" in str(script.returned())


def test_tool_search_reveals_tools_to_the_program() -> None:
    search = [ToolCallPart("search_tools", {"queries": ["treble"]}, tool_call_id="search")]
    script = Script(search, program("return await tools.treble({ n: 2 })"), "done")
    ran(script, [double, Tool(treble, defer_loading=True)])
    assert script.returned() == 6


def test_prepare_tools_comes_first() -> None:
    def without_double(ctx: RunContext[Any], definitions: Any) -> Any:
        return [one for one in definitions if one.name != "double"]

    def half(n: int) -> float:
        return n / 2

    script = Script("done")
    ran(script, [double, half], capabilities=[PrepareTools(without_double), CodeMode()])
    description = script.seen[0][1].function_tools[0].description or ""
    assert "half" in description
    assert "double" not in description


@dataclass
class Shop:
    stock: dict[str, int]


def test_deps_and_call_ids_reach_nested_tools() -> None:
    seen: list[Any] = []

    async def stock(ctx: RunContext[Shop], product: str) -> int:
        seen.append((ctx.tool_name, ctx.tool_call_id, ctx.tool_call_approved))
        return ctx.deps.stock[product]

    js = "return await Promise.all(['nut', 'bolt'].map((product) => tools.stock({ product })))"
    script = Script(program(js, "call_9"), "done")
    ran(script, [stock], deps=Shop({"nut": 3, "bolt": 4}), deps_type=Shop)
    assert script.returned("call_9") == [3, 4]
    assert sorted(seen) == [("stock", "call_9:tool-1", False), ("stock", "call_9:tool-2", False)]


def test_results_are_unwrapped_and_made_json() -> None:
    class Point(BaseModel):
        x: int

    def point() -> ToolReturn:
        return ToolReturn(return_value=Point(x=1), content="for the model alone", metadata={"secret": 1})

    script = Script(program("return (await tools.point()).x"), "done")
    ran(script, [point])
    assert script.returned() == 1


def test_hooks_run_around_nested_calls() -> None:
    seen: list[str] = []
    hooks: Hooks[Any] = Hooks()

    @hooks.on.before_tool_execute
    async def before(ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        seen.append(call.tool_name)
        return {**args, "n": args["n"] + 1} if call.tool_name == "double" else args

    script = Script(program("return await tools.double({ n: 1 })"), "done")
    ran(script, [double], capabilities=[CodeMode(), hooks])
    assert seen == ["codeMode", "double"]
    assert script.returned() == 4


def test_three_nested_calls_are_the_limit_under_promise_all() -> None:
    made: list[int] = []

    async def slow(n: int) -> int:
        await asyncio.sleep(0)
        made.append(n)
        return n

    js = "return await Promise.all([1, 2, 3, 4, 5].map((n) => tools.slow({ n }).catch(() => 0)))"
    with pytest.raises(UsageLimitExceeded):  # the program's own call counts too
        ran(Script(program(js), "done"), [slow], usage_limits=UsageLimits(tool_calls_limit=4))
    assert len(made) <= 3
    script = Script(program(js.replace(", 4, 5", "")), "done")
    result = ran(script, [slow], usage_limits=UsageLimits(tool_calls_limit=4))
    assert script.returned() == [1, 2, 3]
    assert result.usage.tool_calls == 4


def test_calls_that_fail_do_not_count() -> None:
    def never(n: int) -> int:
        raise ToolFailed("no")

    js = """
    for (let n = 0; n < 9; n += 1) { try { await tools.never({ n }) } catch {} }
    return await tools.double({ n: 4 });
    """
    script = Script(program(js), "done")
    ran(script, [double, never], usage_limits=UsageLimits(tool_calls_limit=2))
    assert script.returned() == 8


def test_validators_and_retries_are_those_of_a_direct_call() -> None:
    async def no_odd(ctx: RunContext[Any], n: int) -> None:
        if n % 2:
            raise ModelRetry("only even numbers")

    checked = Tool(double, args_validator=no_odd, max_retries=1)
    odd, even = program("return await tools.double({ n: 1 })"), program("return await tools.double({ n: 2 })")
    script = Script(odd, even, "done")
    ran(script, [checked])
    assert script.returned() == 4
    told = [part.content for part in script.seen[1][0][-1].parts]
    assert "only even numbers" in str(told)
    with pytest.raises(UnexpectedModelBehavior, match="'codeMode' exceeded max retries"):
        ran(Script(odd, odd, odd, "done"), [checked], capabilities=[CodeMode(max_retries=1)])


def test_a_tools_own_timeout_holds() -> None:
    async def slow() -> None:
        await asyncio.Event().wait()

    js = "try { await tools.slow() } catch (error) { return error.message }"
    script = Script(program(js), "done")
    ran(script, [Tool(slow, timeout=0.05)])
    assert "Timed out after 0.05 seconds" in script.returned()


def test_a_program_cannot_catch_the_end_of_the_run() -> None:
    def refuse() -> None:
        raise UnexpectedModelBehavior("enough")

    js = "try { await tools.refuse() } catch {} while (true) {}"
    with pytest.raises(UnexpectedModelBehavior, match="enough"):
        ran(Script(program(js), "done"), [refuse])


def test_a_limit_of_the_run_is_no_failure_of_a_tool(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UsageLimitExceeded):
        ran(
            Script(program("return await tools.double({ n: 1 })")),
            [double],
            usage_limits=UsageLimits(tool_calls_limit=1),
        )
    assert [one.getMessage() for one in caplog.records if one.name.startswith("codemode")] == []


def test_a_failed_program_is_told_what_it_has_done() -> None:
    script = Script(program("await tools.double({ n: 1 }); throw new TypeError('oh')"), "done")
    ran(script, [double])
    told = str(script.returned())
    assert "oh" in told
    assert "double" in told


def test_the_text_of_a_failed_tool_is_not_for_the_program() -> None:
    def broken() -> None:
        raise ValueError("/etc/secret")

    script = Script(program("await tools.broken()"), "done")
    ran(script, [broken])
    assert "secret" not in str(script.returned())


def test_sequential_tools_run_alone() -> None:
    running: list[str] = []
    overlaps: list[str] = []

    async def work(name: str) -> None:
        running.append(name)
        await asyncio.sleep(0.01)
        if len(running) > 1 and "alone" in running:
            overlaps.append(name)
        running.remove(name)

    async def together(n: int) -> None:
        await work(f"together {n}")

    async def alone(n: int) -> None:
        await work("alone")

    js = "await Promise.all([1, 2, 3].flatMap((n) => [tools.together({ n }), tools.alone({ n })]))"
    ran(Script(program(js), "done"), [together, Tool(alone, sequential=True)])
    assert overlaps == []


def test_an_mcp_server_in_this_process() -> None:
    server = MCPServer("shop")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def price(product: str) -> float:
        """What a product costs."""
        return {"nut": 1.5}[product]

    script = Script(program("const p = await tools.price({ product: 'nut' }); return p * 2"), "done")
    ran(script, toolsets=[MCPToolset(server)])
    assert script.returned() == 3.0
    description = script.seen[0][1].function_tools[0].description or ""
    assert "Promise<number>" in description
    assert "read-only" in description


def test_spans_are_nested() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = InstrumentationSettings(tracer_provider=provider)
    script = Script(program("return await tools.double({ n: 1 })"), "done")
    ran(script, [double], capabilities=[CodeMode(), Instrumentation(settings)])
    spans = {(span.attributes or {}).get("gen_ai.tool.name"): span for span in exporter.get_finished_spans()}
    assert spans["double"].parent is not None
    assert spans["codeMode"].context is not None
    assert spans["double"].parent.span_id == spans["codeMode"].context.span_id


def test_cancelling_the_run_cancels_the_nested_tool() -> None:
    async def main() -> None:
        entered, ended = asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        agent = Agent(Script(program("await tools.hang()"), "done").model, tools=[hang], capabilities=[CodeMode()])
        run = asyncio.create_task(agent.run("go"))
        await entered.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await ended.wait()

    within(main())


def test_the_toolset_and_the_tool_without_the_capability() -> None:
    script = Script(program("return await tools.double({ n: 2 })"), "done")
    agent = Agent(script.model, toolsets=[CodeModeToolset(FunctionToolset([double]))])
    within(agent.run("go"))
    assert script.returned() == 4
    script = Script(program("return await tools.double({ n: 3 })"), "done")
    agent = Agent(script.model, tools=[create_code_mode_tool([double])])
    within(agent.run("go"))
    assert script.returned() == 6
    assert "Twice a number." in (script.seen[0][1].function_tools[0].description or "")


def test_streaming() -> None:
    async def main() -> str:
        agent = Agent(script.model, tools=[double], capabilities=[CodeMode()])
        async with agent.run_stream("go") as stream:
            return await stream.get_output()

    script = Script(program("return await tools.double({ n: 2 })"), "done")
    assert within(main()) == "done"
    assert script.returned() == 4
