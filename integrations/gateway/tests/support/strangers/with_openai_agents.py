"""openai-agents as a client of the gateway: ``PROGRAM URL`` or ``PROGRAM COMMAND...``. Says what it saw as JSON."""

import asyncio
import json
import sys

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp


def server(target):
    if target[0].startswith("http"):
        return MCPServerStreamableHttp(params={"url": target[0]}, client_session_timeout_seconds=60)
    return MCPServerStdio(params={"command": target[0], "args": target[1:]}, client_session_timeout_seconds=60)


async def main(program, *target):
    async with server(target) as gateway:
        tools = [one.name for one in await gateway.list_tools()]
        result = await gateway.call_tool(tools[0], {"code": program})
        print(json.dumps({"tools": tools, "asked": 0, "answer": json.loads(result.content[0].text)}))


asyncio.run(main(*sys.argv[1:]))
