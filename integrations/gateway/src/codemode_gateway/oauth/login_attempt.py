"""Run one login across processes: the lock, the callback and the redirect relay."""

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
from codemode.host.threads import run_in_single_use_thread

from .bearer_auth import UpstreamBearerAuth
from .browser import (
    CALLBACK_PATH,
    DECLINED,
    OTHER_BROWSER,
    PAGE_HEADERS,
    SIGNED_IN,
    UNKNOWN,
    PendingSignIn,
    create_secret,
    parse_pending_sign_in,
    parse_state_parameter,
    render_page,
)
from .flow import OAuthExchange
from .settings import AuthorizationRefusedError, SignInError, TokenRecord
from .token_store import read_private_file, try_lock_and_start_cleanup, write_private_file

# The process that runs a sign-in writes its URL to a file in the shared state folder and reads the answer there.

MAX_QUERY_CHARACTERS = 1 << 13
_MAX_BYTES = 1 << 14
_MAX_SIGN_INS = 1000


def parse_redirect(query: str) -> dict[str, str] | None:
    """Return the parameters of a redirect, or None if it is neither a code nor an error."""
    if len(query) > MAX_QUERY_CHARACTERS:
        return None
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=32)
    except ValueError:
        return None
    parameters = dict(pairs)
    if (
        len(parameters) != len(pairs)
        or not parameters.get("state")
        or not ("error" in parameters or parameters.get("code"))
    ):
        return None
    return parameters


def states_equal(state: str, expected: str | None) -> bool:
    """Compare states in constant time."""
    return expected is not None and secrets.compare_digest(state.encode(), expected.encode())


def deliver_redirect_to_other_process(folder: Path, query: str, cookies: Mapping[str, str]) -> str | None:
    """Write a redirect to a file for the process that runs its sign-in.

    Returns the message for the user, or None if no process waits for it. Blocks. Raises `OSError`.
    """
    parameters = parse_redirect(query)
    for path, sign_in in () if parameters is None else _iterate_open_sign_ins(folder):
        if parameters is not None and states_equal(parameters["state"], parse_state_parameter(sign_in.url)):
            if not sign_in.is_browser_allowed(cookies):
                return OTHER_BROWSER
            write_private_file(get_redirect_file(path), query)
            return DECLINED if "error" in parameters else SIGNED_IN
    return None


def find_sign_in_by_ticket(folder: Path, ticket: str) -> PendingSignIn | None:
    """Return the sign-in of a start page that another process runs, or None. Blocks."""
    return next((sign_in for _, sign_in in _iterate_open_sign_ins(folder) if sign_in.matches_ticket(ticket)), None)


def _iterate_open_sign_ins(folder: Path) -> Iterator[tuple[Path, PendingSignIn]]:
    for path in islice(folder.glob("*.url"), _MAX_SIGN_INS) if folder.exists() else ():
        stored = _read_json_object(path)
        sign_in = parse_pending_sign_in(stored)
        if sign_in is not None and float(stored.get("until", 0)) > time.time():
            yield path, sign_in


def get_redirect_file(url_file: Path) -> Path:
    """Return the path of the file through which another process hands over the redirect."""
    return url_file.with_suffix(".brought")


def take_redirect(url_file: Path) -> str | None:
    """Take the redirect query left for a sign-in, or return None."""
    path = get_redirect_file(url_file)
    try:
        query = read_private_file(path, _MAX_BYTES)
    except OSError:
        query = ""
    if query is not None:
        path.unlink(missing_ok=True)
    return query or None


def _read_json_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_private_file(path, _MAX_BYTES) or "null")
    except (OSError, ValueError):
        return {}
    return value if is_object(value) else {}


_READ_TIMEOUT_SECONDS = 10.0
_MAX_CONNECTIONS = 16


