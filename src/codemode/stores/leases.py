"""Claim, renew, release and settle the leases of records."""

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
from ..interrupts.interrupt import Interrupt, PendingRequest, is_same_json
from ..records import record as value
from .answers import compute_display_digest, get_displayed_kind_and_input
from .audit import MAX_REQUESTS_IN_LINE, SYSTEM, Attribution, compute_json_digest, truncate_for_audit
from .record_writes import EncodedPause, encode_next_pause, pause_record
from .records import (
    OWNED_STATES,
    LastResumed,
    Lease,
    RecordEvent,
    RecordState,
    StoredPause,
    Tenant,
    compute_next_record_state_or_raise,
    compute_next_request_state_or_raise,
)
from .rows import (
    RECORD_COLUMNS,
    RequestRow,
    create_tenant_clause,
    decode_interrupt,
    encode_program_error,
    encode_program_value,
    load_record_requests,
    load_records,
)
from .transaction import Row, Session

_MAX_HOSTNAME_CHARACTERS = 100


def create_owner_name() -> str:
    """Return a unique owner name: host, process and random digits."""
    return f"{socket.gethostname()[:_MAX_HOSTNAME_CHARACTERS]} process {os.getpid()} {secrets.token_hex(8)}"


_UNCHANGED_PAUSE_DELAY_MS = 5_000
_MIN_RETRY_MS, _MAX_RETRY_MS = 5_000, 600_000
_CLAIM_COLUMNS = f"{RECORD_COLUMNS}, interrupt, claim, resumed_by, resumed_at_ms"
CHANGED_REQUEST_REASON = (
    "the request was changed in the database before it was decided: it differed from the program's request. It is"
    " restored and needs another decision"
)


def find_claimable_record_id(session: Session, tenant: Tenant, app: str | None) -> str | None:
    """Return the id of the claimable record that has been ready longest."""
    condition, values = create_tenant_clause(tenant)
    if app is not None:
        condition, values = f"{condition} AND app = ?", (*values, app)
    row = session.fetch_one(
        "SELECT id FROM codemode_records WHERE ready_at_ms <= ? AND expires_at_ms > ?"
        f"{condition} ORDER BY ready_at_ms LIMIT 1",
        *(session.now_ms, session.now_ms, *values),
    )
    return None if row is None else row[0]


def claim_record_or_restore_requests(session: Session, record_id: str, owner: str, lease_ms: int) -> Lease | None:
    """Claim a ready record with all its decisions; on a takeover only with those of the previous owner.

    None: a decided request differs from what its interrupt asks, and its answer was refused.
    """
    row = session.fetch_one(f"SELECT {_CLAIM_COLUMNS} FROM codemode_records WHERE id = ?", record_id)
    if row is None:
        raise LookupError(record_id)
    *record_columns, interrupt_json, claim_count, resumed_by, resumed_at_ms = row
    state, number = cast("RecordState", row[2]), claim_count + 1
    next_state = compute_next_record_state_or_raise(state, "claim", record_id)
    request_rows = load_record_requests(session, [record_id])
    is_takeover = state in OWNED_STATES or any(request.is_taken for request in request_rows)
    decided = [
        request
        for request in request_rows
        if request.request.state == "decided" and (request.is_taken or not is_takeover)
    ]
    interrupt = decode_interrupt(interrupt_json)
    if changed := _find_changed_requests(decided, interrupt):
        _restore_changed_requests_and_release(session, row, changed)
        return None
    taken = [request.request for request in decided]
    session.execute_many(
        "UPDATE codemode_requests SET is_taken = 1 WHERE interrupt_id = ?",
        ((request.interrupt_id,) for request in taken),
    )
    session.run(
        "UPDATE codemode_records SET state = ?, owner = ?, claim = ?, ready_at_ms = ?, rests_until_ms = ?,"
        " resumed_by = ?, resumed_at_ms = ? WHERE id = ?",
        *(
            next_state,
            owner,
            number,
            *compute_lease_end_columns(session, next_state, lease_ms),
            owner,
            session.now_ms,
            record_id,
        ),
    )
    session.record_change(record_id, row[4], "claimed")
    (record,) = load_records(session, [(*record_columns[:2], next_state, *record_columns[3:])])
    return Lease(
        record=record,
        number=number,
        owner=owner,
        lease_ms=lease_ms,
        is_takeover=is_takeover,
        interrupt=interrupt,
        resolutions={request.interrupt_id: request.decision for request in taken},
        resumed_before=None if resumed_at_ms is None else LastResumed(resumed_by, resumed_at_ms),
    )


