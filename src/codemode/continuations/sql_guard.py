"""Claims in a database, whichever it is. What they mean is said in `codemode.continuations.guard`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, TypeVar

from ..host.cancellation import to_its_end
from ..host.job_threads import in_own_thread
from .guard import (
    KEPT_AFTER_EXPIRY_MS,
    LAPSED,
    Beat,
    Claim,
    ClaimState,
    GuardClock,
    Pauses,
    Watch,
    require_same_answers,
)

ResultT = TypeVar("ResultT")


class Statements(Protocol):
    """What a transaction's statements go through; they are written with ``?``."""

    def execute(self, statement: str, values: tuple[Any, ...] = (), /) -> Any:
        """Run a statement, and return a cursor with ``fetchone`` and ``rowcount``."""
        ...


class SqlResumeGuard(ABC):
    """Claims in one table. A transaction of it is alone: no other one claims, renews or records meanwhile."""

    sees_other_processes = True
    content_store: Any = None
    """As `MemoryResumeGuard` has it."""
    table: ClassVar[str]

    def __init__(self, clock: GuardClock | None) -> None:
        self._own_clock = clock
        self._clock = clock if clock is not None else GuardClock()
        self._beats: dict[str, int] = {}  # of the claims that were made here

    async def claim(self, claim: Claim) -> str | ClaimState | None:
        """See `ResumeGuard.claim`."""
        pauses, watch = Pauses(self._clock), Watch(self._clock)
        while True:
            standing = await self._try_claim(claim)
            if not isinstance(standing, Beat):
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

    async def _try_claim(self, claim: Claim) -> str | Beat | None:
        attempt = asyncio.ensure_future(_in_thread(lambda: self._try_claim_now(claim)))
        try:
            return await to_its_end(attempt)
        except asyncio.CancelledError:
            # The thread went on, and what it claimed would be nobody's.
            if not attempt.cancelled() and attempt.exception() is None and attempt.result() is None:
                await self.release(claim.key)
            raise

    def _try_claim_now(self, claim: Claim) -> str | Beat | None:
        with self._transaction() as connection:
            found = connection.execute(
                f"SELECT answers, beat, renewed_at_ms, outcome FROM {self.table} WHERE key = ?", (claim.key,)
            ).fetchone()
            now_ms = self._now_ms(connection)
            if found is not None:
                answers, beat, renewed_at_ms, outcome = found
                require_same_answers(answers, claim, outcome)
                return outcome if outcome is not None else Beat(beat, (now_ms - renewed_at_ms) / 1000)
            connection.execute(f"DELETE FROM {self.table} WHERE expires_at_ms <= ?", (now_ms - KEPT_AFTER_EXPIRY_MS,))
            values = (claim.key, claim.answers, claim.expires_at_ms, now_ms)
            connection.execute(f"INSERT INTO {self.table} VALUES (?, ?, ?, 1, ?, NULL)", values)
        self._beats[claim.key] = 1
        return None

    def _take_over_now(self, claim: Claim, beat: Beat) -> bool:
        return self._beat_now(claim.key, beat.number)

    def _beat_now(self, key: str, beat: int | None) -> bool:
        """Give a sign of life after that one. False: somebody else has given one, or an outcome."""
        if beat is None:
            return False
        statement = (
            f"UPDATE {self.table} SET beat = beat + 1, renewed_at_ms = ? WHERE key = ? AND beat = ? AND outcome IS NULL"
        )
        with self._transaction() as connection:
            done = connection.execute(statement, (self._now_ms(connection), key, beat)).rowcount == 1
        if done:
            self._beats[key] = beat + 1
        return done

    def _record_now(self, key: str, outcome: str) -> str | None:
        with self._transaction() as connection:
            connection.execute(f"UPDATE {self.table} SET outcome = ? WHERE key = ? AND outcome IS NULL", (outcome, key))
            found = connection.execute(f"SELECT outcome FROM {self.table} WHERE key = ?", (key,)).fetchone()
        return None if found is None else found[0]

    def _release_now(self, key: str, beat: int | None) -> None:
        with self._transaction() as connection:
            connection.execute(
                f"DELETE FROM {self.table} WHERE key = ? AND outcome IS NULL AND beat = coalesce(?, beat)", (key, beat)
            )

    def _now_ms(self, connection: Statements) -> int:
        if self._own_clock is not None:
            return self._own_clock.now_ms()
        return self._database_time(connection)

    @abstractmethod
    def _database_time(self, connection: Statements) -> int: ...

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Statements]: ...


def make_table(connection: Statements, table: str) -> None:
    """Make the table of claims, where there is none."""
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {table} (key TEXT PRIMARY KEY, answers TEXT NOT NULL,"
        " expires_at_ms BIGINT NOT NULL, beat BIGINT NOT NULL, renewed_at_ms BIGINT NOT NULL, outcome TEXT)"
    )
    connection.execute(f"CREATE INDEX IF NOT EXISTS {table}_by_expiry ON {table} (expires_at_ms)")


def _in_thread(work: Callable[[], ResultT]) -> Coroutine[Any, Any, ResultT]:
    # A claim must be renewed in time.
    return in_own_thread(work, "codemode-guard")
