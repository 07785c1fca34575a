"""A program whose process died in the middle is not run again unasked: nobody knows which of its calls had happened."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware
from langchain_core.tools import tool
from langgraph.pregel._runner import FuturesDict
from langgraph.types import Command
from scripted_agent import APPROVE, CONFIG, START, Session, agent, content, results
from suite import full_only
from warm_python import WarmPython

SCRIPT = Path(__file__).with_name("killed_in_a_call.py")


@pytest.mark.parametrize(
    ("where", "answer", "mode"),
    [
        ("start", "approve", "async"),
        ("resume", "reject", "sync"),
        *full_only(
            ("start", "reject", "sync"),
            ("resume", "approve", "sync"),
            ("resume", "reject", "async"),
            ("start", "approve", "sync"),
            ("start", "reject", "async"),
            ("resume", "approve", "async"),
        ),
    ],
)
def test_loss_of_the_process_in_a_call_is_asked_about(
    langchain_python: WarmPython, tmp_path: Path, mode: str, answer: str, where: str
):
    given = (str(SCRIPT), str(tmp_path), where, answer, mode)
    died = langchain_python.run(*given)
    assert died.returncode == -signal.SIGKILL, died.stderr
    happened = (tmp_path / "log").read_text().split()
    assert "dies" in happened
    came_back = langchain_python.run(*given)
    assert came_back.returncode == 0, came_back.stderr
    told = json.loads(came_back.stdout)
    # Nothing has run by the time somebody is asked.
    assert (told["asked"], told["before"]) == ("unknown_outcome", happened)
    log = (tmp_path / "log").read_text().split()
    if answer == "reject":
        assert (told["status"], log) == ("error", happened)
        assert "which of its calls ran is unknown" in told["said"]
        return
    again = ["dies"] if where == "resume" else ["first", "beside", "dies"]
    assert sorted(log[len(happened) :]) == sorted(again)
    assert told["status"] == "success"


class Dies(BaseException):
    """Ends a run as nothing that a program could be told of."""


ENDS = r"Dies|cancelled|^$"


class Tools:
    """A tool that dies, as often as it is told to, after it has done something."""

    def __init__(self, dying: int = 1) -> None:
        self.done: list[str] = []
        self.dying = dying
        tools = self

        @tool
        def write(text: str) -> str:
            """Write."""
            tools.done.append(text)
            if text == "dies" and tools.dying:
                tools.dying -= 1
                raise Dies
            return text

        self.tools = [write]


@pytest.fixture(params=[False, *full_only(True)], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


def started(tools: Tools, js: str, *, is_async: bool, times: int = 1) -> tuple[Session, Any]:
    session = Session(agent([js], tools.tools, CodeModeMiddleware()), is_async)
    with pytest.raises(BaseException, match=ENDS):
        session.start()
    output = None
    for _ in range(times):
        output = session.send(None)
    return session, output


def test_loss_caught_by_the_program_is_asked_about_once(is_async: bool):
    js = """
    const all = await Promise.allSettled(["a", "dies", "b"].map((text) => tools.write({ text })));
    try { await tools.write({ text: "c" }) } catch {}
    return all.map((one) => one.status);
    """
    tools = Tools()
    session, output = started(tools, js, is_async=is_async, times=2)
    (asked,) = output["__interrupt__"]
    happened = list(tools.done)
    output = session.answer({asked.id: {"type": "reject"}})
    assert (content(output), tools.done) == ('["rejected", "rejected", "rejected"]', happened)


def test_loss_of_the_second_run_runs_no_third_one_unasked(is_async: bool):
    """In the same process the core knows of it, and says so."""
    tools = Tools(dying=2)
    session, output = started(tools, "return await tools.write({ text: 'dies' })", is_async=is_async)
    (asked,) = output["__interrupt__"]
    with pytest.raises(BaseException, match=ENDS):
        session.answer({asked.id: APPROVE})
    (message,) = results(session.send(None))
    assert message.status == "error"
    assert tools.done == ["dies"] * 2


def test_a_run_that_was_lost_before_its_first_call_runs(is_async: bool):
    tools = Tools()
    lost = [True]

    class Losing(CodeModeMiddleware):
        def _bind_surface_tool(self, request: Any, handler: Any) -> Any:
            if lost.pop() if lost else False:
                raise Dies
            return super()._bind_surface_tool(request, handler)

    session = Session(agent(["return await tools.write({ text: 'a' })"], tools.tools, Losing()), is_async)
    with pytest.raises(BaseException, match=ENDS):
        session.start()
    assert content(session.send(None)) == "a"


def test_a_cancelled_run_is_asked_about(is_async: bool):
    if not is_async:
        return
    tools = Tools()
    reached = threading.Event()

    @tool
    async def hang(text: str) -> str:
        """Hang."""
        tools.done.append(text)
        if len(tools.done) == 1:
            reached.set()
            await asyncio.Event().wait()
        return text

    graph = agent(["return await tools.hang({ text: 'a' })"], [hang], CodeModeMiddleware())

    async def cancelled() -> Any:
        running = asyncio.create_task(graph.ainvoke(START, CONFIG))
        await asyncio.wait_for(asyncio.to_thread(reached.wait, 60), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        asked = (await graph.ainvoke(None, CONFIG))["__interrupt__"]
        assert [one.value["type"] for one in asked] == ["unknown_outcome"]
        assert tools.done == ["a"]
        return await graph.ainvoke(Command(resume=APPROVE), CONFIG)

    assert content(asyncio.run(cancelled())) == "a"
    assert tools.done == ["a", "a"]


@pytest.mark.full
def test_more_programs_of_one_turn_than_the_graph_has_threads(is_async: bool):
    tools = Tools(dying=0)
    programs = [f"return await tools.write({{ text: '{number}' }})" for number in range(40)]
    output = Session(agent(programs, tools.tools, CodeModeMiddleware()), is_async).start()
    assert {one.content for one in results(output)} == {str(number) for number in range(40)}


def test_a_program_starts_while_others_of_its_turn_do_in_other_threads(monkeypatch: pytest.MonkeyPatch):
    """LangGraph looks for a task among all those of its step, to which they add meanwhile."""
    looked: list[str] = []

    def growing(futures: Any) -> Any:
        who = sys._getframe(1).f_code.co_name
        if who in ("_call", "items"):
            looked.append(who)
            if len(looked) % 2:
                raise RuntimeError("dictionary changed size during iteration")
        return dict.items(futures)

    monkeypatch.setattr(FuturesDict, "items", growing)
    programs = [f"return await tools.write({{ text: '{number}' }})" for number in range(3)]
    tools = Tools(dying=0)
    output = Session(agent(programs, tools.tools, CodeModeMiddleware()), is_async=False).start()
    assert {one.content for one in results(output)} == {"0", "1", "2"}
    assert len(looked) >= 2 * len(programs)
