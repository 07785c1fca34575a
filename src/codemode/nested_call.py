"""One nested call: look up, validate, approve, execute, serialise. Knows no worker and no order of calls."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from . import approval
from .call_values import CheckedInput, asked_text, check_input, output_text, payload_text, read_fetch, read_text
from .catalog import Catalog
from .errors import (
    HOST_TOOL_ERROR,
    CodeModeError,
    CodeModeFetchError,
    CodeModeProtocolError,
    CodeModeToolError,
    guest_view,
)
from .host_threads import LARGE_CHARACTERS
from .interrupts import APPROVAL_KIND, InterruptRequested, interrupt_within
from .options import CodeModeOptions
from .protocol.events import CallSettled
from .protocol.ledger import Fulfilled, LedgerEntry, Rejected, Waiting, waiting
from .resolutions import Answer, Approval, HostAnswer, KnownOutcome
from .thread_call import ThreadCall
from .tools import AnsweredInterrupt, Tool, ToolCallContext, ValidatedInput
from .values import encode_json

if TYPE_CHECKING:
    from .fetch import Fetches
    from .host_threads import InvocationThreads


class CallProgress(Protocol):
    """Hears how far one call has come."""

    def asked(self) -> None:
        """A person is being asked."""
        ...

    def answered(self) -> None:
        """The person has answered."""
        ...

    def started(self, executed_input_json: str | None, *, is_approved: bool) -> None:
        """The tool itself runs from here on."""
        ...


class _Thrown(Exception):  # noqa: N818 - carries an error, is none itself
    """What host code raised during a call, already as the error that the caller gets."""

    def __init__(self, error: CodeModeError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class NestedCalls:
    """Performs the calls of one invocation.

    ``aborted`` is set when the invocation ends before its calls. ``answers`` are what a resume brought, by request id;
    ``salt`` gives what makes new interrupt ids this invocation's own. ``large_inputs`` are validated inputs of calls
    under way, as JSON texts by request id: a recovery shows them, and validating them again would keep the loop.
    """

    catalog: Catalog[Tool]
    options: CodeModeOptions
    outer_tool_call_id: str
    messages: Sequence[Any]
    context: Any
    aborted: asyncio.Event
    now_ms: Callable[[], int]
    salt: Callable[[], str]
    answers: Mapping[int, Answer]
    threads: InvocationThreads
    fetches: Fetches | None = None
    large_inputs: dict[int, str] = field(default_factory=dict[int, str])

    async def perform(self, entry: LedgerEntry, progress: CallProgress) -> CallSettled:
        """Return how a request ended. Raises `CodeModeProtocolError` when the host itself broke a rule."""
        answer = self.answers.get(entry.id)
        try:
            if isinstance(answer, KnownOutcome):
                return CallSettled(entry.id, answer.outcome, self.now_ms(), answer.error)
            if entry.kind == "catalog":
                return self._fulfilled(entry, self._ask_catalog(entry))
            if entry.kind == "fetch":
                return self._fulfilled(entry, await self._fetch(entry, progress))
            return await _ToolCall(self, entry, answer, progress).perform()
        except CodeModeProtocolError:
            raise
        except CodeModeError as error:
            return self.rejected(entry, error)
        except _Thrown as thrown:
            return self.rejected(entry, thrown.error)
        except Exception as error:  # noqa: BLE001 - validators and serialisers of schemas are host code too
            return self.rejected(entry, _hidden(entry, error))

    def require_running(self) -> None:
        """Raise `asyncio.CancelledError` once the invocation has ended.

        Nobody records what begins after that, so a recovery would begin it again. A call gets here when the end and its
        permission come in one turn of the loop, or when what decided about it took its cancellation for an answer.
        """
        if self.aborted.is_set():
            raise asyncio.CancelledError

    async def _fetch(self, entry: LedgerEntry, progress: CallProgress) -> str:
        if self.fetches is None:
            raise CodeModeFetchError("fetch is not allowed")
        request = await read_fetch(entry, self.options.execution_policy)
        self.require_running()
        if request.changes_something:
            progress.started(None, is_approved=False)
        return await self.fetches.perform(request)

    def _ask_catalog(self, entry: LedgerEntry) -> str:
        argument = asked_text(entry)
        ask = self.catalog.search if entry.name == "$search" else self.catalog.describe
        return encode_json(ask(argument), what=f"the answer of tools.{entry.name}")

    def _fulfilled(self, entry: LedgerEntry, text: str | None) -> CallSettled:
        return CallSettled(entry.id, Fulfilled(text), self.now_ms())

    def rejected(self, entry: LedgerEntry, error: CodeModeError) -> CallSettled:
        """Return that a request ended with this error."""
        return CallSettled(entry.id, Rejected(*guest_view(error)), self.now_ms(), error)


class _ToolCall:
    """One call of one tool on its way from lookup to outcome."""

    def __init__(self, calls: NestedCalls, entry: LedgerEntry, answer: Answer | None, progress: CallProgress) -> None:
        self._calls = calls
        self._entry = entry
        self._answer = answer
        self._progress = progress
        self._policy = calls.options.execution_policy
        self._tool = self._find()
        self._is_approved = entry.is_approved
        self._executed_json = entry.executed_input_json

    async def perform(self) -> CallSettled:
        """Return how the call ended; raises what the guest is to be told."""
        entry, tool = self._entry, self._tool
        asks = tool.needs_approval is not False
        checked = await self._validate(is_shown=asks)
        request = await self._approval_request(checked.validated) if asks or self._answer is not None else None
        if request is not None:
            if self._calls.options.approval.mode == "interrupt":
                return await self._pause({"kind": APPROVAL_KIND}, checked)
            await self._approve(request)
            self._executed_json = checked.shown_json
        calls = self._calls
        context = await self._context() if tool.takes_context else None
        calls.require_running()
        self._progress.started(self._executed_json, is_approved=self._is_approved)
        try:
            output = await self._guarded(self._execute(checked.validated, context))
        except InterruptRequested as pause:
            # The tool may have changed what it was given; shown is what it was given.
            return await self._pause(pause.payload, await self._validate(is_shown=True))
        text = await output_text(tool, output, self._policy)
        calls.large_inputs.pop(entry.id, None)
        return CallSettled(entry.id, Fulfilled(text), calls.now_ms())

    def _find(self) -> Tool:
        entry = self._entry
        tool = self._calls.catalog.get(entry.name)
        if tool is None:
            raise self._calls.catalog.unknown_tool(entry.name)
        if tool.execute is None:
            raise CodeModeToolError(
                f"tool {entry.name!r} is declared but cannot be executed",
                details={"tool_name": entry.name, "tool_call_id": entry.tool_call_id},
            )
        return tool

    async def _validate(self, *, is_shown: bool) -> CheckedInput:
        entry = self._entry
        edited_json = self._answer.input_json if isinstance(self._answer, Approval) else None
        is_approved = isinstance(self._answer, Approval) and self._answer.decision.approved
        checked = await check_input(self._tool, entry, edited_json, self._policy, is_shown=is_shown or is_approved)
        if checked.shown_json is not None and len(checked.shown_json) >= LARGE_CHARACTERS:
            self._calls.large_inputs[entry.id] = checked.shown_json
        if is_approved:
            self._is_approved = True
            self._executed_json = checked.shown_json
        return checked

    async def _context(self) -> ToolCallContext:
        calls, entry = self._calls, self._entry
        answered = None
        if isinstance(self._answer, HostAnswer) and isinstance(entry.outcome, Waiting):
            payload = await read_text(entry.outcome.payload_json)
            answered = AnsweredInterrupt(
                id=entry.outcome.interrupt_id, payload=payload, resolution=self._answer.resolution
            )
        return ToolCallContext(
            tool_call_id=entry.tool_call_id or "",
            outer_tool_call_id=calls.outer_tool_call_id,
            messages=calls.messages,
            context=calls.context,
            aborted=calls.aborted,
            interrupt=answered,
            asking_person=self._asking_person,
        )

    @contextmanager
    def _asking_person(self) -> Generator[None, None, None]:
        self._progress.asked()
        try:
            yield
        finally:
            self._progress.answered()

    async def _approval_request(self, validated: ValidatedInput) -> approval.ApprovalRequest | None:
        """Return what a person is to decide, or None when nobody needs to be asked (again)."""
        tool, entry = self._tool, self._entry
        request = approval.ApprovalRequest(tool.name, None, entry.tool_call_id or "")
        if isinstance(self._answer, Approval):
            if not self._answer.decision.approved:
                raise approval.denial(request, self._answer.decision, self._calls.options.approval)
            return None
        if tool.needs_approval is False or self._is_approved or self._answer is not None:
            return None
        if not await self._decided(approval.needs_approval(tool, validated.value, await self._context())):
            return None
        return approval.ApprovalRequest(tool.name, validated.json_value, entry.tool_call_id or "")

    async def _approve(self, request: approval.ApprovalRequest) -> None:
        policy = self._calls.options.approval
        self._progress.asked()
        try:
            answer = await self._decided(approval.ask(policy.on_approval_required, request))
        finally:
            self._progress.answered()
        decision = approval.read_decision(answer, request)
        if not decision.approved:
            raise approval.denial(request, decision, policy)
        self._is_approved = True

    async def _pause(self, payload: Mapping[str, Any], shown: CheckedInput) -> CallSettled:
        entry, calls = self._entry, self._calls
        payload_json = await payload_text(entry.name, payload, self._policy)
        outcome = waiting(entry, "interrupt", calls.salt(), payload_json, shown.shown_json)
        return CallSettled(entry.id, outcome, calls.now_ms())

    async def _execute(self, validated: ValidatedInput, context: ToolCallContext | None) -> Any:
        tool = self._tool
        if tool.execute_kind == "async":
            result = await tool.call(validated.value, context)
        elif tool.execute_kind == "async_iterator":
            result = tool.call(validated.value, context)
        else:
            call = ThreadCall(tool, validated.value, context, self._entry.tool_call_id or "")
            result = await call.result(self._calls.threads.run_tool)
            if inspect.isawaitable(result):
                result = await result
        return await _last_item(cast("AsyncIterable[Any]", result)) if isinstance(result, AsyncIterable) else result

    async def _decided(self, work: Awaitable[Any]) -> Any:
        """Await what decides about a call. Only the tool itself can pause the program."""
        try:
            return await self._guarded(work)
        except _Thrown as thrown:
            approval.mark_undecided(thrown.error)
            raise
        except InterruptRequested as pause:
            misplaced = TypeError("request_interrupt works inside a tool, not in what decides about its approval")
            raise _Thrown(_hidden(self._entry, misplaced)) from pause

    async def _guarded(self, work: Awaitable[Any]) -> Any:
        """Await host code. What it raises is hidden from the guest and kept for the host, whatever its class."""
        try:
            return await work
        except CodeModeError as error:
            raise _Thrown(error) from error
        except (Exception, SystemExit) as error:
            pause = interrupt_within(error)
            if pause is not None:
                raise pause from None
            raise _Thrown(_hidden(self._entry, error)) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled this call: something inside the tool was cancelled.
            raise _Thrown(_hidden(self._entry, error)) from error
        except BaseExceptionGroup as group:
            pause = interrupt_within(group)
            if pause is None:
                raise
            raise pause from None


def _hidden(entry: LedgerEntry, error: BaseException) -> CodeModeToolError:
    hidden = CodeModeToolError(
        f"tool {entry.name!r} failed",
        code=HOST_TOOL_ERROR,
        details={"tool_name": entry.name, "tool_call_id": entry.tool_call_id},
    )
    hidden.__cause__ = error
    return hidden


async def _last_item(items: AsyncIterable[Any]) -> Any:
    last: Any = None
    async for last in items:  # noqa: B007 - the last item is what is wanted
        pass
    return last
