"""What servers log, told to the clients who asked for it: from their level on, without secrets, never without end."""

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
from codemode.trace.visible_text import clip_text, format_count, one_line

from ..upstreams.connection import LEVELS, lowest

MAX_CHARACTERS = 10_000
MAX_A_WINDOW = 100
WINDOW_SECONDS = 1.0
"""In which one client is told so many messages of one server, and then how many more there were."""
MAX_WAITING = 200
MAX_CLIENTS = 1_000
TELL_SECONDS = 5.0
ASKED_SECONDS = 2.0
"""How long clients wait until servers know what is heard: one that is slow then logs too little, or too much."""
_MAX_NAME_CHARACTERS = 200
_MAX_READ_CHARACTERS = 2 * MAX_CHARACTERS
_MAX_DEPTH = 32

Hide = Callable[[Any], Awaitable[Any]]
_log = logging.getLogger("codemode.mcp")


async def as_it_is(value: Any) -> Any:
    """Return JSON as it is: what hides secrets where there are none."""
    return value


class Logs:
    """Who hears what the servers of one principal log.

    A client of the handshake revisions asks once, and hears until it leaves; a request of 2026-07-28 hears until it is
    answered. Without either nobody is told anything. ``hide`` takes secrets out of JSON.
    """

    def __init__(self, upstreams: Callable[[], Sequence[Any]], hide: Hide = as_it_is) -> None:
        self._upstreams = upstreams
        self._hide = hide
        self._hearers: dict[Any, _Hearer] = {}

    @property
    def level(self) -> types.LoggingLevel | None:
        """The level from which on somebody hears; None: nobody does."""
        return lowest(one.level for one in self._hearers.values())

    async def hear(self, connection: Any, level: types.LoggingLevel) -> None:
        """Let a client hear from this level on; servers that run know it then, or take long. Starts none."""
        hearer = self._hearers.get(connection)
        if hearer is not None:
            hearer.level = level
        elif connection is not None and len(self._hearers) < MAX_CLIENTS:

            async def send(params: dict[str, Any]) -> None:
                await connection.notify("notifications/message", params)

            self._hearers[connection] = _Hearer(level, send, self._hide)
            connection.exit_stack.callback(self._left, connection)
        await self._ask()

    @asynccontextmanager
    async def hearing(self, ctx: Any, level: types.LoggingLevel) -> AsyncGenerator[None]:
        """Let a request hear from this level on, until it is answered."""

        async def send(params: dict[str, Any]) -> None:
            said = types.LoggingMessageNotification(params=types.LoggingMessageNotificationParams(**params))
            await ctx.session.send_notification(said, related_request_id=ctx.request_id)

        request = object()
        hearer = self._hearers[request] = _Hearer(level, send, self._hide)
        try:
            await self._ask()
            yield
        finally:
            del self._hearers[request]
            try:
                await hearer.told()
            finally:
                hearer.close()

    def heard(self, server: str, said: types.LoggingMessageNotificationParams) -> None:
        """Pass on what a server has logged, soon."""
        able = [one for one in self._hearers.values() if one.hears(said.level)]
        admitting = [one for one in able if one.admits(server)]
        if admitting:  # only then is it looked at
            message = _Message(server, said.level, (said.logger or "")[:_MAX_READ_CHARACTERS], _bounded(said.data))
            for one in admitting:
                one.put(message)

    async def aclose(self) -> None:
        """Tell nobody anything more."""
        hearers, self._hearers = [*self._hearers.values()], {}
        await asyncio.gather(*(task for one in hearers if (task := one.close()) is not None), return_exceptions=True)

    def _left(self, connection: Any) -> None:
        hearer = self._hearers.pop(connection, None)
        if hearer is not None:
            hearer.close()

    async def _ask(self) -> None:
        asked = [asyncio.ensure_future(one.ask_for_log()) for one in self._upstreams()]
        if asked:
            await asyncio.wait(asked, timeout=ASKED_SECONDS)


@dataclass(frozen=True)
class _Message:
    """What a server has logged, in bounds, and with whatever secrets it holds."""

    server: str
    level: types.LoggingLevel
    logger: str
    data: Any

    async def shown(self, hide: Hide) -> dict[str, Any]:
        """Return it as a client is told it: it names the server and holds no secrets."""
        said = await hide({"logger": self.logger, "data": self.data})
        name, data = one_line(said["logger"], _MAX_NAME_CHARACTERS), said["data"]
        logger = f"{self.server}.{name}" if name else self.server
        return {
            "level": self.level,
            "logger": logger,
            "data": clip_text(data, MAX_CHARACTERS) if isinstance(data, str) else data,
        }


class _Hearer:
    """One client, or one request of one. A client that reads slowly misses messages, and is told how many."""

    def __init__(self, level: types.LoggingLevel, send: Callable[[dict[str, Any]], Awaitable[None]], hide: Hide):
        self.level: types.LoggingLevel = level
        self._send = send
        self._hide = hide
        self._waiting: deque[_Message] = deque()
        self._since = 0.0
        self._admitted: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._is_ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def hears(self, level: types.LoggingLevel) -> bool:
        return LEVELS.index(level) >= LEVELS.index(self.level)

    def admits(self, server: str) -> bool:
        """Count a message of a server, and tell whether there is room for it."""
        now = asyncio.get_running_loop().time()
        if now - self._since >= WINDOW_SECONDS:
            self._since = now
            self._admitted.clear()
        self._admitted[server] += 1
        if self._admitted[server] <= MAX_A_WINDOW and len(self._waiting) < MAX_WAITING:
            return True
        self._left_out[server] += 1
        self._go_on()
        return False

    def put(self, message: _Message) -> None:
        self._waiting.append(message)
        self._go_on()

    async def told(self) -> None:
        """Wait until all that waits is told, for so long that a client which reads has read it."""
        self._is_ending.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=TELL_SECONDS)

    def close(self) -> asyncio.Task[None] | None:
        """Tell no more, and return what ends then."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    def _go_on(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        while self._waiting or self._left_out:
            while self._waiting:
                await self._tell_one(await self._waiting.popleft().shown(self._hide))
            if self._left_out:
                await self._until_next_window()
                left_out, self._left_out = self._left_out, Counter()
                for server, count in left_out.items():
                    await self._tell_one(self._note(server, count))

    async def _until_next_window(self) -> None:
        left = self._since + WINDOW_SECONDS - asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(left, 0.0)):
                await self._is_ending.wait()

    def _note(self, server: str, count: int) -> dict[str, Any]:
        level = "warning" if self.hears("warning") else self.level
        verb = "was" if count == 1 else "were"
        said = f"{format_count(count, 'message')} of this server {verb} left out: too many at once"
        return {"level": level, "logger": server, "data": said}

    async def _tell_one(self, params: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(TELL_SECONDS):
                await self._send(params)
        except Exception as error:  # noqa: BLE001 - a client that has gone misses nothing
            _log.debug("a client was not told what a server has logged: %s", type(error).__name__)


def _bounded(data: Any) -> Any:
    """Return data that can be looked through and written; of a text more than is told, as secrets are whole in it."""
    if isinstance(data, str):
        return data[:_MAX_READ_CHARACTERS]
    try:
        fits = estimate_json_length(data, MAX_CHARACTERS) < MAX_CHARACTERS and not nests_deeper_than(
            json.dumps(data), _MAX_DEPTH
        )
    except (TypeError, ValueError, RecursionError):
        fits = False
    return data if fits else f"[left out: more than {MAX_CHARACTERS:,} characters, or {_MAX_DEPTH} levels]"
