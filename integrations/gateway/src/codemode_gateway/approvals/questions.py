"""Questions about pending calls, and the responses of calls that wait for an answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from codemode.data.json_values import well_formed
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.surfaces.modules.response import RunResponse, diagnostic, refusal_response
from codemode.trace.unseen import all_seen
from codemode.trace.visible_text import clipped, counted, one_line, program_lines

from ..config.places import COMMAND, login_command

Kind = Literal["approval", "unknown", "sign-in", "other"]

SIGN_IN_KIND = "connection-auth"
SAVE = "saved.$save"
"""What programs call to have a program saved: each call is asked about."""
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

    ``program`` is the saved program that makes it, with its line.
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
    program: str | None = None
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
        properties = {
            "decision": _decision(question, has_session=has_session),
            **_input_field(question),
            "reason": _REASON,
        }
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
        "Saved program": question.program and one_line(question.program, _MAX_NAME_CHARACTERS),
        f"Line {question.line} of the program": _line(code, question.line),
    }
    head = "A program was cut off. Has this call happened?" if question.kind == "unknown" else "Run this call?"
    return "\n".join([head, *(f"{name}: {text}" for name, text in said.items() if text)])


def _decision(question: Question, *, has_session: bool) -> dict[str, Any]:
    offered = {name: one for name, one in _DECISIONS.items() if has_session or name != SESSION}
    if question.tool_name == SAVE:
        offered = {name: one for name, one in offered.items() if name in (ONCE, DENY)}
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


WAITING, UNKNOWN_OUTCOME = "WAITING_FOR_APPROVAL", "OUTCOME_UNKNOWN"
MOST_CALLS = 50
OTHER_KEYS = (
    "it was signed with a key that this gateway has not: gateways that share a store need the same codemode.keys, and a"
    " key that was taken out of them has to stand there again, before the last one"
)
_MAY_BE_DONE = "What the program had called by then may be done: find out, or ask the user, before you run it again."
_MAX_REASON_CHARACTERS = 400


def waiting(
    record_id: str,
    questions: Iterable[Question],
    expires_at_ms: int,
    url: str | None,
    stuck: str | None = None,
    *,
    command: str = COMMAND,
) -> RunResponse:
    """Return what says that a run waits for people, and how its outcome is had.

    ``stuck``: why it cannot go on now. ``command``: what a subcommand goes behind in the user's terminal.
    """
    asked = list(questions)
    doubts = [one for one in asked if one.kind == "unknown"]
    again = f'Call this tool with {{"resume": "{record_id}"}} later; sending the program again does not help.'
    if doubts:
        names = ", ".join(_name(one) for one in doubts[:5])
        said = diagnostic(
            "error",
            UNKNOWN_OUTCOME,
            f"cut off, and may have happened: {names}",
            hint=f"A person must say. {_where(record_id, asked, url, command)} {again}",
        )
    elif asked:
        names = ", ".join(_name(one) for one in asked[:5])
        does = "sign in for" if all(one.kind == "sign-in" for one in asked) else "approve"
        message = f"the program waits for somebody to {does} {names}"
        said = diagnostic("warning", WAITING, message, hint=f"{_where(record_id, asked, url, command)} {again}")
    elif stuck:
        message = f"the program cannot go on at present: {one_line(stuck, _MAX_REASON_CHARACTERS)}"
        said = diagnostic("warning", WAITING, message, hint=_how_it_goes_on(record_id, url))
    else:
        said = diagnostic("warning", WAITING, "the program goes on, and has not ended yet", hint=again)
    response = refusal_response([said])
    response["waiting"] = waiting_of(record_id, asked, expires_at_ms, url)
    return response


def waiting_of(record_id: str, questions: Iterable[Question], expires_at_ms: int, url: str | None) -> dict[str, Any]:
    """Return the field ``waiting``: never an input, and nothing by which anything could be approved."""
    calls = [_call(one) for one in questions]
    until = datetime.fromtimestamp(expires_at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    said: dict[str, Any] = {"id": record_id, "calls": calls[:MOST_CALLS], "expiresAt": until}
    return {**said, "url": url} if url else said


def _where(record_id: str, asked: Sequence[Question], url: str | None, command: str) -> str:
    """Return where the user decides: the page, or the command, which asks at a terminal, and only there."""
    if url:
        return f"Tell the user to open {url}."
    if all(one.kind == "sign-in" for one in asked):
        words = login_command(_short(asked[0].server), command)
    else:
        does = "show" if any(one.kind == "unknown" for one in asked) else "approve"
        words = f"{command} approvals {does} {record_id[:8]}"
    return f"Tell the user to run `{words}` in a terminal."


def _how_it_goes_on(record_id: str, url: str | None) -> str:
    """Return what is to be told of a run that was decided about, and that no gateway can go on with now."""
    given_up = f"is closed at {url}" if url else "has expired"
    return (
        "Tell the user: waiting alone does not help. It goes on by itself once the gateway's operator has mended that;"
        f' {{"resume": "{record_id}"}} then gives its outcome. The program can be sent again once this run {given_up}.'
    )


def unknown_run() -> RunResponse:
    """Return the answer to an id that is none of this principal's."""
    hint = f"Send the whole `id` of `waiting`. If that was it, the run is over. {_MAY_BE_DONE}"
    return refusal_response([diagnostic("error", "UNKNOWN_RUN", "there is no run with this id", hint=hint)])


