"""One tool with a schema that is wrong, or says no draft, does not take the others with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from codemode import Tool
from codemode import create_code_mode_tool as create_core_tool

OTHER_DRAFT: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"a": {"items": [{"type": "integer"}]}},
}
NO_DRAFT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
UNSAID = {"type": "object", "properties": {"a": {"type": "array", "items": [{"type": "integer"}]}}}
JS = "return [await tools.odd({ a: ['x'] }).catch((error) => error.code), await tools.plain({ b: 1 })]"


def odd(schema: dict[str, Any]) -> StructuredTool:
    async def take(**given: Any) -> dict[str, Any]:
        return given

    return StructuredTool(name="odd", description="Odd.", args_schema=schema, coroutine=take)


def run(schema: dict[str, Any]) -> Any:
    code_mode = create_core_tool([odd(schema), Tool("plain", execute=lambda value: value)])
    assert "odd(" in code_mode.description
    return asyncio.run(asyncio.wait_for(code_mode.execute({"js": JS}), 60))


@pytest.mark.parametrize(
    ("schema", "told"),
    [(OTHER_DRAFT, "CODE_MODE_TOOL_ERROR"), (NO_DRAFT, {"a": ["x"]})],
    ids=["of another draft", "of none"],
)
def test_a_wrong_schema_is_used_as_far_as_it_can_be_and_warned_of(
    schema: dict[str, Any], told: Any, caplog: pytest.LogCaptureFixture
):
    assert run(schema) == [told, {"b": 1}]
    assert any("'odd'" in record.getMessage() and record.levelname == "WARNING" for record in caplog.records)


def test_a_schema_that_does_not_say_its_draft_is_read_in_the_one_that_it_fits():
    assert run(UNSAID) == ["CODE_MODE_TOOL_ERROR", {"b": 1}]
