"""End records (withdraw, close, expire, purge), and store suspended programs."""

from __future__ import annotations

import dataclasses
from typing import cast

from ..data.json_values import encode_canonical_json
from ..interrupts.interrupt import APPROVAL_KIND
from .audit import SYSTEM, Attribution, truncate_for_audit
from .errors import RecordExpiredError, StoreError
from .journal import delete_holds_and_unheld_content_of_records
from .leases import (
    claim_record_or_restore_requests,
    compute_lease_end_columns,
    end_record,
    end_records,
    get_state_if_owned,
    mark_records_lost,
)
from .record_writes import EncodedPause, insert_record, require_open_record_capacity
from .records import (
    LastResumed,
    Lease,
    RecordEvent,
    RecordState,
    Tenant,
    compute_next_record_state_or_raise,
    compute_next_request_state_or_raise,
)
from .rows import (
    RECORD_COLUMNS,
    create_id_not_found_error,
    create_tenant_clause,
    encode_record_end,
    format_placeholders,
    load_records,
)
from .transaction import Session, repair_after_clock_change

MAX_SWEPT_RECORDS = 500
"""The maximum number of records that one transaction of a sweep changes, to keep it short."""
_DENIAL_REASON = "no decision in time"
_DENIAL_JSON = encode_canonical_json({"approved": False, "reason": _DENIAL_REASON})


def withdraw_or_close_record(
    session: Session, record_id: str, event: RecordEvent, by: Attribution, tenant: Tenant
) -> None:
    """End a record on a person's decision."""
    condition, values = create_tenant_clause(tenant)
    row = session.fetch_one(
        f"SELECT tenant, state FROM codemode_records WHERE id = ?{condition}",
        *(record_id, *values),
    )
    if row is None:
        raise create_id_not_found_error(record_id)
    _supersede_requests(session, [record_id])
    outcome = encode_record_end("withdrawn" if event == "withdraw" else "lost", actor=by.actor, reason=by.reason)
    end_record(session, record_id, row[0], cast("RecordState", row[1]), event, outcome, by, {})


def get_interrupt_json_if_record_lost(session: Session, record_id: str, tenant: Tenant) -> str | None:
    """Return the last interrupt of a lost record as text; None for other states. Raises `UnknownRequestError`."""
    condition, values = create_tenant_clause(tenant)
    row = session.fetch_one(
        f"SELECT state, interrupt FROM codemode_records WHERE id = ?{condition}", record_id, *values
    )
    if row is None:
        raise create_id_not_found_error(record_id)
    return row[1] if row[0] == "lost" else None


def make_record_claimable(session: Session, record_id: str, by: Attribution, tenant: Tenant) -> None:
    """Make a record claimable from its last pause, with its decisions, on a person's decision."""
    condition, values = create_tenant_clause(tenant)
    statement = f"SELECT tenant, state, expires_at_ms, not_resumable FROM codemode_records WHERE id = ?{condition}"
    row = session.fetch_one(statement, record_id, *values)
    if row is None:
        raise create_id_not_found_error(record_id)
    owner_tenant, state, expires_at_ms, not_resumable = row
    next_state = compute_next_record_state_or_raise(cast("RecordState", state), "run again", record_id)
    if state == "pending" and not_resumable is None:
        raise StoreError(f"{record_id!r} is pending: it waits for decisions, and no resume has failed")
    if expires_at_ms <= session.now_ms:
        message = f"{record_id!r} cannot be run again: its last pause has expired"
        raise RecordExpiredError(message, details={"record_id": record_id, "state": state})
    session.run("UPDATE codemode_requests SET is_taken = 0 WHERE record_id = ?", record_id)
    session.run(
        "UPDATE codemode_records SET state = ?, ready_at_ms = ?, refusals = 0 WHERE id = ?",
        *(next_state, session.now_ms, record_id),
    )
    session.record_change(record_id, owner_tenant, "run_again")
    reason = truncate_for_audit(by.reason) or None
    session.add_audit_line(
        "run_again", owner_tenant, record_id, actor=by.actor, reason=reason, outcome=next_state, address=by.address
    )


