"""Tools with types as schemas: the instances they receive, what is shown of them, and what they give."""

import asyncio
import dataclasses
import datetime as dt
import json
from typing import Annotated, Any

import pytest
from orders_tool import ORDER_SCHEMA, Order, make, problems_of
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    computed_field,
    field_serializer,
    field_validator,
)
from suite import each_row
from typing_extensions import TypedDict

from codemode.data.json_values import encode_json
from codemode.errors import CodeModeSerializationError, CodeModeToolError


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: dt.date
    pair: tuple[int, int]


class Login(BaseModel):
    secret: SecretStr
    hidden: int = Field(default=3, exclude=True)


class Area(BaseModel):
    side: int

    @computed_field
    @property
    def square(self) -> int:
        return self.side**2


class Renamed(BaseModel):
    class_name: str = Field(alias="class")


class Query(TypedDict):
    text: str


@dataclasses.dataclass
class Page:
    number: int = 1


@each_row(
    "schema, given, value, shown",
    [
        (Order, {"customer": "c"}, Order(customer="c"), {"customer": "c", "lines": []}),
        (Page, {}, Page(), {"number": 1}),
        (Query, {"text": "t"}, {"text": "t"}, {"text": "t"}),
        (list[dt.date], ["2024-01-02"], [dt.date(2024, 1, 2)], ["2024-01-02"]),
        (TypeAdapter(set[int]), [1, 1], {1}, [1]),
        (Annotated[int, Field(ge=3)], "3", 3, 3),
        (Area, {"side": 2}, Area(side=2), {"side": 2}),
        (
            Strict,
            {"day": "2024-01-02", "pair": [1, 2]},
            Strict(day=dt.date(2024, 1, 2), pair=(1, 2)),
            {"day": "2024-01-02", "pair": [1, 2]},
        ),
        (Renamed, {"class": "c"}, Renamed(**{"class": "c"}), {"class": "c"}),
    ],
)
def test_a_type_gives_an_instance_and_shows_json(schema, given, value, shown):
    one = make(input_schema=schema)
    validated = one.validate_input(given)
    assert validated.value == value
    assert validated.json_value == shown
    assert one.validate_input(validated.json_value).value == value


def test_what_would_not_come_back_is_shown_as_the_guest_gave_it():
    one = make(input_schema=Login)
    validated = one.validate_input({"secret": "s3", "hidden": 4})
    assert validated.json_value == {"secret": "s3", "hidden": 4}
    assert one.validate_input(validated.json_value).value == validated.value


def test_what_is_shown_is_a_copy():
    for schema in (None, ORDER_SCHEMA, dict[str, Any]):
        validated = make(input_schema=schema).validate_input({"customer": "c", "lines": [{"count": 1}]})
        before = json.dumps(validated.value)
        validated.json_value["lines"][0]["count"] = 2
        validated.json_value["lines"].append({})
        assert json.dumps(validated.value) == before


class Clumsy(BaseModel):
    x: int

    @field_validator("x")
    @classmethod
    def look_up(cls, value: int) -> int:
        return {}[value]

    @field_serializer("x")
    def write(self, value: int) -> int:
        return {}[value]


def test_what_a_validator_raises_by_accident_is_hidden():
    one = make(input_schema=Clumsy, output_schema=Clumsy)
    for check in (one.validate_input, one.validate_output):
        with pytest.raises(CodeModeToolError) as raised:
            check({"x": 12345})
        assert raised.value.code == "CODE_MODE_HOST_TOOL_ERROR"
        assert isinstance(raised.value.__cause__, KeyError)
        assert "12345" not in str(raised.value)


def test_type_problems_name_the_path():
    found = problems_of(make(input_schema=Order), {"lines": [{"sku": "s", "count": 0}]})
    assert [problem["path"] for problem in found] == ["customer", "lines[0].count"]
    assert "Field required" in found[0]["message"]
    assert "greater than or equal to 1" in found[1]["message"]


@pytest.mark.parametrize("schema", [lambda: asyncio.Event, lambda: "Nowhere"])
def test_a_type_that_pydantic_cannot_describe_is_a_value_error(schema):
    with pytest.raises(ValueError, match="input_schema of tool 'orders'"):
        make(input_schema=schema()).compile_schemas()


@each_row(
    "schema, returned, given",
    [
        (Order, Order(customer="c"), {"customer": "c", "lines": []}),
        (Order, {"customer": "c"}, {"customer": "c", "lines": []}),
        (Renamed, Renamed(**{"class": "c"}), {"class": "c"}),
        (list[dt.date], [dt.date(2024, 1, 2)], ["2024-01-02"]),
        ({"type": "object", "required": ["customer"]}, Order(customer="c"), {"customer": "c", "lines": []}),
        ({"type": "array", "items": {"type": "integer"}}, (1, 2), [1, 2]),
        ({"type": "string"}, dt.date(2024, 1, 2), "2024-01-02"),
    ],
)
def test_outputs_become_json(schema, returned, given):
    output = make(output_schema=schema).validate_output(returned)
    assert json.loads(encode_json(output, what="output")) == given


@pytest.mark.parametrize(
    ("schema", "returned", "path"),
    [
        (Order, {"customer": 5}, "customer"),
        (int, "x", ""),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": 1}, "a"),
        ({"type": "string"}, None, ""),
    ],
)
def test_a_tool_that_breaks_its_own_declaration(schema, returned, path):
    with pytest.raises(CodeModeToolError, match='Invalid output of tool "orders"') as raised:
        make(output_schema=schema).validate_output(returned)
    assert raised.value.details["problems"][0]["path"] == path
    assert raised.value.code == "CODE_MODE_TOOL_ERROR"


def test_an_output_that_cannot_be_json_names_the_tool():
    with pytest.raises(CodeModeSerializationError, match='Output of tool "orders" is not JSON'):
        make(output_schema={"type": "string"}).validate_output(object())
