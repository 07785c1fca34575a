"""Certain mistakes are found, uncertain ones are not, and no facts can harm the host."""

import json
import sysconfig
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from suite import each_row, rounds

from codemode.guest.analysis import analyse
from codemode.schemas.python_types import TypeSchema
from codemode.source.checks import MAX_PROBLEMS, find_program_problems

SITE_PATHS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
_analyser = analyse.load_analyser(SITE_PATHS)
SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer"},
        "where": {"$ref": "#/$defs/Where"},
        "tags": {"type": ["array", "null"]},
    },
    "required": ["query"],
    "$defs": {
        "Where": {
            "type": "object",
            "properties": {"field": {"type": "string"}, "deeper": {"$ref": "#/$defs/Where"}},
            "required": ["field"],
            "additionalProperties": False,
        }
    },
}
TOOLS: dict[str, Any] = {"search_files": SEARCH, "read-file": None, "a.b": {"type": "object"}}


def problems(source, tools=TOOLS, conversion="unknown"):
    facts = _analyser(source, 60_000)["facts"]
    assert facts is not None
    return find_program_problems(facts, list(tools), tools.get, lambda _name: conversion)


def messages(source, tools=TOOLS, conversion="unknown"):
    return [problem["message"] for problem in problems(source, tools, conversion)]


def test_everything_is_listed_at_once_in_order():
    found = problems("tools.serch_files({});\n  tools.search_files({});\nimport x from 'y';\nrequire('z');")
    assert [(problem["line"], problem["column"]) for problem in found] == [(1, 1), (2, 3), (3, 1), (4, 1)]
    assert "did you mean tools.search_files?" in found[0]["message"]
    assert found[1]["message"] == "tools.search_files: input.query is required"
    assert "import" in found[2]["message"]
    assert "require" in found[3]["message"]


def test_unknown_tools():
    assert messages("tools.readFile({})") == ['tools.readFile does not exist; did you mean tools["read-file"]?']
    assert messages("tools.zzz({})", {"one": None}) == ["tools.zzz does not exist; there is tools.one"]
    assert messages("tools.zzz({})", {}) == ["tools.zzz does not exist; there is no tool"]
    assert messages("tools.zzz({})", {f"q{n}": None for n in range(50)}) == ["tools.zzz does not exist"]


@each_row(
    "source",
    [
        "tools['read-file']({})",
        "tools.a.b({})",
        "tools.search_files.call(null, {})",
        "tools.$search('x')",
        "tools.$describe('x')",
        "tools.hasOwnProperty('x')",
        "tools.toString()",
        "tools.missing?.({})",
        "tools[name]({})",
        "const tools = other; tools.missing({})",
        "tools.a.b()",
        "tools.search_files(x)",
        "tools.search_files({ ...x })",
        "tools.search_files({ [k]: 1 })",
        "tools.search_files({ query })",
        "tools.search_files({ query: undefined })",
        "tools.search_files({ query: 1 })",
        "tools.search_files({ query: true })",
        "tools.search_files({ query: 'x', limit: '5' })",
        "tools.search_files({ query: 'x', limit: 5.0 })",
        "tools.search_files({ query: 'x', limit: true })",
        "tools.search_files({ query: 'x', limit: '1e3' })",
        "tools.search_files({ query: 'x', more: 1 })",
        "tools.search_files({ Query: 'x' })",
        "tools.search_files({ query: 'x', tags: null, where: { field: 'a', deeper: { field: 'b' } } })",
        "tools.search_files({ query: 'x', tags: [] } as any)",
    ],
)
def test_what_is_left_to_run_time(source):
    assert messages(source) == []


@each_row(
    "argument, expected",
    [
        ("", ["input.query is required"]),
        ("undefined", ["input is undefined, expected object"]),
        ("{}", ["input.query is required"]),
        ("{ quer: 'x' }", ["input.query is required"]),
        ("[]", ["input is an array, expected object"]),
        ("'x'", ["input is a string, expected object"]),
        ("null", ["input is null, expected object"]),
        ("{ query: ['x'] }", ["input.query is an array, expected string"]),
        ("{ query: null }", ["input.query is null, expected string"]),
        ("{ query: 'x', limit: 1.5 }", ["input.limit is a number, expected integer"]),
        ("{ query: 'x', limit: 'many' }", ["input.limit is a string, expected integer"]),
        ("{ query: 'x', limit: {} }", ["input.limit is an object, expected integer"]),
        ("{ query: 'x', tags: 'a' }", ["input.tags is a string, expected array or null"]),
        ("{ query: 'x', where: {} }", ["input.where.field is required"]),
        (
            "{ query: 'x', where: { field: 'a', deeper: { field: {} } } }",
            ["input.where.deeper.field is an object, expected string"],
        ),
        ("{ query: 'x', where: { field: 'a', b: 1 } }", ["input.where.b does not exist (there is field, deeper)"]),
        (
            "{ limit: [], tags: {} }",
            [
                "input.query is required",
                "input.limit is an array, expected integer",
                "input.tags is an object, expected array or null",
            ],
        ),
    ],
)
def test_certain_mistakes(argument, expected):
    assert messages(f"tools.search_files({argument})") == [f"tools.search_files: {text}" for text in expected]


