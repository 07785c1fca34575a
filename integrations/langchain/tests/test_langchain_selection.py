"""Which of an agent's tools programs call, and which the model itself: by ``tools`` and ``keep``."""

from __future__ import annotations

from typing import Any

import pytest
from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, ExecWaitMiddleware, create_code_mode_tool
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    wrap_model_call,
)
from langchain_core.tools import BaseTool, StructuredTool
from scripted_agent import START, Session, agent, asking, asks, model, results
from suite import each_row


def named(name: str, **metadata: Any) -> BaseTool:
    def run(n: int) -> str:
        """Do it."""
        return f"{name} {n}"

    return StructuredTool.from_function(run, name=name, metadata=metadata or None)


TOOLS = [named("stock"), named("refund", team="desk"), named("close", team="desk")]
ALL = ["close", "refund", "stock"]
CHOICES = [
    ({}, [], ALL),
    ({"keep": {"team": "desk"}}, ["close", "refund"], ["stock"]),
    ({"keep": lambda one: one.metadata is None}, ["stock"], ["close", "refund"]),
    ({"tools": ["stock"]}, ["close", "refund"], ["stock"]),
    ({"tools": {"team": "desk"}, "keep": ["close"]}, ["close", "stock"], ["close", "refund"]),
    ({"tools": "all", "keep": ["stock"]}, ["stock"], ALL),
]


@each_row("said, direct, in_programs", CHOICES)
def test_a_tool_is_in_programs_or_called_directly_or_both(said: Any, direct: list[str], in_programs: list[str]):
    scripted = asking(asks(*((name, {"n": 1}) for name in ALL)))
    output = Session(agent((), TOOLS, CodeModeMiddleware(**said), model=scripted)).start()
    shown = {one.name: one for one in scripted.shown[0]}
    assert sorted(shown) == sorted([*direct, "codeMode"])
    assert [name for name in ALL if f"{name}(input" in shown["codeMode"].description] == in_programs
    # What the model was not shown it cannot call.
    assert sorted(one.name for one in results(output) if one.status == "success") == direct


def test_one_tool_is_called_both_ways():
    scripted = asking(asks(("codeMode", {"js": "return await tools.stock({ n: 1 })"}), ("stock", {"n": 2})))
    output = Session(agent((), TOOLS, CodeModeMiddleware(tools="all", keep=["stock"]), model=scripted)).start()
    assert [one.content for one in results(output)] == ["stock 1", "stock 2"]


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (CodeModeMiddleware(keep=["refnd"]), "keep names 'refnd', .* Did you mean 'refund'"),
        (CodeModeMiddleware(tools=["refnd"]), "tools names 'refnd', .* Did you mean 'refund'"),
        (CodeCallMiddleware(keep=["refnd"]), "keep names 'refnd'"),
        (ExecWaitMiddleware(direct=["refnd"]), "direct names 'refnd'"),
    ],
)
def test_a_name_that_fits_nothing_is_told_of_when_the_agent_is_built(own: Any, message: str):
    with pytest.raises(ValueError, match=message):
        create_agent(model(), TOOLS, middleware=[own])
    assert create_agent(model(), [*TOOLS, named("refnd")], middleware=[own])


