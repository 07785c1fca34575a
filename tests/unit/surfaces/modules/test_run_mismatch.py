"""Why an input does not fit, of validators of every kind: where, what was expected, what was received."""

from __future__ import annotations

import tracemalloc
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from suite import each_row

from codemode import CodeModeToolError, Tool
from codemode.data.json_values import NOT_GIVEN
from codemode.schemas.compiled import format_path
from codemode.surfaces.modules.module_tools import (
    QualifiedTool,
    describe_mismatch,
    find_or_generate_example,
    parse_problem_path,
    to_json_pointer,
)
from codemode.tools.prepared import MISSING


class Label(BaseModel):
    name: str
    level: Literal["low", "high"] = "low"


class Issue(BaseModel):
    title: str
    count: int = 0
    labels: list[Label] = []


SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 5},
        "count": {"type": "integer"},
        "labels": {"type": "array", "items": {"$ref": "#/$defs/label"}},
    },
    "required": ["title"],
    "additionalProperties": False,
    "$defs": {
        "label": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "level": {"enum": ["low", "high"]}},
            "required": ["name"],
        }
    },
}


def function(title: str, count: int = 0, labels: list[Label] | None = None) -> None:
    """Do nothing."""


TOOLS = {
    "schema": Tool("t", execute=lambda value: value, input_schema=SCHEMA),
    "model": Tool("t", execute=lambda value: value, input_schema=Issue),
    "function": Tool.from_function(function, name="t"),
}


def refused(kind: str, value: Any) -> dict[str, str]:
    made = QualifiedTool(TOOLS[kind], "s.t")
    with pytest.raises(CodeModeToolError) as caught:
        made.validate_input(value)
    details = caught.value.details
    return describe_mismatch(details["problems"][0], made.input_json_schema, details["received"])


@each_row("kind", TOOLS)
@each_row(
    "value, path, expected, received",
    [
        ({"title": 5}, "/title", "string", "number"),
        ({"title": None}, "/title", "string", "null"),
        (dict[str, int](), "/title", "string", "nothing"),
        ({"title": "a", "count": "many"}, "/count", "integer", "string"),
        ({"title": "a", "labels": [{"name": "x"}, {"name": 1}]}, "/labels/1/name", "string", "number"),
        ({"title": "a", "labels": [dict[str, int]()]}, "/labels/0/name", "string", "nothing"),
    ],
)
def test_a_mismatch_names_place_expectation_and_what_was_given(
    kind: str, value: Any, path: str, expected: str, received: str
):
    said = refused(kind, value)
    assert (said["path"], said["received"]) == (path, received)
    assert expected in said["expected"]


@pytest.mark.parametrize("kind", TOOLS)
def test_a_value_of_the_right_type_is_shown(kind: str):
    said = refused(kind, {"title": "a", "labels": [{"name": "x", "level": "huge"}]})
    assert said["path"] == "/labels/0/level"
    assert said["received"] == '"huge"'
    assert "low" in said["expected"]


@pytest.mark.parametrize("kind", ["schema", "function"])
def test_a_property_that_is_not_taken_is_named(kind: str):
    said = refused(kind, {"title": "a", "it's~new/er": 1})
    assert said["path"] == "/it's~0new~1er"
    assert said["expected"] == "no property of this name"


@each_row("kind", TOOLS)
@each_row("value", ["text", 5, None, [1]])
def test_the_whole_input_has_an_empty_pointer(kind: str, value: Any):
    assert refused(kind, value)["path"] == ""


def test_a_call_without_an_argument_of_an_object_is_of_an_empty_one():
    made = QualifiedTool(TOOLS["schema"], "s.t")
    with pytest.raises(CodeModeToolError) as caught:
        made.validate_input(MISSING)
    assert caught.value.details["received"] == "nothing"


@given(st.lists(st.text(max_size=6) | st.integers(0, 99), max_size=5))
def test_paths_of_validators_are_read_back(parts: list[str | int]):
    read = parse_problem_path(format_path(parts))
    if sum(len(str(part)) for part in parts) < 20 and all(str(part).isascii() for part in parts):
        assert read == parts
    assert to_json_pointer(read).count("/") == len(read)


def test_examples_are_the_schemas_own_first():
    authors = [{"title": "x"}]
    own = Tool("t", execute=None, input_schema={**SCHEMA, "examples": [{"title": "own"}]}, input_examples=authors)
    given_by_author = Tool("t", execute=None, input_schema=SCHEMA, input_examples=authors)
    made = Tool("t", execute=None, input_schema=SCHEMA)
    large = Tool("t", execute=None, input_schema={**SCHEMA, "examples": [{"title": "x" * 10_000}]})
    examples = [find_or_generate_example(QualifiedTool(one, "s.t")) for one in (own, given_by_author, made, large)]
    assert examples == [{"title": "own"}, {"title": "x"}, {"title": "text"}, {"title": "text"}]
    assert (
        find_or_generate_example(QualifiedTool(Tool("t", execute=None, input_schema={"const": "x" * 10_000}), "s.t"))
        is NOT_GIVEN
    )


def test_of_alternatives_without_end_no_more_are_kept_than_are_looked_at():
    schema: dict[str, Any] = {"anyOf": [{"$ref": "#"}] * 20_000, "properties": {"a": {"$ref": "#"}}}
    tracemalloc.start()
    try:
        found = describe_mismatch({"path": ".".join("a" * 30), "message": "Field required"}, schema, None)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found["expected"] == "a value"
    assert peak_bytes < 500_000
