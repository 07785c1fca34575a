"""Manage the sign-ins of a gateway at its servers."""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO
from weakref import WeakValueDictionary

from codemode.data.narrowing import mapping_or_empty
from codemode.host.threads import run_in_single_use_thread
from codemode.trace.visible_text import clip_to_visible_line

from ..config.locations import GATEWAY_COMMAND, format_login_command, state_folder
from ..config.model import ConfigError, GatewayConfig, ServerConfig
from ..config.redaction import SecretRedactor
from ..page_urls import require_safe_page_host
from ..state_files import UnsafeFileError, read_private_file
from .browser import DECLINED, PAGE_HEADERS, SIGNED_IN, UNKNOWN, open_in_browser, render_page
from .settings import SignInError

if TYPE_CHECKING:
    from starlette.responses import Response

    from .bearer_auth import UpstreamBearerAuth
    from .browser import PendingSignIn
    from .login_attempt import SignInAttempt


PAUSE_KIND = "connection-auth"
"""The kind of a pause that waits for the user's sign-in; its payload has ``server`` and ``url``."""

MAX_CACHED_SIGN_INS = 256
"""The numbers of sign-ins and of ended attempts that are cached."""

_URL_TIMEOUT_SECONDS = 60.0


class SignInManager:
    """The sign-ins of all principals at the servers of one configuration; an async context manager.

    ``secrets`` collects each token for redaction. ``open_browser`` receives the URL of a local user's sign-in;
    processes with the same state folder open one page. ``callback_url`` is the redirect URL, a loopback port without
    it. ``command`` precedes ``login`` in instructions for users.
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
        self.get_page_url: Callable[[str, str], str | None] = lambda _server, _principal: None
        """Returns the sign-in page URL of a server and a principal, or None."""
        self.binds_browsers = False
        """True if only the browser that started a sign-in can finish it at ``callback_url``."""
        # The number of users is unlimited: connections hold the sign-ins in use, and some others are cached.
        self._auths: WeakValueDictionary[str, UpstreamBearerAuth] = WeakValueDictionary()
        self._recent: OrderedDict[str, UpstreamBearerAuth] = OrderedDict()
        self._attempts: dict[str, SignInAttempt] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the sign-ins in progress and wait for renewals."""
        await asyncio.gather(*(attempt.aclose() for attempt in self._attempts.values()))
        await asyncio.gather(*(attempt.aclose() for attempt in [*self._auths.values()]))

    def create_auth_hook(self, principal: str = "local") -> Callable[[ServerConfig], UpstreamBearerAuth | None]:
        """Return `UpstreamHooks.create_auth` for one principal."""
        return lambda server: self.get_or_create_auth(server, principal)

    def create_signed_out_hook(self, principal: str = "local") -> Callable[[ServerConfig, Any], Awaitable[bool]]:
        """Return `UpstreamHooks.on_signed_out` for a principal: the program pauses until the user has signed in.

        The answer ``{"action": "accept"}`` may arrive before the sign-in ends; the call waits for that. Returns whether
        to retry the call.
        """

        async def pause_until_signed_in(server: ServerConfig, context: Any) -> bool:
            if context is None:
                return False
            answer = context.interrupt
            if answer is not None and mapping_or_empty(answer.resolution).get("action") != "accept":
                return False
            try:
                if answer is not None:
                    await self.wait_until_signed_in(server, principal)
                    return True
                sign_in = await self.get_or_start_sign_in(server, principal)
            except SignInError:
                return False
            if sign_in is not None:
                from codemode.interrupts.interrupt import request_interrupt

                url = sign_in.url
                if sign_in.secret is not None:  # the browser needs a cookie of the gateway first
                    url = self.get_page_url(server.name, principal) or sign_in.start_url or url
                message = f"Sign in to {server.name!r}."
                request_interrupt({"kind": PAUSE_KIND, "server": server.name, "url": url, "message": message})
            return True

        return pause_until_signed_in

    def get_or_create_auth(self, server: ServerConfig, principal: str = "local") -> UpstreamBearerAuth | None:
        """Return the sign-in of a principal at a server.

        None for a server without a URL, and for one with a configured ``Authorization`` header.
        """
        if server.url is None or any(name.lower() == "authorization" for name in server.headers):
            return None
        # Imported only for servers that need it.
        from .bearer_auth import UpstreamBearerAuth
        from .settings import AuthSettings

        settings = AuthSettings.from_server(server)
        key = settings.compute_storage_key(server, principal)
        auth = self._auths.get(key)
        if auth is None:
            if settings.client_secret is not None:
                self.secrets.add_secrets(settings.client_secret)
            auth = self._auths[key] = UpstreamBearerAuth(
                server,
                settings,
                principal,
                self.folder,
                self.secrets,
                lambda: self._describe_sign_in(server.name, principal),
            )
        self._recent[key] = auth
        self._recent.move_to_end(key)
        if len(self._recent) > MAX_CACHED_SIGN_INS:
            self._recent.popitem(last=False)
        return auth

    def _describe_sign_in(self, server: str, principal: str) -> str:
        page_url = self.get_page_url(server, principal)
        return format_login_command(server, self._command) if page_url is None else f"open {page_url} in a browser"

    def get_or_start_attempt(
        self, server: ServerConfig, principal: str = "local", *, is_forced: bool = False
    ) -> SignInAttempt:
        """Return the sign-in in progress, starting one if needed. Raises `SignInError`."""
        auth = self.get_or_create_auth(server, principal)
        if auth is None or auth.settings.flow != "browser":
            raise SignInError(f"{server.name!r} has no sign-in by browser: its configuration contains its credentials")
        from .login_attempt import SignInAttempt

        attempt = self._attempts.get(auth.key)
        if attempt is None or attempt.is_over:
            attempt = SignInAttempt(
                auth, self._open_browser, self.callback_url, is_forced=is_forced, binds_browser=self.binds_browsers
            )
            self._attempts.pop(auth.key, None)
            self._attempts[auth.key] = attempt
            finished = [key for key, other in self._attempts.items() if other.is_over]
            for key in finished[: max(0, len(self._attempts) - MAX_CACHED_SIGN_INS)]:
                del self._attempts[key]
        return attempt

    async def get_or_start_sign_in(self, server: ServerConfig, principal: str = "local") -> PendingSignIn | None:
        """Return the sign-in in progress, or None if none is needed. Raises `SignInError`.

        The sign-in stays open for five minutes; repeated calls return the same URL.
        """
        attempt = self.get_or_start_attempt(server, principal)
        try:
            async with asyncio.timeout(_URL_TIMEOUT_SECONDS):
                return await attempt.wait_for_sign_in_start()
        except TimeoutError:
            raise SignInError(f"{server.name!r} did not answer in time how to sign in") from None

    async def wait_until_signed_in(self, server: ServerConfig, principal: str = "local") -> None:
        """Wait until the principal has signed in. Raises `SignInError` on timeout or without a sign-in."""
        auth = self.get_or_create_auth(server, principal)
        attempt = None if auth is None else self._attempts.get(auth.key)
        if attempt is not None:
            await attempt.wait_until_signed_in()
        elif auth is None or await auth.load_usable_token() is None:
            raise SignInError(f"no sign-in to {server.name!r} is in progress")

    async def callback_app(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve ``callback_url`` as an ASGI application: a GET with the query of the redirect. Needs no sign-in."""
        from starlette.requests import Request

        from .login_attempt import deliver_redirect, list_sign_in_files

        request, message = Request(scope), None
        if request.method == "GET":
            query, cookies = scope["query_string"].decode("latin-1"), request.cookies
            message = await run_in_single_use_thread(
                lambda: deliver_redirect(list_sign_in_files(self.folder), query, cookies)
            )
        page = _create_page(render_page(message or UNKNOWN), 200 if message in (SIGNED_IN, DECLINED) else 400)
        await page(scope, receive, send)

    async def start_page_app(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the start page of a sign-in, which binds it to the browser, as an ASGI application."""
        from .browser import START_PATH
        from .login_attempt import find_sign_in_by_ticket

        ticket, sign_in = str(scope["path"]).rpartition(START_PATH)[2], None
        if scope["method"] == "GET":
            sign_in = await run_in_single_use_thread(lambda: find_sign_in_by_ticket(self.folder, ticket))
        if sign_in is None:
            page = _create_page(render_page(UNKNOWN), 404)
        else:
            page = _create_page(sign_in.render_start_page(), 200)
            page.headers["Set-Cookie"] = sign_in.create_cookie_header() or ""
        await page(scope, receive, send)


def _create_page(text: str, status: int) -> Response:
    from starlette.responses import HTMLResponse

    return HTMLResponse(text, status, PAGE_HEADERS)


_MAX_PASTE_ATTEMPTS = 5
_MAX_LINE_CHARACTERS = 1 << 14


async def login(
    config: GatewayConfig,
    name: str,
    *,
    principal: str = "local",
    open_browser: Callable[[str], object] | None = open_in_browser,
    out: TextIO | None = None,
    read_line: Callable[[], str] | None = None,
) -> None:
    """Sign in to the server ``name`` and store its tokens.

    The URL is printed to ``out`` (default: standard error) and opened. If the browser is on another machine,
    ``read_line`` returns the final address that the user pastes. Raises `ConfigError` for a server without sign-in and
    `SignInError` for a failed sign-in.
    """
    server, output = _require_server(config, name), sys.stderr if out is None else out
    async with SignInManager(config, open_browser=open_browser) as sign_ins:
        auth = sign_ins.get_or_create_auth(server, principal)
        if auth is None:
            reason = "it is a command or an API" if server.url is None else "it sends a configured Authorization header"
            raise ConfigError(f"mcpServers.{name} needs no sign-in: {reason}")
        if auth.settings.flow == "client_credentials":
            exchange = auth.create_exchange(await auth.load_record())
            await auth.save_record(await exchange.authorize(None))
            return
        attempt = sign_ins.get_or_start_attempt(server, principal, is_forced=True)
        sign_in = await attempt.wait_for_sign_in_start()
        if sign_in is not None:
            heading = f"Sign in to {name} at {require_safe_page_host(sign_in.url)}:"
            _print_lines(output, heading, sign_in.start_url or sign_in.url)
        if read_line is None:
            await attempt.wait_until_signed_in()
        else:
            await _wait_for_redirect_or_pasted_address(attempt, read_line, output)


async def _wait_for_redirect_or_pasted_address(
    attempt: SignInAttempt, read_line: Callable[[], str], out: TextIO
) -> None:
    """Accept a pasted address or the browser's redirect, whichever comes first."""
    _print_lines(out, "Open it in any browser, and paste the final address from its address bar here:")
    waiting = asyncio.ensure_future(attempt.wait_until_signed_in())
    try:
        for _ in range(_MAX_PASTE_ATTEMPTS):
            reading = asyncio.ensure_future(run_in_single_use_thread(read_line))
            await asyncio.wait([waiting, reading], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                break
            if attempt.accept_redirect(reading.result().strip().partition("?")[2].partition("#")[0]) is not None:
                break
            _print_lines(out, "This is not the final address of this sign-in. Try again:")
        else:
            raise SignInError("the final address of this sign-in was not pasted")
        await waiting
    finally:
        waiting.cancel()


def _print_lines(out: TextIO, *lines: str) -> None:
    out.write("".join(f"{clip_to_visible_line(line, _MAX_LINE_CHARACTERS)}\n" for line in lines))
    out.flush()


async def logout(config: GatewayConfig, name: str, *, principal: str = "local") -> bool:
    """Delete the tokens of the server ``name``, also of earlier configurations; return whether there were any.

    They are revoked first if the server supports it. A failed revocation is printed as a warning.
    """
    server = _require_server(config, name)
    async with SignInManager(config) as sign_ins:
        auth = sign_ins.get_or_create_auth(server, principal)
        if auth is None:
            return False
        record = await auth.delete_and_return_record()
        if record is not None:
            try:
                await auth.create_exchange(record).revoke()
            except SignInError as error:
                _print_lines(sys.stderr, f"the tokens are deleted here but not revoked: {error}")
        others = _delete_token_files_of_other_configs(sign_ins.folder, name, principal)
        return record is not None or others


def _delete_token_files_of_other_configs(folder: Path, name: str, principal: str) -> bool:
    from .token_store import MAX_RECORD_BYTES, TokenRecord

    found = False
    for path in folder.glob("*.json"):
        with suppress(UnsafeFileError):
            record = TokenRecord.from_json(read_private_file(path, MAX_RECORD_BYTES) or "")
            if record is not None and (record.server, record.principal) == (name, principal):
                path.unlink(missing_ok=True)
                found = True
    return found


def _require_server(config: GatewayConfig, name: str) -> ServerConfig:
    found = next((server for server in config.servers if server.name == name), None)
    if found is None:
        known = ", ".join(server.name for server in config.servers) or "none"
        raise ConfigError(f"there is no usable server {name!r}; the configuration has: {known}")
    return found
