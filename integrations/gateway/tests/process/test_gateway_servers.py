"""A gateway over real servers: what a client has before any runs, and when the configuration says something else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway import Gateway, GatewayConfig, ServerConfig
from codemode_gateway.gateway import workspaces
from gateway_clients import ERAS, USUAL_ERAS, Era, client_of, config_in
from mcp_servers.configured import quick

BOUND = 60.0


def over(folder: Path, *servers: ServerConfig) -> GatewayConfig:
    return GatewayConfig(servers, config_in(folder).settings)


def echo(server: str = "quick") -> dict[str, str]:
    calls = f'import {{ echo }} from "@codemode/servers/{server}";\n'
    return {"code": calls + 'globalThis.__codemode_result__ = await echo({ text: "heard" });'}


def said(result: Any) -> Any:
    return json.loads(result.content[0].text)


def run(main: Any) -> None:
    asyncio.run(asyncio.wait_for(main(), BOUND))


async def shown(client: Any) -> Any:
    return (await client.list_tools()).tools[0]


@pytest.mark.parametrize("era", ERAS)
def test_a_client_has_its_tool_from_the_cache_before_any_server_runs(
    tmp_path: Path, era: Era, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        workspaces, "LISTING_TIMEOUT_SECONDS", BOUND
    )  # a busy machine may start a server for longer than a moment

    async def main() -> None:
        config = over(tmp_path, quick())
        async with Gateway(config) as gateway, client_of(gateway, era) as client:
            first = await shown(client)
            assert "- quick: " in first.description
            assert " tools. " in first.description, "the first time it is asked for its tools"
            assert (await gateway.get_or_create_workspace()).connected.upstream("quick").state == "ready"
        async with Gateway(config) as gateway, client_of(gateway, era) as client:
            again = await shown(client)
            mine = await gateway.get_or_create_workspace()
            assert (again.description, again.annotations) == (first.description, first.annotations)
            assert mine.connected.upstream("quick").state == "stopped"
            assert said(await client.call_tool("codemode_run", echo()))["result"] == "heard"
            assert mine.connected.upstream("quick").state == "ready"

    run(main)


@pytest.mark.parametrize("era", USUAL_ERAS)
def test_a_changed_configuration_holds_for_the_next_run_and_is_told(tmp_path: Path, era: Era):
    async def main() -> None:
        changed, told = asyncio.Event(), asyncio.Event()

        async def heard(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                changed.set()

        async with (
            Gateway(over(tmp_path, quick())) as gateway,
            client_of(gateway, era, message_handler=heard) as client,
        ):
            await shown(client)
            kept = (await gateway.get_or_create_workspace()).connected.upstream("quick")
            listening = asyncio.create_task(listened(client, told)) if era == "auto" else None
            await asyncio.sleep(0)
            if listening is not None:
                await told.wait()
            await gateway.replace_config(over(tmp_path, quick(), quick(name="other")))
            await (listening or changed.wait())
            assert "- other" in (await shown(client)).description
            assert said(await client.call_tool("codemode_run", echo("other")))["result"] == "heard"
            assert (await gateway.get_or_create_workspace()).connected.upstream("quick") is kept, (
                "what has not changed goes on"
            )
            await gateway.replace_config(over(tmp_path, quick(name="other")))
            assert kept.state == "stopped" or await ended(kept)
            gone = said(await client.call_tool("codemode_run", echo()))
            assert gone["diagnostics"][0]["code"] == "IMPORT_FAILURE"

    run(main)


async def listened(client: Any, is_open: asyncio.Event) -> None:
    async with client.listen(tools_list_changed=True) as events:
        is_open.set()
        async for _ in events:
            return


async def ended(upstream: Any) -> bool:
    while upstream.state not in ("stopped", "failed"):  # noqa: ASYNC110 - nobody tells of it
        await asyncio.sleep(0.01)
    return True


@pytest.mark.parametrize("era", ERAS)
def test_a_server_that_says_nothing_costs_the_others_nothing(tmp_path: Path, era: Era, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workspaces, "LISTING_TIMEOUT_SECONDS", 0.01)

    async def main() -> None:
        servers = quick(), quick("silent", name="silent", connect_timeout_ms=50_000)
        async with Gateway(over(tmp_path, *servers)) as gateway, client_of(gateway, era) as client:
            while "- quick: " not in (first := (await shown(client)).description):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.01)
            assert "- silent" in first
            assert said(await client.call_tool("codemode_run", echo()))["result"] == "heard"
            assert (await shown(client)).description == first

    run(main)
