"""What is recognised without a meta-schema, the meta-schemas allow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema.validators import Draft7Validator, Draft201909Validator, Draft202012Validator
from suite import each_row, rounds

from codemode import Tool
from codemode.schemas.json_schemas import DictSchema
from codemode.schemas.usual import MAX_DEPTH, is_surely_valid
from codemode.tools.prepared import prepared

DIALECTS = (Draft7Validator, Draft201909Validator, Draft202012Validator)
SAMPLE = Path(__file__).parents[2] / "data" / "mcp_tools_sample.json"
KEYWORDS = sorted({key for each in DIALECTS for key in each.VALIDATORS} | {
    "$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples", "format",
    "deprecated", "readOnly", "writeOnly", "nullable", "x-own", "contentEncoding", "$anchor",
})  # fmt: skip
TYPES = ("string", "number", "integer", "boolean", "null", "array", "object", "int", "")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from((0.0, -0.5, 1.5, 2.0)) | st.sampled_from(TYPES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(st.sampled_from(TYPES), max_size=3)
        | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4)
    ),
    max_leaves=12,
)


def is_allowed(schema: Any) -> bool:
    return all(each(each.META_SCHEMA).is_valid(schema) for each in DIALECTS)


@settings(max_examples=rounds(80, 400), deadline=None)
@given(st.dictionaries(st.sampled_from(KEYWORDS), VALUES, max_size=3))
def test_what_is_recognised_is_allowed(schema: dict[str, Any]):
    if is_surely_valid(schema):
        assert is_allowed(schema)


@each_row("keyword", KEYWORDS)
def test_each_keyword_with_each_kind_of_value(keyword: str):
    schemas: list[Any] = [True, {}, {"type": "string"}, {"type": "strin"}, {"minLength": -1}]
    texts = ["", "string", "#", ["a"], ["a", "a"], ["string"], ["string", "string"], ["string", {}], {"a": ["b", "b"]}]
    inside = [one_in for one in schemas for one_in in ([one], {"a": one})]
    values = [None, True, False, 0, 1, -1, 1.5, 2.0, [], [1], [[]], {"a": ["b"]}, *texts, *schemas, *inside]
    for value in values:
        if is_surely_valid({keyword: value}):
            assert is_allowed({keyword: value}), value


def test_the_schemas_of_real_tools_are_recognised():
    servers = json.loads(SAMPLE.read_text(encoding="utf-8"))["servers"]
    assert all(is_surely_valid(tool["inputSchema"]) for tools in servers.values() for tool in tools)


def test_deep_schemas_are_left_to_jsonschema():
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(MAX_DEPTH + 1):
        schema = {"items": schema}
    assert not is_surely_valid(schema)
    assert is_surely_valid(schema["items"])


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, r"\$\.properties\.a\.type"),
        ({"required": ["a", "a"]}, r"\$\.required"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMinimum": 1}, r"exclusiveMinimum|\$: "),
    ],
)
def test_a_wrong_schema_is_still_told_of(schema: dict[str, Any], place: str):
    with pytest.raises(ValueError, match=place):
        DictSchema(schema)
    with pytest.raises(ValueError, match="input_schema of tool 'a'"):
        prepared(Tool("a", execute=None, input_schema=schema)).compile()
