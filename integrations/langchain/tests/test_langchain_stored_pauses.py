"""Graphs whose pauses are in a store: decided by somebody, gone on with by a resumer, once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypedDict

import pytest
from codemode_langchain import (
    CodeModeMiddleware,
    ExecWaitMiddleware,
    StoredPauses,
    StoredRun,
    stored_pauses,
)
from exec_wait_agent import directed, runs, waits
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from scripted_agent import ScriptedModel, asks, calls
from suite import full_only

from codemode import CodeModeError, CodeModeProtocolError, inspect_interrupt
from codemode.continuations.guard import Claim
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.stores import MemoryInterruptStore, Resumer, SqliteInterruptStore

WAIT_SECONDS = 120.0
KEYS = "a key that all processes of these tests have"
REFUND = """const stock = await tools.stock({ product: "nut" });
return [stock, await tools.refund({ order: "a" })];"""
TWO = """
const refunds = await Promise.allSettled(["a", "b"].map((order) => tools.refund({ order })));
return refunds.map((one) => one.value ?? one.reason.message);
"""
ONE_AFTER_OTHER = "return [await tools.refund({ order: 'a' }), await tools.refund({ order: 'b' })];"
OTHER = "return await tools.refund({ order: 'c', cents: 90000 });"
OK, NO = {"approved": True}, {"approved": False, "reason": "not this one"}


class Desk:
    """Agents over two tools, one of which is gated, on one thread; ``did`` is what has happened anywhere."""

    def __init__(self, store: Any, saver: Any) -> None:
        self.store, self.saver = store, saver
        self.did: list[Any] = []
        self.config = {"configurable": {"thread_id": "thread-7"}}
        self.continuation = {"keys": KEYS, "guard": store.guard}

    def tools(self) -> list[Any]:
        @tool
        def stock(product: str) -> int:
            """How many there are."""
            self.did.append(("stock", product))
            return 7

        @tool
        def refund(order: str, cents: int = 500) -> str:
            """Refund an order."""
            self.did.append(("refund", order, cents))
            return f"refunded {order}: {cents}"

        return [stock, refund]

    def agent(self, *messages: AIMessage, approve: Any = True, more: Any = (), tools: Any = ()) -> Any:
        """An agent as one process has it, whose model says these messages and then the end."""
        said = ScriptedModel(messages=iter([*messages, AIMessage("done")]), shown=[], disable_streaming=True)
        own = CodeModeMiddleware(approve={"refund": approve}, options={"continuation": self.continuation})
        made = [*self.tools(), *tools]
        return create_agent(said, made, middleware=[own, *more], checkpointer=self.saver)

    def pauses(self, *messages: AIMessage, graph: Any = None, **more: Any) -> StoredPauses:
        more = {"tenant": "acme", "outcome_of": _last, **more}
        return stored_pauses(graph or self.agent(*messages), self.store, **more)

    async def ask(self, *messages: AIMessage, **more: Any) -> StoredRun:
        return await self.pauses(*messages, **more).ainvoke({"messages": ["go"]}, self.config)

    async def waiting(self, run: StoredRun) -> list[Any]:
        record = await self.store.record(run.record_id or "", tenant="acme")
        return [one for one in record.requests if one.state == "waiting"]

    async def decide(self, run: StoredRun, *decisions: Any) -> None:
        asked = await self.waiting(run)
        given = {one.interrupt_id: decision for one, decision in zip(asked, decisions, strict=True)}
        seen = {one.interrupt_id: self.store.compute_display_digest(one) for one in asked}
        await self.store.decide(given, actor="ana", tenant="acme", seen=seen)

    async def outcome(self, run: StoredRun) -> Any:
        return await self.store.outcome(run.record_id or "", tenant="acme", timeout_ms=WAIT_SECONDS * 1000)

    async def resumed(self, run: StoredRun, *decisions: Any, **more: Any) -> Any:
        """Decide, and let a process of its own go on to the end."""
        await self.decide(run, *decisions)
        async with Resumer(self.store, tenant="acme", resume=self.pauses(**more).resume):
            return await self.outcome(run)


def _last(values: Any) -> Any:
    """What the model was told last, and said."""
    return [one.content for one in values["messages"][-2:]]


@pytest.fixture(params=["memory", "async sqlite", *full_only("sqlite")])
def on(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Runs a scenario with a store and each kind of checkpointer; that of SQLite is for blocking code alone."""

    def run(scenario: Callable[[Desk], Awaitable[None]]) -> None:
        async def main() -> None:
            async with AsyncExitStack() as stack:
                store = await stack.enter_async_context(SqliteInterruptStore(tmp_path / "approvals.sqlite"))
                path = str(tmp_path / "checkpoints.sqlite")
                saver: Any = InMemorySaver()
                if request.param == "sqlite":
                    saver = stack.enter_context(SqliteSaver.from_conn_string(path))
                if request.param == "async sqlite":
                    saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
                await scenario(Desk(store, saver))

        asyncio.run(asyncio.wait_for(main(), WAIT_SECONDS))

    return run


