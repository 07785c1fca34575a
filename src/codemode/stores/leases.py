"""Leases of records: claimed, renewed, given back, or settled with an outcome."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..data.content import split_content
from ..data.json_values import encode_json
from ..errors import CodeModeError, CodeModeSerializationError, Resumable
from ..interrupts.interrupt import Interrupt, PendingRequest, same_json
from ..records import record as value
from .answers import asked, shown
from .audit import MOST_IN_LINE, SYSTEM, By, content_digest, cut
from .record_writes import Kept, again, pause
from .records import (
    OWNED,
    LastResumed,
    Lease,
    RecordEvent,
    RecordState,
    StoredPause,
    Tenant,
    record_after,
    request_after,
)
from .rows import RECORD_COLUMNS, KeptRequest, clause, error_text, interrupt_of, records_of, requests_of, value_text
from .transaction import Row, Session

_MOST_HOST_CHARACTERS = 100


def new_owner() -> str:
    """Return the name of one that claims: its host, its process, and random digits."""
    return f"{socket.gethostname()[:_MOST_HOST_CHARACTERS]} process {os.getpid()} {secrets.token_hex(8)}"


_AGAIN_MS = 5_000
_FIRST_RETRY_MS, _LAST_RETRY_MS = 5_000, 600_000
_CLAIM_COLUMNS = f"{RECORD_COLUMNS}, interrupt, claim, resumed_by, resumed_at_ms"
CHANGED = (
    "the request was changed in the database before it was decided: it did not show what the program asks. It shows"
    " that again now, and needs another decision"
)


def candidate(session: Session, tenant: Tenant, app: str | None) -> str | None:
    """Return the id of a record that can be claimed: of those that are ready, the one that has waited longest."""
    condition, values = clause(tenant)
    if app is not None:
        condition, values = f"{condition} AND app = ?", (*values, app)
    found = session.one(
        "SELECT id FROM codemode_records WHERE ready_at_ms <= ? AND expires_at_ms > ?"
        f"{condition} ORDER BY ready_at_ms LIMIT 1",
        *(session.now_ms, session.now_ms, *values),
    )
    return None if found is None else found[0]


def claim(session: Session, record_id: str, owner: str, lease_ms: int) -> Lease | None:
    """Take a record that is ready, with all its answers; where somebody may have begun with some, with those alone.

    None: a decided request does not show what its interrupt asks, and its answer was refused.
    """
    row = session.one(f"SELECT {_CLAIM_COLUMNS} FROM codemode_records WHERE id = ?", record_id)
    if row is None:
        raise LookupError(record_id)
    *kept_columns, text, claims, resumed_by, resumed_at_ms = row
    state, number = cast("RecordState", row[2]), claims + 1
    after = record_after(state, "claim", record_id)
    kept = requests_of(session, [record_id])
    is_takeover = state in OWNED or any(one.is_taken for one in kept)
    decided = [one for one in kept if one.request.state == "decided" and (one.is_taken or not is_takeover)]
    interrupt = interrupt_of(text)
    if changed := _changed_requests(decided, interrupt):
        _refuse_changed(session, row, changed)
        return None
    taken = [one.request for one in decided]
    session.each(
        "UPDATE codemode_requests SET is_taken = 1 WHERE interrupt_id = ?", ((one.interrupt_id,) for one in taken)
    )
    session.run(
        "UPDATE codemode_records SET state = ?, owner = ?, claim = ?, ready_at_ms = ?, rests_until_ms = ?,"
        " resumed_by = ?, resumed_at_ms = ? WHERE id = ?",
        *(after, owner, number, *held_until(session, after, lease_ms), owner, session.now_ms, record_id),
    )
    session.note(record_id, row[4], "claimed")
    (record,) = records_of(session, [(*kept_columns[:2], after, *kept_columns[3:])])
    return Lease(
        record=record,
        number=number,
        owner=owner,
        lease_ms=lease_ms,
        is_takeover=is_takeover,
        interrupt=interrupt,
        resolutions={one.interrupt_id: one.decision for one in taken},
        resumed_before=None if resumed_at_ms is None else LastResumed(resumed_by, resumed_at_ms),
    )


def _changed_requests(decided: Sequence[KeptRequest], interrupt: Interrupt) -> list[tuple[KeptRequest, PendingRequest]]:
    """Return the requests whose rows differ from what the interrupt asks, which is what would run.

    Whoever resumes compares the interrupt with its signed continuation.
    """
    asked_now = {one.interrupt_id: one for one in interrupt.requests}
    pairs = ((one, asked_now.get(one.request.interrupt_id)) for one in decided)
    return [(one, pending) for one, pending in pairs if pending is not None and _is_changed(one, pending)]


def _is_changed(kept: KeptRequest, pending: PendingRequest) -> bool:
    request, (kind, given) = kept.request, asked(pending)
    is_same = (request.kind, request.tool_name) == (kind, pending.tool_name) and same_json(request.input, given)
    is_same = is_same and same_json(request.payload, dict(pending.payload)) and kept.shown == shown(pending)
    place = None if request.line is None or request.column is None else (request.line, request.column)
    return not is_same or place not in (None, pending.place)


def _refuse_changed(session: Session, row: Row, changed: list[tuple[KeptRequest, PendingRequest]]) -> None:
    """Show again what the program asks, and have it decided anew.

    Of a takeover too: where somebody has begun with the answers, the guard knows, and refuses other ones.
    """
    record_id, state, tenant = row[0], cast("RecordState", row[2]), row[4]
    for kept, pending in changed:
        kind, given = asked(pending)
        session.run(
            "UPDATE codemode_requests SET kind = ?, tool_name = ?, input = ?, payload = ?, shown = ?, at_line = ?,"
            " at_column = ?, refusal = ?, state = ?, is_taken = 0, decision = NULL, actor = NULL, decided_at_ms = NULL"
            " WHERE interrupt_id = ?",
            *(kind, pending.tool_name, json.dumps(given), json.dumps(dict(pending.payload)), shown(pending)),
            *(pending.line, pending.column, _text(CHANGED), request_after("decided", "refuse"), pending.interrupt_id),
        )
        session.audit(
            "refused",
            tenant,
            record_id,
            interrupt_id=pending.interrupt_id,
            tool_name=cut(pending.tool_name),
            reason=cut(CHANGED),
            shown=kept.shown,
            details={"decided_by": kept.request.actor},
        )
    session.run("UPDATE codemode_requests SET is_taken = 0 WHERE record_id = ?", record_id)
    is_ready = session.one("SELECT 1 FROM codemode_requests WHERE record_id = ? AND state = 'decided'", record_id)
    after = state if state == "pending" else record_after(state, "release")
    session.run(
        "UPDATE codemode_records SET state = ?, owner = NULL, ready_at_ms = ?, claim = claim + 1 WHERE id = ?",
        *(after, None if is_ready is None or after != "pending" else session.now_ms, record_id),
    )
    session.note(record_id, tenant, "released")


def held_until(session: Session, state: RecordState, lease_ms: int) -> tuple[int | None, int | None]:
    """Return until when nobody else takes a record, as ``ready_at_ms`` and ``rests_until_ms``.

    Two columns: what rests is never found by those that look for something to resume.
    """
    until = session.now_ms + lease_ms
    return (None, until) if state == "resting" else (until, None)


def renew(session: Session, lease: Lease) -> bool:
    """Let a lease begin anew."""
    state = owned(session, lease)
    if state is None:
        return False
    statement = "UPDATE codemode_records SET ready_at_ms = ?, rests_until_ms = ? WHERE id = ? AND claim = ?"
    session.run(statement, *held_until(session, state, lease.lease_ms), lease.record.id, lease.number)
    return True


@value
class Ended:
    """The end that a program has come to; ``said`` is what the audit has of it."""

    event: RecordEvent
    text: str
    said: Mapping[str, Any]


def result_of(result: Any, tool: Any = None) -> Kept | Ended:
    """Write what a resume has come to, before there is a transaction."""
    paused = result.recovery if isinstance(result, CodeModeError) else result
    if isinstance(result, CodeModeError) and paused is None:
        return _failed(result)
    if isinstance(result, StoredPause):
        return again(result, result.tool or tool, result.payload, result.source)
    if isinstance(result, CodeModeError | Interrupt):
        return again(Interrupt.of(cast("Resumable", paused)), tool)
    try:
        text = value_text(split_content(result)[0])  # what is no JSON stays with the program's content
    except CodeModeSerializationError as error:
        return _failed(error)  # of a `resume` that gives back what is no JSON
    return Ended("complete", text, {"digest": content_digest(json.loads(text)["value"])})


def _failed(error: CodeModeError) -> Ended:
    # Its message may be anything that a program or a tool says.
    return Ended("fail", error_text(error), {"details": {"error": type(error).__name__, "code": cut(error.code)}})


def settle(session: Session, lease: Lease, written: Kept | Ended) -> bool:
    """Write it, unless the lease is somebody else's by now. The pause that was resumed itself: nothing was run."""
    state = owned(session, lease)
    if state is None:
        return False
    if isinstance(written, Kept):
        if session.one("SELECT 1 FROM codemode_versions WHERE nonce = ?", written.nonce):
            return release(session, lease, Back({}, _AGAIN_MS, None, written.waits_for_all))
        pause(session, lease.record.id, state, written)
    else:
        _apply(session, lease)
        applied = {"applied": list(lease.resolutions)[:MOST_IN_LINE]}
        said = {**written.said, "details": {**written.said.get("details", {}), **applied}}
        end(session, lease.record.id, lease.record.tenant, state, written.event, written.text, By(None), said)
    return True


