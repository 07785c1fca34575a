"""Images and audio inside a result: taken out of it, with a reference in their place. Reads no file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from codemode.data.narrowing import is_array, is_object
from codemode.host import steps

_MOST_BLOCKS = 64
_CHARACTERS_OF_A_STEP = 7  # as a power of two
_MIME = {kind: re.compile(rf"{kind}/[A-Za-z0-9][A-Za-z0-9.+-]{{0,99}}") for kind in ("image", "audio")}
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True)
class Media:
    """One block: its ``data`` in base64, its kind and its MIME type."""

    kind: Literal["image", "audio"]
    data: str
    mime_type: str


def taken_out(result: Any) -> tuple[Any, list[Media]]:
    """Return a result without its images and audio, and those. What has none is returned itself.

    A block is an object with the ``type`` image or audio, its ``data`` in base64 and a ``mimeType`` of that type;
    anything else stays what it is. Of equal ones there is one block. In the place of a block stands
    ``{"type", "mimeType", "block": <its number among those of the answer, from 1>}``.
    """
    found: dict[Media, int] = {}
    holder: list[Any] = [None]
    pending: list[tuple[Any, Any, Any]] = [(result, holder, 0)]
    while pending:
        value, into, at = pending.pop()
        into[at] = _copied(value, found, pending)
    return (holder[0], list(found)) if found else (result, [])


def _copied(value: Any, found: dict[Media, int], pending: list[tuple[Any, Any, Any]]) -> Any:
    """Return a copy of one value whose members are filled in later, or the reference to a block."""
    steps.take(1 + (len(value) >> _CHARACTERS_OF_A_STEP) if isinstance(value, str) else 1)
    if is_object(value):
        media = _media_of(value)
        if media is not None and (media in found or len(found) < _MOST_BLOCKS):
            number = found.setdefault(media, len(found) + 1)
            return {"type": media.kind, "mimeType": media.mime_type, "block": number}
        copy: Any = dict(value)
        pending += [(member, copy, name) for name, member in copy.items()]
        return copy
    if is_array(value):
        items: list[Any] = list(value)
        pending += [(items[at], items, at) for at in reversed(range(len(items)))]
        return items
    return value


def _media_of(value: Any) -> Media | None:
    kind, data, mime_type = value.get("type"), value.get("data"), value.get("mimeType")
    if kind not in ("image", "audio") or not isinstance(data, str) or not isinstance(mime_type, str):
        return None
    if _MIME[kind].fullmatch(mime_type) is None or len(data) % 4 or _BASE64.fullmatch(data) is None:
        return None
    return Media(kind, data, mime_type)
