"""The requests of a sign-in: where they may go, how long they may take, and what of an answer is believed.

A server names its own authorization server, so each URL is hostile. Tokens and secrets are in these answers: no error
here quotes more of one than the words that OAuth has for it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import httpx2

from codemode.data.json_values import decode_json
from codemode.data.narrowing import is_array, is_object
from codemode.fetch.addresses import is_public, resolve

from ..tls import tls_context
from ..upstreams.redirects import RefusedRedirectError, send_following
from .errors import RefusedError, UnreachableError
from .token_records import is_token

_MOST_BYTES = 1 << 16
_LONGEST_URL = 1 << 13
REQUEST_S = 30.0
_MOST_REQUESTS = 24
_WORDS = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]{1,200}")  # RFC 6749 of error and error_description
_SHOWN_URL = 200
_OK = (200, 201)
_REVOCATION = "revocation"


def _requesting() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(verify=tls_context(), follow_redirects=False)


class Door:
    """Sends the requests of one sign-in to ``name``, the server at ``server_url``.

    They go to hosts that are as public as the server's own, by TLS unless they go to its own host or all is on this
    machine; a client's configured secret goes to ``trusted_issuer`` alone or to the server's own host.
    """

    def __init__(self, name: str, server_url: str, *, has_own_secret: bool, trusted_issuer: str | None) -> None:
        self._name = name
        self._server = httpx2.URL(server_url)
        self._has_own_secret = has_own_secret
        self._trusted = trusted_issuer
        self._sent = 0
        self.issuer: str | None = None
        self.may_register = True

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send one and return what of its answer may be believed. Raises `SignInError`."""
        self._sent += 1
        if self._sent > _MOST_REQUESTS:
            raise UnreachableError(f"signing in to {self._name!r} takes too many requests")
        await self.check_url(request.url)
        await request.aread()
        grant = _grant_of(request)
        self._check_what_is_sent(request, grant)
        request.headers["Accept"] = "application/json"
        request.headers["Accept-Encoding"] = "identity"
        request.extensions["timeout"] = httpx2.Timeout(REQUEST_S).as_dict()
        where = _shown(request.url)
        try:
            async with asyncio.timeout(REQUEST_S), _requesting() as client:
                response = await client.send(request, stream=True)
                body = await self._body(response, where)
        except TimeoutError:
            raise UnreachableError(f"{where} did not answer within {REQUEST_S:.0f} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise UnreachableError(f"{where} cannot be reached ({type(error).__name__})") from None
        return self._believed(request, response, body, grant)

    async def challenge(self, headers: Mapping[str, str], *, reads_only: bool) -> httpx2.Response | None:
        """Ask the server without a token, and return how it asks for a sign-in; None where it does not.

        ``reads_only``: nothing is posted at its URL. Raises `UnreachableError`.
        """
        said = {**headers, "accept": "application/json, text/event-stream", "accept-encoding": "identity"}
        ping = None if reads_only else {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        try:
            request = httpx2.Request("GET" if reads_only else "POST", self._server, headers=said, json=ping)
            async with asyncio.timeout(REQUEST_S), _requesting() as client:
                response = await send_following(partial(client.send, stream=True), request)
                await response.aclose()
        except RefusedRedirectError as error:
            raise UnreachableError(f"{_shown(self._server)} cannot be asked: {error}") from None
        except (TimeoutError, httpx2.HTTPError, httpx2.StreamError, OSError, ValueError) as error:
            raise UnreachableError(f"{_shown(self._server)} cannot be reached ({type(error).__name__})") from None
        return response if response.status_code in (401, 403) else None

    async def check_url(self, url: httpx2.URL | str) -> None:
        """Raise `RefusedError` for a URL that this server may not send the gateway, or a browser, to."""
        if len(str(url)) > _LONGEST_URL:
            raise RefusedError(f"{self._name!r} names a URL that is too long")
        try:
            target = httpx2.URL(url)
        except (httpx2.InvalidURL, ValueError, TypeError):
            raise RefusedError(f"{self._name!r} names something as a URL that is none") from None
        is_port = target.port is None or 0 < target.port < 1 << 16
        if target.scheme not in ("http", "https") or not target.host or target.userinfo or not is_port:
            raise RefusedError(f"{self._name!r} names {_shown(target)}, which is no https URL of a host")
        if target.host == self._server.host:
            if target.scheme == "http" and self._server.scheme == "https":
                raise RefusedError(f"{self._name!r} names {_shown(target)}, which is not secured by TLS")
            return
        own, others = await self._reach(self._server), await self._reach(target)
        if target.scheme == "http" and (own, others) != (_LOOPBACK, _LOOPBACK):
            raise RefusedError(f"{self._name!r} names {_shown(target)}, which is not secured by TLS")
        if others < own:
            raise RefusedError(f"{self._name!r} names {_shown(target)}, an address of a private network")

    async def _reach(self, url: httpx2.URL) -> int:
        """Return how far the host can be reached from: the nearest of its addresses counts."""
        host = url.host.strip("[]")
        try:
            addresses = [str(ipaddress.ip_address(host))]
        except ValueError:
            try:
                async with asyncio.timeout(REQUEST_S):
                    addresses = list(await resolve(host, url.port or 443))
            except (OSError, TimeoutError, UnicodeError):
                return _PUBLIC  # a proxy may know it; else the request fails
        return min((_reach_of(one) for one in addresses), default=_PUBLIC)

    def _check_what_is_sent(self, request: httpx2.Request, grant: str | None) -> None:
        if grant is None and request.method == "POST" and not self.may_register:
            raise RefusedError(
                f"{self._name!r} names another authorization server than auth.issuer; clientId is not for it"
            )
        if grant is None or not self._has_own_secret or request.url.host == self._server.host:
            return
        if self._trusted is None or self.issuer is None or self._trusted.rstrip("/") != self.issuer.rstrip("/"):
            shown = _shown(request.url)
            raise RefusedError(
                f"{self._name!r} wants clientSecret sent to {shown}. "
                f"If that is right, write the authorization server's issuer as auth.issuer of this server"
            )

    async def _body(self, response: httpx2.Response, where: str) -> bytes:
        try:
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise UnreachableError(f"{where} compressed its answer, which nobody asked it to")
            found = bytearray()
            async for chunk in response.aiter_raw():
                found += chunk
                if len(found) > _MOST_BYTES:
                    raise UnreachableError(f"{where} answered with more than {_MOST_BYTES >> 10} KiB")
            return bytes(found)
        finally:
            await response.aclose()

    def _believed(
        self, request: httpx2.Request, response: httpx2.Response, body: bytes, grant: str | None
    ) -> httpx2.Response:
        is_ok, where = response.status_code in _OK, _shown(request.url)
        if request.method != "POST":
            body = body if is_ok else b"{}"
        elif not is_ok:
            said = _oauth_error(body)
            self._raise_for(response.status_code, said, where)
            body = json.dumps(said).encode()
        elif grant != _REVOCATION:
            body = json.dumps((_client if grant is None else _tokens)(_object(body, where), where)).encode()
        headers = {"content-type": "application/json"}
        if response.is_redirect and len(location := response.headers.get("location", "")) <= _LONGEST_URL:
            headers["location"] = location
        believed = httpx2.Response(response.status_code, headers=headers, content=body, request=request)
        believed.next_request = response.next_request
        return believed

    def _raise_for(self, status: int, said: Mapping[str, Any], where: str) -> None:
        if 300 <= status < 400:
            return
        words = f": {', '.join(said.values())}" if said else ""
        kind = UnreachableError if status >= 500 or status in (408, 429) else RefusedError
        raise kind(f"{where} answered {status}{words}")


_NEVER, _LOOPBACK, _PRIVATE, _PUBLIC = -1, 0, 1, 2


def _reach_of(address: str) -> int:
    if is_public(address):
        return _PUBLIC
    parsed = ipaddress.ip_address(address.partition("%")[0])
    inside = getattr(parsed, "ipv4_mapped", None) or parsed
    if inside.is_loopback:
        return _LOOPBACK
    # Link-local addresses hold the metadata services of clouds.
    return _PRIVATE if inside.is_private and not (inside.is_link_local or inside.is_unspecified) else _NEVER


def _grant_of(request: httpx2.Request) -> str | None:
    """Return the grant of a request for tokens; None for any other."""
    if request.method != "POST" or "form" not in request.headers.get("content-type", ""):
        return None
    said = dict(parse_qsl(request.content.decode("utf-8", errors="replace")))
    return said.get("grant_type", _REVOCATION if "token" in said else None)


def _object(body: bytes, where: str) -> dict[str, Any]:
    value = _decoded(body)
    if not is_object(value):
        raise UnreachableError(f"{where} did not answer with a JSON object")
    return value


def _decoded(body: bytes) -> Any:
    try:
        return decode_json(body.decode("utf-8", errors="replace"))
    except ValueError:
        return None


def _tokens(value: Mapping[str, Any], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {"token_type": "Bearer"}
    if str(value.get("token_type", "Bearer")).lower() != "bearer":
        raise UnreachableError(f"{where} gave a token that is no bearer token")
    for key in ("access_token", "refresh_token"):
        if value.get(key) is not None:
            if not is_token(value[key]):
                raise UnreachableError(f"{where} gave a token with characters that no token may have")
            found[key] = value[key]
    if "access_token" not in found:
        raise UnreachableError(f"{where} did not answer with tokens")
    expires = value.get("expires_in")
    seconds = int(expires) if isinstance(expires, str) and expires.isascii() and expires.isdigit() else expires
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < 1 << 40:
        found["expires_in"] = int(seconds)
    scope = value.get("scope")
    if isinstance(scope, str) and len(scope) < 1 << 13 and scope.isprintable():
        found["scope"] = scope
    return found


def _client(value: Mapping[str, Any], where: str) -> dict[str, Any]:
    for key in ("client_id", "client_secret"):
        said = value.get(key)
        if (said is not None or key == "client_id") and not is_token(said):
            raise UnreachableError(f"{where} gave no {key} that can be used")
    return {key: one for key, one in value.items() if key in _OF_A_CLIENT and _OF_A_CLIENT[key](one)}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return is_array(value) and all(isinstance(one, str) for one in value)


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 40


_OF_A_CLIENT: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("client_id", "client_secret", "token_endpoint_auth_method", "scope"), _is_text),
    **dict.fromkeys(("redirect_uris", "grant_types", "response_types"), _are_texts),
    **dict.fromkeys(("client_id_issued_at", "client_secret_expires_at"), _is_time),
}


def _oauth_error(body: bytes) -> dict[str, str]:
    value = _decoded(body)
    said = value if is_object(value) else {}
    return {
        key: said[key]
        for key in ("error", "error_description")
        if isinstance(said.get(key), str) and _WORDS.fullmatch(said[key])
    }


def _shown(url: httpx2.URL) -> str:
    """Return the URL without what may be a credential in it."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))[:_SHOWN_URL]
