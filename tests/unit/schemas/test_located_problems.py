"""What a value breaks, said at whole paths, and which part of a schema it fits."""

from __future__ import annotations

from suite import each_row

from codemode.schemas.json_schemas import CompiledJsonSchema

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/X"}]},
        "c": {"type": "string", "default": "filled"},
        "x" * 500: {"type": "array", "items": {"type": "string"}},
    },
    "required": ["a", "c", "z"],
    "$defs": {"X": {"type": "object", "properties": {"k": {"type": "integer"}}, "required": ["k"]}},
}


@each_row(
    "value, places",
    [
        ({"a": 1, "z": 1}, []),
        ({"a": "x", "z": 1}, [("a",)]),
        ({}, [("a",), ("z",)]),
        ({"a": 1, "z": 1, "b": {"k": "y"}}, [("b", "k")]),
        ({"a": 1, "z": 1, "x" * 500: ["a", 1, 2]}, [("x" * 500, 1), ("x" * 500, 2)]),
        ([], [()]),
    ],
)
def test_problems_are_at_whole_paths(value: object, places: list[tuple[str | int, ...]]):
    assert [path for path, _ in CompiledJsonSchema(SCHEMA).locate_failures(value, 64)] == places


def test_no_more_problems_are_said_than_were_asked_for():
    value = {"a": 1, "z": 1, "x" * 500: list(range(1000))}
    assert len(CompiledJsonSchema(SCHEMA).locate_failures(value, 64)) == 64


def test_a_part_of_a_schema_is_asked_with_its_references():
    schema = CompiledJsonSchema(SCHEMA)
    assert isinstance(schema.json_schema, dict)
    text, other = schema.json_schema["properties"]["b"]["anyOf"]
    for part, value, fits in [
        (text, "x", True),
        (text, {"k": 1}, False),
        (other, {"k": 1}, True),
        (other, {"k": "1"}, False),
    ]:
        assert schema.create_subschema_check({"b": value})(part, value) is fits


def test_all_parts_together_take_no_more_steps_than_one_check():
    parts = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 8} for n in range(8)}
    schema = CompiledJsonSchema({"$defs": {**parts, "d8": False, "one": {"type": "integer"}}, "$ref": "#/$defs/d0"})
    assert isinstance(schema.json_schema, dict)
    fits = schema.create_subschema_check(1)
    assert fits(schema.json_schema["$defs"]["one"], 1) is True
    assert fits(schema.json_schema["$defs"]["d0"], 1) is None
    assert fits(schema.json_schema["$defs"]["one"], 1) is None
