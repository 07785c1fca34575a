"""Add bearer tokens to requests to one server, and renew them."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TypeGuard

import httpx2

from ..config.model import ServerConfig
from ..config.redaction import SecretRedactor
from ..outgoing_http import is_trusted_redirect
from .flow import OAuthExchange, create_challenge
from .settings import AuthorizationRefusedError, AuthorizationUnavailableError, AuthSettings, SignInError
from .token_store import TokenRecord, TokenStore, find_keyring, hold_lock

# Opens no browser: when a sign-in is needed, requests fail with an error that says so.

# Longer than any renewal: a process that still holds the lock then hangs.
_LOCK_TIMEOUT_SECONDS = 100.0
_RETRY_SECONDS = 5.0


class UpstreamBearerAuth(httpx2.Auth):
    """The sign-in of one principal at one server: the HTTP ``auth`` of all its connections.

    A request without valid sign-in raises `SignInError`. ``challenge`` is the last answer that asked for a sign-in.
    ``describe_sign_in`` returns what the user has to do.
    """

    def __init__(
        self,
        server: ServerConfig,
        settings: AuthSettings,
        principal: str,
        folder: Path,
        secrets: SecretRedactor,
        describe_sign_in: Callable[[], str],
    ) -> None:
        self.server = server
        self.settings = settings
        self.principal = principal
        self.key = settings.compute_storage_key(server, principal)
        self.challenge: httpx2.Response | None = None
        self.folder = folder
        self._url = httpx2.URL(server.url or "")
        self._store = TokenStore(folder, find_keyring(settings.storage))
        self._lock_file = folder / f"{self.key}.lock"
        self._secrets = secrets
        self._describe_sign_in = describe_sign_in
        self._record: TokenRecord | None = None
        self._is_loaded = False
        self._rejected_token: str | None = None
        self._renewal: asyncio.Task[str] | None = None
        self._failure: SignInError | None = None
        self._failed_at = 0.0

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the token; retry once with another token after a rejection."""
        # Tokens go only to the origin of their resource, or to its host with TLS, even after redirects.
        if not is_trusted_redirect(self._url, request.url):
            yield request
            return
        token = await self._get_or_renew_token()
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if not _asks_for_sign_in(response):
            return
        self.challenge = create_challenge(response.status_code, response.headers.get("www-authenticate", ""))
        self._rejected_token = token or self._rejected_token
        other_token = await self._get_or_renew_other_token(token, is_step_up=response.status_code == 403)
        request.headers["Authorization"] = f"Bearer {other_token}"
        response = yield request
        if _asks_for_sign_in(response):
            raise self._create_sign_in_needed_error()

    async def aclose(self) -> None:
        """Wait for a renewal in progress, which uses up the refresh token."""
        if self._renewal is not None:
            await asyncio.wait([self._renewal])

    def create_exchange(self, record: TokenRecord | None) -> OAuthExchange:
        """Return a sign-in or renewal that begins with the record."""
        return OAuthExchange(self.server, self.settings, self.principal, record)

    async def load_usable_token(self) -> str | None:
        """Return the stored token unless the server rejected it; another process may have signed in."""
        record = await self.load_record()
        return record.access_token if self._is_usable(record, None) else None

    async def load_record(self) -> TokenRecord | None:
        """Return the stored record; its secrets are redacted."""
        self._record, self._is_loaded = await self._store.read(self.key), True
        if self._record is not None:
            self._secrets.add_secrets(*self._record.secrets, owner=self.key)
        return self._record

    async def delete_and_return_record(self) -> TokenRecord | None:
        """Delete the stored record and return it."""
        async with hold_lock(self._lock_file, _LOCK_TIMEOUT_SECONDS):
            record = await self.load_record()
            await self._store.delete(self.key)
            self._record = None
            return record

    async def save_record(self, record: TokenRecord) -> None:
        """Save the record of a sign-in."""
        async with hold_lock(self._lock_file, _LOCK_TIMEOUT_SECONDS):
            await self._save_record_and_get_token(record)

    async def _get_or_renew_token(self) -> str | None:
        """Return a usable token, renewed when due, or None."""
        if not self._is_loaded:
            await self.load_record()
        record = self._record
        if record is not None and not record.needs_renewal(time.time()):
            return record.access_token
        if record is None or record.refresh_token is None or self.settings.flow != "browser":
            return None
        try:
            return await self._get_or_renew_other_token(None, is_step_up=False)
        except SignInError:
            if record.expires_at is None or time.time() >= record.expires_at:
                raise
            return record.access_token  # until it expires

    async def _get_or_renew_other_token(self, rejected: str | None, *, is_step_up: bool) -> str:
        """Return another token than the rejected one: from another process, a renewal or a new sign-in."""
        if self._is_usable(self._record, rejected):
            return self._record.access_token or ""
        if self._renewal is None:
            # A separate task: a cancelled call must not lose the tokens for which its refresh token was exchanged.
            self._renewal = asyncio.create_task(
                self._lock_and_obtain_token(rejected, is_step_up), context=contextvars.Context()
            )
            self._renewal.add_done_callback(self._on_renewal_end)
        return await asyncio.shield(self._renewal)

    def _on_renewal_end(self, renewal: asyncio.Task[str]) -> None:
        self._renewal = None
        if not renewal.cancelled():
            renewal.exception()  # the waiters may be gone

    async def _lock_and_obtain_token(self, rejected: str | None, is_step_up: bool) -> str:
        try:
            async with hold_lock(self._lock_file, _LOCK_TIMEOUT_SECONDS):
                return await self._obtain_token(rejected, is_step_up)
        except (AuthorizationUnavailableError, AuthorizationRefusedError) as error:
            if error is not self._failure:
                self._failure, self._failed_at = error, time.monotonic()
            raise
        except OSError as error:
            is_locked = isinstance(error, TimeoutError)
            reason = "another gateway is renewing it" if is_locked else "its tokens cannot be stored"
            raise SignInError(f"the sign-in of {self.server.name!r} cannot be used: {reason}") from None

    async def _obtain_token(self, rejected: str | None, is_step_up: bool) -> str:
        record = await self.load_record()
        if self._is_usable(record, rejected):
            return record.access_token or ""
        if self._failure is not None and time.monotonic() - self._failed_at < _RETRY_SECONDS:
            raise self._failure
        exchange = self.create_exchange(record)
        if self.settings.flow == "client_credentials":
            return await self._save_record_and_get_token(await exchange.authorize(self.challenge))
        if is_step_up or record is None or record.refresh_token is None:
            raise self._create_sign_in_needed_error()
        try:
            return await self._save_record_and_get_token(await exchange.refresh())
        except AuthorizationRefusedError:
            # Do not use the refresh token again; keep the registered client.
            await self._save_record_and_get_token(record.without_tokens())
            raise self._create_sign_in_needed_error() from None

    def _is_usable(self, record: TokenRecord | None, rejected: str | None) -> TypeGuard[TokenRecord]:
        if record is None or record.needs_renewal(time.time()):
            return False
        return record.access_token not in (rejected, self._rejected_token)

    def _create_sign_in_needed_error(self) -> SignInError:
        name = self.server.name
        if self.settings.flow == "client_credentials":
            return SignInError(f"{name!r} rejects the credentials of its auth settings")
        return SignInError(f"the user must sign in to {name!r} first: {self._describe_sign_in()}")

    async def _save_record_and_get_token(self, record: TokenRecord) -> str:
        self._secrets.add_secrets(*record.secrets, owner=self.key)
        self._record, self._is_loaded = record, True  # the old refresh token is used up even if saving fails
        await self._store.write(self.key, record)
        if record.access_token is not None:
            self._failure = None
        return record.access_token or ""


def _asks_for_sign_in(response: httpx2.Response) -> bool:
    header = response.headers.get("www-authenticate", "")
    return response.status_code == 401 or (response.status_code == 403 and "insufficient_scope" in header)
