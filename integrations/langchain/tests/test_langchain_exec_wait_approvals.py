"""Inner calls of exec and wait that wait for a person: through LangGraph, or parked in a store."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from codemode_langchain import ExecWaitMiddleware
from exec_wait_agent import PATIENTLY, answers, directed, pair_agent, runs, told, waits
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.types import Command, interrupt
from scripted_agent import APPROVE, START, Session, SqliteSession
from suite import full_only

from codemode import ToolSource
from codemode.stores import SqliteInterruptStore

KEYS = {"continuation": {"keys": "0123456789abcdef0123456789abcdef"}}


class Shop:
    """Tools whose calls are counted."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.looked: list[str] = []

        @tool
        def refund(order: str, cents: int = 500) -> str:
            """Give the money for an order back."""
            self.done.append((order, cents))
            return f"refunded {order}"

        @tool
        def look(product: str) -> str:
            """Look at a product."""
            self.looked.append(product)
            return f"saw {product}"

        self.refund, self.look = refund, look
        self.tools = [refund, look]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


def owned(**settings: Any) -> ExecWaitMiddleware:
    options = {"maxWarmRuns": 0, "waitTimeoutMs": 20_000, **settings.pop("options", {})}
    return ExecWaitMiddleware(approve={"refund": True}, options=options, **settings)


ALL = """text("before"); const first = await tools.look({product: "nut"});
    const results = await Promise.allSettled(["a", "b", "c"].map((order) => tools.refund({order})));
    return [first, ...results.map((one) => one.status === "fulfilled" ? one.value : one.reason.message)]"""
EXPECTED = ["saw nut", "approval of tool 'host:core:refund' was denied: too late", "paid in cash", "refunded c"]


def decide(first: Any) -> Any:
    """What a person says about orders a, b and c."""
    return {
        "a": {"type": "reject", "message": "too late"},
        "b": {"type": "respond", "message": "paid in cash"},
        "c": {"type": "edit", "edited_action": {"name": "refund", "args": {"order": "c", "cents": 300}}},
    }[first.value["args"]["order"]]


def test_all_decisions_one_after_the_other(shop: Shop, is_async: bool):
    session = Session(pair_agent([runs(ALL)], shop.tools, own=owned()), is_async=is_async)
    output = session.start()
    assert [one.value["name"] for one in output["__interrupt__"]] == ["refund"] * 3
    assert [one.value["args"]["cents"] for one in output["__interrupt__"]] == [500] * 3
    assert (shop.done, answers(output)) == ([], [])
    (answer,) = answers(session.finish(output, decide))
    assert answer["value"] == EXPECTED
    assert answer["output"] == [{"type": "text", "text": "before"}]
    assert (shop.done, shop.looked) == ([("c", 300)], ["nut"])


def test_asked_in_a_program_that_was_gone_on_with(shop: Shop, is_async: bool):
    code = f"await yield_control(); {ALL}"
    session = Session(pair_agent([runs(code), waits], shop.tools, own=owned()), is_async=is_async)
    first, last = answers(session.finish(session.start(), decide))
    assert (first["reason"], last["value"]) == ("yield", EXPECTED)
    assert (shop.done, shop.looked) == ([("c", 300)], ["nut"])


def test_it_waits_again_after_an_answer(shop: Shop, is_async: bool):
    code = """const one = await tools.refund({order: "a"}); await yield_control();
        return [one, await tools.refund({order: "b"})]"""
    session = Session(pair_agent([runs(code), waits], shop.tools, own=owned()), is_async=is_async)
    first, last = answers(session.finish(session.start(), lambda _: APPROVE))
    assert (first["reason"], last["value"]) == ("yield", ["refunded a", "refunded b"])
    assert shop.done == [("a", 500), ("b", 500)]


def test_programs_of_one_step_that_wait_and_that_do_not(shop: Shop, is_async: bool):
    codes = [f"return [await tools.look({{product: '{one}'}}), await tools.refund({{order: '{one}'}})]" for one in "ab"]
    codes.append("return await tools.look({product: 'c'})")
    session = Session(pair_agent([runs(*codes)], shop.tools, own=owned()), is_async=is_async)
    found = answers(session.finish(session.start(), lambda _: APPROVE))
    assert sorted(str(one["value"]) for one in found) == [
        "['saw a', 'refunded a']",
        "['saw b', 'refunded b']",
        "saw c",
    ]
    assert sorted(shop.looked) == ["a", "b", "c"]
    assert sorted(shop.done) == [("a", 500), ("b", 500)]


def test_in_another_process_each_time(shop: Shop, is_async: bool, tmp_path: Path):
    said = 0

    def graph(saver: Any) -> Any:
        steps = [runs(ALL), AIMessage("done")][said:]
        return pair_agent(steps, shop.tools, own=owned(settings=KEYS), checkpointer=saver)

    session = SqliteSession(graph, is_async=is_async, path=str(tmp_path / "checkpoints.db"))
    output = session.start()
    said = 1
    (answer,) = answers(session.finish(output, decide))
    assert answer["value"] == EXPECTED
    assert (shop.done, shop.looked) == ([("c", 300)], ["nut"])


