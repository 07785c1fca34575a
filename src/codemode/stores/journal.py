"""Journals of programs in a store's database, and the media that programs use."""

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
from ..host.cancellation import to_its_end
from ..host.job_threads import in_own_thread
from .record_writes import require_lease, require_text
from .rows import marks
from .transaction import Database, Row, Session, left_of_lease

# The parts of a run stay while something holds them: the pause that can be gone on from, the record that has it, the
# journal; and for a day whoever has put one. What nothing holds any more is deleted with what held it last.

MOST_PURGED = 100
"""How many holds one transaction lets go."""
_RUNNING, _RUNNING_MS = "run", 24 * 3_600_000
_JOURNAL = "journal "
_RUN = "tenant = ? AND app = ? AND run = ?"
_PUT = "INSERT INTO codemode_content VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, app, run, id) DO NOTHING"
_GET = f"SELECT description, data FROM codemode_content WHERE {_RUN} AND id = ?"
_HOLD = (
    "INSERT INTO codemode_content_holds VALUES (?, ?, ?, ?, CAST(? AS BIGINT))"
    " ON CONFLICT (tenant, app, run, holder) DO UPDATE SET until_ms = excluded.until_ms"
)
_FORGET = (
    f"DELETE FROM codemode_content WHERE {_RUN} AND NOT EXISTS (SELECT 1 FROM codemode_content_holds h"
    " WHERE h.tenant = codemode_content.tenant AND h.app = codemode_content.app AND h.run = codemode_content.run)"
)


class SqlContent:
    """The content of the runs of one tenant and app. Its methods raise `StoreUnavailableError`."""

    def __init__(self, database: Database, tenant: str, app: str) -> None:
        self._scope = (require_text(tenant, "tenant"), require_text(app, "app"))
        self._database = database

    async def put_content(self, run: str, part_id: str, description: str, data: bytes) -> None:
        """Keep a part for a run. One that is there stays as it is."""

        def work() -> None:
            with self._database.journaling() as session:
                session.run(_HOLD, *self._scope, run, _RUNNING, session.now_ms + _RUNNING_MS)
                session.run(_PUT, *self._scope, run, part_id, description, data)

        # Whoever is cancelled meanwhile has kept it nevertheless.
        await to_its_end(in_own_thread(work, "codemode-content"))

    async def get_content(self, run: str, part_id: str) -> tuple[str, bytes] | None:
        """Return description and data of a part of a run, or None."""

        def work() -> Row | None:
            with self._database.transaction(writes=False) as session:
                return session.one(_GET, *self._scope, run, part_id)

        found = await in_own_thread(work, "codemode-content")
        return None if found is None else (found[0], bytes(found[1]))

    async def hold_content(
        self, run: str, *, nonce: str | None = None, until_ms: int | None = None, journal: str | None = None
    ) -> None:
        """Keep the content of a run for the pause with this ``nonce``, or for the journal of this key.

        For the pause until then, or until its record is purged, if there is one.
        """
        holder = nonce if journal is None else _JOURNAL + journal

        def work() -> None:
            with self._database.journaling() as session:
                session.run(_HOLD, *self._scope, run, holder, until_ms)

        await to_its_end(in_own_thread(work, "codemode-content"))


def purge_journals_and_content(database: Database, older_than_ms: int) -> int:
    """Delete some journals that are that old, and let go of some content; return how many, 0 at the end."""
    with database.journaling() as session:
        return purge_journals(session, older_than_ms) + purge_content(session)


def purge_content(session: Session) -> int:
    """Let go of at most `MOST_PURGED` holds that are over and whose pause no record has; return how many."""
    over = session.rows(
        "SELECT h.tenant, h.app, h.run, h.holder FROM codemode_content_holds h WHERE h.until_ms <= ? AND NOT EXISTS"
        " (SELECT 1 FROM codemode_versions v WHERE v.nonce = h.holder) ORDER BY h.until_ms LIMIT ?",
        *(session.now_ms, MOST_PURGED),
    )
    _let_go(session, over)
    return len(over)


