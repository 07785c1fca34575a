"""The approval console of a gateway over HTTP: who signs in, and whose records they see."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import codemode_console
import httpx2
import pytest
from codemode_gateway import ConfigError
from codemode_gateway.approvals.pending_store import ALLOWED_AUDIT_KIND
from codemode_gateway.approvals.remembered_answers import RememberedAnswers
from codemode_gateway.gateway.http_app import HttpApp, create_http_app
from codemode_gateway.gateway.http_auth import RequestAuthenticator
from codemode_gateway.gateway.http_console import create_token_auth_class
from codemode_gateway.gateway.http_settings import parse_http_settings
from codemode_gateway.gateway.options import APP_NAME
from gateway_doors import ANA, BOB, TOKENS, StandIn, compute_token_digest
from mcp.server.auth.provider import AccessToken

from codemode import CallContext, create_code_mode_tool, tool

OPERATOR = "token-of-the-operator-0123"
OWN = {"sec-fetch-site": "same-origin"}
NOBODY = codemode_console.User("nobody", [])


@tool(needs_approval=True)
def refund(order: str) -> str:
    return "done"


async def paused(gateway: StandIn, tenant: str, payload: Any = None) -> str:
    store = gateway.store
    options: Any = {
        "approval": {"mode": "interrupt"},
        "continuation": {
            "guard": store.guard,
            "keys": list(gateway.config.settings.keys),
            "max_age_ms": 86_400_000,
            "conversation_id": f"{APP_NAME}:{tenant}",
        },
    }
    code_mode = create_code_mode_tool([refund], options)
    js = f"/* {tenant} */ return await tools.refund({{ order: 'A-17' }})"
    interrupt = await code_mode.execute({"js": js}, call=CallContext(conversation_id=tenant))
    if payload is not None:  # as the gateway keeps it: with the server's name, and how its tool was
        (one,) = interrupt.requests
        interrupt = replace(interrupt, requests=(replace(one, tool_name="shop.refund"),))
        payload = {name: {one.interrupt_id: said} for name, said in payload.items()} | {"session": "s"}
    return await store.put(interrupt, tool=code_mode, tenant=tenant, app=APP_NAME, payload=payload)


@contextlib.asynccontextmanager
async def browsing(
    auth: dict[str, Any] | None = None,
    *,
    verifier: Any = None,
    base: str = "http://127.0.0.1:8765",
    folder: Path | None = None,
) -> AsyncGenerator[tuple[StandIn, HttpApp, httpx2.AsyncClient]]:
    gateway = StandIn(auth, verifier)
    gateway.folder = folder or gateway.folder
    app = create_http_app(gateway)
    transport = httpx2.ASGITransport(app, client=("127.0.0.1", 4000))
    async with app.running(), httpx2.AsyncClient(transport=transport, base_url=base) as browser:
        yield gateway, app, browser


async def signed_in(browser: httpx2.AsyncClient, token: str) -> int:
    answer = await browser.post(
        "/console/sign-in", data={"token": token}, headers={**OWN, "accept": "application/json"}
    )
    return answer.status_code


async def seen(browser: httpx2.AsyncClient) -> set[str]:
    answer = await browser.get("/console/", headers={"accept": "application/json"})
    return {one["tenant"] for one in answer.json()["records"]}


def test_on_loopback_too_nobody_sees_it_without_the_token_that_the_operator_was_told():
    async def main() -> None:
        async with browsing() as (gateway, app, browser):
            record, _ = await paused(gateway, "local"), await paused(gateway, "ana")
            page = await browser.get("/console")
            assert (page.status_code, page.headers["location"]) == (307, "/console/")
            for path in ("/console/", f"/console/records/{record}", "/console/history", "/console/audit/export"):
                page = await browser.get(path)
                assert page.status_code == 303, path
                assert page.headers["location"].startswith("/console/sign-in")
            assert await signed_in(browser, "guessed") == 401
            lines = app.set_listen_address_and_describe("127.0.0.1", 8765)
            start = "Approvals: http://127.0.0.1:8765/console/sign-in#token="
            token = next(one for one in lines if one.startswith(start)).removeprefix(start)
            assert await signed_in(browser, token) == 200
            assert await seen(browser) == {"local"}
            assert app.get_record_url(record) == f"http://127.0.0.1:8765/console/records/{record}"
            assert token not in str(app.get_record_url(record))
            shown = await browser.get(f"/console/records/{record}")
            assert shown.status_code == 200
            assert "/* local */" in shown.text

    asyncio.run(main())


def test_each_user_signs_in_with_their_token_and_sees_what_is_theirs():
    async def main() -> None:
        async with browsing({"tokens": TOKENS}) as (gateway, app, browser):
            records = {name: await paused(gateway, name) for name in ("ana", "bob", "local")}
            assert all("token=" not in one for one in app.set_listen_address_and_describe("127.0.0.1", 8765))
            assert await signed_in(browser, ANA) == 200
            assert await seen(browser) == {"ana"}
            for name, status in (("ana", 200), ("bob", 404), ("local", 404)):
                page = await browser.get(f"/console/records/{records[name]}")
                assert page.status_code == status
            browser.cookies.clear()
            assert await signed_in(browser, BOB) == 200
            assert await seen(browser) == {"bob"}

    asyncio.run(main())


def test_an_approval_may_hold_always_for_the_tool_as_it_was_and_for_whose_call_it_is(tmp_path: Path):
    async def main() -> None:
        async with browsing({"tokens": TOKENS, "console": OPERATOR}, folder=tmp_path) as (gateway, _, browser):
            known = {"definitions": "the digest", "servers": "shop"}
            records = [await paused(gateway, "ana", known), await paused(gateway, "ana")]
            assert await signed_in(browser, OPERATOR) == 200
            remembered = RememberedAnswers(tmp_path)
            for record, offered, status in zip(records, (["session", "always"], []), (200, 400), strict=True):
                path = f"/console/records/{record}"
                (card,) = (await browser.get(path, headers={"accept": "application/json"})).json()["requests"]
                assert card["later"] == offered
                sent = {"decision": "approve", "later": "always", "form_token": card["formToken"]}
                sent |= {"version": card["version"], "shown": card["shown"]}
                answer = await browser.post(
                    f"{path}/requests/1", json=sent, headers={**OWN, "accept": "application/json"}
                )
                assert answer.status_code == status, answer.text
            (kept,) = remembered.list_permanent_answers()
            assert (kept.principal, kept.server, kept.tool, kept.definition_digest) == (
                "ana",
                "shop",
                "refund",
                "the digest",
            )
            (line,) = [one async for one in gateway.store.audit(tenant="ana") if one.kind == ALLOWED_AUDIT_KIND]
            assert (line.actor, line.address, line.record_id) == ("operator", "127.0.0.1", records[0])
            assert line.details == {"server": "shop", "tool": "refund", "holds": "always"}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("console", "sees"),
    [
        (OPERATOR, {"ana", "bob"}),
        ({f"sha256:{compute_token_digest(OPERATOR)}": {"name": "op", "tenants": ["bob"]}}, {"bob"}),
        ({compute_token_digest(OPERATOR).upper(): {"name": "op", "tenants": "*", "may_decide": False}}, {"ana", "bob"}),
    ],
)
def test_an_operator_is_whoever_the_configuration_says(console: Any, sees: set[str]):
    async def main() -> None:
        async with browsing({"tokens": TOKENS, "console": console}) as (gateway, app, browser):
            await paused(gateway, "ana")
            await paused(gateway, "bob")
            assert OPERATOR not in "".join(app.set_listen_address_and_describe("127.0.0.1", 8765))
            assert await signed_in(browser, OPERATOR) == 200
            assert await seen(browser) == sees
            browser.cookies.clear()
            assert await signed_in(browser, ANA) == 200
            assert await seen(browser) == {"ana"}

    asyncio.run(main())


@pytest.mark.parametrize("console", [{"x": {"name": "op", "tenants": "*"}}, {"0" * 64: {"name": "op"}}, {"0" * 64: 7}])
def test_users_who_cannot_be_meant_are_named_by_their_path(console: Any):
    async def main() -> None:
        with pytest.raises(ConfigError, match=r"codemode\.auth\.console"):
            async with browsing({"console": console}):
                pass

    asyncio.run(main())


class Verifier:
    """Takes names for tokens, for as long as it ``takes`` any."""

    def __init__(self) -> None:
        self.takes, self.ends_at = True, int(time.time()) + 600

    async def verify_token(self, token: str) -> AccessToken | None:
        if token == "fails":
            raise RuntimeError("the token was fails")
        if not self.takes or token not in ("mia", "tom", "elsewhere", "unscoped"):
            return None
        return AccessToken(
            token=token,
            client_id="editor",
            subject=token,
            scopes=[] if token == "unscoped" else ["run"],
            expires_at=self.ends_at,
            resource="https://other.example.com/mcp" if token == "elsewhere" else None,
            claims={"iss": "https://login.acme.com"},
        )


MIA, TOM = "oauth:https://login.acme.com user mia", "oauth:https://login.acme.com user tom"
OF_A_SERVER = {"issuer": "https://login.acme.com", "scopes": ["run"], "tokens": TOKENS}


def test_a_user_of_an_authorization_server_signs_in_with_the_token_that_the_gateway_takes():
    async def main() -> None:
        verifier = Verifier()
        async with browsing(OF_A_SERVER, verifier=verifier) as (gateway, _, browser):
            records = {name: await paused(gateway, name) for name in (MIA, TOM, "ana", "local")}
            for token, status in (("", 401), ("unknown", 401), ("elsewhere", 401), ("unscoped", 401), ("fails", 503)):
                assert await signed_in(browser, token) == status
                assert not browser.cookies
            assert await signed_in(browser, "mia") == 200
            assert await seen(browser) == {MIA}
            for name, record in records.items():
                assert (await browser.get(f"/console/records/{record}")).status_code == (200 if name == MIA else 404)
            # The token is in no cookie, and what it was exchanged for is no token.
            (cookie,) = browser.cookies.jar
            said = base64.urlsafe_b64decode(str(cookie.value).partition(".")[0] + "==")
            key = json.loads(said)[1]
            assert key.endswith(MIA)
            browser.cookies.clear()
            assert await signed_in(browser, key) == 401
            assert await signed_in(browser, ANA) == 200
            assert await seen(browser) == {"ana"}

    asyncio.run(main())


async def status_of(browser: httpx2.AsyncClient) -> int:
    return (await browser.get("/console/", headers={"accept": "application/json"})).status_code


def test_a_session_is_known_to_every_host_and_ends_with_its_token_and_its_way_of_verifying():
    async def main() -> None:
        verifier = Verifier()
        async with browsing(OF_A_SERVER, verifier=verifier) as (_, _, browser):
            assert await signed_in(browser, "mia") == 200
            async with browsing(OF_A_SERVER, verifier=verifier) as (_, _, other):
                other.cookies = browser.cookies
                assert await status_of(other) == 200
            async with browsing({**OF_A_SERVER, "scopes": ["more"]}, verifier=verifier) as (_, _, other):
                other.cookies = browser.cookies
                assert await status_of(other) in (303, 401)
            async with browsing({"tokens": TOKENS}) as (_, _, other):
                other.cookies = browser.cookies
                assert await status_of(other) in (303, 401)

    asyncio.run(main())


def test_a_session_ends_when_its_token_does():
    now = [1000.0]
    door = RequestAuthenticator(parse_http_settings({}), Verifier())
    found = create_token_auth_class(lambda: door, clock=lambda: now[0])({f"sha256:{'0' * 64}": NOBODY})
    key = f"verified {door.verifier_fingerprint} 1060 {MIA}"
    assert found.find_by_session_key(key) == codemode_console.User(MIA, [MIA])
    mark = door.verifier_fingerprint
    for wrong in (f"verified x 1060 {MIA}", f"verified {mark} 1e9 {MIA}", f"verified {mark} 1060 ana", "x",
                  "verified", f"verified {mark} 1060"):  # fmt: skip
        assert found.find_by_session_key(wrong) is None
    now[0] = 1060.0
    assert found.find_by_session_key(key) is None


def test_pages_of_others_reach_nothing_of_it():
    async def main() -> None:
        async with browsing({"tokens": TOKENS}) as (gateway, _, browser):
            await paused(gateway, "ana")
            form = {"data": {"token": ANA}}
            for headers, status in (
                ({"origin": "http://evil.example.com"}, 403),
                ({"sec-fetch-site": "cross-site"}, 403),
                ({}, 403),
                ({"host": "evil.example.com", **OWN}, 200),  # by whatever name: there is sign-in
            ):
                assert (await browser.post("/console/sign-in", **form, headers=headers)).status_code in (status, 303)

    asyncio.run(main())


def test_behind_a_proxy_the_page_of_a_record_is_where_others_find_it():
    async def main() -> None:
        auth = {"tokens": TOKENS, "url": "https://tools.acme.com/gateway/"}
        async with browsing(auth) as (_, app, _browser):
            app.set_listen_address_and_describe("0.0.0.0", 8765)
            assert app.get_record_url("abc") == "https://tools.acme.com/gateway/console/records/abc"
        async with browsing({"tokens": TOKENS}) as (_, app, _browser):
            app.set_listen_address_and_describe("0.0.0.0", 8765)
            assert app.get_record_url("abc") is None

    asyncio.run(main())


def test_mounted_under_a_prefix_it_finds_its_own_pages():
    from starlette.applications import Starlette
    from starlette.routing import Mount

    async def main() -> None:
        gateway = StandIn({"tokens": TOKENS})
        app = create_http_app(gateway)
        outer = Starlette(routes=[Mount("/tools", app)])
        transport = httpx2.ASGITransport(outer, client=("127.0.0.1", 4000))
        async with app.running(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as browser:
            page = await browser.get("/tools/console/")
            assert page.headers["location"] == "/tools/console/sign-in?next=%2Ftools%2Fconsole%2F"
            form = {"token": ANA, "next": "/tools/console/history"}
            page = await browser.post("/tools/console/sign-in", data=form, headers=OWN)
            assert page.headers["location"] == "/tools/console/history"
            assert "Path=/tools/console" in page.headers["set-cookie"]
            assert (await browser.get("/tools/console/history")).status_code == 200
            assert (await browser.get("/tools/healthz")).status_code == 200

    asyncio.run(main())
