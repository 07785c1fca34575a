"""Answers to kept requests, read as a resume will read them, before they are recorded. Pure: knows no database."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from ..data.exact_integers import integers_as_in, without_texts
from ..data.json_values import canonical_json, encode_json
from ..data.narrowing import is_object
from ..errors import CodeModeError, CodeModeProtocolError
from ..interrupts.interrupt import APPROVAL_KIND
from ..interrupts.resolutions import read_answers
from ..protocol.ledger import LedgerEntry, Waiting
from ..schemas.compiled import SchemaMismatch
from ..schemas.json_schemas import DictSchema
from .errors import AnswerRefused
from .protocol import StoredRequest


def digest_of(interrupt_id: str, tool_name: str, given: Any, kind: str) -> str:
    """Return the digest of what a person was shown."""
    shown = canonical_json({"id": interrupt_id, "tool": tool_name, "input": given, "kind": kind})
    return hashlib.sha256(shown.encode()).hexdigest()


def decision_texts(decisions: Mapping[str, Any]) -> dict[str, str]:
    """Write decisions in the one form in which they are kept and compared. Raises `AnswerRefused`."""
    texts: dict[str, str] = {}
    for interrupt_id, decision in decisions.items():
        try:
            texts[interrupt_id] = canonical_json(_plain(decision))
        except CodeModeError as error:
            raise _refused({interrupt_id: [error.message]}) from error
    return texts


def check_answers(requests: Iterable[StoredRequest], decisions: Mapping[str, Any]) -> None:
    """Refuse answers that do not fit, with every problem of each. Raises `AnswerRefused`."""
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
        edited = integers_as_in(request.input, without_texts(decision)["input"])
    except CodeModeProtocolError as error:
        return [error.message]
    except (ValueError, TypeError, RecursionError) as error:
        return [f"the edited input is refused: {error}"]
    return [] if request.input_schema is None else _misfits(request.input_schema, edited)


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
    shown, payload = encode_json(request.input, what="the input"), encode_json(dict(request.payload), what="payload")
    waiting = Waiting(request.interrupt_id, payload, shown, 1)
    return LedgerEntry(1, "tool", request.tool_name, shown, outcome=waiting)


def _plain(decision: Any) -> Any:
    import json

    return json.loads(encode_json(decision, what="the decision"))


def _refused(problems: dict[str, list[str]]) -> AnswerRefused:
    said = "; ".join(f"{interrupt_id!r}: {', '.join(found)}" for interrupt_id, found in problems.items())
    return AnswerRefused(f"an answer does not fit: {said}", details={"problems": problems})
