"""What a run came to with its images, audio and files in their places. Knows nobody who words it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..data.content import ContentResult, with_parts
from ..data.narrowing import is_object
from ..errors import CodeModeSerializationError
from ..host.threads import run_check

if TYPE_CHECKING:
    from ..protocol.references import Contents
    from .outcome import RunOutcome


def contents_of(outcome: RunOutcome) -> Contents | None:
    """Return the content that the program of a run was given, if it was given any."""
    contents = None if outcome.ledger is None else outcome.ledger.contents
    return contents if contents is not None and len(contents) else None


def presented(outcome: RunOutcome) -> Any:
    """Return the value of a run, with a `Content` where a handle was; a `ContentResult` where it has shown some too."""
    contents, value = contents_of(outcome), outcome.value
    if contents is None or isinstance(value, ContentResult):
        return value
    try:
        value = with_parts(value, contents)
    except CodeModeSerializationError:  # a recorded outcome whose content is not kept any more: it stays a description
        return value
    shown = tuple(contents.at(part_id) for part_id in contents.shown if part_id in contents)
    return ContentResult(value, shown) if shown else value


async def in_words(outcome: RunOutcome) -> Any:
    """Return the value of a run with a description where a handle was, for what outlives its content."""
    contents = contents_of(outcome)
    if contents is None:
        return outcome.value
    with suppress(CodeModeSerializationError):  # as above
        return await run_check(0, lambda: with_parts(outcome.value, contents, lambda part: part.described))
    return outcome.value


def with_content(result: Any, outcome: RunOutcome) -> Any:
    """Return what a model is told of a run, plain JSON or an interrupt, with a `Content` in each place of one."""
    contents = contents_of(outcome)
    if contents is None or not is_object(result):
        return result
    try:
        return with_parts(result, contents)
    except CodeModeSerializationError:  # as above
        return result
