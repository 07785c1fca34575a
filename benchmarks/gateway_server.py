"""Servers for the benchmark of the gateway, run as scripts: `gateway_server.py sdk | stdlib [SECONDS]`.

Each has two tools that give back the text of a number: `noop`, declared read-only, and `put`, which declares nothing.
``sdk`` is a bare server of the SDK; ``stdlib`` the standard library alone, which waits so long before its first answer.
"""

import json
import sys
import time
from typing import Any

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [
    {"name": "noop", "description": "Nothing.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
    {"name": "put", "description": "Nothing, it says.", "inputSchema": SCHEMA},
]


def of_sdk() -> None:
    """Serve with the SDK."""
    import asyncio

    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    async def listed(_ctx: object, _params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool.model_validate(one) for one in TOOLS])

    async def called(_ctx: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = str((params.arguments or {})["n"])
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    async def serve() -> None:
        server = Server("bare", on_list_tools=listed, on_call_tool=called)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    asyncio.run(serve())


def of_standard_library(seconds: float) -> None:
    """Serve the little of the protocol that takes."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        time.sleep(seconds)
        seconds = 0.0
        said = {"jsonrpc": "2.0", "id": asked["id"], **_answer(asked["method"], asked.get("params") or {})}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


def _answer(method: str, params: Any) -> dict[str, Any]:
    if method == "initialize":
        version = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "plain", "version": "1"}}
        return {"result": {**version, "capabilities": {"tools": {"listChanged": True}}}}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "tools/call":
        return {"result": {"content": [{"type": "text", "text": str(params["arguments"]["n"])}]}}
    return {"error": {"code": -32601, "message": f"no method {method}"}}


if __name__ == "__main__":
    if sys.argv[1] == "sdk":
        of_sdk()
    else:
        of_standard_library(float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
