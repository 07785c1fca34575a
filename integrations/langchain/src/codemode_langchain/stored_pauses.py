"""Pauses of a graph in a store: requests, decisions, and resuming where the graph is."""

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
from codemode.plugins import protect_integers, restore_integers, same_json
from codemode.stores import AgentRecords, AgentRun, Record, ResumeWith, StoredPause, StoredRequest, Tenant, ToolForm

from .faces import MAX_AGE_MS, OuterTool
from .pregel import NAMESPACE, tool_nodes_in

if TYPE_CHECKING:
    from codemode.stores import InterruptStore

INTERRUPT_KIND = "langgraph/interrupt"
_ALONE = -1


@dataclass(frozen=True)
class Part:
    """Which interrupt a request is about, and which of the actions that it asks about together."""

    interrupt: str
    action: int = _ALONE
    allowed: tuple[str, ...] = ()

    @classmethod
    def of(cls, kept: Sequence[Any]) -> Part:
        """Read what `kept` gives."""
        interrupt, action, allowed = kept
        return cls(interrupt, action, tuple(allowed))

    @property
    def kept(self) -> list[Any]:
        """Plain JSON of it."""
        return [self.interrupt, self.action, list(self.allowed)]


@dataclass(frozen=True)
class Asked:
    """What a graph waits for: its requests, the part of an interrupt behind each, and what is known of the tools."""

    requests: tuple[PendingRequest, ...]
    parts: Mapping[str, Part]
    catalog: Mapping[str, ToolForm]


def asked_by(interrupts: Iterable[Any]) -> Asked:
    """Return what these interrupts ask."""
    requests: list[PendingRequest] = []
    parts: dict[str, Part] = {}
    catalog: dict[str, ToolForm] = {}
    for one in interrupts:
        shown = plain(one.value)
        for part, request in _requests(one.id, shown, plain(one.response_schema)):
            requests.append(request)
            parts[request.interrupt_id] = part
            if request.payload["kind"] == PendingRequest.APPROVAL and "edit" in part.allowed:
                form = ToolForm(_schema_of_edits(plain(one.response_schema), request.tool_name))
                catalog.setdefault(request.tool_name, form)
    return Asked(tuple(requests), parts, catalog)


def plain(value: Any) -> Any:
    """Return plain JSON of what a graph or a node holds."""
    return to_jsonable_python(value, serialize_unknown=True, inf_nan_mode="null")


def _requests(interrupt_id: str, shown: Any, schema: Any) -> Iterable[tuple[Part, PendingRequest]]:
    # An answer that did not fit is asked for again under the same id; another question in its place has another one.
    name = f"{interrupt_id}:{hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:16]}"
    actions = _actions(shown)
    if actions is None:
        payload = {"kind": INTERRUPT_KIND, "value": shown, **({"schema": schema} if schema else {})}
        yield Part(interrupt_id), _request(name, "interrupt", "", shown, payload)
        return
    is_alone = shown.get("type") in ("tool_approval", "unknown_outcome")
    call_id = str(shown.get("tool_call_id") or "")
    # A program that was cut off is asked about as a whole: it is run again or not, and has no value.
    is_outcome = shown.get("type") == "unknown_outcome" and bool(call_id)
    for number, (action, allowed) in enumerate(actions):
        payload: dict[str, Any] = {"kind": PendingRequest.UNKNOWN_OUTCOME if is_outcome else PendingRequest.APPROVAL}
        if action.get("description"):
            payload["description"] = action["description"]
        request_id = name if is_alone else f"{name}:{number}"
        part = Part(interrupt_id, _ALONE if is_alone else number, allowed)
        yield part, _request(request_id, str(action["name"]), call_id, action.get("args"), payload)


def _request(request_id: str, tool: str, call_id: str, given: Any, payload: Any) -> PendingRequest:
    return PendingRequest(interrupt_id=request_id, tool_name=tool, tool_call_id=call_id, input=given, payload=payload)


def _actions(shown: Any) -> list[tuple[dict[str, Any], tuple[str, ...]]] | None:
    """Return the calls that a question is about, with what may be decided; None for a question of another shape."""
    if not isinstance(shown, dict):
        return None
    value = cast("dict[str, Any]", shown)
    try:
        exact = restore_integers(value) if "bigIntegers" in value else value
        actions, configs = exact["action_requests"], exact["review_configs"]
        reviews = [(str(one["action_name"]), tuple(one["allowed_decisions"])) for one in configs]
        allowed = _in_order([str(one["name"]) for one in actions], reviews)
        found = [(dict(one), may) for one, may in zip(actions, allowed, strict=True)]
    except (KeyError, TypeError, ValueError):
        return None
    decides = {"approve", "reject"}
    return found if found and all(decides & set(allowed) for _, allowed in found) else None