class RedirectReceiver:
    """The first matching redirect for the sign-in whose URL was shown."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._state: str | None = None
        self._result: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    def expect_redirect_for_url(self, url: str) -> None:
        """Accept only redirects of this URL."""
        self._state = parse_state_parameter(url)

    def matches_state(self, state: str) -> bool:
        """Return whether a state belongs to this sign-in."""
        return states_equal(state, self._state)

    def accept_redirect(self, query: str) -> str | None:
        """Accept a redirect's query; return the message for the user, or None for another sign-in."""
        parameters = parse_redirect(query)
        if parameters is None or not states_equal(parameters["state"], self._state):
            return None
        if not self._result.done():
            if "error" in parameters:
                self._result.set_exception(AuthorizationRefusedError(f"signing in to {self._name!r} was declined"))
            else:
                self._result.set_result(
                    AuthorizationCodeResult(
                        code=parameters["code"], state=parameters["state"], iss=parameters.get("iss")
                    )
                )
        return DECLINED if "error" in parameters else SIGNED_IN

    async def wait_for_code(self, seconds: float) -> AuthorizationCodeResult:
        """Return the result. Raises `SignInError` on timeout."""
        try:
            async with asyncio.timeout(seconds):
                return await self._result
        except TimeoutError:
            raise SignInError(f"no sign-in to {self._name!r} within {seconds:.0f} s") from None

    def close(self) -> None:
        """Discard an answer that arrived too late."""
        if self._result.done() and not self._result.cancelled():
            self._result.exception()
        self._result.cancel()


@asynccontextmanager
async def listen_for_redirect(
    on_query: Callable[[str], str | None], port: int, path: str = CALLBACK_PATH
) -> AsyncGenerator[int]:
    """Listen for the browser on the loopback address only and yield the port; port 0 selects a free one.

    Raises `OSError` if the port is in use.
    """
    open_connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_connections
        open_connections += 1
        try:
            if open_connections <= _MAX_CONNECTIONS:
                with suppress(
                    TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
                ):
                    async with asyncio.timeout(_READ_TIMEOUT_SECONDS):
                        await _answer_redirect_request(reader, writer, on_query, path)
        finally:
            open_connections -= 1
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=_MAX_BYTES)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_READ_TIMEOUT_SECONDS):
                await server.wait_closed()


