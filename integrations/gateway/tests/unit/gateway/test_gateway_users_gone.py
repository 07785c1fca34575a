"""Users who came and went leave nothing in a gateway's memory that grows with their number."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import Gateway, load_config
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.config.redaction import SecretRedactor
from codemode_gateway.gateway.principals import Principal
from codemode_gateway.tool_history import output_schema_inference
from codemode_gateway.tool_history.output_schema_inference import ToolHistories

SERVER = ServerConfig("a", "stdio", command="x")


def test_what_is_known_of_servers_goes_with_the_seats_of_their_users(tmp_path: Path):
    said = {"a": {"command": "x"}, "b": {"command": "y"}}
    config = load_config({"mcpServers": said}, state_folder=tmp_path)

    async def main() -> None:
        async with Gateway(config) as gateway:
            gateway.workspaces._max_workspaces = 3
            for number in range(12):
                await gateway.get_or_create_workspace(Principal(f"user {number}"))
            assert len(gateway.workspaces) == len(gateway._container.tool_histories) == 3
        assert len(gateway._container.tool_histories) == 0

    asyncio.run(main())


def test_all_connections_of_one_user_know_the_same_and_the_last_writes_it_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(output_schema_inference, "SAVE_SECONDS", 3_600.0)
    tool: Any = type("Tool", (), {"name": "t"})

    async def main() -> None:
        known = ToolHistories(tmp_path)
        async with known.open("ana", learns=True) as one:
            async with known.open("ana", learns=True) as two, known.open("bob", learns=True) as bobs:
                assert one is two is not bobs
                two.hooks["get_observed_output"](SERVER, tool)
                for number in range(3):  # a name counts once it was seen twice
                    two.hooks["on_result"](SERVER, "t", {"found": number})
            assert len(known) == 1
            assert one.hooks["get_observed_output"](SERVER, tool) is not None
        assert len(known) == 0
        async with known.open("ana", learns=True) as again, known.open("bob", learns=True) as bobs:
            assert again is not one
            assert again.hooks["get_observed_output"](SERVER, tool) is not None
            assert bobs.hooks["get_observed_output"](SERVER, tool) is None

    asyncio.run(main())


def test_who_comes_while_the_last_one_goes_knows_what_that_one_has_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def main() -> None:
        known, going, goes = ToolHistories(tmp_path), asyncio.Event(), asyncio.Event()

        async def aclose(_self: Any) -> None:
            going.set()
            await goes.wait()

        monkeypatch.setattr(output_schema_inference.InferredOutputSchemas, "aclose", aclose)
        first = known.open("ana", learns=True)
        one = await first.__aenter__()
        leaving = asyncio.create_task(first.__aexit__(None, None, None))
        await asyncio.wait_for(going.wait(), 30)
        async with known.open("ana", learns=True) as two:
            assert two is one
            goes.set()
            await leaving
            async with known.open("ana", learns=True) as three:
                assert three is one
        assert len(known) == 0

    asyncio.run(main())


def test_nothing_is_kept_of_those_who_have_no_secrets():
    secrets = SecretRedactor(["token-of-everybody"])
    for number in range(100):
        secrets.add_secrets(owner=str(number))
        secrets.add_secrets("token-of-everybody", owner=str(number))
    assert not secrets._added
