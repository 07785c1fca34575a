"""Mount the approval console and the sign-in pages of servers in the gateway."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from codemode_console.access_middleware import AccessMiddleware
from codemode_console.application import approval_console
from codemode_console.auth import TokenAuth, User
from codemode_console.errors import Problem
from codemode_console.rendering import problem_response
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from codemode.execution.pauses import inspect_interrupt
from codemode.stores.records import ALL_TENANTS

from ..approvals.pending_store import SCOPE_DESCRIPTIONS, StandingApproval
from ..approvals.remembered_answers import RememberedAnswers
from ..config.locations import format_login_command
from ..config.model import ConfigError
from ..oauth.browser import PAGE_HEADERS, SIGNED_IN, render_page
from ..oauth.settings import SignInError
from .http_auth import NO_VERIFIER, RequestAuthenticator, to_principal_id
from .http_limits import HttpError
from .http_settings import VERIFIED_PREFIX, HttpSettings, compute_token_digest
from .options import APP_NAME, load_or_create_signing_keys
from .principals import LOCAL, Principal, get_sharing_scope

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore
    from codemode.stores.records import Record, StoredRequest


# A verified token is exchanged for a session of the console. Its signed cookie names the user and the end of the
# session, so every host with the same keys knows it. The token itself is not stored.

_VERIFIED_PREFIX = "verified"
_DEFAULT_SESSION_SECONDS = 3600.0


def create_token_auth_class(
    get_authenticator: Callable[[], RequestAuthenticator], clock: Callable[[], float] = time.time
) -> type[TokenAuth]:
    """Return a console user class that also accepts users of the token verifier.

    Their session ends with the token, after an hour for tokens without expiry, and when the verifier settings change.
    """

    class VerifiedTokenAuth(TokenAuth):
        async def authenticate(self, token: str, request: Any) -> Any:
            base: Any = super()
            known: Any = await base.authenticate(token, request)
            if known is not None or not token:
                return known
            try:
                access = await get_authenticator().verify_token(token, request.scope, request.receive)
            except HttpError as error:
                if error.status < 500:
                    return None
                advice = "Try again in a moment."
                raise Problem(503, error.message, advice) from None
            expires_at = clock() + _DEFAULT_SESSION_SECONDS if access.expires_at is None else access.expires_at
            fingerprint = get_authenticator().verifier_fingerprint
            key = f"{_VERIFIED_PREFIX} {fingerprint} {math.floor(expires_at)} {to_principal_id(access)}"
            user = self.find_by_session_key(key)
            return None if user is None else (user, key)

        @property
        def has_one_user(self) -> bool:
            base: Any = super()
            return get_authenticator().verifier_fingerprint == NO_VERIFIER and base.has_one_user

        def find_by_session_key(self, key: str) -> Any:
            base: Any = super()
            prefix, _, fields = key.partition(" ")
            if prefix != _VERIFIED_PREFIX:
                return base.find_by_session_key(key)
            mark, until, name = [*fields.split(" ", 2), "", "", ""][:3]
            is_known = (
                mark == get_authenticator().verifier_fingerprint
                and until.isdigit()
                and clock() < int(until)
                and name.startswith(VERIFIED_PREFIX)
            )
            return User(name, [name]) if is_known else None

    return VerifiedTokenAuth


class StandingApprovals:
    """The console option ``standing_approvals``: approvals that also hold for later calls."""

    def __init__(self, folder: Path, store: InterruptStore) -> None:
        self._remembered, self._store = RememberedAnswers(folder), store

    def list_choices(self, record: Record, request: StoredRequest) -> dict[str, str]:
        """Return the durations, in words, for which the call's approval may also hold for later calls."""
        descriptions: dict[str, str] = {}
        for scope in SCOPE_DESCRIPTIONS:
            with suppress(ValueError):
                descriptions[scope] = StandingApproval.from_requests(record, [request], scope).description
        return descriptions

    async def audit_and_save_choice(
        self, record: Record, request: StoredRequest, choice: Any, *, actor: str, address: str | None
    ) -> None:
        """Save this choice for later calls. Raises the errors of `StandingApproval`."""
        later = StandingApproval.from_requests(record, [request], choice)
        await later.audit_and_save(self._remembered, self._store, record, actor=actor, address=address)


# The URL of a server's page carries no credential, so programs and models may know it: users sign in on it.

SERVERS_PATH = "/servers/"


def create_sign_in_pages(gateway: Any, **guard_options: Any) -> ASGIApp:
    """Return the sign-in pages. ``guard_options`` configure the console sign-in in front of them."""
    return AccessMiddleware(_SignInPages(gateway), **guard_options)


def get_server_page_path(name: str) -> str:
    """Return the path of a server's page, relative to the console."""
    return SERVERS_PATH + quote(name, safe="")


