"""Answers to pending requests: read strictly, before anything runs. Resumes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeGuard, cast

from .approval import Decision
from .catalog import Catalog
from .errors import CodeModeError, CodeModeProtocolError, CodeModeSerializationError, CodeModeToolError
from .exact_integers import PLACES_KEY, integers_as_in, without_texts
from .interrupts import APPROVAL_KIND
from .protocol.ledger import UNKNOWN_OUTCOME_KIND, Fulfilled, LedgerEntry, Outcome, Rejected, Waiting
from .records import record
from .schemas import completed, with_fresh
from .tools import MISSING, Tool, ValidatedInput
from .values import canonical_json, decode_json, encode_json, refuse_too_many

_NO_EDIT: Any = object()
_MAX_EDITED_PARTS = 64


@record
class Approval:
    """A person's decision. ``input_json`` is the edited input, None when the call runs as it was shown."""

    decision: Decision
    input_json: str | None


@record
class HostAnswer:
    """What the tool asked for with `request_interrupt`."""

    resolution: Any


@record
class KnownOutcome:
    """How a call of unknown outcome really ended."""

    outcome: Outcome
    error: CodeModeError | None


@record
class RunAgain:
    """A call of unknown outcome is to run once more."""


Answer: TypeAlias = Approval | HostAnswer | KnownOutcome | RunAgain


def read_answers(
    entries: list[LedgerEntry], resolutions: Mapping[str, Any], max_values: int | None = None
) -> dict[int, Answer]:
    """Return the answer for each ledger entry that gets one. None may hold more than ``max_values``.

    Raises `CodeModeProtocolError` for a malformed one.
    """
    if not resolutions:
        raise CodeModeProtocolError("no pending request was answered")
    waiting = {entry.outcome.interrupt_id: entry for entry in entries if isinstance(entry.outcome, Waiting)}
    unknown = [request_id for request_id in resolutions if request_id not in waiting]
    if unknown:
        raise CodeModeProtocolError(
            f"{unknown[0]!r} is not a pending request; pending are {', '.join(map(repr, waiting)) or 'none'}"
        )
    if max_values is not None:
        _require_few(resolutions, max_values)
    return {
        waiting[request_id].id: _read_answer(waiting[request_id], resolution)
        for request_id, resolution in resolutions.items()
    }


def _require_few(resolutions: Mapping[str, Any], max_values: int) -> None:
    for resolution in resolutions.values():
        try:
            refuse_too_many(resolution, max_values, "the resolution")
        except CodeModeSerializationError as error:
            raise CodeModeProtocolError(error.message) from error


def _read_answer(entry: LedgerEntry, resolution: Any) -> Answer:
    kind = waiting_kind(entry)
    if kind == APPROVAL_KIND:
        return _read_approval(entry, resolution)
    if kind == UNKNOWN_OUTCOME_KIND:
        return _read_known_outcome(entry, resolution)
    _plain_json(resolution, "the resolution")
    return HostAnswer(resolution)


def _read_approval(entry: LedgerEntry, resolution: Any) -> Approval:
    answer = _answer_object(resolution, {"approved", "reason", "input"}, "an approval")
    approved, reason, edited = answer.get("approved"), answer.get("reason"), answer.get("input", _NO_EDIT)
    if not isinstance(approved, bool):
        raise CodeModeProtocolError("an approval needs a boolean 'approved'")
    if reason is not None and not isinstance(reason, str):
        raise CodeModeProtocolError("an approval's 'reason' must be a string")
    if edited is not _NO_EDIT and not approved:
        raise CodeModeProtocolError("a denial cannot carry an edited 'input'")
    edited_json = None if edited is _NO_EDIT else _plain_json(_with_integers(entry, edited), "the edited input")
    return Approval(Decision(approved, reason), edited_json)


