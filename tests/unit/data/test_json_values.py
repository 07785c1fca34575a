import dataclasses
import datetime as dt
import decimal
import enum
import json
import sys
import time
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import each_row

from codemode.data.json_values import (
    MAX_DEPTH,
    CachedJsonObject,
    count_stringified_bytes,
    count_utf8_bytes,
    decode_json,
    encode_canonical_json,
    encode_canonical_object,
    encode_json,
    nests_deeper_than,
)
from codemode.errors import CodeModeSerializationError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def unescaped(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@settings(deadline=None)
@given(JSON)
def test_what_is_encoded_decodes_to_the_same(value):
    text = encode_json(value, what="value")
    assert text.isascii()
    assert decode_json(text) == json.loads(text)


@settings(deadline=None)
@given(st.recursive(SCALARS, st.lists))
def test_values_without_keys_survive_unchanged(value):
    assert decode_json(encode_json(value, what="value")) == value


@settings(deadline=None)
@given(JSON)
def test_sizes_are_those_of_unescaped_json(value):
    # Python writes a lone surrogate as it is, JSON.stringify writes six characters: so does backslashreplace.
    size = len(unescaped(value).encode("utf-8", "backslashreplace"))
    assert count_stringified_bytes(encode_json(value, what="value")) == size
    encode_json(value, max_bytes=size, what="value")
    with pytest.raises(CodeModeSerializationError) as raised:
        encode_json(value, max_bytes=size - 1, what="Output of x")
    assert raised.value.details == {"bytes": size, "max_bytes": size - 1}
    assert str(raised.value).startswith("Output of x ")
    assert str(size) in str(raised.value)
    assert str(size - 1) in str(raised.value)


def depth(value):
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 0


TRICKY = st.text(st.sampled_from('[]{}"\\\\,:a\U0001f600'))
NESTED = st.recursive(
    TRICKY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TRICKY, inner, max_size=3),
    max_leaves=40,
)


@settings(deadline=None)
@given(NESTED, st.booleans(), st.integers(0, 12))
def test_depth_is_measured_exactly_whatever_strings_hold(value, ascii_only, limit):
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert nests_deeper_than(text, limit) == (depth(value) > limit)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":[', "]}]")])
def test_depth_at_the_boundary(opening, closing):
    levels = opening.count("[") + opening.count("{")
    fits = MAX_DEPTH // levels
    assert decode_json(opening * fits + "1" + closing * fits) is not None
    with pytest.raises(ValueError, match="deeper than 512"):
        decode_json(opening * (fits + 1) + "1" + closing * (fits + 1))


def test_depth_is_found_between_wide_data_and_brackets_in_strings():
    wide = ",".join(['{"a":"[[[[}}}"}'] * 5000)
    assert len(decode_json(f"[{wide}]")) == 5000
    with pytest.raises(ValueError, match="deeper"):
        decode_json(f"[{wide},{'[' * 600}{']' * 600}]")


@each_row("text", ["[" * 2_000_000, '{"a":' * 400_000, '"' + '\\"[' * 500_000, '["' * 500_000, "[]" * 1_000_000])
def test_hostile_text_ends_quickly(text):
    started = time.thread_time()
    with pytest.raises(ValueError, match=r"."):
        decode_json(text)
    # What is not quick takes hours; the allowance is for a slow processor.
    assert time.thread_time() - started < 5


def test_a_raised_recursion_limit_does_not_lift_the_depth_cap():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)
    try:
        with pytest.raises(ValueError, match="deeper"):
            decode_json("[" * 500_000)
    finally:
        sys.setrecursionlimit(before)


@each_row(
    "text",
    ["NaN", "Infinity", "-Infinity", "[NaN]", "1e999", "-1e999", "1" * 400 + ".5", "9" * 4301, "", "{", "'a'", "01"],
)
def test_what_is_not_json_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        decode_json(text)


def test_huge_integers_are_refused_when_the_process_lifted_its_guard():
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        with pytest.raises(ValueError, match="1000 digits"):
            decode_json("9" * 100_000)
        assert decode_json("9" * 1000) == 10**1000 - 1
    finally:
        sys.set_int_max_str_digits(before)


