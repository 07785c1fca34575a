"""Samples of schemas that say more than types, and texts for simple patterns."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from suite import each_row

from codemode.signatures.examples import sample_value
from codemode.signatures.pattern_samples import MAX_TEXT_CHARACTERS, samples, text_for

TEXT = {"type": "string"}
KIND = {"properties": {"kind": {"const": "a"}}}
A_OR_B = {"kind": {"enum": ["a", "b"]}, "x": TEXT, "y": {"type": "integer"}}
B_OR_A = {**A_OR_B, "kind": {"enum": ["b", "a"]}}
X_OR_Y = {"if": KIND, "then": {"required": ["x"]}, "else": {"required": ["y"]}}


def an(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def first_that_fits(schema: Any) -> Any:
    is_valid = Draft202012Validator(schema).is_valid
    return next((one for one in samples(schema) if is_valid(one)), None)


@each_row(
    "schema, expected",
    [
        (an(a={"type": "string", "pattern": "^[0-9]{3}$"}), {"a": "111"}),
        (an(a={"type": "string", "pattern": "^[b-d]+$", "minLength": 5}), {"a": "bbbbb"}),
        (an(a={"type": "string", "pattern": "^x|y$", "maxLength": 1}), {"a": "x"}),
        (an(a={"type": "array", "items": {"type": "string", "pattern": "^#"}}), {"a": ["#"]}),
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
                **an(a={"allOf": [{"$ref": "#/$defs/n"}, {"pattern": "^[A-Z]+$"}]}),
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
        an(a={"type": "string", "pattern": "^(?=.*[0-9])[a-z0-9]{8}$"}),
        an(a={"type": "string", "minLength": 500}),
        an(a={"type": "string", "pattern": "^a$", "minLength": 2}),
        {"minProperties": 2, "additionalProperties": False, "properties": {"a": TEXT}},
        {"minProperties": 900},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        False,
    ],
)
def test_none_is_found_for_what_is_not(schema: Any):
    assert len(list(samples(schema))) <= 4
    if schema is not False and "$ref" not in str(schema):
        assert first_that_fits(schema) is None


def test_what_nests_without_end_has_small_samples_alone():
    names = [f"p{at}" for at in range(20)]
    wide = {"type": "object", "properties": {name: {"$ref": "#"} for name in names}, "required": names}
    assert len(list(samples(wide))) == 1
    for deep in ({"allOf": [wide] * 20, "anyOf": [wide] * 20}, {"allOf": [{"$ref": "#"}] * 20}, an(a={"$ref": "#"})):
        assert len(list(samples({"type": "object", **deep}))) <= 2


def test_samples_differ_and_the_first_is_that_of_codemode():
    schema = {"properties": A_OR_B, "required": ["kind"], **X_OR_Y}
    offered = list(samples(schema))
    assert offered[0] == sample_value(schema) == {"kind": "a"}
    assert all(offered.count(one) == 1 for one in offered)
    assert sample_value(an(a={"type": "string", "pattern": "^[0-9]{3}$"})) == {"a": "text"}


# --- patterns


@each_row(
    "pattern, expected",
    [
        (r"^[A-Z]{2}-\d{4}$", "AA-1111"),
        (r"^\+?[1-9]\d{1,14}$", "11"),
        (r"^#?([a-f0-9]{6}|[a-f0-9]{3})$", "aaaaaa"),
        (r"^(?:foo|bar)-\w+$", "foo-a"),
        (r"^[^@\s]+@[^@\s]+\.[^@\s]+$", "a@a.a"),
        (r"^https?://.+", "http://a"),
        (r"^(?<year>\d{4})$", "1111"),
        (r"^(?P<year>\d{4})$", "1111"),
        (r"[\u4e00-\u9fff]{2}", "\u4e00\u4e00"),
        (r"^\p{Lu}+$", "A"),
        (r"^[a-z0-9-]*$", "a"),
        (r"^\S+$", "a"),
        (r"^[\w-]+\/$", "a/"),
        (r"^[^a-zA-Z0-9]$", "-"),
        (r"\bword\b", "word"),
        ("", ""),
        ("^$", ""),
    ],
)
def test_a_text_for_a_pattern(pattern: str, expected: str):
    assert text_for(pattern) == expected


@each_row(
    "pattern",
    [
        "(?=a)b",
        "(?!a)b",
        "(?<=a)b",
        "(?i)a",
        r"(a)\1",
        r"\cA",
        "(a",
        "a)",
        "[a",
        "[]",
        r"[^\s\S]",
        "a{",
        "a{x}",
        "a{1,x}",
        "*a",
        "a**",
        "\\",
        r"\u12",
        r"\p{Script=Greek}",
        "x{101}",
        "(x{50}){50}",
        "(" * 20 + ")" * 20,
        "a" * 301,
    ],
)
def test_what_is_not_simple_has_no_text(pattern: str):
    assert text_for(pattern) is None


@pytest.mark.parametrize(("least", "most", "length"), [(5, None, 6), (0, 2, 2), (3, 3, None), (90, None, 98)])
def test_lengths_are_minded(least: int, most: int | None, length: int | None):
    text = text_for("^(ab)+$", least, most)
    assert (None if text is None else len(text)) == length


def test_nested_repetitions_of_nothing_cost_nothing():
    assert text_for("((((){900}){900}){900}){900}") == ""


ATOMS = st.sampled_from(
    ["a", "Z", "5", "-", " ", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", r"\.", r"\/", "[a-f]", "[^a-z]",
     r"[\d_]", r"[\w.-]", "[^0-9A-Z]", r"[^\s]", r"\x41", r"\u0042", r"[\]\[]", "[+-]"]
)  # fmt: skip
TIMES = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "+?", "{0}"])


def _groups(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sequence = st.lists(inner, min_size=1, max_size=3).map("".join)
    alternatives = st.lists(sequence, min_size=1, max_size=3).map("|".join)
    return st.tuples(st.sampled_from(["(", "(?:", "(?P<n>"]), alternatives, TIMES).map(
        lambda one: f"{one[0]}{one[1]}){one[2]}"
    )


SIMPLE = st.recursive(st.tuples(ATOMS, TIMES).map("".join), _groups, max_leaves=8).filter(
    lambda one: one.count("(?P<n>") <= 1
)


@given(SIMPLE, st.integers(0, 8), st.none() | st.integers(0, 12))
def test_a_text_matches_its_pattern(simple: str, least: int, most: int | None):
    pattern = f"^(?:{simple})$"
    text = text_for(pattern, least, most)
    assert text is not None or least or most is not None
    if text is not None:
        assert re.search(pattern, text)
        assert least <= len(text) <= (MAX_TEXT_CHARACTERS if most is None else most)


@given(st.text(alphabet="ab01(){}[]|^$*+?.\\-,:<>=!dwpu", max_size=30), st.integers(0, 200))
def test_no_text_at_all_makes_it_raise(pattern: str, least: int):
    text = text_for(pattern, least)
    assert text is None or least <= len(text) <= MAX_TEXT_CHARACTERS
