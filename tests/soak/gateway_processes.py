"""The processes of `tests.soak.gateways`: gateways, and a server of theirs over HTTP."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from pathlib import Path
from typing import Any

from codemode_gateway import Gateway, GatewayOptions, load_config
from codemode_gateway.gateway.http_app import serve_http
from codemode_gateway.gateway.http_settings import HttpLimits
from codemode_gateway.upstreams import reconnecting
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from tests.soak.pause_hosts import LEASE_MS, Lines, hurry

from codemode.stores import Resumer
from codemode.stores.interrupt_store import InterruptStore

_PAUSES = (0, 0.002, 0.01)
_LIMITS = HttpLimits(sessions=20)  # few, so that those of clients that vanish soon have to make room


def serve_gateway(config: str, folder: str, port: int, temporary: str, mode: str, lease_ms: int = LEASE_MS) -> None:
    """Serve a gateway over HTTP until killed."""
    _begin(temporary, mode, lease_ms)

    async def main() -> None:
        read = load_config(config, state_folder=Path(folder))
        async with Gateway(read, GatewayOptions(over_http=True)) as gateway:
            await serve_http(gateway, "127.0.0.1", port, limits=_LIMITS, print_line=lambda _line: None)

    asyncio.run(main())


def serve_on_pipes(config: str, folder: str, temporary: str, mode: str) -> None:
    """Serve a gateway over stdio until its client goes."""
    _begin(temporary, mode)

    async def main() -> None:
        async with Gateway(load_config(config, state_folder=Path(folder))) as gateway:
            await gateway.serve_stdio()

    asyncio.run(main())


def _begin(temporary: str, mode: str, lease_ms: int = LEASE_MS) -> None:
    os.environ["TMPDIR"] = temporary
    if mode == "soak":  # nobody dies: who only stands still on a busy machine is not to be taken for dead
        return
    hurry()
    reconnecting._BACKOFF_SECONDS = (0.0, 0.05)
    for function in (Resumer.__init__, InterruptStore.journal):
        assert function.__kwdefaults__ is not None
        function.__kwdefaults__["lease_ms"] = lease_ms


def serve_counting(world: str, port: int) -> None:
    """Serve the tools of `tests/support/mcp_servers/counting_server.py` over HTTP until killed."""
    lines, server = Lines(world), MCPServer("counting")

    async def counted(run: int, number: int, edited: bool = False) -> str:
        value: dict[str, Any] = {"run": run, "number": number, **({"edited": True} if edited else {})}
        lines.write("began", value, os.getpid())
        try:
            await asyncio.sleep(random.choice(_PAUSES))
            lines.write("effect", value, os.getpid())
            await asyncio.sleep(random.choice(_PAUSES))
        finally:
            lines.write("ended", value, os.getpid())
        return f"done {run}.{number}"

    for name in ("pay", "note"):
        annotations = ToolAnnotations(destructive_hint=name == "pay")
        server.tool(name, annotations=annotations, structured_output=False)(counted)
    serve_app(server.streamable_http_app(), port)


def serve_app(app: Any, port: int) -> None:
    """Serve an ASGI application at a port that whoever was killed there had a moment ago."""
    import uvicorn

    config = uvicorn.Config(app, log_level="error", ws="none")
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


if __name__ == "__main__":
    import sys

    serve_on_pipes(*sys.argv[1:])
