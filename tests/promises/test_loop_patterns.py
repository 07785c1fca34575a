"""No pattern of a schema runs on an engine that can backtrack without end in the host's process."""

from __future__ import annotations

import dataclasses
import logging
import re
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter
from suite import each_row
from typing_extensions import TypedDict

from codemode import CodeModeToolError, Tool, tool
from codemode.schemas.patterns import (
    MAX_FOREIGN_AUTOMATON_SIZE,
    compile_linear_matcher,
    drop_nonlinear_patterns,
    estimate_automaton_size,
    find_refused_patterns,
    iterate_patterns,
    remove_patterns,
    to_linear_syntax,
)
from codemode.tools.adapters import ADAPTERS, register_adapter
from codemode.tools.prepared import PreparedTool, prepare_tool

LOOK_AHEAD = "^(?=(a+)+$)a"
BACK_REFERENCE = r"^(a+)\1$"
HOSTILE = "a" * 41 + "!"

PLACES = {
    "alone": lambda pattern: {"pattern": pattern},
    "in a property": lambda pattern: {"properties": {"a": {"type": "string", "pattern": pattern}}},
    "in a property called default": lambda pattern: {"properties": {"default": {"pattern": pattern}}},
    "of properties": lambda pattern: {"patternProperties": {pattern: {}}},
    "of names": lambda pattern: {"propertyNames": {"pattern": pattern}},
    "in items": lambda pattern: {"items": {"pattern": pattern}},
    "in $defs": lambda pattern: {"$ref": "#/$defs/x", "$defs": {"x": {"pattern": pattern}}},
    "in definitions called enum": lambda pattern: {"definitions": {"enum": {"pattern": pattern}}},
    "in a keyword that nobody knows": lambda pattern: {"$ref": "#/x-mine/y", "x-mine": {"y": {"pattern": pattern}}},
    "in allOf": lambda pattern: {"allOf": [{"anyOf": [{"not": {"pattern": pattern}}]}]},
    "in a dialect of its own": lambda pattern: {
        "items": {"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": pattern}
    },
    "beside unevaluated properties": lambda pattern: {
        "unevaluatedProperties": False,
        "allOf": [{"patternProperties": {pattern: {}}}],
    },
}


@each_row("pattern", [LOOK_AHEAD, BACK_REFERENCE, "(?<=a)b", "(?<!a)b", "(?!a)b", "(?>a+)b"])
@each_row("place", PLACES)
@each_row("mode", ["input_schema", "output_schema"])
def test_loop_a_tool_refuses_what_cannot_be_matched_in_linear_time(mode, place, pattern):
    with pytest.raises(ValueError, match="linear time") as caught:
        Tool("guess", execute=None, **{mode: PLACES[place](pattern)})
    for said in (mode, "'guess'", repr(pattern), "write it without"):
        assert said in str(caught.value)


@pytest.mark.parametrize("data", ["const", "default", "examples", "enum"])
def test_loop_what_only_looks_like_a_pattern_is_no_pattern(data):
    value = {"pattern": LOOK_AHEAD}
    one = Tool("guess", execute=None, input_schema={data: value if data in ("const", "default") else [value]})
    prepare_tool(one).compile_schemas()


class Strict(BaseModel):
    model_config = ConfigDict(regex_engine="python-re")

    text: str = Field(pattern=LOOK_AHEAD)


class Nested(BaseModel):
    rows: list[Strict | int]


@dataclasses.dataclass
class Data:
    text: Annotated[str, StringConstraints(pattern=re.compile(LOOK_AHEAD))]


class Typed(TypedDict):
    text: Annotated[str, Field(pattern=re.compile(LOOK_AHEAD))]


TYPES: list[Any] = [
    Strict,
    Nested,
    Data,
    Typed,
    list[Strict],
    dict[str, Nested],
    Annotated[str, StringConstraints(pattern=re.compile(LOOK_AHEAD))],
    Annotated[str, Field(pattern=LOOK_AHEAD)],
    TypeAdapter(Nested),
]


@each_row("kind", TYPES, ids=str)
def test_loop_a_type_whose_pattern_needs_backtracking_is_refused(kind):
    for mode in ("input_schema", "output_schema"):
        with pytest.raises(ValueError, match="linear time") as caught:
            Tool("guess", execute=None, **{mode: kind})
        assert repr(LOOK_AHEAD) in str(caught.value)


