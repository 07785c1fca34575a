"""Interrupts of a graph as requests of a store, and the decisions about them as what resumes it. Knows no store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic_core import to_jsonable_python

from codemode import CodeModeProtocolError, PendingRequest, StoredRequest
from codemode.plugins import (
    APPROVAL_KIND,
    UNKNOWN_OUTCOME_KIND,
    ToolForm,
    edited_input,
    same_json,
    with_texts,
    without_texts,
)

INTERRUPT_KIND = "langgraph/interrupt"
_ALONE = -1


@dataclass(frozen=True)
class Part:
    """Which interrupt a request is about, and which of the actions that it asks about together."""

    interrupt: str
    action: int = _ALONE
    allowed: tuple[str, ...] = ()

    @classmethod
    def of(cls, kept: Sequence[Any]) -> Part:
        """Read what `kept` gives."""
        interrupt, action, allowed = kept
        return cls(interrupt, action, tuple(allowed))

    @property
    def kept(self) -> list[Any]:
        """Plain JSON of it."""
        return [self.interrupt, self.action, list(self.allowed)]


@dataclass(frozen=True)
class Asked:
    """What a graph waits for: its requests, the part of an interrupt behind each, and what is known of the tools."""

    requests: tuple[PendingRequest, ...]
    parts: Mapping[str, Part]
    catalog: Mapping[str, ToolForm]


def asked_by(interrupts: Iterable[Any]) -> Asked:
    """Return what these interrupts ask."""
    requests: list[PendingRequest] = []
    parts: dict[str, Part] = {}
    catalog: dict[str, ToolForm] = {}
    for one in interrupts:
        shown = plain(one.value)
        for part, request in _requests(one.id, shown, plain(one.response_schema)):
            requests.append(request)
            parts[request.interrupt_id] = part
            if request.payload["kind"] == APPROVAL_KIND and "edit" in part.allowed:
                form = ToolForm(_schema_of_edits(plain(one.response_schema), request.tool_name))
                catalog.setdefault(request.tool_name, form)
    return Asked(tuple(requests), parts, catalog)


def plain(value: Any) -> Any:
    """Return plain JSON of what a graph or a node holds."""
    return to_jsonable_python(value, serialize_unknown=True, inf_nan_mode="null")


def _requests(interrupt_id: str, shown: Any, schema: Any) -> Iterable[tuple[Part, PendingRequest]]:
    # An answer that did not fit is asked for again under the same id; another question in its place has another one.
    name = f"{interrupt_id}:{hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:16]}"
    actions = _actions(shown)
    if actions is None:
        payload = {"kind": INTERRUPT_KIND, "value": shown, **({"schema": schema} if schema else {})}
        yield Part(interrupt_id), _request(name, "interrupt", "", shown, payload)
        return
    is_alone = shown.get("type") in ("tool_approval", "unknown_outcome")
    call_id = str(shown.get("tool_call_id") or "")
    # A program that was cut off is asked about as a whole: it is run again or not, and has no value.
    is_outcome = shown.get("type") == "unknown_outcome" and bool(call_id)
    for number, (action, allowed) in enumerate(actions):
        payload: dict[str, Any] = {"kind": UNKNOWN_OUTCOME_KIND if is_outcome else APPROVAL_KIND}
        if action.get("description"):
            payload["description"] = action["description"]
        request_id = name if is_alone else f"{name}:{number}"
        part = Part(interrupt_id, _ALONE if is_alone else number, allowed)
        yield part, _request(request_id, str(action["name"]), call_id, action.get("args"), payload)


def _request(request_id: str, tool: str, call_id: str, given: Any, payload: Any) -> PendingRequest:
    return PendingRequest(interrupt_id=request_id, tool_name=tool, tool_call_id=call_id, input=given, payload=payload)


def _actions(shown: Any) -> list[tuple[dict[str, Any], tuple[str, ...]]] | None:
    """Return the calls that a question is about, with what may be decided; None for a question of another shape."""
    if not isinstance(shown, dict):
        return None
    value = cast("dict[str, Any]", shown)
    try:
        exact = without_texts(value) if "bigIntegers" in value else value
        actions, configs = exact["action_requests"], exact["review_configs"]
        reviews = [(str(one["action_name"]), tuple(one["allowed_decisions"])) for one in configs]
        allowed = _in_order([str(one["name"]) for one in actions], reviews)
        found = [(dict(one), may) for one, may in zip(actions, allowed, strict=True)]
    except (KeyError, TypeError, ValueError):
        return None
    decides = {"approve", "reject"}
    return found if found and all(decides & set(allowed) for _, allowed in found) else None


def _in_order(names: list[str], reviews: list[tuple[str, tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """Return what may be decided about each call: by its place, else what all reviews of its name allow.

    Raises `KeyError` for a call without a review.
    """
    if names == [name for name, _ in reviews]:
        return [allowed for _, allowed in reviews]
    by_name: dict[str, tuple[str, ...]] = {}
    for name, allowed in reviews:
        by_name[name] = tuple(one for one in by_name.get(name, allowed) if one in allowed)
    return [by_name[name] for name in names]


def _schema_of_edits(schema: Any, tool_name: str) -> Any:
    """Return what an edited input of a tool must be, of the schema of an answer; None where that does not say."""
    definitions: Any = cast("dict[str, Any]", schema).get("$defs", {}) if isinstance(schema, dict) else {}
    for one in definitions.values():
        properties = one.get("properties", {})
        if set(properties) == {"name", "args"} and properties["name"].get("const", tool_name) == tool_name:
            return properties["args"]
    return None


def resume_values(
    requests: Iterable[StoredRequest], parts: Mapping[str, Part], answers: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what answers each interrupt whose requests are all answered, by its id.

    Raises `CodeModeProtocolError` for a decision that is not allowed.
    """
    asked = {one.interrupt_id: one for one in requests}
    by_interrupt: dict[str, list[tuple[Part, str]]] = {}
    for request_id, part in parts.items():
        by_interrupt.setdefault(part.interrupt, []).append((part, request_id))
    values: dict[str, Any] = {}
    for interrupt_id, own in by_interrupt.items():
        if any(request_id not in answers for _, request_id in own):
            continue
        told = [_told(asked[request_id], part, answers[request_id]) for part, request_id in own]
        values[interrupt_id] = told[0] if own[0][0].action == _ALONE else {"decisions": told}
    return values


