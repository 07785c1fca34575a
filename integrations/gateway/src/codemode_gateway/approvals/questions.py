"""Questions about pending calls, and the responses of calls that wait for an answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from codemode.data.json_values import replace_lone_surrogates
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.surfaces.modules.response import RunResponse, build_refusal_response, create_diagnostic
from codemode.trace.unseen import has_only_visible_characters
from codemode.trace.visible_text import (
    clip_text,
    clip_to_visible_line,
    format_count,
    split_program_lines_if_unambiguous,
)

from ..config.locations import GATEWAY_COMMAND, format_login_command

QuestionKind = Literal["approval", "unknown", "sign-in", "other"]

SIGN_IN_KIND = "connection-auth"
SAVE_TOOL_NAME = "saved.$save"
"""The call that saves a program; it is asked about each time."""
ONCE, SESSION, ALWAYS, DENY = "once", "session", "always", "deny"
HAPPENED, FAILED, RUN_AGAIN = "happened", "failed", "run_again"
MAX_INPUT_CHARACTERS = 16_000
"""The longest input that a form lets people edit. A longer one is shown in part and cannot be edited."""

_MAX_SHOWN_CHARACTERS = 4_000
_MAX_NAME_CHARACTERS = 200
_MAX_LINE_CHARACTERS = 200
_MAX_PROBLEM_CHARACTERS = 500
_QUESTION_KINDS: Mapping[str, QuestionKind] = {
    APPROVAL_KIND: "approval",
    UNKNOWN_OUTCOME_KIND: "unknown",
    SIGN_IN_KIND: "sign-in",
}
_DECISION_DESCRIPTIONS: Mapping[str, str] = {
    ONCE: "this call",
    SESSION: "also later calls of this tool in this session",
    ALWAYS: "also calls of later sessions, until the tool changes",
    DENY: "do not run it",
}
_OUTCOME_FIELD: Mapping[str, Any] = {
    "type": "string",
    "title": "Outcome",
    "description": "happened: it took effect; failed: it did not, the program gets an error; run_again: run it again",
    "enum": [HAPPENED, FAILED, RUN_AGAIN],
}
_REASON_FIELD: Mapping[str, Any] = {"type": "string", "title": "Reason", "description": "Why, for the record"}


@dataclass(frozen=True, kw_only=True)
class Question:
    """One pending call, to ask a person about. ``server`` and ``tool`` are their names at the host.

    ``line`` is the line of the program, from 1; ``program`` names the saved program that makes the call, with its line.
    ``definition_digest`` identifies the tool's definition at the time of the call, if known. ``problem`` says what was
    wrong with the last answer, after ``tries`` unusable answers.
    """

    interrupt_id: str
    kind: QuestionKind
    tool_name: str
    server: str
    tool: str
    input: Any
    payload: Mapping[str, Any]
    line: int | None = None
    program: str | None = None
    definition_digest: str | None = None
    problem: str | None = None
    tries: int = 0

    @property
    def input_text(self) -> str:
        """The input as JSON, with invisible characters and those that move other text escaped."""
        json_text = json.dumps(self.input, ensure_ascii=False)
        return json_text if has_only_visible_characters(json_text) else "".join(map(_escape_invisible, json_text))


def to_question_kind(kind: Any) -> QuestionKind:
    """Return the kind of question for the ``kind`` of a pause's payload."""
    return _QUESTION_KINDS.get(kind, "other") if isinstance(kind, str) else "other"


def create_form_schema(question: Question, *, has_session: bool = True) -> dict[str, Any]:
    """Return the form's schema, flat as MCP requires. Without a session it does not offer ``session``."""
    if question.kind == "unknown":
        value = {"type": "string", "title": "Result", "description": "JSON, if it happened"}
        properties = {"decision": _OUTCOME_FIELD, "value": value, "reason": _REASON_FIELD}
    else:
        properties = {
            "decision": _create_decision_field(question, has_session=has_session),
            **_create_input_field(question),
            "reason": _REASON_FIELD,
        }
    return {"type": "object", "properties": properties, "required": ["decision"]}


