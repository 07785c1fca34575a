"""Commands that start servers or wait for a sign-in say so on a terminal, and never within a question."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureIO
from codemode_gateway.cli import server_commands

from codemode.cli import exits, main


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All commands take long, with a stderr that is a terminal."""
    # The class, because pytest gives each test a stream of its own after the fixtures.
    monkeypatch.setattr(CaptureIO, "isatty", lambda _self: True)
    monkeypatch.setattr(exits, "PROGRESS_DELAY_SECONDS", 0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "mcp.json"
    # Nothing listens at port 1.
    servers = {"files": {"command": "no-such-program"}, "docs": {"url": "http://127.0.0.1:1/mcp"}}
    path.write_text(json.dumps({"mcpServers": servers}))
    return str(path)


def test_a_command_that_starts_servers_names_them(config: str, capsys: pytest.CaptureFixture[str]):
    assert main(["mcp", "types", "files", "--config", config]) == 1
    assert "starting 1 server: files ...\n" in capsys.readouterr().err


def test_a_sign_in_says_what_it_waits_for(config: str, capsys: pytest.CaptureFixture[str]):
    assert main(["mcp", "login", "docs", "--no-browser", "--config", config]) == 2
    assert "waiting for the sign-in to docs ...\n" in capsys.readouterr().err


def test_a_running_program_is_named_unless_it_asks_first(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    @asynccontextmanager
    async def open_gateway(*_: Any) -> AsyncGenerator[tuple[None, None]]:
        yield None, None

    async def run_as_client(_gateway: None, code: str, decide: Any, *_: Any) -> dict[str, Any]:
        if code == "ask":
            await decide("Delete it?")
        is_due = asyncio.Event()
        asyncio.get_running_loop().call_later(0, is_due.set)
        await is_due.wait()
        return {}

    monkeypatch.setattr(server_commands, "open_gateway_and_workspace", open_gateway)
    monkeypatch.setattr(server_commands, "run_program_as_client", run_as_client)
    program = tmp_path / "program.js"
    for code, is_named in (("ask", False), ("1", True)):
        program.write_text(code)
        options = argparse.Namespace(program=str(program), config=config, approve="deny")
        assert server_commands.run_program(options) == 0
        assert ("running the program with 2 servers: files, docs ...\n" in capsys.readouterr().err) == is_named
