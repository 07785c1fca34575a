"""A node that LangGraph runs again after its process died finds the same ids, numbers and time, if a key is set."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from scripted_agent import APPROVE, ScriptedModel, Session, agent, calls, content, model, results
from suite import full_only

KEY = {"continuation": {"keys": "k" * 32}}
JS = "await tools.say({ text: JSON.stringify([Math.random(), Date.now()]) }); return await tools.say({ text: 'end' })"


class Dies(BaseException):
    """Ends a run as a killed process would: nothing of the node is recorded."""


class Said:
    """A tool that remembers what it said, and at first dies of the end."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.is_dying = True

        @tool
        def say(text: str) -> str:
            """Say."""
            if text == "end" and self.is_dying:
                raise Dies
            self.said.append(text)
            return text

        self.tool = say


@pytest.fixture(params=[False, *full_only(True)], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


def run_again(is_async: bool, options: Any) -> list[Any]:
    """What a program saw in the run that died and in the one after."""
    said = Said()
    saver = InMemorySaver()
    graph = create_agent(model(JS), [said.tool], middleware=[CodeModeMiddleware(options=options)], checkpointer=saver)
    session = Session(graph, is_async)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - each path words it in its own way
        session.start()
    assert "Dies" in repr([caught.value, caught.value.__cause__, caught.value.__context__])
    said.is_dying = False
    (asked,) = session.send(None)["__interrupt__"]
    assert asked.value["type"] == "unknown_outcome"
    assert content(session.answer({asked.id: APPROVE})) == "end"
    return [json.loads(one) for one in said.said if one != "end"]


def test_the_program_is_the_same_again_when_its_node_is(is_async: bool):
    first, second = run_again(is_async, KEY)
    assert first == second
    assert abs(first[1] - time.time() * 1000) < 600_000


def test_without_a_key_a_program_that_runs_again_has_another_seed(is_async: bool):
    first, second = run_again(is_async, None)
    assert first[0] != second[0]


def test_programs_of_other_threads_and_turns_have_other_seeds():
    """Their models repeat ids of calls and programs."""
    seen: set[str] = set()
    for thread in ("a", "b"):
        turns = [message for _ in range(2) for message in (calls("return Math.random()"), AIMessage("done"))]
        said = ScriptedModel(messages=iter(turns), shown=[])
        graph = agent((), [], CodeModeMiddleware(options=KEY), model=said)
        session = Session(graph, config={"configurable": {"thread_id": thread}})
        session.start()
        seen.update(one.content for one in results(session.start()))
    assert len(seen) == 4
