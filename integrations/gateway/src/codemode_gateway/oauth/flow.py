"""Run the SDK's OAuth provider: discovery, registration, token exchange and renewal."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

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

from codemode.data.json_values import decode_json
from codemode.data.narrowing import is_array, is_object
from codemode.fetch.client import is_public_address, resolve_host
from codemode.trace.visible_text import clip_to_visible_line

from ..config.model import ServerConfig
from ..outgoing_http import RefusedRedirectError, get_tls_context, send_following_redirects
from ..page_urls import PageURLError, require_safe_page_host
from .settings import (
    AuthorizationRefusedError,
    AuthorizationUnavailableError,
    AuthSettings,
    SignInError,
    TokenRecord,
    compute_expiry,
    is_token,
)

# A server names its own authorization server, so each URL is hostile. The answers contain tokens and secrets, so errors
# quote only OAuth's error fields.

_MAX_RESPONSE_BYTES = 1 << 16
_MAX_URL_CHARACTERS = 1 << 13
REQUEST_TIMEOUT_SECONDS = 30.0
_MAX_REQUESTS = 24
_ERROR_TEXT = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]{1,200}")  # RFC 6749 of error and error_description
_MAX_SHOWN_URL_CHARACTERS = 200
_SUCCESS_STATUSES = (200, 201)
_REVOCATION = "revocation"


def _create_http_client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(verify=get_tls_context(), follow_redirects=False)


class AuthorizationClient:
    """Sends the requests of one sign-in to ``name``, the server at ``server_url``.

    Requests go only to hosts as public as the server's, with TLS except on its own host or loopback. A configured
    secret goes only to ``trusted_issuer`` or the server's own host.
    """

    def __init__(self, name: str, server_url: str, *, has_client_secret: bool, trusted_issuer: str | None) -> None:
        self._name = name
        self._server = httpx2.URL(server_url)
        self._has_client_secret = has_client_secret
        self._trusted_issuer = trusted_issuer
        self._sent_count = 0
        self.issuer: str | None = None
        self.may_register = True

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return its sanitized answer. Raises `SignInError`."""
        self._sent_count += 1
        if self._sent_count > _MAX_REQUESTS:
            raise AuthorizationUnavailableError(f"the sign-in to {self._name!r} needs too many requests")
        await self.check_url(request.url)
        await request.aread()
        grant = _read_grant_type(request)
        self._check_secret_and_client_id_recipient(request, grant)
        request.headers["Accept"] = "application/json"
        request.headers["Accept-Encoding"] = "identity"
        request.extensions["timeout"] = httpx2.Timeout(REQUEST_TIMEOUT_SECONDS).as_dict()
        url = _format_url_without_secrets(request.url)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS), _create_http_client() as client:
                response = await client.send(request, stream=True)
                body = await self._read_body(response, url)
        except TimeoutError:
            raise AuthorizationUnavailableError(
                f"{url} did not answer within {REQUEST_TIMEOUT_SECONDS:.0f} s"
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise AuthorizationUnavailableError(f"{url} cannot be reached ({type(error).__name__})") from None
        return self._sanitize_response(request, response, body, grant)

    async def request_challenge(self, headers: Mapping[str, str], *, reads_only: bool) -> httpx2.Response | None:
        """Request the server without a token and return its sign-in challenge, or None.

        ``reads_only``: send GET instead of POST. Raises `AuthorizationUnavailableError`.
        """
        headers_to_send = {**headers, "accept": "application/json, text/event-stream", "accept-encoding": "identity"}
        ping = None if reads_only else {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        try:
            request = httpx2.Request("GET" if reads_only else "POST", self._server, headers=headers_to_send, json=ping)
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS), _create_http_client() as client:
                response = await send_following_redirects(partial(client.send, stream=True), request)
                await response.aclose()
        except RefusedRedirectError as error:
            raise AuthorizationUnavailableError(
                f"{_format_url_without_secrets(self._server)} cannot be requested: {error}"
            ) from None
        except (TimeoutError, httpx2.HTTPError, httpx2.StreamError, OSError, ValueError) as error:
            raise AuthorizationUnavailableError(
                f"{_format_url_without_secrets(self._server)} cannot be reached ({type(error).__name__})"
            ) from None
        return response if response.status_code in (401, 403) else None

    async def check_url(self, url: httpx2.URL | str) -> None:
        """Raise `AuthorizationRefusedError` for a URL that this server may not direct requests to."""
        if len(str(url)) > _MAX_URL_CHARACTERS:
            raise AuthorizationRefusedError(f"{self._name!r} gave a URL that is too long")
        try:
            target = httpx2.URL(url)
        except (httpx2.InvalidURL, ValueError, TypeError):
            raise AuthorizationRefusedError(f"{self._name!r} gave an invalid URL") from None
        has_valid_port = target.port is None or 0 < target.port < 1 << 16
        if target.scheme not in ("http", "https") or not target.host or target.userinfo or not has_valid_port:
            raise AuthorizationRefusedError(
                f"{self._name!r} gave {_format_url_without_secrets(target)}, which is not an https URL with a host"
            )
        if target.host == self._server.host:
            if target.scheme == "http" and self._server.scheme == "https":
                raise AuthorizationRefusedError(
                    f"{self._name!r} gave {_format_url_without_secrets(target)}, which does not use TLS"
                )
            return
        server_reach, target_reach = (
            await self._resolve_reachability(self._server),
            await self._resolve_reachability(target),
        )
        if target.scheme == "http" and (server_reach, target_reach) != (_LOOPBACK, _LOOPBACK):
            raise AuthorizationRefusedError(
                f"{self._name!r} gave {_format_url_without_secrets(target)}, which does not use TLS"
            )
        if target_reach < server_reach:
            raise AuthorizationRefusedError(
                f"{self._name!r} gave {_format_url_without_secrets(target)}, an address of a private network"
            )

    async def _resolve_reachability(self, url: httpx2.URL) -> int:
        """Return from where the host is reachable; its most private address counts."""
        host = url.host.strip("[]")
        try:
            addresses = [str(ipaddress.ip_address(host))]
        except ValueError:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                    addresses = list(await resolve_host(host, url.port or 443))
            except (OSError, TimeoutError, UnicodeError):
                return _PUBLIC  # a proxy may resolve it; otherwise the request fails
        return min((_classify_address_reachability(address) for address in addresses), default=_PUBLIC)

    def _check_secret_and_client_id_recipient(self, request: httpx2.Request, grant: str | None) -> None:
        if grant is None and request.method == "POST" and not self.may_register:
            raise AuthorizationRefusedError(
                f"{self._name!r} names another authorization server than auth.issuer, which must not get clientId"
            )
        if grant is None or not self._has_client_secret or request.url.host == self._server.host:
            return
        if (
            self._trusted_issuer is None
            or self.issuer is None
            or self._trusted_issuer.rstrip("/") != self.issuer.rstrip("/")
        ):
            shown = _format_url_without_secrets(request.url)
            raise AuthorizationRefusedError(
                f"{self._name!r} wants clientSecret sent to {shown}. "
                f"If that is right, write the authorization server's issuer as auth.issuer of this server"
            )

    async def _read_body(self, response: httpx2.Response, url: str) -> bytes:
        try:
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise AuthorizationUnavailableError(f"{url} compressed its answer, which the request forbids")
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > _MAX_RESPONSE_BYTES:
                    raise AuthorizationUnavailableError(
                        f"{url} answered with more than {_MAX_RESPONSE_BYTES >> 10} KiB"
                    )
            return bytes(body)
        finally:
            await response.aclose()

    def _sanitize_response(
        self, request: httpx2.Request, response: httpx2.Response, body: bytes, grant: str | None
    ) -> httpx2.Response:
        is_ok, url = response.status_code in _SUCCESS_STATUSES, _format_url_without_secrets(request.url)
        if request.method != "POST":
            body = body if is_ok else b"{}"
        elif not is_ok:
            error = _parse_oauth_error(body)
            self._raise_for_status(response.status_code, error, url)
            body = json.dumps(error).encode()
        elif grant != _REVOCATION:
            body = json.dumps(
                (_parse_client_registration if grant is None else _parse_tokens)(_parse_json_object(body, url), url)
            ).encode()
        headers = {"content-type": "application/json"}
        if response.is_redirect and len(location := response.headers.get("location", "")) <= _MAX_URL_CHARACTERS:
            headers["location"] = location
        believed = httpx2.Response(response.status_code, headers=headers, content=body, request=request)
        believed.next_request = response.next_request
        return believed

    def _raise_for_status(self, status: int, error: Mapping[str, Any], url: str) -> None:
        if 300 <= status < 400:
            return
        details = f": {', '.join(error.values())}" if error else ""
        error_type = (
            AuthorizationUnavailableError if status >= 500 or status in (408, 429) else AuthorizationRefusedError
        )
        raise error_type(f"{url} answered {status}{details}")


_UNROUTABLE, _LOOPBACK, _PRIVATE, _PUBLIC = -1, 0, 1, 2


def _classify_address_reachability(address: str) -> int:
    if is_public_address(address):
        return _PUBLIC
    parsed = ipaddress.ip_address(address.partition("%")[0])
    address_in_v4 = getattr(parsed, "ipv4_mapped", None) or parsed
    if address_in_v4.is_loopback:
        return _LOOPBACK
    # Link-local addresses hold the metadata services of clouds.
    return (
        _PRIVATE
        if address_in_v4.is_private and not (address_in_v4.is_link_local or address_in_v4.is_unspecified)
        else _UNROUTABLE
    )


def _read_grant_type(request: httpx2.Request) -> str | None:
    """Return the grant of a request for tokens; None for any other."""
    if request.method != "POST" or "form" not in request.headers.get("content-type", ""):
        return None
    form = dict(parse_qsl(request.content.decode("utf-8", errors="replace")))
    return form.get("grant_type", _REVOCATION if "token" in form else None)


def _parse_json_object(body: bytes, url: str) -> dict[str, Any]:
    value = _decode_json_or_none(body)
    if not is_object(value):
        raise AuthorizationUnavailableError(f"{url} did not answer with a JSON object")
    return value


def _decode_json_or_none(body: bytes) -> Any:
    try:
        return decode_json(body.decode("utf-8", errors="replace"))
    except ValueError:
        return None


def _parse_tokens(value: Mapping[str, Any], url: str) -> dict[str, Any]:
    tokens: dict[str, Any] = {"token_type": "Bearer"}
    if str(value.get("token_type", "Bearer")).lower() != "bearer":
        raise AuthorizationUnavailableError(f"{url} gave a token that is not a bearer token")
    for key in ("access_token", "refresh_token"):
        if value.get(key) is not None:
            if not is_token(value[key]):
                raise AuthorizationUnavailableError(f"{url} gave a token with invalid characters")
            tokens[key] = value[key]
    if "access_token" not in tokens:
        raise AuthorizationUnavailableError(f"{url} did not answer with tokens")
    expires = value.get("expires_in")
    seconds = int(expires) if isinstance(expires, str) and expires.isascii() and expires.isdigit() else expires
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < 1 << 40:
        tokens["expires_in"] = int(seconds)
    scope = value.get("scope")
    if isinstance(scope, str) and len(scope) < 1 << 13 and scope.isprintable():
        tokens["scope"] = scope
    return tokens


def _parse_client_registration(value: Mapping[str, Any], url: str) -> dict[str, Any]:
    for key in ("client_id", "client_secret"):
        value_of_key = value.get(key)
        if (value_of_key is not None or key == "client_id") and not is_token(value_of_key):
            raise AuthorizationUnavailableError(f"{url} gave no usable {key}")
    return {
        key: field_value
        for key, field_value in value.items()
        if key in _CLIENT_FIELD_CHECKS and _CLIENT_FIELD_CHECKS[key](field_value)
    }


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_list(value: Any) -> bool:
    return is_array(value) and all(isinstance(text, str) for text in value)


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 40


_CLIENT_FIELD_CHECKS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("client_id", "client_secret", "token_endpoint_auth_method", "scope"), _is_text),
    **dict.fromkeys(("redirect_uris", "grant_types", "response_types"), _is_text_list),
    **dict.fromkeys(("client_id_issued_at", "client_secret_expires_at"), _is_time),
}


