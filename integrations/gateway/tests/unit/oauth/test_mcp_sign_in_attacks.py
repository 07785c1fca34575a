"""Servers and authorization servers that lie while somebody signs in: refused in time, and in words without secrets."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from authorization_server import Answer, SignInServer, as_json, browse, configured, sign_in_server
from codemode_gateway.config.model import GatewayConfig, ServerConfig
from codemode_gateway.oauth import flow as doors
from codemode_gateway.oauth.flow import AuthorizationClient, OAuthExchange
from codemode_gateway.oauth.login_manager import SignInManager, login
from codemode_gateway.oauth.settings import AuthorizationRefusedError, AuthSettings, SignInError
from codemode_gateway.oauth.token_store import TokenRecord, is_token
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row


def refused(config: GatewayConfig, open_browser: Callable[[str], object] = browse) -> str:
    with pytest.raises(SignInError) as caught:
        asyncio.run(login(config, "notes", open_browser=open_browser, out=io.StringIO()))
    folder = (config.settings.state_folder or Path()) / "tokens"
    assert not list(folder.glob("*.json")), "something was kept"
    assert len(str(caught.value)) < 1_000
    return str(caught.value)


def always(answer: Answer) -> Callable[[Any, Any], Answer]:
    return lambda _form, _headers: answer


PRIVATE = [
    "http://127.0.0.1/x", "https://127.0.0.1/x", "https://localhost/x", "https://[::1]/x", "https://[::ffff:127.0.0.1]/x",
    "https://10.0.0.1/x", "https://192.168.1.1/x", "https://169.254.169.254/x", "https://0.0.0.0/x",
    "https://[fe80::1]/x", "https://[fd00::1]/x", "https://100.100.100.200/x", "https://2130706433/x",
]  # fmt: skip
NO_URLS = [
    "file:///etc/passwd", "javascript:alert(1)", "https:///x", "ftp://8.8.8.8/x", "//8.8.8.8/x", "http://8.8.4.4/x",
    "https://user:pass@8.8.4.4/x", "data:text/html,x", "", "https://8.8.4.4/" + "x" * 9_000, "https://8.8.8.8:99999/",
]  # fmt: skip


def door(url: str, *, issuer: str | None = None) -> AuthorizationClient:
    return AuthorizationClient(
        ServerConfig("notes", "http", url=url), AuthSettings(client_id="me", client_secret="hunter2", issuer=issuer)
    )


@each_row("url", [*PRIVATE, *NO_URLS])
def test_a_public_server_sends_nobody_to_private_addresses_or_other_schemes(url: str):
    with pytest.raises(AuthorizationRefusedError):
        asyncio.run(door("https://8.8.8.8/mcp").check_url(url))


@pytest.mark.parametrize("url", ["https://8.8.8.8/authorize", "https://8.8.8.8:8443/x", "https://1.1.1.1/x"])
def test_a_public_server_may_name_others(url: str):
    asyncio.run(door("https://8.8.8.8/mcp").check_url(url))


@each_row(
    "own, target, is_allowed",
    [
        ("http://127.0.0.1:1/mcp", "http://127.0.0.1:2/x", True),
        ("http://127.0.0.1:1/mcp", "http://localhost:2/x", True),
        ("http://127.0.0.1:1/mcp", "http://10.0.0.1/x", False),
        ("http://127.0.0.1:1/mcp", "https://10.0.0.1/x", True),
        ("http://127.0.0.1:1/mcp", "https://169.254.169.254/x", False),
        ("http://10.0.0.1/mcp", "http://10.0.0.1:99/x", True),
        ("http://10.0.0.1/mcp", "https://10.0.0.2/x", True),
        ("http://10.0.0.1/mcp", "https://127.0.0.1/x", False),
        ("https://8.8.8.8/mcp", "http://8.8.8.8/x", False),
    ],
)
def test_nobody_is_sent_nearer_than_the_server_is(own: str, target: str, is_allowed: bool):
    if is_allowed:
        asyncio.run(door(own).check_url(target))
    else:
        with pytest.raises(AuthorizationRefusedError):
            asyncio.run(door(own).check_url(target))


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest", "file:///etc/passwd", "http://10.9.8.7/"])
@pytest.mark.parametrize("key", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
def test_endpoints_are_checked_before_anything_is_sent_or_opened(
    server: SignInServer, tmp_path: Path, key: str, url: str
):
    server.extra_metadata[key] = url
    opened: list[str] = []

    def look(target: str) -> None:
        opened.append(target)
        browse(target)

    refused(configured(server.url, tmp_path), look)
    assert not any(one.startswith(url) for one in opened)


def test_the_authorization_server_that_is_named_must_be_the_one_that_answers(server: SignInServer, tmp_path: Path):
    server.extra_metadata["issuer"] = "https://honest.example"
    assert "issuer" in refused(configured(server.url, tmp_path))
    del server.extra_metadata["issuer"]
    assert "auth.issuer" in refused(configured(server.url, tmp_path, issuer="https://honest.example"))
    assert server.counts["/token"] == 0


@pytest.mark.parametrize("iss", ["https://evil.example", None])
def test_an_answer_of_another_authorization_server_is_not_taken(server: SignInServer, tmp_path: Path, iss: str | None):
    server.extra_metadata["authorization_response_iss_parameter_supported"] = True

    def back(query: dict[str, str], _headers: Any) -> Answer:
        said = "" if iss is None else f"&iss={iss}"
        return 302, {"Location": f"{query['redirect_uri']}?code=1&state={query['state']}{said}"}, b""

    server.answers["/authorize"] = back
    refused(configured(server.url, tmp_path))
    assert server.counts["/token"] == 0


def test_what_is_no_answer_to_this_sign_in_does_not_end_it(server: SignInServer, tmp_path: Path):
    def confused(url: str) -> None:
        redirect_uri = httpx2.URL(url).params["redirect_uri"]
        for query in ("", "?code=evil&state=guess", "?error=x", "/other?code=1"):
            assert "code=" in browse(redirect_uri + query) or query in ("", "?error=x")
        browse(url)

    asyncio.run(login(configured(server.url, tmp_path), "notes", open_browser=confused, out=io.StringIO()))
    assert server.counts["authorization_code"] == 1


def test_a_configured_secret_goes_to_its_issuer_alone(server: SignInServer, tmp_path: Path):
    with sign_in_server() as other:
        config = configured(
            server.url, tmp_path, flow="client_credentials", clientId="me", clientSecret="hunter2-hunter2"
        )
        # A name is another host than the address of the server: whoever it belongs to gets nothing unasked.
        evil = other.origin.replace("127.0.0.1", "localhost")
        server.extra_metadata["token_endpoint"] = f"{evil}/token"
        told = refused(config)
        assert "auth.issuer" in told
        assert "hunter2" not in told
        assert other.counts["/token"] == 0
        other.clients["me"] = {"client_secret": "hunter2-hunter2"}
        named = configured(
            server.url, tmp_path, flow="client_credentials", clientId="me", clientSecret="hunter2-hunter2",
            issuer=server.origin,
        )  # fmt: skip
        asyncio.run(login(named, "notes"))
        assert other.counts["/token"] == 1


def test_a_configured_client_is_registered_nowhere_else(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path, clientId="me", issuer="https://honest.example")
    refused(config)
    assert server.counts["/register"] == 0


SPOILT_TOKENS = {
    "line break": {"access_token": "abc\r\nX-Evil: 1"},
    "another line": {"access_token": "abc\ndef"},
    "control": {"access_token": "abc\0"},
    "space": {"access_token": "abc def"},
    "no ascii": {"access_token": "äbc"},
    "no text": {"access_token": 5},
    "long": {"access_token": "x" * 20_000},
    "empty": {"access_token": ""},
    "none": {},
    "refresh": {"access_token": "abc", "refresh_token": "x\ny"},
    "another type": {"access_token": "abc", "token_type": "mac"},
    "no object": ["abc"],
}


@pytest.mark.parametrize("spoilt", SPOILT_TOKENS)
def test_tokens_that_would_be_more_than_a_header_are_refused(server: SignInServer, tmp_path: Path, spoilt: str):
    server.answers["/token"] = always(as_json(SPOILT_TOKENS[spoilt]))
    told = refused(configured(server.url, tmp_path))
    assert "/token" in told
    assert "Evil" not in told


@pytest.mark.parametrize("path", ["/.well-known/oauth-authorization-server", "/register", "/token"])
@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b"x" * (1 << 17)),
        (200, {"Content-Encoding": "gzip"}, gzip.compress(b"{}" + b" " * (1 << 24))),
        (200, {}, b"[" * 60_000),
        (200, {}, b'{"a":' * 10_000),
        (200, {}, b"\xff\xfe"),
        (200, {}, b'{"access_token":["secret-token-1"],"client_id":{},"client_secret":"secret-token-1"}'),
        (302, {"Location": "http://169.254.169.254/"}, b""),
        (500, {}, b"secret-token-1" * 100),
        (400, {}, json.dumps({"error": "x\n\x1b[31m", "error_description": "secret-token-1" * 100}).encode()),
    ],
)
def test_answers_that_hurt_are_refused(
    server: SignInServer, tmp_path: Path, path: str, answer: Answer, caplog: pytest.LogCaptureFixture
):
    server.answers[path] = always(answer)
    with caplog.at_level(logging.INFO):
        told = refused(configured(server.url, tmp_path))
    assert "secret-token-1" not in told
    assert "secret-token-1" not in caplog.text
    assert told.isprintable()


def test_an_endless_answer_ends(server: SignInServer, tmp_path: Path):
    class Endless(bytes):
        def __len__(self) -> int:
            return 1 << 40

    server.answers["/token"] = always((200, {}, Endless(b"x" * (1 << 20))))
    assert "64 KiB" in refused(configured(server.url, tmp_path))


def test_a_slow_answer_is_given_up(server: SignInServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doors, "REQUEST_TIMEOUT_SECONDS", 0.5)
    over = threading.Event()

    def slowly(_form: Any, _headers: Any) -> None:
        over.wait(60)

    server.answers["/token"] = slowly
    try:
        assert "did not answer" in refused(configured(server.url, tmp_path))
    finally:
        over.set()


def test_a_loop_of_redirects_ends(server: SignInServer, tmp_path: Path):
    server.answers["/token"] = always((307, {"Location": f"{server.origin}/token"}, b""))
    refused(configured(server.url, tmp_path))
    assert server.counts["/token"] < 10


@pytest.mark.parametrize(
    "challenge",
    ['Bearer resource_metadata="http://169.254.169.254/x"', "Bearer resource_metadata=file:///etc/passwd",
     'Bearer scope="' + "x " * 50_000 + '"', 'Bearer error="' + "\\" * 1000, "Bearer resource_metadata=\x7f",
     'Bearer scope="\xe9"'],
)  # fmt: skip
def test_challenges_lead_nowhere_else(server: SignInServer, tmp_path: Path, challenge: str):
    server.answers["/mcp"] = always((401, {"WWW-Authenticate": challenge}, b""))
    config = configured(server.url, tmp_path)

    async def call() -> None:
        async with httpx2.AsyncClient(
            auth=SignInManager(config).get_or_create_auth(config.servers[0]), timeout=60
        ) as client:
            await client.post(server.url)

    with pytest.raises(SignInError, match="login notes"):
        asyncio.run(call())
    # What it says is looked at when somebody signs in, by the same rules.
    exchange = OAuthExchange(config.servers[0], AuthSettings.from_server(config.servers[0]), "local", None)
    response = httpx2.Response(401, headers={b"www-authenticate": challenge.encode()})

    async def shown(_url: str) -> None:
        raise SignInError("far enough")

    with pytest.raises(SignInError):
        asyncio.run(exchange.authorize(response, on_authorization_url=shown))


@given(st.text(max_size=40) | st.none() | st.integers() | st.lists(st.text()))
def test_only_visible_characters_are_a_token(value: Any):
    is_visible = isinstance(value, str) and value != "" and all("!" <= one <= "~" for one in value)
    assert is_token(value) == is_visible


def stored_record(server: SignInServer, folder: Path, answer: dict[str, Any]) -> TokenRecord:
    server.answers["/token"] = always(as_json({"access_token": "abc", **answer}))
    asyncio.run(login(configured(server.url, folder), "notes", open_browser=browse, out=io.StringIO()))
    (file,) = (folder / "tokens").glob("*.json")
    record = TokenRecord.from_json(file.read_text())
    assert record is not None
    return record


@pytest.mark.parametrize("expires_in", [0, -5, "60", 10**30, 86_400 * 365 * 20])
def test_any_lifetime_becomes_a_time(server: SignInServer, tmp_path: Path, expires_in: Any):
    record = stored_record(server, tmp_path, {"expires_in": expires_in})
    assert record.expires_at is not None
    assert 0 <= record.expires_at - record.saved_at <= 10 * 365 * 86_400


@pytest.mark.parametrize("expires_in", [None, [], "soon", 0.5])
def test_an_unusable_lifetime_is_unknown(server: SignInServer, tmp_path: Path, expires_in: Any):
    record = stored_record(server, tmp_path, {"expires_in": expires_in, "scope": ["notes"]})
    assert record.expires_at is None


def test_a_client_is_registered_whatever_its_optional_fields_are(server: SignInServer, tmp_path: Path):
    spoilt = {"client_secret_expires_at": "never", "grant_types": 5, "redirect_uris": ["no URL"]}
    server.answers["/register"] = always(as_json({"client_id": "me", **spoilt}, 201))

    def authorize(query: dict[str, str], _headers: Any) -> Answer:
        answer = urlencode({"code": "c", "state": query["state"], "iss": server.origin})
        return 302, {"Location": f"{query['redirect_uri']}?{answer}"}, b""

    server.answers["/authorize"] = authorize
    assert stored_record(server, tmp_path, {}).access_token == "abc"


def test_an_answer_without_usable_credentials_names_the_fields(server: SignInServer, tmp_path: Path):
    server.answers["/token"] = always(as_json({"access_token": "abc", "token_type": "mac"}))
    assert "/token did not answer with usable credentials: token_type" in refused(configured(server.url, tmp_path))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = ["server", "principal", "saved_at", "access_token", "refresh_token", "scope", "expires_at", "client"]


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=8) | JSON)
def test_a_spoilt_record_is_none(spoilt: Any):
    whole = json.loads(TokenRecord(server="a", principal="b", saved_at=1.0, access_token="c").model_dump_json())
    text = json.dumps({**whole, **spoilt} if isinstance(spoilt, dict) else spoilt)
    record = TokenRecord.from_json(text)
    assert record is None or json.loads(record.model_dump_json()) == json.loads(text)


@given(st.text(max_size=50))
def test_a_text_that_is_no_record_is_none(text: str):
    assert TokenRecord.from_json(text) is None
