"""Store the pauses of an agent, and resume them when they are decided."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, cast

from pydantic_ai import RunContext
from pydantic_ai.agent import AbstractAgent, AgentRunResult, CallToolsNode
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ToolFailed, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ToolCallPart,
    ToolReturn,
    tool_return_ta,
)
from pydantic_ai.output import OutputDataT
from pydantic_ai.tools import (
    AgentDepsT,
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)

from codemode import CodeModeError, CodeModeOptions, CodeModeProtocolError, PendingRequest
from codemode.plugins import is_same_json
from codemode.stores import AgentRecords, AgentRun, Record, ResumeWith, StoredPause, StoredRequest, Tenant, ToolForm

from .conversion import get_annotations
from .nested import CALL_KIND
from .pauses import METADATA_KEY, Pause, is_waiting_call_id
from .surface_capability import SurfaceCapability
from .surface_toolset import SurfaceToolsetTool
from .surfaces import MAX_AGE_MS, Surface

if TYPE_CHECKING:
    from codemode.stores import InterruptStore


@dataclass(frozen=True, kw_only=True)
class PauseRequests:
    """The pending requests of an agent, with the call id of each by request id, and the source of their programs.

    ``key``: identifies the pause. ``expires_at_ms``: None if nothing in it expires.
    """

    key: str
    requests: tuple[PendingRequest, ...]
    calls: Mapping[str, str]
    source: str | None
    outer_call: ToolCallPart
    expires_at_ms: int | None


async def collect_requests(
    output: DeferredToolRequests,
    messages: list[ModelMessage],
    surface: Surface,
    conversation_id: str | None,
    tools: Mapping[str, ToolDefinition],
) -> PauseRequests:
    """Return the requests of a paused run. Raises `UserError` for a program's pause that cannot be opened."""
    response = next(item for item in reversed(messages) if isinstance(item, ModelResponse))
    stored_by_id = cast("dict[str, Any]", (response.metadata or {}).get(METADATA_KEY) or {})
    pauses = [await Pause.verify_and_open(item, surface, conversation_id) for item in stored_by_id.values()]
    source, first_lines = AgentRecords.join_programs([item.js for item in pauses])
    inner_requests = {
        item.interrupt_id: (item, first_line)
        for pause, first_line in zip(pauses, first_lines, strict=True)
        for item in pause.interrupt.requests
    }
    auth_fields = [item.interrupt.continuation["auth"] for item in pauses]
    displayed_calls = [[item.tool_call_id, item.tool_name] for item in (*output.approvals, *output.calls)]
    key_fields = [
        conversation_id,
        response.timestamp.isoformat(),
        sorted(item["nonce"] for item in auth_fields),
        displayed_calls,
    ]
    key = hashlib.sha256(json.dumps(key_fields, sort_keys=True).encode()).hexdigest()
    requests: list[PendingRequest] = []
    calls: dict[str, str] = {}
    for call, kind in _iter_waiting_calls_with_kinds(output):
        if METADATA_KEY in output.metadata.get(call.tool_call_id, {}):
            raise UserError(
                f"The programs of {call.tool_name!r} cannot be stored: give the agent the capability instead."
            )
        inner_request = inner_requests.get(call.tool_call_id)
        # Request ids of a store are unique, and models repeat call ids.
        request_id = call.tool_call_id if inner_request is not None else f"{call.tool_call_id}:{key[:16]}"
        calls[request_id] = call.tool_call_id
        requests.append(_make_request(request_id, call, kind, output, tools.get(call.tool_name), inner_request))
    return PauseRequests(
        key=key,
        requests=tuple(requests),
        calls=calls,
        source=source,
        outer_call=pauses[0].outer_call if pauses else _find_first_waiting_call(output),
        expires_at_ms=min((item["expiresAtMs"] for item in auth_fields), default=None),
    )


def _find_first_waiting_call(output: DeferredToolRequests) -> ToolCallPart:
    return next(call for call, _ in _iter_waiting_calls_with_kinds(output))


def _iter_waiting_calls_with_kinds(output: DeferredToolRequests) -> Iterable[tuple[ToolCallPart, str]]:
    for call in output.approvals:
        is_unknown = output.metadata.get(call.tool_call_id, {}).get("unknown_outcome") is True
        is_ours = is_waiting_call_id(call.tool_call_id)
        yield call, PendingRequest.UNKNOWN_OUTCOME if is_unknown and is_ours else PendingRequest.APPROVAL
    for call in output.calls:
        yield call, CALL_KIND


