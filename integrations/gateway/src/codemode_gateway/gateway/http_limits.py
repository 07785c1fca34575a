"""Limits of requests: how many a caller has open, and how large bodies are; and error answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter, deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from codemode_console.web import declared_length, drain, network_of, read_address
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from codemode.data.narrowing import is_object
from codemode.host.http_timeouts import body_within
from codemode.host.threads import off_loop

from .http_settings import HttpLimits
from .principals import PLACE_KEY

_CODE = -32600


class Refused(Exception):  # noqa: N818 - an answer that is given, and no failure
    """A request that the door answers: ``status``, a sentence, and headers. Nothing behind the door has seen it.

    ``request_id`` is that of the message, where it is known.
    """

    def __init__(
        self,
        status: int,
        message: str,
        headers: Mapping[str, str] | None = None,
        *,
        request_id: str | int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})
        self.request_id = request_id


async def refuse(refused: Refused, send: Send) -> None:
    """Answer as JSON-RPC does. The connection ends, for its body may not have been read."""
    body = {"jsonrpc": "2.0", "id": refused.request_id, "error": {"code": _CODE, "message": refused.message}}
    await answer(send, refused.status, body, {**refused.headers, "connection": "close"})


async def answer(send: Send, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
    """Send JSON."""
    body = json.dumps(value).encode()
    said = {"content-type": "application/json", "cache-control": "no-store", "content-length": str(len(body))}
    listed = [(name.encode(), text.encode("latin-1")) for name, text in {**said, **(headers or {})}.items()]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": body})


# Requests and their bytes count for a user, and for the caller's address until the user is known.

_BUSY = {"retry-after": "1"}
READ_AHEAD_BYTES = 1 << 18
"""What a server has read of a body by the time that somebody looks at its request."""
_MAX_CHECKS = 64
"""Of tokens that the authorization server is asked about: so few that the next one is checked within a few seconds."""
_VALUE_BYTES = 64
"""What a value is in memory, about: an empty object is two bytes on its way, and more than this here."""
_Owner = tuple[str, str]


class Places:
    """What each caller holds. Nothing is kept of those who hold nothing."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.requests: Counter[_Owner] = Counter()
        self.bytes: Counter[_Owner] = Counter()
        self.checks: Counter[_Owner] = Counter()

    def of(self, scope: Mapping[str, Any]) -> Place:
        """Return the place of a request of whom nobody is known yet."""
        return Place(self, ("address", _address(scope)))


class Place:
    """What one request holds, for as long as it is `in_use`: by whoever answers it, and by the handler of its message.

    A client that leaves ends the first alone: what it has asked for in a session goes on, and counts.
    """

    def __init__(self, places: Places, owner: _Owner) -> None:
        self._places, self._owner = places, owner
        self._uses = self._size = 0

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Have the place while the block runs."""
        self._uses += 1
        if self._uses == 1:
            self._count(1)
        try:
            yield
        finally:
            if self._uses == 1:
                self._count(-1)
            self._uses -= 1

    @contextmanager
    def checking(self) -> Generator[None]:
        """Have its token checked elsewhere while the block runs. Raises `Refused` where many of its address are."""
        checks, owner = self._places.checks, self._owner
        if checks[owner] >= _MAX_CHECKS:
            raise Refused(429, f"At most {_MAX_CHECKS} tokens from one address are checked at a time", _BUSY)
        checks[owner] += 1
        try:
            yield
        finally:
            checks[owner] -= 1
            if not checks[owner]:
                del checks[owner]

    def belongs_to(self, user: str) -> None:
        """Count it for a user from now on. Raises `Refused` for one who has as many requests as they may."""
        owner, most = ("user", user), self._places.limits.requests
        if self._places.requests[owner] >= most:
            raise Refused(429, f"At most {most} requests of one user are answered at a time", _BUSY)
        self._require_room(owner, self._size)
        self._count(-1)
        self._owner = owner
        self._count(1)

    def read_ahead(self, declared: int) -> None:
        """Hold what may have come of a body before anybody has asked for it. Raises `Refused`."""
        self.hold(min(declared, READ_AHEAD_BYTES))

    def hold(self, size: int, values: int = 0) -> None:
        """Hold so many bytes at least, and what becomes of so many values in them. Raises `Refused`."""
        total, most = size + values * _VALUE_BYTES, self._places.limits.held_bytes
        if total > most:
            raise Refused(413, f"A message counts at most {most} bytes, with {_VALUE_BYTES} for each value in it")
        more = total - self._size
        if more > 0:
            self._require_room(self._owner, more)
            self._places.bytes[self._owner] += more
            self._size += more

    def _require_room(self, owner: _Owner, more: int) -> None:
        most = self._places.limits.held_bytes
        if self._places.bytes[owner] + more > most:
            kind, others = ("user", "yours") if owner[0] == "user" else ("address", "its")
            words = f"At most {most} bytes of messages of one {kind} are held at a time"
            raise Refused(429, f"{words}: send this once others of {others} are answered, or less at a time", _BUSY)

    def _count(self, sign: int) -> None:
        for counter, change in ((self._places.requests, sign), (self._places.bytes, sign * self._size)):
            counter[self._owner] += change
            if not counter[self._owner]:
                del counter[self._owner]


def _address(scope: Mapping[str, Any]) -> str:
    """Return where a request comes from: of IPv6 the network, whose addresses are one caller's to choose from."""
    said = (scope.get("client") or ("",))[0]
    return network_of(read_address(said)) or said


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
        with contextlib.suppress(Refused):
            if not self._is_whole:
                await drain(self._next, max(self._most_bytes, _LEAST_DRAINED_BYTES), _DRAIN_SECONDS)

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
    declared = declared_length(Headers(scope=scope))
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
