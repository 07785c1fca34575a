"""An output that misses its type is read as it came: what fits is converted, what the type excludes is left out."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from pydantic import AfterValidator, BaseModel, Field, RootModel, TypeAdapter, field_serializer
from typing_extensions import TypedDict

from codemode import Tool
from codemode.schemas.python_types import TypeSchema
from codemode.tools.prepared import prepare_tool


class Row(BaseModel):
    n: int
    day: dt.date = Field(dt.date(2020, 1, 1), serialization_alias="when")
    hidden: str = Field("", exclude=True)


class Node(BaseModel):
    name: str
    hidden: str = Field("", exclude=True)
    children: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int
    collar: str = Field("", exclude=True)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str
    chip: str = Field("", exclude=True)


@dataclass
class Point:
    x: int
    note: Annotated[str, Field(exclude=True)] = ""


class Pair(NamedTuple):
    n: int
    row: Row


class Typed(TypedDict, total=False):
    n: int
    row: Row


ROW = {"n": None, "hidden": "SECRET"}
AS_THEY_CAME: list[tuple[Any, Any, Any]] = [
    (Row, {"n": "x", "hidden": "SECRET", "more": 1}, {"n": "x", "more": 1}),
    (list[Row], [{"n": 1, "hidden": "SECRET"}, ROW], [{"n": 1, "when": "2020-01-01"}, {"n": None}]),
    (dict[str, Row], {"a": ROW, "b": {"n": "2"}}, {"a": {"n": None}, "b": {"n": 2, "when": "2020-01-01"}}),
    (tuple[int, Row], ["x", ROW], ["x", {"n": None}]),
    (Row | None, ROW, {"n": None}),
    (Cat | Dog, {"kind": "cow", "collar": "SECRET", "chip": "SECRET", "lives": 9}, {"kind": "cow", "lives": 9}),
    (list[Annotated[Cat | Dog, Field(discriminator="kind")]], [{"kind": "cat", "collar": "SECRET"}], [{"kind": "cat"}]),
    (Node, {"name": 1, "children": [{"name": "a", "hidden": "SECRET"}, {"name": 2, "hidden": "SECRET"}]},
     {"name": 1, "children": [{"name": "a", "children": []}, {"name": 2}]}),
    (Point, {"x": "a", "note": "SECRET"}, {"x": "a"}),
    (Pair, ["a", ROW], ["a", {"n": None}]),
    (Typed, {"n": "a", "row": ROW}, {"n": "a", "row": {"n": None}}),
    (RootModel[list[Row]], [ROW], [{"n": None}]),
    (set[int], ["a", 1], ["a", 1]),
    (Row, "text", "text"),
    (Row, None, None),
    (int, {"bytes": None}, {"bytes": None}),
]  # fmt: skip


def test_what_misses_its_type_comes_as_it_is_without_what_the_type_excludes():
    for kind, given, expected in AS_THEY_CAME:
        read = prepare_tool(Tool("t", execute=None, output_schema=kind)).convert_output_leniently(given)
        assert read.value == expected, kind
        assert read.problems, kind
        assert read.failure is None, kind


def test_an_instance_of_another_class_shows_what_its_own_class_and_the_declared_one_show():
    class Stored(BaseModel):
        n: str = "x"
        hidden: str = "SECRET"
        key: str = Field("SECRET", exclude=True)

    for given in (Stored(), [Stored()]):
        kind = list[Row] if isinstance(given, list) else Row
        read = prepare_tool(Tool("t", execute=None, output_schema=kind)).convert_output_leniently(given)
        assert read.value in ({"n": "x"}, [{"n": "x"}])


def test_what_fits_is_converted_and_nothing_is_said():
    read = prepare_tool(Tool("t", execute=None, output_schema=list[Row])).convert_output_leniently(
        [{"n": "1", "hidden": "SECRET"}]
    )
    assert read == ([{"n": 1, "when": "2020-01-01"}], (), None)


def raising(error: BaseException) -> Callable[[Any], Any]:
    def check(_value: Any) -> Any:
        raise error

    return check


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit("x"), GeneratorExit("x"), asyncio.CancelledError("x")])
def test_what_a_validator_raises_costs_no_output_and_is_named_with_its_field(error: BaseException):
    class Picky(BaseModel):
        n: Annotated[int, AfterValidator(raising(error))]
        row: Row

    tool = prepare_tool(Tool("t", execute=None, output_schema=Picky))
    read = tool.convert_output_leniently({"n": 1, "row": {"n": 2, "hidden": "SECRET"}})
    assert read.value == {"n": 1, "row": {"n": 2, "when": "2020-01-01"}}
    assert read.problems == [{"path": "n", "message": f"its type fails on it: {type(error).__name__}"}]
    assert read.failure is error


def test_a_field_that_cannot_be_written_costs_that_field_its_form():
    class Odd(BaseModel):
        n: int
        at: dt.date

        @field_serializer("n")
        def write(self, _value: int) -> int:
            raise LookupError

    read = prepare_tool(Tool("t", execute=None, output_schema=Odd)).convert_output_leniently(
        {"n": 1, "at": "2024-01-02"}
    )
    assert read.value == {"n": 1, "at": "2024-01-02"}
    assert [one["path"] for one in read.problems] == ["n"]


def test_a_type_that_takes_too_long_is_not_asked_again_part_by_part(monkeypatch: pytest.MonkeyPatch):
    schema = TypeSchema(Node, "output")
    monkeypatch.setattr("codemode.schemas.type_guards._FREE_STEPS", -10)
    monkeypatch.setattr("codemode.schemas.type_guards._STEPS_PER_VALUE", 0)
    value, _ = schema.read_leniently(nested(20))
    assert "SECRET" not in str(value)
    assert str(value).count("'name'") == 21


def nested(depth: int) -> Any:
    value: Any = {"name": 1, "hidden": "SECRET"}
    for _ in range(depth):
        value = {"name": "x", "children": [value], "hidden": "SECRET"}
    return value


def test_what_is_too_deep_to_be_looked_through_is_left_out_where_a_type_excludes_something():
    read = prepare_tool(Tool("t", execute=None, output_schema=Node)).convert_output_leniently(nested(200))
    assert "SECRET" not in str(read.value)
    assert any(one["message"] == "nests too deeply, left out" for one in read.problems)
    open_type = prepare_tool(Tool("t", execute=None, output_schema=dict[str, list[int]])).convert_output_leniently(
        nested(200)
    )
    assert str(open_type.value).count("SECRET") == 201


def test_plain_json_loses_only_what_a_type_excludes():
    schema = TypeSchema(list[Row], "output")
    assert schema.excludes_fields
    assert not TypeSchema(TypeAdapter(list[int]), "output").excludes_fields
    given = [{"n": "7", "hidden": "SECRET", "more": [1]}]
    assert schema.drop_excluded_fields(given) == [{"n": "7", "more": [1]}]


def test_decimals_are_numbers_where_a_json_schema_wants_numbers():
    number = {"anyOf": [{"type": "number"}, {"type": "null"}]}
    schema = {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "integer"}, "c": {"items": number}},
    }
    tool = prepare_tool(Tool("t", execute=None, output_schema=schema))
    given = {"a": Decimal("1.50"), "b": Decimal(3), "c": [Decimal("2.5"), None], "d": Decimal("0.10")}
    assert tool.convert_output_leniently(given) == ({"a": 1.5, "b": 3, "c": [2.5, None], "d": "0.10"}, (), None)
    assert tool.convert_output_leniently({"a": Decimal("NaN")}).problems
