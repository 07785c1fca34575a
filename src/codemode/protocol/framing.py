"""Length-prefixed frames. Pure: bytes in, frames out; knows nothing of what a frame says.

A frame is a 4-byte big-endian length, one byte of kind and a payload; the length counts kind and payload.
"""

from __future__ import annotations

from struct import Struct

from ..errors import CodeModeProtocolError

_LENGTH = Struct(">I")


def encode_frame(kind: bytes, payload: bytes) -> bytes:
    """Return one frame; ``kind`` is a single byte."""
    return _LENGTH.pack(len(payload) + 1) + kind + payload


class FrameDecoder:
    """Cuts a hostile byte stream into ``(kind, payload)`` frames. Raises `CodeModeProtocolError` on a bad length."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the frames that ``data`` completes."""
        buffer = self._buffer
        buffer += data
        frames: list[tuple[bytes, bytes]] = []
        start = 0
        while len(buffer) - start >= 4:
            (length,) = _LENGTH.unpack_from(buffer, start)
            # Checked before anything is kept: a frame that claims 4 GiB must not make the host wait for them.
            if not 1 <= length <= self._max_frame_bytes:
                raise CodeModeProtocolError(f"the worker sent a frame of {length} bytes")
            if len(buffer) - start - 4 < length:
                break
            frames.append((bytes(buffer[start + 4 : start + 5]), bytes(buffer[start + 5 : start + 4 + length])))
            start += 4 + length
        if start:
            del buffer[:start]
        return frames

    @property
    def has_partial_frame(self) -> bool:
        """True when the stream stopped inside a frame."""
        return bool(self._buffer)
