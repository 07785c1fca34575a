"""Store claims in an SQL database; `codemode.continuations.guard` defines their meaning."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, TypeVar

from ..host.cancellation import shield_until_done
from ..host.job_threads import run_in_dedicated_thread
from .guard import (
    LAPSED,
    RETENTION_AFTER_EXPIRY_MS,
    Backoff,
    Claim,
    ClaimState,
    GuardClock,
    Heartbeat,
    LapseDetector,
    require_same_answers,
)

ResultT = TypeVar("ResultT")


class StatementExecutor(Protocol):
    """Executes statements of a transaction; placeholders are ``?``."""

    def execute(self, statement: str, values: tuple[Any, ...] = (), /) -> Any:
        """Run a statement, and return a cursor with ``fetchone`` and ``rowcount``."""
        ...


class SqlResumeGuard(ABC):
    """Claims in one table. Transactions are exclusive: no other one claims, renews or records at the same time."""

    is_shared_between_processes = True
    content_store: Any = None
    """See `MemoryResumeGuard`."""
    table: ClassVar[str]

    def __init__(self, clock: GuardClock | None) -> None:
        self._test_clock = clock
        self._clock = clock if clock is not None else GuardClock()
        self._heartbeats: dict[str, int] = {}  # of claims made here

    async def claim(self, claim: Claim) -> str | ClaimState | None:
        """See `ResumeGuard.claim`."""
        backoff, detector = Backoff(self._clock), LapseDetector(self._clock)
        while True:
            result = await self._try_claim(claim)
            if not isinstance(result, Heartbeat):
                return result
            if detector.observe_and_check_lapse(result) and await _run_in_guard_thread(
                lambda beat=result: self._take_over_claim_sync(claim, beat)
            ):
                return LAPSED
            await backoff.wait()

    async def renew(self, key: str) -> bool:
        """See `ResumeGuard.renew`."""
        return await _run_in_guard_thread(lambda: self._renew_sync(key, self._heartbeats.get(key)))

    async def record(self, key: str, outcome: str) -> str | None:
        """See `ResumeGuard.record`."""
        self._heartbeats.pop(key, None)
        return await shield_until_done(_run_in_guard_thread(lambda: self._record_sync(key, outcome)))

    async def release(self, key: str) -> None:
        """See `ResumeGuard.release`."""
        heartbeat = self._heartbeats.pop(key, None)
        await shield_until_done(_run_in_guard_thread(lambda: self._release_sync(key, heartbeat)))

    async def _try_claim(self, claim: Claim) -> str | Heartbeat | None:
        attempt = asyncio.ensure_future(_run_in_guard_thread(lambda: self._try_claim_sync(claim)))
        try:
            return await shield_until_done(attempt)
        except asyncio.CancelledError:
            # The thread finished after the cancellation, and its claim would have no owner.
            if not attempt.cancelled() and attempt.exception() is None and attempt.result() is None:
                await self.release(claim.key)
            raise

    def _try_claim_sync(self, claim: Claim) -> str | Heartbeat | None:
        with self._transaction() as connection:
            row = connection.execute(
                f"SELECT answers, beat, renewed_at_ms, outcome FROM {self.table} WHERE key = ?", (claim.key,)
            ).fetchone()
            now_ms = self._read_now_ms(connection)
            if row is not None:
                answers, number, renewed_at_ms, outcome = row
                require_same_answers(answers, claim, outcome)
                return outcome if outcome is not None else Heartbeat(number, (now_ms - renewed_at_ms) / 1000)
            connection.execute(
                f"DELETE FROM {self.table} WHERE expires_at_ms <= ?", (now_ms - RETENTION_AFTER_EXPIRY_MS,)
            )
            values = (claim.key, claim.answers, claim.expires_at_ms, now_ms)
            connection.execute(f"INSERT INTO {self.table} VALUES (?, ?, ?, 1, ?, NULL)", values)
        self._heartbeats[claim.key] = 1
        return None

    def _take_over_claim_sync(self, claim: Claim, heartbeat: Heartbeat) -> bool:
        return self._renew_sync(claim.key, heartbeat.number)

    def _renew_sync(self, key: str, heartbeat: int | None) -> bool:
        """Renew after that heartbeat. Returns False if another owner has renewed it or recorded an outcome."""
        if heartbeat is None:
            return False
        statement = (
            f"UPDATE {self.table} SET beat = beat + 1, renewed_at_ms = ? WHERE key = ? AND beat = ? AND outcome IS NULL"
        )
        with self._transaction() as connection:
            is_renewed = connection.execute(statement, (self._read_now_ms(connection), key, heartbeat)).rowcount == 1
        if is_renewed:
            self._heartbeats[key] = heartbeat + 1
        return is_renewed

    def _record_sync(self, key: str, outcome: str) -> str | None:
        with self._transaction() as connection:
            connection.execute(f"UPDATE {self.table} SET outcome = ? WHERE key = ? AND outcome IS NULL", (outcome, key))
            row = connection.execute(f"SELECT outcome FROM {self.table} WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def _release_sync(self, key: str, heartbeat: int | None) -> None:
        with self._transaction() as connection:
            connection.execute(
                f"DELETE FROM {self.table} WHERE key = ? AND outcome IS NULL AND beat = coalesce(?, beat)",
                (key, heartbeat),
            )

    def _read_now_ms(self, connection: StatementExecutor) -> int:
        if self._test_clock is not None:
            return self._test_clock.now_ms()
        return self._read_database_time_ms(connection)

    @abstractmethod
    def _read_database_time_ms(self, connection: StatementExecutor) -> int: ...

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[StatementExecutor]: ...


def create_claims_table(connection: StatementExecutor, table: str) -> None:
    """Create the table of claims, if it does not exist."""
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {table} (key TEXT PRIMARY KEY, answers TEXT NOT NULL,"
        " expires_at_ms BIGINT NOT NULL, beat BIGINT NOT NULL, renewed_at_ms BIGINT NOT NULL, outcome TEXT)"
    )
    connection.execute(f"CREATE INDEX IF NOT EXISTS {table}_by_expiry ON {table} (expires_at_ms)")


def _run_in_guard_thread(work: Callable[[], ResultT]) -> Coroutine[Any, Any, ResultT]:
    # A claim must be renewed in time.
    return run_in_dedicated_thread(work, "codemode-guard")