def lose(session: Session, lease: Lease) -> bool:
    """Mark a record as lost, unless the lease is somebody else's by now."""
    state = owned(session, lease)
    if state is None:
        return False
    mark_lost(session, [(lease.record.id, lease.record.tenant)], state)
    return True


def mark_lost(session: Session, records: list[Row], state: RecordState = "resuming") -> None:
    """Mark claimed records as lost."""
    after = record_after(state, "lose")
    statement = (
        "UPDATE codemode_records SET state = ?, owner = NULL, ready_at_ms = NULL, rests_until_ms = NULL,"
        " claim = claim + 1 WHERE id = ?"
    )
    session.each(statement, ((after, record_id) for record_id, _ in records))
    for record_id, tenant in records:
        session.note(record_id, tenant, "lost")
        session.audit("lost", tenant, record_id, actor=SYSTEM, outcome=after)


@value
class Back:
    """With what a record is given back: why some answers wait again, for how long, why it cannot be resumed there.

    ``waits_for_all``: answers were missing, so that nobody can have begun, and it is ready with the next one.
    """

    refusals: Mapping[str, str]
    delay_ms: int
    not_resumable: str | None
    waits_for_all: bool = False


def release(session: Session, lease: Lease, back: Back) -> bool:
    """Give a record back, unless the lease is somebody else's by now.

    The answers of a takeover stay as they are: who came before may have begun, and the guard has that under them alone.
    """
    state = owned(session, lease)
    if state is None:
        return False
    delay_ms = max(0 if back.waits_for_all else back.delay_ms, _refused(session, lease, back.not_resumable))
    refused = frozenset[str]() if lease.is_takeover else back.refusals.keys() & lease.resolutions.keys()
    session.each(
        "UPDATE codemode_requests SET state = ?, decision = NULL, actor = NULL, decided_at_ms = NULL, refusal = ?"
        " WHERE interrupt_id = ?",
        ((request_after("decided", "refuse"), _text(back.refusals[one]), one) for one in sorted(refused)),
    )
    left = requests_of(session, [lease.record.id])
    if back.waits_for_all or not lease.is_takeover:
        session.run("UPDATE codemode_requests SET is_taken = 0 WHERE record_id = ?", lease.record.id)
    for one in left:
        if one.request.interrupt_id in refused:
            _audit_refusal(session, lease, one)
    decided = [one for one in left if one.request.state == "decided"]
    # What was decided meanwhile is nobody's yet.
    is_new = any(not one.is_taken for one in decided)
    is_ready = is_new if back.waits_for_all else bool(decided)
    is_ready = is_ready or not any(one.request.state == "waiting" for one in left)
    after = record_after(state, "release")
    ready_at_ms, rests_until_ms = held_until(session, after, delay_ms)
    session.run(
        "UPDATE codemode_records SET state = ?, owner = NULL, ready_at_ms = ?, rests_until_ms = ?, claim = claim + 1"
        " WHERE id = ?",
        *(after, ready_at_ms if is_ready else None, rests_until_ms, lease.record.id),
    )
    session.note(lease.record.id, lease.record.tenant, "released")
    return True


