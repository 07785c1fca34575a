"""Gateways over HTTP in processes of their own, and clients of them."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2
from gateway_doors import ANA, TOKENS, bearer
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

HERE = Path(__file__).parent
QUICK = HERE / "mcp_servers" / "quick_server.py"
BOUND = 60.0
KEY = "a key of the tests, of 32 bytes."


class Host:
    """One process, which starts while others do."""

    def __init__(self, config: Path, folder: Path, python: Sequence[str]) -> None:
        command = [*python, str(HERE / "gateway_host.py"), str(config), str(folder)]
        self.errors = folder / "stderr.txt"
        folder.mkdir(parents=True, exist_ok=True)
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=_environment())

    @cached_property
    def url(self) -> str:
        """Where it listens, once it does."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(BOUND), self.told()
        line = self.process.stdout.readline().decode().strip()
        assert line.startswith("http://"), self.told()
        return line

    def told(self) -> str:
        """What it has said on stderr."""
        return self.errors.read_text(encoding="utf-8")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(BOUND)
        assert self.process.stdout is not None
        if self.process.stdout.closed:
            return code
        with self.process.stdout as said, selectors.DefaultSelector() as selector:
            selector.register(said, selectors.EVENT_READ)
            # It may have been started by another process, which ends a moment before it.
            while selector.select(BOUND) and os.read(said.fileno(), 65_536):
                pass
        return code


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONWARNINGS": "", "PYTHONPATH": ""}


@contextlib.contextmanager
def hosts(folder: Path, python: Sequence[str] = (sys.executable,)) -> Generator[Any]:
    """Give a function that starts a host over a configuration; what still runs is killed at the end."""
    started: list[Host] = []

    def start(config: Path) -> Host:
        started.append(Host(config, folder / f"host-{len(started)}", python))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            one.end(signal.SIGKILL)


def written(folder: Path, *modes: str, server: Mapping[str, Any] | None = None, **settings: Any) -> Path:
    """Write a configuration of the quick server with a store, keys and tokens, and return its path."""
    quick = {"command": sys.executable, "args": ["-I", "-S", str(QUICK), *modes], "codemode": dict(server or {})}
    own = {"store": f"sqlite:///{folder / 'gateway.sqlite'}", "keys": [KEY], "auth": {"tokens": TOKENS}, **settings}
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"quick": quick}, "codemode": own}), encoding="utf-8")
    return path


@contextlib.asynccontextmanager
async def client_at(url: str, *, token: str = ANA, mode: str = "auto", **options: Any) -> AsyncGenerator[Client]:
    """Give a client of the gateway at a URL, with a token."""
    async with (
        httpx2.AsyncClient(headers=bearer(token), timeout=BOUND) as signed_in,
        Client(streamable_http_client(url, http_client=signed_in), mode=mode, **options) as client,
    ):
        yield client


def program(*lines: str, imports: str = "") -> dict[str, str]:
    """Return the arguments of a program over the quick server."""
    first = f'import {{ {imports} }} from "@codemode/servers/quick";\n' if imports else ""
    return {"code": first + "\n".join(lines)}


def said_by(result: Any) -> dict[str, Any]:
    """Return what a call of the tool has answered."""
    return json.loads(result.content[0].text)
