"""Sessions of the handshake revisions, and requests of 2026-07-28, apart for each principal. Knows no sign-in."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Generator, Iterable
from dataclasses import dataclass
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .http_limits import Refused, read_body
from .http_settings import VERIFIED, HttpLimits
from .principals import ID_KEY, LOCAL, METHOD_KEY, SESSION_HEADER, answering

_HEADER = SESSION_HEADER.encode()


@dataclass
class _Open:
    """``opener`` is the user who has opened it, to whom alone the SDK lets a session; ``requests`` are answered now."""

    opener: Any
    requests: int = 0


class OpenSessions:
    """An ASGI application around the one that has the sessions, at most ``most`` of them.

    Clients whose process ends say no good-bye, and many that could say it do not. Without this their sessions would
    keep the same user's next ones out until each had been idle for its time. A client whose session has made room is
    told that there is none, and opens another, as MCP has it. One that is used, if only to listen, is never ended.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most
        self._open: OrderedDict[object, _Open] = OrderedDict()  # by name; one that is being opened has none yet

    def __len__(self) -> int:
        return len(self._open)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        used: object = session_in(scope)
        opens = used is None and scope.get(METHOD_KEY) == "initialize"
        if opens:
            used = object()  # it takes room before its name is known
            self._open[used] = _Open(scope.get("user"))

        async def sent(message: Message) -> None:
            nonlocal used
            if message["type"] == "http.response.start" and message["status"] < 400:
                if opens and (name := _named(message["headers"])) is not None:
                    self._open[name] = self._open.pop(used)
                    used = name
                elif scope["method"] == "DELETE":
                    self._open.pop(used, None)
            await send(message)

        self._count(used, 1)
        try:
            if opens:
                await self._make_room(scope)
            await self._app(scope, receive, sent)
        finally:
            self._count(used, -1)
            if not isinstance(used, str):
                self._open.pop(used, None)

    def _count(self, used: object, change: int) -> None:
        if (one := self._open.get(used)) is not None:
            one.requests += change
            self._open.move_to_end(used)

    async def _make_room(self, scope: Scope) -> None:
        idle = [name for name, one in self._open.items() if not one.requests and isinstance(name, str)]
        for name in idle[: max(0, len(self._open) - self._most)]:
            one = self._open.pop(name)
            ending = {**scope, "method": "DELETE", "headers": [(_HEADER, name.encode())], "user": one.opener}
            await self._app(ending, _nothing, _to_nobody)


def session_in(scope: Scope) -> str | None:
    """Return the session that a request names, None where it names none."""
    return _named(scope["headers"])


def _named(headers: Any) -> str | None:
    return next((value.decode("latin-1") for name, value in headers if name.lower() == _HEADER), None)


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _to_nobody(_message: Message) -> None:
    pass


_BUSY = {"retry-after": "1"}


