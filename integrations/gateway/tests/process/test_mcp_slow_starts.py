"""Servers that are slow to start: waited for as long as connectTimeoutMs says, with a line for the client meanwhile."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import Gateway, GatewayConfig, GatewayOptions, GatewaySettings, ServerConfig, connect
from codemode_gateway.config.redaction import SecretRedactor
from codemode_gateway.upstreams.call_retries import ClientRequestCallbacks
from codemode_gateway.upstreams.connection import Connection, Transport
from codemode_gateway.upstreams.hooks import UpstreamHooks
from codemode_gateway.upstreams.reconnecting import create_transport
from gateway_clients import client_of
from mcp_servers.configured import odd, of
from waiting import until, within

from codemode import create_modules_tool
from codemode.surfaces.modules import servers

ECHO = """import { echo } from "@codemode/servers/odd";
globalThis.__codemode_result__ = await echo({ text: "x" });"""
ECHOED = 'echo got {"text": "x"}'


def gated(folder: Path) -> tuple[dict[str, Any], Path, Path]:
    """Return the settings of a server that answers once its gate is there, the gate, and the log of its requests."""
    gate, log = folder / "gate", folder / "log"
    return {"gate": str(gate), "log": str(log)}, gate, log


def let_in(gate: Path, log: Path) -> bool:
    """Open the gate if the server has been asked."""
    has_asked = log.exists() and "initialize" in log.read_text()
    if has_asked:
        gate.touch()
    return has_asked


def test_no_other_time_than_that_of_the_server_cuts_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(servers, "LISTING_SECONDS", 0.001)
    settings, gate, log = gated(tmp_path)

    async def work() -> Any:
        async with connect(of(odd(settings))) as connected:
            tool = create_modules_tool(connected)
            running = asyncio.create_task(tool.execute({"code": ECHO}))
            await until(lambda: let_in(gate, log))
            return await running

    assert within(work())["result"] == ECHOED


def test_a_client_hears_which_server_it_waits_for(tmp_path: Path):
    settings, gate, log = gated(tmp_path)
    config = GatewayConfig(of(odd(settings)).servers, settings=GatewaySettings(state_folder=tmp_path))
    told: list[str | None] = []

    async def work() -> Any:
        async def progress(_number: float, _total: float | None, message: str | None) -> None:
            told.append(message)
            if message == "waiting for the server 'odd' to start":
                gate.touch()

        async with Gateway(config, GatewayOptions()) as gateway, client_of(gateway, "legacy") as client:
            return await client.call_tool("codemode_run", {"code": ECHO}, progress_callback=progress)

    answer = within(work())
    assert ECHOED in str(answer.structured_content)
    assert told[0] == "waiting for the server 'odd' to start"
    assert "initialize" in log.read_text()


def test_a_server_that_was_waited_for_in_vain_is_told_with_the_option(tmp_path: Path):
    settings, _, _ = gated(tmp_path)

    async def work() -> Any:
        async with connect(of(odd(settings, connect_timeout_ms=300))) as connected:
            response = await create_modules_tool(connected).execute({"code": ECHO})
            return response["diagnostics"][0]["message"], connected.upstream("odd").problem

    message, problem = within(work())
    assert problem.startswith("it did not answer within 0.3 seconds (raise connectTimeoutMs to wait longer)")
    assert problem in message


def create_connection(config: ServerConfig, transport: Transport) -> Connection:
    callbacks = ClientRequestCallbacks(config, UpstreamHooks(), SecretRedactor())

    async def ignore_message(_message: Any) -> None: ...

    return Connection(transport, lambda requests: callbacks.create_session(requests, ignore_message), "odd")


@pytest.mark.parametrize(
    ("code", "reason"), [(-32001, "it refused to connect: Invalid licence key"), (-32601, "it did not answer in time")]
)
def test_refused_handshake_is_the_reason_if_the_second_has_no_answer(tmp_path: Path, code: int, reason: str):
    log = tmp_path / "log"
    refusal = {"error": {"code": code, "message": "Invalid licence key"}}
    config = odd({"log": str(log), "answers": {"initialize": refusal, "server/discover": ""}})

    async def work() -> str:
        connection = create_connection(config, create_transport(config, SecretRedactor(), None))
        opening = asyncio.ensure_future(connection.open(None, 60))
        await until(lambda: log.exists() and "server/discover" in log.read_text())
        error = connection.get_failure_error("it did not answer in time")
        await connection.aclose()
        with pytest.raises(asyncio.CancelledError):
            await opening
        return str(error)

    assert within(work()) == reason


@pytest.mark.full
def test_connection_that_times_out_after_a_refusal_reports_the_refusal():
    refusal = {"error": {"code": -32001, "message": "Invalid licence key"}}
    config = odd({"answers": {"initialize": refusal, "server/discover": ""}}, connect_timeout_ms=5_000)

    async def work() -> Any:
        async with connect(of(config)) as connected:
            await create_modules_tool(connected).execute({"code": ECHO})
            return connected.upstream("odd").problem

    assert within(work()) == "it refused to connect: Invalid licence key"


def test_the_last_lines_on_stderr_are_in_the_reason(tmp_path: Path):
    settings, _, _ = gated(tmp_path)
    config = odd({**settings, "stderr": "Downloading 1.2 GB\nplease wait\n"})

    async def work() -> str:
        transport = create_transport(config, SecretRedactor(), None)
        connection = create_connection(config, transport)
        opening: asyncio.Task[None] | Awaitable[None] = asyncio.ensure_future(connection.open(None, 60))
        await until(lambda: "please wait" in transport.get_last_output())
        said = connection._timeout_message(60)
        await connection.aclose()
        with pytest.raises(asyncio.CancelledError):
            await opening
        return said

    assert within(work()).endswith("to wait longer): Downloading 1.2 GB please wait")
