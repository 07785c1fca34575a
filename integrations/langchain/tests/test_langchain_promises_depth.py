"""One approval is one interrupt, at any depth, and what waits at the same time waits side by side."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware, create_code_mode_tool
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import task
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import Command, interrupt
from scripted_agent import APPROVE, ScriptedModel, Session, SqliteSession, agent, content, model, results
from suite import full_only


class Depths:
    """A tool that pays, agents over it, and tools and graphs over those."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async
        self.done: list[int] = []

        @tool
        def pay(cents: int) -> str:
            """Pay."""
            self.done.append(cents)
            return f"paid {cents}"

        self.pay = pay

    def sub_agent(self, *programs: str, tools: Any = None, approve: Any = None, **settings: Any) -> Any:
        """An agent with code mode that writes these programs. It keeps its state in whatever calls it."""
        middleware = CodeModeMiddleware(approve={"pay": True} if approve is None else approve)
        return create_agent(model(*programs), tools or [self.pay], middleware=[middleware], **settings)

    def as_tool(self, graph: Callable[[], Any], name: str = "delegate") -> BaseTool:
        """A tool that asks an agent; it is made for each call, for its model says each thing once."""
        made: dict[str, Any] = {}

        def given(output: Any) -> str:
            return results(output)[-1].content

        def delegate(job: str) -> str:
            graph_of = made.setdefault(job, graph())
            return given(graph_of.invoke({"messages": [HumanMessage(job)]}))

        async def adelegate(job: str) -> str:
            graph_of = made.setdefault(job, graph())
            return given(await graph_of.ainvoke({"messages": [HumanMessage(job)]}))

        return StructuredTool.from_function(
            func=None if self.is_async else delegate,
            coroutine=adelegate if self.is_async else None,
            name=name,
            description="Delegate.",
        )


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def depths(request: pytest.FixtureRequest) -> Depths:
    return Depths(request.param)


ONE = "return await tools.pay({ cents: 1 })"
TWO = "return await Promise.all([tools.pay({ cents: 1 }), tools.pay({ cents: 2 })])"
DELEGATE = "return await tools.delegate({ job: 'a' })"


def as_node(depths: Depths, js: str, saver: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("sub", depths.sub_agent(js))
    graph.set_entry_point("sub")
    return graph.compile(checkpointer=saver)


def two_graphs_deep(depths: Depths, js: str, saver: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("sub", as_node(depths, js, None))
    graph.set_entry_point("sub")
    return graph.compile(checkpointer=saver)


def as_native_tool(depths: Depths, js: str, saver: Any) -> Any:
    call = {"name": "delegate", "args": {"job": "a"}, "id": "call_0", "type": "tool_call"}
    said = ScriptedModel(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("done")]), shown=[])
    return create_agent(said, [depths.as_tool(lambda: depths.sub_agent(js))], checkpointer=saver)


def in_a_program(depths: Depths, js: str, saver: Any) -> Any:
    return depths.sub_agent(
        DELEGATE, tools=[depths.as_tool(lambda: depths.sub_agent(js))], approve={}, checkpointer=saver
    )


def in_a_program_in_a_program(depths: Depths, js: str, saver: Any) -> Any:
    inner = depths.as_tool(lambda: depths.sub_agent(js))
    middle = depths.as_tool(lambda: depths.sub_agent(DELEGATE, tools=[inner], approve={}))
    return depths.sub_agent(DELEGATE, tools=[middle], approve={}, checkpointer=saver)


PLACES = [in_a_program_in_a_program, *full_only(as_node, two_graphs_deep, as_native_tool, in_a_program)]


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__)
def place(request: pytest.FixtureRequest) -> Any:
    return request.param


def asked(output: Any) -> dict[int, str]:
    """The ids of what is asked, by the amount; each asked once."""
    waiting = output.get("__interrupt__", [])
    assert len({one.id for one in waiting}) == len(waiting)
    found = {one.value["args"]["cents"]: one.id for one in waiting}
    assert len(found) == len(waiting)
    return found


def test_one_approval_is_one_interrupt(depths: Depths, place: Any):
    session = Session(place(depths, ONE, InMemorySaver()), depths.is_async)
    waiting = asked(session.start())
    assert list(waiting) == [1]
    assert depths.done == []
    output = session.answer({waiting[1]: APPROVE})
    assert "__interrupt__" not in output
    assert depths.done == [1]


