"""Convert pauses to deferred tool calls, and store them in message histories."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic_ai.exceptions import ModelRetry, ToolFailed, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    tool_return_ta,
)
from pydantic_ai.messages import RetryPromptPart as LegacyRetry  # pyright: ignore[reportDeprecated]
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied

from codemode import CodeModeProtocolError, Interrupt, PendingRequest
from codemode.plugins import OpenedContinuation, create_fork_safe_lock

from .content import to_plain_arguments_with_secrets
from .framework_internals import mark_as_questions
from .nested import CALL_KIND, TOOL_NAME_KEY
from .surfaces import Surface

METADATA_KEY = "codemode"


@dataclass(frozen=True)
class Pause:
    """A paused program or direct call: its interrupt and the outer call that waits for it.

    ``is_other_call``: the outer call did not start the program, as a wait. ``js``: the opened program without types.
    """

    interrupt: Interrupt
    outer_call: ToolCallPart
    is_other_call: bool = False
    js: str = ""

    @classmethod
    async def verify_and_open(cls, stored: object, surface: Surface, conversation_id: str | None) -> Pause:
        """Open a stored pause from any source. Raises `UserError` if it is invalid or was answered.

        The continuation is signed; the outer call is not, so it must be a call of a surface tool.
        """
        try:
            if not isinstance(stored, dict):
                raise CodeModeProtocolError("the continuation is malformed")
            fields = cast("dict[str, Any]", stored)
            outer_call = _parse_outer_call(fields, surface)
            fields = fields if outer_call is None else fields["continuation"]
            opened = await OpenedContinuation.open(
                fields, options=surface.settings, conversation_id=conversation_id or None
            )
            if outer_call is not None:
                return cls(opened.interrupt, outer_call, is_other_call=True, js=opened.source)
            name, arguments = surface.rebuild_outer_call(opened)
            outer_id = opened.interrupt.outer_tool_call_id
            return cls(opened.interrupt, ToolCallPart(name, arguments, tool_call_id=outer_id), js=opened.source)
        except CodeModeProtocolError as error:
            raise make_refused_pause_error(surface, "resume", error) from error

    @property
    def outer_call_id(self) -> str:
        """The id of the outer call."""
        return self.outer_call.tool_call_id

    @property
    def program_id(self) -> str:
        """The id of the call that started the program; the ids of its waiting calls derive from it."""
        return self.interrupt.outer_tool_call_id

    @property
    def stored_form(self) -> dict[str, Any]:
        """The stored form, which `open` reads."""
        continuation = dict(self.interrupt.continuation)
        return (
            _wrap_continuation_with_outer_call(continuation, self.outer_call, self.program_id)
            if self.is_other_call
            else continuation
        )

    async def end_program(self, surface: Surface, ctx: RunContext[Any]) -> None:
        """End the program. Raises `UserError` if it was resumed already."""
        try:
            await OpenedContinuation.end(
                self.interrupt.continuation, options=surface.settings, conversation_id=ctx.conversation_id or None
            )
        except CodeModeProtocolError as error:
            raise make_refused_pause_error(surface, "be denied", error) from error

    def make_resume_metadata(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata for an approval of the outer call that resumes the program."""
        return {METADATA_KEY: {"continuation": self.stored_form, "answers": dict(answers)}}


def make_refused_pause_error(surface: Surface, action: str, error: CodeModeProtocolError) -> UserError:
    """Return the error of a pause for which ``action`` is impossible."""
    message = f"This paused {surface.title} call cannot {action}"
    hint = "a pause resumes only in its own conversation (conversation_id)"
    return UserError(error.explain_failed_resume(message, first="the message history", otherwise=hint))


def _wrap_continuation_with_outer_call(
    continuation: dict[str, Any], call: ToolCallPart, program_id: str
) -> dict[str, Any]:
    arguments = call.args_as_dict()
    stored_call = {"id": call.tool_call_id, "name": call.tool_name, "args": arguments, "program": program_id}
    return {"continuation": continuation, "call": stored_call}


