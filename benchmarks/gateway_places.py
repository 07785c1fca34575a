"""Gateways, servers and clients of the benchmark of the gateway: real processes over stdio, in one folder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, ElicitResult

from .peers.install import PYTHON
from .processes import ROOT, environment

TOOL = "codemode_run"
_SCRIPT = str(Path(__file__).with_name("gateway_server.py"))
SDK = [sys.executable, _SCRIPT, "sdk"]
STDLIB = [sys.executable, "-I", "-S", _SCRIPT, "stdlib"]
PROXY = [str(PYTHON), str(ROOT / "benchmarks" / "peers" / "fastmcp_proxy.py"), *SDK]


class Places:
    """Makes gateways that keep everything in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def gateway(self, servers: Mapping[str, list[str]], state: str | None = None, **own: Any) -> Gateway:
        """Return a gateway over these commands, with a state of its own or the one of this name."""
        self._count += 1
        config = self._folder / f"{self._count}.json"
        named = {name: {"command": command, "args": rest} for name, (command, *rest) in servers.items()}
        config.write_text(json.dumps({"mcpServers": named, "codemode": own}), encoding="utf-8")
        return Gateway(config, self._folder / (state or f"state-{self._count}"))

    @property
    def store(self) -> str:
        """The URL of a store that gateways share."""
        return f"sqlite:///{self._folder / 'shared.sqlite'}"


class Gateway:
    """How one gateway is started."""

    def __init__(self, config: Path, state: Path) -> None:
        self.command = [sys.executable, "-m", "codemode", "mcp", "--config", str(config)]
        self.environment = {**environment(), "XDG_STATE_HOME": str(state), "HOME": str(state)}

    def client(self) -> AbstractAsyncContextManager[Client]:
        """Return a client of it, which starts it. It can be asked, and nobody answers."""
        return client_of(self.command, self.environment)


@asynccontextmanager
async def client_of(command: list[str], variables: Mapping[str, str] | None = None) -> AsyncGenerator[Client]:
    """Give the SDK's client of a process that it starts. What that complains of is dropped."""
    parameters = StdioServerParameters(
        command=command[0], args=command[1:], env=dict(variables or environment()), cwd=ROOT
    )
    with open(os.devnull, "w", encoding="utf-8") as dropped:  # noqa: ASYNC230, PTH123 - nothing waits for it
        async with Client(stdio_client(parameters, errlog=dropped), elicitation_callback=_nobody) as client:
            yield client


async def _nobody(context: Any, params: Any) -> ElicitResult:
    del context, params
    return ElicitResult(action="cancel")


def calling(body: str, *servers: str) -> str:
    """Return a program that imports these servers and keeps what an expression comes to."""
    imports = "".join(f'import * as {one} from "@codemode/servers/{one}";\n' for one in servers or ("tools",))
    return f"{imports}globalThis.__codemode_result__ = await (async () => {{ {body} }})();"


async def result(client: Client, code: str) -> Any:
    """Run a program and return its result. Raises `ValueError` where it had none."""
    answer = await client.call_tool(TOOL, {"code": code})
    said: Any = answer.structured_content
    if not said or said.get("diagnostics") or said.get("exception"):
        raise ValueError(f"the program failed: {said}")
    return said["result"]


async def noop(client: Client, n: int) -> int:
    """Call the tool directly."""
    answer = await client.call_tool("noop", {"n": n})
    return int(answer.content[0].text)  # type: ignore[union-attr]


async def paused(client: Client, code: str) -> Any:
    """Run a program up to a call about which a person is asked."""
    first = await client.session.call_tool(TOOL, {"code": code}, allow_input_required=True)
    if isinstance(first, CallToolResult):
        raise TypeError(f"the program did not pause: {first}")
    return first


async def approved(client: Client, code: str, first: Any) -> Any:
    """Go on with it, approved."""
    answers: Any = {key: ElicitResult(action="accept", content={"decision": "once"}) for key in first.input_requests}
    session: Any = client.session
    last = await session.call_tool(
        TOOL, {"code": code}, input_responses=answers, request_state=first.request_state, allow_input_required=True
    )
    return last.structured_content["result"]
