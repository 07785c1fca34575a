"""A client that asks and never reads does not keep its connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import uvicorn
from tests.support.waiting import until, within

from codemode.host.http_timeouts import create_header_and_send_timeout_protocol

_REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
_PIPELINED = {"whose answers fill the buffers": 1_000, "whose connection is then closed": 300}


async def _answer(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"20000")]})
    await send({"type": "http.response.body", "body": b"x" * 20_000})


def test_a_client_that_never_reads_its_answers_loses_the_connection() -> None:
    protocol = create_header_and_send_timeout_protocol(0.2, write_seconds=0.2)
    options: dict[str, Any] = {"http": protocol, "lifespan": "off", "ws": "none", "log_level": "critical"}
    server = uvicorn.Server(uvicorn.Config(_answer, timeout_keep_alive=1, **options))

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening, contextlib.ExitStack() as clients:
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            await until(lambda: server.started)
            for requests in _PIPELINED.values():
                client = clients.enter_context(socket.create_connection(listening.getsockname()))
                client.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    client.sendall(_REQUEST * requests)
            await until(lambda: server.server_state.total_requests > len(_PIPELINED))
            await until(lambda: not server.server_state.connections)
            server.should_exit = True
            await serving

    within(run())
