"""A process that has connected servers, says which processes there are, and waits to be killed."""

import asyncio
import json
import sys

from codemode_gateway import connect
from mcp_servers.configured import of, quick


async def main() -> None:
    async with connect(of(quick(name="a"), quick("stubborn", name="b"))) as connected:
        said = [await one.call("children", {}) for one in connected.upstreams]
        print(json.dumps([pid for one in said for pid in one.structured_content["pids"]]), flush=True)
        await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
