"""What nested calls leave for the state arrives once, in a shape that other middleware and the graph can live with."""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import Callable
from typing import Annotated, Any, NotRequired

import pytest
from codemode_langchain import CodeModeMiddleware, create_code_mode_tool
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage, convert_to_messages
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import START as ENTRY
from langgraph.graph import MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, Overwrite, Send
from scripted_agent import START, ScriptedModel, Session, agent, calls, content, model, results
from suite import full_only, rounds


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


CallId = Annotated[str, InjectedToolCallId]


def merged(left: dict[str, Any] | None, right: dict[str, Any]) -> dict[str, Any]:
    """A reducer like that of files: None deletes."""
    return {key: value for key, value in {**(left or {}), **right}.items() if value is not None}


class Notes(AgentState[Any]):
    user: NotRequired[str]
    log: NotRequired[Annotated[list[int], operator.add]]
    files: NotRequired[Annotated[dict[str, Any], merged]]


@tool
def name_user(name: str, call_id: CallId) -> Command[Any]:
    """Set a channel that takes one value in a step."""
    return Command(update={"user": name, "messages": [ToolMessage(f"user is {name}", tool_call_id=call_id)]})


@tool
def note(n: int, call_id: CallId) -> Command[Any]:
    """Add to a channel with a reducer."""
    return Command(update={"log": [n], "messages": [{"role": "tool", "content": f"{n}", "tool_call_id": call_id}]})


@tool
def put(path: str, text: str | None, call_id: CallId) -> Command[Any]:
    """Write or delete a file."""
    return Command(update={"files": {path: text}, "messages": [ToolMessage("put", tool_call_id=call_id)]})


@tool
def look(state: Annotated[dict[str, Any], InjectedState]) -> dict[str, Any]:
    """Look at the state."""
    return {key: state.get(key) for key in ("user", "log", "files")}


@tool
def start_over(log: list[int], is_mapping: bool, call_id: CallId) -> Command[Any]:
    """Replace what a channel with a reducer holds."""
    value = {"__overwrite__": log} if is_mapping else Overwrite(log)
    return Command(update={"log": value, "messages": [ToolMessage("over", tool_call_id=call_id)]})


NOTES = [name_user, note, put, look, start_over]


