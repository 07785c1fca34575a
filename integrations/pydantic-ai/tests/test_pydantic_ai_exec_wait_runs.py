"""Programs of exec that wait: what later runs, other conversations and ends of runs make of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from codemode_pydantic_ai import ExecWait
from pydantic_ai import Agent, RunContext, Tool, UsageLimits
from pydantic_ai.capabilities import Hooks, PrepareTools
from pydantic_ai.exceptions import UsageLimitExceeded, UserError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, ToolCallPart
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset, WrapperToolset
from scripted import Script, execute, run_id_of, wait
from suite import each_row
from test_pydantic_ai_exec_wait import Held, agent_of, double, within

QUICK = {"waitTimeoutMs": 100}


def test_a_slow_call_is_left_waiting_and_wait_delivers_it() -> None:
    async def main() -> Script:
        held = Held()
        loop = asyncio.get_running_loop()
        script = Script(execute("text('before'); text(await tools.held()); return tools.double({n: 21})"))

        def lets_go(messages: Any, info: Any) -> ModelResponse:
            loop.call_soon_threadsafe(held.go.set)  # models of functions are called in threads
            return script.waits_to_the_end(messages, info)

        script.steps += [lets_go, "done"]
        result = await agent_of(script, double, held.held, capability=ExecWait(options=QUICK)).run("go")
        assert result.output == "done"
        assert held.ends == ["ended"]
        assert result.usage.tool_calls == len(script.results) + 2
        return script

    told = within(main()).results
    assert [(one["status"], one["reason"]) for one in told[:-1]] == [("waiting", "pending_tools")] * (len(told) - 1)
    assert len(told) > 1
    assert [item["text"] for one in told for item in one.get("output", ())] == ["before", "at last"]
    assert (told[-1]["status"], told[-1]["value"]) == ("completed", 42)


def test_the_next_run_of_the_conversation_goes_on_with_its_own_deps_and_context() -> None:
    async def main() -> tuple[Script, list[Any]]:
        seen: list[Any] = []

        def note(ctx: RunContext[str]) -> str:
            seen.append((ctx.deps, ctx.run_id))
            return ctx.deps

        script = Script(
            execute("const a = await tools.note({}); await yield_control(); return [a, await tools.note({})]"),
            "first",
            wait(),
            "second",
        )
        agent = agent_of(script, note, deps_type=str)
        first = await agent.run("go", deps="one")
        history = ModelMessagesTypeAdapter.validate_json(first.all_messages_json())
        second = await agent.run("on", deps="two", message_history=history)
        assert seen == [("one", first.run_id), ("two", second.run_id)]
        assert second.usage.tool_calls == 2
        return script, seen

    script, _ = within(main())
    assert script.returned("waiting")["value"] == ["one", "two"]


def test_another_conversation_knows_nothing_of_it() -> None:
    async def main() -> Script:
        left: list[str] = []

        def other(messages: Any, info: Any) -> ModelResponse:
            return ModelResponse(parts=[ToolCallPart("wait", {"runId": left[0]}, tool_call_id="waiting")])

        script = Script(execute("await yield_control(); return 1"), "first", other, "second", wait(), "third")
        agent = agent_of(script, double)
        first = await agent.run("go", conversation_id="one")
        left.append(run_id_of(first.all_messages()))
        await agent.run("go", conversation_id="two")
        refused = script.returned("waiting")
        assert (refused["status"], refused["code"]) == ("failed", "invalid_input")
        await agent.run("on", message_history=first.all_messages())
        return script

    assert within(main()).returned("waiting")["value"] == 1


def test_a_model_that_repeats_ids_gets_new_results() -> None:
    count = iter(range(10))
    code = "await yield_control(); await yield_control(); return await tools.next({})"
    script = Script(
        *(execute("return await tools.next({})"), execute("return await tools.next({})")),
        *(execute(code), wait("outer"), wait("outer"), "done"),
    )
    within(agent_of(script, Tool(lambda: next(count), name="next", takes_ctx=False)).run("go"))
    told = [part.content for message in script.seen[-1][0] for part in message.parts if part.part_kind == "tool-return"]
    assert [one.get("value") for one in told] == [0, 1, None, None, 2]


def test_what_is_taken_out_of_a_later_step_is_in_no_program_then() -> None:
    async def fewer(ctx: RunContext[Any], tools: list[ToolDefinition]) -> list[ToolDefinition]:
        return [tool for tool in tools if ctx.run_step == 1 or tool.name != "risky"]

    did: list[str] = []

    def risky(at: str) -> str:
        did.append(at)
        return at

    code = """await tools.risky({at: "before"}); await yield_control();
        try { await tools.risky({at: "after"}); return "ran" }
        catch (error) { return [error.name, await tools.double({n: 4})] }"""
    script = Script(execute(code), wait(), "done")
    within(agent_of(script, Tool(risky), double, more=[PrepareTools(fewer)]).run("go"))
    assert script.returned("waiting")["value"] == ["CodeModeToolError", 8]
    assert did == ["before"]


def test_programs_of_one_response_run_side_by_side() -> None:
    script = Script(
        [*execute("await tools.held(); return 1", "one"), *execute("return await tools.release()", "two")], "done"
    )

    async def main() -> None:
        held = Held()
        capability = ExecWait(options={"waitTimeoutMs": 20_000})
        await agent_of(script, held.held, held.release, capability=capability).run("go")

    within(main())
    assert (script.returned("one")["value"], script.returned("two")["value"]) == (1, "released")


def test_it_works_without_a_loop_and_streamed() -> None:
    def steps() -> Script:
        code = "await yield_control(); return await tools.double({n: 4})"
        return Script(execute(code), wait(), "done")

    script = steps()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        assert agent_of(script, double).run_sync("go").output == "done"
    finally:
        loop.close()
        asyncio.set_event_loop(None)
    assert script.returned("waiting")["value"] == 8

    streamed = steps()

    async def stream() -> list[Any]:
        async with agent_of(streamed, double).run_stream_events("go") as events:
            return [event async for event in events]

    results = [event for event in within(stream()) if event.event_kind == "function_tool_result"]
    assert [event.part.metadata["toolKind"] for event in results] == ["code_mode_exec", "code_mode_wait"]
    assert streamed.returned("waiting")["value"] == 8


class Connection(WrapperToolset[Any]):
    """A toolset that must be open while its tools run."""

    def __init__(self, wrapped: Any, held: Held) -> None:
        super().__init__(wrapped)
        self.held = held

    async def __aexit__(self, *args: object) -> bool | None:
        self.held.ends.append("closed")
        return await super().__aexit__(*args)


def fails(*_: Any) -> ModelResponse:
    raise ConnectionError("the model is away")


async def breaks_off(agent: Agent[Any, Any]) -> None:
    async with agent.iter("go") as run:
        async for _ in run:
            if any("runId" in str(part) for message in run.all_messages() for part in message.parts):
                return


async def cancels(agent: Agent[Any, Any], asked: asyncio.Event) -> None:
    running = asyncio.create_task(agent.run("go"))
    await asked.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


@each_row("way", ["success", "error", "limit", "broken off", "cancelled"])
def test_no_call_outlives_the_run_of_the_agent(way: str) -> None:
    async def main() -> None:
        held, asked = Held(), asyncio.Event()

        async def hangs(*_: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

        last: Any = {"error": fails, "limit": execute("return 1", "more")}.get(way, "done")
        script = Script(execute("return await tools.held()"), last)
        hooks = [Hooks(before_model_request=hangs_second(hangs))] if way == "cancelled" else []
        toolset = Connection(FunctionToolset([held.held]), held)
        capability = ExecWait(options=QUICK)
        agent = Agent(script.model, toolsets=[toolset], capabilities=[capability, *hooks])
        if way == "success":
            await agent.run("go")
        elif way == "broken off":
            await breaks_off(agent)
        elif way == "cancelled":
            await cancels(agent, asked)
        else:
            with pytest.raises(ConnectionError if way == "error" else UsageLimitExceeded):
                await agent.run("go", usage_limits=UsageLimits(request_limit=None, tool_calls_limit=2))
        assert held.ends == ["cancelled", "closed"]

    within(main())


def test_a_call_of_a_run_that_ends_is_ended_though_another_run_waits_for_it() -> None:
    async def main() -> tuple[Script, Held]:
        held, waits = Held(), asyncio.Event()
        left: list[str] = []

        async def ends_late(ctx: RunContext[Any], request_context: Any) -> Any:
            if ctx.run_step == 2:
                left.append(run_id_of(ctx.messages))
                waits.set()
                await held.begun.wait()
                await on_it.wait()
            return request_context

        async def told(ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any) -> Any:
            if call.tool_name == "wait":
                asyncio.get_running_loop().call_soon(on_it.set)
            return args

        def waiting(messages: Any, info: Any) -> ModelResponse:
            return ModelResponse(parts=[ToolCallPart("wait", {"runId": left[0]}, tool_call_id="waiting")])

        on_it = asyncio.Event()
        capability = ExecWait(options={"waitTimeoutMs": 10_000, "timeoutMs": 10_000})
        first_script = Script(execute("const held = tools.held(); await yield_control(); return held"), "first")
        first_agent = agent_of(
            first_script, held.held, capability=capability, more=[Hooks(before_model_request=ends_late)]
        )
        script = Script(waiting, "second")
        second_agent = agent_of(script, held.held, capability=capability, more=[Hooks(before_tool_execute=told)])
        first = asyncio.create_task(first_agent.run("go", conversation_id="both"))
        await waits.wait()
        second = asyncio.create_task(second_agent.run("on", conversation_id="both"))
        await asyncio.gather(first, second)
        return script, held

    script, held = within(main())
    assert held.ends == ["cancelled"]
    assert (script.returned("waiting")["status"], script.returned("waiting")["code"]) == ("failed", "aborted")


def hangs_second(hangs: Callable[..., Any]) -> Callable[..., Any]:
    async def before(ctx: RunContext[Any], request_context: Any) -> Any:
        if ctx.run_step > 1:
            await hangs()
        return request_context

    return before


def test_what_was_aborted_says_so_and_its_place_is_free() -> None:
    async def main() -> Script:
        held = Held()
        script = Script(execute("return await tools.held()"), "first", wait(), execute("return 2", "more"), "second")
        agent = agent_of(script, held.held, capability=ExecWait(options={**QUICK, "maxWaitingRuns": 1}))
        first = await agent.run("go")
        await agent.run("on", message_history=first.all_messages())
        return script

    script = within(main())
    assert (script.returned("waiting")["status"], script.returned("waiting")["code"]) == ("failed", "aborted")
    assert script.returned("more")["value"] == 2


def test_limits_count_nested_calls_also_those_that_are_in_flight() -> None:
    async def main() -> list[str]:
        ran: list[str] = []

        def note(text: str) -> str:
            ran.append(text)
            return text

        code = "for (const one of ['a', 'b', 'c']) try { await tools.note({text: one}) } catch { text('caught') }"
        agent = agent_of(Script(execute(code), "done"), note)
        with pytest.raises(UsageLimitExceeded):
            await agent.run("go", usage_limits=UsageLimits(tool_calls_limit=3))
        return ran

    assert within(main()) == ["a", "b"]


def test_what_ends_the_run_ends_it_though_nobody_is_on_the_program() -> None:
    async def main() -> None:
        held = Held()

        async def bad() -> str:
            await held.go.wait()
            raise UserError("this agent is wrong")

        code = "try { await tools.bad() } catch (error) { return 'caught' }"
        script = Script(execute(code), execute("return await tools.release()", "second"), wait(), "done")
        capability = ExecWait(options=QUICK)
        with pytest.raises(UserError, match="this agent is wrong"):
            await agent_of(script, bad, held.release, capability=capability).run("go")
        await capability.aclose()
        assert len(script.steps) >= 1

    within(main())
