"""Async-only tools under `invoke`: the developer is told before a program runs, and the model nothing."""

from __future__ import annotations

from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware, create_code_call_tools, create_code_mode_tool, create_exec_wait_tools
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from scripted_agent import CONFIG, START, agent, content

from codemode import CodeModeToolError

made: list[str] = []


@tool
def note(text: str) -> str:
    """Note it."""
    made.append(text)
    return text


@tool
async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


TOOLS = [note, shout]
REFUSED = r"tool 'shout' is an async function, .* use ainvoke or astream"


def test_an_agent_raises_it_before_the_program_runs():
    made.clear()
    program = "await tools.note({ text: 'a' }); return await tools.shout({ text: 'b' })"
    with pytest.raises(CodeModeToolError, match=REFUSED):
        agent([program], TOOLS, CodeModeMiddleware()).invoke(START, CONFIG)
    assert made == []


def test_every_surface_raises_it_before_anything_runs():
    made.clear()
    script = "await callTool('note', { text: 'a' }); return await callTool('shout', { text: 'b' })"
    code = "await tools.note({ text: 'a' }); const { shout } = tools; return await shout({ text: 'b' })"
    execute = next(one for one in create_code_call_tools(TOOLS) if one.name.endswith("execute"))
    code_mode = create_code_mode_tool(TOOLS)
    start = next(one for one in create_exec_wait_tools(TOOLS) if one.name == "exec")
    given: list[tuple[Any, dict[str, Any]]] = [
        (execute, {"script": script}),
        (code_mode, {"js": code}),
        (start, {"code": code}),
    ]
    for one, arguments in given:
        with pytest.raises(CodeModeToolError, match=REFUSED):
            one.invoke(arguments)
    assert made == []


def test_a_program_that_does_not_call_it_runs():
    js = "return [await tools.note({ text: 'shout' }), 'shout'.length]"
    assert create_code_mode_tool(TOOLS).invoke({"js": js}) == ["shout", 5]


class Answering(AgentMiddleware[Any, Any, Any]):
    """Answers each call in the place of its tool."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        if request.tool_call["name"] == "codeMode":
            return handler(request)
        return ToolMessage("emulated", tool_call_id=request.tool_call["id"], name=request.tool_call["name"])


def test_middleware_may_answer_in_the_place_of_the_tool():
    program = "return await tools.shout({ text: 'b' })"
    output = agent([program], TOOLS, CodeModeMiddleware(), Answering()).invoke(START, CONFIG)
    assert content(output) == "emulated"
