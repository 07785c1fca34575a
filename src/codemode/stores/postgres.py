"""Stores in Postgres, for all hosts that reach it. Needs the extra ``postgres``."""

from __future__ import annotations

import re
import select
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from ..continuations.guard import GuardClock
from ..continuations.sql_guard import SqlResumeGuard, StatementExecutor, create_claims_table
from ..host.forks import create_fork_safe_lock, never_finalize_in_child, register_fork_reset
from ..options.checked_fields import WrongTypeError
from .change_notifier import ChangeNotifier, ChangeWatch, get_or_create_notifier
from .errors import StoreUnavailableError
from .interrupt_store import InterruptStore
from .tables import COUNT_LINE_SQL, FOLLOW_RECORD_SQL, RECORD_CHANGED_CONDITION, create_or_migrate_tables
from .transaction import (
    Row,
    Session,
    SqlDialect,
    create_time_sql,
    table_creation_transaction,
    to_driver_sql,
    transaction,
)

if TYPE_CHECKING:
    import psycopg

ResultT = TypeVar("ResultT")
_TIME_QUERY = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
_CHANNEL = "codemode_changes"
_ADVISORY_LOCK = "SELECT pg_advisory_xact_lock(7205759403792793600 + %s)"  # lock keys of this package: tables, guard
_TABLES_LOCK, _GUARD_LOCK = 1, 2
_FIND_TABLE = "SELECT to_regclass(?)"
_CLAIMS_TABLE = "codemode_resumes"
_CONNECT_TIMEOUT_SECONDS = 10.0
_SETTINGS: Any = {
    "autocommit": True,
    "connect_timeout": 10,
    # Give up unacknowledged data as early: if the other end vanished (its machine, or a firewall that dropped the
    # connection), the kernel alone would retry for a quarter of an hour.
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}
# A host that stops in a transaction, or whose machine is gone, blocks writers no longer than this.
_MAX_IDLE_TRANSACTION_MS = 10_000
_POLL_SECONDS = 0.5
DIALECT = SqlDialect(
    placeholder="%s",
    begin_reading="BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    begin_writing="BEGIN ISOLATION LEVEL READ COMMITTED",
    begin_creating=("BEGIN ISOLATION LEVEL READ COMMITTED", _ADVISORY_LOCK.replace("%s", str(_TABLES_LOCK))),
    counter_query="SELECT sequence, audit_sequence, audit_hash FROM codemode_store FOR UPDATE",
    time_query=_TIME_QUERY,
    for_update=" FOR UPDATE",
    clustered_suffix="",
    blob_type="BYTEA",
    # psycopg sends a flush after its pipeline; until the next statement Postgres does not apply the idle-in-transaction
    # timeout.
    after_executemany="SELECT 1",
    notify=f"NOTIFY {_CHANNEL}",
    tables_query="SELECT to_regclass('codemode_store')",
    append_only_triggers=(
        (
            "CREATE OR REPLACE FUNCTION codemode_audit_stays() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN RAISE EXCEPTION 'lines of the audit stay as they are'; END$$"
        ),
        (
            "CREATE TRIGGER codemode_audit_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON codemode_audit"
            " FOR EACH STATEMENT EXECUTE FUNCTION codemode_audit_stays()"
        ),
    ),
    follow_triggers=(
        (
            "CREATE OR REPLACE FUNCTION codemode_follow_record() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$BEGIN {FOLLOW_RECORD_SQL} RETURN NULL; END$$"
        ),
        (
            "CREATE TRIGGER codemode_records_are_followed AFTER UPDATE OF state, expires_at_ms ON codemode_records"
            f" FOR EACH ROW WHEN {RECORD_CHANGED_CONDITION} EXECUTE FUNCTION codemode_follow_record()"
        ),
    ),
    count_triggers=(
        (
            "CREATE OR REPLACE FUNCTION codemode_count_lines() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$BEGIN {COUNT_LINE_SQL} RETURN NULL; END$$"
        ),
        (
            "CREATE TRIGGER codemode_lines_are_counted AFTER INSERT ON codemode_journal_lines"
            " FOR EACH ROW EXECUTE FUNCTION codemode_count_lines()"
        ),
    ),
)


class PostgresInterruptStore(InterruptStore):
    """A store in a Postgres database, in tables whose names start with ``codemode_``.

    ``dsn`` is a libpq connection string. At most ``max_connections`` are open at a time, and one more while a task
    waits for changes. ``max_open_per_tenant`` limits the open records of one tenant (None: unlimited); `put` and `rest`
    raise `StoreFullError` beyond it. Time is the database's, unless a test passes a ``clock``. Raises `ValueError` for
    an invalid ``dsn`` and without the extra.
    """

    def __init__(
        self,
        dsn: str,
        *,
        max_connections: int = 8,
        max_open_per_tenant: int | None = None,
        clock: GuardClock | None = None,
    ) -> None:
        database = _PostgresDatabase(dsn, max_connections, clock)
        super().__init__(database, PostgresResumeGuard(database, clock), max_open_per_tenant=max_open_per_tenant)


