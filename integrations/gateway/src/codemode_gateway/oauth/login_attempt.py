"""Run one sign-in by browser, which several processes can share through the state folder."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from mcp.shared.auth import AuthorizationCodeResult
from pydantic import TypeAdapter

from codemode.host.threads import run_in_single_use_thread

from ..state_files import read_private_file
from .bearer_auth import UpstreamBearerAuth
from .browser import (
    CALLBACK_PATH,
    DECLINED,
    OTHER_BROWSER,
    PAGE_HEADERS,
    SIGNED_IN,
    UNKNOWN,
    PendingSignIn,
    render_page,
)
from .settings import AuthorizationRefusedError, SignInError
from .token_store import TokenRecord, try_lock_and_start_cleanup, write_private_text

# The process that runs a sign-in stores its URL in a file of the state folder. Any process with that folder can show
# the URL, and take the browser's redirect: it stores the redirect in a file next to it.

_MAX_QUERY_CHARACTERS = 1 << 13
_MAX_BYTES = 1 << 14
_MAX_SIGN_INS = 1000
_PENDING_SIGN_IN = TypeAdapter(PendingSignIn)


def list_sign_in_files(folder: Path) -> Iterable[Path]:
    """Return the files of the sign-ins in progress."""
    return islice(folder.glob("*.url"), _MAX_SIGN_INS)


def read_sign_in(file: Path) -> PendingSignIn | None:
    """Return a sign-in in progress, or None if it is over or its file is unusable."""
    try:
        sign_in = _PENDING_SIGN_IN.validate_json(read_private_file(file, _MAX_BYTES) or "")
    except (OSError, ValueError):
        return None
    return sign_in if sign_in.until > time.time() else None


def find_sign_in_by_ticket(folder: Path, ticket: str) -> PendingSignIn | None:
    """Return the sign-in of a start page, or None. Blocks."""
    sign_ins = map(read_sign_in, list_sign_in_files(folder))
    return next((sign_in for sign_in in sign_ins if sign_in is not None and sign_in.matches_ticket(ticket)), None)


def deliver_redirect(files: Iterable[Path], query: str, cookies: Mapping[str, str]) -> str | None:
    """Store the query of a browser's redirect for the process that runs its sign-in, one of those in ``files``.

    Returns the message for the user, or None if no sign-in waits for it. Blocks.
    """
    parameters = _parse_redirect(query)
    if parameters is None:
        return None
    for file in files:
        sign_in = read_sign_in(file)
        if sign_in is None or not secrets.compare_digest(parameters["state"].encode(), sign_in.state.encode()):
            continue
        if not sign_in.is_browser_allowed(cookies):
            return OTHER_BROWSER
        with suppress(OSError):
            write_private_text(_get_redirect_file(file), query)
            return DECLINED if "error" in parameters else SIGNED_IN
    return None


def _get_redirect_file(sign_in_file: Path) -> Path:
    return sign_in_file.with_suffix(".brought")


def _parse_redirect(query: str) -> dict[str, str] | None:
    """Return the parameters of a redirect, or None if it is neither a code nor an error."""
    if len(query) > _MAX_QUERY_CHARACTERS:
        return None
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=32)
    except ValueError:
        return None
    parameters = dict(pairs)
    is_redirect = parameters.get("state") and ("error" in parameters or parameters.get("code"))
    return parameters if is_redirect and len(parameters) == len(pairs) else None


_READ_TIMEOUT_SECONDS = 10.0
_MAX_CONNECTIONS = 16


@asynccontextmanager
async def _listen_for_redirect(
    on_query: Callable[[str], str | None], port: int, path: str, *, is_port_fixed: bool
) -> AsyncGenerator[int]:
    """Listen for the browser on the loopback address only and yield the port: ``port``, or a free one.

    Raises `OSError` if a fixed port is in use.
    """
    slots = asyncio.Semaphore(_MAX_CONNECTIONS)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError, ValueError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_READ_TIMEOUT_SECONDS), slots:
                await _answer_redirect(reader, writer, on_query, path)

    start = partial(asyncio.start_server, serve, "127.0.0.1", limit=_MAX_BYTES)
    try:
        server = await start(port)
    except OSError:
        if is_port_fixed:
            raise
        server = await start(0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _answer_redirect(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_query: Callable[[str], str | None], path: str
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, target, *_ = [*head.partition("\r\n")[0].split(" "), "", ""]
    url, message = urlsplit(target), None
    if method == "GET" and url.path == path:
        message = await run_in_single_use_thread(lambda: on_query(url.query))
    body = render_page(message or UNKNOWN).encode()
    headers = {**PAGE_HEADERS, "Content-Length": len(body), "Connection": "close"}
    lines = [f"HTTP/1.1 {'200 OK' if message else '400 Bad Request'}", *(f"{key}: {headers[key]}" for key in headers)]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()


# The process with the lock runs the sign-in; the others wait for the lock, and then find the stored tokens.

_SIGN_IN_TIMEOUT_SECONDS = 300.0
_START_TIMEOUT_SECONDS = 120.0
_POLL_SECONDS = 0.2


class SignInAttempt:
    """A sign-in in progress. ``open_browser`` receives the URL once for all processes, and may block.

    With ``binds_browser`` only the browser that started the sign-in can finish it, except on a loopback redirect.
    """

    def __init__(
        self,
        auth: UpstreamBearerAuth,
        open_browser: Callable[[str], object] | None,
        callback_url: str | None,
        *,
        is_forced: bool = False,
        binds_browser: bool = False,
    ) -> None:
        self._auth = auth
        self._name = auth.server.name
        self._lock_file = auth.folder / f"{auth.key}.browser.lock"
        self._file = auth.folder / f"{auth.key}.url"
        self._open_browser = open_browser
        self._callback_url = callback_url
        self._is_forced = is_forced
        self._binds_browser = binds_browser
        self._listens = False
        self._started: asyncio.Future[PendingSignIn] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run_or_wait_for_other_process())
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # there may be no waiter

    @property
    def is_over(self) -> bool:
        """True once the sign-in has succeeded or failed."""
        return self._task.done()

    async def wait_for_sign_in_start(self) -> PendingSignIn | None:
        """Return the sign-in for the user to start, or None if none is needed. Raises `SignInError`."""
        await asyncio.wait([self._started, self._task], return_when=asyncio.FIRST_COMPLETED)
        if self._started.done():
            return self._started.result()
        if not self._task.cancelled():
            self._task.result()
        return None

    async def wait_until_signed_in(self) -> None:
        """Wait for the sign-in. Raises `SignInError`."""
        await asyncio.shield(self._task)

    def accept_redirect(self, query: str) -> str | None:
        """Accept the user's redirect; return the message for the user, or None for another sign-in. Blocks."""
        return deliver_redirect([self._file], query, {})

    async def aclose(self) -> None:
        """Cancel the sign-in."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run_or_wait_for_other_process(self) -> None:
        try:
            async with asyncio.timeout(_SIGN_IN_TIMEOUT_SECONDS + _START_TIMEOUT_SECONDS):
                release_lock = await self._lock_and_show_sign_in_of_other_process()
                try:
                    # Another process may have signed in meanwhile.
                    if self._is_forced or await self._auth.load_usable_token() is None:
                        await self._sign_in()
                finally:
                    self._file.unlink(missing_ok=True)
                    _get_redirect_file(self._file).unlink(missing_ok=True)
                    release_lock()
        except TimeoutError:
            raise SignInError(f"no sign-in to {self._name!r} within {_SIGN_IN_TIMEOUT_SECONDS:.0f} s") from None
        except OSError as error:
            raise SignInError(f"signing in to {self._name!r} failed: {error.strerror or error}") from None

    async def _lock_and_show_sign_in_of_other_process(self) -> Callable[[], None]:
        """Wait while another process runs the sign-in, and return the function that releases the lock."""
        while (release_lock := try_lock_and_start_cleanup(self._lock_file)) is None:
            self._is_forced = False
            if not self._started.done() and (sign_in := read_sign_in(self._file)) is not None:
                self._started.set_result(sign_in)
            await asyncio.sleep(_POLL_SECONDS)
        return release_lock

    async def _sign_in(self) -> None:
        if self._started.done():
            raise SignInError(f"the sign-in to {self._name!r} in another process was cancelled; start again")
        auth = self._auth
        record = await auth.load_record()
        async with self._serve_redirect_uri(record) as redirect_uri:
            exchange = auth.create_exchange(record)
            try:
                new_record = await exchange.authorize(
                    auth.challenge, redirect_uri, self._show_sign_in, self._wait_for_redirect
                )
            except AuthorizationRefusedError:
                if not self._started.done():  # the client may be unknown now: the next attempt registers again
                    await auth.delete_and_return_record()
                raise
        await auth.save_record(new_record)

    async def _show_sign_in(self, url: str) -> None:
        secret = secrets.token_urlsafe(32) if self._binds_browser and not self._listens else None
        until = time.time() + _SIGN_IN_TIMEOUT_SECONDS
        sign_in = PendingSignIn(url, self._name, self._auth.principal, secret, until)
        _get_redirect_file(self._file).unlink(missing_ok=True)  # of a process that died
        write_private_text(self._file, json.dumps(asdict(sign_in)))
        self._started.set_result(sign_in)
        open_browser, page = self._open_browser, sign_in.start_url or url
        if open_browser is not None:
            with suppress(Exception):  # without a browser, the user opens the displayed URL
                await run_in_single_use_thread(lambda: open_browser(page))

    async def _wait_for_redirect(self) -> AuthorizationCodeResult:
        file, query = _get_redirect_file(self._file), None
        async with asyncio.timeout(_SIGN_IN_TIMEOUT_SECONDS):
            while query is None:
                await asyncio.sleep(_POLL_SECONDS)
                query = read_private_file(file, _MAX_BYTES)
        parameters = _parse_redirect(query) or {}
        if not parameters.get("code") or "error" in parameters:
            raise AuthorizationRefusedError(f"signing in to {self._name!r} was declined")
        return AuthorizationCodeResult.model_validate(parameters)

    @asynccontextmanager
    async def _serve_redirect_uri(self, record: TokenRecord | None) -> AsyncGenerator[str]:
        """Yield the redirect URL, and listen there if it is on this machine."""
        settings = self._auth.settings
        configured_uri = settings.redirect_uri or self._callback_url
        parts = urlsplit(configured_uri or "//localhost")
        if self._callback_url is not None or parts.hostname not in ("127.0.0.1", "localhost"):
            yield configured_uri or ""
            return
        port, path = settings.callback_port or _get_registered_port(record), CALLBACK_PATH
        if configured_uri is not None:
            port, path = parts.port or 80, parts.path or "/"
        is_port_fixed = configured_uri is not None or settings.callback_port != 0
        self._listens = True
        async with _listen_for_redirect(self.accept_redirect, port, path, is_port_fixed=is_port_fixed) as actual_port:
            yield configured_uri or f"http://127.0.0.1:{actual_port}{CALLBACK_PATH}"


def _get_registered_port(record: TokenRecord | None) -> int:
    """Return the port of the registered client's loopback redirect URL, or 0."""
    uris = None if record is None or record.client is None else record.client.redirect_uris
    return (uris[0].port or 0) if uris and uris[0].host == "127.0.0.1" else 0
