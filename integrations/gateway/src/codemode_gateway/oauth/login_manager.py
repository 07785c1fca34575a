"""The sign-ins of a gateway at its servers: tokens for connections, and pages to open where a person is needed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from codemode.data.narrowing import mapping_or_empty
from codemode.host.threads import run_off_loop
from codemode.trace.visible_text import one_line

from ..config.locations import GATEWAY_COMMAND, state_folder
from ..config.model import ConfigError, GatewayConfig, ServerConfig
from ..config.redaction import SecretRedactor
from ..page_urls import get_page_host
from .browser import DECLINED, PAGE_HEADERS, SIGNED_IN, UNKNOWN, open_in_browser, page
from .settings import SignInError, TokenRecord

if TYPE_CHECKING:
    from .bearer_auth import ServerAuth
    from .browser import BoundSignIn
    from .login_attempt import Attempt


KIND = "connection-auth"
"""The kind of the pause in which a program waits for somebody to sign in; its payload has ``server`` and ``url``."""

MOST_KEPT = 256
"""So many principals' sign-ins are known without reading them again, and how so many attempts have ended."""

_URL_S = 60.0
KeptT = TypeVar("KeptT")


class SignIns:
    """The sign-ins of all principals at the servers of one configuration. Use it as an async context manager.

    ``secrets`` is told of each token. ``open_browser`` gets the URL of a sign-in where a person is at this machine;
    the processes that share the state folder open one page for it. ``callback_url`` is where the browser comes back
    to, which may be set later: without it, to a port on this machine's loopback address. ``command`` is what ``login``
    goes behind where people sign in on the command line.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        secrets: SecretRedactor | None = None,
        open_browser: Callable[[str], object] | None = None,
        callback_url: str | None = None,
        command: str = GATEWAY_COMMAND,
    ) -> None:
        self.secrets = SecretRedactor(config.secrets) if secrets is None else secrets
        self.folder = (config.settings.state_folder or state_folder()) / "tokens"
        self._open_browser = open_browser
        self._command = command
        self.callback_url = callback_url
        self.page_of: Callable[[str, str], str | None] = _no_page
        """Returns the page on which a principal signs in to a server, by both their names, where there is one."""
        self.binds_browsers = False
        """Whether a sign-in that comes back to ``callback_url`` is ended by the browser alone that began it."""
        # Of users there is no end: connections hold those in use, and some are kept for the next one.
        self._auths: WeakValueDictionary[str, ServerAuth] = WeakValueDictionary()
        self._recent: dict[str, ServerAuth] = {}
        self._attempts: dict[str, Attempt] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Give up the sign-ins that are under way, and wait for renewals."""
        await asyncio.gather(*(one.aclose() for one in self._attempts.values()))
        await asyncio.gather(*(one.aclose() for one in [*self._auths.values()]))

    def hook(self, principal: str = "local") -> Callable[[ServerConfig], ServerAuth | None]:
        """Return what `UpstreamHooks.sign_in` is for one principal."""
        return lambda server: self.auth(server, principal)

    def signed_out_hook(self, principal: str = "local") -> Callable[[ServerConfig, Any], Awaitable[bool]]:
        """Return what `UpstreamHooks.signed_out` is for one principal: the program pauses until somebody signs in.

        Its answer, ``{"action": "accept"}`` or another action, may come before the person is through: then the call
        waits for that. It returns whether to send the call once more.
        """

        async def signed_out(server: ServerConfig, context: Any) -> bool:
            if context is None:
                return False
            answer = context.interrupt
            if answer is not None and mapping_or_empty(answer.resolution).get("action") != "accept":
                return False
            try:
                if answer is not None:
                    await self.wait(server, principal)
                    return True
                url = await self._page_to_open(server, principal)
            except SignInError:
                return False
            if url:
                from codemode.interrupts.interrupt import request_interrupt

                message = f"Sign in to {server.name!r}."
                request_interrupt({"kind": KIND, "server": server.name, "url": url, "message": message})
            return True

        return signed_out

    def auth(self, server: ServerConfig, principal: str = "local") -> ServerAuth | None:
        """Return the sign-in of a principal at a server; None for one that is not signed in to in this way.

        That is one without a URL, or one whose configuration brings an ``Authorization`` header.
        """
        if server.url is None or any(name.lower() == "authorization" for name in server.headers):
            return None
        # Only who has such a server pays for the import.
        from .bearer_auth import ServerAuth
        from .settings import AuthSettings
        from .token_store import TokenStore, keeping

        settings = AuthSettings.of(server)
        key = settings.key(server, principal)
        auth = self._auths.get(key)
        if auth is None:
            if settings.client_secret is not None:
                self.secrets.add(settings.client_secret)
            store = TokenStore(keeping(settings.storage, self.folder))
            auth = self._auths[key] = ServerAuth(
                server,
                settings,
                principal,
                store,
                self.folder,
                self.secrets,
                lambda: self.page_of(server.name, principal),
                self._command,
            )
        _keep_last(self._recent, key, auth)
        while len(self._recent) > MOST_KEPT:
            del self._recent[next(iter(self._recent))]
        return auth

    def begun(self, server: ServerConfig, principal: str = "local", *, is_asked_for: bool = False) -> Attempt:
        """Return the sign-in that is under way, begun here where there is none. Raises `SignInError`."""
        auth = self.auth(server, principal)
        if auth is None or auth.settings.flow != "browser":
            raise SignInError(f"nobody can sign in to {server.name!r}: its configuration holds its credentials")
        from .login_attempt import Attempt

        attempt = self._attempts.get(auth.key)
        if attempt is None or attempt.is_over:
            attempt = Attempt(
                auth,
                self.folder,
                self._open_browser,
                self.callback_url,
                is_asked_for=is_asked_for,
                binds_browser=self.binds_browsers,
            )
            _keep_last(self._attempts, auth.key, attempt)
            over = [key for key, one in self._attempts.items() if one.is_over]
            for key in over[: max(0, len(self._attempts) - MOST_KEPT)]:
                del self._attempts[key]
        return attempt

    async def pending(self, server: ServerConfig, principal: str = "local") -> str:
        """Return the URL that the principal is to open; empty where somebody has just signed in. Raises `SignInError`.

        The sign-in stays open for five minutes; who asks again gets the same.
        """
        sign_in = await self.sign_in(server, principal)
        return "" if sign_in is None else sign_in.url

    async def sign_in(self, server: ServerConfig, principal: str = "local") -> BoundSignIn | None:
        """Return the sign-in whose URL `pending` gives; None where none is needed. Raises `SignInError`."""
        attempt = self.begun(server, principal)
        try:
            async with asyncio.timeout(_URL_S):
                return await attempt.sign_in()
        except TimeoutError:
            raise SignInError(f"{server.name!r} did not say in time how to sign in") from None

    async def _page_to_open(self, server: ServerConfig, principal: str) -> str | None:
        """Return the URL for a client to open: the authorization URL only where any browser may end the sign-in."""
        sign_in = await self.sign_in(server, principal)
        if sign_in is None or sign_in.secret is None:
            return None if sign_in is None else sign_in.url
        return self.page_of(server.name, principal) or sign_in.start_url or sign_in.url

    async def wait(self, server: ServerConfig, principal: str = "local") -> None:
        """Return when the principal has signed in. Raises `SignInError` where nobody does in time, or is about to."""
        auth = self.auth(server, principal)
        attempt = None if auth is None else self._attempts.get(auth.key)
        if attempt is not None:
            await attempt.wait()
        elif auth is None or await auth.other_token() is None:
            raise SignInError(f"nobody is signing in to {server.name!r}")

    async def callback_app(self, scope: Any, _receive: Any, send: Any) -> None:
        """Serve ``callback_url`` as an ASGI application: a GET with the query of the redirect. Needs no sign-in."""
        told = None
        if scope["type"] == "http" and scope["method"] == "GET":
            from .browser import cookies_of

            query = scope.get("query_string", b"").decode("latin-1")
            told = await self._take_from(query, cookies_of(scope.get("headers", ())))
        await _send_page(send, 200 if told in (SIGNED_IN, DECLINED) else 400, page(told or UNKNOWN))

    async def start_app(self, scope: Any, _receive: Any, send: Any) -> None:
        """Serve the start page of a sign-in, which binds it to the browser, as an ASGI application."""
        from .browser import START_PATH
        from .login_attempt import find_ticket

        ticket, sign_in = str(scope["path"]).rpartition(START_PATH)[2], None
        if scope["method"] == "GET":
            own = (attempt.sign_in_of(ticket) for attempt in list(self._attempts.values()))
            sign_in = next((one for one in own if one is not None), None)
            sign_in = sign_in or await run_off_loop(lambda: find_ticket(self.folder, ticket))
        if sign_in is None:
            await _send_page(send, 404, page(UNKNOWN))
        else:
            await _send_page(send, 200, sign_in.start_page(), sign_in.set_cookie())

    async def _take_from(self, query: str, cookies: Mapping[str, str]) -> str | None:
        """Take what a browser came back with, here or for another process; None where nobody waits for it."""
        from .login_attempt import hand_over, said_in

        said = said_in(query)
        if said is None:
            return None
        own = (attempt.take_from(said["state"], query, cookies) for attempt in list(self._attempts.values()))
        told = next((one for one in own if one is not None), None)
        if told is not None:
            return told
        try:
            return await run_off_loop(lambda: hand_over(self.folder, query, cookies))
        except OSError:
            return None


