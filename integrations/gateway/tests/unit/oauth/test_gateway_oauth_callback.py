"""A gateway over HTTP takes the browser back that somebody has signed in with, and nobody else's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from authorization_server import SignInServer, sign_in_server
from codemode_gateway import Gateway, GatewayConfig, GatewayOptions, GatewaySettings, ServerConfig
from codemode_gateway.gateway.http_app import create_http_app
from codemode_gateway.gateway.http_settings import compute_token_digest
from gateway_doors import bearer, modern_call

MIA = "token-of-mia-0123456789"
PUBLIC = "https://gateway.example"


def test_the_browser_comes_back_to_the_gateway(tmp_path: Path):
    async def run(url: str, answer_to: object) -> list[int]:
        server = ServerConfig("notes", "http", url=url, auth={"storage": "files"})
        auth = {"url": PUBLIC, "tokens": {f"sha256:{compute_token_digest(MIA)}": {"name": "mia"}}}
        settings = GatewaySettings(state_folder=tmp_path, auth=auth, keys=("a key of the tests, of 32 bytes.",))
        async with Gateway(GatewayConfig((server,), settings), GatewayOptions(over_http=True)) as gateway:
            app = create_http_app(gateway)
            async with app.running(), httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=PUBLIC) as web:
                attempt = gateway.sign_ins.get_or_start_attempt(server, "mia")
                sign_in = await attempt.wait_for_sign_in_start()
                assert sign_in is not None
                assert sign_in.start_url is not None
                assert (await web.get(sign_in.start_url)).status_code == 200
                page = urlsplit(sign_in.url)
                location = answer_to(f"{page.path}?{page.query}", {}, None)[1]["Location"]  # type: ignore[operator]
                assert location.startswith(f"{PUBLIC}/oauth/callback?")
                query = urlsplit(location).query
                told = [(await web.get(f"/oauth/callback?{one}")).status_code for one in ("", "code=1&state=2", query)]
                await asyncio.wait_for(attempt.wait_until_signed_in(), 60)
                return told

    with sign_in_server() as server:
        assert asyncio.run(run(server.url, server.answer_to)) == [400, 400, 200]


@asynccontextmanager
async def host(folder: Path, url: str, **server: Any) -> AsyncIterator[tuple[Gateway, httpx2.AsyncClient]]:
    """One of the hosts of a gateway, as browsers and clients call it."""
    auth = {
        "url": PUBLIC,
        "tokens": {f"sha256:{compute_token_digest(MIA)}": {"name": "mia"}},
        "console": "the operators token",
    }
    settings = GatewaySettings(state_folder=folder, auth=auth, keys=("a key of the tests, of 32 bytes.",))
    config = GatewayConfig((ServerConfig("notes", "http", url=url, auth={"storage": "files"}, **server),), settings)
    async with Gateway(config, GatewayOptions(over_http=True)) as gateway:
        app = create_http_app(gateway)
        transport = httpx2.ASGITransport(app, client=("203.0.113.7", 4000))
        async with app.running(), httpx2.AsyncClient(transport=transport, base_url=PUBLIC, timeout=60) as web:
            yield gateway, web


async def ran(web: httpx2.AsyncClient) -> dict[str, Any]:
    call = modern_call("codemode_run")
    code = 'import { who } from "@codemode/servers/notes"; globalThis.__codemode_result__ = await who();'
    call["json"]["params"]["arguments"] = {"code": code}
    answer = await web.post("/mcp", json=call["json"], headers={**call["headers"], **bearer(MIA)})
    return json.loads(answer.json()["result"]["content"][0]["text"])


async def signed_in(web: httpx2.AsyncClient, token: str) -> None:
    headers = {"sec-fetch-site": "same-origin", "accept": "application/json"}
    assert (await web.post("/console/sign-in", data={"token": token}, headers=headers)).status_code == 200


def back_from(server: SignInServer, url: str) -> str:
    """Return where a browser ends that opens the URL of a sign-in, behind the name of the gateway."""
    page = urlsplit(url)
    location = server.answer_to(f"{page.path}?{page.query}", {}, None)[1]["Location"]
    assert location.startswith(f"{PUBLIC}/oauth/callback?")
    return location.removeprefix(PUBLIC)


def test_a_remote_user_signs_in_to_a_server_that_was_never_listed_and_comes_back_to_any_host(tmp_path: Path):
    async def main(server: SignInServer) -> None:
        async with host(tmp_path, server.url) as (gateway, web), host(tmp_path, server.url) as (_, other):
            said = await ran(web)
            (problem,) = said["diagnostics"]
            assert problem["code"] == "IMPORT_FAILURE"
            page = f"{PUBLIC}/console/servers/notes"
            assert f"open {page} in a browser" in problem["message"]
            path = page.removeprefix(PUBLIC)
            nobody = await web.get(path)
            assert nobody.headers["location"] == "/console/sign-in?next=%2Fconsole%2Fservers%2Fnotes"
            await signed_in(web, MIA)
            begun = await web.get(path)
            assert begun.status_code == 303
            back = back_from(server, begun.headers["location"])
            for wrong in (back.replace("state=", "state=x"), back.replace("code=", "x="), f"{back}&code=2"):
                assert (await other.get(wrong)).status_code == 400
            assert (await other.get(back)).status_code == 400, "another browser"
            other.cookies.update(web.cookies)
            assert (await other.get(back)).status_code == 200
            await asyncio.wait_for(gateway.sign_ins.wait_until_signed_in(gateway.config.servers[0], "mia"), 60)
            assert (await web.get(path)).status_code == 200
            assert "you are Bearer" in json.dumps((await ran(web))["result"])
        left = [one.name for one in (tmp_path / "tokens").iterdir() if not one.name.endswith((".json", ".lock"))]
        assert left == []

    with sign_in_server() as server:
        asyncio.run(main(server))


def test_nobody_signs_in_for_others(tmp_path: Path):
    async def main(server: SignInServer) -> None:
        async with host(tmp_path, server.url, sharing="shared") as (_, web):
            await signed_in(web, MIA)
            assert (await web.get("/console/servers/notes")).status_code == 403
            assert (await web.get("/console/servers/other")).status_code == 404
        async with host(tmp_path, server.url) as (_, web):
            await signed_in(web, "the operators token")
            assert (await web.get("/console/servers/notes")).status_code == 403
            post = await web.post("/console/servers/notes", headers={"sec-fetch-site": "same-origin"})
            assert post.status_code == 405
        assert server.counts["/authorize"] == server.counts["/register"] == 0

    with sign_in_server() as server:
        asyncio.run(main(server))
