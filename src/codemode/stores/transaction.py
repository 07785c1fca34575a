"""One transaction in either SQL dialect, and repairs after the system clock moved back."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol, TypeVar

from ..continuations.guard import GuardClock
from ..host.cancellation import to_its_end
from ..host.job_threads import in_own_thread
from ..records import record
from .audit import BEGINNING, AuditLine, body_of, hash_of
from .change_notifier import Watch

# Knows what databases have in common; a driver says the rest. Statements are written with ``?``.

Row = tuple[Any, ...]
ResultT = TypeVar("ResultT")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


@record
class Dialect:
    """What databases say differently."""

    placeholder: str
    begin_reading: str
    begin_writing: str
    begin_making: tuple[str, ...]
    counter: str
    time: str
    locking: str
    clustered: str
    blob: str
    behind_many: str | None
    notify: str | None
    find_tables: str
    append_only: tuple[str, ...]
    following: tuple[str, ...]
    counting: tuple[str, ...]


class Database(Protocol):
    """A driver: gives transactions in whatever thread asks for one."""

    @property
    def dialect(self) -> Dialect:
        """What this database says differently."""
        ...

    @property
    def sees_other_processes(self) -> bool:
        """Whether other processes see what is written."""
        ...

    @property
    def time(self) -> str:
        """An expression for the database's clock."""
        ...

    def transaction(self, *, writes: bool) -> AbstractContextManager[Session]:
        """Open the database if that is to do, and give a transaction, which commits at its end."""
        ...

    def journaling(self) -> AbstractContextManager[Session]:
        """Give a transaction that writes and takes no part in the order of changes."""
        ...

    def run_alone(self, statement: str, values: Row) -> int:
        """Run one statement as a transaction of its own, and return how many rows it has changed."""
        ...

    def run_at_once(self, statement: str, values: Row) -> int | None:
        """Do that on the event loop. None, and nothing was done, where it would have to wait for others or a disk."""
        ...

    def journal_at_once(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """Do short work in such a transaction as `journaling` gives, under the terms of `run_at_once`."""
        ...

    def look_at_once(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """Do one short look in a transaction that reads, under the terms of `run_at_once`."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...

    def watch(self) -> AbstractContextManager[Watch]:
        """Return what wakes those that wait for a change by others."""
        ...


class Session:
    """What a transaction's statements go through.

    In one that writes ``sequence`` is that of the last change, and ``audited`` the number and the hash of the last
    line of the audit.
    """

    has_news = False
    """Whether there is something that those who wait are to be woken for."""

    def __init__(self, connection: Any, dialect: Dialect, clock: GuardClock | None) -> None:
        self._cursor = connection.cursor()
        self.dialect = dialect
        self._clock = clock
        self._changes: list[Row] = []
        self._now_ms: int | None = None
        self._lines: list[Row] = []
        self.sequence = 0
        self.audited = (0, BEGINNING)

    def run(self, statement: str, *values: Any) -> int:
        """Run a statement and return how many rows it has changed."""
        self._execute(statement, values)
        return self._cursor.rowcount

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Return all rows."""
        self._execute(statement, _findable(values))
        return self._cursor.fetchall()

    def one(self, statement: str, *values: Any) -> Row | None:
        """Return the first row."""
        self._execute(statement, _findable(values))
        return self._cursor.fetchone()

    def each(self, statement: str, values: Iterable[Row]) -> None:
        """Run one statement for each of the rows of values."""
        every = list(values)
        if len(every) == 1:
            self._cursor.execute(written(statement, self.dialect), every[0])
        elif every:
            self._cursor.executemany(written(statement, self.dialect), every)
            if self.dialect.behind_many:
                self._cursor.execute(self.dialect.behind_many)

    @property
    def now_ms(self) -> int:
        """The database's clock, looked at once."""
        known = self._now_ms
        if known is None:
            known = self._now_ms = self._look()
        return known

    def note(self, record_id: str, tenant: str, kind: str) -> int:
        """Say that something has happened to a record, and return its sequence."""
        self.sequence += 1
        self.has_news = True
        self._changes.append((self.sequence, record_id, tenant, kind))
        return self.sequence

    def audit(self, kind: str, tenant: str | None, record_id: str | None = None, **said: Any) -> None:
        """Say who has decided something, or what came of it, as the next line of the audit."""
        sequence, previous = self.audited
        line = AuditLine(
            sequence=sequence + 1,
            at_ms=self.now_ms,
            kind=kind,
            tenant=tenant,
            record_id=record_id,
            salt=secrets.token_hex(16),
            previous=previous,
            **said,
        )
        self.audited = (sequence + 1, hash_of(line))
        self._lines.append((sequence + 1, tenant, record_id, previous, self.audited[1], body_of(line)))

    def begin(self) -> None:
        """Take the counter: from here to the commit no other transaction writes."""
        found = self.one(self.dialect.counter)
        if found is not None:
            self.sequence, *audited = found
            self.audited = (audited[0], audited[1])

    def has_tables(self) -> bool:
        """Tell whether the database has a store's tables."""
        found = self.one(self.dialect.find_tables)
        return found is not None and found[0] is not None

    def keep_lines(self) -> None:
        """Let nobody change or delete lines of the audit."""
        for statement in self.dialect.append_only:
            self.run(statement)

    def follow_records(self) -> None:
        """Let labels and requests say of their record what is true of it, whoever changes it."""
        for statement in self.dialect.following:
            self.run(statement)

    def count_lines(self) -> None:
        """Let each journal count the groups of its lines, whoever writes them."""
        for statement in self.dialect.counting:
            self.run(statement)

    def write_news(self) -> None:
        """Write what was noted and audited, and tell those that wait."""
        if self._changes or self._lines:
            self.each("INSERT INTO codemode_changes VALUES (?, ?, ?, ?)", self._changes)
            self.each("INSERT INTO codemode_audit VALUES (?, ?, ?, ?, ?, ?)", self._lines)
            counted = "UPDATE codemode_store SET sequence = ?, audit_sequence = ?, audit_hash = ?"
            self.run(counted, self.sequence, *self.audited)
        if self.has_news and self.dialect.notify is not None:
            self.run(self.dialect.notify)

    def _look(self) -> int:
        if self._clock is not None:
            return self._clock.now_ms()
        ((now_ms,),) = self.rows(self.dialect.time)
        return now_ms

    def _execute(self, statement: str, values: Row) -> None:
        self._cursor.execute(written(statement, self.dialect), values)


def _findable(values: Row) -> Row:
    # A text that no database takes is nobody's id, and no tenant's name: equal to nothing.
    return tuple(None if isinstance(one, str) and not is_plain(one) else one for one in values)


def is_plain(text: str) -> bool:
    """Tell whether every database takes a text."""
    return _NO_TEXT.search(text) is None


@contextmanager
def transaction(
    connection: Any, dialect: Dialect, clock: GuardClock | None, *, writes: bool, is_counted: bool = True
) -> Generator[Session]:
    """Give one transaction on an open connection that commits nothing by itself."""
    connection.execute(dialect.begin_writing if writes else dialect.begin_reading)
    with _ended(connection):
        session = Session(connection, dialect, clock)
        if writes and is_counted:
            session.begin()
        yield session
        session.write_news()


async def read(database: Database, work: Callable[[Session], ResultT]) -> ResultT:
    """Do work in a transaction that reads, in a thread."""
    return await in_own_thread(lambda: _done(database, work, writes=False), "codemode-store")


async def write(database: Database, work: Callable[[Session], ResultT]) -> ResultT:
    """Do work in a transaction that writes, in a thread. Whoever is cancelled meanwhile has written it nevertheless."""
    return await to_its_end(in_own_thread(lambda: _done(database, work, writes=True), "codemode-store"))


def _done(database: Database, work: Callable[[Session], ResultT], *, writes: bool) -> ResultT:
    with database.transaction(writes=writes) as session:
        return work(session)


def time_of(dialect: Dialect, clock: GuardClock | None) -> str:
    """Return an expression for the database's clock."""
    return f"({dialect.time})" if clock is None else str(clock.now_ms())


def written(statement: str, dialect: Dialect) -> str:
    """Return a statement as the driver takes it."""
    return statement.replace("?", dialect.placeholder)


@contextmanager
def making(connection: Any, dialect: Dialect) -> Generator[Session]:
    """Give the transaction in which tables are made; no other one makes them meanwhile."""
    for statement in dialect.begin_making:
        connection.execute(statement)
    with _ended(connection):
        yield Session(connection, dialect, None)


@contextmanager
def _ended(connection: Any) -> Generator[None]:
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(Exception):  # the connection may be gone, and with it the transaction
            connection.execute("ROLLBACK")
        raise


# A decision or a claim that lies ahead tells it. What differs so is counted from now; that nobody has two owners
# follows from claims alone, and from no clock.

_DECIDED = (
    "SELECT id FROM codemode_records r WHERE r.ready_at_ms > ? AND r.state = 'pending' AND EXISTS"
    " (SELECT 1 FROM codemode_requests q WHERE q.record_id = r.id AND q.decided_at_ms > ?)"
)
_CLAIMED = (
    "SELECT id, ready_at_ms - resumed_at_ms FROM codemode_records"
    " WHERE ready_at_ms > ? AND state = 'resuming' AND resumed_at_ms > ?"
)


def bring_home(session: Session) -> None:
    """Let what was decided be ready, and leases that were claimed last for no longer than they would have."""
    now_ms = session.now_ms
    decided = session.rows(_DECIDED, now_ms, now_ms)
    session.each(
        "UPDATE codemode_records SET ready_at_ms = ? WHERE id = ?", ((now_ms, record_id) for (record_id,) in decided)
    )
    claimed = session.rows(_CLAIMED, now_ms, now_ms)
    session.each(
        "UPDATE codemode_records SET ready_at_ms = ?, resumed_at_ms = ? WHERE id = ?",
        ((now_ms + lease_ms, now_ms, record_id) for record_id, lease_ms in claimed),
    )
    session.has_news = session.has_news or bool(decided)


def left_of_lease(session: Session, journal: str, until_ms: int, signed_at_ms: int) -> int:
    """Return when the lease of a journal is over; it is counted from now where its last sign of life lies ahead."""
    if signed_at_ms <= session.now_ms:
        return until_ms
    until_ms = session.now_ms + until_ms - signed_at_ms
    statement = "UPDATE codemode_journals SET until_ms = ?, changed_at_ms = ? WHERE id = ?"
    session.run(statement, until_ms, session.now_ms, journal)
    return until_ms
