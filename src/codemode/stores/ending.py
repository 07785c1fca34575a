"""Ends of records that no program comes to: withdrawn, closed, expired, purged."""

from __future__ import annotations

from typing import cast

from ..data.json_values import canonical_json
from ..interrupts.interrupt import APPROVAL_KIND
from .audit import SYSTEM, By, cut
from .content import purge_of_records
from .errors import RecordExpired, StoreError
from .leasing import end, end_all, mark_lost
from .outcomes import end_text
from .rows import clause, marks, unknown
from .session import Session
from .set_back import bring_home
from .states import RecordEvent, RecordState, record_after, request_after
from .values import Tenant

AT_ONCE = 500
"""How many records one transaction of a sweep takes: nobody else waits longer than for these."""
_TOO_LATE = "nobody has decided in time"
_DENIED = canonical_json({"approved": False, "reason": _TOO_LATE})


def end_by(session: Session, record_id: str, event: RecordEvent, by: By, tenant: Tenant) -> None:
    """End a record because somebody said so."""
    condition, values = clause(tenant)
    found = session.one(
        f"SELECT tenant, state FROM codemode_records WHERE id = ?{condition}",
        *(record_id, *values),
    )
    if found is None:
        raise unknown(record_id)
    _leave(session, [record_id])
    outcome = end_text("withdrawn" if event == "withdraw" else "lost", actor=by.actor, reason=by.reason)
    end(session, record_id, found[0], cast("RecordState", found[1]), event, outcome, by, {})


def lost_interrupt(session: Session, record_id: str, tenant: Tenant) -> str | None:
    """Return the text of what a lost record paused in; None for one that is not lost. Raises `UnknownRequest`."""
    condition, values = clause(tenant)
    found = session.one(f"SELECT state, interrupt FROM codemode_records WHERE id = ?{condition}", record_id, *values)
    if found is None:
        raise unknown(record_id)
    return found[1] if found[0] == "lost" else None


def run_again(session: Session, record_id: str, by: By, tenant: Tenant) -> None:
    """Let a record go on from its last pause, with the answers that it has, because somebody said so."""
    condition, values = clause(tenant)
    statement = f"SELECT tenant, state, expires_at_ms, not_resumable FROM codemode_records WHERE id = ?{condition}"
    found = session.one(statement, record_id, *values)
    if found is None:
        raise unknown(record_id)
    whose, state, expires_at_ms, not_resumable = found
    after = record_after(cast("RecordState", state), "run again", record_id)
    if state == "pending" and not_resumable is None:
        raise StoreError(f"{record_id!r} is pending: it waits for answers, and has not been run in vain")
    if expires_at_ms <= session.now_ms:
        said = f"{record_id!r} cannot be run again: what it goes on from has expired"
        raise RecordExpired(said, details={"record_id": record_id, "state": state})
    session.run("UPDATE codemode_requests SET is_taken = 0 WHERE record_id = ?", record_id)
    session.run(
        "UPDATE codemode_records SET state = ?, ready_at_ms = ?, refusals = 0 WHERE id = ?",
        *(after, session.now_ms, record_id),
    )
    session.note(record_id, whose, "run_again")
    reason = cut(by.reason) or None
    session.audit("run_again", whose, record_id, actor=by.actor, reason=reason, outcome=after, address=by.address)


def sweep(session: Session, deny_before_expiry_ms: int | None) -> int:
    """Mark at most `AT_ONCE` of each kind, and return how many were marked."""
    bring_home(session)
    now_ms = session.now_ms
    expired = session.rows(
        "SELECT id, tenant, state FROM codemode_records WHERE state IN ('pending', 'resting') AND expires_at_ms <= ?"
        " LIMIT ?",
        *(now_ms, AT_ONCE),
    )
    # What a dead owner has done can no longer be asked: the continuation does not hold any more.
    begun = _begun(session, [record_id for record_id, _, _ in expired])
    mark_lost(session, [row[:2] for row in expired if row[0] in begun], "pending")
    over = [row for row in expired if row[0] not in begun]
    _leave(session, [record_id for record_id, _, _ in over])
    end_all(session, over, "expire", end_text("expired"), By(SYSTEM), {})
    lost = session.rows(
        "SELECT id, tenant FROM codemode_records WHERE state = 'resuming' AND expires_at_ms <= ? AND ready_at_ms <= ?"
        " ORDER BY expires_at_ms LIMIT ?",
        *(now_ms, now_ms, AT_ONCE),
    )
    mark_lost(session, lost)
    denied = 0 if deny_before_expiry_ms is None else _deny(session, deny_before_expiry_ms)
    return len(expired) + len(lost) + denied