class Strict(AgentMiddleware[Any, Any, Any]):
    """Takes what the contract names, as deepagents' own middleware does."""

    def __init__(self, place: str = "before") -> None:
        super().__init__()
        self.seen: list[Any] = []
        self._place = place

    @property
    def name(self) -> str:
        return f"Strict {self._place}"

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return self._checked(request, handler(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return self._checked(request, await handler(request))

    def _checked(self, request: Any, result: Any) -> Any:
        self.seen.append(result)
        if isinstance(result, ToolMessage):
            return result
        assert isinstance(result, Command)
        messages = [one for one in convert_to_messages(result.update["messages"]) if isinstance(one, ToolMessage)]
        assert [one.tool_call_id for one in messages] == [request.tool_call["id"]]
        return Command(goto=result.goto, graph=result.graph, update={**result.update})


JUST_ONE = "return await tools.name_user({ name: 'Eve' })"
ONE_AFTER_THE_OTHER = """
await tools.name_user({ name: 'Ada' }); await tools.note({ n: 1 }); await tools.put({ path: 'a', text: 'x' });
await tools.name_user({ name: 'Eve' }); await tools.note({ n: 2 }); await tools.put({ path: 'a', text: null });
await tools.put({ path: 'b', text: 'y' });
return await tools.look({});
"""
SIDE_BY_SIDE = """
return await Promise.all([tools.name_user({ name: 'Eve' }), tools.note({ n: 1 }), tools.note({ n: 2 })]);
"""


@pytest.mark.parametrize("js", [JUST_ONE, ONE_AFTER_THE_OTHER, SIDE_BY_SIDE], ids=["one", "several", "side by side"])
def test_a_program_gives_one_command_and_never_a_list(js: str, is_async: bool):
    before, after = Strict(), Strict("after")
    graph = create_agent(
        model(js), NOTES, middleware=[before, CodeModeMiddleware(), after], state_schema=Notes, checkpointer=None
    )
    output = Session(graph, is_async).send({**START, "files": {"a": "old"}})
    (result,) = before.seen
    assert isinstance(result, Command)
    assert output["user"] == "Eve"
    (message,) = results(output)
    assert (message.tool_call_id, message.status, message.name) == ("call_0", "success", "codeMode")
    if js is ONE_AFTER_THE_OTHER:
        assert message.content == '{"user": "Eve", "log": [1, 2], "files": {"b": "y"}}'
        assert (output["log"], output["files"]) == ([1, 2], {"b": "y"})
    if js is SIDE_BY_SIDE:
        assert message.content == '["user is Eve", "1", "2"]'
        assert sorted(output["log"]) == [1, 2]


def test_a_program_without_updates_gives_a_message():
    before = Strict()
    Session(agent(["return await tools.look({})"], NOTES, before, CodeModeMiddleware(), state_schema=Notes)).start()
    assert [type(one) for one in before.seen] == [ToolMessage]


def test_updates_of_a_failed_program_arrive_with_its_failure(is_async: bool):
    js = "await tools.note({ n: 1 }); throw new Error('enough')"
    before = Strict()
    graph = agent([js], NOTES, before, CodeModeMiddleware(), state_schema=Notes)
    output = Session(graph, is_async).start()
    (message,) = results(output)
    assert (message.status, output["log"]) == ("error", [1])
    assert "enough" in message.content


def test_updates_of_the_state_arrive_from_a_tool_node_of_ones_own(is_async: bool):
    class Own(MessagesState):
        user: str

    builder: Any = StateGraph(Own)
    builder.add_node("tools", ToolNode([create_code_mode_tool([name_user])]))
    builder.add_edge(ENTRY, "tools")
    output = Session(builder.compile(), is_async).send({"messages": [calls(JUST_ONE)], "user": "nobody"})
    assert output["user"] == "Eve"
    assert output["messages"][-1].content == "user is Eve"


def test_messages_arrive_where_a_list_of_them_is_the_whole_state(is_async: bool):
    @tool
    def hum(call_id: CallId) -> Command[Any]:
        """Hum."""
        return Command(update=[HumanMessage("hm"), ToolMessage("hummed", tool_call_id=call_id)])

    builder: Any = StateGraph(Annotated[list[Any], operator.add])
    builder.add_node("tools", ToolNode([create_code_mode_tool([hum])]))
    builder.add_edge(ENTRY, "tools")
    output = Session(builder.compile(), is_async).send([calls("return await tools.hum({})")])
    assert [one.content for one in output[1:]] == ["hm", "hummed"]
    assert output[-1].tool_call_id == "call_0"


def test_messages_under_another_key_of_the_state_arrive(is_async: bool):
    class Chat(AgentState[Any]):
        chat: Annotated[list[Any], operator.add]

    @tool
    def say(call_id: CallId) -> Command[Any]:
        """Say."""
        return Command(update={"chat": [ToolMessage("said", tool_call_id=call_id), HumanMessage("heard")]})

    builder: Any = StateGraph(Chat)
    builder.add_node("tools", ToolNode([create_code_mode_tool([say])], messages_key="chat"))
    builder.add_edge(ENTRY, "tools")
    output = Session(builder.compile(), is_async).send({"chat": [calls("return await tools.say({})")], "messages": []})
    assert [one.content for one in output["chat"][1:]] == ["said", "heard"]


def test_the_answer_follows_the_call_whatever_else_is_said(is_async: bool):
    @tool
    def chat(call_id: CallId) -> Command[Any]:
        """Chat."""
        return Command(update={"messages": [ToolMessage("chatted", tool_call_id=call_id), HumanMessage("so there")]})

    @tool
    def forget(call_id: CallId, state: Annotated[dict[str, Any], InjectedState]) -> Command[Any]:
        """Forget all but the last message."""
        kept = [RemoveMessage(id=REMOVE_ALL_MESSAGES), state["messages"][-1], ToolMessage("gone", tool_call_id=call_id)]
        return Command(update={"messages": kept})

    graph = agent(["return [await tools.chat({}), await tools.chat({})]"], [chat], CodeModeMiddleware())
    said = [one.content for one in Session(graph, is_async).start()["messages"]]
    assert said[2:] == ['["chatted", "chatted"]', "so there", "so there", "done"]
    graph = agent(["return await tools.forget({})"], [forget], CodeModeMiddleware())
    assert [one.type for one in Session(graph, is_async).start()["messages"]] == ["ai", "tool", "ai"]


# --- read and written beside the commands, as deepagents' files are ---


@tool
def write_now(path: str, text: str) -> str:
    """Write a file at once."""
    get_config()["configurable"]["__pregel_send"]([("files", {path: text})])
    return "written"


@tool
def read_now(path: str) -> str:
    """Read a file."""
    return get_config()["configurable"]["__pregel_read"]("files", True).get(path, "missing")


def test_writes_that_pass_by_the_result_are_read_by_later_calls_and_survive_a_pause(is_async: bool):
    js = """
    await tools.write_now({ path: 'a', text: '1' });
    await tools.put({ path: 'b', text: '2' });
    const read = [await tools.read_now({ path: 'a' }), await tools.read_now({ path: 'b' })];
    await tools.name_user({ name: 'Eve' });
    read.push(await tools.read_now({ path: 'a' }));
    await tools.write_now({ path: 'a', text: '3' });
    return [...read, await tools.read_now({ path: 'a' }), await tools.look({})];
    """
    middleware = CodeModeMiddleware(approve={"name_user": True})
    graph = agent([js], [*NOTES, write_now, read_now], middleware, state_schema=Notes)
    session = Session(graph, is_async)
    output = session.finish(session.start(), lambda _one: {"type": "approve"})
    assert content(output) == ('["1", "2", "1", "3", {"user": "Eve", "log": [], "files": {"a": "3", "b": "2"}}]')
    assert (output["files"], output["user"]) == ({"a": "3", "b": "2"}, "Eve")


# --- what is equal to a model that makes the same calls one after the other ---

Step = tuple[str, dict[str, Any]]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("name_user"), st.fixed_dictionaries({"name": st.sampled_from("AB")})),
        st.tuples(st.just("note"), st.fixed_dictionaries({"n": st.integers(0, 9)})),
        st.tuples(
            st.just("start_over"),
            st.fixed_dictionaries({"log": st.lists(st.integers(0, 9), max_size=2), "is_mapping": st.booleans()}),
        ),
        st.tuples(
            st.just("put"),
            st.fixed_dictionaries({"path": st.sampled_from("ab"), "text": st.sampled_from([None, "x", "y"])}),
        ),
    ),
    max_size=8,
)


