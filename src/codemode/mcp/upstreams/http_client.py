"""A client of HTTP for one server: what goes wrong costs one request, and no answer is longer than allowed."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2

from ...data.json_values import check_values
from ...data.narrowing import is_mapping
from ...errors import CodeModeAuthenticationError, CodeModeError
from ...host.threads import run_check
from ..config.values import ServerConfig
from ..tls import tls_context
from .lines import MAX_VALUES_ON_THE_LOOP
from .losses import Lost, UpstreamFailure
from .streams import SENDING, Sending

_SESSION_HEADER = "mcp-session-id"
_LOSS = "codemodeLoss"
_CONNECT_SECONDS = 10.0
_FAREWELL_SECONDS = 2.0
_NOTICE_SECONDS = 15.0
_LISTEN_SECONDS = 0.5
_READ_SECONDS = 3600.0  # how long an answer may take is known where it is waited for
_MOST_READ_OF_A_REFUSAL = 20_000
_MAX_LOSSES = 256
_BAD_REQUEST, _UNAUTHORIZED, _NOT_FOUND = 400, 401, 404
_NOBODYS = Sending()
_END_OF_LINE = re.compile(rb"\r\n|\n|\r")
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


class BoundedClient(httpx2.AsyncClient):
    """Answers in place of a server that cannot. ``failure`` is why it cannot, as last known.

    ``broken`` is set when a request has failed.
    """

    def __init__(self, config: ServerConfig, auth: httpx2.Auth | None, max_bytes: int) -> None:
        super().__init__(
            verify=tls_context(),
            headers={**config.headers, "accept-encoding": "identity"},
            auth=auth,
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
            follow_redirects=False,
        )
        self._max_bytes = max_bytes
        self._losses: dict[str, Lost] = {}
        self.failure: UpstreamFailure | None = None
        self.broken = asyncio.Event()
        self._listens_at = 0.0

    async def send(self, request: httpx2.Request, **more: Any) -> httpx2.Response:
        """Send a request. What a POST fails by comes as an answer, all else is raised."""
        sending = _sending_of(request)
        if request.method == "GET":
            await self._paced()
        try:
            async with asyncio.timeout(_seconds(request, sending)), (sending or _NOBODYS).wanted():
                response = await super().send(request, **more)
                lost = await self._refusal(request, response)
                if lost is None:
                    return await self._bounded(request, response, sending or _NOBODYS)
        except Exception as error:
            lost = _unsent(error)
            if sending is None or not sending.is_over:
                self._note(lost)
            if request.method != "POST":
                raise ConnectionError(lost.reason) from error
            return self._instead(request, lost)
        await response.aclose()
        self._note(lost)
        return response if request.method == "GET" else self._instead(request, lost)

    def lost(self, data: Any) -> Lost | None:
        """Return what became of a request from the data of the error in place of its answer."""
        token = data.get(_LOSS) if is_mapping(data) else None
        return self._losses.pop(token, None) if isinstance(token, str) else None

    async def _paced(self) -> None:
        """Listen anew not too often: a server chooses when its streams end, and how soon they are opened again."""
        now = asyncio.get_running_loop().time()
        self._listens_at = max(now, self._listens_at + _LISTEN_SECONDS)
        await asyncio.sleep(self._listens_at - now)

    def _note(self, lost: Lost) -> None:
        self.failure = UpstreamFailure.of(lost)
        self.broken.set()

    def _instead(self, request: httpx2.Request, lost: Lost) -> httpx2.Response:
        token = secrets.token_hex(16)
        self._losses[token] = lost
        while len(self._losses) > _MAX_LOSSES:
            del self._losses[next(iter(self._losses))]
        error = {"code": -32000, "message": lost.reason, "data": {_LOSS: token}}
        body = {"jsonrpc": "2.0", "id": None, "error": error}
        return httpx2.Response(503, json=body, request=request)

    async def _refusal(self, request: httpx2.Request, response: httpx2.Response) -> Lost | None:
        status = response.status_code
        encoding = response.headers.get("content-encoding", "identity")
        if encoding not in ("", "identity"):
            return Lost(f"it compresses its answers ({encoding[:20]}), which nobody has asked for")
        if status < 400:
            return None
        if status == _UNAUTHORIZED:
            return Lost("the user must sign in first", needs_sign_in=True, never_arrived=True, is_final=True)
        text = await self._read(response, _MOST_READ_OF_A_REFUSAL)
        has_session = _SESSION_HEADER in request.headers
        if has_session and (status == _NOT_FOUND or (status == _BAD_REQUEST and b"ession" in text)):
            return Lost("its session was lost", never_arrived=True, is_over=True)
        if _is_answer(text):
            response.stream = httpx2.ByteStream(text)
            return None
        reason = f"it answered with the status {status} {response.reason_phrase[:80]}"
        is_final = status < 500
        return Lost(reason, never_arrived=is_final, is_final=is_final)

    async def _bounded(self, request: httpx2.Request, response: httpx2.Response, sending: Sending) -> httpx2.Response:
        if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Unbroken(response.stream, sending)
            return response
        if response.status_code >= 400:
            return response
        try:
            text = await self._read(response, self._max_bytes)
            await _check(text)
        except (httpx2.TransportError, ValueError, CodeModeError):
            await response.aclose()
            lost = Lost("its answer cannot be read")
            self._note(lost)
            return self._instead(request, lost) if request.method == "POST" else response
        response.stream = httpx2.ByteStream(text)
        return response

    async def _read(self, response: httpx2.Response, most: int) -> bytes:
        text = bytearray()
        stream = response.stream
        if not isinstance(stream, httpx2.AsyncByteStream):
            return b""
        async for piece in stream:
            text += piece
            if len(text) > most:
                raise ValueError(f"an answer of more than {most} bytes")
        await stream.aclose()
        return bytes(text)


async def _check(text: bytes) -> None:
    """Raise `CodeModeError` for more values than the SDK may read on the event loop."""
    await run_check(
        len(text), lambda: check_values(text.decode("utf-8", "replace"), MAX_VALUES_ON_THE_LOOP, "an answer")
    )


class _Unbroken(httpx2.AsyncByteStream):
    """A stream of events that breaks off, or says too much at once, as one that ends: whoever waits is told so."""

    def __init__(self, stream: Any, sending: Sending) -> None:
        self._stream = stream
        self._sending = sending
        self._line = bytearray()
        self._data = bytearray()
        self._has_ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._stream)
        while True:
            try:
                async with self._sending.wanted():
                    piece = await anext(pieces)
                for event in self._ended_in(piece):
                    await _check(event)
            except (StopAsyncIteration, TimeoutError, httpx2.TransportError, CodeModeError):
                return
            yield piece

    def _ended_in(self, piece: bytes) -> Iterator[bytes]:
        """Yield what the long events say that end in a piece."""
        if self._has_ended and piece[:1] == b"\n":
            piece = piece[1:]  # the other half of that end
        self._has_ended = piece[-1:] == b"\r"
        self._line += piece
        if b"\n" not in piece and b"\r" not in piece:
            return
        *lines, rest = _END_OF_LINE.split(bytes(self._line))
        self._line = bytearray(rest)
        for line in lines:
            if line.startswith(b"data:"):
                self._data += line[5:]
            elif not line:
                if len(self._data) > MAX_VALUES_ON_THE_LOOP:
                    yield bytes(self._data)
                self._data.clear()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _sending_of(request: httpx2.Request) -> Sending | None:
    """Return what is known of the request of the protocol that this is a part of; None for all else that is sent."""
    sending = SENDING.get()
    if sending is None or request.method != "POST":
        return sending
    if sending.body is None:
        sending.body = request.content
    return sending if request.content == sending.body else None


def _seconds(request: httpx2.Request, sending: Sending | None) -> float | None:
    """Return how long an answer may take of which nobody knows better."""
    if request.method == "DELETE":
        return _FAREWELL_SECONDS  # who says farewell waits for no answer
    return _NOTICE_SECONDS if request.method == "POST" and sending is None else None


def _unsent(error: Exception) -> Lost:
    if isinstance(error, CodeModeAuthenticationError):
        return Lost(error.message, needs_sign_in=True, never_arrived=True, is_final=True, details=error.details)
    if isinstance(error, _NEVER_SENT):
        return Lost(f"it cannot be reached: {str(error)[:200] or type(error).__name__}", never_arrived=True)
    said = str(error)[:200] or type(error).__name__
    return Lost(f"its connection was lost ({said})")


def _is_answer(text: bytes) -> bool:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return is_mapping(said) and said.get("jsonrpc") == "2.0" and "error" in said
