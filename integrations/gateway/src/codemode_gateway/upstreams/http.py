"""Connect to servers over streamable HTTP and server-sent events."""

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
from codemode.host.threads import run_in_thread_if_large_or_slow
from codemode.trace.visible_text import clip_to_visible_line

from ..config.model import ServerConfig
from ..config.redaction import SecretRedactor
from ..config.secret_detection import is_secret_name
from ..outgoing_http import (
    RefusedRedirectError,
    copy_request_to,
    format_url_without_secrets,
    get_tls_context,
    is_trusted_redirect,
    send_following_redirects,
)
from .connection import Transport
from .connection_errors import UnansweredRequestError, UpstreamUnavailableError
from .jsonrpc_lines import (
    BOM,
    MAX_VALUES_ON_THE_LOOP,
    REPAIRED_MESSAGE,
    parse_answer_body_and_set_id,
    parse_event_data,
    strip_space_and_bom,
)
from .session_streams import SENDING, RequestSendState

_END_OF_LINE = re.compile(rb"\r\n|\n|\r")


class EventStream(httpx2.AsyncByteStream):
    """Events of a server. A stream that breaks off, or holds too large an event, ends: requests then have no answer.

    Data other than messages is left out. ``on_repair`` is called for a message that is not quite JSON-RPC. The last
    event needs no empty line behind it.
    """

    def __init__(self, stream: Any, sending: RequestSendState, max_bytes: int, on_repair: Callable[[], None]) -> None:
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
                async with self._sending.run_while_caller_waits():
                    piece = await anext(pieces, None)
                for line in self._split_lines(piece):
                    if event := await self._add_line_to_event(line):
                        yield event
            except (TimeoutError, httpx2.TransportError, CodeModeError):
                return
            if piece is None or len(self._line) + self._size > self._max_bytes:
                return

    def _split_lines(self, piece: bytes | None) -> Iterator[bytes]:
        """Yield the lines that end in a chunk; for None, the remainder and the end of its event."""
        if piece is None:
            yield bytes(self._line)
            yield b""
            return
        if self._ends_in_cr and piece[:1] == b"\n":
            piece = piece[1:]  # the second half of a CRLF
        self._ends_in_cr = piece[-1:] == b"\r"
        self._line += piece
        if b"\n" in piece or b"\r" in piece:
            *lines, rest = _END_OF_LINE.split(bytes(self._line))
            self._line = bytearray(rest)
            yield from lines

    async def _add_line_to_event(self, line: bytes) -> bytes:
        """Process a line; return the event that ends with it, if any."""
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
        lines = fields + [b"data: " + data_line for data_line in await self._repair_event_data(fields, data)]
        return b"\n".join([*lines, b"", b""]) if lines else b""

    async def _repair_event_data(self, fields: list[bytes], data: list[bytes]) -> list[bytes]:
        event_name = next(
            (line.partition(b":")[2].strip() for line in fields if line.startswith(b"event:")), b"message"
        )
        if event_name != b"message" or not any(data):
            return data
        text = strip_space_and_bom(b"\n".join(data))
        reading = await run_in_thread_if_large_or_slow(len(text), partial(parse_event_data, text))
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
_MAX_EXPLANATION_CHARACTERS = 300
_LOST_SESSION = re.compile(rb"session|initializ", re.IGNORECASE)
_ANSWER_PREFIX = "it answered with the "
# Fields with the reason of a refusal: OAuth, RFC 9457 and common APIs.
_EXPLANATION_FIELDS = ("error_description", "detail", "message", "error", "title", "reason")


def describe_refusal(response: httpx2.Response, text: bytes, hide: Callable[[str], str]) -> str:
    """Return a refusal in one line: its status, headers and explanation."""
    description = f"{_ANSWER_PREFIX}status {response.status_code}"
    if response.reason_phrase:
        description += f" {clip_to_visible_line(hide(response.reason_phrase), _MAX_REASON_CHARACTERS)}"
    for name in ("Retry-After", "WWW-Authenticate"):
        if value := response.headers.get(name):
            description += f" ({name}: {clip_to_visible_line(hide(value), _MAX_HEADER_CHARACTERS)})"
    explanation = _extract_explanation(text)
    return (
        f"{description}: {clip_to_visible_line(hide(explanation), _MAX_EXPLANATION_CHARACTERS)}"
        if explanation
        else description
    )


