"""Transactions in either SQL dialect, and repairs after the system clock moved back."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol, TypeVar

from ..continuations.guard import GuardClock
from ..host.cancellation import shield_until_done
from ..host.job_threads import run_in_dedicated_thread
from ..records import record
from .audit import GENESIS_HASH, AuditLine, compute_line_hash, encode_line_body
from .change_notifier import ChangeWatch

# The part that all databases share. Statements use ``?`` as placeholder.

Row = tuple[Any, ...]
ResultT = TypeVar("ResultT")
_UNSTORABLE_CHARACTERS = re.compile("[\0\ud800-\udfff]")


@record
class SqlDialect:
    """The SQL that differs between databases."""

    placeholder: str
    begin_reading: str
    begin_writing: str
    begin_creating: tuple[str, ...]
    counter_query: str
    time_query: str
    for_update: str
    clustered_suffix: str
    blob_type: str
    after_executemany: str | None
    notify: str | None
    tables_query: str
    append_only_triggers: tuple[str, ...]
    follow_triggers: tuple[str, ...]
    count_triggers: tuple[str, ...]


class Database(Protocol):
    """A driver that gives transactions to any thread."""

    @property
    def dialect(self) -> SqlDialect:
        """The SQL dialect of this database."""
        ...

    @property
    def is_shared_between_processes(self) -> bool:
        """True if other processes use the same data."""
        ...

    @property
    def time_sql(self) -> str:
        """An SQL expression for the database's clock."""
        ...

    def transaction(self, *, writes: bool) -> AbstractContextManager[Session]:
        """Open the database if necessary, and give a transaction that commits at the end of the block."""
        ...

    def journal_transaction(self) -> AbstractContextManager[Session]:
        """Give a write transaction that takes no part in the order of changes."""
        ...

    def run_statement(self, statement: str, values: Row) -> int:
        """Run one statement as a transaction of its own, and return the number of changed rows."""
        ...

    def run_statement_nowait(self, statement: str, values: Row) -> int | None:
        """Do that on the event loop. None, and nothing was done, if it would have to wait."""
        ...

    def run_journal_transaction_nowait(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """Do short work in a `journal_transaction`, with the rules of `run_statement_nowait`."""
        ...

    def run_read_nowait(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """Do one short read, with the rules of `run_statement_nowait`."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...

    def watch(self) -> AbstractContextManager[ChangeWatch]:
        """Return a context manager whose `ChangeWatch` wakes on changes."""
        ...


class Session:
    """Runs the statements of one transaction.

    In a write transaction ``sequence`` is that of the last change, and ``audit_head`` the number and hash of the last
    audit line.
    """

    needs_notify = False
    """Whether waiting processes have to be woken."""

    def __init__(self, connection: Any, dialect: SqlDialect, clock: GuardClock | None) -> None:
        self._cursor = connection.cursor()
        self.dialect = dialect
        self._clock = clock
        self._changes: list[Row] = []
        self._now_ms: int | None = None
        self._audit_lines: list[Row] = []
        self.sequence = 0
        self.audit_head = (0, GENESIS_HASH)

    def run(self, statement: str, *values: Any) -> int:
        """Run a statement and return the number of changed rows."""
        self._execute(statement, values)
        return self._cursor.rowcount

    def fetch_all(self, statement: str, *values: Any) -> list[Row]:
        """Return all rows."""
        self._execute(statement, _to_queryable_values(values))
        return self._cursor.fetchall()

    def fetch_one(self, statement: str, *values: Any) -> Row | None:
        """Return the first row."""
        self._execute(statement, _to_queryable_values(values))
        return self._cursor.fetchone()

    def execute_many(self, statement: str, rows: Iterable[Row]) -> None:
        """Run one statement for each row of values."""
        all_rows = list(rows)
        if len(all_rows) == 1:
            self._cursor.execute(to_driver_sql(statement, self.dialect), all_rows[0])
        elif all_rows:
            self._cursor.executemany(to_driver_sql(statement, self.dialect), all_rows)
            if self.dialect.after_executemany:
                self._cursor.execute(self.dialect.after_executemany)

    @property
    def now_ms(self) -> int:
        """The database's clock, read once per transaction."""
        now_ms = self._now_ms
        if now_ms is None:
            now_ms = self._now_ms = self._read_clock()
        return now_ms

    def record_change(self, record_id: str, tenant: str, kind: str) -> int:
        """Append a change of a record, and return its sequence number."""
        self.sequence += 1
        self.needs_notify = True
        self._changes.append((self.sequence, record_id, tenant, kind))
        return self.sequence

    def add_audit_line(self, kind: str, tenant: str | None, record_id: str | None = None, **fields: Any) -> None:
        """Append a line to the audit."""
        sequence, previous = self.audit_head
        line = AuditLine(
            sequence=sequence + 1,
            at_ms=self.now_ms,
            kind=kind,
            tenant=tenant,
            record_id=record_id,
            salt=secrets.token_hex(16),
            previous=previous,
            **fields,
        )
        self.audit_head = (sequence + 1, compute_line_hash(line))
        self._audit_lines.append(
            (sequence + 1, tenant, record_id, previous, self.audit_head[1], encode_line_body(line))
        )

    def lock_and_read_counter(self) -> None:
        """Lock the counter: no other transaction writes before the commit."""
        row = self.fetch_one(self.dialect.counter_query)
        if row is not None:
            self.sequence, *audit_head = row
            self.audit_head = (audit_head[0], audit_head[1])

    def has_tables(self) -> bool:
        """Return whether the database has a store's tables."""
        row = self.fetch_one(self.dialect.tables_query)
        return row is not None and row[0] is not None

    def create_append_only_triggers(self) -> None:
        """Create the triggers that keep audit lines from being changed or deleted."""
        for statement in self.dialect.append_only_triggers:
            self.run(statement)

    def create_state_copy_triggers(self) -> None:
        """Create the triggers that copy a record's state and expiry to its labels and requests."""
        for statement in self.dialect.follow_triggers:
            self.run(statement)

    def create_journal_line_count_triggers(self) -> None:
        """Create the triggers that count the line groups of each journal."""
        for statement in self.dialect.count_triggers:
            self.run(statement)

    def write_changes_and_notify(self) -> None:
        """Write the collected changes and audit lines, and notify waiting processes."""
        if self._changes or self._audit_lines:
            self.execute_many("INSERT INTO codemode_changes VALUES (?, ?, ?, ?)", self._changes)
            self.execute_many("INSERT INTO codemode_audit VALUES (?, ?, ?, ?, ?, ?)", self._audit_lines)
            statement = "UPDATE codemode_store SET sequence = ?, audit_sequence = ?, audit_hash = ?"
            self.run(statement, self.sequence, *self.audit_head)
        if self.needs_notify and self.dialect.notify is not None:
            self.run(self.dialect.notify)

    def _read_clock(self) -> int:
        if self._clock is not None:
            return self._clock.now_ms()
        ((now_ms,),) = self.fetch_all(self.dialect.time_query)
        return now_ms

    def _execute(self, statement: str, values: Row) -> None:
        self._cursor.execute(to_driver_sql(statement, self.dialect), values)


def _to_queryable_values(values: Row) -> Row:
    # A string that no database can store equals no id and no tenant.
    return tuple(None if isinstance(value, str) and not is_storable_text(value) else value for value in values)


def is_storable_text(text: str) -> bool:
    """Return whether every database can store a string."""
    return _UNSTORABLE_CHARACTERS.search(text) is None


@contextmanager
def transaction(
    connection: Any, dialect: SqlDialect, clock: GuardClock | None, *, writes: bool, uses_counter: bool = True
) -> Generator[Session]:
    """Give one transaction on an open autocommit connection."""
    connection.execute(dialect.begin_writing if writes else dialect.begin_reading)
    with _commit_or_rollback(connection):
        session = Session(connection, dialect, clock)
        if writes and uses_counter:
            session.lock_and_read_counter()
        yield session
        session.write_changes_and_notify()


async def run_read_transaction(database: Database, work: Callable[[Session], ResultT]) -> ResultT:
    """Run work in a read transaction, in a thread."""
    return await run_in_dedicated_thread(lambda: _run_transaction(database, work, writes=False), "codemode-store")


async def run_write_transaction(database: Database, work: Callable[[Session], ResultT]) -> ResultT:
    """Run work in a write transaction, in a thread. A cancelled caller has written it nevertheless."""
    return await shield_until_done(
        run_in_dedicated_thread(lambda: _run_transaction(database, work, writes=True), "codemode-store")
    )


def _run_transaction(database: Database, work: Callable[[Session], ResultT], *, writes: bool) -> ResultT:
    with database.transaction(writes=writes) as session:
        return work(session)


def create_time_sql(dialect: SqlDialect, clock: GuardClock | None) -> str:
    """Return an SQL expression for the database's clock."""
    return f"({dialect.time_query})" if clock is None else str(clock.now_ms())


def to_driver_sql(statement: str, dialect: SqlDialect) -> str:
    """Return a statement with the driver's placeholder."""
    return statement.replace("?", dialect.placeholder)


@contextmanager
def table_creation_transaction(connection: Any, dialect: SqlDialect) -> Generator[Session]:
    """Give the transaction in which tables are created; other creators wait."""
    for statement in dialect.begin_creating:
        connection.execute(statement)
    with _commit_or_rollback(connection):
        yield Session(connection, dialect, None)


@contextmanager
def _commit_or_rollback(connection: Any) -> Generator[None]:
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(Exception):  # the connection may be broken, and the transaction with it
            connection.execute("ROLLBACK")
        raise


# A decision or a claim in the future shows that the clock moved back: durations are counted from now. Exclusive
# ownership follows from claim numbers, not from a clock.

_DECIDED_AHEAD = (
    "SELECT id FROM codemode_records r WHERE r.ready_at_ms > ? AND r.state = 'pending' AND EXISTS"
    " (SELECT 1 FROM codemode_requests q WHERE q.record_id = r.id AND q.decided_at_ms > ?)"
)
_CLAIMED_AHEAD = (
    "SELECT id, ready_at_ms - resumed_at_ms FROM codemode_records"
    " WHERE ready_at_ms > ? AND state = 'resuming' AND resumed_at_ms > ?"
)


def repair_after_clock_change(session: Session) -> None:
    """Make decided records ready, and cut leases that end later than their full duration from now."""
    now_ms = session.now_ms
    decided = session.fetch_all(_DECIDED_AHEAD, now_ms, now_ms)
    session.execute_many(
        "UPDATE codemode_records SET ready_at_ms = ? WHERE id = ?", ((now_ms, record_id) for (record_id,) in decided)
    )
    claimed = session.fetch_all(_CLAIMED_AHEAD, now_ms, now_ms)
    session.execute_many(
        "UPDATE codemode_records SET ready_at_ms = ?, resumed_at_ms = ? WHERE id = ?",
        ((now_ms + lease_ms, now_ms, record_id) for record_id, lease_ms in claimed),
    )
    session.needs_notify = session.needs_notify or bool(decided)


def get_repaired_journal_lease_end(session: Session, journal: str, until_ms: int, renewed_at_ms: int) -> int:
    """Return when the lease of a journal ends, counted from now if its last renewal lies in the future."""
    if renewed_at_ms <= session.now_ms:
        return until_ms
    until_ms = session.now_ms + until_ms - renewed_at_ms
    statement = "UPDATE codemode_journals SET until_ms = ?, changed_at_ms = ? WHERE id = ?"
    session.run(statement, until_ms, session.now_ms, journal)
    return until_ms