def _make_request(
    request_id: str,
    call: ToolCallPart,
    kind: str,
    output: DeferredToolRequests,
    tool: ToolDefinition | None,
    inner_request: tuple[PendingRequest, int] | None,
) -> PendingRequest:
    payload: dict[str, Any] = {"kind": kind}
    metadata = output.metadata.get(call.tool_call_id)
    if metadata and kind != PendingRequest.UNKNOWN_OUTCOME:
        payload["metadata"] = metadata
    if kind == CALL_KIND and tool is not None and tool.return_schema is not None:
        payload["schema"] = tool.return_schema
    line, column = (None, None) if inner_request is None else (inner_request[0].line, inner_request[0].column)
    return PendingRequest(
        interrupt_id=request_id,
        tool_name=call.tool_name,
        tool_call_id=call.tool_call_id,
        input=call.args_as_dict(),
        payload=payload,
        line=None if line is None or inner_request is None else line + inner_request[1],
        column=column,
        program=None if inner_request is None else inner_request[0].program,
    )


def make_tool_form(definition: ToolDefinition) -> ToolForm:
    """Return what an approval page needs to know about a tool."""
    return ToolForm(definition.parameters_json_schema, definition.description or "", get_annotations(definition))


def make_deferred_results(
    requests: Iterable[StoredRequest], calls: Mapping[str, str], answers: Mapping[str, Any]
) -> DeferredToolResults:
    """Return the framework's results for decisions by request id."""
    results = DeferredToolResults()
    for request in requests:
        if request.interrupt_id not in answers:
            continue
        call_id, answer = calls[request.interrupt_id], answers[request.interrupt_id]
        if request.kind == PendingRequest.APPROVAL:
            results.approvals[call_id] = _to_approval_result(request, answer)
        elif request.kind == PendingRequest.UNKNOWN_OUTCOME:
            _add_outcome_answer(results, call_id, answer)
        else:
            results.calls[call_id] = _to_tool_result(answer)
    return results


def _to_approval_result(request: StoredRequest, answer: Mapping[str, Any]) -> ToolApproved | ToolDenied:
    if answer.get("approved") is not True:
        reason = answer.get("reason")
        return ToolDenied(reason) if reason else ToolDenied()
    if "input" not in answer:
        return ToolApproved()
    edited = request.read_edited_input(answer)
    return ToolApproved() if is_same_json(edited, request.input) else ToolApproved(override_args=edited)


def _add_outcome_answer(results: DeferredToolResults, call_id: str, answer: Mapping[str, Any]) -> None:
    if "value" in answer:
        results.calls[call_id] = _to_tool_result(answer["value"])
    elif "error" in answer:
        results.calls[call_id] = ToolFailed(str(answer["error"]["message"]))
    else:
        results.approvals[call_id] = ToolApproved()


def _to_tool_result(value: Any) -> Any:
    # The framework takes None for no answer.
    return ToolReturn(return_value=None) if value is None else value


_log = logging.getLogger("codemode.stores")
_RECORD_OWNER = "pydantic-ai"

OnEnd = Callable[[Record, AgentRunResult[Any]], object]


@dataclass(frozen=True)
class StoredRun(Generic[OutputDataT]):
    """Result of an agent run; ``record_id`` is the id of its record if it waits for decisions, else None."""

    result: AgentRunResult[OutputDataT]
    record_id: str | None

    @property
    def output(self) -> OutputDataT:
        """The output of the agent; `DeferredToolRequests` if it waits."""
        return self.result.output


