"""Lines of a client, of any length and content: a message, an answer to what is none, or nothing."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway.gateway.stdio import LineSplitter, OversizedLine, parse_line
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from suite import each_row


@given(st.lists(st.binary(max_size=30).map(lambda data: data.replace(b"\n", b" "))), st.data())
def test_lines_come_out_as_they_went_in_however_they_are_cut(wanted: list[bytes], data: st.DataObject):
    whole = b"".join(line + b"\n" for line in wanted)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    lines = LineSplitter()
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert [line for piece in pieces for line in lines.feed(piece)] == wanted


@given(st.integers(0, 5), st.integers(1, 7))
def test_a_line_that_is_too_long_is_dropped_alone(before: int, step: int):
    whole = b"a\n" * before + b"x" * 50 + b"\nb\n"
    lines = LineSplitter(max_bytes=10)
    found = [line for at in range(0, len(whole), step) for line in lines.feed(whole[at : at + step])]
    assert found[:before] == [b"a"] * before
    assert isinstance(found[before], OversizedLine)
    assert found[before + 1 :] == [b"b"]


def test_nothing_of_a_long_line_is_kept():
    lines = LineSplitter(max_bytes=10)
    for _ in range(1_000):
        assert lines.feed(b"x" * 1_000) == []
    assert len(lines._partial) <= 10


def refused(line: bytes) -> tuple[int, Any]:
    answer = parse_line(line)
    assert isinstance(answer, types.JSONRPCError)
    return answer.error.code, answer.id


@pytest.mark.parametrize("wrong", [b"null", b"1.5", b"true", b"{}"])
def test_a_request_whose_id_is_none_is_owed_an_answer(wrong: bytes):
    assert refused(b'{"jsonrpc":"2.0","method":"ping","id":' + wrong + b"}") == (types.INVALID_REQUEST, None)
    said = parse_line(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"id":1}}')
    assert isinstance(said, SessionMessage)


def test_a_message_is_a_message():
    said = parse_line(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    assert isinstance(said, SessionMessage)
    assert isinstance(said.message, types.JSONRPCRequest)


@each_row("line", [b"hello", b"{", b'{"jsonrpc":"2.0","id":1,"meth', b"\xff\xfe", b"[" * 100_000, b"nul\x00"])
def test_what_is_no_json_is_answered_as_such(line: bytes):
    assert refused(line) == (types.PARSE_ERROR, None)


@each_row(
    "line, request_id",
    [
        (b'{"jsonrpc":"2.0","id":7,"method":5}', 7),
        (b'{"jsonrpc":"1.0","id":"seven","method":"ping"}', "seven"),
        (b'{"id":7,"method":"ping","params":[1]}', 7),
        (b"[]", None),
        (b"7", None),
        (b'"text"', None),
    ],
)
def test_what_is_no_request_is_answered_under_its_id(line: bytes, request_id: Any):
    assert refused(line) == (types.INVALID_REQUEST, request_id)


@each_row("line", [b"", b"  \t\r", b'{"jsonrpc":"2.0","method":7}', b'{"jsonrpc":"2.0","id":1,"result":7}', b"{}"])
def test_what_wants_no_answer_gets_none(line: bytes):
    assert parse_line(line) is None


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(line: bytes):
    assert isinstance(parse_line(line), SessionMessage | types.JSONRPCError | None)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)))
def test_no_json_breaks_the_reader(value: Any):
    assert isinstance(parse_line(json.dumps(value).encode()), SessionMessage | types.JSONRPCError | None)