def purge_of_records(session: Session, record_ids: Iterable[Row]) -> None:
    """Let go of what these records hold, whose versions are still there: no program of them runs any more."""
    ids = [row[0] for row in record_ids]
    held = session.rows(
        "SELECT h.tenant, h.app, h.run, h.holder FROM codemode_versions v JOIN codemode_content_holds h"
        f" ON h.holder = v.nonce WHERE v.record_id IN ({marks(ids)})",
        *ids,
    )
    _let_go(session, [*held, *_running(held)])


def purge_of_journals(session: Session, journals: Iterable[Row]) -> None:
    """Let go of what the journals of these tenants, apps and keys hold: nobody has them."""
    holders = {(tenant, app, _JOURNAL + key) for tenant, app, key in journals}
    if not holders:
        return
    found = session.rows(
        f"SELECT tenant, app, run, holder FROM codemode_content_holds WHERE holder IN ({marks(holders)})",
        *(holder for _, _, holder in holders),
    )
    held = [row for row in found if (*row[:2], row[3]) in holders]
    _let_go(session, [*held, *_running(held)])


def _running(held: Iterable[Row]) -> list[Row]:
    return [(*row[:3], _RUNNING) for row in held]


def _let_go(session: Session, held: list[Row]) -> None:
    session.each(f"DELETE FROM codemode_content_holds WHERE {_RUN} AND holder = ?", held)
    session.each(_FORGET, dict.fromkeys(row[:3] for row in held))


# A group of lines is one statement, which runs on the event loop where the database can take it without waiting. Groups
# are in the order of (opening, ordinal): one locks nothing but its journal, and is no change of the store's.

ResultT = TypeVar("ResultT")
"""How many journals one transaction deletes: each may have many lines."""
_LOOK_SECONDS = 0.5
_LONE = "="
_MOST_AT_ONCE_CHARACTERS, _MOST_LINES_AT_ONCE = 1 << 15, 600
_OWN = "id = ? AND number = ? AND until_ms IS NOT NULL"
_MAKE = (
    "INSERT INTO codemode_journals VALUES (?, ?, ?, ?, ?, 1, {time} + ?, NULL, 0, 0, {time}, 0)"
    " ON CONFLICT (tenant, app, key) DO NOTHING"
)
_WRITE = f"INSERT INTO codemode_journal_lines SELECT id, number, ?, ? FROM codemode_journals WHERE {_OWN}"
_RENEW = f"UPDATE codemode_journals SET until_ms = {{time}} + ?, changed_at_ms = {{time}} WHERE {_OWN}"
_ANY_BEYOND = "SELECT 1 FROM codemode_journal_lines WHERE journal = ? LIMIT 1 OFFSET ?"
_ordinals = count(1)


@dataclass(frozen=True, slots=True)
class _Opened(OpenedJournal):
    """One that says which row it is: a journal that was purged and made anew has the key and the numbers of before."""

    id: str


