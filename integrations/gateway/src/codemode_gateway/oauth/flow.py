"""Run the SDK's OAuth provider: discovery, registration, token exchange and renewal."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from codemode.data.json_values import decode_json
from codemode.data.narrowing import mapping_or_empty
from codemode.fetch.client import is_public_address, resolve_host
from codemode.trace.visible_text import clip_to_visible_line

from ..config.model import ServerConfig
from ..outgoing_http import RefusedRedirectError, format_url_without_secrets, get_tls_context, send_following_redirects
from ..page_urls import PageURLError, require_safe_page_host
from .settings import AuthorizationRefusedError, AuthorizationUnavailableError, AuthSettings, SignInError
from .token_store import TokenRecord, compute_expiry, is_token

# A server names its own authorization server, so each URL is hostile. The answers contain tokens and secrets, so errors
# quote only OAuth's error fields.

_MAX_RESPONSE_BYTES = 1 << 16
_MAX_URL_CHARACTERS = 1 << 13
REQUEST_TIMEOUT_SECONDS = 30.0
_CREDENTIALS = ("access_token", "refresh_token", "client_id", "client_secret")
_ERROR_TEXT = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]{1,200}")  # RFC 6749 of error and error_description


class AuthorizationClient:
    """Sends the requests of one sign-in at a server.

    Requests go only to hosts as public as the server's, with TLS except on its own host or loopback. A configured
    secret goes only to the configured issuer or the server's own host.
    """

    def __init__(self, server: ServerConfig, settings: AuthSettings) -> None:
        self._server = server
        self._url = httpx2.URL(server.url or "")
        self._settings = settings

    async def send(self, request: httpx2.Request, issuer: str) -> httpx2.Response:
        """Send a request to the authorization server ``issuer`` and return the checked answer. Raises `SignInError`."""
        await self.check_url(request.url)
        await request.aread()
        answer_model, url = _get_answer_model(request), format_url_without_secrets(request.url)
        if self._settings.client_id is not None and request.method == "POST":
            self._check_recipient_of_client(request, issuer, is_registration=answer_model is OAuthClientInformationFull)
        request.headers.update({"Accept": "application/json", "Accept-Encoding": "identity"})
        async with _open_http_client(url) as client, aclosing(await client.send(request, stream=True)) as response:
            body = await _read_body(response, url)
        if request.method == "POST" and not response.is_redirect and response.status_code not in (200, 201):
            raise _create_status_error(response.status_code, body, url)
        if answer_model is not None and not response.is_redirect:
            body = _check_credentials_and_drop_invalid_fields(answer_model, body, url)
        checked = httpx2.Response(response.status_code, content=b"" if response.is_redirect else body, request=request)
        checked.next_request = response.next_request
        return checked

    async def request_challenge(self) -> httpx2.Response | None:
        """Request the server without a token and return its sign-in challenge, or None.

        Raises `AuthorizationUnavailableError`.
        """
        headers = {**self._server.headers, "accept": "application/json, text/event-stream"}
        async with _open_http_client(format_url_without_secrets(self._url)) as client:
            is_post = self._server.transport != "sse"
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"} if is_post else None
            request = httpx2.Request("POST" if is_post else "GET", self._url, headers=headers, json=ping)
            response = await send_following_redirects(partial(client.send, stream=True), request)
            await response.aclose()
        return response if response.status_code in (401, 403) else None

    async def check_url(self, url: httpx2.URL | str) -> None:
        """Raise `AuthorizationRefusedError` for a URL that this server may not direct requests to."""
        try:
            target = httpx2.URL(url)
        except (httpx2.InvalidURL, ValueError, TypeError):
            raise AuthorizationRefusedError(f"{self._server.name!r} gave an invalid URL") from None
        if (problem := await self._find_url_problem(target)) is not None:
            raise AuthorizationRefusedError(
                f"{self._server.name!r} gave {format_url_without_secrets(target)}, {problem}"
            )

    async def _find_url_problem(self, url: httpx2.URL) -> str | None:
        if len(str(url)) > _MAX_URL_CHARACTERS:
            return "which is too long"
        if url.scheme not in ("http", "https") or not url.host or url.userinfo or (url.port or 443) >= 1 << 16:
            return "which is not an https URL with a host"
        if url.host == self._url.host:
            return "which does not use TLS" if (url.scheme, self._url.scheme) == ("http", "https") else None
        server_reach, reach = await _resolve_reach(self._url), await _resolve_reach(url)
        if url.scheme == "http" and (server_reach, reach) != (_LOOPBACK, _LOOPBACK):
            return "which does not use TLS"
        return "an address of a private network" if reach < server_reach else None

    def is_configured_issuer(self, issuer: str) -> bool:
        """Return whether ``auth.issuer`` is this authorization server."""
        return self._settings.issuer is not None and self._settings.issuer.rstrip("/") == issuer.rstrip("/")

    def _check_recipient_of_client(self, request: httpx2.Request, issuer: str, *, is_registration: bool) -> None:
        if is_registration:
            message = "names another authorization server than auth.issuer, which must not get clientId"
            raise AuthorizationRefusedError(f"{self._server.name!r} {message}")
        if (
            self._settings.client_secret is not None
            and request.url.host != self._url.host
            and not self.is_configured_issuer(issuer)
        ):
            raise AuthorizationRefusedError(
                f"{self._server.name!r} wants clientSecret sent to {format_url_without_secrets(request.url)}. "
                f"If that is right, write the authorization server's issuer as auth.issuer of this server"
            )


@asynccontextmanager
async def _open_http_client(url: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """Open a client for one request to ``url``. Raises `AuthorizationUnavailableError` if that fails."""
    try:
        async with (
            asyncio.timeout(REQUEST_TIMEOUT_SECONDS),
            httpx2.AsyncClient(verify=get_tls_context(), follow_redirects=False, timeout=None) as client,
        ):
            yield client
    except TimeoutError:
        raise AuthorizationUnavailableError(f"{url} did not answer within {REQUEST_TIMEOUT_SECONDS:.0f} s") from None
    except RefusedRedirectError as error:
        raise AuthorizationUnavailableError(f"{url} cannot be requested: {error}") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
        raise AuthorizationUnavailableError(f"{url} cannot be reached ({type(error).__name__})") from None


_UNROUTABLE, _LOOPBACK, _PRIVATE, _PUBLIC = -1, 0, 1, 2


async def _resolve_reach(url: httpx2.URL) -> int:
    """Return from where the host is reachable; its most private address counts."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
            addresses = await resolve_host(url.host.strip("[]"), url.port or 443)
    except (OSError, UnicodeError):
        return _PUBLIC  # a proxy may resolve it; otherwise the request fails
    return min((_classify_address(address) for address in addresses), default=_PUBLIC)


