"""Lists that are kept on disk: who reads them, what is read of what others have written."""

import asyncio
import json
import os
from dataclasses import replace
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.upstreams.tool_listing import ListCache, Listing, parse_listed_tools

SERVER = ServerConfig("s", "stdio", command="x", env={"A": "1"})
TOOLS, TEXTS, _ = parse_listed_tools(
    [{"name": "a", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]
)
LISTING = Listing(
    TOOLS,
    TEXTS,
    "?",
    era="modern",
    capabilities=types.ServerCapabilities(tools=types.ToolsCapability(list_changed=True)),
    server_info=types.Implementation(name="s", version="9"),
    instructions="Do.",
)


def read(folder: Any, server: ServerConfig = SERVER, principal: str = "me") -> Listing | None:
    return asyncio.run(ListCache(folder, principal).read(server))


@pytest.fixture
def folder(tmp_path):
    asyncio.run(ListCache(tmp_path / "lists", "me").write(SERVER, LISTING))
    return tmp_path / "lists"


def only(folder: Any) -> Any:
    (file,) = folder.iterdir()
    return file


def test_what_was_kept_is_read_again(folder):
    found = read(folder)
    assert found is not None
    assert found.tools == LISTING.tools
    assert found.to_dict_without_tools() == LISTING.to_dict_without_tools()
    assert only(folder).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_it_is_that_of_one_configuration_and_one_principal(folder):
    assert read(folder, principal="you") is None
    for other in ({"env": {"A": "2"}}, {"args": ("y",)}, {"name": "t"}, {"command": "z"}, {"cwd": "/"}):
        assert read(folder, replace(SERVER, **other)) is None
    assert read(folder, replace(SERVER, timeout_ms=1, deny=("a",), idle_ms=1)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "[]",
        "{}",
        '{"version": 1}',
        '{"version": 1, "tools": 7}',
        '{"version": 2, "tools": []}',
        "[" * 200_000,
        '{"version": 1, "tools": [',
        "\udcff",
    ],
)
def test_what_others_have_written_is_read_as_far_as_it_is_one(folder, text):
    only(folder).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert read(folder) is None


def test_tools_that_others_have_written_are_read_like_those_of_a_server(folder):
    kept = json.loads(only(folder).read_text())
    kept["tools"] += [5, {"name": {}}, {"name": "b"}]
    kept |= {"era": "tomorrow", "capabilities": [], "serverInfo": 4, "instructions": {}}
    only(folder).write_text(json.dumps(kept))
    found = read(folder)
    assert found is not None
    assert [tool.name for tool in found.tools] == ["a", "b"]
    assert (found.era, found.capabilities, found.server_info, found.instructions) == (None, None, None, None)


def test_what_others_could_have_put_there_is_not_read(folder, tmp_path):
    file = only(folder)
    file.chmod(0o666)
    assert read(folder) is None
    file.chmod(0o600)
    assert read(folder) is not None
    moved = tmp_path / "elsewhere"
    file.rename(moved)
    file.symlink_to(moved)
    assert read(folder) is None
    file.unlink()
    os.mkfifo(file)
    assert read(folder) is None


def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path):
    (tmp_path / "file").write_text("")
    asyncio.run(ListCache(tmp_path / "file" / "lists", "me").write(SERVER, LISTING))
    assert read(tmp_path / "file" / "lists") is None


def test_gateways_that_write_at_once_leave_a_whole_list(folder):
    async def work():
        cache = ListCache(folder, "me")
        await asyncio.gather(
            *(cache.write(SERVER, LISTING) for _ in range(20)), *(cache.read(SERVER) for _ in range(20))
        )

    asyncio.run(work())
    assert read(folder) is not None
    assert len([*folder.iterdir()]) == 1
