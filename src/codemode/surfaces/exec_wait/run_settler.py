"""Decide what happens to a run by its outcome: suspend, park or end it."""

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
from ...execution.identity import is_journal_error
from ...execution.outcome import replace_handles_with_media
from ...execution.outcome_texts import (
    RUNTIME_UNAVAILABLE,
    SNAPSHOT_LIMIT,
    SNAPSHOT_RESTORE_FAILED,
    describe_stopped_program,
    describe_store_unavailable,
    describe_waiting_run,
    may_have_side_effects,
)
from ...host.cancellation import wait_or_pass_late_result
from ...stores.errors import StoreUnavailableError
from ...trace.failures import log_failure
from .catalog import ExecWaitContext
from .program_run import ABORTED as RUN_ABORTED
from .program_run import COMPLETED, FAILED, ProgramRun, log_result
from .result_factory import ResultFactory
from .results import build_waiting_result, format_output, format_pending_calls
from .run_registry import RunRegistry

if TYPE_CHECKING:
    from ...execution.outcome import RunOutcome, SuspendedRun, Suspension
    from ...interrupts.interrupt import Interrupt
    from .stored_runs import StoredRuns

_log = logging.getLogger("codemode.tools")
_CONTINUED_ELSEWHERE = "another process has continued this run: call wait to follow it"
_STORE_UNAVAILABLE = "A person must decide but could not be asked: the store is unavailable."
STORE_FULL = "CODE_MODE_STORE_FULL"
_STORE_FULL_TEXT = "A person must decide but was not asked: too many programs already wait for decisions."
_RETRY_LATER = "Call this again later."
_NOT_STORED = "the run could not be stored: it waits in this process only"
ALREADY_RESUMED = "the program was already resumed and waits: call wait with the runId of that result"