def _classify_address(address: str) -> int:
    if is_public_address(address):
        return _PUBLIC
    parsed = ipaddress.ip_address(address.partition("%")[0])
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    if parsed.is_loopback:
        return _LOOPBACK
    # Link-local addresses hold the metadata services of clouds.
    return _PRIVATE if parsed.is_private and not (parsed.is_link_local or parsed.is_unspecified) else _UNROUTABLE


def _get_answer_model(request: httpx2.Request) -> type[OAuthToken | OAuthClientInformationFull] | None:
    """Return what the answer contains: tokens, a registered client, or None for no credentials."""
    if request.method != "POST":
        return None
    if request.headers["content-type"] == "application/json":
        return OAuthClientInformationFull
    return OAuthToken if b"grant_type=" in request.content else None


async def _read_body(response: httpx2.Response, url: str) -> bytes:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise AuthorizationUnavailableError(f"{url} compressed its answer, which the request forbids")
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > _MAX_RESPONSE_BYTES:
            raise AuthorizationUnavailableError(f"{url} answered with more than {_MAX_RESPONSE_BYTES >> 10} KiB")
    return bytes(body)


def _create_status_error(status: int, body: bytes, url: str) -> SignInError:
    fields = dict[Any, Any]()
    with suppress(ValueError):
        fields.update(mapping_or_empty(decode_json(body.decode("utf-8", errors="replace"))))
    texts = [fields.get("error"), fields.get("error_description")]
    details = ", ".join(text for text in texts if isinstance(text, str) and _ERROR_TEXT.fullmatch(text))
    is_temporary = status >= 500 or status in (408, 429)
    error_type = AuthorizationUnavailableError if is_temporary else AuthorizationRefusedError
    return error_type(f"{url} answered {status}{details and f': {details}'}")


def _check_credentials_and_drop_invalid_fields(
    model: type[OAuthToken | OAuthClientInformationFull], body: bytes, url: str
) -> bytes:
    """Return the answer without invalid optional fields, such as ``expires_in`` "soon".

    Raises `AuthorizationUnavailableError` for an answer without usable tokens or client. The SDK's own error would
    quote them.
    """
    fields = dict[str, Any]()
    with suppress(ValueError):
        fields.update(mapping_or_empty(decode_json(body.decode("utf-8", errors="replace"))))
    try:
        model.model_validate(fields)
    except ValidationError as error:
        for problem in error.errors():
            if problem["loc"] and problem["loc"][0] != "token_type":  # a token of another type is of no use
                fields.pop(str(problem["loc"][0]), None)
    try:
        answer = model.model_validate(fields)
    except ValidationError as error:
        unusable = ", ".join(str(problem["loc"][0]) for problem in error.errors() if problem["loc"])
        raise AuthorizationUnavailableError(f"{url} did not answer with usable credentials: {unusable}") from None
    for name in _CREDENTIALS:
        if (text := getattr(answer, name, None)) is not None and not is_token(text):
            raise AuthorizationUnavailableError(f"{url} gave no usable {name}: it has invalid characters")
    return json.dumps(fields).encode()


