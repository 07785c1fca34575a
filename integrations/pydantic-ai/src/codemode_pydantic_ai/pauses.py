"""Pauses of a program as deferred tool calls, and in message histories."""

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
from codemode.plugins import OpenedContinuation, forkable_lock

from .content import plain_arguments
from .faces import Face
from .framework_internals import mark_questions
from .nested import CALL_KIND, TOOL_NAME

KEY = "codemode"


@dataclass(frozen=True)
class Pause:
    """A paused program, or direct call: its interrupt, and the call of the model that waits for it.

    ``is_other`` tells that this is another call than the one that began it, such as a wait. ``js`` is the program,
    types stripped, where it was opened.
    """

    interrupt: Interrupt
    outer_call: ToolCallPart
    is_other: bool = False
    js: str = ""

    @classmethod
    async def of(cls, kept: object, face: Face, conversation_id: str | None) -> Pause:
        """Open what was kept of a pause, wherever it comes from. Raises `UserError` for one that is not ours any more.

        The continuation is signed; which call of the model waits for it is not, so that must be one of the face.
        """
        try:
            if not isinstance(kept, dict):
                raise CodeModeProtocolError("the continuation is malformed")
            carried = cast("dict[str, Any]", kept)
            other = _other_call(carried, face)
            carried = carried if other is None else carried["continuation"]
            opened = await OpenedContinuation.open(
                carried, options=face.settings, conversation_id=conversation_id or None
            )
            if other is not None:
                return cls(opened.interrupt, other, is_other=True, js=opened.source)
            name, arguments = face.outer_call(opened)
            outer_id = opened.interrupt.outer_tool_call_id
            return cls(opened.interrupt, ToolCallPart(name, arguments, tool_call_id=outer_id), js=opened.source)
        except CodeModeProtocolError as error:
            raise refused(face, "go on", error) from error

    @property
    def outer_id(self) -> str:
        """The id of the call of the model."""
        return self.outer_call.tool_call_id

    @property
    def program_id(self) -> str:
        """The id of the call that began the program, from which those of its waiting calls are made."""
        return self.interrupt.outer_tool_call_id

    @property
    def kept(self) -> dict[str, Any]:
        """What `of` opens."""
        continuation = dict(self.interrupt.continuation)
        return _with_call(continuation, self.outer_call, self.program_id) if self.is_other else continuation

    async def end(self, face: Face, ctx: RunContext[Any]) -> None:
        """Let the program go on no more. Raises `UserError` when it has gone on already."""
        try:
            await OpenedContinuation.end(
                self.interrupt.continuation, options=face.settings, conversation_id=ctx.conversation_id or None
            )
        except CodeModeProtocolError as error:
            raise refused(face, "be denied", error) from error

    def resumed_by(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata with which the framework's approval of the outer call resumes the program."""
        return {KEY: {"continuation": self.kept, "answers": dict(answers)}}


def refused(face: Face, what: str, error: CodeModeProtocolError) -> UserError:
    """Return the error of a pause with which ``what`` cannot be done."""
    said = f"This paused {face.title} call cannot {what}"
    own = "a pause goes on in its own conversation (conversation_id) alone"
    return UserError(error.explain(said, first="the message history", otherwise=own))


def _with_call(continuation: dict[str, Any], call: ToolCallPart, program_id: str) -> dict[str, Any]:
    arguments = call.args_as_dict()
    made = {"id": call.tool_call_id, "name": call.tool_name, "args": arguments, "program": program_id}
    return {"continuation": continuation, "call": made}


def _other_call(kept: Mapping[str, Any], face: Face) -> ToolCallPart | None:
    call: Any = kept.get("call")
    if call is None:
        return None
    found = cast("dict[str, Any]", call) if isinstance(call, dict) else {}
    parts: list[Any] = [found.get(key) for key in ("id", "name", "args")]
    call_id, name, arguments = parts
    is_ours = isinstance(name, str) and face.is_taken(name) and isinstance(kept.get("continuation"), dict)
    if not (face.leaves_programs and is_ours and isinstance(call_id, str) and isinstance(arguments, dict)):
        raise CodeModeProtocolError("the call that waits for the continuation is malformed")
    return ToolCallPart(name, cast("dict[str, Any]", arguments), tool_call_id=call_id)


def program_of(kept: object, outer_id: str) -> str:
    """Return the id of the call that began the program of a pause, as it says itself."""
    call: Any = cast("dict[str, Any]", kept).get("call") if isinstance(kept, dict) else None
    program: Any = cast("dict[str, Any]", call).get("program") if isinstance(call, dict) else None
    return program if isinstance(program, str) else outer_id


def pause_metadata(interrupt: Interrupt, call: ToolCallPart | None = None) -> dict[str, Any]:
    """Return what a deferred outer call carries: the sealed continuation, and what waits in it.

    ``call``: the one that is deferred, where it may be another than the one that began the program.
    """
    shown = [
        {
            "toolCallId": call.tool_call_id,
            "toolName": call.tool_name,
            "args": call.args,
            "kind": request.payload["kind"],
        }
        for request, call in zip(interrupt.requests, waiting_calls(interrupt), strict=True)
    ]
    is_other = call is not None and call.tool_call_id != interrupt.outer_tool_call_id
    kept = Pause(interrupt, call, is_other).kept if call is not None else dict(interrupt.continuation)
    return {KEY: {"continuation": kept, "requests": shown}}


def is_waiting_id(tool_call_id: str) -> bool:
    """Tell whether an id is that of an inner call that waits."""
    return Interrupt.find_outer_id(tool_call_id) is not None


def waiting_calls(interrupt: Interrupt) -> list[ToolCallPart]:
    """Return the inner calls that wait, as calls of their own."""
    return [_call(request) for request in interrupt.requests]


def _call(request: PendingRequest) -> ToolCallPart:
    arguments = request.payload.get("args", request.input)
    name = request.payload.get(TOOL_NAME, request.tool_name)
    return ToolCallPart(name, arguments or {}, tool_call_id=request.interrupt_id)


async def expand(
    requests: DeferredToolRequests, face: Face, ctx: RunContext[Any]
) -> tuple[DeferredToolRequests, list[Pause]]:
    """Return the requests with every paused outer call replaced by the inner calls that wait."""
    expanded = replace(requests, calls=list(requests.calls), approvals=[], metadata=dict(requests.metadata))
    pauses: list[Pause] = []
    questions: set[str] = set()
    for approval in requests.approvals:
        carried = requests.metadata.get(approval.tool_call_id, {}).get(KEY)
        if carried is None:
            expanded.approvals.append(approval)
            continue
        del expanded.metadata[approval.tool_call_id]
        pause = await Pause.of(carried["continuation"], face, ctx.conversation_id)
        pauses.append(pause)
        for request in pause.interrupt.requests:
            calls = expanded.calls if request.payload["kind"] == CALL_KIND else expanded.approvals
            calls.append(_call(request))
            if request.payload.get("metadata"):
                expanded.metadata[request.interrupt_id] = request.payload["metadata"]
            if request.payload["kind"] == PendingRequest.UNKNOWN_OUTCOME:
                expanded.metadata[request.interrupt_id] = {"unknown_outcome": True}
            if request.payload.get("question"):
                questions.add(request.interrupt_id)
    mark_questions(expanded, questions)
    return expanded, pauses


def answers_for(pause: Pause, results: DeferredToolResults) -> dict[str, Any]:
    """Return the answers to this pause among deferred results, as plain JSON. Raises `UserError` for wrong ones."""
    given = results.to_tool_call_results()
    answers: dict[str, Any] = {}
    for request in pause.interrupt.requests:
        result = given.get(request.interrupt_id)
        if result is not None:
            kind = request.payload["kind"]
            answer = _plain_answer(request.interrupt_id, result, kind)
            is_of_tool = kind not in (PendingRequest.UNKNOWN_OUTCOME, PendingRequest.APPROVAL)
            metadata = results.metadata.get(request.interrupt_id) if is_of_tool else None
            answers[request.interrupt_id] = {**answer, "metadata": metadata} if metadata else answer
    return answers


def _plain_answer(waiting_id: str, result: Any, kind: str) -> dict[str, Any]:
    if kind == PendingRequest.UNKNOWN_OUTCOME:
        return _known_outcome(waiting_id, result)
    if kind == PendingRequest.APPROVAL:
        return _decision(result)
    if isinstance(result, ToolApproved):
        if kind == CALL_KIND:
            raise UserError(f"{waiting_id!r} waits for a result, not for an approval")
        edited: Any = result.override_args
        if edited is None:
            return {"approved": True}
        return {
            "approved": True,
            "args": plain_arguments(cast("Any", edited)) if isinstance(edited, Mapping) else edited,
        }
    if isinstance(result, ToolDenied):
        return {"approved": False, "message": result.message}
    if isinstance(result, ToolFailed | ModelRetry):
        return {"failed": result.message}
    if isinstance(result, LegacyRetry):  # pyright: ignore[reportDeprecated]
        return {"failed": result.model_response()}
    return {"result": _plain_value(result)}


def _decision(result: Any) -> dict[str, Any]:
    """Return the answer about a call that core itself asks about, such as that of saving a program."""
    if isinstance(result, ToolApproved):
        edited: Any = result.override_args
        return {"approved": True} if edited is None else {"approved": True, "input": edited}
    message = getattr(result, "message", None)
    return {"approved": False, "reason": message if isinstance(message, str) else ToolDenied().message}


def _known_outcome(waiting_id: str, result: Any) -> dict[str, Any]:
    """Return what became of a call, as the core is told: approved it runs again, denied it has failed."""
    if isinstance(result, ToolApproved):
        if result.override_args is not None:
            raise UserError(f"{waiting_id!r} may have been made already: it runs again as it was, or not at all")
        return {"runAgain": True}
    if isinstance(result, ToolDenied | ToolFailed | ModelRetry):
        return {"error": {"message": result.message}}
    if isinstance(result, LegacyRetry):  # pyright: ignore[reportDeprecated]
        return {"error": {"message": result.model_response()}}
    return {"value": _plain_value(result)}


def _plain_value(result: Any) -> Any:
    value = cast("ToolReturn[Any]", result).return_value if isinstance(result, ToolReturn) else result
    return tool_return_ta.dump_python(value, mode="json", by_alias=True)


def answer(requests: DeferredToolRequests, results: Mapping[str, Any]) -> DeferredToolResults:
    """Answer the inner calls of deferred outer calls where no capability translates them.

    ``results``: ``True``, ``False``, `ToolApproved`, `ToolDenied` or a result by the id of the inner call, as they
    stand in ``requests.metadata[<id of the outer call>]["codemode"]["requests"]``. Raises `UserError` for an
    approval of a call that waits for a result.
    """
    deferred = DeferredToolResults()
    for approval in requests.approvals:
        carried = requests.metadata.get(approval.tool_call_id, {}).get(KEY)
        if carried is None:
            continue
        answers: dict[str, Any] = {}
        for shown in carried["requests"]:
            waiting_id = shown["toolCallId"]
            if waiting_id in results:
                result = results[waiting_id]
                if isinstance(result, bool) and shown["kind"] != CALL_KIND:
                    result = ToolApproved() if result else ToolDenied()
                answers[waiting_id] = _plain_answer(waiting_id, result, shown["kind"])
        deferred.approvals[approval.tool_call_id] = ToolApproved()
        deferred.metadata[approval.tool_call_id] = {KEY: {"continuation": carried["continuation"], "answers": answers}}
    return deferred


# All that comes back, from a database or a browser, is opened with this host's keys or refused.

_MAX_KEPT_BYTES = 64 << 20


class KeptPauses:
    """Sealed continuations of this process by the ids under which their calls wait; the oldest are dropped first.

    For clients that keep the message history themselves and send back nothing but ids. The ids cannot be guessed.
    """

    def __init__(self, max_bytes: int = _MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, tuple[Mapping[str, Any], int]] = OrderedDict()
        self._lock = forkable_lock()

    def put(self, pause: Pause) -> None:
        """Keep a pause under each of its waiting calls."""
        kept = pause.kept
        size = sum(map(len, pause.interrupt.continuation["body"]))
        with self._lock:
            for request in pause.interrupt.requests:
                self._drop(request.interrupt_id)
                self._kept[request.interrupt_id] = (kept, size)
                self._bytes += size
            while self._bytes > self._max_bytes and len(self._kept) > 1:
                self._drop(next(iter(self._kept)))

    def get(self, waiting_id: str) -> Mapping[str, Any] | None:
        """Return the continuation in which this call waits."""
        with self._lock:
            kept = self._kept.get(waiting_id)
        return None if kept is None else kept[0]

    def _drop(self, waiting_id: str) -> None:
        kept = self._kept.pop(waiting_id, None)
        self._bytes -= 0 if kept is None else kept[1]


def record_pauses(messages: list[ModelMessage], pauses: Iterable[Pause]) -> None:
    """Put the calls that wait and the sealed continuations into the response that made the outer calls."""
    index = _last_response(messages)
    if index is None:
        return
    response = cast("ModelResponse", messages[index])
    sealed = {pause.outer_id: pause.kept for pause in pauses}
    waiting = [call for pause in pauses for call in waiting_calls(pause.interrupt)]
    messages[index] = replace(
        response,
        parts=[*_own_parts(response), *waiting],
        metadata={**(response.metadata or {}), KEY: sealed},
    )


async def take_pauses(ctx: RunContext[Any], given: DeferredToolResults, kept: KeptPauses, face: Face) -> list[Pause]:
    """Return the pauses at the end of a history and make it the history that the model knows, in place.

    Raises `UserError` for a continuation that is not ours any more, and for an outer call that has lost its own.
    """
    messages = ctx.messages
    index = _last_response(messages)
    pauses: list[Pause] = []
    if index is not None:
        response = cast("ModelResponse", messages[index])
        returned = _returned(messages[index + 1 :])
        found = _continuations(messages, response, [*given.approvals, *given.calls], kept)
        denied = [one for one, said in given.approvals.items() if said is False or isinstance(said, ToolDenied)]
        _require_continuations(face.title, response, {*found, *returned, *denied, *given.calls})
        open_ones = [one for outer_id, one in found.items() if outer_id not in returned]
        pauses = [await Pause.of(one, face, ctx.conversation_id) for one in open_ones]
        messages[index] = _with_outer_calls(response, pauses)
    forget_pauses(messages)
    return pauses


def _require_continuations(title: str, response: ModelResponse, known: Collection[str]) -> None:
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    paused = {Interrupt.find_outer_id(call.tool_call_id) for call in calls}
    for call in calls:
        if call.tool_call_id in paused and call.tool_call_id not in known:
            # It has begun: to run it from its start would make its finished calls a second time.
            raise UserError(
                f"The {title} call {call.tool_call_id!r} is paused, and its continuation, which the metadata of its "
                "response held, is not in this history. It can only be denied."
            )


def forget_pauses(messages: list[ModelMessage]) -> None:
    """Make it the history that the model knows, in place: without inner calls, without continuations."""
    messages[:] = list(_without_waiting_calls(messages))


def _returned(messages: Iterable[ModelMessage]) -> set[str]:
    parts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    return {part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)}


