"""An MCP server on stdio that tracks issues: pages of tools, one that a test holds back, one that fails.

Started by `stdio_servers`. A slow call tells the address in ``TRACKER_GATE`` that it has begun; that says when it ends.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

PAGE = 3
DIES = "die"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_NUMBER = {"type": "integer", "minimum": 1}
_OF_ONE = {"type": "object", "properties": {"number": _NUMBER}, "required": ["number"]}
_ISSUE = {
    "type": "object",
    "properties": {"number": _NUMBER, "title": {"type": "string"}, "state": {"enum": ["open", "closed"]}},
    "required": ["number", "title", "state"],
}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "create_issue",
        "title": "Create an issue",
        "description": "Open a new issue. It is numbered in order.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "title": {"type": "string", "minLength": 1, "description": "What is wrong"},
                "labels": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["title"],
            "additionalProperties": False,
        },
        "outputSchema": _ISSUE,
        "annotations": {"destructiveHint": False, "idempotentHint": False},
    },
    {
        "name": "list_issues",
        "description": "List the issues, oldest first.",
        "inputSchema": {"type": "object", "properties": {"state": {"enum": ["open", "closed"]}}},
        "outputSchema": {
            "type": "object",
            "properties": {"issues": {"type": "array", "items": _ISSUE}},
            "required": ["issues"],
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "close_issue",
        "description": "Close an issue; closing it again changes nothing.",
        "inputSchema": _OF_ONE,
        "outputSchema": _ISSUE,
        "annotations": {"idempotentHint": True, "destructiveHint": False},
    },
    {
        "name": "delete_issue",
        "description": "Delete an issue for good.",
        "inputSchema": _OF_ONE,
        "annotations": {"destructiveHint": True},
    },
    {
        "name": "export_issues",
        "description": "Export all issues, which takes long.",
        "inputSchema": {"type": "object", "properties": {"format": {"type": "string"}}},
    },
    {
        "name": "sync_issues",
        "description": "Bring the issues of another tracker here.",
        "inputSchema": {"type": "object"},
    },
    {
        "name": "show_board",
        "description": "Show the board as a picture.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
]
_issues: dict[int, dict[str, Any]] = {}


def _create_and_evict_idle(given: dict[str, Any]) -> dict[str, Any]:
    number = max(_issues, default=0) + 1
    _issues[number] = {"number": number, "title": given["title"], "state": "open"}
    return _issues[number]


def _list(given: dict[str, Any]) -> dict[str, Any]:
    return {"issues": [one for one in _issues.values() if given.get("state") in (None, one["state"])]}


def _close(given: dict[str, Any]) -> dict[str, Any]:
    _issues[given["number"]]["state"] = "closed"
    return _issues[given["number"]]


_STRUCTURED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "create_issue": _create_and_evict_idle,
    "list_issues": _list,
    "close_issue": _close,
}


def _text(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)


async def _held(name: str, given: dict[str, Any]) -> str:
    host, port = os.environ["TRACKER_GATE"].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(json.dumps({"tool": name, "arguments": given}).encode() + b"\n")
        said = (await reader.readline()).decode().strip()
        if said == DIES:
            os._exit(3)
        return said
    finally:
        writer.close()


async def call(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Call a tool."""
    name, given = params.name, params.arguments or {}
    if name in _STRUCTURED:
        try:
            made = _STRUCTURED[name](given)
        except KeyError as error:
            return _text(f"there is no issue {error}", is_error=True)
        text = types.TextContent(type="text", text=json.dumps(made))
        return types.CallToolResult(content=[text], structured_content=made)
    if name == "delete_issue":
        return _text("deleted" if _issues.pop(given["number"], None) else "there was none")
    if name == "export_issues":
        return _text(f"exported {len(_issues)}: {await _held(name, given)}")
    if name == "show_board":
        picture = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
        return types.CallToolResult(content=[types.TextContent(type="text", text="the board"), picture])
    return _text("the other tracker is away", is_error=True)


async def list_tools(_context: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """List a page of the tools."""
    start = int((params and params.cursor) or 0)
    page = [types.Tool.model_validate(one) for one in TOOLS[start : start + PAGE]]
    more = str(start + PAGE) if start + PAGE < len(TOOLS) else None
    return types.ListToolsResult(tools=page, next_cursor=more)


async def main() -> None:
    """Serve until the client goes."""
    server: Server[Any] = Server("tracker", version="1.2.3", on_list_tools=list_tools, on_call_tool=call)
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
