"""Which of an agent's tools programs call, and which the model itself: by ``tools`` and ``keep``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from codemode_pydantic_ai import CodeCall, CodeMode, CodeModeToolset, create_code_mode_tool
from pydantic_ai import Agent, RunContext, Tool, ToolDefinition, UserError
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, program
from suite import each_row

WAIT_SECONDS = 60.0


def named(name: str, **metadata: Any) -> Tool[Any]:
    def tool(n: int) -> str:
        return f"{name} {n}"

    return Tool(tool, name=name, metadata=metadata)


TOOLS = [named("stock", team="goods"), named("refund", team="desk"), named("close", team="desk")]


def ran(script: Script, capability: Any, **settings: Any) -> Any:
    settings = {"tools": TOOLS, **settings}
    agent = Agent(script.model, capabilities=[capability], **settings)
    return asyncio.run(asyncio.wait_for(agent.run("go"), WAIT_SECONDS))


def is_of_desk(_ctx: RunContext[Any], definition: ToolDefinition) -> bool:
    return (definition.metadata or {}).get("team") == "desk"


async def is_of_goods(ctx: RunContext[Any], definition: ToolDefinition) -> bool:
    return not is_of_desk(ctx, definition)


ALL = ["close", "refund", "stock"]
CHOICES = [
    ({}, [], ALL),
    ({"keep": {"team": "desk"}}, ["close", "refund"], ["stock"]),
    ({"keep": is_of_goods}, ["stock"], ["close", "refund"]),
    ({"tools": ["stock"]}, ["close", "refund"], ["stock"]),
    ({"tools": is_of_desk, "keep": ["close"]}, ["close", "stock"], ["close", "refund"]),
    ({"tools": "all", "keep": {"team": "goods"}}, ["stock"], ALL),
]


@each_row("said, direct, in_programs", CHOICES)
def test_a_tool_is_in_programs_or_called_directly_or_both(said: Any, direct: list[str], in_programs: list[str]) -> None:
    script = Script("done")
    ran(script, CodeMode(**said))
    assert sorted(script.tool_names) == sorted([*direct, "codeMode"])
    description = script.seen[0][1].function_tools[script.tool_names.index("codeMode")].description or ""
    assert [name for name in ALL if f"{name}(input" in description] == in_programs


def test_one_tool_is_called_both_ways() -> None:
    both = [*program("return await tools.stock({ n: 1 })"), ToolCallPart("stock", {"n": 2}, tool_call_id="direct")]
    script = Script(both, "done")
    ran(script, CodeMode(tools="all", keep=["stock"]))
    assert script.results == ["stock 1", "stock 2"]


@pytest.mark.parametrize("option", ["tools", "keep"])
def test_a_name_that_fits_nothing_ends_the_run_before_the_model_is_asked(option: str) -> None:
    script = Script("done")
    given: Any = {option: ["refnd"]}
    with pytest.raises(UserError, match=f"{option} names 'refnd', which is not among the tools. Did you mean 'refund'"):
        ran(script, CodeMode(**given))
    assert script.seen == []


def test_a_tool_that_a_step_does_not_have_is_one_all_the_same() -> None:
    async def never(_ctx: RunContext[Any], _definition: ToolDefinition) -> None:
        return None

    hidden = Tool(lambda n: n, name="later", prepare=never)
    prefixed = FunctionToolset([hidden]).prefixed("desk")
    renamed = FunctionToolset([named("old")]).renamed({"new": "old"})
    for names in (["desk_later"], ["new", "stock"]):
        ran(Script("done"), CodeMode(keep=names), toolsets=[prefixed, renamed])
    for names in (["later"], ["old"]):
        with pytest.raises(UserError, match="is not among the tools"):
            ran(Script("done"), CodeMode(keep=names), toolsets=[prefixed, renamed])


def test_a_toolset_that_is_made_anew_in_each_step_may_have_any_name() -> None:
    def made(_ctx: RunContext[Any]) -> FunctionToolset[Any]:
        return FunctionToolset([named("other")])

    ran(Script("done"), CodeMode(keep=["someday"]), toolsets=[made])


@pytest.mark.parametrize(
    "make",
    [
        lambda: CodeMode(tools="stock"),
        lambda: CodeMode(keep="stock"),
        lambda: CodeCall(keep="stock"),
        lambda: CodeModeToolset(FunctionToolset(), tools="stock"),
    ],
)
def test_one_text_is_no_list(make: Any) -> None:
    with pytest.raises(ValueError, match=r"must be a list of tool names, got 'stock': write (tools|keep)=\['stock'\]"):
        make()


def test_a_search_tells_the_model_the_same_of_any_tools() -> None:
    texts: set[str] = set()
    for count in (1, 3):
        script = Script("done")
        ran(script, CodeMode(listing="search"), tools=TOOLS[:count])
        texts.add(script.seen[0][1].function_tools[0].description or "")
    assert len(texts) == 1
    made = create_code_mode_tool(TOOLS, {"execution_policy": {"timeout_ms": 500}}, listing="search")
    script = Script("done")
    asyncio.run(asyncio.wait_for(Agent(script.model, tools=[made]).run("go"), WAIT_SECONDS))
    assert {script.seen[0][1].function_tools[0].description} == texts
