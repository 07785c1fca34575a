"""Validate decisions before they are stored, and describe how edited inputs differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..data.json_values import encode_canonical_json, encode_json
from ..data.narrowing import is_array, is_mapping, is_object
from ..data.rich_values import from_tagged_json, is_tag_or_escaped_object, tagged_to_plain_json
from ..errors import CodeModeError, CodeModeProtocolError
from ..interrupts.interrupt import APPROVAL_KIND, PendingRequest
from ..interrupts.resolutions import read_answers
from ..options.checked_fields import WrongTypeError
from ..protocol.ledger import UNKNOWN_OUTCOME_KIND, LedgerEntry, Waiting
from ..records import record
from ..schemas.compiled import SchemaMismatchError
from ..schemas.json_schemas import CompiledJsonSchema
from .audit import compute_json_digest, truncate_for_audit
from .errors import AnswerRefusedError
from .records import StoredRequest

MAX_DIFFERENCES = 50
_MAX_PATH_CHARACTERS = 200
_MAX_VALUE_CHARACTERS = 200
_ABSENT: Any = object()


def list_differences(before: Any, after: Any) -> list[dict[str, Any]]:
    """Return at most `MAX_DIFFERENCES` differences: ``path``, a JSON pointer, with ``from`` and ``to``.

    An added value has no ``from``, a removed one no ``to``. A long value is replaced by ``from_start`` or ``to_start``,
    the beginning of its JSON, and ``from_digest`` or ``to_digest``. A final entry ``{"more": True}`` means that there
    are more.
    """
    entries: list[dict[str, Any]] = []
    for path, old, new in _iter_differences(before, after):
        if len(entries) == MAX_DIFFERENCES:
            return [*entries, {"more": True}]
        entries.append({"path": path, **_create_difference_fields("from", old), **_create_difference_fields("to", new)})
    return entries


def _iter_differences(before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    # An explicit stack: values nest as deeply as JSON may.
    stack: list[tuple[str, Any, Any]] = [("", before, after)]
    while stack:
        path, old, new = stack.pop()
        members = _pair_members(old, new)
        if members is not None:
            stack += [(_append_to_limited_path(path, name), *values) for name, *values in reversed(members)]
        elif not _is_same_value(old, new):
            yield path, old, new


def _pair_members(old: Any, new: Any) -> list[tuple[str, Any, Any]] | None:
    if is_object(old) and is_object(new):
        names = dict.fromkeys((*old, *new))
        return [(name, old.get(name, _ABSENT), new.get(name, _ABSENT)) for name in names]
    if is_array(old) and is_array(new):
        length = max(len(old), len(new))
        return [
            (str(index), _get_item_or_absent(old, index), _get_item_or_absent(new, index)) for index in range(length)
        ]
    return None


def _get_item_or_absent(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _ABSENT


def _is_same_value(old: Any, new: Any) -> bool:
    return type(old) is type(new) and old == new  # True == 1 in Python


def _append_to_limited_path(path: str, name: str) -> str:
    if len(path) >= _MAX_PATH_CHARACTERS:
        return path
    child = f"{path}/{name[:_MAX_PATH_CHARACTERS].replace('~', '~0').replace('/', '~1')}"
    return child if len(child) <= _MAX_PATH_CHARACTERS else f"{child[: _MAX_PATH_CHARACTERS - 3]}..."


def _create_difference_fields(key: str, value: Any) -> dict[str, Any]:
    if value is _ABSENT:
        return {}
    text = encode_canonical_json(value)
    if len(text) <= _MAX_VALUE_CHARACTERS:
        return {key: value}
    return {f"{key}_start": text[:_MAX_VALUE_CHARACTERS], f"{key}_digest": hashlib.sha256(text.encode()).hexdigest()}


@record
class EncodedAnswer:
    """A decision as it is stored and compared.

    ``audit_fields`` go into the audit; None when the request was not waiting, so that the answer was not validated.
    """

    decision_json: str
    audit_fields: Mapping[str, Any] | None


def compute_display_digest(request: StoredRequest | PendingRequest) -> str:
    """Return the digest of what an approver saw."""
    if not isinstance(request, StoredRequest | PendingRequest):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongTypeError(f"request must be one of the requests of a record or an interrupt, got {request!r:.200}")
    kind, displayed_input = (
        (request.kind, request.input) if isinstance(request, StoredRequest) else get_displayed_kind_and_input(request)
    )
    return compute_json_digest(
        {"id": request.interrupt_id, "tool": request.tool_name, "input": displayed_input, "kind": kind}
    )


def get_displayed_kind_and_input(request: PendingRequest) -> tuple[str, Any]:
    """Return the kind of a request and the input that an approver sees.

    A framework that gates its tools itself asks with its own payload: ``asksApproval`` marks it as an approval of
    ``args``.
    """
    payload = request.payload
    if payload.get("asksApproval") is True and "args" in payload:
        return APPROVAL_KIND, payload["args"]
    return str(payload.get("kind", "")), request.input


def validate_answers_and_add_audit_fields(
    requests: Iterable[StoredRequest], decisions: Mapping[str, Any], decision_jsons: Mapping[str, str]
) -> dict[str, EncodedAnswer]:
    """Validate answers and add audit fields for the waiting requests. Raises `AnswerRefusedError`."""
    waiting = list(requests)
    require_valid_answers(waiting, decisions)
    audit_fields = {
        request.interrupt_id: _create_audit_fields(request, json.loads(decision_jsons[request.interrupt_id]))
        for request in waiting
    }
    return {
        name: EncodedAnswer(decision_json, audit_fields.get(name)) for name, decision_json in decision_jsons.items()
    }


def require_decision_mapping(decisions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return decisions by request id. Raises `ValueError` if they are not a mapping."""
    if not is_mapping(decisions):
        raise WrongTypeError(f"decisions must be a mapping of request ids to answers, got {decisions!r:.200}")
    return decisions


