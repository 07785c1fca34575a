"""Deliver notices from the store's outbox to webhooks."""

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
from codemode.host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from codemode.stores import ALL_TENANTS, FailedNotice, InterruptStore, Notice, Outbox, Record

from .target import NoticeTarget, format_record_url


async def find_failed_notices(
    store: InterruptStore, records: Iterable[Record]
) -> Mapping[str, tuple[FailedNotice, ...]]:
    """Return the undelivered notices of at most 500 records, by record id.

    ``target`` is the name that the host chose; ``error`` is a message of this package.
    """
    failures_by_record: dict[str, tuple[FailedNotice, ...]] = {}
    for failure in await store.failed_notices([record.id for record in records], tenant=ALL_TENANTS):
        failures_by_record[failure.record_id] = (*failures_by_record.get(failure.record_id, ()), failure)
    return failures_by_record


_POST_TIMEOUT_SECONDS = 10.0
_MAX_REPLY_BYTES = 1_024
_MAX_RETRY_AFTER_SECONDS = 600
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
# An error code of Slack, such as invalid_blocks.
_ERROR_CODE = re.compile(r"[a-z]+(_[a-z]+)+")


@dataclass(frozen=True, slots=True)
class PostFailure:
    """Why a notice was rejected, as a message that may be shown, and how long to pause."""

    message: str
    retry_after_seconds: float = 0.0


_is_posting: ContextVar[bool] = ContextVar("is_posting", default=False)


class _PostingLogFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        del record
        return not _is_posting.get()


def _install_posting_log_filter() -> None:
    # It logs response headers at DEBUG, and Location may repeat the URL.
    for name in ("connection", "http11", "proxy"):
        logging.getLogger(f"httpcore.{name}").addFilter(_PostingLogFilter())


_install_posting_log_filter()


