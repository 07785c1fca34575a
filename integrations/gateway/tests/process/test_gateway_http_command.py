"""The command over HTTP: addresses that cannot be had, and a stdio client that joins a gateway which runs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_doors import BOUND, TOKENS
from gateway_hosts import BOUND as A_MINUTE
from gateway_hosts import program, said_by, written
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from warm_commands import GATEWAYS

pytestmark = pytest.mark.usefixtures("warm_gateways")
COMMAND = [*GATEWAYS.python, "-m", "codemode", "mcp"]
FORM = {"form_token": "formToken", "version": "version", "shown": "shown"}


def ended(folder: Path, *arguments: str, auth: Any = None) -> subprocess.CompletedProcess[str]:
    """Run the command until it ends."""
    config = folder / "mcp.json"
    servers = {"none": {"command": sys.executable, "args": ["-c", "pass"]}}
    config.write_text(json.dumps({"mcpServers": servers, "codemode": {"auth": auth or {}}}), encoding="utf-8")
    command = [*COMMAND, "--config", str(config), *arguments]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, timeout=BOUND, env=environment, check=False)


def refused(run: subprocess.CompletedProcess[str], *words: str) -> None:
    assert run.returncode == 2, run.stderr
    assert run.stdout == ""
    assert "Traceback" not in run.stderr
    for one in words:
        assert one in run.stderr


def test_a_port_in_use_is_named_with_the_way_out(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(ended(tmp_path, "--http", f"127.0.0.1:{port}"), f"127.0.0.1:{port}", "another port")


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "gateway.example.com:0"])
def test_an_address_that_others_reach_is_refused_without_sign_in(tmp_path: Path, address: str):
    refused(ended(tmp_path, "--http", address), "codemode.auth.tokens", "token")


def test_an_address_that_this_machine_has_not_is_named(tmp_path: Path):
    refused(ended(tmp_path, "--http", "192.0.2.1:0", auth={"tokens": TOKENS}), "192.0.2.1", "cannot be used")


def test_users_who_cannot_be_meant_are_named_by_their_path(tmp_path: Path):
    refused(ended(tmp_path, "--http", "127.0.0.1:0", auth={"tokens": {"x": {"name": "ana"}}}), "codemode.auth.tokens")


@contextmanager
def listening(arguments: list[str], environment: dict[str, str]) -> Generator[str]:
    """Run the command over HTTP until the block ends; give where to sign in to its console, token and all."""
    with subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stderr is not None
            said, is_at_its_end = b"", False
            with selectors.DefaultSelector() as selector:
                selector.register(process.stderr, selectors.EVENT_READ)
                while not (is_at_its_end or re.search(rb"#token=\S+\n", said)):
                    assert selector.select(A_MINUTE), said
                    part = os.read(process.stderr.fileno(), 65_536)
                    said, is_at_its_end = said + part, not part
            yield next(word for word in said.decode().split() if "#token=" in word)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(A_MINUTE)
            finally:
                process.kill()


async def approved(sign_in: str, record: str) -> None:
    """Approve the one call of a record, as a page does."""
    page, token = sign_in.split("/sign-in#token=")
    headers = {"sec-fetch-site": "same-origin", "accept": "application/json"}
    async with httpx2.AsyncClient(headers=headers, timeout=A_MINUTE) as browser:
        assert (await browser.post(f"{page}/sign-in", data={"token": token})).status_code == 200
        shown = (await browser.get(f"{page}/records/{record}")).json()
        assert shown["unreadable"] is None
        (card,) = shown["requests"]
        decision = {"decision": "approve", **{name: card[key] for name, key in FORM.items()}}
        answer = await browser.post(f"{page}/records/{record}/requests/{card['id']}", json=decision)
        assert answer.status_code == 200, answer.text


def test_beside_gateways_over_stdio_it_is_the_console_of_what_waits_there(tmp_path: Path):
    config = written(tmp_path, f"marks={tmp_path}", server={"approval": "writes"}, approvalWaitMs=0)
    own = json.loads(config.read_text())
    del own["codemode"]["store"], own["codemode"]["keys"], own["codemode"]["auth"]  # as a user has it
    config.write_text(json.dumps(own), encoding="utf-8")
    arguments = ["--config", str(config)]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    note = program('globalThis.__codemode_result__ = await note({ text: "written" });', imports="note")

    async def main() -> None:
        parameters = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], *arguments], env=environment)
        async with Client(stdio_client(parameters), mode="legacy") as client:
            waiting = said_by(await client.call_tool("codemode.run", note))["waiting"]
            assert "url" not in waiting
            with listening([*arguments, "--http", "127.0.0.1:0"], environment) as sign_in:
                await approved(sign_in, waiting["id"])
            async with asyncio.timeout(A_MINUTE):
                while "waiting" in (said := said_by(await client.call_tool("codemode.run", {"resume": waiting["id"]}))):
                    pass
            assert said["result"] == "written", said

    asyncio.run(main())