def _refused(session: Session, lease: Lease, reason: str | None) -> int:
    """Keep why a host cannot resume a record, if so, and return for how long it is left alone: longer each time."""
    if reason is None:
        return 0
    row = session.one("SELECT refusals FROM codemode_records WHERE id = ?", lease.record.id) or (0,)
    before = lease.resumed_before
    session.run(
        "UPDATE codemode_records SET not_resumable = ?, refusals = refusals + 1, resumed_by = ?, resumed_at_ms = ?"
        " WHERE id = ?",
        *(_text(reason), *((None, None) if before is None else (before.owner, before.at_ms)), lease.record.id),
    )
    return min(_FIRST_RETRY_MS << min(row[0], 16), _LAST_RETRY_MS)


def _audit_refusal(session: Session, lease: Lease, refused: KeptRequest) -> None:
    interrupt_id = refused.request.interrupt_id
    deciders = {one.interrupt_id: one.actor for one in lease.record.requests}
    session.audit(
        "refused",
        lease.record.tenant,
        lease.record.id,
        interrupt_id=interrupt_id,
        tool_name=cut(refused.request.tool_name),
        reason=cut(refused.request.refusal or ""),
        shown=refused.shown,
        details={"decided_by": deciders.get(interrupt_id)},
    )


def end(
    session: Session,
    record_id: str,
    tenant: str,
    state: RecordState,
    event: RecordEvent,
    outcome: str,
    by: By,
    said: Mapping[str, Any],
) -> None:
    """End a record. What it last paused in stays with its outcome, to show what it has done; nothing resumes it."""
    end_all(session, [(record_id, tenant, state)], event, outcome, by, said)


