"""A schema has a size too: one that would take long to read is refused, or, of a framework or server, not used."""

from __future__ import annotations

import json
import logging
import tracemalloc
from typing import Any

import pytest
from suite import each_row

from codemode import CodeModeToolError, Tool, create_code_mode_tool, run_code_mode_sync
from codemode.schemas import json_schemas, patterns
from codemode.schemas.compiled import MAX_SCHEMA_CHARACTERS, MAX_SCHEMA_VALUES
from codemode.schemas.patterns import drop_nonlinear_patterns
from codemode.tools.prepared import prepare_tool


def many(count: int, one: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{number}": one for number in range(count)}}


def endless() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    schema["not"] = schema
    return schema


LARGE = {
    "values": many(MAX_SCHEMA_VALUES // 2, {"type": "string"}),
    "patterns": many(MAX_SCHEMA_VALUES // 2, {"pattern": "(?=a)"}),
    "text": {"type": "object", "description": "x" * MAX_SCHEMA_CHARACTERS},
    "key": {"type": "object", "properties": {"x" * MAX_SCHEMA_CHARACTERS: {}}},
    "enum": {"enum": ["x" * 100] * 60_000},
    "circle": endless(),
}


@pytest.fixture(params=LARGE.values(), ids=LARGE)
def large(request, monkeypatch):
    """A large schema, of which nothing is repaired and no pattern compiled."""
    monkeypatch.setattr(
        json_schemas,
        "_encode_as_json",
        lambda given: json.dumps(given) if len(given) < 2 else pytest.fail("it was read"),
    )
    monkeypatch.setattr(patterns, "compile_linear_matcher", lambda *_: pytest.fail("a pattern was compiled"))
    return request.param


@each_row("side", ["input_schema", "output_schema"])
def test_loop_a_schema_that_is_too_large_is_refused_with_the_name_of_its_tool(large, side):
    with pytest.raises(ValueError, match=rf"{side} of tool 'wide'.*(holds|longer)"):
        create_code_mode_tool([Tool("wide", execute=lambda _: 1, **{side: large})])


@pytest.mark.parametrize("side", ["input_schema", "output_schema"])
def test_loop_a_servers_tool_goes_without_a_schema_that_is_too_large(large, side, caplog):
    with drop_nonlinear_patterns():
        tool = Tool("wide", execute=lambda _: "done", **{side: large})
    with caplog.at_level(logging.WARNING, "codemode.tools"):
        assert run_code_mode_sync("return await tools.wide({ a: 1 })", [tool]) == "done"
    assert "schema of tool 'wide' is invalid and not checked" in caplog.text


TEXT = "\u00e9" * 500_000
LONG_RULES: dict[str, tuple[dict[str, Any], Any, str]] = {
    "const": ({"const": TEXT}, 1, 'a: must satisfy const: "\\u00e9'),
    "const in an object": ({"const": {"b": [TEXT]}}, 1, 'a: must satisfy const: {"b": ["\\u00e9'),
    "a key": ({"const": {TEXT: 1}}, 1, 'a: must satisfy const: {"\\u00e9'),
    "enum": ({"enum": [TEXT]}, 1, 'a: must be one of "\\u00e9'),
    "required": ({"required": [TEXT]}, {}, 'a: missing required "\\u00e9'),
    "anyOf": ({"anyOf": [{"const": TEXT}, {"const": 2}]}, 1, 'a: must be one of "\\u00e9'),
    "anyOf of objects": (
        {"anyOf": [{"required": ["a"], "title": TEXT}, {"required": ["b"]}]},
        {},
        'a: must satisfy anyOf: [{"required": ["a"], "title": "\\u00e9',
    ),
    "deep": ({"const": [[[[1] * 100] * 100] * 2] * 2}, 1, "a: must satisfy const: [[[[1, 1, 1, 1"),
}


@pytest.mark.parametrize(("rule", "value", "said"), LONG_RULES.values(), ids=LONG_RULES)
def test_loop_what_a_value_breaks_is_said_with_no_more_of_the_rule_than_is_shown(rule, value, said):
    tool = prepare_tool(Tool("t", execute=lambda _: 1, input_schema={"type": "object", "properties": {"a": rule}}))
    tool.compile_schemas()
    for _ in range(2):  # the first time modules are imported
        tracemalloc.start()
        try:
            with pytest.raises(CodeModeToolError) as caught:
                tool.validate_input({"a": value})
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert said in caught.value.message
    assert len(caught.value.message) < 300
    assert peak_bytes < 200_000
