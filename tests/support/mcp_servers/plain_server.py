"""An MCP server made with the SDK: over stdio, or, with `http` or `sse` and a port, over HTTP.

Over HTTP the first line that it prints is its port. With a third argument it wants that as a bearer token.
"""

import asyncio
import os
import socket
import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("plain", instructions="A plain server.", version="3.4")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def write(text: str) -> str:
    """Change something."""
    return text


@server.tool()
def environment() -> dict[str, str]:
    """Give the environment."""
    return dict(os.environ)


class Answer(BaseModel):
    which: str


@server.tool()
async def ask(ctx: Context[Any, Any]) -> str:
    """Ask whoever is there."""
    answer = await ctx.elicit("Which?", Answer)
    return answer.data.which if answer.action == "accept" else answer.action


@server.tool()
async def slow(ctx: Context[Any, Any]) -> str:
    """Take a minute, and say so."""
    await ctx.report_progress(1, 2, "half of it")
    await asyncio.sleep(60)
    return "late"


class Guarded:
    """Lets requests with the token pass."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._token = f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != self._token:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you?"})
            return
        await self._app(scope, receive, send)


def serve(transport: str, port: int, token: str | None) -> None:
    import uvicorn

    app: Any = server.streamable_http_app() if transport == "http" else server.sse_app()
    if token is not None:
        app = Guarded(app, token)
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen()
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="error", ws="none")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        serve(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
    else:
        server.run("stdio")