def test_loop_a_function_whose_pattern_needs_backtracking_is_refused():
    with pytest.raises(ValueError, match="linear time"):

        @tool
        def compiled(text: Annotated[str, Field(pattern=re.compile(LOOK_AHEAD))]) -> None: ...

    with pytest.raises(ValueError, match="linear time"):

        @tool
        def plain(text: Annotated[str, Field(pattern=LOOK_AHEAD)]) -> None: ...

    with pytest.raises(ValueError, match="linear time"):

        @tool(name="other")
        def nested(row: Nested) -> None: ...


def backtracking() -> Any:
    class Careless(BaseModel):
        model_config = ConfigDict(regex_engine="python-re")

        text: str = Field(pattern="^(a|a)*$")
        other: Annotated[str, StringConstraints(pattern=re.compile("^(A|a)*$", re.IGNORECASE))] = ""

    class Holder(BaseModel):
        careless: list[Careless]

    return Holder


def test_loop_a_pattern_that_python_would_run_is_run_in_linear_time():
    one = prepare_tool(Tool("guess", execute=None, input_schema=backtracking()))
    held = one.validate_input({"careless": [{"text": "aaa", "other": "aAa"}]}).value
    assert type(held).__name__ == "Holder"
    assert held.careless[0].text == "aaa"
    for wrong in ({"text": HOSTILE}, {"text": "", "other": HOSTILE}):
        with pytest.raises(CodeModeToolError):
            one.validate_input({"careless": [wrong]})


# --- tools of frameworks and servers ---


class ServerTool(Tool):
    is_foreign = True


def kept(schema: Any, caplog: pytest.LogCaptureFixture) -> PreparedTool:
    with caplog.at_level(logging.WARNING, "codemode.tools"):
        one = ServerTool("far", execute=None, input_schema=schema)
        prepare_tool(one).compile_schemas()
    assert LOOK_AHEAD in caplog.text
    assert "'far'" in caplog.text
    assert LOOK_AHEAD not in str(prepare_tool(one.with_name("away")).input_json_schema) or not isinstance(schema, dict)
    return prepare_tool(one)


@pytest.mark.parametrize("place", PLACES)
def test_loop_a_foreign_tool_keeps_its_schema_without_the_pattern(place, caplog):
    one = kept(PLACES[place](LOOK_AHEAD), caplog)
    for value in ({}, {"a": "b"}, {"aaa": 1}, "b", [HOSTILE], 5, HOSTILE):
        one.validate_input(value)


@pytest.mark.parametrize(
    ("schema", "taken"),
    [
        ({"not": {"pattern": LOOK_AHEAD}}, "b"),
        ({"oneOf": [{"pattern": LOOK_AHEAD}, {"type": "string"}]}, "b"),
        ({"if": {"pattern": LOOK_AHEAD}, "then": {"maxLength": 1}, "else": {}}, "bbb"),
        ({"if": {"not": {"$ref": "#/$defs/p"}}, "then": False, "$defs": {"p": {"pattern": LOOK_AHEAD}}}, "b"),
        ({"patternProperties": {LOOK_AHEAD: {}}, "additionalProperties": False}, {"a": 1}),
        ({"contains": {"pattern": LOOK_AHEAD}, "maxContains": 0, "minContains": 0}, ["b"]),
        ({"properties": {"a": {"pattern": LOOK_AHEAD, "maxLength": 3}}}, {"a": "b"}),
    ],
)
def test_loop_what_a_foreign_schema_took_it_takes_without_its_pattern(schema, taken, caplog):
    assert kept(schema, caplog).validate_input(taken).value == taken


def test_loop_the_rest_of_a_foreign_schema_holds(caplog):
    one = kept({"properties": {"a": {"pattern": LOOK_AHEAD, "maxLength": 3}, "b": {"pattern": "^x+$"}}}, caplog)
    for wrong in ({"a": "long"}, {"b": "y"}):
        with pytest.raises(CodeModeToolError):
            one.validate_input(wrong)


def test_loop_a_foreign_type_keeps_all_but_its_pattern(caplog):
    one = kept(Nested, caplog)
    assert one.validate_input({"rows": [{"text": HOSTILE}, 3]}).value.rows[0].text == HOSTILE
    with pytest.raises(CodeModeToolError):
        one.validate_input({"rows": [{"text": 5}]})


def test_loop_tools_that_an_adapter_makes_are_foreign(caplog, monkeypatch):
    monkeypatch.setattr(ADAPTERS, "_adapters", [])

    class Theirs:
        pass

    register_adapter(
        lambda value: isinstance(value, Theirs),
        lambda _: Tool("theirs", execute=None, input_schema={"pattern": LOOK_AHEAD}),
    )
    made = ADAPTERS.convert_to_tool(Theirs())
    assert made is not None
    assert prepare_tool(made).validate_input("b").value == "b"
    assert LOOK_AHEAD in caplog.text
    assert prepare_tool(made.with_name("other")).input_json_schema == {}


