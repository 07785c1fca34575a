"""Who may resume a continuation: one set of answers, once. Knows nothing of programs; keeps texts by key.

A claim is made before anything runs and gets its outcome afterwards. The same answers again get that outcome; other
answers are refused. Claims are forgotten some time after the continuation has expired, for then nobody can resume it
anyway.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from .cancellation import to_its_end
from .errors import CodeModeProtocolError
from .option_checks import path_text

ResultT = TypeVar("ResultT")
_POLL_SECONDS = 0.05
# The clocks of hosts that share a guard differ: by the slowest one the continuation may still hold.
_KEPT_AFTER_EXPIRY_MS = 60_000


@dataclass(frozen=True, slots=True)
class Claim:
    """One resume. ``key`` names the continuation, ``answers`` the digest of what was answered.

    ``running_until_ms`` is when a claim without an outcome is taken for lost, ``expires_at_ms`` when the continuation
    expires; a guard keeps the claim until then and for a minute more.
    """

    key: str
    answers: str
    running_until_ms: int
    expires_at_ms: int


class ResumeGuard(Protocol):
    """Where claims are kept. Every method is atomic across everything that shares the guard."""

    async def claim(self, claim: Claim) -> str | None:
        """Return None when the caller now owns the resume, or the recorded outcome of the same answers.

        Waits while the same answers are being run. Raises `CodeModeProtocolError`, with ``details["superseded"]`` for
        other answers.
        """
        ...

    async def record(self, key: str, outcome: str) -> None:
        """Keep the outcome of the owned claim."""
        ...

    async def release(self, key: str) -> None:
        """Give the owned claim back: nothing was run."""
        ...


@dataclass(slots=True)
class _Kept:
    claim: Claim
    outcome: str | None = None
    has_outcome: bool = False


class MemoryResumeGuard:
    """Claims of this process. Outcomes beyond ``max_outcome_bytes`` are dropped, claims are not.

    A repeat whose outcome was dropped is refused. When ``max_claims`` continuations that have not expired are claimed,
    further resumes are refused.
    """

    def __init__(self, *, max_claims: int = 100_000, max_outcome_bytes: int = 16 << 20) -> None:
        self._max_claims = max_claims
        self._max_outcome_bytes = max_outcome_bytes
        self._outcome_bytes = 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    async def claim(self, claim: Claim) -> str | None:
        """See `ResumeGuard.claim`."""
        return await _claim_when_settled(self._try_claim, claim)

    async def record(self, key: str, outcome: str) -> None:
        """See `ResumeGuard.record`."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return
            kept.outcome, kept.has_outcome = outcome, True
            self._outcome_bytes += len(outcome)
            self._drop_outcomes()

    async def release(self, key: str) -> None:
        """See `ResumeGuard.release`."""
        with self._lock:
            self._kept.pop(key, None)

    async def _try_claim(self, claim: Claim) -> tuple[str, str | None]:
        now_ms = _now_ms()
        with self._lock:
            self._forget_expired(now_ms)
            kept = self._kept.get(claim.key)
            if kept is not None:
                return _standing(kept.claim, claim, kept.outcome, now_ms, has_outcome=kept.has_outcome)
            if len(self._kept) >= self._max_claims:
                raise CodeModeProtocolError("the resume guard is full: too many continuations are being resumed")
            self._kept[claim.key] = _Kept(claim)
        return "owned", None

    def _forget_expired(self, now_ms: int) -> None:
        # Claims are nearly in order of expiry; what is behind a longer-lived one is found later.
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if kept.claim.expires_at_ms + _KEPT_AFTER_EXPIRY_MS > now_ms:
                return
            self._outcome_bytes -= len(kept.outcome or "")
            del self._kept[key]

    def _drop_outcomes(self) -> None:
        for kept in self._kept.values():
            if self._outcome_bytes <= self._max_outcome_bytes:
                return
            self._outcome_bytes -= len(kept.outcome or "")
            kept.outcome = None


class SqliteResumeGuard:
    """Claims in a SQLite file, for all processes that open it. Old claims are deleted when they have expired."""

    def __init__(self, path: str | Path) -> None:
        self._path = path_text(path, "path")
        with self._connection() as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, answers TEXT NOT NULL,"
                " running_until_ms INTEGER NOT NULL, expires_at_ms INTEGER NOT NULL, outcome TEXT)"
            )

    async def claim(self, claim: Claim) -> str | None:
        """See `ResumeGuard.claim`."""
        return await _claim_when_settled(self._try_claim, claim)

    async def record(self, key: str, outcome: str) -> None:
        """See `ResumeGuard.record`."""
        await self._execute("UPDATE claims SET outcome = ? WHERE key = ?", (outcome, key))

    async def release(self, key: str) -> None:
        """See `ResumeGuard.release`."""
        await self._execute("DELETE FROM claims WHERE key = ? AND outcome IS NULL", (key,))

    async def _try_claim(self, claim: Claim) -> tuple[str, str | None]:
        attempt = asyncio.ensure_future(asyncio.to_thread(self._try_claim_now, claim))
        try:
            return await to_its_end(attempt)
        except asyncio.CancelledError:
            # The thread went on, and what it claimed would be nobody's.
            if not attempt.cancelled() and attempt.exception() is None and attempt.result()[0] == "owned":
                await self.release(claim.key)
            raise

    def _try_claim_now(self, claim: Claim) -> tuple[str, str | None]:
        now_ms = _now_ms()
        with self._connection() as connection:
            connection.execute("DELETE FROM claims WHERE expires_at_ms <= ?", (now_ms - _KEPT_AFTER_EXPIRY_MS,))
            found = connection.execute(
                "SELECT answers, running_until_ms, expires_at_ms, outcome FROM claims WHERE key = ?", (claim.key,)
            ).fetchone()
            if found is not None:
                answers, running_until_ms, expires_at_ms, outcome = found
                kept = Claim(claim.key, answers, running_until_ms, expires_at_ms)
                return _standing(kept, claim, outcome, now_ms, has_outcome=outcome is not None)
            values = (claim.key, claim.answers, claim.running_until_ms, claim.expires_at_ms)
            connection.execute("INSERT INTO claims VALUES (?, ?, ?, ?, NULL)", values)
        return "owned", None

    async def _execute(self, statement: str, values: tuple[str, ...]) -> None:
        await to_its_end(asyncio.ensure_future(asyncio.to_thread(self._execute_now, statement, values)))

    def _execute_now(self, statement: str, values: tuple[str, ...]) -> None:
        with self._connection() as connection:
            connection.execute(statement, values)

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


def _standing(
    kept: Claim, claim: Claim, outcome: str | None, now_ms: int, *, has_outcome: bool
) -> tuple[str, str | None]:
    """Return what an existing claim means for a new one: its outcome, or that it still runs."""
    if kept.answers != claim.answers:
        raise CodeModeProtocolError(
            "the continuation has already been resumed with other answers",
            details={"superseded": True, "outcome": outcome},
        )
    if outcome is not None:
        return "settled", outcome
    if has_outcome:
        raise CodeModeProtocolError("the continuation has already been resumed; its outcome is no longer kept")
    if now_ms > kept.running_until_ms:
        raise CodeModeProtocolError("the continuation was resumed by somebody who never said how it ended")
    return "running", None


async def _claim_when_settled(
    try_claim: Callable[[Claim], Awaitable[tuple[str, str | None]]], claim: Claim
) -> str | None:
    while True:
        state, outcome = await try_claim(claim)
        if state != "running":
            return outcome
        await asyncio.sleep(_POLL_SECONDS)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
