"""The resume guard: a continuation is resumed with one set of answers, once, under a renewed claim."""

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
from ..host.cancellation import run_alongside
from ..host.clock import monotonic_seconds, now_ms
from ..host.forks import forkable_lock
from ..records import record

# A claim is made before anything runs, renewed while its owner lives, and gets its outcome afterwards. The same
# answers again wait for that outcome; other answers are refused. An owner that dies leaves a claim that nobody renews:
# once it has lapsed, the same answers are told so, and ask what became of the calls instead of making them.
#
# Time is judged by the guard, never by its callers, whose clocks differ. Claims are kept for a day after the
# continuation has expired: by a slower clock it may still hold.

LAPSE_SECONDS = 60.0
"""How long a claim holds that nobody renews."""
RENEW_SECONDS = 5.0
"""How often an owner renews its claim; at the latest after ten."""
RETENTION_AFTER_EXPIRY_MS = 86_400_000
_MAX_CLOCK_SKEW_MS = 60_000
_MAX_RELEASED_CLAIMS = 64
_MIN_POLL_SECONDS = 0.05
_MAX_POLL_SECONDS = 0.5
# Two missed renewals and more. Peers may be on hosts whose clocks differ: none takes a claim over by its own alone.
_MIN_WATCH_SECONDS = 15.0
_MAX_WATCH_STEP_SECONDS = 5.0


class ClaimState(Enum):
    """What a guard says of a claim that has no outcome. Only `LAPSED` leaves a guard."""

    RUNNING = "RUNNING"
    LAPSED = "LAPSED"


RUNNING: Final = ClaimState.RUNNING
LAPSED: Final = ClaimState.LAPSED


@record
class Claim:
    """One resume. ``key`` names the continuation, ``answers`` is the digest of what was answered.

    ``expires_at_ms`` is when the continuation expires; a guard keeps the claim until then and for a day more.
    """

    key: str
    answers: str
    expires_at_ms: int


class ResumeGuard(Protocol):
    """Where claims are kept. Every method is atomic across everything that shares the guard.

    One row for each key is enough: the answers, when it expires, when it was last renewed by the store's own clock,
    the outcome. ``claim`` inserts it, ``renew`` sets the time, ``record`` the outcome, ``release`` deletes it.
    """

    async def claim(self, claim: Claim) -> str | ClaimState | None:
        """Return None when the caller now owns the resume, or the recorded outcome of the same answers.

        Waits while the same answers are being run, until their claim has not been renewed for a minute: then the caller
        owns it, and is told `LAPSED`, for what the one before has done is not known. Raises `CodeModeProtocolError`,
        with ``details["superseded"]``, for other answers.
        """
        ...

    async def renew(self, key: str) -> bool:
        """Say that the owner of the claim lives. False when the claim is no longer the owner's: it must stop.

        Called every five seconds. A guard may be without this method; then its claims do not lapse.
        """
        ...

    async def record(self, key: str, outcome: str) -> str | None:
        """Keep the outcome of the owned claim, unless it has one. Return the one that stands; None is this one."""
        ...

    async def release(self, key: str) -> None:
        """Give the owned claim back: nothing was run."""
        ...


class GuardClock:
    """The time of a guard, and how it waits. A test gives another one."""

    def now_ms(self) -> int:
        """Return the wall clock, by which continuations expire."""
        return now_ms()

    def seconds(self) -> float:
        """Return a clock that only ever runs forward, at the speed of time."""
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

    A repeat whose outcome was dropped is refused. When ``max_claims`` continuations that have not expired are claimed,
    further resumes are refused. Other processes do not see it.
    """

    sees_other_processes = False
    content_store: Any = None
    """Where programs under this guard keep their images, audio and files: beside the records, where it is a store's."""

    def __init__(
        self, *, max_claims: int = 100_000, max_outcome_bytes: int = 16 << 20, clock: GuardClock | None = None
    ) -> None:
        self._max_claims = max_claims
        self._max_outcome_bytes = max_outcome_bytes
        self._clock = clock if clock is not None else GuardClock()
        self._outcome_bytes = 0
        self._rows: dict[str, _ClaimRow] = {}
        self._by_expiry: list[tuple[int, str]] = []  # a heap; what was released stays in it for a while
        self._rows_with_outcome: deque[_ClaimRow] = deque()
        self._lock = forkable_lock()

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
            row.renew(self._clock.seconds())
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
            self._trim_outcomes()
            return outcome

    async def release(self, key: str) -> None:
        """See `ResumeGuard.release`."""
        with self._lock:
            row = self._rows.get(key)
            if row is not None and not row.has_outcome:
                del self._rows[key]

    def _try_claim(self, claim: Claim, detector: LapseDetector) -> str | ClaimState | None:
        now = self._clock.seconds()
        with self._lock:
            self._forget_expired()
            row = self._rows.get(claim.key)
            if row is None:
                self._insert(claim, now)
                return None
            require_same_answers(row.claim.answers, claim, row.outcome)
            if row.outcome is not None:
                return row.outcome
            if row.has_outcome:
                raise CodeModeProtocolError("the continuation has already been resumed; its outcome is no longer kept")
            if not detector.has_lapsed(Heartbeat(row.renewals, now - row.renewed_at)):
                return RUNNING
            row.renew(now)
            return LAPSED

    def _insert(self, claim: Claim, now: float) -> None:
        if len(self._rows) >= self._max_claims:
            raise CodeModeProtocolError("the resume guard is full: too many continuations are being resumed")
        self._rows[claim.key] = _ClaimRow(claim, now)
        heapq.heappush(self._by_expiry, (claim.expires_at_ms, claim.key))
        if len(self._by_expiry) > 2 * len(self._rows) + _MAX_RELEASED_CLAIMS:
            self._by_expiry = sorted((row.claim.expires_at_ms, key) for key, row in self._rows.items())

    def _forget_expired(self) -> None:
        now_ms = self._clock.now_ms()
        while self._by_expiry:
            expires_at_ms, key = self._by_expiry[0]
            # There is but one clock here: where room is needed it is enough to be sure.
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

    def _trim_outcomes(self) -> None:
        while self._rows_with_outcome and self._outcome_bytes > self._max_outcome_bytes:
            self._drop_outcome(self._rows_with_outcome.popleft())

    def _drop_outcome(self, row: _ClaimRow) -> None:
        self._outcome_bytes -= len(row.outcome or "")
        row.outcome = None


