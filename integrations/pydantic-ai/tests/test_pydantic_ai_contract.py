"""The promises of every plugin, kept by this one: on both faces, with the capabilities and without them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from codemode_pydantic_ai import CodeCall, CodeCallToolset, CodeMode, ExecWait, answer, create_code_mode_tool
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, DeferredToolResults, Tool, ToolApproved, ToolDenied
from pydantic_ai.messages import ModelMessagesTypeAdapter, ToolCallPart
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script

from codemode.testing.contract import (
    CODE_CALL,
    CODE_MODE,
    CONTRACTS,
    EXEC_WAIT,
    EXEC_WAIT_CONTRACTS,
    Check,
    ContractAnswer,
    ContractTool,
    Face,
    Failed,
    Finished,
    Outcome,
    Paused,
    WaitingCall,
    contract_id,
)

WAIT_SECONDS = 30.0


class Capability:
    """Agents with the `CodeMode` capability."""

    face: Face = CODE_MODE

    def agent(self, tools: Sequence[ContractTool], script: Script) -> Agent[Any, Any]:
        return Agent(
            script.model,
            tools=made(tools),
            output_type=[str, DeferredToolRequests],
            capabilities=[CodeMode()],
        )

    def part(self, data: bytes, mime_type: str) -> Any:
        return BinaryContent(data, media_type=mime_type)

    def bytes_of(self, part: Any) -> bytes:
        return part.data

    async def shown(self, tools: Sequence[ContractTool]) -> Mapping[str, str]:
        script = Script("done")
        await self.agent(tools, script).run("go")
        return {tool.name: tool.description or "" for tool in script.seen[0][1].function_tools}

    async def call(self, tools: Sequence[ContractTool], name: str, given: Mapping[str, Any]) -> Outcome:
        script = Script([ToolCallPart(name, dict(given), tool_call_id="outer")], "done")
        return self.outcome(script, await self.agent(tools, script).run("go"))

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
            if getattr(part, "tool_call_id", None) == "outer" and part.part_kind in ("tool-return", "retry-prompt")
        )
        failed = part.part_kind == "retry-prompt" or part.outcome != "success"
        if failed:
            return Failed(text=str(part.content))
        value, *objects = part.content if part.files else [part.content]
        return Finished(value=value, content=tuple((one.media_type, one.data) for one in objects))


class CallCapability(Capability):
    """Agents with the `CodeCall` capability."""

    face = CODE_CALL

    def agent(self, tools: Sequence[ContractTool], script: Script) -> Agent[Any, Any]:
        return Agent(
            script.model,
            tools=made(tools),
            output_type=[str, DeferredToolRequests],
            capabilities=[CodeCall(direct_calls={"enabled": True})],
        )


class PairCapability(Capability):
    """Agents with the `ExecWait` capability."""

    face = EXEC_WAIT

    def agent(self, tools: Sequence[ContractTool], script: Script) -> Agent[Any, Any]:
        return Agent(
            script.model, tools=made(tools), output_type=[str, DeferredToolRequests], capabilities=[ExecWait()]
        )


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

    def agent(self, tools: Sequence[ContractTool], script: Script) -> Agent[Any, Any]:
        return Agent(script.model, tools=[create_code_mode_tool(made(tools))], output_type=[str, DeferredToolRequests])


class CallToolset(WithoutCapability):
    """Agents with a `CodeCallToolset`."""

    face = CODE_CALL

    def agent(self, tools: Sequence[ContractTool], script: Script) -> Agent[Any, Any]:
        toolset = CodeCallToolset(FunctionToolset(made(tools)), {"directCalls": {"enabled": True}})
        return Agent(script.model, toolsets=[toolset], output_type=[str, DeferredToolRequests])


PLUGINS: tuple[type[Capability], ...] = (Capability, OneTool, CallCapability, CallToolset, PairCapability)
ALL = (*CONTRACTS, *EXEC_WAIT_CONTRACTS)


def made(tools: Sequence[ContractTool]) -> list[Tool[Any]]:
    return [Tool(tool.function, name=tool.name, requires_approval=tool.needs_approval) for tool in tools]


def decision(given: ContractAnswer) -> Any:
    if not given.approved:
        return ToolDenied(given.reason or "denied")
    return ToolApproved(override_args=None if given.input is None else dict(given.input))


@pytest.mark.parametrize(
    ("plugin", "check"),
    [(plugin, check) for plugin in PLUGINS for face, check in ALL if face is plugin.face],
    ids=contract_id,
)
def test_contract(check: Check, plugin: type[Capability]) -> None:
    asyncio.run(asyncio.wait_for(check(plugin()), WAIT_SECONDS))