class Color(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int = 0


class Inner(BaseModel):
    a: int
    b: str = ""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    c: float


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True, extra="forbid")
    from_date: int = Field(alias="fromDate")


TYPES: list[Any] = [
    int, float, bool, str, bytes, list[int], set[str], tuple[int, ...], tuple[int, str], dict[str, int], Any, None,
    int | None, int | str, Inner | list[Inner], Decimal, datetime, date, timedelta, UUID, Path, Color,
    Literal["a", 1], Point, Inner, Strict, Aliased, Strict | None, list[Inner], frozenset[int],
]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from([0.5, 1.0, "", "1", "x", "true", "red", "nan", " 2 ", "P1D", "1_0"])
)
KEYS = st.sampled_from(["a", "b", "c", "x", "y", "from_date", "fromDate", "other"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=4
)


@settings(max_examples=rounds(60, 600), deadline=None)
@given(st.sampled_from(TYPES), VALUES)
def test_no_certain_mistake_is_accepted_by_pydantic(kind, value):
    """Pydantic's lax mode converts; whatever it takes must not have been called a mistake."""
    model = create_model("Input", v=(kind, ...))
    schema = TypeSchema(model, "input")
    found = messages(f"tools.t({{ v: {json.dumps(value)} }})", {"t": schema.json_schema}, schema.conversion)
    if found:
        with pytest.raises(ValidationError):
            TypeAdapter(model).validate_python({"v": value})


def test_a_key_that_may_be_an_alias_is_left_to_run_time():
    assert messages("tools.t({ from_date: 1 })", {"t": Aliased.model_json_schema(by_alias=True)}) == []
    assert Aliased.model_validate({"from_date": 1}).from_date == 1
    assert TypeSchema(Aliased, "input").conversion == "unknown"


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "calls",
                    "modules",
                    "name",
                    "input",
                    "line",
                    "column",
                    "kind",
                    "keys",
                    "type",
                    "open",
                    "value",
                    "query",
                    "where",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=25,
)
LOOSE_SCHEMA = st.recursive(
    st.booleans() | st.sampled_from([None, 1, "x"]),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", ["null", "number"], [], 7]),
            "properties": st.dictionaries(st.sampled_from(["query", "where"]), inner, max_size=2) | inner,
            "required": st.just(["query", 5]) | inner,
            "anyOf": st.lists(inner, max_size=3) | inner,
            "$ref": st.sampled_from(["#", "#/properties/query", "#/nowhere", "http://x", 5]),
            "additionalProperties": st.just(False),
        },
    ),
    max_leaves=10,
)


@settings(max_examples=rounds(30, 300), deadline=None)
@given(HOSTILE, LOOSE_SCHEMA)
def test_hostile_facts_are_harmless(facts, schema):
    call = {"name": "known", "line": 1, "column": 1, "input": facts}
    for given_facts in (facts, {"calls": facts, "modules": facts}, {"calls": [call, facts], "modules": [facts]}):
        found = find_program_problems(given_facts, ["known"], lambda _name: schema)
        assert len(found) <= MAX_PROBLEMS
        for problem in found:
            assert set(problem) == {"message", "line", "column"}
            assert len(problem["message"]) <= 400


def test_many_hostile_facts_are_cheap():
    calls = [{"name": f"unknown_{index}", "line": index + 1, "column": 1} for index in range(100_000)]
    found = find_program_problems({"calls": calls}, [f"tool_{index}" for index in range(1000)], lambda _name: None)
    assert len(found) == MAX_PROBLEMS


def test_a_schema_that_refers_to_itself_ends():
    loop = {"$ref": "#", "anyOf": [{"$ref": "#"}]}
    assert messages("tools.t({ a: 1 })", {"t": loop}) == []
    wide = {"anyOf": [{"$ref": "#"}] * 3}
    assert messages("tools.t({ a: 1 })", {"t": wide}) == []
