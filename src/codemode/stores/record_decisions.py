"""Record decisions about requests, and claim a record in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..data.json_values import encode_canonical_json
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from . import leases
from .answers import EncodedAnswer, encode_decisions, require_decision_mapping, validate_answers_and_add_audit_fields
from .audit import Attribution, truncate_for_audit
from .errors import AlreadyDecidedError, RequestSupersededError, StoreError
from .records import (
    LEASE_MS,
    Lease,
    RecordState,
    StoredRequest,
    Tenant,
    compute_next_record_state_or_raise,
    compute_next_request_state_or_raise,
)
from .rows import RequestRow, create_id_not_found_error, create_tenant_clause, format_placeholders, load_requests_by_id
from .transaction import Database, Session, run_read_transaction

MAX_DECISIONS = 1000
"""The maximum number of decisions in one transaction, to keep it short."""


class UncheckedAnswerError(Exception):
    """A request went back to waiting after its answer was validated: validate it again."""


def load_requests_and_tenants(
    session: Session, interrupt_ids: list[str], tenant: Tenant
) -> tuple[dict[str, RequestRow], dict[str, str]]:
    """Return requests and the tenants of their records. Raises `UnknownRequestError` for another tenant's."""
    requests = load_requests_by_id(session, interrupt_ids)
    record_ids = sorted({row.record_id for row in requests.values()})
    condition, values = create_tenant_clause(tenant)
    statement = f"SELECT id, tenant FROM codemode_records WHERE id IN ({format_placeholders(record_ids)}){condition}"
    tenants: dict[str, str] = dict(session.fetch_all(statement, *record_ids, *values)) if record_ids else {}  # pyright: ignore[reportArgumentType, reportCallIssue]
    for interrupt_id in interrupt_ids:
        if interrupt_id not in requests or requests[interrupt_id].record_id not in tenants:
            raise create_id_not_found_error(interrupt_id)
    return requests, tenants


async def validate_and_encode_decisions(
    database: Database, decisions: Mapping[str, Any], tenant: Tenant
) -> dict[str, EncodedAnswer]:
    """Validate answers outside the transaction, which would block other writers."""
    if len(require_decision_mapping(decisions)) > MAX_DECISIONS:
        raise ValueError(f"at most {MAX_DECISIONS} requests can be decided at a time, got {len(decisions)}")
    decision_jsons = await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, lambda: encode_decisions(decisions))
    requests, _ = await run_read_transaction(
        database, lambda session: load_requests_and_tenants(session, list(decisions), tenant)
    )
    waiting = [row.request for row in requests.values() if row.request.state == "waiting"]
    return await run_in_thread_if_large_or_slow(
        LARGE_CHARACTERS, lambda: validate_answers_and_add_audit_fields(waiting, decisions, decision_jsons)
    )


def write_decisions(
    session: Session, answers: Mapping[str, EncodedAnswer], by: Attribution, tenant: Tenant, seen: Mapping[str, str]
) -> dict[str, StoredRequest]:
    """Record decisions, all or none, and return the requests as they are then."""
    requests, tenants = load_requests_and_tenants(session, list(answers), tenant)
    states = _load_record_states_and_expiries(session, sorted(tenants))
    new: dict[str, Mapping[str, Any]] = {}
    for interrupt_id, answer in answers.items():
        row = requests[interrupt_id]
        state, expires_at_ms = states[row.record_id]
        # First, so that the error for an ended record comes before others.
        effective_state = "expired" if state == "pending" and expires_at_ms <= session.now_ms else state
        compute_next_record_state_or_raise(effective_state, "decide", row.record_id)
        if _is_new_decision_or_raise(row, answer.decision_json, seen):
            if answer.audit_fields is None:
                raise UncheckedAnswerError
            new[interrupt_id] = answer.audit_fields
    now_ms = session.now_ms
    session.execute_many(
        "UPDATE codemode_requests SET state = ?, decision = ?, actor = ?, decided_at_ms = ?, refusal = NULL"
        " WHERE interrupt_id = ?",
        (
            (
                compute_next_request_state_or_raise("waiting", "decide"),
                answers[interrupt_id].decision_json,
                by.actor,
                now_ms,
                interrupt_id,
            )
            for interrupt_id in new
        ),
    )
    record_ids = sorted({requests[interrupt_id].record_id for interrupt_id in new})
    session.execute_many(
        "UPDATE codemode_records SET ready_at_ms = ? WHERE id = ? AND state = 'pending' AND ready_at_ms IS NULL",
        ((now_ms, record_id) for record_id in record_ids),
    )
    for record_id in record_ids:
        session.record_change(record_id, tenants[record_id], "decided")
    for interrupt_id, audit_fields in new.items():
        add_decision_to_audit(
            session, requests[interrupt_id], tenants[requests[interrupt_id].record_id], by, audit_fields
        )
    return {interrupt_id: row.request for interrupt_id, row in load_requests_by_id(session, answers).items()}


