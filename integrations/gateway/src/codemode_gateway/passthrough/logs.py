"""Forward server logs to subscribed clients, filtered, redacted and rate-limited."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from codemode.data.json_shape import estimate_json_length
from codemode.data.json_values import nests_deeper_than
from codemode.trace.visible_text import clip_text, clip_to_visible_line, format_count

from ..upstreams.connection import LOG_LEVELS_BY_VERBOSITY, find_most_verbose_level

MAX_CHARACTERS = 10_000
MAX_MESSAGES_PER_WINDOW = 100
WINDOW_SECONDS = 1.0
"""The window of `MAX_MESSAGES_PER_WINDOW`: further messages of a server are counted but not sent to a client."""
MAX_WAITING = 200
MAX_CLIENTS = 1_000
SEND_TIMEOUT_SECONDS = 5.0
SET_LEVEL_TIMEOUT_SECONDS = 2.0
"""How long ``logging/setLevel`` waits for the servers; a slow server changes its level later."""
_MAX_NAME_CHARACTERS = 200
_MAX_READ_CHARACTERS = 2 * MAX_CHARACTERS
_MAX_DEPTH = 32

Hide = Callable[[Any], Awaitable[Any]]
_log = logging.getLogger("codemode.mcp")


async def hide_nothing(value: Any) -> Any:
    """Return JSON unchanged."""
    return value


class LogForwarder:
    """Subscribers to the logs of one principal's servers.

    A client of the handshake revisions subscribes once, until it disconnects; a 2026-07-28 request subscribes until it
    is answered. ``hide`` removes secrets from JSON.
    """

    def __init__(self, upstreams: Callable[[], Sequence[Any]], hide: Hide = hide_nothing) -> None:
        self._upstreams = upstreams
        self._hide = hide
        self._subscribers: dict[Any, _LogSubscriber] = {}

    @property
    def subscribed_level(self) -> types.LoggingLevel | None:
        """The most verbose subscribed level, or None."""
        return find_most_verbose_level(subscriber.level for subscriber in self._subscribers.values())

    async def subscribe_client(self, connection: Any, level: types.LoggingLevel) -> None:
        """Subscribe a client from a level on, and update running servers for a limited time."""
        subscriber = self._subscribers.get(connection)
        if subscriber is not None:
            subscriber.level = level
        elif connection is not None and len(self._subscribers) < MAX_CLIENTS:

            async def send(params: dict[str, Any]) -> None:
                await connection.notify("notifications/message", params)

            self._subscribers[connection] = _LogSubscriber(level, send, self._hide)
            connection.exit_stack.callback(self._on_disconnect, connection)
        await self._send_levels_to_servers()

    @asynccontextmanager
    async def subscribe_request(self, ctx: Any, level: types.LoggingLevel) -> AsyncGenerator[None]:
        """Subscribe a request until it is answered."""

        async def send(params: dict[str, Any]) -> None:
            notification = types.LoggingMessageNotification(params=types.LoggingMessageNotificationParams(**params))
            await ctx.session.send_notification(notification, related_request_id=ctx.request_id)

        request = object()
        subscriber = self._subscribers[request] = _LogSubscriber(level, send, self._hide)
        try:
            await self._send_levels_to_servers()
            yield
        finally:
            del self._subscribers[request]
            try:
                await subscriber.flush()
            finally:
                subscriber.close()

    def on_log_message(self, server: str, entry: types.LoggingMessageNotificationParams) -> None:
        """Queue a server's log message for subscribers."""
        interested = [subscriber for subscriber in self._subscribers.values() if subscriber.wants_level(entry.level)]
        admitting = [subscriber for subscriber in interested if subscriber.count_and_admit(server)]
        if admitting:  # check the size only if there are subscribers
            message = _LogMessage(
                server, entry.level, (entry.logger or "")[:_MAX_READ_CHARACTERS], _limit_data(entry.data)
            )
            for subscriber in admitting:
                subscriber.put(message)

    async def aclose(self) -> None:
        """End all subscriptions."""
        subscribers, self._subscribers = [*self._subscribers.values()], {}
        await asyncio.gather(
            *(task for subscriber in subscribers if (task := subscriber.close()) is not None), return_exceptions=True
        )

    def _on_disconnect(self, connection: Any) -> None:
        subscriber = self._subscribers.pop(connection, None)
        if subscriber is not None:
            subscriber.close()

    async def _send_levels_to_servers(self) -> None:
        updates = [asyncio.ensure_future(upstream.send_log_level_if_running()) for upstream in self._upstreams()]
        if updates:
            await asyncio.wait(updates, timeout=SET_LEVEL_TIMEOUT_SECONDS)


