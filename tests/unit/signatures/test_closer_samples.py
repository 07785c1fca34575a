"""Samples of schemas that say more than types."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator
from suite import each_row

from codemode.signatures.examples import create_sample_value, iterate_samples

TEXT = {"type": "string"}
KIND = {"properties": {"kind": {"const": "a"}}}
A_OR_B = {"kind": {"enum": ["a", "b"]}, "x": TEXT, "y": {"type": "integer"}}
B_OR_A = {**A_OR_B, "kind": {"enum": ["b", "a"]}}
X_OR_Y = {"if": KIND, "then": {"required": ["x"]}, "else": {"required": ["y"]}}


def an(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def first_that_fits(schema: Any) -> Any:
    is_valid = Draft202012Validator(schema).is_valid
    return next((one for one in iterate_samples(schema) if is_valid(one)), None)


@each_row(
    "schema, expected",
    [
        (an(a={"type": "string", "pattern": "^[0-9]{3}$", "examples": ["911"]}), {"a": "911"}),
        (an(a={"type": "array", "items": {"type": "string", "pattern": "^#"}}), {"a": []}),
        ({"type": "object", "properties": {"a": TEXT, "b": TEXT}, "minProperties": 1}, {"a": "text"}),
        ({**an(a=TEXT), "minProperties": 2}, {"a": "text", "key1": "text"}),
        ({"minProperties": 2, "additionalProperties": {"type": "integer"}}, {"key1": 1, "key2": 1}),
        ({"minProperties": 1, "propertyNames": {"enum": ["north", "south"]}}, {"north": "text"}),
        ({"properties": A_OR_B, "required": ["kind"], **X_OR_Y}, {"kind": "a", "x": "text"}),
        ({"properties": B_OR_A, "required": ["kind"], **X_OR_Y}, {"kind": "b", "y": 1}),
        ({"properties": B_OR_A, "required": ["kind"], **X_OR_Y, "else": False}, {"kind": "a", "x": "text"}),
        ({"properties": A_OR_B, "required": ["kind"], "allOf": [X_OR_Y]}, {"kind": "a", "x": "text"}),
        (an(a={"type": "array", "contains": {"const": "admin"}}), {"a": ["admin"]}),
        (
            an(a={"type": "array", "items": {"enum": ["x", "y"]}, "contains": {"const": "y"}, "minItems": 3}),
            {"a": ["y", "x", "x"]},
        ),
        (
            an(a={"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 9}, "minContains": 2}),
            {"a": [9, 9]},
        ),
        (an(a={"type": "array", "minItems": 2}), {"a": ["text", "text"]}),
        ({"properties": {"a": TEXT, "b": TEXT}, "anyOf": [{"required": ["b"]}, {"required": ["a"]}]}, {"b": "text"}),
        ({"properties": {"a": TEXT, "b": TEXT}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": "text"}),
        ({**an(a=TEXT), "dependentRequired": {"a": ["b"]}}, {"a": "text", "b": None}),
        (
            {
                **an(a={"allOf": [{"$ref": "#/$defs/n"}, {"examples": ["AAA"]}]}),
                "$defs": {"n": {"type": "string", "minLength": 3}},
            },
            {"a": "AAA"},
        ),
    ],
)
def test_a_sample_is_found_for_what_is_simple(schema: Any, expected: Any):
    assert first_that_fits(schema) == expected


@each_row(
    "schema",
    [
        an(a={"not": {}}),
        an(a={"type": "string", "pattern": "^[0-9]{3}$"}),
        an(a={"type": "string", "minLength": 500}),
        {"minProperties": 2, "additionalProperties": False, "properties": {"a": TEXT}},
        {"minProperties": 900},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        False,
    ],
)
def test_none_is_found_for_what_is_not(schema: Any):
    assert len(list(iterate_samples(schema))) <= 4
    if schema is not False and "$ref" not in str(schema):
        assert first_that_fits(schema) is None


def test_what_nests_without_end_has_small_samples_alone():
    names = [f"p{at}" for at in range(20)]
    wide = {"type": "object", "properties": {name: {"$ref": "#"} for name in names}, "required": names}
    assert len(list(iterate_samples(wide))) == 1
    for deep in ({"allOf": [wide] * 20, "anyOf": [wide] * 20}, {"allOf": [{"$ref": "#"}] * 20}, an(a={"$ref": "#"})):
        assert len(list(iterate_samples({"type": "object", **deep}))) <= 2


def test_samples_differ_and_the_first_is_that_of_codemode():
    schema = {"properties": A_OR_B, "required": ["kind"], **X_OR_Y}
    offered = list(iterate_samples(schema))
    assert offered[0] == create_sample_value(schema) == {"kind": "a"}
    assert all(offered.count(one) == 1 for one in offered)


def test_a_text_that_has_to_match_a_pattern_is_left_out():
    digits = {"type": "string", "pattern": "^[0-9]{3}$"}
    assert create_sample_value(an(a=digits, b=TEXT)) == {"b": "text"}
    assert create_sample_value(digits) is None
    assert create_sample_value(an(a={**digits, "default": "112"})) == {"a": "112"}