def test_the_last_of_duplicate_keys_wins():
    assert decode_json('{"a":1,"a":2}') == {"a": 2}


@each_row(
    "text, value",
    [
        (r'"\ud800x"', "\ufffdx"),
        (r'"\uDC00"', "\ufffd"),
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'{"\ud800":["\udfff"]}', {"\ufffd": ["\ufffd"]}),
        (r'"\\ud800"', "\\ud800"),
    ],
)
def test_lone_surrogates_become_replacement_characters(text, value):
    decoded = decode_json(text)
    assert decoded == value
    assert json.dumps(decoded, ensure_ascii=False).encode()


def test_proto_is_an_ordinary_key():
    assert decode_json('{"__proto__":{"a":1}}') == {"__proto__": {"a": 1}}


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    when: dt.date


@each_row(
    "value, text",
    [
        (float("nan"), "null"),
        ([1.5, float("inf"), {"a": float("-inf")}], '[1.5,null,{"a":null}]'),
        ((1, 2), "[1,2]"),
        ({1: "a"}, '{"1":"a"}'),
        (2**64 + 1, "18446744073709551617"),
        ([2**64, float("nan")], "[18446744073709551616,null]"),
        (dt.date(2024, 1, 2), '"2024-01-02"'),
        ({"a": {uuid.UUID(int=1)}}, '{"a":["00000000-0000-0000-0000-000000000001"]}'),
        (decimal.Decimal("1.50"), '"1.50"'),
        (Colour.RED, '"red"'),
        (b"hi", '"hi"'),
        ([Point(1, dt.date(2024, 1, 2)), float("nan")], '[{"x":1,"when":"2024-01-02"},null]'),
        ({dt.date(2024, 1, 2): 1}, '{"2024-01-02":1}'),
    ],
)
def test_host_values_become_json(value, text):
    assert encode_json(value, what="value") == text


def circular():
    value = {"list": []}
    value["list"].append(value)
    return value


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


@each_row(
    "value, said",
    [
        ({"a": [1, object()]}, "builtins.object at .a[1]"),
        ({"a b": lambda: 1}, "builtins.function at ['a b']"),
        (circular(), "a circular reference at .list[0]"),
        ({"a": b"\xff"}, "builtins.bytes at .a"),
        (nested(513), "nests deeper than 512"),
        (nested(100_000), "nests deeper than 512"),
        ([10**5000], "builtins.int at [0]"),
    ],
)
def test_what_is_not_json_names_the_place_and_the_type(value, said):
    with pytest.raises(CodeModeSerializationError) as raised:
        encode_json(value, what='Output of tool "x"')
    assert str(raised.value).startswith('Output of tool "x" ')
    assert said in str(raised.value)
    assert raised.value.code == "CODE_MODE_SERIALIZATION_ERROR"


def test_a_value_used_twice_is_not_circular():
    shared = [object()]
    with pytest.raises(CodeModeSerializationError, match=r"builtins\.object at"):
        encode_json({"a": shared, "b": shared}, what="value")


def test_canonical_json_is_one_form():
    assert encode_canonical_json({"b": [1, "é"], "a": {"d": 1, "c": 2}}) == encode_canonical_json(
        {"a": {"c": 2, "d": 1}, "b": [1, "é"]}
    )
    assert encode_canonical_json({"b": 1, "a": "é"}) == '{"a":"\\u00e9","b":1}'
    with pytest.raises(ValueError, match="JSON compliant"):
        encode_canonical_json(float("nan"))


@pytest.mark.parametrize(("text", "length"), [("abc", 3), ("é", 2), ("\U0001f600", 4), ("\ud800", 6)])
def test_utf8_length(text, length):
    assert count_utf8_bytes(text) == length


@given(st.dictionaries(st.text(), JSON), st.sets(st.integers(0, 8)), st.dictionaries(st.text(), JSON))
def test_a_member_that_was_written_before_makes_no_difference(members, places, written):
    made = {
        key: CachedJsonObject(written) if at in places else value for at, (key, value) in enumerate(members.items())
    }
    assert encode_canonical_object(made) == encode_canonical_json({**made})
    assert encode_canonical_object(made) == json.dumps(made, separators=(",", ":"), sort_keys=True)
