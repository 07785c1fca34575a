"""Connect transports to the SDK's session, with size limits and backpressure."""

from __future__ import annotations

import asyncio
import select
import sys
from array import array
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import anyio
import mcp_types as types
from mcp_types import JSONRPCError, JSONRPCResponse

from codemode.data.json_shape import has_more_values_than

from .jsonrpc_lines import MAX_REQUEST_VALUES

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

    from .connection_errors import UnansweredRequestError


_MAX_CONSECUTIVE_READS = 64
_MAX_QUEUED_MESSAGES = 256
_MAX_WAITING_MESSAGES = 1_000


class RequestSendState:
    """The sending state of one request. ``has_left``: False while no byte can have been sent.

    ``is_over``: the caller no longer waits. ``lost``: why there is no answer, if the transport knows. ``begins_at``:
    bytes written to the pipe before the request.
    """

    __slots__ = ("_limits", "begins_at", "body", "has_left", "is_begun", "is_over", "lost")

    def __init__(self) -> None:
        self.has_left = self.is_begun = self.is_over = False
        self.body: bytes | None = None
        self.lost: UnansweredRequestError | None = None
        self.begins_at = 0
        self._limits: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def run_while_caller_waits(self) -> AsyncGenerator[None]:
        """Run the block while the caller waits for the answer. Raises `TimeoutError` afterwards."""
        if self.is_over:
            raise TimeoutError
        async with asyncio.timeout(None) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    def end_caller_wait(self) -> None:
        """Record that the caller no longer waits."""
        self.is_over = True
        for limit in self._limits:
            with suppress(RuntimeError):  # the timeout has just passed
                limit.reschedule(0)


def count_unread_bytes_of_abandoned_pipe(pipe: int) -> int | None:
    """Return the number of bytes in a pipe without readers, or None if unknown."""
    if sys.platform != "linux":
        return None
    import fcntl
    import termios

    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    if not any(event & select.POLLERR for _, event in poll.poll(0)):
        return None  # a process still has the read end open
    count = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


SENDING: ContextVar[RequestSendState | None] = ContextVar("codemode_mcp_sending", default=None)
"""The progress of the request that this task sends."""


