"""Nested calls on the framework's own path. Knows nothing of programs, message histories or who answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    AgentRunError,
    ApprovalRequired,
    CallDeferred,
    ToolFailedError,
    ToolRetryError,
    UserError,
)
from pydantic_ai.messages import ToolCallPart, ToolReturn, ToolReturnPart, tool_return_ta
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import ToolDenied
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from codemode import CodeModeToolApprovalDeniedError, CodeModeToolError, ToolCallContext, request_interrupt

from .turns import CallBudget, Reservation, Turns

APPROVAL_KIND = "pydantic-ai/approval"
CALL_KIND = "pydantic-ai/call"

# These end the run of the agent; a program must not be able to catch them.
_ENDS_THE_RUN = (AgentRunError, UserError)


@dataclass
class _CountedToolset(WrapperToolset[Any]):
    """Gives a reservation back at the moment before the framework counts the call itself."""

    reservations: dict[str, Reservation] = field(default_factory=dict[str, Reservation])

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        result = await self.wrapped.call_tool(name, tool_args, ctx, tool)
        self.reservations[ctx.tool_call_id or ""].release()
        return result


class NestedCalls:
    """The calls of one program, through a `ToolManager` that knows the hidden tools.

    ``fatal`` is what ends the run of the agent, whatever the program does; ``stop`` then cancels the program.
    ``settled`` are the calls that somebody answered, by the id under which they waited.
    """

    def __init__(
        self,
        toolset: AbstractToolset[Any],
        tools: Mapping[str, ToolsetTool[Any]],
        ctx: RunContext[Any],
        budget: CallBudget,
    ) -> None:
        self.fatal: BaseException | None = None
        self.stop: Callable[[], object] = lambda: None
        self.settled: dict[str, ToolReturnPart] = {}
        self._budget = budget
        self._turns = Turns()
        self._toolset = _CountedToolset(toolset)
        self._manager = _manager(self._toolset, tools, ctx)

    async def call(self, name: str, arguments: Any, context: ToolCallContext, *, approved: bool = False) -> Any:
        """Run one nested call, or finish one that waited. Returns plain JSON."""
        call = ToolCallPart(name, arguments or {}, tool_call_id=context.tool_call_id)
        try:
            if context.interrupt is None:
                return await self._handle(call, {}, context, approved=approved)
            return await self._finish(call, context)
        except _ENDS_THE_RUN as error:
            self.fatal = error
            self.stop()
            raise

    async def _finish(self, call: ToolCallPart, context: ToolCallContext) -> Any:
        """Go on with a call that waited, by the answer that it got."""
        answered = context.interrupt
        assert answered is not None  # noqa: S101 - the caller has looked
        try:
            value = await self._by_answer(call, context, answered.payload, answered.resolution)
        except CodeModeToolApprovalDeniedError as error:
            self.settled[answered.id] = _settled(call, answered.id, error.message, "denied")
            raise
        except CodeModeToolError as error:
            self.settled[answered.id] = _settled(call, answered.id, error.message, "failed")
            raise
        self.settled[answered.id] = _settled(call, answered.id, value, "success")
        return value

    async def _by_answer(
        self, call: ToolCallPart, context: ToolCallContext, payload: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> Any:
        if "result" in answer:
            return answer["result"]
        if "failed" in answer:
            raise _failure(call, str(answer["failed"]))
        if answer.get("approved") is not True:
            raise _denial(call, str(answer.get("message", ToolDenied().message)))
        if payload["kind"] != APPROVAL_KIND:
            raise UserError(f"{call.tool_name!r} waits for a result, not for an approval")
        arguments = answer.get("args", payload.get("args"))
        edited = {} if arguments is None else {"args": arguments}
        if edited:
            call = ToolCallPart(call.tool_name, arguments, tool_call_id=call.tool_call_id)
        return await self._handle(call, edited, context, approved=True, metadata=answer.get("metadata"))

    async def _handle(
        self,
        call: ToolCallPart,
        edited: dict[str, Any],
        context: ToolCallContext,
        *,
        approved: bool = False,
        metadata: Any = None,
    ) -> Any:
        reservation = self._budget.reserve(_context(self._manager))
        self._toolset.reservations[call.tool_call_id] = reservation
        try:
            async with self._turns.take(alone=self._manager.is_sequential(call)):
                outcome = await self._through_manager(call, context, approved=approved, metadata=metadata)
        except ApprovalRequired as waits:
            _pause(APPROVAL_KIND, waits, edited)
        except CallDeferred as waits:
            _pause(CALL_KIND, waits, edited)
        except ToolRetryError as error:
            part = error.tool_retry
            text = (
                part.model_response_str(wrap_if_error=False)
                if isinstance(part, ToolReturnPart)
                else part.model_response()
            )
            raise _failure(call, text) from error
        except ToolFailedError as error:
            raise _failure(call, error.tool_failed.model_response_str(wrap_if_error=False)) from error
        finally:
            reservation.release()
            del self._toolset.reservations[call.tool_call_id]
        if isinstance(outcome, ToolDenied):
            raise _denial(call, outcome.message)
        value = cast("ToolReturn[Any]", outcome).return_value if isinstance(outcome, ToolReturn) else outcome
        return tool_return_ta.dump_python(value, mode="json", by_alias=True)

    async def _through_manager(self, call: ToolCallPart, context: ToolCallContext, **given: Any) -> Any:
        """Make a call; while an inline handler decides about it, the program's time stands still."""
        with ExitStack() as asking:

            async def asked(_requests: object) -> None:
                asking.enter_context(context.asking_person())

            async def answered(_requests: object, _results: object) -> None:
                asking.close()

            return await self._manager.handle_call(
                call, on_deferred_requests=asked, on_inline_deferred=answered, **given
            )


