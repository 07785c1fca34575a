"""What tools answer as an MCP server would: the one value that a program gets of it, in their order, in every face."""

from __future__ import annotations

import asyncio
from typing import Any

import pydantic
import pytest
from suite import each_row

from codemode import CodeModeToolError, MediaContent, Tool, ToolResult, create_code_call_tools, tool
from codemode.tools.tool_result import format_failure_message, to_program_value

TEXT = {"type": "text", "text": "hello"}
JSON_TEXT = {"type": "text", "text": '{"a": 1}'}
IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}


class Block(pydantic.BaseModel):
    type: str
    text: str
    mime_type: str | None = pydantic.Field(None, alias="mimeType")


CASES: list[tuple[ToolResult, Any]] = [
    (ToolResult([TEXT], {"a": [1]}), {"a": [1]}),
    *((ToolResult([TEXT], value), value) for value in (0, None, False, "", [], {})),
    (ToolResult([TEXT]), "hello"),
    (ToolResult([JSON_TEXT]), '{"a": 1}'),
    (ToolResult([{"type": "text", "text": ""}]), ""),
    (ToolResult([Block(type="text", text="of a class")]), "of a class"),
    (ToolResult([IMAGE]), {"content": [IMAGE]}),
    (ToolResult([AUDIO, TEXT]), {"content": [AUDIO, TEXT]}),
    (ToolResult([TEXT, TEXT]), {"content": [TEXT, TEXT]}),
    (ToolResult([LINK]), {"content": [LINK]}),
    (ToolResult(), {"content": []}),
    (ToolResult((Block(type="text", text="x"), IMAGE)), {"content": [{"type": "text", "text": "x"}, IMAGE]}),
]


def giving(value: Any, **more: Any) -> Tool:
    async def give(_input: Any) -> Any:
        return value

    return Tool("give", execute=give, **more)


@each_row("result, value", CASES)
def test_unwrapping_keeps_to_the_four_rules_in_their_order(result, value):
    assert to_program_value(result) == value


@pytest.mark.parametrize(("result", "value"), CASES[::3])
def test_a_program_gets_the_unwrapped_value(run, result, value):
    if AUDIO in result.content:  # which is content of a program that has any
        value = {"content": [MediaContent(b"RIFF", "audio/wav"), TEXT]}
    assert run("return await tools.give()", [giving(result)]) == value


@pytest.mark.parametrize(("result", "value"), [CASES[0], CASES[7]])
def test_code_call_unwraps_the_same(result, value):
    async def both() -> tuple[Any, Any]:
        tools = create_code_call_tools([giving(result)], {"direct_calls": {"enabled": True}})
        script = await tools.execute({"script": "return await callTool('give', {})"})
        direct = await tools.invoke({"tool": "give", "input": {}})
        return script["result"], direct["result"]

    assert asyncio.run(both()) == (value, value)


def test_a_sync_tool_and_the_last_item_of_an_iterator_are_unwrapped(run):
    async def items(_input):
        yield ToolResult([IMAGE])
        yield ToolResult([TEXT])

    tools = [Tool("items", execute=items), Tool("sync", execute=lambda _input: ToolResult([TEXT]))]
    assert run("return [await tools.items(), await tools.sync()]", tools) == ["hello", "hello"]


def test_an_annotated_tool_result_is_no_output_schema(run):
    @tool
    def annotated(name: str) -> ToolResult:
        return ToolResult([{"type": "text", "text": name}])

    assert run("return await tools.annotated({name: 'x'})", [annotated]) == "x"


def test_an_output_schema_is_that_of_the_structured_content(run, fails):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert run("return await tools.give()", [giving(ToolResult([TEXT], {"n": 1}), output_schema=schema)]) == {"n": 1}
    strict = giving(ToolResult([TEXT]), output_schema=schema, output_validation="strict")
    assert fails(CodeModeToolError, "return await tools.give()", [strict]).details["schema"] == "output"


def test_an_iterator_in_structured_content_is_read(run):
    async def give(_input):
        return ToolResult(structured_content={"n": (n for n in range(3))})

    assert run("return await tools.give()", [Tool("give", execute=give)]) == {"n": [0, 1, 2]}


def test_a_pipeline_hears_of_the_unwrapped_value(run):
    heard = []

    def after(_call, output):
        heard.append(output)
        return {"seen": output}

    assert run("return await tools.give()", [giving(ToolResult([TEXT]))], options={"pipeline": {"after": after}}) == {
        "seen": "hello"
    }
    assert heard == ["hello"]


def test_is_error_is_a_failed_call_that_a_program_can_catch(run, fails):
    failed = giving(ToolResult([TEXT, IMAGE, {"type": "text", "text": "again"}], {"n": 1}, is_error=True))
    caught = "try { await tools.give() } catch (e) { return [e.name, e.message, e.code] }"
    assert run(caught, [failed]) == ["CodeModeToolError", "hello\nagain", "CODE_MODE_TOOL_ERROR"]
    error = fails(CodeModeToolError, "return await tools.give()", [failed])
    assert error.message == "hello\nagain"
    assert error.details["content"][1] == IMAGE


def test_a_failure_that_says_nothing_has_words_of_ours_and_a_long_one_is_cut():
    assert format_failure_message(ToolResult([IMAGE], is_error=True), "give") == "tool 'give' failed"
    assert (
        len(format_failure_message(ToolResult([{"type": "text", "text": "x" * 10**6}], is_error=True), "give"))
        == 20_000
    )


@each_row("block", [5, None, "text", {}, {"type": 5}, object()])
@each_row("is_error", [False, True])
def test_what_is_no_block_fails_the_call_and_says_nothing_to_the_program(fails, block, is_error):
    error = fails(CodeModeToolError, "return await tools.give()", [giving(ToolResult([block], is_error=is_error))])
    assert error.code == "CODE_MODE_HOST_TOOL_ERROR"
    assert isinstance(error.__cause__, TypeError)


@pytest.mark.parametrize("content", ["text", b"bytes", 5, {"type": "text"}])
def test_content_is_a_list_of_blocks(content):
    with pytest.raises(TypeError, match="list of blocks"):
        ToolResult(content)


def test_a_result_shows_and_compares_what_it_holds():
    assert ToolResult([TEXT]) == ToolResult((TEXT,)) != ToolResult([TEXT], None)
    assert ToolResult([TEXT]).structured_content is None
    assert not ToolResult([TEXT]).has_structured_content
    assert ToolResult([TEXT], None).has_structured_content
    assert repr(ToolResult([], 5, is_error=True)) == "ToolResult(content=(), structured_content=5, is_error=True)"
