"""An MCP server on stdio with the tools of a parcel office."""

import asyncio

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("parcels")
_weights = {"p1": 400, "p2": 2500}
_labels: list[str] = []


@server.tool(
    name="parcels.list",
    annotations=ToolAnnotations(read_only_hint=True, title="All parcels"),
    meta={"codecall": {"appId": "post", "tags": ["read"], "source": "openapi"}},
)
def list_parcels() -> list[dict[str, str]]:
    """List all parcels. Newest first."""
    return [{"id": name} for name in _weights]


@server.tool(
    name="parcels.weigh",
    annotations=ToolAnnotations(read_only_hint=True),
    meta={
        "codecall": {
            "appId": "post",
            "tags": ["read"],
            "examples": [{"description": "The first parcel", "input": {"parcel": "p1"}}],
        }
    },
)
async def weigh(parcel: str) -> int:
    """Weigh a parcel, in grams."""
    await asyncio.sleep(0)
    return _weights[parcel]


@server.tool(
    name="labels.print",
    annotations=ToolAnnotations(destructive_hint=True),
    meta={"codecall": {"appId": "desk", "visibleInListTools": True}},
)
def print_label(parcel: str, copies: int = 1) -> dict[str, int | str]:
    """Print a label for a parcel."""
    _labels.extend([parcel] * copies)
    return {"parcel": parcel, "printed": len(_labels)}


@server.tool(name="admin.reset", meta={"codecall": {"enabledInCodeCall": False}})
def reset() -> None:
    """Forget all labels."""
    _labels.clear()


if __name__ == "__main__":
    server.run("stdio")
