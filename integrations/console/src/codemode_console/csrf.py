"""Whether a form comes from a page of this console, sent by the one who was shown it. Knows no users."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from .sessions import LIFETIME_SECONDS, Session
from .signed import Clock, Signed
from .web import origin_of

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
