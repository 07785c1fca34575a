"""The promises of every plugin, kept by this one: on both faces, with the capabilities and without them."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from codemode_pydantic_ai import (
    CodeCall,
    CodeCallToolset,
    CodeMode,
    ExecWait,
    NestedCallEvent,
    answer,
    create_code_mode_tool,
)
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, DeferredToolResults, Tool, ToolApproved, ToolDenied
from pydantic_ai.messages import ModelMessagesTypeAdapter, ToolCallPart
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script
from suite import full_only

from codemode.testing.contract import (
    CODE_CALL,
    CODE_MODE,
    EXEC_WAIT,
    PAUSES,
    SELECTION,
    STATE,
    Check,
    ContractAnswer,
    ContractTool,
    Failed,
    Finished,
    Hear,
    Outcome,
    Paused,
    PluginUnderTest,
    SurfaceUnderTest,
    WaitingCall,
    asks_approvals_for_nested_agents,
    contract_id,
    without,
)

WAIT_SECONDS = 120.0


class Capability:
    """Agents with the `CodeMode` capability."""

    face: SurfaceUnderTest = CODE_MODE

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def with_settings(self, **settings: Any) -> PluginUnderTest:
        return type(self)(**self.settings, **settings)

    def agent(self, tools: Sequence[ContractTool], script: Script) -> Agent[Any, Any]:
        return Agent(script.model, output_type=[str, DeferredToolRequests], **self.given(tools))

    def given(self, tools: Sequence[ContractTool]) -> dict[str, Any]:
        return {"tools": made(tools), "capabilities": [CodeMode(**self.settings)]}

    def create_content_part(self, data: bytes, mime_type: str) -> Any:
        return BinaryContent(data, media_type=mime_type)

    def get_content_bytes(self, part: Any) -> bytes:
        return part.data

    async def describe_tools(self, tools: Sequence[ContractTool]) -> Mapping[str, str]:
        script = Script("done")
        await self.agent(tools, script).run("go")
        return {tool.name: tool.description or "" for tool in script.seen[0][1].function_tools}

    async def call(
        self,
        tools: Sequence[ContractTool],
        name: str,
        given: Mapping[str, Any],
        *,
        after: str = "",
        hear: Hear | None = None,
    ) -> Outcome:
        script = Script([ToolCallPart(name, dict(given), tool_call_id=str(uuid.uuid4()))], "done")

        async def listen(_ctx: Any, events: AsyncIterable[Any]) -> None:
            async for event in events:
                if hear is not None and isinstance(event, NestedCallEvent):
                    name = event.nested_tool_name.rpartition(":")[2]  # exec tells of it by its id
                    hear(name, "begun" if event.state == "running" else "ended")

        history = ModelMessagesTypeAdapter.validate_json(after) if after else None
        result = await self.agent(tools, script).run("go", message_history=history, event_stream_handler=listen)
        return self.outcome(script, result)

    async def resume(self, tools: Sequence[ContractTool], state: str, answers: Mapping[str, ContractAnswer]) -> Outcome:
        script = Script("done")
        kept = json.loads(state)
        messages = ModelMessagesTypeAdapter.validate_python(kept["messages"])
        results = self.results(kept, {call_id: decision(one) for call_id, one in answers.items()})
        result = await self.agent(tools, script).run(message_history=messages, deferred_tool_results=results)
        return self.outcome(script, result)

    def results(self, kept: Any, answers: Mapping[str, Any]) -> DeferredToolResults:
        return DeferredToolResults(approvals=dict(answers))

    def waiting(self, requests: DeferredToolRequests) -> list[WaitingCall]:
        return [
            WaitingCall(id=call.tool_call_id, tool_name=call.tool_name, input=call.args_as_dict())
            for call in requests.approvals
        ]

    def outcome(self, script: Script, result: Any) -> Outcome:
        if isinstance(result.output, DeferredToolRequests):
            messages = ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json")
            shown = {
                "metadata": result.output.metadata,
                "approvals": [one.tool_call_id for one in result.output.approvals],
            }
            return Paused(calls=self.waiting(result.output), state=json.dumps({"messages": messages, **shown}))
        part = next(
            part
            for message in reversed(result.all_messages())
            for part in message.parts
            if part.part_kind in ("tool-return", "retry-prompt")
        )
        conversation = result.all_messages_json().decode()
        failed = part.part_kind == "retry-prompt" or part.outcome != "success"
        if failed:
            return Failed(text=str(part.content), conversation=conversation)
        value, *objects = part.content if part.files else [part.content]
        content = tuple((one.media_type, one.data) for one in objects)
        return Finished(value=value, content=content, conversation=conversation)

    def create_agent_function(self, tools: Sequence[ContractTool], program: str) -> Any:
        name, given = self.face.request(program)
        script = Script([ToolCallPart(name, dict(given), tool_call_id="inner")], "done")

        async def ask() -> Any:
            """Ask another agent."""
            outcome = self.outcome(script, await self.agent(tools, script).run("go"))
            return self.face.answer(outcome.value)[1] if isinstance(outcome, Finished) else repr(outcome)

        return ask


class CallCapability(Capability):
    """Agents with the `CodeCall` capability."""

    face = CODE_CALL

    def given(self, tools: Sequence[ContractTool]) -> dict[str, Any]:
        settings, keep = self.settings.get("options"), self.settings.get("keep", ())
        own = CodeCall(direct_calls={"enabled": True}, settings=settings, keep=keep)
        return {"tools": made(tools), "capabilities": [own]}


class PairCapability(Capability):
    """Agents with the `ExecWait` capability."""

    face = EXEC_WAIT

    def given(self, tools: Sequence[ContractTool]) -> dict[str, Any]:
        return {"tools": made(tools), "capabilities": [ExecWait(settings=self.settings.get("options"))]}


class WithoutCapability(Capability):
    """Agents whose own code answers what waits, in the metadata of the outer call."""

    def waiting(self, requests: DeferredToolRequests) -> list[WaitingCall]:
        (outer,) = requests.approvals
        shown = requests.metadata[outer.tool_call_id]["codemode"]["requests"]
        return [WaitingCall(id=one["toolCallId"], tool_name=one["toolName"], input=one["args"]) for one in shown]

    def results(self, kept: Any, answers: Mapping[str, Any]) -> DeferredToolResults:
        approvals = [ToolCallPart("outer", {}, tool_call_id=one) for one in kept["approvals"]]
        return answer(DeferredToolRequests(approvals=approvals, metadata=kept["metadata"]), answers)


class OneTool(WithoutCapability):
    """Agents with the tool of `create_code_mode_tool`."""

    def given(self, tools: Sequence[ContractTool]) -> dict[str, Any]:
        return {"tools": [create_code_mode_tool(made(tools), **self.settings)]}


class KeptCapability(Capability):
    """Agents with one `CodeMode` between them, as in an application: state is kept in it."""

    def given(self, tools: Sequence[ContractTool]) -> dict[str, Any]:
        self.own = getattr(self, "own", None) or super().given(tools)["capabilities"]
        return {"tools": made(tools), "capabilities": self.own}


class KeptTool(OneTool):
    """Agents with one tool of `create_code_mode_tool` between them."""

    def given(self, tools: Sequence[ContractTool]) -> dict[str, Any]:
        self.own = getattr(self, "own", None) or super().given(tools)
        return self.own


class KeptPair(PairCapability):
    """Agents with one `ExecWait` between them."""

    def given(self, tools: Sequence[ContractTool]) -> dict[str, Any]:
        self.own = getattr(self, "own", None) or super().given(tools)["capabilities"]
        return {"tools": made(tools), "capabilities": self.own}


class CallToolset(WithoutCapability):
    """Agents with a `CodeCallToolset`."""

    face = CODE_CALL

    def given(self, tools: Sequence[ContractTool]) -> dict[str, Any]:
        options = {"directCalls": {"enabled": True}, "settings": self.settings.get("options")}
        return {"toolsets": [CodeCallToolset(FunctionToolset(made(tools)), options)]}


ALONE: tuple[type[Capability], ...] = (Capability, OneTool, CallCapability, CallToolset, PairCapability)
KEPT: tuple[type[Capability], ...] = (KeptCapability, KeptTool, KeptPair)


def made(tools: Sequence[ContractTool]) -> list[Tool[Any]]:
    return [
        Tool(one.function, name=one.name, requires_approval=one.needs_approval, sequential=one.sequential)
        for one in tools
    ]


def decision(given: ContractAnswer) -> Any:
    if not given.approved:
        return ToolDenied(given.reason or "denied")
    return ToolApproved(override_args=None if given.input is None else dict(given.input))


def rows() -> Iterator[tuple[type[Capability], Check]]:
    # An agent in a tool of pydantic-ai cannot leave its questions to the agent that called it.
    for face, check in without(asks_approvals_for_nested_agents):
        if check in STATE:
            yield from ((plugin, check) for plugin in KEPT if face is plugin.face)
        elif check in SELECTION:  # which is the capabilities'
            yield {CODE_MODE: Capability, CODE_CALL: CallCapability}[face], check
        else:
            yield from ((plugin, check) for plugin in ALONE if face is plugin.face)


OF_CODE_MODE = {check for face, check in without() if face is CODE_MODE}


def usual(plugin: type[Capability], check: Check) -> bool:
    """Say whether the default suite has it: each check on one surface's capability, and a few of pauses on each."""
    if plugin in (OneTool, CallToolset):
        return False
    return plugin.face is CODE_MODE or check in PAUSES[::3] or check not in OF_CODE_MODE


@pytest.mark.parametrize(
    ("plugin", "check"),
    [*(row for row in rows() if usual(*row)), *full_only(*(row for row in rows() if not usual(*row)))],
    ids=contract_id,
)
def test_contract(check: Check, plugin: type[Capability]) -> None:
    asyncio.run(asyncio.wait_for(check(plugin()), WAIT_SECONDS))
