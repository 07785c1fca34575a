"""Stored threads whose claims are elsewhere, and the settings with which their runs go on."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from codemode_langchain import (
    CodeCallMiddleware,
    CodeModeMiddleware,
    ExecWaitMiddleware,
    StoredPauses,
    create_code_mode_tool,
)
from langchain.agents import create_agent
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt
from scripted_agent import ScriptedModel
from suite import each_row
from test_langchain_stored_pauses import KEYS, Desk, in_memory

from codemode.stores import MemoryInterruptStore


def _outer(desk: Desk, how: str, continuation: Any) -> Any:
    """A graph whose tools run programs that are resumed so."""
    options: Any = {"continuation": continuation}
    if how == "tool":
        made = StateGraph(MessagesState)
        made.add_node("tools", ToolNode([create_code_mode_tool(desk.tools(), options)]))
        made.add_edge(START, "tools")
        return made.compile(checkpointer=desk.saver)
    middleware: Any = {
        "CodeCall": lambda: CodeCallMiddleware(options={"settings": options}),
        "exec": lambda: ExecWaitMiddleware(settings=options),
    }.get(how, lambda: CodeModeMiddleware(options=options))()
    agent: Any = create_agent(ScriptedModel(messages=iter([])), desk.tools(), middleware=[middleware])
    if how != "within":
        agent.checkpointer = desk.saver
        return agent
    made = StateGraph(MessagesState)
    made.add_node("agent", agent)
    made.add_edge(START, "agent")
    return made.compile(checkpointer=desk.saver)


@each_row("how", ["agent", "within", "tool", "CodeCall", "exec"])
def test_programs_whose_claims_are_elsewhere_are_refused(how: str) -> None:
    desk = Desk(MemoryInterruptStore(), InMemorySaver())
    for continuation in ({}, {"guard": MemoryInterruptStore().guard}):
        with pytest.raises(ValueError, match=r"another guard than the store's.*\{'guard': store\.guard\}"):
            desk.pauses(graph=_outer(desk, how, continuation))
    journal = desk.store.journal(tenant="acme", app="langgraph")
    for enough in ({"guard": desk.store.guard}, {"keys": KEYS, "conversation_id": "t", "journal": journal}):
        assert isinstance(desk.pauses(graph=_outer(desk, how, enough)), StoredPauses)


def test_settings_of_a_run_that_goes_on_are_those_its_record_calls_for() -> None:
    class State(TypedDict, total=False):
        said: Any

    def ask(_state: State, config: RunnableConfig) -> State:
        return {"said": [interrupt("who?"), config["configurable"].get("clerk")]}

    async def scenario(desk: Desk) -> None:
        made = StateGraph(State)
        made.add_node("ask", ask)
        made.add_edge(START, "ask")
        graph = made.compile(checkpointer=desk.saver)

        async def settings(record: Any) -> Any:
            return {"config": {"configurable": {"clerk": record.labels["clerk"], "thread_id": "another"}}}

        run = await desk.pauses(graph=graph).ainvoke({}, labels={"clerk": "1"})
        told = await desk.resumed(run, "me", graph=graph, outcome_of=None, resume_with=settings)
        assert told == {"said": ["me", "1"]}

    in_memory(scenario)
