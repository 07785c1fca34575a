"""The door of the gateway: by which name it is called, from which page, and by whom. Knows no protocol."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, TokenVerifier, principal_components
from starlette.types import Scope

from .callers import PLACE_KEY
from .http_answers import Refused
from .http_places import Place
from .http_proxies import PEER_KEY
from .http_settings import VERIFIED, HttpSettings, token_digest
from .http_token_checks import is_loopback
from .http_verifiers import UnverifiableError
from .principals import LOCAL

T = TypeVar("T")
Gone = Callable[[], Coroutine[Any, Any, object]]
_log = logging.getLogger("codemode.mcp")
_MOST_TOKEN_CHARACTERS = 16_384
_VERIFIER_SECONDS = 10.0
_MOST_ID_CHARACTERS = 200
NO_MARK = "-"
METADATA_PATH = "/.well-known/oauth-protected-resource"


class Door:
    """Lets those in who may call. Without tokens and verifier these are this machine's own processes alone.

    ``asks``: it asks for a token all the same, for it has asked before. Nobody has one then.
    """

    def __init__(self, settings: HttpSettings, verifier: TokenVerifier | None = None, *, asks: bool = False) -> None:
        self._settings, self._verifier = settings, verifier
        self.asks = asks or bool(settings.tokens) or verifier is not None

    def require_own_name(self, scope: Scope) -> None:
        """Check Host and Origin, against pages whose name was turned to this address. Raises `Refused`."""
        host = _only(scope, b"host")
        name = None if host is None else _host_name(host)
        if name is None or not self._is_own(name):
            raise Refused(421, "The gateway is not called by this name (Host)")
        origin = _only(scope, b"origin")
        if origin is None and not _all(scope, b"origin"):
            return
        own = {f"http://{host}", f"https://{host}", *self._settings.origins, _origin_of(self._settings.url)}
        # Browsers say that much of a form on a page that tells nobody where it is, as the console's are.
        is_own_form = origin == "null" and _only(scope, b"sec-fetch-site") == "same-origin"
        if not is_own_form and (origin is None or origin not in own):
            raise Refused(403, "Pages of this origin may not call the gateway (Origin)")

    def _is_own(self, name: str) -> bool:
        if not self.asks:
            return is_loopback(name)
        named = {*self._settings.hosts, urlsplit(self._settings.url or "").hostname} - {None}
        return not self._settings.hosts or name in named or _is_address(name) or name == "localhost"

    async def caller(self, scope: Scope, gone: Gone | None = None) -> tuple[str, AuthenticatedUser | None]:
        """Return the id of the principal that calls, and the user as the SDK knows one. Raises `Refused`.

        ``gone`` returns when the caller has hung up: nobody is asked about their token then.
        """
        if not self.asks:
            client = scope.get("client")
            # Who is at the other end has to be of this machine too: a proxy elsewhere may tell what it was told.
            if client is None or not all(is_loopback(one[0]) for one in (client, scope.get(PEER_KEY, client))):
                raise Refused(403, "Without sign-in the gateway answers to its own machine alone")
            return LOCAL.id, None
        token = self._token(scope)
        known = self._known(token)
        if known is not None:
            return known, AuthenticatedUser(AccessToken(token="", client_id=known, scopes=[], subject=known))
        access = await self.verified(token, scope, gone)
        return principal_id(access), AuthenticatedUser(access)

    def _token(self, scope: Scope) -> str:
        said = _only(scope, b"authorization")
        kind, _, token = (said or "").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token or len(token) > _MOST_TOKEN_CHARACTERS:
            raise self._unknown(scope, None)
        return token

    def _known(self, token: str) -> str | None:
        digest, found = token_digest(token), None
        for known, name in self._settings.tokens.items():  # all of them, so that time tells of none
            if hmac.compare_digest(known, digest):
                found = name
        return found

    @property
    def mark(self) -> str:
        """Another text wherever tokens are verified in another way; ``-`` where they are not."""
        settings, verifier = self._settings, type(self._verifier)
        said = f"{verifier.__module__} {verifier.__qualname__} {settings.check} {settings.scopes} {settings.url}"
        return NO_MARK if self._verifier is None else token_digest(said)[:16]

    async def verified(self, token: str, scope: Scope, gone: Gone | None = None) -> AccessToken:
        """Return what the verifier says of a token that lets its holder in. Raises `Refused`; ``gone`` as above."""
        access = None
        if self._verifier is not None and len(token) <= _MOST_TOKEN_CHARACTERS:
            place: Place | None = scope.get(PLACE_KEY)
            with nullcontext() if place is None else place.checking():
                asked = self._asked(self._verifier, token)
                access = await (asked if gone is None else _unless_gone(asked, gone()))
        if access is None or (access.expires_at is not None and access.expires_at <= time.time()):
            raise self._unknown(scope, "invalid_token")
        if access.resource is not None and not self._is_for_us(access.resource, scope):
            _log.warning("a token for %.200r was refused: it is for another server", access.resource)
            raise self._unknown(scope, "invalid_token")
        if missing := set(self._settings.scopes) - set(access.scopes):
            raise self._unknown(scope, "insufficient_scope", sorted(missing))
        return access

    async def _asked(self, verifier: TokenVerifier, token: str) -> AccessToken | None:
        try:
            async with asyncio.timeout(_VERIFIER_SECONDS):
                return await verifier.verify_token(token)
        except Exception as error:  # noqa: BLE001 - whatever fails lets nobody in; its text may hold the token
            why = str(error) if isinstance(error, UnverifiableError) else type(error).__name__
            _log.error("a token could not be verified: %s", why)
            raise Refused(503, "Sign-in cannot be checked at present", {"retry-after": "5"}) from None

    def _is_for_us(self, resource: str, scope: Scope) -> bool:
        own = self.resource(scope)
        return resource.rstrip("/") in (own, own.removesuffix("/mcp"))

    def resource(self, scope: Scope) -> str:
        """Return the URL of the gateway's ``/mcp``, as callers know it."""
        base = self._settings.url
        if base is None:
            base = f"{scope.get('scheme', 'http')}://{_only(scope, b'host') or 'localhost'}"
        return f"{base}/mcp"

    def metadata(self, scope: Scope) -> dict[str, Any] | None:
        """Return what RFC 9728 says about the gateway; None without an issuer, and for another resource."""
        own = urlsplit(self.resource(scope)).path
        asked = str(scope["path"]).partition(METADATA_PATH)[2].rstrip("/")
        if self._settings.issuer is None or asked not in ("", "/mcp", own):
            return None
        said: dict[str, Any] = {
            "resource": self.resource(scope),
            "authorization_servers": [self._settings.issuer],
            "bearer_methods_supported": ["header"],
        }
        return {**said, "scopes_supported": list(self._settings.scopes)} if self._settings.scopes else said

    def _unknown(self, scope: Scope, error: str | None, missing: list[str] | None = None) -> Refused:
        parts: list[str] = [] if error is None else [f'error="{error}"']
        if self._settings.scopes:  # which to ask the authorization server for
            parts.append(f'scope="{" ".join(self._settings.scopes)}"')
        if self._settings.issuer is not None:
            base = urlsplit(self.resource(scope))
            parts.append(f'resource_metadata="{base.scheme}://{base.netloc}{METADATA_PATH}{base.path}"')
        said = f"Bearer {', '.join(parts)}".rstrip()
        words = "A scope is missing" if missing else "Sign in with a bearer token"
        return Refused(403 if missing else 401, words, {"www-authenticate": said})


