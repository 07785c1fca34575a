"""No match of a pattern keeps the interpreter for long: it is weighed in steps first, whoever wrote the pattern."""

from __future__ import annotations

import base64
import dataclasses
import uuid
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from suite import each_row, full_only, rounds
from typing_extensions import TypedDict

from codemode import CodeModeToolError, Tool
from codemode.data.sized_cache import SizedCache
from codemode.host import steps
from codemode.schemas import match_cost, patterns, type_guards
from codemode.schemas.patterns import compile_linear_matcher
from codemode.schemas.type_guards import StepLimitedValidator, raise_pattern_refused
from codemode.tools.prepared import PreparedTool, prepare_tool

TOO_MUCH = "too large or too intricate"


def taking(schema: Any) -> PreparedTool:
    return prepare_tool(Tool("guess", execute=None, input_schema=schema))


def steps_of(work: Any, most: int = 1 << 62) -> int:
    """Count the steps of some work. Raises `WorkStopped` when they are more."""
    granted = 0

    def look() -> int:
        nonlocal granted
        granted += 100
        if granted > most:
            raise steps.WorkStopped
        return 100

    steps.run_with_step_budget(work, 0, look)
    return granted


# --- where a pattern may stand ---

IN_SCHEMAS = {
    "alone": (lambda pattern: {"pattern": pattern}, lambda text: text),
    "in items": (lambda pattern: {"items": {"pattern": pattern}}, lambda text: ["a", text]),
    "in a property": (lambda pattern: {"properties": {"a": {"pattern": pattern}}}, lambda text: {"a": text}),
    "of properties": (lambda pattern: {"patternProperties": {pattern: False}}, lambda text: {text: 1}),
    "of names": (lambda pattern: {"propertyNames": {"pattern": pattern}}, lambda text: {text: 1}),
    "in alternatives": (lambda pattern: {"anyOf": [{"pattern": pattern}, {"minLength": 1}]}, lambda text: text),
    "where it must not fit": (lambda pattern: {"not": {"pattern": pattern}}, lambda text: text),
}


def text_of(pattern: str) -> Any:
    return Annotated[str, StringConstraints(pattern=pattern)]


def in_model(pattern: str, **config: Any) -> Any:
    return type(
        "Model",
        (BaseModel,),
        {"__annotations__": {"a": text_of(pattern)}, "model_config": ConfigDict(**config), "__module__": __name__},
    )


def in_dict(pattern: str) -> Any:
    return TypedDict("Row", {"a": text_of(pattern)})


IN_A_STRANGE_ADAPTER = (
    lambda pattern: TypeAdapter(list[text_of(pattern)], config=ConfigDict(arbitrary_types_allowed=True)),
    lambda text: [text],
)
IN_TYPES = {
    "text": (text_of, lambda text: text),
    "list": (lambda pattern: list[text_of(pattern)], lambda text: ["aa", text]),
    "key": (lambda pattern: dict[text_of(pattern), int], lambda text: {text: 1}),
    "model": (in_model, lambda text: {"a": text}),
    "strict model": (lambda pattern: in_model(pattern, strict=True), lambda text: {"a": text}),
    "Python's engine": (lambda pattern: in_model(pattern, regex_engine="python-re"), lambda text: {"a": text}),
    "models": (lambda pattern: dict[str, list[in_model(pattern)]], lambda text: {"b": [{"a": text}]}),
    "typed dict": (in_dict, lambda text: {"a": text}),
    "alternative": (lambda pattern: int | text_of(pattern), lambda text: text),
    "strict tuple": (lambda pattern: tuple[text_of(pattern), int], lambda text: [text, 1]),
    "adapter with a config": (
        lambda pattern: TypeAdapter(list[text_of(pattern)], config=ConfigDict(strict=True)),
        lambda text: [text],
    ),
    "adapter with a config of pydantic's own": IN_A_STRANGE_ADAPTER,
    "stripped, and in upper case": (
        lambda pattern: Annotated[str, StringConstraints(pattern=pattern, to_upper=True, strip_whitespace=True)],
        lambda text: f" {text} ",
    ),
}
PLACES = IN_SCHEMAS | IN_TYPES
COUNTED = st.one_of(
    st.tuples(st.integers(20, 44), st.integers(25, 44)).map(lambda two: f"(?:a{{1,{two[0]}}}){{1,{two[1]}}}b"),
    st.integers(9, 12).map(lambda n: f"((a{{1,{n}}}){{1,{n}}}){{1,{n}}}b"),
    st.tuples(st.sampled_from(["a", "[ab]", r"\w"]), st.integers(600, 900)).map(
        lambda two: f"^.*{two[0]}.{{0,{two[1]}}}[^a]{{9}}"
    ),
    st.integers(15, 25).map(lambda n: f"[^a](?:[ab]{{1,{n}}}a?){{1,30}}$|(?:a{{1,{n}}}){{1,{n + 20}}}b"),
)


