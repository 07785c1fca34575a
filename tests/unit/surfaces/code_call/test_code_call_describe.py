"""Definitions of tools: schemas as they are, what is not found and left out, and examples that are scripts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import BaseModel
from sample_tools import sample_tools
from suite import each_row

from codemode import Tool, create_code_call_tools
from codemode.tools.prepared import prepare_tool

USERS = {
    "type": "object",
    "properties": {"limit": {"type": "integer", "minimum": 1}, "tag": {"type": "string"}, "zone": {"type": "string"}},
    "required": ["zone"],
}


def only(tool: Tool, **given: Any) -> dict[str, Any]:
    return create_code_call_tools([tool]).describe_sync({"tools": [tool.name], **given})["tools"][0]


def examples(name: str, schema: Any = None, **more: Any) -> list[dict[str, str]]:
    return only(Tool(name, execute=None, input_schema=schema, **more))["usageExamples"]


def inputs(found: list[dict[str, str]]) -> list[str]:
    return [re.fullmatch(r'return await callTool\("[^"]+", (.*)\)', one["code"])[1] for one in found]


def test_a_definition_has_what_is_needed_to_call_the_tool():
    tool = Tool(
        "users:list",
        execute=None,
        description="List users. In pages.",
        input_schema=USERS,
        output_schema={"type": "array"},
        annotations={"readOnlyHint": True},
        metadata={"codecall": {"appId": "user"}},
    )
    described = only(tool)
    assert list(described) == [
        "name", "description", "appId", "inputSchema", "outputSchema", "annotations", "usageExamples",
    ]  # fmt: skip
    assert described["inputSchema"] == USERS
    assert described["outputSchema"] == {"type": "array"}
    assert described["annotations"] == {"readOnlyHint": True}
    assert described["description"] == "List users. In pages."
    json.dumps(described)


def test_a_tool_that_says_little_has_a_definition_too():
    described = only(Tool("bare", execute=None))
    assert described == {
        "name": "bare",
        "description": "",
        "inputSchema": {},
        "outputSchema": None,
        "usageExamples": [{"description": "Calls bare", "code": 'return await callTool("bare", {})'}],
    }


def test_names_once_and_what_is_none():
    tools = create_code_call_tools([Tool(name, execute=None) for name in ("a", "b", "c")])
    hidden = Tool("h", execute=None, metadata={"codecall": {"enabledInCodeCall": False}})
    tools.update([*(Tool(name, execute=None) for name in ("a", "b", "c")), hidden])
    answer = tools.describe_sync({"tools": ["b", "a", "b", "zz", "h", "codecall.search", "b"], "max": 5})
    assert [one["name"] for one in answer["tools"]] == ["b", "a"]
    assert answer["notFound"] == ["zz", "h", "codecall.search"]
    assert "omitted" not in answer
    assert tools.describe_sync({"toolNames": ["a"]})["tools"][0]["name"] == "a"
    assert tools.describe_sync({"tools": []}) == {"tools": []}
    few = create_code_call_tools([Tool(name, execute=None) for name in ("a", "b", "c")], {"maxDefinitions": 2})
    assert few.describe_sync({"tools": ["a", "b", "c"]})["omitted"] == 1


def test_nothing_of_an_answer_is_the_tools_own():
    tools = create_code_call_tools([Tool("a", execute=None, input_schema=USERS, annotations={"x": {"y": 1}})])
    first = tools.describe_sync({"tools": ["a"]})
    first["tools"][0]["usageExamples"].clear()
    assert tools.describe_sync({"tools": ["a"]})["tools"][0]["usageExamples"]


@each_row(
    "name, says",
    [
        ("create_user", "Creates user"),
        ("users.add", "Creates one of users"),
        ("listUsers", "Lists users"),
        ("all_users", "Lists users"),
        ("get-user", "Gets user"),
        ("FetchUser", "Gets user"),
        ("user:update", "Updates user"),
        ("set_user", "Updates user"),
        ("delete_user", "Deletes user"),
        ("user.rm", "Deletes user"),
        ("search_users", "Searches users"),
        ("users/find", "Searches users"),
        ("find", "Searches all"),
        ("settings", "Calls settings"),
        ("getaway", "Calls getaway"),
    ],
)
def test_an_example_says_what_the_name_says(name: str, says: str):
    assert examples(name)[0]["description"] == says


def test_lists_have_an_example_with_filters():
    found = examples("users:list", USERS)
    assert inputs(found) == ['{ zone: "text" }', '{ zone: "text", limit: 1, tag: "text" }']
    assert found[1]["description"] == "Lists users with filters"


def test_the_authors_come_first_and_five_are_enough():
    given = [{"description": f"Zone {at}", "input": {"zone": f"z{at}"}} for at in range(7)]
    found = examples("users:list", USERS, metadata={"codecall": {"examples": given}})
    assert [one["description"] for one in found] == [f"Zone {at}" for at in range(5)]
    found = examples(
        "users:list", USERS, metadata={"codecall": {"examples": given[:1]}}, input_examples=[{"zone": "b"}]
    )
    assert inputs(found)[:2] == ['{ zone: "z0" }', '{ zone: "b" }']
    assert len(found) == 4
    same = [given[0], given[0], {"description": "again", "input": {"zone": "z0"}}]
    assert len(examples("x", USERS, metadata={"codecall": {"examples": same}})) == 2


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^([0-9]{50}){4}$"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "minLength": 500}}, "required": ["a"]},
        False,
    ],
)
def test_what_the_schema_refuses_is_left_out(schema: Any):
    assert examples("make_it", schema) == []


def test_conditions_and_numbers_of_members_have_examples():
    schema = {
        "type": "object",
        "properties": {
            "sku": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$", "examples": ["AA-1111"]},
            "how": {"enum": ["card", "cash"]},
            "card": {"type": "string", "pattern": "^[0-9]{4}$", "examples": ["1111"]},
            "roles": {"type": "array", "items": {"type": "string"}, "contains": {"const": "buyer"}},
            "labels": {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}},
        },
        "required": ["sku", "how", "roles", "labels"],
        "if": {"properties": {"how": {"const": "card"}}},
        "then": {"required": ["card"]},
    }
    (found,) = inputs(examples("buy", schema))
    assert _read_file(found) == {
        "sku": "AA-1111",
        "how": "card",
        "roles": ["buyer"],
        "labels": {"key1": "text"},
        "card": "1111",
    }


def test_a_required_text_with_a_pattern_and_no_example_of_its_own_has_no_example():
    schema = {"type": "object", "properties": {"sku": {"type": "string", "pattern": "^[A-Z]+$"}}, "required": ["sku"]}
    assert examples("buy", schema) == []
    (found,) = inputs(examples("buy", {**schema, "required": []}))
    assert _read_file(found) == {}


@each_row("value", [{"a": float("nan")}, {"a": [0] * 60}, {"a": object()}, {1: 2}, [[[[[[[[[[1]]]]]]]]]]])
def test_what_cannot_be_written_is_left_out(value: Any):
    found = examples("make_it", None, metadata={"codecall": {"examples": [{"description": "No", "input": value}]}})
    assert [one["description"] for one in found] == ["Calls make_it"]


def test_every_generated_input_of_the_sample_fits_its_schema():
    sample = sample_tools()
    tools = create_code_call_tools(sample)
    by_name = {tool.name: tool for tool in sample}
    shown = 0
    for at in range(0, len(sample), 50):
        answer = tools.describe_sync({"tools": [tool.name for tool in sample[at : at + 50]], "max": 50})
        for one in answer["tools"]:
            assert len(one["usageExamples"]) <= 5
            for text in inputs(one["usageExamples"]):
                prepare_tool(by_name[one["name"]]).validate_input(_read_file(text))
                shown += 1
    assert shown > len(sample)


def _read_file(text: str) -> Any:
    """Read an object literal as `literal` writes it: JSON but for names of keys."""
    return json.loads(re.sub(r"([{,] ?)([A-Za-z_$][\w$]*):", r'\1"\2":', text))


class Order(BaseModel):
    customer: str
    count: int = 1


def test_types_have_definitions_and_examples_too():
    described = only(Tool("create_order", execute=None, input_schema=Order))
    assert described["inputSchema"]["required"] == ["customer"]
    assert inputs(described["usageExamples"]) == ['{ customer: "text" }', '{ customer: "text", count: 1 }']
