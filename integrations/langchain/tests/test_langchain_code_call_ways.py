"""CodeCall in an agent: no way of a script or a direct call leads around what the agent has."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from code_call_shop import INVOKE, Shop, Watch, answers, session
from codemode_langchain import CodeCallMiddleware
from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolRetryMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command
from scripted_agent import APPROVE, START, agent, asking, asks, executes, results
from suite import full_only


@pytest.fixture(params=[False, *full_only(True)], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def shop() -> Shop:
    return Shop()


WAYS = {
    "literal": "return await callTool('refund', { order: 'a' })",
    "computed": "return await callTool(['ref', 'und'].join(''), { order: 'a' })",
    "caught": "try { return await callTool('refund', { order: 'a' }) } catch (error) { return 'caught' } finally { 0 }",
    "not thrown": "return await callTool('refund', { order: 'a' }, { throwOnError: false })",
    "namespace": "return await money.refund({ order: 'a' })",
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_a_gated_tool_waits(shop: Shop, is_async: bool, way: str):
    name = "money.refund" if way == "namespace" else "refund"
    gated = shop.refund.model_copy(update={"name": name})
    own = CodeCallMiddleware(approve={name: True})
    given = session(asking(executes(WAYS[way])), [gated, shop.stock], own, is_async=is_async)
    output = given.start()
    assert [one.value["name"] for one in output["__interrupt__"]] == [name]
    assert shop.done == []
    output = given.answer({output["__interrupt__"][0].id: {"type": "reject", "message": "no"}})
    assert shop.done == []
    assert "APPROVAL_DENIED" in results(output)[0].content or way == "caught"


UNAWAITED = ["callTool('refund', { order: 'a' })", "await Promise.race([callTool('refund', { order: 'a' }), 1])"]


@pytest.mark.parametrize("script", UNAWAITED)
def test_a_gated_call_that_is_not_awaited_does_not_run(shop: Shop, is_async: bool, script: str):
    own = CodeCallMiddleware(approve={"refund": True})
    (answer,) = answers(session(asking(executes(script)), shop.tools, own, is_async=is_async).start())
    assert answer["status"] == "runtime_error"
    assert shop.done == []


def test_invoke_is_the_same_gate(shop: Shop, is_async: bool):
    for decision, expected in (
        (APPROVE, [("a", 500)]),
        ({"type": "edit", "edited_action": {"name": "refund", "args": {"order": "a", "cents": 3}}}, [("a", 3)]),
        ({"type": "reject"}, []),
        ({"type": "respond", "message": "paid"}, []),
    ):
        shop.done.clear()
        own = CodeCallMiddleware(options=INVOKE, approve={"refund": True})
        invoke = asks(("codecall_invoke", {"tool": "refund", "input": {"order": "a"}}))
        given = session(asking(invoke), shop.tools, own, is_async=is_async)
        output = given.start()
        (waiting,) = output["__interrupt__"]
        assert (waiting.value["name"], waiting.value["args"]) == ("refund", {"order": "a", "cents": 500})
        (answer,) = answers(given.answer({waiting.id: decision}))
        assert shop.done == expected
        assert answer["status"] == ("tool_error" if decision["type"] == "reject" else "ok")


@pytest.mark.parametrize("way", ["execute", "invoke"])
def test_middleware_listed_after_sees_inner_calls(shop: Shop, is_async: bool, way: str):
    given = {"product": "nut"}
    called = ("codecall_invoke", {"tool": "stock", "input": given})
    if way == "execute":
        called = ("codecall_execute", {"script": "return await callTool('stock', { product: 'nut' })"})
    before, after, rule = Watch("before"), Watch("after"), Watch(refused="stock")
    own = CodeCallMiddleware(options=INVOKE)
    (answer,) = answers(session(asking(asks(called)), shop.tools, before, own, after, is_async=is_async).start())
    assert answer == {"status": "ok", "result": 7}
    assert (before.seen, after.seen) == ([called[0]], [called[0], "stock"])
    own = CodeCallMiddleware(options=INVOKE)
    (answer,) = answers(session(asking(asks(called)), shop.tools, own, rule, is_async=is_async).start())
    assert (answer["status"], answer["error"]["message"]) == ("tool_error", "house rule")
    assert shop.done == ["nut"]


def test_a_review_of_single_calls_sees_inner_calls(shop: Shop, is_async: bool):
    script = "return await callTool('refund', { order: 'a' })"
    review = HumanInTheLoopMiddleware({"refund": True}, interrupt_mode="per_call")
    invoke = ("codecall_invoke", {"tool": "refund", "input": {"order": "b"}})
    scripted = asking(asks(("codecall_execute", {"script": script}), invoke))
    given = session(scripted, shop.tools, CodeCallMiddleware(options=INVOKE), review, is_async=is_async)
    output = given.start()
    assert sorted(one.value["args"]["order"] for one in output["__interrupt__"]) == ["a", "b"]
    assert shop.done == []
    output = given.finish(output, lambda one: APPROVE)
    assert [one["result"] for one in answers(output)] == ["refunded a", "refunded b"]


def test_state_runtime_callbacks_and_updates(is_async: bool):
    @tool
    def remember(
        text: str,
        state: Annotated[dict[str, Any], InjectedState],
        runtime: ToolRuntime,
        call_id: Annotated[str, InjectedToolCallId],
    ) -> Command[Any]:
        """Remember it."""
        assert runtime.tool_call_id == call_id
        said = f"{text} after {len(state['messages'])}"
        return Command(update={"messages": [HumanMessage(said), ToolMessage(said, tool_call_id=call_id)]})

    class Starts(BaseCallbackHandler):
        def __init__(self) -> None:
            self.names: list[str] = []

        def on_tool_start(self, serialized: dict[str, Any], input_str: str, **kwargs: Any) -> None:
            self.names.append(serialized["name"])

    script = "return [await callTool('remember', { text: 'one' }), await callTool('remember', { text: 'two' })]"
    invoke = ("codecall_invoke", {"tool": "remember", "input": {"text": "three"}})
    for called, expected in (
        (("codecall_execute", {"script": script}), ["one after 2", "two after 3"]),
        (invoke, "three after 2"),
    ):
        starts = Starts()
        scripted = asking(asks(called))
        given = session(scripted, [remember], CodeCallMiddleware(options=INVOKE), is_async=is_async)
        given.config = {**given.config, "callbacks": [starts]}
        output = given.start()
        (answer,) = answers(output)
        assert answer["result"] == expected
        told = [one.content for one in output["messages"][1:] if isinstance(one, HumanMessage)]
        assert told == ([expected] if isinstance(expected, str) else expected)
        assert starts.names == [called[0], *["remember"] * len(told)]


def test_the_script_reads_what_the_agents_runtime_says(shop: Shop, is_async: bool):
    own = CodeCallMiddleware(script_context=lambda runtime: {"messages": len(runtime.state["messages"])})
    given = {"script": "return codecallContext", "context": {"messages": 99, "page": 1}}
    scripted = asking(asks(("codecall_execute", given)))
    (answer,) = answers(session(scripted, shop.tools, own, is_async=is_async).start())
    assert answer["result"] == {"messages": 2, "page": 1}


def test_two_conversations_at_once(shop: Shop):
    meeting = asyncio.Barrier(2)

    @tool
    async def meet(state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Wait for the other conversation."""
        await asyncio.wait_for(meeting.wait(), 60)
        return state["messages"][0].content

    own = CodeCallMiddleware()

    async def talk(name: str) -> Any:
        graph = agent((), [meet], own, model=asking(executes("return await callTool('meet')")))
        config = {"configurable": {"thread_id": name}}
        return answers(await graph.ainvoke({"messages": [HumanMessage(name)]}, config))

    async def both() -> Any:
        return await asyncio.gather(talk("ada"), talk("bob"))

    assert asyncio.run(both()) == [[{"status": "ok", "result": name}] for name in ("ada", "bob")]


def test_a_stream_has_the_answer_and_inner_calls(shop: Shop):
    heard: list[Any] = []
    own = CodeCallMiddleware(options={"notify": heard.append})
    script = "mcpNotify('half', { done: 1 }); return await callTool('stock', { product: 'nut' })"
    graph = agent((), shop.tools, own, model=asking(executes(script)))

    async def streamed() -> list[str]:
        events = graph.astream_events(START, {"configurable": {"thread_id": "1"}}, version="v2")
        return [one["name"] async for one in events if one["event"] == "on_tool_end"]

    assert asyncio.run(streamed()) == ["stock", "codecall_execute"]
    assert sorted(one["type"] for one in heard) == ["notify", "tool_call_end", "tool_call_start"]


def test_a_status_is_not_tried_again(shop: Shop, is_async: bool):
    retry, watch = ToolRetryMiddleware(max_retries=3, initial_delay=0), Watch()
    scripted = asking(executes("throw new Error('mine')", "return await callTool('stock', {})"))
    output = session(scripted, shop.tools, CodeCallMiddleware(), retry, watch, is_async=is_async).start()
    assert [one["status"] for one in answers(output)] == ["runtime_error", "tool_error"]
    assert watch.seen == ["codecall_execute", "codecall_execute"]
