"""Has the SDK's OAuth provider do its part: discovery, registration, the exchange for tokens, their renewal.

The provider would hold every request of a server until the one before it is answered, and would send what it likes:
here it is driven by hand, when tokens are missing, and each of its requests goes through a `Door`.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import extract_field_from_www_auth
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl

from codemode.trace.visible_text import one_line

from ..config.values import ServerConfig
from ..page_urls import PageURLError, page_host
from .doors import Door
from .errors import RefusedError, SignInError, UnreachableError
from .settings import AuthSettings
from .token_records import TokenRecord, expiry

Shown = Callable[[str], Awaitable[None]]
Answered = Callable[[], Awaitable[AuthorizationCodeResult]]

_LONGEST_CHALLENGE = 1 << 12
# What the provider logs of a failed sign-in, with a stack trace, is raised as well.
_SAID_ELSEWHERE = ("OAuth flow error", "Token refresh failed", "Invalid refresh response")
logging.getLogger("mcp.client.auth.oauth2").addFilter(lambda one: not str(one.msg).startswith(_SAID_ELSEWHERE))


class Exchange:
    """One sign-in of a principal at a server, or one renewal; ``record`` is what was kept before, if anything."""

    def __init__(
        self, server: ServerConfig, settings: AuthSettings, principal: str, record: TokenRecord | None
    ) -> None:
        self._server = server
        self._url = server.url or ""
        self._settings = settings
        self._record = record or TokenRecord(server=server.name, principal=principal, saved_at=time.time())
        self.door = Door(
            server.name,
            self._url,
            has_own_secret=settings.client_secret is not None,
            trusted_issuer=settings.issuer,
        )

    async def refreshed(self) -> TokenRecord:
        """Present the refresh token, and return the record with the new tokens.

        Raises `RefusedError` where it is not taken, `UnreachableError` where it may be another time.
        """
        provider = self._provider("http://127.0.0.1/callback", None, None)
        provider.context.token_expiry_time = 1.0
        await self._drive(provider, None)
        if provider.context.current_tokens is None:
            raise RefusedError(f"{self._server.name!r} does not renew its sign-in")
        return self._result(provider.context)

    async def authorized(
        self, challenge: httpx2.Response | None, redirect_uri: str = "http://127.0.0.1/callback",
        shown: Shown | None = None, answered: Answered | None = None,
    ) -> TokenRecord:  # fmt: skip
        """Sign in anew and return the record.

        ``challenge`` is the answer with which the server asked for it; without one it is asked. ``shown`` gets the URL
        for the browser, once it has been checked, and ``answered`` waits for what comes back to ``redirect_uri``.
        """

        async def checked(url: str) -> None:
            issuer = self._issuer_of(provider.context)
            if self._settings.issuer is not None and issuer.rstrip("/") != self._settings.issuer.rstrip("/"):
                raise RefusedError(
                    f"{self._server.name!r} names the authorization server {issuer}, not that of auth.issuer"
                )
            await self.door.check_url(url)
            try:
                page_host(url)
            except PageURLError as error:
                raise RefusedError(f"the page on which {self._server.name!r} asks to sign in {error}") from None
            if shown is not None:
                await shown(url)

        if challenge is None:  # nobody has been refused yet, and some say only then where to sign in
            challenge = await self.door.challenge(self._server.headers, reads_only=self._server.transport == "sse")
        provider = self._provider(redirect_uri, checked, answered)
        provider.context.token_expiry_time = None
        await self._drive(provider, self._challenge(challenge))
        if provider.context.current_tokens is None:
            raise UnreachableError(f"{self._server.name!r} gave no tokens")
        return self._result(provider.context)

    async def revoked(self) -> bool:
        """Tell the authorization server to forget the tokens; whether it offers that and did."""
        metadata = self._record.metadata or {}
        where, provider = metadata.get("revocation_endpoint"), self._provider("http://127.0.0.1/callback", None, None)
        if not isinstance(where, str):
            return False
        provider.context.client_info = await provider.context.storage.get_client_info()
        for kind in ("refresh_token", "access_token"):
            token = getattr(self._record, kind)
            if token is not None:
                data, headers = provider.context.prepare_token_auth({"token": token, "token_type_hint": kind}, {})
                if provider.context.client_info is not None:
                    data.setdefault("client_id", provider.context.client_info.client_id)
                self.door.issuer = metadata.get("issuer")
                await self.door.send(httpx2.Request("POST", where, data=data, headers=headers))
        return True

    def _provider(self, redirect_uri: str, shown: Shown | None, answered: Answered | None) -> OAuthClientProvider:
        settings, held = (
            self._settings,
            _Held(self._record, self._own_client(redirect_uri), None if shown is None else redirect_uri),
        )
        if settings.flow == "client_credentials":
            from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

            with warnings.catch_warnings():
                # Without an issuer the door sends the secret to the server's own host alone.
                warnings.simplefilter("ignore")
                provider: OAuthClientProvider = ClientCredentialsOAuthProvider(
                    self._url, held, settings.client_id or "", settings.client_secret or "",
                    scope=settings.scopes, issuer=settings.issuer,
                )  # fmt: skip
        else:
            metadata = OAuthClientMetadata(
                redirect_uris=[AnyUrl(redirect_uri)], client_name=settings.client_name, scope=settings.scopes
            )
            provider = OAuthClientProvider(
                self._url, metadata, held, shown, answered, client_metadata_url=settings.client_metadata_url
            )
        self.door.may_register = settings.client_id is None
        context, one = provider.context, self._record
        with suppress(ValueError):
            if one.metadata is not None:
                context.oauth_metadata = OAuthMetadata.model_validate(one.metadata)
            if one.resource is not None:
                context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(one.resource)
        return provider

    def _own_client(self, redirect_uri: str) -> OAuthClientInformationFull | None:
        settings = self._settings
        if settings.client_id is None:
            return None
        return OAuthClientInformationFull(
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            redirect_uris=[AnyUrl(redirect_uri)],
            token_endpoint_auth_method="none" if settings.client_secret is None else "client_secret_basic",
            issuer=settings.issuer,
        )

    async def _drive(self, provider: OAuthClientProvider, challenge: httpx2.Response | None) -> None:
        """Answer the provider's requests. Where it comes to the server's own again, all is done."""
        request = httpx2.Request("POST", self._url)
        flow, context = provider.async_auth_flow(request), provider.context
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is request:
                    if challenge is None:
                        return
                    response, challenge = challenge, None
                else:
                    self.door.issuer = self._issuer_of(context)
                    response = await self.door.send(outgoing)
                    _choose_method(context, response)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except SignInError:
            raise
        except OAuthFlowError as error:
            raise RefusedError(f"signing in to {self._server.name!r} failed: {one_line(str(error), 300)}") from None
        except (ValueError, TypeError, ArithmeticError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            what = f"signing in to {self._server.name!r} failed: its authorization server's answers cannot be used"
            raise UnreachableError(f"{what} ({type(error).__name__})") from None
        finally:
            await flow.aclose()

    def _issuer_of(self, context: OAuthContext) -> str:
        return "" if context.oauth_metadata is None else str(context.oauth_metadata.issuer)

    def _challenge(self, response: httpx2.Response | None) -> httpx2.Response:
        """Return the server's challenge in words of our own, with the scopes of the configuration."""
        status, words = 401, dict[str, str]()
        if response is not None and len(response.headers.get("www-authenticate", "")) <= _LONGEST_CHALLENGE:
            status = response.status_code if response.status_code == 403 else 401
            for name in ("resource_metadata", "scope", "error"):
                said = extract_field_from_www_auth(response, name)
                if said and said.isascii() and said.isprintable() and '"' not in said:
                    words[name] = said
        if self._settings.scopes is not None:
            words["scope"] = self._settings.scopes
        said = ", ".join(f'{name}="{value}"' for name, value in words.items())
        return httpx2.Response(
            status, headers={"www-authenticate": f"Bearer {said}"}, request=httpx2.Request("POST", self._url)
        )

    def _result(self, context: OAuthContext) -> TokenRecord:
        tokens, now = context.current_tokens, time.time()
        if tokens is None:
            raise UnreachableError(f"{self._server.name!r} gave no tokens")
        return replace(
            self._record,
            saved_at=now,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            scope=tokens.scope,
            expires_at=expiry(now, tokens.expires_in),
            client=None if self._settings.client_id else _plain(context.client_info),
            metadata=_plain(context.oauth_metadata),
            resource=_plain(context.protected_resource_metadata),
        )


