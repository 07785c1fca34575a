"""Sign-ins that several processes share, and one at an authorization server that somebody else wrote."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import httpx2
import pytest
from authorization_server import browse, configured, sign_in_server
from codemode_gateway import GatewayConfig, login, logout
from codemode_gateway.oauth.login_manager import SignInManager
from required import missing, node_path
from warm_commands import GATEWAYS

pytestmark = pytest.mark.usefixtures("warm_gateways")
SUPPORT = Path(__file__).parents[1] / "support"
SECONDS = 60


@contextmanager
def host(folder: Path, url: str, *how: str) -> Iterator[subprocess.Popen[str]]:
    command = [*GATEWAYS.python, str(SUPPORT / "signing_in_host.py"), str(folder), url, *how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == ("held\n" if how else "ready\n")
            yield process
        finally:
            process.kill()


def test_processes_that_share_a_folder_present_a_refresh_token_once(tmp_path: Path):
    with sign_in_server() as server, ExitStack() as stack:
        config = configured(server.url, tmp_path)
        asyncio.run(login(config, "notes", open_browser=browse, out=io.StringIO()))
        server.access.clear()
        # One that dies while it holds the lock keeps nobody.
        with host(tmp_path, server.url, "hold"):
            hosts = [stack.enter_context(host(tmp_path, server.url)) for _ in range(2)]
            for one in hosts:
                assert one.stdin is not None
                one.stdin.write("\n")
                one.stdin.flush()
        told = [one.communicate(timeout=SECONDS)[0] for one in hosts]
    assert told == ["200\n"] * 2
    assert len(server.used) == 1
    assert not list((tmp_path / "tokens").glob(".*"))


@pytest.fixture
def provider() -> Iterator[str]:
    folder = Path(sys.prefix) / "oidc"
    if not (folder / "node_modules" / "oidc-provider").exists():
        missing("npm", "oidc-provider is not installed: run `make prepare-full` with a network")
    command = [node_path(), str(SUPPORT / "oidc_provider.mjs"), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def browse_with_cookies(url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    with opener.open(url, timeout=SECONDS) as response:
        assert b"signed in" in response.read()


async def answer(config: GatewayConfig) -> Any:
    server = config.servers[0]
    async with (
        SignInManager(config) as sign_ins,
        httpx2.AsyncClient(auth=sign_ins.create_auth_hook()(server), timeout=SECONDS) as client,
    ):
        return (await client.post(server.url or "", json={})).json()


@pytest.mark.full
def test_a_real_authorization_server_is_signed_in_to_renewed_and_left(provider: str, tmp_path: Path):
    config = configured(f"{provider}/mcp", tmp_path)
    signing_in = login(config, "notes", open_browser=browse_with_cookies, out=io.StringIO())
    asyncio.run(asyncio.wait_for(signing_in, SECONDS))
    assert asyncio.run(answer(config)) == {"sub": "mia"}

    path = next((tmp_path / "tokens").glob("*.json"))
    before = json.loads(path.read_text())
    path.write_text(json.dumps({**before, "expires_at": 1.0}))
    assert asyncio.run(answer(config)) == {"sub": "mia"}
    after = json.loads(path.read_text())
    assert after["refresh_token"] not in (None, before["refresh_token"])

    assert asyncio.run(logout(config, "notes"))
    path.write_text(json.dumps(after))
    path.chmod(0o600)
    with pytest.raises(Exception, match="codemode mcp login notes"):
        asyncio.run(answer(config))


@pytest.mark.full
def test_a_machine_has_its_own_credentials_there(provider: str, tmp_path: Path):
    config = configured(
        f"{provider}/mcp", tmp_path, flow="client_credentials", clientId="machine",
        clientSecret="hunter2-hunter2-hunter2", scopes=["notes"],
    )  # fmt: skip
    assert asyncio.run(answer(config)) == {"sub": "machine"}
