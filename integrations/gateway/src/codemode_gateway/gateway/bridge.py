"""Joins a stdio client to a gateway that runs over HTTP: messages pass both ways, and connections come again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED

from .http_peer import (
    TOKEN_VARIABLE,
    AnsweredError,
    HttpPeer,
    LostSessionError,
    Message,
    NotListeningError,
    PeerError,
    modern_version,
)
from .pipes import claimed

_PAUSES_SECONDS = (0.1, 0.4, 1.0, 2.0)
_QUIET_SECONDS = 1.0
_NO_SUCH_METHOD = 405
_OWN_ID = "codemode-bridge"


async def bridge(url: str) -> None:
    """Pass on what a client says on standard input until it ends. Raises `ConfigError` for what is no URL.

    The token of a gateway that asks for one is in the environment, as ``CODEMODE_MCP_TOKEN``.
    """
    peer = HttpPeer(url, os.environ.get(TOKEN_VARIABLE))
    loop = asyncio.get_running_loop()
    with claimed() as pipes:
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # no loop of the main thread
                loop.add_signal_handler(number, pipes.end)
        await Bridge(peer, pipes.send).run(pipes.received())


class Bridge:
    """Passes messages between a client, to whom ``send`` writes lines, and a gateway."""

    def __init__(self, peer: HttpPeer, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._peer, self._send = peer, send
        self._running: dict[str, asyncio.Task[None]] = {}
        self._modern: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._opening: Message | None = None
        self._begun: Message | None = None
        self._again = asyncio.Lock()
        self._was_there = False

    async def run(self, received: AsyncIterator[Any]) -> None:
        """Pass on all that comes, until it ends; then end what still runs."""
        try:
            async for one in received:
                if isinstance(one, SessionMessage):
                    await self._passed(one.message.model_dump(by_alias=True, mode="json", exclude_unset=True))
                else:
                    await self._say(one.model_dump(by_alias=True, mode="json", exclude_none=False))
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._peer.aclose()

    async def _passed(self, message: Message) -> None:
        if "method" in message and "id" in message:
            key = json.dumps(message["id"])
            if modern_version(message) is not None:
                self._modern.add(key)
            self._running[key] = self._begin(self._call(key, message))
        elif not self._cancels(message):
            # In their order, and before the requests behind them: the first of them opens the session for good.
            with contextlib.suppress(PeerError):
                await self._exchanged(message)
            if message.get("method") == "notifications/initialized":
                self._begun = message
                self._begin(self._listen())

    def _cancels(self, message: Message) -> bool:
        """End a call of 2026-07-28, which is told by closing its connection. False for all other messages."""
        if message.get("method") != "notifications/cancelled":
            return False
        params: Message = message.get("params") or {}
        key = json.dumps(params.get("requestId"))
        if key not in self._modern:
            return False
        if (task := self._running.get(key)) is not None:
            task.cancel()
        return True

    def _begin(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _call(self, key: str, message: Message) -> None:
        try:
            await self._exchanged(message)
        except AnsweredError as answered:
            await self._say({"jsonrpc": "2.0", "id": message["id"], "error": answered.error})
        except PeerError as error:
            told = {"code": CONNECTION_CLOSED, "message": str(error)}
            await self._say({"jsonrpc": "2.0", "id": message["id"], "error": told})
        finally:
            self._modern.discard(key)
            self._running.pop(key, None)

    async def _exchanged(self, message: Message) -> None:
        """Send a message, once more where it certainly has not arrived, and pass on what comes back."""
        session = self._peer.session
        for pause in (*(_PAUSES_SECONDS if self._was_there else ()), None):
            try:
                await self._exchanged_once(message)
            except NotListeningError:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            except LostSessionError:
                if pause is None or message is self._begun:
                    raise
                await self._reopened(session)
                session = self._peer.session
            else:
                self._was_there = True
                return

    async def _exchanged_once(self, message: Message) -> None:
        is_answered = "id" not in message or "method" not in message
        async with contextlib.aclosing(self._peer.sent(message)) as said:
            async for one in said:
                is_answered = is_answered or ("method" not in one and one.get("id") == message["id"])
                if message.get("method") == "initialize":
                    self._opened(message, one)
                await self._say(one)
        if not is_answered:
            raise PeerError(f"the connection to {self._peer.url} has ended; what became of the call is unknown")

    def _opened(self, message: Message, answer: Message) -> None:
        if isinstance(answer.get("result"), dict):
            self._opening = message
            self._peer.version = answer["result"].get("protocolVersion")

    async def _reopened(self, session: str | None) -> None:
        """Open a session anew, as the client has opened the one that is lost. Raises `PeerError`."""
        async with self._again:
            if self._peer.session != session or self._opening is None:
                return  # somebody else has, meanwhile
            self._peer.session = None
            async with contextlib.aclosing(self._peer.sent({**self._opening, "id": _OWN_ID})) as said:
                async for one in said:
                    if one.get("id") == _OWN_ID and "method" not in one:
                        self._opened(self._opening, one)
            if self._peer.session is None:
                raise PeerError(f"the gateway at {self._peer.url} opens no session again")
            if self._begun is not None:
                async with contextlib.aclosing(self._peer.sent(self._begun)) as said:
                    async for _ in said:
                        pass

    async def _listen(self) -> None:
        """Pass on what the gateway says by itself, over one connection after the other."""
        while True:
            session = self._peer.session
            try:
                async with contextlib.aclosing(self._peer.heard()) as said:
                    async for one in said:
                        await self._say(one)
            except LostSessionError:
                with contextlib.suppress(PeerError):
                    await self._reopened(session)
            except AnsweredError as answered:
                if answered.status == _NO_SUCH_METHOD:
                    return  # it says nothing by itself
            except PeerError:
                pass  # it may come again
            await asyncio.sleep(_QUIET_SECONDS)

    async def _say(self, message: Message) -> None:
        await self._send(json.dumps(message, separators=(",", ":")).encode() + b"\n")
