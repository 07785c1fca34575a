"""Finds what is kept. Changes nothing."""

from __future__ import annotations

from typing import cast

from ..data.records import record as value
from .audit import BEGINNING, AuditLine, head_text, line_of
from .rows import LISTED_COLUMNS, RECORD_COLUMNS, clause, records_of, unknown
from .session import Session
from .states import RecordState
from .values import Change, Page, Record, Tenant

MOST_LISTED = 500
_CHANGES_AT_ONCE = 500
_COLUMNS = ", ".join(one if one == "NULL" else f"r.{one}" for one in [*LISTED_COLUMNS.split(", "), "position"])
# Of several requests of one record that wait for the same tool.
_FIRST_OF_TOOL = [
    "q.state = 'waiting'",
    (
        "NOT EXISTS (SELECT 1 FROM codemode_requests o WHERE o.record_id = q.record_id AND o.ordinal < q.ordinal"
        " AND o.tool_name = q.tool_name AND o.state = 'waiting')"
    ),
]
_LINES_AT_ONCE = 100


@value
class Filters:
    """What is listed beside the tenant's."""

    app: str | None
    tool: str | None
    state: RecordState | None


def interrupt(session: Session, interrupt_id: str, tenant: Tenant) -> str | None:
    """Return the text of the newest interrupt in which a request is pending."""
    condition, values = clause(tenant, "r.tenant")
    found = session.one(
        "SELECT r.interrupt FROM codemode_requests q JOIN codemode_records r ON r.id = q.record_id"
        f" WHERE q.interrupt_id = ? AND q.state IN ('waiting', 'decided'){condition}",
        *(interrupt_id, *values),
    )
    return None if found is None else found[0]


def record(session: Session, record_id: str, tenant: Tenant) -> Record:
    """Return a record. Raises `UnknownRequest`."""
    condition, values = clause(tenant)
    statement = f"SELECT {RECORD_COLUMNS} FROM codemode_records WHERE id = ?{condition}"
    found = records_of(session, session.rows(statement, record_id, *values))
    if not found:
        raise unknown(record_id)
    return found[0]


def outcome(session: Session, record_id: str, tenant: Tenant) -> tuple[RecordState, str | None]:
    """Return the state of a record, and the text of its outcome once it has ended. Raises `UnknownRequest`."""
    condition, values = clause(tenant)
    statement = f"SELECT state, outcome FROM codemode_records WHERE id = ?{condition}"
    found = session.one(statement, record_id, *values)
    if found is None:
        raise unknown(record_id)
    return cast("RecordState", found[0]), found[1]


def page(session: Session, tenant: Tenant, filters: Filters, before: int | None, limit: int) -> Page:
    """Return a page of records, with one statement for these and two for what belongs to them."""
    of, place, conditions = "codemode_records r", "r", []
    if filters.tool is not None:
        of, place, conditions = f"codemode_requests q JOIN {of} ON r.id = q.record_id", "q", _FIRST_OF_TOOL
    elif filters.state is None:
        conditions = ["r.state <> 'resting'"]  # as the index says it: these are listed on demand alone
    asked = {
        f"{place}.tenant = ?": next(iter(clause(tenant)[1]), None),
        f"{place}.app = ?": filters.app,
        "q.tool_name = ?": filters.tool,
        "r.state = ?": filters.state,
        f"{place}.position < ?": before,
    }
    given = {condition: one for condition, one in asked.items() if one is not None}
    rows = session.rows(
        f"SELECT {_COLUMNS} FROM {of} WHERE {' AND '.join([*given, *conditions])}"
        f" ORDER BY {place}.position DESC LIMIT ?",
        *(*given.values(), limit + 1),
    )
    records = records_of(session, [row[:-1] for row in rows[:limit]])
    return Page(records, str(rows[limit - 1][-1]) if len(rows) > limit else None)


def position_of(cursor: str | None) -> int | None:
    """Read the cursor of a page. Raises `ValueError` for one that no page has given."""
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise ValueError(f"after must be the next of a page, got {cursor!r}")
    return int(cursor)


def require_sequence(after: int) -> int:
    """Return a sequence that every database takes. Raises `ValueError`."""
    if not 0 <= after < 1 << 63:
        raise ValueError(f"after must be a sequence, got {after}")
    return after


def changes(session: Session, tenant: Tenant, after: int) -> list[Change]:
    """Return the next changes behind a sequence."""
    condition, values = clause(tenant)
    rows = session.rows(
        f"SELECT sequence, record_id, kind FROM codemode_changes WHERE sequence > ?{condition}"
        " ORDER BY sequence LIMIT ?",
        *(after, *values, _CHANGES_AT_ONCE),
    )
    return [Change(*row) for row in rows]


@value
class Lines:
    """Which lines of the audit: those behind ``after``, in the order of their numbers or against it."""

    tenant: Tenant
    record_id: str | None
    newest_first: bool


def lines(session: Session, which: Lines, after: int | None, limit: int | None) -> list[AuditLine]:
    """Return the next lines of the audit."""
    comparison, order = ("<", " DESC") if which.newest_first else (">", "")
    condition, values = clause(which.tenant)
    if which.record_id is not None:
        condition, values = f"{condition} AND record_id = ?", (*values, which.record_id)
    if after is not None:
        condition, values = f"{condition} AND sequence {comparison} ?", (*values, after)
    rows = session.rows(
        "SELECT sequence, tenant, record_id, previous, hash, body FROM codemode_audit"
        f" WHERE sequence > 0{condition} ORDER BY sequence{order} LIMIT ?",
        *(*values, _LINES_AT_ONCE if limit is None else min(limit, _LINES_AT_ONCE)),
    )
    return [line_of(*row) for row in rows]


def audit_head(session: Session) -> str:
    """Return the head of the audit's chain."""
    sequence, found = session.one("SELECT audit_sequence, audit_hash FROM codemode_store") or (0, BEGINNING)
    return head_text(sequence, found)