def natively(steps: list[Step]) -> dict[str, Any]:
    asked = [
        AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"c{place}", "type": "tool_call"}])
        for place, (name, args) in enumerate(steps)
    ]
    scripted = ScriptedModel(messages=iter([*asked, AIMessage("done")]), shown=[])
    return create_agent(scripted, NOTES, state_schema=Notes).invoke(START)


@settings(max_examples=rounds(12, 30), deadline=None)
@given(steps=STEPS)
def test_the_state_is_that_of_the_same_calls_made_by_the_model(steps: list[Step]):
    lines = [f"await tools.{name}({json.dumps(args)});" for name, args in steps]
    js = "\n".join([*lines, "return await tools.look({})"])
    graph = create_agent(model(js), NOTES, middleware=[CodeModeMiddleware()], state_schema=Notes)
    output, expected = graph.invoke(START), natively(steps)
    assert {key: one for key, one in json.loads(content(output)).items() if one} == {
        key: one for key in ("user", "log", "files") if (one := expected.get(key))
    }
    for key in ("user", "log", "files"):
        assert output.get(key) == expected.get(key)


# --- handing over to another agent ---


def transfer_message(call_id: str, state: dict[str, Any]) -> list[Any]:
    last = next(one for one in reversed(state["messages"]) if isinstance(one, AIMessage))
    return [last, ToolMessage("over to Bob", tool_call_id=call_id)]


def by_update(call_id: str, state: dict[str, Any]) -> Command[Any]:
    return Command(goto="bob", graph=Command.PARENT, update={"messages": transfer_message(call_id, state)})


