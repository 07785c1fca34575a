"""A malformed keyword of a schema is left out alone, at every depth; what is left is a schema to everybody."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema.validators import Draft7Validator, Draft202012Validator
from suite import rounds

from codemode import Tool
from codemode.schemas import keyword_repair
from codemode.schemas.compiled import SchemaMismatchError
from codemode.schemas.json_schemas import CompiledJsonSchema
from codemode.schemas.keyword_repair import repair_keywords
from codemode.signatures.declarations import format_tool_declarations
from codemode.tools.prepared import prepare_tool

SAMPLE = Path(__file__).parents[2] / "data" / "mcp_tools_sample.json"
MALFORMED: list[dict[str, Any]] = [
    {"type": None}, {"type": "any"}, {"type": 5}, {"type": []}, {"type": ["string", "int"]}, {"type": {"a": 1}},
    {"enum": None}, {"enum": 3}, {"enum": []}, {"enum": {"a": 1}},
    {"required": None}, {"required": "b"}, {"required": {}}, {"required": 3},
    {"properties": None}, {"properties": "a"}, {"properties": ["a"]},
    {"patternProperties": None}, {"additionalProperties": None}, {"additionalProperties": "false"},
    {"items": None}, {"items": "string"}, {"items": []}, {"prefixItems": {}}, {"prefixItems": []},
    {"anyOf": None}, {"anyOf": []}, {"anyOf": {}}, {"oneOf": [None]}, {"allOf": "x"}, {"allOf": [3]},
    {"not": None}, {"if": 1}, {"then": []}, {"else": 0}, {"contains": "x"}, {"propertyNames": []},
    {"minimum": None}, {"minimum": "5"}, {"maximum": True}, {"exclusiveMinimum": True}, {"exclusiveMaximum": "x"},
    {"multipleOf": 0}, {"multipleOf": -1}, {"multipleOf": None}, {"minLength": -1}, {"maxLength": 2.5},
    {"minItems": "1"}, {"maxItems": None}, {"uniqueItems": "yes"}, {"minProperties": None}, {"maxContains": []},
    {"pattern": 5}, {"format": None}, {"title": 7}, {"description": 5}, {"description": ["a", "b"]}, {"examples": "x"},
    {"$ref": None}, {"$ref": 3}, {"$defs": ["a"]}, {"$defs": None}, {"definitions": 1}, {"dependentRequired": {"a": 1}},
    {"dependentSchemas": None}, {"dependencies": {"a": 5}}, {"nullable": "yes"}, {"deprecated": 1}, {"readOnly": None},
    {"unevaluatedProperties": None}, {"unevaluatedItems": "x"}, {"contentEncoding": 1}, {"$anchor": 1}, {"$id": 5},
    {"$id": "http://["}, {"contentSchema": "x"},
]  # fmt: skip
REST = {"type": "object", "properties": {"city": {"type": "string", "description": "Which city"}, "n": {}}}


def object_with(**rules: Any) -> dict[str, Any]:
    return {"type": "object", "properties": rules}


PLACES: dict[str, Any] = {
    "a property": lambda one: object_with(city={"type": "string"}, n=one),
    "an item": lambda one: object_with(city={"type": "string"}, n={"type": "array", "items": one}),
    "an alternative": lambda one: object_with(city={"type": "string"}, n={"anyOf": [one, {"type": "null"}]}),
    "a part": lambda one: object_with(city={"type": "string"}, n={"allOf": [one]}),
    "a definition": lambda one: {
        **object_with(city={"type": "string"}, n={"$ref": "#/$defs/N"}),
        "$defs": {"N": one},
    },
    "a component of OpenAPI": lambda one: {
        **object_with(city={"type": "string"}, n={"$ref": "#/components/schemas/N"}),
        "components": {"schemas": {"N": one}},
    },
    "a deep property": lambda one: object_with(city={"type": "string"}, n=object_with(a=object_with(b=one))),
    "other properties": lambda one: {**object_with(city={"type": "string"}), "additionalProperties": one},
}


def takes(schema: Any, value: Any) -> bool:
    try:
        CompiledJsonSchema(schema).validate_input(value)
    except SchemaMismatchError:
        return False
    return True


def declared(schema: Any) -> str:
    return format_tool_declarations([prepare_tool(Tool("t", execute=None, input_schema=schema))])


def test_the_rest_of_a_schema_counts_where_one_keyword_is_malformed():
    for malformed in MALFORMED:
        kept = {key: rule for key, rule in REST.items() if key not in malformed}
        schema = {**kept, **malformed}
        found = CompiledJsonSchema(schema)
        assert Draft202012Validator(Draft202012Validator.META_SCHEMA).is_valid(found.json_schema), malformed
        assert found.notes, malformed
        assert next(iter(malformed)) in found.notes[0], malformed
        if "properties" in kept:
            assert not takes(schema, {"city": 1}), malformed
            assert "city?: string" in declared(schema), malformed


def test_it_is_left_out_alone_at_every_place():
    for name, place in PLACES.items():
        for malformed in MALFORMED:
            schema = place(malformed)
            found = CompiledJsonSchema(schema)
            assert found.notes, (name, malformed)
            assert not takes(schema, {"city": 1}), (name, malformed)
            assert takes(schema, {"city": "Oslo"}), (name, malformed)
            assert "city?: string" in declared(schema), (name, malformed)


def test_one_log_line_names_the_tool_the_keyword_and_the_place(caplog: pytest.LogCaptureFixture):
    schema = object_with(city={"type": "any", "description": 5}, n={"items": None})
    tool = Tool("look", execute=None, input_schema=schema, output_schema={"required": None})
    with caplog.at_level(logging.WARNING, "codemode"):
        prepare_tool(tool).compile_schemas()
    told, of_output = caplog.messages
    assert "input schema of tool 'look'" in told
    assert '"type": "any" at properties.city; "description": 5 at properties.city' in told
    assert '"items": null at properties.n' in told
    assert '"required": null' in of_output


def test_what_has_one_obvious_meaning_is_read_so():
    for schema, right, wrong in [
        (object_with(a={"type": "string", "required": True}), {"a": "x"}, {}),
        ({**object_with(a={}), "required": "a"}, {"a": 1}, {}),
        ({**object_with(a={}), "required": ["a", None, "a", 3]}, {"a": 1}, {}),
        (object_with(a={"type": ["string", None]}), {"a": None}, {"a": 1}),
        (object_with(a={"type": ["string", "string"]}), {"a": "x"}, {"a": 1}),
        ({"type": "object", "properties": [], "additionalProperties": False}, {}, {"a": 1}),
        ({"type": "object", "properties": {"a": None}, "additionalProperties": False}, {"a": 1}, {"b": 1}),
        (object_with(a={"minLength": 2.0}), {"a": "xy"}, {"a": "x"}),
        (object_with(a={"anyOf": [{"type": "string"}, None]}), {"a": "x"}, {"a": 1}),
        ({"required": {"a"}, "properties": {"a": {"enum": ("x", "y")}}}, {"a": "y"}, {"a": "z"}),
    ]:
        assert takes(schema, right), schema
        assert not takes(schema, wrong), schema


def test_a_rule_that_would_take_less_for_what_is_lost_in_it_is_left_out_with_it():
    for schema, taken in [
        ({"not": {"type": "any"}}, 1),
        ({"if": {"minimum": "5"}, "then": False}, 1),
        ({"contains": {"type": 5}, "maxContains": 1}, [1, 2]),
        ({"not": {"properties": {"a": {"enum": None}}}}, {}),
    ]:
        assert takes(schema, taken), schema
    assert not takes({"not": {"type": "string", "description": 5}}, "x")


def test_a_bound_that_no_float_holds_counts():
    for keyword, huge in [("minimum", 10**400), ("exclusiveMaximum", -(10**400)), ("multipleOf", 10**400)]:
        assert not takes({keyword: huge}, 1), keyword


def test_what_is_no_json_in_a_schema_costs_its_keyword():
    schema = object_with(a={"type": "integer", "default": float("nan")}, b={"enum": [object()]}, c={"default": b"x"})
    assert takes(schema, {"a": 1, "b": 2})
    assert not takes(schema, {"a": "x"})
    assert [one.partition(" at ")[2] for one in CompiledJsonSchema(schema).notes] == [
        f"properties.{name}" for name in "abc"
    ]


def test_what_is_too_deep_takes_anything():
    schema: Any = {"type": "string"}
    for _ in range(300):
        schema = {"type": "object", "properties": {"a": schema}}
    value: Any = 5
    for _ in range(300):
        value = {"a": value}
    assert takes(schema, value)
    assert not takes(schema, {"a": {"a": 1}})


def test_the_schemas_of_real_servers_are_taken_as_they_are():
    servers = json.loads(SAMPLE.read_text(encoding="utf-8"))["servers"]
    for tools in servers.values():
        for tool in tools:
            assert repair_keywords(tool["inputSchema"], "input") == (tool["inputSchema"], []), tool["name"]
            assert repair_rule_by_rule(tool["inputSchema"]) == (tool["inputSchema"], []), tool["name"]


def repair_rule_by_rule(schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    repairer = keyword_repair._KeywordRepairer("input")
    return repairer.repair_schema(schema, ()), repairer.notes


KEYWORDS = sorted({key for one in MALFORMED for key in one})
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from((0.5, 2.0, "string", "any", "#", "#/$defs/a", "a")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*{key for one in MALFORMED for key in one}, "a", "default"]), inner, max_size=4
        )
    ),
    max_leaves=14,
)


@settings(max_examples=rounds(75, 600), deadline=None)
@given(st.dictionaries(st.sampled_from(KEYWORDS), JUNK, max_size=4))
def test_whatever_a_schema_is_what_comes_of_it_is_one_to_everybody(schema: dict[str, Any]):
    if keyword_repair._certainly_needs_no_repair(schema, "readOnly"):
        assert repair_rule_by_rule(schema) == (schema, [])
    repaired, _ = repair_keywords({key: rule for key, rule in schema.items() if key != "$schema"}, "input")
    checks = [each(each.META_SCHEMA) for each in (Draft202012Validator, Draft7Validator)]
    assert any(one.is_valid(repaired) for one in checks), repaired
    assert repair_keywords(repaired, "input") == (repaired, [])