def _read_known_outcome(entry: LedgerEntry, resolution: Any) -> Answer:
    expected = '{"value": ...}, {"error": {"message": "..."}} or {"runAgain": true}'
    answer = _answer_object(resolution, {"value", "error", "runAgain", "run_again"}, "an unknown outcome's answer")
    if len(answer) != 1 or (entry.kind == "fetch" and "value" in answer):
        raise CodeModeProtocolError(f"a call of unknown outcome is answered with {expected}")
    ((key, value),) = answer.items()
    if key == "value":
        return KnownOutcome(Fulfilled(None if value is None else _plain_json(value, "the value")), None)
    if key == "error":
        message = cast("dict[str, Any]", value).get("message") if isinstance(value, dict) else None
        if not isinstance(message, str):
            raise CodeModeProtocolError("an error needs a string 'message'")
        error = CodeModeToolError(message, details={"tool_name": entry.name, "tool_call_id": entry.tool_call_id})
        return KnownOutcome(Rejected(type(error).__name__, message, error.code), error)
    if value is not True:
        raise CodeModeProtocolError(f"a call of unknown outcome is answered with {expected}")
    return RunAgain()


def _plain_json(value: Any, what: str) -> str:
    try:
        return encode_json(value, what=what)
    except CodeModeSerializationError as error:
        raise CodeModeProtocolError(error.message) from error


def _with_integers(entry: LedgerEntry, edited: Any) -> Any:
    """Return an edit with integers where it has what a page was shown of them: their text."""
    outcome = entry.outcome
    if not isinstance(outcome, Waiting) or outcome.input_json is None:
        return edited
    try:
        return integers_as_in(decode_json(outcome.input_json), edited)
    except (ValueError, TypeError, RecursionError) as error:
        raise CodeModeProtocolError(f"the edited input is refused: {error}") from error


def _answer_object(resolution: Any, keys: set[str], what: str) -> dict[str, Any]:
    answer = cast("dict[str, Any]", resolution)
    if not isinstance(resolution, dict) or not set(answer) - {PLACES_KEY} <= keys:
        raise CodeModeProtocolError(f"{what} must be an object with keys among {', '.join(sorted(keys))}")
    try:
        return without_texts(answer)
    except (ValueError, TypeError, RecursionError) as error:
        raise CodeModeProtocolError(f"{what} is malformed: {error}") from error


def waiting_kind(entry: LedgerEntry) -> str:
    """Return why a request waits."""
    if not isinstance(entry.outcome, Waiting):
        return ""
    payload = decode_json(entry.outcome.payload_json)
    return str(cast("dict[str, Any]", payload).get("kind")) if isinstance(payload, dict) else ""


@record
class CheckedInput:
    """A validated input, and the JSON text of what a person is shown of it; None where nobody will ask for that."""

    validated: ValidatedInput
    shown_json: str | None


def input_to_run(tool: Tool, entry: LedgerEntry, edited_json: str | None = None) -> ValidatedInput:
    """Return the validated input of a call: the edited one, what was allowed or shown, or what the guest issued.

    Raises `CodeModeToolError` for wrong input; `CodeModeProtocolError` when the input of a call that was shown to a
    person would now come out differently, or the edited one is wrong.
    """
    if edited_json is not None:
        return _edited(tool, edited_json)
    shown_json = entry.executed_input_json
    if shown_json is None and isinstance(entry.outcome, Waiting):
        shown_json = entry.outcome.input_json
    if shown_json is None:
        return tool.validate_input(_issued(entry))
    return _as_shown(tool, entry, shown_json)


