"""CodeCall in an agent: what the model is offered, what it may call by itself, and what cannot be together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from code_call_shop import INVOKE, OWN, Shop, answers, ask, marked, session
from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, create_code_call_tools, create_code_mode_tool
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, tool
from scripted_agent import APPROVE, Session, agent, asking, asks, executes
from suite import full_only


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def shop() -> Shop:
    return Shop()


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
        assert "needs approval for this call" in messages[2].content
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


# --- what cannot be together ---


def test_neighbours_that_would_not_see_inner_calls(shop: Shop):
    per_call: Any = {"interrupt_mode": "per_call"}
    own = CodeCallMiddleware
    wrong: list[tuple[list[Any], str]] = [
        ([own(), HumanInTheLoopMiddleware({"refund": True})], r"batched.*list it after CodeCallMiddleware"),
        ([HumanInTheLoopMiddleware({"refund": True}, **per_call), own()], "List it after"),
        ([ToolRetryMiddleware(tools=["stock"]), own()], "listed before CodeCallMiddleware"),
        ([own(), own()], "CodeCallMiddleware twice"),
        ([own(), CodeModeMiddleware()], "CodeCallMiddleware and CodeModeMiddleware"),
        ([CodeModeMiddleware(), own()], "CodeModeMiddleware and CodeCallMiddleware"),
    ]
    for middleware, words in wrong:
        with pytest.raises(ValueError, match=words):
            Session(agent((), shop.tools, *middleware, model=asking())).start()


def test_neighbours_that_see_what_they_look_at(shop: Shop):
    left_out = {"include_tools": lambda info: info.name == "stock"}
    review = HumanInTheLoopMiddleware({"refund": True, "codecall_execute": True})
    limits = [ToolCallLimitMiddleware(tool_name=name, run_limit=1) for name in ("codecall_execute", "refund")]
    Session(agent((), shop.tools, CodeCallMiddleware(options=left_out), review, *limits, model=asking())).start()
    # Visible is not left out: scripts call it too.
    visible = marked(shop.refund, visibleInListTools=True)
    with pytest.raises(ValueError, match="gates refund"):
        Session(agent((), [visible, shop.stock], CodeCallMiddleware(), review, model=asking())).start()


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
    with pytest.raises(ValueError, match=r"'refund'.*does not index"):
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
