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
from codemode_console.web import extract_origin, parse_address, parse_host
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, TokenVerifier, principal_components
from starlette.datastructures import Headers
from starlette.types import Scope

from codemode.data.json_values import decode_json
from codemode.data.narrowing import is_array, is_mapping, is_object
from codemode.host.threads import run_in_single_use_thread

from ..outgoing_http import get_tls_context
from .http_limits import HttpError, RequestReservation
from .http_settings import (
    VERIFIED_PREFIX,
    HttpSettings,
    IntrospectionSettings,
    JwtSettings,
    TokenVerificationSettings,
    compute_token_digest,
    is_loopback,
)
from .principals import LOCAL, RESERVATION_KEY

# Failures deny access. Only tokens of the configured issuer for this gateway are accepted.

PEER_KEY = "codemode.peer"
"""The scope key of the connection's peer, ``(host, port)``, for a request through a proxy."""
_log = logging.getLogger("codemode.mcp")
_REQUEST_SECONDS = 5.0
_MAX_RESPONSE_BYTES = 1 << 19
_MAX_CONCURRENT_INTROSPECTIONS = 16
_MAX_PENDING_TOKENS = 512
_INTROSPECTION_CACHE_SECONDS = 30.0
_MAX_CACHED_TOKENS = 1000
_KEYS_REFRESH_SECONDS = 600.0
_MAX_KEYS_AGE_SECONDS = 3600.0
_MIN_FETCH_INTERVAL_SECONDS = 30.0
_MAX_KEYS = 100
_MAX_CANDIDATE_KEYS = 5
_MIN_RSA_BITS = 2048
_LEEWAY_SECONDS = 30
_JWT_TYPES = ("jwt", "at+jwt", "application/at+jwt")
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


class AccessTokenVerifier(Protocol):
    """The SDK's ``TokenVerifier``."""

    async def verify_token(self, token: str) -> AccessToken | None: ...


class VerifierUnavailableError(Exception):
    """The token cannot be verified at present. The message contains no part of the token."""


def create_token_verifier(check: TokenVerificationSettings | None) -> AccessTokenVerifier | None:
    """Return the token verifier that ``codemode.auth`` configures, or None."""
    if check is None:
        return None
    return (
        IntrospectionVerifier(check, check.method_settings)
        if isinstance(check.method_settings, IntrospectionSettings)
        else JwtVerifier(check, check.method_settings)
    )


