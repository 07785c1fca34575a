"""Sequential means sequential: across the programs of one response, beside native tools, in every mode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from codemode_pydantic_ai import CodeMode, CodeModeToolset, create_code_mode_tool
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, program

WAIT_SECONDS = 60.0
BOTH = "return await Promise.all([1, 2].flatMap((n) => [tools.together({ n }), tools.alone({ n })]))"


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


class Watched:
    """Tools that note with whom they ran; each stays for some turns of the loop."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.overlaps: set[tuple[str, ...]] = set()

    async def _stay(self, name: str) -> None:
        self.running.append(name)
        for _ in range(20):
            self.overlaps.add(tuple(sorted(self.running)))
            await asyncio.sleep(0)
        self.running.remove(name)

    async def together(self, n: int) -> None:
        await self._stay("together")

    async def alone(self, n: int) -> None:
        await self._stay("alone")

    async def native(self, n: int) -> None:
        await self._stay("native")

    @property
    def beside_alone(self) -> set[tuple[str, ...]]:
        return {one for one in self.overlaps if "alone" in one and len(one) > 1}

    def tools(self) -> list[Any]:
        return [self.together, Tool(self.alone, sequential=True)]


def two_programs(js: str) -> list[ToolCallPart]:
    return [*program(js, "one"), *program(js, "two")]


@pytest.mark.parametrize("made", ["capability", "toolset", "tool"])
def test_a_sequential_tool_runs_alone_across_two_programs(made: str) -> None:
    watched, script = Watched(), Script(two_programs(BOTH), "done")
    given: dict[str, Any] = {
        "capability": {"tools": watched.tools(), "capabilities": [CodeMode()]},
        "toolset": {"toolsets": [CodeModeToolset(FunctionToolset(watched.tools()))]},
        "tool": {"tools": [create_code_mode_tool(watched.tools())]},
    }[made]
    within(Agent(script.model, **given).run("go"))
    assert watched.beside_alone == set()


@pytest.mark.parametrize("made", ["capability", "toolset", "tool"])
def test_a_sequential_tool_runs_alone_beside_native_tools(made: str) -> None:
    calls = [ToolCallPart("native", {"n": n}, tool_call_id=f"n{n}") for n in range(2)]
    watched, script = Watched(), Script([calls[0], *two_programs(BOTH), calls[1]], "done")
    given: dict[str, Any] = {
        "capability": {"tools": [*watched.tools(), watched.native], "capabilities": [CodeMode(keep=["native"])]},
        "toolset": {"toolsets": [CodeModeToolset(FunctionToolset(watched.tools()))], "tools": [watched.native]},
        "tool": {"tools": [create_code_mode_tool(watched.tools()), watched.native]},
    }[made]
    within(Agent(script.model, **given).run("go"))
    assert watched.beside_alone == set()


def test_other_tools_of_two_programs_still_overlap() -> None:
    meeting = asyncio.Barrier(2)

    async def meet(n: int) -> str:
        await asyncio.wait_for(meeting.wait(), WAIT_SECONDS)
        return "met"

    watched = Watched()
    script = Script(two_programs("return await tools.meet({ n: 1 })"), "done")
    within(Agent(script.model, tools=[meet, *watched.tools()], capabilities=[CodeMode()]).run("go"))
    assert (script.returned("one"), script.returned("two")) == ("met", "met")


@pytest.mark.parametrize("made", ["capability", "toolset", "tool"])
def test_the_agents_sequential_mode_holds_inside_a_program(made: str) -> None:
    js = "return await Promise.all([1, 2, 3, 4].map((n) => tools.together({ n })))"
    watched, script = Watched(), Script(two_programs(js), "done")
    given: dict[str, Any] = {
        "capability": {"tools": watched.tools(), "capabilities": [CodeMode()]},
        "toolset": {"toolsets": [CodeModeToolset(FunctionToolset(watched.tools()))]},
        "tool": {"tools": [create_code_mode_tool(watched.tools())]},
    }[made]
    agent = Agent(script.model, **given)

    async def main() -> None:
        with agent.parallel_tool_call_execution_mode("sequential"):
            await agent.run("go")

    within(main())
    assert watched.overlaps == {("together",)}


def test_in_sequential_mode_calls_begin_in_the_order_in_which_they_were_made() -> None:
    begun: list[int] = []

    async def note(n: int) -> None:
        begun.append(n)
        await asyncio.sleep(0)

    js = "return await Promise.all([...Array(20).keys()].map((n) => tools.note({ n })))"
    script = Script(program(js), "done")
    agent = Agent(script.model, tools=[note], capabilities=[CodeMode()])

    async def main() -> None:
        with ToolManager.parallel_execution_mode("sequential"):
            await agent.run("go")

    within(main())
    assert begun == list(range(20))


def test_ordered_events_leave_calls_side_by_side() -> None:
    meeting = asyncio.Barrier(2)

    async def meet(n: int) -> str:
        await asyncio.wait_for(meeting.wait(), WAIT_SECONDS)
        return "met"

    script = Script(program("return await Promise.all([1, 2].map((n) => tools.meet({ n })))"), "done")
    agent = Agent(script.model, tools=[meet], capabilities=[CodeMode()])

    async def main() -> None:
        with agent.parallel_tool_call_execution_mode("parallel_ordered_events"):
            await agent.run("go")

    within(main())
    assert script.returned() == ["met", "met"]
