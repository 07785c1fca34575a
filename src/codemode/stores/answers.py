"""Validate decisions before they are stored, and describe how edited inputs differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..data.json_values import canonical_json, encode_json
from ..data.narrowing import is_array, is_mapping, is_object
from ..errors import CodeModeError, CodeModeProtocolError
from ..interrupts.interrupt import APPROVAL_KIND, PendingRequest
from ..interrupts.resolutions import read_answers
from ..options.checked_fields import WrongTypeError
from ..protocol.ledger import UNKNOWN_OUTCOME_KIND, LedgerEntry, Waiting
from ..records import record
from ..schemas.compiled import SchemaMismatch
from ..schemas.json_schemas import DictSchema
from .audit import content_digest, cut
from .errors import AnswerRefusedError
from .records import StoredRequest

MOST_PLACES = 50
_PLACE_CHARACTERS = 200
_VALUE_CHARACTERS = 200
_ABSENT: Any = object()


def differences(before: Any, after: Any) -> list[dict[str, Any]]:
    """Return what differs, at most `MOST_PLACES`: ``path``, a JSON pointer, with ``from`` and ``to``.

    What was added has no ``from``, what was left out no ``to``. Of a long value there are ``from_start`` or
    ``to_start``, the beginning of its JSON, and ``from_digest`` or ``to_digest`` instead. Where there is more, an entry
    ``{"more": True}`` ends the list.
    """
    found: list[dict[str, Any]] = []
    for path, was, now in _places(before, after):
        if len(found) == MOST_PLACES:
            return [*found, {"more": True}]
        found.append({"path": path, **_told("from", was), **_told("to", now)})
    return found


def _places(before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    # A stack of its own: the values nest as deeply as JSON may.
    left: list[tuple[str, Any, Any]] = [("", before, after)]
    while left:
        path, was, now = left.pop()
        members = _members(was, now)
        if members is not None:
            left += [(_below(path, name), *pair) for name, *pair in reversed(members)]
        elif not _is_same(was, now):
            yield path, was, now


def _members(was: Any, now: Any) -> list[tuple[str, Any, Any]] | None:
    if is_object(was) and is_object(now):
        names = dict.fromkeys((*was, *now))
        return [(name, was.get(name, _ABSENT), now.get(name, _ABSENT)) for name in names]
    if is_array(was) and is_array(now):
        longest = max(len(was), len(now))
        return [(str(at), _item(was, at), _item(now, at)) for at in range(longest)]
    return None


def _item(items: list[Any], at: int) -> Any:
    return items[at] if at < len(items) else _ABSENT


def _is_same(was: Any, now: Any) -> bool:
    return type(was) is type(now) and was == now  # True is 1 elsewhere


def _below(path: str, name: str) -> str:
    if len(path) >= _PLACE_CHARACTERS:
        return path
    below = f"{path}/{name[:_PLACE_CHARACTERS].replace('~', '~0').replace('/', '~1')}"
    return below if len(below) <= _PLACE_CHARACTERS else f"{below[: _PLACE_CHARACTERS - 3]}..."


def _told(which: str, value: Any) -> dict[str, Any]:
    if value is _ABSENT:
        return {}
    text = canonical_json(value)
    if len(text) <= _VALUE_CHARACTERS:
        return {which: value}
    return {f"{which}_start": text[:_VALUE_CHARACTERS], f"{which}_digest": hashlib.sha256(text.encode()).hexdigest()}


@record
class Answer:
    """A decision as it is kept and compared.

    ``said`` is what the audit has of it; None when its request did not wait, so that nobody has looked whether it fits.
    """

    text: str
    said: Mapping[str, Any] | None


def shown(request: StoredRequest | PendingRequest) -> str:
    """Return the digest of what a person was shown."""
    if not isinstance(request, StoredRequest | PendingRequest):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongTypeError(f"request must be one of the requests of a record or an interrupt, got {request!r:.200}")
    kind, given = (request.kind, request.input) if isinstance(request, StoredRequest) else asked(request)
    return content_digest({"id": request.interrupt_id, "tool": request.tool_name, "input": given, "kind": kind})


def asked(request: PendingRequest) -> tuple[str, Any]:
    """Return of which kind a request is for people, and what they are shown.

    A framework that gates its tools itself asks in its own words: ``asksApproval`` says that it is an approval all the
    same, of ``args``.
    """
    payload = request.payload
    if payload.get("asksApproval") is True and "args" in payload:
        return APPROVAL_KIND, payload["args"]
    return str(payload.get("kind", "")), request.input


def read(
    requests: Iterable[StoredRequest], decisions: Mapping[str, Any], texts: Mapping[str, str]
) -> dict[str, Answer]:
    """Return the answers, with what the audit has of those to these requests. Raises `AnswerRefusedError`."""
    waiting = list(requests)
    check_answers(waiting, decisions)
    said = {one.interrupt_id: _said(one, json.loads(texts[one.interrupt_id])) for one in waiting}
    return {name: Answer(text, said.get(name)) for name, text in texts.items()}


def require_decisions(decisions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return answers by request id. Raises `ValueError` for what is no mapping."""
    if not is_mapping(decisions):
        raise WrongTypeError(f"decisions must be a mapping of request ids to answers, got {decisions!r:.200}")
    return decisions


