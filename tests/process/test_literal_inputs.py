"""What is certainly wrong with a literal input is reported before anything runs, for every kind of tool."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from codemode import CodeModeToolError, Tool, create_code_mode_tool
from codemode.errors import CodeModeSyntaxError

calls: list[object] = []


def plain(product: str, count: int = 1, express: bool = False, tags: list[str] | None = None) -> str:
    calls.append(product)
    return product


class Line(BaseModel):
    sku: str


def typed(product: str, count: int = 1, express: bool = False, tags: list[str] = [], lines: list[Line] = []) -> str:  # noqa: B006
    calls.append(product)
    return product


class Order(BaseModel):
    product: str
    count: int = 1
    express: bool = False
    tags: list[str] = []


JSON = {
    "type": "object",
    "properties": {
        "product": {"type": "string"},
        "count": {"type": "integer"},
        "express": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["product"],
}


def kept(value: object) -> str:
    calls.append(value)
    return "done"


TOOLS = [
    plain,
    typed,
    Tool("model", execute=kept, input_schema=Order),
    Tool("json", execute=kept, input_schema=JSON),
]
NAMES = ("plain", "typed", "model", "json")
WRONG = {
    "": "input.product is required",
    "undefined": "input is undefined, expected object",
    "'nut'": "input is a string, expected object",
    "{}": "input.product is required",
    "{ Product: 'nut' }": "input.Product does not exist; did you mean product?",
    "{ product: 'nut', COUNT: 2 }": "input.COUNT does not exist; did you mean count?",
    "{ product: 5 }": "input.product is a number, expected string",
    "{ product: true }": "input.product is a boolean, expected string",
    "{ product: 'nut', count: 'many' }": "input.count is a string, expected integer",
    "{ product: 'nut', express: 'perhaps' }": "input.express is a string, expected boolean",
    "{ product: 'nut', express: 7 }": "input.express is a number, expected boolean",
}


def test_each_mistake_is_reported_for_each_kind_of_tool():
    code_mode = create_code_mode_tool(TOOLS)
    calls.clear()
    for name in NAMES:
        for argument, message in WRONG.items():
            with pytest.raises(CodeModeSyntaxError) as raised:
                code_mode.execute_sync(
                    {"js": f"await tools.plain({{ product: 'nut' }});\nawait tools.{name}({argument})"}
                )
            [problem] = raised.value.details["problems"]
            assert problem["message"] == f"tools.{name}: {message}", (name, argument)
            assert problem["line"] == 2, (name, argument)
    assert calls == []


def test_items_of_a_literal_array_are_looked_at():
    code_mode = create_code_mode_tool(TOOLS)
    with pytest.raises(CodeModeSyntaxError, match=r"input\.tags\[1\] is a number, expected string"):
        code_mode.execute_sync({"js": "return await tools.json({ product: 'nut', tags: ['a', 1] })"})
    with pytest.raises(CodeModeSyntaxError, match=r"input\.lines\[0\]\.sku is required"):
        code_mode.execute_sync({"js": "return await tools.typed({ product: 'nut', lines: [{ id: 1 }] })"})


def test_what_a_validator_converts_is_no_mistake():
    code_mode = create_code_mode_tool(TOOLS)
    taken = "{ product: 'nut', count: '5', express: 'yes', tags: [] }"
    for name in ("plain", "typed", "model"):
        assert code_mode.execute_sync({"js": f"return await tools.{name}({taken})"}) in ("nut", "done")
    with pytest.raises(CodeModeSyntaxError, match=r"input\.count is a string, expected integer"):
        code_mode.execute_sync({"js": f"return await tools.json({taken})"})


def test_validators_of_an_author_and_other_names_are_left_to_run_time():
    class Loose(BaseModel):
        model_config = ConfigDict(populate_by_name=True)
        product_id: Annotated[str, BeforeValidator(str)] = Field(alias="productId")

    class Numbers(BaseModel):
        model_config = ConfigDict(coerce_numbers_to_str=True)
        product: str

    tools = [
        Tool("loose", execute=lambda value: value.product_id, input_schema=Loose),
        Tool("numbers", execute=lambda value: value.product, input_schema=Numbers),
    ]
    code_mode = create_code_mode_tool(tools)
    assert code_mode.execute_sync({"js": "return await tools.loose({ product_id: 5 })"}) == "5"
    assert code_mode.execute_sync({"js": "return await tools.numbers({ product: 5 })"}) == "5"


def test_a_tool_that_takes_any_key_takes_one_in_another_case():
    schema = {**JSON, "additionalProperties": {"type": "string"}}
    code_mode = create_code_mode_tool([Tool("open", execute=lambda value: value["COUNT"], input_schema=schema)])
    assert code_mode.execute_sync({"js": "return await tools.open({ product: 'nut', COUNT: 'x' })"}) == "x"


def test_without_checks_the_call_itself_says_what_is_wrong():
    code_mode = create_code_mode_tool(TOOLS, {"execution_policy": {"check_program": False}})
    with pytest.raises(CodeModeToolError, match="product"):
        code_mode.execute_sync({"js": "return await tools.plain({ Product: 'nut' })"})
