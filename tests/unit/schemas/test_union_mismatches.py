"""A mismatch in a union names what is wrong in the alternative that was meant, for JSON Schemas and for types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from codemode.schemas.compiled import SchemaMismatchError
from codemode.schemas.json_schemas import CompiledJsonSchema
from codemode.schemas.python_types import TypeSchema

A = {"type": "object", "properties": {"k": {"const": "a"}, "n": {"type": "integer"}}, "required": ["k", "n"]}
B = {"type": "object", "properties": {"k": {"const": "b"}, "s": {"type": "string"}}, "required": ["k", "s"]}
NO_TEXT = "expected string, got number"
TAGGED = {"oneOf": [A, B]}
NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
AGED = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
MAPPED = {
    "$defs": {"Cat": {"type": "object", "required": ["lives"]}, "Dog": {"type": "object", "required": ["name"]}},
    "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
    "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}},
}


def problems(schema: Any, value: Any) -> list[tuple[str, str]]:
    compiled = CompiledJsonSchema(schema) if isinstance(schema, dict | bool) else TypeSchema(schema, "input")
    try:
        compiled.validate_input(value)
    except SchemaMismatchError as mismatch:
        return [(one["path"], one["message"]) for one in mismatch.problems]
    return []


MISMATCHES: dict[str, tuple[dict[str, Any], Any, list[tuple[str, str]]]] = {
    "the tag fits": (TAGGED, {"k": "a", "n": "x"}, [("n", "expected integer, got string")]),
    "the tag fits, a field is missing": (TAGGED, {"k": "b"}, [("", 'missing required "s"')]),
    "no tag fits": (TAGGED, {"k": "c", "n": 1}, [("k", 'must be one of "a", "b"')]),
    "there is no tag": (TAGGED, {}, [("", 'missing required "k"')]),
    "another kind of value": (TAGGED, 5, [("", "expected object, got number")]),
    "in a list": (
        {"items": TAGGED},
        [{"k": "a", "n": 1}, {"k": "b", "s": 5}],
        [("[1].s", NO_TEXT)],
    ),
    "in another union": (
        {"anyOf": [TAGGED, {"type": "null"}]},
        {"k": "b", "s": 5},
        [("s", NO_TEXT)],
    ),
    "a union of lists": (
        {"anyOf": [{"type": "array", "items": TAGGED}, {"type": "string"}]},
        [{"k": "a", "n": "x"}],
        [("[0].n", "expected integer, got string")],
    ),
    "behind references": (
        {"$defs": {"A": A, "B": {"allOf": [B]}}, "anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]},
        {"k": "b", "s": 1},
        [("s", NO_TEXT)],
    ),
    "a tag of several values": (
        {
            "anyOf": [
                {"properties": {"op": {"enum": ["add", "sub"]}, "x": {"type": "integer"}}},
                {"properties": {"op": {"enum": ["not"]}, "y": {"type": "boolean"}}},
            ]
        },
        {"op": "sub", "x": "1", "y": 2},
        [("x", "expected integer, got string")],
    ),
    "a constant tells more than a list": (
        {
            "anyOf": [
                {"properties": {"k": {"const": "a"}, "state": {"enum": ["on", "dim"]}}},
                {"properties": {"k": {"const": "b"}, "state": {"enum": ["off", "dark"]}}},
            ]
        },
        {"k": "a", "state": "off"},
        [("state", 'must be one of "on", "dim"')],
    ),
    "no tags, the fields tell": ({"anyOf": [NAMED, AGED]}, {"name": 1}, [("name", "expected string, got number")]),
    "types alone": (
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        5,
        [("", "expected string or null, got number")],
    ),
    "choices and null": ({"anyOf": [{"enum": ["a"]}, {"type": "null"}]}, "c", [("", 'must be one of "a", null')]),
    "choices apart": ({"oneOf": [{"const": "a"}, {"const": "b"}]}, "c", [("", 'must be one of "a", "b"')]),
    "choices and a type": (
        {"anyOf": [{"const": "all"}, {"type": "integer"}]},
        "c",
        [("", 'expected integer or one of "all", got string')],
    ),
    "a rule of the right type": (
        {"anyOf": [{"type": "string", "minLength": 5}, {"type": "integer"}]},
        "abc",
        [("", "must satisfy minLength: 5")],
    ),
    "a discriminator": (MAPPED, {"kind": "dog", "lives": 9}, [("", 'missing required "name"')]),
    "a discriminator by the name of a schema": (MAPPED, {"kind": "Cat"}, [("", 'missing required "lives"')]),
    "an unknown name for a discriminator": (MAPPED, {"kind": "cow"}, [("kind", 'must be one of "cat", "dog"')]),
}


def test_the_mismatch_of_the_alternative_that_was_meant_is_named():
    for row, (schema, value, expected) in MISMATCHES.items():
        assert problems(schema, value) == expected, row


def test_a_value_that_fits_several_alternatives_of_one_of_is_accepted():
    assert problems({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 5) == []
    assert problems({"oneOf": [NAMED, AGED]}, {"name": "x", "age": 1}) == []


def test_a_discriminator_decides_where_several_alternatives_fit():
    assert problems(MAPPED, {"kind": "dog", "name": "Rex"}) == []
    assert problems(MAPPED, {"kind": "cat", "name": "Rex"}) == [("", 'missing required "lives"')]
    assert problems({**MAPPED, "discriminator": "kind"}, {"kind": "cat", "name": "Rex"}) == []
    assert problems(MAPPED, {"name": "Rex"}) == []


@pytest.mark.parametrize("factor", [0.01, 0.1, 1e-7, 2.5, 3])
def test_multiples_are_found_as_decimals(factor: float):
    for count in (0, 1, 7, 401, 1999, 10**15):
        value = float(f"{count * int(factor * 10**7)}e-7")
        assert problems({"multipleOf": factor}, value) == [], value
    assert problems({"multipleOf": factor}, factor / 3)


def test_multiples_of_numbers_out_of_all_proportion_are_told():
    for value, factor, fits in [
        (19.99, 0.01, True),
        (4.015, 0.01, False),
        (10**300 + 1, 0.5, True),
        (1e308, 1e-300, True),
        (10**400 + 1, 2, False),
        (float("inf"), 0.1, False),
    ]:
        assert (problems({"multipleOf": factor}, value) == []) is fits, (value, factor)


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    kind: Literal["dog"]
    full_name: str = Field(alias="fullName")


class Home(BaseModel):
    pets: list[Cat | Dog] = []
    first: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    size: int | Literal["small"] = 1


def test_a_mismatch_of_a_type_names_the_branch_that_was_meant_at_its_place_in_the_value():
    number = "Input should be a valid integer, unable to parse string as an integer"
    for value, expected in [
        ({"pets": [{"kind": "cat", "lives": "x"}]}, [("pets[0].lives", number)]),
        ({"pets": [{"kind": "dog", "full_name": 1}]}, [("pets[0].full_name", "Input should be a valid string")]),
        ({"pets": [{"kind": "dog"}]}, [("pets[0].fullName", "Field required")]),
        ({"pets": [{"kind": "cow"}]}, [("pets[0].kind", "Input should be 'cat' or 'dog'")]),
        ({"first": {"kind": "cat", "lives": "x"}}, [("first.lives", number)]),
        ({"size": "large"}, [("size", f"{number} or 'small'")]),
    ]:
        assert problems(Home, value) == expected
