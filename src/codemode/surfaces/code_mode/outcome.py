"""The profile of `codeMode`, and the outcome of a run as its value or error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...profile import GuestFace, Profile

if TYPE_CHECKING:
    from ...execution.outcome import RunOutcome


CODE_MODE = Profile(
    name="codeMode",
    outer_tool="codeMode",
    guest=GuestFace(wrapper="sloppy", globals=("tools", "console", "content")),
    request_kinds=frozenset({"tool", "catalog", "fetch", "state"}),
    has_content=True,
)


def told(outcome: RunOutcome) -> Any:
    """Return the value or the interrupt that a run came to; raise its error."""
    error = outcome.error
    if error is None:
        return value_of(outcome) if outcome.interrupt is None else outcome.interrupt
    try:
        raise error
    finally:
        del error, outcome  # the traceback holds this frame: nothing in it may hold the error


def value_of(outcome: RunOutcome) -> Any:
    """Return the value of a run, with its images, audio and files in their places."""
    contents = None if outcome.ledger is None else outcome.ledger.contents
    if not contents:
        return outcome.value
    from ...execution.outcome import presented

    return presented(outcome)


def with_value(outcome: RunOutcome) -> RunOutcome:
    """Return the outcome with that value."""
    value = value_of(outcome)
    if value is outcome.value:
        return outcome
    from ...execution.outcome import changed

    return changed(outcome, value=value)
