"""One request of somebody who is known: who, from where, and the tokens of their forms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from codemode import ALL_TENANTS, InterruptStore
from codemode.plugins import Tenant, Tenants

from .auth import User
from .csrf import FormTokens
from .errors import Problem
from .sessions import Session

SCOPE_KEY = "console_visit"
SEQUENCE_KEY = "console_sequence"
"""Of the last change that a page knows of."""


@dataclass(frozen=True, slots=True)
class Visit:
    """Who calls. ``address`` is the audit's; ``can_sign_out`` False where somebody else signs people in.

    ``again`` asks who this is by now: None once they have signed out, or are known no more. ``may_note`` counts one
    more refusal of theirs, and tells whether the audit has it.
    """

    user: User
    session: Session
    address: str | None
    forms: FormTokens
    can_sign_out: bool
    again: Callable[[], Awaitable[Visit | None]]
    may_note: Callable[[], bool] = lambda: True

    def form_token(self, about: str) -> str:
        """Return the token of a form; ``about`` says of what, such as a request's id."""
        return self.forms.token(self.session, about)

    def require_form_token(self, token: object, about: str) -> None:
        """Raise `Problem` 403 for a token that was made for another form, for somebody else, or by nobody."""
        if not self.forms.holds(token, self.session, about):
            raise Problem(403, "This form is not yours to send", "Open the page again and send its form from there.")


def visit_of(request: Request) -> Visit:
    """Return who calls, as `Guarded` has found out. Raises `Problem` 401: nothing is shown to nobody."""
    visit: Any = request.scope.get(SCOPE_KEY)
    if not isinstance(visit, Visit):
        raise Problem(401, "Nobody is signed in")
    return visit


def audit_tenant(user: User) -> Tenant:
    """Return to whom a line about a user belongs: to their only tenant, or to none."""
    if user.tenants is not ALL_TENANTS and len(user.tenants) == 1:
        return next(iter(user.tenants))
    return ALL_TENANTS


def chosen_tenants(user: User, tenant: str) -> Tenants:
    """Return whose lines a user is shown: those of one tenant that they see, or with "" of all that they see."""
    if tenant:
        return tenant if user.sees(tenant) else frozenset[str]()
    return ALL_TENANTS if user.tenants is ALL_TENANTS else frozenset(user.tenants)


async def note_refusal(store: InterruptStore, visit: Visit, request: Request, why: str) -> None:
    """Write into the audit that somebody was refused something, ten times a minute at most for a user at an address."""
    if not visit.may_note():
        return
    details = {"why": why[:1000], "method": request.method[:20], "path": request.url.path[:500]}
    tenant = audit_tenant(visit.user)
    await store.note("request_refused", actor=visit.user.name, tenant=tenant, address=visit.address, details=details)
