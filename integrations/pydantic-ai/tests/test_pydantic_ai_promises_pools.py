"""Time and workers: what agents' tools take is not the program's, and crowds of agents queue instead of failing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from codemode_pydantic_ai import CodeCall, CodeCallToolset, CodeMode, CodeModeToolset, ExecWait, create_code_mode_tool
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, program
from suite import each_row, full_only, rounds

from codemode import PoolOptions, WorkerPool, set_max_workers

WAIT_SECONDS = 120.0
CROWD = rounds(6, 100)  # many more than the workers of any pool here
LIMITED = {"execution_policy": {"timeout_ms": 60_000}}


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


def made(how: str, tools: Any, options: Any = None, pool: WorkerPool | None = None) -> dict[str, Any]:
    """What gives an agent these tools in one of the three ways."""
    ways: dict[str, Any] = {
        "capability": lambda: {"tools": tools, "capabilities": [CodeMode(options, pool=pool)]},
        "toolset": lambda: {"toolsets": [CodeModeToolset(FunctionToolset(tools), options, pool=pool)]},
        "tool": lambda: {"tools": [create_code_mode_tool(tools, options, pool=pool)]},
    }
    return ways[how]()


WAYS = pytest.mark.parametrize("how", ["capability", "toolset", "tool"])


@pytest.fixture
def slow(passing_time: Any) -> Any:
    """A tool that takes longer than the program itself may."""

    async def slow(n: int) -> int:
        passing_time.skip(350)
        await asyncio.sleep(0)  # in which a deadline would ring
        return n

    return slow


# --- 27: the program's clock ---


@WAYS
def test_time_that_tools_take_is_not_the_programs(passing_time: Any, how: str) -> None:
    both = asyncio.Barrier(2)

    async def slow(n: int) -> int:
        await both.wait()
        passing_time.skip(350)
        await both.wait()
        return n

    script = Script(program("return await Promise.all([1, 2].map((n) => tools.slow({ n })))"), "done")
    within(Agent(script.model, **made(how, [slow], LIMITED)).run("go"))
    assert script.returned() == [1, 2]


def test_a_sub_agent_with_programs_of_its_own_may_take_its_time(slow: Any) -> None:
    inner = Script(program("return await tools.slow({ n: 5 })"), "told")
    sub_agent = Agent(inner.model, tools=[slow], capabilities=[CodeMode(LIMITED)])

    async def delegate(question: str) -> str:
        return (await sub_agent.run(question)).output

    script = Script(program("return await tools.delegate({ question: 'how many' })"), "done")
    within(Agent(script.model, tools=[delegate], capabilities=[CodeMode(LIMITED)]).run("go"))
    assert (script.returned(), inner.returned()) == ("told", 5)


@pytest.mark.parametrize("how", ["capability", *full_only("toolset", "tool")])
def test_a_program_that_does_not_end_is_ended(how: str) -> None:
    script = Script(program("while (true) {}"), "done")
    within(Agent(script.model, **made(how, [never], {"execution_policy": {"timeout_ms": 400}})).run("go"))
    assert "400 ms" in str(script.returned())


def test_who_wants_the_wall_clock_gets_it(slow: Any) -> None:
    options = {"execution_policy": {"timeout_ms": 60_000, "timeout_includes_tools": True}}
    assert CodeMode(options).options.execution_policy.timeout_includes_tools
    script = Script(program("return await tools.slow({ n: 1 })"), "done")
    within(Agent(script.model, **made("capability", [slow], options)).run("go"))
    assert "60000 ms" in str(script.returned())


NEVER = "try { return await tools.never() } catch (error) { return error.message }"


async def never() -> None:
    await asyncio.Event().wait()


def test_the_frameworks_own_timeouts_hold() -> None:
    bounded: dict[str, dict[str, Any]] = {
        "tool": {"tools": [Tool(never, timeout=0.05)]},
        "toolset": {"toolsets": [FunctionToolset([never], timeout=0.05)]},
        "agent": {"tools": [never], "tool_timeout": 0.05},
    }
    for given in bounded.values():
        script = Script(program(NEVER), "done")
        within(Agent(script.model, capabilities=[CodeMode()], **given).run("go"))
        assert script.returned() == "Timed out after 0.05 seconds."


@WAYS
def test_a_timeout_for_each_call_can_be_set(how: str) -> None:
    script = Script(program(NEVER), "done")
    within(Agent(script.model, **made(how, [never], {"execution_policy": {"tool_timeout_ms": 50}})).run("go"))
    assert "50 ms" in script.returned()


# --- 28: pools ---


@pytest.fixture
def few_workers() -> Iterator[None]:
    set_max_workers(2)
    yield
    set_max_workers(None)


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Play any number of agents: a program for each prompt, then its result."""
    last = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        return ModelResponse(parts=program(str(last.content), "call_1"))
    assert last.part_kind == "tool-return", last
    return ModelResponse(parts=[TextPart(str(last.content))])