def add_decision_to_audit(
    session: Session, row: RequestRow, tenant: str, by: Attribution, audit_fields: Mapping[str, Any]
) -> None:
    """Add a decision to the audit."""
    session.add_audit_line(
        "decided",
        tenant,
        row.record_id,
        actor=by.actor,
        interrupt_id=row.request.interrupt_id,
        tool_name=truncate_for_audit(row.request.tool_name),
        shown=row.shown,
        address=by.address,
        **audit_fields,
    )


def _is_new_decision_or_raise(row: RequestRow, decision_json: str, seen: Mapping[str, str]) -> bool:
    request = row.request
    interrupt_id = request.interrupt_id
    if request.state == "superseded":
        raise RequestSupersededError(f"{interrupt_id!r} is not pending any more: the program continued without it")
    if interrupt_id in seen and seen[interrupt_id] != row.shown:
        raise RequestSupersededError(f"{interrupt_id!r} has changed since it was displayed: review it again")
    if request.state == "waiting":
        return True
    if decision_json == encode_canonical_json(request.decision):
        return False
    raise create_already_decided_error(request)


def create_already_decided_error(request: StoredRequest) -> AlreadyDecidedError:
    """Return the error for a request that was decided before."""
    interrupt_id, who = request.interrupt_id, request.actor or "another actor"
    details = {"interrupt_id": interrupt_id, "actor": request.actor, "decision": request.decision}
    return AlreadyDecidedError(f"{interrupt_id!r} is not pending any more: {who} has decided it", details=details)


def _load_record_states_and_expiries(session: Session, record_ids: list[str]) -> dict[str, tuple[RecordState, int]]:
    statement = f"SELECT id, state, expires_at_ms FROM codemode_records WHERE id IN ({format_placeholders(record_ids)})"
    rows = session.fetch_all(statement, *record_ids) if record_ids else []
    return {row[0]: (cast("RecordState", row[1]), row[2]) for row in rows}


def write_decision_and_claim_record(
    session: Session, answers: Mapping[str, EncodedAnswer], by: Attribution, tenant: Tenant, owner: str
) -> Lease | RequestSupersededError | None:
    """Return a lease; None while another owner has one. Errors are returned, so that the transaction commits."""
    requests, _ = load_requests_and_tenants(session, list(answers), tenant)
    (row,) = requests.values()
    statement = "SELECT state, ready_at_ms FROM codemode_records WHERE id = ?"
    state, ready_at_ms = session.fetch_one(statement, row.record_id) or ("pending", None)
    if state == "resuming":
        if ready_at_ms is not None and ready_at_ms > session.now_ms:
            return None
        return leases.claim_record_or_restore_requests(session, row.record_id, owner, LEASE_MS)
    if state == "resting" and row.request.state in ("waiting", "decided"):
        raise StoreError(f"{row.record_id!r} is suspended: it has no pending request, and its owner continues it")
    compute_next_record_state_or_raise(state, "claim", row.record_id)
    if row.request.state == "applied":
        raise create_already_decided_error(row.request)
    try:
        write_decisions(session, answers, by, tenant, {})
    except UncheckedAnswerError:
        return None
    lease = leases.claim_record_or_restore_requests(session, row.record_id, owner, LEASE_MS)
    if lease is None and session.fetch_one(
        "SELECT 1 FROM codemode_requests WHERE interrupt_id = ? AND state = 'waiting'", *answers
    ):
        return RequestSupersededError(f"{next(iter(answers))!r} was not answered: {leases.CHANGED_REQUEST_REASON}")
    return lease
