"""`RunOutcome`, and the result that `codeMode` makes of it."""

from __future__ import annotations

import gc
import weakref

import pytest

from codemode import CodeModeError, Interrupt
from codemode.execution.outcome import RunOutcome
from codemode.execution.recovery import must_save_executed_input
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry
from codemode.surfaces.code_mode.outcome import unwrap_outcome

CALLS = [
    LedgerEntry(1, "tool", "pay", "1", None, "o:tool-1", outcome=Fulfilled("2")),
    LedgerEntry(2, "fetch", "GET", None),
]


def test_the_calls_are_those_of_the_ledger():
    outcome = RunOutcome("completed", "o", (), Ledger(CALLS), value=1)
    assert [(one["id"], one["status"]) for one in outcome.calls] == [("o:tool-1", "fulfilled"), ("2", "unknown")]


def test_a_failed_outcome_lists_the_calls_of_its_error():
    error = CodeModeError("no")
    error.calls = ({"id": "o:tool-1", "name": "pay", "status": "waiting", "is_started": True},)
    assert RunOutcome("failed", "o", (), Ledger(CALLS), error=error).calls == error.calls


def test_a_recorded_outcome_has_no_calls():
    outcome = RunOutcome("completed", "o", value=1, is_replayed=True)
    assert (outcome.calls, outcome.console, outcome.trace) == ((), (), None)


def test_code_mode_returns_values_and_pauses():
    interrupt = Interrupt(requests=(), outer_tool_call_id="o", continuation={})
    for value in (None, 0, False, "", [], {"status": "failed"}):
        assert unwrap_outcome(RunOutcome("completed", "o", value=value)) == value
    assert unwrap_outcome(RunOutcome("interrupted", "o", interrupt=interrupt)) is interrupt


def test_code_mode_raises_errors_as_they_are():
    cause = OSError("the host's own")
    error = CodeModeError("no")
    error.__cause__ = cause
    with pytest.raises(CodeModeError) as caught:
        unwrap_outcome(RunOutcome("failed", "o", error=error))
    assert caught.value is error
    assert error.__cause__ is cause


def test_a_raised_error_is_in_no_reference_cycle():
    gc.disable()
    try:
        left = weakref.ref(failed())
        assert left() is None
    finally:
        gc.enable()


def failed() -> CodeModeError:
    try:
        unwrap_outcome(RunOutcome("failed", "o", error=CodeModeError("no")))
    except CodeModeError as error:
        return error
    raise AssertionError("nothing was raised")


def test_an_input_that_cannot_be_recomputed_is_kept():
    assert must_save_executed_input("1", varies=True)
    assert not must_save_executed_input("1", varies=False)
    assert must_save_executed_input('"' + "x" * 1_000_000 + '"', varies=False)  # whatever its schema gives
