"""End records (withdraw, close, expire, purge), and keep suspended programs."""

from __future__ import annotations

import dataclasses
from typing import cast

from ..data.json_values import canonical_json
from ..interrupts.interrupt import APPROVAL_KIND
from .audit import SYSTEM, By, cut
from .errors import RecordExpiredError, StoreError
from .journal import purge_of_records
from .leases import claim, end, end_all, held_until, mark_lost, owned
from .record_writes import Kept, insert_record, require_room
from .records import LastResumed, Lease, RecordEvent, RecordState, Tenant, record_after, request_after
from .rows import RECORD_COLUMNS, clause, end_text, marks, records_of, unknown
from .transaction import Session, bring_home

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
    """Return the text of what a lost record paused in; None for one that is not lost. Raises `UnknownRequestError`."""
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
        raise RecordExpiredError(said, details={"record_id": record_id, "state": state})
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


# They have no place among what waits for decisions, and nobody finds them who looks for something to resume.


def begin(session: Session, new: Kept, owner: str, lease_ms: int, most: int | None = None) -> Lease:
    """Keep the first rest of a program, as a record of its own. Raises `StoreFullError` as `keeping.put` does."""
    require_room(session, new.tenant, most)
    _, until_ms = held_until(session, "resting", lease_ms)
    held = {"owner": owner, "claim": 1, "rests_until_ms": until_ms}
    record_id = insert_record(session, new, "rested", version=0, state="resting", **held)
    (record,) = records_of(session, session.rows(_RECORD, record_id))
    return Lease(
        record=record,
        number=1,
        owner=owner,
        lease_ms=lease_ms,
        is_takeover=False,
        interrupt=new.interrupt,
        resolutions={},
    )


def rest(session: Session, lease: Lease, new: Kept) -> Lease | None:
    """Keep the next rest of a program, unless the lease is somebody else's by now: the lease begins anew."""
    state, record_id = owned(session, lease), lease.record.id
    if state is None:
        return None
    after = record_after(state, "rest", record_id)
    # What was not taken stays decided: it is for when the program asks again.
    session.run(
        "UPDATE codemode_requests SET state = ?, is_taken = 0 WHERE record_id = ? AND is_taken = 1",
        *(request_after("decided", "apply"), record_id),
    )
    session.run(
        "UPDATE codemode_records SET state = ?, interrupt = ?, expires_at_ms = ?, payload = COALESCE(?, payload),"
        " ready_at_ms = ?, rests_until_ms = ?, not_resumable = NULL, refusals = 0 WHERE id = ?",
        *(after, new.text, new.expires_at_ms, new.payload, *held_until(session, after, lease.lease_ms), record_id),
    )
    if after != state:
        session.note(record_id, lease.record.tenant, "rested")
    (record,) = records_of(session, session.rows(_RECORD, record_id))
    resumed = LastResumed(lease.owner, session.now_ms)
    return dataclasses.replace(lease, record=record, interrupt=new.interrupt, resolutions={}, resumed_before=resumed)


def take(session: Session, record_id: str, owner: str, tenant: Tenant, lease_ms: int) -> Lease | None:
    """Take a record by its id; None while it waits for somebody, or somebody else has it.

    Raises `UnknownRequestError`, and what tells how it has ended.
    """
    if not is_free(session, record_id, tenant):
        return None
    return claim(session, record_id, owner, lease_ms)


def is_free(session: Session, record_id: str, tenant: Tenant) -> bool:
    """Tell whether a record can be taken now. Raises as `take` does."""
    condition, values = clause(tenant)
    statement = (
        f"SELECT state, ready_at_ms, rests_until_ms, expires_at_ms FROM codemode_records WHERE id = ?{condition}"
    )
    found = session.one(statement, record_id, *values)
    if found is None:
        raise unknown(record_id)
    state, ready_at_ms, rests_until_ms, expires_at_ms = cast("RecordState", found[0]), *found[1:]
    is_over = expires_at_ms <= session.now_ms
    record_after("expired" if is_over and state in ("pending", "resting") else state, "claim", record_id)
    from_ms = rests_until_ms if state == "resting" else ready_at_ms
    return not is_over and from_ms is not None and from_ms <= session.now_ms


_RECORD = f"SELECT {RECORD_COLUMNS} FROM codemode_records WHERE id = ?"