class IntrospectionVerifier:
    """Verifies tokens by RFC 7662 introspection. Results are cached for 30 seconds at most."""

    def __init__(self, check: TokenVerificationSettings, settings: IntrospectionSettings) -> None:
        self._check, self._settings = check, settings
        self._cache: OrderedDict[str, tuple[float, AccessToken]] = OrderedDict()
        self._pending: dict[str, _PendingIntrospection] = {}
        self._semaphore = asyncio.Semaphore(_MAX_CONCURRENT_INTROSPECTIONS)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the access of a token, or None for an invalid one. Raises `VerifierUnavailableError`."""
        digest = compute_token_digest(token)
        until, access = self._cache.get(digest, (0.0, None))
        if until > time.monotonic():
            return access
        pending = self._pending.get(digest)
        if pending is None:
            if len(self._pending) >= _MAX_PENDING_TOKENS:
                raise VerifierUnavailableError(
                    f"{_MAX_PENDING_TOKENS} tokens already wait for the authorization server's answer"
                )
            task = asyncio.get_running_loop().create_task(self._introspect_and_cache_token(token, digest))
            pending = self._pending[digest] = _PendingIntrospection(task)
            task.add_done_callback(lambda done: self._on_introspection_done(digest, done))
        pending.callers += 1
        try:
            return await asyncio.shield(pending.task)
        finally:
            pending.callers -= 1
            if not pending.callers and not pending.task.done():  # all callers have disconnected
                del self._pending[digest]
                pending.task.cancel()

    async def _introspect_and_cache_token(self, token: str, digest: str) -> AccessToken | None:
        settings = self._settings
        # RFC 6749, 2.3.1: form-encode both before joining them.
        credentials = (quote(settings.client_id, safe=""), quote(settings.client_secret, safe=""))
        async with self._semaphore:
            claims = await _fetch_json_object(
                "POST", settings.url, data={"token": token, "token_type_hint": "access_token"}, auth=credentials
            )
        if claims.get("active") is not True:
            return None
        token_type = claims.get("token_type")
        is_bearer = token_type is None or (
            isinstance(token_type, str) and token_type.lower() in ("bearer", "access_token")
        )
        # The issuer is known from the URL, so servers may omit it.
        access = (
            create_access_token_if_claims_valid({"iss": self._check.issuer, **claims}, self._check)
            if is_bearer
            else None
        )
        if access is not None:
            remaining = _INTROSPECTION_CACHE_SECONDS if access.expires_at is None else access.expires_at - time.time()
            self._cache[digest] = (time.monotonic() + min(remaining, _INTROSPECTION_CACHE_SECONDS), access)
            self._cache.move_to_end(digest)
            while len(self._cache) > _MAX_CACHED_TOKENS:
                self._cache.popitem(last=False)
        return access

    def _on_introspection_done(self, digest: str, task: asyncio.Task[Any]) -> None:
        pending = self._pending.get(digest)
        if pending is not None and pending.task is task:
            del self._pending[digest]
        if not task.cancelled():
            task.exception()  # the caller may have disconnected


@dataclass
class _PendingIntrospection:
    """An introspection request and the number of callers that wait for it."""

    task: asyncio.Task[AccessToken | None]
    callers: int = 0


class JwtVerifier:
    """Verifies signatures with the keys that the authorization server publishes."""

    def __init__(self, check: TokenVerificationSettings, settings: JwtSettings) -> None:
        self._check, self._settings, self._keys = check, settings, _PublicKeyCache(settings.jwks_url)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the access of a token, or None for an invalid one. Raises `VerifierUnavailableError`."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.algorithms or not (key_id is None or isinstance(key_id, str)):
            return None
        if str(header.get("typ", "jwt")).lower() not in _JWT_TYPES or "crit" in header:
            return None  # signed for another purpose, or with unknown critical headers
        for key in await self._keys.find_or_fetch_keys(key_id, algorithm):
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
            return create_access_token_if_claims_valid(claims, self._check)
        return None


class _PublicKeyCache:
    """The public keys of an authorization server, refreshed every ten minutes and for unknown key ids.

    It waits at least 30 seconds between fetches. Keys stay valid for an hour while the server is unreachable.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._keys: list[tuple[str | None, str | None, str, Any]] = []
        self._fetched_at = self._attempted_at = float("-inf")
        self._fetch_task: asyncio.Task[None] | None = None

    async def find_or_fetch_keys(self, key_id: str | None, algorithm: str) -> list[Any]:
        """Return candidate keys for a signature. Raises `VerifierUnavailableError`."""
        keys = self._list_matching_keys(key_id, algorithm)
        if not keys or time.monotonic() - self._fetched_at > _KEYS_REFRESH_SECONDS:
            if self._fetch_task is None and time.monotonic() - self._attempted_at > _MIN_FETCH_INTERVAL_SECONDS:
                self._fetch_task = asyncio.get_running_loop().create_task(self._fetch_keys())
                self._fetch_task.add_done_callback(self._on_fetch_done)
            if self._fetch_task is not None:
                await asyncio.shield(self._fetch_task)  # shared with other callers; this one may disconnect
            keys = self._list_matching_keys(key_id, algorithm)
        if time.monotonic() - self._fetched_at > _MAX_KEYS_AGE_SECONDS:
            raise VerifierUnavailableError("the authorization server's keys cannot be fetched")
        return keys

    def _list_matching_keys(self, key_id: str | None, algorithm: str) -> list[Any]:
        key_type = _KEY_TYPES[algorithm[:2]]
        return [
            key
            for published_id, published_algorithm, published_type, key in self._keys
            if (key_id is None or published_id == key_id)
            and published_algorithm in (None, algorithm)
            and published_type == key_type
        ][:_MAX_CANDIDATE_KEYS]

    def _on_fetch_done(self, _task: asyncio.Task[None]) -> None:
        self._fetch_task = None

    async def _fetch_keys(self) -> None:
        self._attempted_at = time.monotonic()
        try:
            document = await _fetch_json_object("GET", self._url)
        except VerifierUnavailableError as error:
            _log.error("%s", error)
            return
        keys: Any = document.get("keys")
        self._keys = await run_in_single_use_thread(
            lambda: _parse_public_keys(keys[:_MAX_KEYS] if is_array(keys) else ())
        )
        self._fetched_at = time.monotonic()


