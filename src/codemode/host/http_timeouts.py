"""Time limits for slow HTTP clients, for the ASGI applications of gateway and console."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle, Transport, WriteTransport

Receive = Callable[[], Awaitable[Any]]
_MIN_SENT_BYTES = 1 << 14


def create_receive_with_body_timeout(
    receive: Receive, seconds: float, create_error: Callable[[], Exception]
) -> Receive:
    """Return an ASGI ``receive`` that raises ``create_error()`` if a body is incomplete after ``seconds``.

    The time starts with the first message. After the body nothing is limited: an application may wait for its client's
    disconnect.
    """
    deadline: float | None = None
    is_complete = False

    async def receive_before_deadline() -> Any:
        nonlocal deadline, is_complete
        if is_complete:
            return await receive()
        if deadline is None:
            deadline = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise create_error() from None
        is_complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return receive_before_deadline


def create_header_and_send_timeout_protocol(seconds: float, write_seconds: float = 60.0) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with a timeout for a request's headers.

    It also closes a connection whose client does not read: of a waiting response at least 16 KiB must be sent in every
    ``write_seconds``.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class TimeoutProtocol(H11Protocol):
        _waiting: TimerHandle | None = None

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            # With these limits, writing is paused exactly while bytes wait in the buffer, closed connections included.
            transport.set_write_buffer_limits(high=0)
            self._sending = _SendTimeout(self.transport, self.loop, write_seconds)
            self._start_header_timer()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[reportUnnecessaryComparison]
                self._cancel_header_timer()
            elif self._waiting is None:
                self._start_header_timer()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._sending.start()

        def resume_writing(self) -> None:
            self._sending.stop()
            super().resume_writing()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_header_timer()
            self._sending.stop()
            super().connection_lost(exc)

        def _start_header_timer(self) -> None:
            self._waiting = self.loop.call_later(seconds, self.transport.close)

        def _cancel_header_timer(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

    return TimeoutProtocol


class _SendTimeout:
    """Aborts a connection whose unsent bytes do not get fewer while it runs."""

    def __init__(self, transport: WriteTransport, loop: AbstractEventLoop, seconds: float) -> None:
        self._transport, self._loop, self._seconds = transport, loop, seconds
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        self._unsent = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self._seconds, self._abort_if_stalled)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _abort_if_stalled(self) -> None:
        if self._transport.get_write_buffer_size() > self._unsent - _MIN_SENT_BYTES:
            self._transport.abort()
        else:
            self.start()