@pytest.mark.parametrize(("schema", "value"), PLACES.values(), ids=PLACES)
@settings(deadline=None, max_examples=rounds(1, 40))
@given(pattern=COUNTED, length=st.integers(5000, 300_000))
def test_loop_a_match_that_may_take_long_is_never_made(schema, value, pattern, length):
    tool = taking(schema(pattern))
    made: list[int] = []

    def noting(match: Any) -> Any:
        return lambda text: made.append(len(text)) or match(text)

    def linear(*given: Any, **named: Any) -> Any:
        one = patterns.get_or_compile_linear_pattern(*given, **named)
        return dataclasses.replace(one, match=noting(one.match))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match_cost, "get_or_compile_linear_pattern", linear)
        patch.setattr(
            match_cost,
            "compile_linear_matcher",
            lambda *given, **named: noting(compile_linear_matcher(*given, **named)),
        )
        patch.setattr(match_cost, "_automata", SizedCache[Any, Any](1 << 30, max_entries=64))
        with pytest.raises(CodeModeToolError, match=TOO_MUCH):
            steps.run_with_step_budget(lambda: tool.validate_input(value("a" * length)), 1 << 62, lambda: 0)
    assert max(made, default=0) <= 2


@each_row("schema, value", PLACES.values(), ids=PLACES)
def test_loop_weighing_a_match_leaves_the_loop_and_stops(schema, value):
    if schema is IN_A_STRANGE_ADAPTER[0]:
        return  # nothing is weighed: there can be no function in its way
    tool, given_ = taking(schema("(?:a{1,44}){1,44}b")), value("a" * 100_000)
    with pytest.raises(steps.LoopBudgetExceeded):
        steps.run_with_step_budget(lambda: tool.validate_input(given_))
    with pytest.raises(steps.WorkStopped):
        steps_of(lambda: tool.validate_input(given_), 2000)


