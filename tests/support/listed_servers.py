"""Servers as a run sees them, made from what they would say of themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from codemode import Tool
from codemode.schemas.json_schemas import repair_schema
from codemode.surfaces.modules.module_tools import ListedServer, ModuleTool
from codemode.tools.prepared import PreparedTool, prepare_tool

SAMPLE = Path(__file__).parents[1] / "data" / "mcp_tools_sample.json"


def listed(
    path: str,
    tools: Iterable[Mapping[str, Any]] = (),
    *,
    server_id: str | None = None,
    name: str | None = None,
    version: str | None = None,
    description: str | None = None,
    capabilities: tuple[str, ...] = (),
) -> ListedServer:
    """A server of tools as MCP lists them; ``exportName`` may be given beside the name."""
    made = tuple(sorted((_tool(path, one) for one in tools), key=lambda one: one.tool_name))
    return ListedServer(path, server_id or path, name or path, version, description, capabilities, made)


def _tool(path: str, said: Mapping[str, Any]) -> ModuleTool:
    name = said["name"]
    export = "".join(one if one.isalnum() or one in "_$" else "_" for one in name)
    made = Tool(
        f"{path}.{name}",
        execute=None,
        description=said.get("description") or "",
        input_schema=repair_schema(said.get("inputSchema"))[0],
        output_schema=repair_schema(said.get("outputSchema"))[0],
        input_examples=said.get("examples", ()),
        annotations=said.get("annotations"),
    )
    return ModuleTool(name, said.get("exportName", export), as_prepared(made))


def as_prepared(made: Tool) -> PreparedTool:
    return prepare_tool(made)


def sample_servers() -> list[ListedServer]:
    """The servers of the sample of real ones, each under the name of its package."""
    servers: dict[str, list[dict[str, Any]]] = json.loads(SAMPLE.read_text(encoding="utf-8"))["servers"]
    return [listed(path_of(server), tools, name=server) for server, tools in servers.items()]


def path_of(server: str) -> str:
    plain = "".join(one if one.isascii() and one.isalnum() else "-" for one in server.split("@")[-2].lower())
    return "-".join(part for part in plain.split("-") if part)