def is_session_lost(config: ServerConfig, request: httpx2.Request, response: httpx2.Response, text: bytes) -> bool:
    """Return whether a server lost the session of a request, named in a header or in the URL of SSE messages."""
    is_event_post = config.transport == "sse" and request.method == "POST" and b'"initialize"' not in request.content
    if SESSION_HEADER not in request.headers and not is_event_post:
        return False
    if response.status_code == NOT_FOUND:
        return True
    return response.status_code == BAD_REQUEST and _LOST_SESSION.search(text) is not None


def find_credential_header_name(config: ServerConfig) -> str | None:
    """Return the name of the credential header in a server's entry, or None."""
    names = sorted(config.headers, key=lambda name: name.lower() != "authorization")
    return next((name for name in names if is_secret_name(name)), None)


def rejected_credential_error(name: str, description: str) -> UnansweredRequestError:
    """Return the error for a rejected credential of a server's entry."""
    answer = description.removeprefix(_ANSWER_PREFIX)
    reason = f"it rejects the header {name!r} of its entry: {answer}. Set a valid value there"
    return UnansweredRequestError(reason, never_arrived=True, is_final=True)


def rejects_static_credential(request: httpx2.Request, challenge: httpx2.Response) -> bool:
    """Return whether a challenge rejects the entry's credential instead of requesting a sign-in."""
    if "authorization" in request.headers:
        return False  # the token of a sign-in
    header = challenge.headers.get("www-authenticate", "").lower()
    return "resource_metadata" not in header and (not header.startswith("bearer") or "invalid_token" in header)


def extract_error_response(response: httpx2.Response, text: bytes, request_id: int | str | None) -> bytes | None:
    """Return the JSON-RPC error in the body of a refusal, with ``Retry-After``; None for any other body."""
    if b'"jsonrpc"' not in text:
        return None
    try:
        message = parse_answer_body_and_set_id(
            strip_space_and_bom(text), 0 if request_id is None else request_id
        ).message
    except (ValueError, CodeModeError):
        return None
    if not isinstance(message, JSONRPCError):
        return None
    if wait := response.headers.get("Retry-After"):
        detail = f"{message.error.message} (Retry-After: {clip_to_visible_line(wait, _MAX_REASON_CHARACTERS)})"
        message = message.model_copy(update={"error": message.error.model_copy(update={"message": detail})})
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _extract_explanation(text: bytes) -> str:
    """Return the explanation in a refusal's body; an empty text for an HTML page."""
    decoded = strip_space_and_bom(text).decode("utf-8", "replace")
    if decoded.startswith("<"):
        return ""
    try:
        value: Any = json.loads(decoded)
    except (ValueError, RecursionError):
        return " ".join(decoded.split())
    return " ".join((_find_explanation_in_json(value) or decoded).split())