class SqlJournal(SqlContent):
    """The journals of one tenant and app, and the content of their programs.

    An owner that does not renew its lease for ``lease_ms`` may lose it.
    Raises `ValueError` for another tenant, app or lease.
    """

    def __init__(self, database: Database, tenant: str, app: str, lease_ms: int) -> None:
        super().__init__(database, tenant, app)
        self._written = f"{_WRITE}{database.dialect.locking}"
        self.lease_ms = require_lease(lease_ms)
        self.sees_other_processes = database.sees_other_processes

    async def open(self, key: str, head: str, *, again: bool = False) -> OpenedJournal:
        """See `Journal.open`."""
        place = (*self._scope, require_text(key, "key"))
        opened = await self._made(place, head)
        if opened is not None:
            return opened
        with self._database.watch() as watch:
            while True:
                taken = await self._taken(place, again=again)
                if isinstance(taken, OpenedJournal):
                    return taken
                if taken is not None:
                    await watch.wait(min(taken, _LOOK_SECONDS))
                elif (opened := await self._made(place, head)) is not None:  # purged meanwhile
                    return opened

    async def write(self, opened: OpenedJournal, lines: Sequence[str]) -> bool:
        """See `Journal.write`."""
        # Its order is settled here: threads may begin in any.
        ordinal, own = next(_ordinals), _own(opened)
        characters = sum(map(len, lines))
        return await self._run(characters, self._written, lambda: (ordinal, _group(lines), *own)) == 1

    def write_at_once(self, opened: OpenedJournal, lines: Sequence[str]) -> bool | None:
        """Write as `write` does where the database makes nobody wait; None: nothing was done."""
        if sum(map(len, lines)) > _MOST_AT_ONCE_CHARACTERS:
            return None
        done = self._database.run_at_once(self._written, (next(_ordinals), _group(lines), *_own(opened)))
        return None if done is None else done == 1

    async def renew(self, opened: OpenedJournal) -> bool:
        """See `Journal.renew`."""
        statement = _RENEW.format(time=self._database.time)
        return await self._run(0, statement, lambda: (self.lease_ms, *_own(opened))) == 1

    async def end(self, opened: OpenedJournal, outcome: str, *, is_final: bool) -> bool:
        """See `Journal.end`."""
        return await self._leave(opened, outcome, is_final=is_final)

    async def release(self, opened: OpenedJournal) -> bool:
        """See `Journal.release`."""
        return await self._leave(opened, None, is_final=False)

    async def _made(self, place: Row, head: str) -> OpenedJournal | None:
        """Make a journal and take it; None when there is one."""
        journal = secrets.token_urlsafe(12)  # it stands in each row of lines
        statement = _MAKE.format(time=self._database.time)
        opened = _Opened(place[2], 1, head, (), None, is_takeover=False, id=journal)
        making = self._run(len(head), statement, lambda: (journal, *place, json.dumps(head), self.lease_ms))
        try:
            return opened if await making == 1 else None
        except asyncio.CancelledError:
            await self.release(opened)  # it may have been made, and would be nobody's until the lease is over
            raise

    async def _taken(self, place: Row, *, again: bool) -> OpenedJournal | float | None:
        work = partial(_take, place=place, lease_ms=self.lease_ms, again=again)
        attempt = asyncio.ensure_future(self._transaction(work))
        try:
            return await to_its_end(attempt)
        except asyncio.CancelledError:
            if not attempt.cancelled() and attempt.exception() is None:
                taken = attempt.result()
                if isinstance(taken, OpenedJournal) and taken.outcome is None:
                    await self.release(taken)
            raise

    async def _leave(self, opened: OpenedJournal, outcome: str | None, *, is_final: bool) -> bool:
        leave = partial(_leave, own=_own(opened), outcome=outcome, is_final=is_final)
        if len(outcome or "") <= _MOST_AT_ONCE_CHARACTERS:
            done = self._database.journal_at_once(partial(leave, most_lines=_MOST_LINES_AT_ONCE))
            if done is not None:
                return done
        return bool(await self._transaction(leave))

    async def _run(self, characters: int, statement: str, values: Callable[[], Row]) -> int:
        if characters <= _MOST_AT_ONCE_CHARACTERS:
            given = values()
            done = self._database.run_at_once(statement, given)
            return done if done is not None else await _in_thread(lambda: self._database.run_alone(statement, given))
        return await _in_thread(lambda: self._database.run_alone(statement, values()))

    async def _transaction(self, work: Callable[[Session], ResultT]) -> ResultT:
        def run() -> ResultT:
            with self._database.journaling() as session:
                return work(session)

        return await _in_thread(run)


def purge_journals(session: Session, older_than_ms: int) -> int:
    """Delete at most `MOST_PURGED` journals that nobody has and nobody has changed for so long; return how many."""
    before_ms = session.now_ms - older_than_ms
    found = session.rows(
        "SELECT id, tenant, app, key FROM codemode_journals WHERE changed_at_ms <= ?"
        " AND (until_ms IS NULL OR until_ms <= ?) ORDER BY changed_at_ms LIMIT ?",
        *(before_ms, session.now_ms, MOST_PURGED),
    )
    # Looked at again: somebody may have taken it since.
    still = "DELETE FROM codemode_journals WHERE id = ? AND changed_at_ms <= ?"
    deleted = [one for one in found if session.run(still, one[0], before_ms)]
    session.each("DELETE FROM codemode_journal_lines WHERE journal = ?", [one[:1] for one in deleted])
    purge_of_journals(session, [one[1:] for one in deleted])
    return len(deleted)