def late_results(messages: list[ModelMessage], pauses: Iterable[Pause]) -> dict[str, Any]:
    """Return what a client sent as results of inner calls that wait for a result. Approvals are never taken so."""
    wanted = {
        request.interrupt_id
        for pause in pauses
        for request in pause.interrupt.requests
        if request.payload["kind"] == CALL_KIND
    }
    parts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    returns = (part for part in parts if isinstance(part, ToolReturnPart) and part.tool_call_id in wanted)
    return {part.tool_call_id: part.content for part in returns}


def _last_response(messages: list[ModelMessage]) -> int | None:
    indexes = (index for index in range(len(messages) - 1, -1, -1) if isinstance(messages[index], ModelResponse))
    return next(indexes, None)


def _continuations(
    messages: Iterable[ModelMessage], response: ModelResponse, answered: Iterable[str], kept: KeptPauses
) -> dict[str, Any]:
    """Return the continuations of the outer calls of the last response, by their ids."""
    present = [part.tool_call_id for part in response.parts if isinstance(part, ToolCallPart)]
    waiting = {one: outer for one in (*present, *answered) if (outer := Interrupt.find_outer_id(one)) is not None}
    own = {*present, *waiting.values()}
    # A client may have merged the metadata of several responses into one message: whose it is, the ids say.
    stored = [_mapping((one.metadata or {}).get(KEY)) for one in messages if isinstance(one, ModelResponse)]
    found = {
        outer: one
        for mapping in stored
        for outer, one in mapping.items()
        if outer in own or program_of(one, outer) in own
    }
    programs = {program_of(one, outer) for outer, one in found.items()}
    for waiting_id, program in waiting.items():
        continuation = kept.get(waiting_id)
        if program not in programs and continuation is not None:
            found[_waits_as(continuation, program)] = dict(continuation)
    return found


