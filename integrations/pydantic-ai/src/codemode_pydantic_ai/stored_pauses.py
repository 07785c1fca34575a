"""Pauses of an agent in a store: requests, decisions, and resuming where the agent is."""

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
from codemode.plugins import same_json
from codemode.stores import AgentRecords, AgentRun, Record, ResumeWith, StoredPause, StoredRequest, Tenant, ToolForm

from .faces import MAX_AGE_MS, Face
from .hidden_tools import annotations_of
from .hiding_capability import HidingCapability
from .hiding_toolset import OwnTool
from .nested import CALL_KIND
from .pauses import KEY, Pause, is_waiting_id

if TYPE_CHECKING:
    from codemode.stores import InterruptStore


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What an agent waits for: its requests, the call behind each by the request's id, and the programs around them.

    ``key`` names the pause; ``expires_at_ms`` is None where nothing in it expires.
    """

    key: str
    requests: tuple[PendingRequest, ...]
    calls: Mapping[str, str]
    source: str | None
    outer: ToolCallPart
    expires_at_ms: int | None


async def asked_by(
    output: DeferredToolRequests,
    messages: list[ModelMessage],
    face: Face,
    conversation_id: str | None,
    tools: Mapping[str, ToolDefinition],
) -> Asked:
    """Return what a run asks that ended in this. Raises `UserError` for a pause of a program that cannot be opened."""
    response = next(one for one in reversed(messages) if isinstance(one, ModelResponse))
    kept = cast("dict[str, Any]", (response.metadata or {}).get(KEY) or {})
    pauses = [await Pause.of(one, face, conversation_id) for one in kept.values()]
    source, first_lines = AgentRecords.join_programs([one.js for one in pauses])
    inner = {
        one.interrupt_id: (one, first)
        for pause, first in zip(pauses, first_lines, strict=True)
        for one in pause.interrupt.requests
    }
    auths = [one.interrupt.continuation["auth"] for one in pauses]
    shown = [[one.tool_call_id, one.tool_name] for one in (*output.approvals, *output.calls)]
    named = [conversation_id, response.timestamp.isoformat(), sorted(one["nonce"] for one in auths), shown]
    key = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    requests: list[PendingRequest] = []
    calls: dict[str, str] = {}
    for call, kind in _waiting(output):
        if KEY in output.metadata.get(call.tool_call_id, {}):
            raise UserError(
                f"The programs of {call.tool_name!r} cannot be kept in a store: give the agent the capability instead."
            )
        found = inner.get(call.tool_call_id)
        # A model repeats its ids, and requests of a store are known by theirs everywhere.
        request_id = call.tool_call_id if found is not None else f"{call.tool_call_id}:{key[:16]}"
        calls[request_id] = call.tool_call_id
        requests.append(_request(request_id, call, kind, output, tools.get(call.tool_name), found))
    return Asked(
        key=key,
        requests=tuple(requests),
        calls=calls,
        source=source,
        outer=pauses[0].outer_call if pauses else _first(output),
        expires_at_ms=min((one["expiresAtMs"] for one in auths), default=None),
    )


def _first(output: DeferredToolRequests) -> ToolCallPart:
    return next(call for call, _ in _waiting(output))


def _waiting(output: DeferredToolRequests) -> Iterable[tuple[ToolCallPart, str]]:
    for call in output.approvals:
        is_unknown = output.metadata.get(call.tool_call_id, {}).get("unknown_outcome") is True
        is_ours = is_waiting_id(call.tool_call_id)
        yield call, PendingRequest.UNKNOWN_OUTCOME if is_unknown and is_ours else PendingRequest.APPROVAL
    for call in output.calls:
        yield call, CALL_KIND


def _request(
    request_id: str,
    call: ToolCallPart,
    kind: str,
    output: DeferredToolRequests,
    tool: ToolDefinition | None,
    found: tuple[PendingRequest, int] | None,
) -> PendingRequest:
    payload: dict[str, Any] = {"kind": kind}
    metadata = output.metadata.get(call.tool_call_id)
    if metadata and kind != PendingRequest.UNKNOWN_OUTCOME:
        payload["metadata"] = metadata
    if kind == CALL_KIND and tool is not None and tool.return_schema is not None:
        payload["schema"] = tool.return_schema
    line, column = (None, None) if found is None else (found[0].line, found[0].column)
    return PendingRequest(
        interrupt_id=request_id,
        tool_name=call.tool_name,
        tool_call_id=call.tool_call_id,
        input=call.args_as_dict(),
        payload=payload,
        line=None if line is None or found is None else line + found[1],
        column=column,
        program=None if found is None else found[0].program,
    )


def form_of(definition: ToolDefinition) -> ToolForm:
    """Return what a page needs of a tool."""
    return ToolForm(definition.parameters_json_schema, definition.description or "", annotations_of(definition))


def results_of(
    requests: Iterable[StoredRequest], calls: Mapping[str, str], answers: Mapping[str, Any]
) -> DeferredToolResults:
    """Return the framework's results for decisions by request id."""
    results = DeferredToolResults()
    for request in requests:
        if request.interrupt_id not in answers:
            continue
        call_id, answer = calls[request.interrupt_id], answers[request.interrupt_id]
        if request.kind == PendingRequest.APPROVAL:
            results.approvals[call_id] = _approval(request, answer)
        elif request.kind == PendingRequest.UNKNOWN_OUTCOME:
            _add_outcome(results, call_id, answer)
        else:
            results.calls[call_id] = _given(answer)
    return results