def _parse_public_keys(entries: Any) -> list[tuple[str | None, str | None, str, Any]]:
    import jwt

    keys: list[tuple[str | None, str | None, str, Any]] = []
    for entry in entries:
        # Ignore symmetric and private keys: any reader of the page could sign with them.
        if not is_object(entry) or entry.get("kty") not in _KEY_TYPES.values() or "d" in entry:
            continue
        if entry.get("use") not in (None, "sig"):
            continue
        try:
            key = jwt.PyJWK(dict(entry))
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            continue
        if getattr(key.key, "key_size", _MIN_RSA_BITS) >= _MIN_RSA_BITS or entry["kty"] != "RSA":
            keys.append((entry.get("kid"), entry.get("alg"), str(entry["kty"]), key.key))
    return keys


def create_access_token_if_claims_valid(
    claims: Mapping[str, Any], verification: TokenVerificationSettings
) -> AccessToken | None:
    """Convert token claims; return None for another issuer or audience, or claims without an identity."""
    if str(claims.get("iss", "")).rstrip("/") != verification.issuer:
        _log.warning("a token was refused: its issuer is not codemode.auth.issuer")
        return None
    audience = claims.get("aud")
    audiences = (
        {audience} if isinstance(audience, str) else {*filter(_is_bounded_text, audience if is_array(audience) else ())}
    )
    if not {url.rstrip("/") for url in audiences} & {url.rstrip("/") for url in verification.audiences}:
        _log.warning("a token was refused: its audience is not one of %s", " or ".join(verification.audiences))
        return None
    if "cnf" in claims:
        return None  # bound to a key whose possession was not proven
    subject, expires_at = claims.get("sub"), claims.get("exp")
    client = next((url for key in ("client_id", "azp") if _is_bounded_text(url := claims.get(key))), subject)
    has_identity = _is_bounded_text(client) and (subject is None or _is_bounded_text(subject))
    if not has_identity or not (expires_at is None or _is_valid_timestamp(expires_at)):
        return None
    return AccessToken(
        token="",  # not needed after authentication
        client_id=str(client),
        scopes=_parse_scopes(claims),
        expires_at=None if expires_at is None else int(expires_at),
        subject=subject,
        claims={"iss": verification.issuer},
    )


def _parse_scopes(claims: Mapping[str, Any]) -> list[str]:
    scopes = claims.get("scope", claims.get("scp"))
    if isinstance(scopes, str):
        return scopes.split()
    return [scope for scope in scopes if isinstance(scope, str)] if is_array(scopes) else []


def _is_bounded_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= 1000


