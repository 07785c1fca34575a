"""Tools of public MCP servers, as they are in the tests' data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codemode import Tool

_DATA = Path(__file__).parents[1] / "data" / "mcp_tools_sample.json"


def sample_tools(count: int | None = None, execute: Callable[..., Any] | None = None) -> list[Tool]:
    """Return the sample's tools, each name once; more than there are begin again under numbered names."""
    servers = json.loads(_DATA.read_text(encoding="utf-8"))["servers"]
    said = list({one["name"]: one for tools in servers.values() for one in tools}.values())
    wanted = len(said) if count is None else count
    return [_tool(said[at % len(said)], at // len(said), execute) for at in range(wanted)]


def _tool(said: dict[str, Any], turn: int, execute: Callable[..., Any] | None) -> Tool:
    name = said["name"] if turn == 0 else f"{said['name']}_{turn}"
    description = said.get("description") or ""
    return Tool(name, execute=execute, description=description, input_schema=said.get("inputSchema"))
