"""A program in the environment of `langchain-mcp-adapters`, with the SDK that it asks for. Prints what was seen."""

import asyncio
import json
import sys

import mcp.types
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.shared.memory import create_connected_server_and_client_session
from mcp_desk import Desk, seen


async def main() -> None:
    desk = Desk(FastMCP("desk"), mcp.types, ToolError)
    async with create_connected_server_and_client_session(desk.server._mcp_server) as session:
        found = await seen(await load_mcp_tools(session))
    print(json.dumps({**found, "done": desk.done, "sdk": "mcp.server.mcpserver" in sys.modules}))


asyncio.run(main())
