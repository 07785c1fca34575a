"""Calls of programs as events of the run while it goes on, and in the metadata of what it returned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from codemode_pydantic_ai import CodeCall, CodeMode, ExecWait, NestedCallEvent, create_code_mode_tool
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, Tool, ToolApproved, ToolDenied
from pydantic_ai.agent import CallToolsNode
from pydantic_ai.capabilities import Toolset
from pydantic_ai.messages import FunctionToolCallEvent, FunctionToolResultEvent, ToolReturnPart
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, execute, program, script

WAIT_SECONDS = 60.0
TWICE = "return [await tools.stock({ product: 'nut' }), await tools.stock({ product: 'bolt' })]"


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


def agent_of(steps: Script, *tools: Any, capability: Any = None, **settings: Any) -> Agent[Any, Any]:
    capabilities = [capability or CodeMode()]
    output_type: Any = [str, DeferredToolRequests]
    return Agent(steps.model, tools=list(tools), output_type=output_type, capabilities=capabilities, **settings)


def nested(events: list[Any]) -> list[tuple[str, str]]:
    return [(one.call_id, one.state) for one in events if isinstance(one, NestedCallEvent)]


async def streamed(agent: Agent[Any, Any], *prompt: str, **settings: Any) -> list[Any]:
    async with agent.run_stream_events(*prompt, **settings) as stream:
        return [event async for event in stream]


def returned(events: list[Any], name: str = "codeMode") -> ToolReturnPart:
    results = [one.part for one in events if isinstance(one, FunctionToolResultEvent)]
    return [one for one in results if one.tool_name == name][-1]


class Held:
    """A tool whose last call goes on when somebody has heard that it runs."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    async def stock(self, product: str) -> int:
        if product == "bolt":
            await self.heard.wait()
        return len(product)

    def hear(self, event: Any) -> None:
        if isinstance(event, NestedCallEvent) and event.input == {"product": "bolt"}:
            self.heard.set()


async def by_events(agent: Agent[Any, Any], held: Held) -> list[Any]:
    seen: list[Any] = []
    async with agent.run_stream_events("go") as stream:
        async for event in stream:
            held.hear(event)
            seen.append(event)
    return seen


async def by_nodes(agent: Agent[Any, Any], held: Held) -> list[Any]:
    seen: list[Any] = []
    async with agent.iter("go") as run:
        async for node in run:
            if isinstance(node, CallToolsNode):
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        held.hear(event)
                        seen.append(event)
    return seen


async def by_handler(agent: Agent[Any, Any], held: Held) -> list[Any]:
    seen: list[Any] = []

    async def handle(ctx: Any, events: AsyncIterator[Any]) -> None:
        async for event in events:
            held.hear(event)
            seen.append(event)

    await agent.run("go", event_stream_handler=handle)
    return seen


@pytest.mark.parametrize("listen", [by_events, by_nodes, by_handler])
def test_each_call_is_told_of_while_the_program_runs(listen: Callable[..., Any]) -> None:
    async def main() -> list[Any]:
        held = Held()
        return await listen(agent_of(Script(program(TWICE), "done"), held.stock), held)

    seen = within(main())
    states = [
        ("outer:tool-1", "running"),
        ("outer:tool-1", "done"),
        ("outer:tool-2", "running"),
        ("outer:tool-2", "done"),
    ]
    assert nested(seen) == states
    calls = [one for one in seen if isinstance(one, NestedCallEvent)]
    assert {(one.tool_call_id, one.tool_name, one.nested_tool_name) for one in calls} == {
        ("outer", "codeMode", "stock")
    }
    assert (calls[-1].output, calls[-1].input) == (4, {"product": "bolt"})
    assert (calls[-1].completed_at_ms or 0) >= calls[-1].started_at_ms > 0
    part = returned(seen)
    assert part.metadata["tool_kind"] == "code_mode"
    told = [(one["name"], one["input"], one["outcome"], one["output"]) for one in part.metadata["calls"]]
    assert told == [("stock", {"product": "nut"}, "done", 3), ("stock", {"product": "bolt"}, "done", 4)]


def test_what_fails_and_what_is_long_says_so() -> None:
    def stock(product: str) -> str:
        if product == "none":
            raise RuntimeError("a path of the host")
        return "x" * 20_000

    js = """
        await tools.stock({ product: "none" }).catch(() => 0);
        return (await tools.stock({ product: "y".repeat(20_000) })).length;
    """
    seen = within(streamed(agent_of(Script(program(js), "done"), stock), "go"))
    failed, long = (one for one in seen if isinstance(one, NestedCallEvent) and one.completed_at_ms is not None)
    assert (failed.state, failed.error, failed.output) == ("failed", "the tool failed", None)
    assert (long.state, long.input, long.output) == ("done", None, None)
    assert (long.input_bytes > 20_000, long.output_characters) == (True, 20_002)


def test_a_browser_is_sent_one_card_for_a_call_and_no_output() -> None:
    begun = NestedCallEvent(
        call_id="a:tool-1", nested_tool_name="stock", state="running", input={"n": 1}, tool_call_id="a"
    )
    ended = NestedCallEvent(
        call_id="a:tool-1", nested_tool_name="stock", state="done", output="secret", tool_call_id="a"
    )
    first, last = begun.to_payload(), ended.to_payload()
    assert (first.type, first.id) == (last.type, last.id) == ("data-codemode.call", "a:tool-1")
    assert (first.data["input"], first.data["outerToolCallId"]) == ({"n": 1}, "a")
    assert "secret" not in last.model_dump_json()