class PostgresResumeGuard(SqlResumeGuard):
    """Resume claims in the store's database, available as its ``guard``."""

    table = _CLAIMS_TABLE

    def __init__(self, database: _PostgresDatabase, clock: GuardClock | None) -> None:
        super().__init__(clock)
        self._database = database

    def _read_database_time_ms(self, connection: StatementExecutor) -> int:
        return connection.execute(_TIME_QUERY).fetchone()[0]

    @contextmanager
    def _transaction(self) -> Generator[StatementExecutor]:
        with self._database.connection() as connection, connection.transaction():
            connection.execute(_ADVISORY_LOCK, (_GUARD_LOCK,))
            yield _PostgresStatementExecutor(connection)


class _PostgresStatementExecutor:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, values: tuple[Any, ...] = (), /) -> Any:
        driver_sql: Any = statement.replace("?", "%s")
        return self._connection.execute(driver_sql, values)


def _is_valid_dsn(dsn: str, driver_error: type[Exception]) -> bool:
    """Return whether libpq can parse a connection string. Its error quotes the string and must not be chained."""
    try:
        import_module("psycopg.conninfo").conninfo_to_dict(dsn)
    except driver_error:
        return False
    return True


class _PostgresDatabase:
    """A connection pool per process, and one listening connection while a task waits."""

    dialect = DIALECT
    is_shared_between_processes = True

    def __init__(self, dsn: str, max_connections: int, clock: GuardClock | None) -> None:
        self._driver_error, self._connect, self._create_pool = _load_driver()
        if not isinstance(dsn, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongTypeError(f"dsn must be a connection string of libpq, got {type(dsn).__name__}")
        dsn = _encode_password_in_dsn(dsn)
        if not _is_valid_dsn(dsn, self._driver_error):
            raise ValueError("dsn is no connection string of libpq")
        if max_connections < 1:
            raise ValueError(f"max_connections must be at least 1, got {max_connections}")
        self._dsn = dsn
        self._max_connections = max_connections
        self._clock = clock
        self._notifier = get_or_create_notifier(dsn)
        self._lock = create_fork_safe_lock()
        self._pool: Any = None
        self._has_tables = False
        self._listener = _NotificationListener(dsn, self._notifier)
        register_fork_reset(self)

    @property
    def time_sql(self) -> str:
        """See `Database.time_sql`."""
        return create_time_sql(DIALECT, self._clock)

    @contextmanager
    def transaction(self, *, writes: bool) -> Generator[Session]:
        """See `Database.transaction`."""
        with self._transaction(writes=writes, uses_counter=True) as session:
            yield session

    def journal_transaction(self) -> AbstractContextManager[Session]:
        """See `Database.journal_transaction`."""
        return self._transaction(writes=True, uses_counter=False)

    def run_statement(self, statement: str, values: Row) -> int:
        """See `Database.run_statement`."""
        text: Any = to_driver_sql(statement, DIALECT)
        with self.connection() as connection:
            return connection.execute(text, values).rowcount

    def run_statement_nowait(self, statement: str, values: Row) -> int | None:
        """See `Database.run_statement_nowait`: the network always has to be waited for."""
        del statement, values
        return None

    def run_journal_transaction_nowait(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """See `Database.run_journal_transaction_nowait`: the network always has to be waited for."""
        del work
        return None

    def run_read_nowait(self, work: Callable[[Session], ResultT]) -> ResultT | None:
        """See `Database.run_read_nowait`: the network always has to be waited for."""
        del work
        return None

    @contextmanager
    def _transaction(self, *, writes: bool, uses_counter: bool) -> Generator[Session]:
        with (
            self.connection() as connection,
            transaction(connection, DIALECT, self._clock, writes=writes, uses_counter=uses_counter) as session,
        ):
            yield session
        if session.needs_notify:
            self._notifier.notify()

    @contextmanager
    def connection(self) -> Generator[psycopg.Connection[Any]]:
        """Give a connection to a database with tables. Raises `StoreUnavailableError`."""
        try:
            with self._get_or_open_pool_with_tables().connection(timeout=_CONNECT_TIMEOUT_SECONDS) as connection:
                yield connection
        except self._driver_error as error:
            raise StoreUnavailableError(f"the store's Postgres cannot be used: {error}") from error

    @contextmanager
    def watch(self) -> Generator[ChangeWatch]:
        """See `Database.watch`."""
        with self._notifier.watch() as watch, self._listener.listen():
            yield watch

    def close(self) -> None:
        """See `Database.close`."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def after_fork(self) -> None:
        """In a forked child: threads do not exist, and connections belong to the parent."""
        never_finalize_in_child(self._pool, self._listener)
        self._pool, self._listener = None, _NotificationListener(self._dsn, self._notifier)

    def _get_or_open_pool_with_tables(self) -> Any:
        with self._lock:
            if self._pool is None:
                settings: Any = {"kwargs": _SETTINGS, "timeout": _CONNECT_TIMEOUT_SECONDS, "name": "codemode-store"}
                settings["configure"], settings["reconnect_timeout"] = (
                    _limit_idle_transactions,
                    _CONNECT_TIMEOUT_SECONDS,
                )
                settings["check"] = self._require_alive_or_close
                self._ensure_tables()
                self._pool = self._create_pool(
                    self._dsn, min_size=0, max_size=self._max_connections, open=True, **settings
                )
            return self._pool

    def _require_alive_or_close(self, connection: psycopg.Connection[Any]) -> None:
        """Raise if the server has closed an idle connection, then check the other idle ones.

        The check is local: the server writes to an idle connection only when it closes it.
        """
        poller = select.poll()
        poller.register(connection.fileno(), select.POLLIN)
        if not poller.poll(0):
            return
        connection.close()
        if (pool := self._pool) is not None:
            pool.check()
        raise self._driver_error("the server has left this connection")

    def _ensure_tables(self) -> None:
        if not self._has_tables:
            # Not from the pool, which retries for long and hides the reason.
            with self._connect(self._dsn, **_SETTINGS) as connection:
                _limit_idle_transactions(connection)
                with table_creation_transaction(connection, DIALECT) as session:
                    create_or_migrate_tables(session)
                    statements = _PostgresStatementExecutor(connection)
                    if statements.execute(_FIND_TABLE, (_CLAIMS_TABLE,)).fetchone()[0] is None:
                        create_claims_table(statements, _CLAIMS_TABLE)
            self._has_tables = True


def _encode_password_in_dsn(dsn: str) -> str:
    """Return a URL in which no part of the password parses as the host, which error messages contain.

    libpq ends the password at the first @. Raises `ValueError`, without any part of it, for an ambiguous host.
    """
    scheme, is_url, rest = dsn.partition("://")
    if not is_url or scheme not in ("postgresql", "postgres"):
        return dsn
    authority = re.split("[/?]", rest, maxsplit=1)[0]
    if "@" in rest[len(authority) :].partition("?")[0]:
        raise ValueError("dsn has an @ behind its first /: write / in a password as %2F, and @ as %40")
    user, _, host = authority.rpartition("@")
    return f"{scheme}://{user.replace('@', '%40')}@{host}{rest[len(authority) :]}" if "@" in user else dsn


def _limit_idle_transactions(connection: Any) -> None:
    connection.execute(f"SET idle_in_transaction_session_timeout = {_MAX_IDLE_TRANSACTION_MS}")


class _NotificationListener:
    """A connection that receives change notifications in a thread, which ends soon after the last wait.

    There is at most one. Without a connection, waiting tasks poll.
    """

    def __init__(self, dsn: str, notifier: ChangeNotifier) -> None:
        self._driver_error, self._connect, _ = _load_driver()
        self._dsn = dsn
        self._notifier = notifier
        self._lock = create_fork_safe_lock()
        self._waiter_count = 0
        self._is_running = False

    @contextmanager
    def listen(self) -> Generator[None]:
        """Listen while the block runs."""
        with self._lock:
            self._waiter_count += 1
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._listen_with_retries, name="codemode-listener", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                self._waiter_count -= 1

    def _mark_stopped_if_unused(self) -> bool:
        """Return whether nothing waits: then this thread ends, and the next wait starts another."""
        with self._lock:
            self._is_running = self._waiter_count > 0
            return not self._is_running

    def _listen_with_retries(self) -> None:
        pause = threading.Event()
        try:
            while not self._mark_stopped_if_unused():
                with suppress(self._driver_error):
                    self._listen_until_unused()
                    return
                pause.wait(_POLL_SECONDS)
        except BaseException:  # the next wait starts another thread
            with self._lock:
                self._is_running = False
            raise

    def _listen_until_unused(self) -> None:
        """Receive notifications until nothing waits."""
        with self._connect(self._dsn, **_SETTINGS) as connection:
            connection.execute(f"LISTEN {_CHANNEL}")
            self._notifier.notify()
            while not self._mark_stopped_if_unused():
                for _ in connection.notifies(timeout=_POLL_SECONDS, stop_after=1):
                    self._notifier.notify()


def _load_driver() -> tuple[type[Exception], Any, Any]:
    """Return the driver's error class, its connect function and its pool class. Raises `ValueError`."""
    try:
        driver, pools = import_module("psycopg"), import_module("psycopg_pool")
    except ImportError as error:
        raise ValueError(
            "PostgresInterruptStore needs psycopg with its pool: pip install 'codemode-toolkit[postgres]'"
        ) from error
    return driver.Error, driver.connect, pools.ConnectionPool
