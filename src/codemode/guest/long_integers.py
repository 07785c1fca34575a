"""Detects JSON that may hold integers beyond a JavaScript number. Loaded by path. Pure."""

from __future__ import annotations

SCAN_CHUNK_BYTES = 1 << 16
# An integer beyond 2^53 has sixteen digits, behind what may stand before a number in JSON without spaces.
_LONG_INTEGER_SHAPE = b":" + b"0" * 16
_SHAPE_TABLE = bytes(48 if 48 <= byte <= 57 else 58 if byte in b"[,:-" else 32 for byte in range(256))


def may_hold_long_integers(body: bytes | memoryview) -> bool:
    """False for most values: the parser need not look at every number again, which takes four times as long."""
    if len(body) <= SCAN_CHUNK_BYTES:
        return _part_may_hold_long_integer(body)
    return any(
        _part_may_hold_long_integer(body[at : at + SCAN_CHUNK_BYTES + 16])
        for at in range(0, len(body), SCAN_CHUNK_BYTES)
    )


def _part_may_hold_long_integer(part: bytes | memoryview) -> bool:
    return _LONG_INTEGER_SHAPE in bytes(part).translate(_SHAPE_TABLE)