def _find_changed_requests(
    decided: Sequence[RequestRow], interrupt: Interrupt
) -> list[tuple[RequestRow, PendingRequest]]:
    """Return the requests whose rows differ from the interrupt, which is what would run.

    The resuming host compares the interrupt with its signed continuation.
    """
    pending_by_id = {row.interrupt_id: row for row in interrupt.requests}
    pairs = ((row, pending_by_id.get(row.request.interrupt_id)) for row in decided)
    return [(row, pending) for row, pending in pairs if pending is not None and _is_changed_request(row, pending)]


def _is_changed_request(row: RequestRow, pending: PendingRequest) -> bool:
    request, (kind, displayed_input) = row.request, get_displayed_kind_and_input(pending)
    is_same = (request.kind, request.tool_name) == (kind, pending.tool_name) and is_same_json(
        request.input, displayed_input
    )
    is_same = (
        is_same
        and is_same_json(request.payload, dict(pending.payload))
        and row.shown == compute_display_digest(pending)
    )
    location = None if request.line is None or request.column is None else (request.line, request.column)
    return not is_same or location not in (None, pending.place)


def _restore_changed_requests_and_release(
    session: Session, row: Row, changed: list[tuple[RequestRow, PendingRequest]]
) -> None:
    """Restore changed requests from the interrupt, so that they are decided again.

    Also on a takeover: the guard refuses other answers if the previous owner started.
    """
    record_id, state, tenant = row[0], cast("RecordState", row[2]), row[4]
    for request_row, pending in changed:
        kind, displayed_input = get_displayed_kind_and_input(pending)
        session.run(
            "UPDATE codemode_requests SET kind = ?, tool_name = ?, input = ?, payload = ?, shown = ?, at_line = ?,"
            " at_column = ?, refusal = ?, state = ?, is_taken = 0, decision = NULL, actor = NULL, decided_at_ms = NULL"
            " WHERE interrupt_id = ?",
            *(
                kind,
                pending.tool_name,
                json.dumps(displayed_input),
                json.dumps(dict(pending.payload)),
                compute_display_digest(pending),
            ),
            *(
                pending.line,
                pending.column,
                _encode_reason(CHANGED_REQUEST_REASON),
                compute_next_request_state_or_raise("decided", "refuse"),
                pending.interrupt_id,
            ),
        )
        session.add_audit_line(
            "refused",
            tenant,
            record_id,
            interrupt_id=pending.interrupt_id,
            tool_name=truncate_for_audit(pending.tool_name),
            reason=truncate_for_audit(CHANGED_REQUEST_REASON),
            shown=request_row.shown,
            details={"decided_by": request_row.request.actor},
        )
    session.run("UPDATE codemode_requests SET is_taken = 0 WHERE record_id = ?", record_id)
    is_ready = session.fetch_one("SELECT 1 FROM codemode_requests WHERE record_id = ? AND state = 'decided'", record_id)
    next_state = state if state == "pending" else compute_next_record_state_or_raise(state, "release")
    session.run(
        "UPDATE codemode_records SET state = ?, owner = NULL, ready_at_ms = ?, claim = claim + 1 WHERE id = ?",
        *(next_state, None if is_ready is None or next_state != "pending" else session.now_ms, record_id),
    )
    session.record_change(record_id, tenant, "released")


def compute_lease_end_columns(session: Session, state: RecordState, lease_ms: int) -> tuple[int | None, int | None]:
    """Return the end of a lease as ``ready_at_ms`` and ``rests_until_ms``.

    Suspended records (state ``resting``) have a column of their own, so that resumers never find them.
    """
    until_ms = session.now_ms + lease_ms
    return (None, until_ms) if state == "resting" else (until_ms, None)


def renew_lease(session: Session, lease: Lease) -> bool:
    """Extend a lease by its full duration."""
    state = get_state_if_owned(session, lease)
    if state is None:
        return False
    statement = "UPDATE codemode_records SET ready_at_ms = ?, rests_until_ms = ? WHERE id = ? AND claim = ?"
    session.run(statement, *compute_lease_end_columns(session, state, lease.lease_ms), lease.record.id, lease.number)
    return True


@value
class EncodedOutcome:
    """The outcome of a program as an event and JSON; ``audit_fields`` go into the audit."""

    event: RecordEvent
    outcome_json: str
    audit_fields: Mapping[str, Any]


