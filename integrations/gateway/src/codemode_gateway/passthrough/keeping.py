"""Keeps one server subscribed to what clients watch of it, also where it is started anew. Tells no client anything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import mcp_types as types
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from codemode.trace.visible_text import one_line

from ..upstreams.connection import LostRequestError

LOOK_SECONDS = 20.0
MAX_LOOK_SECONDS = 300.0
SUBSCRIBE_SECONDS = 30.0
_MAX_REFUSED = 1_000

_log = logging.getLogger("codemode.mcp")


class Keeper:
    """The subscriptions of one server. Ends when nothing of it is watched, and begins again.

    ``wanted`` tells the URIs, ``renewed`` hears that the server was away. ``refused`` are URIs, and why.
    """

    def __init__(
        self,
        upstream: Any,
        wanted: Callable[[str], frozenset[str]],
        renewed: Callable[[str], None],
        hide: Callable[[str], str] = str,
    ) -> None:
        self.upstream = upstream
        self.refused: dict[str, str] = {}
        self._name: str = upstream.config.name
        self._wanted = wanted
        self._renewed = renewed
        self._hide = hide
        self._session: Any = None
        self._subscribed: set[str] = set()
        self._changed = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Subscribe to what is wanted now."""
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._keep())

    async def looked(self) -> None:
        """Subscribe to what is wanted now, and return when the server has answered, or takes long."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        self.look()
        await asyncio.wait([answered], timeout=SUBSCRIBE_SECONDS)

    def close(self) -> asyncio.Future[Any] | None:
        """Stop, and return what ends then."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    async def _keep(self) -> None:
        pause = LOOK_SECONDS
        try:
            while self._wanted(self._name) or self._subscribed:
                self._changed.clear()
                try:
                    await self._kept()
                    pause = LOOK_SECONDS
                except Exception as error:  # noqa: BLE001 - a server that cannot be reached is tried again
                    self._log(error)
                    pause = min(pause * 2, MAX_LOOK_SECONDS)
                self._answered()
                await self._pause(pause)
        finally:
            self._answered(is_last=True)

    async def _kept(self) -> None:
        wanted = self._wanted(self._name)
        async with asyncio.timeout(SUBSCRIBE_SECONDS) as limit:
            await self.upstream.ask(partial(self._keep_over, wanted, limit))

    async def _keep_over(self, wanted: frozenset[str], limit: asyncio.Timeout, session: Any) -> None:
        if session is not self._session:
            was_away = self._session is not None
            self._session, self._subscribed = session, set()
            if was_away:
                self._renewed(self._name)
        if session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await self._subscribe(session, wanted)
        elif wanted:
            await self._listen(session, wanted, limit)

    async def _subscribe(self, session: Any, wanted: frozenset[str]) -> None:
        for uri in sorted(self._subscribed - wanted):
            self._subscribed.discard(uri)
            await _refusal(session, types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri)))
        for uri in sorted(wanted - self._subscribed):
            params = types.SubscribeRequestParams(uri=uri)
            refusal = await _refusal(session, types.SubscribeRequest(params=params))
            if refusal is None:
                self._subscribed.add(uri)
                continue
            while len(self.refused) >= _MAX_REFUSED:
                del self.refused[next(iter(self.refused))]
            self.refused[uri] = self._hide(refusal)

    async def _listen(self, session: Any, wanted: frozenset[str], limit: asyncio.Timeout) -> None:
        """Keep a stream open until other resources are wanted; its events come as notifications do."""
        async with AsyncExitStack() as stack:
            stack.enter_context(self.upstream.held())  # what somebody watches is not idle
            stream = await stack.enter_async_context(listen(session, resource_subscriptions=sorted(wanted)))
            limit.reschedule(None)
            self._answered()
            changed = asyncio.ensure_future(self._changed.wait())
            ended = asyncio.ensure_future(_read(stream))
            try:
                await asyncio.wait({changed, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
                ended.cancel()

    def _answered(self, *, is_last: bool = False) -> None:
        # Whoever has come since the last look at what is wanted is answered by the next.
        if is_last or not self._changed.is_set():
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                if not one.done():
                    one.set_result(None)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _log(self, error: Exception) -> None:
        said = one_line(self._hide(f"{type(error).__name__}: {error}"), 300)
        _log.warning("subscriptions to the server %r failed: %s", self._name, said)


async def _refusal(session: Any, request: Any) -> str | None:
    try:
        await session.send_request(request, types.EmptyResult)
    except LostRequestError:
        raise
    except MCPError as error:  # which is about this one alone
        return error.message
    return None


async def _read(stream: Any) -> None:
    async for _ in stream:
        pass