def test_a_tool_that_asks_by_itself_twice_over_a_wait(is_async: bool):
    go_on, begun = threading.Event(), []

    @tool
    def ask() -> list[str]:
        """Ask a person."""
        return [interrupt("first?"), interrupt("second?")]

    @tool
    def held() -> str:
        """Wait."""
        begun.append(1)
        assert go_on.wait(30.0)
        return "held"

    def step(answer: Any) -> AIMessage:
        go_on.set()
        return waits(answer)

    code = "const asked = tools.ask({}); const slow = await tools.held({}); return [slow, await asked]"
    session = Session(
        pair_agent([runs(code), step, PATIENTLY], [ask, held], own=ExecWaitMiddleware(options={"waitTimeoutMs": 100}))
    )
    session.is_async = is_async
    output = session.start()
    assert [one.value for one in output["__interrupt__"]] == ["first?"]
    first, *_, last = answers(session.finish(output, lambda one: f"yes to {one.value}"))
    assert first["status"] == "waiting"
    assert last["value"] == ["held", ["yes to first?", "yes to second?"]]
    assert begun == [1]


def test_reviews_of_other_middleware(shop: Shop, is_async: bool):
    review = HumanInTheLoopMiddleware({"refund": True}, interrupt_mode="per_call")
    graph = pair_agent([runs("return await tools.refund({order: 'a'})")], shop.tools, review, own=ExecWaitMiddleware())
    session = Session(graph, is_async=is_async)
    output = session.start()
    (asked,) = output["__interrupt__"]
    assert shop.done == []
    (answer,) = answers(session.answer({asked.id: APPROVE}))
    assert answer["value"] == "refunded a"
    assert shop.done == [("a", 500)]


# --- no way around the gate ---