def as_mapping(call_id: str, state: dict[str, Any]) -> Command[Any]:
    answer = {"role": "tool", "content": "over to Bob", "tool_call_id": call_id}
    return Command(goto="bob", graph=Command.PARENT, update={"messages": [*state["messages"], answer]})


def by_send(call_id: str, state: dict[str, Any]) -> Command[Any]:
    messages = transfer_message(call_id, state)
    return Command(
        goto=[Send("bob", {**state, "messages": messages})], graph=Command.PARENT, update={"messages": messages}
    )


def without_answer(call_id: str, state: dict[str, Any]) -> Command[Any]:
    return Command(goto="bob", graph=Command.PARENT, update={"messages": state["messages"]})


HANDOVERS = [by_update, as_mapping, by_send, without_answer]


def unanswered(messages: list[Any]) -> set[str]:
    asked = {call["id"] for one in messages if isinstance(one, AIMessage) for call in one.tool_calls}
    answered = [one.tool_call_id for one in messages if isinstance(one, ToolMessage)]
    assert len(set(answered)) == len(answered)
    assert set(answered) <= asked
    return asked - set(answered)


def two_agents(js: str, handover: Callable[..., Any], seen: list[list[Any]]) -> Any:
    @tool
    def transfer(call_id: CallId, state: Annotated[dict[str, Any], InjectedState]) -> Command[Any]:
        """Hand over to Bob."""
        return handover(call_id, state)

    alice = create_agent(model(js), [transfer, *NOTES], middleware=[CodeModeMiddleware()], state_schema=Notes)

    def bob(state: Any) -> Any:
        seen.append(state["messages"])
        return {"messages": [AIMessage("Bob here")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("alice", alice, destinations=("bob",))
    builder.add_node("bob", bob)
    builder.add_edge(ENTRY, "alice")
    return builder.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize(
    "js",
    [*full_only("return await tools.transfer({})"), "await tools.note({ n: 1 }); await tools.transfer({}); return 'x'"],
)
@pytest.mark.parametrize("handover", HANDOVERS)
def test_a_handoff_leaves_no_call_unanswered(handover: Any, js: str, is_async: bool):
    seen: list[list[Any]] = []
    output = Session(two_agents(js, handover, seen), is_async).start()
    assert output["messages"][-1].content == "Bob here"
    assert unanswered(seen[0]) == set()
    assert unanswered(output["messages"]) == set()


def test_two_handoffs_of_one_program_are_one(is_async: bool):
    seen: list[list[Any]] = []
    js = "return await Promise.all([tools.transfer({}), tools.transfer({})])"
    output = Session(two_agents(js, by_update, seen), is_async).start()
    assert len(seen) == 1
    assert unanswered(output["messages"]) == set()


def test_a_graph_inside_a_tool_hands_over_to_the_agent(is_async: bool):
    @tool
    def leave(call_id: CallId) -> Command[Any]:
        """Leave."""
        return Command(graph=Command.PARENT, update={"user": "Eve"})

    inner = create_agent(
        ScriptedModel(
            messages=iter([AIMessage("", tool_calls=[{"name": "leave", "args": {}, "id": "i", "type": "tool_call"}])]),
            shown=[],
        ),
        [leave],
    )

    @tool
    async def delegate() -> str:
        """Ask another agent."""
        return str(await inner.ainvoke(START))

    @tool
    def delegate_now() -> str:
        """Ask another agent."""
        return str(inner.invoke(START))

    chosen, name = (delegate, "delegate") if is_async else (delegate_now, "delegate_now")
    graph = agent([f"await tools.{name}({{}}); return 'after'"], [chosen], CodeModeMiddleware(), state_schema=Notes)
    output = Session(graph, is_async).start()
    assert content(output) == "after"
    assert output["user"] == "Eve"


def test_a_tool_called_outside_a_graph_gives_its_command():
    code_mode = create_code_mode_tool([note])
    call = {"name": "codeMode", "args": {"js": "return await tools.note({ n: 3 })"}, "id": "c", "type": "tool_call"}
    for command in (code_mode.invoke(call), asyncio.run(code_mode.ainvoke(call))):
        assert command.update["log"] == [3]
        (message,) = command.update["messages"]
        assert (message.tool_call_id, message.content) == ("c", "3")