def _find_explanation_in_json(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    fields: Mapping[str, Any] = value if is_mapping(value) else {}
    return next(
        (text for name in _EXPLANATION_FIELDS if name in fields and (text := _find_explanation_in_json(fields[name]))),
        None,
    )


MAX_EVENT_BYTES = 8 << 20
_DELETE_TIMEOUT_SECONDS = 2.0
_NOTIFICATION_TIMEOUT_SECONDS = 15.0
_LISTEN_INTERVAL_SECONDS = 0.5
_READ_TIMEOUT_SECONDS = 3600.0  # callers set the timeout of answers
_MAX_REFUSAL_BYTES = 20_000
_MAX_SHOWN = 100
_MAX_HEAD_BYTES = 200
_NO_REQUEST = RequestSendState()
_UNSENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
# The start of a request as the SDK writes it.
_REQUEST_PATTERN = re.compile(rb'\{"jsonrpc":\s?"2.0",\s?"id":\s?(\d{1,15}|"[^"\\]{1,100}"),\s?"method":')
_log = logging.getLogger("codemode.mcp")


class UpstreamHttpClient(httpx2.AsyncClient):
    """An HTTP client that converts failures to JSON-RPC errors. ``failure`` is the last known reason.

    ``broken`` is set after a failed request. ``hide`` removes secrets from refusals.
    """

    def __init__(
        self, config: ServerConfig, auth: httpx2.Auth | None, max_bytes: int, hide: Callable[[str], str] = str
    ) -> None:
        super().__init__(
            verify=get_tls_context(),
            headers={**config.headers, "accept-encoding": "identity"},
            auth=auth,
            timeout=httpx2.Timeout(config.connect_timeout_ms / 1000, read=_READ_TIMEOUT_SECONDS, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
            follow_redirects=False,
        )
        self._config = config
        self._max_bytes = max_bytes
        self._hide = hide
        self.failure: UpstreamUnavailableError | None = None
        self.broken = asyncio.Event()
        self._next_listen_at = 0.0
        self._https_url: httpx2.URL | None = None
        self._is_redirected = self._has_reported = False

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request. A failed POST returns an error answer; other failures raise.

        Details of a failed protocol request are in `RequestSendState.lost`.
        """
        sending = _match_or_claim_send_state(request)
        if request.method == "GET":
            await self._throttle_listen_request()
        try:
            async with (
                asyncio.timeout(_get_default_timeout(request, sending)),
                (sending or _NO_REQUEST).run_while_caller_waits(),
            ):
                response = await self._send_following_redirects(request, **options)
                lost = await self._read_refusal_or_keep_error_answer(response)
                if lost is None:
                    answer = await self._repair_answer_body(response, sending or _NO_REQUEST)
                    if isinstance(answer, httpx2.Response):
                        return answer
                    lost = answer
        except Exception as error:
            lost = self._to_unanswered_request_error(request, error)
            if sending is None or not sending.is_over:
                self._record_failure(lost)
            if request.method != "POST":
                raise ConnectionError(lost.reason) from error
            return _record_loss_as_response(request, lost, sending)
        await response.aclose()
        self._record_failure(lost)
        return response if request.method == "GET" else _record_loss_as_response(request, lost, sending)

    async def _throttle_listen_request(self) -> None:
        """Limit reconnects of event streams, whose end and retry delay the server chooses."""
        now = asyncio.get_running_loop().time()
        self._next_listen_at = max(now, self._next_listen_at + _LISTEN_INTERVAL_SECONDS)
        await asyncio.sleep(self._next_listen_at - now)

    def _record_failure(self, lost: UnansweredRequestError) -> None:
        self.failure = UpstreamUnavailableError.from_unanswered_request(lost)
        self.broken.set()

    async def _send_following_redirects(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, and follow redirects. Raises `RefusedRedirectError`."""
        secured = self._https_url
        if secured is not None and request.url.scheme == "http" and is_trusted_redirect(request.url, secured):
            request = copy_request_to(request, request.url.copy_with(scheme=secured.scheme, port=secured.port))
        send = super().send
        return await send_following_redirects(
            lambda redirected: send(redirected, **options), request, self._record_redirect
        )

    def _record_redirect(self, url: httpx2.URL, target: httpx2.URL) -> None:
        """Log a followed redirect. After a redirect to https no request uses plain HTTP."""
        name, urls = self._config.name, (format_url_without_secrets(url), format_url_without_secrets(target))
        if url.scheme != target.scheme:
            self._https_url = target
            message = "server %r redirects %s to %s, which is used instead: set it as url of its entry"
            _log.warning(message, name, *map(self._hide, urls))
        elif not self._is_redirected:
            self._is_redirected = True
            _log.info("server %r redirects %s to %s", name, *map(self._hide, urls))

    async def _read_refusal_or_keep_error_answer(self, response: httpx2.Response) -> UnansweredRequestError | None:
        request, status = response.request, response.status_code
        encoding = response.headers.get("content-encoding", "identity")
        if encoding not in ("", "identity"):
            return UnansweredRequestError(f"it compresses its answers ({encoding[:20]}) without being asked to")
        if status < 300:
            return None
        text = await self._read_body_beginning(response)
        description = describe_refusal(response, text, self._hide)
        if status == UNAUTHORIZED:
            credential = find_credential_header_name(self._config) if self.auth is None else None
            if credential is not None:
                return rejected_credential_error(credential, description)
            return UnansweredRequestError(
                "the user must sign in first", needs_sign_in=True, never_arrived=True, is_final=True
            )
        if is_session_lost(self._config, request, response, text):
            return UnansweredRequestError(f"its session was lost: {description}", never_arrived=True, is_over=True)
        answer = extract_error_response(response, text, _parse_request_id(request))
        if answer is not None:
            _replace_body(response, answer)
            return None
        is_final = status < 500
        return UnansweredRequestError(description, never_arrived=is_final, is_final=is_final)

    async def _repair_answer_body(
        self, response: httpx2.Response, sending: RequestSendState
    ) -> httpx2.Response | UnansweredRequestError:
        """Replace the body by an answer that the SDK can read, or return why it cannot be read."""
        content_type = response.headers.get("content-type", "").lower()
        if content_type.startswith("text/event-stream"):
            response.stream = EventStream(response.stream, sending, MAX_EVENT_BYTES, self._log_repair_once)
            return response
        if response.status_code >= 300:
            return response  # an error of the protocol, read before
        try:
            text = strip_space_and_bom(await self._read_body(response))
        except (httpx2.TransportError, ValueError) as error:
            return UnansweredRequestError(f"its answer cannot be read: {str(error)[:200] or 'it is incomplete'}")
        request_id = _parse_request_id(response.request)
        if request_id is None or self._config.transport == "sse":
            response.stream = httpx2.ByteStream(text)
            return response
        if not text:
            return UnansweredRequestError(f"its answer is empty (status {response.status_code})")
        try:
            reading = await run_in_thread_if_large_or_slow(
                len(text), partial(parse_answer_body_and_set_id, text, request_id)
            )
        except (ValueError, CodeModeError) as error:
            if isinstance(error, CodeModeError):
                return UnansweredRequestError(
                    f"its answer cannot be read: it has more than {MAX_VALUES_ON_THE_LOOP} values"
                )
            beginning = clip_to_visible_line(
                self._hide(text[:_MAX_REFUSAL_BYTES].decode("utf-8", "replace")), _MAX_SHOWN
            )
            kind = clip_to_visible_line(content_type.partition(";")[0] or "a body", _MAX_SHOWN)
            problem = f"its answer cannot be read: {kind} that starts with {beginning!r} is not JSON-RPC"
            return UnansweredRequestError(f"{problem}; check the server's url")
        if reading.is_repaired:
            self._log_repair_once()
        _replace_body(response, reading.text if reading.is_repaired else text)
        return response

    def _log_repair_once(self) -> None:
        if not self._has_reported:
            self._has_reported = True
            _log.warning(REPAIRED_MESSAGE, self._config.name)

    async def _read_body(self, response: httpx2.Response) -> bytes:
        text = bytearray()
        async for piece in _get_body_stream(response):
            text += piece
            if len(text) > self._max_bytes:
                raise ValueError(f"it has more than {self._max_bytes} bytes")
        return bytes(text)

    async def _read_body_beginning(self, response: httpx2.Response) -> bytes:
        """Return the readable beginning of a refusal's body."""
        text = bytearray()
        with suppress(httpx2.TransportError):
            async for piece in _get_body_stream(response):
                text += piece
                if len(text) > _MAX_REFUSAL_BYTES:
                    break
        return bytes(text[:_MAX_REFUSAL_BYTES])

    def _to_unanswered_request_error(self, request: httpx2.Request, error: Exception) -> UnansweredRequestError:
        """Return the outcome of a request that failed with an error."""
        if isinstance(error, CodeModeAuthenticationError):
            challenge = getattr(self.auth, "challenge", None)
            credential = find_credential_header_name(self._config)
            if credential is not None and challenge is not None and rejects_static_credential(request, challenge):
                return rejected_credential_error(credential, describe_refusal(challenge, b"", self._hide))
            return UnansweredRequestError(
                error.message, needs_sign_in=True, never_arrived=True, is_final=True, details=error.details
            )
        if isinstance(error, RefusedRedirectError):
            return UnansweredRequestError(self._hide(str(error)), never_arrived=True, is_final=True)
        error_text = str(error)[:200] or type(error).__name__
        if isinstance(error, _UNSENT_ERRORS):
            return UnansweredRequestError(f"it cannot be reached: {error_text}", never_arrived=True)
        return UnansweredRequestError(f"its connection was lost ({error_text})")


def _match_or_claim_send_state(request: httpx2.Request) -> RequestSendState | None:
    """Return the progress of the protocol request that this HTTP request sends, or None for other messages."""
    sending = SENDING.get()
    if sending is None or request.method != "POST":
        return sending
    if sending.body is None:
        sending.body = request.content
    return sending if request.content == sending.body else None


def _get_default_timeout(request: httpx2.Request, sending: RequestSendState | None) -> float | None:
    """Return the timeout of a request that has no timeout elsewhere."""
    if request.method == "DELETE":
        return _DELETE_TIMEOUT_SECONDS  # closing a session needs no answer
    return _NOTIFICATION_TIMEOUT_SECONDS if request.method == "POST" and sending is None else None


def _record_loss_as_response(
    request: httpx2.Request, lost: UnansweredRequestError, sending: RequestSendState | None
) -> httpx2.Response:
    if sending is not None:
        sending.lost = lost
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": lost.reason}}
    return httpx2.Response(503, json=body, request=request)


def _get_body_stream(response: httpx2.Response) -> httpx2.AsyncByteStream:
    """Return the stream of the raw body, which does not mark the response as read: the SDK reads it again."""
    stream = response.stream
    return stream if isinstance(stream, httpx2.AsyncByteStream) else httpx2.ByteStream(b"")


def _replace_body(response: httpx2.Response, text: bytes) -> None:
    """Replace the body of a response by this JSON."""
    response.headers["content-type"] = "application/json"
    response.stream = httpx2.ByteStream(text)


def _parse_request_id(request: httpx2.Request) -> int | str | None:
    """Return the id of the JSON-RPC request in a POST, or None."""
    found = _REQUEST_PATTERN.match(request.content[:_MAX_HEAD_BYTES]) if request.method == "POST" else None
    return None if found is None else json.loads(found[1])


MAX_BODY_BYTES = 32 << 20
_EVENT_TIMEOUT_SECONDS = 3600.0


def create_http_transport(config: ServerConfig, secrets: SecretRedactor, auth: httpx2.Auth | None) -> Transport:
    """Return the transport of a server over HTTP."""
    client = UpstreamHttpClient(config, auth, MAX_BODY_BYTES, secrets.redact_text)

    def get_failure() -> UpstreamUnavailableError | None:
        return client.failure

    streams = _connect_streamable(config, client) if config.transport == "http" else _connect_sse(config, client)
    return Transport(streams, get_failure, tracks_sending=False)


@asynccontextmanager
async def _connect_streamable(config: ServerConfig, client: UpstreamHttpClient) -> AsyncGenerator[tuple[Any, Any]]:
    async with (
        client,
        streamable_http_client(config.url or "", http_client=client, max_sse_event_size=MAX_EVENT_BYTES) as streams,
    ):
        yield streams


@asynccontextmanager
async def _connect_sse(config: ServerConfig, client: UpstreamHttpClient) -> AsyncGenerator[tuple[Any, Any]]:
    def get_client(headers: object = None, timeout: object = None, auth: object = None) -> httpx2.AsyncClient:  # noqa: ARG001 - the SDK's names
        return client

    async with sse_client(
        config.url or "", httpx_client_factory=get_client, sse_read_timeout=_EVENT_TIMEOUT_SECONDS
    ) as (read, write):
        # If a message cannot be sent, all waiting requests fail.
        ending = asyncio.create_task(_close_stream_when_broken(client, read))
        try:
            yield read, write
        finally:
            ending.cancel()
            await asyncio.wait([ending])


async def _close_stream_when_broken(client: UpstreamHttpClient, read: Any) -> None:
    await client.broken.wait()
    await read.aclose()
