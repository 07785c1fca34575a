"""pydantic-ai tools in the core's own codeMode tool, and values on their way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import ModelRetry, RunContext, Tool

from codemode import CallContext, CodeModeToolError, Interrupt, create_code_mode_tool


def double(n: int) -> int:
    """Twice a number."""
    return n * 2


def executed(tools: Any, js: str, options: Any = None, **settings: Any) -> Any:
    code_mode = create_code_mode_tool(tools, options)
    return asyncio.run(asyncio.wait_for(code_mode.execute(js, CallContext(**settings)), 60))


def test_a_tool_object_is_a_tool() -> None:
    assert executed([Tool(double)], "return await tools.double({ n: 4 })") == 8
    assert "Twice a number." in create_code_mode_tool([Tool(double)]).description


def test_its_name_is_the_key_of_a_mapping() -> None:
    assert executed({"twice": Tool(double)}, "return await tools.twice({ n: 4 })") == 8


def test_deps_are_the_context_of_the_call() -> None:
    def greet(ctx: RunContext[str], greeting: str) -> str:
        return f"{greeting} {ctx.deps}"

    assert executed([Tool(greet)], "return await tools.greet({ greeting: 'hi' })", context="ann") == "hi ann"


def test_a_retry_is_an_error_that_the_program_reads() -> None:
    def picky(n: int) -> int:
        raise ModelRetry("n must be prime")

    with pytest.raises(CodeModeToolError, match="n must be prime"):
        executed([Tool(picky)], "return await tools.picky({ n: 4 })")


def test_its_approval_is_the_approval_of_the_core() -> None:
    async def main() -> Any:
        code_mode = create_code_mode_tool([Tool(double, requires_approval=True)], {"approval": {"mode": "interrupt"}})
        interrupt = await code_mode.execute({"js": "return await tools.double({ n: 4 })"})
        assert isinstance(interrupt, Interrupt)
        return await code_mode.resume(interrupt, {"approved": True, "input": {"n": 5}})

    assert asyncio.run(asyncio.wait_for(main(), 60)) == 10
