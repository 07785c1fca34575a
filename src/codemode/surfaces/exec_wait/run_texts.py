"""What a model reads about a run: results and their text, counted."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import HIDDEN_CODES, CodeModeAbortedError, CodeModeError, CodeModeSyntaxError
from ...execution.large_results import is_beyond
from ...execution.outcome_texts import (
    ABORTED,
    CAPS,
    INTERNAL_ERROR,
    INVALID_INPUT,
    MEMORY_LIMIT,
    PERSON_ASKED,
    RUNTIME_UNAVAILABLE,
    SHELL_REFUSED,
    STORE_AWAY,
    aborted_text,
    failure_text,
    find_exec_code,
    no_result_text,
    no_tool_hint,
    still_waits,
)
from ...execution.program_state import keep_call_results, told_of_large
from ...source.program_input import looks_like_shell
from ...stores.errors import StoreUnavailableError
from ...trace.failures import log_failure, message_of
from ...trace.public_message import first_line
from .catalog import ServerAwayError, Setup
from .results import completed, failed, output_of
from .waiting_run import WaitingRun, telemetry_of

if TYPE_CHECKING:
    from ...execution.outcome import OutputItem, RunOutcome
    from .runs import FullError


_log = logging.getLogger("codemode.tools")


class Words:
    """Words what a run of one pair came to, and counts which limits were passed, and what was called."""

    def __init__(self, setup: Setup) -> None:
        self._catalog = setup.catalog
        self._setup = setup
        self._options = setup.options
        self._most = setup.settings.model_output.max_model_characters
        self._counts = setup.counts

    async def ended(
        self, one: WaitingRun, outcome: RunOutcome, written: Sequence[OutputItem], notes: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the result of a program that has ended."""
        telemetry, output = self.telemetry(one, outcome, notes), output_of(written, self._most)
        place = one.place
        if outcome.error is not None:
            if place is not None:
                await keep_call_results(outcome, place)
            return self.of_error(one, outcome.error, output, telemetry)
        if outcome.value is None and not output and (said := no_result_text(outcome, one.code)):
            output = [{"type": "text", "text": said}]
        value, most = outcome.value, self._most
        if most is not None and self.is_large(outcome):
            value = await told_of_large(outcome, most, place)
        return completed(value, output, telemetry)

    def is_large(self, outcome: RunOutcome) -> bool:
        """Tell whether a model is not shown the value whole."""
        return self._most is not None and is_beyond(outcome.value, self._most, outcome.result_bytes)

    def takes_time(self, outcome: RunOutcome) -> bool:
        """Tell whether something of a run is kept in state before a model is told of it."""
        return self.is_large(outcome) or (outcome.error is not None and self._setup.settings.has_state)

    def of_person(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a run that waits for a person, saying so."""
        return {**result, "note": PERSON_ASKED}

    def of_error(
        self, one: WaitingRun, error: CodeModeError, output: list[dict[str, Any]], telemetry: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Return the result of a program that has failed."""
        if one.aborting is not None or (type(error) is CodeModeAbortedError and "origin" not in error.details):
            return self.aborted(one, output, telemetry, error)
        if looks_like_shell(one.code) and _is_no_program(error):
            return self.failed(SHELL_REFUSED, INVALID_INPUT, output, telemetry)
        code = find_exec_code(error)
        return self.failed(self._text(one, error, code), code, output, telemetry)

    def _text(self, one: WaitingRun, error: CodeModeError, code: str) -> str:
        text, cause = failure_text(error, one.code, no_tool_hint(error, one.code)), error.__cause__
        if code == MEMORY_LIMIT:
            text = f"{text}\nmemoryLimitBytes is {self._options.memory_limit_bytes}"
        if self._options.host_error_detail != "message" or error.code not in HIDDEN_CODES or cause is None:
            return text
        return f"{first_line(message_of(cause), 'the call failed')}\n{text}"

    def failed(
        self,
        message: str,
        code: str,
        output: list[dict[str, Any]] | None = None,
        telemetry: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the result of what went wrong, and count the limit that was passed."""
        told = self.telemetry() if telemetry is None else telemetry
        if code in CAPS:
            self._counts.cap(code)
            told["cap"] = code
        return failed(message, code, told, output)

    def aborted(
        self,
        one: WaitingRun,
        output: list[dict[str, Any]] | None = None,
        telemetry: dict[str, Any] | None = None,
        error: CodeModeError | None = None,
    ) -> dict[str, Any]:
        """Return the result of a run that somebody has ended."""
        return self.failed(aborted_text(one.aborting, error), ABORTED, output, telemetry)

    def full(self, full: FullError) -> dict[str, Any]:
        """Return the result of a program for which there is no place."""
        of_scope = " of this conversation" if full.is_share else ""
        message = (
            f"{full.waiting} programs{of_scope} run or wait already, and there is no place for another one: call wait"
            " for those that wait, or do without"
        )
        return self.failed(message, RUNTIME_UNAVAILABLE)

    def broken(self, error: Exception) -> dict[str, Any]:
        """Return the result of what the host itself got wrong, or could not do."""
        if isinstance(error, StoreUnavailableError):
            log_failure(_log, "the store cannot be used", (), error)
            return self.failed(STORE_AWAY, RUNTIME_UNAVAILABLE)
        if isinstance(error, ServerAwayError):
            return self.failed(still_waits(error), RUNTIME_UNAVAILABLE)
        if isinstance(error, CodeModeError):
            return self.failed(failure_text(error, None), find_exec_code(error))
        log_failure(_log, "a run of exec failed", (), error)
        if isinstance(error, ValueError):
            return self.failed("the host has made this call with arguments that are not valid", INTERNAL_ERROR)
        return self.failed("the host could not run the program", INTERNAL_ERROR)

    def telemetry(
        self, one: WaitingRun | None = None, outcome: RunOutcome | None = None, notes: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return what a result tells of its run; without one, of the pair alone."""
        by_source = self._catalog.by_source
        self._counts.catalog(by_source)
        called, rests, counts = [], 0, {}
        if one is not None and outcome is not None:
            called, rests, counts = self._called(one, outcome), one.rests, _counts_of(one, outcome)
        told = telemetry_of(self._counts.visible, by_source, called, rests, counts)
        said = () if outcome is None else (*outcome.warnings, *outcome.output_warnings)
        warnings = [*notes, *said]
        return {**told, "warnings": warnings} if warnings else told

    def _called(self, one: WaitingRun, outcome: RunOutcome) -> list[str]:
        """Return the ids of the tools that a program has called, and count those calls that are new."""
        if outcome.ledger is not None and not outcome.ledger.entries:
            return []
        times = Counter(one.ids.get(name, name) for name in _names_called(outcome))
        # What a program calls that there is not is text of its own.
        known = {name: count for name, count in times.items() if name in self._catalog}
        if known:
            self._counts.called(known, one)
        return [*known]


def _counts_of(one: WaitingRun, outcome: RunOutcome) -> dict[str, int]:
    """Return what there has been of a run so far. Questions to the catalog are in its ledger."""
    counts = {**one.counts, "call": sum(one.called.values())}
    for entry in () if outcome.ledger is None else outcome.ledger.entries:
        if entry.kind == "catalog":
            counts[entry.name] = counts.get(entry.name, 0) + 1
    return counts


def _names_called(outcome: RunOutcome) -> list[str]:
    if outcome.ledger is None:
        return [call["name"] for call in outcome.calls]
    return [entry.name for entry in outcome.ledger.entries]


def _is_no_program(error: CodeModeError) -> bool:
    """Tell whether a text failed before it did anything: it does not parse, or its first word means nothing."""
    if isinstance(error, CodeModeSyntaxError):
        return True
    details = error.details
    is_at_first_word = (details.get("line"), details.get("column")) == (1, 1)
    return details.get("name") == "ReferenceError" and is_at_first_word and not error.calls