async def _answer_redirect_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_query: Callable[[str], str | None], path: str
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, target, *_ = [*head.partition("\r\n")[0].split(" "), "", ""]
    target_url = urlsplit(target)
    message = on_query(target_url.query) if method == "GET" and target_url.path == path else None
    body = render_page(message or UNKNOWN).encode()
    headers = {**PAGE_HEADERS, "Content-Length": str(len(body)), "Connection": "close"}
    lines = [
        f"HTTP/1.1 {'200 OK' if message else '400 Bad Request'}",
        *(f"{key}: {value}" for key, value in headers.items()),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()


# The process with the lock runs the sign-in and stores its URL for the others, which wait for the stored tokens.

SIGN_IN_TIMEOUT_SECONDS = 300.0
_START_TIMEOUT_SECONDS = 120.0
_POLL_SECONDS = 0.2


class SignInAttempt:
    """A sign-in in progress. ``open_browser`` receives the URL once for all processes, and may block.

    With ``binds_browser`` only the browser that started the sign-in can finish it, except on a loopback redirect.
    """

    def __init__(
        self,
        auth: UpstreamBearerAuth,
        folder: Path,
        open_browser: Callable[[str], object] | None,
        callback_url: str | None,
        *,
        is_forced: bool = False,
        binds_browser: bool = False,
        seconds: float = SIGN_IN_TIMEOUT_SECONDS,
    ) -> None:
        self._auth = auth
        self._name = auth.server.name
        self._lock_file = folder / f"{auth.key}.browser.lock"
        self._url_file = folder / f"{auth.key}.url"
        self._open_browser = open_browser
        self._callback_url = callback_url
        self._is_forced = is_forced
        self._binds_browser = binds_browser
        self._seconds = seconds
        self._listens = False
        self._redirect_result = RedirectReceiver(self._name)
        self._sign_in: asyncio.Future[PendingSignIn | None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._sign_in_or_wait_for_leader())
        self._task.add_done_callback(self._on_end)

    @property
    def is_over(self) -> bool:
        """True once the sign-in has succeeded or failed."""
        return self._task.done()

    async def wait_for_url(self) -> str:
        """Return the URL to open, or an empty text if no sign-in is needed. Raises `SignInError`."""
        sign_in = await self.wait_for_sign_in_start()
        return "" if sign_in is None else sign_in.url

    async def wait_for_sign_in_start(self) -> PendingSignIn | None:
        """Return the sign-in for the user to start, or None if none is needed. Raises `SignInError`."""
        return await asyncio.shield(self._sign_in)

    async def wait_until_signed_in(self) -> None:
        """Wait for the sign-in. Raises `SignInError`."""
        await asyncio.shield(self._task)

    def accept_redirect(self, query: str) -> str | None:
        """Accept the browser's redirect; return the message for the user, or None for another sign-in."""
        return self._redirect_result.accept_redirect(query)

    def accept_redirect_from_browser(self, state: str, query: str, cookies: Mapping[str, str]) -> str | None:
        """Accept the redirect of a browser with these cookies, as `accept_redirect` does."""
        if (
            not self._redirect_result.matches_state(state)
            or not self._sign_in.done()
            or self._sign_in.exception() is not None
        ):
            return None
        sign_in = self._sign_in.result()
        return self.accept_redirect(query) if sign_in is None or sign_in.is_browser_allowed(cookies) else OTHER_BROWSER

    def get_sign_in_for_ticket(self, ticket: str) -> PendingSignIn | None:
        """Return the sign-in of a start page, or None if it is another one or has ended."""
        is_shown = not self.is_over and self._sign_in.done() and self._sign_in.exception() is None
        sign_in = self._sign_in.result() if is_shown else None
        return sign_in if sign_in is not None and sign_in.matches_ticket(ticket) else None

    async def aclose(self) -> None:
        """Cancel the sign-in."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._redirect_result.close()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._redirect_result.close()
        error = None if task.cancelled() else task.exception()
        if not self._sign_in.done():
            if error is None:
                self._sign_in.set_result(None)
            else:
                self._sign_in.set_exception(error)
                self._sign_in.exception()  # there may be no waiter

    async def _sign_in_or_wait_for_leader(self) -> None:
        try:
            release_lock = try_lock_and_start_cleanup(self._lock_file)
            if release_lock is None:
                await self._wait_for_leader()
                return
            try:
                # Another process may have signed in meanwhile.
                if self._is_forced or await self._auth.load_usable_token() is None:
                    await self._run_sign_in()
            finally:
                self._url_file.unlink(missing_ok=True)
                get_redirect_file(self._url_file).unlink(missing_ok=True)
                release_lock()
        except OSError as error:
            raise SignInError(f"signing in to {self._name!r} failed: {error.strerror or error}") from None

    async def _run_sign_in(self) -> None:
        async with asyncio.timeout(self._seconds + _START_TIMEOUT_SECONDS):
            await self._auth.sign_in_and_save(self._authorize_or_delete_record)

    async def _authorize_or_delete_record(self, record: TokenRecord | None) -> TokenRecord:
        auth = self._auth
        async with self._serve_redirect_uri(record) as redirect_uri:
            exchange = OAuthExchange(auth.server, auth.settings, auth.principal, record)
            try:
                return await exchange.authorize(
                    auth.challenge, redirect_uri, self._on_authorization_url, self._wait_for_redirect
                )
            except AuthorizationRefusedError:
                if record is not None and not self._sign_in.done():
                    await (
                        auth.delete_and_return_record()
                    )  # the client may be unknown now: the next attempt registers again
                raise

    async def _wait_for_redirect(self) -> AuthorizationCodeResult:
        """Wait for the redirect, at this process or at another host that stores it."""
        waiting = asyncio.ensure_future(self._redirect_result.wait_for_code(self._seconds))
        try:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=_POLL_SECONDS)
                if (query := take_redirect(self._url_file)) is not None:
                    self._redirect_result.accept_redirect(query)
            return waiting.result()
        finally:
            waiting.cancel()

    async def _on_authorization_url(self, url: str) -> None:
        self._redirect_result.expect_redirect_for_url(url)
        secret = create_secret() if self._binds_browser and not self._listens else None
        sign_in = PendingSignIn(url, self._name, self._auth.principal, secret)
        write_private_file(self._url_file, json.dumps({**asdict(sign_in), "until": time.time() + self._seconds}))
        if not self._sign_in.done():
            self._sign_in.set_result(sign_in)
        open_browser, page = self._open_browser, sign_in.start_url or url
        if open_browser is not None:
            with suppress(Exception):  # without a browser, the user opens the displayed URL
                await run_in_single_use_thread(lambda: open_browser(page))

    @asynccontextmanager
    async def _serve_redirect_uri(self, record: TokenRecord | None) -> AsyncGenerator[str]:
        """Yield the redirect URL, and listen there if it is on this machine."""
        settings = self._auth.settings
        configured_uri = settings.redirect_uri or self._callback_url
        if configured_uri is not None:
            parts = urlsplit(configured_uri)
            if parts.hostname not in ("127.0.0.1", "localhost") or self._callback_url is not None:
                yield configured_uri
                return
            self._listens = True
            async with listen_for_redirect(self._redirect_result.accept_redirect, parts.port or 80, parts.path):
                yield configured_uri
            return
        self._listens = True
        async with AsyncExitStack() as stack:
            port = await self._listen_on_free_port(stack, (*_list_preferred_ports(settings.callback_port, record), 0))
            yield f"http://127.0.0.1:{port}{CALLBACK_PATH}"

    async def _listen_on_free_port(self, stack: AsyncExitStack, ports: tuple[int, ...]) -> int:
        """Listen at the configured port, or without one at the first free port."""
        for port in ports:
            try:
                return await stack.enter_async_context(listen_for_redirect(self._redirect_result.accept_redirect, port))
            except OSError:
                if port in (0, self._auth.settings.callback_port):
                    raise
        raise AssertionError("port 0 is always tried")

    async def _wait_for_leader(self) -> None:
        """Wait for the process that runs the sign-in; it has ended when its lock is free."""
        deadline = time.monotonic() + self._seconds + _START_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if not self._sign_in.done() and (sign_in := self._read_leader_sign_in()):
                self._sign_in.set_result(sign_in)
            if await self._auth.load_usable_token() is not None:
                return
            release_lock = try_lock_and_start_cleanup(self._lock_file)
            if release_lock is not None:
                release_lock()
                if await self._auth.load_usable_token() is not None:
                    return
                raise SignInError(f"the sign-in to {self._name!r} in another process was cancelled; start again")
            await asyncio.sleep(_POLL_SECONDS)
        raise SignInError(f"no sign-in to {self._name!r} within {self._seconds:.0f} s")

    def _read_leader_sign_in(self) -> PendingSignIn | None:
        try:
            stored = json.loads(read_private_file(self._url_file, _MAX_BYTES) or "null")
        except (OSError, ValueError):
            return None
        return parse_pending_sign_in(stored) if is_object(stored) else None


def _list_preferred_ports(configured: int, record: TokenRecord | None) -> tuple[int, ...]:
    """Return the ports to try first: the configured one, or the one of the client's registration."""
    if configured:
        return (configured,)
    uris: Any = (record.client or {}).get("redirect_uris") if record is not None else None
    try:
        port = urlsplit(str(uris[0])).port
    except (ValueError, LookupError, TypeError):
        return ()
    return () if port is None else (port,)
