"""Runs programs whose fetch may reach one server, and knows how a caught refusal looks."""

from __future__ import annotations

import asyncio
from typing import Any

from http_server import HttpServer, Request, echo
from waiting import within

from codemode import run_code_mode

ALL_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")

HIDDEN = ["Error", "CODE_MODE_HOST_FETCH_ERROR", "the request failed", True]
_REFUSAL = """
    try { await (EXPRESSION); return "answered" } catch (e) { return [e.name, e.code, e.message, e instanceof Error] }
"""
_LIMITS = ("timeout_ms", "max_result_bytes", "max_in_flight_bridge_requests")


def refusal(expression: str) -> str:
    """A program that returns how an expression was refused."""
    return _REFUSAL.replace("EXPRESSION", expression)


def ask_at(server: HttpServer, js: str, tools: Any = (), *, lifecycle: Any = None, **policy: Any) -> Any:
    """Run a program that may reach the server, written ORIGIN in it. Keywords are the policy, or limits."""
    limits = {key: policy.pop(key) for key in _LIMITS if key in policy}
    given = {"allowed_origins": [server.origin], "allowed_methods": ALL_METHODS, **policy}
    options = {"fetch_policy": given, "lifecycle": lifecycle, "execution_policy": {"timeout_ms": 20_000, **limits}}
    return run_with(js.replace("ORIGIN", server.origin), options, tools)


def run_with(js: str, options: Any, tools: Any = ()) -> Any:
    """Run a program for a bounded time."""
    return within(run_code_mode(js, tools, options=options))


async def echoing(request: Request, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with what was asked, as JSON."""
    writer.write(echo(request))


async def endless(_request: Request, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send chunks for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        await writer.drain()


async def trickling(_request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the beginning of a body and wait for the client to leave."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")
    await writer.drain()
    await reader.read()
    raise ConnectionResetError


async def silent(_request: Request, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Send nothing and wait for the client to leave."""
    await reader.read()
    raise ConnectionResetError
