"""A plain answer, which names no interrupt, is for the one that was shown: at any depth, and beside other questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware, create_code_mode_tool, durable_continuation
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import task
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from scripted_agent import APPROVE, CONFIG, START, Session, agent, content, model, results
from suite import full_only
from test_langchain_promises_depth import PLACES, Depths

from codemode.continuations.guard import LAPSED
from codemode.stores import MemoryInterruptStore, MemoryResumeGuard

TWICE = "return [await tools.pay({ cents: 1 }), await tools.pay({ cents: 2 })]"


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def depths(request: pytest.FixtureRequest) -> Depths:
    return Depths(request.param)


def asked(output: Any) -> Any:
    (one,) = output["__interrupt__"]
    return one


def plain(answer: Any) -> Command[Any]:
    return Command(resume=answer)


# --- invoked again ---


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_invoking_the_thread_again_answers_nothing(depths: Depths, place: Any) -> None:
    session = Session(place(depths, TWICE, InMemorySaver()), depths.is_async)
    first = asked(session.start())
    assert asked(session.send(None)).id == first.id
    second = asked(session.send(plain(APPROVE)))
    assert second.value["args"] == {"cents": 2}
    for _ in range(2):
        assert asked(session.send(None)).id == second.id
    assert depths.done == [1]
    session.send(plain({"type": "reject"}))
    assert depths.done == [1]


def test_a_batch_is_answered_once(depths: Depths) -> None:
    middleware = CodeModeMiddleware(approve={"pay": True}, interrupt_mode="batched")
    session = Session(agent([TWICE], [depths.pay], middleware), depths.is_async)
    session.start()
    second = asked(session.send(plain({"decisions": [APPROVE]})))
    assert asked(session.send(None)).id == second.id
    assert depths.done == [1]


def test_an_answer_that_does_not_fit_is_not_tried_again(depths: Depths) -> None:
    session = Session(agent([TWICE], [depths.pay], CodeModeMiddleware(approve={"pay": True})), depths.is_async)
    first = asked(session.start())
    with pytest.raises(ValueError, match="approve"):
        session.send(plain({"type": "aprove"}))
    assert asked(session.send(None)).id == first.id


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_platform_that_tries_a_run_again_gives_its_answer_to_no_later_question(depths: Depths, attempt: int) -> None:
    """Its second attempt brings the answer that the first may have taken before its process died."""
    session = Session(agent([TWICE], [depths.pay], CodeModeMiddleware(approve={"pay": True})), depths.is_async)
    session.start()
    second = asked(session.send(plain(APPROVE)))
    session.config = {**CONFIG, "metadata": {"run_attempt": attempt}}
    output = session.send(plain(APPROVE))
    assert depths.done == ([1, 2] if attempt == 1 else [1])
    assert attempt == 1 or asked(output).id == second.id


# --- beside other questions ---


class NotingSaver(InMemorySaver):
    """Notes that the graph has kept a question."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def aput_writes(self, config: Any, writes: Any, *task: Any) -> None:
        await super().aput_writes(config, writes, *task)
        if any(channel == "__interrupt__" for channel, _ in writes):
            self.asked.set()


