"""The promises that every plugin keeps, here through the middleware and an in-memory checkpointer."""

from __future__ import annotations

import asyncio
import inspect
import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import pytest
from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, ExecWaitMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import UnknownInterruptError
from langgraph.types import Command
from scripted_agent import START, agent, asking, asks, content, model
from suite import full_only

from codemode.testing.contract import (
    CODE_CALL,
    CODE_MODE,
    EXEC_WAIT,
    PAUSES,
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
    accepts_partial_answers,
    contract_id,
    runs_sequential_tools_alone,
    without,
)

WAIT_SECONDS = 120.0
BATCHED = frozenset(PAUSES) - {accepts_partial_answers}
_HEARD: dict[str, Literal["begun", "ended"]] = {"on_tool_start": "begun", "on_tool_end": "ended"}


class Plugin:
    """Each state is the id of a thread.

    LangGraph ignores answers to what does not wait (any more); in its strict mode it says so, and then the same
    answers as before stand for a look at the thread.
    """

    _rules: ClassVar[dict[str, Any]] = {}

    def __init__(self, face: SurfaceUnderTest, **settings: Any) -> None:
        self.face = face
        self._settings = settings
        self._saver = InMemorySaver()
        self._answered: dict[str, Any] = {}

    def with_settings(self, **settings: Any) -> PluginUnderTest:
        return type(self)(self.face, **self._settings, **settings)

    def create_content_part(self, data: bytes, mime_type: str) -> Any:
        return {"type": "image", "base64": b64encode(data).decode(), "mime_type": mime_type}

    def get_content_bytes(self, part: Any) -> bytes:
        return b64decode(part["base64"])

    async def describe_tools(self, tools: Sequence[ContractTool]) -> Mapping[str, str]:
        name, given = self.face.request("return 1")
        scripted = asking(asks((name, given)))
        await self._agent(tools, scripted).ainvoke(START, self._config(str(uuid.uuid4())))
        return {one.name: one.description for one in scripted.shown[0]}

    async def call(
        self,
        tools: Sequence[ContractTool],
        name: str,
        given: Mapping[str, Any],
        *,
        after: str = "",
        hear: Hear | None = None,
    ) -> Outcome:
        thread = json.loads(after) if after else str(uuid.uuid4())
        graph = self._agent(tools, asking(asks((name, given))))
        if hear is not None:
            async for event in graph.astream_events(START, self._config(thread), version="v2"):
                if event["name"] not in self.face.offered and event["event"] in _HEARD:
                    hear(event["name"], _HEARD[event["event"]])
            return self._outcome((await graph.aget_state(self._config(thread))).values, thread)
        return self._outcome(await graph.ainvoke(START, self._config(thread)), thread)

    async def resume(self, tools: Sequence[ContractTool], state: str, answers: Mapping[str, ContractAnswer]) -> Outcome:
        thread = json.loads(state)
        graph = self._agent(tools, model("return 'never asked for'", said=1))
        decisions = self._decisions(answers)
        try:
            output = await graph.ainvoke(Command(resume=decisions), self._config(thread))
        except UnknownInterruptError:
            if self._answered.get(state) != decisions:
                raise
            output = (await graph.aget_state(self._config(thread))).values
        self._answered[state] = decisions
        return self._outcome(output, thread)

    def create_agent_function(self, tools: Sequence[ContractTool], program: str) -> Any:
        scripted = asking(asks(self.face.request(program)))  # which goes on where it was

        async def ask() -> Any:
            """Ask another agent."""
            graph = self._agent(tools, scripted, checkpointer=None)
            return self.face.answer(_value(content(await graph.ainvoke(START))))[1]

        return ask

    def _agent(self, tools: Sequence[ContractTool], scripted: Any, **settings: Any) -> Any:
        made = [_langchain_tool(one) for one in tools]
        return agent((), made, self._hiding(tools), model=scripted, **{"checkpointer": self._saver, **settings})

    def _hiding(self, tools: Sequence[ContractTool]) -> Any:
        rules: Any = {"approve": {one.name: True for one in tools if one.needs_approval}, **self._rules}
        given = dict(self._settings)
        if self.face is CODE_MODE:
            return CodeModeMiddleware(**given, **rules)
        settings = given.pop("options", None)
        if self.face is EXEC_WAIT:
            return ExecWaitMiddleware(settings=settings, **given, **rules)
        return CodeCallMiddleware(options={"directCalls": {"enabled": True}, "settings": settings}, **given, **rules)

    def _config(self, thread: str) -> Any:
        return {"configurable": {"thread_id": thread, "__pregel_strict_resume": True}}

    def _outcome(self, output: Any, thread: str) -> Outcome:
        if waiting := output.get("__interrupt__"):
            return Paused(calls=[call for one in waiting for call in self._waiting(one)], state=json.dumps(thread))
        message: Any = next(one for one in reversed(output["messages"]) if isinstance(one, ToolMessage))
        conversation = json.dumps(thread)
        if message.status == "error":
            return Failed(text=message.content, conversation=conversation)
        said, *blocks = [{"text": message.content}] if isinstance(message.content, str) else message.content
        shown = tuple((one["mime_type"], b64decode(one["base64"])) for one in blocks)
        return Finished(value=_value(said["text"]), content=shown, conversation=conversation)

    def _waiting(self, asked: Any) -> Iterable[WaitingCall]:
        yield WaitingCall(id=asked.id, tool_name=asked.value["name"], input=asked.value["args"])

    def _decisions(self, answers: Mapping[str, ContractAnswer]) -> dict[str, Any]:
        return {one: _decision(answer) for one, answer in answers.items()}


