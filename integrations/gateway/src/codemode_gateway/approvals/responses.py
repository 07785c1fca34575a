"""What a call is answered that waits for a person, or that cannot go on: responses as those of a run. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from codemode.data.json_values import well_formed
from codemode.surfaces.modules.diagnostic import diagnostic
from codemode.surfaces.modules.response import RunResponse, refused
from codemode.trace.visible_text import one_line

from ..config.own_entry import COMMAND, login_command
from .questions import Question

WAITING, UNKNOWN_OUTCOME = "WAITING_FOR_APPROVAL", "OUTCOME_UNKNOWN"
MOST_CALLS = 50
OTHER_KEYS = (
    "it was signed with a key that this gateway has not: gateways that share a store need the same codemode.keys, and a"
    " key that was taken out of them has to stand there again, before the last one"
)
_MAY_BE_DONE = "What the program had called by then may be done: find out, or ask the user, before you run it again."
_MAX_NAME_CHARACTERS = 200
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
    response = refused([said])
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
    return refused([diagnostic("error", "UNKNOWN_RUN", "there is no run with this id", hint=hint)])


def not_resumed(reason: str) -> RunResponse:
    """Return the answer to what cannot go on."""
    hint = f"Nothing has run now. {_MAY_BE_DONE}"
    message = f"this call does not go on: {reason}"
    return refused([diagnostic("error", "CONTINUATION_REFUSED", message, hint=hint)])


def ended_otherwise(reason: str) -> RunResponse:
    """Return the answer for a run that came to its end without its program."""
    hint = f"Tell the user. {_MAY_BE_DONE}"
    return refused([diagnostic("error", "RUN_ENDED", f"the run has ended: {reason}", hint=hint)])


def bad_request(message: str, path: str) -> RunResponse:
    """Return the answer to a request that cannot be understood."""
    hint = 'Send {"code": "<an ES module>"}, or {"resume": "<the id of a run that waits>"}.'
    return refused([diagnostic("error", "BAD_REQUEST", message, hint=hint, path=path)])


def too_many_waiting(most: int, command: str = COMMAND) -> RunResponse:
    """Return the answer to a program that might ask a person, of a user for whom too many wait already."""
    message = f"{most} programs of this user wait for a person already, and no more are kept: nothing has run"
    where = f"in the gateway's console, or with `{command} approvals list` in a terminal"
    hint = f"Tell the user to decide about some of them, or to end them, {where}. Then send the program again."
    return refused([diagnostic("error", "TOO_MANY_WAITING", message, hint=hint)])


def store_away() -> RunResponse:
    """Return the answer where nobody can be asked, for what waits cannot be kept."""
    message = "the gateway's store cannot be used, in which programs and what they ask people are kept"
    hint = f"Tell the user that the store of the gateway cannot be used: its log says why. {_MAY_BE_DONE}"
    return refused([diagnostic("error", "STORE_UNAVAILABLE", message, hint=hint)])


def _call(question: Question) -> dict[str, Any]:
    line = {} if question.line is None else {"line": question.line}
    asks = "outcome" if question.kind == "unknown" else "sign-in" if question.kind == "sign-in" else "approval"
    return {"serverId": _short(question.server), "toolName": _short(question.tool), **line, "asks": asks}


def _name(question: Question) -> str:
    return f"{_short(question.server)}.{_short(question.tool)}"


def _short(text: str) -> str:
    return well_formed(one_line(text, _MAX_NAME_CHARACTERS))
