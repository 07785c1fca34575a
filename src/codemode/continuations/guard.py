"""Resume a continuation once, with one set of answers, under a renewed claim."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from ..errors import CodeModeProtocolError
from ..host.cancellation import run_alongside_block
from ..host.clock import monotonic_seconds, now_ms
from ..host.forks import create_fork_safe_lock
from ..records import record

# A claim is made before anything runs, renewed while its owner lives, and gets its outcome at the end. The same answers
# wait for that outcome; other answers are refused. If an owner dies, its claim is not renewed: once it has lapsed, the
# same answers learn this, and ask for the outcomes of calls instead of making them.
#
# The guard judges time, not its callers, whose clocks differ. Claims are kept for a day after the continuation has
# expired: by a slower clock it may still be valid.

LAPSE_SECONDS = 60.0
"""How long a claim is valid without renewal."""
RENEW_SECONDS = 5.0
"""How often an owner renews its claim; at the latest after ten seconds."""
RETENTION_AFTER_EXPIRY_MS = 86_400_000
_MAX_CLOCK_SKEW_MS = 60_000
_MAX_RELEASED_CLAIMS = 64
_MIN_POLL_SECONDS = 0.05
_MAX_POLL_SECONDS = 0.5
# More than two missed renewals. Hosts have different clocks: none takes a claim over by its own clock alone.
_MIN_WATCH_SECONDS = 15.0
_MAX_WATCH_STEP_SECONDS = 5.0


class ClaimState(Enum):
    """The state of a claim without an outcome. Guards return only `LAPSED`."""

    RUNNING = "RUNNING"
    LAPSED = "LAPSED"


RUNNING: Final = ClaimState.RUNNING
LAPSED: Final = ClaimState.LAPSED


@record
class Claim:
    """One resume. ``key`` identifies the continuation, ``answers`` is the digest of its answers.

    ``expires_at_ms`` is when the continuation expires; a guard keeps the claim for a day longer.
    """

    key: str
    answers: str
    expires_at_ms: int


class ResumeGuard(Protocol):
    """Stores claims. Every method is atomic across all users of the guard.

    One row per key is enough: the answers, the expiry, the last renewal by the store's own clock, the outcome.
    ``claim`` inserts it, ``renew`` sets the time, ``record`` the outcome, ``release`` deletes it.
    """

    async def claim(self, claim: Claim) -> str | ClaimState | None:
        """Return None if the caller now owns the resume, or the recorded outcome of the same answers.

        Waits while another owner runs the same answers. If its claim was not renewed for a minute, the caller
        owns it and gets `LAPSED`, because the effects of the last owner are unknown. Raises
        `CodeModeProtocolError`, with ``details["superseded"]``, for other answers.
        """
        ...

    async def renew(self, key: str) -> bool:
        """Renew the owned claim. Returns False if another owner has it: the caller must stop.

        Called every five seconds. Without this method the claims of a guard do not lapse.
        """
        ...

    async def record(self, key: str, outcome: str) -> str | None:
        """Record the outcome of the owned claim, unless it has one. Return the recorded outcome; None: this one."""
        ...

    async def release(self, key: str) -> None:
        """Release the owned claim: nothing was run."""
        ...


class GuardClock:
    """The clock of a guard; tests replace it."""

    def now_ms(self) -> int:
        """Return the wall clock, by which continuations expire."""
        return now_ms()

    def monotonic_seconds(self) -> float:
        """Return a monotonic clock in seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


@dataclass(slots=True)
class _ClaimRow:
    claim: Claim
    renewed_at: float
    renewals: int = 0
    outcome: str | None = None
    has_outcome: bool = False

    def renew(self, now: float) -> None:
        self.renewed_at, self.renewals = now, self.renewals + 1