class StoredPauses(Generic[AgentDepsT, OutputDataT]):
    """The pauses of one agent in a store. See `stored_pauses`."""

    def __init__(
        self,
        agent: AbstractAgent[AgentDepsT, OutputDataT],
        store: InterruptStore,
        *,
        tenant: Tenant,
        app: str,
        labels: Mapping[str, str] | None,
        resume_with: ResumeWith | None,
        on_end: OnEnd | None,
    ) -> None:
        record_options: dict[str, Any] = {"app": app, "labels": labels, "resume_with": resume_with}
        self._agent = agent
        self._surface = _require_surface(agent)
        continuation_options = self._surface.settings.continuation
        self._records = AgentRecords(
            store, framework=_RECORD_OWNER, tenant=tenant, signed_with=continuation_options, **record_options
        )
        self._on_end = on_end
        self._records.require_guard(self, "the options of the agent's capability")

    @property
    def app(self) -> str:
        """The app of the records."""
        return self._records.app

    @property
    def options(self) -> CodeModeOptions:
        """The options of the agent's programs."""
        return self._surface.settings

    async def run(
        self,
        user_prompt: Any = None,
        *,
        tenant: str | None = None,
        labels: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> StoredRun[OutputDataT]:
        """Run the agent, and store its pause if it waits. ``settings`` are those of ``agent.run``.

        ``tenant``: the record's tenant, unless `stored_pauses` set it. ``labels`` are added to the record. Raises as
        ``agent.run`` does, and `StoreUnavailableError`.
        """
        record_tenant = self._records.resolve_tenant(tenant)
        observer = _RunObserver()
        result = await self._run_agent(observer, user_prompt, **settings)
        if not isinstance(result.output, DeferredToolRequests):
            return StoredRun(result, None)
        pause = await self._make_stored_pause(result, observer.tools)
        return StoredRun(result, await self._records.put(pause, record_tenant, labels))

    def run_sync(self, user_prompt: Any = None, **settings: Any) -> StoredRun[OutputDataT]:
        """Do what `run` does outside an event loop."""
        return asyncio.run(self.run(user_prompt, **settings))

    async def resume(self, record: Record, answers: Mapping[str, Any]) -> Any:
        """Resume a record when all requests of its step are decided. For a `Resumer` or a console.

        Returns the agent's output as plain JSON, or the `StoredPause` in which it waits now. The same answers again
        return the same result and run nothing. Raises `CodeModeProtocolError` for a record that this agent cannot
        resume, and the errors of the run.
        """
        stored = self._records.read_payload(record)
        if stored["calls"].keys() - answers.keys():
            return await self._records.get_waiting_pause(record)
        results = make_deferred_results(record.requests, stored["calls"], answers)
        messages = ModelMessagesTypeAdapter.validate_python(stored["messages"])
        settings = await self._records.get_resume_settings(record)
        async with self._records.resume(stored, answers) as run:
            if run.is_finished:
                return run.outcome
            observer = _RunObserver(run)
            try:
                result = await self._run_agent(
                    observer, message_history=messages, deferred_tool_results=results, **settings
                )
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is raised again
                raise _mark_final_error_for_store(error, run)  # noqa: B904 - the same error or its cause
            return await self._finish_run(record, result, observer, run)

    resume.takes_record = True  # pyright: ignore[reportFunctionMemberAccess] - for a `Resumer`

    async def _run_agent(
        self, observer: _RunObserver, user_prompt: Any = None, **settings: Any
    ) -> AgentRunResult[OutputDataT]:
        capabilities = [*(settings.pop("capabilities", None) or ()), observer]
        run: Any = self._agent.run
        return await run(user_prompt, capabilities=capabilities, **settings)

    async def _finish_run(
        self, record: Record, result: AgentRunResult[Any], observer: _RunObserver, run: AgentRun
    ) -> Any:
        if isinstance(result.output, DeferredToolRequests):
            outcome: Any = await self._make_stored_pause(result, observer.tools)
        else:
            outcome = tool_return_ta.dump_python(result.output, mode="json", by_alias=True)
        end = await run.finish(outcome)
        if not isinstance(end, StoredPause) and self._on_end is not None:
            try:
                callback_result = self._on_end(record, result)
                if inspect.isawaitable(callback_result):
                    await callback_result
            except Exception:  # noqa: BLE001 - the run has finished
                _log.exception("on_end has failed for record %s", record.id)
        return end

    async def _make_stored_pause(self, result: AgentRunResult[Any], tools: Mapping[str, ToolDefinition]) -> StoredPause:
        messages = result.all_messages()
        pause_requests = await collect_requests(result.output, messages, self._surface, result.conversation_id, tools)
        names = {request.tool_name for request in pause_requests.requests}
        return self._records.create_pause(
            pause_requests.requests,
            {
                "messages": ModelMessagesTypeAdapter.dump_python(messages, mode="json"),
                "calls": dict(pause_requests.calls),
            },
            key=pause_requests.key,
            expires_at_ms=pause_requests.expires_at_ms or self._compute_default_expiry_ms(),
            tool=pause_requests.outer_call.tool_name,
            outer_tool_call_id=pause_requests.outer_call.tool_call_id,
            tool_forms={name: make_tool_form(tools[name]) for name in sorted(names & tools.keys())},
            source=pause_requests.source,
        )

    def _compute_default_expiry_ms(self) -> int:
        max_age_ms = self.options.continuation.max_age_ms
        return int(time.time() * 1000) + (MAX_AGE_MS if max_age_ms is None else max_age_ms)


def stored_pauses(
    agent: AbstractAgent[AgentDepsT, OutputDataT],
    store: InterruptStore,
    *,
    tenant: Tenant = "",
    app: str = "pydantic-ai",
    labels: Mapping[str, str] | None = None,
    resume_with: ResumeWith | None = None,
    on_end: OnEnd | None = None,
) -> StoredPauses[AgentDepsT, OutputDataT]:
    """Keep the pauses of an agent in a store: ``await pauses.run(prompt)`` runs it, `StoredPauses.resume` resumes it.

    All requests of one step, of programs and of other calls, are one record. It resumes when all are decided; the next
    pause is the record's next version, and the agent's output is the record's outcome. The agent needs a capability of
    this package, with ``store.guard`` and a key that all processes share.

    ``tenant``: tenant of the records; with ALL_TENANTS each run passes its own. ``resume_with``: returns the settings
    of ``agent.run`` for a record, such as ``deps``, sync or async. ``on_end``: called with the record and the result of
    a finished run. Raises `ValueError` for an agent without the capability or with another guard.
    """
    record_options: dict[str, Any] = {"labels": labels, "resume_with": resume_with, "on_end": on_end}
    return StoredPauses(agent, store, tenant=tenant, app=app, **record_options)


@dataclass
class _RunObserver(AbstractCapability[Any]):
    """Records the tools of a run, and marks it unguarded when it makes calls after those it paused in."""

    run: AgentRun | None = None
    tools: dict[str, ToolDefinition] = field(default_factory=dict[str, ToolDefinition])
    _has_seen_response: bool = False

    async def before_node_run(self, ctx: RunContext[Any], *, node: Any) -> Any:  # noqa: ARG002 - the framework's
        if isinstance(node, CallToolsNode):
            response = cast("CallToolsNode[Any, Any]", node).model_response
            if self.run is not None and self._has_seen_response and response.tool_calls:
                await self.run.mark_unguarded()
            self._has_seen_response = True
        return cast("Any", node)

    async def after_node_run(self, ctx: RunContext[Any], *, node: Any, result: Any) -> Any:
        manager = ctx.tool_manager
        if isinstance(node, CallToolsNode) and manager is not None:
            for name, tool in (manager.tools or {}).items():
                self.tools[name] = tool.tool_def
                if isinstance(tool, SurfaceToolsetTool):
                    self.tools.update(
                        {name: program_tool.tool_def for name, program_tool in tool.program_tools.items()}
                    )
        return result


def _require_surface(agent: AbstractAgent[Any, Any]) -> Surface:
    surfaces: list[Surface] = []

    def collect_surface(capability: AbstractCapability[Any]) -> None:
        surface = capability.surface if isinstance(capability, SurfaceCapability) else None
        if surface is not None:
            surfaces.append(surface)

    agent.root_capability.apply(collect_surface)
    if not surfaces:
        examples = "capabilities=[CodeMode(...)], CodeCall(...) or ExecWait(...)"
        raise ValueError(f"the agent has no codemode capability: give it {examples}")
    return surfaces[0]


def _mark_final_error_for_store(error: BaseException, run: AgentRun) -> BaseException:
    """Return the error for the store: one with a final cause ends the record, others are retried."""
    reason = error.__cause__
    if isinstance(error, UserError) and isinstance(reason, CodeModeProtocolError):
        if not reason.is_pause_already_answered:
            reason.details["not_resumable"] = True  # wrong keys: nothing has run
        return reason
    is_framework_error = isinstance(error, AgentRunError | UserError)
    is_final = is_framework_error and not isinstance(error, ModelAPIError)
    if isinstance(error, CodeModeError) or not (is_final or run.is_unguarded):
        return error
    _log.warning("the run of an agent has failed", exc_info=error)
    message = f"the run of the agent has failed with {type(error).__name__}{f': {error}' if is_framework_error else ''}"
    error.__cause__ = CodeModeError(message, code="CODE_MODE_AGENT_RUN")
    return error