def in_memory(scenario: Callable[[Desk], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Desk(MemoryInterruptStore(), InMemorySaver()))

    asyncio.run(asyncio.wait_for(main(), WAIT_SECONDS))


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():  # noqa: ASYNC110 - what it waits for is in a database
        await asyncio.sleep(0.01)


async def started(desk: Desk, *messages: AIMessage, **more: Any) -> StoredRun:
    """A run that waits, begun as its checkpointer allows."""
    pauses = desk.pauses(*messages, **more)
    if isinstance(desk.saver, SqliteSaver):
        return await asyncio.to_thread(pauses.invoke, {"messages": ["go"]}, desk.config)
    return await pauses.ainvoke({"messages": ["go"]}, desk.config)


def test_a_thread_that_waits_is_a_record_and_goes_on_where_the_graph_is(on: Any) -> None:
    async def scenario(desk: Desk) -> None:
        run = await started(desk, calls(REFUND), labels={"ticket": "7"})
        record = await desk.store.record(run.record_id or "", tenant="acme")
        assert (record.state, record.app, record.outer_tool, record.source) == (
            "pending",
            "langgraph",
            "codeMode",
            REFUND,
        )
        assert (record.labels, record.payload["thread_id"], run.thread_id) == ({"ticket": "7"}, "thread-7", "thread-7")
        (request,) = record.requests
        assert (request.tool_name, request.input) == ("refund", {"order": "a", "cents": 500})
        assert set(request.input_schema["properties"]) == {"order", "cents"}
        paused = await desk.store.get(request.interrupt_id, tenant="acme")
        assert "langgraph" in (inspect_interrupt(paused).unreadable or "")
        assert desk.did == [("stock", "nut")]
        edited = {"approved": True, "input": {"order": "a", "cents": 300}}
        assert await desk.resumed(run, edited) == ['[7, "refunded a: 300"]', "done"]
        assert desk.did == [("stock", "nut"), ("refund", "a", 300)]

    on(scenario)


@pytest.mark.parametrize("order", [(2, 1, 0), *full_only(((0, 1, 2),))])
def test_answers_to_programs_side_by_side_go_on_as_they_come(on: Any, order: Any) -> None:
    async def scenario(desk: Desk) -> None:
        run = await started(desk, calls(TWO, OTHER))
        asked = await desk.waiting(run)
        assert [one.input["order"] for one in asked] == ["a", "b", "c"]
        decisions = [OK, NO, {"approved": True, "input": {"order": "c", "cents": 9000}}]
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses().resume):
            for number, at in enumerate(order, 1):
                decision = {asked[at].interrupt_id: decisions[at]}
                await desk.store.decide(decision, actor="ana", tenant="acme")

                async def is_less(number: int = number) -> bool:
                    return len(await desk.waiting(run)) == 3 - number

                await until(is_less)
            told = await desk.outcome(run)
        assert told == ["refunded c: 9000", "done"]
        assert sorted(desk.did) == [("refund", "a", 500), ("refund", "c", 9000)]

    on(scenario)


