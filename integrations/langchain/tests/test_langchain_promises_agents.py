"""The plugin among what people put around an agent: tracers, instrumentation, other middleware, tools' own errors."""

from __future__ import annotations

import asyncio
import collections
import functools
import importlib
import json
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from codemode_langchain import CodeModeMiddleware, create_code_mode_tool
from langchain import agents
from langchain.agents import factory
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    LLMToolEmulator,
    ToolCallLimitMiddleware,
    ToolErrorMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool, ToolException, tool
from langgraph.types import interrupt
from scripted_agent import CONFIG, START, ScriptedModel, Session, agent, content, model, results
from suite import each_row, full_only

from codemode import PoolOptions
from codemode import create_code_mode_tool as create_core_tool

HIDDEN = "langsmith:hidden"


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


ADDS = "return await tools.add({ a: 1 })"


# --- what tracers see ---


class Tags(BaseCallbackHandler):
    """Notes the tags of everything that starts, by its name."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, **rest: Any) -> None:
        self.seen.append((serialized["name"], tuple(rest["tags"] or ())))

    def on_chat_model_start(self, serialized: dict[str, Any], messages: Any, **rest: Any) -> None:
        self.seen.append(("model", tuple(rest["tags"] or ())))


class AsyncTags(AsyncCallbackHandler):
    """The same for the async kind of handler."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    async def on_tool_start(self, serialized: dict[str, Any], input_str: str, **rest: Any) -> None:
        self.seen.append((serialized["name"], tuple(rest["tags"] or ())))


@pytest.mark.parametrize("handler", [Tags, AsyncTags])
def test_tracers_see_nested_calls_as_they_see_others(handler: Any, is_async: bool):
    given = handler()
    session = Session(agent([ADDS], [add], CodeModeMiddleware()), is_async, {**CONFIG, "callbacks": [given]})
    session.start()
    seen = dict(given.seen)
    assert {"codeMode", "add"} <= seen.keys()
    assert not any(HIDDEN in tags for tags in seen.values())


def test_tracers_see_nested_calls_after_a_pause_and_models_inside_tools(is_async: bool):
    inner = ScriptedModel(messages=iter([AIMessage("inner"), AIMessage("inner")]), shown=[])

    @tool
    def ask(question: str) -> str:
        """Ask a model, then a person."""
        return f"{inner.invoke(question).content} {interrupt(question)}"

    given = Tags()
    graph = agent(
        ["await tools.add({ a: 1 }); return await tools.ask({ question: 'q' })"], [add, ask], CodeModeMiddleware()
    )
    session = Session(graph, is_async, {**CONFIG, "callbacks": [given]})
    session.finish(session.start(), lambda _one: "yes")
    names = [name for name, _ in given.seen]
    assert names.count("add") == 1
    assert names.count("ask") == 2
    assert names.count("model") == 4
    assert not any(HIDDEN in tags for _, tags in given.seen)


def test_events_of_nested_calls_are_streamed_without_the_tag():
    scripted = model(ADDS)
    scripted.disable_streaming = True
    graph = agent((), [add], CodeModeMiddleware(), model=scripted)

    async def events() -> list[tuple[str, str, bool]]:
        stream = graph.astream_events(START, CONFIG, version="v2")
        return [(one["event"], one["name"], HIDDEN in one["tags"]) async for one in stream if "tool" in one["event"]]

    assert asyncio.run(events()) == [
        ("on_tool_start", "codeMode", False),
        ("on_tool_start", "add", False),
        ("on_tool_end", "add", False),
        ("on_tool_end", "codeMode", False),
    ]


# --- other middleware ---


def test_limits_of_programs_and_of_kept_tools_hold():
    limits = [ToolCallLimitMiddleware(tool_name=name, run_limit=1) for name in ("add", "codeMode")]
    call = {"name": "add", "args": {"a": 4}, "type": "tool_call"}
    program = {"name": "codeMode", "args": {"js": "return 1"}, "type": "tool_call"}
    asked = [{**call, "id": "a1"}, {**call, "id": "a2"}, {**program, "id": "p1"}, {**program, "id": "p2"}]
    scripted = ScriptedModel(messages=iter([AIMessage("", tool_calls=asked), AIMessage("done")]), shown=[])
    output = Session(agent((), [add], CodeModeMiddleware(keep=["add"]), *limits, model=scripted)).start()
    assert [one.status for one in results(output)] == ["success", "error", "success", "error"]


class Judge:
    """A decision model that finds every call as risky as it is told."""

    def __init__(self, risk: float) -> None:
        self._risk = risk

    def invoke(self, asked: Any) -> Any:
        return SimpleNamespace(nouls={name: SimpleNamespace(noul=self._risk) for name in asked["questions"]})

    async def ainvoke(self, asked: Any) -> Any:
        return self.invoke(asked)


