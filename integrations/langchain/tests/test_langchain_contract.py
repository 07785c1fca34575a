"""The promises that every plugin keeps, here through the middleware and an in-memory checkpointer."""

from __future__ import annotations

import asyncio
import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, ExecWaitMiddleware
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import UnknownInterruptError
from langgraph.types import Command
from scripted_agent import START, agent, asking, asks, model, results

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


class Plugin:
    """Each state is the id of a thread.

    LangGraph ignores answers to what does not wait (any more); in its strict mode it says so, and then the same
    answers as before stand for a look at the thread.
    """

    def __init__(self, face: Face) -> None:
        self.face = face
        self._saver = InMemorySaver()
        self._answered: dict[str, Any] = {}

    def part(self, data: bytes, mime_type: str) -> Any:
        return {"type": "image", "base64": b64encode(data).decode(), "mime_type": mime_type}

    def bytes_of(self, part: Any) -> bytes:
        return b64decode(part["base64"])

    async def shown(self, tools: Sequence[ContractTool]) -> Mapping[str, str]:
        name, given = self.face.request("return 1")
        scripted = asking(asks((name, given)))
        await self._agent(tools, scripted).ainvoke(START, self._config(str(uuid.uuid4())))
        return {one.name: one.description for one in scripted.shown[0]}

    async def call(self, tools: Sequence[ContractTool], name: str, given: Mapping[str, Any]) -> Outcome:
        thread = str(uuid.uuid4())
        output = await self._agent(tools, asking(asks((name, given)))).ainvoke(START, self._config(thread))
        return self._outcome(output, thread)

    async def resume(self, tools: Sequence[ContractTool], state: str, answers: Mapping[str, ContractAnswer]) -> Outcome:
        thread = json.loads(state)
        graph = self._agent(tools, model("return 'never asked for'", said=1))
        decisions = {one: _decision(answer) for one, answer in answers.items()}
        try:
            output = await graph.ainvoke(Command(resume=decisions), self._config(thread))
        except UnknownInterruptError:
            if self._answered.get(state) != decisions:
                raise
            output = (await graph.aget_state(self._config(thread))).values
        self._answered[state] = decisions
        return self._outcome(output, thread)

    def _agent(self, tools: Sequence[ContractTool], scripted: Any) -> Any:
        gated = {one.name: True for one in tools if one.needs_approval}
        made = [_langchain_tool(one) for one in tools]
        if self.face is CODE_MODE:
            hiding: Any = CodeModeMiddleware(approve=gated)
        elif self.face is EXEC_WAIT:
            hiding = ExecWaitMiddleware(approve=gated)
        else:
            hiding = CodeCallMiddleware(options={"directCalls": {"enabled": True}}, approve=gated)
        return agent((), made, hiding, model=scripted, checkpointer=self._saver)

    def _config(self, thread: str) -> Any:
        return {"configurable": {"thread_id": thread, "__pregel_strict_resume": True}}

    def _outcome(self, output: Any, thread: str) -> Outcome:
        if "__interrupt__" in output:
            waiting = [
                WaitingCall(id=one.id, tool_name=one.value["name"], input=one.value["args"])
                for one in output["__interrupt__"]
            ]
            return Paused(calls=waiting, state=json.dumps(thread))
        (message,) = results(output)
        if message.status == "error":
            return Failed(text=message.content)
        said, *blocks = [{"text": message.content}] if isinstance(message.content, str) else message.content
        content = tuple((one["mime_type"], b64decode(one["base64"])) for one in blocks)
        return Finished(value=_value(said["text"]), content=content)


def _langchain_tool(one: ContractTool) -> StructuredTool:
    given = {"coroutine" if asyncio.iscoroutinefunction(one.function) else "func": one.function}
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


@pytest.mark.parametrize(("face", "check"), [*CONTRACTS, *EXEC_WAIT_CONTRACTS], ids=contract_id)
def test_contract(face: Face, check: Check):
    asyncio.run(check(Plugin(face)))


def test_all_faces_are_checked():
    assert {face.name for face, _ in CONTRACTS} == {CODE_MODE.name, CODE_CALL.name}
    assert {face for face, _ in EXEC_WAIT_CONTRACTS} == {EXEC_WAIT}
