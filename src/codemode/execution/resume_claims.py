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
from ..data.json_shape import estimate_json_length
from ..data.json_values import canonical_json, encode_json
from ..errors import CodeModeAbortedError, CodeModeError, CodeModeProtocolError
from ..host.cancellation import shield_to_end
from ..host.clock import monotonic_seconds, now_ms
from ..host.threads import LARGE_CHARACTERS, run_check
from ..options.parts import ApprovalPolicy, ContinuationOptions
from ..protocol.journal_entries import ClaimRecord, Step, refuse_step, resume_step, settle_step, snapshot_step
from ..protocol.ledger import Ledger, Waiting, is_waiting_for_answer
from ..protocol.suspension import answer_open_yields
from ..records import record
from .call_content import load_content
from .call_values import AnsweredPause
from .execution import Execution
from .identity import get_opening_seconds, is_journal_error, journal_busy_error, track_run
from .journal import EndedRun, InvocationJournal, JournalAccess
from .journal_opening import Journaling, list_waiting_steps
from .outcome import OutcomeCodec, RunOutcome, is_program_error
from .recovery import build_started_ledger

_ENDED_ANSWER = '"ended"'  # no answers read so: those are an object
_process_guard = MemoryResumeGuard()


class ResumeClaim:
    """A claim, where it is kept, and how its outcome is written. Nothing is claimed before `take`."""

    def __init__(self, guard: ResumeGuard, claim: Claim, outcomes: OutcomeCodec) -> None:
        self.guard = guard
        self.claim = claim
        self.outcomes = outcomes
        self._requested_at = monotonic_seconds()

    async def take(self) -> Any:
        """Claim the continuation. Returns None when it is ours now, else what stands: see `ResumeGuard.claim`."""
        self._requested_at = monotonic_seconds()
        return await self.guard.claim(self.claim)

    async def release(self) -> None:
        """Give it up, as if nobody had tried."""
        await self.guard.release(self.claim.key)

    @asynccontextmanager
    async def keep_alive(self, *, renews: bool = True) -> AsyncGenerator[ClaimRenewal | None]:
        """Keep it alive while the block runs. Cancels the block and raises `ClaimLost` when it is lost."""
        with track_run(self.claim.key):
            if not renews:
                yield None
                return
            async with keep_claim(self.guard, self.claim.key, self._requested_at) as renewal:
                yield renewal

    async def settle(self, size: int, write: Callable[[OutcomeCodec], str]) -> str | None:
        """Record an outcome. Returns the one that stands instead; None when it is this one.

        A guard that gives nothing back has kept it. Another one stands where this host stood still for too long.
        """
        if size >= LARGE_CHARACTERS:
            # Whoever is cancelled meanwhile has recorded it nevertheless.
            return await shield_to_end(self._settle_in_thread(write))
        text = write(self.outcomes)
        return self._find_other_outcome(text, await self.guard.record(self.claim.key, text))

    async def _settle_in_thread(self, write: Callable[[OutcomeCodec], str]) -> str | None:
        text = await run_check(LARGE_CHARACTERS, lambda: write(self.outcomes))
        return self._find_other_outcome(text, await self.guard.record(self.claim.key, text))

    def _find_other_outcome(self, text: str, recorded: Any) -> str | None:
        return recorded if isinstance(recorded, str) and recorded != text else None

    async def read_recorded(self, text: str) -> RunOutcome:
        """Return the outcome that was recorded. Raises `CodeModeProtocolError` for one that cannot be read."""
        outcome = await run_check(len(text), lambda: self.outcomes.decode_outcome(text))
        return await load_content(outcome, self.outcomes.options)


def _estimate_size(outcome: RunOutcome) -> int:
    """Estimate how many characters the record of an outcome takes: what failed or paused may have much to tell."""
    return estimate_json_length(outcome.value, LARGE_CHARACTERS) if outcome.status == "completed" else LARGE_CHARACTERS


def make_answers_claim(auth: Auth, resolutions: Mapping[str, Any], options: ContinuationOptions) -> Claim:
    """Return the claim of these answers on a continuation."""
    text = canonical_json(json.loads(encode_json(dict(resolutions), what="the resolutions")))
    return Claim(auth.nonce, digest_answers(text, options, auth), auth.expires_at_ms)