def _parse_outer_call(stored: Mapping[str, Any], surface: Surface) -> ToolCallPart | None:
    call: Any = stored.get("call")
    if call is None:
        return None
    fields = cast("dict[str, Any]", call) if isinstance(call, dict) else {}
    values: list[Any] = [fields.get(key) for key in ("id", "name", "args")]
    call_id, name, arguments = values
    is_surface_call = (
        isinstance(name, str) and surface.is_reserved_name(name) and isinstance(stored.get("continuation"), dict)
    )
    if not (
        surface.continues_across_calls and is_surface_call and isinstance(call_id, str) and isinstance(arguments, dict)
    ):
        raise CodeModeProtocolError("the call that waits for the continuation is malformed")
    return ToolCallPart(name, cast("dict[str, Any]", arguments), tool_call_id=call_id)


def read_unverified_program_id(stored: object, outer_id: str) -> str:
    """Return the id of the call that started a stored pause's program, unverified."""
    call: Any = cast("dict[str, Any]", stored).get("call") if isinstance(stored, dict) else None
    program: Any = cast("dict[str, Any]", call).get("program") if isinstance(call, dict) else None
    return program if isinstance(program, str) else outer_id


def make_pause_metadata(interrupt: Interrupt, call: ToolCallPart | None = None) -> dict[str, Any]:
    """Return the metadata of a deferred outer call: the sealed continuation and its pending calls.

    ``call``: the deferred call, if it may not be the one that started the program.
    """
    requests = [
        {
            "toolCallId": call.tool_call_id,
            "toolName": call.tool_name,
            "args": call.args,
            "kind": request.payload["kind"],
        }
        for request, call in zip(interrupt.requests, list_waiting_calls(interrupt), strict=True)
    ]
    is_other = call is not None and call.tool_call_id != interrupt.outer_tool_call_id
    stored = Pause(interrupt, call, is_other).stored_form if call is not None else dict(interrupt.continuation)
    return {METADATA_KEY: {"continuation": stored, "requests": requests}}


def is_waiting_call_id(tool_call_id: str) -> bool:
    """Return whether this is the id of a pending nested call."""
    return Interrupt.find_outer_id(tool_call_id) is not None


def list_waiting_calls(interrupt: Interrupt) -> list[ToolCallPart]:
    """Return the pending nested calls as tool calls."""
    return [_request_to_tool_call(request) for request in interrupt.requests]


def _request_to_tool_call(request: PendingRequest) -> ToolCallPart:
    arguments = request.payload.get("args", request.input)
    name = request.payload.get(TOOL_NAME_KEY, request.tool_name)
    return ToolCallPart(name, arguments or {}, tool_call_id=request.interrupt_id)


async def expand_pauses(
    requests: DeferredToolRequests, surface: Surface, ctx: RunContext[Any]
) -> tuple[DeferredToolRequests, list[Pause]]:
    """Replace each paused outer call in the requests by its pending nested calls."""
    expanded = replace(requests, calls=list(requests.calls), approvals=[], metadata=dict(requests.metadata))
    pauses: list[Pause] = []
    questions: set[str] = set()
    for approval in requests.approvals:
        pause_data = requests.metadata.get(approval.tool_call_id, {}).get(METADATA_KEY)
        if pause_data is None:
            expanded.approvals.append(approval)
            continue
        del expanded.metadata[approval.tool_call_id]
        pause = await Pause.verify_and_open(pause_data["continuation"], surface, ctx.conversation_id)
        pauses.append(pause)
        for request in pause.interrupt.requests:
            calls = expanded.calls if request.payload["kind"] == CALL_KIND else expanded.approvals
            calls.append(_request_to_tool_call(request))
            if request.payload.get("metadata"):
                expanded.metadata[request.interrupt_id] = request.payload["metadata"]
            if request.payload["kind"] == PendingRequest.UNKNOWN_OUTCOME:
                expanded.metadata[request.interrupt_id] = {"unknown_outcome": True}
            if request.payload.get("question"):
                questions.add(request.interrupt_id)
    mark_as_questions(expanded, questions)
    return expanded, pauses


def collect_answers(pause: Pause, results: DeferredToolResults) -> dict[str, Any]:
    """Return the answers to a pause as plain JSON. Raises `UserError` for invalid ones."""
    results_by_id = results.to_tool_call_results()
    answers: dict[str, Any] = {}
    for request in pause.interrupt.requests:
        result = results_by_id.get(request.interrupt_id)
        if result is not None:
            kind = request.payload["kind"]
            answer = _answer_to_json(request.interrupt_id, result, kind)
            is_tool_deferral = kind not in (PendingRequest.UNKNOWN_OUTCOME, PendingRequest.APPROVAL)
            metadata = results.metadata.get(request.interrupt_id) if is_tool_deferral else None
            answers[request.interrupt_id] = {**answer, "metadata": metadata} if metadata else answer
    return answers


