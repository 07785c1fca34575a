"""Sessions and bodies of the gateway over HTTP: whose they are, how many, how long."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from codemode_gateway import GatewayConfig
from codemode_gateway.gateway import http_limits
from codemode_gateway.gateway.http_app import create_http_app
from codemode_gateway.gateway.http_settings import HttpLimits
from gateway_doors import ANA, BOB, BOUND, MODERN, TOKENS, StandIn, asking, bearer, modern_call, serving, who
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from sse_starlette.sse import AppStatus
from suite import each_row

ACCEPTS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def initialize() -> dict[str, Any]:
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}


async def opened(client: httpx2.AsyncClient, url: str, token: str | None = None) -> dict[str, str]:
    """Open a session, and return the headers with which it goes on."""
    headers = {**ACCEPTS, **({} if token is None else bearer(token))}
    answer = await client.post(url, json=initialize(), headers=headers)
    assert answer.status_code == 200, answer.text
    session = {**headers, "mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
    assert (await client.post(url, json=note("notifications/initialized"), headers=session)).status_code == 202
    return session


def note(method: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method}


def listed() -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@contextlib.asynccontextmanager
async def served(auth: Any = None, **limits: Any) -> AsyncGenerator[tuple[StandIn, str, httpx2.AsyncClient]]:
    gateway = StandIn(auth)
    async with serving(gateway, limits=HttpLimits(**limits)) as url, httpx2.AsyncClient(timeout=BOUND) as client:
        yield gateway, url, client


def test_another_users_session_is_as_unknown_as_one_that_never_was():
    async def main() -> None:
        async with served({"tokens": TOKENS}) as (_, url, client):
            anas = await opened(client, url, ANA)
            assert (await client.post(url, json=listed(), headers=anas)).status_code == 200
            unknown = {**anas, "mcp-session-id": "0" * 32}
            for method in ("POST", "GET", "DELETE"):
                taken = await client.request(method, url, json=listed(), headers={**anas, **bearer(BOB)})
                never = await client.request(method, url, json=listed(), headers={**unknown, **bearer(BOB)})
                assert (taken.status_code, taken.text) == (never.status_code, never.text)
                assert taken.status_code == 404
            without = {name: value for name, value in anas.items() if name != "authorization"}
            assert (await client.post(url, json=listed(), headers=without)).status_code == 401
            assert (await client.post(url, json=listed(), headers=anas)).status_code == 200

    asyncio.run(main())


def test_one_user_has_a_bounded_number_of_requests_at_a_time():
    async def main() -> None:
        async with served({"tokens": TOKENS}, requests=1) as (gateway, url, client):
            held, call = modern_call("held"), modern_call()
            waiting = asyncio.create_task(
                client.post(url, json=held["json"], headers={**held["headers"], **bearer(ANA)})
            )
            await asyncio.wait_for(gateway.held.wait(), BOUND)
            busy = await client.post(url, json=call["json"], headers={**call["headers"], **bearer(ANA)})
            assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
            other = await client.post(url, json=call["json"], headers={**call["headers"], **bearer(BOB)})
            assert (await who(other))["id"] == "bob"
            gateway.let_go.set()
            assert (await who(await waiting))["id"] == "ana"

    asyncio.run(main())


def test_users_without_a_session_make_room_at_once_and_others_only_when_theirs_are_over():
    async def main() -> None:
        call = modern_call()
        async with asking({"tokens": TOKENS}, limits=HttpLimits(principals=1)) as client:
            for token in (ANA, BOB, ANA, BOB):
                answer = await client.post("/mcp", json=call["json"], headers={**call["headers"], **bearer(token)})
                assert answer.status_code == 200
            await opened(client, "/mcp", ANA)
            answer = await client.post("/mcp", json=call["json"], headers={**call["headers"], **bearer(BOB)})
            assert answer.status_code == 503

    asyncio.run(main())


def test_users_who_are_gone_make_room_for_others():
    async def main() -> None:
        async with asking({"tokens": TOKENS}, limits=HttpLimits(principals=1, idle_seconds=0.001)) as client:
            for token in (ANA, BOB, ANA):
                headers, status = {**ACCEPTS, **bearer(token)}, 503
                async with asyncio.timeout(BOUND):
                    while status == 503:  # until whoever was there has been idle for a millisecond
                        status = (await client.post("/mcp", json=initialize(), headers=headers)).status_code
                assert status == 200

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_of_either_era_is_told_who_it_is_and_can_be_asked(mode: str):
    async def answers(_ctx: Any, _params: Any) -> Any:
        from mcp_types import ElicitResult

        return ElicitResult(action="accept", content={"name": "Ana"})

    async def main() -> None:
        async with (
            served({"tokens": TOKENS}) as (_, url, _client),
            httpx2.AsyncClient(headers=bearer(ANA), timeout=BOUND) as signed_in,
            Client(
                streamable_http_client(url, http_client=signed_in), mode=mode, elicitation_callback=answers
            ) as client,
        ):
            assert (client.protocol_version == MODERN) == (mode == "auto")
            said = await client.call_tool("who", {})
            has_session = mode == "legacy"
            assert said.content[0].text == f'{{"id": "ana", "session": {str(has_session).lower()}}}'  # type: ignore[union-attr]
            if has_session:
                asked = await client.call_tool("asks", {})
                assert asked.content[0].text == '{"action": "accept", "name": "Ana"}'  # type: ignore[union-attr]

    asyncio.run(main())


def test_a_request_without_a_session_has_none_whatever_its_headers_say():
    async def main() -> None:
        call = modern_call()
        async with asking() as client:
            headers = {**call["headers"], "mcp-session-id": "0" * 32}
            assert await who(await client.post("/mcp", json=call["json"], headers=headers)) == {
                "id": "local",
                "session": False,
            }

    asyncio.run(main())


BODIES = {
    "long": (b"x" * 5000, 413),
    "many values": (b'{"a":[' + b"1," * 600 + b"1]}", 413),
    "deep": (b"[" * 900, 413),
    "rubbish": (b"\xff\x00{", 400),
    "empty": (b"", 400),
    "no message": (b"7", 400),
    "batch": (b"[]", 400),
}


@each_row("era", ["handshake", "modern"])
@each_row("what", BODIES)
def test_a_body_that_is_no_message_is_refused_and_the_next_is_answered(what: str, era: str):
    body, status = BODIES[what]

    async def main() -> None:
        call = modern_call()
        async with asking(limits=HttpLimits(body_bytes=2000, body_items=500)) as client:
            headers = {**ACCEPTS, **(call["headers"] if era == "modern" else {})}
            assert (await client.post("/mcp", content=body, headers=headers)).status_code == status
            assert (await client.post("/mcp", json=call["json"], headers=call["headers"])).status_code == 200

    asyncio.run(main())


async def raw(url: str, *, sent: bytes) -> bytes:
    """Send bytes, and nothing more, and return all that comes until the gateway ends the connection."""
    host, port = url.removeprefix("http://").partition("/")[0].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(sent)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), BOUND)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SIGN_IN = (
    b"POST /console/sign-in HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n"
)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"POST /mcp HT", b""),
        (HEAD, b""),
        (HEAD + b"Content-Length: 100\r\n\r\n{", b"408"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"408"),
        (SIGN_IN + b"Content-Length: 100\r\n\r\nt", b"408"),
        (HEAD + b"Content-Length: 99999999999\r\n\r\n{", b"413"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /h", b"200"),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"421"),
        (b"POST /elsewhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", b"404"),
        (b"POST /elsewhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\n" + b"x" * 500000, b"404"),
        (b"\x16\x03\x01 no HTTP at all\r\n\r\n", b"400"),
    ],
)
def test_half_a_request_holds_no_connection(
    sent: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    if answer == b"404":  # of what is all sent, all is taken, however slowly
        monkeypatch.setattr(http_limits, "_DRAIN_SECONDS", BOUND)

    async def main() -> None:
        # Whoever is to be answered has all the time that a slow machine needs to say what it says.
        patience = BOUND if answer else 0.05
        async with served(body_seconds=0.05, header_seconds=patience, keep_alive_seconds=1) as (_, url, _client):
            found = await raw(url, sent=sent)
            assert answer in found
            assert bool(answer) == bool(found)

    asyncio.run(main())
    assert [record.message for record in caplog.records if record.exc_info] == [], "anybody could fill the log"


def test_a_stop_waits_for_calls_and_cancels_those_that_last():
    async def main() -> None:
        gateway = StandIn()
        async with httpx2.AsyncClient(timeout=BOUND) as client:
            async with serving(gateway, limits=HttpLimits(stop_seconds=0.05)) as url:
                session = await opened(client, url)
                async with client.stream("GET", url, headers=session) as listening:
                    assert listening.status_code == 200
                    held = modern_call("held")
                    waiting = asyncio.create_task(client.post(url, json=held["json"], headers=held["headers"]))
                    await asyncio.wait_for(gateway.held.wait(), BOUND)
            assert (await waiting).status_code == 503
            assert gateway.cancelled.is_set()
            with pytest.raises(httpx2.ConnectError):
                await client.get(url)

    asyncio.run(main())


def test_a_call_that_ends_in_time_is_answered_while_the_gateway_stops():
    async def main() -> None:
        gateway = StandIn()
        async with httpx2.AsyncClient(timeout=BOUND) as client:
            async with serving(gateway, limits=HttpLimits(stop_seconds=BOUND)) as url:
                held = modern_call("held")
                waiting = asyncio.create_task(client.post(url, json=held["json"], headers=held["headers"]))
                await asyncio.wait_for(gateway.held.wait(), BOUND)
                asyncio.get_running_loop().call_soon(gateway.let_go.set)
            assert (await waiting).status_code == 200

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_signal_lets_calls_end_that_run(mode: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(AppStatus, "should_exit", False)  # stays True behind a signal, for the whole process

    async def main() -> None:
        async with served(stop_seconds=BOUND) as (gateway, url, client), asyncio.timeout(BOUND / 2):
            session, held = await opened(client, url), modern_call("held")
            if mode == "legacy":
                params = {"name": "held", "arguments": {}}
                held = {"json": {**listed(), "method": "tools/call", "params": params}, "headers": session}
            waiting = asyncio.create_task(client.post(url, **held))
            await gateway.held.wait()
            signal.raise_signal(signal.SIGTERM)
            while (await client.post(url, json=listed() | {"id": 2}, headers=session)).status_code != 503:
                pass
            # What cuts off streams looks at this twice a second: here the call may have ended before.
            assert not AppStatus.should_exit
            gateway.let_go.set()
            answer = await waiting
            assert answer.status_code == 200
            assert '"result":' in answer.text
            assert not gateway.cancelled.is_set()

    asyncio.run(main())


def test_a_signal_ends_what_pages_listen_to(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(AppStatus, "should_exit", False)

    async def main() -> None:
        async with served({"tokens": TOKENS}, stop_seconds=BOUND) as (_, url, client), asyncio.timeout(BOUND / 2):
            console = url.removesuffix("/mcp") + "/console"
            own = {"sec-fetch-site": "same-origin"}
            assert (await client.post(f"{console}/sign-in", data={"token": ANA}, headers=own)).status_code == 303
            async with client.stream("GET", f"{console}/events", headers=own) as listening:
                assert listening.status_code == 200
                signal.raise_signal(signal.SIGTERM)
                assert b"open" in b"".join([part async for part in listening.aiter_bytes()])

    asyncio.run(main())


def test_a_user_who_is_taken_off_the_list_is_nobody_at_once():
    async def main() -> None:
        async with served({"tokens": TOKENS}) as (gateway, url, client):
            anas, bobs = await opened(client, url, ANA), await opened(client, url, BOB)
            page = {"data": {"token": ANA}, "headers": {"sec-fetch-site": "same-origin"}}
            console = url.removesuffix("/mcp") + "/console"
            assert (await client.post(f"{console}/sign-in", **page)).status_code == 303
            assert (await client.get(f"{console}/history")).status_code == 200
            only_bob = {key: user for key, user in TOKENS.items() if user["name"] == "bob"}
            async with client.stream("GET", url, headers=anas) as listening:
                assert listening.status_code == 200
                gateway.config = GatewayConfig(settings=replace(gateway.config.settings, auth={"tokens": only_bob}))
                assert (await client.post(url, json=listed(), headers=bobs)).status_code == 200
                async with asyncio.timeout(BOUND):
                    async for _ in listening.aiter_bytes():
                        pass
            assert (await client.post(url, json=listed(), headers=anas)).status_code == 401
            assert (await client.get(f"{console}/history")).status_code == 303
            assert (await client.post(f"{console}/sign-in", **page)).status_code == 401
            gateway.config = GatewayConfig(settings=replace(gateway.config.settings, auth={"tokens": "rubbish"}))
            assert (await client.post(url, json=listed(), headers=bobs)).status_code == 200
            gateway.config = GatewayConfig(settings=replace(gateway.config.settings, auth={}))
            assert (await client.post(url, json=listed(), headers=bobs)).status_code == 401  # never open to all at once

    asyncio.run(main())


@each_row("wrong", ["null", "1.5", "1.0", "1e400", "true", "[1]", "{}", "9" * 400])
def test_a_request_whose_id_is_none_is_answered_and_not_taken_for_a_notification(wrong: str):
    body = f'{{"jsonrpc": "2.0", "method": "tools/list", "id": {wrong}}}'

    async def main() -> None:
        async with asking() as client:
            session = await opened(client, "/mcp")
            for headers in (session, modern_call()["headers"]):
                answer = await client.post("/mcp", content=body, headers=headers)
                assert answer.status_code == 400
                assert answer.json()["id"] is None
                assert answer.json()["error"]["code"] == -32600
            assert (await client.post("/mcp", content=body.replace(wrong, '"1"'), headers=session)).status_code == 200

    asyncio.run(main())


def test_a_large_message_is_looked_at_too():
    body = '{"jsonrpc": "2.0", "method": "tools/list", "id": null, "params": {"x": "' + "x" * (1 << 17) + '"}}'

    async def main() -> None:
        async with asking() as client:
            assert (await client.post("/mcp", content=body, headers=ACCEPTS)).status_code == 400

    asyncio.run(main())


def test_two_requests_of_one_id_at_a_time_are_not_both_taken():
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "held", "arguments": {}}}

    async def main() -> None:
        gateway = StandIn()
        app = create_http_app(gateway)
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 4000))
        async with app.running(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
            session, other = await opened(client, "/mcp"), await opened(client, "/mcp")
            first = asyncio.create_task(client.post("/mcp", json=call, headers=session))
            await asyncio.wait_for(gateway.held.wait(), BOUND)
            for same in (7, "7"):
                answer = await client.post("/mcp", json={**call, "id": same}, headers=session)
                assert (answer.status_code, answer.json()["id"]) == (400, same)
                assert answer.json()["error"]["code"] == -32600
            for headers, one in ((session, 8), (other, 7)):
                answer = await client.post("/mcp", json={**listed(), "id": one}, headers=headers)
                assert answer.status_code == 200
            gateway.let_go.set()
            assert (await asyncio.wait_for(first, BOUND)).status_code == 200
            assert (await client.post("/mcp", json=call, headers=session)).status_code == 200  # none is in flight

    asyncio.run(main())
