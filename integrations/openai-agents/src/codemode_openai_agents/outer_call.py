"""One call of codeMode by a model: its program, from the first turn to the last. Shows nothing to a model itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

from agents import FunctionTool, UserError
from agents.tool_context import ToolContext

from codemode import (
    CallContext,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTool,
    CodeModeToolApprovalDeniedError,
    Content,
    Interrupt,
    PendingRequest,
    ToolCallContext,
    failure_text,
)
from codemode.plugins import (
    LARGE_CHARACTERS,
    UNKNOWN_OUTCOME_KIND,
    heard_by,
    open_continuation,
    recovery_of,
    run_check,
    weigh,
    why_refused,
)

from .agents_behind import AGENT_KIND
from .approvals import Approvals, decide_for_all, decided_before, edited_input
from .nested import NestedCalls
from .pauses import Decide, Decision, inner_id
from .told_calls import CallLog


class OuterCall:
    """What becomes of a program: ``value`` and ``parts`` for the model, or the text of a ``failure``, or a pause.

    ``error`` is what ends the run of the agent.
    """

    def __init__(
        self,
        core: CodeModeTool,
        tools: Mapping[str, FunctionTool],
        approvals: Approvals,
        context: ToolContext[Any],
        js: str,
        log: CallLog,
        state: Any,
    ) -> None:
        self.value: Any = None
        self.parts: list[Content] = []
        self.failure: str | None = None
        self.error: BaseException | None = None
        self.has_ended = False
        self._core = core.for_one_call()
        self._js = js
        self._tools = tools
        self._approvals = approvals
        self._context = context
        self._calls = NestedCalls(context, tools)
        self._log = log
        self._state = state
        self._denied: set[str] = set()

    async def begin(self) -> Interrupt | None:
        """Run the program up to its first pause; None when it has ended."""
        call = CallContext(tool_call_id=self._context.tool_call_id, context=self, state=self._state)
        return await self._turn(self._core.execute(self._js, call))

    async def go_on(self, continuation: Any, decide: Decide) -> Interrupt | None:
        """Do the same from a pause."""
        try:
            opened = await run_check(
                weigh(continuation, LARGE_CHARACTERS),
                lambda: open_continuation(continuation, options=self._core.options),
            )
        except CodeModeProtocolError as error:
            return self._end(_cannot_go_on(error))
        interrupt = opened.interrupt
        decisions = await decide(interrupt)
        answers = {one.interrupt_id: _answer(one, decisions) for one in interrupt.requests}
        for one in interrupt.requests:
            made = decisions.get(one.interrupt_id)
            is_asked = one.payload.get("kind") != UNKNOWN_OUTCOME_KIND
            if is_asked and made is not None and made.is_for_all:
                await decide_for_all(self._context, one, is_approved=made.is_approved)
        return await self._turn(self._resumed(interrupt, answers), is_resumed=True)

    async def _resumed(self, interrupt: Interrupt, answers: Mapping[str, Any]) -> Any:
        """Go on from a pause; where a run was cut off that did so by these answers, from there."""
        try:
            call = CallContext(context=self, state=self._state)
            return await self._core.resume(interrupt, call=call, resolutions=answers)
        except CodeModeError as error:
            recovery = recovery_of(error)
            if recovery is None:
                raise
        return recovery if recovery.requests else await self._resumed(recovery, {})

    async def call(self, name: str, arguments: dict[str, Any], context: ToolCallContext) -> Any:
        """Make a call of the program."""
        if context.tool_call_id in self._denied:
            raise CodeModeToolApprovalDeniedError(
                f"calls of {name!r} are rejected in this run", details={"tool_name": name}
            )
        return await self._calls.call(name, arguments, context)

    async def asks(self, name: str, arguments: dict[str, Any], context: ToolCallContext) -> bool:
        """Tell whether a person must decide about a call first."""
        decided = await decided_before(self._context, name, context.tool_call_id, arguments)
        if decided is None:
            return await self._approvals.asks(self._tools[name], self._context, arguments, context.tool_call_id)
        if not decided:
            self._denied.add(context.tool_call_id)
        return False

    async def _turn(self, work: Awaitable[Any], *, is_resumed: bool = False) -> Interrupt | None:
        calls = self._calls
        with heard_by(self._log):
            running = asyncio.ensure_future(work)
        calls.stop = running.cancel
        try:
            answer = await running
        except asyncio.CancelledError:
            running.cancel()
            if calls.fatal is None:
                raise
            return self._end(calls.fatal)
        except CodeModeProtocolError as error:
            if is_resumed:
                return self._end(_cannot_go_on(error))
            return self._failed(error)
        except CodeModeError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - what a tool of the SDK ends the run with
            return self._end(error)
        if calls.fatal is not None:
            return self._end(calls.fatal)
        if isinstance(answer, Interrupt):
            return answer
        self.has_ended = True
        self.value, self.parts = self._core.to_model_parts(answer, tool_call_id=self._context.tool_call_id)
        return None

    def _failed(self, error: CodeModeError) -> None:
        if self._calls.fatal is not None:
            return self._end(self._calls.fatal)
        self.has_ended = True
        self.failure = failure_text(error, self._js)
        return None

    def _end(self, error: BaseException) -> None:
        self.has_ended = True
        self.error = error


def _answer(request: PendingRequest, decisions: Mapping[str, Decision]) -> dict[str, Any]:
    if request.payload.get("kind") == AGENT_KIND:
        ids = [inner_id(request.interrupt_id, number) for number in range(len(request.payload["waiting"]))]
        return {"decisions": [_inner_answer(decisions.get(one)) for one in ids]}
    decision = decisions.get(request.interrupt_id)
    is_approved = decision is not None and decision.is_approved
    said = "" if decision is None else decision.said
    if request.payload.get("kind") == UNKNOWN_OUTCOME_KIND:
        return {"runAgain": True} if is_approved else {"error": {"message": said or "rejected"}}
    if is_approved:
        return {"approved": True}
    edited = None if decision is None else edited_input(said, decision.mark)
    if edited is not None:
        return {"approved": True, "input": edited}
    return {"approved": False, **({"reason": said} if said else {})}


def _inner_answer(decision: Decision | None) -> dict[str, Any]:
    if decision is None:
        return {}
    always: dict[str, Any] = {"always": True} if decision.is_for_all else {}
    if decision.is_approved:
        return {"approved": True, **always}
    edited = edited_input(decision.said, decision.mark)
    return {"input": edited} if edited is not None else {"approved": False, "message": decision.said, **always}


def _cannot_go_on(error: CodeModeProtocolError) -> UserError:
    said, own = "This paused codeMode call cannot go on", "a state goes on once, with one set of decisions"
    return UserError(why_refused(said, error, first="the state of the run", otherwise=own))
