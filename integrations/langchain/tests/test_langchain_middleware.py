"""The middleware: one tool for the model, nested calls through the agent's own handlers."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Annotated, Any, cast

import pytest
from codemode_langchain import CodeModeMiddleware
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, ToolException, tool
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from scripted_agent import CONFIG, START, ScriptedModel, Session, agent, calls, content, model, results
from suite import each_row, full_only


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def test_the_model_sees_one_tool_and_those_kept(is_async: bool):
    @tool
    def final(answer: str) -> str:
        """Answer."""
        return answer

    scripted = model("return await tools.add({ a: 1 })")
    graph = agent((), [add, final], CodeModeMiddleware(keep=["final"]), model=scripted)
    output = Session(graph, is_async).start()
    assert content(output) == "3"
    assert [one.name for one in scripted.shown[0]] == ["final", "codeMode"]
    description = scripted.shown[0][1].description
    assert "add(input" in description
    assert "final" not in description


def test_a_kept_tool_is_called_as_ever(is_async: bool):
    call = {"name": "add", "args": {"a": 4}, "id": "call_0", "type": "tool_call"}
    scripted = ScriptedModel(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("done")]), shown=[])
    output = Session(agent((), [add], CodeModeMiddleware(keep=["add"]), model=scripted), is_async).start()
    assert content(output) == "6"


def test_kept_tools_are_not_in_programs():
    output = Session(agent(["return await tools.add({ a: 1 })"], [add], CodeModeMiddleware(keep=["add"]))).start()
    (message,) = results(output)
    assert message.status == "error"


class OwnState(AgentState[Any]):
    user: str


def test_injected_arguments_are_injected_and_not_shown(is_async: bool):
    @tool
    def whoami(
        greeting: str,
        state: Annotated[dict[str, Any], InjectedState],
        user: Annotated[str, InjectedState("user")],
        store: Annotated[BaseStore, InjectedStore()],
        runtime: ToolRuntime,
        call_id: Annotated[str, InjectedToolCallId],
    ) -> str:
        """Greet the user."""
        kept = store.get(("names",), user)
        assert kept is not None
        assert state["user"] == user
        assert runtime.tool_call_id == call_id
        return f"{greeting} {kept.value['name']} {call_id}"

    store = InMemoryStore()
    store.put(("names",), "u1", {"name": "Ada"})
    scripted = model("return await tools.whoami({ greeting: 'Hello', user: 'root' })")
    graph = agent((), [whoami], CodeModeMiddleware(), model=scripted, store=store, state_schema=OwnState)
    output = Session(graph, is_async).send({**START, "user": "u1"})
    assert content(output) == "Hello Ada call_0:tool-1"
    description = scripted.shown[0][0].description
    for hidden in ("state", "user:", "store", "runtime", "call_id"):
        assert hidden not in description.split("declare const tools")[1]


class Watching(AgentMiddleware[Any, Any, Any]):
    """Sees every call that passes, and changes what tools say."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.seen.append(request.tool_call["name"])
        return self._changed(handler(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.seen.append(request.tool_call["name"])
        return self._changed(await handler(request))

    def _changed(self, message: Any) -> Any:
        return message.model_copy(update={"content": message.content.replace("secret", "***")})


def test_later_middleware_sees_nested_calls_and_may_change_results(is_async: bool):
    @tool
    def read(name: str) -> str:
        """Read."""
        return f"{name}: secret"

    watching = Watching()
    graph = agent(["return await tools.read({ name: 'a' })"], [read], CodeModeMiddleware(), watching)
    assert content(Session(graph, is_async).start()) == "a: ***"
    assert watching.seen == ["codeMode", "read"]


def test_earlier_middleware_sees_the_outer_call_only():
    watching = Watching()
    graph = agent(["return await tools.add({ a: 1 })"], [add], watching, CodeModeMiddleware())
    assert content(Session(graph).start()) == "3"
    assert watching.seen == ["codeMode"]


def test_a_respons_of_another_type_is_given_as_text():
    class Answering(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            if request.tool_call["name"] != "add":
                return handler(request)
            return ToolMessage("about three", tool_call_id=request.tool_call["id"])

    graph = agent(["return await tools.add({ a: 1 })"], [add], CodeModeMiddleware(), Answering())
    assert content(Session(graph).start()) == "about three"


def test_errors_that_the_tool_node_words_reach_the_program():
    @tool
    def strict(a: Annotated[int, "positive"]) -> int:
        """Strict."""
        return a

    js = "const a = 'x'; try { await tools.strict({ a }) } catch (error) { return error.name }"
    assert content(Session(agent([js], [strict], CodeModeMiddleware())).start()) == "CodeModeToolError"


def test_commands_update_the_state_and_their_message_goes_to_the_program(is_async: bool):
    class Notes(AgentState[Any]):
        user: str

    @tool
    def rename(name: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Rename the user."""
        return Command(
            update={
                "user": name,
                "messages": [ToolMessage(f"renamed to {name}", tool_call_id=call_id), HumanMessage("hm")],
            }
        )

    js = "return [await tools.rename({ name: 'Eve' }), await tools.add({ a: 1 })];"
    graph = agent([js], [rename, add], CodeModeMiddleware(), state_schema=Notes)
    output = Session(graph, is_async).send({**START, "user": "Ada"})
    assert output["user"] == "Eve"
    assert content(output) == '["renamed to Eve", 3]'
    assert [one.content for one in output["messages"] if isinstance(one, HumanMessage)] == ["go", "hm"]


def test_artifacts_are_kept(is_async: bool):
    @tool(response_format="content_and_artifact")
    def draw(what: str) -> tuple[dict[str, str], list[int]]:
        """Draw."""
        return {"picture": what}, [1, 2]

    output = Session(
        agent(["return (await tools.draw({ what: 'cat' })).picture"], [draw], CodeModeMiddleware()), is_async
    ).start()
    (message,) = results(output)
    assert message.content == "cat"
    made = {"tool": "draw", "tool_call_id": "call_0:tool-1", "args": {"what": "cat"}, "status": "success"}
    assert message.artifact == {"calls": [{**made, "artifact": [1, 2]}]}


def test_calls_are_listed_across_pauses_with_how_they_ended(is_async: bool):
    @tool
    def draw(what: str, size: int = 1) -> str:
        """Draw."""
        if what == "dog":
            raise ToolException("no paper")
        return what

    js = """
    await tools.draw({ what: 'cat', size: 1n << 60n });
    const all = ['dog', 'cow', 'ant'].map((what) => tools.draw({ what }));
    return (await Promise.allSettled(all)).map((one) => one.status);
    """
    approve = {"draw": lambda args: args["what"] in ("cow", "ant")}
    session = Session(agent([js], [draw], CodeModeMiddleware(approve=approve)), is_async)
    cow, ant = session.start()["__interrupt__"]
    output = session.answer({cow.id: {"type": "approve"}, ant.id: {"type": "reject"}})
    (message,) = results(output)
    assert json.loads(message.content) == ["rejected", "fulfilled", "rejected"]
    listed = [(one["args"]["what"], one["args"]["size"], one["status"]) for one in message.artifact["calls"]]
    assert listed == [("cat", str(1 << 60), "success"), ("dog", 1, "error"), ("cow", 1, "success")]
    assert message.artifact["calls"][0]["bigIntegers"] == ["/args/size"]


def test_several_programs_of_one_turn_run_side_by_side(is_async: bool):
    barrier = threading.Barrier(3, timeout=60)

    @tool
    def meet(name: str) -> str:
        """Wait for the others."""
        barrier.wait()
        return name

    programs = [f"return await tools.meet({{ name: '{name}' }})" for name in "abc"]
    output = Session(agent(programs, [meet], CodeModeMiddleware()), is_async).start()
    assert [one.content for one in results(output)] == ["a", "b", "c"]


def test_one_middleware_serves_agents_with_other_tools():
    @tool
    def other() -> str:
        """Other."""
        return "other"

    middleware = CodeModeMiddleware()
    first = Session(agent(["return await tools.add({ a: 1 })"], [add], middleware)).start()
    second = Session(agent(["return await tools.other({})"], [other], middleware)).start()
    assert (content(first), content(second)) == ("3", "other")


def test_streamed_updates_show_nothing_of_the_records():
    graph = agent(["return await tools.add({ a: 1 })"], [add], CodeModeMiddleware())
    names = [name for chunk in graph.stream(START, CONFIG, stream_mode="updates") for name in chunk]
    assert names == ["model", "tools", "model"]


# --- HumanInTheLoopMiddleware among the neighbours ---


@each_row("approve", [None, {"add": lambda _args: False}, lambda _name, _args: False, {"add": True}])
@each_row("is_first", [True, False])
def test_a_review_of_nested_tools_holds_for_programs(approve: Any, is_first: bool):
    review = HumanInTheLoopMiddleware(interrupt_on={"add": {"allowed_decisions": ["approve", "reject"]}, "sub": False})
    listed = [CodeModeMiddleware(approve=approve), review][:: 1 if is_first else -1]
    session = Session(agent(["return await tools.add({ a: 1 })"], [add], *listed))
    (waiting,) = session.start()["__interrupt__"]
    assert waiting.value["action_requests"][0]["args"] == {"a": 1, "b": 2}
    assert waiting.value["review_configs"][0]["allowed_decisions"] == ["approve", "reject"]
    assert content(session.answer({waiting.id: {"type": "approve"}})) == "3"


@pytest.mark.parametrize("is_first", [True, False])
def test_a_review_that_another_middleware_passes_its_hooks_on_to_holds_too(is_first: bool):
    class OnWeekdays(AgentMiddleware[Any, Any, Any]):
        def __init__(self, *reviews: HumanInTheLoopMiddleware[Any, Any, Any]) -> None:
            super().__init__()
            self.reviews = reviews

        def after_model(self, state: Any, runtime: Any) -> Any:
            return self.reviews[0].after_model(state, runtime)

    review = HumanInTheLoopMiddleware(interrupt_on={"add": True})
    listed = [CodeModeMiddleware(), OnWeekdays(review)][:: 1 if is_first else -1]
    assert "__interrupt__" in Session(agent(["return await tools.add({ a: 1 })"], [add], *listed)).start()


def test_a_review_counts_where_a_step_was_made_without_it():
    shared = CodeModeMiddleware()
    program = "return await tools.add({ a: 1 })"
    assert content(Session(agent([program], [add], shared)).start()) == "3"
    review = HumanInTheLoopMiddleware(interrupt_on={"add": True})
    assert "__interrupt__" in Session(agent([program], [add], shared, review)).start()


def test_a_review_of_what_approve_lets_through_is_refused():
    review = HumanInTheLoopMiddleware(interrupt_on={"add": True})
    with pytest.raises(ValueError, match="is False, but other middleware reviews"):
        Session(agent([], [add], CodeModeMiddleware(approve={"add": False}), review)).start()


def test_reviews_of_a_class_of_ones_own_are_refused():
    class OwnReview(HumanInTheLoopMiddleware[Any, Any, Any]):
        pass

    for mode, said in (("batched", r"add.*batched.*per_call"), ("per_call", "List it after")):
        review = OwnReview(interrupt_on={"add": True}, interrupt_mode=cast("Any", mode))
        with pytest.raises(ValueError, match=said):
            Session(agent([], [add], review, CodeModeMiddleware())).start()


def test_reviews_of_kept_tools_and_of_the_program_are_fine():
    review = HumanInTheLoopMiddleware(interrupt_on={"add": True, "codeMode": True})
    graph = agent([], [add], review, CodeModeMiddleware(keep=["add"]))
    assert "__interrupt__" not in Session(graph).start()


def test_misspelt_rules_are_noticed():
    with pytest.raises(ValueError, match="'ad'"):
        agent(["return 1"], [add], CodeModeMiddleware(approve={"ad": True}))


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match=r"execution_policy\.timeout_ms"):
        CodeModeMiddleware(options={"execution_policy": {"timeout_ms": 0}})


def test_it_works_without_a_checkpointer():
    graph = create_agent(model("return await tools.add({ a: 1 })"), [add], middleware=[CodeModeMiddleware()])
    assert content(graph.invoke(START)) == "3"
    graph = create_agent(model("return await tools.add({ a: 1 })"), [add], middleware=[CodeModeMiddleware()])
    assert content(asyncio.run(graph.ainvoke(START))) == "3"
    assert calls("return 1").tool_calls[0]["name"] == "codeMode"
