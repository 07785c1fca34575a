"""What is to be done for a program, one thing after the other, and what it comes to. Does nothing of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from codemode import (
    CodeModeAbortedError,
    CodeModeConcurrencyError,
    CodeModeError,
    CodeModeProtocolError,
    Interrupt,
    failure_text,
)
from codemode.plugins import recovery_of, was_answered, way_on

from .approvals import Question
from .leavings import Leavings
from .nested import NestedRun

_KEY_NOTE = (
    "a program that goes on in another process needs the signing key of the first one; "
    "give options={'continuation': {'keys': ...}} or call codemode.set_continuation_signing_key"
)


@dataclass(frozen=True, kw_only=True)
class RunSegment:
    """Run the program up to its next pause. Answers to ``questions`` resolve ``interrupt``; None is the start."""

    step: int
    interrupt: Interrupt | None
    questions: tuple[Question, ...]
    run: NestedRun


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Find what was kept of this call by processes that have ended."""

    leavings: Leavings


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Ask people, all at once."""

    questions: tuple[Question, ...]


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The answers there are, and LangGraph's interrupts for the other questions, by key."""

    answers: Mapping[str, Any]
    waiting: Mapping[str, tuple[Any, ...]]


Work: TypeAlias = RunSegment | Ask | Recall


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a program ended, and what its nested calls left beside their values.

    ``text`` is the value for the model, ``content`` are the images, audio and files beside it. ``artifacts`` lists the
    calls, each with its artifact where it has one.
    """

    value: Any = None
    text: str = ""
    content: tuple[Mapping[str, Any], ...] = ()
    failure: Mapping[str, Any] | None = None
    commands: tuple[Any, ...] = ()
    artifacts: tuple[dict[str, Any], ...] = ()
    error: CodeModeError | None = None


def calls_in(records: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return all calls that are known of, each with its artifact where it has one."""
    calls: dict[str, dict[str, Any]] = {
        one["tool_call_id"]: one for record in records for one in record.get("made", ())
    }
    for one in (one for record in records for one in record["artifacts"]):
        # One of a process that has ended has left nothing else.
        calls[one["tool_call_id"]] = {**calls.get(one["tool_call_id"], {}), **one}
    return tuple(calls.values())


def failure_of(error: CodeModeError, program: str) -> dict[str, str]:
    """Return what is kept of a failure; the text is for the model."""
    return {"name": type(error).__name__, "code": error.code, "text": failure_text(error, program)}


def refusal_of(error: CodeModeError) -> CodeModeError | None:
    """Return an error that came before anything of the program ran, with a note of what to do; None for any other."""
    is_refusal = isinstance(error, CodeModeProtocolError) and not error.calls
    if not is_refusal and not isinstance(error, CodeModeConcurrencyError):
        return None
    is_late = isinstance(error, CodeModeProtocolError) and was_answered(error)
    error.add_note(f"codemode-langchain: {way_on('the checkpoint of the thread') if is_late else _KEY_NOTE}")
    return error


def begun_elsewhere(error: CodeModeAbortedError, run: NestedRun) -> tuple[Interrupt, dict[str, Any]]:
    """Return from where to repeat a part that a lost host had begun, and the answers that make its calls once more.

    Without a journal no one knows which calls that host made: the `Beginning` of the part asks before the first of
    them. Raises any other error, and that of a part which has begun here too, before the other host took it over.
    """
    recovery = error.recovery
    if recovery_of(error) is not None or not isinstance(recovery, Interrupt) or run.has_begun:
        raise error
    return recovery, {request.interrupt_id: {"runAgain": True} for request in recovery.requests}


def as_text(value: Any) -> str:
    """Return what the content of a message says of plain JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
