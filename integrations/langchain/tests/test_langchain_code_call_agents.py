"""CodeCall in an agent: what the model is offered, what it may call, and that nothing leads around the agent's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, create_code_call_tools, create_code_mode_tool
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command
from scripted_agent import APPROVE, START, Session, agent, asking, asks, executes, results

INVOKE = {"directCalls": {"enabled": True}}
OWN = ["codecall_search", "codecall_describe", "codecall_execute"]


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


class Shop:
    """Tools, and what they did."""

    def __init__(self) -> None:
        self.done: list[Any] = []

        @tool
        def stock(product: str) -> int:
            """How many of a product there are."""
            self.done.append(product)
            return 7

        @tool
        def refund(order: str, cents: int = 500) -> str:
            """Give the money for an order back."""
            self.done.append((order, cents))
            return f"refunded {order}"

        self.stock, self.refund = stock, refund
        self.tools: list[BaseTool] = [stock, refund]


@pytest.fixture
def shop() -> Shop:
    return Shop()


def marked(one: BaseTool, **codecall: Any) -> BaseTool:
    return one.model_copy(update={"metadata": {"codecall": codecall}})


def session(scripted: Any, tools: list[BaseTool], *middleware: Any, is_async: bool = False, **settings: Any) -> Session:
    return Session(agent((), tools, *middleware, model=scripted, **settings), is_async)


def answers(output: Any) -> list[Any]:
    """What the model was given, in the order of its calls; the text where it is no JSON."""
    found: list[Any] = []
    for message in results(output):
        try:
            found.append(json.loads(message.content))
        except ValueError:
            found.append(message.content)
    return found


def ask(
    tools: list[BaseTool], *requests: tuple[str, Mapping[str, Any]], own: Any = None, is_async: bool = False
) -> Any:
    given = session(asking(asks(*requests)), tools, own or CodeCallMiddleware(), is_async=is_async)
    return results(given.start())


# --- what is offered ---


def test_the_meta_tools_and_what_stays_with_the_model(shop: Shop, is_async: bool):
    @tool
    def final(answer: str) -> str:
        """Answer."""
        return answer

    visible = marked(shop.stock, visibleInListTools=True)
    for own, tools, expected in (
        (CodeCallMiddleware(), shop.tools, OWN),
        (CodeCallMiddleware(options=INVOKE), shop.tools, [*OWN, "codecall_invoke"]),
        (CodeCallMiddleware(keep=["final"]), [*shop.tools, final], ["final", *OWN]),
        (CodeCallMiddleware(), [visible, shop.refund], ["stock", *OWN]),
        (
            CodeCallMiddleware(options={"include_tools": lambda info: info.name == "stock"}),
            shop.tools,
            ["refund", *OWN],
        ),
        (CodeCallMiddleware(options={"mode": "codecall_opt_in"}), shop.tools, OWN),
    ):
        scripted = asking(executes("return 1"))
        session(scripted, tools, own, is_async=is_async).start()
        assert [one.name for one in scripted.shown[0]] == expected


def test_a_prompt_costs_the_same_for_many_tools(shop: Shop):
    def offered(tools: list[BaseTool]) -> list[Any]:
        scripted = asking(executes("return 1"))
        session(scripted, tools, CodeCallMiddleware(options=INVOKE)).start()
        return [(one.name, one.description, one.args_schema) for one in scripted.shown[0]]

    many = [shop.stock.model_copy(update={"name": f"stock_of_{number}"}) for number in range(200)]
    assert offered(many) == offered(shop.tools)
    assert sum(len(json.dumps(one)) for one in offered(many)) <= 4_000


# --- what the model may call by itself ---


def test_a_name_that_is_not_offered_has_one_answer(shop: Shop, is_async: bool):
    disabled = marked(shop.refund, enabledInCodeCall=False)
    names = [
        "stock",
        "refund",
        "nowhere",
        "codecall_invoke",
        "codecall.execute",
        "codeCall_execute",
        "codecall_execute ",
    ]
    messages = ask([shop.stock, disabled], *((name, {"product": "nut"}) for name in names), is_async=is_async)
    assert {one.status for one in messages} == {"error"}
    assert len({one.content.replace(repr(name), "NAME") for one, name in zip(messages, names, strict=True)}) == 1
    assert shop.done == []


def test_what_stays_with_the_model_is_called_as_ever(shop: Shop, is_async: bool):
    visible = marked(shop.stock, visibleInListTools=True)
    script = {"script": "return await callTool('stock', { product: 'bolt' })"}
    requests = ("stock", {"product": "nut"}), ("codecall_execute", script), ("refund", {"order": "a"})
    own = CodeCallMiddleware(keep=["refund"])
    kept = ask([visible, shop.refund], *requests, own=own, is_async=is_async)
    assert [one.content for one in kept] == ["7", '{"status": "ok", "result": 7}', "refunded a"]
    left_out = CodeCallMiddleware(options={"include_tools": lambda info: info.name != "stock"})
    called, denied, hidden = ask(shop.tools, *requests, own=left_out, is_async=is_async)
    assert called.content == "7"
    assert json.loads(denied.content)["error"]["code"] == "UnknownTool"
    assert hidden.status == "error"


def test_a_visible_tool_that_needs_approval_waits_in_scripts_alone(shop: Shop, is_async: bool):
    visible = marked(shop.refund, visibleInListTools=True)
    for approve in ({"refund": lambda args: args["cents"] > 100}, lambda name, args: args.get("cents", 0) > 100):
        own = CodeCallMiddleware(approve=approve)
        small, large, wrong = {"order": "a", "cents": 5}, {"order": "b", "cents": 500}, {"cents": 1}
        requests = ("refund", small), ("refund", large), ("refund", {"order": "c"}), ("refund", wrong)
        messages = ask([visible, shop.stock], *requests, own=own, is_async=is_async)
        assert [one.status for one in messages] == ["success", "error", "error", "error"]
        assert "needs a person's approval" in messages[2].content
        script = "return await callTool('refund', { order: 'd' })"
        paused = session(asking(executes(script)), [visible], CodeCallMiddleware(approve=approve), is_async=is_async)
        (waiting,) = paused.start()["__interrupt__"]
        assert waiting.value["args"] == {"order": "d", "cents": 500}
    assert shop.done == [("a", 5), ("a", 5)]


def test_scripts_reach_what_the_step_has_shown(shop: Shop, is_async: bool):
    class Only(AgentMiddleware[Any, Any, Any]):
        def __init__(self) -> None:
            super().__init__()
            self.steps = iter([["stock"], ["refund"], ["stock"]])

        def _filtered(self, request: Any) -> Any:
            names = next(self.steps)
            return request.override(tools=[one for one in request.tools if one.name in names])

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(self._filtered(request))

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(self._filtered(request))

    script = """
    const { name } = codecallContext;
    return [typeof getTool('stock'), typeof getTool('refund'), await callTool(name, { order: 'x' })];
    """
    step = ("codecall_execute", {"script": script, "context": {"name": "refund"}})
    found = ("codecall_search", {"query": "product order money"})
    messages = [asks(step, found), asks(step, found)]
    scripted = asking(*messages)
    output = session(scripted, shop.tools, Only(), CodeCallMiddleware(), is_async=is_async).start()
    denied, first, ran, second = [json.loads(one.content) for one in output["messages"] if isinstance(one, ToolMessage)]
    assert denied["error"]["code"] == "UnknownTool"
    assert [one["name"] for one in first["tools"]] == ["stock"]
    assert ran["result"] == ["undefined", "object", "refunded x"]
    assert [one["name"] for one in second["tools"]] == ["refund"]
    assert shop.done == [("x", 500)]
    assert scripted.shown[0][0].description == scripted.shown[1][0].description


# --- nothing leads around what the agent has ---

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


class Watch(AgentMiddleware[Any, Any, Any]):
    """Sees calls of tools, and refuses those of some."""

    def __init__(self, name: str = "watch", refused: str = "") -> None:
        super().__init__()
        self._name = name
        self.seen: list[str] = []
        self._refused = refused

    @property
    def name(self) -> str:
        return self._name

    def _refusal(self, request: Any) -> ToolMessage | None:
        name = request.tool_call["name"]
        self.seen.append(name)
        if name != self._refused:
            return None
        return ToolMessage("house rule", name=name, tool_call_id=request.tool_call["id"], status="error")

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return self._refusal(request) or handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return self._refusal(request) or await handler(request)


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
        await asyncio.wait_for(meeting.wait(), 20)
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


# --- what cannot be together ---


def test_neighbours_that_would_not_see_inner_calls(shop: Shop):
    per_call: Any = {"interrupt_mode": "per_call"}
    own = CodeCallMiddleware
    wrong: list[tuple[list[Any], str]] = [
        ([own(), HumanInTheLoopMiddleware({"refund": True})], r"batched.*list it after CodeCallMiddleware"),
        ([HumanInTheLoopMiddleware({"refund": True}, **per_call), own()], "List it after"),
        ([own(), ToolCallLimitMiddleware(run_limit=3)], r"'codecall_execute'.*max_steps"),
        ([own(), ToolCallLimitMiddleware(tool_name="stock", run_limit=3)], "limits 'stock'"),
        ([ToolRetryMiddleware(tools=["stock"]), own()], "listed before CodeCallMiddleware"),
        ([own(), own()], "CodeCallMiddleware twice"),
        ([own(), CodeModeMiddleware()], "CodeCallMiddleware and CodeModeMiddleware"),
        ([CodeModeMiddleware(), own()], "CodeModeMiddleware and CodeCallMiddleware"),
    ]
    for middleware, words in wrong:
        with pytest.raises(ValueError, match=words):
            agent((), shop.tools, *middleware, model=asking())


def test_neighbours_that_see_what_they_look_at(shop: Shop):
    left_out = {"include_tools": lambda info: info.name == "stock"}
    review = HumanInTheLoopMiddleware({"refund": True, "codecall_execute": True})
    limits = [ToolCallLimitMiddleware(tool_name=name, run_limit=1) for name in ("codecall_execute", "refund")]
    agent((), shop.tools, CodeCallMiddleware(options=left_out), review, *limits, model=asking())
    # Visible is not left out: scripts call it too.
    visible = marked(shop.refund, visibleInListTools=True)
    with pytest.raises(ValueError, match="gates refund"):
        agent((), [visible, shop.stock], CodeCallMiddleware(), review, model=asking())


def test_tools_of_the_names_of_meta_tools_are_refused(shop: Shop):
    for name in ("codecall_search", "codecall.x", "CodeCall-execute", "соdecall_execute"):  # noqa: RUF001 - look-alikes
        with pytest.raises(ValueError, match="another tool of the agent is called"):
            agent((), [shop.stock.model_copy(update={"name": name})], CodeCallMiddleware(), model=asking())
    with pytest.raises(ValueError, match="keep names 'codecall_x'"):
        CodeCallMiddleware(keep=["codecall_x"])
    with pytest.raises(ValueError, match="approve names 'codecall_execute'"):
        CodeCallMiddleware(approve={"codecall_execute": True})
    with pytest.raises(ValueError, match="another tool of the agent"):
        agent((), create_code_call_tools(shop.tools), CodeCallMiddleware(), model=asking())


def test_rules_that_nobody_could_keep(shop: Shop):
    left_out = {"include_tools": lambda info: info.name == "stock"}
    own = CodeCallMiddleware(options=left_out, approve={"refund": True})
    with pytest.raises(ValueError, match=r"'refund'.*leaves out"):
        agent((), shop.tools, own, model=asking())
    with pytest.raises(ValueError, match=r'tools\["stock"\]\.metadata\.codecall\.tags'):
        agent((), [marked(shop.stock, tags=3)], CodeCallMiddleware(), model=asking())
    with pytest.raises(ValueError, match=r"vm\.preset"):
        CodeCallMiddleware(options={"vm": {"preset": "fast"}})


def test_one_face_inside_the_other_keeps_its_gate(shop: Shop, is_async: bool):
    """A program's call of a meta-tool, or a script's of codeMode, waits as every other call does."""
    execute = next(one for one in create_code_call_tools(shop.tools, approve={"refund": True}) if one.name == OWN[2])
    js = "return await tools.codecall_execute({ script: \"return await callTool('refund', { order: 'a' })\" })"
    inner = create_code_mode_tool(shop.tools, approve={"refund": True})
    script = "return await callTool('codeMode', { js: \"return await tools.refund({ order: 'a' })\" })"
    for given in (
        session(asking(asks(("codeMode", {"js": js}))), [execute], CodeModeMiddleware(), is_async=is_async),
        session(asking(executes(script)), [inner], CodeCallMiddleware(), is_async=is_async),
    ):
        shop.done.clear()
        output = given.start()
        (waiting,) = output["__interrupt__"]
        assert waiting.value["name"] == "refund"
        assert shop.done == []
        (answer,) = answers(given.answer({waiting.id: APPROVE}))
        assert answer == {"status": "ok", "result": "refunded a"}
        assert shop.done == [("a", 500)]


# --- pauses and losses ---


class Dies(BaseException):
    """Ends the run of the graph, as the end of its process does."""


@pytest.mark.parametrize("way", ["execute", "invoke"])
@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_what_was_lost_in_the_middle_is_asked_about(is_async: bool, way: str, answer: str):
    done: list[str] = []

    @tool
    def write(text: str) -> str:
        """Write."""
        done.append(text)
        if len(done) == 1:
            raise Dies
        return text

    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "execute": ("codecall_execute", {"script": "return await callTool('write', { text: 'a' })"}),
        "invoke": ("codecall_invoke", {"tool": "write", "input": {"text": "a"}}),
    }
    name, args = requests[way]
    own = CodeCallMiddleware(options=INVOKE)
    given = session(asking(asks((name, args))), [write], own, is_async=is_async)
    with pytest.raises(BaseException, match=r"Dies|cancelled|^$"):
        given.start()
    (asked,) = given.send(None)["__interrupt__"]
    assert (asked.value["type"], asked.value["name"], asked.value["args"]) == ("unknown_outcome", name, args)
    assert done == ["a"]
    (said,) = answers(given.answer({asked.id: {"type": answer}}))
    assert done == (["a", "a"] if answer == "approve" else ["a"])
    assert said.get("result") == ("a" if answer == "approve" else None)
    assert said["status"] == ("ok" if answer == "approve" else "tool_error")


def test_other_rules_widen_nothing_for_a_paused_script(shop: Shop, is_async: bool):
    """What a script may call was said when it began; what has left the index since does not run."""
    script = "await callTool('refund', { order: 'a' }); return await callTool(codecallContext.name, { product: 'x' })"
    call = {"script": script, "allowedTools": ["refund"], "context": {"name": "stock"}}
    rules: list[Any] = [{}, {"vm": {"preset": "experimental"}}]
    saver = InMemorySaver()
    first, second = (
        session(
            asking(*messages),
            shop.tools,
            CodeCallMiddleware(options=options, approve={"refund": True}),
            is_async=is_async,
            checkpointer=saver,
        )
        for messages, options in (([asks(("codecall_execute", call))], rules[0]), ([], rules[1]))
    )
    (waiting,) = first.start()["__interrupt__"]
    (answer,) = answers(second.answer({waiting.id: APPROVE}))
    assert (answer["status"], answer["error"]["code"]) == ("tool_error", "ACCESS_DENIED")
    assert shop.done == [("a", 500)]


def test_a_tool_that_has_left_the_index_does_not_run(shop: Shop, is_async: bool):
    saver = InMemorySaver()
    left_out = {"include_tools": lambda info: info.name == "stock"}
    first = session(
        asking(executes("return await callTool('refund', { order: 'a' })")),
        shop.tools,
        CodeCallMiddleware(approve=lambda name, args: name == "refund"),
        is_async=is_async,
        checkpointer=saver,
    )
    (waiting,) = first.start()["__interrupt__"]
    own = CodeCallMiddleware(options=left_out, approve=lambda name, args: name == "refund")
    second = session(asking(), shop.tools, own, is_async=is_async, checkpointer=saver)
    (message,) = results(second.answer({waiting.id: APPROVE}))
    assert "refunded" not in message.content
    assert shop.done == []
