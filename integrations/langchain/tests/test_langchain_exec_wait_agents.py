"""Agents with the pair: what their models see and may call, who else sees inner calls, what cannot be together."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, NotRequired

import pytest
from codemode_langchain import (
    CodeCallMiddleware,
    CodeModeMiddleware,
    ExecWaitMiddleware,
    create_exec_wait_tools,
)
from exec_wait_agent import answers, directed, pair_agent, read, runs, told
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ToolCallLimitMiddleware,
)
from langchain.agents.middleware.types import AgentState
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command
from pydantic import BaseModel
from scripted_agent import Session, agent, asking, asks, results
from suite import full_only

from codemode import CodeModeOptions, ExecWaitOptions, Tool, ToolSource
from codemode.types import InvalidConfigError


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


@tool
def stock(product: str) -> int:
    """How many of a product are in stock."""
    return {"bolt": 120, "nut": 7}[product]


@tool
def look(product: str) -> str:
    """Look at a product."""
    return f"saw {product}"


def ran(code: str, tools: Any, *others: Any, is_async: bool = False, **settings: Any) -> Any:
    """The answer to one program."""
    output = Session(pair_agent([runs(code)], tools, *others, **settings), is_async=is_async).start()
    (answer,) = answers(output)
    return answer


# --- what is seen ---


def test_the_model_sees_the_pair_and_what_is_direct(is_async: bool):
    for own, expected in (
        (ExecWaitMiddleware(), ["exec", "wait"]),
        (ExecWaitMiddleware(direct=["look"]), ["look", "exec", "wait"]),
        (ExecWaitMiddleware(direct=[look], options={"enabled": True}), ["look", "exec", "wait"]),
        (ExecWaitMiddleware(options=True), ["exec", "wait"]),
        (ExecWaitMiddleware(options=ExecWaitOptions(timeout_ms=500)), ["exec", "wait"]),
        (ExecWaitMiddleware(options={"tools": {"codeMode": {"timeoutMs": 500}}}), ["exec", "wait"]),
    ):
        scripted = directed(runs("return ALL_TOOLS.map((one) => one.id)"))
        output = Session(pair_agent([], [stock, look], own=own, model=scripted), is_async=is_async).start()
        assert [[one.name for one in shown] for shown in scripted.shown] == [expected] * 2
        hidden = [] if "look" in expected else ["host:core:look"]
        assert answers(output)[0]["value"] == [*hidden, "host:core:stock"]


def test_switched_off_nothing_changes(is_async: bool):
    for options, own_agent in (({"enabled": False}, None), (False, None), (True, False), ({}, {"enabled": False})):
        own = ExecWaitMiddleware(options=options, agent=own_agent)
        scripted = directed(asks(("stock", {"product": "nut"})))
        output = Session(pair_agent([], [stock, look], own=own, model=scripted), is_async=is_async).start()
        assert [one.name for one in scripted.shown[0]] == ["stock", "look"]
        assert results(output)[0].content == "7"
        assert set(output) == {"messages"}


def test_without_tools_nothing_is_shown(is_async: bool):
    scripted = directed()
    output = Session(pair_agent([], [], model=scripted), is_async=is_async).start()
    assert [one for shown in scripted.shown for one in shown] == []
    assert output["messages"][-1].content == "done"


def test_the_calls_say_of_what_kind_they_are():
    scripted = directed(runs("return 1 as number", language="typescript"))
    seen: list[Any] = []

    class Seeing(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            seen.append((request.tool_call["name"], request.tool.metadata))
            return handler(request)

    Session(pair_agent([], [stock], Seeing(), model=scripted)).start()
    kinds = [one.metadata for one in scripted.shown[0]]
    assert kinds == [
        {"toolKind": "code_mode_exec", "toolInputKind": "javascript"},
        {"toolKind": "code_mode_wait"},
    ]
    assert seen == [("exec", {"toolKind": "code_mode_exec", "toolInputKind": "typescript"})]


def test_a_tool_called_exec_is_one_of_the_catalog(is_async: bool):
    done: list[str] = []

    @tool("exec")
    def shell(command: str) -> str:
        """Run a command."""
        done.append(command)
        return f"ran {command}"

    scripted = directed(
        runs("return [await tools.exec({command: 'a'}), await tools.call('host:core:exec', {command: 'b'})]")
    )
    output = Session(pair_agent([], [shell, stock], model=scripted), is_async=is_async).start()
    assert answers(output)[0]["value"] == ["ran a", "ran b"]
    assert done == ["a", "b"]
    assert [one.name for one in scripted.shown[0]] == ["exec", "wait"]
    assert "JavaScript" in scripted.shown[0][0].description
    for direct in (["exec"], [shell], ["wait"]):
        with pytest.raises(ValueError, match=f"direct names '{getattr(direct[0], 'name', direct[0])}'"):
            ExecWaitMiddleware(direct=direct)


def test_no_program_runs_a_program(is_async: bool):
    others = create_exec_wait_tools([look])
    own = ExecWaitMiddleware(sources=[ToolSource([*others], "plugin", "other")])
    code = """const found = [];
        for (const id of ["host:core:exec", "host:core:wait", "plugin:other:exec", "exec"])
            found.push(await tools.call(id, {code: "return 1"}).catch((error) => error.name));
        return [found, ALL_TOOLS.map((one) => one.id), typeof tools.exec]"""
    found, listed, kind = ran(code, [stock, *others], own=own, is_async=is_async)["value"]
    assert (found, listed, kind) == (["CodeModeToolError"] * 4, ["host:core:stock"], "undefined")


def test_the_model_calls_nothing_else_by_itself(is_async: bool):
    requests = ("stock", {"product": "nut"}), ("look", {"product": "nut"}), ("nowhere", {})
    own = ExecWaitMiddleware(direct=["look"])
    output = Session(pair_agent([asks(*requests)], [stock, look], own=own), is_async=is_async).start()
    hidden, direct, unknown = results(output)
    assert direct.content == "saw nut"
    assert hidden.status == unknown.status == "error"
    assert hidden.content.replace("stock", "nowhere") == unknown.content


def test_a_denied_tool_is_not_there(is_async: bool):
    class Denying(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tools=[one for one in request.tools if one.name != "look"]))

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(tools=[one for one in request.tools if one.name != "look"]))

    code = """return [ALL_TOOLS.map((one) => one.id), typeof tools.look,
        await tools.call("host:core:look", {product: "nut"}).catch((error) => error.message.slice(0, 40))]"""
    graph = agent((), [stock, look], Denying(), ExecWaitMiddleware(), model=directed(runs(code)))
    (answer,) = answers(Session(graph, is_async=is_async).start())
    assert answer["value"] == [["host:core:stock"], "undefined", "There is no tool with the id 'host:core:"]


# --- exactly the pair ---


class Changing(AgentMiddleware[Any, Any, Any]):
    """Makes something else of every request."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self.change(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self.change(request))