class Adding(AgentMiddleware[Any, Any, Any]):
    """May show the model other tools than those it had when it was built."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)


@wrap_model_call
def adding(request: Any, handler: Any) -> Any:
    """Do the same."""
    return handler(request)


@pytest.mark.parametrize("other", [Adding(), adding])
def test_a_name_may_be_that_of_a_tool_which_other_middleware_adds(other: Any):
    assert create_agent(model(), TOOLS, middleware=[CodeModeMiddleware(keep=["added"]), other])
    with pytest.raises(ValueError, match="keep names 'added'"):
        create_agent(model(), TOOLS, middleware=[CodeModeMiddleware(keep=["added"]), ModelFallbackMiddleware(model())])


# One call of each face that runs a program, and the name by which the model knows it.
FACES = [
    (CodeModeMiddleware, "keep", ("codeMode", {"js": "return await tools.late({ n: 1 })"})),
    (CodeCallMiddleware, "keep", ("codecall_execute", {"script": "return await callTool('late', { n: 1 })"})),
    (ExecWaitMiddleware, "direct", ("exec", {"code": "return await tools.late({ n: 1 })"})),
]


@pytest.mark.parametrize("kind", [CodeModeMiddleware, CodeCallMiddleware, ExecWaitMiddleware])
def test_a_rule_about_no_tool_is_told_of_when_the_agent_is_built(kind: Any):
    scripted = model()
    with pytest.raises(ValueError, match=r"approve names 'refnd', which is not among the tools. Did you mean 'refund'"):
        create_agent(scripted, TOOLS, middleware=[kind(approve={"refnd": True})])
    assert create_agent(scripted, TOOLS, middleware=[kind(approve={"refund": True, "stock": False})])
    assert create_agent(scripted, [*TOOLS, named("refnd")], middleware=[kind(approve={"refnd": True})])


def test_a_rule_may_name_a_tool_of_exec_by_its_id():
    own = ExecWaitMiddleware(approve={"host:core:refund": True})
    assert create_agent(model(), TOOLS, middleware=[own])
    with pytest.raises(ValueError, match=r"approve names 'host:core:refnd', .* Did you mean 'host:core:refund'"):
        create_agent(model(), TOOLS, middleware=[ExecWaitMiddleware(approve={"host:core:refnd": True})])


class Late(AgentMiddleware[Any, Any, Any]):
    """Shows the model one more tool from the second step on, and serves its calls."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(_with_late(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(_with_late(request))


class Listening(AgentMiddleware[Any, Any, Any]):
    """Notes how much was in the log whenever the model was about to be asked."""

    def __init__(self, caplog: Any) -> None:
        super().__init__()
        self.caplog, self.logged = caplog, list[int]()

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.logged.append(len(self.caplog.records))
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self.logged.append(len(self.caplog.records))
        return await handler(request)


def _with_late(request: Any) -> Any:
    is_first = len(request.messages) == 1
    return request if is_first else request.override(tools=[*request.tools, named("late")])


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("kind", "keep", "program"), FACES)
def test_a_rule_about_a_tool_that_comes_later_is_told_of_once_and_holds(
    kind: Any, keep: str, program: Any, is_async: bool, caplog: Any
):
    own, listening = kind(**{keep: ["stock"]}, approve={"late": True}), Listening(caplog)
    scripted = asking(asks(("stock", {"n": 1})), asks(program))
    session = Session(agent((), TOOLS, Late(), own, listening, model=scripted), is_async)
    output = session.start()
    assert [one.value["action_requests"][0]["name"] for one in output["__interrupt__"]] == ["late"]
    (said,) = [one.getMessage() for one in caplog.records if one.name.startswith("codemode")]
    assert said.startswith("approve names 'late', which is not among the tools.")
    assert listening.logged == [1, 1]  # before the first step, and never again


def test_a_rule_about_a_misspelt_tool_beside_such_middleware_lets_no_program_run(caplog: Any):
    scripted = asking(asks(("codeMode", {"js": "return await tools.refund({ n: 1 })"})))
    session = Session(agent((), TOOLS, Late(), CodeModeMiddleware(approve={"refnd": True}), model=scripted))
    with pytest.raises(ValueError, match=r"approve names 'refnd', .* Did you mean 'refund'"):
        session.start()
    assert "Did you mean 'refund'?" in caplog.text