class RunOutcomeApplier:
    """Suspends, parks or ends a run by its outcome, and returns the result of the call."""

    def __init__(self, context: ExecWaitContext, runs: RunRegistry, result_factory: ResultFactory) -> None:
        self._options = context.options
        self._max_model_characters = context.settings.model_output.max_model_characters
        self._stored = context.stored_runs
        self._runs = runs
        self._result_factory = result_factory

    async def apply_outcome(
        self,
        run: ProgramRun,
        outcome: RunOutcome,
        notes: Sequence[str] = (),
        on_cancelled: Callable[[Any], None] | None = None,
    ) -> Any:
        """Return the result of an outcome, or the `Interrupt`; the run is suspended, parked or ended.

        If the caller is cancelled meanwhile, ``on_cancelled`` receives the result.
        """
        settling = self._suspend_park_or_end(run, outcome, notes)
        if self._stored is None and outcome.suspension is None and not self._result_factory.needs_state_write(outcome):
            result = await settling  # without a task, which would cost every program time
        else:
            on_undelivered = on_cancelled or partial(self._runs.keep_undelivered_result, run.run_id)
            result = await wait_or_pass_late_result(asyncio.ensure_future(settling), on_undelivered)
        log_result(run, result)
        return replace_handles_with_media(result, outcome)

    async def _suspend_park_or_end(self, run: ProgramRun, outcome: RunOutcome, notes: Sequence[str]) -> Any:
        if outcome.suspension is not None:
            if outcome.suspension.run is None:
                self._runs.end(run, FAILED)
                run.is_released = True
                return await self.store_result_or_release_lease(
                    run, self._result_factory.build_failure_and_count_limit(ALREADY_RESUMED, SNAPSHOT_RESTORE_FAILED)
                )
            return await self._suspend_or_end_run(run, outcome, outcome.suspension, outcome.suspension.run, notes)
        if outcome.interrupt is not None:
            return await self._park_or_end_interrupted_run(run, outcome, outcome.interrupt)
        if run.is_lost and outcome.error is not None:
            return self._result_factory.build_failure_and_count_limit(
                _CONTINUED_ELSEWHERE, SNAPSHOT_RESTORE_FAILED, format_output(outcome.output, self._max_model_characters)
            )
        is_aborted = run.abort_reason is not None and outcome.error is not None
        if outcome.error is not None and not is_aborted and is_store_failure(outcome.error):
            return await self._release_after_store_failure(run, outcome, outcome.error)
        state = RUN_ABORTED if is_aborted else COMPLETED if outcome.error is None else FAILED
        self._runs.end(run, state)
        result = await self._result_factory.save_values_and_build_end_result(run, outcome, outcome.output, notes)
        return result if self._stored is None else await self.store_result_or_release_lease(run, result)

    async def store_result_or_release_lease(self, run: ProgramRun, result: dict[str, Any]) -> dict[str, Any]:
        """Store the result for processes that wait for the run, and return it."""
        if self._stored is not None:
            run.call_on_loop(run.cancel_lease_renewal)
            if run.lease is not None:
                await (self._stored.release_lease(run) if run.is_released else self._stored.store_result(run, result))
        return result

    async def _release_after_store_failure(
        self, run: ProgramRun, outcome: RunOutcome, error: CodeModeError
    ) -> dict[str, Any]:
        """Return the result of a run that ended because of the store; it can continue from its journal later."""
        telemetry, output = (
            self._result_factory.count_calls_and_build_telemetry(run, outcome),
            format_output(outcome.output, self._max_model_characters),
        )
        if self._stored is None or run.lease is None:
            self._runs.end(run, FAILED)
            return self._result_factory.build_failure_and_count_limit(
                describe_store_unavailable(error), RUNTIME_UNAVAILABLE, output, telemetry
            )
        run.call_on_loop(run.cancel_lease_renewal)
        self._runs.forget(run)
        await self._stored.release_lease(run)
        if error.details.get("is_lost"):
            return self._result_factory.build_failure_and_count_limit(
                _CONTINUED_ELSEWHERE, SNAPSHOT_RESTORE_FAILED, output, telemetry
            )
        return self._result_factory.build_failure_and_count_limit(
            describe_waiting_run(error), RUNTIME_UNAVAILABLE, output, telemetry
        )

    async def _suspend_or_end_run(
        self, run: ProgramRun, outcome: RunOutcome, rest: Suspension, execution: SuspendedRun, notes: Sequence[str]
    ) -> Any:
        run.execution = execution
        telemetry, output = (
            self._result_factory.count_calls_and_build_telemetry(run, outcome, notes),
            format_output(outcome.output, self._max_model_characters),
        )
        size, max_bytes = execution.size_bytes, self._options.max_snapshot_bytes
        if (total_bytes := size + rest.output_bytes) > max_bytes and run.abort_reason is None:
            aborted = await execution.abort("it exceeds maxSnapshotBytes")
            self._runs.end(run, FAILED)
            message = describe_stopped_program(
                f"the program takes {total_bytes} bytes suspended; maxSnapshotBytes is {max_bytes}. Keep, call or write"
                " less",
                aborted.error,
            )
            return await self.store_result_or_release_lease(
                run, self._result_factory.build_failure_and_count_limit(message, SNAPSHOT_LIMIT, output, telemetry)
            )
        if run.abort_reason is None and self._stored is not None:
            if not await self._store_and_keep_lease_renewed(self._stored, run, rest, outcome):
                await execution.abort(_CONTINUED_ELSEWHERE)
                self._runs.forget(run)
                run.call_on_loop(run.cancel_lease_renewal)
                return self._result_factory.build_failure_and_count_limit(
                    _CONTINUED_ELSEWHERE, SNAPSHOT_RESTORE_FAILED, output, telemetry
                )
            if run.lease is None:
                telemetry["warnings"] = [*telemetry.get("warnings", ()), _NOT_STORED]
        telemetry["rests"] = run.suspension_count + 1
        if run.abort_reason is not None or not self._runs.record_suspension_and_start_timers(
            run, execution, rest.reason, size
        ):
            aborted = await execution.abort(run.abort_reason or "it has ended")
            self._runs.end(run, RUN_ABORTED)
            return await self.store_result_or_release_lease(
                run, self._result_factory.build_abort_result(run, output, telemetry, aborted.error)
            )
        for_person = self._options.approvals == "park"
        pending = format_pending_calls(rest.pending_calls, for_person=for_person)
        return build_waiting_result(run.run_id, rest.reason, pending, output, telemetry)

    async def _store_and_keep_lease_renewed(
        self, stored: StoredRuns, run: ProgramRun, rest: Suspension, outcome: RunOutcome
    ) -> bool:
        """Store a suspended run if possible. Returns False if another process has it."""
        is_new = run.lease is None
        try:
            if run.execution is not None and not await stored.store_suspended_run(
                run, run.execution, rest.reason, count_yields(outcome)
            ):
                return False
        except Exception as error:  # noqa: BLE001 - a store may be host code; the run stays suspended
            log_failure(_log, "a suspended run could not be stored", (), error)
        if is_new and run.lease is not None:
            if run.suspension_count == 0:  # the id is fixed once it was returned
                from .stored_runs import to_run_id

                self._runs.change_run_id(run, to_run_id(run.lease.record.id))
            run.call_on_loop(lambda: _start_lease_renewal(stored, run))
        return True

    async def _park_or_end_interrupted_run(self, run: ProgramRun, outcome: RunOutcome, interrupt: Interrupt) -> Any:
        """Return the interrupt to the host, or park the run in the store and return a waiting result."""
        is_parked = self._options.approvals == "park"
        if self._stored is None or not (is_parked or run.lease is not None):
            self._runs.end(run, COMPLETED)
            return interrupt
        telemetry, output = (
            self._result_factory.count_calls_and_build_telemetry(run, outcome),
            format_output(outcome.output, self._max_model_characters),
        )
        if run.abort_reason is not None:
            self._runs.end(run, RUN_ABORTED)
            aborted = CodeModeAbortedError(run.abort_reason)
            aborted.calls = outcome.calls
            return await self.store_result_or_release_lease(
                run, self._result_factory.build_abort_result(run, output, telemetry, aborted)
            )
        run.call_on_loop(run.cancel_lease_renewal)
        try:
            run_id = await self._stored.store_parked_run(run, interrupt)
        except Exception as error:  # noqa: BLE001 - a store may be host code
            log_failure(_log, "the pending approvals of a program could not be stored", (), error)
            self._runs.forget(run)
            if not is_parked:
                return interrupt
            is_full = isinstance(error, CodeModeError) and error.code == STORE_FULL
            reason = _STORE_FULL_TEXT if is_full else _STORE_UNAVAILABLE
            store_error = CodeModeError(reason)
            store_error.calls = outcome.calls
            message = describe_stopped_program(
                reason if may_have_side_effects(outcome.calls) else f"{reason} {_RETRY_LATER}", store_error
            )
            return self._result_factory.build_failure_and_count_limit(message, RUNTIME_UNAVAILABLE, output, telemetry)
        if run_id is None:
            self._runs.forget(run)
            return self._result_factory.build_failure_and_count_limit(
                _CONTINUED_ELSEWHERE, SNAPSHOT_RESTORE_FAILED, output, telemetry
            )
        # Until the decision it needs no process, worker or capacity.
        self._runs.park_with_interrupt(run, run_id, interrupt)
        calls = [
            {"id": request.tool_call_id, "tool": request.tool_name, "status": "approval"}
            for request in interrupt.requests
        ]
        result = self._result_factory.add_approval_note(
            build_waiting_result(run_id, "pending_tools", calls, output, telemetry)
        )
        return result if is_parked else interrupt


def count_yields(outcome: RunOutcome) -> int:
    """Return how often a program has yielded so far."""
    return 0 if outcome.ledger is None else sum(entry.kind == "yield" for entry in outcome.ledger.entries)


def failed_for_lack_of_worker(outcome: RunOutcome) -> bool:
    """Return True if there was no worker, so that nothing changed."""
    error = outcome.error
    return isinstance(error, CodeModeConcurrencyError) or (
        isinstance(error, CodeModeWorkerError) and error.details.get("origin") != "worker"
    )


def is_store_failure(error: BaseException) -> bool:
    """Return True if a run ended because its store is unavailable or another process has it."""
    return is_journal_error(error) or isinstance(error, StoreUnavailableError)


def _start_lease_renewal(stored: StoredRuns, run: ProgramRun) -> None:
    run.cancel_lease_renewal()
    if run.lease is not None:
        run.lease_renewal = asyncio.ensure_future(stored.keep_lease_renewed_or_abort_run(run))