class Sessions:
    """One manager of sessions for each principal: a session of somebody else's is as unknown as one that never was."""

    def __init__(self, server: Server[Any], limits: HttpLimits) -> None:
        self._server, self._limits = server, limits
        self._managed: dict[str, _Managed] = {}
        self._starting = asyncio.Lock()
        self._is_open = False
        self._calls = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve while the block runs. At its end all sessions end, and what runs in them is cancelled."""
        self._is_open = True
        try:
            yield
        finally:
            await self.stop(0)

    async def stop(self, seconds: float) -> None:
        """Let no request in any more, give calls that run ``seconds`` to end, then end all sessions."""
        self._is_open = False
        if self._calls:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._quiet.wait()
        async with self._starting:
            ended = list(self._managed.values())
            self._managed.clear()
            await asyncio.gather(*(one.end() for one in ended))

    def leave_all_but(self, names: Iterable[str], *, verified: bool = True) -> None:
        """End the sessions of users who are none any more. Whom a verifier has named it may name again, if it may."""
        kept = {LOCAL.id, *names}
        gone = [name for name in self._managed if name not in kept and not (verified and name.startswith(VERIFIED))]
        for name in gone:
            self._managed.pop(name).leave()

    async def handle(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a principal. Raises `Refused` where there is no room for it."""
        if not self._is_open:
            raise Refused(503, "The gateway is stopping, or has not started", _BUSY)
        managed = self._managed.get(name) or await self._started(name)
        answer = _Answer(send)
        with managed.one_more() as until_ended:
            receive, head = await read_body(scope, receive, self._limits)
            scope[ID_KEY], scope[METHOD_KEY] = head.id, head.method
            with managed.only_one(scope), self._counted(scope), answering(scope):
                await managed.sessions(scope, receive, answer)
        if until_ended.cancelled_caught:
            await answer.end()

    @contextlib.contextmanager
    def _counted(self, scope: Scope) -> Generator[None]:
        if scope["method"] != "POST":  # streams that only listen hold nobody up
            yield
            return
        self._calls += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._quiet.set()

    async def _started(self, name: str) -> _Managed:
        async with self._starting:
            if (known := self._managed.get(name)) is not None:
                return known
            if not self._is_open:
                raise Refused(503, "The gateway is stopping", _BUSY)
            await self._make_room()
            made = _Managed(self._server, self._limits)
            await made.start()
            self._managed[name] = made
            return made

    async def _make_room(self) -> None:
        if len(self._managed) < self._limits.principals:
            return
        since = time.monotonic() - self._limits.idle_seconds
        # None of these has a session, or none any more: each ends when it was idle for as long.
        for name in [name for name, one in self._managed.items() if one.has_no_session(since)]:
            await self._managed.pop(name).end()
        if len(self._managed) >= self._limits.principals:
            raise Refused(503, "Too many users at once", _BUSY)


class _Answer:
    """What is sent in answer to one request, so that one which is cut off ends as HTTP has it."""

    def __init__(self, send: Send) -> None:
        self._send, self._has_begun, self._has_ended = send, False, False

    async def __call__(self, message: Message) -> None:
        self._has_begun = True
        self._has_ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def end(self) -> None:
        if not self._has_begun:
            raise Refused(503, "The gateway has stopped; what became of the call is unknown")
        if not self._has_ended:
            await self._send({"type": "http.response.body", "body": b""})


class _Managed:
    """The sessions of one principal, in a task of their own."""

    def __init__(self, server: Server[Any], limits: HttpLimits) -> None:
        self.manager = StreamableHTTPSessionManager(
            server,
            session_idle_timeout=limits.idle_seconds,
            max_request_body_size=limits.body_bytes,
            max_sessions=limits.sessions,
        )
        self.sessions = OpenSessions(self.manager.handle_request, limits.sessions)
        self.answering: set[anyio.CancelScope] = set()
        self._ids: set[tuple[str, str]] = set()
        self.used_at = time.monotonic()
        self._ready, self._over = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def has_no_session(self, since: float) -> bool:
        """Tell whether nothing is lost with it: there never was a session, or all were idle ``since`` then."""
        return not self.answering and (not len(self.sessions) or self.used_at < since)

    @contextlib.contextmanager
    def one_more(self) -> Generator[anyio.CancelScope]:
        """Have a request among those that are answered, for as long as they may be."""
        with anyio.CancelScope() as until_ended:
            self.answering.add(until_ended)
            try:
                yield until_ended
            finally:
                self.answering.discard(until_ended)
                self.used_at = time.monotonic()

    @contextlib.contextmanager
    def only_one(self, scope: Scope) -> Generator[None]:
        """Let a session have one request of an id at a time: the first of two would never be answered."""
        request_id = scope.get(ID_KEY)
        session = session_in(scope)
        if request_id is None or session is None:
            yield
            return
        key = (session, str(request_id))  # as the SDK tells them apart
        if key in self._ids:
            raise Refused(400, "A request of this id is being answered: take another", request_id=request_id)
        self._ids.add(key)
        try:
            yield
        finally:
            self._ids.discard(key)

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        waiting = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait([waiting, self._task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._task.done():
            self._task.result()

    async def _run(self) -> None:
        async with self.manager.run():
            self._ready.set()
            await self._over.wait()

    def leave(self) -> None:
        """End the sessions, and what is being answered, without waiting for it."""
        for one in self.answering:
            one.cancel()
        self._over.set()

    async def end(self) -> None:
        self.leave()
        if self._task is not None:
            await asyncio.wait([self._task])