def _answer_to_json(waiting_id: str, result: Any, kind: str) -> dict[str, Any]:
    if kind == PendingRequest.UNKNOWN_OUTCOME:
        return _outcome_answer_to_json(waiting_id, result)
    if kind == PendingRequest.APPROVAL:
        return _decision_to_json(result)
    if isinstance(result, ToolApproved):
        if kind == CALL_KIND:
            raise UserError(f"{waiting_id!r} waits for a result, not for an approval")
        edited_arguments: Any = result.override_args
        if edited_arguments is None:
            return {"approved": True}
        return {
            "approved": True,
            "args": to_plain_arguments_with_secrets(cast("Any", edited_arguments))
            if isinstance(edited_arguments, Mapping)
            else edited_arguments,
        }
    if isinstance(result, ToolDenied):
        return {"approved": False, "message": result.message}
    if isinstance(result, ToolFailed | ModelRetry):
        return {"failed": result.message}
    if isinstance(result, LegacyRetry):  # pyright: ignore[reportDeprecated]
        return {"failed": result.model_response()}
    return {"result": _value_to_json(result)}


def _decision_to_json(result: Any) -> dict[str, Any]:
    """Return the decision about a call that the core asks about, such as saving a program."""
    if isinstance(result, ToolApproved):
        edited_arguments: Any = result.override_args
        return {"approved": True} if edited_arguments is None else {"approved": True, "input": edited_arguments}
    message = getattr(result, "message", None)
    return {"approved": False, "reason": message if isinstance(message, str) else ToolDenied().message}


def _outcome_answer_to_json(waiting_id: str, result: Any) -> dict[str, Any]:
    """Return the resolution of a call of unknown outcome: approved runs it again, denied makes it fail."""
    if isinstance(result, ToolApproved):
        if result.override_args is not None:
            raise UserError(f"{waiting_id!r} may have run already: approve it without override_args, or deny it")
        return {"runAgain": True}
    if isinstance(result, ToolDenied | ToolFailed | ModelRetry):
        return {"error": {"message": result.message}}
    if isinstance(result, LegacyRetry):  # pyright: ignore[reportDeprecated]
        return {"error": {"message": result.model_response()}}
    return {"value": _value_to_json(result)}


def _value_to_json(result: Any) -> Any:
    value = cast("ToolReturn[Any]", result).return_value if isinstance(result, ToolReturn) else result
    return tool_return_ta.dump_python(value, mode="json", by_alias=True)


def answer(requests: DeferredToolRequests, results: Mapping[str, Any]) -> DeferredToolResults:
    """Answer the nested calls of deferred outer calls, for agents without a capability of this package.

    ``results``: ``True``, ``False``, `ToolApproved`, `ToolDenied` or a result, by the id of the nested call in
    ``requests.metadata[<id of the outer call>]["codemode"]["requests"]``. Raises `UserError` for an approval of a call
    that waits for a result.
    """
    deferred = DeferredToolResults()
    for approval in requests.approvals:
        pause_data = requests.metadata.get(approval.tool_call_id, {}).get(METADATA_KEY)
        if pause_data is None:
            continue
        answers: dict[str, Any] = {}
        for request in pause_data["requests"]:
            waiting_id = request["toolCallId"]
            if waiting_id in results:
                result = results[waiting_id]
                if isinstance(result, bool) and request["kind"] != CALL_KIND:
                    result = ToolApproved() if result else ToolDenied()
                answers[waiting_id] = _answer_to_json(waiting_id, result, request["kind"])
        deferred.approvals[approval.tool_call_id] = ToolApproved()
        deferred.metadata[approval.tool_call_id] = {
            METADATA_KEY: {"continuation": pause_data["continuation"], "answers": answers}
        }
    return deferred


# Continuations from databases and browsers are untrusted: they are opened with this host's keys.

_MAX_CACHED_BYTES = 64 << 20