def _waits_as(kept: Mapping[str, Any], program: str) -> str:
    """Return the id of the call that waits, of what this process has kept of a pause."""
    return kept["call"]["id"] if "call" in kept else program


def _mapping(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _with_outer_calls(response: ModelResponse, pauses: Iterable[Pause]) -> ModelResponse:
    """Put back the outer calls that a client's history has lost, where their inner calls stand."""
    parts = list(response.parts)
    present = {part.tool_call_id: part.tool_name for part in parts if isinstance(part, ToolCallPart)}
    for pause in pauses:
        if pause.outer_id not in present:
            own = (at for at, part in enumerate(parts) if _belongs(part, pause.program_id))
            parts.insert(next(own, len(parts)), pause.outer_call)
        elif pause.is_other and present[pause.outer_id] != pause.outer_call.tool_name:
            # Answers to inner calls approve the call that waits for them: no other one may stand there.
            raise UserError(f"The call {pause.outer_id!r} is not the one that waits for the paused program.")
    return replace(response, parts=parts)


def _belongs(part: ModelResponsePart, outer_id: str) -> bool:
    return isinstance(part, ToolCallPart) and Interrupt.find_outer_id(part.tool_call_id) == outer_id


def _without_waiting_calls(messages: list[ModelMessage]) -> Iterator[ModelMessage]:
    for message in messages:
        if isinstance(message, ModelResponse):
            metadata = {key: value for key, value in (message.metadata or {}).items() if key != KEY}
            parts = _own_parts(message)
            if len(parts) == len(message.parts) and KEY not in (message.metadata or {}):
                yield message
            elif parts:
                yield replace(message, parts=parts, metadata=metadata or None)
        else:
            kept = [
                part
                for part in message.parts
                if not (isinstance(part, ToolReturnPart) and is_waiting_id(part.tool_call_id))
            ]
            if len(kept) == len(message.parts):
                yield message
            elif kept:
                yield replace(message, parts=kept)


def _own_parts(response: ModelResponse) -> list[ModelResponsePart]:
    return [
        part for part in response.parts if not (isinstance(part, ToolCallPart) and is_waiting_id(part.tool_call_id))
    ]
