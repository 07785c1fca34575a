"""Check Host, Origin and the bearer token of each request."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
from codemode_console.web import host_of, origin_of, read_address
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, TokenVerifier, principal_components
from starlette.datastructures import Headers
from starlette.types import Scope

from codemode.data.json_values import decode_json
from codemode.data.narrowing import is_array, is_mapping, is_object
from codemode.host.threads import off_loop

from ..outgoing_http import tls_context
from .http_limits import Place, Refused
from .http_settings import VERIFIED, HttpSettings, Introspection, Jwt, TokenCheck, is_loopback, token_digest
from .principals import LOCAL, PLACE_KEY

# Whatever fails lets nobody in: a token is taken that the one issuer has made, for this gateway, for whoever holds it.

PEER_KEY = "codemode.peer"
"""Where the other end of the connection is, of a request that came through a proxy: ``(host, port)``."""
_log = logging.getLogger("codemode.mcp")
_REQUEST_SECONDS = 5.0
_MOST_BYTES = 1 << 19
_MOST_AT_ONCE = 16
_MAX_WAITING = 512
_KEPT_SECONDS = 30.0
_MOST_KEPT = 1000
_KEYS_SECONDS = 600.0
_KEYS_SECONDS_AT_MOST = 3600.0
_LEAST_LOOK_SECONDS = 30.0
_MOST_KEYS = 100
_MOST_TRIED = 5
_LEAST_RSA_BITS = 2048
_LEEWAY_SECONDS = 30
_KINDS = ("jwt", "at+jwt", "application/at+jwt")
_FAMILIES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


class Verifier(Protocol):
    """The SDK's ``TokenVerifier``."""

    async def verify_token(self, token: str) -> AccessToken | None: ...


class UnverifiableError(Exception):
    """Nobody can say at present whose a token is. The message holds nothing of it."""


def verifier_of(check: TokenCheck | None) -> Verifier | None:
    """Return what ``codemode.auth`` says that tokens are verified by; None where it says nothing of it."""
    if check is None:
        return None
    return Introspected(check, check.how) if isinstance(check.how, Introspection) else Signed(check, check.how)


class Introspected:
    """Asks the authorization server about each token; the answer holds for half a minute, or while the token does."""

    def __init__(self, check: TokenCheck, how: Introspection) -> None:
        self._check, self._how = check, how
        self._kept: OrderedDict[str, tuple[float, AccessToken]] = OrderedDict()
        self._asking: dict[str, _Asked] = {}
        self._at_once = asyncio.Semaphore(_MOST_AT_ONCE)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whose token this is, None for nobody's. Raises `UnverifiableError`."""
        digest = token_digest(token)
        until, access = self._kept.get(digest, (0.0, None))
        if until > time.monotonic():
            return access
        asked = self._asking.get(digest)
        if asked is None:
            if len(self._asking) >= _MAX_WAITING:
                raise UnverifiableError(f"{_MAX_WAITING} tokens wait for the authorization server's answer already")
            task = asyncio.get_running_loop().create_task(self._asked(token, digest))
            asked = self._asking[digest] = _Asked(task)
            task.add_done_callback(lambda done: self._answered(digest, done))
        asked.callers += 1
        try:
            return await asyncio.shield(asked.task)
        finally:
            asked.callers -= 1
            if not asked.callers and not asked.task.done():  # all who wanted to know have hung up
                del self._asking[digest]
                asked.task.cancel()

    async def _asked(self, token: str, digest: str) -> AccessToken | None:
        how = self._how
        # RFC 6749, 2.3.1: both are encoded as in a form before they are put together.
        credentials = (quote(how.client_id, safe=""), quote(how.client_secret, safe=""))
        async with self._at_once:
            said = await _fetched(
                "POST", how.url, data={"token": token, "token_type_hint": "access_token"}, auth=credentials
            )
        if said.get("active") is not True:
            return None
        kind = said.get("token_type")
        is_bearer = kind is None or (isinstance(kind, str) and kind.lower() in ("bearer", "access_token"))
        # Who has answered is known: servers need not say again which issuer they are.
        access = access_of({"iss": self._check.issuer, **said}, self._check) if is_bearer else None
        if access is not None:
            left = _KEPT_SECONDS if access.expires_at is None else access.expires_at - time.time()
            self._kept[digest] = (time.monotonic() + min(left, _KEPT_SECONDS), access)
            self._kept.move_to_end(digest)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return access

    def _answered(self, digest: str, task: asyncio.Task[Any]) -> None:
        asked = self._asking.get(digest)
        if asked is not None and asked.task is task:
            del self._asking[digest]
        if not task.cancelled():
            task.exception()  # whoever has asked may have gone


