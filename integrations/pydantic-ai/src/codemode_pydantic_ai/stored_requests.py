"""What an agent asks as requests of a store, and the decisions about them as deferred results. Knows no store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic_ai.exceptions import ToolFailed, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturn
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDefinition, ToolDenied

from codemode import PendingRequest, StoredRequest
from codemode.plugins import (
    APPROVAL_KIND,
    UNKNOWN_OUTCOME_KIND,
    ToolForm,
    canonical_json,
    edited_input,
    joined_programs,
    same_json,
)

from .faces import Face
from .hidden_tools import annotations_of
from .nested import CALL_KIND
from .pauses import KEY, Pause, is_waiting_id


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What an agent waits for: its requests, the call behind each by the request's id, and the programs around them.

    ``key`` names the pause; ``expires_at_ms`` is None where nothing in it expires.
    """

    key: str
    requests: tuple[PendingRequest, ...]
    calls: Mapping[str, str]
    source: str | None
    outer: ToolCallPart
    expires_at_ms: int | None


async def asked_by(
    output: DeferredToolRequests,
    messages: list[ModelMessage],
    face: Face,
    conversation_id: str | None,
    tools: Mapping[str, ToolDefinition],
) -> Asked:
    """Return what a run asks that ended in this. Raises `UserError` for a pause of a program that cannot be opened."""
    response = next(one for one in reversed(messages) if isinstance(one, ModelResponse))
    kept = cast("dict[str, Any]", (response.metadata or {}).get(KEY) or {})
    pauses = [await Pause.of(one, face, conversation_id) for one in kept.values()]
    source, first_lines = joined_programs([one.js for one in pauses])
    inner = {
        one.interrupt_id: (one, first)
        for pause, first in zip(pauses, first_lines, strict=True)
        for one in pause.interrupt.requests
    }
    auths = [one.interrupt.continuation["auth"] for one in pauses]
    shown = [[one.tool_call_id, one.tool_name] for one in (*output.approvals, *output.calls)]
    named = [conversation_id, response.timestamp.isoformat(), sorted(one["nonce"] for one in auths), shown]
    key = hashlib.sha256(canonical_json(named).encode()).hexdigest()
    requests: list[PendingRequest] = []
    calls: dict[str, str] = {}
    for call, kind in _waiting(output):
        if KEY in output.metadata.get(call.tool_call_id, {}):
            raise UserError(
                f"The programs of {call.tool_name!r} cannot be kept in a store: give the agent the capability instead."
            )
        found = inner.get(call.tool_call_id)
        # A model repeats its ids, and requests of a store are known by theirs everywhere.
        request_id = call.tool_call_id if found is not None else f"{call.tool_call_id}:{key[:16]}"
        calls[request_id] = call.tool_call_id
        requests.append(_request(request_id, call, kind, output, tools.get(call.tool_name), found))
    return Asked(
        key=key,
        requests=tuple(requests),
        calls=calls,
        source=source,
        outer=pauses[0].outer_call if pauses else _first(output),
        expires_at_ms=min((one["expiresAtMs"] for one in auths), default=None),
    )


def _first(output: DeferredToolRequests) -> ToolCallPart:
    return next(call for call, _ in _waiting(output))


def _waiting(output: DeferredToolRequests) -> Iterable[tuple[ToolCallPart, str]]:
    for call in output.approvals:
        is_unknown = output.metadata.get(call.tool_call_id, {}).get("unknown_outcome") is True
        is_ours = is_waiting_id(call.tool_call_id)
        yield call, UNKNOWN_OUTCOME_KIND if is_unknown and is_ours else APPROVAL_KIND
    for call in output.calls:
        yield call, CALL_KIND


def _request(
    request_id: str,
    call: ToolCallPart,
    kind: str,
    output: DeferredToolRequests,
    tool: ToolDefinition | None,
    found: tuple[PendingRequest, int] | None,
) -> PendingRequest:
    payload: dict[str, Any] = {"kind": kind}
    metadata = output.metadata.get(call.tool_call_id)
    if metadata and kind != UNKNOWN_OUTCOME_KIND:
        payload["metadata"] = metadata
    if kind == CALL_KIND and tool is not None and tool.return_schema is not None:
        payload["schema"] = tool.return_schema
    line, column = (None, None) if found is None else (found[0].line, found[0].column)
    return PendingRequest(
        interrupt_id=request_id,
        tool_name=call.tool_name,
        tool_call_id=call.tool_call_id,
        input=call.args_as_dict(),
        payload=payload,
        line=None if line is None or found is None else line + found[1],
        column=column,
    )


def form_of(definition: ToolDefinition) -> ToolForm:
    """Return what a page needs of a tool."""
    return ToolForm(definition.parameters_json_schema, definition.description or "", annotations_of(definition))


def results_of(
    requests: Iterable[StoredRequest], calls: Mapping[str, str], answers: Mapping[str, Any]
) -> DeferredToolResults:
    """Return the framework's results for decisions by request id."""
    results = DeferredToolResults()
    for request in requests:
        if request.interrupt_id not in answers:
            continue
        call_id, answer = calls[request.interrupt_id], answers[request.interrupt_id]
        if request.kind == APPROVAL_KIND:
            results.approvals[call_id] = _approval(request, answer)
        elif request.kind == UNKNOWN_OUTCOME_KIND:
            _add_outcome(results, call_id, answer)
        else:
            results.calls[call_id] = _given(answer)
    return results


def _approval(request: StoredRequest, answer: Mapping[str, Any]) -> ToolApproved | ToolDenied:
    if answer.get("approved") is not True:
        reason = answer.get("reason")
        return ToolDenied(reason) if reason else ToolDenied()
    if "input" not in answer:
        return ToolApproved()
    edited = edited_input(request, dict(answer))
    return ToolApproved() if same_json(edited, request.input) else ToolApproved(override_args=edited)


def _add_outcome(results: DeferredToolResults, call_id: str, answer: Mapping[str, Any]) -> None:
    if "value" in answer:
        results.calls[call_id] = _given(answer["value"])
    elif "error" in answer:
        results.calls[call_id] = ToolFailed(str(answer["error"]["message"]))
    else:
        results.approvals[call_id] = ToolApproved()


def _given(value: Any) -> Any:
    # Nothing at all is no answer to the framework.
    return ToolReturn(return_value=None) if value is None else value