async def _unless_gone(work: Coroutine[Any, Any, T], gone: Coroutine[Any, Any, object]) -> T:
    """Do some work for as long as its caller is there. Raises `Refused` once they have hung up."""
    task, watcher = asyncio.create_task(work), asyncio.create_task(gone)
    try:
        await asyncio.wait([task, watcher], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Refused(400, "The caller has hung up")
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


def principal_id(access: AccessToken) -> str:
    """Return one text for each user of each issuer: no user can choose a subject that reads as another's."""
    client, issuer, subject = principal_components(access)
    whose = f"client {quote(client, safe='')}" if subject is None else f"user {quote(subject, safe='@')}"
    found = f"{VERIFIED}{quote(issuer or '', safe=':/.')} {whose}"
    return found if len(found) <= _MOST_ID_CHARACTERS else f"{VERIFIED}{token_digest(found)}"


def _all(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _only(scope: Scope, name: bytes) -> str | None:
    """Return a header that comes once; None for none, and for one of which two readers would take different ones."""
    found = _all(scope, name)
    return found[0] if len(found) == 1 else None


def _host_name(host: str) -> str | None:
    """Return the name or address in a ``Host``, in lower case; None for what is neither."""
    if not host.isascii() or not host.isprintable() or set(host) & set(" /?#@\\,;'\""):
        return None
    try:
        parts = urlsplit(f"//{host}")
        port = parts.port
    except ValueError:
        return None
    return None if port == 0 else parts.hostname


def _is_address(name: str) -> bool:
    return ":" in name or name.replace(".", "").isdigit()


def _origin_of(url: str | None) -> str | None:
    parts = urlsplit(url or "")
    return f"{parts.scheme}://{parts.netloc}" if url else None