class _SignInPages:
    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            response: Response = await self._start_sign_in_and_redirect(request)
        except Problem as problem:
            response = problem_response(request, problem)
        await response(scope, receive, send)

    async def _start_sign_in_and_redirect(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise Problem(405, "Method not allowed", headers={"Allow": "GET, HEAD"})
        path = str(request.scope["path"]).removeprefix(str(request.scope.get("root_path", "")))
        name = path.removeprefix(SERVERS_PATH)
        matching_server = next(
            (matching_server for matching_server in self._gateway.config.servers if matching_server.name == name), None
        )
        sign_ins = getattr(self._gateway, "sign_ins", None)
        if matching_server is None or matching_server.url is None or sign_ins is None:
            raise Problem(404, "Server not found", "The configuration has no server of this name to sign in to.")
        principal = self._require_single_principal(request.scope["user"])
        if get_sharing_scope(matching_server, Principal(principal)).owner_id != principal:
            advice = f"The operator of the gateway signs in to it: {format_login_command(name)}"
            raise Problem(403, "All users share this server", advice)
        try:
            sign_in = await sign_ins.get_or_start_sign_in(matching_server, principal)
        except SignInError as error:
            raise Problem(502, "Sign-in cannot start", error.message) from None
        if sign_in is None:
            return HTMLResponse(render_page(SIGNED_IN), headers=PAGE_HEADERS)
        cookie = sign_in.create_cookie_header()
        return RedirectResponse(sign_in.url, 303, headers={} if cookie is None else {"Set-Cookie": cookie})

    def _require_single_principal(self, user: Any) -> str:
        if user.tenants is not ALL_TENANTS and len(user.tenants) == 1:
            return next(iter(user.tenants))
        advice = "You are not signed in as one user. Sign in with the token of the user who uses the server."
        raise Problem(403, "The user of this sign-in is unknown", advice)


CONSOLE_PATH = "/console"


class MountedConsole:
    """The console of a running gateway. ``token`` is its generated operator token, or None if tokens are configured.

    Users sign in with gateway tokens and see their own records. An operator signs in with ``auth.console``, or with the
    generated token without ``auth.tokens``; without gateway sign-in the operator sees only local records. Raises
    `ConfigError` for invalid users.
    """

    def __init__(
        self,
        gateway: Any,
        settings: HttpSettings,
        get_authenticator: Callable[[], RequestAuthenticator],
        *,
        requires_sign_in: bool,
    ) -> None:
        self._operator_tenants = ALL_TENANTS if requires_sign_in else [LOCAL.id]
        self.token = secrets.token_urlsafe(32) if settings.console is None and not settings.tokens else None
        self._auth = create_token_auth_class(get_authenticator)(self._create_users(settings))
        signing_keys = load_or_create_signing_keys(gateway.config.settings.keys, gateway.folder)
        # Derived for this purpose from the keys that all hosts share; the last one signs.
        secret = [hmac.new(key, b"codemode mcp console", hashlib.sha256).digest() for key in signing_keys]
        base_url = None if settings.url is None else settings.url + CONSOLE_PATH
        standing_approvals = StandingApprovals(gateway.folder, gateway.store)
        # A token for local use is typed into browsers that other local servers can redirect to their own ports.
        self._private_path = (
            f"~{secrets.token_urlsafe(24)}" if self.token is not None and settings.url is None else None
        )
        options = {
            "secret": secret,
            "inspect": _create_interrupt_inspector(signing_keys),
            "standing_approvals": standing_approvals,
            "private_path": self._private_path,
        }
        self._console = approval_console(gateway.store, auth=self._auth, base_url=base_url, options=options)
        self._server_pages = create_sign_in_pages(
            gateway,
            auth=self._auth,
            store=gateway.store,
            secret=secret,
            base_url=base_url,
            private_path=self._private_path,
        )

    def replace_users(self, settings: HttpSettings) -> None:
        """Replace the users; removed users lose access immediately. Raises `ConfigError`."""
        no_users = {f"sha256:{compute_token_digest(secrets.token_urlsafe(32))}": User("nobody", [])}
        self._auth.replace(self._create_users(settings) or no_users)

    def _create_users(self, settings: HttpSettings) -> dict[str, Any]:
        users: dict[str, Any] = {f"sha256:{digest}": User(name, [name]) for digest, name in settings.tokens.items()}
        configured = settings.console or self.token
        if isinstance(configured, str):
            users[f"sha256:{compute_token_digest(configured)}"] = User("operator", self._operator_tenants)
        elif configured is not None:
            try:
                # Parsed and checked like a token file.
                users |= {key.lower(): _parse_user(key, user) for key, user in configured.items()}
            except ValueError as error:
                raise ConfigError(f"codemode.auth.console: {error}") from error
        return users

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Expire records while the block runs."""
        async with self._console.running():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a path of the console."""
        root = f"{scope.get('root_path', '')}{CONSOLE_PATH}"
        if scope["path"] == root:
            raise HttpError(307, "The console is at this address with a slash at its end", {"location": f"{root}/"})
        subpath = str(scope["path"])[len(root) :].removeprefix(f"/{self._private_path}")
        is_server_page = subpath.startswith(SERVERS_PATH)
        await (self._server_pages if is_server_page else self._console)({**scope, "root_path": root}, receive, send)


def _parse_user(key: str, entry: Any) -> Any:
    auth = TokenAuth.from_json(json.dumps({key: entry}))
    return auth.find_by_session_key(key.lower() if key.lower().startswith("sha256:") else f"sha256:{key.lower()}")


def _create_interrupt_inspector(keys: tuple[bytes, ...]) -> Any:
    """Return the function that reads this gateway's pauses, which are bound to app and tenant."""

    def inspect(record: Any, interrupt: Any) -> Any:
        options = {"continuation": {"keys": keys, "conversation_id": f"{APP_NAME}:{record.tenant}"}}
        return inspect_interrupt(interrupt, options, conversation_id=record.tenant)

    return inspect
