"""Agents behind tools of a program that wait for decisions of their own: their state is kept in the program's pause."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from agents import Agent, FunctionTool, RunContextWrapper, RunState
from agents.tool_context import ToolContext

from codemode import request_interrupt

from . import sdk
from .approvals import approve, may_be_edited

AGENT_KIND = "openai-agents/agent"
_MOST_DEEP = 8


def namespace_of(tool_name: str) -> str:
    """Return the namespace of what the agent behind a tool asks for: the SDK wants one that no tool in it is called."""
    return f"agent.{tool_name}"


def ask(paused: Any) -> NoReturn:
    """Pause the program for what the run of an agent waits for."""
    waiting = [
        {"name": str(one.name), "arguments": one.arguments, "may_be_edited": may_be_edited(one)}
        for one in paused.interruptions
    ]
    # Whose run goes on brings its context, and only that one's serializer knows what of it may be kept.
    state = paused.to_state().to_json(context_serializer=_left_out)
    request_interrupt({"kind": AGENT_KIND, "state": state, "waiting": waiting})


def _left_out(_context: Any) -> dict[str, Any]:
    return {}


async def go_on(
    tool: FunctionTool, context: ToolContext[Any], payload: Mapping[str, Any], decisions: Sequence[Mapping[str, Any]]
) -> None:
    """Let the next call of a tool go on with the run of its agent, by what was decided about each of its calls.

    By their order: models repeat the ids of calls, and several agents may wait in one run.
    """
    state: Any = await RunState.from_json(sdk.agent_behind(tool), dict(payload["state"]))
    for item, said in zip(state.get_interruptions(), decisions, strict=True):
        if said.get("input") is not None:
            approve(state, item, input=said["input"])
        elif said.get("approved") is True:
            state.approve(item, always_approve=said.get("always") is True)
        else:
            message = said.get("message")
            state.reject(item, always_reject=said.get("always") is True, rejection_message=message or None)
    sdk.keep_paused(context, state)


async def names_behind(
    tools: Iterable[FunctionTool], run_context: RunContextWrapper[Any], depth: int = 0
) -> AsyncIterator[str]:
    """Yield the names of the tools that agents behind these may ask about, and those behind them."""
    for tool in tools:
        agent = sdk.agent_behind(tool)
        if agent is None or depth > _MOST_DEEP:
            continue
        found = [one for one in await _tools_of(agent, run_context) if isinstance(one, FunctionTool)]
        for one in found:
            yield one.name
        async for name in names_behind(found, run_context, depth + 1):
            yield name


async def _tools_of(agent: Agent[Any], run_context: RunContextWrapper[Any]) -> list[Any]:
    try:
        return await agent.get_all_tools(run_context)
    except Exception:  # noqa: BLE001 - a server of an agent that may never be called is away
        return list(agent.tools)