# The SDK's provider would serialize the requests of a server and send its own requests. Here it runs only when tokens
# are missing, and `AuthorizationClient` checks and sends each of its requests.

OnAuthorizationUrl = Callable[[str], Awaitable[None]]
WaitForRedirect = Callable[[], Awaitable[AuthorizationCodeResult]]

_UNUSED_REDIRECT_URI = "http://127.0.0.1/callback"
# Drop the provider's log of a failed sign-in: the same error is raised.
_SUPPRESSED_LOG_PREFIXES = ("OAuth flow error", "Token refresh failed", "Invalid refresh response")
logging.getLogger("mcp.client.auth.oauth2").addFilter(
    lambda entry: not str(entry.msg).startswith(_SUPPRESSED_LOG_PREFIXES)
)


class OAuthExchange:
    """One sign-in or renewal of a principal at a server. ``record`` is the stored record, if any.

    For the SDK it is the token storage, which writes nothing, because another object holds the lock.
    """

    def __init__(
        self, server: ServerConfig, settings: AuthSettings, principal: str, record: TokenRecord | None
    ) -> None:
        self._server = server
        self._settings = settings
        self._record = record or TokenRecord(server=server.name, principal=principal, saved_at=time.time())
        self._redirect_uri = _UNUSED_REDIRECT_URI
        self._client = AuthorizationClient(server, settings)

    async def refresh(self) -> TokenRecord:
        """Exchange the refresh token and return the record with the new tokens.

        Raises `AuthorizationRefusedError` for a rejected refresh token, `AuthorizationUnavailableError` for a temporary
        failure.
        """
        provider = self._create_provider(None, None)
        provider.context.token_expiry_time = 1.0
        await self._run_provider(provider, None)
        return self._to_record(provider.context)

    async def authorize(
        self,
        challenge: httpx2.Response | None,
        redirect_uri: str = _UNUSED_REDIRECT_URI,
        on_authorization_url: OnAuthorizationUrl | None = None,
        wait_for_redirect: WaitForRedirect | None = None,
    ) -> TokenRecord:
        """Sign in and return the record.

        ``challenge`` is the server's sign-in challenge; without one it is requested. ``on_authorization_url`` receives
        the checked URL for the browser; ``wait_for_redirect`` waits for the redirect to ``redirect_uri``.
        """

        async def check_and_report_url(url: str) -> None:
            issuer = _get_issuer(provider.context)
            if self._settings.issuer is not None and not self._client.is_configured_issuer(issuer):
                raise AuthorizationRefusedError(
                    f"{self._server.name!r} names the authorization server {issuer}, not that of auth.issuer"
                )
            await self._client.check_url(url)
            try:
                require_safe_page_host(url)
            except PageURLError as error:
                message = f"the page on which {self._server.name!r} asks to sign in {error}"
                raise AuthorizationRefusedError(message) from None
            if on_authorization_url is not None:
                await on_authorization_url(url)

        # Some servers name the authorization server only when they refuse a request.
        challenge = challenge or await self._client.request_challenge()
        self._redirect_uri = redirect_uri
        provider = self._create_provider(check_and_report_url, wait_for_redirect)
        await self._run_provider(provider, self._add_configured_scopes(challenge))
        return self._to_record(provider.context)

    async def revoke(self) -> None:
        """Revoke the tokens if the authorization server supports it. Raises `SignInError`."""
        metadata, context = self._record.metadata, self._create_provider(None, None).context
        if metadata is None or metadata.revocation_endpoint is None:
            return
        context.client_info = await self.get_client_info()
        client_id = {} if context.client_info is None else {"client_id": context.client_info.client_id}
        for token_type in ("refresh_token", "access_token"):
            token = getattr(self._record, token_type)
            if token is not None:
                form = {"token": token, "token_type_hint": token_type, **client_id}
                data, headers = context.prepare_token_auth(form, {})
                request = httpx2.Request("POST", str(metadata.revocation_endpoint), data=data, headers=headers)
                await self._client.send(request, str(metadata.issuer))

    def _create_provider(
        self, on_authorization_url: OnAuthorizationUrl | None, wait_for_redirect: WaitForRedirect | None
    ) -> OAuthClientProvider:
        settings, url = self._settings, self._server.url or ""
        if settings.flow == "client_credentials":
            from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

            client_id, client_secret = settings.client_id or "", settings.client_secret or ""
            with warnings.catch_warnings():
                # Without an issuer, `AuthorizationClient` sends the secret only to the server's own host.
                warnings.simplefilter("ignore")
                provider: OAuthClientProvider = ClientCredentialsOAuthProvider(
                    url, self, client_id, client_secret, scope=settings.scopes, issuer=settings.issuer
                )
        else:
            metadata = OAuthClientMetadata(
                redirect_uris=[AnyUrl(self._redirect_uri)], client_name=settings.client_name, scope=settings.scopes
            )
            provider = OAuthClientProvider(
                url, metadata, self, on_authorization_url, wait_for_redirect, settings.client_metadata_url
            )
        provider.context.oauth_metadata = self._record.metadata
        provider.context.protected_resource_metadata = self._record.resource
        return provider

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens."""
        record = self._record
        if record.access_token is None and record.refresh_token is None:
            return None
        return OAuthToken(
            access_token=record.access_token or "", refresh_token=record.refresh_token, scope=record.scope
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the configured client, or the registered one if it can be used with the redirect URL."""
        settings, registered = self._settings, self._record.client
        if settings.client_id is not None:
            return OAuthClientInformationFull(
                client_id=settings.client_id,
                client_secret=settings.client_secret,
                redirect_uris=[AnyUrl(self._redirect_uri)],
                token_endpoint_auth_method="none" if settings.client_secret is None else "client_secret_basic",
                issuer=settings.issuer,
            )
        if registered is None or 0 < (registered.client_secret_expires_at or 0) < time.time():
            return None
        is_usable = self._redirect_uri in (_UNUSED_REDIRECT_URI, *map(str, registered.redirect_uris or []))
        return registered if is_usable else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store nothing."""

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store nothing."""

    async def _run_provider(self, provider: OAuthClientProvider, challenge: httpx2.Response | None) -> None:
        """Answer the provider's requests until it repeats the server's own request."""
        request = httpx2.Request("POST", self._server.url or "")
        flow, context = provider.async_auth_flow(request), provider.context
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    response = await self._client.send(outgoing, _get_issuer(context))
                    _set_supported_auth_method(context, response)
                elif challenge is not None:
                    response, challenge = challenge, None
                else:
                    return
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except OAuthFlowError as error:
            raise AuthorizationRefusedError(
                f"signing in to {self._server.name!r} failed: {clip_to_visible_line(str(error), 300)}"
            ) from None
        except (ValueError, TypeError, ArithmeticError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            message = f"signing in to {self._server.name!r} failed: its authorization server's answers are invalid"
            raise AuthorizationUnavailableError(f"{message} ({type(error).__name__})") from None
        finally:
            await flow.aclose()

    def _add_configured_scopes(self, response: httpx2.Response | None) -> httpx2.Response:
        """Return the challenge with the configured scopes; of a field that occurs twice, the SDK reads the first."""
        challenge = "" if response is None else response.headers.get("www-authenticate", "")
        if self._settings.scopes is not None:
            challenge = f'Bearer scope="{self._settings.scopes}", {challenge}'
        status = 401 if response is None else response.status_code
        return create_challenge(status, challenge)

    def _to_record(self, context: OAuthContext) -> TokenRecord:
        tokens, now = context.current_tokens, time.time()
        if tokens is None:
            raise AuthorizationRefusedError(f"{self._server.name!r} gave no tokens")
        return self._record.model_copy(
            update={
                "saved_at": now,
                "access_token": tokens.access_token,
                "refresh_token": tokens.refresh_token,
                "scope": tokens.scope,
                "expires_at": compute_expiry(now, tokens.expires_in),
                "client": None if self._settings.client_id else context.client_info,
                "metadata": context.oauth_metadata,
                "resource": context.protected_resource_metadata,
            }
        )


def create_challenge(status: int, www_authenticate: str) -> httpx2.Response:
    """Return the part of a server's answer that asks for a sign-in."""
    return httpx2.Response(status, headers={b"www-authenticate": www_authenticate.encode()})


def _get_issuer(context: OAuthContext) -> str:
    return "" if context.oauth_metadata is None else str(context.oauth_metadata.issuer)


def _set_supported_auth_method(context: OAuthContext, response: httpx2.Response) -> None:
    """Choose the client authentication method that the answered metadata support."""
    client = context.client_info
    if client is None or client.client_secret is None or response.request.method != "GET":
        return
    with suppress(ValueError):
        methods = OAuthMetadata.model_validate_json(response.content).token_endpoint_auth_methods_supported or []
        if "client_secret_basic" not in methods and "client_secret_post" in methods:
            client.token_endpoint_auth_method = "client_secret_post"  # noqa: S105
