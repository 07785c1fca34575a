"""Goes on with programs that a person has answered, from what was kept of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...data.json_values import NOT_GIVEN
from ...errors import (
    CodeModeConcurrencyError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeWorkerError,
    Resumable,
)
from ...execution.call_context import CallContext, check_call
from ...execution.outcome import with_content
from ...execution.starting import load_continuations
from ...interrupts.interrupt import Interrupt
from ...stores.errors import AlreadyDecided, RecordExpired, RecordWithdrawn, StoreUnavailable
from ...trace.failures import log_failure
from .endings import Endings, is_nothing_run, is_of_store
from .kept_programs import KeptPrograms
from .recorded import Recorded
from .results import RUNTIME_UNAVAILABLE
from .runs import FullError, Runs
from .setup import Setup
from .waiting_run import ABORTED as RUN_ABORTED
from .waiting_run import COMPLETED, FAILED, RunAbortedError, WaitingRun
from .words import Words, still_waits

if TYPE_CHECKING:
    from ...execution.outcome import OutputItem, RunOutcome
    from ...stores.records import Lease, Record
    from .stored import StoredRuns

_log = logging.getLogger("codemode.tools")
_AGAIN_SECONDS = 0.2


class Resumes:
    """Goes on with programs that waited for a person: by the answers of their host, or by what a store says of them."""

    def __init__(self, setup: Setup, runs: Runs, endings: Endings, words: Words) -> None:
        self._setup = setup
        self._options = setup.options
        self._stored = setup.stored
        self._runs = runs
        self._endings = endings
        self._words = words
        self._kept = KeptPrograms(setup, runs)
        self._recorded = Recorded(setup.options.snapshot_ttl_seconds)

    async def resume(
        self,
        paused: Resumable | Mapping[str, Any] | Record,
        answers: Mapping[str, Any],
        call: CallContext | None,
    ) -> Any:
        """Go on with a program that waited for a person. Raises `CodeModeProtocolError`.

        That of a record is gone on with to its end, or to what it asks next: nobody else waits for it here.
        """
        from ...stores.records import Record

        call = check_call(call)
        if isinstance(paused, Record):
            return await self._resume_record(paused, answers, call)

        def told() -> Any:
            given = {name: one for name, one in answers.items() if one is not NOT_GIVEN}
            return [paused if isinstance(paused, Mapping) else paused.to_dict(), given]

        # A guard knows what it came to, but not the run that came to rest.
        work = partial(self._resume, paused, answers, call)
        return await self._recorded.once_for(call.conversation_id or "", told, work)

    async def _resume(
        self,
        paused: Resumable | Mapping[str, Any],
        answers: Mapping[str, Any],
        call: CallContext,
    ) -> Any:
        try:
            one = self._runs.reserve(call.conversation_id or "", "")
        except FullError as full:
            return self._words.full(full)
        try:
            lease = None if self._stored is None else await self._answered(self._stored, one, paused, answers)
        except StoreUnavailable as error:
            return self._words.broken(error)
        try:
            with one.begun_by_this_task():
                outer = self._setup.outer(replace(call, tool_call_id=None), one)
                outcome = await self._kept.resumed(paused, answers, outer)
                if self._stored is not None and lease is not None and is_nothing_run(outcome):
                    await self._kept.back(self._stored, one, lease)
                    return self._words.failed(still_waits(outcome.error), RUNTIME_UNAVAILABLE)
                return await self._endings.told(one, outcome)
        except RunAbortedError:
            return await self._endings.settled(one, self._words.aborted(one))
        except BaseException as error:
            await self._not_resumed(one, lease, error)
            raise

    async def _answered(
        self, stored: StoredRuns, one: WaitingRun, paused: Resumable | Mapping[str, Any], answers: Mapping[str, Any]
    ) -> Lease | None:
        """Go on with the record of a pause, where there is one: whoever waits for it gets what this comes to.

        What a person has decided otherwise in the store, or somebody has ended there, no answer of a host goes on with.
        """
        try:
            interrupt = Interrupt.of(paused)
            go_on = load_continuations()
            given = go_on.answers_of(interrupt, answers["resolution"], answers["resolutions"])
            lease = await stored.answered(interrupt, given, one.scope)
        except (AlreadyDecided, RecordExpired, RecordWithdrawn, StoreUnavailable):
            self._runs.give_up(one)
            raise
        except CodeModeError as error:  # what is wrong with it says whoever resumes
            log_failure(_log, "what its host answers could not be noted in the store", (), error)
            return None
        except BaseException:
            self._runs.give_up(one)
            raise
        if lease is not None:
            self._kept.hold(stored, one, lease)
        return lease

    async def _not_resumed(self, one: WaitingRun, lease: Lease | None, error: BaseException) -> None:
        if self._stored is None or lease is None:
            self._runs.give_up(one)
            return
        self._runs.stop_resting(one, one.run)
        refusals = dict.fromkeys(lease.resolutions, str(error)) if isinstance(error, CodeModeProtocolError) else None
        if isinstance(error, Exception):
            await self._stored.give_back(one, refusals=refusals)
        one.lease = None  # of one that was cancelled: once it is over somebody goes on from what the journal knows
        self._kept.let_go(one, lease.record)

    async def _resume_record(self, record: Record, answers: Mapping[str, Any], call: CallContext) -> Any:
        from .stored import id_of, scope_of

        scope = scope_of(record)
        paused = None if self._stored is None else await self._stored.interrupt_of(record)
        if scope is None or paused is None:
            raise CodeModeProtocolError("this record is none of a program of exec", details={"origin": "continuation"})
        try:
            one = self._runs.reserve(scope, record.source or "")
        except FullError as full:
            raise CodeModeConcurrencyError("there is no place for another run") from full
        self._runs.rename(one, id_of(record.id))
        call = replace(call, tool_call_id=None, conversation_id=scope or None)
        outer = replace(self._setup.outer(call, one), takes_output=False, keeps_output=True)
        try:
            with one.begun_by_this_task():
                outcome = await self._kept.on_from(paused, answers, outer)
            outcome, written = await self._to_its_end(one, outcome)
            if one.is_given_back or _is_cut_off(outcome):
                raise outcome.error or CodeModeConcurrencyError("the pair was closed")
        except RunAbortedError:
            self._kept.let_go(one, record)
            if one.is_given_back:
                raise CodeModeConcurrencyError("the pair was closed") from None
            return self._words.aborted(one)
        except BaseException:
            self._runs.stop_resting(one, one.run)
            self._kept.let_go(one, record)
            raise
        if outcome.interrupt is not None:
            self._runs.park_for(one, one.run_id, outcome.interrupt)
            return outcome.interrupt
        state = RUN_ABORTED if one.aborting is not None else COMPLETED if outcome.error is None else FAILED
        self._runs.park(one, one.run_id, (), record.expires_at_ms)  # what it has come to is in the store
        self._runs.unpark(one.run_id, state)
        return with_content(await self._words.ended(one, outcome, written), outcome)

    async def _to_its_end(self, one: WaitingRun, outcome: RunOutcome) -> tuple[RunOutcome, Sequence[OutputItem]]:
        """Go on with a program through every rest; without a worker for now, once there is one."""
        written = [*outcome.output]
        while outcome.rest is not None and outcome.rest.run is not None:
            run = one.run = outcome.rest.run
            if one.aborting is not None:
                return await run.abort(one.aborting), written
            try:
                outcome = await run.go_on(self._options.waits_ms)
            except (CodeModeConcurrencyError, CodeModeWorkerError):
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            written += outcome.output
        return outcome, written


def _is_cut_off(outcome: RunOutcome) -> bool:
    return is_nothing_run(outcome) or (outcome.error is not None and is_of_store(outcome.error))
