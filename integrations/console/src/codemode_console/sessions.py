"""Signed texts, sessions, and the check that a form comes from a page of this console."""

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

from .web import origin_of

Clock: TypeAlias = Callable[[], float]
"""Unix time in seconds."""
Secret: TypeAlias = str | bytes | Sequence[str | bytes]
_LEAST_SECRET_BYTES = 16
_MAX_CLOCK_SKEW_SECONDS = 60  # of two consoles before one database, as continuations have it


class Signed:
    """Signs JSON values for one purpose, and reads what it has signed. ``secret``: signs with the last of several."""

    def __init__(self, secret: Sequence[bytes], purpose: str, clock: Clock) -> None:
        self._clock = clock
        self._serializer: Any = URLSafeTimedSerializer(
            list(secret),
            salt=f"codemode-console/{purpose}",
            signer=_signer(clock),
            signer_kwargs={"digest_method": hashlib.sha256, "key_derivation": "hmac"},
        )

    def text(self, value: Any) -> str:
        """Return a value with its time, signed."""
        return cast("str", self._serializer.dumps(value))

    def value(self, text: str, *, max_age_seconds: int) -> Any:
        """Return what was signed; None for what was not, was for another purpose, or is too old."""
        try:
            value, signed_at = self._serializer.loads(text, return_timestamp=True)
        except BadSignature:
            return None
        # Not by the library's own check: to that what a clock a second ahead has signed is no longer good.
        age_seconds = int(self._clock()) - signed_at.timestamp()
        return value if -_MAX_CLOCK_SKEW_SECONDS <= age_seconds <= max_age_seconds else None


def require_secret(secret: Secret | None) -> list[bytes]:
    """Return keys to sign with, random ones of this process where none is given. Raises `ValueError`."""
    if secret is None:
        return [secrets.token_bytes(32)]
    several = [secret] if isinstance(secret, str | bytes) else list(secret)
    keys = [one.encode() if isinstance(one, str) else one for one in several]
    if not keys or any(len(key) < _LEAST_SECRET_BYTES for key in keys):
        raise ValueError(f"secret must have at least {_LEAST_SECRET_BYTES} bytes")
    return keys


def _signer(clock: Clock) -> type[TimestampSigner]:
    class ByClock(TimestampSigner):
        def get_timestamp(self) -> int:
            return int(clock())

    return ByClock


# A session is a signed cookie: every console with the same secret knows it. That one was signed out is a line of the
# audit, which every console on the same store finds, and which nobody can take back.

COOKIE = "codemode_console"
ROOTS_KEY = "console_roots"
"""In the scope: the path of the console, and the private one for which alone browsers get their cookie."""

LIFETIME_SECONDS = 12 * 3600
_MOST_ENDED = 1000  # that are known without the store, which knows all of them


@dataclass(frozen=True, slots=True)
class Session:
    """``id`` is random; ``key`` says whose it is."""

    id: str
    key: str