def test_what_it_waits_for_next_is_the_next_version_of_the_record(on: Any) -> None:
    async def scenario(desk: Desk) -> None:
        run = await started(desk, calls(ONE_AFTER_OTHER))
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses(calls(OTHER)).resume):
            for version, order in enumerate("abc", 1):

                async def asks_about(order: str = order) -> bool:
                    return [one.input["order"] for one in await desk.waiting(run)] == [order]

                await until(asks_about)
                record = await desk.store.record(run.record_id or "", tenant="acme")
                assert record.version == version
                assert (await desk.waiting(run))[0].input_schema is not None
                await desk.decide(run, OK)
            assert await desk.outcome(run) == ["refunded c: 90000", "done"]
        assert (await desk.store.record(run.record_id or "", tenant="acme")).source == OTHER
        assert [one[1] for one in desk.did] == ["a", "b", "c"]

    on(scenario)


def test_the_same_again_runs_nothing_and_gives_the_same(on: Any) -> None:
    async def scenario(desk: Desk) -> None:
        run = await started(desk, calls(ONE_AFTER_OTHER))
        record = await desk.store.record(run.record_id or "", tenant="acme")
        answers = {record.requests[0].interrupt_id: OK}
        pauses = desk.pauses()
        first, second = await asyncio.gather(pauses.resume(record, answers), pauses.resume(record, answers))
        assert first.to_dict() == second.to_dict() == (await pauses.resume(record, answers)).to_dict()
        with pytest.raises(CodeModeProtocolError, match="other answers"):
            await pauses.resume(record, {record.requests[0].interrupt_id: NO})
        assert desk.did == [("refund", "a", 500)]

    on(scenario)


@pytest.mark.parametrize("how", ["answered", "asked anew"])
def test_a_thread_that_somebody_else_has_gone_on_with_is_refused_and_nothing_runs(on: Any, how: str) -> None:
    async def scenario(desk: Desk) -> None:
        run = await started(desk, calls(REFUND))
        graph = desk.agent(AIMessage("never mind")) if how == "asked anew" else desk.agent()
        (waiting,) = run.output["__interrupt__"]
        given: Any = Command(resume={waiting.id: {"type": "approve"}})
        given = given if how == "answered" else {"messages": ["something else"]}
        if isinstance(desk.saver, SqliteSaver):
            await asyncio.to_thread(graph.invoke, given, desk.config)
        else:
            await graph.ainvoke(given, desk.config)
        did = list(desk.did)
        with pytest.raises(CodeModeProtocolError, match="was resumed elsewhere"):
            await desk.resumed(run, OK)
        assert (await desk.store.record(run.record_id or "", tenant="acme")).state == "failed"
        assert desk.did == did

    on(scenario)


