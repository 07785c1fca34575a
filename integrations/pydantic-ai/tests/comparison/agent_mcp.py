"""The structured content of an MCP server's tool is a value in the program"""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from pydantic_ai.mcp import MCPToolset
from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    server = MCPServer("shop")

    @server.tool()
    def stock(product: str) -> dict[str, int]:
        """How many of a product are left."""
        return {"left": 7}

    js, python = "return (await tools.stock({ product: 'nut' })).left + 1", "(await stock(product='nut'))['left'] + 1"
    return yes((await side.run(js, python, toolsets=[MCPToolset(server)])).told[-1] == 8)


if __name__ == "__main__":
    main(answer)
