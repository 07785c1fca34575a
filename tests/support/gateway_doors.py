"""A gateway's application around a small server that says who calls it, served here or asked without a network."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import httpx2
import mcp_types as types
from codemode_gateway.config.model import GatewayConfig, GatewaySettings
from codemode_gateway.gateway.http_app import HttpApp, create_http_app, serve_http
from codemode_gateway.gateway.http_settings import HttpLimits, compute_token_digest
from codemode_gateway.gateway.principals import count_request_middleware, get_request_principal
from mcp.server.lowlevel import Server

from codemode.stores import MemoryInterruptStore

MODERN = "2026-07-28"
BOUND = 120.0
ANA, BOB = "token-of-ana-0123456789", "token-of-bob-0123456789"
TOKENS = {
    f"sha256:{compute_token_digest(ANA)}": {"name": "ana"},
    f"sha256:{compute_token_digest(BOB)}": {"name": "bob"},
}


class StandIn:
    """What the application needs of a `Gateway`. Its tools: ``who``, and ``held``, which ends with ``let_go``."""

    def __init__(self, auth: Mapping[str, Any] | None = None, verifier: Any = None) -> None:
        self.config = GatewayConfig(
            settings=GatewaySettings(auth=auth or {}, keys=("a key of the tests, of 32 bytes.",))
        )
        self.folder = Path(os.devnull)
        self.options = SimpleNamespace(verifier=verifier, pool=None)
        self.store = MemoryInterruptStore()
        self.is_open, self.record_url = True, lambda _record_id: None
        self.server = Server("stand-in", on_list_tools=self._listed, on_call_tool=self._called)
        self.server.middleware.insert(0, count_request_middleware)
        self.held, self.let_go, self.cancelled = (
            asyncio.Event(),
            asyncio.Event(),
            asyncio.Event(),
        )

    async def __aenter__(self) -> Self:
        self.is_open = True
        return self

    async def __aexit__(self, *failure: object) -> None:
        self.is_open = False

    async def _listed(self, ctx: Any, params: Any) -> types.ListToolsResult:
        tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in ("who", "held", "asks")]
        return types.ListToolsResult(tools=tools)

    async def _called(self, ctx: Any, params: Any) -> types.CallToolResult:
        who = get_request_principal(ctx)
        if params.name == "held":
            self.held.set()
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        said = {"id": who.id, "session": who.session is not None}
        if params.name == "asks":
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            asked = await ctx.session.elicit_form(message="Who?", requested_schema=schema)
            said = {"action": asked.action, **(asked.content or {})}
        return types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(said))])


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def modern_call(name: str = "who") -> dict[str, Any]:
    """A request of 2026-07-28, as ``json=`` and ``headers=`` of a client."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}, "_meta": meta}}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": name,
    }
    return {"json": body, "headers": headers}


@contextlib.asynccontextmanager
async def asking(
    auth: Mapping[str, Any] | None = None,
    *,
    verifier: Any = None,
    base: str = "http://127.0.0.1:8765",
    client: tuple[str, int] = ("127.0.0.1", 4000),
    limits: HttpLimits | None = None,
) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client that asks the application without a network."""
    app: HttpApp = create_http_app(StandIn(auth, verifier), limits=limits)
    async with (
        app.running(),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app, client=client), base_url=base) as one,
    ):
        yield one


async def who(answer: httpx2.Response) -> dict[str, Any]:
    """What the tool ``who`` has said."""
    assert answer.status_code == 200, answer.text
    return json.loads(answer.json()["result"]["content"][0]["text"])


@contextlib.asynccontextmanager
async def serving(gateway: Any, *, host: str = "127.0.0.1", limits: HttpLimits | None = None) -> AsyncGenerator[str]:
    """Serve a gateway on a free port of this process, and give its URL."""
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve_http(gateway, host, 0, limits=limits, print_line=lambda _line: None, on_listening=url.set_result)
    )
    try:
        await asyncio.wait([task, url], timeout=BOUND, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield url.result()
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=BOUND)