class Server:
    """A server of MCP, as a client of the SDK shows one."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def list_tools(self) -> Any:
        schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
        return [{"name": "close_issue", "description": "Closes one.", "inputSchema": schema}]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        self.calls.append((name, arguments))
        return {"content": [{"type": "text", "text": f"closed {arguments['number']}"}]}


def test_tools_of_servers_and_plugins_wait_too(shop: Shop, is_async: bool):
    for approve in (
        {"mcp:tracker:close_issue": True, "plugin:cash:refund": True},
        {"mcp:tracker:close_issue": {"allowed_decisions": ["approve", "edit"]}, "refund": True},
        lambda name, args: name in ("mcp:tracker:close_issue", "refund") and bool(args),
    ):
        server = Server()
        shop.done.clear()
        sources = [ToolSource(server, "mcp", "tracker"), ToolSource([shop.refund], "plugin", "cash")]
        own = ExecWaitMiddleware(sources=sources, approve=approve)
        code = """return await Promise.all([MCP.tracker.closeIssue({number: 3}),
            tools.call("plugin:cash:refund", {order: "a"}), tools.look({product: "nut"})])"""
        session = Session(pair_agent([runs(code)], [shop.look], own=own), is_async=is_async)
        output = session.start()
        names = sorted(one.value["name"] for one in output["__interrupt__"])
        assert names[0] == "mcp:tracker:close_issue"
        assert names[1].endswith("refund")
        assert (server.calls, shop.done) == ([], [])
        edited = {"name": "mcp:tracker:close_issue", "args": {"number": 4}}
        edit = {"type": "edit", "edited_action": edited}
        (answer,) = answers(
            session.finish(output, lambda one, edit=edit: edit if one.value["name"].startswith("mcp") else APPROVE)
        )
        assert answer["value"] == ["closed 4", "refunded a", "saw nut"]
        assert (server.calls, shop.done) == ([("close_issue", {"number": 4})], [("a", 500)])


def test_a_misspelt_rule_about_a_server_is_refused(shop: Shop):
    own = ExecWaitMiddleware(sources=[ToolSource(Server(), "mcp", "tracker")], approve={"mcp:other:close_issue": True})
    with pytest.raises(ValueError, match="approve names 'mcp:other:close_issue'"):
        Session(pair_agent([runs("return 1")], shop.tools, own=own)).start()


# --- parked ---


def test_parked_the_model_goes_on_and_waits_later(shop: Shop, is_async: bool, tmp_path: Path):
    store = SqliteInterruptStore(str(tmp_path / "store.db"))
    own = owned(options={"approvals": "park"}, store=store, settings=KEYS)
    code = "text('asked'); return await tools.refund({order: 'a'})"
    ids: list[str] = []

    def note(answer: Any) -> AIMessage:
        ids.append(answer["runId"])
        return AIMessage("later")

    steps = [runs(code), waits, note, lambda _: waits({"runId": ids[0]})]
    graph = pair_agent(steps, shop.tools, own=own)
    config: Any = {"configurable": {"thread_id": "1"}}

    def send(text: str) -> Any:
        given = {"messages": [HumanMessage(text)]}
        return asyncio.run(graph.ainvoke(given, config)) if is_async else graph.invoke(given, config)

    async def approve() -> None:
        page = await store.list(tenant="")
        (request,) = [one for record in page.records for one in record.requests]
        await store.decide({request.interrupt_id: {"approved": True}}, actor="ada", tenant="")

    first, second = answers(send("go"))
    assert (first["status"], [one["status"] for one in first["pendingToolCalls"]]) == ("waiting", ["approval"])
    assert "asking again does not help" in second["note"].lower()
    assert shop.done == []
    asyncio.run(approve())
    last = answers(send("again"))[-1]
    assert told(last)["value"] == "refunded a"
    assert shop.done == [("a", 500)]


def test_parked_a_tool_may_not_ask_by_itself(is_async: bool, tmp_path: Path):
    @tool
    def ask() -> str:
        """Ask a person."""
        return interrupt("well?")

    store = SqliteInterruptStore(str(tmp_path / "store.db"))
    own = ExecWaitMiddleware(options={"approvals": "park"}, store=store, settings=KEYS)
    code = "return await tools.ask({}).catch((error) => error.message)"
    output = Session(pair_agent([runs(code)], [ask], own=own), is_async=is_async).start()
    assert "use approve for this tool" in answers(output)[0]["value"]


# --- a store ---


def test_a_program_goes_on_in_another_process(shop: Shop, is_async: bool, tmp_path: Path):
    path = str(tmp_path / "store.db")
    code = """const first = await tools.look({product: "nut"}); await yield_control();
        return [first, await tools.look({product: "bolt"})]"""

    def made() -> ExecWaitMiddleware:
        return ExecWaitMiddleware(store=SqliteInterruptStore(path), settings=KEYS, options={"waitTimeoutMs": 20_000})

    first, second = made(), made()
    before = directed(runs(code), AIMessage("later"))

    async def main() -> Any:
        config: Any = {"configurable": {"thread_id": "1"}}
        begun = await pair_agent([], shop.tools, own=first, model=before).ainvoke(START, config)
        await first.aclose()  # as its process ends
        step = waits(answers(begun)[0])
        after = pair_agent([step], shop.tools, own=second)
        return await after.ainvoke({"messages": [HumanMessage("again")]}, config)

    def sync_main() -> Any:
        config: Any = {"configurable": {"thread_id": "1"}}
        begun = pair_agent([], shop.tools, own=first, model=before).invoke(START, config)
        asyncio.run(first.aclose())
        after = pair_agent([waits(answers(begun)[0])], shop.tools, own=second)
        return after.invoke({"messages": [HumanMessage("again")]}, config)

    output = asyncio.run(main()) if is_async else sync_main()
    assert answers(output)[-1]["value"] == ["saw nut", "saw bolt"]
    assert shop.looked == ["nut", "bolt"]


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_program_that_was_cut_off_runs_nothing_twice_by_itself(tmp_path: Path, is_stored: bool):
    charged: list[str] = []

    async def main() -> Any:
        stuck = asyncio.Event()

        @tool
        async def charge(customer: str) -> str:
            """Charge a card."""
            charged.append(customer)
            if charged == ["ada", "bob"]:
                stuck.set()
                await asyncio.Event().wait()
            return f"charged {customer}"

        code = "return [await tools.charge({customer: 'ada'}), await tools.charge({customer: 'bob'})]"
        store = SqliteInterruptStore(str(tmp_path / "store.db")) if is_stored else None
        own = ExecWaitMiddleware(store=store, settings=KEYS, options={"waitTimeoutMs": 20_000})
        graph = pair_agent([runs(code)], [charge], own=own)
        config: Any = {"configurable": {"thread_id": "1"}}
        running = asyncio.create_task(graph.ainvoke(START, config))
        await asyncio.wait_for(stuck.wait(), 60)
        running.cancel()
        await asyncio.wait([running])
        (asked,) = (await graph.ainvoke(None, config))["__interrupt__"]
        before = [*charged]
        answer = {"type": "respond", "message": "charged bob"} if is_stored else {"type": "reject"}
        output = await graph.ainvoke(Command(resume={asked.id: answer}), config)
        return asked.value, before, answers(output)[0]

    asked, before, answer = asyncio.run(main())
    assert asked["type"] == "unknown_outcome"
    assert asked["name"] == ("charge" if is_stored else "exec")
    assert before == charged == ["ada", "bob"]
    if is_stored:
        assert answer["value"] == ["charged ada", "charged bob"]
    else:
        assert "decided not to run it again" in answer["error"]
