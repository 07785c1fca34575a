"""What people are told of a pause that does not go on, in the words of their framework. Refuses nothing itself."""

from __future__ import annotations

from ..errors import CodeModeProtocolError


def was_answered(error: CodeModeProtocolError) -> bool:
    """Tell whether others have answered a pause before: theirs hold, and these answers have run nothing."""
    return error.details.get("superseded") is True


def way_on(first: str) -> str:
    """Return what to do with a pause that was answered before; ``first``: what a framework has of the run after it."""
    return (
        f"Go on with {first} that came of the first answers; the same answers again give the same outcome, and run"
        " nothing."
    )


def why_refused(said: str, error: CodeModeProtocolError, *, first: str, otherwise: str) -> str:
    """Return what is told of a pause after ``said``, what cannot be done with it: why, and what to do.

    ``first`` is as in `way_on`, ``otherwise`` what a pause needs in a framework beside its keys and its time.
    """
    if was_answered(error):
        return f"{said}, for it was answered before: {error.message}. {way_on(first)}"
    keys = "Signing keys that outlive the process are set with codemode.set_continuation_signing_key"
    return f"{said}: {error.message}. {keys}, how long a pause holds with continuation.max_age_ms; and {otherwise}."
