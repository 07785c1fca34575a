"""Two real MCP servers on stdio, each a process, and their connected clients of the SDK."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters
from mcp.client.client import Client
from warm_commands import GATEWAYS

from codemode import ToolSource

TRACKER = Path(__file__).with_name("tracker_server.py")
NOTES = Path(__file__).with_name("notes_server.py")
SLOW = "export_issues"
_GATE_SECONDS = 120.0


@dataclass
class HeldCall:
    """A slow call that has begun on the server, and goes on when it is told to."""

    tool: str
    arguments: dict[str, Any]
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    async def finish(self, said: str = "done") -> None:
        """Let it end. Its result is the text ``exported <number of issues>: <said>``; at "die" the server ends."""
        self._writer.write(f"{said}\n".encode())
        await self._writer.drain()

    async def gone(self) -> None:
        """Wait until it has ended on the server, cancelled or not."""
        await asyncio.wait_for(self._reader.read(), _GATE_SECONDS)


class Gate:
    """Where slow calls of the tracker wait for the test."""

    def __init__(self) -> None:
        self._begun: asyncio.Queue[HeldCall] = asyncio.Queue()
        self._open: list[asyncio.StreamWriter] = []

    async def begun(self) -> HeldCall:
        """Wait for the next slow call to begin."""
        return await asyncio.wait_for(self._begun.get(), _GATE_SECONDS)

    @property
    def is_empty(self) -> bool:
        """True when no call has begun that nobody has asked for."""
        return self._begun.empty()

    async def let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Note a call that has begun."""
        self._open.append(writer)
        told = json.loads(await reader.readline())
        self._begun.put_nowait(HeldCall(told["tool"], told["arguments"], reader, writer))

    def close(self) -> None:
        """Hold nothing back any more."""
        for writer in self._open:
            writer.close()


@dataclass(frozen=True)
class StdioServers:
    """The clients of both servers. ``gate`` holds the calls of ``export_issues`` back.

    The tracker calls itself "tracker", the other one "Team Notes", which programs know as ``MCP.TeamNotes``.
    """

    tracker: Client
    notes: Client
    gate: Gate

    @property
    def sources(self) -> list[ToolSource]:
        """Both servers under the owners "tracker" and "notes"."""
        return [ToolSource(self.tracker, "mcp", "tracker"), ToolSource(self.notes, "mcp", "notes")]

    async def issues(self) -> list[dict[str, Any]]:
        """What the tracker has, asked of the server itself."""
        given: Any = (await self.tracker.call_tool("list_issues", {})).structured_content
        return given["issues"]


def server_at(script: Path, **environment: str) -> StdioServerParameters:
    """Return how a script that is a server is started."""
    return StdioServerParameters(**GATEWAYS.entry(str(script)), env=environment)


@asynccontextmanager
async def stdio_servers() -> AsyncGenerator[StdioServers]:
    """Start both servers, and end them."""
    gate = Gate()
    listening = await asyncio.start_server(gate.let_in, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()[:2]
    tracker, notes = Client(server_at(TRACKER, TRACKER_GATE=f"{host}:{port}")), Client(server_at(NOTES))
    try:
        async with tracker, notes:
            yield StdioServers(tracker, notes, gate)
    finally:
        listening.close()
        gate.close()


class RunningServers:
    """Both servers for several tests, on an event loop in a thread of its own: starting them takes long."""

    def __init__(self) -> None:
        self._started: Future[StdioServers] = Future()
        self._end: asyncio.Event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="mcp servers")
        self._thread.start()
        self._servers = self._started.result(_GATE_SECONDS)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            async with stdio_servers() as servers:
                self._started.set_result(servers)
                await self._end.wait()
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            raise

    def run(self, work: Callable[[StdioServers], Coroutine[Any, Any, Any]]) -> Any:
        """Do some work on the servers' own loop, with no issues on the tracker."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._run(work), self._loop).result(_GATE_SECONDS)

    async def _run(self, work: Callable[[StdioServers], Coroutine[Any, Any, Any]]) -> Any:
        for issue in await self._servers.issues():
            await self._servers.tracker.call_tool("delete_issue", {"number": issue["number"]})
        return await work(self._servers)

    def close(self) -> None:
        """End the servers."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_GATE_SECONDS)
