"""Limit requests and body sizes per caller, and send error answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter, deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from codemode_console.web import drain_body, get_throttling_key, parse_address, parse_content_length
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from codemode.data.narrowing import is_object
from codemode.host.http_timeouts import create_receive_with_body_timeout
from codemode.host.threads import run_in_single_use_thread

from .http_settings import HttpLimits
from .principals import RESERVATION_KEY

_INVALID_REQUEST_CODE = -32600


class HttpError(Exception):
    """A request that is answered with ``status``, a message and headers, before it reaches a handler.

    ``request_id`` is the JSON-RPC id, if known.
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


async def send_error(error: HttpError, send: Send) -> None:
    """Send a JSON-RPC error and close the connection, whose body may be unread."""
    body = {
        "jsonrpc": "2.0",
        "id": error.request_id,
        "error": {"code": _INVALID_REQUEST_CODE, "message": error.message},
    }
    await send_json(send, error.status, body, {**error.headers, "connection": "close"})


async def send_json(send: Send, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
    """Send JSON."""
    body = json.dumps(value).encode()
    defaults = {"content-type": "application/json", "cache-control": "no-store", "content-length": str(len(body))}
    encoded = [(name.encode(), text.encode("latin-1")) for name, text in {**defaults, **(headers or {})}.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


# Requests and their bytes count for a user, and for the caller's address until the user is known.

_RETRY_HEADERS = {"retry-after": "1"}
READ_AHEAD_BYTES = 1 << 18
"""The bytes of a body that the ASGI server may read before the application sees the request."""
_MAX_TOKEN_CHECKS = 64
"""Pending token checks of one address: few enough that a further one is checked within seconds."""
_BYTES_PER_VALUE = 64
"""The approximate size of a value in memory: an empty object is two bytes of JSON but takes more than this."""
_Owner = tuple[str, str]


class RequestLimiter:
    """Counts requests, bytes and token checks per caller. Idle callers take no memory."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.requests: Counter[_Owner] = Counter()
        self.bytes: Counter[_Owner] = Counter()
        self.token_checks: Counter[_Owner] = Counter()

    def create_reservation(self, scope: Mapping[str, Any]) -> RequestReservation:
        """Return a reservation, without counting it yet, for a request whose user is unknown."""
        return RequestReservation(self, ("address", _get_address_or_network(scope)))


class RequestReservation:
    """The counted resources of one request, while its answer or its handler runs.

    A handler in a session continues after its client disconnects, and still counts.
    """

    def __init__(self, limiter: RequestLimiter, owner: _Owner) -> None:
        self._limiter, self._owner = limiter, owner
        self._uses = self._size = 0

    @contextmanager
    def keep_request_counted(self) -> Generator[None]:
        """Count the request while the block runs."""
        self._uses += 1
        if self._uses == 1:
            self._adjust_counters(1)
        try:
            yield
        finally:
            if self._uses == 1:
                self._adjust_counters(-1)
            self._uses -= 1

    @contextmanager
    def count_and_limit_token_check(self) -> Generator[None]:
        """Count a token check while the block runs. Raises `HttpError` over the limit per address."""
        checks, owner = self._limiter.token_checks, self._owner
        if checks[owner] >= _MAX_TOKEN_CHECKS:
            raise HttpError(
                429,
                f"At most {_MAX_TOKEN_CHECKS} tokens of one address are checked at a time: try later",
                _RETRY_HEADERS,
            )
        checks[owner] += 1
        try:
            yield
        finally:
            checks[owner] -= 1
            if not checks[owner]:
                del checks[owner]

    def assign_to_user_or_raise(self, user: str) -> None:
        """Count the request for a user from now on. Raises `HttpError` over the user's limit."""
        owner, max_requests = ("user", user), self._limiter.limits.requests
        if self._limiter.requests[owner] >= max_requests:
            raise HttpError(
                429,
                f"At most {max_requests} requests of one user are answered at a time: try later",
                _RETRY_HEADERS,
            )
        self._check_held_bytes(owner, self._size)
        self._adjust_counters(-1)
        self._owner = owner
        self._adjust_counters(1)

    def reserve_prefetched_bytes(self, declared: int) -> None:
        """Reserve the part of a body that the server may have read already. Raises `HttpError`."""
        self.grow_reservation_to(min(declared, READ_AHEAD_BYTES))

    def grow_reservation_to(self, size: int, values: int = 0) -> None:
        """Reserve at least ``size`` bytes plus memory for ``values`` JSON values. Raises `HttpError`."""
        total, max_bytes = size + values * _BYTES_PER_VALUE, self._limiter.limits.held_bytes
        if total > max_bytes:
            raise HttpError(
                413, f"A message may take {max_bytes} bytes, counting {_BYTES_PER_VALUE} for each value in it"
            )
        additional = total - self._size
        if additional > 0:
            self._check_held_bytes(self._owner, additional)
            self._limiter.bytes[self._owner] += additional
            self._size += additional

    def _check_held_bytes(self, owner: _Owner, additional: int) -> None:
        max_bytes = self._limiter.limits.held_bytes
        if self._limiter.bytes[owner] + additional > max_bytes:
            kind, possessive = ("user", "yours") if owner[0] == "user" else ("address", "its")
            message = f"At most {max_bytes} bytes of messages of one {kind} are held at a time"
            raise HttpError(
                429,
                f"{message}: send this after others of {possessive} are answered, or send smaller messages",
                _RETRY_HEADERS,
            )

    def _adjust_counters(self, sign: int) -> None:
        for counter, change in ((self._limiter.requests, sign), (self._limiter.bytes, sign * self._size)):
            counter[self._owner] += change
            if not counter[self._owner]:
                del counter[self._owner]


def _get_address_or_network(scope: Mapping[str, Any]) -> str:
    """Return the client address; for IPv6 its network, from which one caller can choose addresses."""
    address = (scope.get("client") or ("",))[0]
    return get_throttling_key(parse_address(address)) or address


_DRAIN_SECONDS = 1.0
_MIN_DRAIN_BYTES = 1 << 20
_MAX_INLINE_PARSE_BYTES = 1 << 16
_MAX_ID = 1 << 63


class RequestHead(NamedTuple):
    """The id and method of a JSON-RPC request; both None if the body has no request."""

    id: str | int | None = None
    method: str | None = None


class BoundedReceive:
    """An ASGI ``receive`` that limits the size and duration of a body and counts it in a reservation.

    ``error`` is the `HttpError` that ended the body, if any.
    """

    def __init__(self, receive: Receive, reservation: RequestReservation, limits: HttpLimits) -> None:
        self._receive = create_receive_with_body_timeout(receive, limits.body_seconds, lambda: _timeout_error(limits))
        self._reservation, self._max_bytes = reservation, limits.body_bytes
        self._is_complete, self._bytes = False, 0
        self._buffered: deque[Message | HttpError] = deque()
        self.error: HttpError | None = None

    async def __call__(self) -> Message:
        """Return the next ASGI message. Raises `HttpError` over the limits of size and time."""
        try:
            if not self._buffered:
                return await self._receive_and_count()
            message = self._buffered.popleft()
            if isinstance(message, HttpError):
                raise message
        except HttpError as error:
            self.error = error
            raise
        return message

    async def buffer_and_wait_for_disconnect(self) -> None:
        """Return when the caller disconnects; buffer the body meanwhile.

        After an error or a long body it stops reading and never returns.
        """
        remaining = READ_AHEAD_BYTES
        while remaining >= 0:
            try:
                message = await self._receive_and_count()
            except HttpError as error:
                self._buffered.append(error)
                break
            self._buffered.append(message)
            if message["type"] != "http.request":
                return
            remaining -= len(message.get("body", b""))
        await asyncio.Event().wait()

    async def drain(self) -> None:
        """Read the rest of the body, within bounds, so that closing does not discard the answer."""
        with contextlib.suppress(HttpError):
            if not self._is_complete:
                await drain_body(self._receive_next, max(self._max_bytes, _MIN_DRAIN_BYTES), _DRAIN_SECONDS)

    async def _receive_and_count(self) -> Message:
        message = await self._receive_next()
        self._bytes += len(message.get("body", b""))
        self._reservation.grow_reservation_to(min(self._bytes, self._max_bytes))
        return message

    async def _receive_next(self) -> Message:
        message = await self._receive()
        self._is_complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message


async def buffer_request_body_and_parse_head(
    scope: Scope, receive: Receive, limits: HttpLimits
) -> tuple[Receive, RequestHead]:
    """Return a ``receive`` that replays the whole body, and the id and method of its request.

    Raises `HttpError` for a body over the limits and for an invalid JSON-RPC id.
    """
    reservation: RequestReservation = scope[RESERVATION_KEY]
    declared = parse_content_length(Headers(scope=scope))
    if declared is None or declared > limits.body_bytes:
        raise HttpError(413, f"A message may have at most {limits.body_bytes} bytes")
    reservation.grow_reservation_to(declared)  # admitted callers have room for the whole body
    body = await _read_whole_body(receive, limits.body_bytes)
    # Count before parsing: many small values take far more memory than their bytes.
    values = body.count(b"[") + body.count(b"{") + body.count(b",")
    if values > limits.body_items:
        raise HttpError(413, f"A message may have at most {limits.body_items} values")
    reservation.grow_reservation_to(len(body), values)
    if len(body) <= _MAX_INLINE_PARSE_BYTES:
        return _create_replaying_receive(body, receive), _parse_head(body)
    return _create_replaying_receive(body, receive), await run_in_single_use_thread(lambda: _parse_head(body))


def _timeout_error(limits: HttpLimits) -> HttpError:
    return HttpError(408, f"The message did not arrive within {limits.body_seconds:g} s")


def _parse_head(body: bytes) -> RequestHead:
    """Return id and method. Invalid ids raise: the SDK would treat the request as a notification."""
    try:
        message: Any = from_json(body)
    except (ValueError, RecursionError):
        return RequestHead()  # the parser refuses it
    if not is_object(message) or "method" not in message or "id" not in message:
        return RequestHead()
    request_id: Any = message["id"]
    is_number = isinstance(request_id, int) and not isinstance(request_id, bool) and abs(request_id) < _MAX_ID
    if not is_number and not isinstance(request_id, str):
        raise HttpError(400, "The id of a request must be a string or an integer of at most 64 bits")
    method: Any = message["method"]
    return RequestHead(request_id, method if isinstance(method, str) else None)


async def _read_whole_body(receive: Receive, max_bytes: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise HttpError(400, "The message is incomplete")
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise HttpError(413, f"A message may have at most {max_bytes} bytes")
        if not message.get("more_body", False):
            return bytes(body)


def _create_replaying_receive(body: bytes, receive: Receive) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_buffered() -> Message:
        return messages.pop() if messages else await receive()

    return receive_buffered
