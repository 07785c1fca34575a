"""A call that resumes the continuation whose resume it is part of is refused: it would wait for its own outcome."""

from __future__ import annotations

import asyncio
from typing import Any

from pausing import PAUSING, go_on, start, through_json
from suite import each_row
from waiting import within

from codemode import Tool, continue_interrupt, continue_interrupt_sync, run_code_mode

OK, NO = {"approved": True}, {"approved": False}
JS = "try { return await tools.own(1) } catch (error) { return [error.name, error.message] }"


class Own:
    """A gated tool that resumes the pause which it waited in."""

    def __init__(self, how: str, answer: Any = OK) -> None:
        self.pause: Any = None
        self.answer = answer
        self.given = {"tools": [], "options": PAUSING}
        execute = {"sync": self.sync, "async": self.go_on, "task": self.task, "thread": self.thread}
        self.tools = [Tool("own", execute=execute.get(how, self.nested), needs_approval=True)]

    def sync(self, _: Any) -> Any:
        return continue_interrupt_sync(self.pause, self.answer, **self.given)

    async def go_on(self, _: Any) -> Any:
        return await continue_interrupt(self.pause, self.answer, **self.given)

    async def task(self, _: Any) -> Any:
        return await asyncio.create_task(self.go_on(1))

    async def thread(self, _: Any) -> Any:
        return await asyncio.to_thread(self.sync, 1)

    async def nested(self, _: Any) -> Any:
        return await run_code_mode("return await tools.deep()", [Tool("deep", execute=self.go_on)])


@each_row("answer", [OK, NO], ids=["same answers", "other answers"])
@each_row("how", ["sync", "async", "task", "thread", "nested"])
def test_a_tool_cannot_resume_the_program_that_waits_for_it(how, answer):
    own = Own(how, answer)
    own.pause = through_json(start(JS, own.tools))
    name, message = go_on(own.pause, own.tools, OK)
    assert name == "CodeModeProtocolError"
    assert "wait for itself" in message
    assert go_on(own.pause, own.tools, OK) == [name, message]


def test_what_a_tool_leaves_running_is_told_the_outcome_afterwards():
    own = Own("async")
    begun: list[asyncio.Task[Any]] = []
    ended = asyncio.Event()

    async def later() -> Any:
        await ended.wait()
        return await own.go_on(1)

    async def leave(_: Any) -> str:
        begun.append(asyncio.create_task(later()))
        return "left"

    async def scenario() -> Any:
        tools = [Tool("own", execute=leave, needs_approval=True)]
        own.pause = await run_code_mode(JS, tools, options=PAUSING)
        assert await continue_interrupt(own.pause, OK, tools=tools, options=PAUSING) == "left"
        ended.set()
        return await begun[0]

    assert within(scenario()) == "left"


def test_a_tool_may_resume_another_program():
    other = start("return await tools.own(1)", [Tool("own", execute=lambda _: 1, needs_approval=True)])
    given = {"tools": [Tool("own", execute=lambda _: "other", needs_approval=True)], "options": PAUSING}

    async def resume(_: Any) -> Any:
        return await continue_interrupt(other, OK, **given)

    tools = [Tool("own", execute=resume, needs_approval=True)]
    assert go_on(start(JS, tools), tools, OK) == "other"
