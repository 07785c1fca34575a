"""What the model is told of a run: of that run alone, and declared as it comes."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from codemode_pydantic_ai import CodeMode, create_code_mode_tool
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, Tool
from scripted import Script, program

SETTINGS: Any = {"model_output": {"include_nested_tool_outputs": True}}
JS = "await tools.look({}); return 'done'"


def look(ctx: RunContext[str]) -> str:
    return f"of {ctx.deps}"


async def told(made: dict[str, Any], tenants: list[str]) -> list[Any]:
    scripts = [Script(program(JS, "call_1"), "done") for _ in tenants]
    agents = [Agent(script.model, deps_type=str, **made) for script in scripts]
    runs = (agent.run("go", deps=tenant) for agent, tenant in zip(agents, tenants, strict=True))
    await asyncio.wait_for(asyncio.gather(*runs), 60)
    return [script.returned("call_1") for script in scripts]


@pytest.mark.parametrize("how", ["capability", "tool"])
def test_runs_with_one_id_and_one_result_tell_of_themselves(how: str) -> None:
    made: dict[str, Any] = {"tools": [look], "capabilities": [CodeMode(SETTINGS)]}
    if how == "tool":
        made = {"tools": [create_code_mode_tool([Tool(look)], SETTINGS)]}
    tenants = [f"tenant {number}" for number in range(8)]
    for tenant, said in zip(tenants, asyncio.run(told(made, tenants)), strict=True):
        assert f"of {tenant}" in json.dumps(said["nestedTools"])


class Answer(BaseModel):
    result: int


def test_a_model_with_one_field_called_result_is_declared_as_it_is() -> None:
    def ask() -> Answer:
        return Answer(result=3)

    script = Script(program("return (await tools.ask({})).result"), "done")
    agent = Agent(script.model, tools=[ask], capabilities=[CodeMode()])
    asyncio.run(asyncio.wait_for(agent.run("go"), 60))
    assert script.returned() == 3
    assert "result: number" in (script.seen[0][1].function_tools[0].description or "")


def test_loop_a_generator_that_never_ends_is_refused() -> None:
    def ask() -> Any:
        return (number for number in itertools.count())

    script = Script(program("try { return await tools.ask({}) } catch (error) { return error.message }"), "done")
    agent = Agent(script.model, tools=[ask], capabilities=[CodeMode({"execution_policy": {"max_values": 1000}})])
    asyncio.run(asyncio.wait_for(agent.run("go"), 60))
    assert "max_values" in script.returned()
