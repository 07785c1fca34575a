"""Claims in a SQLite file, for all processes that open it. What they mean is said in `codemode.continuations.guard`."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..host.cancellation import to_its_end
from ..options.checked_fields import WrongTypeError
from .guard import (
    KEPT_AFTER_EXPIRY_MS,
    LAPSE_SECONDS,
    LAPSED,
    Claim,
    ClaimState,
    GuardClock,
    Pauses,
    require_same_answers,
)

ResultT = TypeVar("ResultT")
# Two missed renewals and more. Peers may be on hosts whose clocks differ: none takes a claim over by its own alone.
_WATCH_SECONDS = 15.0
_TABLE = (
    "CREATE TABLE IF NOT EXISTS resumes (key TEXT PRIMARY KEY, answers TEXT NOT NULL, expires_at_ms INTEGER NOT NULL,"
    " beat INTEGER NOT NULL, renewed_at_ms INTEGER NOT NULL, outcome TEXT)"
)
_INDEX = "CREATE INDEX IF NOT EXISTS resumes_by_expiry ON resumes (expires_at_ms)"
_DATABASE_TIME = "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_FILES = ("", "-journal", "-wal", "-shm")
_PRIVATE = 0o600


class _Beat(NamedTuple):
    """The last sign of life of an owner, and how old it is by this process's clock."""

    number: int
    age_seconds: float


class SqliteResumeGuard:
    """Claims in a SQLite file, for all processes that open it; it and what stands beside it are readable by its owner.

    The file is opened when it is first needed, off the event loop: `OSError` tells of one that cannot be opened.
    Old claims are deleted a day after they have expired. Time is the database's, unless a test gives a ``clock``.
    Raises `ValueError` for a ``path`` that is none.
    """

    sees_other_processes = True

    def __init__(self, path: str | Path, *, clock: GuardClock | None = None) -> None:
        if not isinstance(path, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongTypeError(f"path must be a string or a path, got {path!r}")
        if str(path) in ("", ":memory:"):
            raise ValueError(f"path must name a file, got {str(path)!r}: for one process there is MemoryResumeGuard")
        self._path = str(path)
        self._own_clock = clock
        self._clock = clock if clock is not None else GuardClock()
        self._beats: dict[str, int] = {}  # of the claims that were made here
        self._is_open = False

    async def claim(self, claim: Claim) -> str | ClaimState | None:
        """See `ResumeGuard.claim`."""
        pauses, watch = Pauses(self._clock), _Watch(self._clock)
        while True:
            standing = await self._try_claim(claim)
            if not isinstance(standing, _Beat):
                return standing
            if watch.has_lapsed(standing) and await _in_thread(lambda beat=standing: self._take_over_now(claim, beat)):
                return LAPSED
            await pauses.next()

    async def renew(self, key: str) -> bool:
        """See `ResumeGuard.renew`."""
        return await _in_thread(lambda: self._beat_now(key, self._beats.get(key)))

    async def record(self, key: str, outcome: str) -> str | None:
        """See `ResumeGuard.record`."""
        self._beats.pop(key, None)
        return await to_its_end(_in_thread(lambda: self._record_now(key, outcome)))

    async def release(self, key: str) -> None:
        """See `ResumeGuard.release`."""
        beat = self._beats.pop(key, None)
        await to_its_end(_in_thread(lambda: self._release_now(key, beat)))

    async def _try_claim(self, claim: Claim) -> str | _Beat | None:
        attempt = asyncio.ensure_future(_in_thread(lambda: self._try_claim_now(claim)))
        try:
            return await to_its_end(attempt)
        except asyncio.CancelledError:
            # The thread went on, and what it claimed would be nobody's.
            if not attempt.cancelled() and attempt.exception() is None and attempt.result() is None:
                await self.release(claim.key)
            raise

    def _try_claim_now(self, claim: Claim) -> str | _Beat | None:
        with self._connection() as connection:
            found = connection.execute(
                "SELECT answers, beat, renewed_at_ms, outcome FROM resumes WHERE key = ?", (claim.key,)
            ).fetchone()
            now_ms = self._now_ms(connection)
            if found is not None:
                answers, beat, renewed_at_ms, outcome = found
                require_same_answers(answers, claim, outcome)
                return outcome if outcome is not None else _Beat(beat, (now_ms - renewed_at_ms) / 1000)
            connection.execute("DELETE FROM resumes WHERE expires_at_ms <= ?", (now_ms - KEPT_AFTER_EXPIRY_MS,))
            values = (claim.key, claim.answers, claim.expires_at_ms, now_ms)
            connection.execute("INSERT INTO resumes VALUES (?, ?, ?, 1, ?, NULL)", values)
        self._beats[claim.key] = 1
        return None

    def _take_over_now(self, claim: Claim, beat: _Beat) -> bool:
        return self._beat_now(claim.key, beat.number)

    def _beat_now(self, key: str, beat: int | None) -> bool:
        """Give a sign of life after that one. False: somebody else has given one, or an outcome."""
        if beat is None:
            return False
        statement = (
            "UPDATE resumes SET beat = beat + 1, renewed_at_ms = ? WHERE key = ? AND beat = ? AND outcome IS NULL"
        )
        with self._connection() as connection:
            done = connection.execute(statement, (self._now_ms(connection), key, beat)).rowcount == 1
        if done:
            self._beats[key] = beat + 1
        return done

    def _record_now(self, key: str, outcome: str) -> str | None:
        with self._connection() as connection:
            connection.execute("UPDATE resumes SET outcome = ? WHERE key = ? AND outcome IS NULL", (outcome, key))
            found = connection.execute("SELECT outcome FROM resumes WHERE key = ?", (key,)).fetchone()
        return None if found is None else found[0]

    def _release_now(self, key: str, beat: int | None) -> None:
        with self._connection() as connection:
            connection.execute(
                "DELETE FROM resumes WHERE key = ? AND outcome IS NULL AND beat = coalesce(?, beat)", (key, beat)
            )

    def _now_ms(self, connection: sqlite3.Connection) -> int:
        if self._own_clock is not None:
            return self._own_clock.now_ms()
        return connection.execute(_DATABASE_TIME).fetchone()[0]

    def _open(self) -> None:
        with _making:
            if self._is_open:
                return
            try:
                _make_private(self._path)
                with self._transaction() as connection:
                    connection.execute(_TABLE)
                    connection.execute(_INDEX)
            except (OSError, sqlite3.Error) as error:
                raise OSError(f"the claims of resumes cannot be kept in {self._path!r}: {error}") from error
            self._is_open = True

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection]:
        if not self._is_open:
            self._open()
        with self._transaction() as connection:
            yield connection

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
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


