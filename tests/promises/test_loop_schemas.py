"""Checks of values take steps that their size justifies, and can be stopped between any two of them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, validators
from pydantic import BaseModel, Discriminator, Field, TypeAdapter, ValidationError
from suite import each_row, full_only, rounds

from codemode import CodeModeToolError, Tool, run_code_mode_sync
from codemode.host import steps
from codemode.schemas.compiled import SchemaMismatchError
from codemode.schemas.json_schemas import CompiledJsonSchema
from codemode.schemas.keyword_repair import find_unusable_references
from codemode.schemas.python_types import TypeSchema
from codemode.schemas.type_guards import StepLimitedValidator, _budget, raise_pattern_refused
from codemode.tools.prepared import prepare_tool

NUMBERS = [0.5] * 240_000


def steps_of(work: Callable[[], object]) -> int:
    """Count the steps of some work, to the next hundred."""
    looks = 0

    def look() -> int:
        nonlocal looks
        looks += 1
        return 100

    steps.run_with_step_budget(work, 0, look)
    return looks * 100


def stopped_after(work: Callable[[], object], count: int) -> None:
    def stop() -> int:
        raise steps.WorkStopped

    with pytest.raises(steps.WorkStopped):
        steps.run_with_step_budget(work, count, stop)


def problems(schema: Any, value: Any) -> list[dict[str, str]]:
    try:
        CompiledJsonSchema(schema).validate_input(value)
    except SchemaMismatchError as mismatch:
        return mismatch.problems
    return []


def either(*schemas: Any) -> dict[str, Any]:
    return {"anyOf": list(schemas)}


STRINGS = {"type": "array", "items": {"type": "string"}}
MANY_PROBLEMS = {
    "one for each item": STRINGS,
    "for each alternative": either(STRINGS, {"type": "array", "items": {"maximum": 0}}),
    "exactly one": {"oneOf": [STRINGS, {"items": {"maximum": 0}}]},
    "each item either": {"items": either({"type": "string"}, {"maximum": 0})},
    "none of them": {"contains": {"type": "string"}},
    "few": {"maxItems": 5},
    "not": {"not": {"items": {"type": "number"}}},
    "unevaluated": {"prefixItems": [{}], "unevaluatedItems": {"type": "string"}},
}


@each_row("name", MANY_PROBLEMS)
def test_loop_many_numbers_are_checked_in_proportion_and_can_be_stopped(name):
    schema = CompiledJsonSchema(MANY_PROBLEMS[name])
    found: list[dict[str, str]] = []

    def check() -> None:
        with pytest.raises(SchemaMismatchError) as caught:
            schema.validate_input(NUMBERS)
        found.extend(caught.value.problems)

    assert steps_of(check) < 25 * len(NUMBERS)
    assert 0 < len(found) <= 8
    assert max(len(one["message"]) for one in found) <= 200


def test_loop_a_check_stops_at_its_next_step():
    for schema in ({"items": {"type": "number"}}, {"items": either({"type": "string"}, {"type": "number"})}):
        compiled = CompiledJsonSchema(schema)
        compiled.validate_input(NUMBERS)
        stopped_after(lambda compiled=compiled: compiled.validate_input(NUMBERS), 1000)
    typed = TypeSchema(list[float | str], "input")
    stopped_after(lambda: typed.validate_input(NUMBERS), 1000)
    stopped_after(lambda: typed.validate_output(NUMBERS, "it"), 1000)


def nested(depth: int, leaf: Any, width: int = 1) -> Any:
    value = leaf
    for _ in range(depth):
        value = {"child": value} if width == 1 else {"child": value, "other": leaf}
    return value


REFERENCE = {"properties": {"child": {"$ref": "#"}, "other": {"$ref": "#"}}}
RECURSIVE = {
    "oneOf": {"oneOf": [{**REFERENCE, "required": ["child"]}, {**REFERENCE, "required": ["other"]}, {"type": "null"}]},
    "anyOf": either({**REFERENCE, "required": ["other"]}, {**REFERENCE, "required": ["child"]}, {"type": "null"}),
    "allOf": {"allOf": [REFERENCE, dict(REFERENCE), {"type": ["object", "null"]}]},
    "not": {"not": {"not": either({**REFERENCE, "type": "object"}, {"type": "null"})}},
    "if": {"if": REFERENCE, "then": REFERENCE, "else": {**REFERENCE, "type": "null"}},
    "dynamic": {
        "$dynamicAnchor": "node",
        "oneOf": [
            {"properties": {"child": {"$dynamicRef": "#node"}}, "required": ["child"]},
            {"properties": {"child": {"$dynamicRef": "#node"}}, "required": ["child", "other"]},
            {"type": "null"},
        ],
    },
    "unevaluated": {
        "anyOf": [REFERENCE, {**REFERENCE, "required": ["other"]}],
        "type": ["object", "null"],
        "unevaluatedProperties": False,
    },
}


@each_row("name", RECURSIVE)
@each_row("leaf", [None, 5, "wrong"])
def test_loop_recursive_alternatives_cost_no_more_than_each_rule_on_each_value(name, leaf):
    schema = CompiledJsonSchema(RECURSIVE[name])
    value = nested(60, leaf)
    assert len(json.dumps(value)) < 800
    if name == "dynamic":  # where such a reference leads depends on the way to it
        assert steps_of(lambda: schema._find_problems(value)) < 250_000
    else:
        assert steps_of(lambda: schema._find_problems(value)) < 30_000


def test_loop_no_message_quotes_a_value():
    text = "secret" * 10_000
    for schema in ({"type": "number"}, {"maxLength": 1}, {"pattern": "^x$"}, {"enum": ["a"]}, {"const": "a"}, False):
        assert all("secret" not in one["message"] for one in problems(schema, text))
        assert all("secret" not in one["message"] for one in problems(either(schema), [text]))


def test_loop_few_of_many_names_are_shown():
    many = {f"name_{number}": 1 for number in range(100_000)}
    (problem,) = problems({"additionalProperties": False}, many)
    assert "name_0" in problem["message"]
    assert len(problem["message"]) <= 200
    assert problems({"patternProperties": {"^(n|name|_|[0-9])+$": False}}, many)
    assert problems({"propertyNames": {"maxLength": 3}}, many)


# --- what is accepted is what JSON Schema accepts ---

SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, 2.5, -3, "", "a", "ab", "1"])
VALUES = st.recursive(
    SCALARS, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from("abc"), inside, max_size=3)
)
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])
NAMES = st.lists(st.sampled_from("abc"), max_size=2, unique=True)


def keywords(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inside, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from("abc"), inside, max_size=2)
    optional: dict[str, st.SearchStrategy[Any]] = {
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), some),
        **dict.fromkeys(("not", "if", "then", "else", "items", "contains", "additionalProperties"), inside),
        **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "propertyNames"), inside),
        **dict.fromkeys(("properties", "dependentSchemas"), named),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "maxContains"), st.integers(0, 2)),
        **dict.fromkeys(("minProperties", "maxProperties", "minContains"), st.integers(0, 2)),
        **dict.fromkeys(("minimum", "exclusiveMaximum"), st.sampled_from([0, 1, 1.5])),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "required": NAMES,
        "dependentRequired": st.dictionaries(st.sampled_from("abc"), NAMES, max_size=2),
        "uniqueItems": st.booleans(),
        "pattern": st.sampled_from(["^a", "b$", "[0-9]"]),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b|c"]), inside, max_size=2),
        "$ref": st.sampled_from(["#/$defs/x", "#/$defs/y"]),
    }
    keys = st.lists(st.sampled_from(sorted(optional)), max_size=3, unique=True)
    return keys.flatmap(lambda chosen: st.fixed_dictionaries({key: optional[key] for key in chosen}))


# A value may fit several alternatives of a `oneOf`, as the union that is declared of it says.
Reference = validators.extend(Draft202012Validator, {"oneOf": Draft202012Validator.VALIDATORS["anyOf"]})
SCHEMAS = st.recursive(st.booleans() | keywords(st.booleans()), keywords, max_leaves=8)


@settings(max_examples=rounds(30, 300), deadline=None)
@given(SCHEMAS, SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=1, max_size=4))
def test_loop_schemas_take_what_another_implementation_takes(root, left, right, values):
    schema = {"allOf": [root], "$defs": {"x": left, "y": {"not": right}}}
    for value in values:
        try:
            expected = Reference(schema).is_valid(value)
        except BaseException as error:  # its references are Rust, which panics where the recursion ends
            if "RecursionError" not in repr(error):
                raise
            continue
        found = problems(schema, value)
        if find_unusable_references(schema):  # without them, a schema accepts at least what it accepted
            assert not (expected and found), found
        elif not any("too deeply" in one["message"] for one in found):
            assert (not found) == expected, found


# --- types ---


class Left(BaseModel):
    child: Left | Right | int | None = None


class Right(BaseModel):
    child: Left | Right | int | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    born: dt.date | None = None
    puppies: list[Annotated[Cat | Dog, Discriminator("kind")]] = Field(default_factory=list)


class Strict(BaseModel, strict=True):
    born: dt.date
    tags: tuple[str, ...] = ()


Left.model_rebuild()
Dog.model_rebuild()


@each_row(
    "kind, within",
    [
        (list[Left | Right], lambda node: [node]),
        *full_only(
            (Left, lambda node: node),
            (dict[str, Right], lambda node: {"a": node}),
            (tuple[int, Left], lambda node: [1, node]),
        ),
    ],
)
def test_loop_recursive_types_end(kind, within):
    one = Tool("walk", execute=lambda _: "walked", input_schema=kind)
    deep = within(nested(60, "wrong"))
    with pytest.raises(CodeModeToolError, match="too large or too intricate"):
        prepare_tool(one).validate_input(deep)
    with pytest.raises(CodeModeToolError):
        run_code_mode_sync(f"return await tools.walk({json.dumps(deep)})", [one])
    assert run_code_mode_sync(f"return await tools.walk({json.dumps(within(nested(6, 1)))})", [one]) == "walked"
    strict = Tool("give", execute=lambda _: deep, output_schema=kind, output_validation="strict")
    with pytest.raises(CodeModeToolError):
        run_code_mode_sync("return await tools.give()", [strict])
    given = Tool("give", execute=lambda _: deep, output_schema=kind)
    assert run_code_mode_sync("return await tools.give()", [given]) == deep


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (dict[str, Cat | Dog], {f"k{number}": {"kind": "dog"} for number in range(10_000)}),
        *full_only(
            (list[Cat], [{"kind": "cat"}] * 25_000),
            (list[Strict], [{"born": "2020-01-01", "tags": ["a"]}] * 10_000),
            (list[float | str], NUMBERS),
        ),
    ],
)
def test_loop_large_values_fit_their_types(kind, value):
    made = TypeSchema(kind, "input").create_instance(value)
    assert made == TypeAdapter(kind).validate_json(json.dumps(value))


def test_loop_half_a_million_problems_are_never_made():
    schema = TypeSchema(list[Cat | Dog | int | None], "input")
    with pytest.raises(SchemaMismatchError) as caught:
        schema.create_instance([[]] * 240_000)
    assert 0 < len(caught.value.problems) <= 8


KINDS: list[Any] = [
    Left | Right,
    list[Cat | Dog],
    Dog,
    dict[str, list[int | str | None]],
    list[Annotated[Cat | Dog, Discriminator("kind")]],
    tuple[int, str] | list[float] | set[str],
    list[tuple[int, ...]] | dict[str, bool],
]
PLAIN = st.recursive(
    st.sampled_from([None, 1, 2.0, "1", "cat", "dog", True, "2020-01-01"]),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.fixed_dictionaries({"kind": st.sampled_from(["cat", "dog"])}, optional={"puppies": st.lists(inside)})
        | st.fixed_dictionaries({}, optional={"child": inside, "a": inside, "lives": inside, "born": inside})
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(PLAIN)
def test_loop_a_guarded_type_takes_and_makes_what_it_did(kind, value):
    adapter = TypeAdapter(kind)
    guarded = StepLimitedValidator(adapter, raise_pattern_refused)
    outcomes: list[Any] = []
    for validator in (adapter.validator, guarded._metered_validator, guarded._fail_fast_validator):
        _budget.reset_for_value(value)
        try:
            outcomes.append(validator.validate_python(value))
        except ValidationError:
            outcomes.append(ValidationError)
    assert repr(outcomes[0]) == repr(outcomes[1]) == repr(outcomes[2])