class PauseCache:
    """Sealed continuations of this process by the unguessable ids of their pending calls; the oldest are dropped first.

    For clients that keep the message history and send back only ids.
    """

    def __init__(self, max_bytes: int = _MAX_CACHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[str, tuple[Mapping[str, Any], int]] = OrderedDict()
        self._lock = create_fork_safe_lock()

    def put(self, pause: Pause) -> None:
        """Store a pause under each of its pending calls."""
        stored = pause.stored_form
        size = sum(map(len, pause.interrupt.continuation["body"]))
        with self._lock:
            for request in pause.interrupt.requests:
                self._remove(request.interrupt_id)
                self._entries[request.interrupt_id] = (stored, size)
                self._bytes += size
            while self._bytes > self._max_bytes and len(self._entries) > 1:
                self._remove(next(iter(self._entries)))

    def get(self, waiting_id: str) -> Mapping[str, Any] | None:
        """Return the stored pause with this pending call."""
        with self._lock:
            entry = self._entries.get(waiting_id)
        return None if entry is None else entry[0]

    def _remove(self, waiting_id: str) -> None:
        entry = self._entries.pop(waiting_id, None)
        self._bytes -= 0 if entry is None else entry[1]


def add_pauses_to_history(messages: list[ModelMessage], pauses: Iterable[Pause]) -> None:
    """Add pending calls and sealed continuations to the response with the outer calls, in place."""
    index = _find_last_response_index(messages)
    if index is None:
        return
    response = cast("ModelResponse", messages[index])
    continuations = {pause.outer_call_id: pause.stored_form for pause in pauses}
    waiting_parts = [call for pause in pauses for call in list_waiting_calls(pause.interrupt)]
    messages[index] = replace(
        response,
        parts=[*_list_parts_without_waiting_calls(response), *waiting_parts],
        metadata={**(response.metadata or {}), METADATA_KEY: continuations},
    )


async def open_pauses_and_restore_history(
    ctx: RunContext[Any], deferred_results: DeferredToolResults, pause_cache: PauseCache, surface: Surface
) -> list[Pause]:
    """Return the pauses at the end of a history, and restore the model's view of the history in place.

    Raises `UserError` for an invalid continuation, and for a paused outer call without its continuation.
    """
    messages = ctx.messages
    index = _find_last_response_index(messages)
    pauses: list[Pause] = []
    if index is not None:
        response = cast("ModelResponse", messages[index])
        returned_ids = _find_returned_call_ids(messages[index + 1 :])
        continuations = _find_continuations(
            messages, response, [*deferred_results.approvals, *deferred_results.calls], pause_cache
        )
        denied_ids = [
            tool_call_id
            for tool_call_id, approval in deferred_results.approvals.items()
            if approval is False or isinstance(approval, ToolDenied)
        ]
        _require_continuations(
            surface.title, response, {*continuations, *returned_ids, *denied_ids, *deferred_results.calls}
        )
        open_continuations = [
            tool_call_id for outer_id, tool_call_id in continuations.items() if outer_id not in returned_ids
        ]
        pauses = [
            await Pause.verify_and_open(tool_call_id, surface, ctx.conversation_id)
            for tool_call_id in open_continuations
        ]
        messages[index] = _restore_outer_calls(response, pauses)
    remove_pauses_from_history(messages)
    return pauses


def _require_continuations(title: str, response: ModelResponse, current_ids: Collection[str]) -> None:
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    paused_ids = {Interrupt.find_outer_id(call.tool_call_id) for call in calls}
    for call in calls:
        if call.tool_call_id in paused_ids and call.tool_call_id not in current_ids:
            # Starting it again would run its finished calls twice.
            raise UserError(
                f"The {title} call {call.tool_call_id!r} is paused, and its continuation, which the metadata of its "
                "response held, is not in this history. It can only be denied."
            )


def remove_pauses_from_history(messages: list[ModelMessage]) -> None:
    """Restore the model's view of the history in place: no pending nested calls, no continuations."""
    messages[:] = list(_iter_messages_without_pauses(messages))


def _find_returned_call_ids(messages: Iterable[ModelMessage]) -> set[str]:
    parts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    return {part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)}


