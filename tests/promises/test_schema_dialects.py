"""Schemas are read in the draft that they fit, and declarations leave open what is not certain."""

from __future__ import annotations

from typing import Any

import pytest
from suite import each_row

from codemode import CodeModeToolError, Tool, create_code_mode_tool, run_code_mode_sync
from codemode.signatures.declarations import format_tool_declarations
from codemode.tools.prepared import prepare_tool

PAIR = {"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False}


def taking(schema: Any) -> Tool:
    return Tool("take", execute=lambda value: value, input_schema=schema)


def takes(schema: Any, value: str) -> bool:
    js = f"return await tools.take({value}).then(() => true, (error) => error.code)"
    told = run_code_mode_sync(js, [taking(schema)], options={"execution_policy": {"check_program": False}})
    assert told in (True, "CODE_MODE_TOOL_ERROR")
    return told is True


@each_row(
    "schema, right, wrong",
    [
        (PAIR, "[1, 'a']", "[1, 2]"),
        (PAIR, "[1]", "[1, 'a', 3]"),
        ({"type": "object", "properties": {"pair": PAIR}}, "{ pair: [1, 'a'] }", "{ pair: ['a'] }"),
        ({"definitions": {"pair": PAIR}, "$ref": "#/definitions/pair"}, "[1, 'a']", "['a', 1]"),
        ({"anyOf": [{"type": "null"}, PAIR]}, "null", "['a']"),
        ({"items": [{"type": "integer"}], "dependencies": {"a": ["b"]}}, "{ a: 1, b: 2 }", "{ a: 1 }"),
        (
            {"items": [{"type": "integer"}], "$defs": {}, "dependentRequired": {"a": ["b"]}},
            "{ a: 1, b: 2 }",
            "{ a: 1 }",
        ),
        ({"items": [{}], "$defs": {}, "unevaluatedItems": False}, "[1]", "[1, 2]"),
        ({"type": "number", "minimum": 5, "exclusiveMinimum": True}, "6", "5"),
    ],
    ids=str,
)
def test_a_schema_that_does_not_say_its_draft_is_read_in_the_one_that_it_fits(schema, right, wrong):
    assert takes(schema, right)
    assert not takes(schema, wrong)
    assert "take(input" in create_code_mode_tool([taking(schema)]).description


@each_row(
    "name",
    [
        "https://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/schema#",
        "https://example.com/dialects/ours",
        "draft-07",
        "",
    ],
)
def test_a_draft_that_is_named_otherwise_or_unknown_fails_no_tool(name):
    schema = {"$schema": name, **PAIR}
    assert takes(schema, "[1, 'a']")
    assert not takes(schema, "[1, 2]")
    assert "[number?, string?]" in format_tool_declarations([prepare_tool(taking(schema))])


def test_a_tuple_is_declared_and_checked_before_anything_runs():
    declared = format_tool_declarations(
        [prepare_tool(taking({"type": "object", "properties": {"pair": PAIR}, "required": ["pair"]}))]
    )
    assert "pair: [number?, string?]" in declared
    with pytest.raises(CodeModeToolError):
        run_code_mode_sync("await tools.take({ pair: ['a'] })", [taking({"properties": {"pair": PAIR}})])


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", **PAIR}, "[1, 'a']", "[1, 2]"),
        ({"type": "nonsense", "maxLength": 3}, "1", "'long'"),
        ({"properties": {"a": {"type": "string", "required": True}}}, "{ a: '1' }", "{}"),
        ({"type": 5, **{key: PAIR[key] for key in ("items", "additionalItems")}}, "[1, 'a']", "[1, 2]"),
    ],
    ids=str,
)
def test_of_a_schema_that_fits_no_draft_the_rest_counts(schema, right, wrong):
    assert takes(schema, right)
    assert not takes(schema, wrong)


BASE = {"$defs": {"base": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}}}
OPEN = {"type": "object", "unevaluatedProperties": False}
BESIDE: list[dict[str, Any]] = [
    {**BASE, **OPEN, "$ref": "#/$defs/base"},
    {**BASE, **OPEN, "allOf": [{"$ref": "#/$defs/base"}]},
    {**BASE, **OPEN, "anyOf": [{"$ref": "#/$defs/base"}, {"properties": {"n": {"type": "integer"}}}]},
    {**BASE, **OPEN, "oneOf": [{"$ref": "#/$defs/base"}]},
    {**OPEN, "if": {"required": ["a"]}, "then": {"properties": {"a": True}}, "else": {"properties": {"b": True}}},
    {**OPEN, "dependentSchemas": {"a": {"properties": {"b": True}}}, "properties": {"a": True}},
    {
        **BASE,
        "unevaluatedProperties": False,
        "allOf": [{"$ref": "#/$defs/base"}],
        "properties": {"x": {"type": "integer"}},
    },
    {**BASE, **OPEN, "unevaluatedProperties": {"type": "boolean"}, "$ref": "#/$defs/base"},
]


@each_row("schema", BESIDE, ids=str)
def test_what_others_may_have_evaluated_is_not_declared_impossible(schema):
    for side in ("input_schema", "output_schema"):
        declared = format_tool_declarations([prepare_tool(Tool("take", execute=None, **{side: schema}))])
        assert "never" not in declared
        assert "[key: string]: boolean" not in declared
        assert "@unevaluatedProperties" in declared or side == "output_schema" or "take(input" in declared


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "object", "unevaluatedProperties": False}, "Record<string, never>"),
        ({"type": "object", "unevaluatedProperties": {"type": "string"}}, "Record<string, string>"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "unevaluatedProperties": False}, "{ a?: string }"),
        ({"unevaluatedProperties": False}, "unknown"),
    ],
    ids=str,
)
def test_a_keyword_alone_keeps_its_meaning(schema, text):
    assert f"Promise<{text}>" in format_tool_declarations(
        [prepare_tool(Tool("give", execute=None, output_schema=schema))]
    )
