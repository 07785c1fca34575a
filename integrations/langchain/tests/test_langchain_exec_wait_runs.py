"""Programs that are left waiting: whose they are, who goes on with them, and what ends with an agent's run."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest
from codemode_langchain import ExecWaitMiddleware, create_exec_wait_tools
from exec_wait_agent import PATIENTLY, Step, answers, directed, pair_agent, runs, told, waits
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START as BEGIN
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.types import Command
from scripted_agent import START, Session, asks, results
from suite import full_only
from test_langchain_exec_wait_agents import Counting

SECONDS = 60.0


class Held:
    """A tool whose calls go on when they are told to, from any thread."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.has_begun = threading.Event()
        self.ended: list[str] = []
        self.cancelled = threading.Event()
        self.go_on = threading.Event()

        def held(key: str) -> str:
            """Wait."""
            self._begin(key)
            assert self.go_on.wait(SECONDS)
            self.ended.append(key)
            return f"held {key}"

        async def aheld(key: str) -> str:
            self._begin(key)
            try:
                assert await asyncio.to_thread(self.go_on.wait, SECONDS)
            except asyncio.CancelledError:
                self.cancelled.set()
                self.go_on.set()  # for the thread that waits for it
                raise
            self.ended.append(key)
            return f"held {key}"

        self.tool = tool(held)
        self.tool.coroutine = aheld

    def _begin(self, key: str) -> None:
        self.begun.append(key)
        self.has_begun.set()


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(params=[4, *full_only(0)], ids=["warm", "cold"])
def warm(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def own(warm: int) -> ExecWaitMiddleware:
    """Leaves a program waiting that yields; nothing takes as long as it waits for calls."""
    return ExecWaitMiddleware(options={"maxWarmRuns": warm, "waitTimeoutMs": 20_000})


@pytest.fixture
def hasty(warm: int) -> ExecWaitMiddleware:
    """Leaves a program waiting as soon as it may: one whose calls are held, and any other one on a busy machine."""
    return ExecWaitMiddleware(options={"maxWarmRuns": warm, "waitTimeoutMs": 100})


@pytest.fixture
def held() -> Held:
    return Held()


def then(held: Held, message: Callable[[Any], AIMessage]) -> Callable[[Any], AIMessage]:
    """A step that lets held calls go on."""

    def step(answer: Any) -> AIMessage:
        held.go_on.set()
        return message(answer)

    return step


def once_begun(held: Held, step: Step) -> Step:
    """A step that is taken when a held call has begun."""

    def taken(answer: Any) -> Any:
        return step if isinstance(step, AIMessage) else step(answer)

    def begun() -> None:
        assert held.has_begun.wait(SECONDS)

    async def in_time(answer: Any) -> Any:
        await asyncio.to_thread(begun)
        said = taken(answer)
        return await said if inspect.isawaitable(said) else said

    def blocking(answer: Any) -> Any:
        begun()
        return taken(answer)

    def chosen(answer: Any) -> Any:
        return in_time(answer) if asyncio._get_running_loop() is not None else blocking(answer)

    return chosen


YIELDING = "text('a'); await yield_control(); text('b'); return await tools.held({key: 'x'})"
HOLDING = "text('a'); const got = await tools.held({key: 'x'}); text('b'); return got"


def test_a_slow_call_goes_on_while_the_model_is_asked(held: Held, hasty: Any, is_async: bool):
    graph = pair_agent([runs(HOLDING), then(held, waits), PATIENTLY], [held.tool], own=hasty)
    first, *_, last = answers(Session(graph, is_async=is_async).start())
    assert (first["status"], first["reason"]) == ("waiting", "pending_tools")
    assert [one["tool"] for one in first["pendingToolCalls"]] == ["host:core:held"]
    assert [told(first)["output"], told(last)["output"]] == [
        [{"type": "text", "text": "a"}],
        [{"type": "text", "text": "b"}],
    ]
    assert last["value"] == "held x"
    assert held.ended == ["x"]


def test_programs_of_one_step_wait_beside_each_other(held: Held, hasty: Any, is_async: bool):
    codes = [f"return await tools.held({{key: '{one}'}})" for one in "abc"]

    def wait_for_all(_: Any) -> AIMessage:
        held.go_on.set()
        return asks(*(("wait", {"runId": one["runId"]}) for one in scripted.answers))

    scripted = directed(runs(*codes), wait_for_all, PATIENTLY)
    graph = pair_agent([], [held.tool], own=hasty, model=scripted)
    found = answers(Session(graph, is_async=is_async).start())
    assert [one["status"] for one in found[:3]] == ["waiting"] * 3
    assert sorted(one["value"] for one in found[3:] if one["status"] != "waiting") == ["held a", "held b", "held c"]


def test_what_calls_left_reaches_the_graph_with_the_next_answer(hasty: Any, is_async: bool):
    go_on = threading.Event()

    def counted(runtime: Any) -> Command[Any]:
        return Command(update={"count": 1, "messages": [ToolMessage("added", tool_call_id=runtime.tool_call_id)]})

    @tool
    def add(runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        """Add one."""
        assert go_on.wait(SECONDS)
        return counted(runtime)

    async def aadd(runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        assert await asyncio.to_thread(go_on.wait, SECONDS)
        return counted(runtime)

    add.coroutine = aadd
    counts: list[Any] = []

    def step(answer: Any) -> AIMessage:
        go_on.set()
        return waits(answer)

    class Noting(AgentMiddleware[Any, Any, Any]):
        def before_model(self, state: Any, runtime: Any) -> None:
            counts.append(state.get("count"))

    steps = [runs("return await tools.add({})"), step, PATIENTLY]
    output = Session(pair_agent(steps, [add], Counting(), Noting(), own=hasty), is_async=is_async).start()
    assert counts[:2] == [None, None]
    assert counts[-1] == 1
    assert {one.tool_call_id for one in results(output)} == {"call_0"}
    assert [one["status"] for one in answers(output)] == ["waiting"] * (len(counts) - 2) + ["completed"]


# --- whose they are ---


def turns(graph: Any, threads: str, is_async: bool) -> list[list[Any]]:
    """What tools have answered by the end of each of some invocations, on these threads."""

    def config(thread: str) -> Any:
        return {"configurable": {"thread_id": thread}}

    async def main() -> list[Any]:
        return [await graph.ainvoke(START, config(one)) for one in threads]

    came = asyncio.run(main()) if is_async else [graph.invoke(START, config(one)) for one in threads]
    return [answers(one) for one in came]


@pytest.mark.parametrize("other", [False, True], ids=["same thread", "other thread"])
def test_a_program_belongs_to_its_thread(held: Held, own: Any, is_async: bool, other: bool):
    held.go_on.set()
    ids: list[str] = []

    def note(answer: Any) -> AIMessage:
        ids.append(answer["runId"])
        return AIMessage("later")

    steps = [runs(YIELDING), note, lambda _: asks(("wait", {"runId": ids[0]}))]
    graph = pair_agent(steps, [held.tool], own=own)
    last = turns(graph, "12" if other else "11", is_async)[-1][-1]
    if other:
        assert (last["status"], last["code"], held.begun) == ("failed", "invalid_input", [])
        assert "no waiting run" in last["error"]
    else:
        assert told(last) == {"status": "completed", "value": "held x", "output": [{"type": "text", "text": "b"}]}


def test_a_wait_of_another_thread_takes_nothing_from_the_program(held: Held, own: Any, is_async: bool):
    """Calls that follow are made by the run that goes on with it, and not by the one that began it."""
    held.go_on.set()
    ids: list[str] = []

    def note(answer: Any) -> AIMessage:
        ids.append(answer["runId"])
        return AIMessage("later")

    def wait_for_it(_: Any) -> AIMessage:
        return asks(("wait", {"runId": ids[0]}))

    steps = [runs(YIELDING), note, wait_for_it, AIMessage("no"), wait_for_it]
    _, of_another, of_its_own = turns(pair_agent(steps, [held.tool], own=own), "121", is_async)
    assert (of_another[-1]["status"], of_another[-1]["code"]) == ("failed", "invalid_input")
    assert told(of_its_own[-1]) == {"status": "completed", "value": "held x", "output": [{"type": "text", "text": "b"}]}
    assert held.ended == ["x"]


def test_where_nothing_is_kept_a_program_belongs_to_the_run(held: Held, own: Any, is_async: bool):
    held.go_on.set()
    ids: list[str] = []

    def note(answer: Any) -> AIMessage:
        ids.append(answer["runId"])
        return AIMessage("later")

    steps = [
        runs("await yield_control(); return 1"),
        waits,
        runs(YIELDING),
        note,
        lambda _: asks(("wait", {"runId": ids[0]})),
    ]
    graph = pair_agent(steps, [held.tool], own=own, checkpointer=None)
    before, after = turns(graph, "11", is_async)
    assert before[1]["value"] == 1
    assert after[-1]["code"] == "invalid_input"
    assert held.begun == []


def test_two_waits_on_one_program(held: Held, own: Any, is_async: bool):
    steps = [runs(YIELDING), then(held, lambda answer: asks(*[("wait", {"runId": answer["runId"]})] * 2))]
    found = answers(Session(pair_agent(steps, [held.tool], own=own), is_async=is_async).start())[1:]
    assert sorted(one["status"] for one in found) == ["completed", "failed"]
    assert held.begun == held.ended == ["x"]


def test_begun_without_blocking_and_gone_on_with_in_a_thread(held: Held, own: Any):
    """Whoever goes on makes the calls, where it is: neither loop nor thread of the first call is used again."""
    ids: list[str] = []

    def note(answer: Any) -> AIMessage:
        ids.append(answer["runId"])
        return AIMessage("later")

    steps = [runs(YIELDING), note, lambda _: asks(("wait", {"runId": ids[0]}))]
    graph = pair_agent(steps, [held.tool], own=own)
    config: Any = {"configurable": {"thread_id": "1"}}
    held.go_on.set()

    async def main() -> Any:
        await graph.ainvoke(START, config)
        return await asyncio.to_thread(graph.invoke, {"messages": [HumanMessage("again")]}, config)

    assert answers(asyncio.run(main()))[-1]["value"] == "held x"
    steps += [runs(YIELDING), note, lambda _: asks(("wait", {"runId": ids[1]}))]
    graph = pair_agent(steps[3:], [held.tool], own=own)
    graph.invoke(START, config)
    after = asyncio.run(graph.ainvoke({"messages": [HumanMessage("again")]}, config))
    assert answers(after)[-1]["value"] == "held x"


# --- the end of a run ---


def alive(own: ExecWaitMiddleware, thread: str = "thread") -> list[str]:
    return [
        info.state
        for pair in own._list_exec_wait_tools()
        for info in pair.runs(thread)
        if info.state in ("running", "waiting")
    ]


ENDINGS = ["success", "error", "limit", "pause"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_calls_in_flight_end_with_the_run_of_the_agent(held: Held, hasty: Any, is_async: bool, ending: str):
    @tool
    def ask() -> str:
        """Ask a person."""
        from langgraph.types import interrupt

        return interrupt("well?")

    def fail(_: Any) -> AIMessage:
        raise RuntimeError("the model is away")

    last: dict[str, list[Any]] = {
        "success": [AIMessage("enough")],
        "error": [fail],
        "limit": [runs("return 1"), runs("return 2"), runs("return 3")],
        "pause": [runs("return await tools.ask({})"), PATIENTLY],
    }
    first, *others = last[ending]
    steps = [runs(HOLDING, "await yield_control()"), once_begun(held, first), *others]
    graph = pair_agent(steps, [held.tool, ask], own=hasty)
    config: dict[str, Any] = {"configurable": {"thread_id": "thread"}}
    if ending == "limit":
        config["recursion_limit"] = 5
    session = Session(graph, is_async=is_async, config=config)
    if ending in ("success", "pause"):
        assert ("__interrupt__" in session.start()) == (ending == "pause")
    else:
        with pytest.raises(GraphRecursionError if ending == "limit" else RuntimeError):
            session.start()
    assert held.begun == ["x"]
    assert held.ended == []
    assert held.cancelled.is_set() == is_async  # nothing can stop a thread
    if not is_async:
        assert alive(hasty) == ["waiting"]  # the one that only yields
    held.go_on.set()


def test_calls_in_flight_end_with_a_cancelled_run(held: Held, hasty: Any):
    asked = asyncio.Event()

    async def stay(_: Any) -> AIMessage:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    graph = pair_agent([runs(HOLDING), once_begun(held, stay)], [held.tool], own=hasty)

    async def main() -> list[str]:
        running = asyncio.create_task(graph.ainvoke(START, {"configurable": {"thread_id": "thread"}}))
        await asyncio.wait_for(asked.wait(), SECONDS)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        return alive(hasty)

    assert asyncio.run(main()) == []
    assert held.cancelled.is_set()


def test_calls_in_flight_end_with_a_stream_that_nobody_reads_on(held: Held, hasty: Any):
    graph = pair_agent([runs(HOLDING), AIMessage("enough")], [held.tool], own=hasty)
    streamed = graph.stream(START, {"configurable": {"thread_id": "thread"}})
    found = [next(streamed) for _ in range(2)]
    assert "tools" in found[-1]
    assert alive(hasty) == ["waiting"]
    streamed.close()
    assert alive(hasty) == []
    held.go_on.set()


def test_the_next_run_is_told_that_calls_have_ended(held: Held, hasty: Any, is_async: bool):
    ids: list[str] = []

    def note(answer: Any) -> AIMessage:
        ids.append(answer["runId"])
        return AIMessage("later")

    graph = pair_agent([runs(HOLDING), note, lambda _: asks(("wait", {"runId": ids[0]}))], [held.tool], own=hasty)
    _, after = turns(graph, "11", is_async)
    assert after[-1]["code"] == "aborted"
    held.go_on.set()


def test_closing_ends_what_waits(held: Held, own: Any):
    graph = pair_agent([runs("await yield_control(); return 1"), AIMessage("later")], [held.tool], own=own)
    graph.invoke(START, {"configurable": {"thread_id": "thread"}})
    assert [asyncio.run(own.abort("other")), alive(own, "other"), alive(own)] == [0, [], ["waiting"]]
    asyncio.run(own.aclose())
    assert alive(own) == []


# --- without an agent ---


def test_the_tools_in_a_node_of_a_graph(held: Held, is_async: bool):
    made = create_exec_wait_tools([held.tool], {"waitTimeoutMs": 100})
    wait_for_the_first = then(held, lambda _: waits(model.answers[0]))
    model = directed(runs(HOLDING, "return 1"), wait_for_the_first, PATIENTLY)

    def ask(state: Any) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    def has_calls(state: Any) -> str:
        return "tools" if state["messages"][-1].tool_calls else "__end__"

    builder = StateGraph(MessagesState).add_node("ask", ask).add_node("tools", ToolNode(made))
    builder.add_edge(BEGIN, "ask").add_conditional_edges("ask", has_calls).add_edge("tools", "ask")
    graph = builder.compile(checkpointer=InMemorySaver()).with_config({"recursion_limit": 10_000})
    waiting, one, *_, last = answers(Session(graph, is_async=is_async).start())
    assert [waiting["status"], one["value"]] == ["waiting", 1]
    assert last["value"] == "held x"
