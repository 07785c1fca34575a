"""A run of the agent that is made again, after its process or its task has ended, goes on from the journal."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from codemode_pydantic_ai import CodeCall, CodeMode
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool, ToolApproved, ToolDenied, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from scripted import Script

from codemode.continuations.journal import MemoryJournal
from codemode.stores import MemoryResumeGuard

WHEN = datetime(2030, 1, 2, tzinfo=UTC)
BOTH = 'return [await tools.write({ text: "a" }), await tools.write({ text: "b" })]'
CALLS = {
    "mode": ToolCallPart("codeMode", {"js": BOTH}, tool_call_id="call_1"),
    "call": ToolCallPart(
        "codecall_execute", {"script": BOTH.replace("tools.write(", 'callTool("write", ')}, tool_call_id="call_1"
    ),
}


class Desk:
    """An agent whose tool hangs once, in the call ``b``; each run is one of a new process as far as it can tell."""

    def __init__(self, face: str) -> None:
        self.face = face
        self.done: list[str] = []
        self.hangs = True
        self.reached = asyncio.Event()
        self.continuation = {"keys": "k" * 32, "guard": MemoryResumeGuard(), "journal": MemoryJournal()}

    def agent(self) -> tuple[Agent[Any, Any], Script]:
        async def write(text: str) -> str:
            self.done.append(text)
            if text == "b" and self.hangs:
                self.hangs = False
                self.reached.set()
                await asyncio.Event().wait()
            return text

        options: Any = {"continuation": self.continuation}
        capability: Any = CodeMode(options) if self.face == "mode" else CodeCall(settings=options)
        asks = ModelResponse(parts=[CALLS[self.face]], timestamp=WHEN)
        script = Script(lambda messages, info: asks, "done")
        output: Any = [str, DeferredToolRequests]
        return Agent(script.model, tools=[Tool(write)], output_type=output, capabilities=[capability]), script

    async def cancelled(self) -> None:
        agent, _ = self.agent()
        running = asyncio.create_task(agent.run("go", conversation_id="the conversation"))
        await self.reached.wait()
        running.cancel()
        await asyncio.wait([running])
        assert self.done == ["a", "b"]

    async def again(self) -> tuple[Script, Any]:
        """The same run: the model says what it has said, under the same id."""
        agent, script = self.agent()
        return script, await agent.run("go", conversation_id="the conversation")

    async def answered(self, paused: Any, answer: Any, *, is_value: bool = False) -> tuple[Script, Any]:
        agent, script = self.agent()
        script.steps = ["done"]
        (waiting,) = paused.output.approvals
        given = {waiting.tool_call_id: answer}
        results = DeferredToolResults(**({"calls": given} if is_value else {"approvals": given}))
        messages: list[ModelMessage] = paused.all_messages()
        return script, await agent.run(message_history=messages, deferred_tool_results=results)


def returned(desk: Desk, script: Script) -> Any:
    content = script.returned("call_1")
    return content if desk.face == "mode" else content["result"]


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


@pytest.fixture(params=["mode", "call"])
def face(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize(
    ("answer", "is_value", "gives", "done"),
    [
        (ToolApproved(), False, ["a", "b"], ["a", "b", "b"]),
        (True, False, ["a", "b"], ["a", "b", "b"]),
        ("b, says a person", True, ["a", "b, says a person"], ["a", "b"]),
    ],
)
def test_a_run_that_is_made_again_goes_on(face: str, answer: Any, is_value: bool, gives: Any, done: list[str]) -> None:
    async def main() -> None:
        desk = Desk(face)
        await desk.cancelled()
        _, paused = await desk.again()
        (waiting,) = paused.output.approvals
        assert (waiting.tool_name, waiting.args) == ("write", {"text": "b"})
        assert paused.output.metadata[waiting.tool_call_id] == {"unknown_outcome": True}
        assert desk.done == ["a", "b"], "what is not known is asked about before anything runs"
        _, once_more = await desk.again()
        assert [one.tool_call_id for one in once_more.output.approvals] == [waiting.tool_call_id]
        script, _ = await desk.answered(paused, answer, is_value=is_value)
        assert returned(desk, script) == gives
        assert desk.done == done
        script, result = await desk.again()
        assert (result.output, returned(desk, script), desk.done) == ("done", gives, done)

    within(main())


def test_a_denied_call_of_unknown_outcome_has_failed() -> None:
    async def main() -> None:
        desk = Desk("mode")
        await desk.cancelled()
        _, paused = await desk.again()
        script, _ = await desk.answered(paused, ToolDenied("it bounced"))
        assert "it bounced" in str(script.returned("call_1"))
        assert desk.done == ["a", "b"]

    within(main())


def test_a_call_of_unknown_outcome_runs_again_as_it_was() -> None:
    async def main() -> None:
        desk = Desk("mode")
        await desk.cancelled()
        _, paused = await desk.again()
        with pytest.raises(UserError, match="approve it without override_args"):
            await desk.answered(paused, ToolApproved(override_args={"text": "c"}))
        assert desk.done == ["a", "b"]

    within(main())


def test_without_a_journal_a_run_before_its_first_pause_makes_all_calls_again(face: str) -> None:
    async def main() -> None:
        desk = Desk(face)
        del desk.continuation["journal"]
        await desk.cancelled()
        script, result = await desk.again()
        assert (result.output, returned(desk, script)) == ("done", ["a", "b"])
        assert desk.done == ["a", "b", "a", "b"]

    within(main())