def _in_order(names: list[str], reviews: list[tuple[str, tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """Return what may be decided about each call: by its place, else what all reviews of its name allow.

    Raises `KeyError` for a call without a review.
    """
    if names == [name for name, _ in reviews]:
        return [allowed for _, allowed in reviews]
    by_name: dict[str, tuple[str, ...]] = {}
    for name, allowed in reviews:
        by_name[name] = tuple(one for one in by_name.get(name, allowed) if one in allowed)
    return [by_name[name] for name in names]


def _schema_of_edits(schema: Any, tool_name: str) -> Any:
    """Return what an edited input of a tool must be, of the schema of an answer; None where that does not say."""
    definitions: Any = cast("dict[str, Any]", schema).get("$defs", {}) if isinstance(schema, dict) else {}
    for one in definitions.values():
        properties = one.get("properties", {})
        if set(properties) == {"name", "args"} and properties["name"].get("const", tool_name) == tool_name:
            return properties["args"]
    return None


def resume_values(
    requests: Iterable[StoredRequest], parts: Mapping[str, Part], answers: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what answers each interrupt whose requests are all answered, by its id.

    Raises `CodeModeProtocolError` for a decision that is not allowed.
    """
    asked = {one.interrupt_id: one for one in requests}
    by_interrupt: dict[str, list[tuple[Part, str]]] = {}
    for request_id, part in parts.items():
        by_interrupt.setdefault(part.interrupt, []).append((part, request_id))
    values: dict[str, Any] = {}
    for interrupt_id, own in by_interrupt.items():
        if any(request_id not in answers for _, request_id in own):
            continue
        told = [_told(asked[request_id], part, answers[request_id]) for part, request_id in own]
        values[interrupt_id] = told[0] if own[0][0].action == _ALONE else {"decisions": told}
    return values


def _told(request: StoredRequest, part: Part, answer: Any) -> Any:
    if request.kind == INTERRUPT_KIND:
        return answer
    said = _outcome(answer) if request.kind == PendingRequest.UNKNOWN_OUTCOME else _decision(request, answer)
    if said["type"] not in part.allowed:
        raise _refused(f"this call can be answered with {', '.join(part.allowed)} alone, not with {said['type']}")
    return said


def _decision(request: StoredRequest, answer: Mapping[str, Any]) -> dict[str, Any]:
    if answer.get("approved") is not True:
        reason = answer.get("reason")
        return {"type": "reject", **({"message": reason} if reason else {})}
    edited = request.read_edited_input(answer) if "input" in answer else request.input
    if same_json(edited, request.input):
        return {"type": "approve"}
    # What resumes a graph is kept in its checkpoint, which does not hold every integer.
    args = {key: one for key, one in protect_integers({"args": edited}).items() if key == "args"}
    return {"type": "edit", "edited_action": {"name": request.tool_name, **args}}


def _outcome(answer: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        return {"type": "reject", "message": str(answer["error"]["message"])}
    if "value" not in answer:
        return {"type": "approve"}
    if not isinstance(answer["value"], str):
        raise _refused("what this call gave can be told as a text alone")
    return {"type": "respond", "message": answer["value"]}


def _refused(why: str) -> CodeModeProtocolError:
    return CodeModeProtocolError(why, details={"origin": "decision"})


_log = logging.getLogger("codemode.stores")
_KEPT_BY = "langgraph"
_PROGRAMS = ("js", "script", "code")


@dataclass(frozen=True)
class StoredRun:
    """What a run of the graph came to; ``record_id`` is that of its record where it waits for people, else None."""

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
            raise ValueError("the graph has no checkpointer: nothing of it could be gone on with")
        more: dict[str, Any] = {"app": app, "labels": labels, "resume_with": resume_with}
        self._graph = graph
        self._records = AgentRecords(store, framework=_KEPT_BY, tenant=tenant, **more)
        _require_guard(graph, self._records)
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
        """Run the graph, and keep what it waits for. ``settings`` are those of ``graph.ainvoke``.

        Without a thread in ``config`` it gets one of its own. ``tenant`` is whose record it is, where that was not said
        before; ``labels`` are added to it. Raises as the graph does, and `StoreUnavailableError`.
        """
        whose, own = self._records.resolve_tenant(tenant), _with_thread(config)
        output = await self._graph.ainvoke(input, own, **settings)
        return await self._kept_run(output, own, await self._graph.aget_state(own), whose, labels)

    def invoke(
        self,
        input: Any,  # noqa: A002 - as above
        config: Any = None,
        *,
        tenant: str | None = None,
        labels: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> StoredRun:
        """Do what `ainvoke` does where no event loop runs, through ``graph.invoke``."""
        whose, own = self._records.resolve_tenant(tenant), _with_thread(config)
        output = self._graph.invoke(input, own, **settings)
        return asyncio.run(self._kept_run(output, own, self._graph.get_state(own), whose, labels))

    async def resume(self, record: Record, answers: Mapping[str, Any]) -> Any:
        """Go on with a record, as far as its answers lead. For a `Resumer`, and for a console.

        Returns what the graph came to as plain JSON, or the `StoredPause` in which it waits now. The same answers again
        give the same and run nothing. Raises `CodeModeProtocolError` for a record that this graph cannot go on with,
        and for a thread that somebody else has gone on with.
        """
        kept = self._records.read_payload(record)
        parts = {name: Part.of(one) for name, one in kept["parts"].items()}
        values = resume_values(record.requests, parts, answers)
        if not values:
            return await self._records.get_waiting_pause(record)
        settings = await self._records.get_resume_settings(record)
        config = _joined(kept, settings.pop("config", None))
        async with self._records.resume(kept, answers, is_framework_durable=True) as run:
            if run.is_finished:
                return run.outcome
            reached = await self._gone_on(run, record, parts, values, config, settings)
            if reached.interrupts:
                end: Any = self._pause(kept["thread_id"], kept[NAMESPACE], reached, record.version + 1)
            else:
                end = plain(self._outcome_of(reached.values))
            return await run.finish(end)

    resume.takes_record = True  # pyright: ignore[reportFunctionMemberAccess] - for a `Resumer`

    async def _gone_on(
        self,
        run: AgentRun,
        record: Record,
        parts: Mapping[str, Part],
        values: dict[str, Any],
        config: Any,
        settings: dict[str, Any],
    ) -> Any:
        """Resume the thread, unless somebody else has, and return what state it is in then."""
        from langgraph.types import Command

        is_again = await run.is_handed_over()
        before = await self._state(config)
        waiting = {one.id for one in before.interrupts}
        if not is_again and not values.keys() <= waiting:
            raise CodeModeProtocolError(
                "somebody else has gone on with this thread: it does not ask this any more",
                details={"origin": "continuation", "superseded": True},
            )
        left = {name: value for name, value in values.items() if name in waiting}
        _require_unchanged(record, parts, [one for one in before.interrupts if one.id in left])
        await run.mark_handed_over()
        # Nothing was answered before and yet asked again: a host died over the rest of the run.
        given = Command(resume=left) if left else None
        if given is None and (before.interrupts or not before.next):
            return before
        try:
            await self._invoked(given, config, settings)
        except (CodeModeError, asyncio.CancelledError):
            raise
        except Exception as error:
            now = await self._state(config)
            if isinstance(error, ValidationError) and left.keys() <= {one.id for one in now.interrupts}:
                raise CodeModeProtocolError(
                    f"an answer does not fit: {_words(error)}", details={"origin": "decision"}
                ) from error
            _log.warning("the run of a graph has failed", exc_info=error)
            said = f"the run of the graph has failed with {type(error).__name__}"
            raise CodeModeError(said, code="CODE_MODE_AGENT_RUN") from error
        return await self._state(config)

    async def _invoked(self, given: Any, config: Any, settings: dict[str, Any]) -> None:
        if await self._awaits(config):
            await self._graph.ainvoke(given, config, **settings)
        else:
            await _in_thread(partial(self._graph.invoke, given, config, **settings))

    async def _state(self, config: Any) -> Any:
        if await self._awaits(config):
            return await self._graph.aget_state(config)
        return await _in_thread(partial(self._graph.get_state, config))

    async def _awaits(self, config: Any) -> bool:
        """Tell whether the checkpointer can be awaited: one for blocking code alone says so."""
        try:
            await self._graph.aget_state(config)
        except NotImplementedError:
            return False
        return True

    async def _kept_run(
        self, output: Any, config: Any, state: Any, tenant: str, labels: Mapping[str, str] | None
    ) -> StoredRun:
        thread_id = str(config["configurable"]["thread_id"])
        if not state.interrupts:
            return StoredRun(output, None, thread_id)
        pause = self._pause(thread_id, str(config["configurable"].get(NAMESPACE, "")), state, 1)
        return StoredRun(output, await self._records.put(pause, tenant, labels), thread_id)

    def _pause(self, thread_id: str, namespace: str, state: Any, version: int) -> StoredPause:
        asked = asked_by(state.interrupts)
        checkpoint = state.config["configurable"].get("checkpoint_id")
        named = [thread_id, namespace, checkpoint, version, sorted(asked.parts)]
        calls = _calls_of(state.values)
        programs = [one["args"][name] for one in calls for name in _PROGRAMS if isinstance(one["args"].get(name), str)]
        return self._records.create_pause(
            asked.requests,
            {
                "thread_id": thread_id,
                NAMESPACE: namespace,
                "checkpoint_id": checkpoint,
                "parts": {name: part.kept for name, part in asked.parts.items()},
            },
            key=hashlib.sha256(json.dumps(named).encode()).hexdigest(),
            expires_at_ms=int(time.time() * 1000) + self._max_age_ms,
            tool=calls[0]["name"] if calls else "",
            outer_tool_call_id=str(calls[0].get("id") or "") if calls else "",
            tool_forms=asked.catalog,
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
    """Keep the pauses of a graph in a store: `StoredPauses.ainvoke` runs it, `StoredPauses.resume` goes on.

    All interrupts that wait in a thread are one record, which has the thread's id; what is answered goes on, and what
    it waits for then is the record's next version. The graph, with a checkpointer that every process reaches, is made
    anew in each. ``tenant`` ALL_TENANTS: each run says its own. ``resume_with`` gives the settings of ``ainvoke`` for
    a record that goes on, such as ``config`` and ``context``, sync or async; ``outcome_of`` what of the last state is
    what the record comes to, by default all of it. A pause can be answered for ``max_age_ms``. Raises `ValueError` for
    a graph without a checkpointer, and where its tools keep their claims in another place than ``store.guard``, without
    a journal.
    """
    more: dict[str, Any] = {"labels": labels, "resume_with": resume_with, "max_age_ms": max_age_ms}
    return StoredPauses(graph, store, tenant=tenant, app=app, outcome_of=outcome_of or _all_of_it, **more)


def _require_guard(graph: Any, records: AgentRecords) -> None:
    """Raise `ValueError` where a host that stood still would make a call that another one has made meanwhile."""
    for one in (tool for node in tool_nodes_in(graph) for tool in node.tools_by_name.values()):
        if isinstance(one, OuterTool):
            records.require_guard(one.core, f"the options of {one.name}", unless_journaled=True)


def _require_unchanged(record: Record, parts: Mapping[str, Part], interrupts: Sequence[Any]) -> None:
    """Raise `CodeModeProtocolError` where a record shows something else than the interrupts of its thread ask."""
    asked = asked_by(interrupts)
    AgentRecords.require_unchanged(record, asked.requests)
    if any(parts.get(request_id) != part for request_id, part in asked.parts.items()):
        raise CodeModeProtocolError(
            "the record was changed in the database: it answers other interrupts than the thread has",
            details={"origin": "continuation", "not_resumable": True},
        )


def _all_of_it(values: Any) -> Any:
    return values


def _with_thread(config: Any) -> dict[str, Any]:
    given = dict(config or {})
    configurable = dict(given.get("configurable") or {})
    configurable.setdefault("thread_id", str(uuid.uuid4()))
    return {**given, "configurable": configurable}


def _joined(kept: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Return a configuration with the thread of a record, whatever else is in it."""
    given = dict(config or {})
    place = {name: kept[name] for name in ("thread_id", NAMESPACE) if kept[name]}
    return {**given, "configurable": {**(given.get("configurable") or {}), **place}}


def _calls_of(values: Any) -> list[dict[str, Any]]:
    """Return the calls of the last message of a model in the state of an agent."""
    messages: Any = cast("dict[str, Any]", values).get("messages") if isinstance(values, dict) else None
    for one in reversed(cast("list[Any]", messages) if isinstance(messages, list) else []):
        calls = getattr(one, "tool_calls", None)
        if calls:
            return [*calls]
    return []


def _words(error: ValidationError) -> str:
    found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False)]
    return "; ".join(found[:5])


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Run what blocks in a thread, to its end: nobody could stop it."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
