"""Lists of several servers as pages of one list, with cursors of our own. Pure: any host reads any host's cursor.

A cursor says behind which item it goes on, and where that was, in case it is no longer there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Generic, TypeVar

MAX_ITEMS = 500
MAX_CHARACTERS = 1_000_000
_MAX_CURSOR_CHARACTERS = 200
_TAG_BYTES = 9
_PURPOSE = b"codemode cursor 1:"

ItemT = TypeVar("ItemT")


class CursorError(ValueError):
    """A cursor that no list of this kind has given."""


class Paged(Generic[ItemT]):
    """A list in its order: each item with its key, which no other has, and the characters that it takes."""

    def __init__(self, kind: str, items: Sequence[tuple[str, int, ItemT]]) -> None:
        self._kind = kind
        self._items = items

    def page(self, cursor: str | None) -> tuple[list[ItemT], str | None]:
        """Return the items behind a cursor, and the cursor of the rest. Raises `CursorError`."""
        start = 0 if cursor is None else self._start(cursor)
        page: list[ItemT] = []
        room = MAX_CHARACTERS
        for _, characters, item in self._items[start : start + MAX_ITEMS]:
            room -= characters
            if room < 0 and page:
                break
            page.append(item)
        end = start + len(page)
        if end >= len(self._items):
            return page, None
        key = self._items[end - 1][0]
        return page, _written(self._kind, end, _digest(key))

    def _start(self, cursor: str) -> int:
        position, digest = _read(self._kind, cursor)
        if 0 < position <= len(self._items) and _digest(self._items[position - 1][0]) == digest:
            return position
        found = (at for at, (key, _, _) in enumerate(self._items, 1) if _digest(key) == digest)
        return next(found, min(position, len(self._items)))


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _written(kind: str, position: int, digest: str) -> str:
    body = f"{kind}:{position}:{digest}".encode()
    return base64.urlsafe_b64encode(body + _tag(body)).rstrip(b"=").decode()


def _read(kind: str, cursor: str) -> tuple[int, str]:
    try:
        if len(cursor) > _MAX_CURSOR_CHARACTERS:
            raise CursorError
        raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        body, tag = raw[:-_TAG_BYTES], raw[-_TAG_BYTES:]
        of_kind, position, digest = body.decode("ascii").split(":")
    except (ValueError, binascii.Error):
        raise CursorError(f"this cursor is none that {kind} has given: begin again without one") from None
    if of_kind != kind or not hmac.compare_digest(tag, _tag(body)):
        raise CursorError(f"this cursor is none that {kind} has given: begin again without one")
    return int(position), digest


def _tag(body: bytes) -> bytes:
    # Against mistakes, not against forgery: a forged one leads to a place in the same list.
    return hashlib.sha256(_PURPOSE + body).digest()[:_TAG_BYTES]
