"""What is read of LangGraph and LangChain that they keep to themselves: in the lowest and the newest version alike."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware, langgraph_internals
from codemode_langchain.langgraph_internals import NodeContext, UnknownVersionError, get_node_context
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
    before_model,
    wrap_tool_call,
)
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
from scripted_agent import CONFIG, Session, agent, content
from waiting import until, within

done: list[int] = []
NOTE = "return await tools.note({ n: 1 });"


@tool
def note(n: int) -> int:
    """Note a number."""
    done.append(n)
    return n


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


class Looks(CodeModeMiddleware):
    """Keeps what is found inside, beside its work."""

    found: list[NodeContext]

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self._keep()
        return super().wrap_model_call(request, handler)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self._keep()
        return await super().awrap_model_call(request, handler)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        self._keep()
        return super().wrap_tool_call(request, handler)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        self._keep()
        return await super().awrap_tool_call(request, handler)

    def _keep(self) -> None:
        node = get_node_context(ensure_config())
        assert node is not None
        assert {"messages", "code_mode_shown"} <= node.channels.keys()
        assert node.node is not None
        assert node.read("messages")
        self.found.append(node)


@wrap_tool_call
def decorated(request: Any, handler: Any) -> Any:
    """Wrap calls, as a function does."""
    return handler(request)


@before_model
def beginning(_state: Any, _runtime: Any) -> None:
    """Have a node of its own."""


class Wrapping(AgentMiddleware[Any, Any, Any]):
    """Wraps calls in its own way."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])
def test_a_node_and_its_agent_are_known(is_async: bool):
    own = Looks()
    own.found = []
    review = HumanInTheLoopMiddleware({"codeMode": False})
    limit = ToolCallLimitMiddleware(run_limit=9)
    retry, wrapping = ToolRetryMiddleware(), Wrapping()
    before, after = [wrapping] if is_async else [decorated, wrapping], [review, retry]
    graph = agent([NOTE], [note], limit, *before, own, beginning, *after)
    assert content(Session(graph, is_async).start()) == "1"
    assert len(own.found) == 3
    for node in own.found:
        assert isinstance(node.loop.stack, ExitStack | AsyncExitStack)
        assert node.step_id == (node.loop, node.loop.step)
        _, agent_parts = node.find_tool_node_and_agent_parts(own)
        listed = agent_parts.middleware
        assert list(listed[: len(before) + 3]) == [*before, own, *after]
        assert {id(one) for one in listed[len(before) + 3 :]} == {id(limit), id(beginning)}
        assert {one.name for one in agent_parts.tools} == {"codeMode", "note"}
    assert hasattr(own.found[-1].loop, "_put_checkpoint_fut")


def test_what_tasks_of_a_step_have_left_is_known():
    from langgraph.func import task  # pyright: ignore[reportMissingTypeStubs]

    found: list[list[Any]] = []

    @task
    def work() -> str:
        return "worked"

    def node(_state: dict[str, Any]) -> dict[str, Any]:
        work().result()
        here = get_node_context(ensure_config())
        assert here is not None
        found.append(here.get_step_results())
        return {}

    graph = StateGraph(dict)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    graph.compile(checkpointer=InMemorySaver()).invoke({}, CONFIG)
    assert found == [["worked"]]


def test_an_agent_that_is_gone_is_forgotten():
    own = CodeModeMiddleware()
    graph = agent([NOTE], [note], own)
    assert content(Session(graph).start()) == "1"
    assert len(own._limits) == 1
    del graph
    within(until(lambda: gc.collect() >= 0 and not own._limits))  # a thread may hold on to its last call for a moment


def test_nothing_is_inside_outside():
    assert get_node_context({"configurable": {"thread_id": "1"}}) is None


# --- versions that look different ---


class OtherToolNode(ToolNode):
    """Hides what wraps its calls, as another version might."""

    def __getattribute__(self, name: str) -> Any:
        if name == "_wrap_tool_call":
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_an_agent_that_looks_different_runs_nothing(monkeypatch: pytest.MonkeyPatch):
    """A review that nobody could find would gate nothing."""
    monkeypatch.setattr("langchain.agents.factory.ToolNode", OtherToolNode)
    graph = agent([NOTE], [note], CodeModeMiddleware(), HumanInTheLoopMiddleware({"note": True}))
    with pytest.raises(UnknownVersionError, match=r"an agent has internals.*langgraph>=1\.2\.20.*langchain>=1\.4\.6"):
        Session(graph).start()
    assert done == []


@pytest.mark.parametrize(
    "missing", [langgraph_internals.READ, langgraph_internals.SEND, langgraph_internals.SCRATCHPAD]
)
def test_a_node_that_looks_different_is_an_error(missing: str):
    configs: list[Any] = []

    def node(_state: dict[str, Any]) -> dict[str, Any]:
        config = ensure_config()
        configurable = {key: one for key, one in config.get("configurable", {}).items() if key != missing}
        with pytest.raises(UnknownVersionError, match="a running node has internals"):
            get_node_context({**config, "configurable": configurable})
        configs.append(config)
        return {}

    graph = StateGraph(dict)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    asyncio.run(graph.compile().ainvoke({}))
    assert len(configs) == 1


def test_a_version_that_nobody_has_tried_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setitem(langgraph_internals.TESTED_VERSIONS, "langgraph", ((0, 1), (0, 2)))
    langgraph_internals.warn_about_untested_versions.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "codemode.tools"):
            for _ in range(2):
                assert content(Session(agent([NOTE], [note], CodeModeMiddleware())).start()) == "1"
    finally:
        langgraph_internals.warn_about_untested_versions.cache_clear()
    (told,) = [one.getMessage() for one in caplog.records if "is untested" in one.getMessage()]
    assert "langgraph>=0.1,<0.2" in told


def test_the_installed_versions_are_known(caplog: pytest.LogCaptureFixture):
    langgraph_internals.warn_about_untested_versions.cache_clear()
    langgraph_internals.warn_about_untested_versions()
    assert not caplog.records
