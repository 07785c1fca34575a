"""The sessions of one principal: the one that was idle longest makes room for another."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .callers import METHOD_KEY, SESSION_HEADER

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
