"""codeMode as a custom tool of the Responses API: programs come as raw text, answers go back as items."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import ResponseCustomToolCall
from openai.types.responses.custom_tool_param import CustomToolParam
from openai.types.responses.response_custom_tool_call_output_param import ResponseCustomToolCallOutputParam
from pausing import OK
from pydantic import TypeAdapter
from waiting import within

from codemode import CallContext, Interrupt, MediaContent, Tool, create_code_mode_tool
from codemode.types import OpenAICustomTool

OUTPUTS: TypeAdapter[Any] = TypeAdapter(ResponseCustomToolCallOutputParam)
PNG = b"\x89PNG\r\n\x1a\n"


def call_of(program: str, **more: Any) -> dict[str, Any]:
    return {"type": "custom_tool_call", "call_id": "call_1", "name": "codeMode", "input": program, **more}


def offered(*tools: Any, **options: Any) -> OpenAICustomTool:
    return create_code_mode_tool(tools, options).as_openai_custom_tool()


def answered(custom: OpenAICustomTool, program: str) -> dict[str, Any]:
    """Answer a call, and check that the API would take the item."""
    item = within(custom.answer(call_of(program)))
    assert isinstance(item, dict), item
    OUTPUTS.validate_python(item)
    assert (item["type"], item["call_id"]) == ("custom_tool_call_output", "call_1")
    return item


def test_the_definition_is_one_that_the_api_takes():
    custom = offered(Tool("find", execute=lambda: 1))
    TypeAdapter(CustomToolParam).validate_python(custom.definition)
    assert (custom.definition["type"], custom.definition["name"]) == ("custom", "codeMode")
    assert custom.definition["format"] == {"type": "text"}
    assert "find(" in custom.definition["description"]
    assert "plain text: no JSON around it" in custom.definition["description"]


def test_a_program_with_quotes_and_lines_needs_no_escaping():
    custom = offered(Tool("find", execute=lambda given: {"asked": given}))
    item = answered(custom, 'const said = "a \\"b\\"\\n";\nreturn await tools.find({ said });')
    assert json.loads(item["output"]) == {"asked": {"said": 'a "b"\n'}}


def test_items_of_the_sdk_are_taken():
    item = ResponseCustomToolCall(type="custom_tool_call", call_id="call_1", name="codeMode", input="return 'größe'")
    custom = offered()
    assert custom.is_call(item)
    assert custom.answer_sync(item) == {"type": "custom_tool_call_output", "call_id": "call_1", "output": "größe"}


def test_other_items_are_told_apart():
    custom = offered()
    for item in (
        call_of("return 1", name="other"),
        {"type": "message"},
        None,
        call_of("return 1", type="function_call"),
    ):
        assert not custom.is_call(item)
        with pytest.raises(ValueError, match="expected an item of type 'custom_tool_call' for the tool 'codeMode'"):
            within(custom.answer(item))
    with pytest.raises(ValueError, match="input of a custom_tool_call must be text, got dict"):
        within(custom.answer(call_of({"js": "return 1"})))  # type: ignore[arg-type]


def test_a_program_that_fails_says_why():
    item = answered(offered(), "const a = 1;\nreturn a.b.c;")
    assert "TypeError" in item["output"]
    assert "return a.b.c;" in item["output"]


def test_a_program_that_returns_nothing_shows_what_it_printed():
    assert "It had printed:\nhere" in answered(offered(), "console.log('here')")["output"]


def test_an_image_is_an_image():
    item = answered(offered(Tool("look", execute=lambda: MediaContent(PNG, "image/png"))), "return await tools.look()")
    text, image = item["output"]
    assert text["type"] == "input_text"
    assert image == {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    pdf = offered(Tool("look", execute=lambda: MediaContent(b"%PDF", "application/pdf")))
    assert answered(pdf, "return await tools.look()")["output"][1]["type"] == "input_file"


def test_a_pause_is_for_a_person_and_its_result_for_the_model():
    pay = Tool("pay", execute=lambda given: given["sum"], needs_approval=True)
    tool = create_code_mode_tool([pay], {"approval": {"mode": "interrupt"}})
    custom = tool.as_openai_custom_tool()
    pause = within(custom.answer(call_of("return await tools.pay({ sum: 7 })")))
    assert isinstance(pause, Interrupt)
    result = within(tool.resume(pause, OK))
    assert custom.output_item("call_1", result)["output"] == "7"


def test_a_call_keeps_its_own_context():
    seen: list[Any] = []

    def look(given: Any, context: Any) -> None:
        seen.append((context.outer_tool_call_id, context.context))

    custom = offered(Tool("look", execute=look))
    within(custom.answer(call_of("return await tools.look()"), CallContext(context="mine")))
    within(custom.answer(call_of("return await tools.look()"), CallContext(tool_call_id="other")))
    assert seen == [("call_1", "mine"), ("other", None)]
