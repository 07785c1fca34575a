"""What a model is to have its user type: it is about this very gateway over stdio, and tells no path over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

import httpx2
import pytest
from approval_world import answer_of
from codemode_gateway.cli.command_context import CONFIG_VARIABLE
from controlling_terminal import Person
from gateway_clients import client_over_stdio
from in_loop import in_loop
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from warm_commands import GATEWAYS

pytestmark = pytest.mark.usefixtures("warm_gateways")
TREE = Path(__file__).parents[4]
WAIT_SECONDS = 60.0
TOOL = "codemode_run"
DELETE = """\
import { delete_backups } from "@codemode/servers/backups";
globalThis.__codemode_result__ = (await delete_backups({ names: ["may"] })).deleted;
"""
SCRIPT = str(Path(sysconfig.get_path("scripts")) / "codemode")


@pytest.fixture
def terminal(tmp_path: Path) -> dict[str, str]:
    """The environment of the user's terminal, in which no configuration is named."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CODEMODE_", "XDG_"))}
    return {**kept, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration under which a call waits for nobody, in a folder whose name a shell would take apart."""
    path = tmp_path / "my $HOME; it's" / "mcp.json"
    path.parent.mkdir()
    server = GATEWAYS.entry(str(TREE / "examples" / "servers" / "backups_server.py"))
    said = {"mcpServers": {"backups": server}, "codemode": {"approvalWaitMs": 1}}
    path.write_text(json.dumps(said))
    return path


def told_by(answer: dict[str, Any]) -> str:
    """Return the command that the model is to tell."""
    (said,) = answer["diagnostics"]
    (command,) = re.findall(r"run `(.*)` in a terminal", said["hint"])
    return command


def approved(command: str, environment: dict[str, str]) -> None:
    """Paste a command into a terminal, in whatever folder it is, and say yes."""
    person = Person(["/bin/sh", "-c", f"cd / && {command}"], environment)
    try:
        person.read_until("Allow this call? [y/N] ")
        person.type("y\n")
        assert person.end()[0] == 0
    finally:
        person.close()


@pytest.mark.parametrize(
    ("started", "is_named"),
    [
        pytest.param(["-m", "codemode"], False, id="a module, by a variable", marks=pytest.mark.full),
        pytest.param([SCRIPT], True, id="a script, by an option"),
    ],
)
@in_loop
async def test_what_is_told_over_stdio_approves_the_call_where_no_variable_names_the_configuration(
    config: Path, terminal: dict[str, str], started: list[str], is_named: bool
):
    named = ["--config", str(config)] if is_named else []
    of_client = terminal if is_named else {**terminal, CONFIG_VARIABLE: str(config)}
    async with client_over_stdio([*started, "mcp", *named], environment=of_client) as client:
        answer = answer_of(await client.call_tool(TOOL, {"code": DELETE}))
        approved(told_by(answer), terminal)
        record, result = answer["waiting"]["id"], None
        while result is None:
            result = answer_of(await client.call_tool(TOOL, {"resume": record}))["result"]
    assert result == ["may"]


@pytest.mark.full
@in_loop
async def test_over_http_no_path_of_the_host_is_told(config: Path, terminal: dict[str, str]):
    arguments = ["-m", "codemode", "mcp", "--config", str(config), "--http", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=terminal, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        said = (await process.stderr.readline()).decode()
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+/mcp", said)
        async with (
            httpx2.AsyncClient(timeout=WAIT_SECONDS) as http,
            Client(streamable_http_client(url, http_client=http), mode="auto") as client,
        ):
            answer = answer_of(await client.call_tool(TOOL, {"code": DELETE}))
    finally:
        process.terminate()
        await process.communicate()
    (said,) = answer["diagnostics"]
    assert re.search(r"open http://127\.0\.0\.1:\d+/console/records/", said["hint"])
    assert str(config.parents[1]) not in json.dumps(answer)
    assert sys.executable not in json.dumps(answer)
