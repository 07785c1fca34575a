"""Gated tools cannot be called without approval, and programs may call only what their step has shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from codemode_langchain import CodeModeMiddleware
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, ToolRuntime
from langgraph.types import Command
from pydantic import AfterValidator
from scripted_agent import APPROVE, CONFIG, START, ScriptedModel, Session, SqliteSession, agent, content, results
from suite import full_only


@pytest.fixture(params=[False, *full_only(True)], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


class Till:
    """Tools that remember what they did."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        done = self.done

        @tool
        def pay(cents: int) -> str:
            """Pay."""
            done.append(cents)
            return f"paid {cents}"

        @tool
        def look(at: str) -> str:
            """Look."""
            done.append(at)
            return f"saw {at}"

        self.pay, self.look = pay, look
        self.tools = [pay, look]


@pytest.fixture
def till() -> Till:
    return Till()


def call(name: str, number: int = 0, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": f"call_{number}", "type": "tool_call"}


def program(js: str, number: int = 0) -> dict[str, Any]:
    return call("codeMode", number, js=js)


def saying(*turns: list[dict[str, Any]]) -> ScriptedModel:
    messages = [AIMessage("", tool_calls=turn) for turn in turns]
    return ScriptedModel(messages=iter([*messages, AIMessage("done")]), shown=[])


def run(till: Till, is_async: bool, middleware: Any, *turns: list[dict[str, Any]], **settings: Any) -> Any:
    before = settings.pop("before", ())
    graph = agent((), settings.pop("tools", till.tools), *before, middleware, model=saying(*turns), **settings)
    return Session(graph, is_async).start()


# --- 1: direct calls ---


@pytest.mark.parametrize("approve", [{"pay": True}, {"pay": lambda args: True}, lambda name, args: True, None])
def test_a_direct_call_of_a_tool_that_is_not_kept_is_refused(till: Till, is_async: bool, approve: Any):
    output = run(till, is_async, CodeModeMiddleware(approve=approve), [call("pay", cents=1)])
    (message,) = results(output)
    assert (message.status, message.name) == ("error", "pay")
    assert "call it from a program" in message.content
    assert till.done == []
    assert output["messages"][-1].content == "done"


def test_each_direct_call_next_to_a_program_and_a_kept_tool_is_refused(till: Till, is_async: bool):
    middleware = CodeModeMiddleware(keep=["look"], approve={"pay": True})
    turn = [call("pay", 0, cents=1), program("return 7", 1), call("look", 2, at="x"), call("pay", 3, cents=2)]
    output = run(till, is_async, middleware, turn)
    assert [one.status for one in results(output)] == ["error", "success", "success", "error"]
    assert till.done == ["x"]


@pytest.mark.parametrize("rule", [True, lambda args: False, {"allowed_decisions": ["approve"]}])
@pytest.mark.parametrize("keep", [["pay"], ("pay",), {"pay", "look"}])
def test_keep_and_approve_must_not_overlap(till: Till, rule: Any, keep: Any):
    with pytest.raises(ValueError, match="'pay' is in both keep and approve"):
        create_agent(saying(), till.tools, middleware=[CodeModeMiddleware(keep=keep, approve={"pay": rule})])


def test_a_rule_that_never_asks_is_no_overlap(till: Till, is_async: bool):
    output = run(till, is_async, CodeModeMiddleware(keep=["pay"], approve={"pay": False}), [call("pay", cents=1)])
    assert content(output) == "paid 1"


def test_a_function_is_asked_about_kept_tools_too(till: Till, is_async: bool):
    middleware = CodeModeMiddleware(keep=["pay", "look"], approve=lambda name, args: args.get("cents", 0) > 5)
    turn = [call("pay", 0, cents=5), call("pay", 1, cents=6), call("pay", 2, cents="7"), call("look", 3, at="x")]
    output = run(till, is_async, middleware, turn)
    assert [one.status for one in results(output)] == ["success", "error", "error", "success"]
    assert "needs approval for this call" in results(output)[1].content
    assert sorted(map(str, till.done)) == ["5", "x"]


def test_an_approve_function_sees_the_validated_arguments_of_kept_tools(till: Till, is_async: bool):
    @tool
    def transfer(euros: Annotated[int, AfterValidator(lambda euros: euros * 100)]) -> str:
        """Transfer."""
        till.done.append(euros)
        return "done"

    middleware = CodeModeMiddleware(keep=["transfer"], approve=lambda name, args: args["euros"] >= 600)
    turn = [call("transfer", 0, euros=6), call("transfer", 1, euros=5), call("transfer", 2, euros="many")]
    output = run(till, is_async, middleware, turn, tools=[transfer])
    assert [one.status for one in results(output)] == ["error", "success", "error"]
    assert till.done == [500]


def test_a_refused_call_does_not_end_the_agent(till: Till, is_async: bool):
    @tool(return_direct=True)
    def finish(cents: int) -> str:
        """Finish."""
        till.done.append(cents)
        return "finished"

    output = run(
        till, is_async, CodeModeMiddleware(approve={"finish": True}), [call("finish", cents=1)], tools=[finish]
    )
    assert (results(output)[0].status, output["messages"][-1].content) == ("error", "done")
    assert till.done == []


def test_a_custom_tool_node_is_gated_too(till: Till, is_async: bool):
    middleware = CodeModeMiddleware(approve={"pay": True})
    node = ToolNode(
        [*middleware.tools, *till.tools],
        wrap_tool_call=middleware.wrap_tool_call,
        awrap_tool_call=middleware.awrap_tool_call,
    )
    graph = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.set_entry_point("tools")
    session = Session(graph.compile(checkpointer=InMemorySaver()), is_async)
    turn = [call("pay", 0, cents=1), program("return await tools.pay({ cents: 2 })", 1)]
    output = session.send({"messages": [AIMessage("", tool_calls=turn)]})
    (one,) = output["__interrupt__"]
    assert one.value["args"] == {"cents": 2}
    assert till.done == []
    output = session.answer({one.id: APPROVE})
    assert [one.status for one in results(output)] == ["error", "success"]
    assert till.done == [2]


class Between(AgentMiddleware[Any, Any, Any]):
    """Changes what the model is shown, or what is called."""

    def __init__(
        self, show: Callable[[Any], list[Any]] | None = None, call: Callable[[Any], Any] | None = None
    ) -> None:
        super().__init__()
        self._show, self._call = show, call

    def _shown(self, request: Any) -> Any:
        return request if self._show is None else request.override(tools=self._show(request))

    def _called(self, request: Any) -> Any:
        return request if self._call is None else self._call(request)

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self._shown(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._shown(request))

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(self._called(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._called(request))


def test_other_middleware_that_serves_a_gated_tool_is_gated(till: Till, is_async: bool):
    """By its own name, and by that of a kept tool."""

    def served(request: Any) -> Any:
        return request.override(tool=till.pay)

    for named, shown in itertools.product(("pay", "look"), ([till.pay], [])):
        between = Between(lambda request, shown=shown: [*request.tools, *shown], served)
        middleware = CodeModeMiddleware(keep=["look"], approve={"pay": True})
        output = run(till, is_async, middleware, [call(named, cents=1)], tools=[till.look], before=[between])
        assert results(output)[0].status == "error"
        assert till.done == []


def test_a_gated_tool_shown_as_a_providers_own_is_refused_and_others_pass(till: Till, is_async: bool):
    def as_dicts(request: Any) -> list[Any]:
        return [{"type": "native_2025", "name": "pay"}, {"type": "function", "function": {"name": "look"}}]

    middleware = CodeModeMiddleware(approve={"pay": True})
    turn = [call("pay", 0, cents=1), call("look", 1, at="x")]
    output = run(till, is_async, middleware, turn, before=[Between(as_dicts)])
    assert [one.status for one in results(output)] == ["error", "success"]
    assert till.done == ["x"]


def test_the_tool_node_handles_unknown_tools(till: Till, is_async: bool):
    (message,) = results(run(till, is_async, CodeModeMiddleware(approve={"pay": True}), [call("nothing")]))
    assert "not a valid tool" in message.content
    (message,) = results(run(till, is_async, CodeModeMiddleware(approve=lambda name, args: True), [call("nothing")]))
    assert "not among the tools" in message.content


# --- 3: filtered tools ---


def without(*names: str) -> Between:
    return Between(lambda request: [one for one in request.tools if one.name not in names])


def test_a_program_cannot_call_a_filtered_tool(till: Till, is_async: bool):
    js = "try { return await tools['p' + 'ay']({ cents: 1 }) } catch (error) { return error.message }"
    scripted = saying([program(js), call("pay", 1, cents=2)])
    graph = agent((), till.tools, without("pay"), CodeModeMiddleware(approve={"pay": True}), model=scripted)
    output = Session(graph, is_async).start()
    assert "pay" not in scripted.shown[0][0].description.split("declare const tools")[1]
    assert "pay" in results(output)[0].content
    assert (results(output)[1].status, results(output)[1].content) == (
        "error",
        "pay is not among the tools of this step",
    )
    assert till.done == []


def test_each_step_has_its_own_set(till: Till, is_async: bool):
    """And it is the one its calls get, whichever of them runs first, and though they change what it depends on."""

    class Level(AgentState[Any]):
        level: int

    @tool
    def raise_level(state: Annotated[dict[str, Any], InjectedState], runtime: ToolRuntime) -> Command[Any]:
        """Raise it."""
        said = ToolMessage("raised", tool_call_id=runtime.tool_call_id)
        return Command(update={"level": state["level"] + 1, "messages": [said]})

    def shown(request: Any) -> list[Any]:
        return [one for one in request.tools if one.name != "pay" or request.state["level"] == 1]

    rising = "await tools.raise_level({});"
    pay = "try { return await tools['p' + 'ay']({ cents: N }) } catch (error) { return error.name }"
    turns = [
        [program(rising + pay.replace("N", "1"), 0), program(pay.replace("N", "2"), 1)],
        [program(rising + pay.replace("N", "3"), 2), program(pay.replace("N", "4"), 3)],
        [program(pay.replace("N", "5"), 4)],
    ]
    tools = [*till.tools, raise_level]
    graph = agent((), tools, Between(shown), CodeModeMiddleware(), model=saying(*turns), state_schema=Level)
    output = Session(graph, is_async).send({**START, "level": 0})
    assert sorted(till.done) == [3, 4]
    refused = [one.content for one in results(output) if "paid" not in one.content]
    assert refused == ["CodeModeToolError"] * 3


def test_a_resume_in_another_process_has_the_tools_of_its_step(till: Till, is_async: bool, tmp_path: Any):
    look = "try { return await tools['lo' + 'ok']({ at: 'x' }) } catch (error) { return 'no' }"
    js = f"await tools.pay({{ cents: 1 }}); {look}"
    scripted = saying([program(js)])

    def build(saver: Any) -> Any:
        # A filter that would let everything through by now: the model of this step was not shown it.
        seen = itertools.count()
        first = Between(
            lambda request: [t for t in request.tools if t.name != "look"] if next(seen) == 0 else request.tools
        )
        middleware = [first, CodeModeMiddleware(approve={"pay": True}, options={"continuation": {"keys": "k" * 32}})]
        return create_agent(scripted, till.tools, middleware=middleware, checkpointer=saver)

    session = SqliteSession(build, is_async, path=str(tmp_path / "checkpoints.db"))
    (one,) = session.start()["__interrupt__"]
    assert content(session.answer({one.id: APPROVE})) == "no"
    assert till.done == [1]


def test_a_tool_that_was_removed_is_unavailable_after_the_resume(till: Till, is_async: bool, tmp_path: Any):
    js = "await tools.pay({ cents: 1 }); try { return await tools.look({ at: 'x' }) } catch (error) { return 'gone' }"
    scripted = saying([program(js)])
    built: list[Any] = []

    def build(saver: Any) -> Any:
        tools = till.tools if not built else [till.pay]
        built.append(tools)
        middleware = [CodeModeMiddleware(approve={"pay": True}, options={"continuation": {"keys": "k" * 32}})]
        return create_agent(scripted, tools, middleware=middleware, checkpointer=saver)

    session = SqliteSession(build, is_async, path=str(tmp_path / "checkpoints.db"))
    (one,) = session.start()["__interrupt__"]
    assert content(session.answer({one.id: APPROVE})) == "gone"
    assert till.done == [1]


def test_what_other_middleware_added_for_a_step_can_be_called(till: Till, is_async: bool):
    made: list[BaseTool] = []

    def with_one_more(request: Any) -> list[Any]:
        number = len(made)

        @tool
        def extra(text: str) -> str:
            """Extra."""
            till.done.append((number, text))
            return f"extra {number}"

        made.append(extra)
        return [*request.tools, extra]

    js = "return await tools.extra({ text: 'x' })"
    middleware = CodeModeMiddleware(approve={"extra": True})
    turns = [[program(js, 0)], [program(js, 1), call("extra", 2, text="direct")]]
    graph = agent((), till.tools, Between(with_one_more), middleware, model=saying(*turns))
    session = Session(graph, is_async)
    output = session.finish(session.start(), lambda one: APPROVE)
    assert [one.status for one in results(output)] == ["success", "success", "error"]
    assert [one.content for one in results(output)][:2] == ["extra 0", "extra 1"]
    assert till.done == [(0, "x"), (1, "x")]


def test_one_middleware_serves_two_agents_at_once_with_their_own_sets(till: Till, is_async: bool):
    js = "try { return await tools['p' + 'ay']({ cents: 1 }) } catch (error) { return error.name }"
    middleware = CodeModeMiddleware()
    first = agent((), till.tools, without("pay"), middleware, model=saying([program(js)]))
    second = agent((), till.tools, without("look"), middleware, model=saying([program(js)]))
    assert content(Session(first, is_async).start()) == "CodeModeToolError"
    assert content(Session(second, is_async).start()) == "paid 1"


def test_the_record_is_neither_taken_from_the_input_nor_given_back(till: Till):
    js = "try { return await tools['p' + 'ay']({ cents: 1 }) } catch (error) { return error.name }"
    graph = agent((), till.tools, without("pay"), CodeModeMiddleware(), model=saying([program(js)]))
    forged = {"step": "0", "programs": ["pay"], "native": ["pay"]}
    output = Session(graph).send({"messages": [HumanMessage("go")], "code_mode_shown": forged})
    assert content(output) == "CodeModeToolError"
    assert set(output) == {"messages"}
    assert graph.get_state(CONFIG).values["code_mode_shown"]["programs"] == ["look"]


def test_rules_about_tools_that_a_step_does_not_show_are_accepted(till: Till, is_async: bool):
    middleware = CodeModeMiddleware(approve={"pay": True})
    output = run(till, is_async, middleware, [program("return await tools.look({ at: 'x' })")], before=[without("pay")])
    assert content(output) == "saw x"