@dataclass(frozen=True)
class _LogMessage:
    """A bounded log message of a server, which may hold secrets."""

    server: str
    level: types.LoggingLevel
    logger: str
    data: Any

    async def to_params(self, hide: Hide) -> dict[str, Any]:
        """Return the message for a client: labelled and without secrets."""
        visible = await hide({"logger": self.logger, "data": self.data})
        name, data = clip_to_visible_line(visible["logger"], _MAX_NAME_CHARACTERS), visible["data"]
        logger = f"{self.server}.{name}" if name else self.server
        return {
            "level": self.level,
            "logger": logger,
            "data": clip_text(data, MAX_CHARACTERS) if isinstance(data, str) else data,
        }


class _LogSubscriber:
    """One client or request. A slow client misses messages and receives their number."""

    def __init__(self, level: types.LoggingLevel, send: Callable[[dict[str, Any]], Awaitable[None]], hide: Hide):
        self.level: types.LoggingLevel = level
        self._send = send
        self._hide = hide
        self._waiting: deque[_LogMessage] = deque()
        self._window_start = 0.0
        self._admitted: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._is_ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wants_level(self, level: types.LoggingLevel) -> bool:
        return LOG_LEVELS_BY_VERBOSITY.index(level) >= LOG_LEVELS_BY_VERBOSITY.index(self.level)

    def count_and_admit(self, server: str) -> bool:
        """Count a server's message; return whether it fits the limits."""
        now = asyncio.get_running_loop().time()
        if now - self._window_start >= WINDOW_SECONDS:
            self._window_start = now
            self._admitted.clear()
        self._admitted[server] += 1
        if self._admitted[server] <= MAX_MESSAGES_PER_WINDOW and len(self._waiting) < MAX_WAITING:
            return True
        self._dropped[server] += 1
        self._start_sending()
        return False

    def put(self, message: _LogMessage) -> None:
        self._waiting.append(message)
        self._start_sending()

    async def flush(self) -> None:
        """Wait for queued messages, for a limited time."""
        self._is_ending.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=SEND_TIMEOUT_SECONDS)

    def close(self) -> asyncio.Task[None] | None:
        """Stop sending; return the task that ends."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    def _start_sending(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._waiting or self._dropped:
            while self._waiting:
                await self._send_one(await self._waiting.popleft().to_params(self._hide))
            if self._dropped:
                await self._wait_for_next_window()
                left_out, self._dropped = self._dropped, Counter()
                for server, count in left_out.items():
                    await self._send_one(self._create_drop_notice(server, count))

    async def _wait_for_next_window(self) -> None:
        remaining = self._window_start + WINDOW_SECONDS - asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(remaining, 0.0)):
                await self._is_ending.wait()

    def _create_drop_notice(self, server: str, count: int) -> dict[str, Any]:
        level = "warning" if self.wants_level("warning") else self.level
        verb = "was" if count == 1 else "were"
        text = f"{format_count(count, 'message')} of this server {verb} dropped: too many at once"
        return {"level": level, "logger": server, "data": text}

    async def _send_one(self, params: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                await self._send(params)
        except Exception as error:  # noqa: BLE001 - the client may have disconnected
            _log.debug("a server's log message could not be sent to a client: %s", type(error).__name__)


def _limit_data(data: Any) -> Any:
    """Return data within limits. Text keeps extra characters so that secrets in it stay recognizable."""
    if isinstance(data, str):
        return data[:_MAX_READ_CHARACTERS]
    try:
        fits = estimate_json_length(data, MAX_CHARACTERS) < MAX_CHARACTERS and not nests_deeper_than(
            json.dumps(data), _MAX_DEPTH
        )
    except (TypeError, ValueError, RecursionError):
        fits = False
    return data if fits else f"[left out: more than {MAX_CHARACTERS:,} characters, or {_MAX_DEPTH} levels]"