def made_anew(request: Any) -> Any:
    fields = ("model", "messages", "state", "runtime")
    return type(request).__mro__[1](**{one: getattr(request, one) for one in fields}, tools=[*request.tools, stock])


def appended(request: Any) -> Any:
    request.tools.append(look)
    return request


CHANGES = [
    lambda request: request.override(tools=[*request.tools, look]),
    lambda request: request.override(tools=request.tools[:1]),
    lambda request: request.override(tools=[]),
    lambda request: request.override(tools=[*request.tools, {"type": "web_search"}]),
    lambda request: request.override(tools=[*request.tools, request.tools[0]]),
    lambda request: request.override(model=asking()).override(tools=[*request.tools, look]),
    lambda request: request.override(tools=[*request.tools, look], model=asking()),
    lambda request: request.override(model=asking(), tools=[]),
    appended,
    made_anew,
]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_a_request_with_other_tools_fails_the_run(change: Any, is_async: bool):
    scripted = directed(runs("return 1"))
    graph = pair_agent([], [stock, look], Changing(change), model=scripted)
    with pytest.raises(InvalidConfigError, match=r"other middleware (adds|takes) '"):
        Session(graph, is_async=is_async).start()
    assert scripted.shown == []


def test_what_is_direct_may_not_be_taken_away_either():
    own = ExecWaitMiddleware(direct=["look"])
    change = Changing(lambda request: request.override(tools=[one for one in request.tools if one.name != "look"]))
    with pytest.raises(ValueError, match="takes 'look'"):
        Session(pair_agent([], [stock, look], change, own=own)).start()


