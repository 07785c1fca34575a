"""Answers of people, read strictly: what is not clearly an approval lets nothing run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from codemode.data.json_values import decode_json
from codemode.data.narrowing import mapping_or_empty
from codemode.interrupts.interrupt import same_json

from .questions import (
    ALWAYS,
    DENY,
    FAILED,
    HAPPENED,
    MAX_INPUT_CHARACTERS,
    ONCE,
    RUN_AGAIN,
    SESSION,
    Question,
)
from .remembered import Scope

MOST_TRIES = 3
"""How often an edit may be wrong before the call is denied."""

_MAX_ANSWER_CHARACTERS = 1 << 20
_MAX_REASON_CHARACTERS = 1_000
_MISSING = object()

Check = Callable[[Any], str | None]
"""Says what is wrong with an edited input, None for nothing."""


@dataclass(frozen=True)
class Answered:
    """What goes to the program's host. ``scope``: the answer holds for later calls of the tool too."""

    resolution: dict[str, Any]
    scope: Scope | None = None


@dataclass(frozen=True)
class AskAgain:
    """A person meant to answer, and what they wrote cannot be used."""

    problem: str


Answer = Answered | AskAgain | None
"""None: nobody has said anything that counts, and nothing is decided."""


def read_answer(question: Question, response: Any, check: Check) -> Answer:
    """Read what a client says its person has answered; ``response`` is whatever came in its place."""
    if question.kind == "sign-in":
        return Answered({"action": _action(response)})
    if question.kind == "unknown":
        return _what_happened(question, response)
    if question.kind != "approval":
        return Answered({"action": "decline"})  # nobody here knows how to ask it
    if _action(response) != "accept":
        return _denied("it was declined")
    return _decision(question, response.content, check)


def _action(response: Any) -> str:
    return response.action if isinstance(response, types.ElicitResult) else "decline"


def _decision(question: Question, content: Any, check: Check) -> Answer:
    said = mapping_or_empty(content)
    decision, reason = said.get("decision"), said.get("reason", "")
    if not isinstance(decision, str) or decision not in (ONCE, SESSION, ALWAYS, DENY):
        return _denied("the answer was malformed")
    if not isinstance(reason, str | None):
        return _denied("the answer was malformed")
    reason = (reason or "")[:_MAX_REASON_CHARACTERS]
    if decision == DENY:
        return _denied(reason)
    edited = said.get("input", _MISSING)
    resolution: dict[str, Any] = {"approved": True, **({"reason": reason} if reason else {})}
    scope: Scope | None = "session" if decision == SESSION else "always" if decision == ALWAYS else None
    if edited is _MISSING:
        return Answered(resolution, scope)
    if not isinstance(edited, str) or len(edited) > _MAX_ANSWER_CHARACTERS:
        return _denied("the answer was malformed")
    if len(question.shown_input) > MAX_INPUT_CHARACTERS:
        return _denied("an input of which only a part was shown was edited")
    return _with_edit(question, edited, resolution, scope, check)


def _with_edit(
    question: Question, edited: str, resolution: dict[str, Any], scope: Scope | None, check: Check
) -> Answer:
    try:
        value = decode_json(edited)
    except ValueError as error:
        return _again(question, f"the input is no JSON: {error}")
    if same_json(value, question.input):
        return Answered(resolution, scope)
    if question.tries >= MOST_TRIES:
        return _denied("its edited input was refused")
    problem = check(value)
    if problem is not None:
        return _again(question, problem)
    return Answered({**resolution, "input": value}, scope)


def _what_happened(question: Question, response: Any) -> Answer:
    if _action(response) != "accept":
        return None
    said = mapping_or_empty(response.content)
    decision, reason, value = said.get("decision"), said.get("reason") or "", said.get("value")
    if not isinstance(reason, str) or not isinstance(value, str | None) or len(value or "") > _MAX_ANSWER_CHARACTERS:
        return None
    if decision == RUN_AGAIN:
        return Answered({"runAgain": True})
    if decision == FAILED:
        return Answered({"error": {"message": reason[:_MAX_REASON_CHARACTERS] or "it did not happen"}})
    if decision != HAPPENED:
        return None
    try:
        return Answered({"value": decode_json(value) if value else None})
    except ValueError as error:
        return _again(question, f"what it gave is no JSON: {error}")


def _again(question: Question, problem: str) -> Answer:
    if question.tries + 1 < MOST_TRIES:
        return AskAgain(problem)
    return None if question.kind == "unknown" else _denied(problem)


def _denied(reason: str) -> Answered:
    return Answered({"approved": False, **({"reason": reason} if reason else {})})
