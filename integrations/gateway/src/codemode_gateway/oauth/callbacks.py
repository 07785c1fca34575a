"""Where a browser comes back to after a sign-in: what it brings is read, and a page is shown. Knows no tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from mcp.shared.auth import AuthorizationCodeResult

from .browser_binding import CALLBACK_PATH, state_of
from .errors import RefusedError, SignInError
from .handing import is_state, said_in
from .pages import DECLINED, PAGE_HEADERS, SIGNED_IN, UNKNOWN, page

_MOST_BYTES = 1 << 14
_READ_S = 10.0
_MOST_AT_ONCE = 16


class Answer:
    """What comes back from the browser for the sign-in whose URL was shown; the first that fits counts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._state: str | None = None
        self._found: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    def expect(self, url: str) -> None:
        """Take only what belongs to this URL."""
        self._state = state_of(url)

    def is_for(self, state: str) -> bool:
        """Tell whether a state is that of this sign-in."""
        return is_state(state, self._state)

    def take(self, query: str) -> str | None:
        """Take the query of a redirect and return what to tell the person; None for one of another sign-in."""
        said = said_in(query)
        if said is None or not is_state(said["state"], self._state):
            return None
        if not self._found.done():
            if "error" in said:
                self._found.set_exception(RefusedError(f"signing in to {self._name!r} was declined"))
            else:
                self._found.set_result(
                    AuthorizationCodeResult(code=said["code"], state=said["state"], iss=said.get("iss"))
                )
        return DECLINED if "error" in said else SIGNED_IN

    async def wait(self, seconds: float) -> AuthorizationCodeResult:
        """Return what came back. Raises `SignInError` when nobody came in time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._found
        except TimeoutError:
            raise SignInError(f"nobody signed in to {self._name!r} within {seconds:.0f} s") from None

    def close(self) -> None:
        """Forget what came too late."""
        if self._found.done() and not self._found.cancelled():
            self._found.exception()
        self._found.cancel()


@asynccontextmanager
async def listening(take: Callable[[str], str | None], port: int, path: str = CALLBACK_PATH) -> AsyncGenerator[int]:
    """Listen for the browser on this machine's loopback address alone, and give the port: 0 takes any.

    Raises `OSError` where the port is taken.
    """
    open_now = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now
        open_now += 1
        try:
            if open_now <= _MOST_AT_ONCE:
                with suppress(
                    TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
                ):
                    async with asyncio.timeout(_READ_S):
                        await _answer(reader, writer, take, path)
        finally:
            open_now -= 1
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=_MOST_BYTES)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_READ_S):
                await server.wait_closed()


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, take: Callable[[str], str | None], path: str
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, target, *_ = [*head.partition("\r\n")[0].split(" "), "", ""]
    found = urlsplit(target)
    told = take(found.query) if method == "GET" and found.path == path else None
    body = page(told or UNKNOWN).encode()
    headers = {**PAGE_HEADERS, "Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"HTTP/1.1 {'200 OK' if told else '400 Bad Request'}", *(f"{key}: {one}" for key, one in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()
