"""langchain-mcp-adapters as a client of the gateway: ``PROGRAM URL`` or ``PROGRAM COMMAND...``. Says what it saw."""

import asyncio
import json
import sys

from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from mcp.types import ElicitResult

asked = []


async def approve(_context, params, _callback_context):
    asked.append(params.message)
    return ElicitResult(action="accept", content={"decision": "once"})


async def main(program, *target):
    if target[0].startswith("http"):
        connection = {"transport": "streamable_http", "url": target[0]}
    else:
        connection = {"transport": "stdio", "command": target[0], "args": list(target[1:])}
    client = MultiServerMCPClient({"gateway": connection}, callbacks=Callbacks(on_elicitation=approve))
    async with client.session("gateway") as session:
        from langchain_mcp_adapters.tools import load_mcp_tools

        tools = await load_mcp_tools(session)
        said = await tools[0].ainvoke({"code": program})
    text = said if isinstance(said, str) else said[0]["text"]
    names = [one.name for one in tools]
    print(json.dumps({"tools": names, "asked": len(asked), "answer": json.loads(text)}))


asyncio.run(main(*sys.argv[1:]))
