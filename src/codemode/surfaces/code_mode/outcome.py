"""Define the profile of `codeMode`; convert an outcome to its value or error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...profile import GuestSettings, SurfaceSettings

if TYPE_CHECKING:
    from ...execution.outcome import RunOutcome


CODE_MODE = SurfaceSettings(
    name="codeMode",
    outer_tool="codeMode",
    guest=GuestSettings(wrapper="sloppy", globals=("tools", "console", "content")),
    request_kinds=frozenset({"tool", "catalog", "fetch", "state"}),
    has_content=True,
    returns_rich_values=True,
)


def unwrap_outcome(outcome: RunOutcome) -> Any:
    """Return the value or the interrupt of an outcome; raise its error."""
    error = outcome.error
    if error is None:
        return to_value_with_media_and_python_values(outcome) if outcome.interrupt is None else outcome.interrupt
    try:
        raise error
    finally:
        del error, outcome  # the traceback references this frame: avoid a reference cycle


def to_value_with_media_and_python_values(outcome: RunOutcome) -> Any:
    """Return the value of a run with images, audio, files, dates, bytes and sets restored."""
    if outcome.is_tagged:
        outcome = with_python_values(outcome)
    contents = None if outcome.ledger is None else outcome.ledger.contents
    if not contents:
        return outcome.value
    from ...execution.outcome import to_value_with_media

    return to_value_with_media(outcome)


def with_media_and_python_values(outcome: RunOutcome) -> RunOutcome:
    """Return the outcome with its presented value."""
    value = to_value_with_media_and_python_values(outcome)
    if value is outcome.value:
        return outcome
    from ...execution.outcome import replace_outcome_fields

    return replace_outcome_fields(outcome, value=value)


def with_python_values(outcome: RunOutcome) -> RunOutcome:
    """Return the outcome with the tags in its value converted to Python values."""
    from ...data.rich_values import from_tagged_json
    from ...execution.outcome import replace_outcome_fields

    return replace_outcome_fields(outcome, value=from_tagged_json(outcome.value), is_tagged=False)


def with_plain_json_value(outcome: RunOutcome) -> RunOutcome:
    """Return the outcome with the tags in its value converted to JSON, as the model sees it."""
    from ...data.rich_values import tagged_to_plain_json
    from ...execution.outcome import replace_outcome_fields

    return replace_outcome_fields(outcome, value=tagged_to_plain_json(outcome.value), is_tagged=False)
