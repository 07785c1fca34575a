"""An API with an OpenAPI document as a server of MCP in this process: its operations are the tools."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from codemode.data.content import Content
from codemode.data.narrowing import mapping_or_empty, string_or_empty
from codemode.errors import CodeModeToolError, http_fields

from ..config.model import ServerConfig
from .connection import Transport
from .connection_errors import NotStartedError

_PAGE_TOOLS = 200
_MAX_BUFFERED = 1_024
_LISTED_VALUES = 100_000
_LEAST_VALUES = 40
_MAX_RESPONSE_BYTES = 10 << 20
_log = logging.getLogger("codemode.mcp")
_MAX_TOLD = 10
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
    timeout = config.timeout_ms / 1000
    settings: dict[str, Any] = {"headers": dict(config.headers), "timeout": timeout, "base_url": config.base_url or ""}
    async with httpx.AsyncClient(**settings, trust_env=False) as client:
        server = await _opened(config, client)
        to_client, from_server = anyio.create_memory_object_stream[Any](_MAX_BUFFERED)
        to_server, from_client = anyio.create_memory_object_stream[Any](_MAX_BUFFERED)
        serving = asyncio.create_task(server.serve(from_client, to_client))
        try:
            yield from_server, to_server
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            for stream in (to_client, from_server, to_server, from_client):
                stream.close()


async def _opened(config: ServerConfig, client: Any) -> _ApiServer:
    """Load the document and choose its operations. Raises `NotStartedError`."""
    from codemode.openapi import SpecError, load_spec
    from codemode.openapi.calls import Caller
    from codemode.openapi.operations import read_operations
    from codemode.openapi.spec import names_list
    from codemode.openapi.tools import client_parameters, select_operations

    try:
        spec = await load_spec(config.document or "", client=client if config.base_url else None)
    except SpecError as error:
        raise NotStartedError(str(error), "its OpenAPI document cannot be read") from None
    if config.base_url is None:
        servers = names_list(spec.servers) or "none"
        why = f"it has no baseUrl; its document names these servers: {servers}. Write the one that you trust as baseUrl"
        raise NotStartedError(why, "it has no baseUrl")
    operations, problems = await asyncio.to_thread(read_operations, spec, client_parameters(client))
    chosen, unmatched = select_operations(operations, config.include, ())
    for problem in [*problems, *unmatched][:_MAX_TOLD]:
        _log.warning("of server %r, %s", config.name, problem)
    caller = Caller(client, config.base_url, _MAX_RESPONSE_BYTES, int(config.timeout_ms * _WAITED_SHARE))
    return _ApiServer(caller, chosen, spec.title)


class _ApiServer:
    """Answers the requests of one session: the handshake, lists of tools, calls."""

    def __init__(self, caller: Any, operations: Sequence[Any], title: str) -> None:
        self._caller = caller
        self._operations = {one.name: one for one in operations}
        self._title = title
        self._calls: dict[Any, asyncio.Task[None]] = {}

    async def serve(self, requests: Any, answers: Any) -> None:
        """Answer until the streams end."""
        try:
            async for item in requests:
                message = item.message
                if isinstance(message, types.JSONRPCRequest):
                    task = asyncio.create_task(self._answer(message, answers))
                    self._calls[message.id] = task
                    task.add_done_callback(lambda _done, key=message.id: self._calls.pop(key, None))
                elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
                    task = self._calls.get(mapping_or_empty(message.params).get("requestId"))
                    if task is not None:
                        task.cancel()
        finally:
            for task in [*self._calls.values()]:
                task.cancel()

    async def _answer(self, request: types.JSONRPCRequest, answers: Any) -> None:
        result = await self._result(request.method, mapping_or_empty(request.params))
        if result is None:
            error = types.ErrorData(code=types.METHOD_NOT_FOUND, message=f"no method {request.method}")
            message: Any = types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
        else:
            message = types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)
        await answers.send(SessionMessage(message))

    async def _result(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        if method == "initialize":
            info = {"name": self._title or "API", "version": ""}
            return {"protocolVersion": params.get("protocolVersion"), "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            return await asyncio.to_thread(self._page, string_or_empty(params.get("cursor")))
        if method == "tools/call":
            return await self._called(params.get("name"), mapping_or_empty(params.get("arguments")))
        return {} if method == "ping" else None

    def _page(self, cursor: str) -> dict[str, Any]:
        start = int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) < 10 else 0
        operations = [*self._operations.values()]
        # All lists together are bounded: of many operations each has shorter types.
        most = max(_LISTED_VALUES // max(len(operations), 1), _LEAST_VALUES)
        page = {"tools": [_listed(one, most) for one in operations[start : start + _PAGE_TOOLS]]}
        more = start + _PAGE_TOOLS
        return {**page, "nextCursor": str(more)} if more < len(operations) else page

    async def _called(self, name: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        operation = self._operations.get(name)
        if operation is None:
            return _failed(f"There is no operation {str(name)[:100]!r}.")
        try:
            result = await self._caller.call(operation, arguments)
        except CodeModeToolError as error:
            failed, fields = _failed(error.message), http_fields(error)
            return {**failed, "structuredContent": fields} if fields else failed
        if isinstance(result, Content):
            return {"content": [_block(result)]}
        return {"content": [], "structuredContent": result}


def _listed(operation: Any, most: int) -> dict[str, Any]:
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


def _block(content: Content) -> dict[str, Any]:
    data = base64.b64encode(content.data).decode("ascii")
    if content.kind in ("image", "audio"):
        return {"type": content.kind, "data": data, "mimeType": content.mime_type}
    resource = {"uri": f"file:///{content.name or 'file'}", "mimeType": content.mime_type, "blob": data}
    return {"type": "resource", "resource": resource}
