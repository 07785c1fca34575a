"""Reads a request's body, whole and within bounds, before anything behind the door sees the request."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any, NamedTuple

from pydantic_core import from_json
from starlette.types import Message, Receive, Scope

from codemode.data.narrowing import is_object
from codemode.host.http_timeouts import body_within
from codemode.host.threads import off_loop

from .callers import PLACE_KEY
from .http_answers import Refused
from .http_places import READ_AHEAD_BYTES, Place, declared_bytes
from .http_settings import HttpLimits

_DRAIN_SECONDS = 1.0
_LEAST_DRAINED_BYTES = 1 << 20
_READ_AT_ONCE_BYTES = 1 << 16
_MOST_ID = 1 << 63


class Head(NamedTuple):
    """What a body asks for, as far as it is looked at here. Both are None where it holds no request."""

    id: str | int | None = None
    method: str | None = None


class Incoming:
    """The ``receive`` of a request, which knows whether its body has come to its end.

    What comes counts in its ``place``, up to ``limits.body_bytes``, which nobody behind it keeps more of, and comes
    within ``limits.body_seconds``. ``refused`` is why no more of it was given.
    """

    def __init__(self, receive: Receive, place: Place, limits: HttpLimits) -> None:
        self._receive = body_within(receive, limits.body_seconds, lambda: _late(limits))
        self._place, self._most_bytes = place, limits.body_bytes
        self._is_whole, self._bytes = False, 0
        self._ahead: deque[Message | Refused] = deque()
        self.refused: Refused | None = None

    async def __call__(self) -> Message:
        """Return what comes next. Raises `Refused` where there is no room for it, and where it comes too slowly."""
        try:
            if not self._ahead:
                return await self._counted()
            message = self._ahead.popleft()
            if isinstance(message, Refused):
                raise message
        except Refused as refused:
            self.refused = refused
            raise
        return message

    async def gone(self) -> None:
        """Return when the caller has hung up; what comes of the body meanwhile is kept for whoever reads it.

        Of a long body, or one that is refused, nothing more is read, and it is not noticed that its caller hangs up.
        """
        left = READ_AHEAD_BYTES
        while left >= 0:
            try:
                message = await self._counted()
            except Refused as refused:
                self._ahead.append(refused)
                break
            self._ahead.append(message)
            if message["type"] != "http.request":
                return
            left -= len(message.get("body", b""))
        await asyncio.Event().wait()

    async def drain(self) -> None:
        """Take what is left of a body, within bounds: a connection closed before would take the answer with it."""
        left = max(self._most_bytes, _LEAST_DRAINED_BYTES)
        with contextlib.suppress(TimeoutError, Refused):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while not self._is_whole and left > 0:
                    left -= len((await self._next()).get("body", b""))

    async def _counted(self) -> Message:
        message = await self._next()
        self._bytes += len(message.get("body", b""))
        self._place.hold(min(self._bytes, self._most_bytes))
        return message

    async def _next(self) -> Message:
        message = await self._receive()
        self._is_whole = message["type"] != "http.request" or not message.get("more_body", False)
        return message


async def read_body(scope: Scope, receive: Receive, limits: HttpLimits) -> tuple[Receive, Head]:
    """Return a ``receive`` that gives the whole body at once, and what is known of the request in it.

    It counts in the request's place. Raises `Refused` for what is too long or large, for which there is no room,
    and for an id that JSON-RPC does not have.
    """
    place: Place = scope[PLACE_KEY]
    declared = declared_bytes(scope)
    if declared is None or declared > limits.body_bytes:
        raise Refused(413, f"A message is at most {limits.body_bytes} bytes")
    place.hold(declared)  # who is let in has room for all of it
    body = await _whole(receive, limits.body_bytes)
    # Counted before it is read: what many small values cost grows far beyond their bytes.
    values = body.count(b"[") + body.count(b"{") + body.count(b",")
    if values > limits.body_items:
        raise Refused(413, f"A message has at most {limits.body_items} values")
    place.hold(len(body), values)
    if len(body) <= _READ_AT_ONCE_BYTES:
        return _again(body, receive), _head_of(body)
    return _again(body, receive), await off_loop(lambda: _head_of(body))


def _late(limits: HttpLimits) -> Refused:
    return Refused(408, f"The message has not come within {limits.body_seconds:g} s")


def _head_of(body: bytes) -> Head:
    """Return what is asked for. An id that is none would be read as a notification, to which there is no answer."""
    try:
        message: Any = from_json(body)
    except (ValueError, RecursionError):
        return Head()  # refused where it is read
    if not is_object(message) or "method" not in message or "id" not in message:
        return Head()
    found: Any = message["id"]
    is_number = isinstance(found, int) and not isinstance(found, bool) and abs(found) < _MOST_ID
    if not is_number and not isinstance(found, str):
        raise Refused(400, "The id of a request is a text or a whole number of at most 64 bits")
    method: Any = message["method"]
    return Head(found, method if isinstance(method, str) else None)


async def _whole(receive: Receive, most_bytes: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "The message has ended before its end")
        body += message.get("body", b"")
        if len(body) > most_bytes:
            raise Refused(413, f"A message is at most {most_bytes} bytes")
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return first.pop() if first else await receive()

    return received