def _approval(request: StoredRequest, answer: Mapping[str, Any]) -> ToolApproved | ToolDenied:
    if answer.get("approved") is not True:
        reason = answer.get("reason")
        return ToolDenied(reason) if reason else ToolDenied()
    if "input" not in answer:
        return ToolApproved()
    edited = request.read_edited_input(answer)
    return ToolApproved() if same_json(edited, request.input) else ToolApproved(override_args=edited)


def _add_outcome(results: DeferredToolResults, call_id: str, answer: Mapping[str, Any]) -> None:
    if "value" in answer:
        results.calls[call_id] = _given(answer["value"])
    elif "error" in answer:
        results.calls[call_id] = ToolFailed(str(answer["error"]["message"]))
    else:
        results.approvals[call_id] = ToolApproved()


def _given(value: Any) -> Any:
    # Nothing at all is no answer to the framework.
    return ToolReturn(return_value=None) if value is None else value


_log = logging.getLogger("codemode.stores")
_KEPT_BY = "pydantic-ai"

OnEnd = Callable[[Record, AgentRunResult[Any]], object]


@dataclass(frozen=True)
class StoredRun(Generic[OutputDataT]):
    """What a run of the agent came to; ``record_id`` is that of its record where it waits for people, else None."""

    result: AgentRunResult[OutputDataT]
    record_id: str | None

    @property
    def output(self) -> OutputDataT:
        """The output of the agent; `DeferredToolRequests` where it waits."""
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
        more: dict[str, Any] = {"app": app, "labels": labels, "resume_with": resume_with}
        self._agent = agent
        self._face = _face_of(agent)
        signed_with = self._face.settings.continuation
        self._records = AgentRecords(store, framework=_KEPT_BY, tenant=tenant, signed_with=signed_with, **more)
        self._on_end = on_end
        self._records.require_guard(self, "the options of the agent's capability")

    @property
    def app(self) -> str:
        """The app of the records."""
        return self._records.app

    @property
    def options(self) -> CodeModeOptions:
        """The options of the agent's programs."""
        return self._face.settings

    async def run(
        self,
        user_prompt: Any = None,
        *,
        tenant: str | None = None,
        labels: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> StoredRun[OutputDataT]:
        """Run the agent, and keep what it waits for. ``settings`` are those of ``agent.run``.

        ``tenant`` is whose record it is, where that was not said before; ``labels`` are added to it. Raises as
        ``agent.run`` does, and `StoreUnavailableError`.
        """
        whose = self._records.resolve_tenant(tenant)
        watching = _Watching()
        result = await self._run(watching, user_prompt, **settings)
        if not isinstance(result.output, DeferredToolRequests):
            return StoredRun(result, None)
        pause = await self._pause(result, watching.tools)
        return StoredRun(result, await self._records.put(pause, whose, labels))

    def run_sync(self, user_prompt: Any = None, **settings: Any) -> StoredRun[OutputDataT]:
        """Do what `run` does where no event loop runs."""
        return asyncio.run(self.run(user_prompt, **settings))

    async def resume(self, record: Record, answers: Mapping[str, Any]) -> Any:
        """Go on with a record, once all that its agent's step asks is decided. For a `Resumer`, and for a console.

        Returns the agent's output as plain JSON, or the `StoredPause` in which it waits now. The same answers again
        give the same and run nothing. Raises `CodeModeProtocolError` for a record that this agent cannot go on with,
        and what the run raises.
        """
        kept = self._records.read_payload(record)
        if kept["calls"].keys() - answers.keys():
            return await self._records.get_waiting_pause(record)
        results = results_of(record.requests, kept["calls"], answers)
        messages = ModelMessagesTypeAdapter.validate_python(kept["messages"])
        settings = await self._records.get_resume_settings(record)
        async with self._records.resume(kept, answers) as run:
            if run.is_finished:
                return run.outcome
            watching = _Watching(run)
            try:
                result = await self._run(watching, message_history=messages, deferred_tool_results=results, **settings)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is raised again
                raise _told(error, run)  # noqa: B904 - the same error, or the reason that it has
            return await self._came_to(record, result, watching, run)

    resume.takes_record = True  # pyright: ignore[reportFunctionMemberAccess] - for a `Resumer`

    async def _run(self, watching: _Watching, user_prompt: Any = None, **settings: Any) -> AgentRunResult[OutputDataT]:
        capabilities = [*(settings.pop("capabilities", None) or ()), watching]
        run: Any = self._agent.run
        return await run(user_prompt, capabilities=capabilities, **settings)

    async def _came_to(self, record: Record, result: AgentRunResult[Any], watching: _Watching, run: AgentRun) -> Any:
        if isinstance(result.output, DeferredToolRequests):
            reached: Any = await self._pause(result, watching.tools)
        else:
            reached = tool_return_ta.dump_python(result.output, mode="json", by_alias=True)
        end = await run.finish(reached)
        if not isinstance(end, StoredPause) and self._on_end is not None:
            try:
                told = self._on_end(record, result)
                if inspect.isawaitable(told):
                    await told
            except Exception:  # noqa: BLE001 - the run has come to its end, whatever becomes of its messages
                _log.exception("on_end has failed for record %s", record.id)
        return end

    async def _pause(self, result: AgentRunResult[Any], tools: Mapping[str, ToolDefinition]) -> StoredPause:
        messages = result.all_messages()
        asked = await asked_by(result.output, messages, self._face, result.conversation_id, tools)
        names = {one.tool_name for one in asked.requests}
        return self._records.create_pause(
            asked.requests,
            {"messages": ModelMessagesTypeAdapter.dump_python(messages, mode="json"), "calls": dict(asked.calls)},
            key=asked.key,
            expires_at_ms=asked.expires_at_ms or self._in_its_time(),
            tool=asked.outer.tool_name,
            outer_tool_call_id=asked.outer.tool_call_id,
            tool_forms={name: form_of(tools[name]) for name in sorted(names & tools.keys())},
            source=asked.source,
        )

    def _in_its_time(self) -> int:
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
    """Keep the pauses of an agent in a store: ``await pauses.run(prompt)`` runs it, `StoredPauses.resume` goes on.

    What a step of the agent asks is one record: of all its programs, and of calls beside them. It goes on when all is
    decided; what it waits for then is the record's next version, and its output what the record comes to. The agent
    has a capability of this package, with ``store.guard`` and a key that all processes have. ``tenant`` ALL_TENANTS:
    each run says its own. ``resume_with`` gives the settings of ``agent.run`` for a record that goes on, such as
    ``deps``, sync or async; ``on_end`` is given the record and the result of a run that has ended, for its messages.
    Raises `ValueError` for an agent without the capability, or with another guard.
    """
    more: dict[str, Any] = {"labels": labels, "resume_with": resume_with, "on_end": on_end}
    return StoredPauses(agent, store, tenant=tenant, app=app, **more)


@dataclass
class _Watching(AbstractCapability[Any]):
    """Notes of a run which tools a pause is about, and says when it does more than to end the calls it paused in."""

    run: AgentRun | None = None
    tools: dict[str, ToolDefinition] = field(default_factory=dict[str, ToolDefinition])
    _has_answered: bool = False

    async def before_node_run(self, ctx: RunContext[Any], *, node: Any) -> Any:  # noqa: ARG002 - the framework's
        if isinstance(node, CallToolsNode):
            response = cast("CallToolsNode[Any, Any]", node).model_response
            if self.run is not None and self._has_answered and response.tool_calls:
                await self.run.mark_unguarded()
            self._has_answered = True
        return cast("Any", node)

    async def after_node_run(self, ctx: RunContext[Any], *, node: Any, result: Any) -> Any:
        manager = ctx.tool_manager
        if isinstance(node, CallToolsNode) and manager is not None:
            for name, tool in (manager.tools or {}).items():
                self.tools[name] = tool.tool_def
                if isinstance(tool, OwnTool):
                    self.tools.update({one: hidden.tool_def for one, hidden in tool.hidden.items()})
        return result


def _face_of(agent: AbstractAgent[Any, Any]) -> Face:
    found: list[Face] = []

    def look(one: AbstractCapability[Any]) -> None:
        face = one.made_face if isinstance(one, HidingCapability) else None
        if face is not None:
            found.append(face)

    agent.root_capability.apply(look)
    if not found:
        what = "capabilities=[CodeMode(...)], CodeCall(...) or ExecWait(...)"
        raise ValueError(f"the agent has no capability of codemode whose pauses a store could keep: give it {what}")
    return found[0]


def _told(error: BaseException, run: AgentRun) -> BaseException:
    """Return what a store is told of an error: the end of a run that can go on no more, else it is tried again."""
    reason = error.__cause__
    if isinstance(error, UserError) and isinstance(reason, CodeModeProtocolError):
        if not reason.was_answered:
            reason.details["not_resumable"] = True  # not here, with these keys: nothing has run
        return reason
    is_own = isinstance(error, AgentRunError | UserError)
    is_final = is_own and not isinstance(error, ModelAPIError)
    if isinstance(error, CodeModeError) or not (is_final or run.is_unguarded):
        return error
    _log.warning("the run of an agent has failed", exc_info=error)
    said = f"the run of the agent has failed with {type(error).__name__}{f': {error}' if is_own else ''}"
    error.__cause__ = CodeModeError(said, code="CODE_MODE_AGENT_RUN")
    return error
