"""Private files and SQLite tables of the gateway's state, and removal of unused ones."""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import stat
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from codemode.host.forks import create_fork_safe_lock
from codemode.host.threads import BackgroundThreads

_HAS_OWNERS = hasattr(os, "getuid")


def find_file_privacy_problem(status: os.stat_result) -> str | None:
    """Return why other users may have written or read a file, and what to do; None if they cannot."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file: remove it"
    if _HAS_OWNERS and status.st_uid != os.getuid():
        return "it belongs to another user: remove it"
    if _HAS_OWNERS and status.st_mode & 0o077:
        return "other users may access it: set its mode to 600"
    return None


def find_folder_privacy_problem(status: os.stat_result) -> str | None:
    """Return why other users may create files in a folder, and what to do; None if they cannot."""
    if _HAS_OWNERS and status.st_uid not in (os.getuid(), 0):
        return "its folder belongs to another user: use one of your own (XDG_STATE_HOME)"
    if _HAS_OWNERS and status.st_mode & 0o022:
        return "other users may write to its folder: set the folder's mode to 700"
    return None


class UnsafeFileError(OSError):
    """A file or folder that other users can read or could have written."""


def read_private_file(path: Path, max_bytes: int) -> str | None:
    """Return the text of a file, or None if missing.

    Raises `UnsafeFileError` for a file of another owner, one that others may access, a too large one, or a link.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnsafeFileError(f"{path} cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        problem = find_file_privacy_problem(status)
        if problem is None and status.st_size > max_bytes:
            problem = "it is too large: remove it"
        if problem is not None:
            raise UnsafeFileError(f"{path} is not used: {problem}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(max_bytes).decode("utf-8", errors="replace")
    finally:
        os.close(descriptor)


def write_private_file(path: Path, data: bytes) -> None:
    """Write a file that only this user can access, as a whole or not at all. Raises `OSError`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


UNUSED_SECONDS = 90 * 86_400.0
"""State that is unused for this time is removed: of former users, and of deleted configurations."""
_CLEANUP_INTERVAL_SECONDS = 86_400.0
_log = logging.getLogger("codemode.mcp")
_last_cleanups: dict[Path, float] = {}


def is_file_unused(status: os.stat_result, seconds: float = UNUSED_SECONDS) -> bool:
    """Return whether a file is unused for ``seconds``."""
    return time.time() - status.st_mtime > seconds


def mark_file_used(path: Path) -> None:
    """Update the modification time of a used file, at most once a day. Ignores files of other users."""
    with suppress(OSError):
        if is_file_unused(path.lstat(), _CLEANUP_INTERVAL_SECONDS):
            os.utime(path)


def start_cleanup_if_due(folder: Path, remove: Callable[[Path], None]) -> None:
    """Call ``remove(folder)`` in a thread, at most once a day in each process, so that the folder stays small.

    Errors are logged.
    """
    current_time = time.monotonic()
    if current_time - _last_cleanups.get(folder, -_CLEANUP_INTERVAL_SECONDS) < _CLEANUP_INTERVAL_SECONDS:
        return
    _last_cleanups[folder] = current_time

    def clean_up() -> None:
        try:
            remove(folder)
        except OSError as error:
            _log.info("unused files of %s cannot be removed: %s", folder, error.strerror)

    BackgroundThreads("codemode-unused", 1, idle_seconds=0).submit(clean_up)


_LOCK_TIMEOUT_SECONDS = 5.0
_MAX_BYTES = 512 << 20


class PrivateDatabase:
    """SQLite tables in a private file, created at the first write. Without ``path`` they are in memory."""

    def __init__(self, path: Path | None, *statements: str) -> None:
        self._path = path
        self._statements = statements
        self._lock = create_fork_safe_lock()
        self._memory = sqlite3.connect(":memory:", check_same_thread=False) if path is None else None
        if self._memory is not None:  # Python 3.13 and later warn about unclosed connections
            weakref.finalize(self, self._memory.close).atexit = False

    @property
    def change_stamp(self) -> object:
        """A value that changes whenever the file is written."""
        try:
            status = None if self._path is None else self._path.stat()
        except OSError:
            return None
        return None if status is None else (status.st_mtime_ns, status.st_size, status.st_ino)

    @contextmanager
    def open(self, *, writes: bool = False) -> Generator[sqlite3.Connection]:
        """Open the tables in one transaction. Without ``writes`` a missing file counts as empty.

        Raises `OSError` if the file is unusable or if other users may access it or write to its folder.
        Security: SQLite would apply a journal file that another user puts there.
        """
        try:
            if self._memory is not None:
                with self._lock, self._memory:
                    yield self._create_tables(self._memory)
                return
            with closing(_open_or_create_database(self._path or Path(), writes=writes)) as file, file:
                yield self._create_tables(file)
        except sqlite3.Error as error:
            raise OSError(f"{self._path} cannot be used: {error}") from error

    def _create_tables(self, file: sqlite3.Connection) -> sqlite3.Connection:
        for statement in self._statements:
            file.execute(statement)
        return file


def _open_or_create_database(path: Path, *, writes: bool) -> sqlite3.Connection:
    try:
        status = path.lstat()
    except FileNotFoundError:
        if not writes:
            return sqlite3.connect(":memory:")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):  # O_EXCL does not follow links
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        status = path.lstat()
    problem = find_file_privacy_problem(status) or find_folder_privacy_problem(path.parent.stat())
    if problem is None and status.st_size > _MAX_BYTES:
        problem = "it is too large: remove it"
    if problem is not None:
        raise OSError(f"{path} is not used: {problem}")
    return sqlite3.connect(path, timeout=_LOCK_TIMEOUT_SECONDS)


PRINCIPALS_TABLE = "CREATE TABLE IF NOT EXISTS principals (name TEXT PRIMARY KEY, day INTEGER NOT NULL) WITHOUT ROWID"
"""Creates the table of principals, for files whose other tables have a column ``principal``."""
_DAY_SECONDS = 86_400
_INACTIVE_PRINCIPALS = "SELECT name FROM principals WHERE day < ?"


def get_current_epoch_day() -> int:
    """Return the current day as a number since 1970."""
    return int(time.time()) // _DAY_SECONDS


def is_use_recorded_today(file: sqlite3.Connection, principal: str) -> bool:
    """Return whether today's use by a principal is already noted."""
    cursor = file.execute("SELECT 1 FROM principals WHERE name = ? AND day = ?", (principal, get_current_epoch_day()))
    return cursor.fetchone() is not None


def record_use_and_prune_tables(file: sqlite3.Connection, principal: str, *tables: str) -> None:
    """Note a principal's use today, and delete rows in ``tables`` of principals unused for 90 days.

    Call it once a day, within a transaction. Principals without a note count as used today.
    """
    for table in tables:
        file.execute(
            f"INSERT OR IGNORE INTO principals SELECT DISTINCT principal, ? FROM {table}", (get_current_epoch_day(),)
        )
    file.execute("INSERT OR REPLACE INTO principals VALUES (?, ?)", (principal, get_current_epoch_day()))
    before = (get_current_epoch_day() - int(UNUSED_SECONDS) // _DAY_SECONDS,)
    for table in tables:
        file.execute(f"DELETE FROM {table} WHERE principal IN ({_INACTIVE_PRINCIPALS})", before)
    file.execute(f"DELETE FROM principals WHERE name IN ({_INACTIVE_PRINCIPALS})", before)