class Desk:
    """An async tool that hangs in its first call with "hangs", and a journal."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.reached = asyncio.Event()
        self.saver = NotingSaver()
        self.options: Any = {"continuation": durable_continuation(MemoryInterruptStore(), keys="k" * 32)}

        @tool
        async def pay(to: str) -> str:
            """Pay."""
            self.done.append(to)
            if to == "hangs" and self.done.count(to) == 1:
                self.reached.set()
                await asyncio.Event().wait()
            return f"paid {to}"

        self.pay = pay

    def agent(self, *programs: str, tools: Any = None, approve: Any) -> Any:
        middleware = CodeModeMiddleware(approve=approve, options=self.options)
        return agent(programs, tools or [self.pay], middleware, checkpointer=self.saver)

    async def cancelled(self, graph: Any, given: Any) -> None:
        running = asyncio.create_task(graph.ainvoke(given, CONFIG))
        async with asyncio.timeout(60):
            await self.reached.wait()
            await self.saver.asked.wait()
        running.cancel()
        await asyncio.wait([running])


def test_a_program_that_was_not_asked_about_takes_no_answer_of_another() -> None:
    """The second program of the turn had asked nothing when the person answered, and asks first when it goes on."""
    programs = [
        "return await tools.pay({ to: 'first' })",
        "await tools.pay({ to: 'hangs' }); return await tools.pay({ to: 'second' })",
    ]

    async def main() -> None:
        desk = Desk()
        graph = desk.agent(*programs, approve={"pay": lambda args: args["to"] != "hangs"})
        await desk.cancelled(graph, START)
        output = await graph.ainvoke(plain(APPROVE), CONFIG)
        assert desk.done == ["hangs", "first"]
        (waiting,) = output["__interrupt__"]
        assert (waiting.value["type"], waiting.value["args"]) == ("unknown_outcome", {"to": "hangs"})

    asyncio.run(main())


@pytest.mark.parametrize("invoked", ["again", "by id"])
def test_a_question_of_the_node_itself_takes_no_answer_to_a_program(depths: Depths, invoked: str) -> None:
    code_mode = create_code_mode_tool([depths.pay], approve={"pay": True})
    published: list[Any] = []

    def node(_state: Any) -> Any:
        code_mode.invoke({"js": TWICE})
        published.append(interrupt("publish?"))
        return {}

    async def anode(_state: Any) -> Any:
        await code_mode.ainvoke({"js": TWICE})
        published.append(interrupt("publish?"))
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("own", anode if depths.is_async else node)
    graph.set_entry_point("own")
    session = Session(graph.compile(checkpointer=InMemorySaver()), depths.is_async)
    session.start()
    second = asked(session.send(plain(APPROVE)))
    output = session.answer({second.id: APPROVE}) if invoked == "by id" else session.send(plain(APPROVE))
    assert asked(output).value == "publish?"
    if invoked == "again":
        assert asked(session.send(None)).value == "publish?"
    assert (depths.done, published) == ([1, 2], [])
    session.send(plain("yes"))
    assert published == ["yes"]


class TakenOver(MemoryResumeGuard):
    """A guard whose claim another host takes over once a tool has been called, and does not survive either."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk

    async def renew(self, key: str) -> bool:
        return not self._desk.reached.is_set()

    async def claim(self, claim: Any) -> Any:
        return LAPSED if self._desk.reached.is_set() else await super().claim(claim)


def test_a_host_whose_claim_was_taken_over_repeats_no_call_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codemode.continuations.guard.RENEW_SECONDS", 0.0)

    async def main() -> None:
        desk = Desk()
        desk.options = {"continuation": {"keys": "k" * 32, "guard": TakenOver(desk)}}
        graph = desk.agent("return await tools.pay({ to: 'hangs' })", approve={"pay": True})
        await graph.ainvoke(START, CONFIG)
        output = await asyncio.wait_for(graph.ainvoke(plain(APPROVE), CONFIG), 60)
        (message,) = results(output)
        assert (message.status, desk.done) == ("error", ["hangs"])
        assert "its outcome is unknown" in message.content

    asyncio.run(main())


# --- inside nested calls ---


def in_its_tasks(desk: Desk) -> BaseTool:
    """A tool that starts tasks of LangGraph, each of which asks."""

    @task
    async def ask(question: str) -> str:
        return interrupt(question)

    @tool
    async def delegate(to: str) -> str:
        """Ask twice."""
        await ask("one?")
        await desk.pay.ainvoke({"to": to})
        return await ask("two?")

    return delegate


def in_its_agent(desk: Desk) -> BaseTool:
    """A tool that runs an agent with code mode."""
    js = "await tools.sure({ of: 'one?' }); await tools.pay({ to: 'hangs' }); return await tools.sure({ of: 'two?' });"
    inner = create_agent(model(js), [desk.pay, sure], middleware=[CodeModeMiddleware(approve={"sure": True})])

    @tool
    async def delegate(to: str) -> str:
        """Delegate."""
        given = await inner.ainvoke({"messages": [HumanMessage(to)]})
        return given["messages"][-2].content

    return delegate


def in_its_graph(desk: Desk) -> BaseTool:
    """A tool that runs a graph with one node, which asks twice."""

    async def node(_state: Any) -> Any:
        interrupt("one?")
        await desk.pay.ainvoke({"to": "hangs"})
        interrupt("two?")
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.set_entry_point("node")
    inner = graph.compile()

    @tool
    async def delegate(to: str) -> str:
        """Ask twice."""
        await inner.ainvoke({"messages": [HumanMessage(to)]})
        return "done"

    return delegate


@tool
def sure(of: str) -> str:
    """Be sure."""
    return of


def question_of(one: Any) -> Any:
    return one.value if isinstance(one.value, str) else one.value.get("args", {}).get("of", one.value["type"])


