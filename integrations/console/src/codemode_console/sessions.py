"""Sign cookies and form tokens, and check where requests come from."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast
from urllib.parse import quote

from itsdangerous import BadSignature, TimestampSigner, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import Response

from codemode.stores import ALL_TENANTS, InterruptStore
from codemode.stores.records import Tenant

from .web import extract_origin

Clock: TypeAlias = Callable[[], float]
"""Unix time in seconds."""
Secret: TypeAlias = str | bytes | Sequence[str | bytes]
_MIN_SECRET_BYTES = 16
_MAX_CLOCK_SKEW_SECONDS = 60  # between consoles, as for continuations


class TokenSigner:
    """Signs JSON values for one purpose. The last of several secrets signs."""

    def __init__(self, secret: Sequence[bytes], purpose: str, clock: Clock) -> None:
        self._clock = clock
        self._serializer: Any = URLSafeTimedSerializer(
            list(secret),
            salt=f"codemode-console/{purpose}",
            signer=_create_signer_class(clock),
            signer_kwargs={"digest_method": hashlib.sha256, "key_derivation": "hmac"},
        )

    def sign(self, value: Any) -> str:
        """Return the signed value with its time."""
        return cast("str", self._serializer.dumps(value))

    def verify(self, text: str, *, max_age_seconds: int) -> Any:
        """Return the signed value; None for an invalid or expired signature, or another purpose."""
        try:
            value, signed_at = self._serializer.loads(text, return_timestamp=True)
        except BadSignature:
            return None
        # The library's own check rejects signatures of a clock that is a second ahead.
        age_seconds = int(self._clock()) - signed_at.timestamp()
        return value if -_MAX_CLOCK_SKEW_SECONDS <= age_seconds <= max_age_seconds else None


def parse_or_create_signing_keys(secret: Secret | None) -> list[bytes]:
    """Return signing keys, a random one without a secret. Raises `ValueError`."""
    if secret is None:
        return [secrets.token_bytes(32)]
    secrets_or_keys = [secret] if isinstance(secret, str | bytes) else list(secret)
    keys = [secret.encode() if isinstance(secret, str) else secret for secret in secrets_or_keys]
    if not keys or any(len(key) < _MIN_SECRET_BYTES for key in keys):
        raise ValueError(f"secret must have at least {_MIN_SECRET_BYTES} bytes")
    return keys


def _create_signer_class(clock: Clock) -> type[TimestampSigner]:
    class ClockSigner(TimestampSigner):
        def get_timestamp(self) -> int:
            return int(clock())

    return ClockSigner


# A session is a signed cookie, valid for all consoles with the same secret. A sign-out is an audit line, which all
# consoles on the same store find.

COOKIE_NAME = "codemode_console"
ROOTS_KEY = "console_roots"
"""Scope key: the public path of the console, and the private path that cookies are limited to."""

SESSION_SECONDS = 12 * 3600
_MAX_REMEMBERED_SIGN_OUTS = 1000  # cached; the store knows all


@dataclass(frozen=True, slots=True)
class Session:
    """A session with a random ``id``; ``key`` identifies its user."""

    id: str
    key: str


class Sessions:
    """Starts, loads and ends sessions."""

    def __init__(self, secret: Sequence[bytes], clock: Clock, store: InterruptStore | None = None) -> None:
        """Create sessions. Without a ``store`` they cannot be ended: a proxy or the host authenticates."""
        self._cookie_signer = TokenSigner(secret, "session", clock)
        self._clock, self._store = clock, store
        self._ended_until: dict[str, float] = {}

    def start(self, key: str) -> tuple[Session, str]:
        """Return a new session and its cookie text."""
        session = Session(secrets.token_urlsafe(24), key)
        return session, self._cookie_signer.sign([session.id, session.key])

    async def load(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie; None if it is invalid, expired or signed out."""
        value: Any = None if cookie is None else self._cookie_signer.verify(cookie, max_age_seconds=SESSION_SECONDS)
        if not isinstance(value, list) or len(cast("list[Any]", value)) != 2:
            return None
        session = Session(*cast("list[str]", value))
        return None if await self._is_signed_out(session) else session

    async def end(self, session: Session, *, actor: str, tenant: Tenant, address: str | None) -> None:
        """End a session for all consoles on the store."""
        if self._store is not None:
            by: dict[str, Any] = {"actor": actor, "tenant": tenant, "address": address}
            await self._store.add_audit_line("signed_out", **by, record_id=_compute_audit_id(session))
        self._remember_sign_out(session)

    async def _is_signed_out(self, session: Session) -> bool:
        if session.id in self._ended_until:
            return True
        if self._store is None:
            return False
        lines = self._store.audit(tenant=ALL_TENANTS, record_id=_compute_audit_id(session), limit=1)
        if not [line async for line in lines]:
            return False
        self._remember_sign_out(session)
        return True

    def _remember_sign_out(self, session: Session) -> None:
        now = self._clock()
        self._ended_until[session.id] = now + SESSION_SECONDS + 1
        while len(self._ended_until) > _MAX_REMEMBERED_SIGN_OUTS or next(iter(self._ended_until.values())) <= now:
            del self._ended_until[next(iter(self._ended_until))]


