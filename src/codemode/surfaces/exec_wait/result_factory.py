"""Build the results of exec and wait, and count limits and tool calls."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import HIDDEN_CODES, CodeModeAbortedError, CodeModeError, CodeModeSyntaxError
from ...execution.large_results import is_longer_than
from ...execution.outcome_texts import (
    ABORTED,
    INTERNAL_ERROR,
    INVALID_INPUT,
    LIMIT_CODES,
    MEMORY_LIMIT,
    PERSON_ASKED_TEXT,
    RUNTIME_UNAVAILABLE,
    SHELL_COMMAND_TEXT,
    STORE_UNAVAILABLE,
    describe_aborted_run,
    describe_missing_result,
    describe_unhandled_failures,
    describe_waiting_run,
    failure_text,
    find_exec_error_code,
    find_missing_tool_hint,
)
from ...execution.program_state import save_and_describe_large_result, save_large_call_results_and_set_keys
from ...source.program_input import looks_like_shell
from ...stores.errors import StoreUnavailableError
from ...trace.failures import get_exception_text, log_failure
from ...trace.public_message import to_public_first_line
from .catalog import ExecWaitContext, ServerUnavailableError
from .program_run import ProgramRun, build_telemetry
from .results import build_completed_result, build_failed_result, format_output

if TYPE_CHECKING:
    from ...execution.outcome import OutputItem, RunOutcome
    from .run_registry import NoCapacityError


_log = logging.getLogger("codemode.tools")


class ResultFactory:
    """Builds the results of runs and counts the limits and calls in them."""

    def __init__(self, context: ExecWaitContext) -> None:
        self._catalog = context.catalog
        self._context = context
        self._options = context.options
        self._max_model_characters = context.settings.model_output.max_model_characters
        self._counts = context.counts

    async def save_values_and_build_end_result(
        self, run: ProgramRun, outcome: RunOutcome, written: Sequence[OutputItem], notes: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the result of a program that has ended."""
        telemetry, output = (
            self.count_calls_and_build_telemetry(run, outcome, notes),
            format_output(written, self._max_model_characters),
        )
        location = run.state_location
        if outcome.error is not None:
            if location is not None:
                await save_large_call_results_and_set_keys(outcome, location)
            return self.build_error_result_and_count_limit(run, outcome.error, output, telemetry)
        if outcome.value is None and not output and (text := describe_missing_result(outcome, run.code)):
            output = [{"type": "text", "text": text}]
        value, max_characters = outcome.value, self._max_model_characters
        if max_characters is not None and self.is_too_large_for_model(outcome):
            value = await save_and_describe_large_result(outcome, max_characters, location)
        return build_completed_result(value, output, telemetry)

    def is_too_large_for_model(self, outcome: RunOutcome) -> bool:
        """Return True if the value is too large for the model."""
        return self._max_model_characters is not None and is_longer_than(
            outcome.value, self._max_model_characters, outcome.result_bytes
        )

    def needs_state_write(self, outcome: RunOutcome) -> bool:
        """Return True if building the result stores values in the program state."""
        return self.is_too_large_for_model(outcome) or (outcome.error is not None and self._context.settings.has_state)

    def add_approval_note(self, result: dict[str, Any]) -> dict[str, Any]:
        """Add the note that a person was asked."""
        return {**result, "note": PERSON_ASKED_TEXT}

    def build_error_result_and_count_limit(
        self, run: ProgramRun, error: CodeModeError, output: list[dict[str, Any]], telemetry: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Return the result of a program that has failed."""
        if run.abort_reason is not None or (type(error) is CodeModeAbortedError and "origin" not in error.details):
            return self.build_abort_result(run, output, telemetry, error)
        if looks_like_shell(run.code) and _is_not_a_program(error):
            return self.build_failure_and_count_limit(SHELL_COMMAND_TEXT, INVALID_INPUT, output, telemetry)
        code = find_exec_error_code(error)
        return self.build_failure_and_count_limit(self._build_error_text(run, error, code), code, output, telemetry)

    def _build_error_text(self, run: ProgramRun, error: CodeModeError, code: str) -> str:
        text, cause = failure_text(error, run.code, find_missing_tool_hint(error, run.code)), error.__cause__
        if code == MEMORY_LIMIT:
            text = f"{text}\nmemoryLimitBytes is {self._options.memory_limit_bytes}"
        if self._options.host_error_detail != "message" or error.code not in HIDDEN_CODES or cause is None:
            return text
        return f"{to_public_first_line(get_exception_text(cause), 'the call failed')}\n{text}"

    def build_failure_and_count_limit(
        self,
        message: str,
        code: str,
        output: list[dict[str, Any]] | None = None,
        telemetry: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return a failed result; count the limit if a limit was exceeded."""
        result_telemetry = self.count_calls_and_build_telemetry() if telemetry is None else telemetry
        if code in LIMIT_CODES:
            self._counts.count_exceeded_limit(code)
            result_telemetry["cap"] = code
        return build_failed_result(message, code, result_telemetry, output)

    def build_abort_result(
        self,
        run: ProgramRun,
        output: list[dict[str, Any]] | None = None,
        telemetry: dict[str, Any] | None = None,
        error: CodeModeError | None = None,
    ) -> dict[str, Any]:
        """Return the result of an aborted run."""
        return self.build_failure_and_count_limit(
            describe_aborted_run(run.abort_reason, error), ABORTED, output, telemetry
        )

    def build_no_capacity_result(self, error: NoCapacityError) -> dict[str, Any]:
        """Return the result of a program beyond the limit of waiting runs."""
        scope_text = " of this conversation" if error.is_conversation_limit else ""
        message = (
            f"{error.waiting} programs{scope_text} run or wait already, the maximum: call wait for one of them, or do"
            " without"
        )
        return self.build_failure_and_count_limit(message, RUNTIME_UNAVAILABLE)

    def build_host_failure_and_count_limit(self, error: Exception) -> dict[str, Any]:
        """Return the result of an error of the host."""
        if isinstance(error, StoreUnavailableError):
            log_failure(_log, "the store cannot be used", (), error)
            return self.build_failure_and_count_limit(STORE_UNAVAILABLE, RUNTIME_UNAVAILABLE)
        if isinstance(error, ServerUnavailableError):
            return self.build_failure_and_count_limit(describe_waiting_run(error), RUNTIME_UNAVAILABLE)
        if isinstance(error, CodeModeError):
            return self.build_failure_and_count_limit(failure_text(error, None), find_exec_error_code(error))
        log_failure(_log, "a run of exec failed", (), error)
        if isinstance(error, ValueError):
            return self.build_failure_and_count_limit("the host made this call with invalid arguments", INTERNAL_ERROR)
        return self.build_failure_and_count_limit("the host could not run the program", INTERNAL_ERROR)

    def count_calls_and_build_telemetry(
        self, run: ProgramRun | None = None, outcome: RunOutcome | None = None, notes: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the telemetry of a run; without one, only that of the tools."""
        by_source = self._catalog.tool_counts_by_source
        self._counts.record_catalog_size(by_source)
        called_tools, suspension_count, counts = [], 0, {}
        if run is not None and outcome is not None:
            called_tools, suspension_count, counts = (
                self._count_and_list_called_tools(run, outcome),
                run.suspension_count,
                _build_run_event_counts(run, outcome),
            )
        base_telemetry = build_telemetry(self._counts.visible, by_source, called_tools, suspension_count, counts)
        warnings = [*notes]
        if outcome is not None:
            warnings += [*outcome.warnings, *outcome.output_warnings]
            warnings += describe_unhandled_failures(outcome.unhandled_failures)
        return {**base_telemetry, "warnings": warnings} if warnings else base_telemetry

    def _count_and_list_called_tools(self, run: ProgramRun, outcome: RunOutcome) -> list[str]:
        """Count new calls of a run; return the ids of all tools that it has called."""
        if outcome.ledger is not None and not outcome.ledger.entries:
            return []
        call_counts = Counter(run.tool_ids_by_path.get(name, name) for name in _list_requested_names(outcome))
        # Exclude unknown names, which are text of the program.
        calls_in_catalog = {name: count for name, count in call_counts.items() if name in self._catalog}
        if calls_in_catalog:
            self._counts.count_new_tool_calls(calls_in_catalog, run)
        return [*calls_in_catalog]


def _build_run_event_counts(run: ProgramRun, outcome: RunOutcome) -> dict[str, int]:
    """Return the counters of a run; catalog queries are counted from its ledger."""
    counts = {**run.counts, "call": sum(run.calls_by_tool.values())}
    for entry in () if outcome.ledger is None else outcome.ledger.entries:
        if entry.kind == "catalog":
            counts[entry.name] = counts.get(entry.name, 0) + 1
    return counts


def _list_requested_names(outcome: RunOutcome) -> list[str]:
    if outcome.ledger is None:
        return [call["name"] for call in outcome.calls]
    return [entry.name for entry in outcome.ledger.entries]


def _is_not_a_program(error: CodeModeError) -> bool:
    """Return True if a text failed at once: it does not parse, or its first word is undefined."""
    if isinstance(error, CodeModeSyntaxError):
        return True
    details = error.details
    is_at_first_word = (details.get("line"), details.get("column")) == (1, 1)
    return details.get("name") == "ReferenceError" and is_at_first_word and not error.calls
