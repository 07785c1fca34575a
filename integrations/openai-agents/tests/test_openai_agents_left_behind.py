"""What runs of agents leave behind in the process, whatever their end: nothing of agent, tools and themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from agents import Agent, Runner, RunState, UserError, function_tool
from census import left_by_each
from codemode_openai_agents import code_mode, with_code_mode
from scripted_model import QUIET, Script, agent, program
from suite import full_only
from waiting import within

RUNS = 4
CLAIMS = ("codemode.continuations.guard._ClaimRow", "codemode.continuations.guard.Claim")
REFUND = 'return await tools.refund({ order: "a" });'
PROGRAMS = {
    "completed": 'return await tools.stock({ product: "nut" });',
    "thrown": 'await tools.stock({ product: "nut" }); throw new Error("no");',
    "raised": "return await tools.breaks();",
    "cancelled": "return await tools.endless();",
}


class Deps:
    """What the tools of one request know, as clients and connections."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()


def tools_of(deps: Deps) -> list[Any]:
    @function_tool
    def stock(product: str) -> str:
        """How many of a product there are."""
        return f"{product} {id(deps)}"

    @function_tool(needs_approval=True)
    def refund(order: str) -> str:
        """Give the money for an order back."""
        return f"{order} {id(deps)}"

    @function_tool(failure_error_function=None)
    def breaks() -> str:
        """Break."""
        raise LookupError("broken")

    @function_tool
    async def endless() -> None:
        """Never end."""
        deps.begun.set()
        await asyncio.Event().wait()

    return [stock, refund, breaks, endless]


def inside(model: Script, tools: list[Any]) -> Agent[Any]:
    return agent(model, code_mode(tools))


def around(model: Script, tools: list[Any]) -> Agent[Any]:
    return with_code_mode(agent(model, *tools))


async def one_run(end: str, make: Callable[..., Agent[Any]]) -> None:
    """One request, with an agent of its own."""
    deps = Deps()
    made = make(Script(program(PROGRAMS.get(end, REFUND)), "done"), tools_of(deps))
    if end == "raised":
        with pytest.raises(UserError, match="broken"):
            await Runner.run(made, "go", run_config=QUIET)
        return
    if end == "cancelled":
        running = asyncio.ensure_future(Runner.run(made, "go", run_config=QUIET))
        await deps.begun.wait()
        running.cancel()
        await asyncio.wait([running])
        return
    result = await Runner.run(made, "go", run_config=QUIET)
    if end in PROGRAMS:
        assert result.final_output == "done"
        return
    assert result.interruptions
    state = result.to_state()
    if "kept" in end:
        state = await RunState.from_string(made, state.to_string())
    if "resumed" in end:
        state.approve(state.get_interruptions()[0])
        assert (await Runner.run(made, state, run_config=QUIET)).final_output == "done"


ENDS = [*PROGRAMS, "paused", "kept", "resumed", "kept and resumed"]


@pytest.mark.parametrize(
    ("make", "end"),
    [(inside, ENDS[-1]), (around, "paused"), *full_only(*((inside, end) for end in ENDS[:-1]), (around, "completed"))],
)
def test_no_run_leaves_anything_behind(
    caplog: pytest.LogCaptureFixture, make: Callable[..., Agent[Any]], end: str
) -> None:
    caplog.set_level(logging.CRITICAL, "codemode.tools")  # what is logged is kept for the report, with its traceback
    left = left_by_each(lambda: within(one_run(end, make)), RUNS, "agents.", Deps.__module__, bounded=CLAIMS)
    assert left == {}
