"""One request of a known user, and what the host lets this user decide, now and for later calls."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from starlette.requests import Request

from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.stores import ALL_TENANTS, InterruptStore, Record, StoredRequest
from codemode.stores.records import Tenant, Tenants

from .auth import User
from .errors import Problem
from .sessions import FormTokens, Session

PRINCIPAL_SCOPE_KEY = "console_principal"
SEQUENCE_SCOPE_KEY = "console_sequence"
"""Of the last change that a page knows of."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The signed-in user of a request, with their session and client address.

    ``can_sign_out`` is False where a proxy or the host authenticates. ``reauthenticate`` returns the principal as of
    now, or None after a sign-out. ``count_refusal`` counts a refused request and returns whether to audit it.
    """

    user: User
    session: Session
    address: str | None
    form_tokens: FormTokens
    can_sign_out: bool
    reauthenticate: Callable[[], Awaitable[Principal | None]]
    count_refusal: Callable[[], bool] = lambda: True

    def form_token(self, subject: str) -> str:
        """Return the token of a form; ``about`` says of what, such as a request's id."""
        return self.form_tokens.create(self.session, subject)

    def require_form_token(self, token: object, subject: str) -> None:
        """Raise `Problem` 403 for a token that was made for another form, for somebody else, or by nobody."""
        if not self.form_tokens.is_valid(token, self.session, subject):
            raise Problem(403, "This form is not yours to send", "Open the page again and send its form from there.")


def require_principal(request: Request) -> Principal:
    """Return who calls, as `Guarded` has found out. Raises `Problem` 401: nothing is shown to nobody."""
    principal: Any = request.scope.get(PRINCIPAL_SCOPE_KEY)
    if not isinstance(principal, Principal):
        raise Problem(401, "Nobody is signed in")
    return principal


def audit_tenant(user: User) -> Tenant:
    """Return to whom a line about a user belongs: to their only tenant, or to none."""
    if user.tenants is not ALL_TENANTS and len(user.tenants) == 1:
        return next(iter(user.tenants))
    return ALL_TENANTS


def visible_tenants(user: User, tenant: str) -> Tenants:
    """Return whose lines a user is shown: those of one tenant that they see, or with "" of all that they see."""
    if tenant:
        return tenant if user.can_see(tenant) else frozenset[str]()
    return ALL_TENANTS if user.tenants is ALL_TENANTS else frozenset(user.tenants)


async def audit_refusal(store: InterruptStore, principal: Principal, request: Request, reason: str) -> None:
    """Write into the audit that somebody was refused something, ten times a minute at most for a user at an address."""
    if not principal.count_refusal():
        return
    details = {"why": reason[:1000], "method": request.method[:20], "path": request.url.path[:500]}
    tenant = audit_tenant(principal.user)
    await store.note(
        "request_refused", actor=principal.user.name, tenant=tenant, address=principal.address, details=details
    )


_log = logging.getLogger("codemode.console")
Policy: TypeAlias = Callable[[User, Record, Request], bool | str | Awaitable[bool | str]]


async def find_refusal(policy: Policy | None, user: User, record: Record, request: Request) -> str | None:
    """Return why a user may not decide about a record; None when they may.

    ``policy`` returns True for yes, False or a text, the reason, for no. What raises or returns anything else says no.
    """
    if not user.may_decide:
        return "you may look, and decide nothing"
    if policy is None:
        return None
    try:
        answer: Any = policy(user, record, request)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception:  # noqa: BLE001 - a function of the host's that fails allows nothing
        _log.exception("the policy failed: the decision is refused")
        return "the policy could not say whether you may"
    if answer is True:
        return None
    return answer if isinstance(answer, str) and answer else "the policy says no"


class StandingApprovals(Protocol):
    """Keeps approvals that hold for longer than one call, and is asked about it where a program is approved."""

    def choices(self, record: Record, request: StoredRequest) -> Mapping[str, str]:
        """Return for how long an approval of a call may hold beside that call, in words by names; empty: no longer."""
        ...

    async def keep(
        self, record: Record, request: StoredRequest, choice: str, *, actor: str, address: str | None
    ) -> None:
        """Let one of these choices hold, and tell it in the audit. The call itself has been decided by ``actor``."""
        ...


def standing_choices(
    standing_approvals: StandingApprovals | None, record: Record, call: StoredRequest
) -> Mapping[str, str]:
    """Return for how long an approval of a request may hold beside its call; nothing where nobody keeps that."""
    return {} if standing_approvals is None or call.kind != APPROVAL_KIND else standing_approvals.choices(record, call)


async def keep_standing_approval(
    standing_approvals: StandingApprovals | None, record: Record, call: StoredRequest, choice: str, principal: Principal
) -> Problem | None:
    """Let a choice hold for what was decided, and return what is to be said where that cannot be."""
    if standing_approvals is None or not choice:
        return None
    try:
        await standing_approvals.keep(record, call, choice, actor=principal.user.name, address=principal.address)
    except Exception:  # noqa: BLE001 - the call was decided, whatever comes of the rest
        _log.warning("an approval that is to hold for later calls could not be kept", exc_info=True)
        return Problem(200, "It was approved for this call alone", "Later calls of the tool are asked about again.")
    return None
