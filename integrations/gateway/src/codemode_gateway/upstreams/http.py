"""The transports of servers over HTTP: streamable HTTP, and the older one with server-sent events. Knows no calls."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import INTERNAL_ERROR, JSONRPCError

from codemode.data.narrowing import is_mapping
from codemode.errors import CodeModeAuthenticationError, CodeModeError
from codemode.host.threads import run_check
from codemode.trace.visible_text import one_line

from ..config.model import ServerConfig
from ..config.redaction import SecretRedactor
from ..config.secret_detection import is_secret_name
from ..outgoing_http import (
    RefusedRedirectError,
    copy_request_to,
    describe_url,
    is_trusted_redirect,
    send_following_redirects,
    tls_context,
)
from .connection import Transport
from .connection_errors import Lost, UpstreamFailure
from .jsonrpc_lines import BOM, MAX_VALUES_ON_THE_LOOP, REPAIRED, read_body, read_event, without_bom
from .session_streams import SENDING, Sending

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


SESSION_HEADER = "mcp-session-id"
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 400, 401, 403, 404
_MAX_REASON_CHARACTERS = 80
_MAX_HEADER_CHARACTERS = 200
_MAX_SAID_CHARACTERS = 300
_LOST_SESSION = re.compile(rb"session|initializ", re.IGNORECASE)
_ANSWERED = "it answered with the "
# Where services write why they refuse: of OAuth, of RFC 9457, and of most others.
_FIELDS = ("error_description", "detail", "message", "error", "title", "reason")


def describe(response: httpx2.Response, text: bytes, hide: Callable[[str], str]) -> str:
    """Return a refusal in one line: its status, the headers and the words of its body that explain it."""
    said = f"{_ANSWERED}status {response.status_code}"
    if response.reason_phrase:
        said += f" {one_line(hide(response.reason_phrase), _MAX_REASON_CHARACTERS)}"
    for name in ("Retry-After", "WWW-Authenticate"):
        if value := response.headers.get(name):
            said += f" ({name}: {one_line(hide(value), _MAX_HEADER_CHARACTERS)})"
    words = _words(text)
    return f"{said}: {one_line(hide(words), _MAX_SAID_CHARACTERS)}" if words else said


def is_lost_session(config: ServerConfig, request: httpx2.Request, response: httpx2.Response, text: bytes) -> bool:
    """Tell whether a server no longer knows the session of a request, which is in a header, or in the URL of events."""
    is_event_post = config.transport == "sse" and request.method == "POST" and b'"initialize"' not in request.content
    if SESSION_HEADER not in request.headers and not is_event_post:
        return False
    if response.status_code == NOT_FOUND:
        return True
    return response.status_code == BAD_REQUEST and _LOST_SESSION.search(text) is not None


def static_credential(config: ServerConfig) -> str | None:
    """Return the name of the header with which the entry of a server signs in, if it has one."""
    names = sorted(config.headers, key=lambda name: name.lower() != "authorization")
    return next((name for name in names if is_secret_name(name)), None)


def credential_refusal(name: str, said: str) -> Lost:
    """Return the reason for a request whose server refuses the credential of its entry."""
    why = said.removeprefix(_ANSWERED)
    reason = f"it refuses the value of the header {name!r} in its entry, {why}. Write a valid one there"
    return Lost(reason, never_arrived=True, is_final=True)


def refuses_entry(request: httpx2.Request, challenge: httpx2.Response) -> bool:
    """Tell whether a challenge refuses the credential of the entry, rather than asks for a sign-in."""
    if "authorization" in request.headers:
        return False  # the token of a sign-in
    said = challenge.headers.get("www-authenticate", "").lower()
    return "resource_metadata" not in said and (not said.startswith("bearer") or "invalid_token" in said)


def error_answer(response: httpx2.Response, text: bytes, request_id: int | str | None) -> bytes | None:
    """Return the JSON-RPC error in the body of a refusal, with ``Retry-After``; None for any other body."""
    if b'"jsonrpc"' not in text:
        return None
    try:
        message = read_body(without_bom(text), 0 if request_id is None else request_id).message
    except (ValueError, CodeModeError):
        return None
    if not isinstance(message, JSONRPCError):
        return None
    if wait := response.headers.get("Retry-After"):
        told = f"{message.error.message} (Retry-After: {one_line(wait, _MAX_REASON_CHARACTERS)})"
        message = message.model_copy(update={"error": message.error.model_copy(update={"message": told})})
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _words(text: bytes) -> str:
    """Return the words of a body that explain a refusal; none of an HTML page."""
    decoded = without_bom(text).decode("utf-8", "replace")
    if decoded.startswith("<"):
        return ""
    try:
        value: Any = json.loads(decoded)
    except (ValueError, RecursionError):
        return " ".join(decoded.split())
    return " ".join((_field(value) or decoded).split())


def _field(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    found: Mapping[str, Any] = value if is_mapping(value) else {}
    return next((text for name in _FIELDS if name in found and (text := _field(found[name]))), None)


MAX_EVENT_BYTES = 8 << 20
_FAREWELL_SECONDS = 2.0
_NOTICE_SECONDS = 15.0
_LISTEN_SECONDS = 0.5
_READ_SECONDS = 3600.0  # how long an answer may take is known where it is waited for
_MOST_READ_OF_A_REFUSAL = 20_000
_MAX_SHOWN = 100
_LONGEST_HEAD = 200
_NOBODYS = Sending()
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
# As the SDK writes the beginning of one.
_REQUEST = re.compile(rb'\{"jsonrpc":\s?"2.0",\s?"id":\s?(\d{1,15}|"[^"\\]{1,100}"),\s?"method":')
_log = logging.getLogger("codemode.mcp")


class BoundedClient(httpx2.AsyncClient):
    """Answers in place of a server that cannot. ``failure`` is why it cannot, as last known.

    ``broken`` is set when a request has failed. ``hide`` takes secrets out of what a server says in a refusal.
    """

    def __init__(
        self,
        config: ServerConfig,
        auth: httpx2.Auth | None,
        max_bytes: int,
        hide: Callable[[str], str] = str,
    ) -> None:
        super().__init__(
            verify=tls_context(),
            headers={**config.headers, "accept-encoding": "identity"},
            auth=auth,
            timeout=httpx2.Timeout(config.connect_timeout_ms / 1000, read=_READ_SECONDS, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
            follow_redirects=False,
        )
        self._config = config
        self._max_bytes = max_bytes
        self._hide = hide
        self.failure: UpstreamFailure | None = None
        self.broken = asyncio.Event()
        self._listens_at = 0.0
        self._secured: httpx2.URL | None = None
        self._is_redirected = self._has_reported = False

    async def send(self, request: httpx2.Request, **more: Any) -> httpx2.Response:
        """Send a request. What a POST fails by comes as an answer, all else is raised.

        What is then known of the request of the protocol that it carried is in `Sending.lost`.
        """
        sending = _sending_of(request)
        if request.method == "GET":
            await self._paced()
        try:
            async with asyncio.timeout(_seconds(request, sending)), (sending or _NOBODYS).wanted():
                response = await self._send_following(request, **more)
                lost = await self._refusal(response)
                if lost is None:
                    answer = await self._read_answer(response, sending or _NOBODYS)
                    if isinstance(answer, httpx2.Response):
                        return answer
                    lost = answer
        except Exception as error:
            lost = self._unsent(request, error)
            if sending is None or not sending.is_over:
                self._note(lost)
            if request.method != "POST":
                raise ConnectionError(lost.reason) from error
            return _instead(request, lost, sending)
        await response.aclose()
        self._note(lost)
        return response if request.method == "GET" else _instead(request, lost, sending)

    async def _paced(self) -> None:
        """Listen anew not too often: a server chooses when its streams end, and how soon they are opened again."""
        now = asyncio.get_running_loop().time()
        self._listens_at = max(now, self._listens_at + _LISTEN_SECONDS)
        await asyncio.sleep(self._listens_at - now)

    def _note(self, lost: Lost) -> None:
        self.failure = UpstreamFailure.of(lost)
        self.broken.set()

    async def _send_following(self, request: httpx2.Request, **more: Any) -> httpx2.Response:
        """Send a request, and follow redirects. Raises `RefusedRedirectError`."""
        secured = self._secured
        if secured is not None and request.url.scheme == "http" and is_trusted_redirect(request.url, secured):
            request = copy_request_to(request, request.url.copy_with(scheme=secured.scheme, port=secured.port))
        send = super().send
        return await send_following_redirects(lambda one: send(one, **more), request, self._report_redirect)

    def _report_redirect(self, url: httpx2.URL, target: httpx2.URL) -> None:
        """Log a redirect that is followed. After one to https no request is sent over plain HTTP."""
        name, where = self._config.name, (describe_url(url), describe_url(target))
        if url.scheme != target.scheme:
            self._secured = target
            said = "server %r redirects %s to %s, which is used in its place: write that as url of its entry"
            _log.warning(said, name, *map(self._hide, where))
        elif not self._is_redirected:
            self._is_redirected = True
            _log.info("server %r redirects %s to %s", name, *map(self._hide, where))

    async def _refusal(self, response: httpx2.Response) -> Lost | None:
        request, status = response.request, response.status_code
        encoding = response.headers.get("content-encoding", "identity")
        if encoding not in ("", "identity"):
            return Lost(f"it compresses its answers ({encoding[:20]}), which nobody has asked for")
        if status < 300:
            return None
        text = await self._beginning(response)
        said = describe(response, text, self._hide)
        if status == UNAUTHORIZED:
            credential = static_credential(self._config) if self.auth is None else None
            if credential is not None:
                return credential_refusal(credential, said)
            return Lost("the user must sign in first", needs_sign_in=True, never_arrived=True, is_final=True)
        if is_lost_session(self._config, request, response, text):
            return Lost(f"its session was lost: {said}", never_arrived=True, is_over=True)
        answer = error_answer(response, text, _request_id(request))
        if answer is not None:
            _replace(response, answer)
            return None
        is_final = status < 500
        return Lost(said, never_arrived=is_final, is_final=is_final)

    async def _read_answer(self, response: httpx2.Response, sending: Sending) -> httpx2.Response | Lost:
        """Return the answer as the SDK reads it, in bounds, or why it cannot be read."""
        content_type = response.headers.get("content-type", "").lower()
        if content_type.startswith("text/event-stream"):
            response.stream = EventStream(response.stream, sending, MAX_EVENT_BYTES, self._report_repair)
            return response
        if response.status_code >= 300:
            return response  # an error of the protocol, read before
        try:
            text = without_bom(await self._read(response))
        except (httpx2.TransportError, ValueError) as error:
            return Lost(f"its answer cannot be read: {str(error)[:200] or 'it broke off'}")
        request_id = _request_id(response.request)
        if request_id is None or self._config.transport == "sse":
            response.stream = httpx2.ByteStream(text)
            return response
        if not text:
            return Lost(f"its answer is empty (status {response.status_code})")
        try:
            reading = await run_check(len(text), partial(read_body, text, request_id))
        except (ValueError, CodeModeError) as error:
            if isinstance(error, CodeModeError):
                return Lost(f"its answer cannot be read: it holds more than {MAX_VALUES_ON_THE_LOOP} values")
            begins = one_line(self._hide(text[:_MOST_READ_OF_A_REFUSAL].decode("utf-8", "replace")), _MAX_SHOWN)
            kind = one_line(content_type.partition(";")[0] or "a body", _MAX_SHOWN)
            said = f"its answer cannot be read: {kind} that begins with {begins!r} is no message of JSON-RPC"
            return Lost(f"{said}; is that the url of the server?")
        if reading.is_repaired:
            self._report_repair()
        _replace(response, reading.text if reading.is_repaired else text)
        return response

    def _report_repair(self) -> None:
        if not self._has_reported:
            self._has_reported = True
            _log.warning(REPAIRED, self._config.name)

    async def _read(self, response: httpx2.Response) -> bytes:
        text = bytearray()
        async for piece in _stream(response):
            text += piece
            if len(text) > self._max_bytes:
                raise ValueError(f"it has more than {self._max_bytes} bytes")
        return bytes(text)

    async def _beginning(self, response: httpx2.Response) -> bytes:
        """Return the beginning of a refusal's body, as far as it can be read."""
        text = bytearray()
        with suppress(httpx2.TransportError):
            async for piece in _stream(response):
                text += piece
                if len(text) > _MOST_READ_OF_A_REFUSAL:
                    break
        return bytes(text[:_MOST_READ_OF_A_REFUSAL])

    def _unsent(self, request: httpx2.Request, error: Exception) -> Lost:
        """Return what an error says about its request."""
        if isinstance(error, CodeModeAuthenticationError):
            challenge = getattr(self.auth, "challenge", None)
            credential = static_credential(self._config)
            if credential is not None and challenge is not None and refuses_entry(request, challenge):
                return credential_refusal(credential, describe(challenge, b"", self._hide))
            return Lost(error.message, needs_sign_in=True, never_arrived=True, is_final=True, details=error.details)
        if isinstance(error, RefusedRedirectError):
            return Lost(self._hide(str(error)), never_arrived=True, is_final=True)
        said = str(error)[:200] or type(error).__name__
        if isinstance(error, _NEVER_SENT):
            return Lost(f"it cannot be reached: {said}", never_arrived=True)
        return Lost(f"its connection was lost ({said})")


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


