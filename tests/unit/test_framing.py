"""Frames: cut at every boundary, and lengths that lie."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode.errors import CodeModeProtocolError
from codemode.protocol.framing import FrameDecoder, encode_frame

MAXIMUM = 64
FRAMES = [(b"H", b"{}"), (b"T", b""), (b"V", b"x" * (MAXIMUM - 1)), (b"\x00", b"\xff\x00\n")]

frames = st.lists(st.tuples(st.binary(min_size=1, max_size=1), st.binary(max_size=MAXIMUM - 1)), max_size=6)


def encoded(items: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(encode_frame(kind, payload) for kind, payload in items)


def test_the_length_counts_kind_and_payload():
    assert encode_frame(b"T", b"ab") == b"\x00\x00\x00\x03Tab"


@pytest.mark.parametrize("boundary", range(len(encoded(FRAMES)) + 1))
def test_a_stream_cut_at_any_boundary_gives_the_same_frames(boundary: int):
    data = encoded(FRAMES)
    decoder = FrameDecoder(MAXIMUM)
    first = decoder.feed(data[:boundary])
    assert first == FRAMES[: len(first)]
    assert decoder.has_partial_frame == (boundary != len(encoded(first)))
    assert first + decoder.feed(data[boundary:]) == FRAMES
    assert not decoder.has_partial_frame


def test_a_stream_of_single_bytes_gives_the_same_frames():
    decoder = FrameDecoder(MAXIMUM)
    got = [frame for byte in encoded(FRAMES) for frame in decoder.feed(bytes([byte]))]
    assert got == FRAMES


@given(frames, st.lists(st.integers(0, 400), max_size=8))
def test_frames_come_out_as_they_went_in(items: list[tuple[bytes, bytes]], cuts: list[int]):
    data = encoded(items)
    decoder = FrameDecoder(MAXIMUM)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    got = [frame for start, end in pairwise(edges) for frame in decoder.feed(data[start:end])]
    assert got == items
    assert not decoder.has_partial_frame


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
    assert decoder.feed(struct.pack(">I", length) + b"T" * length) == [(b"T", b"T" * (length - 1))]


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_junk_gives_frames_or_the_protocol_error_and_no_hoard(chunks: list[bytes]):
    decoder = FrameDecoder(MAXIMUM)
    try:
        for chunk in chunks:
            for kind, payload in decoder.feed(chunk):
                assert len(kind) == 1
                assert len(payload) < MAXIMUM
            assert len(decoder._buffer) < MAXIMUM + 4
    except CodeModeProtocolError:
        pass
