"""One call that waits, as a person is asked about it: what is shown, and the form. Reads no answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.trace.unseen import all_seen
from codemode.trace.visible_text import clipped, counted, one_line, program_lines

Kind = Literal["approval", "unknown", "sign-in", "other"]

SIGN_IN_KIND = "connection-auth"
ONCE, SESSION, ALWAYS, DENY = "once", "session", "always", "deny"
HAPPENED, FAILED, RUN_AGAIN = "happened", "failed", "run_again"
MAX_INPUT_CHARACTERS = 16_000
"""Of the input that a form offers to edit. A longer one is shown in part, and runs as it is or not at all."""

_MAX_SHOWN_CHARACTERS = 4_000
_MAX_NAME_CHARACTERS = 200
_MAX_LINE_CHARACTERS = 200
_MAX_PROBLEM_CHARACTERS = 500
_KINDS: Mapping[str, Kind] = {
    APPROVAL_KIND: "approval",
    UNKNOWN_OUTCOME_KIND: "unknown",
    SIGN_IN_KIND: "sign-in",
}
_DECISIONS: Mapping[str, str] = {
    ONCE: "this call",
    SESSION: "also later calls of this tool, until the client leaves",
    ALWAYS: "also those of later sessions, while the tool stays as it is",
    DENY: "it does not run",
}
_WHAT_HAPPENED: Mapping[str, Any] = {
    "type": "string",
    "title": "What became of it",
    "description": "happened: it was done; failed: it was not, and the program is told so; run_again: run it once more",
    "enum": [HAPPENED, FAILED, RUN_AGAIN],
}
_REASON: Mapping[str, Any] = {"type": "string", "title": "Reason", "description": "Why, for the record"}


@dataclass(frozen=True, kw_only=True)
class Question:
    """One call that waits. ``server`` and ``tool`` are their names at the host, ``line`` is of the program.

    ``definition`` is the digest of the tool as it was then, where that is known. ``problem`` is what was wrong with the
    last answer, the ``tries``-th.
    """

    interrupt_id: str
    kind: Kind
    tool_name: str
    server: str
    tool: str
    input: Any
    payload: Mapping[str, Any]
    line: int | None = None
    definition: str | None = None
    problem: str | None = None
    tries: int = 0

    @property
    def shown_input(self) -> str:
        """The input as JSON that a person can read: nothing in it is invisible, or moves what stands around it."""
        text = json.dumps(self.input, ensure_ascii=False)
        return text if all_seen(text) else "".join(map(_seen, text))


def kind_of(kind: Any) -> Kind:
    """Return of which kind a pause is, by the ``kind`` of its payload."""
    return _KINDS.get(kind, "other") if isinstance(kind, str) else "other"


def form_of(question: Question, *, has_session: bool = True) -> dict[str, Any]:
    """Return the schema of the form: flat, as the protocol wants it. Without a session none is offered."""
    if question.kind == "unknown":
        value = {"type": "string", "title": "What it gave", "description": "JSON; where it happened"}
        properties = {"decision": _WHAT_HAPPENED, "value": value, "reason": _REASON}
    else:
        properties = {"decision": _decision(has_session=has_session), **_input_field(question), "reason": _REASON}
    return {"type": "object", "properties": properties, "required": ["decision"]}


def message_of(question: Question, code: str) -> str:
    """Return what a person reads, the program's own text last: each thing on one line that nothing in it can leave."""
    text = question.shown_input
    said = {
        "Problem": question.problem and one_line(question.problem, _MAX_PROBLEM_CHARACTERS),
        "Server": one_line(question.server, _MAX_NAME_CHARACTERS),
        "Tool": one_line(question.tool, _MAX_NAME_CHARACTERS),
        "Input": clipped(text, _MAX_SHOWN_CHARACTERS),
        "Not shown": counted(len(text) - _MAX_SHOWN_CHARACTERS, "more characters of the input")
        if len(text) > _MAX_SHOWN_CHARACTERS
        else None,
        f"Line {question.line} of the program": _line(code, question.line),
    }
    head = "A program was cut off. Has this call happened?" if question.kind == "unknown" else "Run this call?"
    return "\n".join([head, *(f"{name}: {text}" for name, text in said.items() if text)])


def _decision(*, has_session: bool) -> dict[str, Any]:
    offered = {name: one for name, one in _DECISIONS.items() if has_session or name != SESSION}
    about = "; ".join(f"{name}: {one}" for name, one in offered.items())
    return {"type": "string", "title": "Decision", "description": about, "enum": [*offered]}


def _input_field(question: Question) -> dict[str, Any]:
    text = question.shown_input
    if len(text) > MAX_INPUT_CHARACTERS:
        return {}
    about = "JSON. What stands here is what runs; it may be edited."
    return {"input": {"type": "string", "title": "Input", "description": about, "default": text}}


def _line(code: str, line: int | None) -> str | None:
    if line is None:
        return None
    lines = program_lines(code)
    return one_line(lines[line - 1].strip(), _MAX_LINE_CHARACTERS) if len(lines) >= line else None


def _seen(character: str) -> str:
    return character if all_seen(character) else json.dumps(character)[1:-1]
