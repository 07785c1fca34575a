"""What a journal asks of options and outer call, and how runs end over it. Opens none."""

from __future__ import annotations

from typing import TypeGuard

from ..continuations.keys import set_keys
from ..errors import CodeModeAbortedError, CodeModeError
from ..options.parts import ContinuationOptions
from .call_context import CallContext
from .outcome import RunOutcome

ORIGIN = "journal"
_LEAST_OPENING_SECONDS = 1.0


class EndedBefore(Exception):  # noqa: N818 - tells what became of the program, and is no error of it
    """The program has come to an end, or to a pause, on an earlier host: there is nothing to run."""

    def __init__(self, outcome: RunOutcome) -> None:
        super().__init__("the program has run before")
        self.outcome = outcome


def require_journal_identity(options: ContinuationOptions, call: CallContext) -> None:
    """Raise `ValueError` where a journal is asked for, and nothing would find it again, or anybody could."""
    if options.journal is None:
        return
    if options.conversation_id is None and call.conversation_id is None:
        raise ValueError(
            "continuation.journal needs a conversation_id, in continuation or in the CallContext: it names the"
            " conversation, user or workflow of this call, for models give different calls the same id"
        )
    if options.keys is None and not set_keys():
        raise ValueError(
            "continuation.journal needs continuation.keys, or set_continuation_signing_key: with the random key of this"
            " process no other host could read what is written"
        )


def journal_error(message: str, *, is_lost: bool = False) -> CodeModeAbortedError:
    """Return the error of a run whose journal cannot be written, or is somebody else's by now."""
    return CodeModeAbortedError(message, details={"origin": ORIGIN, "is_lost": is_lost})


def opening_seconds(wait_ms: int | None) -> float | None:
    """Return how long a run that waits so long for its tools waits for its journal; None: as long as it takes.

    A second at the least: its store takes time of its own, and a shorter wait would end programs nobody else has.
    """
    return None if wait_ms is None else max(wait_ms / 1000, _LEAST_OPENING_SECONDS)


def held_elsewhere() -> CodeModeAbortedError:
    """Return the error of a run that has waited long enough for its journal. Nothing was run."""
    return journal_error(
        "the journal of this program could not be had in time: another run has it and goes on with it, or its store"
        " is slow to answer"
    )


def unavailable(what: str, failure: BaseException) -> CodeModeAbortedError:
    """Return the error of a run whose journal raised something."""
    error = journal_error(f"the journal of this program cannot be {what}: {failure}")
    error.__cause__ = failure
    return error


def is_of_journal(error: BaseException) -> TypeGuard[CodeModeAbortedError]:
    """True for the error of a run whose journal could not be written, or is another host's."""
    return isinstance(error, CodeModeAbortedError) and error.details.get("origin") == ORIGIN


def has_way_on(error: CodeModeError, *, is_resumed: bool) -> bool:
    """True where the program goes on elsewhere, or by the same resume again: this run has no other way to offer."""
    return is_of_journal(error) and (is_resumed or bool(error.details["is_lost"]))