class Sessions:
    """Starts sessions, reads and ends them."""

    def __init__(self, secret: Sequence[bytes], clock: Clock, store: InterruptStore | None = None) -> None:
        """Without a ``store`` no session can be ended: somebody else signs people in, and out."""
        self._signed = Signed(secret, "session", clock)
        self._clock, self._store = clock, store
        self._ended: dict[str, float] = {}

    def start(self, key: str) -> tuple[Session, str]:
        """Return a session and the text of its cookie."""
        session = Session(secrets.token_urlsafe(24), key)
        return session, self._signed.text([session.id, session.key])

    async def read(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie; None for one that is none, has been signed out or is too old."""
        value: Any = None if cookie is None else self._signed.value(cookie, max_age_seconds=LIFETIME_SECONDS)
        if not isinstance(value, list) or len(cast("list[Any]", value)) != 2:
            return None
        session = Session(*cast("list[str]", value))
        return None if await self._has_ended(session) else session

    async def end(self, session: Session, *, actor: str, tenant: Tenant, address: str | None) -> None:
        """End a session wherever its cookie is, for all consoles on the store."""
        if self._store is not None:
            by: dict[str, Any] = {"actor": actor, "tenant": tenant, "address": address}
            await self._store.note("signed_out", **by, record_id=_name(session))
        self._remember(session)

    async def _has_ended(self, session: Session) -> bool:
        if session.id in self._ended:
            return True
        if self._store is None:
            return False
        lines = self._store.audit(tenant=ALL_TENANTS, record_id=_name(session), limit=1)
        if not [line async for line in lines]:
            return False
        self._remember(session)
        return True

    def _remember(self, session: Session) -> None:
        now = self._clock()
        self._ended[session.id] = now + LIFETIME_SECONDS + 1
        while len(self._ended) > _MOST_ENDED or next(iter(self._ended.values())) <= now:
            del self._ended[next(iter(self._ended))]


def _name(session: Session) -> str:
    # Whoever reads the audit learns no session's id.
    return f"signed-in:{hashlib.sha256(session.id.encode()).hexdigest()[:32]}"


def set_cookie(response: Response, request: Request, text: str, *, is_secure: bool, root: str | None = None) -> None:
    """Give a session to a browser. Lax: a link in a notice, from elsewhere, is to find it."""
    path = _path(request) if root is None else _quoted(root)
    response.set_cookie(
        COOKIE, text, max_age=LIFETIME_SECONDS, path=path, secure=is_secure, httponly=True, samesite="lax"
    )


def forget_cookie(response: Response, request: Request, *, is_secure: bool) -> None:
    """Take the session from a browser."""
    response.delete_cookie(COOKIE, path=_path(request), secure=is_secure, httponly=True, samesite="lax")


def _path(request: Request) -> str:
    return _quoted(str(request.scope.get("root_path", "")))


def _quoted(root: str) -> str:
    # As browsers write it in what they ask for. A semicolon would end it.
    return quote(root, safe="/!$&'()*+,:=@~") or "/"


TOKEN_FIELD = "form_token"  # noqa: S105 - the name of a field
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class FormTokens:
    """Tokens of forms, each for one session and for what its form is about, such as a request's id."""

    def __init__(self, secret: Sequence[bytes], clock: Clock) -> None:
        self._signed = Signed(secret, "form", clock)

    def token(self, session: Session, about: str) -> str:
        """Return what the form carries in its field `TOKEN_FIELD`."""
        return self._signed.text([session.id, about])

    def holds(self, token: object, session: Session, about: str) -> bool:
        """Say whether a token was made for this session and this form."""
        if not isinstance(token, str):
            return False
        return self._signed.value(token, max_age_seconds=LIFETIME_SECONDS) == [session.id, about]


def cross_origin_problem(request: Request, base_origin: str | None = None) -> str | None:
    """Return why a request that changes something does not come from a page of the console; None where it does.

    Browsers tell with ``Sec-Fetch-Site``; those that do not, with ``Origin``. Who tells neither is refused.
    ``base_origin`` is where the console says that it is, for proxies that change ``Host``.
    """
    if request.method in SAFE_METHODS:
        return None
    sites = request.headers.getlist("sec-fetch-site")
    if sites:
        return None if sites == ["same-origin"] else "it was sent from a page of another origin"
    origins = request.headers.getlist("origin")
    if len(origins) != 1:
        return "it does not say from which page it was sent (Sec-Fetch-Site: same-origin, or Origin, does)"
    return None if _is_own(origins[0], request, base_origin) else "it was sent from a page of another origin"


def _is_own(text: str, request: Request, base_origin: str | None) -> bool:
    origin = origin_of(text)
    if origin is None:
        return False
    if base_origin is not None and origin == base_origin:
        return True
    hosts = request.headers.getlist("host")
    # What ends TLS in front of the console leaves the host and takes the scheme: so the scheme is the caller's own.
    return len(hosts) == 1 and origin == origin_of(f"{origin.partition(':')[0]}://{hosts[0]}")