def create_question_message(question: Question, code: str) -> str:
    """Return the message for a person, one line for each value, the program's own text last."""
    text = question.input_text
    fields = {
        "Problem": question.problem and clip_to_visible_line(question.problem, _MAX_PROBLEM_CHARACTERS),
        "Server": clip_to_visible_line(question.server, _MAX_NAME_CHARACTERS),
        "Tool": clip_to_visible_line(question.tool, _MAX_NAME_CHARACTERS),
        "Input": clip_text(text, _MAX_SHOWN_CHARACTERS),
        "Not shown": format_count(len(text) - _MAX_SHOWN_CHARACTERS, "more characters of the input")
        if len(text) > _MAX_SHOWN_CHARACTERS
        else None,
        "Saved program": question.program and clip_to_visible_line(question.program, _MAX_NAME_CHARACTERS),
        f"Line {question.line} of the program": _read_program_line(code, question.line),
    }
    head = "A program was interrupted. Did this call happen?" if question.kind == "unknown" else "Run this call?"
    return "\n".join([head, *(f"{label}: {text}" for label, text in fields.items() if text)])


def _create_decision_field(question: Question, *, has_session: bool) -> dict[str, Any]:
    choices = {
        name: description for name, description in _DECISION_DESCRIPTIONS.items() if has_session or name != SESSION
    }
    if question.tool_name == SAVE_TOOL_NAME:
        choices = {name: description for name, description in choices.items() if name in (ONCE, DENY)}
    descriptions = "; ".join(f"{name}: {description}" for name, description in choices.items())
    return {"type": "string", "title": "Decision", "description": descriptions, "enum": [*choices]}


def _create_input_field(question: Question) -> dict[str, Any]:
    text = question.input_text
    if len(text) > MAX_INPUT_CHARACTERS:
        return {}
    description = "JSON. The call runs with this text; you may edit it."
    return {"input": {"type": "string", "title": "Input", "description": description, "default": text}}


def _read_program_line(code: str, line: int | None) -> str | None:
    if line is None:
        return None
    lines = split_program_lines_if_unambiguous(code)
    return clip_to_visible_line(lines[line - 1].strip(), _MAX_LINE_CHARACTERS) if len(lines) >= line else None


def _escape_invisible(character: str) -> str:
    return character if has_only_visible_characters(character) else json.dumps(character)[1:-1]


WAITING, UNKNOWN_OUTCOME = "WAITING_FOR_APPROVAL", "OUTCOME_UNKNOWN"
MAX_LISTED_CALLS = 50
UNKNOWN_KEY_MESSAGE = (
    "it was signed with a key that this gateway does not have: gateways that share a store need the same codemode.keys;"
    " put a removed key back before the last one"
)
_SIDE_EFFECTS_HINT = "Its earlier calls may have taken effect: check, or ask the user, before you run it again."
_MAX_REASON_CHARACTERS = 400


def waiting_response(
    record_id: str,
    questions: Iterable[Question],
    expires_at_ms: int,
    url: str | None,
    not_resumable: str | None = None,
    *,
    command: str = GATEWAY_COMMAND,
) -> RunResponse:
    """Return the response for a run that waits for people, with a hint how to get its outcome.

    ``not_resumable``: why the run cannot resume now. ``command``: the gateway's command in the user's terminal.
    """
    questions = list(questions)
    unknown_outcomes = [question for question in questions if question.kind == "unknown"]
    resume_hint = f'Call this tool with {{"resume": "{record_id}"}} later; sending the program again does not help.'
    if unknown_outcomes:
        tool_names = ", ".join(_format_full_tool_name(question) for question in unknown_outcomes[:5])
        problem = create_diagnostic(
            "error",
            UNKNOWN_OUTCOME,
            f"interrupted, and may have happened: {tool_names}",
            hint=f"A person decides. {_create_decision_hint(record_id, questions, url, command)} {resume_hint}",
        )
    elif questions:
        tool_names = ", ".join(_format_full_tool_name(question) for question in questions[:5])
        action = "sign in for" if all(question.kind == "sign-in" for question in questions) else "approve"
        message = f"the program waits for a person to {action} {tool_names}"
        problem = create_diagnostic(
            "warning",
            WAITING,
            message,
            hint=f"{_create_decision_hint(record_id, questions, url, command)} {resume_hint}",
        )
    elif not_resumable:
        message = f"the program cannot resume now: {clip_to_visible_line(not_resumable, _MAX_REASON_CHARACTERS)}"
        problem = create_diagnostic("warning", WAITING, message, hint=_create_not_resumable_hint(record_id, url))
    else:
        problem = create_diagnostic("warning", WAITING, "the program is still running", hint=resume_hint)
    response = build_refusal_response([problem])
    response["waiting"] = create_waiting_field(record_id, questions, expires_at_ms, url)
    return response


