"""Resume paused programs, and wait for runs of other processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...data.json_values import NOT_GIVEN
from ...data.narrowing import mapping_or_empty, string_or_empty
from ...errors import (
    CodeModeAbortedError,
    CodeModeConcurrencyError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeWorkerError,
    Resumable,
)
from ...execution.call_context import CallContext, call_context_or_empty
from ...execution.outcome import replace_handles_with_media
from ...execution.outcome_texts import (
    ABORTED,
    RUNTIME_UNAVAILABLE,
    SNAPSHOT_EXPIRED,
    SNAPSHOT_RESTORE_FAILED,
    describe_waiting_run,
    failure_text,
)
from ...execution.starting import add_saved_programs_to_catalog, get_pool_and_import_execution, import_resume_module
from ...interrupts.interrupt import Interrupt
from ...stores.errors import AlreadyDecidedError, RecordExpiredError, RecordWithdrawnError, StoreUnavailableError
from ...trace.failures import log_failure
from .catalog import ExecWaitContext
from .program_run import ABORTED as RUN_ABORTED
from .program_run import COMPLETED, EXPIRED, FAILED, RUNNING, ProgramRun, RunAbortedBeforeStartError
from .result_factory import ResultFactory
from .results import InvalidInputError, RecordedResults, build_waiting_result
from .run_registry import NoCapacityError, RunRegistry
from .run_settler import RunOutcomeApplier, count_yields, failed_for_lack_of_worker, is_store_failure

if TYPE_CHECKING:
    from ...execution.call_context import OuterCallSettings
    from ...execution.outcome import OutputItem, RunOutcome
    from ...stores.records import Lease, Record, StoredRequest
    from .stored_runs import StoredRuns


class StoredRunResumer:
    """Resumes programs from the store, and attaches or releases the leases of their runs."""

    def __init__(self, context: ExecWaitContext, runs: RunRegistry) -> None:
        self._context = context
        self._runs = runs

    def attach_lease_set_id_and_start_renewal(self, stored: StoredRuns, run: ProgramRun, lease: Lease) -> None:
        """Attach a lease to a run and renew it while the run holds it."""
        from .stored_runs import to_run_id

        self._runs.change_run_id(run, to_run_id(lease.record.id))
        run.lease = lease
        run.lease_renewal = asyncio.ensure_future(stored.keep_lease_renewed_or_abort_run(run))

    async def give_back_run(self, stored: StoredRuns, run: ProgramRun, lease: Lease, reason: str | None = None) -> None:
        """Release the lease of a run that could not be resumed here."""
        if run.execution is not None:
            await run.execution.abort("the run was released")
        await stored.release_lease(run, reason)
        self.forget_run_but_list_if_waiting(run, lease.record)

    def forget_run_but_list_if_waiting(self, run: ProgramRun, record: Record) -> None:
        """Forget a run that is not resumed here; if it waits for a person, it stays visible as parked."""
        self._runs.forget(run)
        if record.state == "resuming":
            tool_names = tuple(request.tool_name for request in list_open_requests(record))
            self._runs.park(run, run.run_id, tool_names, record.expires_at_ms)

    async def resume_from_last_recovery(
        self, paused: Resumable | Mapping[str, Any], answers: Mapping[str, Any], outer: OuterCallSettings
    ) -> RunOutcome:
        """Resume a stored program; if an earlier resumption was aborted, resume from there."""
        outcome = await self.resume_paused(paused, answers, outer)
        while outcome.is_replayed and isinstance(outcome.error, CodeModeAbortedError) and outcome.error.recovery:
            outcome = await self.resume_paused(outcome.error.recovery, {}, outer)
        return outcome

    async def resume_paused(
        self, paused: Resumable | Mapping[str, Any], answers: Mapping[str, Any], outer: OuterCallSettings
    ) -> RunOutcome:
        """Resume a program with answers. Raises `CodeModeProtocolError` before anything runs if they are invalid."""
        context = self._context
        pool = await get_pool_and_import_execution(context.pool, context.settings)
        resume_module = await pool.run_in_start_thread(import_resume_module)
        answers_to = partial(
            resume_module.normalize_answers_by_id,
            **{"resolution": resume_module.NOT_GIVEN, "resolutions": None, **answers},
        )
        needs_answers = bool(answers.get("resolutions")) or "resolution" in answers
        view = context.catalog.get_program_view("", await context.create_namespace_scopes(outer.call.context))
        arguments = (
            add_saved_programs_to_catalog(view, context.library, None, outer.call, pool),
            context.settings,
            outer,
            pool,
        )
        return await resume_module.resume_program(
            context.profile, paused, answers_to, *arguments, needs_answers=needs_answers
        )


def list_open_requests(record: Record) -> list[StoredRequest]:
    """Return the requests of a record that wait for a person, or that are decided but not applied."""
    return [request for request in record.requests if request.state in ("waiting", "decided")]


_log = logging.getLogger("codemode.tools")
_RETRY_SECONDS = 0.2


class ProgramResumer:
    """Resume programs after a decision, from the host's answers or from the store."""

    def __init__(
        self, context: ExecWaitContext, runs: RunRegistry, settler: RunOutcomeApplier, result_factory: ResultFactory
    ) -> None:
        self._context = context
        self._options = context.options
        self._stored = context.stored_runs
        self._runs = runs
        self._settler = settler
        self._result_factory = result_factory
        self._stored_programs = StoredRunResumer(context, runs)
        self._recorded_results = RecordedResults(context.options.snapshot_ttl_seconds)

    async def resume(
        self,
        paused: Resumable | Mapping[str, Any] | Record,
        answers: Mapping[str, Any],
        call: CallContext | None,
    ) -> Any:
        """Resume a paused program. Raises `CodeModeProtocolError`.

        The program of a record runs to its end or to its next pause, because no other caller waits for it here.
        """
        from ...stores.records import Record

        call = call_context_or_empty(call)
        if isinstance(paused, Record):
            return await self._resume_record(paused, answers, call)

        def build_key() -> Any:
            given_answers = {name: answer for name, answer in answers.items() if answer is not NOT_GIVEN}
            return [paused if isinstance(paused, Mapping) else paused.to_dict(), given_answers]

        # A guard records an outcome, but not a suspended run.
        work = partial(self._resume_interrupt, paused, answers, call)
        return await self._recorded_results.run_once_for_value(call.conversation_id or "", build_key, work)

    async def _resume_interrupt(
        self,
        paused: Resumable | Mapping[str, Any],
        answers: Mapping[str, Any],
        call: CallContext,
    ) -> Any:
        try:
            run = self._runs.reserve_run_or_raise(call.conversation_id or "", "")
        except NoCapacityError as no_capacity:
            return self._result_factory.build_no_capacity_result(no_capacity)
        try:
            lease = (
                None
                if self._stored is None
                else await self._record_answers_and_claim(self._stored, run, paused, answers)
            )
        except StoreUnavailableError as error:
            return self._result_factory.build_host_failure_and_count_limit(error)
        try:
            with run.cancellable_start():
                outer = self._context.create_outer_call_and_bind_state(replace(call, tool_call_id=None), run)
                outcome = await self._stored_programs.resume_paused(paused, answers, outer)
                if self._stored is not None and lease is not None and failed_for_lack_of_worker(outcome):
                    await self._stored_programs.give_back_run(self._stored, run, lease)
                    return self._result_factory.build_failure_and_count_limit(
                        describe_waiting_run(outcome.error), RUNTIME_UNAVAILABLE
                    )
                return await self._settler.apply_outcome(run, outcome)
        except RunAbortedBeforeStartError:
            return await self._settler.store_result_or_release_lease(run, self._result_factory.build_abort_result(run))
        except BaseException as error:
            await self._on_resume_failure(run, lease, error)
            raise

    async def _record_answers_and_claim(
        self, stored: StoredRuns, run: ProgramRun, paused: Resumable | Mapping[str, Any], answers: Mapping[str, Any]
    ) -> Lease | None:
        """Claim the record of a pause, if there is one, so that processes that wait for it get the result.

        Raises if the record was decided otherwise, has expired or was withdrawn.
        """
        try:
            interrupt = Interrupt.from_value(paused)
            resume_module = import_resume_module()
            resolutions = resume_module.normalize_answers_by_id(
                interrupt, answers["resolution"], answers["resolutions"]
            )
            lease = await stored.record_answers_and_claim(interrupt, resolutions, run.scope)
        except (AlreadyDecidedError, RecordExpiredError, RecordWithdrawnError, StoreUnavailableError):
            self._runs.end_and_abort_program(run)
            raise
        except CodeModeError as error:  # resuming reports what is wrong
            log_failure(_log, "the host's answers could not be recorded in the store", (), error)
            return None
        except BaseException:
            self._runs.end_and_abort_program(run)
            raise
        if lease is not None:
            self._stored_programs.attach_lease_set_id_and_start_renewal(stored, run, lease)
        return lease

    async def _on_resume_failure(self, run: ProgramRun, lease: Lease | None, error: BaseException) -> None:
        if self._stored is None or lease is None:
            self._runs.end_and_abort_program(run)
            return
        self._runs.abort_suspended_program(run, run.execution)
        refusals = dict.fromkeys(lease.resolutions, str(error)) if isinstance(error, CodeModeProtocolError) else None
        if isinstance(error, Exception):
            await self._stored.release_lease(run, refusals=refusals)
        run.lease = None  # of a cancelled one: when it expires, another process can resume from the journal
        self._stored_programs.forget_run_but_list_if_waiting(run, lease.record)

    async def _resume_record(self, record: Record, answers: Mapping[str, Any], call: CallContext) -> Any:
        from .stored_runs import get_scope, to_run_id

        scope = get_scope(record)
        paused = None if self._stored is None else await self._stored.load_newest_interrupt(record)
        if scope is None or paused is None:
            raise CodeModeProtocolError("this record does not belong to exec", details={"origin": "continuation"})
        try:
            run = self._runs.reserve_run_or_raise(scope, record.source or "")
        except NoCapacityError as error:
            raise CodeModeConcurrencyError("the limit of waiting runs is reached") from error
        self._runs.change_run_id(run, to_run_id(record.id))
        call = replace(call, tool_call_id=None, conversation_id=scope or None)
        outer = replace(
            self._context.create_outer_call_and_bind_state(call, run), takes_output=False, keeps_output=True
        )
        try:
            with run.cancellable_start():
                outcome = await self._stored_programs.resume_from_last_recovery(paused, answers, outer)
            outcome, items_written = await self._run_to_end(run, outcome)
            if run.is_released or _failed_for_host_reasons(outcome):
                raise outcome.error or CodeModeConcurrencyError("the pair was closed")
        except RunAbortedBeforeStartError:
            self._stored_programs.forget_run_but_list_if_waiting(run, record)
            if run.is_released:
                raise CodeModeConcurrencyError("the pair was closed") from None
            return self._result_factory.build_abort_result(run)
        except BaseException:
            self._runs.abort_suspended_program(run, run.execution)
            self._stored_programs.forget_run_but_list_if_waiting(run, record)
            raise
        if outcome.interrupt is not None:
            self._runs.park_with_interrupt(run, run.run_id, outcome.interrupt)
            return outcome.interrupt
        state = RUN_ABORTED if run.abort_reason is not None else COMPLETED if outcome.error is None else FAILED
        self._runs.park(run, run.run_id, (), record.expires_at_ms)  # its result is in the store
        self._runs.end_parked_by_id(run.run_id, state)
        return replace_handles_with_media(
            await self._result_factory.save_values_and_build_end_result(run, outcome, items_written), outcome
        )

    async def _run_to_end(self, run: ProgramRun, outcome: RunOutcome) -> tuple[RunOutcome, Sequence[OutputItem]]:
        """Run a program through all suspensions; if there is no worker, try again later."""
        items_written = [*outcome.output]
        while outcome.suspension is not None and outcome.suspension.run is not None:
            execution = run.execution = outcome.suspension.run
            if run.abort_reason is not None:
                return await execution.abort(run.abort_reason), items_written
            try:
                outcome = await execution.continue_run(self._options.effective_wait_timeout_ms)
            except (CodeModeConcurrencyError, CodeModeWorkerError):
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            items_written += outcome.output
        return outcome, items_written


