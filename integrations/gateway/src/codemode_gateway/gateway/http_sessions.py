"""Keep MCP sessions and requests separate for each principal."""

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

from .http_limits import HttpError, buffer_request_body_and_parse_head
from .http_settings import VERIFIED_PREFIX, HttpLimits
from .principals import LOCAL, METHOD_KEY, REQUEST_ID_KEY, SESSION_HEADER, signal_disconnect_at_end

_SESSION_HEADER = SESSION_HEADER.encode()


@dataclass
class _OpenSession:
    """``user`` opened the session and is the only one who may use it; ``requests`` are in progress."""

    user: Any
    requests: int = 0


class SessionLimiter:
    """An ASGI application that keeps at most ``max_sessions`` sessions open.

    Clients often disappear without closing their sessions. The longest idle session is closed for a new one; its client
    gets 404 and opens another, as MCP specifies. Sessions with a request in progress stay open.
    """

    def __init__(self, app: ASGIApp, max_sessions: int) -> None:
        self._app, self._max_sessions = app, max_sessions
        self._sessions: OrderedDict[object, _OpenSession] = (
            OrderedDict()
        )  # by session id; sessions that are being opened have no id yet

    def __len__(self) -> int:
        return len(self._sessions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        key: object = get_session_id(scope)
        is_initialize = key is None and scope.get(METHOD_KEY) == "initialize"
        if is_initialize:
            key = object()  # it counts before its id is known
            self._sessions[key] = _OpenSession(scope.get("user"))

        async def track_response(message: Message) -> None:
            nonlocal key
            if message["type"] == "http.response.start" and message["status"] < 400:
                if is_initialize and (name := _find_session_header(message["headers"])) is not None:
                    self._sessions[name] = self._sessions.pop(key)
                    key = name
                elif scope["method"] == "DELETE":
                    self._sessions.pop(key, None)
            await send(message)

        self._adjust_request_count(key, 1)
        try:
            if is_initialize:
                await self._close_excess_idle_sessions(scope)
            await self._app(scope, receive, track_response)
        finally:
            self._adjust_request_count(key, -1)
            if not isinstance(key, str):
                self._sessions.pop(key, None)

    def _adjust_request_count(self, key: object, change: int) -> None:
        if (session := self._sessions.get(key)) is not None:
            session.requests += change
            self._sessions.move_to_end(key)

    async def _close_excess_idle_sessions(self, scope: Scope) -> None:
        idle = [name for name, session in self._sessions.items() if not session.requests and isinstance(name, str)]
        for name in idle[: max(0, len(self._sessions) - self._max_sessions)]:
            session = self._sessions.pop(name)
            delete_scope = {
                **scope,
                "method": "DELETE",
                "headers": [(_SESSION_HEADER, name.encode())],
                "user": session.user,
            }
            await self._app(delete_scope, _receive_empty_body, _discard_message)


def get_session_id(scope: Scope) -> str | None:
    """Return the session id of a request, or None."""
    return _find_session_header(scope["headers"])


def _find_session_header(headers: Any) -> str | None:
    return next((value.decode("latin-1") for name, value in headers if name.lower() == _SESSION_HEADER), None)


async def _receive_empty_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _discard_message(_message: Message) -> None:
    pass


_RETRY_HEADERS = {"retry-after": "1"}


class SessionRegistry:
    """One session manager for each principal, so that sessions of others are unknown."""

    def __init__(self, server: Server[Any], limits: HttpLimits) -> None:
        self._server, self._limits = server, limits
        self._by_principal: dict[str, _PrincipalSessions] = {}
        self._start_lock = asyncio.Lock()
        self._is_open = False
        self._active_calls = 0
        self._no_calls = asyncio.Event()
        self._no_calls.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve while the block runs. All sessions and their calls end with it."""
        self._is_open = True
        try:
            yield
        finally:
            await self.stop(0)

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new requests, wait ``grace_seconds`` for running calls, then end all sessions."""
        self._is_open = False
        if self._active_calls:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await self._no_calls.wait()
        async with self._start_lock:
            open_sessions = list(self._by_principal.values())
            self._by_principal.clear()
            await asyncio.gather(*(sessions.cancel_and_wait() for sessions in open_sessions))

    def end_sessions_of_users_not_in(self, names: Iterable[str], *, keep_verified: bool = True) -> None:
        """End the sessions of removed users; keep those of verified users if ``keep_verified``."""
        current = {LOCAL.id, *names}
        removed = [
            name
            for name in self._by_principal
            if name not in current and not (keep_verified and name.startswith(VERIFIED_PREFIX))
        ]
        for name in removed:
            self._by_principal.pop(name).cancel()

    async def handle_request(self, principal_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a principal. Raises `HttpError` over the limits."""
        if not self._is_open:
            raise HttpError(503, "The gateway is stopping, or has not started", _RETRY_HEADERS)
        sessions = self._by_principal.get(principal_id) or await self._get_or_start_sessions(principal_id)
        tracked_send = _TrackedSend(send)
        with sessions.track_request() as cancel_scope:
            receive, head = await buffer_request_body_and_parse_head(scope, receive, self._limits)
            scope[REQUEST_ID_KEY], scope[METHOD_KEY] = head.id, head.method
            with sessions.hold_request_id(scope), self._track_call(scope), signal_disconnect_at_end(scope):
                await sessions.app(scope, receive, tracked_send)
        if cancel_scope.cancelled_caught:
            await tracked_send.complete_answer_or_raise()

    @contextlib.contextmanager
    def _track_call(self, scope: Scope) -> Generator[None]:
        if scope["method"] != "POST":  # listening streams do not delay shutdown
            yield
            return
        self._active_calls += 1
        self._no_calls.clear()
        try:
            yield
        finally:
            self._active_calls -= 1
            if not self._active_calls:
                self._no_calls.set()

    async def _get_or_start_sessions(self, principal_id: str) -> _PrincipalSessions:
        async with self._start_lock:
            if (existing := self._by_principal.get(principal_id)) is not None:
                return existing
            if not self._is_open:
                raise HttpError(503, "The gateway is stopping", _RETRY_HEADERS)
            await self._make_room_for_principal()
            sessions = _PrincipalSessions(self._server, self._limits)
            await sessions.start()
            self._by_principal[principal_id] = sessions
            return sessions

    async def _make_room_for_principal(self) -> None:
        if len(self._by_principal) < self._limits.principals:
            return
        idle_since = time.monotonic() - self._limits.idle_seconds
        # These have no open session; each ends after the idle time.
        for name in [name for name, sessions in self._by_principal.items() if sessions.is_idle(idle_since)]:
            await self._by_principal.pop(name).cancel_and_wait()
        if len(self._by_principal) >= self._limits.principals:
            raise HttpError(503, "Too many users at once", _RETRY_HEADERS)


class _TrackedSend:
    """An ASGI ``send`` that can complete a cancelled answer."""

    def __init__(self, send: Send) -> None:
        self._send, self._has_started, self._has_ended = send, False, False

    async def __call__(self, message: Message) -> None:
        self._has_started = True
        self._has_ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def complete_answer_or_raise(self) -> None:
        if not self._has_started:
            raise HttpError(503, "The gateway has stopped; the outcome of the call is unknown")
        if not self._has_ended:
            await self._send({"type": "http.response.body", "body": b""})


class _PrincipalSessions:
    """The sessions of one principal, in a task of their own."""

    def __init__(self, server: Server[Any], limits: HttpLimits) -> None:
        self.manager = StreamableHTTPSessionManager(
            server,
            session_idle_timeout=limits.idle_seconds,
            max_request_body_size=limits.body_bytes,
            max_sessions=limits.sessions,
        )
        self.app = SessionLimiter(self.manager.handle_request, limits.sessions)
        self.active_requests: set[anyio.CancelScope] = set()
        self._active_ids: set[tuple[str, str]] = set()
        self.last_used_at = time.monotonic()
        self._ready, self._end_requested = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def is_idle(self, idle_since: float) -> bool:
        """Return whether no request runs and no session was used after ``idle_since``."""
        return not self.active_requests and (not len(self.app) or self.last_used_at < idle_since)

    @contextlib.contextmanager
    def track_request(self) -> Generator[anyio.CancelScope]:
        """Register a request for cancellation while the block runs."""
        with anyio.CancelScope() as cancel_scope:
            self.active_requests.add(cancel_scope)
            try:
                yield cancel_scope
            finally:
                self.active_requests.discard(cancel_scope)
                self.last_used_at = time.monotonic()

    @contextlib.contextmanager
    def hold_request_id(self, scope: Scope) -> Generator[None]:
        """Allow one request per id and session at a time: the SDK would not answer the first of two."""
        request_id = scope.get(REQUEST_ID_KEY)
        session = get_session_id(scope)
        if request_id is None or session is None:
            yield
            return
        key = (session, str(request_id))  # the SDK compares ids in this way
        if key in self._active_ids:
            raise HttpError(400, "A request with this id is still open: use another id", request_id=request_id)
        self._active_ids.add(key)
        try:
            yield
        finally:
            self._active_ids.discard(key)

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run_session_manager())
        ready = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait([ready, self._task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._task.done():
            self._task.result()

    async def _run_session_manager(self) -> None:
        async with self.manager.run():
            self._ready.set()
            await self._end_requested.wait()

    def cancel(self) -> None:
        """Cancel the sessions and their requests without waiting."""
        for cancel_scope in self.active_requests:
            cancel_scope.cancel()
        self._end_requested.set()

    async def cancel_and_wait(self) -> None:
        self.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])
