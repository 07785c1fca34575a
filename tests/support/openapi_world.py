"""Small OpenAPI documents, and tools of them over a transport in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx

from codemode.openapi import OpenApiTools, openapi_tools
from codemode.tools.prepared import prepare_tool

BASE_URL = "https://api.example.com/v1"
TOKEN = "tok-0123456789abcdef"  # what no program may read


def spec_of(paths: dict[str, Any], schemas: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "T"}, "paths": paths, "components": {"schemas": schemas or {}}}


def operation(
    name: str,
    parameters: list[Any] | None = None,
    body: Any = None,
    answer: Any = None,
    media_type: str = "application/json",
) -> dict[str, Any]:
    """An operation with parameters (name, in, schema, more) and a body of a media type."""
    made: dict[str, Any] = {
        "operationId": name,
        "responses": {"200": {"content": {"application/json": {"schema": answer or {}}}}},
    }
    rows = [(*row, *({"type": "string"}, {})[len(row) - 2 :]) for row in parameters or []]
    made["parameters"] = [
        {"name": row[0], "in": row[1], "schema": row[2], "required": row[1] == "path", **row[3]} for row in rows
    ]
    if body is not None:
        made["requestBody"] = {"required": True, "content": {media_type: {"schema": body}}}
    return made


def client_of(handler: Callable[[httpx.Request], httpx.Response], **settings: Any) -> httpx.AsyncClient:
    settings = {"base_url": BASE_URL, "headers": {"Authorization": f"Bearer {TOKEN}"}, **settings}
    return httpx.AsyncClient(transport=httpx.MockTransport(handler), **settings)


def tools_of(
    document: Any, handler: Any = lambda _request: httpx.Response(200, json={}), **settings: Any
) -> OpenApiTools:
    return openapi_tools(document, client=client_of(handler), **settings)


class World:
    """An API that records requests and answers each with the next response, the last one again and again."""

    def __init__(self, document: Any, *responses: httpx.Response, **settings: Any) -> None:
        self.requests: list[httpx.Request] = []
        self._responses = list(responses) or [httpx.Response(200, json={"ok": True})]
        self.tools = {tool.name: tool for tool in tools_of(document, self._answer, **settings)}

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        response = self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]
        return httpx.Response(response.status_code, headers=response.headers, content=response.content)

    def call(self, name: str, value: Any = None) -> Any:
        """Validate an input and call the tool, as a program's call does."""
        tool = prepare_tool(self.tools[name])

        async def run() -> Any:
            return await tool.call(tool.validate_input(value or {}).value, None)

        return asyncio.run(run())