def test_over_a_pause_what_was_told_is_not_told_again() -> None:
    def refund(order: str) -> str:
        return f"refunded {order}"

    js = """
        const stock = await tools.stock({ product: "nut" });
        const done = await Promise.allSettled(["a", "b"].map((order) => tools.refund({ order })));
        return [stock, ...done.map((one) => one.value ?? one.reason.message)];
    """
    held = Held()
    agent = agent_of(Script(program(js), "done"), held.stock, Tool(refund, requires_approval=True))
    paused = within(streamed(agent, "go"))
    assert sorted(nested(paused)) == [
        *[("outer:tool-1", "done"), ("outer:tool-1", "running")],
        *[("outer:tool-2", "running"), ("outer:tool-2", "waiting")],
        *[("outer:tool-3", "running"), ("outer:tool-3", "waiting")],
    ]
    first, second = paused[-1].result.output.approvals
    waiting = [one.waits_as for one in paused if isinstance(one, NestedCallEvent) and one.state == "waiting"]
    assert waiting == [first.tool_call_id, second.tool_call_id]
    answers = {first.tool_call_id: ToolApproved(override_args={"order": "c"}), second.tool_call_id: ToolDenied("no")}
    history = paused[-1].result.all_messages()
    resumed = within(
        streamed(agent, message_history=history, deferred_tool_results=DeferredToolResults(approvals=answers))
    )
    assert sorted(nested(resumed)) == [
        *[("outer:tool-2", "done"), ("outer:tool-2", "running")],
        *[("outer:tool-3", "denied"), ("outer:tool-3", "running")],
    ]
    # The call of codeMode was announced before: adapters announce no call of which nobody has looked at the input.
    assert [one.args_valid for one in resumed if isinstance(one, FunctionToolCallEvent)] == [None]
    told = [(one["outcome"], one["input"], one.get("replayed")) for one in returned(resumed).metadata["calls"]]
    assert told == [
        ("done", {"product": "nut"}, True),
        ("done", {"order": "c"}, None),  # as it was edited: with that it was made
        ("denied", {"order": "b"}, None),
    ]


def test_a_program_that_is_left_waiting_is_told_of_by_the_call_that_goes_on_with_it() -> None:
    js = "const bolt = tools.call('host:core:stock', { product: 'bolt' }); await yield_control(); return await bolt"

    async def main() -> list[Any]:
        held, seen = Held(), list[Any]()
        steps = Script(execute(js))
        steps.steps.append(steps.waits_to_the_end)
        steps.steps.append("done")
        async with agent_of(steps, held.stock, capability=ExecWait()).run_stream_events("go") as stream:
            async for event in stream:
                seen.append(event)
                if isinstance(event, FunctionToolCallEvent) and event.part.tool_name == "wait":
                    held.heard.set()
        return seen

    seen = within(main())
    assert [state for _, state in nested(seen)] == ["running", "done"]
    results = [one.part for one in seen if isinstance(one, FunctionToolResultEvent)]
    told = [(part.tool_name, [one["outcome"] for one in part.metadata["calls"]]) for part in results]
    assert told[0] == ("exec", ["running"])
    assert ("wait", ["done"]) in told
    assert results[0].metadata["tool_kind"] == "code_mode_exec"


def test_code_call_tells_of_its_scripts_too() -> None:
    held = Held()
    held.heard.set()
    steps = Script(script("return await callTool('stock', { product: 'nut' })"), "done")
    seen = within(streamed(agent_of(steps, held.stock, capability=CodeCall()), "go"))
    assert [state for _, state in nested(seen)] == ["running", "done"]
    assert returned(seen, "codecall_execute").metadata["tool_kind"] == "code_call"
    shown = {tool.name: tool.metadata for tool in steps.seen[0][1].function_tools}
    assert shown["codecall_execute"] == {"code_arg_name": "script", "code_arg_language": "javascript"}
    assert shown["codecall_search"] is None


def test_what_programs_of_tools_call_is_theirs() -> None:
    held = Held()
    held.heard.set()
    inner = agent_of(Script(program(TWICE), "inner done"), held.stock)

    async def ask() -> str:
        return (await inner.run("go")).output

    steps = Script(program("return await tools.ask()"), "done")
    seen = within(streamed(agent_of(steps, ask), "go"))
    assert nested(seen) == [("outer:tool-1", "running"), ("outer:tool-1", "done")]
    assert [one["name"] for one in returned(seen).metadata["calls"]] == ["ask"]


def test_the_program_is_found_in_the_arguments_of_the_call() -> None:
    held = Held()
    steps = Script("done")
    within(agent_of(steps, held.stock).run("go"))
    (shown,) = steps.seen[0][1].function_tools
    assert shown.metadata == {"code_arg_name": "js", "code_arg_language": "javascript"}


def test_where_no_event_may_be_made_the_program_runs_as_ever() -> None:
    held = Held()
    held.heard.set()
    steps = Script(program(TWICE), "done")
    # A tool that a capability brings is to make that capability's events, and no others.
    tool: Any = create_code_mode_tool(FunctionToolset([held.stock]))
    agent: Agent[Any, Any] = Agent(steps.model, capabilities=[Toolset(FunctionToolset([tool]))])
    seen = within(streamed(agent, "go"))
    assert [one["outcome"] for one in returned(seen).metadata["calls"]] == ["done", "done"]


def test_an_outer_context_is_whole_after_the_run() -> None:
    """A run of the core inside a tool is heard by nobody of the run around it, and neither is one after it."""
    from codemode import run_code_mode

    async def count(ctx: RunContext[Any]) -> int:
        return await run_code_mode("return await tools.one()", {"one": lambda: 1})

    seen = within(streamed(agent_of(Script(program("return await tools.count()"), "done"), count), "go"))
    assert nested(seen) == [("outer:tool-1", "running"), ("outer:tool-1", "done")]