def make_end_claim(auth: Auth, options: ContinuationOptions) -> Claim:
    """Return the claim of whoever ends a continuation without an answer."""
    return Claim(auth.nonce, digest_answers(_ENDED_ANSWER, options, auth), auth.expires_at_ms)


def get_guard(options: ContinuationOptions) -> ResumeGuard:
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
            async with self.claim.keep_alive(renews=self.is_ours) as renewal:
                outcome = await self.execution.resume(renewal)
        except ClaimLost:
            return await self.resolve_claimed(await self.claim.take())
        except BaseException as error:
            await self._settle_error(error)
            raise
        if outcome.error is not None:
            await self._settle_error(outcome.error, outcome)
            return outcome
        return await self._record_outcome(outcome)

    async def resolve_claimed(self, result: Any) -> RunOutcome:
        """Return what somebody else's resume came to: its outcome, or that nobody knows it."""
        if result is LAPSED:
            return await self._resolve_lapsed()
        if result is None:
            error = CodeModeAbortedError("the claim of this resume was lost", details={"origin": "continuation"})
            return self.execution.make_failed_outcome(error)
        return await self.claim.read_recorded(result)

    async def _resolve_lapsed(self) -> RunOutcome:
        outcome = await self.execution.recover_lapsed()
        # The owner may have come back meanwhile: there is one outcome, and one way to go on.
        other = await self.claim.settle(_estimate_size(outcome), lambda outcomes: outcomes.encode_outcome(outcome))
        return outcome if other is None else await self.resolve_claimed(other)

    async def _settle_error(self, error: BaseException, outcome: RunOutcome | None = None) -> None:
        if is_journal_error(error) and error.details["is_lost"]:
            return  # whoever has the journal now settles the claim as well
        try:
            # Nothing was run and the program did not get to its end: as if nobody had tried.
            # With a journal that cannot be written nobody knows more than it says: the same answers go on from there.
            if is_journal_error(error) or (not self.execution.has_progressed and not is_program_error(error)):
                await self.claim.release()
            else:
                await self.claim.settle(
                    LARGE_CHARACTERS,
                    lambda outcomes: (
                        outcomes.encode_error(error) if outcome is None else outcomes.encode_outcome(outcome)
                    ),
                )
        except Exception as failure:  # noqa: BLE001 - a guard is host code; what it raises must not hide the recovery
            error.add_note(f"The resume guard failed too: {failure!r}")

    async def _record_outcome(self, outcome: RunOutcome) -> RunOutcome:
        try:
            other = await self.claim.settle(_estimate_size(outcome), lambda outcomes: outcomes.encode_outcome(outcome))
        except Exception as failure:  # noqa: BLE001 - a guard is host code, and the program has run
            error = CodeModeError("the program went on, but the resume guard did not take its outcome")
            error.__cause__ = failure
            error.recovery = await self.execution.find_recovery()
            return self.execution.make_failed_outcome(error)
        return outcome if other is None else await self.resolve_claimed(other)


# The journal is opened first, and is this host's alone from then on. That these answers go on is written before the
# guard is asked: whoever finds it there after this host has died knows that its owner kept the journal, and need not
# wait until the guard takes its claim for lapsed.

_MAX_REPEAT_WAIT_SECONDS = 0.5
_OWNER_GONE = object()
"""The claim is that of an owner that is gone."""