def encode_result(result: Any, tool: Any = None) -> EncodedPause | EncodedOutcome:
    """Encode the result of a resume before the transaction starts."""
    paused = result.recovery if isinstance(result, CodeModeError) else result
    if isinstance(result, CodeModeError) and paused is None:
        return _encode_failure(result)
    if isinstance(result, StoredPause):
        return encode_next_pause(result, result.tool or tool, result.payload, result.source)
    if isinstance(result, CodeModeError | Interrupt):
        return encode_next_pause(Interrupt.from_value(cast("Resumable", paused)), tool)
    try:
        value_json = encode_program_value(split_content(result)[0])  # binary content stays in the content tables
    except CodeModeSerializationError as error:
        return _encode_failure(error)  # a custom `resume` returned it
    return EncodedOutcome("complete", value_json, {"digest": compute_json_digest(json.loads(value_json)["value"])})


def _encode_failure(error: CodeModeError) -> EncodedOutcome:
    # The message may contain anything that a program or tool wrote.
    return EncodedOutcome(
        "fail",
        encode_program_error(error),
        {"details": {"error": type(error).__name__, "code": truncate_for_audit(error.code)}},
    )


def write_result_or_release_record(session: Session, lease: Lease, result: EncodedPause | EncodedOutcome) -> bool:
    """Write a result unless the lease is lost. The same pause again means that nothing ran."""
    state = get_state_if_owned(session, lease)
    if state is None:
        return False
    if isinstance(result, EncodedPause):
        if session.fetch_one("SELECT 1 FROM codemode_versions WHERE nonce = ?", result.nonce):
            return release_record(
                session, lease, ReleaseOptions({}, _UNCHANGED_PAUSE_DELAY_MS, None, result.waits_for_all)
            )
        pause_record(session, lease.record.id, state, result)
    else:
        _apply_or_supersede_requests(session, lease)
        applied = {"applied": list(lease.resolutions)[:MAX_REQUESTS_IN_LINE]}
        audit_fields = {**result.audit_fields, "details": {**result.audit_fields.get("details", {}), **applied}}
        end_record(
            session,
            lease.record.id,
            lease.record.tenant,
            state,
            result.event,
            result.outcome_json,
            Attribution(None),
            audit_fields,
        )
    return True


def mark_lost_if_owned(session: Session, lease: Lease) -> bool:
    """Mark a record as lost unless the lease is lost."""
    state = get_state_if_owned(session, lease)
    if state is None:
        return False
    mark_records_lost(session, [(lease.record.id, lease.record.tenant)], state)
    return True


def mark_records_lost(session: Session, records: list[Row], state: RecordState = "resuming") -> None:
    """Mark claimed records as lost."""
    next_state = compute_next_record_state_or_raise(state, "lose")
    statement = (
        "UPDATE codemode_records SET state = ?, owner = NULL, ready_at_ms = NULL, rests_until_ms = NULL,"
        " claim = claim + 1 WHERE id = ?"
    )
    session.execute_many(statement, ((next_state, record_id) for record_id, _ in records))
    for record_id, tenant in records:
        session.record_change(record_id, tenant, "lost")
        session.add_audit_line("lost", tenant, record_id, actor=SYSTEM, outcome=next_state)


@value
class ReleaseOptions:
    """How a record is released: refusals by request id, a delay, and why this host cannot resume it.

    ``waits_for_all``: answers were missing, so nothing started, and the next answer makes the record ready.
    """

    refusals: Mapping[str, str]
    delay_ms: int
    not_resumable: str | None
    waits_for_all: bool = False


def release_record(session: Session, lease: Lease, options: ReleaseOptions) -> bool:
    """Release a record unless the lease is lost.

    The answers of a takeover stay: the previous owner may have started, and the guard has recorded it for these
    answers.
    """
    state = get_state_if_owned(session, lease)
    if state is None:
        return False
    delay_ms = max(
        0 if options.waits_for_all else options.delay_ms,
        _record_failure_and_get_retry_delay(session, lease, options.not_resumable),
    )
    refused = frozenset[str]() if lease.is_takeover else options.refusals.keys() & lease.resolutions.keys()
    session.execute_many(
        "UPDATE codemode_requests SET state = ?, decision = NULL, actor = NULL, decided_at_ms = NULL, refusal = ?"
        " WHERE interrupt_id = ?",
        (
            (compute_next_request_state_or_raise("decided", "refuse"), _encode_reason(options.refusals[row]), row)
            for row in sorted(refused)
        ),
    )
    rows = load_record_requests(session, [lease.record.id])
    if options.waits_for_all or not lease.is_takeover:
        session.run("UPDATE codemode_requests SET is_taken = 0 WHERE record_id = ?", lease.record.id)
    for row in rows:
        if row.request.interrupt_id in refused:
            _add_refused_answer_to_audit(session, lease, row)
    decided = [row for row in rows if row.request.state == "decided"]
    # Decisions made since then are unclaimed.
    is_new = any(not row.is_taken for row in decided)
    is_ready = is_new if options.waits_for_all else bool(decided)
    is_ready = is_ready or not any(row.request.state == "waiting" for row in rows)
    next_state = compute_next_record_state_or_raise(state, "release")
    ready_at_ms, rests_until_ms = compute_lease_end_columns(session, next_state, delay_ms)
    session.run(
        "UPDATE codemode_records SET state = ?, owner = NULL, ready_at_ms = ?, rests_until_ms = ?, claim = claim + 1"
        " WHERE id = ?",
        *(next_state, ready_at_ms if is_ready else None, rests_until_ms, lease.record.id),
    )
    session.record_change(lease.record.id, lease.record.tenant, "released")
    return True


