"""Send notices from the outbox of a store while a console runs, each posted once to its URL."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Self, cast
from urllib.request import getproxies, proxy_bypass

import httpx

from codemode import CodeModeError
from codemode.host.threads import LARGE_CHARACTERS, run_check
from codemode.stores import ALL_TENANTS, FailedNotice, InterruptStore, Notice, Outbox, Record

from .target import Target, link_of


async def failures_of(store: InterruptStore, records: Iterable[Record]) -> Mapping[str, tuple[FailedNotice, ...]]:
    """Return the notices that were given up, by the ids of records that have some; one statement for all of these.

    At most 500 records, which are the visitor's to see. The ``target`` of each is a name that the host chose, and its
    ``error`` words of this package.
    """
    found: dict[str, tuple[FailedNotice, ...]] = {}
    for one in await store.failed_notices([record.id for record in records], tenant=ALL_TENANTS):
        found[one.record_id] = (*found.get(one.record_id, ()), one)
    return found


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


_log = logging.getLogger("codemode.console")
RETRY_SECONDS = (15, 45, 120, 420)
"""Between attempts: the fifth and last one is ten minutes after the first."""
_JITTER = 0.1
_AT_ONCE = 4
_LEASE_MS = 60_000
_LOOK_SECONDS = 1.0
_MOST_SECONDS_AWAY = 30.0
_MOST_SECONDS_HELD = 60.0


class Sender:
    """Sends to ``targets`` what waits in a store. ``base_url`` is where the console is, ``clock`` Unix time.

    ``sleep`` waits for so many seconds, ``spread`` gives a number from 0 to 1: other ones in tests.
    """

    def __init__(
        self,
        store: InterruptStore,
        targets: Sequence[Target],
        base_url: str,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._store, self._targets, self._base_url = store, targets, base_url
        self._clock, self._sleep, self._spread = clock, sleep, spread

    @property
    def has_targets(self) -> bool:
        """Whether anybody is to be told."""
        return len(self._targets) > 0

    async def run(self) -> None:
        """Send until it is cancelled. What is being sent then is sent again by the next, under the same id."""
        async with asyncio.TaskGroup() as group:
            for target in self._targets:
                group.create_task(self._serve(target))

    async def _serve(self, target: Target) -> None:
        away = 0.0
        while True:
            try:
                with self._store.watch() as watch:
                    async with Posting(target.url) as post:
                        while True:
                            has_sent = await self.round(target, post)
                            if away:
                                _log.info("notices for %s are sent again", target.name)
                            away = 0.0
                            if not has_sent:
                                await watch.wait(_LOOK_SECONDS)
            except Exception as error:  # noqa: BLE001 - the store may be host code, and may work again the next time
                if not away:
                    told = error if isinstance(error, CodeModeError) else None
                    _log.warning(
                        "notices for %s cannot be sent now: %s", target.name, type(error).__name__, exc_info=told
                    )
                away = min(max(2 * away, 1.0), _MOST_SECONDS_AWAY)
                await self._sleep(away)

    async def round(self, target: Target, post: Posting) -> bool:
        """Send some of what is to be sent now, and say whether there was anything to do."""
        outbox = self._store.outbox(target.name)
        changes = await outbox.fill()
        notices = await outbox.claim(limit=_AT_ONCE, lease_ms=_LEASE_MS)
        sent = await asyncio.gather(*(self._send(target, outbox, post, one) for one in notices), return_exceptions=True)
        held = 0.0
        for one in sent:
            if isinstance(one, BaseException):
                raise one
            held = max(held, one)
        if held:
            await self._sleep(min(held, _MOST_SECONDS_HELD))
        return bool(changes or notices)

    async def _send(self, target: Target, outbox: Outbox, post: Posting, notice: Notice) -> float:
        """Return for how many seconds the target wants no more."""
        failure = await self._posted(target, post, notice)
        if failure is None:
            await outbox.settle(notice)
            return 0.0
        if notice.attempts >= len(RETRY_SECONDS):
            if await outbox.settle(notice, error=failure.words):
                said = (notice.record.id, target.name, failure.words)
                _log.warning("the notice of record %s for %s is given up: %s", *said)
        else:
            spread = 1 + _JITTER * self._spread()
            seconds = max(RETRY_SECONDS[notice.attempts] * spread, failure.retry_after_seconds)
            await outbox.settle(notice, error=failure.words, retry_ms=int(seconds * 1000))
        return failure.retry_after_seconds

    async def _posted(self, target: Target, post: Posting, notice: Notice) -> Failure | None:
        link = link_of(self._base_url, notice.record.id)
        try:
            # In a thread: an input may be large.
            made = await run_check(LARGE_CHARACTERS, lambda: target.post(notice, link, self._clock()))
        except Exception as error:  # noqa: BLE001 - of what strangers have written, and others are to be told of theirs
            return Failure(f"it could not be written ({type(error).__name__})")
        return await post(made.headers, made.body)
