"""Programs and servers that need a sign-in: what a program sees without one, and how it waits for a person."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from authorization_server import SignInServer, browse, sign_in_server
from codemode_gateway import GatewayConfig, GatewaySettings, ServerConfig, UpstreamHooks, connect, login
from codemode_gateway.config.redaction import REPLACEMENT
from codemode_gateway.oauth.login_manager import PAUSE_KIND, SignInManager

from codemode import Interrupt
from codemode.surfaces.modules.run_tool import create_modules_tool

PROGRAM = """
import { who } from "@codemode/servers/notes";
try { globalThis.__codemode_result__ = await who({}); }
catch (error) { globalThis.__codemode_result__ = `${error.name}: ${error.message}`; }
"""


@pytest.fixture
def server() -> Iterator[SignInServer]:
    with sign_in_server() as one:
        yield one


@pytest.fixture
def config(server: SignInServer, tmp_path: Path) -> GatewayConfig:
    one = ServerConfig("notes", "http", url=server.url, approval="never", auth={"storage": "files"})
    return GatewayConfig((one,), GatewaySettings(state_folder=tmp_path))


def sign_in(config: GatewayConfig) -> None:
    asyncio.run(login(config, "notes", open_browser=browse, out=io.StringIO()))


def run(config: GatewayConfig, tmp_path: Path, **more: Any) -> Any:
    async def once() -> Any:
        async with connect(config, cache_folder=tmp_path / "lists", **more) as connected:
            return await create_modules_tool(connected).execute({"code": PROGRAM})

    return asyncio.run(once())


def test_a_program_gets_the_answer_without_the_token(server: SignInServer, config: GatewayConfig, tmp_path: Path):
    sign_in(config)
    response = run(config, tmp_path)
    assert response["result"] == f"you are Bearer {REPLACEMENT}"
    assert server.access


def test_a_program_that_imports_an_unknown_server_is_told_that_somebody_must_sign_in(
    config: GatewayConfig, tmp_path: Path
):
    told = str(run(config, tmp_path))
    assert "IMPORT_FAILURE" in told or "sign" in told
    assert "codemode mcp login notes" in told


def test_a_call_that_needs_a_sign_in_is_an_authentication_error(
    server: SignInServer, config: GatewayConfig, tmp_path: Path
):
    sign_in(config)
    run(config, tmp_path)  # now its tools are known
    server.access.clear()
    server.refresh.clear()
    told = run(config, tmp_path)["result"]
    assert told.startswith("AuthenticationError")
    assert "codemode mcp login notes" in told


@pytest.mark.parametrize("action", ["accept", "decline"])
def test_a_program_pauses_until_somebody_has_signed_in(
    server: SignInServer, config: GatewayConfig, tmp_path: Path, action: str
):
    sign_in(config)
    run(config, tmp_path)
    server.access.clear()
    server.refresh.clear()
    calls = server.counts["/mcp"]

    async def paused() -> Any:
        async with SignInManager(config) as sign_ins:
            hooks = UpstreamHooks(
                create_auth=sign_ins.create_auth_hook(), on_signed_out=sign_ins.create_signed_out_hook()
            )
            settings = {"approval": {"mode": "interrupt"}}
            async with connect(
                config, hooks=hooks, cache_folder=tmp_path / "lists", secrets=sign_ins.secrets
            ) as connected:
                tool = create_modules_tool(connected, settings=settings)
                interrupt = await tool.execute({"code": PROGRAM})
                assert isinstance(interrupt, Interrupt)
                assert interrupt.payload["kind"] == PAUSE_KIND
                assert interrupt.payload["server"] == "notes"
                going_on = asyncio.create_task(tool.resume(interrupt, {"action": action}))
                if action == "accept":
                    await asyncio.to_thread(browse, interrupt.payload["url"])
                return await asyncio.wait_for(going_on, 60)

    told = asyncio.run(paused())["result"]
    assert told == f"you are Bearer {REPLACEMENT}" if action == "accept" else told.startswith("AuthenticationError")
    assert server.counts["/mcp"] > calls