@dataclass
class _Asked:
    """A token that the authorization server is asked about, and how many callers wait for the answer."""

    task: asyncio.Task[AccessToken | None]
    callers: int = 0


class Signed:
    """Checks signatures with the keys that the authorization server publishes."""

    def __init__(self, check: TokenCheck, how: Jwt) -> None:
        self._check, self._how, self._keys = check, how, _Keys(how.jwks_url)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whose token this is, None for nobody's. Raises `UnverifiableError`."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._how.algorithms or not (key_id is None or isinstance(key_id, str)):
            return None
        if str(header.get("typ", "jwt")).lower() not in _KINDS or "crit" in header:
            return None  # signed for another purpose, or with conditions that are not known here
        for key in await self._keys.of(key_id, algorithm):
            try:
                claims = jwt.decode(
                    token,
                    key,
                    algorithms=[algorithm],
                    leeway=_LEEWAY_SECONDS,
                    options={"require": ["exp"], "verify_aud": False, "verify_iss": False},
                )
            except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
                continue
            return access_of(claims, self._check)
        return None


class _Keys:
    """The public keys of an authorization server: looked at every ten minutes, and where a token names another.

    Nobody makes it look more often than every half minute. While it cannot, keys hold for an hour.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._found: list[tuple[str | None, str | None, str, Any]] = []
        self._found_at = self._looked_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    async def of(self, key_id: str | None, algorithm: str) -> list[Any]:
        """Return the keys that a token may be signed with. Raises `UnverifiableError`."""
        fitting = self._fitting(key_id, algorithm)
        if not fitting or time.monotonic() - self._found_at > _KEYS_SECONDS:
            if self._looking is None and time.monotonic() - self._looked_at > _LEAST_LOOK_SECONDS:
                self._looking = asyncio.get_running_loop().create_task(self._look())
                self._looking.add_done_callback(self._looked)
            if self._looking is not None:
                await asyncio.shield(self._looking)  # others wait for it too, and this caller may hang up
            fitting = self._fitting(key_id, algorithm)
        if time.monotonic() - self._found_at > _KEYS_SECONDS_AT_MOST:
            raise UnverifiableError("the keys of the authorization server cannot be had")
        return fitting

    def _fitting(self, key_id: str | None, algorithm: str) -> list[Any]:
        family = _FAMILIES[algorithm[:2]]
        return [
            key
            for name, only, kind, key in self._found
            if (key_id is None or name == key_id) and only in (None, algorithm) and kind == family
        ][:_MOST_TRIED]

    def _looked(self, _task: asyncio.Task[None]) -> None:
        self._looking = None

    async def _look(self) -> None:
        self._looked_at = time.monotonic()
        try:
            said = await _fetched("GET", self._url)
        except UnverifiableError as error:
            _log.error("%s", error)
            return
        listed: Any = said.get("keys")
        self._found = await off_loop(lambda: _public_keys(listed[:_MOST_KEYS] if is_array(listed) else ()))
        self._found_at = time.monotonic()


def _public_keys(listed: Any) -> list[tuple[str | None, str | None, str, Any]]:
    import jwt

    found: list[tuple[str | None, str | None, str, Any]] = []
    for one in listed:
        # A symmetric key, or a private one, has no place here: whoever reads the page could sign with it.
        if not is_object(one) or one.get("kty") not in _FAMILIES.values() or "d" in one:
            continue
        if one.get("use") not in (None, "sig"):
            continue
        try:
            made = jwt.PyJWK(dict(one))
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            continue
        if getattr(made.key, "key_size", _LEAST_RSA_BITS) >= _LEAST_RSA_BITS or one["kty"] != "RSA":
            found.append((one.get("kid"), one.get("alg"), str(one["kty"]), made.key))
    return found


def access_of(claims: Mapping[str, Any], check: TokenCheck) -> AccessToken | None:
    """Return whose token it is that says this; None where it is for others, by others, or of nobody."""
    if str(claims.get("iss", "")).rstrip("/") != check.issuer:
        _log.warning("a token was refused: it is of another issuer than codemode.auth.issuer")
        return None
    audience = claims.get("aud")
    named = {audience} if isinstance(audience, str) else {*filter(_is_text, audience if is_array(audience) else ())}
    if not {one.rstrip("/") for one in named} & {one.rstrip("/") for one in check.audiences}:
        _log.warning("a token was refused: it is for another audience than %s", " or ".join(check.audiences))
        return None
    if "cnf" in claims:
        return None  # bound to a key whose possession nobody has shown
    subject, expires_at = claims.get("sub"), claims.get("exp")
    client = next((one for key in ("client_id", "azp") if _is_text(one := claims.get(key))), subject)
    is_of_somebody = _is_text(client) and (subject is None or _is_text(subject))
    if not is_of_somebody or not (expires_at is None or _is_time(expires_at)):
        return None
    return AccessToken(
        token="",  # nobody behind the door needs it
        client_id=str(client),
        scopes=_scopes(claims),
        expires_at=None if expires_at is None else int(expires_at),
        subject=subject,
        claims={"iss": check.issuer},
    )


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    said = claims.get("scope", claims.get("scp"))
    if isinstance(said, str):
        return said.split()
    return [one for one in said if isinstance(one, str)] if is_array(said) else []


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= 1000


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 53


async def _fetched(method: str, url: str, **how: Any) -> dict[str, Any]:
    """Return the object at a URL of the operator's. Raises `UnverifiableError`; follows no redirect."""
    place = urlsplit(url)
    where = f"{place.scheme}://{place.netloc.rpartition('@')[2]}{place.path}"
    try:
        async with (
            asyncio.timeout(_REQUEST_SECONDS),
            httpx2.AsyncClient(
                verify=tls_context(), trust_env=not is_loopback(place.hostname or ""), timeout=_REQUEST_SECONDS
            ) as client,
            client.stream(
                method, url, headers={"accept": "application/json", "accept-encoding": "identity"}, **how
            ) as response,
        ):
            body = bytearray()
            async for part in response.aiter_raw():
                body += part
                if len(body) > _MOST_BYTES:
                    raise UnverifiableError(f"{where} has answered with more than {_MOST_BYTES >> 10} KiB")
    except (TimeoutError, OSError, httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        raise UnverifiableError(f"{where} cannot be reached ({type(error).__name__})") from None
    if response.status_code != 200:
        raise UnverifiableError(f"{where} has answered with status {response.status_code}")
    try:
        found = decode_json(body.decode())
    except ValueError:
        found = None
    if not is_mapping(found):
        raise UnverifiableError(f"{where} has answered with something else than a JSON object")
    return dict(found)


T = TypeVar("T")
Gone = Callable[[], Coroutine[Any, Any, object]]
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
        host = _only(scope, "host")
        name = None if host is None else host_of(host)
        if name is None or not self._is_own(name):
            raise Refused(421, "The gateway is not called by this name (Host)")
        origin = _only(scope, "origin")
        if origin is None and not _all(scope, "origin"):
            return
        own = {f"http://{host}", f"https://{host}", *self._settings.origins, origin_of(self._settings.url or "")}
        # Browsers say that much of a form on a page that tells nobody where it is, as the console's are.
        is_own_form = origin == "null" and _only(scope, "sec-fetch-site") == "same-origin"
        if not is_own_form and (origin is None or origin not in own):
            raise Refused(403, "Pages of this origin may not call the gateway (Origin)")

    def _is_own(self, name: str) -> bool:
        if not self.asks:
            return is_loopback(name)
        named = {*self._settings.hosts, urlsplit(self._settings.url or "").hostname} - {None}
        return not self._settings.hosts or name in named or name == "localhost" or read_address(name) is not None

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
        said = _only(scope, "authorization")
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
            base = f"{scope.get('scheme', 'http')}://{_only(scope, 'host') or 'localhost'}"
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


def _all(scope: Scope, name: str) -> list[str]:
    return Headers(scope=scope).getlist(name)


def _only(scope: Scope, name: str) -> str | None:
    """Return a header that comes once; None for none, and for one of which two readers would take different ones."""
    found = _all(scope, name)
    return found[0] if len(found) == 1 else None