@pytest.mark.parametrize("first", [1, *full_only(2)])
def test_two_are_answered_in_any_order_and_keep_their_ids(depths: Depths, place: Any, first: int):
    session = Session(place(depths, TWO, InMemorySaver()), depths.is_async)
    waiting = asked(session.start())
    assert set(waiting) == {1, 2}
    output = session.answer({waiting[first]: APPROVE})
    assert depths.done == [first]
    assert asked(output) == {3 - first: waiting[3 - first]}
    assert asked(session.answer({waiting[3 - first]: {"type": "reject"}})) == {}
    assert depths.done == [first]


def test_two_are_answered_at_once(depths: Depths, place: Any):
    session = Session(place(depths, TWO, InMemorySaver()), depths.is_async)
    waiting = asked(session.start())
    edited = {"type": "edit", "edited_action": {"name": "pay", "args": {"cents": 3}}}
    assert asked(session.answer({waiting[1]: edited, waiting[2]: {"type": "respond", "message": "cash"}})) == {}
    assert depths.done == [3]


def test_a_wrong_answer_is_asked_for_again_and_the_other_stands(depths: Depths, place: Any):
    if place is not in_a_program:
        return  # elsewhere LangGraph checks it and raises, and nothing is saved
    session = Session(place(depths, TWO, InMemorySaver()), depths.is_async)
    waiting = asked(session.start())
    output = session.answer({waiting[1]: {"type": "yes"}, waiting[2]: APPROVE})
    assert depths.done == [2]
    again = asked(output)
    assert list(again) == [1]
    assert asked(session.answer({again[1]: APPROVE})) == {}
    assert depths.done == [2, 1]


def test_pauses_inside_tools_are_answered_in_another_process(depths: Depths, place: Any, tmp_path: Any):
    """The graph is built anew for each answer; models have said what they said."""
    made: dict[int, Any] = {}

    def build(saver: Any) -> Any:
        graph = made.setdefault(0, place(depths, TWO, None))
        return graph.copy(update={"checkpointer": saver}) if hasattr(graph, "copy") else graph

    session = SqliteSession(build, depths.is_async, path=str(tmp_path / "checkpoints.db"))
    waiting = asked(session.start())
    assert asked(session.answer({waiting[2]: APPROVE})) == {1: waiting[1]}
    assert asked(session.answer({waiting[1]: APPROVE})) == {}
    assert depths.done == [2, 1]


def test_agents_side_by_side_in_one_program_are_answered_in_any_order(depths: Depths):
    """Their models repeat ids of calls, and each has two approvals."""
    number = iter(range(100))

    def one() -> Any:
        n = next(number) * 2
        js = f"return await Promise.all([tools.pay({{ cents: {n} }}), tools.pay({{ cents: {n + 1} }})])"
        return depths.sub_agent(js)

    js = "return await Promise.all(['a', 'b', 'c'].map((job) => tools.delegate({ job })))"
    session = Session(
        depths.sub_agent(js, tools=[depths.as_tool(one)], approve={}, checkpointer=InMemorySaver()), depths.is_async
    )
    output = session.start()
    ids = asked(output)
    assert sorted(ids) == list(range(6))
    order = random.Random(3).sample(range(6), 6)
    for cents in order:
        assert asked(output)[cents] == ids[cents]
        output = session.answer({ids[cents]: APPROVE})
    assert asked(output) == {}
    assert depths.done == order


def test_a_gated_call_and_the_agent_behind_it_both_ask(depths: Depths):
    inner = depths.as_tool(lambda: depths.sub_agent(TWO))
    middleware = CodeModeMiddleware(approve={"delegate": True})
    graph = agent([DELEGATE], [inner], middleware)
    session = Session(graph, depths.is_async)
    (outer,) = session.start()["__interrupt__"]
    assert outer.value["name"] == "delegate"
    waiting = asked(session.answer({outer.id: APPROVE}))
    assert asked(session.answer({waiting[1]: APPROVE})) == {2: waiting[2]}
    output = session.answer({waiting[2]: APPROVE})
    assert content(output) == '["paid 1", "paid 2"]'


