"""Claims in a SQLite file, for all processes that open it. What they mean is said in `codemode.continuations.guard`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..host.forks import forkable_lock
from ..options.checked_fields import WrongTypeError
from .guard import GuardClock
from .sql_guard import SqlResumeGuard, Statements, make_table

_DATABASE_TIME = "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_FILES = ("", "-journal", "-wal", "-shm")
_PRIVATE = 0o600
_SCHEMES = ("sqlite", "postgresql", "postgres")


class SqliteResumeGuard(SqlResumeGuard):
    """Claims in a SQLite file, for all processes that open it; it and what stands beside it are readable by its owner.

    The file is opened when it is first needed, off the event loop: `OSError` tells of one that cannot be opened.
    So it does of one that was removed or replaced since. Old claims are deleted a day after they have expired. Time is
    the database's, unless a test gives a ``clock``.
    Raises `ValueError` for a ``path`` that is none.
    """

    table = "resumes"

    def __init__(self, path: str | Path, *, clock: GuardClock | None = None) -> None:
        named = file_named(path, ": for one process there is MemoryResumeGuard")
        super().__init__(clock)
        self._path = named
        self._file = OwnFile(self._path)
        self._is_open = False

    def _database_time(self, connection: Statements) -> int:
        return connection.execute(_DATABASE_TIME).fetchone()[0]

    def _open(self) -> None:
        with _making:
            if self._is_open:
                return
            try:
                make_private(self._path)
                with self._connection() as connection:
                    make_table(connection, self.table)
                self._file.know()
            except (OSError, sqlite3.Error) as error:
                raise OSError(f"the claims of resumes cannot be kept in {self._path!r}: {error}") from error
            self._is_open = True

    @contextmanager
    def _transaction(self) -> Generator[Statements]:
        if not self._is_open:
            self._open()
        self._file.require()
        with self._connection() as connection:
            yield connection

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection]:
        """One connection per transaction: it works from any thread and after a fork."""
        connection = sqlite3.connect(self._path, timeout=10, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        finally:
            connection.close()


def file_named(path: str | Path, instead: str = "") -> str:
    """Return a path as text. Raises `ValueError` for what names no file; ``instead`` ends what is said of memory."""
    if not isinstance(path, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongTypeError(f"path must be a string or a path, got {path!r}")
    named = str(path)
    if named in ("", ":memory:"):
        raise ValueError(f"path must name a file, got {named!r}{instead}")
    scheme = named.partition(":")[0]
    if scheme in _SCHEMES and ":" in named:
        # Not the whole: the URL of another database has a password in it.
        raise ValueError(f"path must name a file, got a URL ({scheme}:...): write the path alone, as in 'approvals.db'")
    return named


class OwnFile:
    """Tells whether a file is still the one that was opened.

    SQLite goes on with what has no name any more: it would keep what nobody else sees, and what is gone with its
    process; and it makes a new file where there is none, in which nothing is claimed.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._known: tuple[int, int] | None = None

    def know(self) -> None:
        """Take it as it is now for the one that was opened."""
        self._known = self._found()

    def require(self) -> None:
        """Raise `OSError` where it was removed or replaced since."""
        try:
            found = self._found()
        except FileNotFoundError:
            found = None
        if found != self._known:
            raise OSError(
                "the file was removed or replaced while it was open here: put it back, or start the processes that"
                " have it open again"
            )

    def _found(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_dev, found.st_ino


def make_private(path: str) -> None:
    """Let nobody else read the file, from before there is anything in it. What SQLite puts beside it follows."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _PRIVATE))
    # Never opened again: closing a descriptor would take away the locks that SQLite holds in other threads.
    for beside in _FILES:
        with suppress(FileNotFoundError, PermissionError):
            file = Path(path + beside)
            if file.stat().st_mode & 0o077:
                file.chmod(_PRIVATE)


_making = forkable_lock()
