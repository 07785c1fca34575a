"""Run one call of a surface tool, to its result, pause or retry."""

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

from .call_scheduling import SharedCallState
from .nested import NestedCalls
from .pauses import METADATA_KEY, Pause, make_pause_metadata, make_refused_pause_error
from .surfaces import Surface, SurfaceTool


class WaitingProgram(Protocol):
    """A waiting program whose calls may still be in flight."""

    @property
    def fatal_error(self) -> BaseException | None:
        """The error of one of its calls that ends the agent's run."""
        ...

    async def clear_error_and_abort_if_in_flight(self, run: AgentRunState) -> None:
        """Abort the program if calls of the ended run are in flight."""
        ...


@dataclass
class AgentRunState(SharedCallState):
    """State that the calls of one agent run share.

    ``paused_metadata``: metadata of paused calls by id. ``waiting_programs``: programs of exec by run id.
    ``allowed_tools``: the only tools that the model may get in this step; None if any. ``settled_results``: results of
    answered nested calls, by outer call and id. ``displayed_call_ids``: pending calls that clients know.
    ``resumed_call_ids``: paused outer calls that resume. ``are_names_checked``: ``tools`` and ``keep`` were validated.
    """

    paused_metadata: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    waiting_programs: dict[str, WaitingProgram] = field(default_factory=dict[str, "WaitingProgram"])
    allowed_tools: frozenset[str] | None = None
    settled_results: dict[str, dict[str, ToolReturnPart]] = field(default_factory=dict[str, dict[str, ToolReturnPart]])
    displayed_call_ids: set[str] = field(default_factory=set[str])
    resumed_call_ids: set[str] = field(default_factory=set[str])
    are_names_checked: bool = False


class OuterCall:
    """One call of a surface tool."""

    def __init__(
        self,
        surface: Surface,
        tool: SurfaceTool,
        program_tools: tuple[AbstractToolset[Any], Mapping[str, ToolsetTool[Any]]],
        ctx: RunContext[Any],
        run_state: AgentRunState,
    ) -> None:
        self._surface = surface
        self._tool = tool
        self._ctx = ctx
        self._run_state = run_state
        self._id = ctx.tool_call_id or ""
        self._calls = NestedCalls(
            *program_tools, ctx, run_state, surface.settings.execution_policy, surface.error_style
        )
        # A durable engine matches its records with calls by order, which a journal would shift.
        self._call = tool.new_call(is_durable=self._calls.is_durable)

    async def run(self, arguments: dict[str, Any]) -> Any:
        """Return the result.

        Raises `ApprovalRequired` for a pause, `ModelRetry` for a failure, `UserError` for a pause answered before.
        """
        opened_pause = (
            await self._open_pause_or_raise_deferral()
            if self._ctx.tool_call_approved and self._tool.makes_calls
            else None
        )
        try:
            result = await self._run_raising_fatal_error(arguments, opened_pause)
        except CodeModeProtocolError as error:
            if error.is_pause_already_answered:
                raise make_refused_pause_error(self._surface, "resume", error) from error
            raise
        except CodeModeError as error:
            if error.details.get("origin") == "journal":
                raise  # not the program's fault; the run can be repeated
            raise ModelRetry(failure_text(error, self._call.get_program_text(arguments))) from error
        finally:
            if self._calls.settled_results:
                self._run_state.settled_results[self._id] = self._calls.settled_results
        if isinstance(result, Interrupt):
            name = self._tool.definition.name
            self._store_metadata_and_raise_deferral(
                make_pause_metadata(result, ToolCallPart(name, arguments, tool_call_id=self._id))
            )
        return self._add_call_metadata(self._calls.attachments.attach_to(self._call.format_result(result, self._id)))

    def _add_call_metadata(self, formatted: Any) -> Any:
        """Add the list of nested calls to the result's metadata, for the application."""
        if not self._tool.makes_calls:
            return formatted
        tool_return = cast("ToolReturn[Any]", formatted if isinstance(formatted, ToolReturn) else ToolReturn(formatted))
        call_metadata = {"tool_kind": self._tool.kind, "calls": self._calls.log.list_and_mark_reported_calls()}
        return replace(tool_return, metadata={**(tool_return.metadata or {}), **call_metadata})

    async def _open_pause_or_raise_deferral(self) -> tuple[Pause, dict[str, Any]]:
        """Return the pause that this call's approval resumes, and the answers."""
        metadata = self._ctx.tool_call_metadata
        pause_data = cast("dict[str, Any]", metadata).get(METADATA_KEY) if isinstance(metadata, dict) else None
        if pause_data is None:
            # Approving the outer call approves no nested call, and must not run the program again.
            if self._id in self._run_state.paused_metadata:
                self._store_metadata_and_raise_deferral(self._run_state.paused_metadata[self._id])
            raise UserError(
                f"A {self._surface.title} call was approved, but its nested calls wait: answer those, by their ids."
            )
        pause = await Pause.verify_and_open(pause_data["continuation"], self._surface, self._ctx.conversation_id)
        if pause.outer_call_id != self._id:
            raise UserError(f"The continuation belongs to another call of {self._surface.title}.")
        if not pause_data["answers"]:
            self._store_metadata_and_raise_deferral(make_pause_metadata(pause.interrupt, pause.outer_call))
        return pause, pause_data["answers"]

    def _store_metadata_and_raise_deferral(self, metadata: dict[str, Any]) -> None:
        self._run_state.paused_metadata[self._id] = metadata
        raise ApprovalRequired(metadata=metadata)

    async def _run_raising_fatal_error(
        self, arguments: dict[str, Any], opened_pause: tuple[Pause, dict[str, Any]] | None
    ) -> Any:
        log = self._calls.log
        with add_event_listener(log):
            task = asyncio.ensure_future(self._start_or_resume(arguments, opened_pause))
        self._calls.cancel_program = task.cancel
        try:
            async with log.stream_events():
                result = await task
        except (CodeModeError, asyncio.CancelledError):
            if self._calls.fatal_error is None:
                raise
            raise self._calls.fatal_error from None
        if self._calls.fatal_error is not None:
            raise self._calls.fatal_error
        return result

    async def _start_or_resume(
        self, arguments: dict[str, Any], opened_pause: tuple[Pause, dict[str, Any]] | None
    ) -> Any:
        ctx = self._ctx
        response_time_ms = _find_last_response_timestamp_ms(ctx.messages)
        call = CallContext(
            tool_call_id=self._id or None,
            messages=ctx.messages,
            context=self._calls,
            conversation_id=ctx.conversation_id or None,
            started_at_ms=response_time_ms,
            clock_ms=None if response_time_ms is None or not self._calls.is_durable else lambda: response_time_ms,
        )
        if opened_pause is None:
            return await self._call.start(arguments, ctx, call)
        pause, answers = opened_pause
        return await self._resume_program(pause.interrupt, answers, call)

    async def _resume_program(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        """Resume a pause, or the recovery interrupt of an earlier resume with these answers."""
        try:
            return await self._call.resume(interrupt, answers, call)
        except CodeModeError as error:
            recovery = Interrupt.find_recovery(error)
            if recovery is None:
                raise
        return recovery if recovery.requests else await self._resume_program(recovery, {}, call)


def _find_last_response_timestamp_ms(messages: Iterable[ModelMessage]) -> int | None:
    """Return when the model made its calls: the only time that a durable engine records."""
    times = [message.timestamp for message in messages if isinstance(message, ModelResponse)]
    return max(int(times[-1].timestamp() * 1000), 1) if times else None
