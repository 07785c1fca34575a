"""The 152 tools of ten public MCP servers, as the tests' data has them, in front of a world's functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from codemode import CodeModeToolError, Tool
from codemode.tools.prepared import prepare_tool

from .world import Function, new_world

_DATA = Path(__file__).parents[2] / "tests" / "data" / "mcp_tools_sample.json"
# In the order of the data. Eight tools of two servers have one name, so each has its server's before it.
SERVERS = (
    "filesystem",
    "memory",
    "github",
    "gitlab",
    "playwright",
    "tavily",
    "git",
    "time",
    "sqlite",
    "cloudwatch",
)


class Catalog:
    """The tools, over the world that was begun last: tools are made once, and each conversation has its own world."""

    def __init__(self) -> None:
        self._world: Mapping[str, Function] = {}
        self.tools = [
            Tool(
                name,
                execute=partial(self._call, name),
                description=one.get("description") or "",
                input_schema=one.get("inputSchema"),
                output_schema=one.get("outputSchema"),
                annotations=one.get("annotations"),
            )
            for name, one in listed().items()
        ]
        self._prepared = {tool.name: prepare_tool(tool) for tool in self.tools}

    def begin(self) -> None:
        """Begin a fresh world. No two conversations may go on at once."""
        self._world = new_world()

    async def direct(self, name: str, given: Any) -> Any:
        """Return what a tool gives for a call of the model's own, or the error that it raises.

        Raises `CodeModeToolError` where input or output are not what the tool's schemas say: the task is wrong then.
        """
        tool = self._prepared[name]
        value = tool.validate_input(given).value
        try:
            answer = await self._call(name, value)
        except CodeModeToolError as error:
            return error
        return tool.validate_output(answer)

    def definitions(self) -> list[dict[str, Any]]:
        """Return what a request says of all tools when each is offered to the model itself: without output schemas."""
        return [
            definition(name, one.get("description") or "", one.get("inputSchema")) for name, one in listed().items()
        ]

    async def _call(self, name: str, given: Any) -> Any:
        if name not in self._world:
            raise CodeModeToolError(f"No task calls {name}.")
        return await self._world[name](given)


@cache
def listed() -> dict[str, dict[str, Any]]:
    """Return what the servers list, by the names that tools have here."""
    said: dict[str, list[dict[str, Any]]] = json.loads(_DATA.read_text(encoding="utf-8"))["servers"]
    return {f"{server}_{one['name']}": one for server, own in zip(SERVERS, said.values(), strict=True) for one in own}


def definition(name: str, description: str, input_schema: Any) -> dict[str, Any]:
    """Return what a request says of a tool."""
    return {"name": name, "description": description, "input_schema": input_schema}
