"""A gateway that runs elsewhere, as messages: what is posted, what comes back, and why nothing does. Knows no stdio."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from ..config.values import ConfigError
from ..tls import tls_context
from .http_app import MCP_PATH
from .http_token_checks import is_loopback

Message = dict[str, Any]
SESSION_HEADER = "mcp-session-id"
TOKEN_VARIABLE = "CODEMODE_MCP_TOKEN"  # noqa: S105 - the name of a variable
_MOST_BYTES = 64 << 20
_CONNECT_SECONDS = 10.0
_ACCEPTS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class PeerError(Exception):
    """The gateway gives no answer; the message says why, and what to do."""


class NotListeningError(PeerError):
    """Nothing listens there: what was to be sent has certainly not arrived."""


class LostSessionError(PeerError):
    """The gateway knows the session no more: what was sent was not looked at."""


class HttpPeer:
    """The gateway at a URL. Each message is one POST; ``session`` and ``version`` are those of the handshake."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = peer_url(url)
        self._token = token
        self.session: str | None = None
        self.version: str | None = None
        # A proxy of the environment would be asked for this machine's own address.
        self._client = httpx2.AsyncClient(
            verify=tls_context(),
            timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None),
            trust_env=not is_loopback(urlsplit(self.url).hostname or ""),
        )

    async def aclose(self) -> None:
        """End the session and all connections."""
        try:
            if self.session is not None:
                await self._client.delete(self.url, headers=self._headers({}), timeout=_CONNECT_SECONDS)
        except httpx2.HTTPError:
            pass
        finally:
            await self._client.aclose()

    async def sent(self, message: Message) -> AsyncGenerator[Message]:
        """Post a message, and give what comes back, with the answer if it is a request. Raises `PeerError`."""
        async with self._asked("POST", message) as response:
            if message.get("method") == "initialize":
                self.session = response.headers.get(SESSION_HEADER)
            if "id" in message and "method" in message:
                async for one in _messages(response):
                    yield one

    async def heard(self) -> AsyncGenerator[Message]:
        """Give what the gateway says by itself, until it ends the connection. Raises `PeerError`."""
        async with self._asked("GET", {}) as response:
            async for one in _messages(response):
                yield one

    @asynccontextmanager
    async def _asked(self, method: str, message: Message) -> AsyncGenerator[httpx2.Response]:
        content = json.dumps(message).encode() if message else None
        try:
            async with self._client.stream(
                method, self.url, content=content, headers=self._headers(message)
            ) as response:
                if response.status_code >= 300:
                    await self._refused(response, message)
                yield response
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise NotListeningError(
                f"nothing listens at {self.url}: start the gateway there, with `codemode mcp --http HOST:PORT`"
            ) from error
        except (httpx2.HTTPError, httpx2.SSEError) as error:
            raise PeerError(f"the connection to {self.url} was lost; what became of the call is unknown") from error

    def _headers(self, message: Message) -> dict[str, str]:
        headers = dict(_ACCEPTS)
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        if (version := modern_version(message)) is not None:
            return {**headers, MCP_PROTOCOL_VERSION_HEADER: version, **_routed(message)}
        if message.get("method") != "initialize":
            headers |= {} if self.session is None else {SESSION_HEADER: self.session}
            headers |= {} if self.version is None else {MCP_PROTOCOL_VERSION_HEADER: self.version}
        return headers

    async def _refused(self, response: httpx2.Response, message: Message) -> None:
        """Raise for a status that is no answer, unless the answer is an error as JSON-RPC has it: that passes on."""
        status = response.status_code
        if status == 401:
            why = "does not take the token in" if self._token else "needs a token: set"
            raise PeerError(f"the gateway at {self.url} {why} {TOKEN_VARIABLE}")
        if status == 404 and self.session is not None and modern_version(message) is None:
            raise LostSessionError(f"the gateway at {self.url} has ended the session")
        if status < 400:
            place = response.headers.get("location", "elsewhere")
            raise PeerError(f"{self.url} leads to {place:.300}: use the URL of the gateway itself")
        if response.headers.get("content-type", "").startswith("application/json"):
            found = _read(await _whole(response))
            if found is not None and isinstance(found.get("error"), dict):
                raise AnsweredError(status, cast("Message", found["error"]))
        raise PeerError(f"{self.url} has answered with status {status}: is it a gateway?")


class AnsweredError(PeerError):
    """The gateway has answered with an ``error`` of JSON-RPC."""

    def __init__(self, status: int, error: Message) -> None:
        super().__init__(str(error.get("message", "")))
        self.status, self.error = status, error


def peer_url(url: str) -> str:
    """Return the URL of a gateway's messages; one without a path is that of the host. Raises `ConfigError`."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or not url.isprintable() or "@" in urlsplit(url).netloc:
        raise ConfigError("--bridge must be the URL of a gateway, such as http://127.0.0.1:8765/mcp")
    return url if urlsplit(url).path.strip("/") else url.rstrip("/") + MCP_PATH


def modern_version(message: Mapping[str, Any]) -> str | None:
    """Return the revision that a request says it is of, where it belongs to no session; None for the others."""
    params = message.get("params")
    meta = cast("Mapping[str, Any]", params).get("_meta") if isinstance(params, Mapping) else None
    said = cast("Mapping[str, Any]", meta).get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, Mapping) else None
    return said if isinstance(said, str) and said not in HANDSHAKE_PROTOCOL_VERSIONS else None


def _routed(message: Message) -> dict[str, str]:
    """Return the headers in which a request of 2026-07-28 says again what it is about."""
    method = str(message.get("method", ""))
    name = message["params"].get(NAME_BEARING_METHODS.get(method, ""))
    named = {MCP_NAME_HEADER: encode_header_value(name)} if isinstance(name, str) else {}
    return {MCP_METHOD_HEADER: encode_header_value(method), **named}


async def _messages(response: httpx2.Response) -> AsyncIterator[Message]:
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        async for event in httpx2.EventSource(response, max_event_size=_MOST_BYTES):
            if event.data and (found := _read(event.data)) is not None:
                yield found
    elif (found := _read(await _whole(response))) is not None:
        yield found


async def _whole(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > _MOST_BYTES:
            raise PeerError(f"an answer of more than {_MOST_BYTES} bytes was refused")
    return bytes(body)


def _read(text: str | bytes) -> Message | None:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("Message", found) if isinstance(found, dict) else None
