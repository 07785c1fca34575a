"""Answers to pending requests: read strictly, before anything runs. Resumes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from .approval import Decision
from .catalog import Catalog
from .errors import CodeModeError, CodeModeProtocolError, CodeModeSerializationError, CodeModeToolError
from .interrupts import APPROVAL_KIND
from .protocol.ledger import UNKNOWN_OUTCOME_KIND, Fulfilled, LedgerEntry, Outcome, Rejected, Waiting
from .records import record
from .tools import MISSING, Tool, ValidatedInput
from .values import canonical_json, decode_json, encode_json, refuse_too_many

_NO_EDIT: Any = object()


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
        return _read_approval(resolution)
    if kind == UNKNOWN_OUTCOME_KIND:
        return _read_known_outcome(entry, resolution)
    _plain_json(resolution, "the resolution")
    return HostAnswer(resolution)


def _read_approval(resolution: Any) -> Approval:
    answer = _answer_object(resolution, {"approved", "reason", "input"}, "an approval")
    approved, reason, edited = answer.get("approved"), answer.get("reason"), answer.get("input", _NO_EDIT)
    if not isinstance(approved, bool):
        raise CodeModeProtocolError("an approval needs a boolean 'approved'")
    if reason is not None and not isinstance(reason, str):
        raise CodeModeProtocolError("an approval's 'reason' must be a string")
    if edited is not _NO_EDIT and not approved:
        raise CodeModeProtocolError("a denial cannot carry an edited 'input'")
    edited_json = None if edited is _NO_EDIT else _plain_json(edited, "the edited input")
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


def _answer_object(resolution: Any, keys: set[str], what: str) -> dict[str, Any]:
    answer = cast("dict[str, Any]", resolution)
    if not isinstance(resolution, dict) or not set(answer) <= keys:
        raise CodeModeProtocolError(f"{what} must be an object with keys among {', '.join(sorted(keys))}")
    return answer


def waiting_kind(entry: LedgerEntry) -> str:
    """Return why a request waits."""
    if not isinstance(entry.outcome, Waiting):
        return ""
    payload = decode_json(entry.outcome.payload_json)
    return str(cast("dict[str, Any]", payload).get("kind")) if isinstance(payload, dict) else ""


def input_to_run(tool: Tool, entry: LedgerEntry, edited_json: str | None = None) -> ValidatedInput:
    """Return the validated input of a call: the edited one, the allowed one, or what the guest issued.

    Raises `CodeModeToolError` for wrong input; `CodeModeProtocolError` when the input of a call that was shown to a
    person would now come out differently, or the edited one is wrong.
    """
    if edited_json is not None:
        return _revalidated(tool, edited_json, "the edited input")
    if entry.executed_input_json is not None:
        return _unchanged(tool, entry, entry.executed_input_json)
    issued = MISSING if entry.input_json is None else decode_json(entry.input_json)
    validated = tool.validate_input(issued)
    if isinstance(entry.outcome, Waiting) and entry.outcome.input_json is not None:
        shown_json = entry.outcome.input_json
        if _shown(validated) not in (_canonical(shown_json), _shown(tool.validate_input(issued))):
            # The schema itself fills in something new each time, an id or a time.
            validated = _revalidated(tool, shown_json, "the shown input")
        _require_same(tool, validated, shown_json)
    return validated


def _unchanged(tool: Tool, entry: LedgerEntry, allowed_json: str) -> ValidatedInput:
    if entry.input_json is not None:
        # An input that was not edited is made from what the guest issued: its validated form need not validate again.
        try:
            validated = tool.validate_input(decode_json(entry.input_json))
        except CodeModeToolError:
            validated = None
        if validated is not None and _shown(validated) == _canonical(allowed_json):
            return validated
    validated = _revalidated(tool, allowed_json, "the allowed input")
    _require_same(tool, validated, allowed_json)
    return validated


def _revalidated(tool: Tool, text: str, what: str) -> ValidatedInput:
    try:
        return tool.validate_input(decode_json(text))
    except CodeModeToolError as error:
        raise CodeModeProtocolError(f"{what} of tool {tool.name!r} is wrong: {error.message}") from error


def _require_same(tool: Tool, validated: ValidatedInput, shown_json: str) -> None:
    if _shown(validated) != _canonical(shown_json):
        raise CodeModeProtocolError(
            f"the input of tool {tool.name!r} comes out differently than it was shown: its schema has changed"
        )


def _shown(validated: ValidatedInput) -> str:
    return canonical_json(validated.json_value)


def _canonical(text: str) -> str:
    return canonical_json(decode_json(text))


def check_answers(catalog: Catalog[Tool], entries: list[LedgerEntry], answers: Mapping[int, Answer]) -> None:
    """Check that every answered call would run with what was shown. Raises `CodeModeProtocolError`.

    A tool that is gone is left to the run: the guest gets the ordinary error for an unknown tool.
    """
    for entry in entries:
        answer, tool = answers.get(entry.id), catalog.get(entry.name)
        if entry.kind != "tool" or answer is None or tool is None or isinstance(answer, KnownOutcome):
            continue
        try:
            input_to_run(tool, entry, answer.input_json if isinstance(answer, Approval) else None)
        except ValueError as error:
            raise CodeModeProtocolError(f"the input of tool {entry.name!r} cannot be read: {error}") from error
        except CodeModeToolError as error:
            raise CodeModeProtocolError(
                f"the input of tool {entry.name!r} is no longer valid: its schema has changed ({error.message})"
            ) from error
