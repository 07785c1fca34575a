"""Run the programs of exec and wait, from the input to the result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...data.narrowing import is_mapping, string_or_empty
from ...errors import (
    CodeModeConcurrencyError,
    CodeModeError,
    CodeModeWorkerError,
)
from ...execution.call_context import CallContext, call_context_or_empty
from ...execution.outcome_texts import (
    ABORTED,
    INTERNAL_ERROR,
    INVALID_INPUT,
    RUNTIME_UNAVAILABLE,
    SNAPSHOT_EXPIRED,
    describe_aborted_run,
    describe_stopped_program,
    describe_waiting_run,
)
from ...execution.starting import get_pool_and_import_execution, import_suspendable_module
from ...trace.failures import log_failure
from .catalog import ExecWaitContext
from .options import EXEC, WAIT, InvalidConfigError
from .program_resumer import ProgramResumer, RemoteRunWaiter
from .program_run import ABORTED as RUN_ABORTED
from .program_run import EXPIRED, FAILED, RUNNING, WAITING, ProgramRun, RunAbortedBeforeStartError
from .result_factory import ResultFactory
from .results import (
    ExecRequest,
    InvalidInputError,
    RecordedResults,
    create_run_not_found_error,
    parse_exec_input,
    parse_wait_input,
)
from .run_registry import NoCapacityError, RunRegistry, drop_orphaned_worker
from .run_settler import RunOutcomeApplier

if TYPE_CHECKING:
    from ...execution.outcome import SuspendedRun
    from .stored_runs import StoredRuns

RESULT_LOST = "this run ended when the call that waited for it was cancelled; its result is unknown"
ReadT = TypeVar("ReadT")
_log = logging.getLogger("codemode.tools")


class ProgramRunner:
    """Implements exec and wait. Errors become results; only `asyncio.CancelledError` is raised."""

    def __init__(self, context: ExecWaitContext) -> None:
        self._context = context
        self.runs = RunRegistry(context.options, context.counts, self._on_run_expired)
        self._catalog = context.catalog
        self._options = context.options
        self._settings = context.settings
        self._profile = context.profile
        self._new_run_settings = context.settings.with_default_limits(
            context.profile.limits
        )  # a paused run keeps its own limits
        self._pool = context.pool
        self._counts = context.counts
        self._stored = context.stored_runs
        if context.stored_runs is not None:
            context.stored_runs.on_lost = self.runs.forget
        self._recorded_results = RecordedResults(context.options.snapshot_ttl_seconds)
        self._result_factory = ResultFactory(context)
        self._settler = RunOutcomeApplier(context, self.runs, self._result_factory)
        shared = context, self.runs, self._settler, self._result_factory
        self._remote_runs = RemoteRunWaiter(*shared)
        self.resume = ProgramResumer(*shared).resume

    # --- exec ---

    async def exec(self, value: Any, call: CallContext | None) -> Any:
        """Run a program; return its result, or an `Interrupt`."""
        max_source_bytes = self._settings.execution_policy.max_source_bytes
        request = self._parse_or_reject_input(
            EXEC, call, lambda: parse_exec_input(value, self._options, max_source_bytes)
        )
        if not isinstance(request, ExecRequest):
            return request
        call = call_context_or_empty(call)
        work = partial(self._reserve_and_run_program, request, call)
        identity = {"code": request.code, "language": request.language}
        return await self._recorded_results.run_once(EXEC, call, identity, work)

    def _parse_or_reject_input(
        self, tool: str, call: CallContext | None, parse: Callable[[], ReadT]
    ) -> ReadT | dict[str, Any]:
        """Return the parsed input of a model, or the result that rejects it."""
        try:
            call_context_or_empty(call)
            return parse()
        except InvalidInputError as refused:
            self._counts.count_event(tool)
            return self._result_factory.build_failure_and_count_limit(refused.message, refused.code)
        except Exception as error:  # noqa: BLE001 - the host's mappings and strings are host code
            self._counts.count_event(tool)
            return self._result_factory.build_host_failure_and_count_limit(error)

    async def _reserve_and_run_program(self, request: ExecRequest, call: CallContext) -> Any:
        self._counts.count_event("exec")
        try:
            run = self.runs.reserve_run_or_raise(call.conversation_id or "", request.code)
        except NoCapacityError as no_capacity:
            return self._result_factory.build_no_capacity_result(no_capacity)
        run.counts["exec"], run.language = 1, request.language
        try:
            with run.cancellable_start():
                return await self._run_program_and_apply_outcome(run, call)
        except RunAbortedBeforeStartError:
            return self._result_factory.build_abort_result(run)
        except asyncio.CancelledError:
            self.runs.end_and_abort_program(run)
            raise
        except InvalidConfigError as error:  # from a namespace
            self.runs.end(run, FAILED)
            return self._result_factory.build_failure_and_count_limit(str(error), error.code)
        except Exception as error:  # noqa: BLE001 - the model always gets an answer
            self.runs.end(run, FAILED)
            return self._result_factory.build_host_failure_and_count_limit(error)

    async def _run_program_and_apply_outcome(self, run: ProgramRun, call: CallContext) -> Any:
        pool = await get_pool_and_import_execution(self._pool, self._settings)
        if not import_suspendable_module.cache_info().currsize:
            await pool.run_in_start_thread(import_suspendable_module)
        scopes = None if self._context.namespaces is None else await self._context.create_namespace_scopes(call.context)
        if scopes is not None:
            run.tool_ids_by_path = {path: tool.id for path, tool in scopes.tools.items()}
        view = self._context.create_view_with_saved_programs(run.code, scopes, call, pool)
        # A journal identifies a call by its id, which is unique only within a conversation.
        if not run.scope and self._stored is not None:
            call = replace(call, tool_call_id=None)
        outer = self._context.create_outer_call_and_bind_state(call, run)
        execution_parts = self._profile, view, self._new_run_settings, outer, pool
        run.execution = execution = import_suspendable_module().SuspendableExecution(
            *execution_parts, invocation_data=self._catalog.catalog_digest_data
        )
        outcome = await execution.start(run.code)
        return await self._settler.apply_outcome(
            run, outcome, view.warnings, on_cancelled=partial(self._abort_undelivered_run, run)
        )

    def _abort_undelivered_run(self, run: ProgramRun, result: Any) -> None:
        """Abort a suspended run whose exec was cancelled before its id was returned."""
        run_id = result.get("runId") if is_mapping(result) else None
        if isinstance(run_id, str):
            self.runs.run_in_background(self._abort_run_of_cancelled_call(run.scope, run_id))

    async def _abort_run_of_cancelled_call(self, scope: str, run_id: str) -> None:
        await self.abort(scope, run_id, "the call was cancelled")

    # --- wait ---

    async def wait(self, value: Any, call: CallContext | None) -> Any:
        """Continue a suspended program; return what `exec` returns."""
        run_id = self._parse_or_reject_input(WAIT, call, lambda: parse_wait_input(value))
        if not isinstance(run_id, str):
            return run_id
        call = call_context_or_empty(call)
        work = partial(self._continue_run_by_id, run_id, call)
        on_undelivered = partial(self.runs.keep_undelivered_result, run_id)
        return await self._recorded_results.run_once(WAIT, call, {"runId": run_id}, work, on_undelivered)

    async def _continue_run_by_id(self, run_id: str, call: CallContext) -> Any:
        scope = call.conversation_id or ""
        self._counts.count_event("wait")
        undelivered = self.runs.take_undelivered_result(scope, run_id)
        if undelivered is not None:
            return undelivered
        try:
            if self._stored is not None and await self._needs_store_and_release_if_lost(self._stored, run_id, scope):
                return await self._remote_runs.wait_or_claim_and_continue(self._stored, run_id, call)
            run = self._take_run_or_raise(run_id, scope)
        except InvalidInputError as refused:
            return self._result_factory.build_failure_and_count_limit(refused.message, refused.code)
        except Exception as error:  # noqa: BLE001 - a store may be host code
            return self._result_factory.build_host_failure_and_count_limit(error)
        execution = run.execution
        if execution is None:
            return self._result_factory.build_failure_and_count_limit("wait: this run has ended", INVALID_INPUT)
        return await self._continue_taken_run(run, execution)

    async def _continue_taken_run(self, run: ProgramRun, execution: SuspendedRun) -> Any:
        run.counts["wait"] = run.counts.get("wait", 0) + 1
        self._counts.count_event("wakesWarm" if execution.is_warm else "wakesCold", run=run)
        try:
            return await self._settler.apply_outcome(
                run, await execution.continue_run(self._options.effective_wait_timeout_ms)
            )
        except asyncio.CancelledError:
            if run.state == RUNNING:  # its result was not delivered
                self._suspend_or_end_after_cancellation(run, execution)
            raise
        except (CodeModeConcurrencyError, CodeModeWorkerError) as error:
            self.runs.restore_suspension(run)  # still suspended, nothing is lost
            return self._result_factory.build_failure_and_count_limit(describe_waiting_run(error), RUNTIME_UNAVAILABLE)
        except CodeModeError as error:
            self.runs.end(run, FAILED)
            return await self._settler.store_result_or_release_lease(
                run, self._result_factory.build_error_result_and_count_limit(run, error, [], None)
            )
        except Exception as error:  # noqa: BLE001 - the model always gets an answer
            self.runs.end(run, FAILED)
            return await self._settler.store_result_or_release_lease(
                run, self._result_factory.build_host_failure_and_count_limit(error)
            )

    def _suspend_or_end_after_cancellation(self, run: ProgramRun, execution: SuspendedRun) -> None:
        if execution.is_suspended:
            self.runs.restore_suspension(run)
            return
        run.call_on_loop(run.cancel_lease_renewal)
        if run.lease is not None:  # other processes can continue it when its lease expires
            self.runs.forget(run)
            return
        self.runs.end(run, FAILED)
        self.runs.keep_undelivered_result(
            run.run_id, self._result_factory.build_failure_and_count_limit(RESULT_LOST, INTERNAL_ERROR)
        )

    async def _needs_store_and_release_if_lost(self, stored: StoredRuns, run_id: str, scope: str) -> bool:
        """Return True if a run must be continued from the store; release and forget one that was lost here.

        That is a run of another process, one whose event loop has ended, and one that lost its lease while suspended.
        """
        run = self.runs.find(run_id)
        if run is None or (run.is_parked and run.scope == scope):
            return True
        if run.scope != scope or run.execution is None or run.lease is None:
            return False
        if not run.execution.is_event_loop_closed and (run.state != WAITING or run.execution.is_suspended):
            return False
        run.call_on_loop(run.cancel_lease_renewal)
        await stored.release_lease(run)
        self.runs.forget(run)
        return True

    def _take_run_or_raise(self, run_id: str, scope: str) -> ProgramRun:
        """Return a run, reserved for this caller. Raises `InvalidInputError`."""
        run = self.runs.find(run_id)
        if run is None or run.scope != scope:
            raise create_run_not_found_error(run_id)
        if run.execution is not None and run.execution.is_event_loop_closed and self.runs.end_orphaned(run):
            raise InvalidInputError("wait: the event loop of this run was closed, which ended its calls", ABORTED)
        if self.runs.try_claim(run):
            return run
        if run.state == EXPIRED:
            raise InvalidInputError(f"wait: {run.end_message or self._build_expired_text(None)}", SNAPSHOT_EXPIRED)
        if run.state == RUN_ABORTED:
            raise InvalidInputError(f"wait: {run.end_message or describe_aborted_run(None, None)}", ABORTED)
        if run.is_active:
            raise InvalidInputError("wait: another wait has this run; call wait again when it returns")
        raise InvalidInputError("wait: this run has ended, and its result was returned")

    # --- end ---

    async def _on_run_expired(self, run: ProgramRun, execution: SuspendedRun | None) -> None:
        if execution is None:
            if self._stored is not None:
                await self._stored.mark_expired_records()
            return
        message = self._build_expired_text(
            await self._abort_execution_and_get_its_error(run, execution, "the run expired")
        )
        self.runs.set_end_message(run, message)
        await self._settler.store_result_or_release_lease(
            run, self._result_factory.build_failure_and_count_limit(message, SNAPSHOT_EXPIRED)
        )

    def _build_expired_text(self, error: CodeModeError | None) -> str:
        ttl = self._options.snapshot_ttl_seconds
        return describe_stopped_program(f"this run has expired: it waited for more than {ttl} s", error)

    async def abort(self, scope: str, run_id: str | None, reason: str, *, only_in_flight: bool = False) -> int:
        """Abort the runs of a scope, or one of them; return how many."""
        runs = [
            run for run in self.runs.list_runs_in_scope(scope, run_id) if run.is_active or run.is_waiting_for_person
        ]
        return await self._abort_runs([run for run in runs if run.has_calls_in_flight or not only_in_flight], reason)

    async def aclose(self) -> None:
        """End all runs. Runs in a store are released for other processes."""
        try:
            await self._abort_runs(self.runs.list_active(), "the pair was closed", releases_records=True)
        finally:
            self.runs.forget_parked()
            await self.runs.wait_for_background_work()

    async def _abort_runs(self, runs: Sequence[ProgramRun], reason: str, *, releases_records: bool = False) -> int:
        text = string_or_empty(reason) or "the run was aborted"
        # A store may be host code: raise its error only after all runs have ended.
        errors = await asyncio.gather(
            *(self._abort_run(run, text, releases_records) for run in runs), return_exceptions=True
        )
        for error in errors:
            if error is not None:
                raise error
        return len(runs)

    async def _abort_run(self, run: ProgramRun, reason: str, releases_records: bool) -> None:
        if run.is_parked:
            self.runs.end_parked_by_id(run.run_id, RUN_ABORTED)
            if self._stored is not None:
                await self._stored.withdraw(run.run_id, reason)
            return
        run.abort_reason, run.is_released = reason, releases_records and self._stored is not None
        execution, run.end_message = run.execution, describe_aborted_run(reason, None)
        run.call_on_loop(run.cancel_start)
        self.runs.end(run, RUN_ABORTED)
        error = None if execution is None else await self._abort_execution_and_get_its_error(run, execution, reason)
        self.runs.set_end_message(run, describe_aborted_run(reason, error))
        await self._settler.store_result_or_release_lease(
            run, self._result_factory.build_abort_result(run, error=error)
        )

    async def _abort_execution_and_get_its_error(
        self, run: ProgramRun, execution: SuspendedRun, reason: str
    ) -> CodeModeError | None:
        """Abort the execution of an ended run; return its error with its calls, if known."""
        run.call_on_loop(run.cancel_lease_renewal)
        if execution.is_event_loop_closed:
            drop_orphaned_worker(execution)
            return None
        try:
            return (await execution.abort(reason)).error
        except CodeModeError as error:
            log_failure(_log, "a run could not be aborted", (), error)
            return None
