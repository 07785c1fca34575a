"""Schemas of strangers: whatever they are, something that compiles comes of them, and what can be kept is kept."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import each_row, rounds

from codemode import Tool
from codemode.schemas.compiled import SchemaMismatchError
from codemode.schemas.json_schemas import CompiledJsonSchema, repair_schema
from codemode.tools.prepared import prepare_tool


def nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def cyclic() -> Any:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"a": schema}
    return schema


def takes(schema: Any, value: Any) -> bool:
    try:
        CompiledJsonSchema(schema).validate_input(value)
    except SchemaMismatchError:
        return False
    return True


def properties(**rules: Any) -> dict[str, Any]:
    return {"type": "object", "properties": rules}


@each_row(
    "schema",
    [
        {"type": "object"},
        {},
        properties(a={"type": "string"}),
        True,
        False,
        None,
        int,
        "int",
        list[str],
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
        {"$ref": "#/definitions/A", "definitions": {"A": {"type": "string"}}},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"$id": "https://a.b/c", "properties": {"a": {"$ref": "https://a.b/c#/$defs/A"}}, "$defs": {"A": {}}},
        {"$dynamicAnchor": "n", "properties": {"kids": {"$dynamicRef": "#n"}}},
        properties(**{f"p{at}": {"type": "string"} for at in range(5_000)}),
    ],
)
def test_what_can_be_used_is_returned_as_it_is(schema: Any):
    assert repair_schema(schema) == (schema, None)


OLDER = {
    "items as a list": (properties(a={"items": [{"type": "string"}]}), {"a": ["x"]}, {"a": [1]}),
    "exclusiveMinimum of draft 4": (
        properties(a={"minimum": 0, "exclusiveMinimum": True}),
        {"a": 1},
        {"a": 0},
    ),
    "id and definitions of draft 4": (
        {"id": "http://x/y", **properties(a={"$ref": "#A"}), "definitions": {"b": {"id": "#A", "type": "string"}}},
        {"a": "x"},
        {"a": 1},
    ),
    "an anchor of draft 7": (
        {**properties(a={"$ref": "#A"}), "definitions": {"b": {"$id": "#A", "type": "string"}}},
        {"a": "x"},
        {"a": 1},
    ),
    "dependencies": ({**properties(), "dependencies": {"a": ["b"]}, "items": [{}]}, {"b": 1}, {"a": 1}),
    "required of draft 3": (properties(a={"type": "string", "required": True}), {"a": "x"}, {}),
    "a mixture": (
        properties(a={"items": [{"type": "string"}]}, b={"maximum": 1, "exclusiveMaximum": True}),
        {"b": 0},
        {"b": 1},
    ),
}


@each_row("schema, right, wrong", OLDER.values())
def test_an_older_draft_that_does_not_say_so_is_read_as_the_draft_it_fits(schema: Any, right: Any, wrong: Any):
    found, warning = repair_schema(schema)
    assert warning is None
    assert takes(found, right)
    assert not takes(found, wrong)


def test_a_draft_that_is_named_and_does_not_fit_is_not_believed():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **properties(a={"items": [{"type": "string"}]}),
    }
    found, warning = repair_schema(schema)
    assert warning is not None
    assert "draft" in warning
    assert not takes(found, {"a": [1]})
    found, warning = repair_schema({"$schema": 3, **properties(a={"type": "string"})})
    assert warning is not None
    assert not takes(found, {"a": 1})


BROKEN = {
    "deep": nested(10_000),
    "cyclic": cyclic(),
    "list": [1],
    "number": 3,
    "float": float("inf"),
    "tuple": (),
    "set": {1},
    "text in bytes": b"{}",
    "too many": properties(**{f"p{at}": {"x": 1} for at in range(60_000)}),
    "huge": properties(a={"description": "x" * 5_000_000}),
}


@each_row("schema", BROKEN.values())
def test_of_what_is_broken_anything_is_taken_and_a_warning_says_so(schema: Any):
    found, warning = repair_schema(schema)
    assert found == {}
    assert warning is not None
    assert warning.endswith(": the tool takes anything")
    assert len(warning) < 400


TO_ITSELF = {
    "root": {"$ref": "#"},
    "chain": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "all": {"allOf": [{"$ref": "#"}]},
    "any, deeper": {"anyOf": [{"type": "string"}, {"oneOf": [{"$ref": "#"}]}]},
    "if": {"if": {"type": "object"}, "then": {"$ref": "#"}},
    "anchor": {"$ref": "#me", "$anchor": "me"},
    "dynamic": {"$dynamicRef": "#me", "$dynamicAnchor": "me"},
    "dependent": {"dependentSchemas": {"a": {"$ref": "#"}}},
    "not": {"not": {"$ref": "#"}},
    "property": properties(a={"$ref": "#/$defs/a"}) | {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
    "older": {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}},
}


@each_row("schema", TO_ITSELF.values())
def test_a_schema_that_comes_back_to_itself_takes_what_the_rest_of_it_takes(schema: Any):
    """No validator ever ends with one: no call of its tool could be right."""
    found, warning = repair_schema(schema)
    assert warning is not None
    assert takes(found, {"a": {"b": 1}})


@pytest.mark.parametrize("keyword", ["anyOf", "allOf", "oneOf"])
def test_recursion_through_a_property_is_no_circle(keyword: str):
    tree = properties(next={keyword: [{"$ref": "#"}]}, name={"type": "string"})
    assert repair_schema(tree) == (tree, None)
    assert takes(tree, {"next": {"next": {"name": "x"}}})
    assert not takes(tree, {"next": {"next": {"name": 1}}})


def test_a_reference_that_leads_nowhere_costs_what_it_stands_for_alone():
    schema = properties(a={"$ref": "https://example.com/a.json"}, b={"type": "string"}, c={"const": {"$ref": "#/nope"}})
    before = copy.deepcopy(schema)
    found, warning = repair_schema(schema)
    assert schema == before
    assert warning is not None
    assert "https://example.com/a.json" in warning
    assert takes(found, {"a": 1, "b": "x", "c": {"$ref": "#/nope"}})
    assert not takes(found, {"b": 1})
    assert not takes(found, {"c": 1})


@pytest.mark.parametrize("keyword", ["not", "if"])
def test_a_rule_that_would_take_less_for_a_lost_reference_is_left_out_with_it(keyword: str):
    schema = {**properties(b={"type": "string"}), keyword: {"$ref": "#/nope"}, "else": False}
    found, warning = repair_schema(schema)
    assert warning is not None
    assert "#/nope" in warning
    assert takes(found, {"a": 1})
    assert not takes(found, {"b": 1})


def test_a_pattern_that_cannot_be_run_costs_the_pattern_alone():
    found, warning = repair_schema(properties(a={"type": "string", "pattern": "(?=a)b"}, b={"type": "integer"}))
    assert warning is not None
    assert "pattern" in warning
    assert takes(found, {"a": "anything"})
    assert not takes(found, {"a": 1})
    assert not takes(found, {"b": "x"})


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=True)
    | st.sampled_from(
        ["object", "string", "any", "#", "#/nope", "#/$defs/a", "(?=x)", "http://json-schema.org/draft-04/schema#"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "items",
                    "required",
                    "$ref",
                    "$defs",
                    "definitions",
                    "id",
                    "$id",
                    "$schema",
                    "not",
                    "anyOf",
                    "oneOf",
                    "exclusiveMinimum",
                    "minimum",
                    "pattern",
                    "patternProperties",
                    "additionalProperties",
                    "enum",
                    "const",
                    "default",
                    "$anchor",
                    "$dynamicRef",
                    "extends",
                    "dependencies",
                    "if",
                    "contains",
                    "a",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(schema=JUNK)
@settings(max_examples=rounds(30, 300))
def test_whatever_it_is_a_tool_comes_of_it(schema: Any):
    if isinstance(schema, str):
        return  # the name of a type
    found, warning = repair_schema(schema)
    assert warning is None or warning
    if isinstance(found, dict):
        tool = prepare_tool(Tool("t", execute=None, input_schema=found, output_schema=found))
        tool.compile_schemas()
        assert tool.input_json_schema is not None
