"""Functions that an engine runs again from its records: no place to run a program in. Imports no engine."""

from __future__ import annotations

import sys

_TEMPORAL = "temporalio.workflow"


def refuse_in_workflow() -> None:
    """Raise `RuntimeError` inside a workflow function of Temporal, whose event loop has neither processes nor threads.

    The program would hang in it, or start again with each replay.
    """
    workflow = sys.modules.get(_TEMPORAL)
    if workflow is not None and getattr(workflow, "in_workflow", bool)():
        raise RuntimeError(
            "a program of codemode cannot run inside a Temporal workflow function, which is replayed and may start no"
            " process: run it in an activity, one activity for each program (docs/durable.md)"
        )
