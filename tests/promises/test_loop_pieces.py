"""No single call into C takes long, whatever the values are like: long integers and texts count for what they take."""

from __future__ import annotations

import json
import sys
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pausing import PAUSING, start
from pydantic import BaseModel
from suite import rounds
from waiting import within

from codemode import CodeModeProtocolError, Interrupt, Tool, continue_interrupt, run_code_mode_sync
from codemode.data import json_values as values
from codemode.data.json_shape import find_exceeded_limit, has_longer_digit_run
from codemode.data.json_values import count_stringified_bytes, count_utf8_bytes, decode_json, encode_json
from codemode.data.plain_json import MAX_INT_DIGITS, encode_strict_json, has_cycle
from codemode.errors import CodeModeSerializationError
from codemode.host import steps

LONGEST = 10**MAX_INT_DIGITS - 1
TEXTS = st.text(st.sampled_from('\\"ab1\u00e9\ud800\udc00\n'), max_size=30)
SCALARS = st.none() | st.floats(allow_nan=False) | TEXTS | st.integers() | st.integers(0, 900).map(lambda n: 10**n)
VALUES = st.recursive(SCALARS, lambda inside: st.lists(inside) | st.dictionaries(TEXTS, inside))


class Noting(json.JSONEncoder):
    """Notes how many characters each call writes."""

    lengths: ClassVar[list[int]] = []

    def encode(self, o: Any) -> str:
        text = super().encode(o)
        self.lengths.append(len(text))
        return text


@pytest.mark.parametrize(
    "value",
    [
        [LONGEST] * 4000,
        {"a": [[LONGEST] * 50] * 80},
        {str(number): LONGEST for number in range(4000)},
        {LONGEST - number: 1 for number in range(4000)},
    ],
    ids=["list", "nested", "members", "keys"],
)
def test_loop_long_integers_are_written_a_few_at_a_time(value, monkeypatch):
    monkeypatch.setattr(Noting, "lengths", [])
    monkeypatch.setattr("codemode.data.plain_json.json.JSONEncoder", Noting)
    assert encode_strict_json(value) == "".join(
        json.encoder.JSONEncoder.iterencode(Noting(separators=(",", ":")), value)
    )
    assert max(Noting.lengths) <= (1 << 10) * (MAX_INT_DIGITS + 1) + 1


@settings(deadline=None)
@given(VALUES, st.sampled_from([0, 10, 999, 1000, 1001, 4000]), st.integers(1, 3000), st.booleans())
def test_loop_long_integers_are_found_wherever_they_stand(value, digits, size, in_text):
    one = "9" * digits
    text = json.dumps([value, one if in_text else int(one or "0"), value])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codemode.data.json_shape._SLICE_CHARACTERS", size)
        assert has_longer_digit_run(text, MAX_INT_DIGITS) == (digits > MAX_INT_DIGITS and not in_text)
        assert find_exceeded_limit(text, max_depth=600) is None


@pytest.mark.parametrize("limit", [0, 100_000])
def test_loop_integers_of_too_many_digits_are_neither_read_nor_written(limit):
    was = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(limit)
    try:
        with pytest.raises(ValueError, match="1000 digits"):
            decode_json(f'{{"a": [-{"9" * 50_000}]}}')
        for value in (LONGEST + 1, [-LONGEST - 1], {"a": {"b": 10**50_000}}, {LONGEST + 1: 1}, {LONGEST + 1}):
            with pytest.raises(CodeModeSerializationError):
                encode_json(value, what="it")
        for value in (LONGEST, [-LONGEST], {"a": [1.5, LONGEST]}):
            assert decode_json(encode_json(value, what="it")) == value
    finally:
        sys.set_int_max_str_digits(was)


def test_loop_too_long_an_integer_is_refused_in_every_direction():
    took: list[Any] = []
    strict = Tool("give", execute=lambda _: [1, LONGEST + 1], output_validation="strict")
    tools = [strict, Tool("give_part", execute=strict.execute), Tool("take", execute=took.append)]
    with pytest.raises(CodeModeSerializationError, match=r"tool 'give' is not JSON: more than 1000 digits.* at \[1\]"):
        run_code_mode_sync("return await tools.give()", tools)
    assert run_code_mode_sync("return await tools.give_part()", tools) == [1, None]
    with pytest.raises(CodeModeSerializationError, match="1000 digits"):
        run_code_mode_sync("return [10n ** 1000n]", tools)
    js = "try { await tools.take(10n ** 1000n) } catch (error) { return error.message }"
    assert run_code_mode_sync(js, tools) == "an integer of more than 1000 digits"
    assert took == []
    guarded = Tool("refund", execute=lambda value: value, needs_approval=True)
    paused = start("return await tools.refund({ order: 1 })", [guarded], PAUSING)
    assert isinstance(paused, Interrupt)
    edited = {"approved": True, "input": {"order": LONGEST + 1}}
    with pytest.raises(CodeModeProtocolError):
        within(continue_interrupt(paused, edited, tools=[guarded], options=PAUSING))


@settings(deadline=None, max_examples=rounds(30, 300))
@given(
    st.lists(st.text(st.sampled_from('\\"u01d8ef\x01\x7f\u00e9\u0800\ud800\udbff\udc00\udfff\U0001f600\n'))),
    st.integers(1, 20),
)
def test_loop_lengths_are_counted_alike_however_texts_are_cut(texts, size):
    text = encode_json(texts, what="it")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "_CHUNK_CHARACTERS", size)
        written = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
        assert count_stringified_bytes(text) == count_utf8_bytes(written)


@pytest.mark.parametrize("part", ["\\ud800", "\\udc00", "\\ud83d\\ude00", "\\\\", "\\\\\\u0001", "x", '\\"'])
def test_loop_no_piece_that_is_counted_is_large(part):
    text = f'"\\u00e9{part * 200_000}"'
    pieces = list(values._split_between_escapes(text))  # pyright: ignore[reportPrivateUsage]
    assert "".join(pieces) == text
    assert max(map(len, pieces)) < (1 << 14) + 20
    assert steps.run_with_step_budget(lambda: count_stringified_bytes(text), 1 << 62, lambda: 0) == count_utf8_bytes(
        json.dumps(json.loads(text), ensure_ascii=False)
    )


class Counted(list[Any]):
    """A list that notes how much of it was looked at."""

    looked_at = 0

    def __iter__(self) -> Any:
        for item in super().__iter__():
            self.looked_at += 1
            yield item


class Node(BaseModel):
    inside: list[Any] = []


def test_loop_a_look_for_circles_ends():
    long = Counted([0]) * 1_000_000
    long = Counted(long)
    assert not has_cycle(long)
    assert long.looked_at < 500_000
    assert not has_cycle([{1, 2, 3}] * 400_000)
    shared: Any = [1]
    for _ in range(60):
        shared = [shared, shared]
    assert not has_cycle(shared)


@pytest.mark.parametrize("wrap", [lambda one: [one], lambda one: {"a": one}, lambda one: ([one],)])
def test_loop_what_holds_itself_is_told_from_what_is_long(wrap):
    circle: list[Any] = [0] * 300
    circle.append(wrap(circle))
    assert has_cycle([Node.model_construct(inside=circle)])
    with pytest.raises(CodeModeSerializationError, match="circular"):
        encode_json(circle, max_values=2000, what="it")
