"""Store the pauses of a graph, and resume them when they are decided."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from codemode import CodeModeError, CodeModeProtocolError, PendingRequest
from codemode.plugins import is_same_json, protect_integers, restore_integers
from codemode.stores import AgentRecords, AgentRun, Record, ResumeWith, StoredPause, StoredRequest, Tenant, ToolForm

from .langgraph_internals import NAMESPACE, find_tool_nodes
from .surfaces import MAX_AGE_MS, SurfaceTool

if TYPE_CHECKING:
    from codemode.stores import InterruptStore

INTERRUPT_KIND = "langgraph/interrupt"
_NO_ACTION = -1


@dataclass(frozen=True)
class ReviewedActionReference:
    """The interrupt of a request, and the index of its action in a batch."""

    interrupt_id: str
    action_index: int = _NO_ACTION
    allowed_decisions: tuple[str, ...] = ()

    @classmethod
    def from_stored(cls, stored: Sequence[Any]) -> ReviewedActionReference:
        """Read the result of `stored_form`."""
        interrupt, action, allowed = stored
        return cls(interrupt, action, tuple(allowed))

    @property
    def stored_form(self) -> list[Any]:
        """The stored form, as plain JSON."""
        return [self.interrupt_id, self.action_index, list(self.allowed_decisions)]


@dataclass(frozen=True)
class PauseRequests:
    """The pending requests of a graph, the interrupt part of each by request id, and tool forms."""

    requests: tuple[PendingRequest, ...]
    parts: Mapping[str, ReviewedActionReference]
    tool_forms: Mapping[str, ToolForm]


def collect_requests(interrupts: Iterable[Any]) -> PauseRequests:
    """Return the requests of interrupts."""
    requests: list[PendingRequest] = []
    parts: dict[str, ReviewedActionReference] = {}
    catalog: dict[str, ToolForm] = {}
    for interrupt in interrupts:
        displayed = to_plain_json(interrupt.value)
        for part, request in _iter_interrupt_requests(
            interrupt.id, displayed, to_plain_json(interrupt.response_schema)
        ):
            requests.append(request)
            parts[request.interrupt_id] = part
            if request.payload["kind"] == PendingRequest.APPROVAL and "edit" in part.allowed_decisions:
                tool_form = ToolForm(_find_edit_schema(to_plain_json(interrupt.response_schema), request.tool_name))
                catalog.setdefault(request.tool_name, tool_form)
    return PauseRequests(tuple(requests), parts, catalog)


def to_plain_json(value: Any) -> Any:
    """Return a value of a graph as plain JSON."""
    return to_jsonable_python(value, serialize_unknown=True, inf_nan_mode="null")


def _iter_interrupt_requests(
    interrupt_id: str, displayed: Any, schema: Any
) -> Iterable[tuple[ReviewedActionReference, PendingRequest]]:
    # The digest distinguishes another question with the same interrupt id.
    request_prefix = f"{interrupt_id}:{hashlib.sha256(json.dumps(displayed, sort_keys=True).encode()).hexdigest()[:16]}"
    actions = _parse_actions(displayed)
    if actions is None:
        payload = {"kind": INTERRUPT_KIND, "value": displayed, **({"schema": schema} if schema else {})}
        yield ReviewedActionReference(interrupt_id), _make_request(request_prefix, "interrupt", "", displayed, payload)
        return
    is_single = displayed.get("type") in ("tool_approval", "unknown_outcome")
    call_id = str(displayed.get("tool_call_id") or "")
    # A question about a whole program has no call id, and no value as outcome.
    is_outcome = displayed.get("type") == "unknown_outcome" and bool(call_id)
    for index, (action, allowed_decisions) in enumerate(actions):
        payload: dict[str, Any] = {"kind": PendingRequest.UNKNOWN_OUTCOME if is_outcome else PendingRequest.APPROVAL}
        if action.get("description"):
            payload["description"] = action["description"]
        request_id = request_prefix if is_single else f"{request_prefix}:{index}"
        part = ReviewedActionReference(interrupt_id, _NO_ACTION if is_single else index, allowed_decisions)
        yield part, _make_request(request_id, str(action["name"]), call_id, action.get("args"), payload)


def _make_request(request_id: str, tool: str, call_id: str, arguments: Any, payload: Any) -> PendingRequest:
    return PendingRequest(
        interrupt_id=request_id, tool_name=tool, tool_call_id=call_id, input=arguments, payload=payload
    )


def _parse_actions(displayed: Any) -> list[tuple[dict[str, Any], tuple[str, ...]]] | None:
    """Return the calls of a question with their allowed decisions; None for a question of another shape."""
    if not isinstance(displayed, dict):
        return None
    value = cast("dict[str, Any]", displayed)
    try:
        exact_value = restore_integers(value) if "bigIntegers" in value else value
        actions, configs = exact_value["action_requests"], exact_value["review_configs"]
        reviews = [(str(item["action_name"]), tuple(item["allowed_decisions"])) for item in configs]
        allowed_by_action = _match_allowed_decisions([str(item["name"]) for item in actions], reviews)
        actions_with_decisions = [
            (dict(item), allowed_decisions) for item, allowed_decisions in zip(actions, allowed_by_action, strict=True)
        ]
    except (KeyError, TypeError, ValueError):
        return None
    required_decisions = {"approve", "reject"}
    return (
        actions_with_decisions
        if actions_with_decisions
        and all(required_decisions & set(allowed_by_action) for _, allowed_by_action in actions_with_decisions)
        else None
    )


def _match_allowed_decisions(names: list[str], reviews: list[tuple[str, tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """Return the allowed decisions of each call: by position, else those that all reviews of its name allow.

    Raises `KeyError` for a call without a review.
    """
    if names == [name for name, _ in reviews]:
        return [allowed_decisions for _, allowed_decisions in reviews]
    by_name: dict[str, tuple[str, ...]] = {}
    for name, allowed_decisions in reviews:
        by_name[name] = tuple(
            decision for decision in by_name.get(name, allowed_decisions) if decision in allowed_decisions
        )
    return [by_name[name] for name in names]


def _find_edit_schema(schema: Any, tool_name: str) -> Any:
    """Return the schema of a tool's edited input from an answer's schema, or None."""
    definitions: Any = cast("dict[str, Any]", schema).get("$defs", {}) if isinstance(schema, dict) else {}
    for definition in definitions.values():
        properties = definition.get("properties", {})
        if set(properties) == {"name", "args"} and properties["name"].get("const", tool_name) == tool_name:
            return properties["args"]
    return None


def make_resume_values(
    requests: Iterable[StoredRequest], parts: Mapping[str, ReviewedActionReference], answers: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the resume value of each interrupt whose requests are all answered, by interrupt id.

    Raises `CodeModeProtocolError` for a decision that is not allowed.
    """
    requests_by_id = {request.interrupt_id: request for request in requests}
    by_interrupt: dict[str, list[tuple[ReviewedActionReference, str]]] = {}
    for request_id, part in parts.items():
        by_interrupt.setdefault(part.interrupt_id, []).append((part, request_id))
    values: dict[str, Any] = {}
    for interrupt_id, interrupt_parts in by_interrupt.items():
        if any(request_id not in answers for _, request_id in interrupt_parts):
            continue
        resume_answers = [
            _to_resume_answer(requests_by_id[request_id], part, answers[request_id])
            for part, request_id in interrupt_parts
        ]
        values[interrupt_id] = (
            resume_answers[0] if interrupt_parts[0][0].action_index == _NO_ACTION else {"decisions": resume_answers}
        )
    return values


