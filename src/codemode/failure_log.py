"""What tools, their checks and fetches raised, for the host's log: programs and models read only that they failed.

Knows no hooks. A hook that hears of a failure stands in for its line here; who calls this knows whether there is one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import cast

from .errors import HIDDEN_CODES, CodeModeError
from .visible_text import one_line

_TOOLS = logging.getLogger("codemode.tools")
_FETCH = logging.getLogger("codemode.fetch")
_MAX_CAUSES = 8
_MAX_LINE_CHARACTERS = 200


def log_call_failure(kind: str, name: str, call_id: str, error: BaseException | None) -> None:
    """Log what a program was not told of a failed call, with its traceback. ``kind`` is that of the request."""
    raised = hidden_failure(error)
    if raised is None:
        return
    if kind == "fetch":
        _log(_FETCH, "request %s: %s", (call_id, error), raised)
    elif isinstance(error, CodeModeError) and error.details.get("origin") == "decision":
        _log(_TOOLS, "no decision about a call of tool %r (%s)", (name, call_id), raised)
    else:
        _log(_TOOLS, "tool %r failed (%s)", (name, call_id), raised)


def log_late_failure(name: str, call_id: str, raised: BaseException) -> None:
    """Log what a tool raised after its invocation had ended. A pause and a cancellation are no failures then."""
    if isinstance(raised, Exception | SystemExit):
        _log(_TOOLS, "tool %r failed after its invocation had ended (%s)", (name, call_id), raised)


def log_broken_schema(side: str, name: str, error: ValueError) -> None:
    """Log that a tool of a framework or server goes without one of its schemas."""
    _TOOLS.warning("the %s schema of tool %r is wrong and not checked: %s", side, name, error)


def log_left_out(error: ValueError) -> None:
    """Log that programs go without a tool of a framework or server, for its name."""
    _TOOLS.warning("a tool is left out, for no program could call it: %s", error)


def log_tool_failure(what: str, raised: BaseException) -> None:
    """Log what a tool's own function raised where no call could tell of it."""
    _log(_TOOLS, "%s", (what,), raised)


def hidden_failure(error: BaseException | None) -> BaseException | None:
    """Return what was raised behind an error that does not say it, or None for an error that says it all."""
    if error is None:
        return None
    if isinstance(error, CodeModeError) and error.code in HIDDEN_CODES:
        return error.__cause__ or error
    return error if error.__cause__ is not None else None


def failure_line(error: BaseException) -> str:
    """Return class and text of what made a call fail on one line, for the host alone to see."""
    raised = error.__cause__ or error
    return one_line(f"{type(raised).__name__}: {message_of(raised)}", _MAX_LINE_CHARACTERS)


def message_of(error: BaseException) -> str:
    """Return the text of any exception, whatever its own ``__str__`` does."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a tool may raise anything
        return "(its text cannot be read)"


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Give what led to an error, the nearest first, and at most eight; of a group the first in it."""
    seen: list[BaseException] = [error]
    while len(seen) <= _MAX_CAUSES:
        before = _cause_of(seen[-1])
        if before is None or any(before is one for one in seen):
            return
        seen.append(before)
        yield before


def _cause_of(error: BaseException) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _log(logger: logging.Logger, message: str, values: tuple[object, ...], raised: BaseException) -> None:
    # A handler is host code: what it raises must not change the invocation.
    with contextlib.suppress(Exception):
        logger.error(message, *values, exc_info=raised)
