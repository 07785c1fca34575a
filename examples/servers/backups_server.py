"""A small MCP server on stdio: backups that can be listed and deleted. They are made up, and deleted for this run."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel


class Backup(BaseModel):
    """One backup."""

    name: str
    age_days: int
    megabytes: int


class Backups(BaseModel):
    """All that there are."""

    backups: list[Backup]


class Deleted(BaseModel):
    """What is gone."""

    deleted: list[str]
    freed_megabytes: int


server = MCPServer("Backups")
_kept = {
    name: Backup(name=name, age_days=age, megabytes=size)
    for name, age, size in [("monday", 3, 410), ("october", 51, 395), ("before-migration", 64, 388), ("may", 190, 352)]
}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_backups() -> Backups:
    """List all backups with their age."""
    return Backups(backups=list(_kept.values()))


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def delete_backups(names: list[str]) -> Deleted:
    """Delete backups for good."""
    gone = [_kept.pop(name) for name in names]
    return Deleted(deleted=[one.name for one in gone], freed_megabytes=sum(one.megabytes for one in gone))


if __name__ == "__main__":
    server.run()
