"""The tools of a server as programs get them. Calls nothing itself."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, ClassVar

import mcp_types as types

from codemode.errors import CodeModeToolError
from codemode.host import steps
from codemode.host.threads import LARGE_CHARACTERS, run_check
from codemode.tools.tool import Tool

from ..config.patterns import matches
from ..config.values import ServerConfig
from .hooks import UpstreamHooks

Call = Callable[[str, Any, Any], Awaitable[Any]]
Now = Callable[[str], Awaitable[types.Tool | None]]
"""Gives a tool as its server says it is now, on the connection that a call would take; None for one it has no more."""

TOOLS_CHANGED = "TOOLS_CHANGED"
_AT_ONCE = 200
_FEW = 20
_STEPS_OF_A_TOOL = 4


class UpstreamTool(Tool):
    """A tool of a server. ``listed`` is what its server says of it."""

    is_foreign: ClassVar[bool] = True


def allowed(config: ServerConfig, tools: Iterable[types.Tool]) -> list[types.Tool]:
    """Return the tools that the configuration lets programs see."""
    return [tool for tool in tools if is_allowed(config, tool.name)]


def is_allowed(config: ServerConfig, name: str) -> bool:
    """Tell whether programs may see a tool of that name."""
    if config.allow and not any(matches(pattern, name) for pattern in config.allow):
        return False
    return not any(matches(pattern, name) for pattern in config.deny)


def may_be_repeated(tool: types.Tool | None) -> bool:
    """Tell whether a tool is declared as one whose calls can be made again without harm."""
    said = tool.annotations if tool is not None else None
    return said is not None and (said.read_only_hint is True or said.idempotent_hint is True)


async def offered_tools(
    config: ServerConfig, tools: Sequence[types.Tool], hooks: UpstreamHooks, call: Call, now: Now
) -> list[Tool]:
    """Return the tools that a program can call by ``call(name, arguments, context)``.

    A list may be old: what it says of a tool spares a person the question only where the server still says it, ``now``.
    Schemas are looked through in a thread, and a list without end leaves others their turn.
    """
    making: list[Callable[[], Tool]] = []
    for at, tool in enumerate(tools, 1):
        making.append(_offered(config, tool, hooks, call, now))
        if at % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return await run_check(LARGE_CHARACTERS if len(tools) > _FEW else 0, lambda: [make() for make in making])


def _offered(config: ServerConfig, tool: types.Tool, hooks: UpstreamHooks, call: Call, now: Now) -> Callable[[], Tool]:
    """Ask the hooks about a tool, and return what makes it: metered work."""
    name = tool.name
    rule, observed = hooks.approval(config, tool), None if tool.output_schema else hooks.observed(config, tool)

    async def execute(input: Any, context: Any) -> Any:  # noqa: A002 - what tools call it
        if rule is False:
            await _require_spared(config, tool, hooks, now)
        return await call(name, input, context)

    async def needs_approval(input: Any, context: Any) -> bool:  # noqa: A002 - likewise
        if await _asks(rule, input, context):
            return True
        said = await now(name)
        return said is not None and said is not tool and await _asks(hooks.approval(config, said), input, context)

    def made() -> Tool:
        steps.take(_STEPS_OF_A_TOOL)
        said = tool.annotations
        return UpstreamTool(
            name,
            execute=execute,
            description=tool.description or tool.title or "",
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            needs_approval=rule if isinstance(rule, bool) else needs_approval,
            annotations={} if said is None else said.model_dump(mode="json", by_alias=True, exclude_none=True),
            metadata={"mcp": tool, "observed": observed},
            output_validation=config.output_validation,
        )

    return made


async def _asks(rule: Any, given: Any, context: Any) -> bool:
    asks = rule(given, context) if callable(rule) else rule
    return bool(await asks if inspect.isawaitable(asks) else asks)


async def _require_spared(config: ServerConfig, tool: types.Tool, hooks: UpstreamHooks, now: Now) -> None:
    """Raise where nobody was asked because of what a server says no longer of its tool."""
    if hooks.approval(config, types.Tool(name=tool.name, input_schema={})) is False:
        return  # whatever it says, nobody is asked
    said = await now(tool.name)
    if said is not None and said is not tool and hooks.approval(config, said) is not False:
        raise CodeModeToolError(
            f"{tool.name!r} of server {config.name!r} has changed, and now needs an approval: this call did not run;"
            " make it again in another program",
            code=TOOLS_CHANGED,
            details={"tool_name": tool.name},
        )


def changed_tool(config: ServerConfig, name: str, *, is_listed: bool) -> CodeModeToolError:
    """Return the error for a call of a tool that ``pin: "block"`` keeps from running."""
    why = "has changed since it was first used" if is_listed else "is not among the tools that its server lists now"
    then = "; the user has to look at the difference first (`codemode mcp pins`)" if is_listed else ""
    return CodeModeToolError(
        f"{name!r} of server {config.name!r} {why}: this call did not run{then}",
        code=TOOLS_CHANGED,
        details={"tool_name": name},
    )
