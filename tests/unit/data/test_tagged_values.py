"""Dates, bytes and sets become tagged JSON and come back, and no data is taken for a tag."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode.data.rich_values import from_tagged_json, tagged_to_plain_json, to_tagged_json
from codemode.errors import CodeModeSerializationError

NOON = datetime(2026, 1, 2, 12, 0, 0, 5000, UTC)
KEYS = st.sampled_from(["$rich", "$$rich", "$", "rich", "a"]) | st.text(max_size=3)
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
RICH = st.binary(max_size=5) | st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(microsecond=0))
VALUES = st.recursive(
    SCALARS | RICH | st.sets(st.text(max_size=3) | RICH, max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=20,
)


@dataclass
class Upload:
    at: datetime
    data: bytes


class Moment(NamedTuple):
    at: datetime


@given(VALUES)
def test_every_value_comes_back_as_it_was(value: Any):
    assert from_tagged_json(json.loads(json.dumps(to_tagged_json(value)))) == value


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner, max_size=2), max_leaves=20))
def test_plain_json_without_tags_stays_as_it_was(value: Any):
    assert tagged_to_plain_json(to_tagged_json(value)) == value


def test_values_are_tagged():
    west = timezone(timedelta(hours=-5))
    rows: list[tuple[Any, Any]] = [
        (NOON, {"$rich": ["Date", "2026-01-02T12:00:00.005Z"]}),
        (NOON.replace(tzinfo=None), {"$rich": ["Date", "2026-01-02T12:00:00.005Z"]}),
        (NOON.astimezone(west), {"$rich": ["Date", "2026-01-02T12:00:00.005Z"]}),
        (date(2026, 1, 2), {"$rich": ["Date", "2026-01-02T00:00:00.000Z"]}),
        (bytearray(b"\xff\x00"), {"$rich": ["Uint8Array", "/wA="]}),
        (memoryview(b"hi"), {"$rich": ["Uint8Array", "aGk="]}),
        (memoryview(b"h-i-")[::2], {"$rich": ["Uint8Array", "aGk="]}),
        (frozenset({3}), {"$rich": ["Set", [3]]}),
        (Moment(NOON), [{"$rich": ["Date", "2026-01-02T12:00:00.005Z"]}]),
        ((1, {b""}), [1, {"$rich": ["Set", [{"$rich": ["Uint8Array", ""]}]]}]),
        ({"$rich": ["Set", []]}, {"$$rich": ["Set", []]}),
        ({"$rich": 1, "b": 2}, {"$rich": 1, "b": 2}),
        (
            Upload(NOON, b"a"),
            {"at": {"$rich": ["Date", "2026-01-02T12:00:00.005Z"]}, "data": {"$rich": ["Uint8Array", "YQ=="]}},
        ),
        (3 + 4j, 3 + 4j),  # which whoever writes it as JSON refuses
    ]
    for value, tagged in rows:
        assert to_tagged_json(value) == tagged, value


def test_a_set_that_python_has_not_is_a_list():
    rows: list[tuple[list[Any], Any]] = [
        ([{"a": 1}], [{"a": 1}]),
        ([1, True], [1, True]),
        ([[1]], [[1]]),
        ([1, "1"], {1, "1"}),
    ]
    for items, value in rows:
        assert from_tagged_json({"$rich": ["Set", items]}) == value, items


def test_integers_of_one_hash_make_no_set():
    step = sys.hash_info.modulus
    items = [number * step for number in range(1, 20_000)]
    assert from_tagged_json({"$rich": ["Set", items]}) == items
    assert from_tagged_json({"$rich": ["Set", items[:3]]}) == set(items[:3])
    assert from_tagged_json({"$rich": ["Set", [*range(2000)]]}) == set(range(2000))


def test_tags_that_stand_for_nothing_are_refused():
    rows: list[tuple[Any, str]] = [
        (["Date", "2026-13-01T00:00:00.000Z"], "month must be in 1..12"),
        (["Date", "+012026-01-01T00:00:00.000Z"], "years 1 to 9999"),
        (["Date", "yesterday"], "years 1 to 9999"),
        (["Date", 5], "no known kind"),
        (["Uint8Array", "a"], "cannot be read"),
        (["Uint8Array", "!!!!"], "cannot be read"),
        (["Set", {"a": 1}], "no known kind"),
        (["Map", []], "no known kind"),
        ([], "no known kind"),
        (None, "no known kind"),
        ("Date", "no known kind"),
    ]
    for inner, message in rows:
        with pytest.raises(ValueError, match=message):
            from_tagged_json([{"$rich": inner}])


def test_what_is_too_deep_or_too_much_is_refused():
    circle: list[Any] = []
    circle += [circle, circle]
    node: Any = {}
    for _ in range(300):
        node = {"a": node}
    wide = Upload(NOON, b"")
    wide.__dict__["data"] = [wide, wide]
    for value in (circle, node, wide):
        with pytest.raises(CodeModeSerializationError, match=r"nests deeper than 200 levels|more than 1000 values"):
            to_tagged_json(value, max_values=1000)
    with pytest.raises(CodeModeSerializationError, match="years 1 to 9999"):
        to_tagged_json(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))))
