"""Bound a server's stream of events, and rewrite its messages as the SDK reads them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import httpx2

from codemode.errors import CodeModeError
from codemode.host.threads import run_check

from .lines import BOM, read_event, without_bom
from .streams import Sending

_END_OF_LINE = re.compile(rb"\r\n|\n|\r")


class EventStream(httpx2.AsyncByteStream):
    """Events of a server. A stream that breaks off, or holds too large an event, ends: requests then have no answer.

    Data other than messages is left out. ``on_repair`` is called for a message that is not quite JSON-RPC. The last
    event needs no empty line behind it.
    """

    def __init__(self, stream: Any, sending: Sending, max_bytes: int, on_repair: Callable[[], None]) -> None:
        self._stream = stream
        self._sending = sending
        self._max_bytes = max_bytes
        self._on_repair = on_repair
        self._line = bytearray()
        self._fields: list[bytes] = []
        self._data: list[bytes] = []
        self._size = 0
        self._has_begun = self._ends_in_cr = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._stream)
        while True:
            try:
                async with self._sending.wanted():
                    piece = await anext(pieces, None)
                for line in self._lines(piece):
                    if event := await self._take_line(line):
                        yield event
            except (TimeoutError, httpx2.TransportError, CodeModeError):
                return
            if piece is None or len(self._line) + self._size > self._max_bytes:
                return

    def _lines(self, piece: bytes | None) -> Iterator[bytes]:
        """Yield the lines that end in a piece; without one, what is left, and the end of its event."""
        if piece is None:
            yield bytes(self._line)
            yield b""
            return
        if self._ends_in_cr and piece[:1] == b"\n":
            piece = piece[1:]  # the other half of that end
        self._ends_in_cr = piece[-1:] == b"\r"
        self._line += piece
        if b"\n" in piece or b"\r" in piece:
            *lines, rest = _END_OF_LINE.split(bytes(self._line))
            self._line = bytearray(rest)
            yield from lines

    async def _take_line(self, line: bytes) -> bytes:
        """Take a line; return the event that ends with it."""
        if not self._has_begun:
            self._has_begun, line = True, line.removeprefix(BOM)
        if line:
            self._size += len(line)
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            else:
                self._fields.append(line)
            return b""
        fields, data = self._fields, self._data
        self._fields, self._data, self._size = [], [], 0
        lines = fields + [b"data: " + one for one in await self._readable(fields, data)]
        return b"\n".join([*lines, b"", b""]) if lines else b""

    async def _readable(self, fields: list[bytes], data: list[bytes]) -> list[bytes]:
        named = next((line.partition(b":")[2].strip() for line in fields if line.startswith(b"event:")), b"message")
        if named != b"message" or not any(data):
            return data
        text = without_bom(b"\n".join(data))
        reading = await run_check(len(text), partial(read_event, text))
        if reading.message is None:
            return []
        if reading.is_repaired:
            self._on_repair()
            text = reading.text
        return text.split(b"\n")

    async def aclose(self) -> None:
        await self._stream.aclose()
