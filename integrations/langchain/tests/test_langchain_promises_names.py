"""Names that no program can call, the name of codeMode itself, and names that are given twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware, create_code_mode_tool
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, ToolCallLimitMiddleware
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, field_validator
from scripted_agent import APPROVE, ScriptedModel, Session, agent, content, results
from suite import each_row, full_only

from codemode import create_code_mode_tool as create_core_tool

IMPOSSIBLE = ["then", "$x", "$search", "a\nb", "x" * 129]
PLAIN = "return await tools.plain({ n: 1 })"


class Amount(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def in_cents(cls, n: int) -> int:
        return n * 100


def named(name: str, ran: list[Any] | None = None, schema: Any = None) -> BaseTool:
    def run(n: int) -> str:
        (ran if ran is not None else []).append(n)
        return f"{n} done"

    return StructuredTool.from_function(run, name=name, description="Does.", args_schema=schema)


def calling(name: str) -> ScriptedModel:
    call = {"name": name, "args": {"n": 1}, "id": "call_0", "type": "tool_call"}
    return ScriptedModel(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("done")]), shown=[])


@pytest.fixture(params=[False, *full_only(True)], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.mark.parametrize("name", IMPOSSIBLE)
@pytest.mark.parametrize("make", [create_code_mode_tool, create_core_tool], ids=["plugin", "core"])
def test_a_tool_that_no_program_can_call_is_left_out(make: Any, name: str, caplog: pytest.LogCaptureFixture):
    code_mode = make([named(name), named("plain")])
    assert "plain(" in code_mode.description
    (warned,) = [one for one in caplog.records if one.name == "codemode.tools" and one.levelname == "WARNING"]
    assert "left out" in warned.getMessage()
    run = code_mode.invoke if make is create_code_mode_tool else code_mode.execute_sync
    assert run({"js": PLAIN}) == "1 done"


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_in_an_agent_the_model_goes_on_calling_it(name: str, is_async: bool):
    ran: list[Any] = []
    said = calling(name)
    output = Session(agent([], [named(name, ran), named("plain")], CodeModeMiddleware(), model=said), is_async).start()
    assert [one.content for one in results(output)] == ["1 done"]
    assert ran == [1]
    assert sorted(one.name for one in said.shown[0]) == sorted([name, "codeMode"])
    assert content(Session(agent([PLAIN], [named(name), named("plain")], CodeModeMiddleware())).start()) == "1 done"


def test_an_approve_function_decides_about_a_tool_that_no_program_can_call(is_async: bool):
    ran: list[Any] = []
    middleware = CodeModeMiddleware(approve=lambda _name, args: args["n"] > 50)
    output = Session(agent([], [named("then", ran, Amount)], middleware, model=calling("then")), is_async).start()
    assert [one.status for one in results(output)] == ["error"]
    assert ran == []
    middleware = CodeModeMiddleware(approve=lambda _name, args: args["n"] > 500)
    Session(agent([], [named("then", ran, Amount)], middleware, model=calling("then")), is_async).start()
    assert ran == [100]


def test_a_rule_about_it_is_refused_and_other_middleware_may_name_it():
    with pytest.raises(ValueError, match=r"'then'.*no program can call"):
        CodeModeMiddleware(approve={"then": True})
    for other in (HumanInTheLoopMiddleware({"then": True}), ToolCallLimitMiddleware(tool_name="then", run_limit=1)):
        assert content(Session(agent([PLAIN], [named("plain"), named("then")], CodeModeMiddleware(), other)).start())
    review = type("OwnReview", (HumanInTheLoopMiddleware,), {})({"then": True, "plain": True})
    with pytest.raises(ValueError, match="HumanInTheLoopMiddleware gates plain"):
        Session(agent([PLAIN], [named("then"), named("plain")], CodeModeMiddleware(), review)).start()


class Giving(AgentMiddleware[Any, Any, Any]):
    """Brings tools, when the agent is built or at each step."""

    def __init__(self, *tools: Any, later: Any = ()) -> None:
        super().__init__()
        self.tools = list(tools)
        self._later = later

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(tools=[*request.tools, *self._later]))


def codeMode() -> str:
    """Do something else."""
    return "hidden"


@each_row(
    "given",
    [named("codeMode"), codeMode, create_code_mode_tool([named("plain")]), {"name": "codeMode", "type": "custom"}],
)
@each_row("where", ["tools", "before", "after"])
def test_another_tool_called_code_mode_is_refused(given: Any, where: str):
    own, other = CodeModeMiddleware(), Giving(given)
    listed = {"tools": [own], "before": [other, own], "after": [own, other]}[where]
    with pytest.raises(ValueError, match="is called 'codeMode' too"):
        agent([PLAIN], [named("plain"), *([given] if where == "tools" else [])], *listed)


def test_a_tool_called_code_mode_that_a_step_adds_is_refused():
    graph = agent([PLAIN], [named("plain")], Giving(later=[named("codeMode")]), CodeModeMiddleware())
    with pytest.raises(ValueError, match="is called 'codeMode' too"):
        Session(graph).start()


def test_copies_of_its_own_tool_are_not_taken_for_another():
    class Copying(Giving):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tools=[one.model_copy() for one in request.tools]))

    assert content(Session(agent([PLAIN], [named("plain")], Copying(), CodeModeMiddleware())).start()) == "1 done"


def test_middleware_without_tools_of_its_own_leaves_code_mode_where_it_is():
    class Bare(AgentMiddleware[Any, Any, Any]):
        """LangChain gives it no tools, not even none."""

    graph = agent([PLAIN], [named("plain")], Bare(), CodeModeMiddleware())
    assert "codeMode" in graph.nodes["tools"].bound.tools_by_name
    assert content(Session(graph).start()) == "1 done"


def test_rules_about_code_mode_itself_are_refused():
    with pytest.raises(ValueError, match="approve names 'codeMode'"):
        CodeModeMiddleware(approve={"codeMode": True})
    with pytest.raises(ValueError, match="keep names 'codeMode'"):
        CodeModeMiddleware(keep=["codeMode"])


def test_a_name_given_twice_is_refused():
    with pytest.raises(ValueError, match="two tools are called 'plain'"):
        create_code_mode_tool([named("plain"), named("plain")])


def test_a_tool_inside_may_be_called_so():
    code_mode = create_code_mode_tool([named("codeMode")])
    assert code_mode.invoke({"js": "return await tools.codeMode({ n: 3 })"}) == "3 done"


# --- what LangChain gives a tool beside its arguments ---


class Configured(BaseTool):
    name: str = "configured"
    description: str = "Does."
    ran: list[Any] = []  # noqa: RUF012 - a pydantic field

    def _run(self, n: int, config: RunnableConfig) -> str:
        self.ran.append(config.get("configurable", {})["thread_id"])
        return f"{n} done"


def test_the_settings_of_a_run_are_neither_shown_nor_taken(is_async: bool):
    js = "return [await tools.configured({ n: 1 }), await tools.configured({ n: 2, config: { configurable: {} } })]"
    one = Configured()
    session = Session(agent([js], [one], CodeModeMiddleware(approve={"configured": True})), is_async)
    assert "config" not in create_code_mode_tool([one]).description.split("configured(", 1)[1].split(")")[0]
    asked: list[Any] = []

    def decide(waiting: Any) -> Any:
        asked.append(waiting.value["args"])
        return APPROVE

    output = session.finish(session.start(), decide)
    assert json.loads(content(output)) == ["1 done", "2 done"]
    assert asked == [{"n": 1}, {"n": 2}]
    assert one.ran == ["thread", "thread"]


def test_a_tool_of_a_single_text_is_called_as_langchain_describes_it(is_async: bool):
    from langchain_core.tools import Tool as SingleInputTool

    def told(text: str) -> str:
        return f"told {text}"

    one = SingleInputTool(name="tell", func=told, description="Tell.")
    js = "return await tools.tell({ __arg1: 'it' })"
    session = Session(agent([js], [one], CodeModeMiddleware(approve={"tell": True})), is_async)
    (waiting,) = session.start()["__interrupt__"]
    assert waiting.value["args"] == {"__arg1": "it"}
    assert content(session.answer({waiting.id: APPROVE})) == "told it"
