"""Finds what is kept. Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from typing import cast

from ..data.records import record as value
from .audit import BEGINNING, AuditLine, head_text, line_of
from .rows import RECORD_COLUMNS, clause, records_of, unknown
from .session import Row, Session
from .states import RecordState
from .values import Change, LastResumed, Record, Tenant, Tenants

_CHANGES_AT_ONCE = 500
_LINES_AT_ONCE = 100


def interrupt(session: Session, interrupt_id: str, tenant: Tenant) -> str | None:
    """Return the text of the newest interrupt in which a request is pending."""
    condition, values = clause(tenant, "r.tenant")
    found = session.one(
        "SELECT r.interrupt FROM codemode_requests q JOIN codemode_records r ON r.id = q.record_id"
        f" WHERE q.interrupt_id = ? AND q.state IN ('waiting', 'decided'){condition}",
        *(interrupt_id, *values),
    )
    return None if found is None else found[0]


def last_interrupt(session: Session, record_id: str, tenant: Tenant) -> str | None:
    """Return the text of the newest interrupt of a record, also of one that has ended. Raises `UnknownRequest`."""
    condition, values = clause(tenant)
    found = session.one(f"SELECT interrupt FROM codemode_records WHERE id = ?{condition}", record_id, *values)
    if found is None:
        raise unknown(record_id)
    return found[0]


def record(session: Session, record_id: str, tenant: Tenant) -> Record:
    """Return a record. Raises `UnknownRequest`."""
    condition, values = clause(tenant)
    statement = f"SELECT {RECORD_COLUMNS} FROM codemode_records WHERE id = ?{condition}"
    found = records_of(session, session.rows(statement, record_id, *values))
    if not found:
        raise unknown(record_id)
    return found[0]


def last_resumed(session: Session, tenant: str, app: str) -> LastResumed | None:
    """Return who has last claimed a record of a tenant's app and could resume it, or still tries."""
    found = session.one(
        "SELECT resumed_by, resumed_at_ms FROM codemode_records WHERE tenant = ? AND app = ?"
        " AND resumed_at_ms IS NOT NULL ORDER BY resumed_at_ms DESC LIMIT 1",
        *(tenant, app),
    )
    return None if found is None else LastResumed(*found)


def outcome(session: Session, record_id: str, tenant: Tenant) -> tuple[RecordState, str | None, str | None]:
    """Return a record's state, its outcome's text once it has ended, and why no host could resume it.

    Raises `UnknownRequest`.
    """
    condition, values = clause(tenant)
    statement = f"SELECT state, outcome, not_resumable FROM codemode_records WHERE id = ?{condition}"
    found = session.one(statement, record_id, *values)
    if found is None:
        raise unknown(record_id)
    state, text, unfit = found
    return cast("RecordState", state), text, None if unfit is None else json.loads(unfit)


def require_sequence(after: int) -> int:
    """Return a sequence that every database takes. Raises `ValueError`."""
    if not 0 <= after < 1 << 63:
        raise ValueError(f"after must be a sequence, got {after}")
    return after


def changes(session: Session, tenant: Tenant, after: int) -> list[Change]:
    """Return the next changes behind a sequence."""
    condition, values = clause(tenant)
    rows = session.rows(
        f"SELECT sequence, record_id, kind, tenant FROM codemode_changes WHERE sequence > ?{condition}"
        " ORDER BY sequence LIMIT ?",
        *(after, *values, _CHANGES_AT_ONCE),
    )
    return [Change(*row) for row in rows]


def changes_head(session: Session) -> int:
    """Return the sequence of the last change."""
    return (session.one("SELECT sequence FROM codemode_store") or (0,))[0]


@value
class Lines:
    """Which lines of the audit: those behind ``after``, in the order of their numbers or against it."""

    tenant: Tenants
    record_id: str | None
    newest_first: bool


def lines(session: Session, which: Lines, after: int | None, limit: int | None) -> list[AuditLine]:
    """Return the next lines of the audit; of several tenants by one list for each, cut at the same length."""
    count = _LINES_AT_ONCE if limit is None else min(limit, _LINES_AT_ONCE)
    several = sorted(which.tenant) if isinstance(which.tenant, AbstractSet) else [which.tenant]
    branches = [_branch(which, tenant, after, count) for tenant in several]
    if len(branches) == 1:
        ((statement, values),) = branches
        return [line_of(*row) for row in session.rows(statement, *values)]
    if not branches:
        return []
    lists = " UNION ALL ".join(f"SELECT * FROM ({one}) AS of_{number}" for number, (one, _) in enumerate(branches))
    order = " DESC" if which.newest_first else ""
    given = [value for _, values in branches for value in values]
    rows = session.rows(f"{lists} ORDER BY sequence{order} LIMIT ?", *given, count)
    return [line_of(*row) for row in rows]


def _branch(which: Lines, tenant: Tenant, after: int | None, count: int) -> tuple[str, Row]:
    comparison, order = ("<", " DESC") if which.newest_first else (">", "")
    condition, values = clause(tenant)
    if which.record_id is not None:
        condition, values = f"{condition} AND record_id = ?", (*values, which.record_id)
    if after is not None:
        condition, values = f"{condition} AND sequence {comparison} ?", (*values, after)
    statement = (
        "SELECT sequence, tenant, record_id, previous, hash, body FROM codemode_audit"
        f" WHERE sequence > 0{condition} ORDER BY sequence{order} LIMIT ?"
    )
    return statement, (*values, count)


def audit_head(session: Session) -> str:
    """Return the head of the audit's chain."""
    sequence, found = session.one("SELECT audit_sequence, audit_hash FROM codemode_store") or (0, BEGINNING)
    return head_text(sequence, found)
