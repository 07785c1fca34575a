"""A gateway over HTTP takes the browser back that somebody has signed in with, and nobody else's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from authorization_server import sign_in_server

from codemode.mcp import Gateway, GatewayConfig, GatewayOptions, GatewaySettings, ServerConfig
from codemode.mcp.gateway.http_app import http_app
from codemode.mcp.gateway.http_settings import token_digest

MIA = "token-of-mia-0123456789"
PUBLIC = "https://gateway.example"


def test_the_browser_comes_back_to_the_gateway(tmp_path: Path):
    async def run(url: str, answer_to: object) -> list[int]:
        server = ServerConfig("notes", "http", url=url, auth={"storage": "files"})
        auth = {"url": PUBLIC, "tokens": {f"sha256:{token_digest(MIA)}": {"name": "mia"}}}
        settings = GatewaySettings(state_folder=tmp_path, auth=auth, keys=("a key of the tests, of 32 bytes.",))
        async with Gateway(GatewayConfig((server,), settings), GatewayOptions(over_http=True)) as gateway:
            app = http_app(gateway)
            async with app.running(), httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=PUBLIC) as web:
                attempt = gateway.sign_ins.begun(server, "mia")
                page = urlsplit(await attempt.url())
                location = answer_to(f"{page.path}?{page.query}", {}, None)[1]["Location"]  # type: ignore[operator]
                assert location.startswith(f"{PUBLIC}/oauth/callback?")
                query = urlsplit(location).query
                told = [(await web.get(f"/oauth/callback?{one}")).status_code for one in ("", "code=1&state=2", query)]
                await asyncio.wait_for(attempt.wait(), 30)
                return told

    with sign_in_server() as server:
        assert asyncio.run(run(server.url, server.answer_to)) == [400, 400, 200]
