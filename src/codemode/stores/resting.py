"""Programs that wait for no person: kept at each rest, held by whoever goes on with them, taken over by their id.

They have no place among what waits for decisions, and nobody finds them who looks for something to resume.
"""

from __future__ import annotations

import dataclasses
from typing import cast

from .keeping import Kept, insert_record, require_room
from .leasing import claim, held_until, owned
from .rows import RECORD_COLUMNS, clause, records_of, unknown
from .session import Session
from .states import RecordState, record_after, request_after
from .values import LastResumed, Lease, Tenant


def begin(session: Session, new: Kept, owner: str, lease_ms: int, most: int | None = None) -> Lease:
    """Keep the first rest of a program, as a record of its own. Raises `StoreFull` as `keeping.put` does."""
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

    Raises `UnknownRequest`, and what tells how it has ended.
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