def _to_resume_answer(request: StoredRequest, part: ReviewedActionReference, answer: Any) -> Any:
    if request.kind == INTERRUPT_KIND:
        return answer
    decision = (
        _to_outcome_decision(answer)
        if request.kind == PendingRequest.UNKNOWN_OUTCOME
        else _to_decision(request, answer)
    )
    if decision["type"] not in part.allowed_decisions:
        raise _make_invalid_decision_error(
            f"this call can be answered with {', '.join(part.allowed_decisions)} alone, not with {decision['type']}"
        )
    return decision


def _to_decision(request: StoredRequest, answer: Mapping[str, Any]) -> dict[str, Any]:
    if answer.get("approved") is not True:
        reason = answer.get("reason")
        return {"type": "reject", **({"message": reason} if reason else {})}
    edited_input = request.read_edited_input(answer) if "input" in answer else request.input
    if is_same_json(edited_input, request.input):
        return {"type": "approve"}
    # Resume values are stored in the checkpoint, which loses large integers.
    args = {key: value for key, value in protect_integers({"args": edited_input}).items() if key == "args"}
    return {"type": "edit", "edited_action": {"name": request.tool_name, **args}}


def _to_outcome_decision(answer: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        return {"type": "reject", "message": str(answer["error"]["message"])}
    if "value" not in answer:
        return {"type": "approve"}
    if not isinstance(answer["value"], str):
        raise _make_invalid_decision_error("the result of this call must be text")
    return {"type": "respond", "message": answer["value"]}


def _make_invalid_decision_error(reason: str) -> CodeModeProtocolError:
    return CodeModeProtocolError(reason, details={"origin": "decision"})


_log = logging.getLogger("codemode.stores")
_RECORD_OWNER = "langgraph"
_PROGRAM_ARGUMENTS = ("js", "script", "code")


@dataclass(frozen=True)
class StoredRun:
    """Result of a graph run; ``record_id`` is the id of its record if it waits for decisions, else None."""

    output: Any
    record_id: str | None
    thread_id: str


class StoredPauses:
    """The pauses of one graph in a store. See `stored_pauses`."""

    def __init__(
        self,
        graph: Any,
        store: InterruptStore,
        *,
        tenant: Tenant,
        app: str,
        labels: Mapping[str, str] | None,
        resume_with: ResumeWith | None,
        outcome_of: Callable[[Any], Any],
        max_age_ms: int,
    ) -> None:
        if not getattr(graph, "checkpointer", None):
            raise ValueError("the graph has no checkpointer, so it cannot be resumed")
        record_options: dict[str, Any] = {"app": app, "labels": labels, "resume_with": resume_with}
        self._graph = graph
        self._records = AgentRecords(store, framework=_RECORD_OWNER, tenant=tenant, **record_options)
        _require_same_resume_guard(graph, self._records)
        self._outcome_of = outcome_of
        self._max_age_ms = max_age_ms

    @property
    def app(self) -> str:
        """The app of the records."""
        return self._records.app

    async def ainvoke(
        self,
        input: Any,  # noqa: A002 - as the graph has it
        config: Any = None,
        *,
        tenant: str | None = None,
        labels: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> StoredRun:
        """Run the graph, and store its pause if it waits. ``settings`` are those of ``graph.ainvoke``.

        Without a thread in ``config`` the run gets a new one. ``tenant``: the record's tenant, unless `stored_pauses`
        set it. ``labels`` are added to the record. Raises as the graph does, and `StoreUnavailableError`.
        """
        record_tenant, thread_config = self._records.resolve_tenant(tenant), _ensure_thread_id(config)
        output = await self._graph.ainvoke(input, thread_config, **settings)
        return await self._store_pause_if_waiting(
            output, thread_config, await self._graph.aget_state(thread_config), record_tenant, labels
        )

    def invoke(
        self,
        input: Any,  # noqa: A002 - as above
        config: Any = None,
        *,
        tenant: str | None = None,
        labels: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> StoredRun:
        """Do what `ainvoke` does outside an event loop, with ``graph.invoke``."""
        record_tenant, thread_config = self._records.resolve_tenant(tenant), _ensure_thread_id(config)
        output = self._graph.invoke(input, thread_config, **settings)
        return asyncio.run(
            self._store_pause_if_waiting(
                output, thread_config, self._graph.get_state(thread_config), record_tenant, labels
            )
        )

    async def resume(self, record: Record, answers: Mapping[str, Any]) -> Any:
        """Resume a record with its answers. For a `Resumer` or a console.

        Returns the graph's outcome as plain JSON, or the `StoredPause` in which it waits now. The same answers again
        return the same result and run nothing. Raises `CodeModeProtocolError` for a record that this graph cannot
        resume, and for a thread that was resumed elsewhere.
        """
        stored = self._records.read_payload(record)
        parts = {
            name: ReviewedActionReference.from_stored(stored_part) for name, stored_part in stored["parts"].items()
        }
        values = make_resume_values(record.requests, parts, answers)
        if not values:
            return await self._records.get_waiting_pause(record)
        settings = await self._records.get_resume_settings(record)
        config = _with_stored_thread(stored, settings.pop("config", None))
        async with self._records.resume(stored, answers, is_framework_durable=True) as run:
            if run.is_finished:
                return run.outcome
            state = await self._resume_thread(run, record, parts, values, config, settings)
            if state.interrupts:
                outcome: Any = self._make_stored_pause(
                    stored["thread_id"], stored[NAMESPACE], state, record.version + 1
                )
            else:
                outcome = to_plain_json(self._outcome_of(state.values))
            return await run.finish(outcome)

    resume.takes_record = True  # pyright: ignore[reportFunctionMemberAccess] - for a `Resumer`

    async def _resume_thread(
        self,
        run: AgentRun,
        record: Record,
        parts: Mapping[str, ReviewedActionReference],
        values: dict[str, Any],
        config: Any,
        settings: dict[str, Any],
    ) -> Any:
        """Resume the thread, unless it was resumed elsewhere, and return its state."""
        from langgraph.types import Command

        was_handed_over = await run.check_handed_over_or_claim()
        state_before = await self._get_state(config)
        waiting_ids = {interrupt.id for interrupt in state_before.interrupts}
        if not was_handed_over and not values.keys() <= waiting_ids:
            raise CodeModeProtocolError(
                "this thread was resumed elsewhere: it no longer waits for these answers",
                details={"origin": "continuation", "superseded": True},
            )
        pending_values = {name: value for name, value in values.items() if name in waiting_ids}
        _require_unchanged_interrupts(
            record, parts, [interrupt for interrupt in state_before.interrupts if interrupt.id in pending_values]
        )
        await run.mark_handed_over()
        # No pending interrupt is left: a host died after they were answered, in the rest of the run.
        command = Command(resume=pending_values) if pending_values else None
        if command is None and (state_before.interrupts or not state_before.next):
            return state_before
        try:
            await self._invoke_graph(command, config, settings)
        except (CodeModeError, asyncio.CancelledError):
            raise
        except Exception as error:
            current_state = await self._get_state(config)
            if isinstance(error, ValidationError) and pending_values.keys() <= {
                interrupt.id for interrupt in current_state.interrupts
            }:
                raise CodeModeProtocolError(
                    f"an answer is invalid: {_format_validation_error(error)}", details={"origin": "decision"}
                ) from error
            _log.warning("the run of a graph has failed", exc_info=error)
            message = f"the run of the graph has failed with {type(error).__name__}"
            raise CodeModeError(message, code="CODE_MODE_AGENT_RUN") from error
        return await self._get_state(config)

    async def _invoke_graph(self, graph_input: Any, config: Any, settings: dict[str, Any]) -> None:
        if await self._has_async_checkpointer(config):
            await self._graph.ainvoke(graph_input, config, **settings)
        else:
            await _run_in_thread(partial(self._graph.invoke, graph_input, config, **settings))

    async def _get_state(self, config: Any) -> Any:
        if await self._has_async_checkpointer(config):
            return await self._graph.aget_state(config)
        return await _run_in_thread(partial(self._graph.get_state, config))

    async def _has_async_checkpointer(self, config: Any) -> bool:
        """Return whether the checkpointer has async methods; sync-only ones raise `NotImplementedError`."""
        try:
            await self._graph.aget_state(config)
        except NotImplementedError:
            return False
        return True

    async def _store_pause_if_waiting(
        self, output: Any, config: Any, state: Any, tenant: str, labels: Mapping[str, str] | None
    ) -> StoredRun:
        thread_id = str(config["configurable"]["thread_id"])
        if not state.interrupts:
            return StoredRun(output, None, thread_id)
        pause = self._make_stored_pause(thread_id, str(config["configurable"].get(NAMESPACE, "")), state, 1)
        return StoredRun(output, await self._records.put(pause, tenant, labels), thread_id)

    def _make_stored_pause(self, thread_id: str, namespace: str, state: Any, version: int) -> StoredPause:
        pause_requests = collect_requests(state.interrupts)
        checkpoint = state.config["configurable"].get("checkpoint_id")
        key_fields = [thread_id, namespace, checkpoint, version, sorted(pause_requests.parts)]
        calls = _get_last_calls(state.values)
        programs = [
            call["args"][name]
            for call in calls
            for name in _PROGRAM_ARGUMENTS
            if isinstance(call["args"].get(name), str)
        ]
        return self._records.create_pause(
            pause_requests.requests,
            {
                "thread_id": thread_id,
                NAMESPACE: namespace,
                "checkpoint_id": checkpoint,
                "parts": {name: part.stored_form for name, part in pause_requests.parts.items()},
            },
            key=hashlib.sha256(json.dumps(key_fields).encode()).hexdigest(),
            expires_at_ms=int(time.time() * 1000) + self._max_age_ms,
            tool=calls[0]["name"] if calls else "",
            outer_tool_call_id=str(calls[0].get("id") or "") if calls else "",
            tool_forms=pause_requests.tool_forms,
            source=AgentRecords.join_programs(programs)[0],
        )


def stored_pauses(
    graph: Any,
    store: InterruptStore,
    *,
    tenant: Tenant = "",
    app: str = "langgraph",
    labels: Mapping[str, str] | None = None,
    resume_with: ResumeWith | None = None,
    outcome_of: Callable[[Any], Any] | None = None,
    max_age_ms: int = MAX_AGE_MS,
) -> StoredPauses:
    """Keep the pauses of a graph in a store: `StoredPauses.ainvoke` runs it, `StoredPauses.resume` resumes it.

    All pending interrupts of a thread are one record with the thread's id. Answered ones resume; the next pause is the
    record's next version. Each process creates the graph, with a checkpointer that all processes share.

    ``tenant``: tenant of the records; with ALL_TENANTS each run passes its own. ``resume_with``: returns the settings
    of ``ainvoke`` for a record, such as ``config`` and ``context``, sync or async. ``outcome_of``: returns the record's
    outcome from the final state (default: the state). ``max_age_ms``: how long a pause can be answered.

    Raises `ValueError` for a graph without a checkpointer, and for tools without a journal whose resume guard is not
    ``store.guard``.
    """
    options: dict[str, Any] = {"labels": labels, "resume_with": resume_with, "max_age_ms": max_age_ms}
    return StoredPauses(graph, store, tenant=tenant, app=app, outcome_of=outcome_of or _return_state, **options)


def _require_same_resume_guard(graph: Any, records: AgentRecords) -> None:
    """Raise `ValueError` if two hosts could run the same call, because a tool uses another resume guard."""
    for graph_tool in (tool for node in find_tool_nodes(graph) for tool in node.tools_by_name.values()):
        if isinstance(graph_tool, SurfaceTool):
            records.require_guard(graph_tool.core, f"the options of {graph_tool.name}", unless_journaled=True)


def _require_unchanged_interrupts(
    record: Record, parts: Mapping[str, ReviewedActionReference], interrupts: Sequence[Any]
) -> None:
    """Raise `CodeModeProtocolError` if a record differs from the interrupts of its thread."""
    pause_requests = collect_requests(interrupts)
    AgentRecords.require_unchanged(record, pause_requests.requests)
    if any(parts.get(request_id) != part for request_id, part in pause_requests.parts.items()):
        raise CodeModeProtocolError(
            "the record was changed in the database: its interrupts are not those of the thread",
            details={"origin": "continuation", "not_resumable": True},
        )


def _return_state(values: Any) -> Any:
    return values


def _ensure_thread_id(config: Any) -> dict[str, Any]:
    config_fields = dict(config or {})
    configurable = dict(config_fields.get("configurable") or {})
    configurable.setdefault("thread_id", str(uuid.uuid4()))
    return {**config_fields, "configurable": configurable}


def _with_stored_thread(stored: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Return a configuration with the thread of a stored record."""
    config_fields = dict(config or {})
    thread_fields = {name: stored[name] for name in ("thread_id", NAMESPACE) if stored[name]}
    return {**config_fields, "configurable": {**(config_fields.get("configurable") or {}), **thread_fields}}


def _get_last_calls(values: Any) -> list[dict[str, Any]]:
    """Return the tool calls of the last model message in an agent's state."""
    messages: Any = cast("dict[str, Any]", values).get("messages") if isinstance(values, dict) else None
    for message in reversed(cast("list[Any]", messages) if isinstance(messages, list) else []):
        calls = getattr(message, "tool_calls", None)
        if calls:
            return [*calls]
    return []


def _format_validation_error(error: ValidationError) -> str:
    messages = [
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors(include_url=False)
    ]
    return "; ".join(messages[:5])


async def _run_in_thread(function: Callable[[], Any]) -> Any:
    """Run a blocking function in a thread, and wait for its end even if cancelled."""
    task = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
