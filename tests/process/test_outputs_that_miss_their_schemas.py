"""A tool that was called has been called: what it gave reaches the program, though it misses its schema."""

from __future__ import annotations

import datetime as dt
import json
import logging
from typing import Any

import pytest
from agents import function_tool
from codemode_gateway import connect
from langchain_core.tools import StructuredTool
from mcp_servers.configured import odd, of
from pydantic import BaseModel, Field
from pydantic_ai import Tool as PydanticAITool
from waiting import within

from codemode import (
    CallContext,
    CodeModeToolError,
    ModuleServer,
    Tool,
    ToolResult,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
)
from codemode.errors import CodeModeSerializationError

ROW = {"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}, "required": ["id"]}
CLOSED = {**ROW, "additionalProperties": False}


class Row(BaseModel):
    id: int
    note: str = ""
    key: str = Field("", exclude=True)


def holding_itself(value: dict[str, Any]) -> dict[str, Any]:
    value["me"] = value
    return value


MISSES: list[tuple[Any, Any, Any, str]] = [
    (ROW, {"id": 7, "note": None}, {"id": 7, "note": None}, "note: expected string, got null"),
    (ROW, {"note": "x"}, {"note": "x"}, 'missing required "id"'),
    (ROW, {"id": "7"}, {"id": "7"}, "id: expected integer, got string"),
    (CLOSED, {"id": 7, "more": [1]}, {"id": 7, "more": [1]}, "does not take 'more'"),
    (ROW, None, None, "expected object, got null"),
    (ROW, "no row", "no row", "expected object, got string"),
    ({"type": "array", "items": ROW}, [{"id": 1}, {"id": None}], [{"id": 1}, {"id": None}], "[1].id: expected"),
    (Row, {"id": "x", "note": None, "key": "SECRET"}, {"id": "x", "note": None}, "note: Input should be"),
    (list[Row], [{"id": "1", "key": "SECRET"}, {"id": None}], [{"id": 1, "note": ""}, {"id": None}], "[1].id: Input"),
    (dict[str, int], {"bytes": None}, {"bytes": None}, "bytes: Input should be a valid integer"),
    (None, {"ok": True, "handle": object()}, {"ok": True}, "handle: a value of type builtins.object, left out"),
    (None, holding_itself({"id": 7}), {"id": 7}, "me: a circular reference, left out"),
    (Row, holding_itself({"id": 7, "key": "SECRET"}), {"id": 7, "note": ""}, "me: a circular reference, left out"),
]


def giving(schema: Any, value: Any, **more: Any) -> Tool:
    return Tool("give", execute=lambda: value, output_schema=schema, **more)


def test_code_mode_passes_it_on_and_the_log_names_tool_and_field(caplog: pytest.LogCaptureFixture):
    for schema, given, expected, told in MISSES:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "codemode"):
            assert of_code_mode(giving(schema, given)) == expected, told
        (line,) = [one for one in caplog.messages if "'give'" in one]
        assert told in line


def of_code_mode(tool: Any, **options: Any) -> Any:
    return create_code_mode_tool([tool], options).execute_sync(
        {"js": "return await tools.give()"}, call=CallContext(tool_call_id="c")
    )


def test_exec_code_call_and_modules_pass_it_on_with_a_warning():
    tool = giving(ROW, {"id": 7, "note": None})
    expected, told = {"id": 7, "note": None}, "note: expected string, got null"
    answer = create_exec_wait_tools([tool]).exec.execute_sync({"code": "return await tools.give({})"})
    assert answer["value"] == expected
    assert [told in one for one in answer["telemetry"]["warnings"]] == [True]
    answer = create_code_call_tools([tool]).execute_sync({"script": "return await callTool('give', {})"})
    assert answer["result"] == expected
    assert [told in one for one in answer["warnings"]] == [True]
    answer = of_module(tool)
    assert answer["result"] == expected
    assert [(one["severity"], one["code"]) for one in answer["diagnostics"]] == [("warning", "OUTPUT_MISMATCH")]
    assert told in answer["diagnostics"][0]["message"]


def of_module(tool: Any) -> Any:
    code = 'import { give } from "@codemode/servers/shop";\nglobalThis.__codemode_result__ = await give();'
    return create_modules_tool([ModuleServer("shop", [tool])]).execute_sync({"code": code})


def test_a_program_that_fails_afterwards_is_told_of_it_too():
    tool = giving(ROW, {"id": 7, "note": None})
    answer = create_code_call_tools([tool]).execute_sync(
        {"script": "const row = await callTool('give', {}); return row.note.length"}
    )
    assert answer["status"] == "runtime_error"
    assert any("note: expected string, got null" in one for one in answer["warnings"])


def test_text_alone_is_read_as_the_object_or_array_that_is_declared():
    for schema, text, expected in [
        (ROW, '{"id": 7}', {"id": 7}),
        ({"type": "array"}, " [1, 2]\n", [1, 2]),
        ({"anyOf": [ROW, {"type": "null"}]}, '{"id": 7}', {"id": 7}),
        ({"$ref": "#/$defs/R", "$defs": {"R": ROW}}, '{"id": "x"}', {"id": "x"}),
        (Row, '{"id": "7", "key": "SECRET"}', {"id": 7, "note": ""}),
        (list[int], "[1]", [1]),
        (ROW, "no json", "no json"),
        (ROW, "7", "7"),
        ({"type": "string"}, '{"id": 7}', '{"id": 7}'),
        ({"anyOf": [ROW, {"type": "string"}]}, '{"id": 7}', '{"id": 7}'),
        (None, '{"id": 7}', '{"id": 7}'),
    ]:
        assert of_code_mode(giving(schema, text)) == expected, (schema, text)
        assert of_code_mode(giving(schema, ToolResult([{"type": "text", "text": text}]))) == expected, (schema, text)


