"""Usual mistakes of who gives an agent programs: each is told at once, with what to write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from codemode_pydantic_ai import (
    CodeCall,
    CodeCallToolset,
    CodeMode,
    CodeModeToolset,
    ExecWait,
    create_code_mode_tool,
)
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset
from suite import each_row

WAIT_SECONDS = 60.0


def double(n: int) -> int:
    """Twice a number."""
    return n * 2


def test_wrong_options_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"execution_policy\.timeout_ms"):
        CodeMode({"execution_policy": {"timeout_ms": 0}})


@pytest.mark.parametrize("make", [CodeMode, lambda options: CodeCall(settings=options)])
def test_a_function_that_would_never_be_asked_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="on_approval_required would never be called: give the agent a Handle"):
        make({"approval": {"on_approval_required": lambda request: {"approved": True}}})


@pytest.mark.parametrize("capability", [CodeMode, CodeCall, ExecWait])
def test_who_gives_an_agent_the_class_is_told_to_write_an_object(capability: Any) -> None:
    agent = Agent(TestModel(), tools=[double], capabilities=[capability])
    with pytest.raises(UserError, match=rf"write {capability.__name__}\(\) instead of"):
        asyncio.run(asyncio.wait_for(agent.run("go"), WAIT_SECONDS))


@each_row(
    "given, said",
    [
        (double, "tools must be a toolset, or a list of tools and functions, got function"),
        ("double", "got str"),
        ({"double": double}, "got dict"),
        (Agent(TestModel(), tools=[double]), "got Agent"),
        (["double"], r"tools must be pydantic_ai\.Tool objects and functions, got str"),
        ([FunctionToolset([double])], r"FunctionToolset is no tool: give a toolset alone, several as CombinedToolset"),
    ],
)
def test_what_is_no_list_of_tools_is_told_at_once(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        create_code_mode_tool(given)


@each_row("wrapped", [[double], double, None])
@each_row("kind", [CodeModeToolset, CodeCallToolset])
def test_what_is_no_toolset_is_told_at_once(kind: Any, wrapped: Any) -> None:
    with pytest.raises(ValueError, match=r"expected a toolset, such as FunctionToolset\(\[\.\.\.\]\), got"):
        kind(wrapped)
