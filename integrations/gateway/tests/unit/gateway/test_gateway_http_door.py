"""The door of the gateway over HTTP: names, pages, tokens, verifiers."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from codemode_gateway import ConfigError
from codemode_gateway.gateway.http_auth import RequestAuthenticator
from codemode_gateway.gateway.http_limits import HttpError
from codemode_gateway.gateway.http_settings import HttpSettings, parse_http_settings
from gateway_doors import ANA, BOB, TOKENS, asking, bearer, modern_call, who
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.auth.provider import AccessToken
from suite import each_row


def asked(headers: dict[str, str], **how: Any) -> int:
    async def main() -> int:
        async with asking(**how) as client:
            call = modern_call()
            answer = await client.post("/mcp", json=call["json"], headers={**call["headers"], **headers})
            return answer.status_code

    return asyncio.run(main())


OWN_NAMES = ["127.0.0.1:8765", "localhost:8765", "LOCALHOST:9", "localhost", "[::1]:8765", "127.0.0.2:80"]
OTHER_NAMES = [
    "evil.example.com", "evil.example.com:8765", "localhost.evil.com:8765", "127.0.0.1.evil.com", "localhost:x",
    "127.0.0.1:8765@evil.com", "evil.com#localhost", "localhost/", "[::1", "0.0.0.0:8765", "10.0.0.7:8765", " ",
    "evil.com\\@localhost", "localhost:8765,evil.com", "xn--lcalhost-bza", "127.1.evil", "localhost.", "[::2]:1",
]  # fmt: skip


@each_row("host", OWN_NAMES)
def test_this_machine_is_called_by_its_own_names(host: str):
    assert asked({"host": host}) == 200


@each_row("host", OTHER_NAMES)
def test_a_name_that_was_turned_to_this_machine_is_refused(host: str):
    assert asked({"host": host}) == 421


@each_row("path", ["/mcp", "/healthz", "/readyz", "/console/", "/.well-known/oauth-protected-resource"])
def test_no_path_answers_to_another_name(path: str):
    async def main() -> None:
        async with asking() as client:
            assert (await client.get(path, headers={"host": "evil.example.com"})).status_code == 421

    asyncio.run(main())


ORIGINS = {
    "http://127.0.0.1:8765": 200, "https://127.0.0.1:8765": 200, "http://localhost:8765": 403, "null": 403,
    "http://127.0.0.1:3000": 403, "http://evil.example.com": 403, "http://127.0.0.1:8765.evil.com": 403, "": 403,
    "http://127.0.0.1:8765/": 403, "https://desk.acme.com": 200, "https://desk.acme.com:444": 403,
    "chrome-extension://abc": 403,
}  # fmt: skip


@each_row("origin, status", ORIGINS.items())
def test_only_its_own_pages_and_those_that_are_named_may_call(origin: str, status: int):
    auth = {"origins": ["https://desk.acme.com"]}
    assert asked({"host": "127.0.0.1:8765", "origin": origin}, auth=auth) == status


@each_row("site, status", [("same-origin", 200), ("same-site", 403), ("cross-site", 403), ("none", 403), ("", 403)])
def test_a_form_of_its_own_page_that_tells_nobody_where_it_is_passes(site: str, status: int):
    assert asked({"host": "127.0.0.1:8765", "origin": "null", "sec-fetch-site": site}) == status
    assert asked({"host": "127.0.0.1:8765", "origin": "http://evil.example.com", "sec-fetch-site": site}) == 403


@pytest.mark.parametrize("name", [b"host", b"origin", b"authorization"])
def test_a_header_that_comes_twice_is_nobodys(name: bytes):
    values = {b"host": b"localhost", b"origin": b"http://localhost", b"authorization": b"Bearer " + ANA.encode()}
    door = RequestAuthenticator(parse_http_settings({"tokens": TOKENS}))

    async def passes(scope: dict[str, Any]) -> None:
        door.check_host_and_origin(scope)
        await door.authenticate(scope)

    once = {"type": "http", "headers": [*values.items()], "client": ("127.0.0.1", 1), "scheme": "http"}
    asyncio.run(passes(once))
    with pytest.raises(HttpError):
        asyncio.run(passes({**once, "headers": [*values.items(), (name, values[name])]}))


@given(st.text(max_size=40))
def test_no_host_is_mistaken_for_this_machine(host: str):
    scope = {"type": "http", "headers": [(b"host", host.encode("latin-1", "replace"))]}
    try:
        RequestAuthenticator(HttpSettings()).check_host_and_origin(scope)
    except HttpError as refused:
        assert refused.status == 421
    else:
        name = host.rpartition(":")[0] if host.count(":") == 1 else host
        assert name.lower() == "localhost" or name.startswith("127.") or "::1" in name or "7f00" in name.lower()


@pytest.mark.parametrize("client", ["10.0.0.9", "203.0.113.7", "fe80::1", "::ffff:10.0.0.9"])
def test_without_sign_in_nobody_elsewhere_is_answered_whatever_name_they_use(client: str):
    assert asked({"host": "localhost"}, client=(client, 4000)) == 403


def test_with_sign_in_each_token_is_its_user_and_none_is_nobody():
    async def main() -> None:
        call = modern_call()
        async with asking({"tokens": TOKENS}, base="http://tools.acme.com", client=("203.0.113.7", 4)) as client:
            for token, name in ((ANA, "ana"), (BOB, "bob")):
                headers = {**call["headers"], **bearer(token)}
                assert (await who(await client.post("/mcp", json=call["json"], headers=headers)))["id"] == name
            for wrong in ({}, bearer("x"), bearer(ANA[:-1]), bearer(f"{ANA} {ANA}"), {"authorization": f"Basic {ANA}"},
                          bearer("a" * 20_000), bearer(next(iter(TOKENS))), {"authorization": "Bearer"}):  # fmt: skip
                answer = await client.post("/mcp", json=call["json"], headers={**call["headers"], **wrong})
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert ANA not in answer.text

    asyncio.run(main())


class Verifier:
    """Takes texts of JSON for tokens."""

    async def verify_token(self, token: str) -> AccessToken | None:
        if token == "fails":
            raise RuntimeError("the token was fails")
        found = {
            "ana": {"subject": "ana", "claims": {"iss": "https://a"}},
            "ana-elsewhere": {"subject": "ana", "claims": {"iss": "https://b"}},
            "ana-app": {"subject": "ana", "claims": {"iss": "https://a"}, "client_id": "other-app"},
            "forged": {"subject": "https://a user ana", "claims": {}},
            "machine": {},
            "local": {"subject": "local"},
            "expired": {"subject": "ana", "expires_at": int(time.time()) - 1},
            "elsewhere": {"subject": "ana", "resource": "https://other.example.com/mcp"},
            "here": {"subject": "ana", "resource": "https://tools.acme.com/mcp"},
            "unscoped": {"subject": "ana", "scopes": []},
        }.get(token)
        return (
            None if found is None else AccessToken(**{"token": token, "client_id": "app", "scopes": ["run"], **found})
        )


def verified(token: str) -> int | str:
    async def main() -> int | str:
        auth = {"issuer": "https://login.acme.com", "url": "https://tools.acme.com", "scopes": ["run"]}
        async with asking(auth, verifier=Verifier(), base="http://10.0.0.7:1") as client:
            call = modern_call()
            answer = await client.post("/mcp", json=call["json"], headers={**call["headers"], **bearer(token)})
            if answer.status_code in (401, 403):
                place = "https://tools.acme.com/.well-known/oauth-protected-resource/mcp"
                assert f'resource_metadata="{place}"' in answer.headers["www-authenticate"]
            return (await who(answer))["id"] if answer.status_code == 200 else answer.status_code

    return asyncio.run(main())


def test_a_verifier_says_who_calls_and_no_two_users_are_one():
    ids = [verified(one) for one in ("ana", "ana-elsewhere", "forged", "machine", "local", "here")]
    assert all(isinstance(one, str) and one.startswith("oauth:") for one in ids)
    assert len(set(ids)) == len(ids)
    assert verified("ana-app") == ids[0]


@pytest.mark.parametrize(
    ("token", "status"), [("unknown", 401), ("expired", 401), ("elsewhere", 401), ("unscoped", 403), ("fails", 503)]
)
def test_a_token_that_does_not_hold_lets_nobody_in(token: str, status: int, caplog: pytest.LogCaptureFixture):
    assert verified(token) == status
    assert "the token was" not in caplog.text


def test_the_metadata_names_the_issuer_and_only_where_there_is_one():
    async def main(auth: dict[str, Any]) -> Any:
        async with asking(auth, base="http://localhost:1") as client:
            answer = await client.get("/.well-known/oauth-protected-resource/mcp")
            return answer.json() if answer.status_code == 200 else answer.status_code

    said = asyncio.run(main({"issuer": "https://login.acme.com", "url": "https://tools.acme.com/", "scopes": ["run"]}))
    assert said == {
        "resource": "https://tools.acme.com/mcp",
        "authorization_servers": ["https://login.acme.com"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["run"],
    }
    assert asyncio.run(main({})) == 404


@each_row(
    "auth, words",
    [
        ({"token": {}}, "codemode.auth.token is not known"),
        ({"tokens": ["x"]}, "codemode.auth.tokens must be"),
        ({"tokens": {ANA: {"name": "ana"}}}, "SHA-256"),
        ({"tokens": {f"sha256:{'0' * 64}": "ana"}}, '{"name": ...}'),
        ({"tokens": {f"sha256:{'0' * 64}": {"name": "oauth:x"}}}, "oauth:"),
        ({"tokens": {f"sha256:{'0' * 64}": {"name": "a\nb"}}}, "visible"),
        ({"tokens": {f"sha256:{'0' * 64}": {"name": "local"}}}, "without sign-in"),
        ({"url": "tools.acme.com"}, "codemode.auth.url"),
        ({"issuer": 7}, "codemode.auth.issuer"),
        ({"origins": ["https://desk.acme.com/x"]}, "codemode.auth.origins"),
        ({"hosts": ["a:1"]}, "codemode.auth.hosts"),
        ({"console": "short"}, "codemode.auth.console"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_full_path(auth: dict[str, Any], words: str):
    with pytest.raises(ConfigError) as caught:
        parse_http_settings(auth)
    assert words in str(caught.value)
    assert ANA not in str(caught.value)
