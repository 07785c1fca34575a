"""Refusals of servers over HTTP: their status, and what they say, reach whoever acts."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import GatewayConfig, ServerConfig, connect, load_config
from mcp_servers.configured import of
from mcp_servers.odd_server import odd_http
from waiting import within
from warm_commands import GATEWAYS

from codemode import create_modules_tool
from codemode.errors import CodeModeAuthenticationError, CodeModeToolError

pytestmark = pytest.mark.usefixtures("warm_gateways")

TOKEN = "tok-4242424242424242"
CHALLENGE = f'Bearer error="invalid_token", error_description="{TOKEN} has expired"'


def refusing(status: int, body: Any = b"", method: str | None = None, **headers: str):
    """Refuse the requests of one method of the protocol, or all."""

    def hook(request: Any, message: Any) -> bool:
        return method in (None, message.get("method")) and request.reply(status, body, **headers)

    return hook


def config(url: str, folder: Path, **headers: str) -> GatewayConfig:
    """Return what a file says of a server with these headers: with that, sign-ins are those of the gateway."""
    entry = {"url": url, "headers": headers, "codemode": {"approval": "never"}}
    return load_config({"mcpServers": {"odd": entry}}, state_folder=folder / "state")


def refused(configured: GatewayConfig) -> CodeModeToolError:
    async def work():
        async with connect(configured) as connected:
            with pytest.raises(CodeModeToolError) as error:
                await connected.upstream("odd").call("note", {"text": "x"})
            return error.value

    return within(work())


def test_a_refused_token_of_an_entry_is_said_to_be_refused(tmp_path: Path):
    for header in ("Authorization", "X-Api-Key"):
        value = f"Bearer {TOKEN}" if header == "Authorization" else TOKEN
        for method in (None, "tools/call"):
            with odd_http(hook=refusing(401, method=method, WWW_Authenticate=CHALLENGE)) as server:
                error = refused(config(server.url, tmp_path, **{header: value}))
            row = (header, method, error.message)
            assert f"it rejects the header '{header}' of its entry" in error.message, row
            assert "status 401 Unauthorized (WWW-Authenticate: Bearer error=" in error.message, row
            assert "sign in" not in error.message, row
            assert TOKEN not in error.message, row
            assert not isinstance(error, CodeModeAuthenticationError), row


def test_a_sign_in_is_still_asked_for_where_a_server_offers_one(tmp_path: Path):
    offered = 'Bearer resource_metadata="https://odd.example/.well-known/oauth-protected-resource"'
    for headers in ({}, {"X-Api-Key": TOKEN}):
        with odd_http(hook=refusing(401, WWW_Authenticate=offered)) as server:
            error = refused(config(server.url, tmp_path, **headers))
        assert isinstance(error, CodeModeAuthenticationError), headers
        assert "sign in" in error.message, headers


def test_check_says_that_a_token_was_refused(tmp_path: Path):
    with odd_http(hook=refusing(401, WWW_Authenticate=CHALLENGE)) as server:
        file = tmp_path / "mcp.json"
        headers = {"Authorization": "Bearer ${TOKEN}"}
        file.write_text(json.dumps({"mcpServers": {"odd": {"url": server.url, "headers": headers}}}))
        done = subprocess.run(
            [*GATEWAYS.python, "-m", "codemode", "mcp", "check", "--config", str(file)],
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "TOKEN": TOKEN},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "it rejects the header 'Authorization' of its entry" in done.stdout
    assert "(WWW-Authenticate: Bearer error=" in done.stdout
    assert TOKEN not in done.stdout + done.stderr


REFUSALS: list[tuple[str, int, Any, dict[str, str], str]] = [
    ("a limit", 429, b"", {"Retry_After": "30"}, "status 429 Too Many Requests (Retry-After: 30)"),
    ("a limit, said", 429, {"error": {"message": "slow down"}}, {"Retry_After": "9"}, "(Retry-After: 9): slow down"),
    ("a page", 503, "<html><p>Back soon", {"Content_Type": "text/html"}, "status 503 Service Unavailable"),
    ("a text", 403, "not from this network", {}, "status 403 Forbidden: not from this network"),
    ("a problem of RFC 9457", 400, {"title": "Bad", "detail": "no such tenant"}, {}, "Bad Request: no such tenant"),
    ("words of OAuth", 403, {"error": "x", "error_description": "no scope"}, {}, "Forbidden: no scope"),
    ("much", 500, "x" * 100_000, {}, "Internal Server Error: xxx"),
]  # fmt: skip


def test_what_a_refusal_says_reaches_the_program_when_tools_are_called_and_when_they_are_listed():
    for name, status, body, headers, reason in REFUSALS:
        for method in (None, "tools/list", "tools/call"):
            with odd_http(hook=refusing(status, body, method, **headers)) as server:
                configured = of(ServerConfig("odd", "http", url=server.url))
                said = imported(configured) if method == "tools/list" else refused(configured).message
            assert reason in said, (name, method, said)
            assert len(said) < 800, (name, method)


def imported(configured: GatewayConfig) -> str:
    """Return what a program is told that imports the server."""

    async def work():
        async with connect(configured) as connected:
            code = 'import { note } from "@codemode/servers/odd";'
            response = await create_modules_tool(connected).execute({"code": code})
            return response["diagnostics"][0]["message"]

    return within(work())


def test_an_error_of_the_protocol_with_a_status_keeps_its_words():
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32011, "message": "no such book"}}
    odd_one = [{"jsonrpc": "2.0", "id": 1, "error": {"code": "E1", "message": "no"}}]
    for body, headers, reason in (
        (error, {}, "no such book"),
        (odd_one, {}, "no (E1)"),
        (json.dumps(error), {"Content_Type": "text/plain"}, "no such book"),
        (error, {"Retry_After": "7"}, "no such book (Retry-After: 7)"),
    ):
        for status in (400, 422, 429, 500):
            with odd_http(hook=refusing(status, body, "tools/call", **headers)) as server:
                said = refused(of(ServerConfig("odd", "http", url=server.url))).message
            assert said == reason, (body, headers, status)
