"""A default that its own schema refuses is neither filled in nor declared; a sound one is both."""

from __future__ import annotations

from typing import Any

from codemode import Tool
from codemode.schemas.compiled import SchemaMismatchError
from codemode.schemas.json_schemas import CompiledJsonSchema
from codemode.signatures.declarations import format_tool_declarations
from codemode.tools.prepared import prepare_tool

COLOUR = {"$defs": {"Colour": {"enum": ["red", "green"]}, "Size": {"type": "integer", "default": "large"}}}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "null of a text": ({"a": {"type": "string", "default": None}}, {}),
    "another type": ({"a": {"type": "integer", "default": "7"}}, {}),
    "a list of types": ({"a": {"type": ["string", "integer"], "default": 1.5}}, {}),
    "no choice": ({"a": {"enum": ["x", "y"], "default": "z"}}, {}),
    "no constant": ({"a": {"const": 1, "default": 2}}, {}),
    "out of bounds": ({"a": {"type": "integer", "minimum": 1, "default": 0}}, {}),
    "a pattern": ({"a": {"type": "string", "pattern": "^x", "default": "7"}}, {}),
    "no alternative": ({"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": 7}}, {}),
    "beside a reference": ({"a": {"$ref": "#/$defs/Colour", "default": "7"}}, COLOUR),
    "beside a part": ({"a": {"allOf": [{"$ref": "#/$defs/Colour"}], "default": "7"}}, COLOUR),
    "an object without what it must have": ({"a": {"required": ["b"], "properties": {"b": {}}, "default": {}}}, {}),
    "a list of the wrong items": ({"a": {"type": "array", "items": {"type": "string"}, "default": [7]}}, {}),
}


def of(properties: dict[str, Any], more: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **(more or {})}


def filled(schema: dict[str, Any], value: Any) -> Any:
    return CompiledJsonSchema(schema).validate_input(value).value


def declared(schema: dict[str, Any]) -> str:
    return format_tool_declarations([prepare_tool(Tool("t", execute=None, input_schema=schema))])


def test_it_is_not_filled_in_and_not_declared():
    for row, (properties, more) in REFUSED.items():
        schema = of(properties, more)
        assert filled(schema, {}) == {}, row
        assert "@default" not in declared(schema), row


def test_so_it_is_at_every_depth():
    bad = {"type": "object", "properties": {"b": {"type": "string", "default": 7}}}
    for schema, value in [
        (of({"a": bad}), {"a": {}}),
        (of({"a": {"type": "array", "items": bad}}), {"a": [{}, {}]}),
        (of({"a": {"$ref": "#/$defs/Bad"}}, {"$defs": {"Bad": bad}}), {"a": {}}),
        (of({"a": {"anyOf": [bad, {"type": "null"}]}}), {"a": {}}),
        (of({"a": {"allOf": [bad]}}), {"a": {}}),
        (of({"a": {"additionalProperties": bad}}), {"a": {"c": {}}}),
        (of({"a": {"prefixItems": [bad]}}), {"a": [{}]}),
    ]:
        assert filled(schema, value) == value, schema
        assert "@default" not in declared(schema), schema


def test_a_sound_default_is_filled_in_and_declared():
    for properties, more, value in [
        ({"a": {"type": "string", "default": "x"}}, {}, {"a": "x"}),
        ({"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}}, {}, {"a": None}),
        ({"a": {"type": ["string", "null"], "default": None}}, {}, {"a": None}),
        ({"a": {"type": "string", "nullable": True, "default": None}}, {}, {"a": None}),
        ({"a": {"$ref": "#/$defs/Colour", "default": "red"}}, COLOUR, {"a": "red"}),
    ]:
        schema = of(properties, more)
        assert filled(schema, {}) == value, properties
        assert value["a"] is None or "@default" in declared(schema), properties


def test_only_one_that_is_not_null_is_told_of():
    for default, notes in [(None, ()), (7, ('"default": 7 at properties.a',))]:
        assert CompiledJsonSchema(of({"a": {"type": "string", "default": default}})).notes == notes


def test_a_default_that_the_rest_of_the_schema_refuses_costs_no_call():
    either = of({"a": {"default": 1}, "b": {"default": 2}}, {"maxProperties": 1, "required": ["b"]})
    assert filled(either, {"b": 3}) == {"b": 3}
    parted = of({"a": {"default": None}}, {"allOf": [of({"a": {"type": "string"}})]})
    assert filled(parted, {"c": 1}) == {"c": 1}
    try:
        filled(either, {"c": 1})
    except SchemaMismatchError as mismatch:
        assert mismatch.problems
    else:
        raise AssertionError
