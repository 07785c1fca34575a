"""Puts a token on the requests to one server, and renews it: what the HTTP client of a connection asks."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TypeGuard

import httpx2

from ..config.locations import GATEWAY_COMMAND, login_command
from ..config.model import ServerConfig
from ..config.redaction import SecretRedactor
from ..outgoing_http import is_trusted_redirect
from .flow import Exchange
from .settings import AuthSettings, RefusedError, SignInError, TokenRecord, UnreachableError
from .token_store import TokenStore, locked

# Opens no browser: where a person has to sign in, requests fail, and their error says so.

# Longer than a renewal may take: whoever holds the lock then hangs in a way that nobody waits for.
_LOCK_S = 100.0
_AGAIN_S = 5.0


class ServerAuth(httpx2.Auth):
    """The sign-in of one principal at one server: the ``auth`` of the HTTP clients of all connections to it.

    A request that the server refuses because nobody is signed in raises `SignInError`.

    ``failure`` is the one because of which the last request was not taken, else None.
    ``challenge`` is the server's last answer that asked for a sign-in. ``page`` gives where a person does that, None
    where it is on the command line, behind ``command``.
    """

    def __init__(
        self,
        server: ServerConfig,
        settings: AuthSettings,
        principal: str,
        store: TokenStore,
        folder: Path,
        secrets: SecretRedactor,
        page: Callable[[], str | None] = lambda: None,
        command: str = GATEWAY_COMMAND,
    ) -> None:
        self.server = server
        self.settings = settings
        self.principal = principal
        self.key = settings.key(server, principal)
        self.failure: SignInError | None = None
        self.challenge: httpx2.Response | None = None
        self._url = httpx2.URL(server.url or "")
        self._store = store
        self._lock_file = folder / f"{self.key}.lock"
        self._secrets = secrets
        self._page = page
        self._command = command
        self._record: TokenRecord | None = None
        self._was_read = False
        self._rejected: str | None = None
        self._renewal: asyncio.Task[str] | None = None
        self._failed_at = -_AGAIN_S

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the token; where it is not taken, once more with another."""
        if not self._is_own(request.url):
            yield request
            return
        token = await self._token()
        _put(request, token)
        response = yield request
        if not _asks_for_sign_in(response):
            self.failure = None if token is not None else self.failure
            return
        self.challenge = httpx2.Response(
            response.status_code, headers=_said(response), request=httpx2.Request("POST", self._url)
        )
        self._rejected = token or self._rejected
        _put(request, await self._other_than(token, is_step_up=response.status_code == 403))
        response = yield request
        if _asks_for_sign_in(response):
            raise self._failed(self._needed())

    def _is_own(self, url: httpx2.URL) -> bool:
        """Tokens go to the origin of their resource alone, or to its host by TLS, wherever a server redirects to."""
        return is_trusted_redirect(self._url, url)

    async def aclose(self) -> None:
        """Wait for a renewal that is under way: its refresh token is used up."""
        if self._renewal is not None:
            await asyncio.wait([self._renewal])

    async def other_token(self) -> str | None:
        """Return the token that is kept now, if the server has not refused it: somebody may have signed in."""
        record = await self._read()
        return record.access_token if self._is_usable(record, None) else None

    async def forget(self) -> TokenRecord | None:
        """Keep nothing any more, and return what was kept."""
        async with locked(self._lock_file, _LOCK_S):
            record = await self._read()
            await self._store.delete(self.key)
            self._record = None
            return record

    async def keep(self, sign_in: Callable[[TokenRecord | None], Awaitable[TokenRecord]]) -> None:
        """Keep what a sign-in by a person gives, made of what is kept now."""
        record = await sign_in(await self._read())
        async with locked(self._lock_file, _LOCK_S):
            await self._write(record)

    async def _token(self) -> str | None:
        """Return a token that may be used, renewed where it is due; None where there is none."""
        if not self._was_read:
            await self._read()
        record = self._record
        if record is not None and not record.is_due(time.time()):
            return record.access_token
        if record is None or record.refresh_token is None or self.settings.flow != "browser":
            return None
        try:
            return await self._other_than(None, is_step_up=False)
        except SignInError:
            if record.expires_at is None or time.time() >= record.expires_at:
                raise
            return record.access_token  # for what is left of its time

    async def _other_than(self, rejected: str | None, *, is_step_up: bool) -> str:
        """Return a token that is not the rejected one: of another process, renewed, or newly given."""
        if self._is_usable(self._record, rejected):
            return self._record.access_token or ""
        if self._renewal is None:
            # A task of its own: a call that is given up must not lose what its refresh token was exchanged for.
            self._renewal = asyncio.create_task(self._renew(rejected, is_step_up), context=contextvars.Context())
            self._renewal.add_done_callback(self._renewed)
        return await asyncio.shield(self._renewal)

    def _renewed(self, renewal: asyncio.Task[str]) -> None:
        self._renewal = None
        if not renewal.cancelled():
            renewal.exception()  # whoever has waited for it may be gone

    async def _renew(self, rejected: str | None, is_step_up: bool) -> str:
        try:
            async with locked(self._lock_file, _LOCK_S):
                return await self._new_token(rejected, is_step_up)
        except SignInError as error:
            raise self._failed(error) from None
        except (OSError, TimeoutError) as error:
            why = "another gateway is renewing it" if isinstance(error, TimeoutError) else "its tokens cannot be kept"
            raise self._failed(SignInError(f"the sign-in of {self.server.name!r} cannot be used: {why}")) from None

    async def _new_token(self, rejected: str | None, is_step_up: bool) -> str:
        record = await self._read()
        if self._is_usable(record, rejected):
            self.failure = None
            return record.access_token or ""
        if self.failure is not None and time.monotonic() - self._failed_at < _AGAIN_S:
            raise self.failure
        exchange = Exchange(self.server, self.settings, self.principal, record)
        if self.settings.flow == "client_credentials":
            return await self._write(await exchange.authorized(self.challenge))
        if is_step_up or record is None or record.refresh_token is None:
            raise self._needed()
        try:
            return await self._write(await exchange.refreshed())
        except RefusedError:
            # Nobody presents it again; the client that was registered stays.
            await self._write(record.without_tokens())
            raise self._needed() from None

    def _is_usable(self, record: TokenRecord | None, rejected: str | None) -> TypeGuard[TokenRecord]:
        if record is None or record.is_due(time.time()):
            return False
        return record.access_token not in (rejected, self._rejected)

    def _needed(self) -> SignInError:
        name = self.server.name
        if self.settings.flow == "client_credentials":
            return SignInError(f"{name!r} does not take the credentials of its auth settings")
        page = self._page()
        way = login_command(name, self._command) if page is None else f"open {page} in a browser"
        return SignInError(f"somebody has to sign in to {name!r} first: {way}")

    def _failed(self, error: SignInError) -> SignInError:
        if isinstance(error, UnreachableError | RefusedError) and error is not self.failure:
            self._failed_at = time.monotonic()
        self.failure = error
        return error

    async def _read(self) -> TokenRecord | None:
        self._record = record = await self._store.read(self.key)
        self._was_read = True
        if record is not None:
            self._secrets.add(*record.secrets, owner=self.key)
        return record

    async def _write(self, record: TokenRecord) -> str:
        self._secrets.add(*record.secrets, owner=self.key)
        self._record, self._was_read = record, True  # the old refresh token is used up, even where this cannot be kept
        await self._store.write(self.key, record)
        if record.access_token is not None:
            self.failure, self._failed_at = None, -_AGAIN_S
        return record.access_token or ""


def _put(request: httpx2.Request, token: str | None) -> None:
    if token:
        request.headers["Authorization"] = f"Bearer {token}"


def _said(response: httpx2.Response) -> dict[str, str]:
    said = response.headers.get("www-authenticate")
    return {} if said is None else {"www-authenticate": said}


def _asks_for_sign_in(response: httpx2.Response) -> bool:
    if response.status_code == 401:
        return True
    return response.status_code == 403 and "insufficient_scope" in response.headers.get("www-authenticate", "")[:4096]
