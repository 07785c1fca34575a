"""Schemas in the dialect of OpenAPI 3.0 are declared and checked as they are meant."""

from __future__ import annotations

from typing import Any

from codemode import Tool
from codemode.schemas.compiled import SchemaMismatchError
from codemode.schemas.json_schemas import CompiledJsonSchema
from codemode.signatures.declarations import format_tool_declarations
from codemode.tools.prepared import prepare_tool

PET = {"$defs": {"Pet": {"type": "object", "properties": {"name": {"type": "string"}}}}}


def takes(schema: dict[str, Any], value: Any) -> bool:
    try:
        CompiledJsonSchema(schema).validate_input(value)
    except SchemaMismatchError:
        return False
    return True


def declared(schema: dict[str, Any], side: str = "input_schema") -> str:
    return format_tool_declarations([prepare_tool(Tool("t", execute=None, **{side: schema}))])


def of(**rules: Any) -> dict[str, Any]:
    return {"type": "object", "properties": rules}


NULLABLE: list[tuple[dict[str, Any], str, Any]] = [
    ({"type": "string"}, "string | null", "x"),
    ({"type": "string", "enum": ["x", "y"]}, '"x" | "y" | null', "x"),
    ({"const": "x"}, '"x" | null', "x"),
    ({"type": "string", "minLength": 2, "pattern": "^x"}, "string | null", "xy"),
    ({"type": "array", "items": {"type": "string"}}, "string[] | null", ["x"]),
    ({"$ref": "#/$defs/Pet"}, "{ name?: string } | null", {"name": "Rex"}),
    ({"allOf": [{"$ref": "#/$defs/Pet"}]}, "{ name?: string } | null", {"name": "Rex"}),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "string | number | null", 1),
]


def test_nullable_is_declared_and_taken_on_both_sides():
    for rules, text, value in NULLABLE:
        schema = {**of(a={**rules, "nullable": True}), **PET}
        for side in ("input_schema", "output_schema"):
            assert f"a?: {text}" in declared(schema, side), rules
        tool = prepare_tool(Tool("t", execute=None, output_schema=schema))
        for one in (value, None):
            assert takes(schema, {"a": one}), rules
            assert tool.validate_output({"a": one}) == {"a": one}, rules
        assert not takes(schema, {"a": True}), rules
        assert not takes({**of(a=rules), **PET}, {"a": None}), rules


def test_nullable_counts_at_every_depth_and_in_older_drafts():
    text = {"type": "string", "nullable": True}
    for schema, value in [
        (text, None),
        ({"type": "array", "items": text}, [None]),
        (of(a=of(b=text)), {"a": {"b": None}}),
        ({"additionalProperties": text}, {"a": None}),
        ({"anyOf": [text, {"type": "integer"}]}, None),
        ({"$ref": "#/components/schemas/T", "components": {"schemas": {"T": text}}}, None),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [text]}, [None]),
        ({"$schema": "http://json-schema.org/draft-04/schema#", **of(a=text)}, {"a": None}),
    ]:
        assert takes(schema, value), schema
    assert not takes({"type": "string", "nullable": False}, None)


def test_exclusive_bounds_are_read_as_flags():
    for rules, wrong, tag in [
        ({"minimum": 5, "exclusiveMinimum": True}, 5, "@exclusiveMinimum 5"),
        ({"maximum": 7, "exclusiveMaximum": True}, 7, "@exclusiveMaximum 7"),
        ({"minimum": 5, "exclusiveMinimum": False}, 4, "@minimum 5"),
    ]:
        schema = of(a={"type": "number", **rules, "const": 6})
        assert takes(schema, {"a": 6})
        assert not takes(of(a={"type": "number", **rules}), {"a": wrong})
        assert tag in declared(of(a={"type": "number", **rules}))


def test_an_example_is_shown():
    assert '@example "Oslo"' in declared(of(city={"type": "string", "example": "Oslo"}))


def test_what_only_the_other_side_has_must_not_be_given():
    schema = {
        **of(id={"type": "integer", "readOnly": True}, key={"type": "string", "writeOnly": True}),
        "required": ["id", "key"],
    }
    assert takes(schema, {"key": "x"})
    assert not takes(schema, {"id": 1})
    assert not takes(schema, {"key": "x", "id": "1"})
    assert "id?: number" in declared(schema).replace("/** @integer */\n", "").replace("  ", " ")
    tool = prepare_tool(Tool("t", execute=None, output_schema=schema))
    assert tool.validate_output({"id": 1}) == {"id": 1}


def test_references_into_components_are_followed():
    schema = {**of(pet={"$ref": "#/components/schemas/Pet"}), "components": {"schemas": PET["$defs"]}}
    assert takes(schema, {"pet": {"name": "Rex"}})
    assert not takes(schema, {"pet": {"name": 1}})
    assert "pet?: { name?: string }" in declared(schema)


def test_a_reference_that_leads_nowhere_is_open_in_input_and_output():
    for reference in (
        "#/components/schemas/Gone",
        "#/$defs/Gone",
        "https://example.com/gone.json",
        "#gone",
        "gone.json",
    ):
        schema = of(a={"$ref": reference}, b={"type": "string"}, c={"items": {"$ref": reference}})
        for side in ("input_schema", "output_schema"):
            text = declared(schema, side)
            assert "a?: unknown" in text, reference
            assert "b?: string" in text, reference
            assert "c?: unknown" in text or "c?: unknown[]" in text, reference
        tool = prepare_tool(Tool("t", execute=None, input_schema=schema, output_schema=schema))
        value = {"a": {"x": [1]}, "b": "y", "c": [1, None]}
        assert tool.validate_input(value).value == value
        assert tool.validate_output(value) == value
        assert not takes(schema, {"b": 1})