def _failed_for_host_reasons(outcome: RunOutcome) -> bool:
    return failed_for_lack_of_worker(outcome) or (outcome.error is not None and is_store_failure(outcome.error))


_HELD_ELSEWHERE = "Another process has this run: call wait again."
_STATUS_BY_REQUEST_STATE = {"waiting": "approval", "decided": "running"}
_STATE_BY_CODE = {ABORTED: RUN_ABORTED, SNAPSHOT_EXPIRED: EXPIRED}


class RemoteRunWaiter:
    """Waits for runs that are not in this process."""

    def __init__(
        self, context: ExecWaitContext, runs: RunRegistry, settler: RunOutcomeApplier, result_factory: ResultFactory
    ) -> None:
        self._context = context
        self._options = context.options
        self._counts = context.counts
        self._runs = runs
        self._settler = settler
        self._result_factory = result_factory
        self._stored_programs = StoredRunResumer(context, runs)

    async def wait_or_claim_and_continue(self, stored: StoredRuns, run_id: str, call: CallContext) -> Any:
        """Return the result of a run that another process started or that waits for a person."""
        from ...stores.records import Lease, Record

        scope = call.conversation_id or ""
        try:
            found = await stored.wait_to_claim_run_or_get_result(run_id, scope, self._options.effective_wait_timeout_ms)
        except InvalidInputError as refused:
            self._runs.end_parked_by_id(run_id, _STATE_BY_CODE.get(refused.code, FAILED))
            raise
        if isinstance(found, Record):
            return await self._build_waiting_result_or_get_interrupt(stored, run_id, found)
        if not isinstance(found, Lease):
            self._runs.end_parked_by_id(run_id, COMPLETED if found.get("status") == "completed" else FAILED)
            return dict(found)
        try:
            run = self._runs.reserve_run_or_raise(scope, string_or_empty(found.record.source))
        except NoCapacityError as error:
            await stored.release_lease(ProgramRun(scope, "", lease=found))
            return self._result_factory.build_no_capacity_result(error)
        self._stored_programs.attach_lease_set_id_and_start_renewal(stored, run, found)
        self._counts.count_event("wakesCold", run=run)
        run.counts["wait"] = 1
        return await self._continue_or_release_claimed(stored, run, found, call)

    async def _continue_or_release_claimed(
        self, stored: StoredRuns, run: ProgramRun, lease: Lease, call: CallContext
    ) -> Any:
        try:
            with run.cancellable_start():
                return await self._continue_claimed_run(stored, run, lease, call)
        except RunAbortedBeforeStartError:
            return self._result_factory.build_abort_result(run)
        except asyncio.CancelledError:
            if run.state != RUNNING:  # its result was delivered
                raise
            if run.execution is not None and run.execution.is_suspended:
                self._runs.restore_suspension(run)
                raise
            run.lease = None  # when it expires, another process can resume from journal and guard
            self._runs.forget(run)
            raise
        except CodeModeProtocolError as error:
            await self._stored_programs.give_back_run(stored, run, lease, error.message)
            return self._result_factory.build_failure_and_count_limit(
                failure_text(error, None), SNAPSHOT_RESTORE_FAILED
            )
        except Exception as error:  # noqa: BLE001 - the model always gets an answer
            await self._stored_programs.give_back_run(stored, run, lease)
            return self._result_factory.build_host_failure_and_count_limit(error)
        finally:
            if run.lease is None:
                run.cancel_lease_renewal()

    async def _continue_claimed_run(self, stored: StoredRuns, run: ProgramRun, lease: Lease, call: CallContext) -> Any:
        outer = self._context.create_outer_call_and_bind_state(replace(call, tool_call_id=None), run)
        outcome = await self._stored_programs.resume_from_last_recovery(
            lease.interrupt, {"resolutions": dict(lease.resolutions)}, outer
        )
        if failed_for_lack_of_worker(outcome):
            await self._stored_programs.give_back_run(stored, run, lease)
            return self._result_factory.build_failure_and_count_limit(
                describe_waiting_run(outcome.error), RUNTIME_UNAVAILABLE
            )
        if (
            outcome.suspension is not None
            and outcome.suspension.run is not None
            and _is_at_stored_yield(outcome, lease)
        ):
            run.execution = outcome.suspension.run
            outcome = await run.execution.continue_run(self._options.effective_wait_timeout_ms)
        return await self._settler.apply_outcome(run, outcome)

    async def _build_waiting_result_or_get_interrupt(self, stored: StoredRuns, run_id: str, record: Record) -> Any:
        """Return the result of a run that still waits, for a person or for another process."""
        from .stored_runs import REASON_KEY

        is_of_person = record.state == "pending"
        if is_of_person and self._options.approvals == "interrupt":
            interrupt = await stored.load_newest_interrupt(record)
            if interrupt is not None:
                return interrupt
        # The model knows a call by its id, the first part of the request's id.
        pending = [
            {
                "id": request.interrupt_id.rpartition(":")[0],
                "tool": request.tool_name,
                "status": _STATUS_BY_REQUEST_STATE[request.state],
            }
            for request in list_open_requests(record)
        ]
        reason = "pending_tools" if pending else mapping_or_empty(record.payload).get(REASON_KEY)
        telemetry = self._result_factory.count_calls_and_build_telemetry()
        result = build_waiting_result(run_id, "yield" if reason == "yield" else "pending_tools", pending, [], telemetry)
        # All may be decided while no process could resume the run yet.
        needs_person = is_of_person and any(request.state == "waiting" for request in record.requests)
        return self._result_factory.add_approval_note(result) if needs_person else {**result, "note": _HELD_ELSEWHERE}


def _is_at_stored_yield(outcome: RunOutcome, lease: Lease) -> bool:
    """Return True if a program suspended at a yield reached only the same yield again when replayed."""
    from .stored_runs import YIELDS_KEY

    if outcome.suspension is None or outcome.suspension.reason != "yield" or lease.record.state != "resting":
        return False
    stored_yields = mapping_or_empty(lease.record.payload).get(YIELDS_KEY)
    return type(stored_yields) is int and count_yields(outcome) <= stored_yields
