"""Read answers to pending requests strictly, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeGuard

from ..data.exact_integers import POINTERS_KEY, restore_edited_integers, restore_listed_integers
from ..data.json_values import decode_json, encode_json, require_max_values_in_host_value
from ..data.narrowing import is_object, mapping_or_empty
from ..errors import CodeModeError, CodeModeProtocolError, CodeModeSerializationError, CodeModeToolError
from ..protocol.ledger import UNKNOWN_OUTCOME_KIND, Fulfilled, LedgerEntry, Outcome, Rejected, Waiting
from ..records import record
from .approval import ApprovalDecision, parse_decision
from .interrupt import APPROVAL_KIND

_NO_EDIT: Any = object()


@record
class ApprovalAnswer:
    """A person's decision. ``input_json`` is the edited input, None if the call runs as displayed."""

    decision: ApprovalDecision
    input_json: str | None


@record
class ToolInterruptAnswer:
    """The answer to a tool that called `request_interrupt`."""

    resolution: Any


@record
class KnownOutcomeAnswer:
    """The reported outcome of a call whose outcome was unknown."""

    outcome: Outcome
    error: CodeModeError | None


@record
class RunAgainAnswer:
    """A call of unknown outcome runs once more."""


Answer: TypeAlias = ApprovalAnswer | ToolInterruptAnswer | KnownOutcomeAnswer | RunAgainAnswer


def read_answers(
    entries: list[LedgerEntry], resolutions: Mapping[str, Any], max_values: int | None = None
) -> dict[int, Answer]:
    """Return the answer of each answered ledger entry. No answer may hold more than ``max_values`` values.

    Raises `CodeModeProtocolError` for a malformed one.
    """
    if not resolutions:
        raise CodeModeProtocolError(
            'no pending request was answered: give an answer, such as {"approved": True}, or several by their request'
            " ids (resolutions)"
        )
    waiting = {entry.outcome.interrupt_id: entry for entry in entries if isinstance(entry.outcome, Waiting)}
    unknown = [request_id for request_id in resolutions if request_id not in waiting]
    if unknown:
        raise CodeModeProtocolError(
            f"{unknown[0]!r} is not a pending request; pending are {', '.join(map(repr, waiting)) or 'none'}"
        )
    if max_values is not None:
        _require_max_values(resolutions, max_values)
    return {
        waiting[request_id].id: _read_answer(waiting[request_id], resolution)
        for request_id, resolution in resolutions.items()
    }


def _require_max_values(resolutions: Mapping[str, Any], max_values: int) -> None:
    for resolution in resolutions.values():
        try:
            require_max_values_in_host_value(resolution, max_values, "the resolution")
        except CodeModeSerializationError as error:
            raise CodeModeProtocolError(error.message) from error


def _read_answer(entry: LedgerEntry, resolution: Any) -> Answer:
    kind = get_waiting_kind(entry)
    if kind == APPROVAL_KIND:
        return _read_approval(entry, resolution)
    if kind == UNKNOWN_OUTCOME_KIND:
        return _read_outcome_answer(entry, resolution)
    _encode_plain_json(resolution, "the resolution")
    return ToolInterruptAnswer(resolution)


def _read_approval(entry: LedgerEntry, resolution: Any) -> ApprovalAnswer:
    answer = _parse_answer_object(resolution, {"approved", "reason", "input"}, "an approval", '{"approved": True}')
    try:
        decision = parse_decision(answer, "an approval")
    except ValueError as error:
        raise CodeModeProtocolError(str(error)) from None
    edited = answer.get("input", _NO_EDIT)
    if edited is not _NO_EDIT and not decision.approved:
        raise CodeModeProtocolError("a denial cannot carry an edited 'input'")
    edited_json = (
        None if edited is _NO_EDIT else _encode_plain_json(_restore_integers(entry, edited), "the edited input")
    )
    return ApprovalAnswer(decision, edited_json)


def _read_outcome_answer(entry: LedgerEntry, resolution: Any) -> Answer:
    expected = '{"value": ...}, {"error": {"message": "..."}} or {"runAgain": true}'
    keys, what = {"value", "error", "runAgain", "run_again"}, "an unknown outcome's answer"
    answer = _parse_answer_object(resolution, keys, what, '{"runAgain": True}')
    if len(answer) != 1 or (entry.kind == "fetch" and "value" in answer):
        raise CodeModeProtocolError(f"a call of unknown outcome is answered with {expected}")
    ((key, value),) = answer.items()
    if key == "value":
        return KnownOutcomeAnswer(Fulfilled(None if value is None else _encode_plain_json(value, "the value")), None)
    if key == "error":
        message = mapping_or_empty(value).get("message")
        if not isinstance(message, str):
            raise CodeModeProtocolError("an error needs a string 'message'")
        error = CodeModeToolError(message, details={"tool_name": entry.name, "tool_call_id": entry.tool_call_id})
        return KnownOutcomeAnswer(Rejected(type(error).__name__, message, error.code), error)
    if value is not True:
        raise CodeModeProtocolError(f"a call of unknown outcome is answered with {expected}")
    return RunAgainAnswer()


def _encode_plain_json(value: Any, what: str) -> str:
    try:
        return encode_json(value, what=what)
    except CodeModeSerializationError as error:
        raise CodeModeProtocolError(error.message) from error


def _restore_integers(entry: LedgerEntry, edited: Any) -> Any:
    """Return an edit with integers restored that a page had as text."""
    outcome = entry.outcome
    if not isinstance(outcome, Waiting) or outcome.input_json is None:
        return edited
    try:
        return restore_edited_integers(decode_json(outcome.input_json), edited)
    except (ValueError, TypeError, RecursionError) as error:
        raise CodeModeProtocolError(f"the edited input is refused: {error}") from error


def _parse_answer_object(resolution: Any, keys: set[str], what: str, example: str) -> dict[str, Any]:
    if not is_object(resolution) or not resolution.keys() - {POINTERS_KEY} <= keys:
        allowed_keys = ", ".join(sorted(keys))
        raise CodeModeProtocolError(f"{what} must be an object with keys among {allowed_keys}, such as {example}")
    try:
        return restore_listed_integers(resolution)
    except (ValueError, TypeError, RecursionError) as error:
        raise CodeModeProtocolError(f"{what} is malformed: {error}") from error


def get_waiting_kind(entry: LedgerEntry) -> str:
    """Return why a request waits."""
    if not isinstance(entry.outcome, Waiting):
        return ""
    payload: object = decode_json(entry.outcome.payload_json)
    return str(payload.get("kind")) if is_object(payload) else ""


def allows_tool_to_run(answer: Answer) -> bool:
    """Return True when an answer lets the tool run."""
    return not isinstance(answer, KnownOutcomeAnswer) and not is_denial(answer)


def has_edited_input(answer: Answer | None) -> bool:
    """Return True if a person has edited the input of the call."""
    return isinstance(answer, ApprovalAnswer) and answer.input_json is not None


def is_denial(answer: Answer | None) -> TypeGuard[ApprovalAnswer]:
    """Return True if a person has denied the call."""
    return isinstance(answer, ApprovalAnswer) and not answer.decision.approved
