"""What a model is told of a run that could not go on now: to call wait again, and nothing that says otherwise."""

from __future__ import annotations

import pytest

from codemode.errors import CodeModeAbortedError, CodeModeConcurrencyError, CodeModeWorkerError
from codemode.execution.outcome_texts import describe_waiting_run


@pytest.mark.parametrize("kind", [CodeModeConcurrencyError, CodeModeWorkerError, CodeModeAbortedError])
def test_a_run_that_waits_on_has_one_thing_to_do(kind):
    error, *advice = describe_waiting_run(kind("it could not be done")).split("\n")
    assert error.startswith(kind.__name__)
    assert advice == ["The run still waits: call wait again."]


def test_it_says_so_where_nothing_went_wrong():
    assert describe_waiting_run(None) == "The run still waits: call wait again."