@pytest.mark.parametrize("schema", [{"items": {"pattern": "(?:a{1,44}){1,44}b"}}, list[text_of("(?:a{1,44}){1,44}b")]])
@pytest.mark.parametrize("length", [*full_only(60, 120), 250])
def test_loop_all_matches_of_a_value_are_charged_together(schema, length):
    """Each of them is short, and they are as many as fit into the input of a call."""
    tool, texts = taking(schema), ["a" * length + "b"] * ((1 << 20) // (length + 4))
    with pytest.raises(CodeModeToolError, match=TOO_MUCH):
        steps_of(lambda: tool.validate_input(texts), 100_000 + 25 * len(texts))


# --- what is ordinary ---

LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
CHINESE = "".join(map(chr, range(0x4E00, 0x5A00)))
BYTES = base64.b64encode(bytes(range(256)) * 3000).decode()
ORDINARY = {
    "domains": (rf"^(?:{LABEL}\.){{1,8}}[a-z]{{2,63}}$", [f"a{n}.{'b-c' * 9}.example.org" for n in range(5000)]),
    "a long domain": (rf"^(?:{LABEL}\.){{1,8}}[a-z]{{2,63}}$", [("a-b" * 20 + ".") * 4 + "com"] * 300),
    "slugs": ("^[a-z0-9]+(?:-[a-z0-9]+)*$", [f"some-slug-of-a-page-{n}" for n in range(20_000)]),
    "a long slug": ("^[a-z0-9]+(?:-[a-z0-9]+)*$", ["some-" * 100_000 + "slug"]),
    "uuids": (
        "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-5][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$",
        [str(uuid.UUID(int=(0xA << 60) + (4 << 76) + n)) for n in range(20_000)],
    ),
    "words": (r"^[a-zA-Z]{1,40}(?:[ ,][a-zA-Z]{1,40}){0,20}$", ["some words of a title " * 3 + "end"] * 5000),
    "mail": (r"^[\w.+-]+@[\w-]+(?:\.[\w-]+){1,8}$", [f"jane.doé+{n}@mail.example.org" for n in range(5000)]),
    "rows": ("^(?:[^,]{0,200},){1,20}[^,]{1,200}$", [",".join(["some text"] * n) for n in range(2, 20)] * 20),
    "long rows": ("^(?:[^,]{0,200},){1,20}[^,]{1,200}$", [",".join(["x" * 150] * n) for n in range(2, 20)] * 2),
    "limited texts": (r"^[^\n]{1,4000}$", ["é" * n for n in range(3000, 4000, 20)]),
    "base64": (r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$", [BYTES]),
    "times": (
        r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$",
        ["2026-01-31T10:20:30.5Z"] * 20_000,
    ),
    "phones": (r"^\+?[0-9](?:[ -]?[0-9]){6,14}$", ["+49 30 1234-5678"] * 20_000),
    "not blank": (r"[^\s,]", ["some text"] * 20_000),
    "a whole page": (r"^(?:[^\n]{0,400}\n)*[^\n,]{0,400}$", ["A line of a page, no longer than others\n" * 10_000]),
    "a page in Chinese": (r"^\S+(?:\s\S+)*$", [(CHINESE[n : n + 900] + " ") * 10 + "x" for n in range(0, 2000, 200)]),
    "no space around it": (r"^\S(?:.*\S)?$", ["some text of a field " * 1000 + "x"] * 20),
    "names in a log": (r"error.{0,80}timeout", ["a line of a log without anything of that " * 5000 + "error: timeout"]),
    "one of many": (f"^(?:{'|'.join(f'Region/City_{n}' for n in range(400))})$", ["Region/City_399"] * 2000),
    "a word somewhere": (r"\b(?:cat|dog)s?\b", ["nothing of that here " * 1000 + "cats"] * 3),
}


@pytest.mark.full
@each_row("pattern, texts", ORDINARY.values(), ids=ORDINARY)
@each_row("kind", ["schema", *full_only("type", "names", "properties")])
def test_loop_ordinary_patterns_are_matched_at_ordinary_sizes(kind, pattern, texts):
    schemas = {
        "schema": {"items": {"pattern": pattern}},
        "type": list[text_of(pattern)],
        "names": dict[text_of(pattern), Any],
        "properties": {"additionalProperties": {"pattern": pattern}},
    }
    given_ = texts if kind in ("schema", "type") else {one: one for one in texts}
    if kind == "properties":
        given_ = dict(enumerate(texts)) and {f"k{n}": one for n, one in enumerate(texts)}
    tool = prepare_tool(Tool("guess", execute=None, input_schema=schemas[kind]))
    assert tool.validate_input(given_).value == given_
    wrong = [*texts[:-1], "\n,"] if isinstance(given_, list) else {**given_, "\n,": "\n,"}
    with pytest.raises(CodeModeToolError, match=r"pattern"):
        tool.validate_input(wrong)


# --- that a weighed type is the type ---

CONSTRAINED = st.fixed_dictionaries(
    {"pattern": st.sampled_from(["^a", "b$", "[a&&b]", "é|B", r"^\s", "^$", "^.{2,3}$"])},
    optional={
        "max_length": st.integers(1, 3),
        "min_length": st.integers(0, 2),
        "strip_whitespace": st.booleans(),
        "to_lower": st.booleans(),
        "to_upper": st.booleans(),
        "strict": st.booleans(),
    },
).map(lambda said: Annotated[str, StringConstraints(**said)])
WRAPPED: list[Any] = [
    lambda one: one,
    lambda one: list[one],
    lambda one: dict[one, int],
    lambda one: int | one,
    lambda one: Annotated[int | one | None, Field(union_mode="left_to_right")],
    lambda one: tuple[one, int],
    lambda one: type("Model", (BaseModel,), {"__annotations__": {"a": one, "b": one | None}, "b": None}),
    lambda one: type(
        "Shouting",
        (BaseModel,),
        {"__annotations__": {"a": one}, "model_config": {"str_to_upper": True, "str_max_length": 2}},
    ),
    lambda one: TypeAdapter(list[one], config=ConfigDict(str_to_lower=True, coerce_numbers_to_str=True)),
]
TEXTS = st.sampled_from(["", "a", "ab", "B", " é ", "a" * 9, "b", "3", "&"]) | st.integers(0, 3) | st.just(b"ab")
GIVEN = (
    TEXTS
    | st.lists(TEXTS, max_size=3)
    | st.dictionaries(TEXTS, st.integers(0, 2), max_size=2)
    | st.fixed_dictionaries({"a": TEXTS}, optional={"b": TEXTS})
)


def outcome(validate: Any, value: Any) -> Any:
    try:
        made = validate(value)
    except ValidationError as error:
        return [(one["type"], one["loc"], one["msg"]) for one in error.errors()]
    return type(made), made


@pytest.mark.parametrize("wrap", WRAPPED)
@settings(deadline=None, max_examples=rounds(30, 600))
@given(one=CONSTRAINED, value=GIVEN)
def test_loop_a_type_whose_patterns_are_weighed_takes_and_makes_what_it_did(wrap, one, value):
    kind = wrap(one)
    adapter: Any = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type_guards, "_MAX_UNMETERED_UNITS", 0)
        patch.setattr(match_cost, "_MAX_UNITS_WITHOUT_ESTIMATE", -1)
        guarded = StepLimitedValidator(adapter, raise_pattern_refused)
        assert guarded._metered_validator is not guarded.original
        assert outcome(guarded.validate, value) == outcome(adapter.validate_python, value)


def test_loop_a_small_value_is_validated_by_pydantic_alone(monkeypatch):
    tool = prepare_tool(Tool("guess", execute=None, input_schema=list[text_of("^[a-z]{1,20}$")]))
    monkeypatch.setattr(match_cost, "search_within_budget", lambda *_: pytest.fail("it was weighed"))
    monkeypatch.setattr("codemode.schemas.type_guards.search_within_budget", lambda *_: pytest.fail("it was weighed"))
    assert tool.validate_input(["abc"] * 20).value == ["abc"] * 20
