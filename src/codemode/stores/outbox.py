"""Outboxes: notices of pending requests, each sent at least once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TypeVar

from .audit import SYSTEM, truncate_for_audit
from .record_writes import require_lease_duration, require_storable_text
from .records import LEASE_MS, FailedNotice, Notice, Tenant
from .rows import LISTED_COLUMNS, create_tenant_clause, format_placeholders, load_records
from .transaction import Database, Row, Session, run_read_transaction, run_write_transaction

ResultT = TypeVar("ResultT")
MAX_CLAIMED_NOTICES = 100
MAX_RECORD_IDS = 500
_MAX_NAME_CHARACTERS = 200
_MAX_CHANGES = 200
_NOTIFYING_KINDS = frozenset({"put", "paused", "released", "run_again"})
"""Changes after which a record may wait for a person."""
_NOTICE_KEY = "record_id = ? AND version = ? AND target = ?"
# An expression, so that the planner does not use the index of states.
_IS_WAITING = (
    "r.state || '' IN ('pending', 'resuming') AND r.expires_at_ms > ?"
    " AND EXISTS (SELECT 1 FROM codemode_requests q WHERE q.record_id = r.id AND q.state = 'waiting')"
)


class Outbox:
    """Notices for one target in a store's database. Each notice is claimed by one sender.

    Each method is one transaction and raises `StoreUnavailableError`.
    """

    def __init__(self, database: Database, target: str) -> None:
        if not 0 < len(require_storable_text(target, "target")) <= _MAX_NAME_CHARACTERS:
            raise ValueError(f"target must have 1 to {_MAX_NAME_CHARACTERS} characters, got {len(target)}")
        self._database, self._target = database, target

    async def fill(self) -> int:
        """Create notices for the changes since the last call, and return the number of changes.

        Each waiting version of a record gets one notice. The first call covers all waiting records. Call it until it
        returns 0: it handles a limited number of changes at a time.
        """
        # A read first: without changes, no writer is blocked.
        if (
            await run_read_transaction(
                self._database, lambda session: _list_next_changes_if_any_notifies(session, self._target)
            )
            is None
        ):
            return 0
        return await run_write_transaction(
            self._database, lambda session: _create_notices_and_advance_position(session, self._target)
        )

    async def claim(self, *, limit: int = 1, lease_ms: int = LEASE_MS) -> tuple[Notice, ...]:
        """Claim at most ``limit`` due notices, up to 100, for ``lease_ms``.

        Notices with an expired lease are claimed again: they may have been sent. A notice of a record that no longer
        waits is dropped, and created again if the record waits again. Raises `ValueError`.
        """
        require_lease_duration(lease_ms)
        if not 1 <= limit <= MAX_CLAIMED_NOTICES:
            raise ValueError(f"limit must be from 1 to {MAX_CLAIMED_NOTICES}, got {limit}")
        while await run_read_transaction(self._database, lambda session: _list_due_notices(session, self._target, 1)):
            claimed = await run_write_transaction(
                self._database,
                lambda session: _claim_current_and_drop_outdated_notices(session, self._target, limit, lease_ms),
            )
            if claimed:
                return claimed
        return ()

    async def record_delivery(self, notice: Notice, *, error: str | None = None, retry_ms: int | None = None) -> bool:
        """Record that a notice was sent, or failed with ``error``: to be retried after ``retry_ms``, or given up.

        A notice that is given up gets an audit line. False, and nothing is written, if the claim is lost. Raises
        `ValueError`.
        """
        if retry_ms is not None and (error is None or retry_ms < 0):
            raise ValueError(f"retry_ms needs an error and must not be negative, got {retry_ms}")
        message = None if error is None else truncate_for_audit(error)
        return await run_write_transaction(
            self._database, lambda session: _record_delivery_result(session, notice, message, retry_ms)
        )


def _list_next_changes_if_any_notifies(session: Session, target: str) -> list[Row] | None:
    """Return the next changes; None if there are few and none needs a notice."""
    row = session.fetch_one("SELECT sequence FROM codemode_outboxes WHERE target = ?", target)
    rows = session.fetch_all(
        "SELECT sequence, record_id, kind FROM codemode_changes WHERE sequence > ? ORDER BY sequence LIMIT ?",
        *(0 if row is None else row[0], _MAX_CHANGES),
    )
    has_notifying_change = len(rows) == _MAX_CHANGES or any(kind in _NOTIFYING_KINDS for _, _, kind in rows)
    return rows if has_notifying_change else None


def _create_notices_and_advance_position(session: Session, target: str) -> int:
    """Write notices and the read position in one transaction."""
    changes = _list_next_changes_if_any_notifies(session, target)
    if changes is None:
        return 0
    changed = sorted({record_id for _, record_id, kind in changes if kind in _NOTIFYING_KINDS})
    session.execute_many(
        "INSERT INTO codemode_notices (record_id, version, target, tenant, state, attempts, number, ready_at_ms,"
        " changed_at_ms) VALUES (?, ?, ?, ?, 'waiting', 0, 0, ?, ?) ON CONFLICT (record_id, version, target) DO UPDATE"
        " SET state = 'waiting', attempts = 0, ready_at_ms = excluded.ready_at_ms"
        " WHERE codemode_notices.state = 'dropped'",
        (
            (record_id, version, target, tenant, session.now_ms, session.now_ms)
            for record_id, version, tenant in _list_waiting_records(session, "id, version, tenant", changed)
        ),
    )
    session.run(
        "INSERT INTO codemode_outboxes VALUES (?, ?) ON CONFLICT (target) DO UPDATE SET sequence = excluded.sequence",
        *(target, changes[-1][0]),
    )
    return len(changes)


def _list_due_notices(session: Session, target: str, limit: int) -> list[Row]:
    return session.fetch_all(
        "SELECT record_id, version, attempts, number FROM codemode_notices WHERE target = ? AND ready_at_ms <= ?"
        " ORDER BY ready_at_ms LIMIT ?",
        *(target, session.now_ms, limit),
    )


def _claim_current_and_drop_outdated_notices(
    session: Session, target: str, limit: int, lease_ms: int
) -> tuple[Notice, ...]:
    """Claim some due notices. Returns none if all that were read no longer wait; more may be due."""
    due = _list_due_notices(session, target, MAX_CLAIMED_NOTICES)
    waiting = {row[0]: row for row in _list_waiting_records(session, LISTED_COLUMNS, [row[0] for row in due])}
    current = [row for row in due if row[0] in waiting and waiting[row[0]][1] == row[1]]
    taken = current[:limit]
    session.execute_many(
        f"UPDATE codemode_notices SET state = 'dropped', ready_at_ms = NULL, changed_at_ms = ? WHERE {_NOTICE_KEY}",
        ((session.now_ms, *row[:2], target) for row in due if row not in current),
    )
    session.execute_many(
        f"UPDATE codemode_notices SET number = number + 1, ready_at_ms = ? WHERE {_NOTICE_KEY}",
        ((session.now_ms + lease_ms, *row[:2], target) for row in taken),
    )
    records = load_records(session, [waiting[row[0]] for row in taken])
    return tuple(
        Notice(target=target, record=record, attempts=attempts, number=number + 1)
        for record, (_, _, attempts, number) in zip(records, taken, strict=True)
    )


def _list_waiting_records(session: Session, columns: str, record_ids: list[str]) -> list[Row]:
    """Return columns of the records that wait for a person."""
    statement = (
        f"SELECT {columns} FROM codemode_records r WHERE r.id IN ({format_placeholders(record_ids)}) AND {_IS_WAITING}"
    )
    return session.fetch_all(statement, *record_ids, session.now_ms) if record_ids else []


def _record_delivery_result(session: Session, notice: Notice, error: str | None, retry_ms: int | None) -> bool:
    notice_key = (notice.record.id, notice.record.version, notice.target)
    state = "sent" if error is None else "failed" if retry_ms is None else "waiting"
    attempts = notice.attempts + (error is not None)
    changed = session.run(
        "UPDATE codemode_notices SET state = ?, attempts = ?, number = number + 1, ready_at_ms = ?, error = ?,"
        f" changed_at_ms = ? WHERE {_NOTICE_KEY} AND state = 'waiting' AND number = ?",
        *(state, attempts, None if retry_ms is None else session.now_ms + retry_ms),
        *(None if error is None else json.dumps(error), session.now_ms, *notice_key, notice.number),
    )
    if changed and state == "failed":
        details = {"target": notice.target, "version": notice.record.version, "attempts": attempts}
        audit_fields = {"actor": SYSTEM, "reason": error, "details": details}
        session.add_audit_line("notice_failed", notice.record.tenant, notice.record.id, **audit_fields)
    return changed == 1


async def list_failed_notices(
    database: Database, record_ids: Iterable[str], tenant: Tenant
) -> tuple[FailedNotice, ...]:
    """Return the failed notices of these records. Raises `ValueError` for more than 500 records."""
    ids = sorted(set(record_ids))
    if len(ids) > MAX_RECORD_IDS:
        raise ValueError(f"at most {MAX_RECORD_IDS} record ids per call, got {len(ids)}")
    return (
        await run_read_transaction(database, lambda session: _select_failed_notices(session, ids, tenant))
        if ids
        else ()
    )


def _select_failed_notices(session: Session, record_ids: list[str], tenant: Tenant) -> tuple[FailedNotice, ...]:
    condition, values = create_tenant_clause(tenant)
    rows = session.fetch_all(
        "SELECT target, record_id, version, attempts, error, changed_at_ms FROM codemode_notices"
        f" WHERE record_id IN ({format_placeholders(record_ids)}) AND state = 'failed'{condition}"
        " ORDER BY record_id, version, target",
        *(*record_ids, *values),
    )
    names = ("target", "record_id", "version", "attempts", "error", "failed_at_ms")
    return tuple(FailedNotice(**{**dict(zip(names, row, strict=True)), "error": json.loads(row[4])}) for row in rows)