def judging(risk: float, *named: Any) -> Any:
    middleware = pytest.importorskip("langchain.agents.middleware.auto_mode", reason="LangChain has it since 1.5")
    return middleware.AutoModeMiddleware(tools=[*named], classifier=Judge(risk))


@pytest.mark.parametrize("named", ["add", " add ", add], ids=["named", "padded", "given"])
def test_what_judges_named_tools_is_listed_after(named: Any, is_async: bool):
    with pytest.raises(ValueError, match=r"add.*they would not be judged"):
        Session(agent([], [add], judging(0.9, named), CodeModeMiddleware()), is_async).start()
    js = f"try {{ {ADDS} }} catch (error) {{ return error.message }}"
    blocked = Session(agent([js], [add], CodeModeMiddleware(), judging(0.9, named)), is_async).start()
    assert "classified as risky" in content(blocked)
    assert content(Session(agent([js], [add], CodeModeMiddleware(), judging(0.1, named)), is_async).start()) == "3"


@pytest.mark.parametrize(
    ("one", "loss"),
    [
        (ToolRetryMiddleware(tools=["add"]), "not be tried again"),
        (ToolErrorMiddleware(lambda _error, _request: "no", tools=[add]), "errors would not be handled"),
        (LLMToolEmulator(tools=["add"], model=ScriptedModel(messages=iter(()), shown=[])), "would run for real"),
    ],
    ids=["retry", "errors", "emulator"],
)
def test_what_wraps_named_tools_is_listed_after(one: Any, loss: str):
    with pytest.raises(ValueError, match=rf"add.*{loss}"):
        Session(agent([], [add], one, CodeModeMiddleware())).start()
    assert Session(agent([], [add], one, CodeModeMiddleware(keep=["add"]))).start()
    assert Session(agent([], [add], CodeModeMiddleware(), one)).start()


def test_an_emulator_listed_after_answers_for_nested_tools():
    emulating = ScriptedModel(messages=iter([AIMessage("forty-two")]), shown=[])
    emulator = LLMToolEmulator(tools=["add"], model=emulating)
    assert content(Session(agent([ADDS], [add], CodeModeMiddleware(), emulator)).start()) == "forty-two"


# --- instrumentation around create_agent ---


class Calling:
    """An instrumented function that is an object."""

    def __init__(self, original: Any) -> None:
        self.original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.original(*args, **kwargs)


