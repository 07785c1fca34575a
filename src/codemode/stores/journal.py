"""Journals and media of programs in a store's database."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, TypeVar

from ..continuations.journal import OpenedJournal
from ..errors import CodeModeProtocolError
from ..host.cancellation import shield_until_done
from ..host.job_threads import run_in_dedicated_thread
from .record_writes import require_lease_duration, require_storable_text
from .rows import format_placeholders
from .transaction import Database, Row, Session, get_repaired_journal_lease_end

# Content of a run stays while something holds it: a resumable pause, its record or a journal; and for a day its writer.
# The last hold deletes the content with itself.

MAX_PURGED = 100
"""The maximum number of holds or journals that one transaction deletes: a journal may have many lines."""
_RUN_HOLDER, _RUN_HOLD_MS = "run", 24 * 3_600_000
_JOURNAL_HOLDER_PREFIX = "journal "
_RUN_CONDITION = "tenant = ? AND app = ? AND run = ?"
_INSERT_CONTENT = "INSERT INTO codemode_content VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, app, run, id) DO NOTHING"
_SELECT_CONTENT = f"SELECT description, data FROM codemode_content WHERE {_RUN_CONDITION} AND id = ?"
_UPSERT_HOLD = (
    "INSERT INTO codemode_content_holds VALUES (?, ?, ?, ?, CAST(? AS BIGINT))"
    " ON CONFLICT (tenant, app, run, holder) DO UPDATE SET until_ms = excluded.until_ms"
)
_DELETE_UNHELD = (
    f"DELETE FROM codemode_content WHERE {_RUN_CONDITION} AND NOT EXISTS (SELECT 1 FROM codemode_content_holds h"
    " WHERE h.tenant = codemode_content.tenant AND h.app = codemode_content.app AND h.run = codemode_content.run)"
)


class SqlContentStore:
    """The media content of the runs of one tenant and app. Methods raise `StoreUnavailableError`."""

    def __init__(self, database: Database, tenant: str, app: str) -> None:
        self._scope = (require_storable_text(tenant, "tenant"), require_storable_text(app, "app"))
        self._database = database

    async def put_content(self, run: str, part_id: str, description: str, data: bytes) -> None:
        """Store a part for a run, unless it exists."""

        def insert_content_and_hold() -> None:
            with self._database.journal_transaction() as session:
                session.run(_UPSERT_HOLD, *self._scope, run, _RUN_HOLDER, session.now_ms + _RUN_HOLD_MS)
                session.run(_INSERT_CONTENT, *self._scope, run, part_id, description, data)

        # A cancelled caller has stored it nevertheless.
        await shield_until_done(run_in_dedicated_thread(insert_content_and_hold, "codemode-content"))

    async def get_content(self, run: str, part_id: str) -> tuple[str, bytes] | None:
        """Return description and data of a part of a run, or None."""

        def select_content() -> Row | None:
            with self._database.transaction(writes=False) as session:
                return session.fetch_one(_SELECT_CONTENT, *self._scope, run, part_id)

        row = await run_in_dedicated_thread(select_content, "codemode-content")
        return None if row is None else (row[0], bytes(row[1]))

    async def hold_content(
        self, run: str, *, nonce: str | None = None, until_ms: int | None = None, journal: str | None = None
    ) -> None:
        """Hold the content of a run for the pause with this ``nonce``, or for the journal with this key.

        A pause holds it until ``until_ms``, or until its record is purged.
        """
        holder = nonce if journal is None else _JOURNAL_HOLDER_PREFIX + journal

        def upsert_hold() -> None:
            with self._database.journal_transaction() as session:
                session.run(_UPSERT_HOLD, *self._scope, run, holder, until_ms)

        await shield_until_done(run_in_dedicated_thread(upsert_hold, "codemode-content"))


def purge_old_journals_and_expired_content(database: Database, older_than_ms: int) -> int:
    """Delete a batch of old journals and expired holds. Returns how many were deleted; 0 when none is left."""
    with database.journal_transaction() as session:
        return purge_old_journal_batch(session, older_than_ms) + purge_expired_holds_and_unheld_content(session)


def purge_expired_holds_and_unheld_content(session: Session) -> int:
    """Delete at most `MAX_PURGED` expired holds whose pause has no record; return how many."""
    expired_holds = session.fetch_all(
        "SELECT h.tenant, h.app, h.run, h.holder FROM codemode_content_holds h WHERE h.until_ms <= ? AND NOT EXISTS"
        " (SELECT 1 FROM codemode_versions v WHERE v.nonce = h.holder) ORDER BY h.until_ms LIMIT ?",
        *(session.now_ms, MAX_PURGED),
    )
    _delete_holds_and_unheld_content(session, expired_holds)
    return len(expired_holds)


def delete_holds_and_unheld_content_of_records(session: Session, record_ids: Iterable[Row]) -> None:
    """Delete the holds of these records, whose versions still exist; their programs do not run any more."""
    record_ids = [row[0] for row in record_ids]
    holds = session.fetch_all(
        "SELECT h.tenant, h.app, h.run, h.holder FROM codemode_versions v JOIN codemode_content_holds h"
        f" ON h.holder = v.nonce WHERE v.record_id IN ({format_placeholders(record_ids)})",
        *record_ids,
    )
    _delete_holds_and_unheld_content(session, [*holds, *_to_run_holds(holds)])


def delete_holds_and_unheld_content_of_journals(session: Session, journals: Iterable[Row]) -> None:
    """Delete the holds of journals, given as tenant, app and key."""
    holders = {(tenant, app, _JOURNAL_HOLDER_PREFIX + key) for tenant, app, key in journals}
    if not holders:
        return
    rows = session.fetch_all(
        f"SELECT tenant, app, run, holder FROM codemode_content_holds WHERE holder IN ({format_placeholders(holders)})",
        *(holder for _, _, holder in holders),
    )
    holds = [row for row in rows if (*row[:2], row[3]) in holders]
    _delete_holds_and_unheld_content(session, [*holds, *_to_run_holds(holds)])


def _to_run_holds(holds: Iterable[Row]) -> list[Row]:
    return [(*row[:3], _RUN_HOLDER) for row in holds]


def _delete_holds_and_unheld_content(session: Session, holds: list[Row]) -> None:
    session.execute_many(f"DELETE FROM codemode_content_holds WHERE {_RUN_CONDITION} AND holder = ?", holds)
    session.execute_many(_DELETE_UNHELD, dict.fromkeys(row[:3] for row in holds))


# A group of lines is one statement, run on the event loop if the database takes it without waiting. Groups are ordered
# by (opening, ordinal); a write locks only its journal and is no change of the store.

ResultT = TypeVar("ResultT")
_POLL_SECONDS = 0.5
_SINGLE_LINE_PREFIX = "="
_MAX_NOWAIT_CHARACTERS, _MAX_NOWAIT_LINES = 1 << 15, 600
_OWNED_CONDITION = "id = ? AND number = ? AND until_ms IS NOT NULL"
_INSERT_JOURNAL = (
    "INSERT INTO codemode_journals VALUES (?, ?, ?, ?, ?, 1, {time} + ?, NULL, 0, 0, {time}, 0)"
    " ON CONFLICT (tenant, app, key) DO NOTHING"
)
_INSERT_LINES = (
    f"INSERT INTO codemode_journal_lines SELECT id, number, ?, ? FROM codemode_journals WHERE {_OWNED_CONDITION}"
)
_RENEW_LEASE = (
    f"UPDATE codemode_journals SET until_ms = {{time}} + ?, changed_at_ms = {{time}} WHERE {_OWNED_CONDITION}"
)
_SELECT_LINE_AT = "SELECT 1 FROM codemode_journal_lines WHERE journal = ? LIMIT 1 OFFSET ?"
_ordinals = count(1)


@dataclass(frozen=True, slots=True)
class _OpenedSqlJournal(OpenedJournal):
    """An opened journal with its row id: a purged and recreated journal has the same key and numbers."""

    id: str


class SqlJournalStore(SqlContentStore):
    """The journals of one tenant and app, and the content of their programs.

    An owner that does not renew its lease for ``lease_ms`` may lose it. Raises `ValueError` for an invalid tenant, app
    or lease.
    """

    def __init__(self, database: Database, tenant: str, app: str, lease_ms: int) -> None:
        super().__init__(database, tenant, app)
        self._insert_lines_sql = f"{_INSERT_LINES}{database.dialect.for_update}"
        self.lease_ms = require_lease_duration(lease_ms)
        self.is_shared_between_processes = database.is_shared_between_processes

    async def open(self, key: str, head: str, *, again: bool = False) -> OpenedJournal:
        """See `Journal.open`."""
        journal_key = (*self._scope, require_storable_text(key, "key"))
        opened = await self._create_and_claim(journal_key, head)
        if opened is not None:
            return opened
        with self._database.watch() as watch:
            while True:
                claimed = await self._try_claim_existing_journal(journal_key, again=again)
                if isinstance(claimed, OpenedJournal):
                    return claimed
                if claimed is not None:
                    await watch.wait(min(claimed, _POLL_SECONDS))
                elif (opened := await self._create_and_claim(journal_key, head)) is not None:  # purged meanwhile
                    return opened

    async def write(self, opened: OpenedJournal, lines: Sequence[str]) -> bool:
        """See `Journal.write`."""
        # The order is fixed here: threads may start in any order.
        ordinal, ownership = next(_ordinals), _get_ownership_values(opened)
        characters = sum(map(len, lines))
        return (
            await self._run_statement_now_or_in_thread(
                characters, self._insert_lines_sql, lambda: (ordinal, _encode_line_group(lines), *ownership)
            )
            == 1
        )

    def write_nowait(self, opened: OpenedJournal, lines: Sequence[str]) -> bool | None:
        """Write as `write` does, if that takes no waiting; None: nothing was done."""
        if sum(map(len, lines)) > _MAX_NOWAIT_CHARACTERS:
            return None
        row_count = self._database.run_statement_nowait(
            self._insert_lines_sql, (next(_ordinals), _encode_line_group(lines), *_get_ownership_values(opened))
        )
        return None if row_count is None else row_count == 1

    async def renew(self, opened: OpenedJournal) -> bool:
        """See `Journal.renew`."""
        statement = _RENEW_LEASE.format(time=self._database.time_sql)
        return (
            await self._run_statement_now_or_in_thread(
                0, statement, lambda: (self.lease_ms, *_get_ownership_values(opened))
            )
            == 1
        )

    async def end(self, opened: OpenedJournal, outcome: str, *, is_final: bool) -> bool:
        """See `Journal.end`."""
        return await self._end_or_release(opened, outcome, is_final=is_final)

    async def release(self, opened: OpenedJournal) -> bool:
        """See `Journal.release`."""
        return await self._end_or_release(opened, None, is_final=False)

    async def _create_and_claim(self, journal_key: Row, head: str) -> OpenedJournal | None:
        """Create and claim a journal; None if it exists."""
        journal_id = secrets.token_urlsafe(12)  # part of every row of lines
        statement = _INSERT_JOURNAL.format(time=self._database.time_sql)
        opened = _OpenedSqlJournal(journal_key[2], 1, head, (), None, is_takeover=False, id=journal_id)
        insertion = self._run_statement_now_or_in_thread(
            len(head), statement, lambda: (journal_id, *journal_key, json.dumps(head), self.lease_ms)
        )
        try:
            return opened if await insertion == 1 else None
        except asyncio.CancelledError:
            await self.release(opened)  # it may exist, and its lease would be unused
            raise

    async def _try_claim_existing_journal(self, journal_key: Row, *, again: bool) -> OpenedJournal | float | None:
        work = partial(_claim_journal_or_mark_awaited, journal_key=journal_key, lease_ms=self.lease_ms, again=again)
        attempt = asyncio.ensure_future(self._run_transaction(work))
        try:
            return await shield_until_done(attempt)
        except asyncio.CancelledError:
            if not attempt.cancelled() and attempt.exception() is None:
                claimed = attempt.result()
                if isinstance(claimed, OpenedJournal) and claimed.outcome is None:
                    await self.release(claimed)
            raise

    async def _end_or_release(self, opened: OpenedJournal, outcome: str | None, *, is_final: bool) -> bool:
        close = partial(
            _end_or_release_journal, ownership=_get_ownership_values(opened), outcome=outcome, is_final=is_final
        )
        if len(outcome or "") <= _MAX_NOWAIT_CHARACTERS:
            closed = self._database.run_journal_transaction_nowait(partial(close, max_lines=_MAX_NOWAIT_LINES))
            if closed is not None:
                return closed
        return bool(await self._run_transaction(close))

    async def _run_statement_now_or_in_thread(self, characters: int, statement: str, values: Callable[[], Row]) -> int:
        if characters <= _MAX_NOWAIT_CHARACTERS:
            row = values()
            row_count = self._database.run_statement_nowait(statement, row)
            return (
                row_count
                if row_count is not None
                else await _run_in_journal_thread(lambda: self._database.run_statement(statement, row))
            )
        return await _run_in_journal_thread(lambda: self._database.run_statement(statement, values()))

    async def _run_transaction(self, work: Callable[[Session], ResultT]) -> ResultT:
        def run_in_transaction() -> ResultT:
            with self._database.journal_transaction() as session:
                return work(session)

        return await _run_in_journal_thread(run_in_transaction)


def purge_old_journal_batch(session: Session, older_than_ms: int) -> int:
    """Delete at most `MAX_PURGED` journals that are not held and unchanged for this long; return how many."""
    before_ms = session.now_ms - older_than_ms
    journals = session.fetch_all(
        "SELECT id, tenant, app, key FROM codemode_journals WHERE changed_at_ms <= ?"
        " AND (until_ms IS NULL OR until_ms <= ?) ORDER BY changed_at_ms LIMIT ?",
        *(before_ms, session.now_ms, MAX_PURGED),
    )
    # Checked again: a host may have claimed it.
    delete_statement = "DELETE FROM codemode_journals WHERE id = ? AND changed_at_ms <= ?"
    deleted = [journal for journal in journals if session.run(delete_statement, journal[0], before_ms)]
    session.execute_many("DELETE FROM codemode_journal_lines WHERE journal = ?", [journal[:1] for journal in deleted])
    delete_holds_and_unheld_content_of_journals(session, [journal[1:] for journal in deleted])
    return len(deleted)


def _claim_journal_or_mark_awaited(
    session: Session, journal_key: Row, lease_ms: int, *, again: bool
) -> OpenedJournal | float | None:
    """Return the journal; or the seconds until its lease ends; None if it does not exist."""
    row = session.fetch_one(
        f"SELECT id, number, head, until_ms, outcome, is_final, changed_at_ms, written FROM codemode_journals"
        f" WHERE tenant = ? AND app = ? AND key = ?{session.dialect.for_update}",
        *journal_key,
    )
    if row is None:
        return None
    journal_id, number, head, until_ms, outcome, is_final, changed_at_ms, line_groups = row
    if outcome is not None and (is_final or not again):
        lines = () if is_final else _read_lines_or_raise_if_missing(session, journal_id, line_groups)
        return _OpenedSqlJournal(journal_key[2], 0, json.loads(head), lines, json.loads(outcome), False, journal_id)
    if until_ms is not None:
        until_ms = get_repaired_journal_lease_end(session, journal_id, until_ms, changed_at_ms)
    if until_ms is not None and until_ms > session.now_ms:
        session.run("UPDATE codemode_journals SET is_awaited = 1 WHERE id = ?", journal_id)
        return (until_ms - session.now_ms) / 1000
    session.run(
        "UPDATE codemode_journals SET number = ?, until_ms = ?, outcome = NULL, is_awaited = 0, changed_at_ms = ?"
        " WHERE id = ?",
        *(number + 1, session.now_ms + lease_ms, session.now_ms, journal_id),
    )
    is_takeover, lines = until_ms is not None, _read_lines_or_raise_if_missing(session, journal_id, line_groups)
    return _OpenedSqlJournal(journal_key[2], number + 1, json.loads(head), lines, None, is_takeover, journal_id)


def _end_or_release_journal(
    session: Session, ownership: Row, outcome: str | None, *, is_final: bool, max_lines: int | None = None
) -> bool | None:
    """Close a journal; False: another opening holds it. None: there are more than ``max_lines`` to delete."""
    row = session.fetch_one(
        f"SELECT id, is_awaited FROM codemode_journals WHERE {_OWNED_CONDITION}{session.dialect.for_update}",
        *ownership,
    )
    if row is None:
        return False
    journal_id, is_awaited = row
    if is_final and max_lines is not None and session.fetch_one(_SELECT_LINE_AT, journal_id, max_lines) is not None:
        return None
    session.run(
        "UPDATE codemode_journals SET until_ms = NULL, outcome = ?, is_final = ?, changed_at_ms = ? WHERE id = ?",
        *(None if outcome is None else json.dumps(outcome), int(is_final), session.now_ms, journal_id),
    )
    if is_final:
        session.run("DELETE FROM codemode_journal_lines WHERE journal = ?", journal_id)
    session.needs_notify = bool(is_awaited)
    return True


def _get_ownership_values(opened: OpenedJournal) -> Row:
    return (opened.id, opened.number) if isinstance(opened, _OpenedSqlJournal) else ("", 0)  # opened by another journal


def _read_lines_or_raise_if_missing(session: Session, journal_id: str, line_groups: int) -> tuple[str, ...]:
    """Return the lines of a journal. Raises `CodeModeProtocolError` if lines were deleted.

    Without them finished calls would run again. A final outcome deletes the lines and keeps their count, so that a
    journal whose outcome was deleted is refused too.
    """
    groups = session.fetch_all(
        "SELECT texts FROM codemode_journal_lines WHERE journal = ? ORDER BY number, ordinal", journal_id
    )
    if len(groups) < line_groups:
        raise CodeModeProtocolError(
            f"the journal of this program cannot be used: {line_groups - len(groups)} of the {line_groups} groups of"
            " lines that were written are missing in the database. Finished calls cannot be distinguished from open"
            " ones, so nothing runs again",
            details={"origin": "journal"},
        )
    return tuple(line for (texts,) in groups for line in _decode_line_group(texts))


def _encode_line_group(lines: Sequence[str]) -> str:
    """Return the text of a group: JSON, or a single plain ASCII line as it is."""
    if len(lines) == 1 and (line := lines[0]).isascii() and "\0" not in line:
        return _SINGLE_LINE_PREFIX + line
    return json.dumps(lines)


def _decode_line_group(group: str) -> Sequence[str]:
    return [group[1:]] if group.startswith(_SINGLE_LINE_PREFIX) else json.loads(group)


def _run_in_journal_thread(work: Callable[[], ResultT]) -> Coroutine[Any, Any, ResultT]:
    # A cancelled caller has written it nevertheless.
    return shield_until_done(run_in_dedicated_thread(work, "codemode-journal"))
