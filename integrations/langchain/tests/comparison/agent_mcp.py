"""The structured content of an MCP server's tool is a value in the program

By LangChain's own adapter, ``langchain.mcp``.
"""

from __future__ import annotations

from langchain.mcp import MCPAdapter
from langchain_sides import Side, main
from mcp.server.mcpserver import MCPServer
from script_steps import yes


async def answer(side: Side) -> str:
    server = MCPServer("shop")

    @server.tool()
    def stock(product: str) -> dict[str, int]:
        """How many of a product are left."""
        return {"left": 7}

    async with MCPAdapter(server) as adapter:
        tools = await adapter.list_tools()
        conversation = await side.run("return (await tools.stock({ product: 'nut' })).left + 1", tools)
    return yes(conversation.result == "8")


if __name__ == "__main__":
    main(answer)
