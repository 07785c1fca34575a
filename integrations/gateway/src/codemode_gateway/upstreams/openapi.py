"""An API with an OpenAPI document as a server of MCP in this process: its operations are the tools."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.memory import create_client_server_memory_streams
from mcp_types import METHOD_NOT_FOUND

from codemode.data.content import MediaContent
from codemode.data.narrowing import mapping_or_empty
from codemode.errors import CodeModeToolError, http_fields

from ..config.model import ServerConfig
from .connection import Transport
from .connection_errors import NotStartedError

if TYPE_CHECKING:
    from codemode.openapi import OpenApiTools, Operation

_PAGE_TOOLS = 200
_LISTED_VALUES = 100_000
_LEAST_VALUES = 40
_WAITED_SHARE = 0.8  # of a call's time, for an API that says when to try again
_NO_PACKAGE = "an API needs httpx and PyYAML (pip install 'codemode-toolkit[openapi]')"


def openapi_transport(config: ServerConfig) -> Transport:
    """Return how the API of this configuration is reached."""
    return Transport(_streams(config), lambda: None, tells_sending=False)


@asynccontextmanager
async def _streams(config: ServerConfig) -> AsyncGenerator[tuple[Any, Any]]:
    try:
        import httpx
    except ModuleNotFoundError:
        raise NotStartedError(_NO_PACKAGE, _NO_PACKAGE) from None
    settings: dict[str, Any] = {"headers": dict(config.headers), "base_url": config.base_url or "", "trust_env": False}
    async with httpx.AsyncClient(**settings, timeout=config.timeout_ms / 1000) as client:
        answer = await _opened(config, client)
        async with create_client_server_memory_streams() as (streams, served):
            serving = asyncio.create_task(JSONRPCDispatcher[Any](*served).run(answer, _ignore))
            try:
                yield streams
            finally:
                serving.cancel()
                await asyncio.wait([serving])


async def _opened(config: ServerConfig, client: Any) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Load the document and choose its operations. Raises `NotStartedError`."""
    from codemode.openapi import load_spec, openapi_tools
    from codemode.openapi.spec import format_names

    try:
        spec = await load_spec(config.document or "", client=client if config.base_url else None)
        if config.base_url is None:
            servers = format_names(spec.servers) or "none"
            why = f"it has no baseUrl; its document names these servers: {servers}. Write the one you trust as baseUrl"
            raise NotStartedError(why, "it has no baseUrl")
        most_ms = int(config.timeout_ms * _WAITED_SHARE)
        make = partial(openapi_tools, spec, client=client, include=config.include, max_wait_ms=most_ms)
        return _server(await asyncio.to_thread(make), spec.title)
    except ValueError as error:
        raise NotStartedError(str(error), "its OpenAPI document or baseUrl cannot be used") from None


def _server(tools: OpenApiTools, title: str) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Return what answers the requests of a session: the handshake, lists of tools, calls."""
    operations: dict[str, Operation] = {one.name: one.metadata["openapi"] for one in tools}
    # All lists together are bounded: of many operations each has shorter types.
    most = max(_LISTED_VALUES // max(len(operations), 1), _LEAST_VALUES)

    def page(start: int) -> dict[str, Any]:
        shown = [_listed(one, most) for one in islice(operations.values(), start, start + _PAGE_TOOLS)]
        more = start + _PAGE_TOOLS
        return {"tools": shown, **({"nextCursor": str(more)} if more < len(operations) else {})}

    async def called(name: Any, arguments: Any) -> dict[str, Any]:
        if name not in operations:
            return _failed(f"There is no operation {str(name)[:100]!r}.")
        try:
            result = await tools.caller.call(operations[name], mapping_or_empty(arguments))
        except CodeModeToolError as error:
            fields = http_fields(error)
            return {**_failed(error.message), **({"structuredContent": fields} if fields else {})}
        if isinstance(result, MediaContent):
            return {"content": [_block(result)]}
        return {"content": [], "structuredContent": result}

    async def answer(_context: Any, method: str, params: Any) -> dict[str, Any]:
        asked = mapping_or_empty(params)
        if method == "initialize":
            info = {"name": title or "API", "version": ""}
            return {"protocolVersion": asked.get("protocolVersion"), "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            return await asyncio.to_thread(page, int(asked.get("cursor") or 0))
        if method == "tools/call":
            return await called(asked.get("name"), asked.get("arguments"))
        if method == "ping":
            return {}
        raise MCPError(METHOD_NOT_FOUND, f"no method {method}")

    return answer


async def _ignore(*_notification: Any) -> None:
    """Do nothing about a notification: a cancelled call is ended by who listens."""


def _listed(operation: Operation, most: int) -> dict[str, Any]:
    """Return an operation as a server lists a tool. Its inputs come before its outputs where room is short."""
    output = operation.output_schema(min(most // 3, 2_000))
    listed: dict[str, Any] = {
        "name": operation.name,
        "description": operation.description,
        "inputSchema": operation.input_schema(min(most, 10_000), has_content=False),
        "annotations": operation.annotations,
    }
    if output is not None and '"x-codemode"' not in json.dumps(output):  # files are blocks, and no structured content
        listed["outputSchema"] = output
    return listed


def _failed(message: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": message}], "isError": True}


def _block(content: MediaContent) -> dict[str, Any]:
    data = base64.b64encode(content.data).decode("ascii")
    if content.kind in ("image", "audio"):
        return {"type": content.kind, "data": data, "mimeType": content.mime_type}
    resource = {"uri": f"file:///{content.name or 'file'}", "mimeType": content.mime_type, "blob": data}
    return {"type": "resource", "resource": resource}
