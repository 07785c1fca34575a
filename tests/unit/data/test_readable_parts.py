"""Of a value that is no JSON as a whole, what can be read is read, and the rest is named with its place."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_serializer

from codemode.data.plain_json import read_encodable_part


class Handle:
    pass


@dataclass
class Session:
    user: str
    lock: Any = field(default_factory=threading.Lock)


class Model(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    user: str
    handle: Any = None
    key: str = Field("SECRET", exclude=True)


class Hiding(BaseModel):
    key: str = "SECRET"

    @model_serializer
    def write(self) -> Any:
        raise KeyError


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {"n": 1}
    value["self"] = value
    return value


READ: list[tuple[Any, Any, list[str]]] = [
    ({"ok": True, "handle": Handle()}, {"ok": True}, ["handle"]),
    ([1, Handle(), "a"], [1, None, "a"], ["[1]"]),
    ({"rows": [{"n": 1, "h": Handle()}]}, {"rows": [{"n": 1}]}, ["rows[0].h"]),
    ({"rows": [], "h": Handle()}, {"rows": []}, ["h"]),
    (circular(), {"n": 1}, ["self"]),
    ({"raw": b"\xff\x00", "text": b"abc"}, {"raw": "/wA=", "text": "abc"}, ["raw"]),
    (b"\xff\x00", "/wA=", [""]),
    ({1: "a", (1, 2): "b", "h": Handle()}, {1: "a", "1,2": "b"}, ["h"]),
    ({"a": 1, b"\xff": 2}, {"a": 1}, [""]),
    ({"r": range(2), "h": Handle()}, {"r": [0, 1]}, ["h"]),
    ({"n": 10**2000, "m": 1}, {"m": 1}, ["n"]),
    (Session("ann"), {"user": "ann"}, ["lock"]),
    (Model(user="ann", handle=Handle()), {"user": "ann"}, ["handle"]),
    ({"hiding": Hiding(), "n": float("nan")}, {"n": None}, ["hiding"]),
]


def test_what_can_be_read_is_read():
    for given, expected, places in READ:
        found, problems = read_encodable_part(given, 1000)
        assert found == expected, given
        assert [place for place, _ in problems] == places, given


def test_where_nothing_can_be_read_an_error_says_so():
    for given in (Handle(), {"handle": Handle()}, [Handle()], [[{"a": Handle()}]], Hiding()):
        with pytest.raises(ValueError, match="nothing of it"):
            read_encodable_part(given, 1000)


def test_deep_values_end():
    value: Any = {"n": 1, "h": Handle()}
    for _ in range(300):
        value = {"n": 1, "inside": value}
    found, problems = read_encodable_part(value, 1000)
    assert found["n"] == 1
    assert "too deep" in problems[0][1]