MODEL = FunctionModel(scripted)


def family(how: str, pool: WorkerPool | None) -> Agent[Any, str]:
    """An agent whose tool runs a sub-agent, which writes a program too."""

    def double(n: int) -> int:
        return n * 2

    sub_agent = Agent(MODEL, **made(how, [double], pool=pool))

    async def delegate(ctx: RunContext[Any], n: int) -> str:
        js = f"return await tools.double({{ n: {n} }})"
        return (await sub_agent.run(js, usage=ctx.usage)).output

    return Agent(MODEL, **made(how, [delegate], pool=pool))


async def crowd(agent: Agent[Any, str], count: int) -> list[str]:
    runs = [agent.run(f"return await tools.delegate({{ n: {n} }})") for n in range(count)]
    return [result.output for result in await asyncio.gather(*runs)]


@pytest.mark.parametrize("how", ["toolset", *full_only("capability", "tool")])
@pytest.mark.usefixtures("few_workers")
def test_many_agents_with_sub_agents_all_end(how: str) -> None:
    assert within(crowd(family(how, None), CROWD)) == [str(n * 2) for n in range(CROWD)]


@pytest.mark.parametrize("how", ["tool", *full_only("capability", "toolset")])
def test_many_agents_with_sub_agents_all_end_in_a_pool_of_their_own(how: str) -> None:
    with WorkerPool(PoolOptions(max_workers=3, on_saturation="wait")) as pool:
        assert within(crowd(family(how, pool), CROWD)) == [str(n * 2) for n in range(CROWD)]


def test_many_agents_with_sub_agents_all_end_in_the_share_of_a_tenant() -> None:
    with WorkerPool(PoolOptions(max_workers=4, on_saturation="wait")) as pool:
        share = pool.share("tenant", max_workers=1)
        assert within(crowd(family("capability", share), CROWD)) == [str(n * 2) for n in range(CROWD)]


@WAYS
def test_nothing_is_made_with_a_pool_that_is_closed(how: str) -> None:
    with WorkerPool() as closed:
        pass
    with pytest.raises(ValueError, match="pool is closed"):
        made(how, [never], pool=closed)
    makers: list[Any] = [CodeCall, ExecWait, lambda pool: CodeCallToolset(FunctionToolset(), pool=pool)]
    for make in makers:
        with pytest.raises(ValueError, match="pool is closed"):
            make(pool=closed)


@WAYS
def test_a_pool_that_is_given_keeps_its_own_way(how: str) -> None:
    async def main(pool: WorkerPool) -> str:
        entered, leave = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            entered.set()
            await leave.wait()

        holding = asyncio.create_task(Agent(MODEL, **made(how, [hold], pool=pool)).run("return await tools.hold()"))
        await entered.wait()
        script = Script(program("return 1"), "done")
        await Agent(script.model, **made(how, [never], pool=pool)).run("go")
        leave.set()
        await holding
        return str(script.returned())

    with WorkerPool(PoolOptions(max_workers=1)) as pool:
        assert "busy" in within(main(pool))


def test_what_is_said_about_waiting_holds() -> None:
    assert CodeMode().options.execution_policy.on_saturation == "wait"
    said = CodeMode({"execution_policy": {"on_saturation": "fail"}})
    assert said.options.execution_policy.on_saturation == "fail"
    with WorkerPool(PoolOptions(max_workers=1)) as pool:
        assert CodeMode(pool=pool).options.execution_policy.on_saturation is None
        waiting = CodeMode({"execution_policy": {"on_saturation": "wait"}}, pool=pool)
        assert waiting.options.execution_policy.on_saturation == "wait"


@pytest.mark.parametrize("wrong", [PoolOptions(max_workers=1), "pool", 3])
def test_a_pool_of_the_wrong_kind_is_told_at_once(wrong: Any) -> None:
    for make in (
        lambda: CodeMode(pool=wrong),
        lambda: CodeModeToolset(FunctionToolset(), pool=wrong),
        lambda: create_code_mode_tool([], pool=wrong),
    ):
        with pytest.raises(ValueError, match="pool"):
            make()


@each_row("wrong", [0.5, "three", None, True, -1])
def test_retries_of_the_wrong_kind_are_told_at_once(wrong: Any) -> None:
    for make in (
        lambda: CodeMode(max_retries=wrong),
        lambda: CodeModeToolset(FunctionToolset(), max_retries=wrong),
        lambda: create_code_mode_tool([], max_retries=wrong),
    ):
        with pytest.raises(ValueError, match="max_retries"):
            make()
