"""What the capabilities share: pauses translated where the framework's nodes begin and end. Knows no surface."""

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

from .faces import MAX_RETRIES, Face, InPrograms, Kept
from .hiding_toolset import HidingToolset
from .nested import require_place_for_programs
from .outer_calls import RunState
from .pauses import (
    KeptPauses,
    Pause,
    answers_for,
    expand,
    forget_pauses,
    is_waiting_id,
    late_results,
    record_pauses,
    take_pauses,
    waiting_calls,
)


@dataclass
class HidingCapability(AbstractCapability[AgentDepsT]):
    """Shows the tools of a face in place of the agent's, and translates the pauses of what runs behind them.

    Without a face it does nothing.
    """

    options: Any = None
    keep: Kept = ()
    max_retries: int = MAX_RETRIES
    pool: WorkerPool | None = None
    _made_face: Face | None = field(default=None, init=False, repr=False)
    _kept: KeptPauses = field(default_factory=KeptPauses, init=False, repr=False)
    _run: RunState = field(default_factory=RunState, init=False, repr=False)

    def __new__(cls, *given: Any, **_named: Any) -> Self:
        """Refuse what the framework does with a class: it calls it with the context of each run."""
        if given and isinstance(given[0], RunContext):
            raise UserError(f"an agent's capabilities are objects: write {cls.__name__}() in place of {cls.__name__}")
        return super().__new__(cls)

    @property
    def _face(self) -> Face:
        assert self._made_face is not None  # noqa: S101 - looked at where there may be none
        return self._made_face

    @property
    def made_face(self) -> Face | None:
        """The face, where there is one."""
        return self._made_face

    @property
    def _programs_call(self) -> InPrograms | None:
        """The tools that programs call; None: all that are not kept."""
        return None

    @classmethod
    def from_spec(cls, *args: Any, **kwargs: Any) -> AbstractCapability[Any]:
        """Return what the specification of an agent says. Raises `ValueError` for signing keys in it."""
        if _has_keys([*args, kwargs]):
            raise ValueError(
                f"{cls.__name__}: continuation.keys belong in no specification: "
                "set them with codemode.set_continuation_signing_key"
            )
        return cls(*args, **kwargs)

    def get_ordering(self) -> CapabilityOrdering:
        """Stand outside everything else that wraps tools: what another takes out of a step is in no program then."""
        return CapabilityOrdering(position="outermost", wraps=[AbstractCapability])

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractCapability[AgentDepsT]:  # noqa: ARG002
        """Return the capability with a state of its own for this run. Raises `UserError` where no program can run."""
        if self._made_face is not None:
            require_place_for_programs()
        own = copy(self)
        vars(own)["_run"] = RunState()
        return own

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT] | None:
        """Put the tools of the face in the place of the agent's."""
        return HidingToolset(
            toolset,
            self.options,
            self.keep,
            self.max_retries,
            self.pool,
            self._programs_call,
            face=self._face,
            run=self._run,
            is_all_of_the_agent=True,
        )

    @property
    def has_wrap_run_event_stream(self) -> bool:
        """Return False: events are translated when somebody streams, and that alone is no reason to stream."""
        return False

    async def before_node_run(self, ctx: RunContext[AgentDepsT], *, node: Any) -> Any:
        """Turn answers to inner calls into the resumption of the program that made them."""
        if self._made_face is None or not isinstance(node, UserPromptNode):
            return node
        prompt = cast("UserPromptNode[AgentDepsT, Any]", node)
        given = prompt.deferred_tool_results
        if given is None and prompt.user_prompt is not None:
            forget_pauses(ctx.messages)
            return prompt
        results = await self._results(ctx, given or DeferredToolResults())
        return prompt if results is None else replace(prompt, deferred_tool_results=results)

    async def after_node_run(self, ctx: RunContext[AgentDepsT], *, node: Any, result: Any) -> Any:  # noqa: ARG002
        """Turn the deferral of an outer call into those of the inner calls that wait."""
        final = cast("End[Any]", result).data if isinstance(result, End) else None
        output = cast("FinalResult[Any]", final).output if isinstance(final, FinalResult) else None
        if self._made_face is None or not isinstance(output, DeferredToolRequests):
            return cast("Any", result)
        requests, pauses = await expand(output, self._face, ctx)
        if not pauses:
            return cast("Any", result)
        for pause in pauses:
            self._kept.put(pause)
        record_pauses(ctx.messages, pauses)
        return End(replace(cast("FinalResult[Any]", final), output=requests))

    async def wrap_run_event_stream(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        stream: AsyncIterable[AgentStreamEvent],
    ) -> AsyncIterator[AgentStreamEvent]:
        """Show the inner calls that wait, and what became of them, as calls of their own."""
        async for event in stream:
            if self._made_face is not None and isinstance(event, DeferredToolRequestsEvent):
                for shown in await self._pause_events(event, ctx):
                    yield shown
                continue
            if isinstance(event, FunctionToolCallEvent) and event.part.tool_call_id in self._run.resumed:
                # Whoever streams knows it from the run that paused: announced once more it would be another call.
                self._run.resumed.discard(event.part.tool_call_id)
                yield replace(event, args_valid=None)
                continue
            if isinstance(event, FunctionToolResultEvent):
                for settled in self._settled_events(event.part.tool_call_id):
                    yield settled
            yield event

    async def _results(self, ctx: RunContext[AgentDepsT], given: DeferredToolResults) -> DeferredToolResults | None:
        """Return the framework's results for what is pending at the end of the history; None when nothing is ours."""
        before = list(ctx.messages)
        pauses = await take_pauses(ctx, given, self._kept, self._face)
        results = replace(
            given,
            calls={**late_results(before, pauses), **given.calls},
            approvals=dict(given.approvals),
            metadata=dict(given.metadata),
        )
        for pause in pauses:
            await self._resume(ctx, pause, results)
        lost = next((one for one in [*results.approvals, *results.calls] if is_waiting_id(one)), None)
        if lost is not None:
            raise UserError(
                f"No paused {self._face.title} call waits for {lost!r}: it was answered before, or this history was "
                "kept by a client and the process that paused it is gone."
            )
        return results if pauses else None

    async def _resume(self, ctx: RunContext[AgentDepsT], pause: Pause, results: DeferredToolResults) -> None:
        answers = answers_for(pause, results)
        for request in pause.interrupt.requests:
            self._run.shown.add(request.interrupt_id)
            results.approvals.pop(request.interrupt_id, None)
            results.calls.pop(request.interrupt_id, None)
            results.metadata.pop(request.interrupt_id, None)
        whole = results.approvals.get(pause.outer_id)
        if whole is False or isinstance(whole, ToolDenied):
            await pause.end(self._face, ctx)
            return
        self._run.resumed.add(pause.outer_id)
        results.approvals[pause.outer_id] = ToolApproved()
        results.metadata[pause.outer_id] = pause.resumed_by(answers)

    async def _pause_events(
        self, event: DeferredToolRequestsEvent, ctx: RunContext[AgentDepsT]
    ) -> list[AgentStreamEvent]:
        requests, pauses = await expand(event.requests, self._face, ctx)
        settled = [one for pause in pauses for one in self._settled_events(pause.outer_id)]
        waiting = [call for pause in pauses for call in waiting_calls(pause.interrupt)]
        new = [call for call in waiting if call.tool_call_id not in self._run.shown]
        self._run.shown.update(call.tool_call_id for call in new)
        # Clients look at the last step of a response: everything that waits must be in one.
        parts: list[AgentStreamEvent] = []
        for index, call in enumerate(new):
            parts += [PartStartEvent(index=index, part=call), PartEndEvent(index=index, part=call)]
        calls = [FunctionToolCallEvent(call, args_valid=True) for call in new]
        return [*settled, *parts, *calls, replace(event, requests=requests)]

    def _settled_events(self, outer_id: str) -> list[AgentStreamEvent]:
        settled = self._run.settled.pop(outer_id, {})
        in_order = sorted(settled, key=lambda waiting_id: (len(waiting_id), waiting_id))
        return [FunctionToolResultEvent(settled[waiting_id]) for waiting_id in in_order]


def _has_keys(given: Any) -> bool:
    """Tell whether options that a file has said name signing keys."""
    if isinstance(given, dict):
        said = cast("dict[str, Any]", given)
        continuation: Any = said.get("continuation")
        return (isinstance(continuation, dict) and "keys" in continuation) or _has_keys([*said.values()])
    return isinstance(given, list) and any(_has_keys(one) for one in cast("list[Any]", given))
