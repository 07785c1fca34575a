"""exec and wait in place of an agent's tools: what is shown, and what becomes of programs that wait."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, replace
from typing import Any

import pytest
from codemode_pydantic_ai import CodeMode, ExecWait
from mcp.server.mcpserver import MCPServer
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability, Hooks, Instrumentation
from pydantic_ai.exceptions import UserError
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.tools import ToolDefinition
from scripted import Script, execute, run_id_of, wait
from suite import each_row

import codemode
from codemode import NamespaceRegistry, ToolSource, namespace_tool
from codemode.types import Namespace

WAIT_SECONDS = 60.0
"""exec and wait leave a program waiting as soon as they may."""


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


def double(n: int) -> int:
    """Twice a number."""
    return n * 2


class Held:
    """A tool whose calls last until they are let go, and that tells what has become of them."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.ends: list[str] = []

    async def held(self) -> str:
        """Take long."""
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise
        self.ends.append("ended")
        return "at last"

    async def release(self) -> str:
        """Let them go."""
        self.go.set()
        return "released"


def agent_of(script: Script, *tools: Any, capability: Any = None, more: Any = (), **settings: Any) -> Agent[Any, Any]:
    chosen = ExecWait() if capability is None else capability
    return Agent(script.model, tools=tools, capabilities=[chosen, *more], **settings)


# -- what the model sees


def test_the_model_sees_exactly_the_pair_and_what_is_direct() -> None:
    def clock() -> str:
        return "noon"

    script = Script("done")
    within(agent_of(script, double, clock, capability=ExecWait(direct=[clock])).run("go"))
    assert sorted(script.tool_names) == ["clock", "exec", "wait"]
    shown = {tool.name: tool for tool in script.seen[0][1].function_tools}
    kinds = {"toolKind": "code_mode_exec", "toolInputKind": "javascript"}
    assert shown["exec"].metadata == {**kinds, "code_arg_name": "code", "code_arg_language": "javascript"}
    assert shown["wait"].metadata == {"toolKind": "code_mode_wait"}
    assert "Twice a number" in (shown["exec"].description or "")
    assert "clock" not in (shown["exec"].description or "")


@pytest.mark.parametrize(
    "options", [False, {"enabled": False}, {"tools": {"codeMode": {"enabled": False}}}], ids=["no", "own", "whole"]
)
def test_switched_off_it_changes_nothing(options: Any) -> None:
    script = Script([ToolCallPart("double", {"n": 4}, tool_call_id="outer")], "done")
    within(agent_of(script, double, capability=ExecWait(options=options)).run("go"))
    assert (script.tool_names, script.returned()) == (["double"], 8)


@each_row("options", [None, True, {}, {"tools": {"codeMode": {"timeoutMs": 500}}}, {"tools": {}}])
def test_there_it_is_on(options: Any) -> None:
    capability = ExecWait(options=options)
    script = Script("done")
    within(agent_of(script, double, capability=capability).run("go"))
    assert capability.options.enabled
    assert script.tool_names == ["exec", "wait"]


def test_an_agent_without_tools_is_left_alone() -> None:
    script = Script("done")
    within(agent_of(script).run("go"))
    assert script.tool_names == []


def test_a_tool_called_exec_is_an_entry_like_any_other() -> None:
    def run_shell(command: str) -> str:
        return f"ran {command}"

    program = """return [ALL_TOOLS.map((one) => one.id), await tools.call("host:core:exec", {command: "ls"}),
        await tools.exec({command: "pwd"})]"""
    script = Script(execute(program), "done")
    within(agent_of(script, Tool(run_shell, name="exec"), double).run("go"))
    assert script.tool_names == ["exec", "wait"]
    ids = ["host:core:double", "host:core:exec"]
    assert script.returned()["value"] == [ids, "ran ls", "ran pwd"]