def decorated(original: Any) -> Any:
    @functools.wraps(original)
    def create_agent(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    return create_agent


def renamed(original: Any) -> Any:
    def wrapper(*given: Any, **settings: Any) -> Any:
        middleware = "another value under the same name"
        assert middleware
        return original(*given, **settings)

    return wrapper


@pytest.fixture(params=[decorated, renamed, functools.partial, Calling], ids=["wraps", "plain", "partial", "object"])
def instrumented(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    around = request.param(factory.create_agent)
    monkeypatch.setattr(factory, "create_agent", around)
    monkeypatch.setattr(agents, "create_agent", around)
    return around


@pytest.fixture(params=[False, True], ids=["imported before", "imported after"])
def middleware_class(instrumented: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param:
        for name in ("middleware", "neighbours"):
            monkeypatch.delitem(sys.modules, f"codemode_langchain.{name}", raising=False)
    return importlib.import_module("codemode_langchain.middleware").CodeModeMiddleware


def test_instrumented_builders_build_and_still_refuse(instrumented: Any, middleware_class: Any):
    graph = instrumented(model(ADDS), [add], middleware=[middleware_class()])
    assert content(graph.invoke(START)) == "3"
    review = type("OwnReview", (HumanInTheLoopMiddleware,), {})(interrupt_on={"add": True})
    with pytest.raises(ValueError, match="batched"):
        instrumented(model(), [add], middleware=[middleware_class(), review]).invoke(START)


@pytest.mark.parametrize("listed", [tuple, collections.deque, collections.UserList])
def test_middleware_is_found_in_any_sequence_that_holds_it(listed: Any):
    graph = agents.create_agent(model(ADDS), [add], middleware=listed([CodeModeMiddleware()]))
    assert content(graph.invoke(START)) == "3"
    review = type("OwnReview", (HumanInTheLoopMiddleware,), {})(interrupt_on={"add": True})
    with pytest.raises(ValueError, match="batched"):
        agents.create_agent(model(), [add], middleware=listed([CodeModeMiddleware(), review])).invoke(START)


def test_subclasses_of_the_middleware_are_known():
    class OwnReview(HumanInTheLoopMiddleware):
        """A review of one's own."""

    class Own(CodeModeMiddleware):
        """Code mode of one's own."""

    with pytest.raises(ValueError, match="batched"):
        Session(agent([], [add], Own(), OwnReview(interrupt_on={"add": True}))).start()
    assert content(Session(agent([ADDS], [add], Own())).start()) == "3"


def test_tools_of_the_middleware_can_be_read_by_anybody():
    assert [one.name for one in CodeModeMiddleware().tools] == ["codeMode"]


# --- what the model reads ---

SHOWN: dict[str, Any] = {"model_output": {"include_nested_tool_summary": True, "include_console": True}}
TALKS = "console.log('hello'); return await tools.add({ a: 1 })"


def summary(told: str) -> dict[str, Any]:
    shown = json.loads(told)
    assert shown["result"] == 3
    assert shown["console"] == "hello"
    ((call,)) = shown["nestedTools"]
    return call


def test_model_output_options_are_heard(is_async: bool):
    output = Session(agent([TALKS], [add], CodeModeMiddleware(options=SHOWN)), is_async).start()
    assert summary(content(output))["toolName"] == "add"


def test_model_output_of_a_tool_by_itself_is_given(is_async: bool):
    code_mode = create_code_mode_tool([add], SHOWN)
    call = {"name": "codeMode", "args": {"js": TALKS}, "id": "call_7", "type": "tool_call"}
    message = asyncio.run(code_mode.ainvoke(call)) if is_async else code_mode.invoke(call)
    assert summary(message.content)["toolCallId"] == "call_7:tool-1"
    assert code_mode.invoke({"js": TALKS}) == 3


def test_model_output_of_runs_that_have_the_same_id_and_result(is_async: bool):
    middleware, code_mode = CodeModeMiddleware(options=SHOWN), create_code_mode_tool([add], SHOWN)
    call = {"name": "codeMode", "args": {"js": TALKS}, "id": "call_0", "type": "tool_call"}
    for _ in range(2):
        output = Session(agent([TALKS], [add], middleware), is_async).start()
        assert summary(content(output))["toolName"] == "add"
        assert summary(code_mode.invoke(call).content)["toolName"] == "add"


def test_model_output_after_a_pause_and_in_several_calls(is_async: bool):
    @tool
    def ask(question: str) -> str:
        """Ask a person."""
        return interrupt(question)

    programs = [f"return await tools.ask({{ question: 'q{n}' }})" for n in range(2)]
    session = Session(agent(programs, [ask], CodeModeMiddleware(options=SHOWN)), is_async)
    output = session.finish(session.start(), lambda _one: "the same")
    shown = [json.loads(one.content) for one in results(output)]
    assert [one["result"] for one in shown] == ["the same"] * 2
    assert [[call["toolCallId"] for call in one["nestedTools"]] for one in shown] == [
        ["call_0:tool-1"],
        ["call_1:tool-1"],
    ]


# --- what a tool says to the model ---

HANDLERS: dict[str, tuple[Any, str]] = {
    "unset": (False, "no such city: Atlantis"),
    "true": (True, "no such city: Atlantis"),
    "text": ("ask for another", "ask for another"),
    "function": (lambda error: f"because {error}", "because no such city: Atlantis"),
}


def weather(handler: str) -> Any:
    def look(city: str) -> str:
        """Look at the weather."""
        raise ToolException(f"no such city: {city}")

    async def alook(city: str) -> str:
        raise ToolException(f"no such city: {city}")

    return StructuredTool.from_function(look, alook, name="weather", handle_tool_error=HANDLERS[handler][0])


@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_tool_tells_the_model_reaches_program_and_model(handler: str, is_async: bool):
    told = HANDLERS[handler][1]
    call = "await tools.weather({ city: 'Atlantis' })"
    caught = f"try {{ {call} }} catch (error) {{ return error.name + ': ' + error.message }}"
    output = Session(agent([caught, call], [weather(handler)], CodeModeMiddleware()), is_async).start()
    first, second = results(output)
    assert first.content == f"CodeModeToolError: {told}"
    assert second.status == "error"
    assert told in second.content
    assert output["messages"][-1].content == "done"


@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_tool_tells_the_model_reaches_a_program_without_an_agent(handler: str):
    js = "try { await tools.weather({ city: 'Atlantis' }) } catch (error) { return error.message }"
    assert create_code_mode_tool([weather(handler)]).invoke({"js": js}) == HANDLERS[handler][1]
    assert create_core_tool([weather(handler)]).execute_sync({"js": js}) == HANDLERS[handler][1]


def test_other_errors_of_a_tool_stay_hidden():
    @tool
    def leaky() -> str:
        """Leak."""
        raise KeyError("password")

    js = "try { await tools.leaky({}) } catch (error) { return error.message }"
    assert content(Session(agent([js], [leaky], CodeModeMiddleware())).start()) == "the tool failed"


# --- what is given wrongly ---


@each_row("wrong", [{"approve": ["add"]}, {"approve": 3}, {"keep": [add]}, {"keep": 3}, {"keep": add}])
def test_wrong_types_are_refused_where_they_are_given(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CodeModeMiddleware(**wrong)


def test_options_in_the_place_of_a_pool_are_refused():
    with pytest.raises(ValueError, match="pool"):
        CodeModeMiddleware(pool=cast("Any", PoolOptions()))
    with pytest.raises(ValueError, match="pool"):
        create_code_mode_tool([add], pool=cast("Any", PoolOptions()))
