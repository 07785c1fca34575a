"""Talk HTTP with one server: a failure costs one request, and answers are bounded."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import httpx2
from mcp_types import INTERNAL_ERROR

from codemode.errors import CodeModeAuthenticationError, CodeModeError
from codemode.host.threads import run_check
from codemode.trace.visible_text import one_line

from ..config.values import ServerConfig
from ..tls import tls_context
from .event_stream import EventStream
from .http_refusals import (
    UNAUTHORIZED,
    credential_refusal,
    describe,
    error_answer,
    is_lost_session,
    refuses_entry,
    static_credential,
)
from .lines import MAX_VALUES_ON_THE_LOOP, REPAIRED, read_body, without_bom
from .losses import Lost, UpstreamFailure
from .redirects import RefusedRedirectError, describe_url, retarget, send_following, stays_with
from .streams import SENDING, Sending

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
        if secured is not None and request.url.scheme == "http" and stays_with(request.url, secured):
            request = retarget(request, request.url.copy_with(scheme=secured.scheme, port=secured.port))
        send = super().send
        return await send_following(lambda one: send(one, **more), request, self._report_redirect)

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