def _record_failure_and_get_retry_delay(session: Session, lease: Lease, reason: str | None) -> int:
    """Record why a host cannot resume a record, if so, and return the delay before the next try."""
    if reason is None:
        return 0
    row = session.fetch_one("SELECT refusals FROM codemode_records WHERE id = ?", lease.record.id) or (0,)
    previous = lease.resumed_before
    session.run(
        "UPDATE codemode_records SET not_resumable = ?, refusals = refusals + 1, resumed_by = ?, resumed_at_ms = ?"
        " WHERE id = ?",
        *(
            _encode_reason(reason),
            *((None, None) if previous is None else (previous.owner, previous.at_ms)),
            lease.record.id,
        ),
    )
    return min(_MIN_RETRY_MS << min(row[0], 16), _MAX_RETRY_MS)


def _add_refused_answer_to_audit(session: Session, lease: Lease, refused: RequestRow) -> None:
    interrupt_id = refused.request.interrupt_id
    deciders = {request.interrupt_id: request.actor for request in lease.record.requests}
    session.add_audit_line(
        "refused",
        lease.record.tenant,
        lease.record.id,
        interrupt_id=interrupt_id,
        tool_name=truncate_for_audit(refused.request.tool_name),
        reason=truncate_for_audit(refused.request.refusal or ""),
        shown=refused.shown,
        details={"decided_by": deciders.get(interrupt_id)},
    )


def end_record(
    session: Session,
    record_id: str,
    tenant: str,
    state: RecordState,
    event: RecordEvent,
    outcome: str,
    by: Attribution,
    audit_fields: Mapping[str, Any],
) -> None:
    """End a record. Its last pause stays with the outcome for display; it cannot be resumed."""
    end_records(session, [(record_id, tenant, state)], event, outcome, by, audit_fields)


def end_records(
    session: Session,
    records: Sequence[Row],
    event: RecordEvent,
    outcome: str,
    by: Attribution,
    audit_fields: Mapping[str, Any],
) -> None:
    """End records, given as rows of id, tenant and state."""
    # It was resumed after all.
    cleared = ", not_resumable = NULL" if event in ("complete", "fail") else ""
    ends = [
        (compute_next_record_state_or_raise(state, event, record_id), record_id, tenant)
        for record_id, tenant, state in records
    ]
    session.execute_many(
        "UPDATE codemode_records SET state = ?, outcome = ?, owner = NULL, ready_at_ms = NULL,"
        f" rests_until_ms = NULL, ended_at_ms = ?{cleared} WHERE id = ?",
        ((next_state, outcome, session.now_ms, record_id) for next_state, record_id, _ in ends),
    )
    reason = truncate_for_audit(by.reason) or None
    for next_state, record_id, tenant in ends:
        session.record_change(record_id, tenant, next_state)
        kind = "closed" if event == "close" else next_state
        session.add_audit_line(
            kind,
            tenant,
            record_id,
            actor=by.actor,
            reason=reason,
            outcome=next_state,
            address=by.address,
            **audit_fields,
        )


def _apply_or_supersede_requests(session: Session, lease: Lease) -> None:
    applied, superseded = (
        compute_next_request_state_or_raise("decided", "apply"),
        compute_next_request_state_or_raise("waiting", "supersede"),
    )
    session.run(
        "UPDATE codemode_requests SET state = CASE WHEN is_taken = 1 THEN ? ELSE ? END, is_taken = 0"
        " WHERE record_id = ? AND state IN ('waiting', 'decided')",
        *(applied, superseded, lease.record.id),
    )


def get_state_if_owned(session: Session, lease: Lease) -> RecordState | None:
    """Return the state of a leased record; None if the lease is lost."""
    statement = "SELECT state FROM codemode_records WHERE id = ? AND claim = ?"
    row = session.fetch_one(statement, lease.record.id, lease.number)
    return None if row is None or row[0] not in OWNED_STATES else row[0]


def _encode_reason(reason: str) -> str:
    return encode_json(reason, what="the refusal")
