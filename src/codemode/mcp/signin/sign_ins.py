"""The sign-ins of a gateway at its servers: tokens for connections, and pages to open where a person is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakValueDictionary

from ...data.narrowing import mapping_or_empty
from ...host.threads import off_loop
from ..config.own_entry import COMMAND
from ..config.places import state_folder
from ..config.secrets import Secrets
from ..config.values import GatewayConfig, ServerConfig
from .errors import SignInError
from .pages import DECLINED, PAGE_HEADERS, SIGNED_IN, UNKNOWN, page

if TYPE_CHECKING:
    from .attempts import Attempt
    from .server_auth import ServerAuth

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
        secrets: Secrets | None = None,
        open_browser: Callable[[str], object] | None = None,
        callback_url: str | None = None,
        command: str = COMMAND,
    ) -> None:
        self.secrets = Secrets(config.secrets) if secrets is None else secrets
        self.folder = (config.settings.state_folder or state_folder()) / "tokens"
        self._open_browser = open_browser
        self._command = command
        self.callback_url = callback_url
        self.page_of: Callable[[str, str], str | None] = _no_page
        """Returns the page on which a principal signs in to a server, by both their names, where there is one."""
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
                url = await self.pending(server, principal)
            except SignInError:
                return False
            if url:
                from ...interrupts.interrupt import request_interrupt

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
        from .server_auth import ServerAuth
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
        from .attempts import Attempt

        attempt = self._attempts.get(auth.key)
        if attempt is None or attempt.is_over:
            attempt = Attempt(auth, self.folder, self._open_browser, self.callback_url, is_asked_for=is_asked_for)
            _keep_last(self._attempts, auth.key, attempt)
            over = [key for key, one in self._attempts.items() if one.is_over]
            for key in over[: max(0, len(self._attempts) - MOST_KEPT)]:
                del self._attempts[key]
        return attempt

    async def pending(self, server: ServerConfig, principal: str = "local") -> str:
        """Return the URL that the principal is to open; empty where somebody has just signed in. Raises `SignInError`.

        The sign-in stays open for five minutes; who asks again gets the same.
        """
        attempt = self.begun(server, principal)
        try:
            async with asyncio.timeout(_URL_S):
                return await attempt.url()
        except TimeoutError:
            raise SignInError(f"{server.name!r} did not say in time how to sign in") from None

    async def wait(self, server: ServerConfig, principal: str = "local") -> None:
        """Return when the principal has signed in. Raises `SignInError` where nobody does in time, or is about to."""
        auth = self.auth(server, principal)
        attempt = None if auth is None else self._attempts.get(auth.key)
        if attempt is not None:
            await attempt.wait()
        elif auth is None or await auth.other_token() is None:
            raise SignInError(f"nobody is signing in to {server.name!r}")

    def take(self, query: str) -> str | None:
        """Take the query with which a browser came to ``callback_url``, and return what to tell the person.

        None is for a query that belongs to no sign-in of this gateway.
        """
        told = (attempt.take(query) for attempt in list(self._attempts.values()))
        return next((one for one in told if one is not None), None)

    async def callback_app(self, scope: Any, _receive: Any, send: Any) -> None:
        """Serve ``callback_url`` as an ASGI application: a GET with the query of the redirect. Needs no sign-in."""
        told = None
        if scope["type"] == "http" and scope["method"] == "GET":
            query = scope.get("query_string", b"").decode("latin-1")
            told = self.take(query) or await self._handed_over(query)
        headers = [(key.lower().encode(), one.encode()) for key, one in PAGE_HEADERS.items()]
        await send({"type": "http.response.start", "status": 400 if told is None else 200, "headers": headers})
        await send({"type": "http.response.body", "body": page(told or UNKNOWN).encode()})

    async def _handed_over(self, query: str) -> str | None:
        """Leave a query to another process of the folder, and return what to tell the person; None where none waits."""
        from .handing import hand_over

        try:
            said = await off_loop(lambda: hand_over(self.folder, query))
        except OSError:
            return None
        if said is None:
            return None
        return DECLINED if "error" in said else SIGNED_IN


def _keep_last(kept: dict[str, KeptT], key: str, one: KeptT) -> None:
    kept.pop(key, None)
    kept[key] = one


def _no_page(_server: str, _principal: str) -> None:
    return None


def sign_in_hook(
    config: GatewayConfig, *, principal: str = "local", secrets: Secrets | None = None
) -> Callable[[ServerConfig], ServerAuth | None]:
    """Return an `UpstreamHooks.sign_in` that uses and renews the tokens of earlier sign-ins, and begins none."""
    return SignIns(config, secrets=secrets).hook(principal)
