"""A user's sessions over HTTP: a bounded number, of which the one that was idle longest makes room for the next."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx2
import pytest
from codemode_gateway.gateway.http_sessions import SessionLimiter
from codemode_gateway.gateway.principals import METHOD_KEY
from gateway_doors import ANA, BOB, BOUND, TOKENS, bearer, modern_call
from test_gateway_http_sessions import ACCEPTS, initialize, listed, opened, served


async def _is_there(client: httpx2.AsyncClient, url: str, session: dict[str, str]) -> bool:
    status = (await client.post(url, json=listed(), headers=session)).status_code
    assert status in (200, 404)
    return status == 200


async def _opened_at_last(client: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """Open a session as soon as there is room: a server knows a moment later that nobody waits any more."""
    async with asyncio.timeout(BOUND):
        while True:
            with contextlib.suppress(AssertionError):
                return await opened(client, url, ANA)


def _held() -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "held", "arguments": {}}}


def test_the_session_that_was_idle_longest_makes_room_and_nobody_elses_does():
    async def main() -> None:
        async with served({"tokens": TOKENS}, sessions=2) as (_, url, client):
            bobs = await opened(client, url, BOB)
            first, second = await opened(client, url, ANA), await opened(client, url, ANA)
            assert await _is_there(client, url, first)
            third = await opened(client, url, ANA)
            there = [await _is_there(client, url, one) for one in (first, second, third, bobs)]
            assert there == [True, False, True, True]

    asyncio.run(main())


def test_a_session_that_its_client_has_ended_takes_no_room():
    async def main() -> None:
        async with served({"tokens": TOKENS}, sessions=2) as (_, url, client):
            stays = await opened(client, url, ANA)
            for _ in range(3):
                passing = await _opened_at_last(client, url)
                assert (await client.delete(url, headers=passing)).status_code == 200
            assert await _is_there(client, url, stays)

    asyncio.run(main())


def test_a_session_in_use_makes_no_room_until_nobody_waits_in_it():
    async def main() -> None:
        async with served({"tokens": TOKENS}, sessions=1) as (gateway, url, client):
            used = await opened(client, url, ANA)
            call = asyncio.create_task(client.post(url, json=_held(), headers=used))
            await asyncio.wait_for(gateway.held.wait(), BOUND)
            refused = await client.post(url, json=initialize(), headers={**ACCEPTS, **bearer(ANA)})
            assert refused.status_code == 503
            gateway.let_go.set()
            assert (await call).status_code == 200
            await _opened_at_last(client, url)
            assert not await _is_there(client, url, used)

    asyncio.run(main())


def test_a_session_to_which_somebody_listens_makes_no_room():
    async def main() -> None:
        async with served({"tokens": TOKENS}, sessions=1) as (_, url, client):
            used = await opened(client, url, ANA)
            async with client.stream("GET", url, headers=used) as listening:
                assert listening.status_code == 200
                refused = await client.post(url, json=initialize(), headers={**ACCEPTS, **bearer(ANA)})
                assert refused.status_code == 503
                assert await _is_there(client, url, used)

    asyncio.run(main())


def test_clients_that_vanish_while_they_are_answered_keep_nobody_out():
    async def main() -> None:
        async with served({"tokens": TOKENS}, sessions=2) as (gateway, url, client):
            for _ in range(4):
                session = await _opened_at_last(client, url)
                call = asyncio.create_task(client.post(url, json=_held(), headers=session))
                await asyncio.wait_for(gateway.held.wait(), BOUND)
                gateway.held.clear()
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await call
            await asyncio.wait_for(gateway.cancelled.wait(), BOUND)  # what nobody waits for ends with its session

    asyncio.run(main())


def test_what_opens_no_session_leaves_nothing_and_ends_none():
    async def main() -> None:
        modern = modern_call()
        async with served({"tokens": TOKENS}, sessions=1) as (_, url, client):
            used = await opened(client, url, ANA)
            headers = {**ACCEPTS, **bearer(ANA)}
            for method in ("tools/list", "ping", "notifications/initialized"):
                await client.post(url, json={"jsonrpc": "2.0", "id": 1, "method": method}, headers=headers)
            await client.post(url, json=modern["json"], headers={**modern["headers"], **bearer(ANA)})
            ended = await client.delete(url, headers={**used, "mcp-protocol-version": "2026-07-28"})
            assert ended.status_code >= 400
            assert await _is_there(client, url, used)
            await _opened_at_last(client, url)
            assert not await _is_there(client, url, used)

    asyncio.run(main())


class Sdk:
    """As many sessions as the SDK's manager lets in, each opened in several steps."""

    def __init__(self, most: int) -> None:
        self.most, self.there = most, list[str]()
        self.made, self.refused = 0, 0

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        if scope["method"] == "DELETE":
            self.there.remove(scope["headers"][0][1].decode())
            await send({"type": "http.response.start", "status": 200, "headers": []})
        elif len(self.there) >= self.most:
            self.refused += 1
            await send({"type": "http.response.start", "status": 503, "headers": []})
        else:
            self.made += 1
            name = str(self.made)
            self.there.append(name)
            await asyncio.sleep(0)
            headers = [(b"mcp-session-id", name.encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await asyncio.sleep(0)


def _opening() -> dict[str, Any]:
    return {"type": "http", "method": "POST", "headers": [], METHOD_KEY: "initialize"}


@pytest.mark.parametrize("at_once", [1, 2, 3, 5])
def test_all_that_come_at_once_have_room_in_turn(at_once: int):
    async def main() -> None:
        sdk = Sdk(5)
        sessions = SessionLimiter(sdk, 5)
        for _ in range(8):
            await asyncio.gather(*(sessions(_opening(), None, _sent) for _ in range(at_once)))  # type: ignore[arg-type]
            assert len(sessions) == len(sdk.there) <= 5
        assert (sdk.refused, sdk.made) == (0, 8 * at_once)
        assert sdk.there == [str(number) for number in range(8 * at_once - len(sdk.there) + 1, 8 * at_once + 1)]

    asyncio.run(main())


def test_answers_that_open_nothing_are_not_remembered():
    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"mcp-session-id", str(scope["number"]).encode())]
        await send({"type": "http.response.start", "status": 400, "headers": headers})

    async def main() -> None:
        sessions = SessionLimiter(refusing, 2)
        for number in range(50):
            await sessions({**_opening(), "number": number}, None, _sent)  # type: ignore[arg-type]
        assert len(sessions) == 0

    asyncio.run(main())


async def _sent(_message: Any) -> None:
    pass