def end_expired_and_deny_expiring_records(session: Session, deny_before_expiry_ms: int | None) -> int:
    """Mark at most `MAX_SWEPT_RECORDS` of each kind, and return how many were marked."""
    repair_after_clock_change(session)
    now_ms = session.now_ms
    expired = session.fetch_all(
        "SELECT id, tenant, state FROM codemode_records WHERE state IN ('pending', 'resting') AND expires_at_ms <= ?"
        " LIMIT ?",
        *(now_ms, MAX_SWEPT_RECORDS),
    )
    # The outcome of a dead owner stays unknown: the continuation has expired.
    started = _find_started_record_ids(session, [record_id for record_id, _, _ in expired])
    mark_records_lost(session, [row[:2] for row in expired if row[0] in started], "pending")
    unstarted = [row for row in expired if row[0] not in started]
    _supersede_requests(session, [record_id for record_id, _, _ in unstarted])
    end_records(session, unstarted, "expire", encode_record_end("expired"), Attribution(SYSTEM), {})
    lost = session.fetch_all(
        "SELECT id, tenant FROM codemode_records WHERE state = 'resuming' AND expires_at_ms <= ? AND ready_at_ms <= ?"
        " ORDER BY expires_at_ms LIMIT ?",
        *(now_ms, now_ms, MAX_SWEPT_RECORDS),
    )
    mark_records_lost(session, lost)
    denied = 0 if deny_before_expiry_ms is None else _deny_expiring_approvals(session, deny_before_expiry_ms)
    return len(expired) + len(lost) + denied


def purge_ended_record_batch(session: Session, older_than_ms: int) -> int:
    """Delete at most `MAX_SWEPT_RECORDS` records that ended before, and return how many."""
    rows = session.fetch_all(
        "SELECT id FROM codemode_records WHERE ended_at_ms <= ? ORDER BY ended_at_ms LIMIT ?",
        *(session.now_ms - older_than_ms, MAX_SWEPT_RECORDS),
    )
    if not rows:
        return 0
    delete_holds_and_unheld_content_of_records(session, rows)
    for table in ("requests", "labels", "versions", "changes", "notices"):
        session.execute_many(f"DELETE FROM codemode_{table} WHERE record_id = ?", rows)
    session.execute_many("DELETE FROM codemode_records WHERE id = ?", rows)
    return len(rows)


def purge_ended_record_batch_and_audit(session: Session, older_than_ms: int) -> int:
    """Purge on a person's request, with a line in the audit."""
    count = purge_ended_record_batch(session, older_than_ms)
    if count:
        session.add_audit_line("purged", None, details={"records": count, "older_than_ms": older_than_ms})
    return count


def _deny_expiring_approvals(session: Session, before_ms: int) -> int:
    now_ms = session.now_ms
    waiting = session.fetch_all(
        "SELECT q.interrupt_id, r.id, r.tenant, q.tool_name, q.shown, r.position, q.ordinal FROM codemode_records r"
        " JOIN codemode_requests q ON q.record_id = r.id"
        " WHERE r.state = 'pending' AND r.expires_at_ms <= ? AND q.state = 'waiting' AND q.kind = ?"
        " ORDER BY r.expires_at_ms LIMIT ?",
        *(now_ms + before_ms, APPROVAL_KIND, MAX_SWEPT_RECORDS),
    )
    waiting.sort(key=lambda row: row[5:])  # for a stable order: they may expire at the same time
    session.execute_many(
        "UPDATE codemode_requests SET state = ?, decision = ?, actor = ?, decided_at_ms = ? WHERE interrupt_id = ?",
        (
            (compute_next_request_state_or_raise("waiting", "decide"), _DENIAL_JSON, SYSTEM, now_ms, interrupt_id)
            for interrupt_id, *_ in waiting
        ),
    )
    records = sorted({(record_id, tenant) for _, record_id, tenant, *_ in waiting})
    session.execute_many(
        "UPDATE codemode_records SET ready_at_ms = ? WHERE id = ? AND ready_at_ms IS NULL",
        ((now_ms, record_id) for record_id, _ in records),
    )
    for record_id, tenant in records:
        session.record_change(record_id, tenant, "decided")
    decision_fields = {"actor": SYSTEM, "decision": "denied", "reason": _DENIAL_REASON}
    for interrupt_id, record_id, tenant, tool_name, shown, *_ in waiting:
        fields = {"interrupt_id": interrupt_id, "tool_name": truncate_for_audit(tool_name), "shown": shown}
        session.add_audit_line("decided", tenant, record_id, **fields, **decision_fields)
    return len(waiting)


def _find_started_record_ids(session: Session, record_ids: list[str]) -> set[str]:
    """Return the records with claimed answers and no outcome."""
    statement = (
        "SELECT DISTINCT record_id FROM codemode_requests"
        f" WHERE is_taken = 1 AND record_id IN ({format_placeholders(record_ids)})"
    )
    return {row[0] for row in session.fetch_all(statement, *record_ids)} if record_ids else set()


