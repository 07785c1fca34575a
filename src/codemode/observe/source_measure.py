"""What may be told of a program's text: how long it is, and its hash."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from ..data.json_values import utf8_length
from ..host import steps

_PIECE_CHARACTERS = 1 << 16
_STEPS_FOR_A_PIECE = 25


class SourceMeasure(NamedTuple):
    """A text by its UTF-8 bytes and their SHA-256, which is None where nobody may know it or wants to."""

    source_bytes: int
    source_sha256: str | None


def measured(text: str, *, hashes: bool) -> SourceMeasure:
    """Measure a text, however long it is: in pieces, each of them some steps."""
    if not hashes:
        return SourceMeasure(utf8_length(text), None)
    size, digest = 0, hashlib.sha256()
    for start in range(0, len(text), _PIECE_CHARACTERS):
        steps.take(_STEPS_FOR_A_PIECE)
        piece = text[start : start + _PIECE_CHARACTERS].encode("utf-8", "backslashreplace")
        size += len(piece)
        digest.update(piece)
    return SourceMeasure(size, digest.hexdigest())