class MemoryResumeGuard:
    """Claims of this process. Outcomes beyond ``max_outcome_bytes`` are dropped, claims are not.

    A repeat whose outcome was dropped is refused. Once ``max_claims`` unexpired continuations are claimed, further
    resumes are refused. Other processes do not see the claims.
    """

    is_shared_between_processes = False
    content_store: Any = None
    """The store of images, audio and files of programs under this guard, if it has one."""

    def __init__(
        self, *, max_claims: int = 100_000, max_outcome_bytes: int = 16 << 20, clock: GuardClock | None = None
    ) -> None:
        self._max_claims = max_claims
        self._max_outcome_bytes = max_outcome_bytes
        self._clock = clock if clock is not None else GuardClock()
        self._outcome_bytes = 0
        self._rows: dict[str, _ClaimRow] = {}
        self._by_expiry: list[tuple[int, str]] = []  # a heap; released claims stay in it for a while
        self._rows_with_outcome: deque[_ClaimRow] = deque()
        self._lock = create_fork_safe_lock()

    async def claim(self, claim: Claim) -> str | ClaimState | None:
        """See `ResumeGuard.claim`."""
        backoff, detector = Backoff(self._clock), LapseDetector(self._clock)
        while True:
            result = self._try_claim(claim, detector)
            if result is not RUNNING:
                return result
            await backoff.wait()

    async def renew(self, key: str) -> bool:
        """See `ResumeGuard.renew`."""
        with self._lock:
            row = self._rows.get(key)
            if row is None or row.has_outcome:
                return False
            row.renew(self._clock.monotonic_seconds())
            return True

    async def record(self, key: str, outcome: str) -> str | None:
        """See `ResumeGuard.record`."""
        with self._lock:
            row = self._rows.get(key)
            if row is None or row.has_outcome:
                return None if row is None else row.outcome
            row.outcome, row.has_outcome = outcome, True
            self._outcome_bytes += len(outcome)
            self._rows_with_outcome.append(row)
            self._drop_oldest_outcomes()
            return outcome

    async def release(self, key: str) -> None:
        """See `ResumeGuard.release`."""
        with self._lock:
            row = self._rows.get(key)
            if row is not None and not row.has_outcome:
                del self._rows[key]

    def _try_claim(self, claim: Claim, detector: LapseDetector) -> str | ClaimState | None:
        now = self._clock.monotonic_seconds()
        with self._lock:
            self._delete_expired_claims()
            row = self._rows.get(claim.key)
            if row is None:
                self._insert_claim(claim, now)
                return None
            require_same_answers(row.claim.answers, claim, row.outcome)
            if row.outcome is not None:
                return row.outcome
            if row.has_outcome:
                raise CodeModeProtocolError("the continuation has already been resumed; its outcome was dropped")
            if not detector.observe_and_check_lapse(Heartbeat(row.renewals, now - row.renewed_at)):
                return RUNNING
            row.renew(now)
            return LAPSED

    def _insert_claim(self, claim: Claim, now: float) -> None:
        if len(self._rows) >= self._max_claims:
            raise CodeModeProtocolError("the resume guard is full: too many continuations are being resumed")
        self._rows[claim.key] = _ClaimRow(claim, now)
        heapq.heappush(self._by_expiry, (claim.expires_at_ms, claim.key))
        if len(self._by_expiry) > 2 * len(self._rows) + _MAX_RELEASED_CLAIMS:
            self._by_expiry = sorted((row.claim.expires_at_ms, key) for key, row in self._rows.items())

    def _delete_expired_claims(self) -> None:
        now_ms = self._clock.now_ms()
        while self._by_expiry:
            expires_at_ms, key = self._by_expiry[0]
            # There is only one clock here: if the guard is full, a small margin is enough.
            is_full = len(self._rows) >= self._max_claims
            if expires_at_ms + (_MAX_CLOCK_SKEW_MS if is_full else RETENTION_AFTER_EXPIRY_MS) > now_ms:
                break
            heapq.heappop(self._by_expiry)
            row = self._rows.get(key)
            if row is not None and row.claim.expires_at_ms == expires_at_ms:
                self._drop_outcome(row)
                del self._rows[key]
        while self._rows_with_outcome and self._rows_with_outcome[0].outcome is None:
            self._rows_with_outcome.popleft()

    def _drop_oldest_outcomes(self) -> None:
        while self._rows_with_outcome and self._outcome_bytes > self._max_outcome_bytes:
            self._drop_outcome(self._rows_with_outcome.popleft())

    def _drop_outcome(self, row: _ClaimRow) -> None:
        self._outcome_bytes -= len(row.outcome or "")
        row.outcome = None


class Heartbeat(NamedTuple):
    """The last renewal of an owner and its age by this process's clock."""

    number: int
    age_seconds: float