def purge(session: Session, older_than_ms: int) -> int:
    """Delete at most `AT_ONCE` records that ended before, and return how many."""
    found = session.rows(
        "SELECT id FROM codemode_records WHERE ended_at_ms <= ? ORDER BY ended_at_ms LIMIT ?",
        *(session.now_ms - older_than_ms, AT_ONCE),
    )
    if not found:
        return 0
    purge_of_records(session, found)
    for table in ("requests", "labels", "versions", "changes", "notices"):
        session.each(f"DELETE FROM codemode_{table} WHERE record_id = ?", found)
    session.each("DELETE FROM codemode_records WHERE id = ?", found)
    return len(found)


def purge_by_hand(session: Session, older_than_ms: int) -> int:
    """Do so because somebody said so: which records there were is known from the audit alone from here on."""
    count = purge(session, older_than_ms)
    if count:
        session.audit("purged", None, details={"records": count, "older_than_ms": older_than_ms})
    return count


def _deny(session: Session, before_ms: int) -> int:
    now_ms = session.now_ms
    waiting = session.rows(
        "SELECT q.interrupt_id, r.id, r.tenant, q.tool_name, q.shown, r.position, q.ordinal FROM codemode_records r"
        " JOIN codemode_requests q ON q.record_id = r.id"
        " WHERE r.state = 'pending' AND r.expires_at_ms <= ? AND q.state = 'waiting' AND q.kind = ?"
        " ORDER BY r.expires_at_ms LIMIT ?",
        *(now_ms + before_ms, APPROVAL_KIND, AT_ONCE),
    )
    waiting.sort(key=lambda row: row[5:])  # they may expire at the same time
    session.each(
        "UPDATE codemode_requests SET state = ?, decision = ?, actor = ?, decided_at_ms = ? WHERE interrupt_id = ?",
        ((request_after("waiting", "decide"), _DENIED, SYSTEM, now_ms, one) for one, *_ in waiting),
    )
    records = sorted({(record_id, tenant) for _, record_id, tenant, *_ in waiting})
    session.each(
        "UPDATE codemode_records SET ready_at_ms = ? WHERE id = ? AND ready_at_ms IS NULL",
        ((now_ms, record_id) for record_id, _ in records),
    )
    for record_id, tenant in records:
        session.note(record_id, tenant, "decided")
    denied = {"actor": SYSTEM, "decision": "denied", "reason": _TOO_LATE}
    for interrupt_id, record_id, tenant, tool_name, shown, *_ in waiting:
        about = {"interrupt_id": interrupt_id, "tool_name": cut(tool_name), "shown": shown}
        session.audit("decided", tenant, record_id, **about, **denied)
    return len(waiting)


def _begun(session: Session, record_ids: list[str]) -> set[str]:
    """Return those of which somebody has taken the answers and not come to an end."""
    statement = (
        f"SELECT DISTINCT record_id FROM codemode_requests WHERE is_taken = 1 AND record_id IN ({marks(record_ids)})"
    )
    return {row[0] for row in session.rows(statement, *record_ids)} if record_ids else set()


def _leave(session: Session, record_ids: list[str]) -> None:
    """No request of these is answered any more."""
    gone = request_after("waiting", "supersede")
    session.each(
        "UPDATE codemode_requests SET state = ?, is_taken = 0 WHERE record_id = ? AND state IN ('waiting', 'decided')",
        ((gone, record_id) for record_id in record_ids),
    )