def test_loop_a_foreign_pattern_that_repeats_too_much_is_left_out():
    huge = "^.{1,1000000}$"
    assert estimate_automaton_size(huge) > MAX_FOREIGN_AUTOMATON_SIZE
    assert list(find_refused_patterns({"pattern": huge, "items": {"pattern": "^.{1,100}$"}})) == [huge]
    with drop_nonlinear_patterns():
        assert Tool("far", execute=None, input_schema={"pattern": huge}).input_schema == {}


# --- the engine ---


@each_row(
    "pattern, fits, fails",
    [
        (r"^[^[\]]+$", "ab", "a[b"),
        (r"^{a}$", "{a}", "a"),
        (r"^[\w-.]+$", "a-b.c", "a b"),
        (r"^[a&&b~~]+$", "a&b~", "c"),
        (r"\Aab\Z", "ab", "abc"),
        (r"^\/a\-b\_c$", "/a-b_c", "x"),
        (r"^\p{L}{2}$", "äö", "ä1"),
        (r"^[\]{}\-]+$", "]{}-", "a"),
        ("", "anything", None),
    ],
)
def test_loop_patterns_of_other_dialects_mean_the_same(pattern, fits, fails):
    assert compile_linear_matcher(pattern)(fits)
    assert fails is None or not compile_linear_matcher(pattern)(fails)


PARTS = st.sampled_from(["a", ".", "[ab]", "[^a]", r"\d", "(a|b)", "a{2}", "b{0,3}", "(ab)+", "c?", r"\.", "[-a]", "}"])


@given(st.lists(PARTS, max_size=6).map("".join), st.text("ab.1-}", max_size=8))
def test_loop_the_linear_engine_finds_what_python_finds(pattern, text):
    assert compile_linear_matcher(pattern)(text) == (re.search(pattern, text) is not None)
    assert to_linear_syntax(to_linear_syntax(pattern)) == to_linear_syntax(pattern)


@given(st.text("ab{}[]()\\,0123*", max_size=40))
def test_loop_every_pattern_has_a_size(pattern):
    assert 0 <= estimate_automaton_size(pattern) <= 1 << 40
    assert estimate_automaton_size("(" + "a" * 10 + "){5}{7}") >= 350


def test_loop_a_long_text_against_a_large_pattern_is_refused_and_not_tried():
    one = prepare_tool(Tool("guess", execute=None, input_schema={"pattern": "[ab]*a[ab]{3000}c"}))
    with pytest.raises(CodeModeToolError, match="must satisfy"):
        one.validate_input("abc" * 30_000)
    with pytest.raises(CodeModeToolError, match="too large or too intricate"):
        one.validate_input("ab" * 500_000)


SCHEMAS = st.recursive(
    st.sampled_from(["^a", LOOK_AHEAD, "b$"]).map(lambda pattern: {"pattern": pattern})
    | st.sampled_from([{}, {"type": "string"}, {"maxLength": 2}, True]),
    lambda inside: (
        st.lists(inside, min_size=1, max_size=2).map(lambda some: {"anyOf": some})
        | st.lists(inside, min_size=1, max_size=2).map(lambda some: {"allOf": some})
        | st.lists(inside, min_size=1, max_size=2).map(lambda some: {"oneOf": some})
        | inside.map(lambda one: {"not": one})
        | inside.map(lambda one: {"items": one, "contains": one})
        | st.tuples(inside, inside, inside).map(lambda three: dict(zip(("if", "then", "else"), three, strict=True)))
        | inside.map(lambda one: {"patternProperties": {LOOK_AHEAD: one, "^b": one}, "additionalProperties": False})
    ),
    max_leaves=5,
)
VALUES = st.sampled_from(["a", "ab", "b", "aaa!", "", 5]) | st.lists(st.sampled_from(["a", "b"]), max_size=2)


def holds(schema: Any, value: Any) -> bool:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema).is_valid(value)


@given(SCHEMAS, VALUES | st.dictionaries(st.sampled_from(["a", "b", "aa"]), VALUES, max_size=2))
def test_loop_a_schema_that_lost_patterns_takes_all_that_it_took(schema, value):
    without = remove_patterns(schema, {LOOK_AHEAD})
    assert LOOK_AHEAD not in set(iterate_patterns(without))
    assert holds(without, value) or not holds(schema, value)
