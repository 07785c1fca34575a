"""One tool with a schema that is wrong, or says no draft, does not take the others with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from codemode_pydantic_ai import CodeMode
from pydantic_ai import Agent, Tool
from scripted import Script, program

WRONG: list[dict[str, Any]] = [
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"a": {"items": [{"type": "integer"}]}},
    },
    {"type": "object", "properties": {"a": {"type": "nonsense"}}},
]
UNSAID = {"type": "object", "properties": {"a": {"type": "array", "items": [{"type": "integer"}]}}}
JS = "return [await tools.odd({ a: ['x'] }).catch((error) => error.code), await tools.plain({ b: 1 })]"


async def take(**given: Any) -> dict[str, Any]:
    return given


def plain(b: int) -> int:
    """A tool that is right."""
    return b


def run(schema: dict[str, Any]) -> Any:
    script = Script(program(JS), "done")
    tools = [Tool.from_schema(take, name="odd", description="Odd.", json_schema=schema), Tool(plain)]
    agent: Agent[Any, Any] = Agent(script.model, tools=tools, capabilities=[CodeMode()])
    asyncio.run(asyncio.wait_for(agent.run("go"), 60))
    return script.returned()


@pytest.mark.parametrize(
    ("schema", "given"),
    [(WRONG[0], "CODE_MODE_TOOL_ERROR"), (WRONG[1], {"a": ["x"]})],
    ids=["of another draft", "of none"],
)
def test_a_wrong_schema_is_read_as_far_as_it_can_be_and_warned_of(
    schema: dict[str, Any], given: Any, caplog: pytest.LogCaptureFixture
):
    assert run(schema) == [given, 1]
    assert any("'odd'" in record.getMessage() and record.levelname == "WARNING" for record in caplog.records)


def test_a_schema_that_does_not_say_its_draft_is_read_in_the_one_that_it_fits():
    told = run(UNSAID)
    assert told[1] == 1