@dataclass(frozen=True, slots=True)
class JournaledResume:
    """A resume that was checked, its claim, and its journal.

    ``make_execution`` gives the execution of a pause, and ``require_runnable`` raises where the continuation does not
    hold.
    ``waits_ms`` is how long it waits for its tools, and for a journal that another run has.
    """

    answered: AnsweredPause
    claim: ResumeClaim
    journaling: Journaling
    make_execution: Callable[[AnsweredPause], Execution]
    require_runnable: Callable[[], Awaitable[None]]
    approval: ApprovalPolicy
    waits_ms: int | None = None

    async def run(self, execution: Execution) -> RunOutcome:
        """Go on, or return what these answers have come to already. ``execution`` is that of the pause as it is."""
        try:
            return await self._run(execution)
        except CodeModeAbortedError as error:
            if is_journal_error(error):
                return execution.make_failed_outcome(error)
            raise

    async def _run(self, execution: Execution) -> RunOutcome:
        engine = self.answered.continuation.engine
        access = self.journaling.make_access(self.answered.continuation.js, execution.settings)
        opened, paused = await self._open_journal(access, engine), None
        while opened.outcome is not None:
            ended = await access.read_outcome(opened)
            if self._own_claim in ended.claims[-1:] and not self._still_waits(ended):
                return await self._record_known(ended)
            if paused is not None or ended.outcome.interrupt is None:
                return await self._resolve_superseded(ended)
            paused = ended.text
            opened = await access.open(again=True, engine=engine)
        journal = self.journaling.journal = InvocationJournal(access, opened)
        outcome: RunOutcome | None = None
        try:
            outcome = await self._resume_from(journal, *await self._read_progress(access, journal, opened))
            return outcome
        finally:  # if it still is to be given up, nothing was run
            if outcome is None or outcome.suspension is None or outcome.is_replayed:
                await (journal.release() if paused is None else journal.restore_outcome(paused))

    async def _open_journal(self, access: JournalAccess, engine: str) -> OpenedJournal:
        try:
            async with asyncio.timeout(get_opening_seconds(self.waits_ms)):
                return await access.open(engine=engine)
        except TimeoutError:
            raise journal_busy_error() from None

    @property
    def _own_claim(self) -> ClaimRecord:
        return self.claim.claim.key, self.claim.claim.answers

    def _still_waits(self, ended: EndedRun) -> bool:
        """True for a pause that has these answers still to come: whoever brought them died before they were taken."""
        interrupt, ledger = ended.outcome.interrupt, self.answered.continuation.ledger
        waiting = set[str]() if interrupt is None else {request.interrupt_id for request in interrupt.requests}
        answered = (ledger[request_id].outcome for request_id in self.answered.answers)
        return any(isinstance(outcome, Waiting) and outcome.interrupt_id in waiting for outcome in answered)

    async def _read_progress(
        self, access: JournalAccess, journal: InvocationJournal, opened: OpenedJournal
    ) -> tuple[Ledger, list[Step], frozenset[int]]:
        """Return from where the program goes on, what is to be written of that, and the calls that it saw end."""
        if not opened.lines:  # it is not known here, or not any more
            ledger = self.answered.continuation.ledger
            journal.mark_written(ledger)
            return ledger, [snapshot_step(ledger)], frozenset()
        journal_run = await access.read(opened)
        self.journaling.calls.require_same_tools(journal_run.continuation)
        recorded = journal_run.continuation.ledger
        journal.mark_written(recorded, journal_run.claims)
        settings = access.settings
        ledger = await self.journaling.calls.ledger(recorded, settings.salt, has_rich_values=settings.has_rich_values)
        return ledger, list_waiting_steps(recorded, ledger), journal_run.ended_ids

    async def _resume_from(
        self, journal: InvocationJournal, ledger: Ledger, new_steps: list[Step], ended: frozenset[int]
    ) -> RunOutcome:
        is_repeat = self._own_claim in journal.claims
        yields = [settle_step(event) for event in answer_open_yields(ledger, now_ms())]
        paused = self._select_open_answers(ledger)
        if not is_repeat:
            if any(
                request_id not in ended or not self._asks_for_outcome(request_id)
                for request_id in self.answered.answers.keys() - paused.answers
            ):
                raise make_superseded_error(
                    "the program has gone on from this pause, and no longer waits for these answers"
                )
            journal.claims.append(self._own_claim)
            await journal.write(*new_steps, *yields, resume_step(self._own_claim))
        elif yields:
            await journal.write(*yields)
        try:
            claimed = await self._take_claim(is_repeat=is_repeat)
        except CodeModeProtocolError:  # what they have come to is not what the program comes to from here
            await self._withdraw_claim(journal)
            raise
        if isinstance(claimed, str):
            outcome = await self.claim.read_recorded(claimed)
            if outcome.suspension is None:
                return outcome
            # Whoever had it at rest is gone, for the journal is free, and knows how far it has come.
            self._require_tools(paused)
            return await self.make_execution(paused).resume()
        paused = await self._require_pause(journal, paused, claimed, is_repeat=is_repeat)
        execution = self.make_execution(paused)
        return await ClaimedResume(self.claim, execution, is_ours=claimed is not _OWNER_GONE).run()

    def _select_open_answers(self, ledger: Ledger) -> AnsweredPause:
        """Return the pause as it is by this ledger, with those answers for which it still waits."""
        answered = self.answered
        paused_ledger = answered.continuation.ledger
        answers = {
            request_id: answer
            for request_id, answer in answered.answers.items()
            if _is_same_wait(ledger, paused_ledger, request_id)
        }
        inputs = {request_id: answer for request_id, answer in answered.inputs.items() if request_id in answers}
        continuation = replace(answered.continuation, ledger=replace(ledger, progress=paused_ledger.progress))
        return AnsweredPause(answered.interrupt, continuation, answers, inputs)

    def _asks_for_outcome(self, request_id: int) -> bool:
        """True for a question that the journal answers, once the call has ended after whoever asked had given up."""
        entry = self.answered.continuation.ledger[request_id]
        return isinstance(entry.outcome, Waiting) and not is_waiting_for_answer(entry)

    async def _mark_started(self, journal: InvocationJournal, paused: AnsweredPause) -> AnsweredPause:
        """Return the pause after a host of which nobody knows what it has done with the answers."""
        profile, continuation = self.journaling.profile, paused.continuation
        started = build_started_ledger(paused, self.approval, now_ms(), profile.host_errors)
        ledger = await self.journaling.calls.ledger(
            started, continuation.replay_settings["salt"], has_rich_values=continuation.has_rich_values
        )
        await journal.write(snapshot_step(ledger))
        return AnsweredPause(paused.interrupt, replace(continuation, ledger=ledger), {}, {})

    async def _require_pause(
        self, journal: InvocationJournal, paused: AnsweredPause, claimed: Any, *, is_repeat: bool
    ) -> AnsweredPause:
        """Return the pause that goes on. Raises `CodeModeProtocolError` where it cannot here: as if nobody had tried.

        What somebody else has begun with these answers stays said: a claim that has lapsed, and the line of a repeat.
        """
        try:
            if not is_repeat:
                await self.require_runnable()
                if claimed is LAPSED:  # by a host that kept no journal
                    paused = await self._mark_started(journal, paused)
            self._require_tools(paused)
        except CodeModeProtocolError:
            if claimed is None:
                await self.claim.release()
            if not is_repeat:
                await self._withdraw_claim(journal)
            raise
        return paused

    def _require_tools(self, paused: AnsweredPause) -> None:
        paused.require_tools(self.journaling.calls.catalog)

    async def _withdraw_claim(self, journal: InvocationJournal) -> None:
        """Write that the program does not go on with these answers after all."""
        journal.claims.remove(self._own_claim)
        await journal.write(refuse_step(self._own_claim))

    async def _take_claim(self, *, is_repeat: bool) -> Any:
        """Claim the continuation. Of a repeat, whose owner kept the journal and is gone, nobody waits for the claim."""
        if not is_repeat:
            return await self.claim.take()
        taking = asyncio.ensure_future(self.claim.take())
        try:
            await asyncio.wait([taking], timeout=_MAX_REPEAT_WAIT_SECONDS)
            if taking.done():
                return taking.result()
            return _OWNER_GONE
        finally:
            taking.cancel()
            await asyncio.wait([taking])

    async def _record_known(self, ended: EndedRun) -> RunOutcome:
        with suppress(Exception):  # a guard is host code, and the journal is enough
            await self.claim.settle(
                _estimate_size(ended.outcome), lambda outcomes: outcomes.encode_outcome(ended.outcome)
            )
        return ended.outcome

    async def _resolve_superseded(self, ended: EndedRun) -> RunOutcome:
        claimed = await self._take_claim(is_repeat=True)
        if isinstance(claimed, str):
            return await self.claim.read_recorded(claimed)
        if self._own_claim in ended.claims or not self.answered.answers:  # or it was at rest, and waits for none
            return await self._record_known(ended)
        if claimed is None:
            await self.claim.release()
        raise make_superseded_error("the program has come to its end, and no longer waits for these answers")


def make_superseded_error(message: str) -> CodeModeProtocolError:
    """Return the error for answers that come too late."""
    return CodeModeProtocolError(message, details={"superseded": True, "origin": "continuation"})


def _is_same_wait(current: Ledger, previous: Ledger, request_id: int) -> bool:
    if request_id not in current:
        return False
    after, before = current[request_id].outcome, previous[request_id].outcome
    if not isinstance(after, Waiting) or not isinstance(before, Waiting):
        return False
    return after.interrupt_id == before.interrupt_id
