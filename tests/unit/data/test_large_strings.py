"""Large strings are cut out of JSON text and put in again, and no string is taken for the place of one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.data import large_strings
from codemode.data.large_strings import (
    decode_json_with_large_strings,
    decode_large_string,
    expand_references,
    extract_large_strings,
    iterate_reference_numbers,
    may_have_references,
)

# What stands for a place, what ends and escapes a string, and what takes more than one byte.
TEXTS = st.text(alphabet='ab"\\0E1.+:,{[]}\u00e9\u4e16\U0001f600\n \x00', max_size=30)
SCALARS = st.one_of(TEXTS, st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.none(), st.booleans())
VALUES = st.recursive(
    SCALARS,
    lambda inside: st.one_of(st.lists(inside, max_size=5), st.dictionaries(TEXTS, inside, max_size=5)),
    max_leaves=20,
)


def written(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def strings_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings_of(one)


@pytest.fixture(params=[3, 7, 1 << 16])
def in_slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_strings, "_SLICE_CHARACTERS", request.param)
    monkeypatch.setattr(large_strings, "_CHUNK_CHARACTERS", max(12, request.param))
    monkeypatch.setattr(large_strings, "_MAX_SEARCH_CHARACTERS", 2 * request.param)
    monkeypatch.setattr(large_strings, "_MAX_BACKSLASHES", min(3, request.param))


@pytest.mark.usefixtures("in_slices")
def test_every_string_of_that_many_bytes_is_cut_out_and_put_in_again():
    @given(VALUES, st.integers(1, 12))
    def holds(value: Any, shortest: int) -> None:
        text = written(value)
        large = [one for one in strings_of(value) if len(one.encode()) >= shortest]
        cut = extract_large_strings(text, shortest)
        if cut is None:
            assert large == []
            return
        assert [decode_large_string(one) for one in cut.texts] == large
        assert list(cut.sizes) == [len(one.encode()) for one in large]
        assert list(iterate_reference_numbers(cut.rest_json)) == list(range(len(large)))
        assert expand_references(cut.rest_json, cut.texts.__getitem__) == text
        assert decode_json_with_large_strings(cut.rest_json, large.__getitem__) == value

    holds()


@given(VALUES)
def test_a_text_without_places_is_read_as_any_json(value: Any):
    def no_string(number: int) -> str:
        raise AssertionError(number)

    assert decode_json_with_large_strings(written(value), no_string) == value
    assert expand_references(written(value), no_string) == written(value)


@each_row("text", ['"0E0"', '["0E0"]', '{"0E0":"\\\\"}', '"\\"0E1"', '["\\\\",1,"0E0"]', "0e0", "-0E0", "10E0"])
def test_what_looks_like_a_place_is_none(text: str):
    assert list(iterate_reference_numbers(text)) == []
    assert decode_json_with_large_strings(text, "never".__getitem__) == json.loads(text)


@pytest.mark.parametrize(("text", "may"), [(None, False), ("[1]", False), ("[0E0]", True), ('"0E0"', True)])
def test_a_text_that_cannot_have_places_is_known_by_a_look(text: str | None, may: bool):
    assert may_have_references(text) is may


@pytest.mark.parametrize("length", range(12, 30))
def test_a_string_is_read_in_pieces_as_at_once(length: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(large_strings, "_CHUNK_CHARACTERS", length)

    @given(st.text(alphabet='a"\\u\u00e9\u4e16\U0001f600\n', max_size=40))
    def holds(string: str) -> None:
        text = written(string)
        assert decode_large_string(text) == string
        cut = extract_large_strings(text, 1)
        assert string == "" if cut is None else cut.sizes == (len(string.encode()),)

    holds()


def texts_of(*strings: str) -> Callable[[int], str]:
    return strings.__getitem__


def test_lone_surrogates_beside_a_large_string_are_replaced():
    text = '{"a\\ud800":["\\udc00",0E0,{"b":"\\ud83d\\ude00"}],"c":"\\uD800"}'
    read = decode_json_with_large_strings(text, texts_of("large"))
    assert read == {"a\ufffd": ["\ufffd", "large", {"b": "\U0001f600"}], "c": "\ufffd"}
    assert decode_json_with_large_strings('["\\ud800",0E0]', texts_of("\u00e9")) == ["\ufffd", "\u00e9"]
    assert decode_large_string('"\\ud800x"') == "\ufffdx"


@each_row("text", ["[0E0", "NaN", "[1e999]", "[" * 600 + "]" * 600, f"[{'1' * 1001}]"])
def test_what_is_no_json_is_refused(text: str):
    with pytest.raises(ValueError, match=r".+"):
        decode_json_with_large_strings(text, texts_of("large"))
