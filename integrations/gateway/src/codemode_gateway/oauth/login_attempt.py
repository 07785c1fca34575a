"""One login of a server: the lock across processes, the callback, and the relay of its code."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from mcp.shared.auth import AuthorizationCodeResult

from codemode.data.narrowing import is_object
from codemode.host.threads import run_off_loop

from .bearer_auth import ServerAuth
from .browser import (
    CALLBACK_PATH,
    DECLINED,
    OTHER_BROWSER,
    PAGE_HEADERS,
    SIGNED_IN,
    UNKNOWN,
    BoundSignIn,
    bound_sign_in,
    new_secret,
    page,
    state_of,
)
from .flow import Exchange
from .settings import RefusedError, SignInError, TokenRecord
from .token_store import read_private, try_lock, write_private

# Whoever leads a sign-in keeps its URL in a file of the folder that the gateways share, and looks for the answer there.

LONGEST_QUERY = 1 << 13
_MOST_BYTES = 1 << 14
_MOST_SIGN_INS = 1000


def said_in(query: str) -> dict[str, str] | None:
    """Return what a redirect says; None for one that is neither an answer nor a refusal."""
    if len(query) > LONGEST_QUERY:
        return None
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=32)
    except ValueError:
        return None
    said = dict(pairs)
    if len(said) != len(pairs) or not said.get("state") or not ("error" in said or said.get("code")):
        return None
    return said


def is_state(said: str, expected: str | None) -> bool:
    """Compare in a time that tells nothing."""
    return expected is not None and secrets.compare_digest(said.encode(), expected.encode())


def hand_over(folder: Path, query: str, cookies: Mapping[str, str]) -> str | None:
    """Leave a query for the process whose sign-in it ends, and return what to tell; None where there is none.

    Raises `OSError`. Blocks.
    """
    said = said_in(query)
    for path, sign_in in () if said is None else _sign_ins(folder):
        if said is not None and is_state(said["state"], state_of(sign_in.url)):
            if not sign_in.is_begun_by(cookies):
                return OTHER_BROWSER
            write_private(brought_beside(path), query)
            return DECLINED if "error" in said else SIGNED_IN
    return None


def find_ticket(folder: Path, ticket: str) -> BoundSignIn | None:
    """Return the sign-in of a start page that another process leads; None where there is none. Blocks."""
    return next((sign_in for _, sign_in in _sign_ins(folder) if sign_in.has_ticket(ticket)), None)


def _sign_ins(folder: Path) -> Iterator[tuple[Path, BoundSignIn]]:
    for path in islice(folder.glob("*.url"), _MOST_SIGN_INS) if folder.exists() else ():
        said = _read(path)
        sign_in = bound_sign_in(said)
        if sign_in is not None and float(said.get("until", 0)) > time.time():
            yield path, sign_in


def brought_beside(url_file: Path) -> Path:
    """Return the file in which the answer to a sign-in is left."""
    return url_file.with_suffix(".brought")


def brought(url_file: Path) -> str | None:
    """Take the query that was left for a sign-in; None where there is none."""
    path = brought_beside(url_file)
    try:
        query = read_private(path, _MOST_BYTES)
    except OSError:
        query = ""
    if query is not None:
        path.unlink(missing_ok=True)
    return query or None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_private(path, _MOST_BYTES) or "null")
    except (OSError, ValueError):
        return {}
    return found if is_object(found) else {}


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


# Whoever holds the lock leads, and writes the URL where the others find it; they wait for what it keeps.

SIGN_IN_S = 300.0
_BEGIN_S = 120.0
_POLL_S = 0.2


class Attempt:
    """A sign-in that is under way. ``open_browser`` gets the URL, once for all processes, and may block.

    With ``binds_browser`` only the browser that began it can end it, unless it comes back to a port of this machine.
    """

    def __init__(
        self,
        auth: ServerAuth,
        folder: Path,
        open_browser: Callable[[str], object] | None,
        callback_url: str | None,
        *,
        is_asked_for: bool = False,
        binds_browser: bool = False,
        seconds: float = SIGN_IN_S,
    ) -> None:
        self._auth = auth
        self._name = auth.server.name
        self._lock_file = folder / f"{auth.key}.browser.lock"
        self._url_file = folder / f"{auth.key}.url"
        self._open_browser = open_browser
        self._callback_url = callback_url
        self._is_asked_for = is_asked_for
        self._binds_browser = binds_browser
        self._seconds = seconds
        self._listens = False
        self._answer = Answer(self._name)
        self._shown_as: asyncio.Future[BoundSignIn | None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ended)

    @property
    def is_over(self) -> bool:
        """Whether somebody has signed in, or nobody will."""
        return self._task.done()

    async def url(self) -> str:
        """Return the URL to open; empty where it has turned out that no sign-in is needed. Raises `SignInError`."""
        sign_in = await self.sign_in()
        return "" if sign_in is None else sign_in.url

    async def sign_in(self) -> BoundSignIn | None:
        """Return the sign-in as its person begins it; None where none is needed. Raises `SignInError`."""
        return await asyncio.shield(self._shown_as)

    async def wait(self) -> None:
        """Return when somebody has signed in. Raises `SignInError`."""
        await asyncio.shield(self._task)

    def take(self, query: str) -> str | None:
        """Take what the browser came back with, and return what to tell; None for that of another sign-in."""
        return self._answer.take(query)

    def take_from(self, state: str, query: str, cookies: Mapping[str, str]) -> str | None:
        """Take what a browser with these cookies came back with, as `take` does."""
        if not self._answer.is_for(state) or not self._shown_as.done() or self._shown_as.exception() is not None:
            return None
        sign_in = self._shown_as.result()
        return self.take(query) if sign_in is None or sign_in.is_begun_by(cookies) else OTHER_BROWSER

    def sign_in_of(self, ticket: str) -> BoundSignIn | None:
        """Return the sign-in of a start page; None where this is another one, or over."""
        is_shown = not self.is_over and self._shown_as.done() and self._shown_as.exception() is None
        sign_in = self._shown_as.result() if is_shown else None
        return sign_in if sign_in is not None and sign_in.has_ticket(ticket) else None

    async def aclose(self) -> None:
        """Give the sign-in up."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._answer.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._answer.close()
        error = None if task.cancelled() else task.exception()
        if not self._shown_as.done():
            if error is None:
                self._shown_as.set_result(None)
            else:
                self._shown_as.set_exception(error)
                self._shown_as.exception()  # nobody may have asked

    async def _run(self) -> None:
        try:
            give_back = try_lock(self._lock_file)
            if give_back is None:
                await self._follow()
                return
            try:
                # Somebody may have signed in while this process was on its way here.
                if self._is_asked_for or await self._auth.other_token() is None:
                    await self._lead()
            finally:
                self._url_file.unlink(missing_ok=True)
                brought_beside(self._url_file).unlink(missing_ok=True)
                give_back()
        except OSError as error:
            raise SignInError(f"signing in to {self._name!r} failed: {error.strerror or error}") from None

    async def _lead(self) -> None:
        async with asyncio.timeout(self._seconds + _BEGIN_S):
            await self._auth.keep(self._signed_in)

    async def _signed_in(self, record: TokenRecord | None) -> TokenRecord:
        auth = self._auth
        async with self._redirects(record) as redirect_uri:
            exchange = Exchange(auth.server, auth.settings, auth.principal, record)
            try:
                return await exchange.authorized(auth.challenge, redirect_uri, self._shown, self._came_back)
            except RefusedError:
                if record is not None and not self._shown_as.done():
                    await auth.forget()  # a client that is not known any more: the next attempt registers anew
                raise

    async def _came_back(self) -> AuthorizationCodeResult:
        """Wait for the browser, here or at another host that leaves what it has brought."""
        waiting = asyncio.ensure_future(self._answer.wait(self._seconds))
        try:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=_POLL_S)
                if (query := brought(self._url_file)) is not None:
                    self._answer.take(query)
            return waiting.result()
        finally:
            waiting.cancel()

    async def _shown(self, url: str) -> None:
        self._answer.expect(url)
        secret = new_secret() if self._binds_browser and not self._listens else None
        sign_in = BoundSignIn(url, self._name, self._auth.principal, secret)
        write_private(self._url_file, json.dumps({**asdict(sign_in), "until": time.time() + self._seconds}))
        if not self._shown_as.done():
            self._shown_as.set_result(sign_in)
        open_browser, page = self._open_browser, sign_in.start_url or url
        if open_browser is not None:
            with suppress(Exception):  # no browser: the URL is shown as well
                await run_off_loop(lambda: open_browser(page))

    @asynccontextmanager
    async def _redirects(self, record: TokenRecord | None) -> AsyncGenerator[str]:
        """Give the URL where the browser comes back to, and listen there if it is on this machine."""
        settings = self._auth.settings
        known = settings.redirect_uri or self._callback_url
        if known is not None:
            found = urlsplit(known)
            if found.hostname not in ("127.0.0.1", "localhost") or self._callback_url is not None:
                yield known
                return
            self._listens = True
            async with listening(self._answer.take, found.port or 80, found.path):
                yield known
            return
        self._listens = True
        async with AsyncExitStack() as stack:
            port = await self._listen(stack, (*_ports(settings.callback_port, record), 0))
            yield f"http://127.0.0.1:{port}{CALLBACK_PATH}"

    async def _listen(self, stack: AsyncExitStack, ports: tuple[int, ...]) -> int:
        """Listen at the first port that is free, but never at another than the configured one."""
        for port in ports:
            try:
                return await stack.enter_async_context(listening(self._answer.take, port))
            except OSError:
                if port in (0, self._auth.settings.callback_port):
                    raise
        raise AssertionError("port 0 is always tried")

    async def _follow(self) -> None:
        """Wait for the process that leads; it is gone when its lock is free."""
        until = time.monotonic() + self._seconds + _BEGIN_S
        while time.monotonic() < until:
            if not self._shown_as.done() and (sign_in := self._sign_in_of_leader()):
                self._shown_as.set_result(sign_in)
            if await self._auth.other_token() is not None:
                return
            give_back = try_lock(self._lock_file)
            if give_back is not None:
                give_back()
                if await self._auth.other_token() is not None:
                    return
                raise SignInError(f"the sign-in to {self._name!r} in another process was given up; begin again")
            await asyncio.sleep(_POLL_S)
        raise SignInError(f"nobody signed in to {self._name!r} within {self._seconds:.0f} s")

    def _sign_in_of_leader(self) -> BoundSignIn | None:
        try:
            said = json.loads(read_private(self._url_file, _MOST_BYTES) or "null")
        except (OSError, ValueError):
            return None
        return bound_sign_in(said) if is_object(said) else None


def _ports(configured: int, record: TokenRecord | None) -> tuple[int, ...]:
    """Return the ports to try first: the configured one, or that which the client was registered with."""
    if configured:
        return (configured,)
    uris: Any = (record.client or {}).get("redirect_uris") if record is not None else None
    try:
        port = urlsplit(str(uris[0])).port
    except (ValueError, LookupError, TypeError):
        return ()
    return () if port is None else (port,)
