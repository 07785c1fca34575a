"""Every kind of value as the JSON that a person is shown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum

from codemode_pydantic_ai.content import to_displayed_arguments
from pydantic import AliasChoices, AliasPath, BaseModel, Field, RootModel, Secret
from pydantic.dataclasses import dataclass as pydantic_dataclass


class Colour(Enum):
    RED = "red"


class Rows(RootModel[list[int]]):
    pass


@dataclass
class Point:
    x: int
    when: datetime


class Choices(BaseModel):
    here: int = Field(validation_alias=AliasChoices("there", "anywhere"))


class Unknown:
    pass


class Money:
    __slots__ = ("__dict__", "currency")

    def __init__(self, cents: int, currency: str) -> None:
        self.cents = cents
        self.currency = currency


class Known(BaseModel, extra="allow"):
    cents: int = Field(validation_alias=AliasPath("path", "cents"))


@pydantic_dataclass
class Aliased:
    cents: int = Field(alias="Cents")


def halved(value: int) -> int:
    return value // 2


def test_every_kind_of_value_can_be_shown() -> None:
    values = {
        "colour": Colour.RED,
        "rows": Rows([1, 2]),
        "point": Point(1, datetime(2030, 1, 2)),  # noqa: DTZ001 - a time as a person wrote it
        "choices": Choices(there=1),
        "set": {3, 1, 2},
        "tuple": (1, 2),
        "bytes": b"ab",
        "nan": float("nan"),
        "big": 2**70,
        "unknown": Unknown(),
        "money": Money(5, "EUR"),
        "function": halved,
        "secret": Secret(date(2030, 1, 2)),
        "alike": {1: "a", "1": "b"},
        "extra": Known.model_validate({"path": {"cents": 1}, "cents": 2}),
        "aliased": Aliased(Cents=3),
        "keys": {1: {"deep": [True, None]}},
    }
    assert to_displayed_arguments(values, None) == {
        "colour": "red",
        "rows": [1, 2],
        "point": {"x": 1, "when": "2030-01-02T00:00:00"},
        "choices": {"there": 1},
        "set": [1, 2, 3],
        "tuple": [1, 2],
        "bytes": "ab",
        "nan": "nan",
        "big": 2**70,
        "unknown": "<Unknown>",
        "money": {"<Money>": {"currency": "EUR", "cents": 5}},
        "function": f"<function {__name__}.halved>",
        "secret": "2030-01-02",
        "alike": {"1": "a", "1 (2)": "b"},
        "extra": {"cents": 1, "cents (2)": 2},
        "aliased": {"Cents": 3},
        "keys": {"1": {"deep": [True, None]}},
    }