def test_questions_of_tools_and_nodes_are_answered_with_whatever_they_asked_for(on: Any) -> None:
    class State(TypedDict, total=False):
        first: Any
        second: Any
        third: Any

    def one(_state: State) -> State:
        return {"first": interrupt({"question": "one?"})}

    def two(_state: State) -> State:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return {"second": interrupt("two?", response_schema=schema)}

    def three(_state: State) -> State:
        return {"third": interrupt("three?")}

    async def scenario(desk: Desk) -> None:
        def graph() -> Any:
            made = StateGraph(State)
            for name, node in (("one", one), ("two", two), ("three", three)):
                made.add_node(name, node)
            made.add_edge(START, "one")
            made.add_edge(START, "two")
            made.add_edge(["one", "two"], "three")
            made.add_edge("three", END)
            return made.compile(checkpointer=desk.saver)

        pauses = desk.pauses(graph=graph(), outcome_of=None)
        if isinstance(desk.saver, SqliteSaver):
            run = await asyncio.to_thread(pauses.invoke, {})
        else:
            run = await pauses.ainvoke({})
        asked = {json.dumps(request.input): request for request in await desk.waiting(run)}
        assert set(asked) == {'{"question": "one?"}', '"two?"'}
        assert asked['"two?"'].payload["schema"]["required"] == ["n"]
        assert {request.kind for request in asked.values()} == {"langgraph/interrupt"}
        answers = {asked['"two?"'].interrupt_id: {"n": 2}, asked['{"question": "one?"}'].interrupt_id: ["1", None]}
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses(graph=graph(), outcome_of=None).resume):
            await desk.store.decide(answers, actor="ana", tenant="acme")

            async def asks_the_third() -> bool:
                return [request.input for request in await desk.waiting(run)] == ["three?"]

            await until(asks_the_third)
            await desk.decide(run, "3")
            assert await desk.outcome(run) == {"first": ["1", None], "second": {"n": 2}, "third": "3"}

    on(scenario)


def test_calls_that_other_middleware_asks_about_together_are_decided_one_by_one() -> None:
    async def scenario(desk: Desk) -> None:
        @tool
        def close(order: str) -> str:
            """Close an order."""
            desk.did.append(("close", order))
            return f"closed {order}"

        def graph(*messages: AIMessage) -> Any:
            said = ScriptedModel(messages=iter([*messages, AIMessage("done")]), shown=[], disable_streaming=True)
            own = CodeModeMiddleware(keep=["close"], options={"continuation": desk.continuation})
            reviews = HumanInTheLoopMiddleware(interrupt_on={"close": True})
            return create_agent(said, [*desk.tools(), close], middleware=[own, reviews], checkpointer=desk.saver)

        run = await desk.ask(graph=graph(asks(("close", {"order": "a"}), ("close", {"order": "b"}))))
        first, second = await desk.waiting(run)
        assert (first.input, second.input) == ({"order": "a"}, {"order": "b"})
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses(graph=graph()).resume):
            await desk.store.decide({first.interrupt_id: NO}, actor="ana", tenant="acme")
            edited = {"approved": True, "input": {"order": "z"}}
            await desk.store.decide({second.interrupt_id: edited}, actor="bob", tenant="acme")
            assert (await desk.outcome(run))[1] == "done"
        assert desk.did == [("close", "z")]

    in_memory(scenario)


def test_a_graph_that_fails_is_the_end_of_its_record_and_says_no_more_than_with_what() -> None:
    class State(TypedDict, total=False):
        said: Any

    def ask(_state: State) -> State:
        return {"said": interrupt("really?")}

    def fail(_state: State) -> State:
        raise OSError("secret of the host")

    async def scenario(desk: Desk) -> None:
        made = StateGraph(State)
        made.add_node("ask", ask)
        made.add_node("fail", fail)
        made.add_edge(START, "ask")
        made.add_edge("ask", "fail")
        graph = made.compile(checkpointer=desk.saver)
        run = await desk.pauses(graph=graph).ainvoke({})
        with pytest.raises(CodeModeError, match=r"has failed with OSError$") as failed:
            await desk.resumed(run, "yes", graph=graph)
        assert failed.value.code == "CODE_MODE_AGENT_RUN"

    in_memory(scenario)


def test_a_run_that_waits_for_nobody_is_no_record_and_a_graph_needs_a_checkpointer() -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(AIMessage("hello")).ainvoke({"messages": ["go"]})
        assert run.record_id is None
        assert run.output["messages"][-1].content == "hello"
        assert len(run.thread_id) == 36
        assert (await desk.store.list(tenant="acme")).records == ()

    in_memory(scenario)
    without = create_agent(ScriptedModel(messages=iter([])), [])
    with pytest.raises(ValueError, match="checkpointer"):
        stored_pauses(without, MemoryInterruptStore())