def test_a_result_of_which_nothing_can_be_read_is_an_error_that_says_that_the_call_was_made():
    for given in (object(), {"handle": object()}, [object()], "x" * 200):
        tool = giving(None, given)
        with pytest.raises(CodeModeSerializationError, match="the call was made and must not be repeated"):
            of_code_mode(tool, execution_policy={"max_tool_output_bytes": 100})
    answer = of_module(giving(None, object()))
    assert "the call was made and must not be repeated" in answer["diagnostics"][0]["message"]
    assert "it cannot be read" in answer["diagnostics"][0]["hint"]
    with pytest.raises(CodeModeSerializationError) as caught:
        of_code_mode(giving(None, object(), annotations={"readOnlyHint": True}))
    assert "the call was made." in str(caught.value)
    assert "repeated" not in str(caught.value)


def test_strict_fails_the_call_for_a_tool_or_for_all():
    row = {"id": 7, "note": None}
    with pytest.raises(CodeModeToolError, match="Invalid output"):
        of_code_mode(giving(ROW, row, output_validation="strict"))
    strict = {"output_validation": "strict"}
    with pytest.raises(CodeModeToolError, match="Invalid output"):
        of_code_mode(giving(ROW, row), execution_policy=strict)
    with pytest.raises(CodeModeToolError, match="Invalid output"):
        of_code_mode(giving(ROW, '{"id": 7}'), execution_policy=strict)
    with pytest.raises(CodeModeSerializationError):
        of_code_mode(giving(None, {"ok": True, "handle": object()}), execution_policy=strict)
    assert of_code_mode(giving(ROW, row, output_validation="warn"), execution_policy=strict) == row
    with pytest.raises(ValueError, match="output_validation of tool 'give' must be one of"):
        giving(ROW, row, output_validation="sometimes")
    with pytest.raises(CodeModeSerializationError, match="circular"):
        of_code_mode(giving(None, holding_itself({"id": 7})), execution_policy=strict)


def test_a_warning_about_an_output_that_the_host_redacts_quotes_nothing_of_it(caplog: pytest.LogCaptureFixture):
    tool = giving({"type": "object", "additionalProperties": {"type": "integer"}}, {"pin 4711": "x"})
    hooks = {"after": lambda _call, output: {"cut": len(output)}}
    assert of_code_mode(tool, pipeline=hooks) == {"cut": 1}
    assert "'give'" in caplog.text
    assert "4711" not in caplog.text


def row() -> Row:
    """Give a row."""
    return {"id": "x", "note": None, "key": "SECRET"}  # type: ignore[return-value]


def counts() -> dict[str, int]:
    """Give counts."""
    return {"bytes": None, "at": dt.date(2024, 1, 2)}  # type: ignore[dict-item]


def text() -> dict[str, int]:
    """Give a text."""
    return '{"a": 1}'  # type: ignore[return-value]


FRAMEWORKS: dict[str, Any] = {
    "langchain": lambda function: StructuredTool.from_function(function, name="give"),
    "openai": lambda function: function_tool(function, name_override="give"),
    "pydantic-ai": lambda function: PydanticAITool(function, name="give"),
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_tools_of_frameworks_do_the_same(framework: str, caplog: pytest.LogCaptureFixture):
    make = FRAMEWORKS[framework]
    assert of_code_mode(make(row)) == {"id": "x", "note": None}
    assert of_code_mode(make(counts)) == {"bytes": None, "at": "2024-01-02"}
    assert of_code_mode(make(text)) == {"a": 1}
    told = "\n".join(caplog.messages)
    assert "note: " in told
    assert "bytes: " in told
    strict = {"execution_policy": {"output_validation": "strict"}}
    assert of_code_mode(make(row), **strict) == {"id": "x", "note": None}  # the framework checks none


def test_so_do_servers_behind_a_gateway():
    result = {"content": [], "structuredContent": {"id": 7, "note": None}}
    settings = {"tools": [{"name": "give", "inputSchema": {"type": "object"}, "outputSchema": ROW}]}
    settings["answers"] = {"tools/call": {"result": result}}
    code = 'import { give } from "@codemode/servers/odd";\nglobalThis.__codemode_result__ = await give({});'

    async def work(**server: Any) -> Any:
        async with connect(of(odd(settings, **server))) as connected:
            return await create_modules_tool(connected).execute({"code": code})

    answer = within(work())
    assert answer["result"] == result["structuredContent"]
    assert "note: expected string, got null" in json.dumps(answer["diagnostics"])
    assert within(work(output_validation="strict"))["result"] is None
    settings["answers"]["tools/call"] = {"result": {"content": [{"type": "text", "text": '{"id": 7}'}]}}
    assert within(work())["result"] == {"id": 7}


def test_of_many_different_warnings_the_first_sixteen_are_told():
    given = iter(range(20))
    schema = {"type": "object", "additionalProperties": False}
    tool = Tool("give", execute=lambda _: {f"extra{next(given)}": 1}, output_schema=schema)
    script = "for (const n of new Array(20).keys()) await callTool('give', {})"
    answer = create_code_call_tools([tool], {"vm": {"preset": "experimental"}}).execute_sync({"script": script})
    assert answer["status"] == "ok", answer
    assert [n for n in range(20) if any(f"'extra{n}'" in one for one in answer["warnings"])] == [*range(16)]
