"""Texts for failures of host code: for the trace, and for the host's log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import cast

from .visible_text import clip_to_visible_line

TOOLS_LOGGER = logging.getLogger("codemode.tools")
_MAX_CAUSES = 8
_MAX_LINE_CHARACTERS = 200


def log_late_failure(name: str, call_id: str, raised: BaseException) -> None:
    """Log what a tool raised after its invocation had ended. A pause and a cancellation are no failures then."""
    if isinstance(raised, Exception | SystemExit):
        log_failure(TOOLS_LOGGER, "tool %r failed after its invocation had ended (%s)", (name, call_id), raised)


def log_unusable_schema(side: str, name: str, error: Exception) -> None:
    """Log that a schema of a framework's or server's tool is invalid and not used."""
    TOOLS_LOGGER.warning("the %s schema of tool %r is invalid and not checked: %s", side, name, error)


def log_repaired_schema(side: str, name: str, notes: Iterable[str]) -> None:
    """Log what cannot be used of a schema and is left out of it."""
    TOOLS_LOGGER.warning(
        "the %s schema of tool %r is used without its unusable parts: %s", side, name, "; ".join(notes)
    )


def log_schema_mismatch(warning: str) -> None:
    """Log that an output misses its schema."""
    TOOLS_LOGGER.warning("%s", warning)


def log_omitted_tool(error: Exception) -> None:
    """Log that a framework's or server's tool is not available to programs."""
    TOOLS_LOGGER.warning("a tool is left out because no program could call it: %s", error)


def log_tool_failure(message: str, raised: BaseException) -> None:
    """Log an exception of a tool's own function that no call can report."""
    log_failure(TOOLS_LOGGER, "%s", (message,), raised)


def format_cause_or_error_line(error: BaseException) -> str:
    """Return class and text of what made a call fail on one line, for the host alone to see."""
    raised = error.__cause__ or error
    return clip_to_visible_line(f"{type(raised).__name__}: {get_exception_text(raised)}", _MAX_LINE_CHARACTERS)


def get_exception_text(error: BaseException) -> str:
    """Return the text of any exception, even if its own ``__str__`` fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a tool may raise anything
        return "(its text cannot be read)"


def iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the causes of an error, nearest first, at most eight; for a group, its first member."""
    seen: list[BaseException] = [error]
    while len(seen) <= _MAX_CAUSES:
        cause = _find_cause(seen[-1])
        if cause is None or any(cause is error_seen for error_seen in seen):
            return
        seen.append(cause)
        yield cause


def get_group_members(error: BaseException) -> tuple[BaseException, ...]:
    """Return the members of an exception group; an empty tuple for any other error."""
    return cast("BaseExceptionGroup[BaseException]", error).exceptions if isinstance(error, BaseExceptionGroup) else ()


def _find_cause(error: BaseException) -> BaseException | None:
    if members := get_group_members(error):
        return members[0]
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def log_failure(logger: logging.Logger, message: str, values: tuple[object, ...], raised: BaseException) -> None:
    # A handler is host code: what it raises must not change the invocation.
    with contextlib.suppress(Exception):
        logger.error(message, *values, exc_info=raised)