class Batched(Plugin):
    """All calls that wait are one interrupt, answered by a decision for each, in their order."""

    _rules: ClassVar[dict[str, Any]] = {"interrupt_mode": "batched"}

    def _waiting(self, asked: Any) -> Iterable[WaitingCall]:
        for at, action in enumerate(asked.value["action_requests"]):
            yield WaitingCall(id=f"{asked.id}/{at}", tool_name=action["name"], input=action["args"])

    def _decisions(self, answers: Mapping[str, ContractAnswer]) -> dict[str, Any]:
        decided: dict[str, Any] = {}
        for one in sorted(answers):
            decisions = decided.setdefault(one.partition("/")[0], {"decisions": []})["decisions"]
            decisions.append(_decision(answers[one]))
        return decided


def _langchain_tool(one: ContractTool) -> StructuredTool:
    given = {"coroutine" if inspect.iscoroutinefunction(one.function) else "func": one.function}
    return StructuredTool.from_function(name=one.name, **given)


def _decision(answer: ContractAnswer) -> dict[str, Any]:
    if not answer.approved:
        return {"type": "reject", **({"message": answer.reason} if answer.reason else {})}
    if answer.input is not None:
        return {"type": "edit", "edited_action": {"name": "refund", "args": dict(answer.input)}}
    return {"type": "approve"}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a text is shown to a model as it is


# LangChain's tools cannot say that they run beside no other, and its exec has state only in a place of the host's.
ALL = without(runs_sequential_tools_alone, *((EXEC_WAIT, one) for one in STATE))


def checked(check: Check, plugin: PluginUnderTest) -> None:
    asyncio.run(asyncio.wait_for(check(plugin), WAIT_SECONDS))


def usual(face: SurfaceUnderTest, check: Check) -> bool:
    """Say whether the default suite has it: each check on one surface, and a few of pauses on all."""
    return face is CODE_MODE or check in PAUSES[::3] or (CODE_MODE, check) not in ALL


@pytest.mark.parametrize(
    ("face", "check"),
    [*(one for one in ALL if usual(*one)), *full_only(*(one for one in ALL if not usual(*one)))],
    ids=contract_id,
)
def test_contract(face: SurfaceUnderTest, check: Check):
    checked(check, Plugin(face))


_BATCHED = [one for one in ALL if one[1] in BATCHED]
_FIRST = [one for one in _BATCHED if one[0] is CODE_MODE]


@pytest.mark.parametrize(
    ("face", "check"), [*_FIRST, *full_only(*(one for one in _BATCHED if one not in _FIRST))], ids=contract_id
)
def test_batched_contract(face: SurfaceUnderTest, check: Check):
    checked(check, Batched(face))


def test_all_faces_are_checked():
    assert {face for face, _ in ALL} == {CODE_MODE, CODE_CALL, EXEC_WAIT}
