"""A tool that takes orders and a function that searches: what the tests of tools share."""

from typing import Annotated

import pytest
from pydantic import (
    BaseModel,
    Field,
)

from codemode.errors import CodeModeToolError
from codemode.tools.context import ToolCallContext
from codemode.tools.prepared import prepare_tool
from codemode.tools.tool import Tool

CONTEXT = ToolCallContext(tool_call_id="outer:tool-1", outer_tool_call_id="outer")


class Line(BaseModel):
    sku: str
    count: int = Field(default=1, ge=1)


class Order(BaseModel):
    customer: str
    lines: list[Line] = []


ORDER_SCHEMA = {
    "type": "object",
    "properties": {
        "customer": {"type": "string"},
        "priority": {"enum": ["low", "high"], "default": "low"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "required": ["customer"],
    "additionalProperties": False,
    "$defs": {
        "line": {
            "type": "object",
            "properties": {"count": {"type": "integer", "minimum": 1, "default": 1}},
        }
    },
}


def said(**settings):
    return Tool("orders", execute=lambda value, context: value, **settings)


def make(**settings):
    return prepare_tool(said(**settings))


def problems_of(one, value):
    with pytest.raises(CodeModeToolError) as raised:
        one.validate_input(value)
    assert raised.value.details["tool_name"] == one.name
    assert f'"{one.name}"' in str(raised.value)
    for problem in raised.value.details["problems"]:
        assert problem["path"] in str(raised.value)
        assert problem["message"] in str(raised.value)
    return raised.value.details["problems"]


def search(query: str, limit: Annotated[int, "how many"] = 10, *, tags: list[str] | None = None) -> list[Line]:
    """Search the
    catalogue.

    More that models need not read.

    Args:
        query: what to look for,
            in words
        tags (list[str]): only these
    """
    return [Line(sku=f"{query}-{limit}-{tags}")]