class Heartbeat(NamedTuple):
    """The last sign of life of an owner, and how old it is by this process's clock."""

    number: int
    age_seconds: float


class LapseDetector:
    """What one that waits has seen of an owner's life, by the speed of its own clock and not by what that says."""

    def __init__(self, clock: GuardClock) -> None:
        self._clock = clock
        self._last_number: int | None = None
        self._watched_seconds = self._last_check = 0.0

    def has_lapsed(self, heartbeat: Heartbeat) -> bool:
        """Return True when there was no sign of life for a minute, as far as that can be told."""
        now = self._clock.seconds()
        if heartbeat.number != self._last_number:
            self._last_number, self._watched_seconds = heartbeat.number, 0.0
        else:
            # Who stood still has not watched: the owner may be in this process, and have stood still with it.
            self._watched_seconds += min(now - self._last_check, _MAX_WATCH_STEP_SECONDS)
        self._last_check = now
        is_old = heartbeat.age_seconds >= LAPSE_SECONDS
        return self._watched_seconds >= LAPSE_SECONDS or (is_old and self._watched_seconds >= _MIN_WATCH_SECONDS)


class Backoff:
    """The pauses of one that waits for an outcome: longer and longer ones."""

    def __init__(self, clock: GuardClock) -> None:
        self._clock = clock
        self._seconds = _MIN_POLL_SECONDS

    async def wait(self) -> None:
        """Wait before looking again."""
        await self._clock.sleep(self._seconds)
        self._seconds = min(self._seconds * 1.2, _MAX_POLL_SECONDS)


def require_same_answers(recorded_answers: str, claim: Claim, outcome: str | None) -> None:
    """Raise `CodeModeProtocolError` when a continuation was resumed with other answers."""
    if recorded_answers != claim.answers:
        raise CodeModeProtocolError(
            "the continuation has already been resumed with other answers: those count, and these have run nothing",
            details={"superseded": True, "outcome": outcome},
        )


_log = logging.getLogger("codemode.continuations")


_SAFE_CLAIM_SECONDS = LAPSE_SECONDS / 2


class ClaimLost(Exception):  # noqa: N818 - tells what happened to the claim, is no error of the program
    """Somebody else took the claim over, for it was not renewed: the host must have stood still."""


class ClaimRenewal:
    """The claim of a resume that runs in a task: renewed, and asked for anew where its host may have stood still."""

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
                await self._renew_now()

    async def require_ownership(self) -> None:
        """Wait until a call may begin: as long as nobody can have taken the claim over. Raises `CancelledError`."""
        if monotonic_seconds() - self._renewed_at < _SAFE_CLAIM_SECONDS:
            return
        async with self._lock:
            while not self.is_lost and monotonic_seconds() - self._renewed_at >= _SAFE_CLAIM_SECONDS:
                if not await self._renew_now():
                    await asyncio.sleep(RENEW_SECONDS)
        if self.is_lost:
            raise asyncio.CancelledError

    async def _renew_now(self) -> bool:
        """Return False when the guard could not be asked."""
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
async def keep_claim(guard: ResumeGuard, key: str, requested_at: float) -> AsyncGenerator[ClaimRenewal | None]:
    """Keep a claim alive while the block runs. Cancels the block and raises `ClaimLost` when it is lost.

    ``requested_at`` is when the guard was asked for it, by `monotonic_seconds`: this host may have stood still since.
    """
    renew = getattr(guard, "renew", None)
    owner = asyncio.current_task()
    if renew is None or owner is None:
        yield None
        return
    renewal = ClaimRenewal(renew, key, owner, requested_at)
    async with run_alongside(renewal.renew_until_lost()):
        try:
            yield renewal
        except asyncio.CancelledError:
            if renewal.is_lost and not owner.uncancel():
                raise ClaimLost from None
            raise