class WebhookClient:
    """Posts to one URL. Uses httpx's transport, since its client would log the URL, which may be a secret."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._transport: httpx.AsyncHTTPTransport | None = None

    async def __aenter__(self) -> Self:
        # Reads CA certificates from disk.
        self._transport = await asyncio.to_thread(_create_transport, self._url)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transport is not None:
            await self._transport.aclose()

    async def __call__(self, headers: Mapping[str, str], body: bytes) -> PostFailure | None:
        """Post; return None on success."""
        if self._transport is None:
            raise RuntimeError("WebhookClient is used inside its block")
        token = _is_posting.set(True)
        try:
            return await self._post(self._transport, headers, body)
        finally:
            _is_posting.reset(token)

    async def _post(
        self, transport: httpx.AsyncHTTPTransport, headers: Mapping[str, str], body: bytes
    ) -> PostFailure | None:
        extensions = {"timeout": httpx.Timeout(_POST_TIMEOUT_SECONDS).as_dict()}
        all_headers = {"User-Agent": "codemode-console", "Accept": "*/*", **headers}
        request = httpx.Request("POST", self._url, headers=all_headers, content=body, extensions=extensions)
        try:
            async with asyncio.timeout(_POST_TIMEOUT_SECONDS):
                response = await transport.handle_async_request(request)
                try:
                    return (
                        None
                        if response.is_success
                        else _to_failure(response, await _read_beginning(response), self._url)
                    )
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.TimeoutException):
            return PostFailure(f"it did not answer within {_POST_TIMEOUT_SECONDS:.0f} seconds")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as error:
            return PostFailure(_describe_connection_error(error))


def _to_failure(response: httpx.Response, body: bytes, url: str) -> PostFailure:
    status = response.status_code
    if response.is_redirect or 300 <= status < 400:
        return PostFailure(f"it answered {status}: redirects are not followed")
    error_code = body.decode("ascii", "replace").strip()
    # Never a part of the URL, which may be secret.
    detail = (
        f": {error_code}"
        if len(error_code) <= 100 and _ERROR_CODE.fullmatch(error_code) and error_code not in url
        else ""
    )
    retry_after = response.headers.get("retry-after", "").strip()
    seconds = int(retry_after) if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10 else 0
    wait_seconds = min(seconds, _MAX_RETRY_AFTER_SECONDS) if status in (429, 503) else 0
    return PostFailure(f"it answered {status}{detail}", wait_seconds)


async def _read_beginning(response: httpx.Response) -> bytes:
    beginning = b""
    async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_raw())) as chunks:
        async for chunk in chunks:
            beginning += chunk[: _MAX_REPLY_BYTES - len(beginning)]
            if len(beginning) >= _MAX_REPLY_BYTES:
                break
    return beginning


def _describe_connection_error(error: BaseException) -> str:
    # The error's message may contain the URL.
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "its certificate is not trusted"
        cause = cause.__cause__ or cause.__context__
    return f"it could not be reached ({type(error).__name__})"


def _create_transport(url: str) -> httpx.AsyncHTTPTransport:
    # The server may close a kept connection just as the next notice is sent.
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncHTTPTransport(limits=limits, proxy=_find_proxy(httpx.URL(url)))


def _find_proxy(url: httpx.URL) -> str | None:
    """Return the proxy that the environment sets for a URL."""
    if url.host in _LOOPBACK_HOSTS or proxy_bypass(url.host):
        return None
    proxies = getproxies()
    return proxies.get(url.scheme) or proxies.get("all")


_log = logging.getLogger("codemode.console")
RETRY_SECONDS = (15, 45, 120, 420)
"""Delays between attempts; the fifth and last is ten minutes after the first."""
_RETRY_JITTER = 0.1
_NOTICES_PER_BATCH = 4
_LEASE_MS = 60_000
_POLL_SECONDS = 1.0
_MAX_BACKOFF_SECONDS = 30.0
_MAX_PAUSE_SECONDS = 60.0


class NoticeSender:
    """Delivers the notices of a store to ``targets``.

    ``base_url`` is the console's URL, ``clock`` Unix time. Tests replace ``sleep`` and ``random_fraction`` (0 to 1).
    """

    def __init__(
        self,
        store: InterruptStore,
        targets: Sequence[NoticeTarget],
        base_url: str,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random_fraction: Callable[[], float] = random.random,
    ) -> None:
        self._store, self._targets, self._base_url = store, targets, base_url
        self._clock, self._sleep, self._random_fraction = clock, sleep, random_fraction

    @property
    def has_targets(self) -> bool:
        """True if there is a target."""
        return len(self._targets) > 0

    async def deliver_until_cancelled(self) -> None:
        """Deliver until cancelled. An interrupted delivery is repeated later under the same id."""
        async with asyncio.TaskGroup() as group:
            for target in self._targets:
                group.create_task(self._deliver_to_target_until_cancelled(target))

    async def _deliver_to_target_until_cancelled(self, target: NoticeTarget) -> None:
        backoff_seconds = 0.0
        while True:
            try:
                with self._store.watch() as watch:
                    async with WebhookClient(target.url) as client:
                        while True:
                            has_sent = await self.send_batch_and_pause(target, client)
                            if backoff_seconds:
                                _log.info("notices for %s are sent again", target.name)
                            backoff_seconds = 0.0
                            if not has_sent:
                                await watch.wait(_POLL_SECONDS)
            except Exception as error:  # noqa: BLE001 - the store may be host code and recover
                if not backoff_seconds:
                    exc_info = error if isinstance(error, CodeModeError) else None
                    _log.warning(
                        "notices for %s cannot be sent now: %s", target.name, type(error).__name__, exc_info=exc_info
                    )
                backoff_seconds = min(max(2 * backoff_seconds, 1.0), _MAX_BACKOFF_SECONDS)
                await self._sleep(backoff_seconds)

    async def send_batch_and_pause(self, target: NoticeTarget, client: WebhookClient) -> bool:
        """Deliver some due notices, and return whether there were any."""
        outbox = self._store.outbox(target.name)
        changes = await outbox.fill()
        notices = await outbox.claim(limit=_NOTICES_PER_BATCH, lease_ms=_LEASE_MS)
        results = await asyncio.gather(
            *(self._deliver_and_settle_notice(target, outbox, client, result) for result in notices),
            return_exceptions=True,
        )
        pause_seconds = 0.0
        for result in results:
            if isinstance(result, BaseException):
                raise result
            pause_seconds = max(pause_seconds, result)
        if pause_seconds:
            await self._sleep(min(pause_seconds, _MAX_PAUSE_SECONDS))
        return bool(changes or notices)

    async def _deliver_and_settle_notice(
        self, target: NoticeTarget, outbox: Outbox, client: WebhookClient, notice: Notice
    ) -> float:
        """Deliver one notice, and return for how many seconds to pause."""
        failure = await self._post_notice(target, client, notice)
        if failure is None:
            await outbox.record_delivery(notice)
            return 0.0
        if notice.attempts >= len(RETRY_SECONDS):
            if await outbox.record_delivery(notice, error=failure.message):
                log_arguments = (notice.record.id, target.name, failure.message)
                _log.warning("the notice of record %s could not be delivered to %s: %s", *log_arguments)
        else:
            jitter = 1 + _RETRY_JITTER * self._random_fraction()
            seconds = max(RETRY_SECONDS[notice.attempts] * jitter, failure.retry_after_seconds)
            await outbox.record_delivery(notice, error=failure.message, retry_ms=int(seconds * 1000))
        return failure.retry_after_seconds

    async def _post_notice(self, target: NoticeTarget, client: WebhookClient, notice: Notice) -> PostFailure | None:
        link = format_record_url(self._base_url, notice.record.id)
        try:
            # In a thread, since inputs may be large.
            message = await run_in_thread_if_large_or_slow(
                LARGE_CHARACTERS, lambda: target.create_request(notice, link, self._clock())
            )
        except Exception as error:  # noqa: BLE001 - untrusted content must not stop other notices
            return PostFailure(f"it could not be created ({type(error).__name__})")
        return await client(message.headers, message.body)
