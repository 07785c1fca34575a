"""Redirects of servers over HTTP: followed within the origin and from http to https, and nowhere else."""

import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import ServerConfig, connect
from codemode_gateway.oauth.flow import AuthorizationClient
from codemode_gateway.oauth.settings import AuthSettings
from codemode_gateway.upstreams import http as http_client
from mcp_servers.configured import of
from mcp_servers.odd_server import odd_http
from self_signed import self_signed
from waiting import within
from warm_commands import GATEWAYS

from codemode.errors import CodeModeToolError

pytestmark = pytest.mark.usefixtures("warm_gateways")

TOKEN = "Bearer sesame-sesame"


def called(url: str, **settings: Any) -> str:
    """Call the tool that may change something, and return its text."""

    async def work():
        server = ServerConfig("odd", "http", url=url, headers={"Authorization": TOKEN}, **settings)
        async with connect(of(server)) as connected:
            result = await connected.upstream("odd").call("note", {"text": "x"})
            return result.content[0]["text"]

    return within(work())


def moves(status: int, location: str):
    """Redirect what comes to /mcp, and answer all else."""

    def hook(request: Any, _message: Any) -> bool:
        return request.path == "/mcp" and request.reply(status, Location=location)

    return hook


def test_redirects_within_the_origin_are_followed_with_method_body_and_headers():
    for status in (307, 308):
        for events in (False, True):
            for location in ("/mcp/", "?now=1&path=/mcp/"):

                def hook(request: Any, _message: Any, status: int = status, location: str = location) -> bool:
                    return request.path == "/mcp" and request.reply(status, Location=location)

                with odd_http(hook=hook, events=events) as server:
                    row = (status, events, location)
                    assert called(server.url) == 'note got {"text": "x"}', row
                    followed = [one for one in server.requests if one[1] != "/mcp"]
                    assert {one[2] for one in followed} >= {"initialize", "notifications/initialized", "tools/call"}, (
                        row
                    )
                    assert all(one[3]["Authorization"] == TOKEN for one in followed), row


def test_a_session_is_listened_to_and_ended_where_it_was_redirected_to():
    def hook(request: Any, message: Any) -> bool:
        if request.path == "/mcp":
            return request.reply(307, Location="/mcp/")
        return message.get("method") == "initialize" and (request.usual(message, Mcp_Session_Id="a"), True)[1]

    with odd_http(hook=hook) as server:
        called(server.url)
        assert {one[0] for one in server.requests if one[1] == "/mcp/"} >= {"POST", "DELETE"}


def test_another_origin_gets_nothing_and_is_named():
    with odd_http() as other:
        for location in (
            other.url,
            other.url.replace("127.0.0.1", "localhost"),
            f"//{other.origin.partition('//')[2]}/mcp",
            f"http://user:pass@127.0.0.1:{other.server_address[1]}/mcp?key=hidden#x",
        ):
            with odd_http(hook=moves(307, location)) as server:
                with pytest.raises(CodeModeToolError) as refused:
                    called(server.url)
                said = refused.value.message
                assert f":{other.server_address[1]}/mcp, another origin: nothing is sent there" in said, location
                assert "hidden" not in said
                assert "pass" not in said
        assert other.requests == []


def test_a_redirect_that_would_lose_the_request_or_never_ends_is_named():
    for status, location, reason in (
        (301, "/mcp/", "/mcp/ with the status 301, which drops the request body"),
        (302, "/login", "/login with the status 302"),
        (303, "/mcp/", "with the status 303"),
        (307, "/mcp", "redirects more than 5 times"),
        (307, "http://x:abc/", "to an invalid URL"),
    ):
        with odd_http(hook=moves(status, location)) as server:
            with pytest.raises(CodeModeToolError) as refused:
                called(server.url)
            assert reason in refused.value.message, (status, location, refused.value.message)


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The certificate of localhost, which clients of servers trust meanwhile."""
    key, certificate = self_signed("localhost")
    file = tmp_path / "pair.pem"
    file.write_bytes(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    trusting = ssl.create_default_context(cadata=certificate.decode())
    monkeypatch.setattr(http_client, "get_tls_context", lambda: trusting)
    return context


def test_the_step_to_https_is_followed_reported_and_remembered(tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture):
    for status in (301, 302, 307, 308):
        caplog.clear()
        with odd_http(tls=tls) as secured:
            target = secured.url.replace("127.0.0.1", "localhost")
            with odd_http(hook=moves(status, target)) as plain:
                url = plain.url.replace("127.0.0.1", "localhost")
                assert called(url) == 'note got {"text": "x"}', status
                assert len(plain.requests) == 1, "what is known to be secured is sent over plain HTTP no more"
                assert f"redirects {url} to {target}, which is used instead" in caplog.text
                assert secured.requests[-1][3]["Authorization"] == TOKEN


def test_the_step_from_https_to_http_is_refused(tls: ssl.SSLContext):
    with odd_http() as plain:
        target = plain.url.replace("127.0.0.1", "localhost")
        with odd_http(hook=moves(307, target), tls=tls) as secured, pytest.raises(CodeModeToolError) as refused:
            called(secured.url.replace("127.0.0.1", "localhost"))
        assert f"redirects from https to {target}: nothing is sent there" in refused.value.message
        assert plain.requests == []


def test_check_names_where_a_server_redirects_to(tmp_path: Path):
    with odd_http(hook=moves(308, "https://elsewhere.example/mcp")) as server:
        file = tmp_path / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {"odd": {"url": server.url}}}))
        done = subprocess.run(
            [*GATEWAYS.python, "-m", "codemode", "mcp", "check", "--config", str(file)],
            env={"HOME": str(tmp_path), "PATH": ""}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "it redirects to https://elsewhere.example/mcp, another origin" in done.stdout


def test_a_sign_in_is_asked_for_where_a_server_redirects_to():
    def hook(request: Any, _message: Any) -> bool:
        if request.path == "/mcp":
            return request.reply(307, Location="/mcp/")
        return request.reply(401, WWW_Authenticate="Bearer scope=all")

    with odd_http(hook=hook) as server:
        door = AuthorizationClient(ServerConfig("odd", "http", url=server.url), AuthSettings())
        challenge = within(door.request_challenge())
    assert challenge.headers["www-authenticate"] == "Bearer scope=all"