class _Watch:
    """What one that waits has seen of an owner's life, by the speed of its own clock and not by what that says."""

    def __init__(self, clock: GuardClock) -> None:
        self._clock = clock
        self._seen: int | None = None
        self._since = 0.0

    def has_lapsed(self, beat: _Beat) -> bool:
        """Return True when there was no sign of life for a minute, as far as that can be told."""
        now = self._clock.seconds()
        if beat.number != self._seen:
            self._seen, self._since = beat.number, now
        watched = now - self._since
        return watched >= LAPSE_SECONDS or (beat.age_seconds >= LAPSE_SECONDS and watched >= _WATCH_SECONDS)


def _make_private(path: str) -> None:
    """Let nobody else read the file, from before there is anything in it. What SQLite puts beside it follows."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _PRIVATE))
    # Never opened again: closing a descriptor would take away the locks that SQLite holds in other threads.
    for beside in _FILES:
        with suppress(FileNotFoundError, PermissionError):
            file = Path(path + beside)
            if file.stat().st_mode & 0o077:
                file.chmod(_PRIVATE)


async def _in_thread(work: Callable[[], ResultT]) -> ResultT:
    """Run work in a thread of its own: those of the loop may all be taken, and a claim must be renewed in time."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ResultT] = loop.create_future()

    def run() -> None:
        settle: Callable[[Any], None] = done.set_result
        try:
            outcome: Any = work()
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
            settle, outcome = done.set_exception, error
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(_settle, done, settle, outcome)

    threading.Thread(target=run, name="codemode-guard", daemon=True).start()
    return await done


def _settle(done: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not done.done():
        settle(outcome)


_making = threading.Lock()


def _forget_lock() -> None:  # in a forked child of the host: a thread that is not in it may hold the lock
    global _making  # noqa: PLW0603 - one lock for the process
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)