class MessageInbox:
    """Messages from a server in order. ``set_paused`` is called to pause and resume its reading."""

    def __init__(self, set_paused: Callable[[bool], None]) -> None:
        self._items: deque[SessionMessage | Exception] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._in_a_row = 0
        self._is_over = False
        self._set_paused = set_paused
        self._is_paused = False

    def put(self, item: SessionMessage | Exception) -> None:
        """Add a message."""
        if self._is_over:
            return
        self._items.append(item)
        if not self._is_paused and len(self._items) > _MAX_QUEUED_MESSAGES:
            self._is_paused = True
            self._set_paused(True)
        self._wake()

    def put_end(self) -> None:
        """End the stream after the queued messages."""
        self._is_over = True
        self._wake()

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises `anyio.EndOfStream` after the last."""
        self._in_a_row += 1
        if self._in_a_row >= _MAX_CONSECUTIVE_READS:
            self._in_a_row = 0
            await asyncio.sleep(0)  # let other tasks run during a flood
        while not self._items:
            if self._is_over:
                raise anyio.EndOfStream
            self._in_a_row = 0
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        item = self._items.popleft()
        if self._is_paused and not self._items:
            self._is_paused = False
            self._set_paused(False)
        return item

    async def aclose(self) -> None:
        """Accept no more messages."""
        self._items.clear()
        self.put_end()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> MessageInbox:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class MessageOutbox(asyncio.BaseProtocol):
    """Messages to a server, one per line; the protocol of its input pipe."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._drained: asyncio.Future[None] | None = None
        self._write_lock = asyncio.Lock()
        self._waiting = 0
        self._written = 0
        self._max_read_bytes: int | None = None
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the transport."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Stop writing."""
        self.record_read_bytes()
        self.is_closed = True
        self._transport = None
        self.resume_writing()

    def pause_writing(self) -> None:
        """Make senders wait until the server has read."""
        if self._drained is None:
            self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Resume senders."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message. Raises `anyio.ClosedResourceError` if the pipe has no reader.

        A server that asks without reading gets no answers while too many messages wait.
        """
        if self._waiting >= _MAX_WAITING_MESSAGES and isinstance(item.message, JSONRPCResponse | JSONRPCError):
            return
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        self._waiting += 1
        try:
            async with self._write_lock:  # otherwise all senders would wake when one can write
                while self._drained is not None:
                    await asyncio.shield(self._drained)
                transport = self._transport
                if self.is_closed or transport is None or transport.is_closing():
                    raise anyio.ClosedResourceError
                had_left = transport.get_write_buffer_size() == 0
                transport.write(data)
                if had_left and transport.is_closing():  # the pipe has no reader: nothing was written
                    raise anyio.ClosedResourceError
        finally:
            self._waiting -= 1
        sending = SENDING.get()
        if sending is not None and not sending.has_left:
            sending.has_left, sending.begins_at = True, self._written
        self._written += len(data)

    def ended_without_reading_past(self, position: int) -> bool:
        """Return whether nothing after the first ``position`` bytes was read."""
        return self._max_read_bytes is not None and self._max_read_bytes <= position

    def record_read_bytes(self) -> None:
        """Record how many bytes were read, if no process can read more."""
        pipe = None if self._transport is None else self._transport.get_extra_info("pipe")
        if self._max_read_bytes is not None or pipe is None or pipe.closed:
            return
        unread = count_unread_bytes_of_abandoned_pipe(pipe.fileno())
        if unread is not None:
            self._max_read_bytes = self._written - unread

    async def aclose(self) -> None:
        """Stop writing. The pipe stays open, because its unread bytes show what the server has read."""
        self.is_closed = True
        self.resume_writing()

    def close_pipe(self) -> None:
        """Close the pipe after the written messages."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.close()
        self.resume_writing()

    def abort(self) -> None:
        """Close the pipe at once."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class SilenceTimer:
    """How long a server has not answered. Any message resets it."""

    def __init__(self) -> None:
        self._since: float | None = None

    def on_request(self) -> None:
        """Start the timer, unless it runs."""
        if self._since is None:
            self._since = asyncio.get_running_loop().time()

    def on_message(self) -> None:
        """Reset the timer."""
        self._since = None

    @property
    def seconds(self) -> float:
        """The seconds since the first unanswered request; 0 without one."""
        return 0.0 if self._since is None else asyncio.get_running_loop().time() - self._since


MAX_UNREAD = 4_096
"""Limit for queued messages to a server, above the number of calls in flight."""


@dataclass(frozen=True)
class WrappedErrorData:
    """A server's error answer, wrapped so that the SDK does not write it into a span."""

    error: types.ErrorData


def sanitize_message(item: Any) -> Any:
    """Return a server's message; drop oversized params, and hide error texts from the SDK's spans.

    The SDK parses such messages on the event loop. Error texts may contain inputs and secrets, and go to the caller
    only.
    """
    message = getattr(item, "message", None)
    if isinstance(message, types.JSONRPCError):
        refusal: Any = types.ErrorData(code=message.error.code, message="")
        refusal.data = WrappedErrorData(message.error)
        return replace(item, message=message.model_copy(update={"error": refusal}))
    if not isinstance(message, types.JSONRPCRequest | types.JSONRPCNotification):
        return item
    if not has_more_values_than(message.params, MAX_REQUEST_VALUES):
        return item
    return replace(item, message=message.model_copy(update={"params": {}}))


class BoundedSender:
    """A stream to a server. It fails once too many messages are unread."""

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


class MonitoredReceiver:
    """A stream that sets ``ended`` before waiting requests fail."""

    def __init__(self, stream: Any, ended: asyncio.Event, silence: SilenceTimer) -> None:
        self._stream = stream
        self._ended = ended
        self._silence = silence

    async def receive(self) -> Any:
        try:
            item = await self._stream.receive()
            self._silence.on_message()
            return sanitize_message(item)
        except BaseException:
            self._ended.set()
            raise

    async def aclose(self) -> None:
        self._ended.set()
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