def test_other_models_and_answers_of_a_shape_are_fine(is_async: bool):
    class Answer(BaseModel):
        """The answer."""

        text: str

    class Failing(type(directed())):
        def _generate(self, *_: Any, **__: Any) -> Any:
            raise ConnectionError("away")

        async def _agenerate(self, *_: Any, **__: Any) -> Any:
            raise ConnectionError("away")

    class Side(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            request.model.bind_tools([look])  # for a purpose of its own
            return handler(request)

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            request.model.bind_tools([look])
            return await handler(request)

    other = directed(runs("return await tools.stock({product: 'nut'})"), asks(("Answer", {"text": "seven"})))
    failing = Failing(messages=iter([]), shown=[], disable_streaming=True, steps=[])
    graph = pair_agent(
        [], [stock], Side(), ModelFallbackMiddleware(other), model=failing, response_format=ToolStrategy(Answer)
    )
    output = Session(graph, is_async=is_async).start()
    assert output["structured_response"] == Answer(text="seven")
    assert [one.name for one in other.shown[0]] == ["exec", "wait", "Answer"]


def test_a_tool_of_the_provider_has_to_be_direct():
    search: Any = {"type": "web_search"}
    with pytest.raises(ValueError, match="'web_search' is a tool of the model's provider"):
        Session(pair_agent([], [stock, search])).start()
    scripted = directed()
    Session(pair_agent([], [stock, search], own=ExecWaitMiddleware(direct=["web_search"]), model=scripted)).start()
    assert [getattr(one, "name", one) for one in scripted.shown[0]] == [search, "exec", "wait"]


# --- inner calls ---


def test_inner_calls_go_through_the_agents_handlers(is_async: bool):
    seen: list[Any] = []

    class Seeing(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            seen.append((request.tool_call["name"], dict(request.tool_call["args"])))
            return handler(request)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            seen.append((request.tool_call["name"], dict(request.tool_call["args"])))
            return await handler(request)

    @tool
    def remember(
        text: str, state: Annotated[dict[str, Any], InjectedState], runtime: ToolRuntime[Any, Any]
    ) -> Command[Any]:
        """Remember something."""
        message = ToolMessage(f"{text} after {len(state['messages'])}", tool_call_id=runtime.tool_call_id)
        return Command(update={"messages": [message]})

    async def doubled(value: Any, _context: Any) -> Any:
        return {"twice": value["n"] * 2}

    source = ToolSource([Tool("double", execute=doubled)], "client", "ui")
    code = "return [await tools.remember({text: 'tea'}), await tools.double({n: 4})]"
    own = ExecWaitMiddleware(sources=[source])
    output = Session(pair_agent([runs(code)], [remember], Seeing(), own=own), is_async=is_async).start()
    assert answers(output)[0]["value"] == ["tea after 2", {"twice": 8}]
    assert seen[1:] == [("remember", {"text": "tea"}), ("double", {"n": 4})]
    assert [one.tool_call_id for one in results(output)] == ["call_0"]


def test_middleware_may_change_and_answer_calls_of_further_tools(is_async: bool):
    got: list[Any] = []
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    foreign = Tool("foreign", execute=lambda value, _: got.append(value) or value["n"], input_schema=schema)

    class Between(AgentMiddleware[Any, Any, Any]):
        def _changed(self, request: Any) -> Any:
            call = request.tool_call
            if call["name"] != "foreign":
                return request
            n = call["args"]["n"]
            args = {"n": n + 1} if n < 10 else {"n": "ten"}
            return request.override(tool_call={**call, "args": args})

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(self._changed(request))

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await handler(self._changed(request))

    own = ExecWaitMiddleware(sources=[ToolSource([foreign], "client", "ui")])
    code = (
        "return [await tools.foreign({n: 1}), await tools.foreign({n: 12}).catch((e) => e.message.includes('integer'))]"
    )
    assert ran(code, [], Between(), own=own, is_async=is_async)["value"] == [2, True]
    assert got == [{"n": 2}]


class Counted(AgentState[Any]):
    count: NotRequired[int]


class Counting(AgentMiddleware[Any, Any, Any]):
    state_schema = Counted


def test_state_that_inner_calls_update_reaches_the_graph_once(is_async: bool):
    @tool
    def add(runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        """Add one."""
        said = ToolMessage("added", tool_call_id=runtime.tool_call_id)
        return Command(update={"count": runtime.state.get("count", 0) + 1, "messages": [said]})

    code = "await tools.add({}); await tools.add({}); return 1"
    output = Session(pair_agent([runs(code)], [add], Counting()), is_async=is_async).start()
    assert output["count"] == 2
    assert answers(output)[0]["value"] == 1


def test_parallel_programs_of_one_step(is_async: bool):
    codes = [f"return await tools.look({{product: '{one}'}})" for one in "abc"]
    output = Session(pair_agent([runs(*codes)], [look]), is_async=is_async).start()
    assert [read(one)["value"] for one in results(output)] == ["saw a", "saw b", "saw c"]


def test_a_model_that_repeats_ids_gets_no_old_result(is_async: bool):
    made: list[int] = []

    @tool
    def count() -> int:
        """Count."""
        made.append(1)
        return len(made)

    code = "return await tools.count({})"
    steps = [runs(code), runs(code), AIMessage("done"), runs(code)]
    session = Session(pair_agent(steps, [count]), is_async=is_async)
    assert [one["value"] for one in answers(session.start())] == [1, 2]
    assert [one["value"] for one in answers(session.start())] == [1, 2, 3]


def test_failures_are_results(is_async: bool):
    for code, expected in (
        ("return await tools.call('host:core:nothing', {})", "nested_tool_failed"),
        ("import x from 'y'", "module_access_denied"),
        ("git status", "invalid_input"),
        ("throw new TypeError('no')", "internal_error"),
    ):
        answer = ran(code, [stock], is_async=is_async)
        assert (answer["status"], answer["code"]) == ("failed", expected)
    odd = asks(("wait", {"runId": "run_" + "0" * 32}), ("exec", {"code": "return 1", "config": 1}), ("exec", {}))
    output = Session(pair_agent([odd], [stock]), is_async=is_async).start()
    assert [read(one)["code"] for one in results(output)] == ["invalid_input"] * 3


# --- what cannot be together ---


def test_neighbours_that_would_not_see_inner_calls():
    @tool("exec")
    def shell(command: str) -> str:
        """Run a command."""
        return command

    @tool("then")
    def odd() -> str:
        """Odd."""
        return "odd"

    own = ExecWaitMiddleware
    wrong: list[tuple[list[Any], str]] = [
        ([own(), HumanInTheLoopMiddleware({"stock": True})], r"batched.*list it after ExecWaitMiddleware"),
        ([own(), HumanInTheLoopMiddleware({"then": True})], r"gates then in its batched"),
        ([own(), HumanInTheLoopMiddleware({"exec": True})], r"gates exec in its batched"),
        ([own(), ToolCallLimitMiddleware(run_limit=3)], r"'exec'.*maxToolCalls"),
        ([own(), own()], "ExecWaitMiddleware twice"),
        ([own(), CodeModeMiddleware()], "ExecWaitMiddleware and CodeModeMiddleware"),
        ([CodeCallMiddleware(), own()], "CodeCallMiddleware and ExecWaitMiddleware"),
    ]
    for middleware, words in wrong:
        with pytest.raises(ValueError, match=words):
            Session(agent((), [stock, shell, odd], *middleware, model=asking())).start()
    Session(agent((), [stock], own(), HumanInTheLoopMiddleware({"exec": True}), model=asking())).start()


def test_wrong_options_are_refused_at_once():
    for settings, words in (
        ({"options": {"timeoutMs": "long"}}, "tools.codeMode.timeout"),
        ({"options": {"unknown": 1}}, "unknown"),
        ({"settings": {"execution_policy": {"timeout_includes_tools": False}}}, "timeout_includes_tools is not"),
        ({"sources": [stock]}, "sources must be ToolSource"),
        ({"direct": ["look"], "approve": {"look": True}}, "in both direct and approve"),
        ({"approve": {"exec": True}}, "approve names 'exec'"),
        ({"options": {"approvals": "park"}}, "needs a store"),
    ):
        with pytest.raises(ValueError, match=words):
            ExecWaitMiddleware(**settings)
    with pytest.raises(ValueError, match="approve names 'nothing'"):
        create_exec_wait_tools([stock], approve={"nothing": True})


# --- tools without an agent ---


def test_the_tools_alone(is_async: bool):
    execute, wait = create_exec_wait_tools([stock, look], settings=CodeModeOptions())
    given = {"code": "await yield_control(); return await tools.stock({product: 'nut'})"}

    async def amain() -> Any:
        rest = await execute.ainvoke(given)
        last = await wait.ainvoke({"runId": rest["runId"]})
        await execute.pair.aclose()
        return rest, last

    def main() -> Any:
        rest = execute.invoke(given)
        last = wait.invoke({"runId": rest["runId"]})
        asyncio.run(execute.pair.aclose())
        return rest, last

    rest, last = asyncio.run(amain()) if is_async else main()
    assert (rest["status"], rest["reason"]) == ("waiting", "yield")
    assert told(last) == {"status": "completed", "value": 7}