def _supersede_requests(session: Session, record_ids: list[str]) -> None:
    """Supersede the open requests of these records."""
    superseded = compute_next_request_state_or_raise("waiting", "supersede")
    session.execute_many(
        "UPDATE codemode_requests SET state = ?, is_taken = 0 WHERE record_id = ? AND state IN ('waiting', 'decided')",
        ((superseded, record_id) for record_id in record_ids),
    )


# Suspended records do not wait for decisions, and resumers do not find them.


def create_suspended_record_with_lease(
    session: Session, new: EncodedPause, owner: str, lease_ms: int, max_open: int | None = None
) -> Lease:
    """Store a suspended program as a new record. Raises `StoreFullError`."""
    require_open_record_capacity(session, new.tenant, max_open)
    _, until_ms = compute_lease_end_columns(session, "resting", lease_ms)
    lease_columns = {"owner": owner, "claim": 1, "rests_until_ms": until_ms}
    record_id = insert_record(session, new, "rested", version=0, state="resting", **lease_columns)
    (record,) = load_records(session, session.fetch_all(_SELECT_RECORD, record_id))
    return Lease(
        record=record,
        number=1,
        owner=owner,
        lease_ms=lease_ms,
        is_takeover=False,
        interrupt=new.interrupt,
        resolutions={},
    )


def update_suspended_record_and_renew(session: Session, lease: Lease, new: EncodedPause) -> Lease | None:
    """Replace the state of a suspended program and renew its lease; None if the lease is lost."""
    state, record_id = get_state_if_owned(session, lease), lease.record.id
    if state is None:
        return None
    next_state = compute_next_record_state_or_raise(state, "rest", record_id)
    # Unclaimed decisions stay for the next time the program asks.
    session.run(
        "UPDATE codemode_requests SET state = ?, is_taken = 0 WHERE record_id = ? AND is_taken = 1",
        *(compute_next_request_state_or_raise("decided", "apply"), record_id),
    )
    session.run(
        "UPDATE codemode_records SET state = ?, interrupt = ?, expires_at_ms = ?, payload = COALESCE(?, payload),"
        " ready_at_ms = ?, rests_until_ms = ?, not_resumable = NULL, refusals = 0 WHERE id = ?",
        *(
            next_state,
            new.interrupt_json,
            new.expires_at_ms,
            new.payload,
            *compute_lease_end_columns(session, next_state, lease.lease_ms),
            record_id,
        ),
    )
    if next_state != state:
        session.record_change(record_id, lease.record.tenant, "rested")
    (record,) = load_records(session, session.fetch_all(_SELECT_RECORD, record_id))
    last_resumed = LastResumed(lease.owner, session.now_ms)
    return dataclasses.replace(
        lease, record=record, interrupt=new.interrupt, resolutions={}, resumed_before=last_resumed
    )


def claim_record_if_claimable(
    session: Session, record_id: str, owner: str, tenant: Tenant, lease_ms: int
) -> Lease | None:
    """Claim a record by its id; None while it waits for a person or is leased.

    Raises `UnknownRequestError`, or the error that says how it ended.
    """
    if not is_record_claimable_or_raise(session, record_id, tenant):
        return None
    return claim_record_or_restore_requests(session, record_id, owner, lease_ms)


def is_record_claimable_or_raise(session: Session, record_id: str, tenant: Tenant) -> bool:
    """Return whether a record can be claimed now. Raises as `claim_record_if_claimable` does."""
    condition, values = create_tenant_clause(tenant)
    statement = (
        f"SELECT state, ready_at_ms, rests_until_ms, expires_at_ms FROM codemode_records WHERE id = ?{condition}"
    )
    row = session.fetch_one(statement, record_id, *values)
    if row is None:
        raise create_id_not_found_error(record_id)
    state, ready_at_ms, rests_until_ms, expires_at_ms = cast("RecordState", row[0]), *row[1:]
    is_expired = expires_at_ms <= session.now_ms
    compute_next_record_state_or_raise(
        "expired" if is_expired and state in ("pending", "resting") else state, "claim", record_id
    )
    claimable_from_ms = rests_until_ms if state == "resting" else ready_at_ms
    return not is_expired and claimable_from_ms is not None and claimable_from_ms <= session.now_ms


_SELECT_RECORD = f"SELECT {RECORD_COLUMNS} FROM codemode_records WHERE id = ?"
