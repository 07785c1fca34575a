"""The principal of a request, and what it may see and decide."""

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
"""The sequence of the last change that a page includes."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The signed-in user of a request, with their session and client address.

    ``can_sign_out`` is False where a proxy or the host authenticates. ``reauthenticate`` returns the principal as of
    now, or None after a sign-out. ``consume_audit_quota`` counts a refused request and returns whether
    the quota still allows to audit it.
    """

    user: User
    session: Session
    address: str | None
    form_tokens: FormTokens
    can_sign_out: bool
    reauthenticate: Callable[[], Awaitable[Principal | None]]
    consume_audit_quota: Callable[[], bool] = lambda: True

    def create_form_token(self, subject: str) -> str:
        """Return a form token bound to ``subject``, such as a request id."""
        return self.form_tokens.create(self.session, subject)

    def require_form_token(self, token: object, subject: str) -> None:
        """Raise `Problem` 403 unless the token was made for this session and subject."""
        if not self.form_tokens.is_valid(token, self.session, subject):
            raise Problem(403, "This form is not valid for you", "Open the page again and send its form from there.")


def require_principal(request: Request) -> Principal:
    """Return the principal that `AccessMiddleware` found. Raises `Problem` 401 without one."""
    principal: Any = request.scope.get(PRINCIPAL_SCOPE_KEY)
    if not isinstance(principal, Principal):
        raise Problem(401, "You are not signed in")
    return principal


def get_audit_tenant(user: User) -> Tenant:
    """Return the tenant of audit lines about a user: their only tenant, else `ALL_TENANTS`."""
    if user.tenants is not ALL_TENANTS and len(user.tenants) == 1:
        return next(iter(user.tenants))
    return ALL_TENANTS


def select_visible_tenants(user: User, tenant: str) -> Tenants:
    """Return the chosen tenant if the user sees it, or with "" all tenants that they see."""
    if tenant:
        return tenant if user.can_see(tenant) else frozenset[str]()
    return ALL_TENANTS if user.tenants is ALL_TENANTS else frozenset(user.tenants)


async def audit_refusal_within_quota(
    store: InterruptStore, principal: Principal, request: Request, reason: str
) -> None:
    """Add a refused request to the audit, at most ten a minute per user and network."""
    if not principal.consume_audit_quota():
        return
    details = {"why": reason[:1000], "method": request.method[:20], "path": request.url.path[:500]}
    tenant = get_audit_tenant(principal.user)
    await store.add_audit_line(
        "request_refused", actor=principal.user.name, tenant=tenant, address=principal.address, details=details
    )


_log = logging.getLogger("codemode.console")
Policy: TypeAlias = Callable[[User, Record, Request], bool | str | Awaitable[bool | str]]


async def find_decision_refusal(policy: Policy | None, user: User, record: Record, request: Request) -> str | None:
    """Return why a user may not decide about a record; None if they may.

    ``policy`` returns True to allow, False or a reason to refuse. Errors and other values refuse.
    """
    if not user.may_decide:
        return "you may look but not decide"
    if policy is None:
        return None
    try:
        answer: Any = policy(user, record, request)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception:  # noqa: BLE001 - a failing host function allows nothing
        _log.exception("the policy failed: the decision is refused")
        return "the policy failed"
    if answer is True:
        return None
    return answer if isinstance(answer, str) and answer else "the policy refuses it"


class StandingApprovals(Protocol):
    """Stores approvals that hold for later calls too."""

    def list_choices(self, record: Record, request: StoredRequest) -> Mapping[str, str]:
        """Return labels by name of how long an approval of this call may hold; {} for this call only."""
        ...

    async def audit_and_save_choice(
        self, record: Record, request: StoredRequest, choice: str, *, actor: str, address: str | None
    ) -> None:
        """Store one of these choices and audit it. ``actor`` has approved the call itself."""
        ...


def list_standing_choices(
    standing_approvals: StandingApprovals | None, record: Record, call: StoredRequest
) -> Mapping[str, str]:
    """Return the standing choices of a call, {} without a store for them."""
    return (
        {}
        if standing_approvals is None or call.kind != APPROVAL_KIND
        else standing_approvals.list_choices(record, call)
    )


async def store_standing_approval(
    standing_approvals: StandingApprovals | None, record: Record, call: StoredRequest, choice: str, principal: Principal
) -> Problem | None:
    """Store a standing choice, and return the problem if that fails."""
    if standing_approvals is None or not choice:
        return None
    try:
        await standing_approvals.audit_and_save_choice(
            record, call, choice, actor=principal.user.name, address=principal.address
        )
    except Exception:  # noqa: BLE001 - the call itself is decided
        _log.warning("a standing approval could not be saved", exc_info=True)
        return Problem(200, "Approved for this call only", "Later calls of the tool need approval again.")
    return None
