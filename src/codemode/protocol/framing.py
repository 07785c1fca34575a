"""Encode and decode length-prefixed frames of messages, without I/O.

A frame is a 4-byte big-endian length and its payload: one message, or from a worker several separated by line feeds. A
message is one byte of kind and a payload. A worker's payload is JSON text, which contains no line feed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from struct import Struct
from typing import TYPE_CHECKING

from ..data.json_values import count_utf8_bytes
from ..errors import CodeModeProtocolError

if TYPE_CHECKING:
    from ..data.large_strings import LargeStrings

_LENGTH = Struct(">I")
CHUNK_CHARACTERS = 1 << 17


def encode_frame(kind: bytes, payload: bytes) -> bytes:
    """Return one message as a frame; ``kind`` is a single byte."""
    return _LENGTH.pack(len(payload) + 1) + kind + payload


def iter_frame_chunks(kind: bytes, head: bytes, text: str, tail: bytes) -> Iterator[bytes]:
    """Yield one message as a frame, with the long text in the middle of its payload in chunks."""
    yield _LENGTH.pack(1 + len(head) + count_utf8_bytes(text) + len(tail)) + kind + head
    for start in range(0, len(text), CHUNK_CHARACTERS):
        yield text[start : start + CHUNK_CHARACTERS].encode()
    if tail:
        yield tail


def split_messages(frame: bytes) -> Iterable[bytes]:
    """Return the messages of a hostile frame, lazily if it is long: there may be millions."""
    return frame.split(b"\n") if len(frame) <= CHUNK_CHARACTERS else _split_lines(frame)


def _split_lines(frame: bytes) -> Iterator[bytes]:
    start = 0
    while start <= len(frame):
        end = frame.find(b"\n", start)
        end = len(frame) if end < 0 else end
        yield frame[start:end]
        start = end + 1


class FrameDecoder:
    """Cuts a hostile byte stream into frames. Raises `CodeModeProtocolError` on a bad length."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self.buffer = bytearray()
        """The part of a frame that has come; empty between frames."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that ``data`` completes, without their lengths."""
        buffer = self.buffer
        if not buffer and 4 < len(data) <= self._max_frame_bytes and _LENGTH.unpack_from(data)[0] == len(data) - 4:
            return [data[4:]]
        buffer += data
        frames: list[bytes] = []
        start = 0
        while len(buffer) - start >= 4:
            end = start + 4 + self._read_frame_length(buffer, start)
            if len(buffer) < end:
                break
            frames.append(bytes(memoryview(buffer)[start + 4 : end]))
            start = end
        if start:
            del buffer[:start]
        return frames

    def _read_frame_length(self, data: bytes | bytearray, start: int) -> int:
        (length,) = _LENGTH.unpack_from(data, start)
        # Checked first: a frame that claims 4 GiB must not make the host wait for it.
        if not 1 <= length <= self._max_frame_bytes:
            raise CodeModeProtocolError(f"the worker sent a frame of {length} bytes")
        return length


def iter_large_string_frames(large: LargeStrings) -> Iterator[bytes]:
    """Yield the frames of large strings, short ones together; a string that the guest has is sent as its number."""
    frames: list[bytes] = []
    size = 0
    for text, number in zip_longest(large.texts, large.repeats):
        if number is not None:
            frames.append(encode_frame(b"S", b"%d" % number))
            continue
        if len(text) > CHUNK_CHARACTERS:
            yield from [b"".join(frames)] if frames else ()
            yield from iter_frame_chunks(b"S", b"", text, b"")
            frames, size = [], 0
            continue
        frames.append(encode_frame(b"S", text.encode()))
        size += len(text)
        if size > CHUNK_CHARACTERS:
            yield b"".join(frames)
            frames, size = [], 0
    if frames:
        yield b"".join(frames)
