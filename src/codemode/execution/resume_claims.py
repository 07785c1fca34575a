"""Claim a resume once, run it under its claim, and resume programs that have a journal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from ..continuations.guard import LAPSED, Claim, ClaimLost, ClaimRenewal, MemoryResumeGuard, ResumeGuard, keep_claim
from ..continuations.journal import OpenedJournal
from ..continuations.sealing import digest_answers
from ..continuations.signing import Auth
from ..data.json_shape import weigh
from ..data.json_values import canonical_json, encode_json
from ..errors import CodeModeAbortedError, CodeModeError, CodeModeProtocolError
from ..host.cancellation import to_its_end
from ..host.clock import now_ms, passed_seconds
from ..host.threads import LARGE_CHARACTERS, run_check
from ..options.parts import ApprovalPolicy, ContinuationOptions
from ..protocol.journal_entries import ClaimRecord, Step, refuse_step, resume_step, settle_step, snapshot_step
from ..protocol.ledger import Ledger, Waiting, is_waiting_for_answer
from ..protocol.suspension import answer_open_yields
from ..records import record
from .call_content import complete
from .call_values import AnsweredPause
from .execution import Execution
from .identity import held_elsewhere, is_of_journal, opening_seconds, underway
from .journal import EndedRun, InvocationJournal, JournalAccess
from .journal_opening import Journaling, now_waiting
from .outcome import RecordedOutcomes, RunOutcome, is_programs_end
from .recovery import begun_ledger

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
    async def held(self, *, renews: bool = True) -> AsyncGenerator[ClaimRenewal | None]:
        """Keep it alive while the block runs. Cancels the block and raises `ClaimLost` when it is lost."""
        with underway(self.claim.key):
            if not renews:
                yield None
                return
            async with keep_claim(self.guard, self.claim.key, self._asked_at) as renewal:
                yield renewal

    async def settle(self, size: int, write: Callable[[RecordedOutcomes], str]) -> str | None:
        """Record an outcome. Returns the one that stands instead; None when it is this one.

        A guard that gives nothing back has kept it. Another one stands where this host stood still for too long.
        """
        if size >= LARGE_CHARACTERS:
            # Whoever is cancelled meanwhile has recorded it nevertheless.
            return await to_its_end(self._settle_elsewhere(write))
        text = write(self.outcomes)
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


def _size_of(outcome: RunOutcome) -> int:
    """Estimate how many characters the record of an outcome takes: what failed or paused may have much to tell."""
    return weigh(outcome.value, LARGE_CHARACTERS) if outcome.status == "completed" else LARGE_CHARACTERS


def claim_of_answers(auth: Auth, resolutions: Mapping[str, Any], options: ContinuationOptions) -> Claim:
    """Return the claim of these answers on a continuation."""
    text = canonical_json(json.loads(encode_json(dict(resolutions), what="the resolutions")))
    return Claim(auth.nonce, digest_answers(text, options, auth), auth.expires_at_ms)


def claim_of_end(auth: Auth, options: ContinuationOptions) -> Claim:
    """Return the claim of whoever ends a continuation without an answer."""
    return Claim(auth.nonce, digest_answers(_ENDED, options, auth), auth.expires_at_ms)


def guard_of(options: ContinuationOptions) -> ResumeGuard:
    """Return where claims are kept: in this process unless the options say otherwise."""
    return options.guard if options.guard is not None else _process_guard


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
        other = await self.claim.settle(_size_of(outcome), lambda outcomes: outcomes.of_outcome(outcome))
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
                    LARGE_CHARACTERS,
                    lambda outcomes: outcomes.of_error(error) if outcome is None else outcomes.of_outcome(outcome),
                )
        except Exception as failure:  # noqa: BLE001 - a guard is host code; what it raises must not hide the recovery
            error.add_note(f"The resume guard failed too: {failure!r}")

    async def _recorded(self, outcome: RunOutcome) -> RunOutcome:
        try:
            other = await self.claim.settle(_size_of(outcome), lambda outcomes: outcomes.of_outcome(outcome))
        except Exception as failure:  # noqa: BLE001 - a guard is host code, and the program has run
            error = CodeModeError("the program went on, but the resume guard did not take its outcome")
            error.__cause__ = failure
            error.recovery = await self.execution.way_on()
            return self.execution.failed(error)
        return outcome if other is None else await self.as_claimed(other)


# The journal is opened first, and is this host's alone from then on. That these answers go on is written before the
# guard is asked: whoever finds it there after this host has died knows that its owner kept the journal, and need not
# wait until the guard takes its claim for lapsed.

_ANSWERS_AT_ONCE_SECONDS = 0.5
_GONE = object()
"""The claim is that of an owner that is gone."""


@dataclass(frozen=True, slots=True)
class JournaledResume:
    """A resume that was checked, its claim, and its journal.

    ``made`` gives the execution of a pause, and ``require_runnable`` raises where the continuation does not hold.
    ``waits_ms`` is how long it waits for its tools, and for a journal that another run has.
    """

    answered: AnsweredPause
    claim: ResumeClaim
    journaling: Journaling
    made: Callable[[AnsweredPause], Execution]
    require_runnable: Callable[[], Awaitable[None]]
    approval: ApprovalPolicy
    waits_ms: int | None = None

    async def run(self, execution: Execution) -> RunOutcome:
        """Go on, or return what these answers have come to already. ``execution`` is that of the pause as it is."""
        try:
            return await self._run(execution)
        except CodeModeAbortedError as error:
            if is_of_journal(error):
                return execution.failed(error)
            raise

    async def _run(self, execution: Execution) -> RunOutcome:
        engine = self.answered.continuation.engine
        access = self.journaling.access(self.answered.continuation.js, execution.settings)
        opened, paused = await self._opened(access, engine), None
        while opened.outcome is not None:
            ended = await access.ended(opened)
            if self._mine in ended.claims[-1:] and not self._waits_in(ended):
                return await self._known(ended)
            if paused is not None or ended.outcome.interrupt is None:
                return await self._too_late(ended)
            paused = ended.text
            opened = await access.open(again=True, engine=engine)
        journal = self.journaling.journal = InvocationJournal(access, opened)
        outcome: RunOutcome | None = None
        try:
            outcome = await self._go_on(journal, *await self._written(access, journal, opened))
            return outcome
        finally:  # if it still is to be given up, nothing was run
            if outcome is None or outcome.rest is None or outcome.is_replayed:
                await (journal.release() if paused is None else journal.put_back(paused))

    async def _opened(self, access: JournalAccess, engine: str) -> OpenedJournal:
        try:
            async with asyncio.timeout(opening_seconds(self.waits_ms)):
                return await access.open(engine=engine)
        except TimeoutError:
            raise held_elsewhere() from None

    @property
    def _mine(self) -> ClaimRecord:
        return self.claim.claim.key, self.claim.claim.answers

    def _waits_in(self, ended: EndedRun) -> bool:
        """True for a pause that has these answers still to come: whoever brought them died before they were taken."""
        interrupt, was = ended.outcome.interrupt, self.answered.continuation.ledger
        waiting = set[str]() if interrupt is None else {request.interrupt_id for request in interrupt.requests}
        answered = (was[request_id].outcome for request_id in self.answered.answers)
        return any(isinstance(one, Waiting) and one.interrupt_id in waiting for one in answered)

    async def _written(
        self, access: JournalAccess, journal: InvocationJournal, opened: OpenedJournal
    ) -> tuple[Ledger, list[Step], frozenset[int]]:
        """Return from where the program goes on, what is to be written of that, and the calls that it saw end."""
        if not opened.lines:  # it is not known here, or not any more
            ledger = self.answered.continuation.ledger
            journal.has_written(ledger)
            return ledger, [snapshot_step(ledger)], frozenset()
        written = await access.read(opened)
        self.journaling.calls.require_same(written.continuation)
        was = written.continuation.ledger
        journal.has_written(was, written.claims)
        settings = access.settings
        ledger = await self.journaling.calls.ledger(was, settings.salt, has_rich_values=settings.has_rich_values)
        return ledger, now_waiting(was, ledger), written.ended_ids

    async def _go_on(
        self, journal: InvocationJournal, ledger: Ledger, news: list[Step], ended: frozenset[int]
    ) -> RunOutcome:
        is_repeat = self._mine in journal.claims
        yields = [settle_step(one) for one in answer_open_yields(ledger, now_ms())]
        paused = self._answers_in(ledger)
        if not is_repeat:
            if any(
                at not in ended or not self._asks_how_it_ended(at)
                for at in self.answered.answers.keys() - paused.answers
            ):
                raise superseded("the program has gone on from this pause, and no longer waits for these answers")
            journal.claims.append(self._mine)
            await journal.write(*news, *yields, resume_step(self._mine))
        elif yields:
            await journal.write(*yields)
        try:
            standing = await self._standing(is_repeat=is_repeat)
        except CodeModeProtocolError:  # what they have come to is not what the program comes to from here
            await self._take_back(journal)
            raise
        if isinstance(standing, str):
            outcome = await self.claim.recorded(standing)
            if outcome.rest is None:
                return outcome
            # Whoever had it at rest is gone, for the journal is free, and knows how far it has come.
            self._require_tools(paused)
            return await self.made(paused).resume()
        paused = await self._runnable(journal, paused, standing, is_repeat=is_repeat)
        execution = self.made(paused)
        return await ClaimedResume(self.claim, execution, is_ours=standing is not _GONE).run()

    def _answers_in(self, ledger: Ledger) -> AnsweredPause:
        """Return the pause as it is by this ledger, with those answers for which it still waits."""
        answered = self.answered
        was = answered.continuation.ledger
        answers = {at: one for at, one in answered.answers.items() if _waits_as_before(ledger, was, at)}
        inputs = {at: one for at, one in answered.inputs.items() if at in answers}
        continuation = replace(answered.continuation, ledger=replace(ledger, progress=was.progress))
        return AnsweredPause(answered.interrupt, continuation, answers, inputs)

    def _asks_how_it_ended(self, request_id: int) -> bool:
        """True for a question that the journal answers, once the call has ended after whoever asked had given up."""
        entry = self.answered.continuation.ledger[request_id]
        return isinstance(entry.outcome, Waiting) and not is_waiting_for_answer(entry)

    async def _as_begun(self, journal: InvocationJournal, paused: AnsweredPause) -> AnsweredPause:
        """Return the pause after a host of which nobody knows what it has done with the answers."""
        profile, kept = self.journaling.profile, paused.continuation
        begun = begun_ledger(paused, self.approval, now_ms(), profile.host_errors)
        ledger = await self.journaling.calls.ledger(
            begun, kept.replay_settings["salt"], has_rich_values=kept.has_rich_values
        )
        await journal.write(snapshot_step(ledger))
        return AnsweredPause(paused.interrupt, replace(kept, ledger=ledger), {}, {})

    async def _runnable(
        self, journal: InvocationJournal, paused: AnsweredPause, standing: Any, *, is_repeat: bool
    ) -> AnsweredPause:
        """Return the pause that goes on. Raises `CodeModeProtocolError` where it cannot here: as if nobody had tried.

        What somebody else has begun with these answers stays said: a claim that has lapsed, and the line of a repeat.
        """
        try:
            if not is_repeat:
                await self.require_runnable()
                if standing is LAPSED:  # by a host that kept no journal
                    paused = await self._as_begun(journal, paused)
            self._require_tools(paused)
        except CodeModeProtocolError:
            if standing is None:
                await self.claim.release()
            if not is_repeat:
                await self._take_back(journal)
            raise
        return paused

    def _require_tools(self, paused: AnsweredPause) -> None:
        paused.require_tools(self.journaling.calls.catalog)

    async def _take_back(self, journal: InvocationJournal) -> None:
        """Write that the program does not go on with these answers after all."""
        journal.claims.remove(self._mine)
        await journal.write(refuse_step(self._mine))

    async def _standing(self, *, is_repeat: bool) -> Any:
        """Claim the continuation. Of a repeat, whose owner kept the journal and is gone, nobody waits for the claim."""
        if not is_repeat:
            return await self.claim.take()
        taking = asyncio.ensure_future(self.claim.take())
        try:
            await asyncio.wait([taking], timeout=_ANSWERS_AT_ONCE_SECONDS)
            if taking.done():
                return taking.result()
            return _GONE
        finally:
            taking.cancel()
            await asyncio.wait([taking])

    async def _known(self, ended: EndedRun) -> RunOutcome:
        with suppress(Exception):  # a guard is host code, and the journal is enough
            await self.claim.settle(_size_of(ended.outcome), lambda outcomes: outcomes.of_outcome(ended.outcome))
        return ended.outcome

    async def _too_late(self, ended: EndedRun) -> RunOutcome:
        standing = await self._standing(is_repeat=True)
        if isinstance(standing, str):
            return await self.claim.recorded(standing)
        if self._mine in ended.claims or not self.answered.answers:  # or it was at rest, and waits for none
            return await self._known(ended)
        if standing is None:
            await self.claim.release()
        raise superseded("the program has come to its end, and no longer waits for these answers")


def superseded(message: str) -> CodeModeProtocolError:
    """Return the error for answers that come too late."""
    return CodeModeProtocolError(message, details={"superseded": True, "origin": "continuation"})


def _waits_as_before(now: Ledger, was: Ledger, request_id: int) -> bool:
    if request_id not in now:
        return False
    after, before = now[request_id].outcome, was[request_id].outcome
    if not isinstance(after, Waiting) or not isinstance(before, Waiting):
        return False
    return after.interrupt_id == before.interrupt_id
