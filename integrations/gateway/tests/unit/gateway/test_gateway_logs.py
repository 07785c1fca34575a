"""What an open gateway logs: no secret, and whatever of its own goes wrong; and who hears what its servers log."""

from __future__ import annotations

import asyncio
import logging

import mcp_types as types
import pytest
from codemode_gateway import Gateway, GatewayConfig, GatewaySettings, ServerConfig
from codemode_gateway.gateway.principals import LOCAL, Principal, SharingScope
from gateway_clients import ERAS, Era, client_of, gateway_over
from mcp.shared.exceptions import MCPError
from passing_world import Listener

KEY = "sk-0123456789-abcdef"


def test_what_the_sdk_and_its_client_log_has_no_secret_of_a_server(caplog: pytest.LogCaptureFixture, tmp_path):
    server = ServerConfig("shop", "http", url="http://127.0.0.1:9/mcp", headers={"X-Key": KEY}, secrets=(KEY,))
    config = GatewayConfig((server,), GatewaySettings(state_folder=tmp_path))

    async def main() -> None:
        async with Gateway(config):
            for name in ("mcp.client.streamable_http", "httpx", "codemode.mcp"):
                logging.getLogger(name).error("sent %s", {"X-Key": KEY})
        logging.getLogger("httpx").error("sent nothing")

    asyncio.run(asyncio.wait_for(main(), 60))
    assert [record.getMessage().replace("[secret]", "*") for record in caplog.records] == [
        *["sent {'X-Key': '*'}"] * 3,
        "sent nothing",
    ]


@pytest.mark.parametrize("era", ERAS)
def test_a_fault_of_the_gateway_is_for_its_log_alone(era: Era, caplog, tmp_path, monkeypatch):
    async def main() -> None:
        async with gateway_over([], tmp_path) as gateway:

            async def broken(*_: object) -> object:
                raise RuntimeError(f"no {KEY} in /home/ana")

            async with client_of(gateway, era) as client:
                monkeypatch.setattr(gateway.workspaces, "get_or_create", broken)
                with pytest.raises(MCPError, match="failed to answer") as raised:
                    await client.call_tool("codemode.run", {"code": "1"})
        assert KEY not in str(raised.value)
        assert any("in broken" in (record.exc_text or "") for record in caplog.records)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_user_hears_what_a_server_logs_that_nobody_else_has(tmp_path):
    server = ServerConfig("shop", "stdio")
    logged = types.LoggingMessageNotificationParams(level="error", data=f"lost {KEY}")
    notification = types.LoggingMessageNotification(params=logged)

    async def main() -> None:
        async with gateway_over([], tmp_path) as gateway:
            gateway._container.secrets.add_secrets(KEY)
            of_all, of_ana, of_bob = (
                gateway._container.create_hooks(SharingScope(one)) for one in (None, "ana", "bob")
            )
            ana, bob, only = Listener(), Listener(), Listener()
            await (await gateway.get_or_create_workspace(Principal("ana"))).passthrough.logs.subscribe_client(
                ana, "info"
            )
            await (await gateway.get_or_create_workspace(Principal("bob"))).passthrough.logs.subscribe_client(
                bob, "alert"
            )
            assert [one.get_log_level(server) for one in (of_all, of_ana, of_bob)] == [None, "info", "alert"]
            await (await gateway.get_or_create_workspace(LOCAL)).passthrough.logs.subscribe_client(only, "error")
            assert of_all.get_log_level(server) == "error"
            for hooks in (of_all, of_bob, of_ana):
                await hooks.on_notification(server, notification)
            await ana.news.wait()
            await only.news.wait()
            told = {"level": "error", "logger": "shop", "data": "lost [secret]"}
            assert (ana.told, bob.told, only.told) == ([told], [], [told])

    asyncio.run(asyncio.wait_for(main(), 60))