def not_resumed(reason: str) -> RunResponse:
    """Return the answer to what cannot go on."""
    hint = f"Nothing has run now. {_MAY_BE_DONE}"
    message = f"this call does not go on: {reason}"
    return refusal_response([diagnostic("error", "CONTINUATION_REFUSED", message, hint=hint)])


def ended_otherwise(reason: str) -> RunResponse:
    """Return the answer for a run that came to its end without its program."""
    hint = f"Tell the user. {_MAY_BE_DONE}"
    return refusal_response([diagnostic("error", "RUN_ENDED", f"the run has ended: {reason}", hint=hint)])


def bad_request(message: str, path: str) -> RunResponse:
    """Return the answer to a request that cannot be understood."""
    hint = 'Send {"code": "<an ES module>"}, or {"resume": "<the id of a run that waits>"}.'
    return refusal_response([diagnostic("error", "BAD_REQUEST", message, hint=hint, path=path)])


def too_many_waiting(most: int, command: str = COMMAND) -> RunResponse:
    """Return the answer to a program that might ask a person, of a user for whom too many wait already."""
    message = f"{most} programs of this user wait for a person already, and no more are kept: nothing has run"
    where = f"in the gateway's console, or with `{command} approvals list` in a terminal"
    hint = f"Tell the user to decide about some of them, or to end them, {where}. Then send the program again."
    return refusal_response([diagnostic("error", "TOO_MANY_WAITING", message, hint=hint)])


def store_away() -> RunResponse:
    """Return the answer where nobody can be asked, for what waits cannot be kept."""
    message = "the gateway's store cannot be used, in which programs and what they ask people are kept"
    hint = f"Tell the user that the store of the gateway cannot be used: its log says why. {_MAY_BE_DONE}"
    return refusal_response([diagnostic("error", "STORE_UNAVAILABLE", message, hint=hint)])


def _call(question: Question) -> dict[str, Any]:
    line = {} if question.line is None else {"line": question.line}
    asks = "outcome" if question.kind == "unknown" else "sign-in" if question.kind == "sign-in" else "approval"
    return {"serverId": _short(question.server), "toolName": _short(question.tool), **line, "asks": asks}


def _name(question: Question) -> str:
    return f"{_short(question.server)}.{_short(question.tool)}"


def _short(text: str) -> str:
    return well_formed(one_line(text, _MAX_NAME_CHARACTERS))
