"""Claim a resume once, run it under its claim, and resume programs that have a journal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from ..continuations.guard import (
    LAPSED,
    Claim,
    ClaimLost,
    ClaimRenewal,
    MemoryResumeGuard,
    ResumeGuard,
    keep_claim_renewed,
)
from ..continuations.journal import OpenedJournal
from ..continuations.sealing import compute_answers_digest
from ..continuations.signing import SignatureInfo
from ..data.json_shape import estimate_json_length
from ..data.json_values import encode_canonical_json, encode_json
from ..errors import CodeModeAbortedError, CodeModeError, CodeModeProtocolError
from ..host.cancellation import shield_until_done
from ..host.clock import monotonic_seconds, now_ms
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..options.parts import ApprovalPolicy, ContinuationOptions
from ..protocol.journal_entries import (
    ClaimRecord,
    JournalStep,
    make_outcome_step,
    make_resume_step,
    make_resume_withdrawal_step,
    make_snapshot_step,
)
from ..protocol.ledger import Ledger, Waiting, is_waiting_on_interrupt
from ..protocol.suspension import answer_open_yields
from ..records import record
from .call_content import load_outcome_content
from .call_values import AnsweredPause
from .execution import Execution
from .identity import get_journal_wait_seconds, is_journal_error, make_journal_busy_error, tracking_run
from .journal import InvocationJournal, JournalAccess, RecordedOutcome
from .journal_opening import RunJournaling, make_steps_if_outcome_unknown
from .outcome import OutcomeCodec, RunOutcome, is_repeatable_error
from .recovery import build_ledger_with_started_calls

_ENDED_ANSWER = '"ended"'  # never the text of answers, which is an object
_process_guard = MemoryResumeGuard()


class ResumeClaim:
    """The claim of a resume, its guard, and the encoding of its outcome; `claim_continuation` makes the claim."""

    def __init__(self, guard: ResumeGuard, claim: Claim, outcomes: OutcomeCodec) -> None:
        self.guard = guard
        self.claim = claim
        self.outcomes = outcomes
        self._requested_at = monotonic_seconds()

    async def claim_continuation(self) -> Any:
        """Claim the continuation. Returns None if this host owns it now, else the result of `ResumeGuard.claim`."""
        self._requested_at = monotonic_seconds()
        return await self.guard.claim(self.claim)

    async def release(self) -> None:
        """Release the claim: nothing was run."""
        await self.guard.release(self.claim.key)

    @asynccontextmanager
    async def keeping_renewed(self, *, renews: bool = True) -> AsyncGenerator[ClaimRenewal | None]:
        """Renew the claim while the block runs. Cancels the block and raises `ClaimLost` if it is lost."""
        with tracking_run(self.claim.key):
            if not renews:
                yield None
                return
            async with keep_claim_renewed(self.guard, self.claim.key, self._requested_at) as renewal:
                yield renewal

    async def record_outcome(self, size: int, write: Callable[[OutcomeCodec], str]) -> str | None:
        """Record an outcome. Returns None if it stands, else the outcome that another host recorded.

        A guard that returns None has stored it. Another outcome stands if this host was suspended for too long.
        """
        if size >= LARGE_CHARACTERS:
            # A cancellation does not undo the record.
            return await shield_until_done(self._encode_in_thread_and_record(write))
        text = write(self.outcomes)
        return self._find_other_outcome(text, await self.guard.record(self.claim.key, text))

    async def _encode_in_thread_and_record(self, write: Callable[[OutcomeCodec], str]) -> str | None:
        text = await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, lambda: write(self.outcomes))
        return self._find_other_outcome(text, await self.guard.record(self.claim.key, text))

    def _find_other_outcome(self, text: str, recorded: Any) -> str | None:
        return recorded if isinstance(recorded, str) and recorded != text else None

    async def read_recorded_outcome(self, text: str) -> RunOutcome:
        """Return the recorded outcome. Raises `CodeModeProtocolError` if it cannot be read."""
        outcome = await run_in_thread_if_large_or_slow(len(text), lambda: self.outcomes.decode_outcome(text))
        return await load_outcome_content(outcome, self.outcomes.options)


def _estimate_size(outcome: RunOutcome) -> int:
    """Estimate the characters of the record of an outcome; those of failures and pauses may be large."""
    return estimate_json_length(outcome.value, LARGE_CHARACTERS) if outcome.status == "completed" else LARGE_CHARACTERS


def make_answers_claim(auth: SignatureInfo, resolutions: Mapping[str, Any], options: ContinuationOptions) -> Claim:
    """Return the claim for a continuation with these answers."""
    text = encode_canonical_json(json.loads(encode_json(dict(resolutions), what="the resolutions")))
    return Claim(auth.nonce, compute_answers_digest(text, options, auth), auth.expires_at_ms)


def make_end_claim(auth: SignatureInfo, options: ContinuationOptions) -> Claim:
    """Return the claim that ends a continuation without an answer."""
    return Claim(auth.nonce, compute_answers_digest(_ENDED_ANSWER, options, auth), auth.expires_at_ms)


def get_guard_or_default(options: ContinuationOptions) -> ResumeGuard:
    """Return the guard of the options, by default one in this process."""
    return options.guard if options.guard is not None else _process_guard


@record
class ClaimedResume:
    """The execution of a resume and its claim, owned by this host or by an owner that is gone."""

    claim: ResumeClaim
    execution: Execution
    is_ours: bool = True

    async def resume_and_record(self) -> RunOutcome:
        """Continue the program under the owned claim and record its outcome."""
        try:
            async with self.claim.keeping_renewed(renews=self.is_ours) as renewal:
                outcome = await self.execution.resume(renewal)
        except ClaimLost:
            return await self.resolve_claim_result(await self.claim.claim_continuation())
        except BaseException as error:
            await self._record_error_or_release(error)
            raise
        if outcome.error is not None:
            await self._record_error_or_release(outcome.error, outcome)
            return outcome
        return await self._record_outcome(outcome)

    async def resolve_claim_result(self, result: Any) -> RunOutcome:
        """Return the outcome of another host's resume, or an error that says it is unknown."""
        if result is LAPSED:
            return await self._resolve_lapsed_claim()
        if result is None:
            error = CodeModeAbortedError("the claim of this resume was lost", details={"origin": "continuation"})
            return self.execution.make_failed_outcome(error)
        return await self.claim.read_recorded_outcome(result)

    async def _resolve_lapsed_claim(self) -> RunOutcome:
        outcome = await self.execution.recover_lapsed_resume()
        # The owner may be back: there is one outcome and one recovery.
        other = await self.claim.record_outcome(
            _estimate_size(outcome), lambda outcomes: outcomes.encode_outcome(outcome)
        )
        return outcome if other is None else await self.resolve_claim_result(other)

    async def _record_error_or_release(self, error: BaseException, outcome: RunOutcome | None = None) -> None:
        if is_journal_error(error) and error.details["is_lost"]:
            return  # the owner of the journal settles the claim too
        try:
            # Nothing has run and the program did not end: release the claim. If the journal cannot be written, the same
            # answers resume from its lines.
            if is_journal_error(error) or (not self.execution.has_progressed and not is_repeatable_error(error)):
                await self.claim.release()
            else:
                await self.claim.record_outcome(
                    LARGE_CHARACTERS,
                    lambda outcomes: (
                        outcomes.encode_error(error) if outcome is None else outcomes.encode_outcome(outcome)
                    ),
                )
        except Exception as failure:  # noqa: BLE001 - a guard is host code; what it raises must not hide the recovery
            error.add_note(f"The resume guard failed too: {failure!r}")

    async def _record_outcome(self, outcome: RunOutcome) -> RunOutcome:
        try:
            other = await self.claim.record_outcome(
                _estimate_size(outcome), lambda outcomes: outcomes.encode_outcome(outcome)
            )
        except Exception as failure:  # noqa: BLE001 - a guard is host code, and the program has run
            error = CodeModeError("the program went on, but the resume guard did not take its outcome")
            error.__cause__ = failure
            error.recovery = await self.execution.get_or_create_recovery_interrupt()
            return self.execution.make_failed_outcome(error)
        return outcome if other is None else await self.resolve_claim_result(other)