def end_all(
    session: Session, records: Sequence[Row], event: RecordEvent, outcome: str, by: By, said: Mapping[str, Any]
) -> None:
    """End records of which the rows have id, tenant and state."""
    # Somebody could go on with it after all.
    cleared = ", not_resumable = NULL" if event in ("complete", "fail") else ""
    ends = [(record_after(state, event, record_id), record_id, tenant) for record_id, tenant, state in records]
    session.each(
        "UPDATE codemode_records SET state = ?, outcome = ?, owner = NULL, ready_at_ms = NULL,"
        f" rests_until_ms = NULL, ended_at_ms = ?{cleared} WHERE id = ?",
        ((after, outcome, session.now_ms, record_id) for after, record_id, _ in ends),
    )
    reason = cut(by.reason) or None
    for after, record_id, tenant in ends:
        session.note(record_id, tenant, after)
        kind = "closed" if event == "close" else after
        session.audit(kind, tenant, record_id, actor=by.actor, reason=reason, outcome=after, address=by.address, **said)


def _apply(session: Session, lease: Lease) -> None:
    applied, gone = request_after("decided", "apply"), request_after("waiting", "supersede")
    session.run(
        "UPDATE codemode_requests SET state = CASE WHEN is_taken = 1 THEN ? ELSE ? END, is_taken = 0"
        " WHERE record_id = ? AND state IN ('waiting', 'decided')",
        *(applied, gone, lease.record.id),
    )


def owned(session: Session, lease: Lease) -> RecordState | None:
    """Return the state of a leased record; None when it is somebody else's by now."""
    statement = "SELECT state FROM codemode_records WHERE id = ? AND claim = ?"
    found = session.one(statement, lease.record.id, lease.number)
    return None if found is None or found[0] not in OWNED else found[0]


def _text(reason: str) -> str:
    return encode_json(reason, what="the refusal")
