"""Time limits for half an HTTP request, for the ASGI applications of gateway and console."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport

Receive = Callable[[], Awaitable[Any]]


def body_within(receive: Receive, seconds: float, late: Callable[[], Exception]) -> Receive:
    """Return an ASGI ``receive`` that raises ``late()`` where a body is not whole after ``seconds``.

    The time counts from the first message that the application waits for. Behind the body nothing is limited: an
    application that waits for its client to disconnect does so for as long as it likes.
    """
    deadline: float | None = None
    is_whole = False

    async def received() -> Any:
        nonlocal deadline, is_whole
        if is_whole:
            return await receive()
        if deadline is None:
            deadline = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise late() from None
        is_whole = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return received


def protocol_with_header_timeout(seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol, which closes a connection where a request's headers take longer than this."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class HeaderTimeoutProtocol(H11Protocol):
        _waiting: TimerHandle | None = None

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[reportUnnecessaryComparison]
                self._wait_no_more()
            elif self._waiting is None:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait_no_more()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._waiting = self.loop.call_later(seconds, self.transport.close)

        def _wait_no_more(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

    return HeaderTimeoutProtocol