class _Held:
    """What the SDK calls a storage: a record that is read, and nothing written, for the lock is not its own."""

    def __init__(self, record: TokenRecord, own: OAuthClientInformationFull | None, redirect_uri: str | None) -> None:
        self._record = record
        self._own = own
        self._redirect_uri = redirect_uri

    async def get_tokens(self) -> OAuthToken | None:
        one = self._record
        if one.access_token is None and one.refresh_token is None:
            return None
        return OAuthToken(access_token=one.access_token or "", refresh_token=one.refresh_token, scope=one.scope)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self._own is not None or self._record.client is None:
            return self._own
        with suppress(ValueError):
            found = OAuthClientInformationFull.model_validate(self._record.client)
            is_known = self._redirect_uri is None or self._redirect_uri in map(str, found.redirect_uris or [])
            if is_known and not 0 < (found.client_secret_expires_at or 0) < time.time():
                return found
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None: ...

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None: ...


def _choose_method(context: OAuthContext, response: httpx2.Response) -> None:
    """Have a configured client show its secret in the way that the authorization server takes."""
    client = context.client_info
    if client is None or client.client_secret is None or "/.well-known/" not in str(response.request.url):
        return
    try:
        offered: Any = response.json().get("token_endpoint_auth_methods_supported")
    except (ValueError, AttributeError):
        return
    if isinstance(offered, list) and "client_secret_basic" not in offered and "client_secret_post" in offered:
        client.token_endpoint_auth_method = "client_secret_post"  # noqa: S105


def _plain(value: Any) -> dict[str, Any] | None:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)