@pytest.mark.parametrize("made", [in_its_tasks, in_its_graph, in_its_agent])
def test_a_nested_call_that_is_made_again_gives_no_answer_to_a_later_question(made: Callable[[Desk], BaseTool]) -> None:
    """A person lets the call be made again whose outcome nobody knows. What had been answered may be asked again."""

    async def main() -> None:
        desk = Desk()
        js = "return await tools.delegate({ to: 'hangs' })"
        graph = desk.agent(js, tools=[made(desk)], approve=None)
        first = asked(await graph.ainvoke(START, CONFIG))
        assert question_of(first) == "one?"
        await desk.cancelled(graph, plain(APPROVE))
        seen: list[Any] = []
        output = await graph.ainvoke(None, CONFIG)
        while question_of(asked(output)) in ("unknown_outcome", "one?"):
            seen.append(question_of(asked(output)))
            output = await graph.ainvoke(plain(APPROVE), CONFIG)
        assert seen[0] == "unknown_outcome"
        assert question_of(asked(output)) == "two?"
        assert question_of(asked(await graph.ainvoke(None, CONFIG))) == "two?"

    asyncio.run(main())


def test_an_answer_that_does_not_fit_brings_no_earlier_one_back(depths: Depths) -> None:
    """The node of a graph in a tool has taken the first answer by the time when the second is found not to fit."""

    class Size(BaseModel):
        size: int

    def ask() -> Any:
        return {"messages": [HumanMessage(f"{interrupt('first?')} {interrupt('second?', response_schema=Size).size}")]}

    async def node(_state: Any) -> Any:
        return ask()

    graph = StateGraph(MessagesState)
    graph.add_node("node", node if depths.is_async else lambda _state: ask())
    graph.set_entry_point("node")
    session = Session(
        agent(
            ["return await tools.delegate({ job: 'a' })"], [fresh_agent(depths, graph.compile)], CodeModeMiddleware()
        ),
        depths.is_async,
    )
    first = asked(session.start())
    second = asked(session.answer({first.id: {"size": 1}}))
    again = asked(session.answer({second.id: "large"}))
    assert (first.value, second.value, again.value) == ("first?", "second?", "second?")
    assert content(session.answer({again.id: {"size": 2}})) == "{'size': 1} 2"


@pytest.mark.parametrize("as_tool", [False, True], ids=["node", "nested call"])
@pytest.mark.parametrize("form", ["by id", *full_only("plain")])
def test_a_graph_without_checkpoints_takes_an_answer_to_what_was_shown_alone(
    depths: Depths, form: str, as_tool: bool
) -> None:
    """It starts again with each answer, and asks under other ids: no approval of the second call makes the first."""

    def made() -> Any:
        return depths.sub_agent(TWICE, checkpointer=False)

    if as_tool:
        js = "return await tools.delegate({ job: 'a' })"
        graph = depths.sub_agent(js, tools=[fresh_agent(depths, made)], approve={}, checkpointer=InMemorySaver())
    else:
        outer: Any = StateGraph(MessagesState)
        outer.add_node("sub", fresh_node(depths, made)).set_entry_point("sub")
        graph = outer.compile(checkpointer=InMemorySaver())
    session = Session(graph, depths.is_async)
    output, answered = session.start(), list[int]()
    for _ in range(4):
        one = asked(output)
        answered.append(one.value["args"]["cents"])
        output = session.send(plain(APPROVE) if form == "plain" else plain({one.id: APPROVE}))
        assert depths.done == [cents for cents in answered if cents == 1]
    assert answered == [1, 2, 1, 2]


def fresh_node(depths: Depths, made: Callable[[], Any]) -> Callable[..., Any]:
    """A node that asks an agent made for each run of it, whose model says the same each time."""

    def node(state: Any) -> Any:
        return {"messages": made().invoke(state)["messages"][-1:]}

    async def anode(state: Any) -> Any:
        return {"messages": (await made().ainvoke(state))["messages"][-1:]}

    return anode if depths.is_async else node


def said_last(output: Any) -> str:
    return (results(output) or output["messages"])[-1].content


def fresh_agent(depths: Depths, made: Callable[[], Any]) -> BaseTool:
    def delegate(job: str) -> str:
        return said_last(made().invoke({"messages": [HumanMessage(job)]}))

    async def adelegate(job: str) -> str:
        return said_last(await made().ainvoke({"messages": [HumanMessage(job)]}))

    return StructuredTool.from_function(
        func=None if depths.is_async else delegate,
        coroutine=adelegate if depths.is_async else None,
        name="delegate",
        description="Delegate.",
    )


def test_one_question_of_a_graph_without_checkpoints_can_be_answered(depths: Depths) -> None:
    js = "return await tools.delegate({ job: 'a' })"
    one = fresh_agent(depths, lambda: depths.sub_agent("return await tools.pay({ cents: 1 })", checkpointer=False))
    session = Session(depths.sub_agent(js, tools=[one], approve={}, checkpointer=InMemorySaver()), depths.is_async)
    session.start()
    assert content(session.send(plain(APPROVE))) == "paid 1"
    assert depths.done == [1]
