"""Python values that a tool returns are declared as what arrives, for plain functions and tools of frameworks."""

from __future__ import annotations

import datetime as dt
import enum
import re
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from agents import function_tool
from langchain_core.tools import StructuredTool
from pydantic import BaseModel, Field
from pydantic_ai import Tool as PydanticAITool

from codemode import CallContext, Tool, create_code_mode_tool

DAY = dt.date(2024, 1, 2)
NOON = dt.datetime(2024, 1, 2, 12, tzinfo=dt.UTC)


class Colour(enum.Enum):
    RED = "red"
    TWO = 2


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Event:
    name: str
    day: dt.date


class Bill(BaseModel):
    total: Decimal
    paid: dt.datetime | None = None
    key: str = Field("SECRET", exclude=True)


class Place(NamedTuple):
    x: int
    seen: dt.date


RESULTS: list[tuple[Any, Any, str, Any]] = [
    (dt.datetime, NOON, "string", "2024-01-02T12:00:00Z"),
    (dt.date, DAY, "string", "2024-01-02"),
    (dt.time, dt.time(3, 4), "string", "03:04:00"),
    (dt.timedelta, dt.timedelta(hours=1), "string", "PT1H"),
    (Decimal, Decimal("1.50"), "string", "1.50"),
    (UUID, UUID(int=5), "string", "00000000-0000-0000-0000-000000000005"),
    (PurePosixPath, PurePosixPath("/tmp/x"), "string", "/tmp/x"),
    (set[int], {1}, "number[]", [1]),
    (frozenset[str], frozenset({"a"}), "string[]", ["a"]),
    (deque[int], deque([1]), "number[]", [1]),
    (Counter[str], Counter("aab"), "Record<string, number>", {"a": 2, "b": 1}),
    (dict[dt.date, Decimal], {DAY: Decimal("0.1")}, "Record<string, string>", {"2024-01-02": "0.1"}),
    (Colour, Colour.RED, '"red" | 2', "red"),
    (Level, Level.HIGH, "3", 3),
    (Place, Place(1, DAY), "[number, string]", [1, "2024-01-02"]),
    (tuple[int, dt.date], (1, DAY), "[number, string]", [1, "2024-01-02"]),
    (Event, Event("a", DAY), "{ name: string; day: string }", {"name": "a", "day": "2024-01-02"}),
    (
        list[Event],
        [Event("a", DAY)],
        "{ name: string; day: string }[]",
        [{"name": "a", "day": "2024-01-02"}],
    ),
    (Bill, Bill(total=Decimal(2)), "{ total: string; paid?: string | null }", {"total": "2", "paid": None}),
    (dt.date | None, None, "string | null", None),
]
WAYS: dict[str, Callable[[Any], Any]] = {
    "core": lambda function: function,
    "langchain": lambda function: StructuredTool.from_function(function, name="give"),
    "openai": lambda function: function_tool(function, name_override="give"),
    "pydantic-ai": lambda function: PydanticAITool(function, name="give"),
}


def giving(kind: Any, value: Any) -> Callable[[], Any]:
    def give() -> Any:
        """Give it."""
        return value

    give.__annotations__["return"] = kind
    return give


def declared_in(description: str) -> str:
    found = re.search(r"Promise<(.*?)>;\n", description, re.DOTALL)
    assert found is not None
    text = re.sub(r"/\*\*.*?\*/|\s+", " ", found[1])
    return re.sub(r" +", " ", text).replace("; }", " }")


@pytest.mark.parametrize("way", WAYS)
def test_what_is_declared_is_what_arrives(way: str, caplog: pytest.LogCaptureFixture):
    for kind, value, declared, arrives in RESULTS:
        code_mode = create_code_mode_tool([WAYS[way](giving(kind, value))])
        assert declared_in(code_mode.description).removesuffix("?") in (declared, declared.replace("?:", ":")), kind
        assert (
            code_mode.execute_sync({"js": "return await tools.give({})"}, call=CallContext(tool_call_id="c")) == arrives
        ), kind
    assert not [one for one in caplog.messages if "misses its schema" in one]


def test_bytes_arrive_as_the_text_that_is_declared():
    for value, arrives in [(b"abc", "abc"), (b"\xff\x00", "/wA=")]:
        code_mode = create_code_mode_tool([giving(bytes, value)])
        assert declared_in(code_mode.description) == "string"
        assert code_mode.execute_sync({"js": "return await tools.give()"}) == arrives


def test_values_that_a_json_schema_declares_arrive_as_it_says():
    for schema, value, arrives in [
        ({"type": "string", "format": "date-time"}, NOON, "2024-01-02T12:00:00Z"),
        ({"type": "number"}, Decimal("1.5"), 1.5),
        ({"type": "integer"}, Decimal(3), 3),
        ({"type": "string"}, Decimal("1.50"), "1.50"),
        ({"type": "array", "items": {"type": "string"}}, {"a": 1}.keys(), ["a"]),
        ({"type": "object"}, MappingProxyType({"a": Decimal(1)}), {"a": "1"}),
        ({"type": "object", "required": ["name"]}, Event("a", DAY), {"name": "a", "day": "2024-01-02"}),
        ({"enum": ["red", 2]}, Colour.TWO, 2),
    ]:
        tool = Tool("give", execute=giving(None, value), output_schema=schema)
        js = {"js": "return await tools.give()"}
        assert create_code_mode_tool([tool]).execute_sync(js) == arrives, schema
