"""What becomes of a run when it stops: it rests, it waits for a person, or it has ended; and what a model is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import (
    CodeModeAbortedError,
    CodeModeConcurrencyError,
    CodeModeError,
    CodeModeWorkerError,
)
from ...execution.identity import is_of_journal
from ...execution.outcome import with_content
from ...execution.outcome_texts import (
    RUNTIME_UNAVAILABLE,
    SNAPSHOT_LIMIT,
    SNAPSHOT_RESTORE_FAILED,
    ended_text,
    has_done,
    still_waits,
    store_away_text,
)
from ...host.cancellation import kept_from_cancelling
from ...stores.errors import StoreUnavailableError
from ...trace.failures import log_failure
from .catalog import Setup
from .results import output_of, pending_of, waiting
from .run_texts import Words
from .runs import Runs
from .waiting_run import ABORTED as RUN_ABORTED
from .waiting_run import COMPLETED, FAILED, WaitingRun, log_result

if TYPE_CHECKING:
    from ...execution.outcome import AtRest, RestingRun, RunOutcome
    from ...interrupts.interrupt import Interrupt
    from .stored import StoredRuns

_log = logging.getLogger("codemode.tools")
_ELSEWHERE = "another process has gone on with this run: call wait to go on there"
_NOT_ASKED = "A person has to decide, and could not be asked: the store cannot be used now."
STORE_FULL = "CODE_MODE_STORE_FULL"
_FULL = "A person has to decide, and was not asked: too many programs wait for decisions already."
_LATER = "Call this again later."
_NOT_STORED = "the run could not be stored: it waits in this process alone"
GONE_ON = "the program has gone on already, and waits: call wait with the runId of the result that said so"


class Endings:
    """Takes a run from an outcome to the result of the call that has brought it about."""

    def __init__(self, setup: Setup, runs: Runs, words: Words) -> None:
        self._options = setup.options
        self._most = setup.settings.model_output.max_model_characters
        self._stored = setup.stored
        self._runs = runs
        self._words = words

    async def told(
        self, one: WaitingRun, outcome: RunOutcome, notes: Sequence[str] = (), owe: Callable[[Any], None] | None = None
    ) -> Any:
        """Return the result of an outcome, or the `Interrupt`; its run rests or has given its place back.

        Who is cancelled while that is made, or written into the store, leaves the result to ``owe``.
        """
        telling = self._told(one, outcome, notes)
        if self._stored is None and outcome.rest is None and not self._words.takes_time(outcome):
            result = await telling  # at once: a task for it would make every program dearer
        else:
            keep = owe or partial(self._runs.owe, one.run_id)
            result = await kept_from_cancelling(asyncio.ensure_future(telling), keep)
        log_result(one, result)
        return with_content(result, outcome)

    async def _told(self, one: WaitingRun, outcome: RunOutcome, notes: Sequence[str]) -> Any:
        if outcome.rest is not None:
            if outcome.rest.run is None:
                self._runs.end(one, FAILED)
                one.is_given_back = True
                return await self.settled(one, self._words.failed(GONE_ON, SNAPSHOT_RESTORE_FAILED))
            return await self._resting(one, outcome, outcome.rest, outcome.rest.run, notes)
        if outcome.interrupt is not None:
            return await self._asked(one, outcome, outcome.interrupt)
        if one.is_lost and outcome.error is not None:
            return self._words.failed(_ELSEWHERE, SNAPSHOT_RESTORE_FAILED, output_of(outcome.output, self._most))
        is_aborted = one.aborting is not None and outcome.error is not None
        if outcome.error is not None and not is_aborted and is_of_store(outcome.error):
            return await self._cut_off(one, outcome, outcome.error)
        state = RUN_ABORTED if is_aborted else COMPLETED if outcome.error is None else FAILED
        self._runs.end(one, state)
        result = await self._words.ended(one, outcome, outcome.output, notes)
        return result if self._stored is None else await self.settled(one, result)

    async def settled(self, one: WaitingRun, result: dict[str, Any]) -> dict[str, Any]:
        """Write the result for whoever waits for it elsewhere, where the run is kept, and return it."""
        if self._stored is not None:
            one.at_home(one.end_keeper)
            if one.lease is not None:
                await (self._stored.give_back(one) if one.is_given_back else self._stored.settle(one, result))
        return result

    async def _cut_off(self, one: WaitingRun, outcome: RunOutcome, error: CodeModeError) -> dict[str, Any]:
        """Return the result of a run that has ended here alone: by its journal others go on, or this process later."""
        telemetry, output = self._words.telemetry(one, outcome), output_of(outcome.output, self._most)
        if self._stored is None or one.lease is None:
            self._runs.end(one, FAILED)
            return self._words.failed(store_away_text(error), RUNTIME_UNAVAILABLE, output, telemetry)
        one.at_home(one.end_keeper)
        self._runs.drop(one)
        await self._stored.give_back(one)
        if error.details.get("is_lost"):
            return self._words.failed(_ELSEWHERE, SNAPSHOT_RESTORE_FAILED, output, telemetry)
        return self._words.failed(still_waits(error), RUNTIME_UNAVAILABLE, output, telemetry)

    async def _resting(
        self, one: WaitingRun, outcome: RunOutcome, rest: AtRest, run: RestingRun, notes: Sequence[str]
    ) -> Any:
        one.run = run
        telemetry, output = self._words.telemetry(one, outcome, notes), output_of(outcome.output, self._most)
        size, most = run.size_bytes, self._options.max_snapshot_bytes
        if (size_now := size + rest.output_bytes) > most and one.aborting is None:
            aborted = await run.abort("it takes more than may be kept")
            self._runs.end(one, FAILED)
            message = ended_text(
                f"the program takes {size_now} bytes at rest; maxSnapshotBytes is {most}. Keep, call or write less",
                aborted.error,
            )
            return await self.settled(one, self._words.failed(message, SNAPSHOT_LIMIT, output, telemetry))
        if one.aborting is None and self._stored is not None:
            if not await self._kept(self._stored, one, rest, outcome):
                await run.abort(_ELSEWHERE)
                self._runs.drop(one)
                one.at_home(one.end_keeper)
                return self._words.failed(_ELSEWHERE, SNAPSHOT_RESTORE_FAILED, output, telemetry)
            if one.lease is None:
                telemetry["warnings"] = [*telemetry.get("warnings", ()), _NOT_STORED]
        telemetry["rests"] = one.rests + 1
        if one.aborting is not None or not self._runs.rest(one, run, rest.reason, size):
            aborted = await run.abort(one.aborting or "it has ended")
            self._runs.end(one, RUN_ABORTED)
            return await self.settled(one, self._words.aborted(one, output, telemetry, aborted.error))
        for_person = self._options.approvals == "park"
        pending = pending_of(rest.pending, for_person=for_person)
        return waiting(one.run_id, rest.reason, pending, output, telemetry)

    async def _kept(self, stored: StoredRuns, one: WaitingRun, rest: AtRest, outcome: RunOutcome) -> bool:
        """Keep a run at rest in the store, if that can be. False: it is somebody else's by now."""
        was_new = one.lease is None
        try:
            if one.run is not None and not await stored.rest(one, one.run, rest.reason, yields_of(outcome)):
                return False
        except Exception as error:  # noqa: BLE001 - a store may be host code, and the run is at rest all the same
            log_failure(_log, "a run at rest could not be stored", (), error)
        if was_new and one.lease is not None:
            if one.rests == 0:  # later nobody would know it by another id
                from .stored import id_of

                self._runs.rename(one, id_of(one.lease.record.id))
            one.at_home(lambda: _keep(stored, one))
        return True

    async def _asked(self, one: WaitingRun, outcome: RunOutcome, interrupt: Interrupt) -> Any:
        """Return the interrupt to the host; or park it in the store, for whoever decides, and tell the model so."""
        is_parked = self._options.approvals == "park"
        if self._stored is None or not (is_parked or one.lease is not None):
            self._runs.end(one, COMPLETED)
            return interrupt
        telemetry, output = self._words.telemetry(one, outcome), output_of(outcome.output, self._most)
        if one.aborting is not None:
            self._runs.end(one, RUN_ABORTED)
            aborted = CodeModeAbortedError(one.aborting)
            aborted.calls = outcome.calls
            return await self.settled(one, self._words.aborted(one, output, telemetry, aborted))
        one.at_home(one.end_keeper)
        try:
            run_id = await self._stored.parked(one, interrupt)
        except Exception as error:  # noqa: BLE001 - a store may be host code
            log_failure(_log, "what a program asks a person could not be stored", (), error)
            self._runs.drop(one)
            if not is_parked:
                return interrupt
            is_full = isinstance(error, CodeModeError) and error.code == STORE_FULL
            not_asked = _FULL if is_full else _NOT_ASKED
            unasked = CodeModeError(not_asked)
            unasked.calls = outcome.calls
            message = ended_text(not_asked if has_done(outcome.calls) else f"{not_asked} {_LATER}", unasked)
            return self._words.failed(message, RUNTIME_UNAVAILABLE, output, telemetry)
        if run_id is None:
            self._runs.drop(one)
            return self._words.failed(_ELSEWHERE, SNAPSHOT_RESTORE_FAILED, output, telemetry)
        # It holds no process, no slot and no place until somebody has decided.
        self._runs.park_for(one, run_id, interrupt)
        calls = [
            {"id": asked.tool_call_id, "tool": asked.tool_name, "status": "approval"} for asked in interrupt.requests
        ]
        result = self._words.of_person(waiting(run_id, "pending_tools", calls, output, telemetry))
        return result if is_parked else interrupt


def yields_of(outcome: RunOutcome) -> int:
    """Return how often a program has yielded so far."""
    return 0 if outcome.ledger is None else sum(entry.kind == "yield" for entry in outcome.ledger.entries)


def is_nothing_run(outcome: RunOutcome) -> bool:
    """Tell whether there was no worker, so that a run is where it was."""
    error = outcome.error
    return isinstance(error, CodeModeConcurrencyError) or (
        isinstance(error, CodeModeWorkerError) and error.details.get("origin") != "worker"
    )


def is_of_store(error: BaseException) -> bool:
    """Tell whether a run was cut off because what it is kept in cannot be used, or is another process's by now."""
    return is_of_journal(error) or isinstance(error, StoreUnavailableError)


def _keep(stored: StoredRuns, one: WaitingRun) -> None:
    one.end_keeper()
    if one.lease is not None:
        one.keeper = asyncio.ensure_future(stored.keep(one))