def _is_valid_timestamp(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 53


async def _fetch_json_object(method: str, url: str, **options: Any) -> dict[str, Any]:
    """Fetch a JSON object from a configured URL, without redirects. Raises `VerifierUnavailableError`."""
    parts = urlsplit(url)
    location = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    try:
        async with (
            asyncio.timeout(_REQUEST_SECONDS),
            httpx2.AsyncClient(
                verify=get_tls_context(), trust_env=not is_loopback(parts.hostname or ""), timeout=_REQUEST_SECONDS
            ) as client,
            client.stream(
                method, url, headers={"accept": "application/json", "accept-encoding": "identity"}, **options
            ) as response,
        ):
            body = bytearray()
            async for part in response.aiter_raw():
                body += part
                if len(body) > _MAX_RESPONSE_BYTES:
                    raise VerifierUnavailableError(
                        f"{location} answered with more than {_MAX_RESPONSE_BYTES >> 10} KiB"
                    )
    except (TimeoutError, OSError, httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        raise VerifierUnavailableError(f"{location} cannot be reached ({type(error).__name__})") from None
    if response.status_code != 200:
        raise VerifierUnavailableError(f"{location} answered with status {response.status_code}")
    try:
        document = decode_json(body.decode())
    except ValueError:
        document = None
    if not is_mapping(document):
        raise VerifierUnavailableError(f"{location} did not answer with a JSON object")
    return dict(document)


T = TypeVar("T")
WaitForDisconnect = Callable[[], Coroutine[Any, Any, object]]
_MAX_TOKEN_CHARACTERS = 16_384
_VERIFIER_TIMEOUT_SECONDS = 10.0
_MAX_ID_CHARACTERS = 200
NO_VERIFIER = "-"
METADATA_PATH = "/.well-known/oauth-protected-resource"


class RequestAuthenticator:
    """Authenticates requests. Without tokens and verifier, only local callers are accepted.

    ``requires_token``: require a token although none is configured, because the gateway required one before.
    """

    def __init__(
        self, settings: HttpSettings, verifier: TokenVerifier | None = None, *, requires_token: bool = False
    ) -> None:
        self._settings, self._verifier = settings, verifier
        self.requires_token = requires_token or bool(settings.tokens) or verifier is not None

    def check_host_and_origin(self, scope: Scope) -> None:
        """Check Host and Origin against DNS rebinding and cross-site requests. Raises `HttpError`."""
        host = _get_single_header(scope, "host")
        host_name = None if host is None else parse_host(host)
        if host_name is None or not self._is_gateway_host(host_name):
            raise HttpError(421, "The gateway does not accept this Host")
        origin = _get_single_header(scope, "origin")
        if origin is None and not _list_header_values(scope, "origin"):
            return
        gateway_origins = {
            f"http://{host}",
            f"https://{host}",
            *self._settings.origins,
            extract_origin(self._settings.url or ""),
        }
        # Browsers send this for forms on pages without a referrer, such as the console's.
        is_console_form = origin == "null" and _get_single_header(scope, "sec-fetch-site") == "same-origin"
        if not is_console_form and (origin is None or origin not in gateway_origins):
            raise HttpError(403, "The gateway does not accept this Origin")

    def _is_gateway_host(self, name: str) -> bool:
        if not self.requires_token:
            return is_loopback(name)
        configured_names = {*self._settings.hosts, urlsplit(self._settings.url or "").hostname} - {None}
        return (
            not self._settings.hosts
            or name in configured_names
            or name == "localhost"
            or parse_address(name) is not None
        )

    async def authenticate(
        self, scope: Scope, wait_for_disconnect: WaitForDisconnect | None = None
    ) -> tuple[str, AuthenticatedUser | None]:
        """Return the principal id and the SDK's user of a request. Raises `HttpError`.

        ``wait_for_disconnect`` returns when the caller disconnects, which cancels verification.
        """
        if not self.requires_token:
            client = scope.get("client")
            # The peer must be local too: a remote proxy may pass on a forged address.
            if client is None or not all(is_loopback(address[0]) for address in (client, scope.get(PEER_KEY, client))):
                raise HttpError(403, "Without sign-in the gateway accepts only callers on its own machine")
            return LOCAL.id, None
        token = self._read_bearer_token(scope)
        user_name = self._find_configured_user_name(token)
        if user_name is not None:
            return user_name, AuthenticatedUser(
                AccessToken(token="", client_id=user_name, scopes=[], subject=user_name)
            )
        access = await self.verify_token(token, scope, wait_for_disconnect)
        return to_principal_id(access), AuthenticatedUser(access)

    def _read_bearer_token(self, scope: Scope) -> str:
        header = _get_single_header(scope, "authorization")
        scheme, _, token = (header or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN_CHARACTERS:
            raise self._unauthorized_or_forbidden_error(scope, None)
        return token

    def _find_configured_user_name(self, token: str) -> str | None:
        digest, user_name = compute_token_digest(token), None
        for configured_digest, name in self._settings.tokens.items():  # compare all, in constant time
            if hmac.compare_digest(configured_digest, digest):
                user_name = name
        return user_name

    @property
    def verifier_fingerprint(self) -> str:
        """A text that changes with the token verification settings; ``-`` without a verifier."""
        settings, verifier = self._settings, type(self._verifier)
        name = f"{verifier.__module__} {verifier.__qualname__}"
        description = f"{name} {settings.token_verification} {settings.scopes} {settings.url}"
        return NO_VERIFIER if self._verifier is None else compute_token_digest(description)[:16]

    async def verify_token(
        self, token: str, scope: Scope, wait_for_disconnect: WaitForDisconnect | None = None
    ) -> AccessToken:
        """Return the verified access of a token. Raises `HttpError`. See `authenticate` for ``wait_for_disconnect``."""
        access = None
        if self._verifier is not None and len(token) <= _MAX_TOKEN_CHARACTERS:
            reservation: RequestReservation | None = scope.get(RESERVATION_KEY)
            with nullcontext() if reservation is None else reservation.count_and_limit_token_check():
                verification = self._call_verifier(self._verifier, token)
                access = await (
                    verification
                    if wait_for_disconnect is None
                    else _run_until_disconnect(verification, wait_for_disconnect())
                )
        if access is None or (access.expires_at is not None and access.expires_at <= time.time()):
            raise self._unauthorized_or_forbidden_error(scope, "invalid_token")
        if access.resource is not None and not self._is_gateway_resource(access.resource, scope):
            _log.warning("a token for %.200r was refused: it was issued for another server", access.resource)
            raise self._unauthorized_or_forbidden_error(scope, "invalid_token")
        if missing := set(self._settings.scopes) - set(access.scopes):
            raise self._unauthorized_or_forbidden_error(scope, "insufficient_scope", sorted(missing))
        return access

    async def _call_verifier(self, verifier: TokenVerifier, token: str) -> AccessToken | None:
        try:
            async with asyncio.timeout(_VERIFIER_TIMEOUT_SECONDS):
                return await verifier.verify_token(token)
        except Exception as error:  # noqa: BLE001 - any failure denies access; its text may contain the token
            reason = str(error) if isinstance(error, VerifierUnavailableError) else type(error).__name__
            _log.error("a token could not be verified: %s", reason)
            raise HttpError(503, "The token cannot be verified now; try again later", {"retry-after": "5"}) from None

    def _is_gateway_resource(self, resource: str, scope: Scope) -> bool:
        resource_url = self.get_resource_url(scope)
        return resource.rstrip("/") in (resource_url, resource_url.removesuffix("/mcp"))

    def get_resource_url(self, scope: Scope) -> str:
        """Return the external URL of the gateway's ``/mcp``."""
        base = self._settings.url
        if base is None:
            base = f"{scope.get('scheme', 'http')}://{_get_single_header(scope, 'host') or 'localhost'}"
        return f"{base}/mcp"

    def create_resource_metadata(self, scope: Scope) -> dict[str, Any] | None:
        """Return RFC 9728 metadata, or None without an issuer or for another resource."""
        resource_path = urlsplit(self.get_resource_url(scope)).path
        requested_path = str(scope["path"]).partition(METADATA_PATH)[2].rstrip("/")
        if self._settings.issuer is None or requested_path not in ("", "/mcp", resource_path):
            return None
        document: dict[str, Any] = {
            "resource": self.get_resource_url(scope),
            "authorization_servers": [self._settings.issuer],
            "bearer_methods_supported": ["header"],
        }
        return {**document, "scopes_supported": list(self._settings.scopes)} if self._settings.scopes else document

    def _unauthorized_or_forbidden_error(
        self, scope: Scope, error: str | None, missing: list[str] | None = None
    ) -> HttpError:
        parts: list[str] = [] if error is None else [f'error="{error}"']
        if self._settings.scopes:  # the scopes to request from the authorization server
            parts.append(f'scope="{" ".join(self._settings.scopes)}"')
        if self._settings.issuer is not None:
            resource_url = urlsplit(self.get_resource_url(scope))
            parts.append(
                f'resource_metadata="{resource_url.scheme}://{resource_url.netloc}{METADATA_PATH}{resource_url.path}"'
            )
        challenge = f"Bearer {', '.join(parts)}".rstrip()
        message = "A scope is missing" if missing else "Sign in with a bearer token"
        return HttpError(403 if missing else 401, message, {"www-authenticate": challenge})


async def _run_until_disconnect(work: Coroutine[Any, Any, T], wait_for_disconnect: Coroutine[Any, Any, object]) -> T:
    """Run a coroutine; cancel it and raise `HttpError` when the caller disconnects."""
    task, watcher = asyncio.create_task(work), asyncio.create_task(wait_for_disconnect)
    try:
        await asyncio.wait([task, watcher], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise HttpError(400, "The caller disconnected")
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


def to_principal_id(access: AccessToken) -> str:
    """Return a unique id for each user of each issuer. Components are quoted so that ids cannot collide."""
    client, issuer, subject = principal_components(access)
    identity = f"client {quote(client, safe='')}" if subject is None else f"user {quote(subject, safe='@')}"
    full_id = f"{VERIFIED_PREFIX}{quote(issuer or '', safe=':/.')} {identity}"
    return full_id if len(full_id) <= _MAX_ID_CHARACTERS else f"{VERIFIED_PREFIX}{compute_token_digest(full_id)}"


def _list_header_values(scope: Scope, name: str) -> list[str]:
    return Headers(scope=scope).getlist(name)


def _get_single_header(scope: Scope, name: str) -> str | None:
    """Return a header that occurs exactly once, else None: parsers disagree about duplicates."""
    values = _list_header_values(scope, name)
    return values[0] if len(values) == 1 else None
