"""Which JSON a worker reads with care for integers that a JavaScript number cannot hold."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.guest.long_integers import SCAN_CHUNK_BYTES, may_hold_long_integers

LEAVES = st.none() | st.booleans() | st.integers(-(10**14), 10**14) | st.text(max_size=8)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=4), inner), max_leaves=9
    )


def frame(value: Any) -> bytes:
    return b'{"id":1,"value":%b}' % json.dumps(value, separators=(",", ":")).encode()


@given(value=nested(LEAVES))
def test_most_values_are_read_as_they_are(value):
    assert not may_hold_long_integers(frame(value))


@given(value=nested(LEAVES), long=st.integers(2**53, 10**40), is_negative=st.booleans())
def test_a_long_integer_is_always_seen(value, long, is_negative):
    integer = -long if is_negative else long
    for body in (frame([value, integer]), frame({"a": integer, "b": value}), frame(integer)):
        assert may_hold_long_integers(body)
        assert may_hold_long_integers(memoryview(body))


@each_row("before", [*range(SCAN_CHUNK_BYTES - 20, SCAN_CHUNK_BYTES + 3), 2 * SCAN_CHUNK_BYTES - 9])
def test_one_across_the_parts_that_are_scanned_is_seen(before):
    body = b" " * before + b":" + b"9" * 16 + b" " * 9
    assert may_hold_long_integers(body)
    assert not may_hold_long_integers(body.replace(b"9" * 16, b"9" * 15))
