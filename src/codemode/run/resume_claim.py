"""The claim of one resume on its continuation: made once, kept alive while it runs, settled with what it came to."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..continuations.guard import Claim, MemoryResumeGuard, ResumeGuard
from ..continuations.renewal import Renewal, renewed
from ..continuations.sealing import answers_digest
from ..continuations.signing import Auth
from ..data.json_values import canonical_json, encode_json
from ..host import steps
from ..host.cancellation import to_its_end
from ..host.clock import passed_seconds
from ..host.threads import LARGE_CHARACTERS, run_check
from ..options.parts import ContinuationOptions
from .content_keeping import complete
from .outcome import RunOutcome
from .recorded_outcomes import RecordedOutcomes
from .underway import underway

_ENDED = '"ended"'  # no answers read so: those are an object
_process_guard = MemoryResumeGuard()


class ResumeClaim:
    """A claim, where it is kept, and how its outcome is written. Nothing is claimed before `take`."""

    def __init__(self, guard: ResumeGuard, claim: Claim, outcomes: RecordedOutcomes) -> None:
        self.guard = guard
        self.claim = claim
        self.outcomes = outcomes
        self._asked_at = passed_seconds()

    async def take(self) -> Any:
        """Claim the continuation. Returns None when it is ours now, else what stands: see `ResumeGuard.claim`."""
        self._asked_at = passed_seconds()
        return await self.guard.claim(self.claim)

    async def release(self) -> None:
        """Give it up, as if nobody had tried."""
        await self.guard.release(self.claim.key)

    @asynccontextmanager
    async def held(self, *, renews: bool = True) -> AsyncGenerator[Renewal | None]:
        """Keep it alive while the block runs. Cancels the block and raises `ClaimLost` when it is lost."""
        with underway(self.claim.key):
            if not renews:
                yield None
                return
            async with renewed(self.guard, self.claim.key, self._asked_at) as renewal:
                yield renewal

    async def settle(self, write: Callable[[RecordedOutcomes], str]) -> str | None:
        """Record an outcome. Returns the one that stands instead; None when it is this one.

        A guard that gives nothing back has kept it. Another one stands where this host stood still for too long.
        """
        try:
            text = steps.run_on_the_loop(lambda: write(self.outcomes))
        except steps.TooLongForTheLoop:
            # Whoever is cancelled meanwhile has recorded it nevertheless.
            return await to_its_end(self._settle_elsewhere(write))
        return self._other(text, await self.guard.record(self.claim.key, text))

    async def _settle_elsewhere(self, write: Callable[[RecordedOutcomes], str]) -> str | None:
        text = await run_check(LARGE_CHARACTERS, lambda: write(self.outcomes))
        return self._other(text, await self.guard.record(self.claim.key, text))

    def _other(self, text: str, standing: Any) -> str | None:
        return standing if isinstance(standing, str) and standing != text else None

    async def recorded(self, text: str) -> RunOutcome:
        """Return the outcome that was recorded. Raises `CodeModeProtocolError` for one that cannot be read."""
        outcome = await run_check(len(text), lambda: self.outcomes.replayed(text))
        return await complete(outcome, self.outcomes.options)


def claim_of_answers(auth: Auth, resolutions: Mapping[str, Any], options: ContinuationOptions) -> Claim:
    """Return the claim of these answers on a continuation."""
    text = canonical_json(json.loads(encode_json(dict(resolutions), what="the resolutions")))
    return Claim(auth.nonce, answers_digest(text, options, auth), auth.expires_at_ms)


def claim_of_end(auth: Auth, options: ContinuationOptions) -> Claim:
    """Return the claim of whoever ends a continuation without an answer."""
    return Claim(auth.nonce, answers_digest(_ENDED, options, auth), auth.expires_at_ms)


def guard_of(options: ContinuationOptions) -> ResumeGuard:
    """Return where claims are kept: in this process unless the options say otherwise."""
    return options.guard if options.guard is not None else _process_guard