def create_waiting_field(
    record_id: str, questions: Iterable[Question], expires_at_ms: int, url: str | None
) -> dict[str, Any]:
    """Return the field ``waiting``. Security: it has no inputs, and nothing that approves a call."""
    calls = [_to_waiting_call(question) for question in questions]
    expires_at = datetime.fromtimestamp(expires_at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    fields: dict[str, Any] = {"id": record_id, "calls": calls[:MAX_LISTED_CALLS], "expiresAt": expires_at}
    return {**fields, "url": url} if url else fields


def _create_decision_hint(record_id: str, questions: Sequence[Question], url: str | None, command: str) -> str:
    """Return where the user decides: on the page, or with the command, which asks only at a terminal."""
    if url:
        return f"Tell the user to open {url}."
    if all(question.kind == "sign-in" for question in questions):
        command_line = format_login_command(_escape_and_shorten_name(questions[0].server), command)
    else:
        subcommand = "show" if any(question.kind == "unknown" for question in questions) else "approve"
        command_line = f"{command} approvals {subcommand} {record_id[:8]}"
    return f"Tell the user to run `{command_line}` in a terminal."


def _create_not_resumable_hint(record_id: str, url: str | None) -> str:
    """Return the hint for a decided run that no gateway can resume now."""
    ending = f"is closed at {url}" if url else "has expired"
    return (
        "Tell the user: waiting does not help. The run resumes once the gateway's operator has fixed this;"
        f' {{"resume": "{record_id}"}} then gives its outcome. Send the program again only once this run {ending}.'
    )


def run_not_found_response() -> RunResponse:
    """Return the response for an id of no run of this principal."""
    hint = f"Send the whole `id` of `waiting`. If you did, the run is over. {_SIDE_EFFECTS_HINT}"
    return build_refusal_response(
        [create_diagnostic("error", "UNKNOWN_RUN", "there is no run with this id", hint=hint)]
    )


def not_resumed_response(reason: str) -> RunResponse:
    """Return the response for a call that cannot resume."""
    hint = f"Nothing ran. {_SIDE_EFFECTS_HINT}"
    message = f"this call cannot resume: {reason}"
    return build_refusal_response([create_diagnostic("error", "CONTINUATION_REFUSED", message, hint=hint)])


def run_ended_response(reason: str) -> RunResponse:
    """Return the response for a run that ended before its program did."""
    hint = f"Tell the user. {_SIDE_EFFECTS_HINT}"
    return build_refusal_response([create_diagnostic("error", "RUN_ENDED", f"the run has ended: {reason}", hint=hint)])


def bad_request_response(message: str, path: str) -> RunResponse:
    """Return the response for an invalid request."""
    hint = 'Send {"code": "<an ES module>"}, or {"resume": "<the id of a run that waits>"}.'
    return build_refusal_response([create_diagnostic("error", "BAD_REQUEST", message, hint=hint, path=path)])


def too_many_waiting_programs_response(limit: int, command: str = GATEWAY_COMMAND) -> RunResponse:
    """Return the response for a program that may ask a person, when too many of the user's programs wait."""
    message = f"{limit} programs of this user already wait for a person, which is the limit: nothing ran"
    where_to_decide = f"in the gateway's console, or with `{command} approvals list` in a terminal"
    hint = f"Tell the user to decide or end some of them {where_to_decide}. Then send the program again."
    return build_refusal_response([create_diagnostic("error", "TOO_MANY_WAITING", message, hint=hint)])


def store_unavailable_response() -> RunResponse:
    """Return the response when the store, which holds waiting programs, is unavailable."""
    message = "the gateway cannot use its store of waiting programs"
    hint = f"Tell the user that the gateway cannot use its store; its log says why. {_SIDE_EFFECTS_HINT}"
    return build_refusal_response([create_diagnostic("error", "STORE_UNAVAILABLE", message, hint=hint)])


def _to_waiting_call(question: Question) -> dict[str, Any]:
    line = {} if question.line is None else {"line": question.line}
    asks = "outcome" if question.kind == "unknown" else "sign-in" if question.kind == "sign-in" else "approval"
    return {
        "serverId": _escape_and_shorten_name(question.server),
        "toolName": _escape_and_shorten_name(question.tool),
        **line,
        "asks": asks,
    }


def _format_full_tool_name(question: Question) -> str:
    return f"{_escape_and_shorten_name(question.server)}.{_escape_and_shorten_name(question.tool)}"


def _escape_and_shorten_name(text: str) -> str:
    return replace_lone_surrogates(clip_to_visible_line(text, _MAX_NAME_CHARACTERS))
