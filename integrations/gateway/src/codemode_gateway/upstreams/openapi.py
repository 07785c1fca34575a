"""Serve an OpenAPI document's operations as an in-process MCP server."""

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
from codemode.errors import CodeModeToolError, get_http_error_fields

from ..config.model import ServerConfig
from .connection import Transport
from .connection_errors import ServerNotStartedError

if TYPE_CHECKING:
    from codemode.openapi import OpenApiTools, Operation

_PAGE_TOOLS = 200
_MAX_LISTED_VALUES = 100_000
_MIN_VALUES_PER_TOOL = 40
_RETRY_WAIT_SHARE = 0.8  # the share of a call's timeout for waits that an API requests
_MISSING_PACKAGE_MESSAGE = "an API needs httpx and PyYAML (pip install 'codemode-toolkit[openapi]')"


def create_openapi_transport(config: ServerConfig) -> Transport:
    """Return the transport of a configured API."""
    return Transport(_open_streams(config), lambda: None, tracks_sending=False)


@asynccontextmanager
async def _open_streams(config: ServerConfig) -> AsyncGenerator[tuple[Any, Any]]:
    try:
        import httpx
    except ModuleNotFoundError:
        raise ServerNotStartedError(_MISSING_PACKAGE_MESSAGE, _MISSING_PACKAGE_MESSAGE) from None
    settings: dict[str, Any] = {"headers": dict(config.headers), "base_url": config.base_url or "", "trust_env": False}
    async with httpx.AsyncClient(**settings, timeout=config.timeout_ms / 1000) as client:
        answer = await _load_request_handler(config, client)
        async with create_client_server_memory_streams() as (streams, served):
            serving = asyncio.create_task(JSONRPCDispatcher[Any](*served).run(answer, _ignore_notification))
            try:
                yield streams
            finally:
                serving.cancel()
                await asyncio.wait([serving])


async def _load_request_handler(config: ServerConfig, client: Any) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Load the document and choose its operations. Raises `ServerNotStartedError`."""
    from codemode.openapi import load_spec, openapi_tools
    from codemode.openapi.spec import format_names

    try:
        spec = await load_spec(config.document or "", client=client if config.base_url else None)
        if config.base_url is None:
            servers = format_names(spec.servers) or "none"
            reason = f"it has no baseUrl; set it to a server that you trust. Its document names: {servers}"
            raise ServerNotStartedError(reason, "it has no baseUrl")
        max_wait_ms = int(config.timeout_ms * _RETRY_WAIT_SHARE)
        make = partial(openapi_tools, spec, client=client, include=config.include, max_wait_ms=max_wait_ms)
        return _create_request_handler(await asyncio.to_thread(make), spec.title)
    except ValueError as error:
        raise ServerNotStartedError(str(error), "its OpenAPI document or baseUrl cannot be used") from None


def _create_request_handler(tools: OpenApiTools, title: str) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Return the handler of a session's requests: handshake, tool lists, calls."""
    operations: dict[str, Operation] = {tool.name: tool.metadata["openapi"] for tool in tools}
    # The list has a total limit: with many operations, each has shorter types.
    max_values = max(_MAX_LISTED_VALUES // max(len(operations), 1), _MIN_VALUES_PER_TOOL)

    def list_tools_page(start: int) -> dict[str, Any]:
        listed_tools = [
            _to_listed_tool(operation, max_values)
            for operation in islice(operations.values(), start, start + _PAGE_TOOLS)
        ]
        next_start = start + _PAGE_TOOLS
        return {"tools": listed_tools, **({"nextCursor": str(next_start)} if next_start < len(operations) else {})}

    async def call_operation(name: Any, arguments: Any) -> dict[str, Any]:
        if name not in operations:
            return _error_result(f"Unknown operation {str(name)[:100]!r}.")
        try:
            result = await tools.caller.call(operations[name], mapping_or_empty(arguments))
        except CodeModeToolError as error:
            fields = get_http_error_fields(error)
            return {**_error_result(error.message), **({"structuredContent": fields} if fields else {})}
        if isinstance(result, MediaContent):
            return {"content": [_to_content_block(result)]}
        return {"content": [], "structuredContent": result}

    async def handle_request(_context: Any, method: str, params: Any) -> dict[str, Any]:
        fields = mapping_or_empty(params)
        if method == "initialize":
            info = {"name": title or "API", "version": ""}
            return {"protocolVersion": fields.get("protocolVersion"), "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            return await asyncio.to_thread(list_tools_page, int(fields.get("cursor") or 0))
        if method == "tools/call":
            return await call_operation(fields.get("name"), fields.get("arguments"))
        if method == "ping":
            return {}
        raise MCPError(METHOD_NOT_FOUND, f"no method {method}")

    return handle_request


async def _ignore_notification(*_notification: Any) -> None:
    """Ignore notifications: the listener ends cancelled calls."""


def _to_listed_tool(operation: Operation, max_values: int) -> dict[str, Any]:
    """Return an operation as a listed tool. Inputs take precedence over outputs if space is short."""
    output = operation.output_schema(min(max_values // 3, 2_000))
    entry: dict[str, Any] = {
        "name": operation.name,
        "description": operation.description,
        "inputSchema": operation.input_schema(min(max_values, 10_000), has_content=False),
        "annotations": operation.annotations,
    }
    # Files are content blocks, not structured content.
    if output is not None and '"x-codemode"' not in json.dumps(output):
        entry["outputSchema"] = output
    return entry


def _error_result(message: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": message}], "isError": True}


def _to_content_block(content: MediaContent) -> dict[str, Any]:
    data = base64.b64encode(content.data).decode("ascii")
    if content.kind in ("image", "audio"):
        return {"type": content.kind, "data": data, "mimeType": content.mime_type}
    resource = {"uri": f"file:///{content.name or 'file'}", "mimeType": content.mime_type, "blob": data}
    return {"type": "resource", "resource": resource}
