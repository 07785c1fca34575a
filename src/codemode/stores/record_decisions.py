"""Record decisions about requests, and claim the record of an answer in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..data.json_values import canonical_json
from ..host.threads import LARGE_CHARACTERS, run_check
from . import leases
from .answers import Answer, decision_texts, require_decisions
from .answers import read as read_answers
from .audit import By, cut
from .errors import AlreadyDecidedError, RequestSupersededError, StoreError
from .records import LEASE_MS, Lease, RecordState, StoredRequest, Tenant, record_after, request_after
from .rows import KeptRequest, clause, marks, requests_named, unknown
from .transaction import Database, Session, read

MOST_DECIDED = 1000
"""Of so many requests one transaction takes decisions: nobody else waits longer than for these."""


class NotChecked(Exception):  # noqa: N818 - never leaves this package
    """A request waits again since somebody looked whether the answer fits: it is to be looked at anew."""


def named(session: Session, interrupt_ids: list[str], tenant: Tenant) -> tuple[dict[str, KeptRequest], dict[str, str]]:
    """Return requests, and the tenants of their records. Raises `UnknownRequestError` for another tenant's."""
    found = requests_named(session, interrupt_ids)
    record_ids = sorted({one.record_id for one in found.values()})
    condition, values = clause(tenant)
    statement = f"SELECT id, tenant FROM codemode_records WHERE id IN ({marks(record_ids)}){condition}"
    tenants: dict[str, str] = dict(session.rows(statement, *record_ids, *values)) if record_ids else {}  # pyright: ignore[reportArgumentType, reportCallIssue]
    for interrupt_id in interrupt_ids:
        if interrupt_id not in found or found[interrupt_id].record_id not in tenants:
            raise unknown(interrupt_id)
    return found, tenants


async def checked(database: Database, decisions: Mapping[str, Any], tenant: Tenant) -> dict[str, Answer]:
    """Check answers before there is a transaction in which everybody else would wait for that."""
    if len(require_decisions(decisions)) > MOST_DECIDED:
        raise ValueError(f"at most {MOST_DECIDED} requests are decided at a time, got {len(decisions)}")
    texts = await run_check(LARGE_CHARACTERS, lambda: decision_texts(decisions))
    found, _ = await read(database, lambda session: named(session, list(decisions), tenant))
    waiting = [one.request for one in found.values() if one.request.state == "waiting"]
    return await run_check(LARGE_CHARACTERS, lambda: read_answers(waiting, decisions, texts))


def decide(
    session: Session, answers: Mapping[str, Answer], by: By, tenant: Tenant, seen: Mapping[str, str]
) -> dict[str, StoredRequest]:
    """Record decisions, all or none, and return the requests as they stand then."""
    found, tenants = named(session, list(answers), tenant)
    states = _states(session, sorted(tenants))
    new: dict[str, Mapping[str, Any]] = {}
    for interrupt_id, answer in answers.items():
        one = found[interrupt_id]
        state, expires_at_ms = states[one.record_id]
        # First: of what has ended everybody is told so.
        event_state = "expired" if state == "pending" and expires_at_ms <= session.now_ms else state
        record_after(event_state, "decide", one.record_id)
        if _is_new(one, answer.text, seen):
            if answer.said is None:
                raise NotChecked
            new[interrupt_id] = answer.said
    now_ms = session.now_ms
    session.each(
        "UPDATE codemode_requests SET state = ?, decision = ?, actor = ?, decided_at_ms = ?, refusal = NULL"
        " WHERE interrupt_id = ?",
        ((request_after("waiting", "decide"), answers[one].text, by.actor, now_ms, one) for one in new),
    )
    touched = sorted({found[one].record_id for one in new})
    session.each(
        "UPDATE codemode_records SET ready_at_ms = ? WHERE id = ? AND state = 'pending' AND ready_at_ms IS NULL",
        ((now_ms, record_id) for record_id in touched),
    )
    for record_id in touched:
        session.note(record_id, tenants[record_id], "decided")
    for one, said in new.items():
        audit(session, found[one], tenants[found[one].record_id], by, said)
    return {name: one.request for name, one in requests_named(session, answers).items()}


def audit(session: Session, kept: KeptRequest, tenant: str, by: By, said: Mapping[str, Any]) -> None:
    """Write a decision into the audit."""
    session.audit(
        "decided",
        tenant,
        kept.record_id,
        actor=by.actor,
        interrupt_id=kept.request.interrupt_id,
        tool_name=cut(kept.request.tool_name),
        shown=kept.shown,
        address=by.address,
        **said,
    )


def _is_new(kept: KeptRequest, text: str, seen: Mapping[str, str]) -> bool:
    request = kept.request
    name = request.interrupt_id
    if request.state == "superseded":
        raise RequestSupersededError(f"{name!r} is not pending any more: the program has gone on without it")
    if name in seen and seen[name] != kept.shown:
        raise RequestSupersededError(f"{name!r} is not what was shown: look at it again")
    if request.state == "waiting":
        return True
    if text == canonical_json(request.decision):
        return False
    raise already(request)


def already(request: StoredRequest) -> AlreadyDecidedError:
    """Return the error for a request that somebody has decided about."""
    name, who = request.interrupt_id, request.actor or "somebody"
    details = {"interrupt_id": name, "actor": request.actor, "decision": request.decision}
    return AlreadyDecidedError(f"{name!r} is not pending any more: {who} has decided about it", details=details)


def _states(session: Session, record_ids: list[str]) -> dict[str, tuple[RecordState, int]]:
    statement = f"SELECT id, state, expires_at_ms FROM codemode_records WHERE id IN ({marks(record_ids)})"
    rows = session.rows(statement, *record_ids) if record_ids else []
    return {row[0]: (cast("RecordState", row[1]), row[2]) for row in rows}


def decide_and_claim(
    session: Session, answers: Mapping[str, Answer], by: By, tenant: Tenant, owner: str
) -> Lease | RequestSupersededError | None:
    """Return a lease; None while somebody else has one. The error is returned, so that what it says stays written."""
    found, _ = named(session, list(answers), tenant)
    (one,) = found.values()
    statement = "SELECT state, ready_at_ms FROM codemode_records WHERE id = ?"
    state, ready_at_ms = session.one(statement, one.record_id) or ("pending", None)
    if state == "resuming":
        if ready_at_ms is not None and ready_at_ms > session.now_ms:
            return None
        return leases.claim(session, one.record_id, owner, LEASE_MS)
    if state == "resting" and one.request.state in ("waiting", "decided"):
        raise StoreError(f"{one.record_id!r} is resting: it asks nobody now, and whoever has it goes on with it")
    record_after(state, "claim", one.record_id)
    if one.request.state == "applied":
        raise already(one.request)
    try:
        decide(session, answers, by, tenant, {})
    except NotChecked:
        return None
    lease = leases.claim(session, one.record_id, owner, LEASE_MS)
    if lease is None and session.one(
        "SELECT 1 FROM codemode_requests WHERE interrupt_id = ? AND state = 'waiting'", *answers
    ):
        return RequestSupersededError(f"{next(iter(answers))!r} was not answered: {leases.CHANGED}")
    return lease