def _parse_oauth_error(body: bytes) -> dict[str, str]:
    value = _decode_json_or_none(body)
    fields = value if is_object(value) else {}
    return {
        key: fields[key]
        for key in ("error", "error_description")
        if isinstance(fields.get(key), str) and _ERROR_TEXT.fullmatch(fields[key])
    }


def _format_url_without_secrets(url: httpx2.URL) -> str:
    """Return the URL without its parts that may contain credentials."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))[:_MAX_SHOWN_URL_CHARACTERS]


# The SDK's provider would serialize the requests of a server and send its own requests. Here it runs only when tokens
# are missing, and `AuthorizationClient` checks and sends each of its requests.

OnAuthorizationUrl = Callable[[str], Awaitable[None]]
WaitForRedirect = Callable[[], Awaitable[AuthorizationCodeResult]]

_MAX_CHALLENGE_CHARACTERS = 1 << 12
# Drop the provider's log of a failed sign-in: the same error is raised.
_SUPPRESSED_LOG_PREFIXES = ("OAuth flow error", "Token refresh failed", "Invalid refresh response")
logging.getLogger("mcp.client.auth.oauth2").addFilter(lambda one: not str(one.msg).startswith(_SUPPRESSED_LOG_PREFIXES))


class OAuthExchange:
    """One sign-in or renewal of a principal at a server. ``record`` is the stored record, if any."""

    def __init__(
        self, server: ServerConfig, settings: AuthSettings, principal: str, record: TokenRecord | None
    ) -> None:
        self._server = server
        self._url = server.url or ""
        self._settings = settings
        self._record = record or TokenRecord(server=server.name, principal=principal, saved_at=time.time())
        self.client = AuthorizationClient(
            server.name, self._url, has_client_secret=settings.client_secret is not None, trusted_issuer=settings.issuer
        )

    async def refresh(self) -> TokenRecord:
        """Exchange the refresh token and return the record with the new tokens.

        Raises `AuthorizationRefusedError` for a rejected refresh token, `AuthorizationUnavailableError` for a temporary
        failure.
        """
        provider = self._create_provider("http://127.0.0.1/callback", None, None)
        provider.context.token_expiry_time = 1.0
        await self._run_provider(provider, None)
        if provider.context.current_tokens is None:
            raise AuthorizationRefusedError(f"{self._server.name!r} does not support renewal")
        return self._to_record(provider.context)

    async def authorize(
        self,
        challenge: httpx2.Response | None,
        redirect_uri: str = "http://127.0.0.1/callback",
        on_authorization_url: OnAuthorizationUrl | None = None,
        wait_for_redirect: WaitForRedirect | None = None,
    ) -> TokenRecord:
        """Sign in and return the record.

        ``challenge`` is the server's sign-in challenge; without one it is requested. ``on_authorization_url`` receives
        the checked URL for the browser; ``wait_for_redirect`` waits for the redirect to ``redirect_uri``.
        """

        async def check_and_report_url(url: str) -> None:
            issuer = self._get_issuer(provider.context)
            if self._settings.issuer is not None and issuer.rstrip("/") != self._settings.issuer.rstrip("/"):
                raise AuthorizationRefusedError(
                    f"{self._server.name!r} names the authorization server {issuer}, not that of auth.issuer"
                )
            await self.client.check_url(url)
            try:
                require_safe_page_host(url)
            except PageURLError as error:
                raise AuthorizationRefusedError(
                    f"the page on which {self._server.name!r} asks to sign in {error}"
                ) from None
            if on_authorization_url is not None:
                await on_authorization_url(url)

        if challenge is None:  # some servers name the authorization server only when they refuse a request
            challenge = await self.client.request_challenge(
                self._server.headers, reads_only=self._server.transport == "sse"
            )
        provider = self._create_provider(redirect_uri, check_and_report_url, wait_for_redirect)
        provider.context.token_expiry_time = None
        await self._run_provider(provider, self._create_challenge(challenge))
        if provider.context.current_tokens is None:
            raise AuthorizationUnavailableError(f"{self._server.name!r} gave no tokens")
        return self._to_record(provider.context)

    async def revoke(self) -> bool:
        """Revoke the tokens; return whether the authorization server supports it."""
        metadata = self._record.metadata or {}
        endpoint, provider = (
            metadata.get("revocation_endpoint"),
            self._create_provider("http://127.0.0.1/callback", None, None),
        )
        if not isinstance(endpoint, str):
            return False
        provider.context.client_info = await provider.context.storage.get_client_info()
        for token_type in ("refresh_token", "access_token"):
            token = getattr(self._record, token_type)
            if token is not None:
                data, headers = provider.context.prepare_token_auth({"token": token, "token_type_hint": token_type}, {})
                if provider.context.client_info is not None:
                    data.setdefault("client_id", provider.context.client_info.client_id)
                self.client.issuer = metadata.get("issuer")
                await self.client.send(httpx2.Request("POST", endpoint, data=data, headers=headers))
        return True

    def _create_provider(
        self,
        redirect_uri: str,
        on_authorization_url: OnAuthorizationUrl | None,
        wait_for_redirect: WaitForRedirect | None,
    ) -> OAuthClientProvider:
        settings, storage = (
            self._settings,
            _ReadOnlyTokenStorage(
                self._record,
                self._create_configured_client_info(redirect_uri),
                None if on_authorization_url is None else redirect_uri,
            ),
        )
        if settings.flow == "client_credentials":
            from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

            with warnings.catch_warnings():
                # Without an issuer, `AuthorizationClient` sends the secret only to the server's own host.
                warnings.simplefilter("ignore")
                provider: OAuthClientProvider = ClientCredentialsOAuthProvider(
                    self._url,
                    storage,
                    settings.client_id or "",
                    settings.client_secret or "",
                    scope=settings.scopes,
                    issuer=settings.issuer,
                )
        else:
            metadata = OAuthClientMetadata(
                redirect_uris=[AnyUrl(redirect_uri)], client_name=settings.client_name, scope=settings.scopes
            )
            provider = OAuthClientProvider(
                self._url,
                metadata,
                storage,
                on_authorization_url,
                wait_for_redirect,
                client_metadata_url=settings.client_metadata_url,
            )
        self.client.may_register = settings.client_id is None
        context, record = provider.context, self._record
        with suppress(ValueError):
            if record.metadata is not None:
                context.oauth_metadata = OAuthMetadata.model_validate(record.metadata)
            if record.resource is not None:
                context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(record.resource)
        return provider

    def _create_configured_client_info(self, redirect_uri: str) -> OAuthClientInformationFull | None:
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

    async def _run_provider(self, provider: OAuthClientProvider, challenge: httpx2.Response | None) -> None:
        """Answer the provider's requests until it repeats the server's own request."""
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
                    self.client.issuer = self._get_issuer(context)
                    response = await self.client.send(outgoing)
                    _set_supported_auth_method(context, response)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except SignInError:
            raise
        except OAuthFlowError as error:
            raise AuthorizationRefusedError(
                f"signing in to {self._server.name!r} failed: {clip_to_visible_line(str(error), 300)}"
            ) from None
        except (ValueError, TypeError, ArithmeticError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            message = f"signing in to {self._server.name!r} failed: its authorization server's answers are invalid"
            raise AuthorizationUnavailableError(f"{message} ({type(error).__name__})") from None
        finally:
            await flow.aclose()

    def _get_issuer(self, context: OAuthContext) -> str:
        return "" if context.oauth_metadata is None else str(context.oauth_metadata.issuer)

    def _create_challenge(self, response: httpx2.Response | None) -> httpx2.Response:
        """Return a sanitized challenge of the server with the configured scopes."""
        status, fields = 401, dict[str, str]()
        if response is not None and len(response.headers.get("www-authenticate", "")) <= _MAX_CHALLENGE_CHARACTERS:
            status = response.status_code if response.status_code == 403 else 401
            for name in ("resource_metadata", "scope", "error"):
                value_text = extract_field_from_www_auth(response, name)
                if value_text and value_text.isascii() and value_text.isprintable() and '"' not in value_text:
                    fields[name] = value_text
        if self._settings.scopes is not None:
            fields["scope"] = self._settings.scopes
        value_text = ", ".join(f'{name}="{value}"' for name, value in fields.items())
        return httpx2.Response(
            status, headers={"www-authenticate": f"Bearer {value_text}"}, request=httpx2.Request("POST", self._url)
        )

    def _to_record(self, context: OAuthContext) -> TokenRecord:
        tokens, now = context.current_tokens, time.time()
        if tokens is None:
            raise AuthorizationUnavailableError(f"{self._server.name!r} gave no tokens")
        return replace(
            self._record,
            saved_at=now,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            scope=tokens.scope,
            expires_at=compute_expiry(now, tokens.expires_in),
            client=None if self._settings.client_id else _to_plain_json(context.client_info),
            metadata=_to_plain_json(context.oauth_metadata),
            resource=_to_plain_json(context.protected_resource_metadata),
        )


class _ReadOnlyTokenStorage:
    """The SDK's token storage: reads a record and writes nothing, because another object holds the lock."""

    def __init__(
        self, record: TokenRecord, configured_client: OAuthClientInformationFull | None, redirect_uri: str | None
    ) -> None:
        self._record = record
        self._configured_client = configured_client
        self._redirect_uri = redirect_uri

    async def get_tokens(self) -> OAuthToken | None:
        record = self._record
        if record.access_token is None and record.refresh_token is None:
            return None
        return OAuthToken(
            access_token=record.access_token or "", refresh_token=record.refresh_token, scope=record.scope
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self._configured_client is not None or self._record.client is None:
            return self._configured_client
        with suppress(ValueError):
            found = OAuthClientInformationFull.model_validate(self._record.client)
            is_known = self._redirect_uri is None or self._redirect_uri in map(str, found.redirect_uris or [])
            if is_known and not 0 < (found.client_secret_expires_at or 0) < time.time():
                return found
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None: ...

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None: ...


def _set_supported_auth_method(context: OAuthContext, response: httpx2.Response) -> None:
    """Choose the client authentication method that the authorization server supports."""
    client = context.client_info
    if client is None or client.client_secret is None or "/.well-known/" not in str(response.request.url):
        return
    try:
        methods: Any = response.json().get("token_endpoint_auth_methods_supported")
    except (ValueError, AttributeError):
        return
    if isinstance(methods, list) and "client_secret_basic" not in methods and "client_secret_post" in methods:
        client.token_endpoint_auth_method = "client_secret_post"  # noqa: S105


def _to_plain_json(value: Any) -> dict[str, Any] | None:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)
