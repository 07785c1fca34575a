"""Clients that others wrote, over stdio and HTTP: each finds the tool, runs programs, and asks where it can."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from gateway_clients import USUAL_ERAS
from mcp import Client
from mcp_types import ElicitResult
from required import missing, node_path
from suite import full_only
from warm_commands import GATEWAYS

BOUND = 60.0
HERE = Path(__file__).parents[4] / "tests" / "support"
STRANGERS = Path(__file__).parents[1] / "support" / "strangers"
INSTALLED = Path(sys.prefix) / "clients"
OLDER = Path(sys.prefix) / "clients-older"
READS = 'import { echo } from "@codemode/servers/plain";'
READS += ' globalThis.__codemode_result__ = (await echo({ text: "read" })).result;'
WRITES = 'import { write } from "@codemode/servers/plain";'
WRITES += ' globalThis.__codemode_result__ = (await write({ text: "written" })).result;'
PLAIN, DOTTED = "codemode_run", "codemode.run"
HOW = ("stdio", "http")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, warm_gateways: None) -> Generator[Callable[[str], list[str]]]:
    """Return for a transport the URL of a gateway that runs, or the command that starts one."""
    folder = tmp_path_factory.mktemp("gateway")
    config = folder / "mcp.json"
    server = GATEWAYS.entry(str(HERE / "mcp_servers" / "plain_server.py"))
    config.write_text(json.dumps({"mcpServers": {"plain": server}, "codemode": {"approvalWaitMs": 0}}), "utf-8")
    base = [*GATEWAYS.python, "-m", "codemode", "mcp"]
    started: list[subprocess.Popen[str]] = []

    def target(how: str) -> list[str]:
        if how == "stdio":
            # Not every client passes the environment on: what decides where things are kept is said in the command.
            return [
                "/usr/bin/env",
                f"CODEMODE_MCP_CONFIG={config}",
                f"XDG_STATE_HOME={folder / 'state'}",
                f"XDG_CACHE_HOME={folder / 'cache'}",
                *base,
            ]
        if not started:
            homes = {
                "CODEMODE_MCP_CONFIG": str(config),
                "XDG_STATE_HOME": str(folder / "state-http"),
                "XDG_CACHE_HOME": str(folder / "cache"),
            }
            command = [*base, "--http", "127.0.0.1:0"]
            environment = {**os.environ, **homes}
            started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment))
            urls.append(url_of(started[0]))
        return urls

    urls: list[str] = []
    try:
        yield target
    finally:
        for one in started:
            one.terminate()
            one.communicate(timeout=BOUND)


def url_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    says = "The gateway listens at "
    return next(line[len(says) :].strip() for line in process.stderr if line.startswith(says))


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, BOUND))


def started_by(client: list[str], program: str, target: list[str]) -> dict[str, Any]:
    """Run a client's script and return what it says."""
    command = [*client, program, *target]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def is_waiting(answer: dict[str, Any]) -> bool:
    (call,) = answer["waiting"]["calls"]
    return answer["diagnostics"][0]["code"] == "WAITING_FOR_APPROVAL" and call["toolName"] == "write"


def require(folder: Path) -> Path:
    if not (folder / ".installed").exists():
        missing("clients", "clients of other makers are not installed: `make clients` installs them")
    return folder


@pytest.mark.full
@pytest.mark.parametrize("era", USUAL_ERAS)
def test_the_python_sdk_over_http(gateway: Any, era: Any):
    asked: list[str] = []

    async def approve(_context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "once"})

    async def main() -> None:
        async with Client(gateway("http")[0], mode=era, elicitation_callback=approve) as client:
            assert [one.name for one in (await client.list_tools()).tools] == [PLAIN]
            result = await client.call_tool(PLAIN, {"code": WRITES})
            assert json.loads(result.content[0].text)["result"] == "written"  # type: ignore[union-attr]
            assert len(asked) == 1

    within(main())


