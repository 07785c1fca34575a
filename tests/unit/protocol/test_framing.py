"""Frames: cut at every boundary, and lengths that lie."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.errors import CodeModeProtocolError
from codemode.protocol.framing import FrameDecoder, encode_frame, split_messages
from codemode.protocol.message_decoder import decode_message
from codemode.protocol.messages import TurnEnded

MAXIMUM = 64
FRAMES = [(b"H", b"{}"), (b"T", b""), (b"V", b"x" * (MAXIMUM - 1)), (b"\x00", b"\xff\x00\n")]

frames = st.lists(st.tuples(st.binary(min_size=1, max_size=1), st.binary(max_size=MAXIMUM - 1)), max_size=6)


def bodies(items: list[tuple[bytes, bytes]]) -> list[bytes]:
    return [kind + payload for kind, payload in items]


def encoded(items: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(encode_frame(kind, payload) for kind, payload in items)


def test_the_length_counts_kind_and_payload():
    assert encode_frame(b"T", b"ab") == b"\x00\x00\x00\x03Tab"


@each_row("boundary", range(len(encoded(FRAMES)) + 1))
def test_a_stream_cut_at_any_boundary_gives_the_same_frames(boundary: int):
    data = encoded(FRAMES)
    decoder = FrameDecoder(MAXIMUM)
    first = decoder.feed(data[:boundary])
    assert first == bodies(FRAMES)[: len(first)]
    assert bool(decoder.buffer) == (boundary != len(encoded(FRAMES[: len(first)])))
    assert first + decoder.feed(data[boundary:]) == bodies(FRAMES)
    assert not bool(decoder.buffer)


def test_a_stream_of_single_bytes_gives_the_same_frames():
    decoder = FrameDecoder(MAXIMUM)
    got = [frame for byte in encoded(FRAMES) for frame in decoder.feed(bytes([byte]))]
    assert got == bodies(FRAMES)


@given(frames, st.lists(st.integers(0, 400), max_size=8))
def test_frames_come_out_as_they_went_in(items: list[tuple[bytes, bytes]], cuts: list[int]):
    data = encoded(items)
    decoder = FrameDecoder(MAXIMUM)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    got = [frame for start, end in pairwise(edges) for frame in decoder.feed(data[start:end])]
    assert got == bodies(items)
    assert not bool(decoder.buffer)


@pytest.mark.parametrize("length", [0, MAXIMUM + 1, 2**31, 2**32 - 1])
def test_a_length_that_cannot_be_is_refused_before_its_bytes_come(length: int):
    decoder = FrameDecoder(MAXIMUM)
    with pytest.raises(CodeModeProtocolError, match=f"{length} bytes"):
        decoder.feed(struct.pack(">I", length))


@pytest.mark.parametrize("length", [0, MAXIMUM + 1, 2**32 - 1])
def test_a_bad_length_behind_good_frames_is_refused(length: int):
    decoder = FrameDecoder(MAXIMUM)
    with pytest.raises(CodeModeProtocolError):
        decoder.feed(encoded(FRAMES) + struct.pack(">I", length))


@pytest.mark.parametrize("length", [1, MAXIMUM])
def test_the_smallest_and_the_largest_frame_pass(length: int):
    decoder = FrameDecoder(MAXIMUM)
    assert decoder.feed(struct.pack(">I", length) + b"T" * length) == [b"T" * length]


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_junk_gives_frames_or_the_protocol_error_and_no_hoard(chunks: list[bytes]):
    decoder = FrameDecoder(MAXIMUM)
    try:
        for chunk in chunks:
            for frame in decoder.feed(chunk):
                assert 1 <= len(frame) <= MAXIMUM
                read_or_refuse(frame)
            assert len(decoder.buffer) < MAXIMUM + 4
    except CodeModeProtocolError:
        pass


def read_or_refuse(frame: bytes) -> None:
    try:
        for message in split_messages(frame):
            assert b"\n" not in message
            decode_message(message)
    except CodeModeProtocolError:
        pass


@given(st.lists(st.binary(min_size=1, max_size=8).filter(lambda message: b"\n" not in message), min_size=1, max_size=6))
def test_the_messages_of_a_frame_come_out_as_they_went_in(messages: list[bytes]):
    assert [*split_messages(b"\n".join(messages))] == messages
    padded = [*messages, b"x" * 200_000]
    assert [*split_messages(b"\n".join(padded))] == padded


@each_row("frame", [b"\n", b"\n%b", b"%b\n", b"%b\n\n%b", b"%b" + b"\n" * 200_000])
def test_an_empty_message_is_refused_where_it_stands(frame: bytes):
    frame = frame.replace(b"%b", b'T{"in_flight":1}')
    messages = map(decode_message, split_messages(frame))
    if not frame.startswith(b"\n"):
        assert next(messages) == TurnEnded(1)
    with pytest.raises(CodeModeProtocolError, match="empty message"):
        next(messages)