async def _send_page(send: Any, status: int, text: str, cookie: str | None = None) -> None:
    named = {**PAGE_HEADERS, **({} if cookie is None else {"Set-Cookie": cookie})}
    headers = [(key.lower().encode(), one.encode("latin-1")) for key, one in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


def _keep_last(kept: dict[str, KeptT], key: str, one: KeptT) -> None:
    kept.pop(key, None)
    kept[key] = one


def _no_page(_server: str, _principal: str) -> None:
    return None


def sign_in_hook(
    config: GatewayConfig, *, principal: str = "local", secrets: SecretRedactor | None = None
) -> Callable[[ServerConfig], ServerAuth | None]:
    """Return an `UpstreamHooks.sign_in` that uses and renews the tokens of earlier sign-ins, and begins none."""
    return SignIns(config, secrets=secrets).hook(principal)


_MOST_BYTES = 1 << 18
_TRIES = 5
_LONGEST_LINE = 1 << 14


async def login(
    config: GatewayConfig,
    name: str,
    *,
    principal: str = "local",
    open_browser: Callable[[str], object] | None = open_in_browser,
    out: TextIO | None = None,
    read_line: Callable[[], str] | None = None,
) -> None:
    """Sign in to the server ``name`` and keep its tokens.

    The URL is printed to ``out``, standard error unless given, and opened. Without a browser on this machine the page
    is opened elsewhere, and ``read_line`` gives the address that it ended at, as a person pastes it. Raises
    `ConfigError` for a server that cannot be signed in to, `SignInError` where it does not succeed.
    """
    from .flow import Exchange  # what signs in is imported when somebody does

    server, told = _server(config, name), sys.stderr if out is None else out
    async with SignIns(config, open_browser=open_browser) as sign_ins:
        auth = sign_ins.auth(server, principal)
        if auth is None:
            why = (
                "it is a command or an API"
                if server.url is None
                else "it has a header Authorization, which is sent instead"
            )
            raise ConfigError(f"mcpServers.{name}: there is nothing to sign in to: {why}")
        if auth.settings.flow == "client_credentials":
            await auth.keep(lambda record: Exchange(server, auth.settings, principal, record).authorized(None))
            return
        attempt = sign_ins.begun(server, principal, is_asked_for=True)
        sign_in = await attempt.sign_in()
        if sign_in is not None:
            _say(told, f"Sign in to {name} at {get_page_host(sign_in.url)}:", sign_in.start_url or sign_in.url)
        if read_line is None:
            await attempt.wait()
        else:
            await _pasted(attempt, read_line, told)


async def _pasted(attempt: Attempt, read_line: Callable[[], str], out: TextIO) -> None:
    """Take the address that a person pastes, or the browser's own coming back, whichever is first."""
    _say(out, "Open it in any browser, and paste the address at which it ends here:")
    waiting = asyncio.ensure_future(attempt.wait())
    try:
        for _ in range(_TRIES):
            reading = asyncio.ensure_future(run_off_loop(read_line))
            await asyncio.wait([waiting, reading], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                break
            if attempt.take(_query_of(reading.result())) is not None:
                break
            _say(out, "That is not the address at which this sign-in ends. Once more:")
        else:
            raise SignInError("no address of this sign-in was pasted")
        await waiting
    finally:
        waiting.cancel()


def _say(out: TextIO, *lines: str) -> None:
    out.write("".join(f"{one_line(line, _LONGEST_LINE)}\n" for line in lines))
    out.flush()


def _query_of(pasted: str) -> str:
    try:
        return urlsplit(pasted.strip()).query
    except ValueError:
        return ""


async def logout(config: GatewayConfig, name: str, *, principal: str = "local") -> bool:
    """Forget the tokens of the server ``name``, those of an earlier configuration too; whether there were any.

    They are revoked first where the server offers that; that it cannot be reached stops nothing.
    """
    from .flow import Exchange

    server = _server(config, name)
    async with SignIns(config) as sign_ins:
        auth = sign_ins.auth(server, principal)
        if auth is None:
            return False
        record = await auth.forget()
        if record is not None:
            try:
                await Exchange(server, auth.settings, principal, record).revoked()
            except SignInError as error:
                _say(sys.stderr, f"the tokens are forgotten here, but were not revoked: {error}")
        others = _forget_others(sign_ins.folder, name, principal)
        return record is not None or others


def _forget_others(folder: Path, name: str, principal: str) -> bool:
    from .token_store import UnsafeFileError, read_private

    found = False
    for path in folder.glob("*.json"):
        try:
            record = TokenRecord.from_json(read_private(path, _MOST_BYTES) or "")
        except UnsafeFileError:
            continue
        if record is not None and (record.server, record.principal) == (name, principal):
            path.unlink(missing_ok=True)
            found = True
    return found


def _server(config: GatewayConfig, name: str) -> ServerConfig:
    found = next((one for one in config.servers if one.name == name), None)
    if found is None:
        known = ", ".join(one.name for one in config.servers) or "none"
        raise ConfigError(f"there is no server {name!r} that can be used; there are: {known}")
    return found