def decision_texts(decisions: Mapping[str, Any]) -> dict[str, str]:
    """Write decisions in the one form in which they are kept and compared. Raises `AnswerRefusedError`."""
    texts: dict[str, str] = {}
    for interrupt_id, decision in decisions.items():
        try:
            texts[interrupt_id] = canonical_json(_plain(decision))
        except CodeModeError as error:
            raise _refused({interrupt_id: [error.message]}) from error
    return texts


def check_answers(requests: Iterable[StoredRequest], decisions: Mapping[str, Any]) -> None:
    """Refuse answers that do not fit, with every problem of each. Raises `AnswerRefusedError`."""
    problems: dict[str, list[str]] = {}
    for request in requests:
        found = _problems(request, decisions[request.interrupt_id])
        if found:
            problems[request.interrupt_id] = found
    if problems:
        raise _refused(problems)


def _problems(request: StoredRequest, decision: Any) -> list[str]:
    try:
        read_answers([_entry(request)], {request.interrupt_id: decision})
        if request.kind != APPROVAL_KIND or not is_object(decision) or "input" not in decision:
            return []
        edited = request.read_edited_input(decision)
    except CodeModeProtocolError as error:
        return [error.message]
    except (ValueError, TypeError, RecursionError) as error:
        return [f"the edited input is refused: {error}"]
    return [] if request.input_schema is None else _misfits(request.input_schema, edited)


def _said(request: StoredRequest, decision: Any) -> dict[str, Any]:
    """Say what was decided, of what is no input only a digest: answers may be secrets."""
    if request.kind == UNKNOWN_OUTCOME_KIND:
        ((name, value),) = decision.items()
        if name in ("value", "error"):
            return {"decision": name, "digest": content_digest(value)}
        return {"decision": "run_again"}
    if request.kind != APPROVAL_KIND:
        return {"decision": "answered", "digest": content_digest(decision)}
    reason = cut(decision.get("reason") or "") or None
    said = {"decision": "approved" if decision["approved"] else "denied", "reason": reason}
    if "input" not in decision:
        return said
    edited = request.read_edited_input(decision)
    diff = differences(request.input, edited)
    return {**said, "decision": "edited" if diff else "approved", "digest": content_digest(edited), "diff": tuple(diff)}


def _misfits(schema: Any, edited: Any) -> list[str]:
    try:
        DictSchema(schema).validate_input(edited)
    except SchemaMismatch as mismatch:
        return [f"{one['path'] or 'input'}: {one['message']}" for one in mismatch.problems]
    except ValueError:
        return []  # what cannot be compiled here is checked where the tool is
    return []


def _entry(request: StoredRequest) -> LedgerEntry:
    """Return a ledger entry that waits as the request does: what reads an answer asks nothing else of it."""
    given = encode_json(request.input, what="the input")
    payload = encode_json({**request.payload, "kind": request.kind}, what="payload")
    waiting = Waiting(request.interrupt_id, payload, given, 1)
    return LedgerEntry(1, "tool", request.tool_name, given, outcome=waiting)


def _plain(decision: Any) -> Any:
    return json.loads(encode_json(decision, what="the decision"))


def _refused(problems: dict[str, list[str]]) -> AnswerRefusedError:
    said = "; ".join(f"{interrupt_id!r}: {', '.join(found)}" for interrupt_id, found in problems.items())
    return AnswerRefusedError(f"an answer does not fit: {said}", details={"problems": problems})
