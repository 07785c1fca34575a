"""The host's log of failed calls: what tools, their checks and fetches raised. Programs read only that they failed.

Knows no hooks. A hook that hears of a failure stands in for its line here; who calls this knows whether there is one.
"""

from __future__ import annotations

import logging

from ..errors import HIDDEN_CODES, CodeModeError
from ..trace.failures import TOOLS, log_failure

_FETCH = logging.getLogger("codemode.fetch")


def log_call_failure(kind: str, name: str, call_id: str, error: BaseException | None) -> None:
    """Log what a program was not told of a failed call, with its traceback. ``kind`` is that of the request."""
    raised = hidden_failure(error)
    if raised is None:
        return
    if kind == "fetch":
        log_failure(_FETCH, "request %s: %s", (call_id, error), raised)
    elif isinstance(error, CodeModeError) and error.details.get("origin") == "decision":
        log_failure(TOOLS, "no decision about a call of tool %r (%s)", (name, call_id), raised)
    elif isinstance(error, CodeModeError) and error.details.get("origin") == "pipeline":
        log_failure(TOOLS, "the pipeline failed for a call of tool %r (%s)", (name, call_id), raised)
    else:
        log_failure(TOOLS, "tool %r failed (%s)", (name, call_id), raised)


def hidden_failure(error: BaseException | None) -> BaseException | None:
    """Return what was raised behind an error that does not say it, or None for an error that says it all."""
    if error is None:
        return None
    if isinstance(error, CodeModeError) and error.code in HIDDEN_CODES:
        return error.__cause__ or error
    return error if error.__cause__ is not None else None
