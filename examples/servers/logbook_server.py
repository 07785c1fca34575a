"""A small MCP server on stdio: a logbook that takes entries and forgets them when it ends."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("Logbook")
_entries: list[str] = []


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False))
def add_entry(text: str) -> str:
    """Write a line into the logbook."""
    _entries.append(text)
    return f"entry {len(_entries)}: {text}"


if __name__ == "__main__":
    server.run()