def _manager(
    toolset: AbstractToolset[Any], tools: Mapping[str, ToolsetTool[Any]], ctx: RunContext[Any]
) -> ToolManager[Any]:
    """Return a manager of the hidden tools that shares the run's retries, hooks and usage with the visible one."""
    outer = ctx.tool_manager
    if outer is None:
        return ToolManager(toolset, ctx=ctx, tools=dict(tools))
    return ToolManager(
        toolset,
        root_capability=outer.root_capability,
        ctx=outer.ctx,
        tools=dict(tools),
        failed_tools=outer.failed_tools,
        succeeded_tools=outer.succeeded_tools,
        availability_refused=outer.availability_refused,
        default_max_retries=outer.default_max_retries,
        resolved_capability_ids=outer.resolved_capability_ids,
    )


def _context(manager: ToolManager[Any]) -> RunContext[Any]:
    assert manager.ctx is not None  # noqa: S101 - set when the manager is made
    return manager.ctx


def _pause(kind: str, waits: ApprovalRequired | CallDeferred, edited: dict[str, Any]) -> NoReturn:
    payload: dict[str, Any] = {"kind": kind, **edited}
    if waits.metadata is not None:
        payload["metadata"] = waits.metadata
    if getattr(waits, "kind", None) == "question":
        payload["question"] = True
    request_interrupt(payload)


def _denial(call: ToolCallPart, message: str) -> CodeModeToolApprovalDeniedError:
    details = {"tool_name": call.tool_name, "tool_call_id": call.tool_call_id, "reason": message}
    return CodeModeToolApprovalDeniedError(message, details=details)


def _failure(call: ToolCallPart, message: str) -> CodeModeToolError:
    return CodeModeToolError(message, details={"tool_name": call.tool_name, "tool_call_id": call.tool_call_id})


def _settled(call: ToolCallPart, waiting_id: str, content: Any, outcome: Any) -> ToolReturnPart:
    return ToolReturnPart(tool_name=call.tool_name, content=content, tool_call_id=waiting_id, outcome=outcome)