def test_interrupts_of_nodes_side_by_side_in_a_graph_inside_a_tool_are_answered_in_any_order(depths: Depths):
    """No code mode inside: plain `interrupt()`, one of them after another, one in a task of its own."""

    @task
    def ask_in_task(question: str) -> str:
        return interrupt(question)

    def twice(state: Any) -> Any:
        return {"messages": [HumanMessage(f"{interrupt('first')} {interrupt('second')}")]}

    def in_task(state: Any) -> Any:
        return {"messages": [HumanMessage(ask_in_task("task").result())]}

    async def atwice(state: Any) -> Any:
        return twice(state)

    async def ain_task(state: Any) -> Any:
        return {"messages": [HumanMessage(await ask_in_task("task"))]}

    inner = StateGraph(MessagesState)
    for name, node in (
        (("twice", atwice), ("task", ain_task)) if depths.is_async else (("twice", twice), ("task", in_task))
    ):
        inner.add_node(name, node)
        inner.set_entry_point(name)
    compiled = inner.compile()

    def ask() -> list[str]:
        return sorted(one.text for one in compiled.invoke({"messages": []})["messages"])

    async def aask() -> list[str]:
        return sorted(one.text for one in (await compiled.ainvoke({"messages": []}))["messages"])

    tools = [
        StructuredTool.from_function(
            func=None if depths.is_async else ask,
            coroutine=aask if depths.is_async else None,
            name="ask",
            description="Ask.",
        )
    ]
    session = Session(agent(["return await tools.ask({})"], tools, CodeModeMiddleware()), depths.is_async)

    def open_questions(output: Any) -> dict[str, str]:
        return {one.value: one.id for one in output.get("__interrupt__", [])}

    waiting = open_questions(session.start())
    assert set(waiting) == {"first", "task"}
    later = open_questions(session.answer({waiting["first"]: "1"}))
    assert set(later) == {"second", "task"}
    assert later["task"] == waiting["task"]
    last = open_questions(session.answer({later["task"]: "t"}))
    assert last == {"second": later["second"]}
    assert content(session.answer({last["second"]: "2"})) == '["1 2", "t"]'


def test_streams_report_an_interrupt_once(depths: Depths):
    session = Session(in_a_program(depths, ONE, InMemorySaver()))
    if depths.is_async:
        return
    chunks = list(session.graph.stream({"messages": [HumanMessage("go")]}, session.config, stream_mode="updates"))
    reported = [one for chunk in chunks for one in chunk.get("__interrupt__", ())]
    assert len(reported) == 1
    assert [one.id for one in session.graph.get_state(session.config).interrupts] == [reported[0].id]


def test_a_code_mode_tool_can_be_called_in_a_program(depths: Depths):
    """No graph is between them: their questions are tasks of one node."""
    inner = create_code_mode_tool([depths.pay], approve={"pay": True})
    inner.name = "compute"
    session = Session(
        agent([f"return await tools.compute({{ js: `{TWO}` }})"], [inner], CodeModeMiddleware()), depths.is_async
    )
    output = session.start()
    waiting = asked(output)
    assert set(waiting) == {1, 2}
    output = session.answer({waiting[2]: APPROVE})
    assert depths.done == [2]
    assert asked(output) == {1: waiting[1]}
    output = session.answer({waiting[1]: APPROVE})
    assert depths.done == [2, 1]
    assert content(output) == '["paid 1", "paid 2"]'


def test_tasks_that_a_nested_call_starts_itself_may_interrupt(depths: Depths):
    """Two questions of one task, beside another task, before one of the tool itself; a plain resume does for one."""
    asked_for: list[str] = []

    @task
    def twice(name: str) -> str:
        return f"{interrupt(f'{name} 1')} {interrupt(f'{name} 2')}"

    @task
    async def atwice(name: str) -> str:
        return f"{interrupt(f'{name} 1')} {interrupt(f'{name} 2')}"

    def ask() -> list[str]:
        futures = [twice("a"), twice("b")]
        return [*(one.result() for one in futures), interrupt("own")]

    async def aask() -> list[str]:
        return [*(await asyncio.gather(atwice("a"), atwice("b"), return_exceptions=False)), interrupt("own")]

    asking = StructuredTool.from_function(
        func=None if depths.is_async else ask,
        coroutine=aask if depths.is_async else None,
        name="ask",
        description="Ask.",
    )
    session = Session(agent(["return await tools.ask({})"], [asking], CodeModeMiddleware()), depths.is_async)
    output = session.start()
    while "__interrupt__" in output:
        (one,) = output["__interrupt__"][:1]
        asked_for.append(one.value)
        answer = f"<{one.value}>"
        plain = len(output["__interrupt__"]) == 1
        output = session.send(Command(resume=answer if plain else {one.id: answer}))
    assert sorted(asked_for) == ["a 1", "a 2", "b 1", "b 2", "own"]
    assert content(output) == '["<a 1> <a 2>", "<b 1> <b 2>", "<own>"]'