@each_row(
    "given, said",
    [
        ({"direct": ["exec"]}, "exec"),
        ({"direct": [Tool(double, name="wait")]}, "wait"),
        ({"direct": "clock"}, "list"),
        ({"options": {"timeoutMs": "long"}}, "tools.codeMode.timeout_ms"),
        ({"options": {"colour": 1}}, "colour"),
        ({"options": {"approvals": "park"}}, "store"),
        ({"settings": {"execution_policy": {"timeout_includes_tools": True}}}, "timeout_includes_tools"),
        ({"sources": [ToolSource([3])]}, "no tool"),
        ({"sources": 3}, "sources"),
        ({"defer_loading": True}, "defer_loading"),
    ],
)
def test_what_means_nothing_is_refused_at_once(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ExecWait(**given)


def test_two_surfaces_cannot_stand_in_one_agent() -> None:
    with pytest.raises(UserError, match="ordering"):
        Agent("test", tools=[double], capabilities=[ExecWait(), CodeMode()])


def test_tools_that_are_loaded_late_are_in_the_catalog_and_their_search_is_not() -> None:
    late = Tool(double, defer_loading=True)
    script = Script(execute("return [ALL_TOOLS.map((one) => one.name), await tools.double({n: 4})]"), "done")
    within(agent_of(script, late, held_of(Held())).run("go"))
    assert script.tool_names == ["exec", "wait"]
    assert script.returned()["value"] == [["double", "held"], 8]


def held_of(held: Held) -> Tool[Any]:
    return Tool(held.held)


# -- the request is looked at


@dataclass
class Adds(AbstractCapability[Any]):
    """Puts something into each request."""

    tool: str = "sneaked"
    native: bool = False
    late: bool = False

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        return request_context if self.late else self._changed(request_context)

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        return self._changed(request_context) if self.late else request_context

    def _changed(self, request_context: Any) -> Any:
        given = request_context.model_request_parameters
        if self.native:
            changed = replace(given, native_tools=[*given.native_tools, WebSearchTool()])
        else:
            changed = replace(given, function_tools=[*given.function_tools, ToolDefinition(name=self.tool)])
        return replace(request_context, model_request_parameters=changed)


class Takes(AbstractCapability[Any]):
    """Takes wait out of each request."""

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        given = request_context.model_request_parameters
        left = [tool for tool in given.function_tools if tool.name != "wait"]
        return replace(request_context, model_request_parameters=replace(given, function_tools=left))


@each_row(
    "capability, said",
    [
        (Adds(), "'sneaked' would be added"),
        (Adds(late=True), "'sneaked' would be added"),
        (Adds(native=True), "'web_search' would be added"),
        (Takes(), "'wait' would be missing"),
    ],
)
@each_row("is_streamed", [False, True])
def test_a_request_that_offers_something_else_is_not_made(capability: Any, said: str, is_streamed: bool) -> None:
    if getattr(capability, "late", False) and not hasattr(AbstractCapability, "prepare_model_request"):
        pytest.skip("this version has no hook that late")
    script = Script("done")
    agent = agent_of(script, double, more=[capability])

    async def streamed() -> None:
        async with agent.run_stream("go") as result:
            await result.get_output()

    with pytest.raises(UserError, match=said):
        within(streamed() if is_streamed else agent.run("go"))
    assert script.seen == []


def test_a_direct_tool_that_is_not_there_is_missed() -> None:
    script = Script("done")
    with pytest.raises(UserError, match="'clock' would be missing"):
        within(agent_of(script, double, capability=ExecWait(direct=["clock"])).run("go"))


def test_output_tools_stand_beside_the_pair() -> None:
    script = Script([ToolCallPart("final_result", {"response": 3})])
    result = within(agent_of(script, double, output_type=int).run("go"))
    assert result.output == 3
    assert script.tool_names == ["exec", "wait"]


# -- programs that wait


# -- the end of a run


# -- nested calls are calls


def test_hooks_and_spans_see_nested_calls_and_what_kind_of_tool_the_outer_ones_are() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    seen: list[str] = []

    async def before(ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        seen.append(call.tool_name)
        return args

    code = "await yield_control(); return await tools.double({n: 4})"
    script = Script(execute(code, language="typescript"), wait(), "done")
    more = [Hooks(before_tool_execute=before), Instrumentation(InstrumentationSettings(tracer_provider=provider))]
    within(agent_of(script, double, more=more).run("go"))
    assert seen == ["exec", "wait", "double"]
    spans = [span for span in exporter.get_finished_spans() if "gen_ai.tool.name" in (span.attributes or {})]
    told = {span.attributes["gen_ai.tool.name"]: span.attributes for span in spans if span.attributes}
    assert (told["exec"]["toolKind"], told["exec"]["toolInputKind"]) == ("code_mode_exec", "typescript")
    assert told["wait"]["toolKind"] == "code_mode_wait"
    assert "toolKind" not in told["double"]


def test_a_program_reads_what_the_framework_tells_models() -> None:
    def picky(n: int) -> int:
        raise ModelRetry(f"not {n}")

    code = """const told = [];
        for (const input of [{n: 1}, {n: "x"}, {}]) {
            try { await tools.picky(input) } catch (error) { told.push(error.message) }
        }
        await tools.picky({n: 9})"""
    script = Script(
        execute(code + "; return told"), execute(code.replace("await tools.picky({n: 9})", "return told"), "b"), "done"
    )
    within(agent_of(script, picky).run("go"))
    failed, told = script.returned(), script.returned("b")["value"]
    assert (failed["status"], failed["code"]) == ("failed", "nested_tool_failed")
    assert "not 9" in failed["error"]
    assert told[0] == "not 1"
    assert all("Invalid input" in one for one in told[1:])


def test_a_durable_engine_is_refused() -> None:
    class Engine(AbstractCapability[Any]):
        in_durable_context = True

    with pytest.raises(UserError, match="durable engine"):
        within(agent_of(Script(execute("return 1"), "done"), double, more=[Engine()]).run("go"))


def test_calls_are_made_on_the_loop_of_the_run_that_goes_on() -> None:
    loops: list[Any] = []
    left: list[str] = []
    begun, over = threading.Event(), threading.Event()

    async def note() -> int:
        loops.append(asyncio.get_running_loop())
        return len(loops)

    capability = ExecWait()
    script = Script(
        execute("const a = await tools.note({}); await yield_control(); return [a, await tools.note({})]"), "x"
    )

    async def first() -> None:
        result = await agent_of(script, note, capability=capability).run("go", conversation_id="c")
        left.append(run_id_of(result.all_messages()))
        begun.set()
        await asyncio.to_thread(over.wait, WAIT_SECONDS)

    thread = threading.Thread(target=lambda: within(first()))
    thread.start()
    try:
        assert begun.wait(WAIT_SECONDS)
        second = Script([ToolCallPart("wait", {"runId": left[0]}, tool_call_id="waiting")], "done")
        within(agent_of(second, note, capability=capability).run("on", conversation_id="c"))
    finally:
        over.set()
        thread.join(WAIT_SECONDS)
    assert second.returned("waiting")["value"] == [1, 2]
    assert loops[0] is not loops[1]


def test_tools_of_an_mcp_toolset_are_in_the_catalog() -> None:
    server = MCPServer("shop")

    @server.tool()
    def price(product: str) -> int:
        """What a product costs."""
        return len(product)

    script = Script(execute("return [ALL_TOOLS.map((one) => one.id), await tools.price({product: 'bolt'})]"), "done")
    agent = Agent(script.model, toolsets=[MCPToolset(server)], capabilities=[ExecWait()])
    within(agent.run("go"))
    assert script.returned()["value"] == [["host:core:price"], 4]


# -- further sources


class Session:
    """A server of MCP with one tool, as a session of the SDK shows it."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def list_tools(self) -> Any:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return [{"name": "add_one", "description": "One more.", "inputSchema": schema}]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        self.calls.append((name, arguments))
        return {"content": [], "structuredContent": {"n": arguments["n"] + 1}, "isError": False}


def test_tools_of_sources_are_called_on_the_framework_s_path_too() -> None:
    session, seen = Session(), []

    async def before(ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        seen.append((call.tool_name, args))
        return args

    def triple(ctx: RunContext[int], n: int) -> int:
        return n * 3 + ctx.deps

    core = codemode.Tool("double", execute=lambda given: given["n"] * 20, input_schema={"type": "object"})
    sources = [
        ToolSource([triple], "plugin", "maths"),
        ToolSource([core], "plugin", "other"),
        ToolSource(session, "mcp", "counter"),
    ]
    code = """return [await tools.call("host:core:double", {n: 1}), await tools.call("plugin:other:double", {n: 1}),
        await tools.triple({n: 1}), await MCP.counter.addOne({n: 1}), typeof tools.double]"""
    script = Script(execute(code), "done")
    agent = agent_of(script, double, capability=ExecWait(sources), more=[Hooks(before_tool_execute=before)])
    result = within(agent.run("go", deps=100))
    assert script.returned()["value"] == [2, 20, 103, {"n": 2}, "undefined"]
    assert result.usage.tool_calls == 5
    names = ["exec", "double", "plugin:other:double", "plugin:maths:triple", "mcp:counter:add_one"]
    assert [name for name, _ in seen] == names
    assert session.calls == [("add_one", {"n": 1})]


def test_sources_alone_are_enough() -> None:
    script = Script(execute("return [ALL_TOOLS.length, await MCP.counter.add_one({n: 1})]"), "done")
    within(agent_of(script, capability=ExecWait(ToolSource(Session(), "mcp", "counter"))).run("go"))
    assert script.returned()["value"] == [0, {"n": 2}]


def test_a_plugin_s_namespace_calls_its_tools() -> None:
    def add(title: str) -> str:
        return f"added {title}"

    registry = NamespaceRegistry()
    registry.register(
        "cal", Namespace("cal", "Calendar", ["add"], lambda _: {"events": {"add": namespace_tool("add")}})
    )
    sources = ToolSource([add], "plugin", "cal")
    script = Script(execute("return await Calendar.events.add({title: 'tea'})"), "done")
    within(agent_of(script, double, capability=ExecWait(sources, namespaces=registry)).run("go"))
    assert script.returned()["value"] == "added tea"
