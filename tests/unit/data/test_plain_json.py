"""Large plain values are cut into runs, looked at and written at once, and come out as the encoder writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.data import plain_json
from codemode.data.json_shape import holds_more_values_than
from codemode.data.json_values import canonical_json, encode_json
from codemode.data.plain_json import MAX_DEPTH, RUN_VALUES, plain_encoder, runs_of
from codemode.host import steps

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


@given(VALUES, st.integers(1, 9), st.booleans())
def test_what_is_written_in_runs_is_what_is_written_at_once(value, size, sort_keys):
    plain = json.dumps(value, separators=(",", ":"), sort_keys=sort_keys)
    write = plain_encoder(sort_keys=sort_keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_json, "RUN_VALUES", size)
        patch.setattr(plain_json, "_CHARACTERS_OF_A_VALUE", size)
        patch.setattr(plain_json, "_LONG_PLAIN_INTEGER", 2**130)
        runs = runs_of(value, sort_keys=sort_keys)
    if runs is not None:
        assert runs.text(write) == plain
    assert encode_json(value, what="it") == json.dumps(value, separators=(",", ":"))
    assert canonical_json(value) == json.dumps(value, separators=(",", ":"), sort_keys=True)


@given(VALUES, st.integers(1, 9), st.integers(0, 12))
def test_runs_count_values_as_everything_else_does(value, size, maximum):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_json, "RUN_VALUES", size)
        patch.setattr(plain_json, "_CONTAINERS_TO_OPEN", 100)
        patch.setattr(plain_json, "_LONG_PLAIN_INTEGER", 1 << 200)
        runs = runs_of(value, max_values=maximum)
    assert (runs is None) == holds_more_values_than(value, maximum)
    if runs is not None:
        assert holds_more_values_than(value, runs.values - 1)


@each_row(
    "value",
    [
        [{"id": i, "name": f"row {i}", "group": i % 7} for i in range(20_000)],
        {"pages": [{"rows": [{"a": [i]} for i in range(3000)]} for _ in range(4)], "next": None},
        {f"key {i}": i for i in range(20_000)},
        [["x" * 100_000] * 12, "y" * 3_000_000, {"z" * 1_000_000: 1}],
        [{f"{i}" * 100: i for i in range(1000)}],
        [[0.5] * 5000, 1, [0.5] * 5000, 2] * 3,
    ],
)
def test_no_run_is_large(value):
    sizes: list[int] = []

    def write(part: Any) -> str:
        text = json.dumps(part, separators=(",", ":"))
        sizes.append(len(text))
        return text

    runs = runs_of(value)
    assert runs is not None
    assert json.loads(runs.text(write)) == value
    assert max(sizes) < 2 * 128 * RUN_VALUES


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
        [LONGEST],
        [2**128],
        circular(),
        [circular()] * 5000,
        nested(513),
        shared(),
    ],
)
def test_what_is_not_plain_is_not_cut(value):
    assert runs_of(value) is None


def test_nesting_as_deep_as_it_may_be_is_plain():
    assert runs_of(nested(MAX_DEPTH)) is not None
    assert json.loads(encode_json(nested(MAX_DEPTH), what="it")) == nested(MAX_DEPTH)


def test_keys_of_a_very_wide_object_are_sorted():
    value = {f"{(i * 7919) % 100_003}": i for i in range(50_000)}
    assert canonical_json(value) == json.dumps(value, separators=(",", ":"), sort_keys=True)


@each_row("value", ["b", "", 1, None, {"a": "b"}, ["a", {"b": 1}]])
def test_a_small_value_takes_few_steps(value: Any) -> None:
    def too_many() -> int:
        raise AssertionError("a small value is no work for a thread")

    assert steps.run_metered(lambda: canonical_json(value), 20, too_many) == json.dumps(value, separators=(",", ":"))
