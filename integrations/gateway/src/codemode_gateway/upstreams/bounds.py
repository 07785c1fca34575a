"""The streams of a session with a server, in bounds: what is read of it, what waits to be said to it, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import anyio
import mcp_types as types

from codemode.data.json_shape import holds_more_values_than

from .lines import MAX_ASKED_VALUES

if TYPE_CHECKING:
    from .silence import Silence

MAX_UNREAD = 4_096
"""Of what waits to be said to a server: calls in flight are fewer."""


@dataclass(frozen=True)
class Refusal:
    """What a server says in refusing a request, on its way past the SDK, which would write it into a span."""

    error: types.ErrorData


def in_bounds(item: Any) -> Any:
    """Return what a server has said; what it asks or tells with too many values goes on without them, to be refused.

    The SDK reads such a message on the event loop. The words of a refusal, which may quote inputs and secrets, are
    given to whoever has asked and to nobody else.
    """
    message = getattr(item, "message", None)
    if isinstance(message, types.JSONRPCError):
        refusal: Any = types.ErrorData(code=message.error.code, message="")
        refusal.data = Refusal(message.error)
        return replace(item, message=message.model_copy(update={"error": refusal}))
    if not isinstance(message, types.JSONRPCRequest | types.JSONRPCNotification):
        return item
    if not holds_more_values_than(message.params, MAX_ASKED_VALUES):
        return item
    return replace(item, message=message.model_copy(update={"params": {}}))


class Told:
    """A stream to a server that reads: one who asks without end and reads no answer is given up."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended
        self._waiting = 0

    async def send(self, item: Any) -> None:
        if self._waiting >= MAX_UNREAD:
            self._ended.set()
        if self._ended.is_set():
            raise anyio.ClosedResourceError
        self._waiting += 1
        try:
            await self._stream.send(item)
        finally:
            self._waiting -= 1

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Watched:
    """A stream whose end is known before anybody hears of it who waits for an answer."""

    def __init__(self, stream: Any, ended: asyncio.Event, silence: Silence) -> None:
        self._stream = stream
        self._ended = ended
        self._silence = silence

    async def receive(self) -> Any:
        return await self._read(self._stream.receive)

    async def aclose(self) -> None:
        self._ended.set()
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self._read(self._stream.__anext__)

    async def _read(self, read: Callable[[], Awaitable[Any]]) -> Any:
        try:
            item = await read()
            self._silence.heard()
            return in_bounds(item)
        except BaseException:
            self._ended.set()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