# The journal is opened first and then belongs to this host. The answers are written to it before the guard is asked: a
# host that finds them there after this host died knows that their owner had the journal, and need not wait until the
# claim lapses.

_MAX_REPEAT_WAIT_SECONDS = 0.5
_OWNER_GONE = object()
"""The owner of the claim is gone."""


@dataclass(frozen=True, slots=True)
class JournaledResume:
    """A verified resume, its claim and its journal.

    ``make_execution`` makes the execution of a pause; ``require_runnable`` raises if the continuation is not valid
    any more. ``waits_ms`` limits the wait for tools and for a journal that another run owns.
    """

    answered: AnsweredPause
    claim: ResumeClaim
    journaling: RunJournaling
    make_execution: Callable[[AnsweredPause], Execution]
    require_runnable: Callable[[], Awaitable[None]]
    approval: ApprovalPolicy
    waits_ms: int | None = None

    async def resume_or_repeat_outcome(self, execution: Execution) -> RunOutcome:
        """Resume, or return the recorded outcome of these answers. ``execution`` is made for the pause as it is."""
        try:
            return await self._resume_with_journal(execution)
        except CodeModeAbortedError as error:
            if is_journal_error(error):
                return execution.make_failed_outcome(error)
            raise

    async def _resume_with_journal(self, execution: Execution) -> RunOutcome:
        engine = self.answered.continuation.engine
        reader = self.journaling.make_access_and_set_run_key(self.answered.continuation.js, execution.settings)
        opened, paused = await self._open_journal(reader, engine), None
        while opened.outcome is not None:
            ended = await reader.read_outcome(opened)
            if self._claim_record in ended.claims[-1:] and not self._still_waits_for_answers(ended):
                return await self._record_and_return_outcome(ended)
            if paused is not None or ended.outcome.interrupt is None:
                return await self._return_outcome_or_raise_superseded(ended)
            paused = ended.text
            opened = await reader.open(again=True, engine=engine)
        journal = self.journaling.journal = InvocationJournal(reader, opened)
        outcome: RunOutcome | None = None
        try:
            outcome = await self._resume_from_ledger(journal, *await self._restore_progress(reader, journal, opened))
            return outcome
        finally:  # nothing was run if the journal is still to be released
            if outcome is None or outcome.suspension is None or outcome.is_replayed:
                await (journal.release() if paused is None else journal.write_back_pause_outcome_and_release(paused))

    async def _open_journal(self, reader: JournalAccess, engine: str) -> OpenedJournal:
        try:
            async with asyncio.timeout(get_journal_wait_seconds(self.waits_ms)):
                return await reader.open(engine=engine)
        except TimeoutError:
            raise make_journal_busy_error() from None

    @property
    def _claim_record(self) -> ClaimRecord:
        return self.claim.claim.key, self.claim.claim.answers

    def _still_waits_for_answers(self, ended: RecordedOutcome) -> bool:
        """True if a pause still waits for these answers, because the host that received them died before."""
        interrupt, ledger = ended.outcome.interrupt, self.answered.continuation.ledger
        waiting = set[str]() if interrupt is None else {request.interrupt_id for request in interrupt.requests}
        answered = (ledger[request_id].outcome for request_id in self.answered.answers)
        return any(isinstance(outcome, Waiting) and outcome.interrupt_id in waiting for outcome in answered)

    async def _restore_progress(
        self, reader: JournalAccess, journal: InvocationJournal, opened: OpenedJournal
    ) -> tuple[Ledger, list[JournalStep], frozenset[int]]:
        """Return the ledger to continue from, the steps to write, and the calls whose end the journal has."""
        if not opened.lines:  # this journal has no record of the run
            ledger = self.answered.continuation.ledger
            journal.mark_ledger_written_and_add_claims(ledger)
            return ledger, [make_snapshot_step(ledger)], frozenset()
        journal_run = await reader.read_recorded_run(opened)
        self.journaling.calls.require_same_tools(journal_run.continuation)
        recorded = journal_run.continuation.ledger
        journal.mark_ledger_written_and_add_claims(recorded, journal_run.claims)
        settings = reader.settings
        ledger = await self.journaling.calls.restore_ledger(
            recorded, settings.salt, has_rich_values=settings.has_rich_values
        )
        return ledger, make_steps_if_outcome_unknown(recorded, ledger), journal_run.ended_ids

    async def _resume_from_ledger(
        self, journal: InvocationJournal, ledger: Ledger, new_steps: list[JournalStep], ended: frozenset[int]
    ) -> RunOutcome:
        is_repeat = self._claim_record in journal.claims
        yields = [make_outcome_step(event) for event in answer_open_yields(ledger, now_ms())]
        paused = self._make_pause_with_open_answers(ledger)
        if not is_repeat:
            if any(
                request_id not in ended or not self._asks_about_call_outcome(request_id)
                for request_id in self.answered.answers.keys() - paused.answers
            ):
                raise make_superseded_error(
                    "the program has continued from this pause, and no longer waits for these answers"
                )
            journal.claims.append(self._claim_record)
            await journal.write_steps(*new_steps, *yields, make_resume_step(self._claim_record))
        elif yields:
            await journal.write_steps(*yields)
        try:
            claimed = await self._take_claim(is_repeat=is_repeat)
        except CodeModeProtocolError:  # the recorded outcome is not the one from here
            await self._write_claim_withdrawal(journal)
            raise
        if isinstance(claimed, str):
            outcome = await self.claim.read_recorded_outcome(claimed)
            if outcome.suspension is None:
                return outcome
            # The owner of the suspended run is gone, because the journal is free and has its progress.
            self._require_tools_of_approved_calls(paused)
            return await self.make_execution(paused).resume()
        paused = await self._prepare_pause_or_withdraw_claim(journal, paused, claimed, is_repeat=is_repeat)
        execution = self.make_execution(paused)
        return await ClaimedResume(self.claim, execution, is_ours=claimed is not _OWNER_GONE).resume_and_record()

    def _make_pause_with_open_answers(self, ledger: Ledger) -> AnsweredPause:
        """Return the pause with this ledger and the answers for which it still waits."""
        answered = self.answered
        paused_ledger = answered.continuation.ledger
        answers = {
            request_id: answer
            for request_id, answer in answered.answers.items()
            if _waits_for_same_answer(ledger, paused_ledger, request_id)
        }
        inputs = {request_id: answer for request_id, answer in answered.inputs.items() if request_id in answers}
        continuation = replace(answered.continuation, ledger=replace(ledger, progress=paused_ledger.progress))
        return AnsweredPause(answered.interrupt, continuation, answers, inputs)

    def _asks_about_call_outcome(self, request_id: int) -> bool:
        """True if the answered question was about a call whose outcome the journal has by now."""
        entry = self.answered.continuation.ledger[request_id]
        return isinstance(entry.outcome, Waiting) and not is_waiting_on_interrupt(entry)

    async def _record_answered_calls_as_started(
        self, journal: InvocationJournal, paused: AnsweredPause
    ) -> AnsweredPause:
        """Return the pause after a host that may or may not have acted on the answers."""
        profile, continuation = self.journaling.profile, paused.continuation
        started = build_ledger_with_started_calls(paused, self.approval, now_ms(), profile.host_errors)
        ledger = await self.journaling.calls.restore_ledger(
            started, continuation.replay_settings["salt"], has_rich_values=continuation.has_rich_values
        )
        await journal.write_steps(make_snapshot_step(ledger))
        return AnsweredPause(paused.interrupt, replace(continuation, ledger=ledger), {}, {})

    async def _prepare_pause_or_withdraw_claim(
        self, journal: InvocationJournal, paused: AnsweredPause, claimed: Any, *, is_repeat: bool
    ) -> AnsweredPause:
        """Return the pause to continue.

        Raises `CodeModeProtocolError` if it cannot continue here, as if nothing was tried.

        What another host began with these answers stays recorded: a lapsed claim, and the line of a repeat.
        """
        try:
            if not is_repeat:
                await self.require_runnable()
                if claimed is LAPSED:  # by a host without a journal
                    paused = await self._record_answered_calls_as_started(journal, paused)
            self._require_tools_of_approved_calls(paused)
        except CodeModeProtocolError:
            if claimed is None:
                await self.claim.release()
            if not is_repeat:
                await self._write_claim_withdrawal(journal)
            raise
        return paused

    def _require_tools_of_approved_calls(self, paused: AnsweredPause) -> None:
        paused.require_approved_tools_if_stored(self.journaling.calls.catalog)

    async def _write_claim_withdrawal(self, journal: InvocationJournal) -> None:
        """Write that the program does not continue with these answers."""
        journal.claims.remove(self._claim_record)
        await journal.write_steps(make_resume_withdrawal_step(self._claim_record))

    async def _take_claim(self, *, is_repeat: bool) -> Any:
        """Claim the continuation. For a repeat, whose owner is gone, do not wait for the claim."""
        if not is_repeat:
            return await self.claim.claim_continuation()
        taking = asyncio.ensure_future(self.claim.claim_continuation())
        try:
            await asyncio.wait([taking], timeout=_MAX_REPEAT_WAIT_SECONDS)
            if taking.done():
                return taking.result()
            return _OWNER_GONE
        finally:
            taking.cancel()
            await asyncio.wait([taking])

    async def _record_and_return_outcome(self, ended: RecordedOutcome) -> RunOutcome:
        with suppress(Exception):  # a guard is host code, and the journal is sufficient
            await self.claim.record_outcome(
                _estimate_size(ended.outcome), lambda outcomes: outcomes.encode_outcome(ended.outcome)
            )
        return ended.outcome

    async def _return_outcome_or_raise_superseded(self, ended: RecordedOutcome) -> RunOutcome:
        claimed = await self._take_claim(is_repeat=True)
        if isinstance(claimed, str):
            return await self.claim.read_recorded_outcome(claimed)
        if self._claim_record in ended.claims or not self.answered.answers:  # a suspended run waits for no answers
            return await self._record_and_return_outcome(ended)
        if claimed is None:
            await self.claim.release()
        raise make_superseded_error("the program has ended, and no longer waits for these answers")


def make_superseded_error(message: str) -> CodeModeProtocolError:
    """Return the error for answers that arrive too late."""
    return CodeModeProtocolError(message, details={"superseded": True, "origin": "continuation"})


def _waits_for_same_answer(current: Ledger, previous: Ledger, request_id: int) -> bool:
    if request_id not in current:
        return False
    after, before = current[request_id].outcome, previous[request_id].outcome
    if not isinstance(after, Waiting) or not isinstance(before, Waiting):
        return False
    return after.interrupt_id == before.interrupt_id
