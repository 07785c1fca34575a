"""Callers behind proxies: who they are, and that nobody becomes somebody else by what they write themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from codemode_console.web import TrustedProxies
from codemode_gateway import ConfigError
from codemode_gateway.gateway.http_app import replace_client_address
from codemode_gateway.gateway.http_auth import PEER_KEY
from codemode_gateway.gateway.http_settings import parse_http_settings
from gateway_doors import ANA, TOKENS, asking, modern_call
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

PROXIES = ("10.1.0.0/16", "192.0.2.1", "fd00::/8")
INNER = st.sampled_from(["10.1.2.3", "192.0.2.1", "fd00::7", "::ffff:10.1.9.9"])
OUTER = st.sampled_from(["203.0.113.5", "198.51.100.7", "2001:db8::1", "10.2.0.1"])
WRITTEN = st.lists(st.one_of(INNER, OUTER, st.text(max_size=8).filter(lambda text: "\0" not in text)), max_size=5)


def told(peer: str, *hops: str, **more: Any) -> dict[str, Any]:
    headers = [(b"x-forwarded-for", hop.encode("utf-8", "replace")) for hop in hops]
    scope = {"type": "http", "client": (peer, 1), "headers": headers, **more}
    return dict(replace_client_address(scope, TrustedProxies(PROXIES)))


@given(st.lists(INNER, min_size=1, max_size=3), OUTER, WRITTEN)
def test_the_nearest_that_is_no_proxy_calls_whatever_it_writes_itself(chain: list[str], caller: str, own: list[str]):
    peer, *rest = chain
    scope = told(peer, ",".join([*own, caller, *reversed(rest)]))
    assert (scope["client"][0], scope[PEER_KEY]) == (caller, (peer, 1))


@given(OUTER, WRITTEN)
def test_a_caller_that_comes_by_itself_is_believed_nothing(peer: str, own: list[str]):
    scope = told(peer, *own)
    assert scope["client"] == (peer, 1)
    assert PEER_KEY not in scope


@each_row("said", [(), ("",), ("unknown",), ("10.1.2.3, nonsense",), ("203.0.113.5, ",)])
def test_what_no_proxy_tells_leaves_the_proxy(said: tuple[str, ...]):
    assert told("10.1.0.9", *said)["client"][0] == "10.1.0.9"


def test_of_very_many_hops_only_the_nearest_are_looked_at():
    assert told("10.1.0.9", ",".join(["203.0.113.5", *["10.1.0.1"] * 100_000]))["client"][0] == "10.1.0.1"


def test_a_connection_without_an_address_stays_one():
    scope = {"type": "http", "client": None, "headers": [(b"x-forwarded-for", b"203.0.113.5")]}
    assert replace_client_address(scope, TrustedProxies(PROXIES)) is scope


@pytest.mark.parametrize("said", ["proxy", ["10.1.0.1/8"], ["10.0.0.7", "*"]])
def test_what_is_no_address_is_told(said: Any):
    with pytest.raises(ConfigError, match=r"codemode\.auth\.proxies must be addresses or networks"):
        parse_http_settings({"proxies": said})


def test_a_stranger_behind_a_proxy_locks_nobody_out_of_the_console():
    async def main() -> None:
        auth = {"tokens": TOKENS, "proxies": ["10.1.0.9"]}
        async with asking(auth, client=("10.1.0.9", 4000)) as client:

            async def sign_in(token: str, caller: str) -> int:
                headers = {"x-forwarded-for": f"198.51.100.7, {caller}", "sec-fetch-site": "same-origin"}
                headers |= {"accept": "application/json", "origin": "http://127.0.0.1:8765"}
                answer = await client.post("/console/sign-in", data={"token": token}, headers=headers)
                return answer.status_code

            assert [await sign_in(f"wrong {number}", "203.0.113.5") for number in range(11)] == [401] * 10 + [429]
            assert await sign_in("wrong", "198.51.100.7") == 401
            assert await sign_in(ANA, "203.0.113.5") == 200

    asyncio.run(main())


def test_without_sign_in_both_ends_of_a_proxy_have_to_be_of_this_machine():
    async def status(peer: str, caller: str) -> int:
        async with asking({"proxies": [peer]}, client=(peer, 4000)) as client:
            call = modern_call()
            headers = {**call["headers"], "x-forwarded-for": caller}
            return (await client.post("/mcp", json=call["json"], headers=headers)).status_code

    assert asyncio.run(status("127.0.0.1", "127.0.0.1")) == 200
    assert asyncio.run(status("127.0.0.1", "203.0.113.5")) == 403
    assert asyncio.run(status("10.1.0.9", "127.0.0.1")) == 403