def test_a_middleware_of_ones_own_may_add_tools_itself():
    class Own(CodeModeMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return super().wrap_model_call(request.override(tools=[*request.tools, named("late")]), handler)

    own = Own(approve={"late": True})
    output = Session(agent(["return await tools.late({ n: 1 })"], TOOLS, own)).start()
    assert [one.value["action_requests"][0]["name"] for one in output["__interrupt__"]] == ["late"]


@pytest.mark.parametrize("given", [{"tools": "stock"}, {"keep": "stock"}])
def test_one_text_is_no_list(given: Any):
    with pytest.raises(ValueError, match=r"must be a list of tool names, got 'stock': write (tools|keep)=\['stock'\]"):
        CodeModeMiddleware(**given)


@pytest.mark.parametrize("own", [CodeModeMiddleware, CodeCallMiddleware, ExecWaitMiddleware])
def test_who_gives_an_agent_the_class_is_told_to_write_an_object(own: Any):
    with pytest.raises(TypeError, match=r"middleware are objects: write CodeModeMiddleware\(\)"):
        create_agent(model(), TOOLS, middleware=[own])


def test_codemode_itself_is_in_no_program():
    with pytest.raises(ValueError, match="tools names 'codeMode'"):
        CodeModeMiddleware(tools=["codeMode"])


@pytest.mark.parametrize(
    "said", [{"tools": ["stock"]}, {"tools": "all", "keep": {"team": "desk"}}, {"keep": lambda one: True}]
)
def test_no_rule_is_about_a_tool_that_nobody_would_ask_about(said: Any):
    with pytest.raises(ValueError, match=r"approve names 'refund', which the model calls directly by tools and keep"):
        create_agent(model(), TOOLS, middleware=[CodeModeMiddleware(**said, approve={"refund": True})])


def test_a_function_is_asked_about_direct_calls_of_any_choice():
    own = CodeModeMiddleware(tools=["stock"], approve=lambda name, args: name == "refund" and args["n"] > 1)
    scripted = asking(asks(("refund", {"n": 1}), ("refund", {"n": 2})))
    output = Session(agent((), TOOLS, own, model=scripted)).start()
    assert [one.status for one in results(output)] == ["success", "error"]


class Swapping(AgentMiddleware[Any, Any, Any]):
    """Puts another tool in the place of one that the model may call."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._swapped, self._by = name, {"refund": "stock", "stock": "refund"}[name]

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        is_swapped = request.tool_call["name"] == self._swapped
        return handler(request.override(tool=named(self._by, team="desk")) if is_swapped else request)


def test_no_other_tool_comes_in_the_place_of_a_kept_one():
    own = CodeModeMiddleware(keep={"team": "desk"})  # not the registered tool of that name
    output = Session(agent((), TOOLS, Swapping("refund"), own, model=asking(asks(("refund", {"n": 1}))))).start()
    assert [one.status for one in results(output)] == ["error"]


def test_a_review_counts_those_that_only_the_model_calls():
    review = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
    assert create_agent(model(), TOOLS, middleware=[review, CodeModeMiddleware(tools=["stock"])])
    both = CodeModeMiddleware(tools="all", keep=["refund"])
    output = Session(agent(["return await tools.refund({ n: 1 })"], TOOLS, review, both)).start()
    assert [one.value["action_requests"][0]["name"] for one in output["__interrupt__"]] == ["refund"]


def test_a_direct_call_that_was_reviewed_is_made():
    review = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
    both = CodeModeMiddleware(tools="all", keep=["refund", "stock"])
    scripted = asking(asks(("refund", {"n": 1})))
    session = Session(agent((), TOOLS, Swapping("stock"), review, both, model=scripted))
    (waiting,) = session.start()["__interrupt__"]
    output = session.answer({waiting.id: {"decisions": [{"type": "approve"}]}})
    assert [(one.status, one.content) for one in results(output)] == [("success", "refund 1")]
    # What comes in the place of another tool nobody has reviewed.
    swapped = Session(agent((), TOOLS, Swapping("stock"), review, both, model=asking(asks(("stock", {"n": 1})))))
    assert [one.status for one in results(swapped.start())] == ["error"]


@pytest.mark.parametrize("approve", [lambda name, _args: name == "refund", "destructive"])
def test_the_review_of_another_agent_lets_no_direct_call_through(approve: Any):
    own = CodeModeMiddleware(tools="all", keep=["refund"], approve=approve)
    review = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
    for others in ([review], []):  # one middleware for two agents
        built = agent((), TOOLS, *others, own, model=asking(asks(("refund", {"n": 1}))))
    assert [one.status for one in results(Session(built).start())] == ["error"]


@pytest.mark.parametrize(
    ("rule", "allowed"), [(True, ["approve", "reject"]), ({"allowed_decisions": ["approve"]}, ["approve"])]
)
def test_a_rule_that_names_no_decisions_allows_those_of_the_review(rule: Any, allowed: list[str]):
    review = HumanInTheLoopMiddleware(interrupt_on={"refund": {"allowed_decisions": ["approve", "reject"]}})
    own = CodeModeMiddleware(approve={"refund": rule})
    output = Session(agent(["return await tools.refund({ n: 1 })"], TOOLS, own, review)).start()
    assert output["__interrupt__"][0].value["review_configs"][0]["allowed_decisions"] == allowed


def test_a_tool_that_returns_directly_ends_the_run_where_the_model_calls_it_alone():
    last = StructuredTool.from_function(lambda: "for the user", name="last", description="End.", return_direct=True)
    inside = Session(agent(["return await tools.last({})"], [last], CodeModeMiddleware())).start()
    assert [one.content for one in results(inside)] == ["for the user"]
    assert inside["messages"][-1].content == "done"
    scripted = asking(asks(("last", {})))
    beside = Session(agent((), [*TOOLS, last], CodeModeMiddleware(keep=["last"]), model=scripted)).start()
    assert beside["messages"][-1].content == "for the user"


@pytest.mark.parametrize(("js", "said"), [("return await tools.stock({ n: 2 })", None), ("throw 1", "error")])
def test_code_mode_itself_may_end_the_run(js: str, said: str | None):
    """What a program gives is then the answer, and so is what it failed with: the model is not asked again."""
    alone = create_code_mode_tool(TOOLS)
    alone.return_direct = True
    graph = create_agent(model(js), [alone])
    *_, last = graph.invoke(START)["messages"]
    assert (last.type, last.name, last.status) == ("tool", "codeMode", said or "success")


class Bringing(AgentMiddleware[Any, Any, Any]):
    """Brings a tool that nobody knows while the agent is built."""

    def __init__(self, brought: BaseTool) -> None:
        super().__init__()
        self._brought = brought

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(tools=[*request.tools, self._brought]))

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        is_it = request.tool_call["name"] == self._brought.name
        return handler(request.override(tool=self._brought) if is_it else request)


@pytest.mark.parametrize("tools", ["all", ["late", "stock"], lambda _one: True])
def test_what_is_called_both_ways_is_reviewed_in_programs_whenever_it_comes(tools: Any):
    review = HumanInTheLoopMiddleware(interrupt_on={"late": True})
    own = CodeModeMiddleware(tools=tools, keep=["late"])
    js = "return await tools.late({ n: 1 })"
    output = Session(agent([js], TOOLS, Bringing(named("late")), own, review)).start()
    assert [one.value["action_requests"][0]["name"] for one in output["__interrupt__"]] == ["late"]


def test_a_function_that_tells_is_no_async_one():
    async def told(_one: BaseTool) -> bool:
        return True

    with pytest.raises(ValueError, match="must not be async"):
        create_agent(model(), TOOLS, middleware=[CodeModeMiddleware(keep=told)])


def test_a_search_tells_the_model_the_same_of_any_tools():
    texts: set[str] = set()
    for count in (1, 3):
        scripted = asking(asks())
        Session(agent((), TOOLS[:count], CodeModeMiddleware(listing="search"), model=scripted)).start()
        texts.add(scripted.shown[0][0].description)
    assert len(texts) == 1
    one, all_of_them = (create_code_mode_tool(tools, listing="search").description for tools in (TOOLS[:1], TOOLS))
    assert one == all_of_them
