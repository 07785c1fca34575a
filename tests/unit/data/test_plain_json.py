"""Large values are written by orjson or a little at a time, and the text is always what `json` writes."""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.data import plain_json
from codemode.data.json_shape import has_more_values_than
from codemode.data.json_values import encode_canonical_json, encode_json
from codemode.data.plain_json import (
    MAX_DEPTH,
    can_encode_with_orjson,
    encode_json_in_steps,
    encode_strict_json,
    encode_with_orjson_or_in_steps,
)
from codemode.errors import CodeModeSerializationError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.integers(2**120, 2**140)
)
VALUES = st.recursive(
    SCALARS,
    lambda inside: st.lists(inside) | st.dictionaries(st.text('[{"\\,'), inside) | st.lists(inside).map(tuple),
)
LONGEST = 10**1000 - 1


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def as_json_writes(value: Any, *, sort_keys: bool = False) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=sort_keys)


@given(VALUES, st.integers(1, 9), st.booleans())
def test_text_is_what_json_writes_whichever_way_it_is_written(value, size, sort_keys):
    plain = as_json_writes(value, sort_keys=sort_keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_json, "_BATCH_VALUES", size)
        patch.setattr(plain_json, "_BATCH_MEMBERS", size)
        assert encode_strict_json(value, sort_keys=sort_keys) == plain
        assert encode_json_in_steps(value, sort_keys=sort_keys) == plain
        if can_encode_with_orjson(value):
            assert encode_with_orjson_or_in_steps(value, sort_keys=sort_keys) == plain
    assert encode_json(value, what="it") == as_json_writes(value)
    assert encode_canonical_json(value) == as_json_writes(value, sort_keys=True)


@given(VALUES, st.integers(1, 9), st.integers(0, 12))
def test_values_are_counted_as_everything_else_counts_them(value, size, maximum):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_json, "_BATCH_VALUES", size)
        patch.setattr(plain_json, "_are_floats_encoded_alike", lambda _: True)
        assert can_encode_with_orjson([value], maximum) == (not has_more_values_than([value], maximum))


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-400, 400).map(lambda n: 10.0 ** (n % 300)))
def test_numbers_that_orjson_may_write_are_written_alike(number):
    if can_encode_with_orjson([number]):
        assert encode_with_orjson_or_in_steps([number]) == repr([number])
    assert encode_strict_json([number, -number]) == as_json_writes([number, -number])


def circular() -> Any:
    value: list[Any] = [1, 2]
    value.append({"it": value})
    return value


def shared() -> Any:
    value: Any = [0] * 5000
    for _ in range(8):
        value = [value] * 5000
    return value


@each_row(
    "value",
    [
        {1},
        [b"x"],
        [{1: 2}],
        {"a": object()},
        [1e16],
        [0.00001],
        [math.nan],
        [uuid.UUID(int=1)],
        circular(),
        [circular()] * 5000,
        shared(),
    ],
)
def test_what_orjson_would_write_in_another_way_is_not_plain(value):
    assert not can_encode_with_orjson(value, 100_000)


def test_what_orjson_refuses_is_written_by_json():
    for value in (nested(400), [2**64, -(2**64)], ["\ud800", "\ude00x"], [{"\udfff": 1}], [LONGEST]):
        assert can_encode_with_orjson(value)
        assert encode_with_orjson_or_in_steps(value) == as_json_writes(value)


@each_row("value", [[math.nan] * 200, [{"a": -math.inf}] * 200, [dt.date.max] * 200, [uuid.UUID(int=1)] * 200])
def test_canonical_text_takes_plain_json_alone(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_canonical_json(value)


class Colour(enum.StrEnum):
    RED = "red"


class Number(int):
    pass


@each_row("value", [[Colour.RED] * 200, [Number(5)] * 200, [{Colour.RED: 1, 2: 3, None: 4, True: 5, 1.5: 6}] * 200])
def test_subclasses_and_other_keys_are_written_as_json_writes_them(value: Any) -> None:
    assert not can_encode_with_orjson(value)
    assert encode_json(value, what="it") == as_json_writes(value)


def test_text_outside_of_ascii_is_escaped():
    text = 'caf\u00e9 \U0001f600 \x7f \u2028 \x1f " \\' * 500
    assert encode_canonical_json({"it": [text]}) == as_json_writes({"it": [text]})


def test_nesting_as_deep_as_it_may_be_is_written():
    assert json.loads(encode_json(nested(MAX_DEPTH), what="it")) == nested(MAX_DEPTH)
    with pytest.raises(CodeModeSerializationError, match="deeper than 512"):
        encode_json(nested(MAX_DEPTH + 1), what="it")


def test_keys_of_a_very_wide_object_are_sorted():
    value = {f"{(i * 7919) % 100_003}": i for i in range(50_000)}
    assert encode_canonical_json(value) == as_json_writes(value, sort_keys=True)
    assert encode_json_in_steps(value, sort_keys=True) == as_json_writes(value, sort_keys=True)