def _instead(request: httpx2.Request, lost: Lost, sending: Sending | None) -> httpx2.Response:
    if sending is not None:
        sending.lost = lost
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": lost.reason}}
    return httpx2.Response(503, json=body, request=request)


def _stream(response: httpx2.Response) -> httpx2.AsyncByteStream:
    """Return the body as it comes, which the SDK reads once more: of the response it would count as read."""
    stream = response.stream
    return stream if isinstance(stream, httpx2.AsyncByteStream) else httpx2.ByteStream(b"")


def _replace(response: httpx2.Response, text: bytes) -> None:
    """Replace the body of a response by this JSON."""
    response.headers["content-type"] = "application/json"
    response.stream = httpx2.ByteStream(text)


def _request_id(request: httpx2.Request) -> int | str | None:
    """Return the id of the request of the protocol that a POST carries; None where it carries something else."""
    found = _REQUEST.match(request.content[:_LONGEST_HEAD]) if request.method == "POST" else None
    return None if found is None else json.loads(found[1])


MAX_BODY_BYTES = 32 << 20
_QUIET_SECONDS = 3600.0


def http_transport(config: ServerConfig, secrets: SecretRedactor, auth: httpx2.Auth | None) -> Transport:
    """Return how a server over HTTP is reached."""
    client = BoundedClient(config, auth, MAX_BODY_BYTES, secrets.redact_text)

    def ending() -> UpstreamFailure | None:
        return client.failure

    streams = _streamable(config, client) if config.transport == "http" else _events(config, client)
    return Transport(streams, ending, tells_sending=False)


@asynccontextmanager
async def _streamable(config: ServerConfig, client: BoundedClient) -> AsyncGenerator[tuple[Any, Any]]:
    async with (
        client,
        streamable_http_client(config.url or "", http_client=client, max_sse_event_size=MAX_EVENT_BYTES) as streams,
    ):
        yield streams


@asynccontextmanager
async def _events(config: ServerConfig, client: BoundedClient) -> AsyncGenerator[tuple[Any, Any]]:
    def made(headers: object = None, timeout: object = None, auth: object = None) -> httpx2.AsyncClient:  # noqa: ARG001 - the SDK's names
        return client

    async with sse_client(config.url or "", httpx_client_factory=made, sse_read_timeout=_QUIET_SECONDS) as (
        read,
        write,
    ):
        # What cannot be said to the server has no answer: all who wait for one are told.
        ending = asyncio.create_task(_end_when_broken(client, read))
        try:
            yield read, write
        finally:
            ending.cancel()
            await asyncio.wait([ending])


async def _end_when_broken(client: BoundedClient, read: Any) -> None:
    await client.broken.wait()
    await read.aclose()
