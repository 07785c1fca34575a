"""The promises that every plugin keeps, here through the state of the SDK's runs, as JSON text."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from agents import Agent, FunctionTool, ModelBehaviorError, Runner, RunState, ToolOutputImage, function_tool
from codemode_openai_agents import approve, code_mode, stream_events, with_code_mode
from pydantic import BaseModel
from scripted_model import QUIET, Script, outputs
from suite import full_only

from codemode.testing.contract import (
    CODE_MODE,
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
    WaitingCall,
    accepts_partial_answers,
    contract_id,
    runs_sequential_tools_alone,
    without,
)

WAIT_SECONDS = 120.0
_HEARD: dict[str, Any] = {"tool_called": "begun", "tool_output": "ended"}


class WholeAgent:
    """Agents of `with_code_mode`. A state is that of the run, as it may go to another process.

    A conversation is the context of the run, by which the application has a place for what programs leave.
    """

    face = CODE_MODE

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._places: dict[str, dict[str, Any]] = {}

    def with_settings(self, **settings: Any) -> PluginUnderTest:
        return type(self)(**self._settings, **settings)

    def create_content_part(self, data: bytes, mime_type: str) -> Any:
        return ToolOutputImage(image_url=f"data:{mime_type};base64,{b64encode(data).decode()}")

    def get_content_bytes(self, part: Any) -> bytes:
        return b64decode(part["image_url"].partition(",")[2])

    async def describe_tools(self, tools: Sequence[ContractTool]) -> Mapping[str, str]:
        model = Script("done")
        await Runner.run(self._agent(model, tools), "go", context={"conversation": "nobody"}, run_config=QUIET)
        return model.shown[0]

    async def call(
        self,
        tools: Sequence[ContractTool],
        name: str,
        given: Mapping[str, Any],
        *,
        after: str = "",
        hear: Hear | None = None,
    ) -> Outcome:
        conversation = json.loads(after) if after else str(uuid.uuid4())
        context = {"conversation": conversation}
        made = self._agent(Script([(name, given)], "done"), tools)
        if hear is None:
            return await self._outcome(Runner.run(made, "go", context=context, run_config=QUIET), conversation)
        result = Runner.run_streamed(made, "go", context=context, run_config=QUIET)
        called: dict[Any, Any] = {}
        async for event in stream_events(result):
            if event.type == "run_item_stream_event" and event.name in _HEARD and event.item.agent.name == "codeMode":
                item: Any = event.item
                hear(called.setdefault(item.call_id, getattr(item, "tool_name", None)), _HEARD[event.name])
        return _outcome(result, conversation)

    async def resume(self, tools: Sequence[ContractTool], state: str, answers: Mapping[str, ContractAnswer]) -> Outcome:
        made = self._agent(Script("done"), tools)
        kept = await RunState.from_string(made, state)
        for item in kept.get_interruptions():
            answer = answers[str(item.call_id)]
            if answer.approved:
                approve(kept, item, input=answer.input)
            else:
                kept.reject(item, rejection_message=answer.reason)
        conversation = kept.to_json()["context"]["context"]["conversation"]
        return await self._outcome(Runner.run(made, kept, run_config=QUIET), conversation)

    def create_agent_function(self, tools: Sequence[ContractTool], program: str) -> Any:
        name, given = self.face.request(program)
        # It goes on where it was, in a process that may be another one.
        model = Script([(name, given)], ids="inner", ends=lambda said: str(said[-1]["output"]))
        return self._agent(model, tools).as_tool("ask", "Ask another agent.", parameters=_Nothing)

    async def _outcome(self, running: Any, conversation: str) -> Outcome:
        try:
            return _outcome(await running, conversation)
        except ModelBehaviorError as error:
            return Failed(text=str(error))  # a name that the model was not offered

    def _agent(self, model: Script, tools: Sequence[ContractTool]) -> Agent[Any]:
        made = Agent[Any](name="desk", model=model, tools=[_sdk_tool(one) for one in tools])
        return with_code_mode(made, state=self._place, **self._settings)

    def _place(self, context: Any) -> dict[str, Any]:
        return self._places.setdefault(context.context["conversation"], {})


class OneTool(WholeAgent):
    """Agents whose only tool is that of `code_mode`."""

    def _agent(self, model: Script, tools: Sequence[ContractTool]) -> Agent[Any]:
        tool = code_mode([_sdk_tool(one) for one in tools], state=self._place, **self._settings)
        return Agent(name="desk", model=model, tools=[tool])


class _Nothing(BaseModel):
    pass


def _sdk_tool(one: ContractTool) -> Any:
    if isinstance(one.function, FunctionTool):
        return dataclasses.replace(one.function, name=one.name)
    made = function_tool(name_override=one.name, needs_approval=one.needs_approval, strict_mode=False)
    return made(one.function)


def _outcome(result: Any, conversation: str) -> Outcome:
    if result.interruptions:
        waiting = [
            WaitingCall(id=str(one.call_id), tool_name=str(one.name), input=json.loads(one.arguments or "null"))
            for one in result.interruptions
        ]
        return Paused(calls=waiting, state=result.to_state().to_string())
    item = outputs(result)[-1]
    text, *parts = item.output if isinstance(item.output, list) else [item.output]
    said = getattr(text, "text", text)
    kept = json.dumps(conversation)
    if (item.custom_data or {}).get("codemode", {}).get("status") == "failed":
        return Failed(text=said, conversation=kept)
    return Finished(value=_value(said), content=tuple(map(_content, parts)), conversation=kept)


def _content(part: ToolOutputImage) -> tuple[str, bytes]:
    head, _, text = str(part.image_url).partition(",")
    return head.removeprefix("data:").removesuffix(";base64"), b64decode(text)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a text is shown to a model as it is


def rows() -> Iterator[tuple[type[WholeAgent], Check]]:
    # The SDK goes on with a tool when all that waits in it is decided, and has no word for tools that run alone.
    for face, check in without(accepts_partial_answers, runs_sequential_tools_alone):
        if face is CODE_MODE:  # the plugin has no other
            yield WholeAgent, check
            if check not in (*SELECTION, *STATE):
                yield OneTool, check


def usual(plugin: type[WholeAgent], check: Check) -> bool:
    """Say whether the default suite has it: each check on whole agents, and pauses on the tool alone."""
    return plugin is WholeAgent or check in PAUSES


@pytest.mark.parametrize(
    ("plugin", "check"),
    [*(row for row in rows() if usual(*row)), *full_only(*(row for row in rows() if not usual(*row)))],
    ids=contract_id,
)
def test_contract(plugin: type[WholeAgent], check: Check) -> None:
    asyncio.run(asyncio.wait_for(check(plugin()), WAIT_SECONDS))