@pytest.mark.parametrize("how", [HOW[-1], *full_only(*HOW[:-1])])
def test_fastmcp(gateway: Any, how: str):
    from fastmcp.client import Client as FastClient
    from fastmcp.client.transports import StdioTransport

    asked: list[str] = []

    async def approve(message: str, _kind: Any, _params: Any, _context: Any) -> Any:
        asked.append(message)
        return {"decision": "once"}

    async def main() -> None:
        target = gateway(how)
        transport: Any = target[0] if how == "http" else StdioTransport(target[0], target[1:], keep_alive=False)
        async with FastClient(transport, elicitation_handler=approve) as client:
            assert [one.name for one in await client.list_tools()] == [PLAIN]
            result = await client.call_tool(PLAIN, {"code": WRITES})
            assert json.loads(result.content[0].text)["result"] == "written"
            assert len(asked) == 1

    within(main())


@pytest.mark.parametrize("how", [HOW[0], *full_only(*HOW[1:])])
def test_an_agent_of_pydantic_ai_which_nobody_can_ask(gateway: Any, how: str):
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    seen: list[Any] = []
    programs = [READS, WRITES]

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.extend(part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart))
        if not programs:
            return ModelResponse(parts=[TextPart("done")])
        assert [one.name for one in info.function_tools] == [PLAIN]
        return ModelResponse(parts=[ToolCallPart(PLAIN, {"code": programs.pop(0)})])

    async def main() -> None:
        target = gateway(how)
        client: Any = target[0] if how == "http" else StdioTransport(target[0], target[1:], keep_alive=False)
        # By itself it waits five seconds, in which a busy machine may not have started the gateway.
        async with Agent(FunctionModel(model), toolsets=[MCPToolset(client, init_timeout=BOUND)]) as agent:
            assert (await agent.run("write it")).output == "done"
        read, written = (one if isinstance(one, dict) else json.loads(one) for one in seen)
        assert read["result"] == "read"
        assert is_waiting(written)

    within(main())


@pytest.mark.parametrize("how", HOW)
def test_openai_agents_which_nobody_can_ask(gateway: Any, how: str):
    client = [str(require(INSTALLED) / "bin" / "python"), str(STRANGERS / "with_openai_agents.py")]
    said = started_by(client, READS, gateway(how))
    assert (said["tools"], said["answer"]["result"]) == ([PLAIN], "read")
    assert is_waiting(started_by(client, WRITES, gateway(how))["answer"])


@pytest.mark.parametrize("how", HOW)
def test_langchain_with_its_older_sdk(gateway: Any, how: str):
    client = [str(require(OLDER) / "bin" / "python"), str(STRANGERS / "with_langchain.py")]
    said = started_by(client, WRITES, gateway(how))
    assert (said["tools"], said["asked"], said["answer"]["result"]) == ([PLAIN], 1, "written")


@pytest.mark.parametrize("how", HOW)
def test_the_typescript_sdk(gateway: Any, how: str):
    client = [node_path(), str(STRANGERS / "with_typescript.mjs"), str(require(INSTALLED) / "node")]
    said = started_by(client, WRITES, gateway(how))
    assert (said["tools"], said["asked"], said["answer"]["result"]) == ([PLAIN], 1, "written")


@pytest.mark.parametrize("how", HOW)
def test_the_inspector(gateway: Any, how: str):
    packages = require(INSTALLED) / "node" / "node_modules" / "@modelcontextprotocol"
    inspector = [node_path(), str(packages / "inspector" / "clients" / "launcher" / "build" / "index.js"), "--cli"]

    def inspected(*arguments: str) -> dict[str, Any]:
        command = [*inspector, *gateway(how), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    assert [one["name"] for one in inspected("--method", "tools/list")["tools"]] == [DOTTED]
    calls = ("--method", "tools/call", "--tool-name", DOTTED, "--tool-arg")
    assert inspected(*calls, f"code={READS}")["structuredContent"]["result"] == "read"
    assert is_waiting(inspected(*calls, f"code={WRITES}")["structuredContent"])
