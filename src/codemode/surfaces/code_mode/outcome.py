"""The outcome of a run in the words of `codeMode`: a value, an interrupt, or an error that is raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...run.outcome import RunOutcome


def told(outcome: RunOutcome) -> Any:
    """Return the value or the interrupt that a run came to; raise its error."""
    error = outcome.error
    if error is None:
        return outcome.value if outcome.interrupt is None else outcome.interrupt
    try:
        raise error
    finally:
        del error, outcome  # the traceback holds this frame: nothing in it may hold the error