def _as_shown(tool: Tool, entry: LedgerEntry, shown_json: str) -> ValidatedInput:
    """Return the value that was shown, made of what was issued, that with the defaults that were shown, or of itself.

    A default may be new each time, and a validator may change what it has made, or only what is no default.
    """
    again = made = decode_json(shown_json)
    issued, shown, reason = _issued(entry), canonical_json(made), ""
    given: Any = {} if issued is MISSING else issued
    ways: tuple[Callable[[Any], Any], ...] = (
        lambda _: issued,
        lambda again: with_fresh(given, made, again),
        lambda _: completed(given, made),
        lambda _: made,
    )
    for way in ways:
        try:
            validated = tool.validate_input(way(again))
        except CodeModeToolError as error:
            reason = f" ({error.message})"
            continue
        if _shown(validated) == shown:
            return validated
        again = validated.json_value
    raise CodeModeProtocolError(
        f"the input of tool {tool.name!r} does not come out as it was shown: its schema has changed, or gives another"
        f" value each time{reason}"
    )


def _issued(entry: LedgerEntry) -> Any:
    return MISSING if entry.input_json is None else decode_json(entry.input_json)


def _edited(tool: Tool, edited_json: str) -> ValidatedInput:
    edited = decode_json(edited_json)
    try:
        validated = tool.validate_input(edited)
    except CodeModeToolError as error:
        raise CodeModeProtocolError(f"the edited input of tool {tool.name!r} is wrong: {error.message}") from error
    if _is_ambiguous(tool, edited, validated):
        raise CodeModeProtocolError(
            f"the edited input of tool {tool.name!r} is refused: its schema changes a value each time it is applied,"
            " so nobody can tell whether the edit is what the tool is to get; allow the call as shown, or deny it"
        )
    return validated


def _is_ambiguous(tool: Tool, edited: Any, validated: ValidatedInput) -> bool:
    """Return True when what the schema makes of an edit could be an edit too, and would come to something else."""
    made: Any = validated.json_value
    if not isinstance(made, dict) or not isinstance(edited, dict):
        return _is_changed(tool, made, lambda again: again, made)
    shown, given = cast("dict[str, Any]", made), cast("dict[str, Any]", edited)
    keys = given.keys() & shown.keys()
    if len(keys) > _MAX_EDITED_PARTS:
        return _is_changed(tool, shown, lambda again: again, shown)
    # Part by part: what the schema makes of another part may be no input.
    return any(
        _is_changed(tool, {**given, key: shown[key]}, lambda again, key=key: again.get(key), shown[key]) for key in keys
    )


def _is_changed(tool: Tool, plain: Any, part: Callable[[Any], Any], made: Any) -> bool:
    try:
        again = tool.validate_input(plain).json_value
    except CodeModeToolError:
        return False
    return canonical_json(part(again)) != canonical_json(made)


def _shown(validated: ValidatedInput) -> str:
    return canonical_json(validated.json_value)


def check_answers(
    catalog: Catalog[Tool], entries: list[LedgerEntry], answers: Mapping[int, Answer]
) -> dict[int, CheckedInput]:
    """Return what every answered call will run with, by request id. Raises `CodeModeProtocolError` where it cannot.

    A denial or a known outcome runs nothing. A tool that is gone is left to the run: the guest gets the ordinary error
    for an unknown tool.
    """
    inputs: dict[int, CheckedInput] = {}
    for entry in entries:
        answer, tool = answers.get(entry.id), catalog.get(entry.name)
        if entry.kind != "tool" or answer is None or tool is None or not runs_tool(answer):
            continue
        try:
            validated = input_to_run(tool, entry, answer.input_json if isinstance(answer, Approval) else None)
            inputs[entry.id] = CheckedInput(validated, _shown(validated))
        except ValueError as error:
            raise CodeModeProtocolError(f"the input of tool {entry.name!r} cannot be read: {error}") from error
        except CodeModeToolError as error:
            raise CodeModeProtocolError(
                f"the input of tool {entry.name!r} is no longer valid: its schema has changed ({error.message})"
            ) from error
    return inputs


def runs_tool(answer: Answer) -> bool:
    """Return True when an answer lets the tool run."""
    return not isinstance(answer, KnownOutcome) and not is_denial(answer)


def is_denial(answer: Answer | None) -> TypeGuard[Approval]:
    """Return True when a person has said no."""
    return isinstance(answer, Approval) and not answer.decision.approved