def encode_decisions(decisions: Mapping[str, Any]) -> dict[str, str]:
    """Encode decisions in the form in which they are stored and compared. Raises `AnswerRefusedError`."""
    decision_jsons: dict[str, str] = {}
    for interrupt_id, decision in decisions.items():
        try:
            decision_jsons[interrupt_id] = encode_canonical_json(_to_plain_json(decision))
        except CodeModeError as error:
            raise _create_answer_refused_error({interrupt_id: [error.message]}) from error
    return decision_jsons


def require_valid_answers(requests: Iterable[StoredRequest], decisions: Mapping[str, Any]) -> None:
    """Raise `AnswerRefusedError` with all problems of all invalid answers."""
    problems: dict[str, list[str]] = {}
    for request in requests:
        request_problems = _list_answer_problems(request, decisions[request.interrupt_id])
        if request_problems:
            problems[request.interrupt_id] = request_problems
    if problems:
        raise _create_answer_refused_error(problems)


def _list_answer_problems(request: StoredRequest, decision: Any) -> list[str]:
    try:
        read_answers([_to_ledger_entry(request)], {request.interrupt_id: decision})
        if request.kind != APPROVAL_KIND or not is_object(decision) or "input" not in decision:
            return []
        edited = request.read_edited_input(decision)
    except CodeModeProtocolError as error:
        return [error.message]
    except (ValueError, TypeError, RecursionError) as error:
        return [f"the edited input is refused: {error}"]
    return [] if request.input_schema is None else _list_schema_problems(request.input_schema, request.input, edited)


def _create_audit_fields(request: StoredRequest, decision: Any) -> dict[str, Any]:
    """Return the audit fields of a decision. Answers may be secrets: except for inputs, only digests are written."""
    if request.kind == UNKNOWN_OUTCOME_KIND:
        ((name, value),) = decision.items()
        if name in ("value", "error"):
            return {"decision": name, "digest": compute_json_digest(value)}
        return {"decision": "run_again"}
    if request.kind != APPROVAL_KIND:
        return {"decision": "answered", "digest": compute_json_digest(decision)}
    reason = truncate_for_audit(decision.get("reason") or "") or None
    audit_fields = {"decision": "approved" if decision["approved"] else "denied", "reason": reason}
    if "input" not in decision:
        return audit_fields
    edited = request.read_edited_input(decision)
    diff = list_differences(request.input, edited)
    return {
        **audit_fields,
        "decision": "edited" if diff else "approved",
        "digest": compute_json_digest(edited),
        "diff": tuple(diff),
    }


def _list_schema_problems(schema: Any, displayed: Any, edited: Any) -> list[str]:
    """Return the problems of an edited input, with its tags as data or as rich values, whichever are fewer.

    A record does not say whether its program has rich values. The schema is for plain JSON, which a valid input without
    its tags may violate, for example a maximum length in bytes. Problems that the displayed input has too are left to
    the tool's own check.
    """
    try:
        compiled = CompiledJsonSchema(schema)
        problems, untagged = _find_schema_problems(compiled, edited), _remove_tags(edited)
        if not problems or untagged == edited:
            return problems
        displayed_problems = _find_schema_problems(compiled, _remove_tags(displayed))
        untagged_problems = _find_schema_problems(compiled, untagged)
        return min([problem for problem in untagged_problems if problem not in displayed_problems], problems, key=len)
    except ValueError:
        return []  # checked again where the tool is


def _find_schema_problems(schema: CompiledJsonSchema, value: Any) -> list[str]:
    try:
        schema.validate_input(value)
    except SchemaMismatchError as mismatch:
        return [f"{problem['path'] or 'input'}: {problem['message']}" for problem in mismatch.problems]
    return []


def _remove_tags(value: Any) -> Any:
    """Return an input as plain JSON; a member with an invalid tag is left as it is."""
    if is_object(value) and not is_tag_or_escaped_object(value):
        return {name: _remove_tags_if_valid(member) for name, member in value.items()}
    return _remove_tags_if_valid(value)


def _remove_tags_if_valid(value: Any) -> Any:
    try:
        from_tagged_json(value)  # also checks dates and base64
        return tagged_to_plain_json(value)
    except ValueError:
        return value


def _to_ledger_entry(request: StoredRequest) -> LedgerEntry:
    """Return a ledger entry that waits as the request does, for `read_answers`."""
    input_json = encode_json(request.input, what="the input")
    payload = encode_json({**request.payload, "kind": request.kind}, what="payload")
    waiting = Waiting(request.interrupt_id, payload, input_json, 1)
    return LedgerEntry(1, "tool", request.tool_name, input_json, outcome=waiting)


def _to_plain_json(decision: Any) -> Any:
    return json.loads(encode_json(decision, what="the decision"))


def _create_answer_refused_error(problems: dict[str, list[str]]) -> AnswerRefusedError:
    text = "; ".join(f"{interrupt_id!r}: {', '.join(found)}" for interrupt_id, found in problems.items())
    return AnswerRefusedError(f"an answer does not fit: {text}", details={"problems": problems})
