"""Pauses: what people see, what their answers do, and that nothing runs twice."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import pytest
from codemode_langchain import CodeModeMiddleware, checkpoints, create_code_mode_tool
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from pydantic import BaseModel, ValidationError
from scripted_agent import (
    APPROVE,
    ScriptedModel,
    Session,
    SqliteSession,
    agent,
    calls,
    content,
    model,
    results,
)
from suite import full_only

from codemode import CodeModeProtocolError, set_continuation_signing_key


class Till:
    """Tools that remember what they did."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        done = self.done

        @tool
        def refund(order: str, cents: int = 500) -> str:
            """Refund an order."""
            done.append((order, cents))
            return f"refunded {order}"

        @tool
        def note(text: str) -> str:
            """Write a note."""
            done.append(text)
            return text

        @tool
        def ask(question: str) -> str:
            """Ask a person, twice."""
            first = interrupt({"question": question})
            second = interrupt({"question": f"{question} really?"})
            done.append((question, first, second))
            return f"{first}, {second}"

        self.tools = [refund, note, ask]


Make = Callable[..., Session]


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture(params=["memory", *full_only("sqlite")])
def saver(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def make(request: pytest.FixtureRequest, saver: str, tmp_path: Any, till: Till) -> Make:
    def session(*programs: str, approve: Any = None, after: Any = (), options: Any = None) -> Session:
        scripted = model(*programs)

        def build(checkpointer: Any) -> Any:
            middleware = [CodeModeMiddleware(approve=approve, options=options), *after]
            return create_agent(scripted, till.tools, middleware=middleware, checkpointer=checkpointer)

        if saver == "memory":
            return Session(build(InMemorySaver()), request.param)
        return SqliteSession(build, request.param, path=str(tmp_path / "checkpoints.db"))

    return session


REFUNDS = """
await tools.note({ text: "before" });
const results = await Promise.allSettled(["a", "b", "c"].map((order) => tools.refund({ order })));
await tools.note({ text: "after" });
return results.map((result) => result.value ?? result.reason.message);
"""


def test_several_at_once_and_every_decision(make: Make, till: Till):
    session = make(REFUNDS, approve={"refund": True})
    waiting = session.start()["__interrupt__"]
    assert till.done == ["before"]
    assert len({one.id for one in waiting}) == 3
    assert [one.value["args"] for one in waiting] == [{"order": name, "cents": 500} for name in "abc"]
    edit = {"type": "edit", "edited_action": {"name": "refund", "args": {"order": "a", "cents": 1}}}
    decisions = [edit, {"type": "reject", "message": "too much"}, {"type": "respond", "message": "did it by hand"}]
    output = session.answer({one.id: decision for one, decision in zip(waiting, decisions, strict=True)})
    assert till.done == ["before", ("a", 1), "after"]
    assert content(output) == '["refunded a", "approval of tool \'refund\' was denied: too much", "did it by hand"]'


def test_out_of_order_one_by_one(make: Make, till: Till):
    session = make(REFUNDS, approve={"refund": True})
    waiting = session.start()["__interrupt__"]
    output = session.answer({waiting[2].id: APPROVE})
    assert till.done == ["before", ("c", 500)]
    assert {one.id for one in output["__interrupt__"]} == {waiting[0].id, waiting[1].id}
    output = session.answer({waiting[0].id: APPROVE})
    assert till.done == ["before", ("c", 500), ("a", 500)]
    output = session.answer({waiting[1].id: {"type": "reject"}})
    assert till.done == ["before", ("c", 500), ("a", 500), "after"]
    assert content(output).startswith('["refunded a", "approval')


def test_what_people_are_shown(make: Make):
    rule = {"allowed_decisions": ["approve", "reject"], "description": lambda name, args: f"{name}: {args['order']}?"}
    (one,) = make("return await tools.refund({ order: 'a' })", approve={"refund": rule}).start()["__interrupt__"]
    action = {"name": "refund", "args": {"order": "a", "cents": 500}, "description": "refund: a?"}
    assert one.value == {
        "type": "tool_approval",
        "tool_call_id": "call_0:tool-1",
        **action,
        "action_requests": [action],
        "review_configs": [{"action_name": "refund", "allowed_decisions": ["approve", "reject"]}],
    }
    kinds = one.response_schema["discriminator"]["mapping"]
    assert set(kinds) == {"approve", "reject"}


def test_a_plain_resume_and_the_batched_answer(make: Make, till: Till):
    session = make("return await tools.refund({ order: 'a' })", approve={"refund": True})
    session.start()
    output = session.send(Command(resume={"decisions": [APPROVE]}))
    assert content(output) == "refunded a"
    assert till.done == [("a", 500)]


def test_only_where_the_rule_says_so(make: Make, till: Till):
    js = "return [await tools.refund({ order: 'a', cents: 1 }), await tools.refund({ order: 'b' })]"
    session = make(js, approve=lambda name, args: name == "refund" and args["cents"] > 100)
    (one,) = session.start()["__interrupt__"]
    assert till.done == [("a", 1)]
    assert content(session.answer({one.id: APPROVE})) == '["refunded a", "refunded b"]'


@pytest.mark.parametrize(
    "answer",
    [
        {"type": "aprove"},
        {"type": "respond", "message": "no"},
        {"type": "edit", "edited_action": {"name": "refund", "args": {"order": 3}}},
        {"type": "edit", "edited_action": {"name": "note", "args": {"order": "a"}}},
        "yes",
    ],
)
def test_wrong_answers_are_refused_and_can_be_given_again(make: Make, till: Till, answer: Any):
    rule = {"allowed_decisions": ["approve", "edit", "reject"]}
    session = make("return await tools.refund({ order: 'a' })", approve={"refund": rule})
    (one,) = session.start()["__interrupt__"]
    with pytest.raises(ValidationError):
        session.answer({one.id: answer})
    assert till.done == []
    assert content(session.answer({one.id: APPROVE})) == "refunded a"
    assert till.done == [("a", 500)]


def test_interrupts_inside_tools(make: Make, till: Till):
    a, b = "tools.ask({ question: 'A' })", "tools.ask({ question: 'B' })"
    js = f"return await Promise.all([{a}, tools.note({{ text: 'n' }}), {b}])"
    session = make(js)
    waiting = session.start()["__interrupt__"]
    assert [one.value for one in waiting] == [{"question": "A"}, {"question": "B"}]
    output = session.answer({waiting[1].id: "b1"})
    second = {one.value["question"]: one.id for one in output["__interrupt__"]}
    assert set(second) == {"A", "B really?"}
    assert len(set(second.values())) == 2
    output = session.answer({second["A"]: "a1", second["B really?"]: "b2"})
    (last,) = output["__interrupt__"]
    assert last.value == {"question": "A really?"}
    assert content(session.answer({last.id: "a2"})) == '["a1, a2", "n", "b1, b2"]'
    assert till.done == ["n", ("B", "b1", "b2"), ("A", "a1", "a2")]


def test_a_program_cannot_catch_a_pause(make: Make, till: Till):
    js = """
    try { await tools.ask({ question: "A" }) } catch { await tools.note({ text: "caught" }) } finally { }
    return "end";
    """
    session = make(js)
    output = session.finish(session.start(), lambda one: "yes")
    assert content(output) == "end"
    assert till.done == [("A", "yes", "yes")]


def test_an_answer_that_does_not_fit_is_asked_for_again(saver: str):
    class Size(BaseModel):
        centimetres: int

    done: list[Any] = []

    @tool
    def measure(what: str) -> int:
        """Measure."""
        done.append(interrupt(f"how long is {what}?", response_schema=Size).centimetres)
        return done[-1]

    session = Session(agent(["return await tools.measure({ what: 'it' })"], [measure], CodeModeMiddleware()))
    (one,) = session.start()["__interrupt__"]
    assert one.response_schema["properties"]["centimetres"]["type"] == "integer"
    (again,) = session.answer({one.id: {"centimetres": "long"}})["__interrupt__"]
    assert (again.value, done) == (one.value, [])
    assert content(session.answer({again.id: {"centimetres": 4}})) == "4"
    assert done == [4]


def test_the_review_middleware_of_langchain_listed_after(make: Make, till: Till):
    review = HumanInTheLoopMiddleware(interrupt_on={"refund": True}, interrupt_mode="per_call", edit_notice=None)
    session = make(REFUNDS, after=[review])
    waiting = session.start()["__interrupt__"]
    assert [one.value["args"] for one in waiting] == [{"order": name, "cents": 500} for name in "abc"]
    assert {one.value["type"] for one in waiting} == {"tool_approval"}
    edit = {"type": "edit", "edited_action": {"name": "refund", "args": {"order": "a", "cents": 1}}}
    output = session.answer({waiting[1].id: {"type": "reject", "message": "no"}})
    assert till.done == ["before"]
    output = session.answer({waiting[0].id: edit, waiting[2].id: {"type": "respond", "message": "by hand"}})
    assert till.done == ["before", ("a", 1), "after"]
    assert '"refunded a"' in content(output)
    assert "with reason: no" in content(output)
    assert '"by hand"' in content(output)


def test_several_programs_of_one_turn_pause_side_by_side(make: Make, till: Till):
    programs = [f"return await tools.refund({{ order: '{name}' }})" for name in "abc"]
    session = make(*programs, approve={"refund": True})
    waiting = session.start()["__interrupt__"]
    assert len({one.id for one in waiting}) == 3
    by_order = {one.value["args"]["order"]: one.id for one in waiting}
    output = session.answer({by_order["b"]: APPROVE})
    assert till.done == [("b", 500)]
    output = session.answer({by_order["c"]: {"type": "reject"}, by_order["a"]: APPROVE})
    assert [one.status for one in results(output)] == ["success", "success", "error"]
    assert sorted(till.done) == [("a", 500), ("b", 500)]


@pytest.mark.parametrize("is_async", [False, True])
def test_in_one_node_too(till: Till, is_async: bool):
    """All calls of a plain ToolNode share one LangGraph task: its records are told apart by number, not by order."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([create_code_mode_tool(till.tools, approve={"refund": True})]))
    graph.set_entry_point("tools")
    session = Session(graph.compile(checkpointer=InMemorySaver()), is_async)
    js = "await tools.note({ text: NAME }); return await tools.refund({ order: NAME })"
    output = session.send({"messages": [calls(*(js.replace("NAME", f"'{name}'") for name in "abc"))]})
    seen: set[str] = set()
    while "__interrupt__" in output:
        one = output["__interrupt__"][0]
        assert one.id not in seen
        seen.add(one.id)
        output = session.answer({one.id: APPROVE})
    assert [one.content for one in results(output)] == [f"refunded {name}" for name in "abc"]
    assert sorted(map(str, till.done)) == sorted(map(str, ["a", "b", "c", ("a", 500), ("b", 500), ("c", 500)]))


def test_state_updates_of_earlier_segments_arrive_once(make: Make, till: Till):
    @tool
    def say(text: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Say it to the user."""
        return Command(update={"messages": [HumanMessage(text), ToolMessage("said", tool_call_id=call_id)]})

    till.tools.append(say)
    js = "await tools.say({ text: 'one' }); await tools.refund({ order: 'a' }); return await tools.say({ text: 'two' })"
    session = make(js, approve={"refund": True})
    output = session.finish(session.start(), lambda one: APPROVE)
    assert [one.content for one in output["messages"] if isinstance(one, HumanMessage)] == ["go", "one", "two"]
    assert content(output) == "said"


def test_an_agent_as_a_tool_that_pauses(make: Make, till: Till):
    """The answer reaches the graph inside the tool, which goes on where it was."""

    @tool
    def confirm(text: str) -> str:
        """Confirm."""
        till.done.append(interrupt(f"confirm {text}"))
        return "confirmed"

    call = {"name": "confirm", "args": {"text": "it"}, "id": "inner", "type": "tool_call"}
    again = {**call, "args": {"text": "this"}, "id": "again"}
    said = iter([AIMessage("", tool_calls=[call]), AIMessage("", tool_calls=[again]), AIMessage("inner done")])
    scripted = ScriptedModel(messages=said, shown=[])

    @tool
    def delegate(task: str) -> str:
        """Delegate."""
        output = create_agent(scripted, [confirm]).invoke({"messages": [HumanMessage(task)]})
        return output["messages"][-1].content

    till.tools.append(delegate)
    session = make("const note = tools.note({ text: 'n' }); return [await tools.delegate({ task: 't' }), await note]")
    asked: list[Any] = []
    output = session.finish(session.start(), lambda one: asked.append(one.value) or f"yes to {one.value}")
    assert asked == ["confirm it", "confirm this"]
    assert till.done == ["n", "yes to confirm it", "yes to confirm this"]
    assert content(output) == '["inner done", "n"]'


def test_another_key_is_told_of_and_nothing_is_lost(make: Make, till: Till):
    set_continuation_signing_key("first")
    try:
        session = make("return await tools.refund({ order: 'a' })", approve={"refund": True})
        (one,) = session.start()["__interrupt__"]
        set_continuation_signing_key("second")
        with pytest.raises(CodeModeProtocolError) as caught:
            session.answer({one.id: APPROVE})
        assert "set_continuation_signing_key" in caught.value.__notes__[0]
        assert till.done == []
        set_continuation_signing_key("first")
        assert content(session.send(None)) == "refunded a"
        assert till.done == [("a", 500)]
    finally:
        set_continuation_signing_key()


def test_other_answers_to_what_went_on_elsewhere_say_where_it_goes_on(till: Till):
    own, saver, stale = CodeModeMiddleware(approve={"refund": True}), InMemorySaver(), InMemorySaver()
    session = Session(agent(["return await tools.refund({ order: 'a' })"], till.tools, own, checkpointer=saver))
    (one,) = session.start()["__interrupt__"]
    for kept in ("storage", "writes", "blobs"):
        getattr(stale, kept).update(copy.deepcopy(dict(getattr(saver, kept))))
    assert content(session.answer({one.id: APPROVE})) == "refunded a"
    late = Session(agent([], till.tools, own, checkpointer=stale))
    with pytest.raises(CodeModeProtocolError, match="with other answers") as caught:
        late.answer({one.id: {"type": "reject"}})
    assert "Continue from the thread's checkpoint after the first" in caught.value.__notes__[0]
    assert till.done == [("a", 500)]


def test_records_of_another_program_are_refused(till: Till):
    saver = InMemorySaver()
    approve = {"refund": True}
    js = "return await tools.refund({ order: 'a' })"
    session = Session(agent([js], till.tools, CodeModeMiddleware(approve=approve), checkpointer=saver))
    (one,) = session.start()["__interrupt__"]
    (record_key,) = [
        key for key, writes in saver.writes.items() if any("__return__" in str(w) for w in writes.values())
    ]
    task, written = next((key, w) for key, w in saver.writes[record_key].items() if w[1] == "__return__")
    record = saver.serde.loads_typed(written[2])
    record["of"] = "0" * 64
    saver.writes[record_key][task] = (*written[:2], saver.serde.dumps_typed(record), *written[3:])
    with pytest.raises(CodeModeProtocolError, match="another program"):
        session.answer({one.id: APPROVE})
    assert till.done == []


def test_a_failed_program_is_recorded_and_not_run_again(make: Make, till: Till):
    failing = "await tools.note({ text: 'once' }); throw new Error('no')"
    session = make(failing, "return await tools.refund({ order: 'a' })", approve={"refund": True})
    output = session.finish(session.start(), lambda one: APPROVE)
    assert [one.status for one in results(output)] == ["error", "success"]
    assert sorted(map(str, till.done)) == sorted(map(str, ["once", ("a", 500)]))
    assert output["messages"][-1].content == "done"


def test_time_passes_between_question_and_answer(make: Make, till: Till):
    """The continuation in a checkpoint holds longer than the hour that is usual elsewhere."""
    options = {"continuation": {"max_age_ms": 1}}
    session = make("return await tools.refund({ order: 'a' })", approve={"refund": True}, options=options)
    (one,) = session.start()["__interrupt__"]
    with pytest.raises(CodeModeProtocolError):
        session.answer({one.id: APPROVE})
    assert CodeModeMiddleware()._options.continuation.max_age_ms == 30 * 24 * 3_600_000


@pytest.mark.parametrize(
    ("durability", "is_async"),
    [("sync", False), ("async", True), ("exit", True), *full_only(("sync", True), ("async", False), ("exit", False))],
)
def test_every_durability(till: Till, tmp_path: Any, durability: str, is_async: bool):
    scripted = model(REFUNDS)

    def build(checkpointer: Any) -> Any:
        middleware = [CodeModeMiddleware(approve={"refund": True})]
        graph = create_agent(scripted, till.tools, middleware=middleware, checkpointer=checkpointer)
        for name in ("invoke", "ainvoke"):
            setattr(graph, name, partial(getattr(graph, name), durability=durability))
        return graph

    session = SqliteSession(build, is_async, path=str(tmp_path / "checkpoints.db"))
    output = session.finish(session.start(), lambda one: APPROVE)
    assert content(output) == '["refunded a", "refunded b", "refunded c"]'
    assert till.done == ["before", *((name, 500) for name in "abc"), "after"]


@pytest.mark.parametrize("is_async", [False, True])
def test_called_by_a_node_of_ones_own(till: Till, is_async: bool):
    """Such calls have no id; the same program twice is two calls."""
    code_mode = create_code_mode_tool(till.tools, approve={"refund": True})
    js = "await tools.note({ text: 'n' }); return await tools.refund({ order: 'a' })"

    def node(state: Any) -> Any:
        return {"messages": [HumanMessage(code_mode.invoke({"js": js})) for _ in range(2)]}

    async def anode(state: Any) -> Any:
        return {"messages": [HumanMessage(await code_mode.ainvoke({"js": js})) for _ in range(2)]}

    graph = StateGraph(MessagesState)
    graph.add_node("own", anode if is_async else node)
    graph.set_entry_point("own")
    session = Session(graph.compile(checkpointer=InMemorySaver()), is_async)
    asked: list[Any] = []
    output = session.finish(session.start(), lambda one: asked.append(one.id) or APPROVE)
    assert len(set(asked)) == 2
    assert till.done == ["n", ("a", 500)] * 2
    assert [one.content for one in output["messages"]] == ["go", "refunded a", "refunded a"]


def test_a_graph_without_a_checkpointer_is_told_that_nobody_can_answer(till: Till, caplog: pytest.LogCaptureFixture):
    checkpoints._warn_about_missing_checkpointer.cache_clear()
    config: Any = {"configurable": {"thread_id": "1"}}
    gated = CodeModeMiddleware(approve={"refund": True})
    for saver in (InMemorySaver(), None, None):
        asking = agent(["return await tools.refund({ order: 'a' })"], till.tools, gated, checkpointer=saver)
        assert "__interrupt__" in asking.invoke({"messages": [HumanMessage("go")]}, config)
        told = [one for one in caplog.messages if "without a checkpointer" in one]
        assert len(told) == (saver is None)
    assert "checkpointer=InMemorySaver()" in told[0]
    assert till.done == []


def test_a_graph_in_another_that_keeps_where_it_stands_needs_no_checkpointer(
    till: Till, caplog: pytest.LogCaptureFixture
):
    checkpoints._warn_about_missing_checkpointer.cache_clear()
    inner = agent(
        ["return await tools.refund({ order: 'a' })"],
        till.tools,
        CodeModeMiddleware(approve={"refund": True}),
        checkpointer=False,
    )
    outer: Any = StateGraph(MessagesState)
    outer.add_node("inner", inner).set_entry_point("inner")
    config: Any = {"configurable": {"thread_id": "1"}}
    said = outer.compile(checkpointer=InMemorySaver()).invoke({"messages": [HumanMessage("go")]}, config)
    assert "__interrupt__" in said
    assert "without a checkpointer" not in caplog.text
