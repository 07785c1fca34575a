"""A program can call an operation of an OpenAPI document and read the status of an API error

Ours by `openapi_tools`. pydantic-ai has nothing of its own: the other by the server that FastMCP makes of a document.
"""

from __future__ import annotations

from typing import Any

from pydantic_ai import Tool
from pydantic_ai_sides import Side, main

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        "/stock/{product}": {
            "get": {
                "operationId": "stock",
                "parameters": [{"name": "product", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {
                    "200": {"description": "ok", "content": {"application/json": {"schema": {"type": "object"}}}}
                },
            }
        }
    },
}


def answered(path: str) -> tuple[int, dict[str, Any]]:
    """Return what the API answers."""
    return (200, {"left": 7}) if path.endswith("/nut") else (404, {"message": "no such product"})


def client_of(library: Any) -> Any:
    """Return a client of httpx, or of its successor, to the API."""

    def answer(request: Any) -> Any:
        status, body = answered(request.url.path)
        return library.Response(status, json=body)

    return library.AsyncClient(transport=library.MockTransport(answer), base_url="https://shop.example")


JS = """
const missing = await tools.stock({ product: "bolt" }).catch((error) => error.status);
return [(await tools.stock({ product: "nut" })).left, missing];
"""
PYTHON = """
try:
    missing = await stock(product="bolt")
except Exception as error:
    missing = str(error)
[(await stock(product="nut"))["left"], missing]
"""


async def answer(side: Side) -> str:
    if side.is_ours:
        import httpx

        from codemode.openapi import openapi_tools

        client = client_of(httpx)

        [made] = openapi_tools(DOCUMENT, client=client)

        async def stock(**given: Any) -> Any:
            assert made.execute is not None
            return await made.execute(given, None)

        tool = Tool.from_schema(stock, made.name, made.description, made.metadata["openapi"].input_schema())
        found = (await side.run(JS, PYTHON, tools=[tool])).told[-1]
    else:
        import httpx2
        from fastmcp import FastMCP
        from pydantic_ai.mcp import MCPToolset

        server = MCPToolset(FastMCP.from_openapi(DOCUMENT, client=client_of(httpx2)))
        found = (await side.run(JS, PYTHON, toolsets=[server])).told[-1]
    if found == [7, 404]:
        return "yes"
    return "yes, in the text of the error" if found[0] == 7 and "404" in str(found[1]) else "no"


if __name__ == "__main__":
    main(answer)
