"""Posts to a URL, once: no redirects, nothing kept from one time to the next, little of the answer read."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Self, cast
from urllib.request import getproxies, proxy_bypass

import httpx

_SECONDS = 10.0
_MOST_READ_BYTES = 1_024
_MAX_RETRY_AFTER_SECONDS = 600
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# As Slack says what it does not like: invalid_blocks.
_WORD = re.compile(r"[a-z]+(_[a-z]+)+")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a notice was not taken: words of ours, which may be shown and kept; and for how long to send nothing."""

    words: str
    retry_after_seconds: float = 0.0


_is_posting: ContextVar[bool] = ContextVar("is_posting", default=False)


class _Unlogged(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        del record
        return not _is_posting.get()


def _keep_out_of_logs() -> None:
    # At DEBUG it logs the headers that come, and Location may say the URL again.
    for name in ("connection", "http11", "proxy"):
        logging.getLogger(f"httpcore.{name}").addFilter(_Unlogged())


_keep_out_of_logs()


class Posting:
    """Posts to one URL. The client of httpx would log the URL, which may be a secret: its transport does not."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._transport: httpx.AsyncHTTPTransport | None = None

    async def __aenter__(self) -> Self:
        # Reads the certificates of the authorities.
        self._transport = await asyncio.to_thread(_transport, self._url)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transport is not None:
            await self._transport.aclose()

    async def __call__(self, headers: Mapping[str, str], body: bytes) -> Failure | None:
        """Post; None when it was taken."""
        if self._transport is None:
            raise RuntimeError("Posting is used inside its block")
        was = _is_posting.set(True)
        try:
            return await self._post(self._transport, headers, body)
        finally:
            _is_posting.reset(was)

    async def _post(
        self, transport: httpx.AsyncHTTPTransport, headers: Mapping[str, str], body: bytes
    ) -> Failure | None:
        settings = {"timeout": httpx.Timeout(_SECONDS).as_dict()}
        named = {"User-Agent": "codemode-console", "Accept": "*/*", **headers}
        request = httpx.Request("POST", self._url, headers=named, content=body, extensions=settings)
        try:
            async with asyncio.timeout(_SECONDS):
                response = await transport.handle_async_request(request)
                try:
                    return None if response.is_success else _refused(response, await _beginning(response), self._url)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.TimeoutException):
            return Failure(f"it did not answer within {_SECONDS:.0f} seconds")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as error:
            return Failure(_unreachable(error))


def _refused(response: httpx.Response, said: bytes, url: str) -> Failure:
    status = response.status_code
    if response.is_redirect or 300 <= status < 400:
        return Failure(f"it answered {status}: redirects are not followed")
    word = said.decode("ascii", "replace").strip()
    # Never what it was sent itself, which may be secret.
    told = f": {word}" if len(word) <= 100 and _WORD.fullmatch(word) and word not in url else ""
    asked = response.headers.get("retry-after", "").strip()
    seconds = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else 0
    waits = min(seconds, _MAX_RETRY_AFTER_SECONDS) if status in (429, 503) else 0
    return Failure(f"it answered {status}{told}", waits)


async def _beginning(response: httpx.Response) -> bytes:
    found = b""
    async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_raw())) as chunks:
        async for chunk in chunks:
            found += chunk[: _MOST_READ_BYTES - len(found)]
            if len(found) >= _MOST_READ_BYTES:
                break
    return found


def _unreachable(error: BaseException) -> str:
    # The error's own words may hold the URL.
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "its certificate is not trusted"
        cause = cause.__cause__ or cause.__context__
    return f"it could not be reached ({type(error).__name__})"


def _transport(url: str) -> httpx.AsyncHTTPTransport:
    # A connection that was kept may be closed at the other end just when the next notice is sent.
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncHTTPTransport(limits=limits, proxy=_proxy_of(httpx.URL(url)))


def _proxy_of(url: httpx.URL) -> str | None:
    """Return the proxy that the environment names for a URL."""
    if url.host in _LOOPBACK or proxy_bypass(url.host):
        return None
    proxies = getproxies()
    return proxies.get(url.scheme) or proxies.get("all")
