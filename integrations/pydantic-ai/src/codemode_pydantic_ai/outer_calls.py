"""One call of a tool that runs others: from the model's arguments to its answer, its pause or its retry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturn, ToolReturnPart
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from codemode import CallContext, CodeModeError, CodeModeProtocolError, Interrupt, failure_text
from codemode.plugins import add_event_listener

from .faces import Face, FaceTool
from .nested import NestedCalls
from .pauses import KEY, Pause, pause_metadata, refused
from .turns import SharedTurns


class LeftProgram(Protocol):
    """A program that a call of a run has left waiting, with calls that may go on."""

    @property
    def fatal(self) -> BaseException | None:
        """What ends the run of the agent, of what one of its calls has raised meanwhile."""
        ...

    async def end(self, run: RunState) -> None:
        """End it when this run of the agent ends, if calls of the run are in flight."""
        ...


@dataclass
class RunState(SharedTurns):
    """What the calls of one run of the agent share.

    ``paused`` holds the metadata of paused calls by their id, ``settled`` what became of answered inner calls,
    ``shown`` the ids of waiting calls that a client knows of, ``resumed`` those of paused calls that go on. ``waiting``
    are the programs that calls have left to be gone on with, by their ids, and ``offered`` the only tools that a model
    may be shown in this step, if that is known. ``is_checked``: the names of ``tools`` and ``keep`` are those of tools.
    """

    paused: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    waiting: dict[str, LeftProgram] = field(default_factory=dict[str, "LeftProgram"])
    offered: frozenset[str] | None = None
    settled: dict[str, dict[str, ToolReturnPart]] = field(default_factory=dict[str, dict[str, ToolReturnPart]])
    shown: set[str] = field(default_factory=set[str])
    resumed: set[str] = field(default_factory=set[str])
    is_checked: bool = False


class OuterCall:
    """One call of a tool of a face."""

    def __init__(
        self,
        face: Face,
        tool: FaceTool,
        behind: tuple[AbstractToolset[Any], Mapping[str, ToolsetTool[Any]]],
        ctx: RunContext[Any],
        run: RunState,
    ) -> None:
        self._face = face
        self._tool = tool
        self._ctx = ctx
        self._run = run
        self._id = ctx.tool_call_id or ""
        self._calls = NestedCalls(*behind, ctx, run, face.settings.execution_policy, face.words)
        # An engine gives what it has recorded to the next call in order: one that came from a journal would shift them.
        self._call = tool.new_call(is_repeated=self._calls.is_repeated)

    async def run(self, arguments: dict[str, Any]) -> Any:
        """Return the answer.

        Raises `ApprovalRequired` for a pause, `ModelRetry` for a failure, `UserError` for one that was answered before.
        """
        resumed = await self._resumed() if self._ctx.tool_call_approved and self._tool.makes_calls else None
        try:
            answer = await self._until_fatal(arguments, resumed)
        except CodeModeProtocolError as error:
            if error.was_answered:
                raise refused(self._face, "go on", error) from error
            raise
        except CodeModeError as error:
            if error.details.get("origin") == "journal":
                raise  # no fault of the program, which goes on when the run is made again
            raise ModelRetry(failure_text(error, self._call.text(arguments))) from error
        finally:
            if self._calls.settled:
                self._run.settled[self._id] = self._calls.settled
        if isinstance(answer, Interrupt):
            name = self._tool.definition.name
            self._pause(pause_metadata(answer, ToolCallPart(name, arguments, tool_call_id=self._id)))
        return self._with_calls(self._calls.beside.on(self._call.shown(answer, self._id)))

    def _with_calls(self, shown: Any) -> Any:
        """Return what the model is shown, with what the application may know of the calls."""
        if not self._tool.makes_calls:
            return shown
        returned = cast("ToolReturn[Any]", shown if isinstance(shown, ToolReturn) else ToolReturn(shown))
        told = {"tool_kind": self._tool.kind, "calls": self._calls.log.report()}
        return replace(returned, metadata={**(returned.metadata or {}), **told})

    async def _resumed(self) -> tuple[Pause, dict[str, Any]]:
        """Return the pause that an approval of this call resumes, and the answers."""
        metadata = self._ctx.tool_call_metadata
        carried = cast("dict[str, Any]", metadata).get(KEY) if isinstance(metadata, dict) else None
        if carried is None:
            # To approve the program is not to approve what it calls, least of all to run it again.
            if self._id in self._run.paused:
                self._pause(self._run.paused[self._id])
            raise UserError(
                f"A {self._face.title} call was approved as a whole. What waits are its inner calls: answer those, by "
                "their ids."
            )
        pause = await Pause.of(carried["continuation"], self._face, self._ctx.conversation_id)
        if pause.outer_id != self._id:
            raise UserError(f"The continuation belongs to another call of {self._face.title}.")
        if not carried["answers"]:
            self._pause(pause_metadata(pause.interrupt, pause.outer_call))
        return pause, carried["answers"]

    def _pause(self, metadata: dict[str, Any]) -> None:
        self._run.paused[self._id] = metadata
        raise ApprovalRequired(metadata=metadata)

    async def _until_fatal(self, arguments: dict[str, Any], resumed: tuple[Pause, dict[str, Any]] | None) -> Any:
        log = self._calls.log
        with add_event_listener(log):
            task = asyncio.ensure_future(self._answer(arguments, resumed))
        self._calls.stop = task.cancel
        try:
            async with log.streamed():
                answer = await task
        except (CodeModeError, asyncio.CancelledError):
            if self._calls.fatal is None:
                raise
            raise self._calls.fatal from None
        if self._calls.fatal is not None:
            raise self._calls.fatal
        return answer

    async def _answer(self, arguments: dict[str, Any], resumed: tuple[Pause, dict[str, Any]] | None) -> Any:
        ctx = self._ctx
        noted_ms = _response_time_ms(ctx.messages)
        call = CallContext(
            tool_call_id=self._id or None,
            messages=ctx.messages,
            context=self._calls,
            conversation_id=ctx.conversation_id or None,
            started_at_ms=noted_ms,
            clock_ms=None if noted_ms is None or not self._calls.is_repeated else lambda: noted_ms,
        )
        if resumed is None:
            return await self._call.begin(arguments, ctx, call)
        pause, answers = resumed
        return await self._go_on(pause.interrupt, answers, call)

    async def _go_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        """Go on from a pause; where a run was cut off that did so by these answers, from there."""
        try:
            return await self._call.go_on(interrupt, answers, call)
        except CodeModeError as error:
            recovery = Interrupt.find_recovery(error)
            if recovery is None:
                raise
        return recovery if recovery.requests else await self._go_on(recovery, {}, call)


def _response_time_ms(messages: Iterable[ModelMessage]) -> int | None:
    """Return when the model made its calls: the one time that an engine that repeats a run has recorded."""
    times = [message.timestamp for message in messages if isinstance(message, ModelResponse)]
    return max(int(times[-1].timestamp() * 1000), 1) if times else None
