"""Pauses of a program as deferred tool calls of the framework, there and back. Knows no message history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic_ai.exceptions import ModelRetry, ToolFailed, UserError
from pydantic_ai.messages import RetryPromptPart as LegacyRetry  # pyright: ignore[reportDeprecated]
from pydantic_ai.messages import ToolCallPart, ToolReturn, tool_return_ta
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied

from codemode import CodeModeProtocolError, Interrupt, PendingRequest
from codemode.plugins import (
    UNKNOWN_OUTCOME_KIND,
    end_continuation,
    open_continuation,
    outer_id_of,
    run_check,
    why_refused,
)

from .faces import Face
from .framework_internals import mark_questions
from .nested import CALL_KIND, TOOL_NAME
from .shown_values import plain_arguments

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
            body = carried.get("body")
            opened = await run_check(
                len(body) if isinstance(body, str) else 0,
                lambda: open_continuation(carried, options=face.settings, conversation_id=conversation_id or None),
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
            await end_continuation(
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
    return UserError(why_refused(said, error, first="the message history", otherwise=own))


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
    return outer_id_of(tool_call_id) is not None


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
            if request.payload["kind"] == UNKNOWN_OUTCOME_KIND:
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
            metadata = results.metadata.get(request.interrupt_id) if kind != UNKNOWN_OUTCOME_KIND else None
            answers[request.interrupt_id] = {**answer, "metadata": metadata} if metadata else answer
    return answers


def _plain_answer(waiting_id: str, result: Any, kind: str) -> dict[str, Any]:
    if kind == UNKNOWN_OUTCOME_KIND:
        return _known_outcome(waiting_id, result)
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