def find_client_results(messages: list[ModelMessage], pauses: Iterable[Pause]) -> dict[str, Any]:
    """Return results that a client sent for nested calls that wait for one; approvals are never read this way."""
    waiting_ids = {
        request.interrupt_id
        for pause in pauses
        for request in pause.interrupt.requests
        if request.payload["kind"] == CALL_KIND
    }
    parts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    returns = (part for part in parts if isinstance(part, ToolReturnPart) and part.tool_call_id in waiting_ids)
    return {part.tool_call_id: part.content for part in returns}


def _find_last_response_index(messages: list[ModelMessage]) -> int | None:
    indexes = (index for index in range(len(messages) - 1, -1, -1) if isinstance(messages[index], ModelResponse))
    return next(indexes, None)


def _find_continuations(
    messages: Iterable[ModelMessage], response: ModelResponse, answered_ids: Iterable[str], pause_cache: PauseCache
) -> dict[str, Any]:
    """Return the stored pauses of the last response by outer call id."""
    present_ids = [part.tool_call_id for part in response.parts if isinstance(part, ToolCallPart)]
    outer_id_by_waiting_id = {
        stored: outer
        for stored in (*present_ids, *answered_ids)
        if (outer := Interrupt.find_outer_id(stored)) is not None
    }
    call_ids = {*present_ids, *outer_id_by_waiting_id.values()}
    # A client may have merged the metadata of several responses: match by ids.
    stored = [
        _mapping_or_empty((stored.metadata or {}).get(METADATA_KEY))
        for stored in messages
        if isinstance(stored, ModelResponse)
    ]
    continuations = {
        outer: stored
        for mapping in stored
        for outer, stored in mapping.items()
        if outer in call_ids or read_unverified_program_id(stored, outer) in call_ids
    }
    program_ids = {read_unverified_program_id(stored, outer) for outer, stored in continuations.items()}
    for waiting_id, program_id in outer_id_by_waiting_id.items():
        continuation = pause_cache.get(waiting_id)
        if program_id not in program_ids and continuation is not None:
            continuations[_find_outer_call_id(continuation, program_id)] = dict(continuation)
    return continuations


def _find_outer_call_id(stored: Mapping[str, Any], program_id: str) -> str:
    """Return the id of the outer call of a stored pause."""
    return stored["call"]["id"] if "call" in stored else program_id


def _mapping_or_empty(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _restore_outer_calls(response: ModelResponse, pauses: Iterable[Pause]) -> ModelResponse:
    """Restore outer calls that a client's history has lost, at the position of their nested calls."""
    parts = list(response.parts)
    tool_name_by_id = {part.tool_call_id: part.tool_name for part in parts if isinstance(part, ToolCallPart)}
    for pause in pauses:
        if pause.outer_call_id not in tool_name_by_id:
            positions = (position for position, part in enumerate(parts) if _is_waiting_call_of(part, pause.program_id))
            parts.insert(next(positions, len(parts)), pause.outer_call)
        elif pause.is_other_call and tool_name_by_id[pause.outer_call_id] != pause.outer_call.tool_name:
            # Answers approve the outer call, so it must be the one that waits.
            raise UserError(f"The call {pause.outer_call_id!r} is not the one that waits for the paused program.")
    return replace(response, parts=parts)


def _is_waiting_call_of(part: ModelResponsePart, outer_id: str) -> bool:
    return isinstance(part, ToolCallPart) and Interrupt.find_outer_id(part.tool_call_id) == outer_id


def _iter_messages_without_pauses(messages: list[ModelMessage]) -> Iterator[ModelMessage]:
    for message in messages:
        if isinstance(message, ModelResponse):
            metadata = {key: value for key, value in (message.metadata or {}).items() if key != METADATA_KEY}
            parts = _list_parts_without_waiting_calls(message)
            if len(parts) == len(message.parts) and METADATA_KEY not in (message.metadata or {}):
                yield message
            elif parts:
                yield replace(message, parts=parts, metadata=metadata or None)
        else:
            parts_to_keep = [
                part
                for part in message.parts
                if not (isinstance(part, ToolReturnPart) and is_waiting_call_id(part.tool_call_id))
            ]
            if len(parts_to_keep) == len(message.parts):
                yield message
            elif parts_to_keep:
                yield replace(message, parts=parts_to_keep)


def _list_parts_without_waiting_calls(response: ModelResponse) -> list[ModelResponsePart]:
    return [
        part
        for part in response.parts
        if not (isinstance(part, ToolCallPart) and is_waiting_call_id(part.tool_call_id))
    ]
