"""A sign-in over HTTP is ended by the browser alone that began it: a link to it connects nobody else's account."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from authorization_server import sign_in_server
from codemode_gateway import Gateway, GatewayConfig, GatewayOptions, GatewaySettings, ServerConfig
from codemode_gateway.gateway.http_app import create_http_app
from codemode_gateway.oauth.browser import PendingSignIn
from codemode_gateway.oauth.login_attempt import read_sign_in
from codemode_gateway.oauth.token_store import write_private_text
from starlette.requests import cookie_parser
from test_gateway_oauth_callback import MIA, back_from, host, signed_in

from codemode.interrupts.interrupt import InterruptRequested

AUTHORIZE = "https://as.example/authorize?state=s1&redirect_uri=https%3A%2F%2Fgateway.example%2Foauth%2Fcallback"


class NewCall:
    """The context of a call that no answer belongs to yet."""

    interrupt = None


async def asked_to_open(gateway: Any, principal: str) -> str:
    """Return the URL that a client is asked to open for a call of a signed-out user."""
    (server,) = gateway.config.servers
    with pytest.raises(InterruptRequested) as paused:
        await gateway.sign_ins.create_signed_out_hook(principal)(server, NewCall())
    return str(paused.value.payload["url"])


def test_the_browser_of_another_person_cannot_end_a_sign_in(tmp_path: Path) -> None:
    async def main(server: Any) -> None:
        async with host(tmp_path, server.url) as (gateway, web):
            await signed_in(web, MIA)
            begun = await web.get("/console/servers/notes")
            (cookie,) = [
                one for one in begun.headers.get_list("set-cookie") if one.startswith("__Host-codemode_sign_in_")
            ]
            for attribute in ("Path=/;", "HttpOnly", "SameSite=Lax", "Secure", "Max-Age="):
                assert attribute in cookie
            back = back_from(server, begun.headers["location"])
            name = cookie.partition("=")[0]
            async with httpx2.AsyncClient(transport=web._transport, base_url=web.base_url) as victim:
                for sent in ("", f"{name}=", f"{name}=guessed", "codemode_console=x"):
                    refused = await victim.get(back, headers={"cookie": sent})
                    assert refused.status_code == 400, sent
                    assert "started in another browser" in refused.text
            attempt = gateway.sign_ins.get_or_start_attempt(gateway.config.servers[0], "mia")
            assert not attempt.is_over, "a refused browser ends nothing"
            assert (await web.get(back)).status_code == 200
            await asyncio.wait_for(attempt.wait_until_signed_in(), 60)

    with sign_in_server() as server:
        asyncio.run(main(server))


def test_clients_get_a_page_of_the_gateway_to_open_and_not_the_authorization_url(tmp_path: Path) -> None:
    async def main(server: Any) -> None:
        async with host(tmp_path, server.url) as (gateway, web), host(tmp_path, server.url) as (_, other):
            assert await asked_to_open(gateway, "mia") == "https://gateway.example/console/servers/notes"
            gateway.sign_ins.get_page_url = lambda *_: None  # as where no console is installed
            start = await asked_to_open(gateway, "mia")
            assert start.startswith("https://gateway.example/oauth/start/")
            page = await other.get(start)
            assert page.status_code == 200
            assert "<strong>mia</strong>" in page.text
            (link,) = re.findall(r'href="([^"]*)"', page.text)
            back = back_from(server, link.replace("&amp;", "&"))
            assert (await web.get(back)).status_code == 400
            assert (await other.get(back)).status_code == 200
            attempt = gateway.sign_ins.get_or_start_attempt(gateway.config.servers[0], "mia")
            await asyncio.wait_for(attempt.wait_until_signed_in(), 60)
            for gone in (start, "https://gateway.example/oauth/start/", f"{start}x"):
                assert (await web.get(gone)).status_code == 404

    with sign_in_server() as server:
        asyncio.run(main(server))


def test_the_start_page_escapes_what_it_shows() -> None:
    sign_in = PendingSignIn(f'{AUTHORIZE}&x="><script>', "<b>notes", "<i>mia", "secret")
    page = sign_in.render_start_page()
    assert [tag for tag in ("<script", "<b>", "<i>") if tag in page] == []
    assert "as.example" in page


def test_the_cookie_goes_to_the_callback_alone_and_is_secure_where_that_is() -> None:
    plain = AUTHORIZE.replace("https%3A%2F%2Fgateway.example%2Foauth", "http%3A%2F%2F127.0.0.1%3A9%2Fbelow%2Foauth")
    sign_in = PendingSignIn(plain, "notes", "mia", "secret")
    cookie = sign_in.create_cookie_header() or ""
    assert "Path=/below/oauth/callback;" in cookie
    assert "Secure" not in cookie
    assert (sign_in.start_url or "").startswith("http://127.0.0.1:9/below/oauth/start/")
    pair = cookie.partition(";")[0]
    assert sign_in.is_browser_allowed(cookie_parser(f"a=b; {pair}"))
    other = PendingSignIn(plain.replace("state=s1", "state=s2"), "notes", "mia", "secret")
    assert not other.is_browser_allowed(cookie_parser(pair))
    secure = PendingSignIn(AUTHORIZE, "notes", "mia", "secret")
    planted = pair.replace("codemode", "__Host-codemode"), (secure.create_cookie_header() or "").partition(";")[0]
    assert [secure.is_browser_allowed(cookie_parser(one)) for one in planted] == [
        True,
        True,
    ]
    without_prefix = planted[1].removeprefix("__Host-")
    assert not secure.is_browser_allowed(cookie_parser(without_prefix)), "another host may set this one"
    assert urlsplit(sign_in.start_url or "").path.endswith(sign_in.ticket)


def test_a_sign_in_with_its_own_listener_is_shown_as_it_is() -> None:
    sign_in = PendingSignIn(AUTHORIZE, "notes", "local", None)
    assert (sign_in.create_cookie_header(), sign_in.start_url, sign_in.is_browser_allowed({})) == (None, None, True)
    assert not sign_in.matches_ticket(sign_in.ticket)


def test_files_of_other_processes_are_read_with_care(tmp_path: Path) -> None:
    file, until = tmp_path / "a.url", time.time() + 60
    whole = {"url": AUTHORIZE, "server": "notes", "principal": "mia", "secret": "s", "until": until}
    write_private_text(file, json.dumps(whole))
    assert read_sign_in(file) == PendingSignIn(AUTHORIZE, "notes", "mia", "s", until)
    for broken in ({}, [], {**whole, "url": 1}, {**whole, "secret": 5}, {**whole, "until": 1}, {**whole, "until": "x"}):
        write_private_text(file, json.dumps(broken))
        assert read_sign_in(file) is None
    write_private_text(file, "no JSON")
    assert read_sign_in(file) is None
    write_private_text(file, json.dumps(whole))
    file.chmod(0o644)
    assert read_sign_in(file) is None
    assert read_sign_in(tmp_path / "missing.url") is None


def test_a_loopback_sign_in_of_a_gateway_over_http_keeps_its_listener(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        config = ServerConfig("notes", "http", url=url, auth={"storage": "files"})
        settings = GatewaySettings(state_folder=tmp_path)
        gateway = Gateway(GatewayConfig((config,), settings), GatewayOptions(over_http=True))
        async with gateway, create_http_app(gateway).running():
            sign_in = await gateway.sign_ins.get_or_start_sign_in(config)
        assert sign_in is not None
        assert sign_in.secret is None
        assert "127.0.0.1" in sign_in.url

    with sign_in_server() as server:
        asyncio.run(main(server.url))
