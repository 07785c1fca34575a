"""Base class of the capabilities: replace tools, and translate pauses to deferred calls."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

from pydantic_ai import RunContext
from pydantic_ai.agent import UserPromptNode
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    DeferredToolRequestsEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartEndEvent,
    PartStartEvent,
)
from pydantic_ai.result import FinalResult
from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.toolsets import AbstractToolset
from pydantic_graph import End

from codemode import WorkerPool

from .nested import require_outside_workflow
from .outer_call import AgentRunState
from .pauses import (
    Pause,
    PauseCache,
    add_pauses_to_history,
    collect_answers,
    expand_pauses,
    find_client_results,
    is_waiting_call_id,
    list_waiting_calls,
    open_pauses_and_restore_history,
    remove_pauses_from_history,
)
from .surface_toolset import SurfaceToolset
from .surfaces import MAX_RETRIES, ProgramToolSelector, Surface, ToolSelector


@dataclass
class SurfaceCapability(AbstractCapability[AgentDepsT]):
    """Replaces the agent's tools with those of a surface, and translates pauses to deferred calls.

    Without a surface it does nothing.
    """

    options: Any = None
    keep: ToolSelector = ()
    max_retries: int = MAX_RETRIES
    pool: WorkerPool | None = None
    _surface: Surface | None = field(default=None, init=False, repr=False)
    _pause_cache: PauseCache = field(default_factory=PauseCache, init=False, repr=False)
    _run: AgentRunState = field(default_factory=AgentRunState, init=False, repr=False)

    def __new__(cls, *args: Any, **_kwargs: Any) -> Self:
        """Reject a class as capability: the framework would call it with the context of each run."""
        if args and isinstance(args[0], RunContext):
            raise UserError(f"an agent's capabilities are objects: write {cls.__name__}() instead of {cls.__name__}")
        return super().__new__(cls)

    @property
    def _active_surface(self) -> Surface:
        assert self._surface is not None  # noqa: S101 - looked at where there may be none
        return self._surface

    @property
    def surface(self) -> Surface | None:
        """The surface, if there is one."""
        return self._surface

    @property
    def _program_tool_selector(self) -> ProgramToolSelector | None:
        """The tools that programs call; None means all except those in ``keep``."""
        return None

    @classmethod
    def from_spec(cls, *args: Any, **kwargs: Any) -> AbstractCapability[Any]:
        """Create the capability from an agent's specification. Raises `ValueError` for signing keys in it."""
        if _has_signing_keys([*args, kwargs]):
            raise ValueError(
                f"{cls.__name__}: continuation.keys must not be in a specification: "
                "set them with codemode.set_continuation_signing_key"
            )
        return cls(*args, **kwargs)

    def get_ordering(self) -> CapabilityOrdering:
        """Wrap all other capabilities: programs then cannot call tools that another one removes from a step."""
        return CapabilityOrdering(position="outermost", wraps=[AbstractCapability])

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractCapability[AgentDepsT]:  # noqa: ARG002
        """Return a copy with its own state for this run. Raises `UserError` where programs cannot run."""
        if self._surface is not None:
            require_outside_workflow()
        copied = copy(self)
        vars(copied)["_run"] = AgentRunState()
        return copied

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT] | None:
        """Replace the agent's tools with those of the surface."""
        return SurfaceToolset(
            toolset,
            self.options,
            self.keep,
            self.max_retries,
            self.pool,
            self._program_tool_selector,
            surface=self._active_surface,
            run_state=self._run,
            covers_all_agent_tools=True,
        )

    @property
    def has_wrap_run_event_stream(self) -> bool:
        """Return False: the capability translates events of a stream but needs none."""
        return False

    async def before_node_run(self, ctx: RunContext[AgentDepsT], *, node: Any) -> Any:
        """Convert answers to nested calls into approvals that resume their programs."""
        if self._surface is None or not isinstance(node, UserPromptNode):
            return node
        prompt = cast("UserPromptNode[AgentDepsT, Any]", node)
        deferred_results = prompt.deferred_tool_results
        if deferred_results is None and prompt.user_prompt is not None:
            remove_pauses_from_history(ctx.messages)
            return prompt
        results = await self._restore_history_and_convert_answers(ctx, deferred_results or DeferredToolResults())
        return prompt if results is None else replace(prompt, deferred_tool_results=results)

    async def after_node_run(self, ctx: RunContext[AgentDepsT], *, node: Any, result: Any) -> Any:  # noqa: ARG002
        """Convert the deferral of an outer call into deferrals of its pending nested calls."""
        final = cast("End[Any]", result).data if isinstance(result, End) else None
        output = cast("FinalResult[Any]", final).output if isinstance(final, FinalResult) else None
        if self._surface is None or not isinstance(output, DeferredToolRequests):
            return cast("Any", result)
        requests, pauses = await expand_pauses(output, self._active_surface, ctx)
        if not pauses:
            return cast("Any", result)
        for pause in pauses:
            self._pause_cache.put(pause)
        add_pauses_to_history(ctx.messages, pauses)
        return End(replace(cast("FinalResult[Any]", final), output=requests))

    async def wrap_run_event_stream(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        stream: AsyncIterable[AgentStreamEvent],
    ) -> AsyncIterator[AgentStreamEvent]:
        """Emit pending nested calls and their results as events of their own."""
        async for event in stream:
            if self._surface is not None and isinstance(event, DeferredToolRequestsEvent):
                for pause_event in await self._make_pause_events_and_mark_displayed(event, ctx):
                    yield pause_event
                continue
            if isinstance(event, FunctionToolCallEvent) and event.part.tool_call_id in self._run.resumed_call_ids:
                # Clients know the call from the paused run; a second announcement would look like another call.
                self._run.resumed_call_ids.discard(event.part.tool_call_id)
                yield replace(event, args_valid=None)
                continue
            if isinstance(event, FunctionToolResultEvent):
                for settled_event in self._take_result_events(event.part.tool_call_id):
                    yield settled_event
            yield event

    async def _restore_history_and_convert_answers(
        self, ctx: RunContext[AgentDepsT], deferred_results: DeferredToolResults
    ) -> DeferredToolResults | None:
        """Return the framework's results for the pauses at the end of the history, or None."""
        earlier_messages = list(ctx.messages)
        pauses = await open_pauses_and_restore_history(ctx, deferred_results, self._pause_cache, self._active_surface)
        results = replace(
            deferred_results,
            calls={**find_client_results(earlier_messages, pauses), **deferred_results.calls},
            approvals=dict(deferred_results.approvals),
            metadata=dict(deferred_results.metadata),
        )
        for pause in pauses:
            await self._approve_or_end_outer_call(ctx, pause, results)
        unknown_id = next(
            (tool_call_id for tool_call_id in [*results.approvals, *results.calls] if is_waiting_call_id(tool_call_id)),
            None,
        )
        if unknown_id is not None:
            raise UserError(
                f"No paused {self._active_surface.title} call waits for {unknown_id!r}: it was answered before, or"
                " a client keeps this history and the process that paused the call is gone."
            )
        return results if pauses else None

    async def _approve_or_end_outer_call(
        self, ctx: RunContext[AgentDepsT], pause: Pause, results: DeferredToolResults
    ) -> None:
        answers = collect_answers(pause, results)
        for request in pause.interrupt.requests:
            self._run.displayed_call_ids.add(request.interrupt_id)
            results.approvals.pop(request.interrupt_id, None)
            results.calls.pop(request.interrupt_id, None)
            results.metadata.pop(request.interrupt_id, None)
        outer_result = results.approvals.get(pause.outer_call_id)
        if outer_result is False or isinstance(outer_result, ToolDenied):
            await pause.end_program(self._active_surface, ctx)
            return
        self._run.resumed_call_ids.add(pause.outer_call_id)
        results.approvals[pause.outer_call_id] = ToolApproved()
        results.metadata[pause.outer_call_id] = pause.make_resume_metadata(answers)

    async def _make_pause_events_and_mark_displayed(
        self, event: DeferredToolRequestsEvent, ctx: RunContext[AgentDepsT]
    ) -> list[AgentStreamEvent]:
        requests, pauses = await expand_pauses(event.requests, self._active_surface, ctx)
        settled = [event for pause in pauses for event in self._take_result_events(pause.outer_call_id)]
        waiting = [call for pause in pauses for call in list_waiting_calls(pause.interrupt)]
        new_calls = [call for call in waiting if call.tool_call_id not in self._run.displayed_call_ids]
        self._run.displayed_call_ids.update(call.tool_call_id for call in new_calls)
        # Clients read the last step of a response: all pending calls must be in one.
        part_events: list[AgentStreamEvent] = []
        for index, call in enumerate(new_calls):
            part_events += [PartStartEvent(index=index, part=call), PartEndEvent(index=index, part=call)]
        call_events = [FunctionToolCallEvent(call, args_valid=True) for call in new_calls]
        return [*settled, *part_events, *call_events, replace(event, requests=requests)]

    def _take_result_events(self, outer_id: str) -> list[AgentStreamEvent]:
        """Remove the results of an outer call's answered nested calls, and return them as events in order."""
        settled = self._run.settled_results.pop(outer_id, {})
        in_order = sorted(settled, key=lambda waiting_id: (len(waiting_id), waiting_id))
        return [FunctionToolResultEvent(settled[waiting_id]) for waiting_id in in_order]


def _has_signing_keys(value: Any) -> bool:
    """Return whether options of a specification contain signing keys."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        continuation: Any = fields.get("continuation")
        return (isinstance(continuation, dict) and "keys" in continuation) or _has_signing_keys([*fields.values()])
    return isinstance(value, list) and any(_has_signing_keys(child) for child in cast("list[Any]", value))