def _compute_audit_id(session: Session) -> str:
    # A hash, since readers of the audit must not learn session ids.
    return f"signed-in:{hashlib.sha256(session.id.encode()).hexdigest()[:32]}"


def set_cookie(response: Response, request: Request, text: str, *, is_secure: bool, root: str | None = None) -> None:
    """Set the session cookie. SameSite is Lax, so that links in notices find it."""
    path = _get_cookie_path(request) if root is None else _quote_path(root)
    response.set_cookie(
        COOKIE_NAME, text, max_age=SESSION_SECONDS, path=path, secure=is_secure, httponly=True, samesite="lax"
    )


def delete_cookie(response: Response, request: Request, *, is_secure: bool) -> None:
    """Delete the session cookie."""
    response.delete_cookie(COOKIE_NAME, path=_get_cookie_path(request), secure=is_secure, httponly=True, samesite="lax")


def _get_cookie_path(request: Request) -> str:
    return _quote_path(str(request.scope.get("root_path", "")))


def _quote_path(root: str) -> str:
    # Quoted as browsers do; a semicolon would end the attribute.
    return quote(root, safe="/!$&'()*+,:=@~") or "/"


TOKEN_FIELD = "form_token"  # noqa: S105 - the name of a field
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class FormTokens:
    """Form tokens, each bound to a session and a subject such as a request id."""

    def __init__(self, secret: Sequence[bytes], clock: Clock) -> None:
        self._signer = TokenSigner(secret, "form", clock)

    def create(self, session: Session, subject: str) -> str:
        """Return the value of the field `TOKEN_FIELD`."""
        return self._signer.sign([session.id, subject])

    def is_valid(self, token: object, session: Session, subject: str) -> bool:
        """Return whether a token was made for this session and subject."""
        if not isinstance(token, str):
            return False
        return self._signer.verify(token, max_age_seconds=SESSION_SECONDS) == [session.id, subject]


def find_cross_origin_reason(request: Request, base_origin: str | None = None) -> str | None:
    """Return why a changing request does not come from a page of the console; None if it does.

    Checks ``Sec-Fetch-Site``, or ``Origin`` where that is missing; without both the request is refused. ``base_origin``
    is the console's configured origin, for proxies that change ``Host``.
    """
    if request.method in SAFE_METHODS:
        return None
    sites = request.headers.getlist("sec-fetch-site")
    if sites:
        return None if sites == ["same-origin"] else "it was sent from a page of another origin"
    origins = request.headers.getlist("origin")
    if len(origins) != 1:
        return "it has neither Sec-Fetch-Site: same-origin nor Origin"
    return None if _is_console_origin(origins[0], request, base_origin) else "it was sent from a page of another origin"


def _is_console_origin(text: str, request: Request, base_origin: str | None) -> bool:
    origin = extract_origin(text)
    if origin is None:
        return False
    if base_origin is not None and origin == base_origin:
        return True
    hosts = request.headers.getlist("host")
    # A TLS proxy keeps the host but changes the scheme, so the scheme of the Origin is used.
    return len(hosts) == 1 and origin == extract_origin(f"{origin.partition(':')[0]}://{hosts[0]}")
