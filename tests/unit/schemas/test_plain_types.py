"""What is said of plain types without pydantic is what pydantic says of them: schemas, values, and what is shown."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from enum import IntEnum
from types import GenericAlias
from typing import Annotated, Any, Dict, List, Literal, Optional, Union  # noqa: UP035 - they are types too

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from suite import each_row, rounds

from codemode.host import steps
from codemode.schemas.compiled import CompiledSchema, SchemaMismatchError
from codemode.schemas.plain_types import MAX_VALUES, PlainSchema, find_plain_type
from codemode.schemas.python_types import TypeSchema
from codemode.tools.parameters import create_plain_validator, describe_function
from codemode.tools.parameters_schema import ParametersSchema


class Number(IntEnum):
    ONE = 1


class Text(str):
    pass


class Context:
    pass


TYPES = [
    *(int, str, float, bool, None, type(None), Any, list, dict, List, Dict, List[int]),  # noqa: UP006
    *(int | None, Optional[str], float | None, bool | None, list[int] | None, dict[str, Any] | None),  # noqa: UP045
    *(list[str], list[Any], list[list[int]], list[int | None], dict[str, Any], dict[str, int], dict[str, list[float]]),
    *(list[dict[str, Any]], dict[str, str | None], Annotated[int, "how many"], Annotated[str | None, "a", "b"]),
]
LEFT_TO_PYDANTIC = [
    *(int | str, None | int, Any | None, int | str | None, Literal["a"], set[int], tuple[int, int], dict[int, str]),
    *(dict[str], dict[str, int, int], list[int, int], Annotated[None, "x"] | None),  # type: ignore[type-arg]
    *(Annotated[int, object()], bytes, object, Number, Text, list[Number], dict[str, set[int]], complex),
]
VALUES: list[Any] = [
    *(0, 1, -5, 2**53, 2**63, 2**70, -(2**63), True, False, None, 1.0, 1.5, -0.0, float("inf"), float("nan"), "", "x"),
    *("1", "1.5", "true", "é", "\ud800", "a\0b", "x" * 70_000, b"x", Number.ONE, Text("t"), object(), (1, 2), {1}),
    *([], [1], ["1"], [1.0], [None], [True], ["a", "\ud800"], [[1], [2]], [{"a": 1}], [1] * (MAX_VALUES + 1)),
    *({}, {"a": 1}, {"a": "1"}, {"a": None}, {"a": [1.5]}, {1: 2}, {"a": {"b": [1, "x", None]}}, {"\ud800": 1}),
]


def said(work: Callable[[], Any]) -> tuple[str, Any]:
    """Return what came of it, so that two can be compared: 1, 1.0 and True are not the same."""
    try:
        return "value", repr(work())
    except SchemaMismatchError as mismatch:
        return "mismatch", mismatch.problems
    except Exception as error:
        return "error", str(error)


@each_row("annotation", TYPES)
@each_row("mode", ["input", "output"])
def test_a_plain_type_is_what_pydantic_makes_of_it(annotation: Any, mode: Literal["input", "output"]):
    plain, other = find_plain_type(annotation), TypeSchema(annotation, mode)
    assert plain is not None
    ours = PlainSchema(plain, lambda: TypeSchema(annotation, mode))
    assert json.dumps(ours.json_schema) == json.dumps(other.json_schema)
    assert ours.is_nondeterministic == other.is_nondeterministic
    for value in VALUES:
        if mode == "output":
            assert said(lambda v=value: ours.validate_output(v, "it")) == said(
                lambda v=value: other.validate_output(v, "it")
            )
        else:
            assert said(lambda v=value: ours.validate_input(v).value) == said(
                lambda v=value: other.validate_input(v).value
            )
            assert said(lambda v=value: ours.validate_input(v).json_value) == said(
                lambda v=value: other.validate_input(v).json_value
            )


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    given_to = st.one_of(st.tuples(inner), st.tuples(st.just(str), inner), st.tuples(inner, inner, inner))
    return st.one_of(
        st.tuples(st.sampled_from((list, dict)), given_to).map(lambda made: GenericAlias(*made)),
        st.tuples(inner, inner).map(lambda members: Union[members]),  # noqa: UP007
        inner.map(lambda member: Optional[member]),  # noqa: UP045
        inner.map(lambda said: Annotated[said, "said"]),
    )


@settings(max_examples=rounds(150, 5000), deadline=None)
@given(st.recursive(st.sampled_from([int, str, float, bool, None, Any, list, dict, bytes]), _larger, max_leaves=4))
def test_a_type_of_any_build_is_left_to_pydantic_or_described_as_by_it(annotation: Any):
    plain = find_plain_type(annotation)
    if plain is not None:
        assert json.dumps(plain.json_schema) == json.dumps(TypeSchema(annotation, "input").json_schema)


@each_row("annotation", LEFT_TO_PYDANTIC)
def test_other_types_are_left_to_pydantic(annotation: Any):
    assert find_plain_type(annotation) is None


def test_values_that_are_exactly_of_the_type_ask_nobody():
    def refuse() -> CompiledSchema:
        raise AssertionError("asked")

    cases: list[Any] = [(int, 1), (str | None, None), (list[float], [1.5]), (dict[str, Any], {"a": [1, {}]})]
    for annotation, value in cases:
        plain = find_plain_type(annotation)
        assert plain is not None
        assert PlainSchema(plain, refuse).validate_input(value).value == value


def test_a_copy_is_given_so_that_what_was_shown_runs():
    plain = find_plain_type(dict[str, Any])
    assert plain is not None
    given = {"a": [1]}
    made = PlainSchema(plain, lambda: TypeSchema(dict[str, Any], "input")).validate_input(given)
    given["a"].append(2)
    assert made.value == made.json_value == {"a": [1]}


def nothing(): ...
def one(n: int): ...
def unannotated(n, m=1): ...  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
def several(
    a: int, b: str = "x", c: float | None = None, d: Any = 3, e: bool = True, f: Any = 1, *, g: list[str] | None = None
):
    """Do it.

    Args:
        a: How many.
        c: The "rate", in é.
    """


def described(n: Annotated[int, "how many"], copy: str = "", _x: int = 4, p0: int = 0, model_config: bool = False): ...
def with_lists(ids: list[int], given: dict[str, Any], more: list[dict[str, str]] | None = None): ...
def with_context(context: Context, n: int = 1): ...


FUNCTIONS: list[Any] = [nothing, one, unannotated, several, described, with_lists, with_context]
INPUTS: list[Any] = [
    *(
        {},
        {"n": 1},
        {"n": "1"},
        {"n": None},
        {"n": 1.5},
        {"n": True},
        {"a": 1},
        {"a": 1, "b": "y", "c": 2.5, "g": ["x"]},
    ),
    *({"a": 1, "c": 2}, {"a": "1", "d": {"k": [1]}}, {"a": 1, "unknown": 1}, {"a": 1, "p0": 1}, {"n": 1, "_x": 2}),
    *({"n": 1, "copy": "c", "model_config": True}, {"ids": [1], "given": {"a": [None]}}, {"ids": ["1"], "given": {}}),
    *({"ids": [], "given": {}, "more": [{"a": "b"}]}, [], None, 1, "x", {"a": 1, "d": None, "e": 1, "f": "f"}),
]


@each_row("function", FUNCTIONS)
def test_plain_parameters_are_what_pydantic_makes_of_them(function: Any):
    parameters = describe_function(function, Context).parameters
    other = ParametersSchema(parameters)
    ours = create_plain_validator(parameters, lambda: ParametersSchema(parameters))
    assert ours is not None
    assert json.dumps(ours.json_schema) == json.dumps(other.json_schema)
    assert ours.is_nondeterministic == other.is_nondeterministic
    for value in INPUTS:
        for read in ("value", "json_value"):
            assert said(lambda v=value, r=read: getattr(ours.validate_input(v), r)) == said(
                lambda v=value, r=read: getattr(other.validate_input(v), r)
            )


def test_parameters_whose_default_is_not_plain_are_left_to_pydantic():
    def wrong(n: int = None): ...  # noqa: RUF013  # pyright: ignore[reportArgumentType]
    def mutable(n: list[int] = [1]): ...  # noqa: B006
    def coerced(n: float = 1): ...
    def enum(n: int = Number.ONE): ...
    def rest(n: int, **more: Any): ...

    for function in (wrong, mutable, coerced, enum, rest):
        parameters = describe_function(function, Context).parameters
        assert create_plain_validator(parameters, lambda one=parameters: ParametersSchema(one)) is None


def test_pydantic_is_imported_off_the_event_loop():
    plain = find_plain_type(int)
    assert plain is not None
    schema = PlainSchema(plain, lambda: TypeSchema(int, "input"))
    assert steps.run_with_step_budget(lambda: schema.validate_input(1)).value == 1
    with pytest.raises(steps.LoopBudgetExceeded):
        steps.run_with_step_budget(lambda: schema.validate_input("1"))
    assert schema.validate_input("1").value == 1
    assert steps.run_with_step_budget(lambda: schema.validate_input("2")).value == 2


_SCRIPT = """
import sys
from typing import Any
from codemode import create_code_mode_tool
def find(query: str, limit: int = 10, tags: list[str] | None = None) -> list[dict[str, Any]]: return [{"id": limit}]
tool = create_code_mode_tool([find])
print("pydantic" in sys.modules)
print(tool.execute_sync({"js": "return await tools.find({ query: 'x' })"}), "pydantic" in sys.modules)
print(tool.execute_sync({"js": "return await tools.find({ query: 'x', limit: '3' })"}), "pydantic" in sys.modules)
"""


def test_a_run_whose_tools_are_plain_imports_no_pydantic_until_a_value_needs_it():
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["False", "[{'id': 10}] False", "[{'id': 3}] True"]


def test_an_output_has_every_field_that_pydantic_fills() -> None:
    class Item(BaseModel):
        id: str
        note: str | None = None
        secret: str = Field(default="", exclude=True)

    written = TypeSchema(Item, "output").json_schema
    assert (written["required"], "default" in str(written)) == (["id", "note"], False)
    assert TypeSchema(Item, "input").json_schema["required"] == ["id"]
