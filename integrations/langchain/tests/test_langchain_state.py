"""State between programs, in the graph's own: of one thread, with its checkpoints, across pauses and side by side."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Annotated, Any

from codemode_langchain import CodeModeMiddleware
from codemode_langchain.graph_state import make_state_backend, make_state_commands, merge_values_and_drop_none
from langchain.agents import AgentState, create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command
from scripted_agent import APPROVE, START, Session, asking, calls

COUNT = "await state.set('n', (await state.get('n') ?? 0) + 1); return await state.get('n')"


def thread(name):
    return {"configurable": {"thread_id": name}}


@tool
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def agent(*messages, checkpointer=None, **more):
    middleware = [CodeModeMiddleware(approve={"pay": True}, **more)]
    return create_agent(asking(*messages), [pay], middleware=middleware, checkpointer=checkpointer)


def answers(result):
    return [one.content for one in result["messages"] if isinstance(one, ToolMessage)]


def test_programs_of_a_thread_find_what_was_left_and_nobody_else_does():
    saver = InMemorySaver()
    assert answers(agent(calls(COUNT), calls(COUNT), checkpointer=saver).invoke(START, thread("a"))) == ["1", "2"]
    resumed = asyncio.run(agent(calls(COUNT), checkpointer=saver).ainvoke(START, thread("a")))
    assert answers(resumed)[-1] == "3"
    assert "code_mode_state" not in resumed
    assert answers(agent(calls(COUNT), checkpointer=saver).invoke(START, thread("b"))) == ["1"]
    forged = {**START, "code_mode_state": {"n": "41"}}
    assert answers(agent(calls(COUNT), checkpointer=saver).invoke(forged, thread("c"))) == ["1"]


def test_what_was_written_before_a_pause_holds_behind_it_in_another_process():
    saver = InMemorySaver()
    js = "await state.set('k', [1]); await tools.pay({ cents: 5 }); return [await state.get('k'), await state.keys()];"
    paused = agent(calls(js), checkpointer=saver).invoke(START, thread("a"))
    assert paused["__interrupt__"]
    # Another agent stands for another process: nothing of the first one's memory is in it.
    other = agent(calls("return await state.get('k')"), checkpointer=saver)
    result = other.invoke(Command(resume={"type": "approve"}), thread("a"))
    assert answers(result) == ['[[1], ["k"]]', "[1]"]


def test_what_a_program_wrote_stays_when_it_fails():
    failing = "await state.set('n', 7); throw new Error('later')"
    result = agent(calls(failing), calls(COUNT), checkpointer=InMemorySaver()).invoke(START, thread("a"))
    assert answers(result)[1] == "8"


def test_programs_side_by_side_keep_their_own_results():
    large = [f"return Array.from({{ length: {length} }}, (_, n) => n)" for length in (9000, 8000)]
    read = "return [(await state.get('result:1')).length, (await state.get('result:2')).length]"
    result = agent(calls(*large), calls(read), checkpointer=InMemorySaver()).invoke(START, thread("a"))
    told = answers(result)
    assert 'state.get("result:1")' in told[0]
    assert 'state.get("result:2")' in told[1]
    assert told[2] == "[9000, 8000]"


def test_a_place_of_the_hosts_own_stands_in_for_it_and_false_turns_it_off():
    mapping = {}
    assert answers(agent(calls(COUNT), options={"state": mapping}).invoke(START)) == ["1"]
    assert mapping == {"n": 1}
    assert answers(agent(calls("return typeof state"), options={"state": False}).invoke(START)) == ["undefined"]


def test_the_channel_takes_one_key_at_a_time():
    assert merge_values_and_drop_none({"a": "1", "b": "2", "__proto__": "3"}, {"a": "4", "b": None}) == {
        "a": "4",
        "__proto__": "3",
    }


def test_only_texts_of_the_state_are_read():
    asked = AIMessage("", tool_calls=[{"name": "codeMode", "args": {}, "id": one} for one in ("x", "y")])
    place = make_state_backend({"code_mode_state": {"a": "1", "b": 5, "c": None}, "messages": [asked]}, "y")
    assert asyncio.run(place.keys()) == ["a"]
    assert place.number_offset == 1
    assert make_state_commands(SimpleNamespace(place=place)) == make_state_commands(object()) == ()
    for state in (None, [], {"messages": None, "code_mode_state": None}):
        assert asyncio.run(make_state_backend(state, "x").keys()) == []


class Levels(AgentState[Any]):
    level: int


@tool
def climb(runtime: ToolRuntime[Any, Any]) -> Command[Any]:
    """Go up by one."""
    said = ToolMessage("up", tool_call_id=runtime.tool_call_id)
    return Command(update={"level": runtime.state["level"] + 1, "messages": [said]})


@tool
async def look(
    state: Annotated[dict[str, Any], InjectedState],
    level: Annotated[int, InjectedState("level")],
    runtime: ToolRuntime[Any, Any],
) -> list[int]:
    """Tell the level, as each way of injecting it does."""
    return [state["level"], level, runtime.state["level"]]


def test_what_is_injected_is_what_calls_before_have_written():
    """Also behind a pause, and in the next step."""
    js = """
    const seen = [await tools.look({})];
    await tools.climb({});
    seen.push(await tools.look({}));
    await tools.gated({});
    await tools.climb({});
    seen.push(await tools.look({}));
    return seen;
    """

    @tool
    def gated() -> str:
        """Wait."""
        return "done"

    messages = asking(calls(js), calls("return await tools.look({})"))
    own = CodeModeMiddleware(approve={"gated": True})
    settings = {"checkpointer": InMemorySaver(), "state_schema": Levels}
    graph = create_agent(messages, [climb, look, gated], middleware=[own], **settings)
    session = Session(graph, is_async=True)
    (waiting,) = session.send({**START, "level": 0})["__interrupt__"]
    output = session.answer({waiting.id: APPROVE})
    first, second = (json.loads(one.content) for one in output["messages"] if one.type == "tool")
    assert first == [[0] * 3, [1] * 3, [2] * 3]
    assert second == [2] * 3