def _told(request: StoredRequest, part: Part, answer: Any) -> Any:
    if request.kind == INTERRUPT_KIND:
        return answer
    said = _outcome(answer) if request.kind == UNKNOWN_OUTCOME_KIND else _decision(request, answer)
    if said["type"] not in part.allowed:
        raise _refused(f"this call can be answered with {', '.join(part.allowed)} alone, not with {said['type']}")
    return said


def _decision(request: StoredRequest, answer: Mapping[str, Any]) -> dict[str, Any]:
    if answer.get("approved") is not True:
        reason = answer.get("reason")
        return {"type": "reject", **({"message": reason} if reason else {})}
    edited = edited_input(request, dict(answer)) if "input" in answer else request.input
    if same_json(edited, request.input):
        return {"type": "approve"}
    # What resumes a graph is kept in its checkpoint, which does not hold every integer.
    args = {key: one for key, one in with_texts({"args": edited}).items() if key == "args"}
    return {"type": "edit", "edited_action": {"name": request.tool_name, **args}}


def _outcome(answer: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        return {"type": "reject", "message": str(answer["error"]["message"])}
    if "value" not in answer:
        return {"type": "approve"}
    if not isinstance(answer["value"], str):
        raise _refused("what this call gave can be told as a text alone")
    return {"type": "respond", "message": answer["value"]}


def _refused(why: str) -> CodeModeProtocolError:
    return CodeModeProtocolError(why, details={"origin": "decision"})
