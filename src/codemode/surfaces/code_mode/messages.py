"""Read and write interrupts in message histories in the AI SDK's format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...data.exact_integers import POINTERS_KEY, protect_integers
from ...data.json_values import decode_json
from ...data.narrowing import is_array, is_mapping, list_or_empty, mapping_or_empty
from ...errors import CodeModeProtocolError, Resumable
from ...execution.pauses import ensure_interrupt
from ...interrupts.approval import is_decision
from ...interrupts.interrupt import INTERRUPT_TYPE, Interrupt, PendingRequest, is_same_json
from ...options.checked_fields import require_nonempty_string_or_none, require_sequence
from ...options.parts import CodeModeOptions

_RESPONSE_TYPE = "tool-approval-response"
_ANSWER_KEYS = ("approved", "reason", "input", POINTERS_KEY)


@dataclass(frozen=True, slots=True)
class UnwrappedResult:
    """A result of codeMode: ``value`` if completed, ``interrupt`` if interrupted."""

    status: Literal["completed", "interrupted"]
    value: Any = None
    interrupt: Interrupt | None = None


def to_approval_messages(
    interrupt: Resumable | Mapping[str, Any],
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    conversation_id: str | None = None,
) -> list[dict[str, Any]]:
    """Return one assistant message that requests approval of nested calls, or none if no approval is pending.

    The message has a ``tool-call`` and a ``tool-approval-request`` part for each pending approval; ``approvalId`` is
    the interrupt id of the request. Integers beyond 2^53 in an input are text, as in `PendingRequest.to_dict`. Raises
    `CodeModeProtocolError` for JSON that is not signed with the keys of ``options``, because a program can return any
    JSON.
    """
    paused = ensure_interrupt(interrupt, options, conversation_id)
    parts = [part for request in paused.requests if request.is_approval for part in _build_request_parts(request)]
    return [{"role": "assistant", "content": parts}] if parts else []


def _build_request_parts(request: PendingRequest) -> list[dict[str, Any]]:
    call_id = request.tool_call_id
    call = {"type": "tool-call", "toolCallId": call_id, "toolName": request.tool_name, "input": request.input}
    return [
        protect_integers(call),
        {"type": "tool-approval-request", "approvalId": request.interrupt_id, "toolCallId": call_id},
    ]


def get_approval_response(
    messages: Sequence[Any], interrupt: Resumable | Mapping[str, Any], *, interrupt_id: str | None = None
) -> dict[str, Any] | None:
    """Return the newest well-formed response to a pending approval, or None.

    Searches messages of role ``tool``, newest first, for the request ``interrupt_id`` (default: the first pending one).
    A response is ``{"approvalId": str, "approved": bool, "reason"?: str, "input"?: edited}``.
    """
    require_sequence(messages, "messages")
    paused = Interrupt.from_value(interrupt)
    wanted_id = interrupt_id if interrupt_id is not None else paused.interrupt_id
    request = next((item for item in paused.requests if item.interrupt_id == wanted_id), None)
    if request is None:
        return None
    for part in _iter_reversed_parts_of_each_message(reversed(messages), "tool"):
        if _is_response_to(part, request):
            return {key: part[key] for key in ("approvalId", *_ANSWER_KEYS) if key in part}
    return None


def _is_response_to(part: Mapping[str, Any], request: PendingRequest) -> bool:
    call_id = part.get("toolCallId")
    if part.get("type") != _RESPONSE_TYPE or part.get("approvalId") != request.interrupt_id:
        return False
    return is_decision(part) and (call_id is None or call_id == request.tool_call_id)


def build_approval_resolutions(interrupt: Interrupt, responses: Sequence[Any]) -> dict[str, Any]:
    """Return the resolutions for approval responses. Raises `CodeModeProtocolError` for a malformed response."""
    requests = {request.interrupt_id: request for request in interrupt.requests if request.is_approval}
    resolutions: dict[str, Any] = {}
    for response in responses:
        answer = mapping_or_empty(response)
        request = requests.get(str(answer.get("approvalId")))
        if request is None:
            raise CodeModeProtocolError("an approval response is not for a pending approval of this interrupt")
        if not _is_response_to({"type": _RESPONSE_TYPE, **answer}, request):
            raise CodeModeProtocolError("an approval response is malformed")
        if request.interrupt_id in resolutions:
            raise CodeModeProtocolError("two responses are for the same approval")
        known = {key: answer[key] for key in _ANSWER_KEYS if key in answer}
        resolutions[request.interrupt_id] = known
    return resolutions


def unwrap_result(
    result: Any,
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    conversation_id: str | None = None,
) -> UnwrappedResult:
    """Return whether a result of codeMode is a value or an interrupt, also in the wrappers of frameworks.

    Reads the result itself, ``{"type": "json" | "text", "value"}``, ``toolResults[].output`` and the ``tool-result``
    parts of ``content``. Recognises interrupts as `get_interrupt` does.
    """
    interrupt = get_interrupt(result, options=options, conversation_id=conversation_id)
    if interrupt is not None:
        return UnwrappedResult("interrupted", interrupt=interrupt)
    return UnwrappedResult("completed", _unwrap_output(result))


def get_interrupt(
    result: Any,
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    conversation_id: str | None = None,
) -> Interrupt | None:
    """Return the interrupt in a result, wrapped or not, or None.

    Accepts an `Interrupt` of any surface, and JSON from a message log that is signed with the keys of ``options`` (and
    for ``conversation_id``, if given), expired or not. Unsigned JSON of that shape is an ordinary value, because a
    program can return it. Use `is_interrupt` to check whether the interrupt can be resumed now.
    """
    settings = CodeModeOptions.of(options)
    require_nonempty_string_or_none(
        conversation_id, "conversation_id"
    )  # reject wrong types even if there is no interrupt
    for candidate in map(_decode_interrupt_text, _iter_interrupt_candidates(result)):
        if isinstance(candidate, Interrupt | Mapping):
            try:
                return ensure_interrupt(candidate, settings, conversation_id)
            except CodeModeProtocolError:
                continue
    return None


def replace_interrupt_result(
    messages: Sequence[Any], interrupt: Resumable | Mapping[str, Any], final_output: Any
) -> list[Any]:
    """Return the messages with the interrupt in the outer call's result replaced by the final output.

    A string becomes ``{"type": "text"}``, anything else ``{"type": "json"}``, None JSON null. Raises
    `CodeModeProtocolError` unless exactly one tool result of the outer call contains the interrupt.
    """
    require_sequence(messages, "messages")
    paused = Interrupt.from_value(interrupt)
    kind = "text" if isinstance(final_output, str) else "json"
    output = {"type": kind, "value": final_output}
    replaced: list[Any] = []

    def replace_part(part: Any) -> Any:
        if not _is_result_of(part, paused):
            return part
        replaced.append(part)
        return {**part, "output": output}

    changed = [
        _map_message_parts(message, replace_part) if _has_role_and_parts(message, "tool") else message
        for message in messages
    ]
    if len(replaced) != 1:
        raise CodeModeProtocolError(
            f"{len(replaced)} tool results of call {paused.outer_tool_call_id!r} contain this interrupt; expected one"
        )
    return changed


def _is_result_of(part: Any, interrupt: Interrupt) -> bool:
    body = mapping_or_empty(part)
    if body.get("type") != "tool-result" or body.get("toolCallId") != interrupt.outer_tool_call_id:
        return False
    return any(_is_same_interrupt(candidate, interrupt) for candidate in _iter_interrupt_candidates(body.get("output")))


def _is_same_interrupt(candidate: Any, interrupt: Interrupt) -> bool:
    try:
        return is_same_json(_get_comparable_fields(Interrupt.from_value(candidate)), _get_comparable_fields(interrupt))
    except CodeModeProtocolError:
        return False


def _get_comparable_fields(interrupt: Interrupt) -> list[Any]:
    requests = [request.comparison_fields() for request in interrupt.requests]
    return [interrupt.outer_tool_call_id, dict(interrupt.continuation), requests]


def _iter_interrupt_candidates(result: Any) -> Iterator[Any]:
    yield _unwrap_output(result)
    body = mapping_or_empty(result)
    for key in ("toolResults", "content"):
        for part in filter(is_mapping, list_or_empty(body.get(key))):
            if key == "toolResults" or part.get("type") == "tool-result":
                yield _unwrap_output(part.get("output"))


def _unwrap_output(result: Any) -> Any:
    is_wrapped = is_mapping(result) and set(result) == {"type", "value"} and result["type"] in ("json", "text")
    return result["value"] if is_wrapped else result


def _decode_interrupt_text(candidate: Any) -> Any:
    """Return a candidate, decoded if a message log stored an interrupt as text."""
    if not isinstance(candidate, str) or INTERRUPT_TYPE not in candidate:
        return candidate
    try:
        return decode_json(candidate)
    except ValueError:
        return candidate


def _iter_reversed_parts_of_each_message(messages: Any, role: str) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        if _has_role_and_parts(message, role):
            yield from filter(is_mapping, reversed(message["content"]))


def _map_message_parts(message: Any, transform: Callable[[Any], Any]) -> dict[str, Any]:
    return {**message, "content": [transform(part) for part in message["content"]]}


def _has_role_and_parts(message: Any, role: str) -> bool:
    return is_mapping(message) and message.get("role") == role and is_array(message.get("content"))
