"""Sample inputs and the programs that show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from plain_tool import PlainTool
from suite import each_row

from codemode.signatures.examples import create_example_program, create_sample_input, create_sample_value

QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
RESULT = {"type": "object", "properties": {"hits": {"type": "array"}, "count": {"type": "integer"}}}


@each_row(
    "schema, expected",
    [
        ({"type": "string", "default": "d", "enum": ["e", "d"]}, "d"),
        ({"type": "string", "default": "d"}, "d"),
        ({"const": 5, "enum": [6]}, 5),
        ({"enum": ["first", "second"]}, "first"),
        ({"type": "string", "examples": ["x"]}, "x"),
        ({"type": "string"}, "text"),
        ({"type": "string", "minLength": 6}, "textxx"),
        ({"type": "string", "maxLength": 2}, "te"),
        ({"type": "string", "format": "date"}, "2025-01-31"),
        ({"type": "string", "format": "email"}, "user@example.com"),
        ({"type": "integer"}, 1),
        ({"type": "number", "minimum": 7}, 7),
        ({"type": "number", "maximum": -2}, -2),
        ({"type": "number", "exclusiveMinimum": 1}, 2),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "integer", "minimum": 100, "multipleOf": 7}, 105),
        ({"type": "integer", "maximum": 5, "multipleOf": 10}, 0),
        ({"type": "number", "minimum": 1e300, "multipleOf": 1e-300}, 1),
        ({"type": "boolean"}, True),
        ({"type": ["null", "boolean"]}, True),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, 1),
        ({"type": "array", "items": {"type": "string"}}, ["text"]),
        ({"type": "array", "items": {"type": "number"}, "minItems": 2}, [1, 1]),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]}, ["text", 1]),
        ({"allOf": [QUERY, {"properties": {"n": {"type": "number"}}, "required": ["n"]}]}, {"query": "text", "n": 1}),
        ({"$ref": "#/$defs/A", "$defs": {"A": QUERY}}, {"query": "text"}),
        ({"type": "array", "items": {"$ref": "#"}}, [[[[]]]]),
        ({"type": "object", "required": ["a"], "additionalProperties": {"type": "string"}}, {"a": "text"}),
        ({"$ref": "#"}, None),
        ({}, {}),
        (True, {}),
    ],
)
def test_sample_value(schema: Any, expected: Any) -> None:
    assert create_sample_value(schema) == expected


def test_optional_keys_are_left_out_and_nested_ones_filled_in() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]},
            "c": QUERY,
        },
        "required": ["a"],
    }
    assert create_sample_value(schema) == {"a": {"b": 1}}


@pytest.mark.parametrize("least", [None, 0, 3, 9])
def test_samples_fit_their_schema(least: int | None) -> None:
    limits = {"minimum": least, "maximum": 12} if least is not None else {}
    schema = {"type": "object", "properties": {"n": {"type": "integer", **limits}, "q": QUERY}, "required": ["n", "q"]}
    assert Draft202012Validator(schema).is_valid(create_sample_value(schema))


@given(
    st.sampled_from(["integer", "number"]),
    st.integers(-1000, 1000),
    st.integers(1, 200),
    st.sampled_from([None, 1, 2, 7, 0.5, 25]),
    st.booleans(),
    st.booleans(),
)
def test_a_number_is_within_what_its_schema_allows(
    kind: str, low: int, size: int, step: float | None, excludes_low: bool, excludes_high: bool
) -> None:
    schema = {
        "type": kind,
        "exclusiveMinimum" if excludes_low else "minimum": low,
        "exclusiveMaximum" if excludes_high else "maximum": low + size,
        **({} if step is None else {"multipleOf": step}),
    }
    is_valid = Draft202012Validator(schema).is_valid
    if any(is_valid(low + at / 2) for at in range(2 * size + 1)):
        assert is_valid(create_sample_value(schema))


@pytest.mark.parametrize("items", [{"type": "string"}, {"type": "integer", "minimum": 5}, {"enum": ["a", "b", "c"]}])
def test_items_that_must_differ_do(items: dict[str, Any]) -> None:
    schema = {"type": "array", "items": items, "minItems": 3, "uniqueItems": True}
    assert Draft202012Validator(schema).is_valid(create_sample_value(schema))


def test_samples_fit_the_schemas_of_real_tools() -> None:
    servers = json.loads((Path(__file__).parents[2] / "data" / "mcp_tools_sample.json").read_text())["servers"]
    schemas = [tool["inputSchema"] for tools in servers.values() for tool in tools]
    assert len(schemas) > 100
    assert [
        schema for schema in schemas if not Draft202012Validator(schema).is_valid(create_sample_value(schema))
    ] == []


def test_the_first_example_is_the_sample() -> None:
    assert create_sample_input(PlainTool("t", "", QUERY, None, ({"query": "one"}, {"query": "two"}))) == {
        "query": "one"
    }


READ_ONLY = {"readOnlyHint": True}
ORDERS = {"type": "array", "items": {"$ref": "#/$defs/Order"}}
ORDERS["$defs"] = {"Order": {"type": "object", "properties": {"id": {"type": "string"}, "cents": {"type": "integer"}}}}
BY_ID = {"type": "object", "properties": {"id": {"type": "string"}, "note": {"type": "string"}}, "required": ["id"]}


def test_one_call_depends_on_another() -> None:
    find = PlainTool("find", "", QUERY, ORDERS, annotations=READ_ONLY)
    price = PlainTool("get-price", "", BY_ID, {"type": "integer"}, annotations=READ_ONLY)
    assert create_example_program([price, find]) == (
        'const found = await tools.find({ query: "text" });\n'
        'return await Promise.all(found.map((item) => tools["get-price"]({ id: item.id })));'
    )
    one = PlainTool("last", "", None, ORDERS["$defs"]["Order"], annotations=READ_ONLY)
    assert create_example_program([price, one]).endswith('return await tools["get-price"]({ id: found.id });')


def test_a_read_only_tool_alone_is_called() -> None:
    tools = [PlainTool("delete", "", QUERY), PlainTool("do-it", "", QUERY, annotations=READ_ONLY)]
    assert create_example_program(tools) == 'return await tools["do-it"]({ query: "text" });'


@pytest.mark.parametrize("annotations", [{}, {"readOnlyHint": False}, {"destructiveHint": False}])
def test_a_tool_that_is_not_read_only_is_never_called(annotations: dict[str, bool]) -> None:
    example = create_example_program([PlainTool("refund", "", QUERY, annotations=annotations)])
    assert "refund" not in example
    assert "tools.firstTool" in example


def test_an_example_costs_at_most_sixty_tokens() -> None:
    servers = json.loads((Path(__file__).parents[2] / "data" / "mcp_tools_sample.json").read_text())["servers"]
    for tools in servers.values():
        known = [
            PlainTool(t["name"], "", t["inputSchema"], t.get("outputSchema"), annotations=t.get("annotations") or {})
            for t in tools
        ]
        assert len(create_example_program(known)) <= 240


def test_a_prototype_key_stays_a_key() -> None:
    tool = PlainTool("t", "", None, None, ({"__proto__": {"a-b": [1, None]}},), READ_ONLY)
    assert '{ ["__proto__"]: { "a-b": [1, null] } }' in create_example_program([tool])


def test_large_inputs_are_not_shown() -> None:
    assert "see its declaration" in create_example_program(
        [PlainTool("t", "", None, None, ({"a": "x" * 1000},), READ_ONLY)]
    )
