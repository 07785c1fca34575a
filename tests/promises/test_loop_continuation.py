"""A continuation of any size is signed, packed and compared in pieces: nothing is one long call into C."""

from __future__ import annotations

import json
import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invocation_settings import NOW_MS, SETTINGS
from pausing import done_entry, waiting_entry

from codemode import CodeModeProtocolError, ContinuationOptions
from codemode.continuations import sealing
from codemode.continuations.sealing import encode_and_sign_continuation, verify_and_decode_continuation
from codemode.interrupts.interrupt import is_same_json
from codemode.protocol.continuation import Continuation, continuation_from_texts, continuation_to_texts
from codemode.protocol.ledger import Fulfilled, Ledger

PIECE_BYTES = 1 << 20
FORMS = [{}, {"compress": True}, {"seal": True}, {"seal": True, "compress": True}]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None)
@given(texts=st.lists(st.text(), max_size=5))
def test_loop_any_texts_come_back(form, texts):
    options = ContinuationOptions(keys="key", **form)
    packed = json.loads(json.dumps(encode_and_sign_continuation(texts, options, NOW_MS)))
    assert verify_and_decode_continuation(packed, options, NOW_MS)[0] == texts


@settings(deadline=None)
@given(st.lists(st.text(max_size=3), max_size=4), st.lists(st.text(max_size=3), max_size=4))
def test_loop_no_two_lists_of_texts_have_one_signature(texts, others):
    options = ContinuationOptions(keys="key")
    packed = encode_and_sign_continuation(texts, options, NOW_MS)
    if texts != others:
        with pytest.raises(CodeModeProtocolError, match="signature"):
            verify_and_decode_continuation({**packed, "body": others}, options, NOW_MS)


@pytest.mark.parametrize("form", FORMS[1:])
def test_loop_no_piece_of_a_packed_continuation_is_long(form):
    texts = ["short", secrets.token_hex(3 << 20), "\u00fc" * (1 << 20)]
    options = ContinuationOptions(keys="key", **form)
    packed = encode_and_sign_continuation(texts, options, NOW_MS)
    assert max(map(len, packed["body"])) <= PIECE_BYTES
    assert verify_and_decode_continuation(packed, options, NOW_MS)[0] == texts


def test_loop_what_goes_in_and_out_of_c_at_once_is_short(monkeypatch):
    """Whatever encodes, decodes, compresses or encrypts sees a piece at a time."""
    seen: list[int] = []

    def watched(name):
        real = getattr(sealing, name)

        def watching(data):
            seen.append(len(data))
            return real(data)

        return watching

    for name in ("urlsafe_b64encode", "urlsafe_b64decode"):
        monkeypatch.setattr(sealing, name, watched(name))
    options = ContinuationOptions(keys="key", seal=True, compress=True)
    text = secrets.token_hex(4 << 20)
    assert verify_and_decode_continuation(encode_and_sign_continuation([text], options, NOW_MS), options, NOW_MS)[
        0
    ] == [text]
    assert len(seen) > 20
    assert max(seen) <= PIECE_BYTES


def test_loop_what_a_call_gave_is_neither_escaped_nor_parsed_again():
    """The recorded texts are the very objects of the ledger: no copy, no escape, whatever their size."""
    value_json = json.dumps(['"'] * 1000)
    ledger = Ledger([done_entry(1, Fulfilled(value_json)), waiting_entry(2)], [1])
    texts = [*continuation_to_texts(Continuation.from_ledger("return 1", "engine", SETTINGS, ledger).to_dict())]
    assert any(text is value_json for text in texts)
    assert Continuation.from_dict(continuation_from_texts(texts)).ledger == ledger


@settings(deadline=None)
@given(st.integers(0, 20), st.text())
def test_loop_texts_that_were_not_made_here_are_refused(position, junk):
    ledger = Ledger([done_entry(1), waiting_entry(2)], [1])
    texts = [*continuation_to_texts(Continuation.from_ledger("return 1", "engine", SETTINGS, ledger).to_dict())]
    for changed in (texts[: position % 5], [*texts, junk], [junk], []):
        with pytest.raises(CodeModeProtocolError):
            Continuation.from_dict(continuation_from_texts(changed))


# --- comparing ---


@settings(deadline=None)
@given(json_values)
def test_loop_what_went_through_json_is_the_same(value):
    assert is_same_json(value, json.loads(json.dumps(value)))


@settings(deadline=None)
@given(json_values, json_values)
def test_loop_what_is_not_the_same_text_is_not_the_same(left, right):
    text, other = (json.dumps(_plain(value), sort_keys=True) for value in (left, right))
    assert is_same_json(left, right) is (text == other)


def _plain(value):
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def test_loop_comparing_ends_at_the_first_difference():
    class Endless(list):
        def __iter__(self):
            raise AssertionError("looked into")

    assert not is_same_json([1, Endless([1, 2])], [1, [1, 2, 3]])
    assert not is_same_json(Endless([1]), {"a": 1})


def test_loop_values_that_hold_themselves_end():
    left: list = [1]
    right: list = [1]
    left.append(left)
    right.append(right)
    assert is_same_json(left, right)
    assert not is_same_json(left, [1, [1, [1, []]]])