def _take(session: Session, place: Row, lease_ms: int, *, again: bool) -> OpenedJournal | float | None:
    """Return the journal; the seconds that somebody else has it, at most; None when there is none."""
    found = session.one(
        f"SELECT id, number, head, until_ms, outcome, is_final, changed_at_ms, written FROM codemode_journals"
        f" WHERE tenant = ? AND app = ? AND key = ?{session.dialect.locking}",
        *place,
    )
    if found is None:
        return None
    journal, number, head, until_ms, outcome, is_final, changed_at_ms, written = found
    if outcome is not None and (is_final or not again):
        lines = () if is_final else _lines(session, journal, written)
        return _Opened(place[2], 0, json.loads(head), lines, json.loads(outcome), False, journal)
    if until_ms is not None:
        until_ms = left_of_lease(session, journal, until_ms, changed_at_ms)
    if until_ms is not None and until_ms > session.now_ms:
        session.run("UPDATE codemode_journals SET is_awaited = 1 WHERE id = ?", journal)
        return (until_ms - session.now_ms) / 1000
    session.run(
        "UPDATE codemode_journals SET number = ?, until_ms = ?, outcome = NULL, is_awaited = 0, changed_at_ms = ?"
        " WHERE id = ?",
        *(number + 1, session.now_ms + lease_ms, session.now_ms, journal),
    )
    is_takeover, lines = until_ms is not None, _lines(session, journal, written)
    return _Opened(place[2], number + 1, json.loads(head), lines, None, is_takeover, journal)


def _leave(
    session: Session, own: Row, outcome: str | None, *, is_final: bool, most_lines: int | None = None
) -> bool | None:
    """Give a journal up; False: it is not held by this opening. None: there are more than ``most_lines`` to erase."""
    found = session.one(
        f"SELECT id, is_awaited FROM codemode_journals WHERE {_OWN}{session.dialect.locking}",
        *own,
    )
    if found is None:
        return False
    journal, is_awaited = found
    if is_final and most_lines is not None and session.one(_ANY_BEYOND, journal, most_lines) is not None:
        return None
    session.run(
        "UPDATE codemode_journals SET until_ms = NULL, outcome = ?, is_final = ?, changed_at_ms = ? WHERE id = ?",
        *(None if outcome is None else json.dumps(outcome), int(is_final), session.now_ms, journal),
    )
    if is_final:
        session.run("DELETE FROM codemode_journal_lines WHERE journal = ?", journal)
    session.has_news = bool(is_awaited)
    return True


def _own(opened: OpenedJournal) -> Row:
    return (opened.id, opened.number) if isinstance(opened, _Opened) else ("", 0)  # of another journal


def _lines(session: Session, journal: str, written: int) -> tuple[str, ...]:
    """Return the lines of a journal. Raises `CodeModeProtocolError` where some of them were deleted.

    Without them its program would make finished calls again. The lines of a final outcome are erased, and their count
    stays: without its outcome it is refused too.
    """
    groups = session.rows(
        "SELECT texts FROM codemode_journal_lines WHERE journal = ? ORDER BY number, ordinal", journal
    )
    if len(groups) < written:
        raise CodeModeProtocolError(
            f"the journal of this program cannot be used: {written - len(groups)} of the {written} groups of lines that"
            " were written are missing in the database. Its finished calls cannot be told from open ones, so nothing"
            " runs again",
            details={"origin": "journal"},
        )
    return tuple(line for (texts,) in groups for line in _lines_of(texts))


def _group(lines: Sequence[str]) -> str:
    """Return the text of a group: JSON, or a lone line as it is where every database takes that."""
    if len(lines) == 1 and (line := lines[0]).isascii() and "\0" not in line:
        return _LONE + line
    return json.dumps(lines)


def _lines_of(group: str) -> Sequence[str]:
    return [group[1:]] if group.startswith(_LONE) else json.loads(group)


def _in_thread(work: Callable[[], ResultT]) -> Coroutine[Any, Any, ResultT]:
    # Whoever is cancelled meanwhile has written it nevertheless, and knows.
    return to_its_end(in_own_thread(work, "codemode-journal"))
