"""Pauses in message histories: sealed continuations, beside the inner calls that wait. Runs nothing.

All that comes back, from a database or a browser, is opened with this host's keys or refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.tools import DeferredToolResults, RunContext, ToolDenied

from codemode.plugins import forkable_lock, outer_id_of

from .faces import Face
from .nested import CALL_KIND
from .pauses import KEY, Pause, is_waiting_id, program_of, waiting_calls

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
    paused = {outer_id_of(call.tool_call_id) for call in calls}
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
    waiting = {one: outer for one in (*present, *answered) if (outer := outer_id_of(one)) is not None}
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
    return isinstance(part, ToolCallPart) and outer_id_of(part.tool_call_id) == outer_id


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