class LapseDetector:
    """Detects a lapsed claim by the speed of this process's clock."""

    def __init__(self, clock: GuardClock) -> None:
        self._clock = clock
        self._last_number: int | None = None
        self._watched_seconds = self._last_check = 0.0

    def observe_and_check_lapse(self, heartbeat: Heartbeat) -> bool:
        """Return True if there was no renewal for a minute."""
        now = self._clock.monotonic_seconds()
        if heartbeat.number != self._last_number:
            self._last_number, self._watched_seconds = heartbeat.number, 0.0
        else:
            # A process that was suspended did not watch: the owner may be in the same process.
            self._watched_seconds += min(now - self._last_check, _MAX_WATCH_STEP_SECONDS)
        self._last_check = now
        is_old = heartbeat.age_seconds >= LAPSE_SECONDS
        return self._watched_seconds >= LAPSE_SECONDS or (is_old and self._watched_seconds >= _MIN_WATCH_SECONDS)


class Backoff:
    """The growing delays between polls for an outcome."""

    def __init__(self, clock: GuardClock) -> None:
        self._clock = clock
        self._seconds = _MIN_POLL_SECONDS

    async def wait(self) -> None:
        """Wait before the next poll."""
        await self._clock.sleep(self._seconds)
        self._seconds = min(self._seconds * 1.2, _MAX_POLL_SECONDS)


def require_same_answers(recorded_answers: str, claim: Claim, outcome: str | None) -> None:
    """Raise `CodeModeProtocolError` if a continuation was resumed with other answers."""
    if recorded_answers != claim.answers:
        raise CodeModeProtocolError(
            "the continuation has already been resumed with other answers: those count, and these ran nothing",
            details={"superseded": True, "outcome": outcome},
        )


_log = logging.getLogger("codemode.continuations")


_SAFE_CLAIM_SECONDS = LAPSE_SECONDS / 2


class ClaimLost(Exception):  # noqa: N818 - tells what happened to the claim, is no error of the program
    """Another host took the claim over, because this host was suspended and did not renew it."""


class ClaimRenewal:
    """Renews the claim of a resume, and checks it after this host may have been suspended."""

    def __init__(
        self, renew: Callable[[str], Awaitable[bool]], key: str, owner: asyncio.Task[Any], requested_at: float
    ) -> None:
        self._renew = renew
        self._key = key
        self._owner = owner
        self._lock = asyncio.Lock()
        self._renewed_at = requested_at
        self.is_lost = False

    async def renew_until_lost(self) -> None:
        """Renew it until it is lost."""
        while not self.is_lost:
            await asyncio.sleep(RENEW_SECONDS)
            async with self._lock:
                await self._try_renew_and_cancel_owner_if_lost()

    async def require_ownership_and_renew_if_stale(self) -> None:
        """Wait until a call may start: only while no other host can own the claim. Raises `CancelledError`."""
        if monotonic_seconds() - self._renewed_at < _SAFE_CLAIM_SECONDS:
            return
        async with self._lock:
            while not self.is_lost and monotonic_seconds() - self._renewed_at >= _SAFE_CLAIM_SECONDS:
                if not await self._try_renew_and_cancel_owner_if_lost():
                    await asyncio.sleep(RENEW_SECONDS)
        if self.is_lost:
            raise asyncio.CancelledError

    async def _try_renew_and_cancel_owner_if_lost(self) -> bool:
        """Renew the claim, and cancel the owner if it is lost. Returns False if the guard could not be reached."""
        requested_at = monotonic_seconds()
        try:
            self.is_lost = not await self._renew(self._key)
        except Exception:  # noqa: BLE001 - a guard is host code, and may work again the next time
            _log.warning("the claim of a resume could not be renewed", exc_info=True)
            return False
        self._renewed_at = requested_at
        if self.is_lost:
            self._owner.cancel()
        return True


@asynccontextmanager
async def keep_claim_renewed(guard: ResumeGuard, key: str, requested_at: float) -> AsyncGenerator[ClaimRenewal | None]:
    """Keep a claim alive while the block runs. Cancels the block and raises `ClaimLost` if it is lost.

    ``requested_at`` is when the claim was requested, by `monotonic_seconds`: this host may have been suspended
    since.
    """
    renew = getattr(guard, "renew", None)
    owner = asyncio.current_task()
    if renew is None or owner is None:
        yield None
        return
    renewal = ClaimRenewal(renew, key, owner, requested_at)
    async with run_alongside_block(renewal.renew_until_lost()):
        try:
            yield renewal
        except asyncio.CancelledError:
            if renewal.is_lost and not owner.uncancel():
                raise ClaimLost from None
            raise
