"""Several programs in one node of a graph: what one asks does not end another that was answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from codemode_langchain import create_code_call_tools, create_code_mode_tool
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from scripted_agent import APPROVE, asks, results

_TICKS = 200
_ROUNDS = 6


def code_mode(tools: list[Any], approve: Any) -> tuple[list[Any], AIMessage]:
    made = [create_code_mode_tool(tools, approve=approve)]
    programs = ("await tools.wait(); return await tools.refund({ order: 'a' })", "return tools.refund({ order: 'b' })")
    return made, asks(*(("codeMode", {"js": js}) for js in programs))


def code_call(tools: list[Any], approve: Any) -> tuple[list[Any], AIMessage]:
    made = create_code_call_tools(tools, {"directCalls": {"enabled": True}}, approve=approve)
    script = {"script": "await callTool('wait'); return await callTool('refund', { order: 'a' })"}
    direct = {"tool": "refund", "input": {"order": "b"}}
    return made, asks(("codecall_execute", script), ("codecall_invoke", direct))


@pytest.mark.parametrize("face", [code_mode, code_call])
def test_an_answered_program_goes_on_beside_one_that_asks(face: Any):
    """A node ends as soon as one of its calls raises an interrupt; what starts in it after that ends with its loop."""
    done: list[str] = []

    @tool
    async def wait() -> None:
        """Let the other program ask first."""
        for _ in range(_TICKS):
            await asyncio.sleep(0)

    @tool
    async def refund(order: str) -> str:
        """Give the money for an order back."""
        done.append(order)
        return f"refunded {order}"

    made, message = face([wait, refund], {"refund": True})
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(made))
    graph.set_entry_point("tools")
    compiled: Any = graph.compile(checkpointer=InMemorySaver())
    for number in range(_ROUNDS):
        config = {"configurable": {"thread_id": str(number)}}
        output = asyncio.run(compiled.ainvoke({"messages": [message]}, config))
        for _ in range(5):
            if "__interrupt__" in output:
                answer = Command(resume={output["__interrupt__"][0].id: APPROVE})
                output = asyncio.run(compiled.ainvoke(answer, config))
        messages = results(output)
        assert [one.status for one in messages] == ["success", "success"], messages
        assert all(f"refunded {order}" in one.content for order, one in zip("ab", messages, strict=True))
    assert sorted(done) == [*"a" * _ROUNDS, *"b" * _ROUNDS]
