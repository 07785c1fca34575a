"""One resume that was checked: run it once it has its claim, or give what another one came to."""

from __future__ import annotations

from typing import Any

from ..continuations.guard import LAPSED
from ..continuations.renewal import ClaimLost
from ..data.records import record
from ..errors import CodeModeAbortedError, CodeModeError
from .execution import Execution
from .journal_identity import is_of_journal
from .outcome import RunOutcome
from .program_end import is_programs_end
from .resume_claim import ResumeClaim


@record
class ClaimedResume:
    """The execution of a resume, and its claim: ours to renew, or that of an owner that is gone."""

    claim: ResumeClaim
    execution: Execution
    is_ours: bool = True

    async def run(self) -> RunOutcome:
        """Go on with the program, whose claim is ours, and record what it came to."""
        try:
            async with self.claim.held(renews=self.is_ours) as renewal:
                outcome = await self.execution.resume(renewal)
        except ClaimLost:
            return await self.as_claimed(await self.claim.take())
        except BaseException as error:
            await self._settle(error)
            raise
        if outcome.error is not None:
            await self._settle(outcome.error, outcome)
            return outcome
        return await self._recorded(outcome)

    async def as_claimed(self, standing: Any) -> RunOutcome:
        """Return what somebody else's resume came to: its outcome, or that nobody knows it."""
        if standing is LAPSED:
            return await self._lapsed()
        if standing is None:
            error = CodeModeAbortedError("the claim of this resume was lost", details={"origin": "continuation"})
            return self.execution.failed(error)
        return await self.claim.recorded(standing)

    async def _lapsed(self) -> RunOutcome:
        outcome = await self.execution.lapsed()
        # The owner may have come back meanwhile: there is one outcome, and one way to go on.
        other = await self.claim.settle(lambda outcomes: outcomes.of_outcome(outcome))
        return outcome if other is None else await self.as_claimed(other)

    async def _settle(self, error: BaseException, outcome: RunOutcome | None = None) -> None:
        if is_of_journal(error) and error.details["is_lost"]:
            return  # whoever has the journal now settles the claim as well
        try:
            # Nothing was run and the program did not get to its end: as if nobody had tried.
            # With a journal that cannot be written nobody knows more than it says: the same answers go on from there.
            if is_of_journal(error) or (not self.execution.has_gone_on and not is_programs_end(error)):
                await self.claim.release()
            else:
                await self.claim.settle(
                    lambda outcomes: outcomes.of_error(error) if outcome is None else outcomes.of_outcome(outcome)
                )
        except Exception as failure:  # noqa: BLE001 - a guard is host code; what it raises must not hide the recovery
            error.add_note(f"The resume guard failed too: {failure!r}")

    async def _recorded(self, outcome: RunOutcome) -> RunOutcome:
        try:
            other = await self.claim.settle(lambda outcomes: outcomes.of_outcome(outcome))
        except Exception as failure:  # noqa: BLE001 - a guard is host code, and the program has run
            error = CodeModeError("the program went on, but the resume guard did not take its outcome")
            error.__cause__ = failure
            error.recovery = await self.execution.way_on()
            return self.execution.failed(error)
        return outcome if other is None else await self.as_claimed(other)
