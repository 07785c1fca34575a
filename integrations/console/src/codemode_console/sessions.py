"""Who stays signed in, and for how long. Knows no pages.

A session is a signed cookie: every console with the same secret knows it. That one was signed out is a line of the
audit, which every console on the same store finds, and which nobody can take back.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from codemode import ALL_TENANTS, InterruptStore
from codemode.plugins import Tenant

from .signed import Clock, Signed

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