@pytest.mark.parametrize("died", ["before the graph had gone on", "after it had ended", "after it waited again"])
def test_a_host_that_dies_over_a_thread_is_followed_by_one_that_repeats_nothing(on: Any, died: str) -> None:
    async def scenario(desk: Desk) -> None:
        js = ONE_AFTER_OTHER if "again" in died else REFUND
        run = await started(desk, calls(js))
        record = await desk.store.record(run.record_id or "", tenant="acme")
        # What the dead one has left in the guard, and in the thread.
        handed = Claim(f"{record.payload['key']}:handed", "handed", record.payload["expiresAtMs"])
        assert await desk.store.guard.claim(handed) is None
        await desk.store.guard.record(handed.key, '"handed"')
        if "before" not in died:
            given = Command(resume={one.id: {"type": "approve"} for one in run.output["__interrupt__"]})
            if isinstance(desk.saver, SqliteSaver):
                await asyncio.to_thread(desk.agent().invoke, given, desk.config)
            else:
                await desk.agent().ainvoke(given, desk.config)
        await desk.decide(run, OK)
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses().resume):
            if "again" in died:

                async def asks_again() -> bool:
                    return [one.input["order"] for one in await desk.waiting(run)] == ["b"]

                await until(asks_again)
                await desk.decide(run, OK)
            assert (await desk.outcome(run))[1] == "done"
        assert sorted(set(desk.did)) == sorted(desk.did)
        assert ("refund", "a", 500) in desk.did

    on(scenario)


def test_a_parked_program_waits_beside_the_records_of_threads_and_goes_on_by_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteInterruptStore(tmp_path / "approvals.sqlite") as store:
            desk = Desk(store, InMemorySaver())
            parked: dict[str, Any] = {"store": store, "tenant": "acme", "app": "programs"}
            settings = {"continuation": {"keys": KEYS}}
            # No short time to wait: a call that is not parked when exec is over ends with the run of the agent.
            options = {"approvals": "park"}
            own = ExecWaitMiddleware(approve={"refund": True}, options=options, settings=settings, **parked)
            answered: list[Any] = []

            def later(answer: Any) -> AIMessage:
                answered.append(answer)
                return AIMessage("later")

            def until_it_ended(answer: Any) -> AIMessage:
                if answer["status"] != "waiting":
                    return AIMessage("done")
                model.steps.insert(0, until_it_ended)
                return waits(answer)

            program = runs("return await tools.refund({ order: 'p' });")
            model = directed(program, later, lambda _: waits(answered[0]), until_it_ended)
            graph = create_agent(model, desk.tools(), middleware=[own], checkpointer=desk.saver)
            config: Any = {"configurable": {"thread_id": "parked"}}
            await graph.ainvoke({"messages": ["go"]}, config)
            assert [one["status"] for one in answered[0]["pendingToolCalls"]] == ["approval"]
            run = await desk.ask(calls(REFUND))

            (kept,) = [one for one in (await store.list(tenant="acme")).records if one.id != run.record_id]
            (asked,) = kept.requests
            assert (asked.kind, asked.input) == (APPROVAL_KIND, {"order": "p", "cents": 500})
            edited = {"approved": True, "input": {"order": "p", "cents": 7}}
            await store.decide({asked.interrupt_id: edited}, actor="ana", tenant="acme")
            assert (await desk.resumed(run, OK))[1] == "done"
            assert (await store.record(kept.id, tenant="acme")).state == "pending"
            await graph.ainvoke({"messages": ["on"]}, {**config, "recursion_limit": 2_000})
            assert model.answers[-1]["value"] == "refunded p: 7"
            assert desk.did == [("stock", "nut"), ("refund", "a", 500), ("refund", "p", 7)]
            await own.aclose()

    asyncio.run(asyncio.wait_for(main(), WAIT_SECONDS))
