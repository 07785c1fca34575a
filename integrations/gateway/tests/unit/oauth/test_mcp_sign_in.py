"""Signing in to a server, renewing, forgetting: with a real client, listener and authorization server."""

from __future__ import annotations

import asyncio
import io
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from authorization_server import SignInServer, as_json, browse, configured, sign_in_server
from codemode_gateway import Gateway, GatewayOptions
from codemode_gateway.config.model import ConfigError, GatewayConfig, GatewaySettings, ServerConfig
from codemode_gateway.oauth import token_store
from codemode_gateway.oauth.bearer_auth import UpstreamBearerAuth
from codemode_gateway.oauth.login_manager import PAUSE_KIND, SignInManager, login, logout
from codemode_gateway.oauth.settings import SignInError
from suite import each_row

from codemode.interrupts.interrupt import InterruptRequested
from codemode.tools.context import AnsweredInterrupt


async def status_of(config: GatewayConfig, auth: Any) -> int:
    async with httpx2.AsyncClient(auth=auth, timeout=60) as client:
        return (await client.post(config.servers[0].url or "", json={"id": 1})).status_code


def signed_in(config: GatewayConfig, **more: Any) -> None:
    asyncio.run(login(config, "notes", open_browser=browse, out=io.StringIO(), **more))


async def shown_url(sign_ins: SignInManager, server: ServerConfig, principal: str = "local") -> str:
    sign_in = await sign_ins.get_or_start_sign_in(server, principal)
    assert sign_in is not None
    return sign_in.url


def records(folder: Path) -> list[Path]:
    return list((folder / "tokens").glob("*.json"))


def test_a_sign_in_in_the_browser_is_used_by_connections_after_it(server: SignInServer, tmp_path: Path):
    config, out = configured(server.url, tmp_path), io.StringIO()
    asyncio.run(login(config, "notes", open_browser=browse, out=out))
    assert f"{server.origin}/authorize?" in out.getvalue()
    asked = server.asked[0]
    assert asked["code_challenge_method"] == "S256"
    assert asked["resource"] == server.url
    assert urlsplit(asked["redirect_uri"]).hostname == "127.0.0.1"
    assert asyncio.run(status_of(config, SignInManager(config).get_or_create_auth(config.servers[0]))) == 200
    assert server.counts["/register"] == 1
    assert "access-token" not in out.getvalue()


def test_where_to_sign_in_may_stand_in_the_servers_refusal_alone(server: SignInServer, tmp_path: Path):
    def refused(_query: Any, headers: dict[str, str]) -> Any:
        if "Authorization" in headers:
            return None
        where = f"{server.origin}/elsewhere"
        return as_json({}, 401, **{"WWW-Authenticate": f'Bearer resource_metadata="{where}", scope="notes"'})

    server.answers = {
        "/mcp": refused,
        "/elsewhere": lambda *_: as_json({"resource": server.url, "authorization_servers": [server.origin]}),
        "/.well-known/oauth-protected-resource": lambda *_: as_json({}, 404),
        "/.well-known/oauth-protected-resource/mcp": lambda *_: as_json({}, 404),
    }
    config = configured(server.url, tmp_path)
    signed_in(config)
    assert (server.asked[0]["scope"], server.counts["/elsewhere"]) == ("notes", 1)
    assert asyncio.run(status_of(config, SignInManager(config).get_or_create_auth(config.servers[0]))) == 200


def test_without_a_sign_in_the_connection_fails_and_says_what_to_do(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    auth = SignInManager(config).get_or_create_auth(config.servers[0])
    with pytest.raises(SignInError, match="codemode mcp login notes"):
        asyncio.run(status_of(config, auth))
    assert server.counts["/register"] == 0


def test_what_to_do_has_the_words_by_which_a_terminal_reaches_this_gateway(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    own = replace(config.servers[0], name="my notes")
    for sign_ins in (SignInManager(config, command="/e/codemode mcp"), _of_a_gateway(config, "/e/codemode mcp")):
        with pytest.raises(SignInError, match="/e/codemode mcp login 'my notes'"):
            asyncio.run(status_of(config, sign_ins.get_or_create_auth(own)))


def _of_a_gateway(config: GatewayConfig, command: str) -> SignInManager:
    async def had() -> SignInManager:
        async with Gateway(config, GatewayOptions(command=command)) as gateway:
            return gateway.sign_ins

    return asyncio.run(had())


def test_a_rejected_token_is_renewed_once_for_all_that_wait(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    signed_in(config)
    server.access.clear()

    async def calls() -> list[int]:
        sign_ins = SignInManager(config)
        auths = [sign_ins.create_auth_hook()(config.servers[0]) for _ in range(3)]
        return await asyncio.gather(*(status_of(config, auth) for auth in auths for _ in range(4)))

    assert asyncio.run(calls()) == [200] * 12
    assert server.counts["refresh_token"] == 1


def test_a_token_is_renewed_before_it_ends_and_what_another_kept_is_used(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    server.expires_in = 0
    signed_in(config)
    server.expires_in = 3600
    seen = len(server.seen_tokens)
    for _ in range(2):
        # Each is a gateway of its own: the second finds what the first has kept.
        assert asyncio.run(status_of(config, SignInManager(config).get_or_create_auth(config.servers[0]))) == 200
    assert server.counts["refresh_token"] == 1
    assert len(server.seen_tokens) == seen + 2


def test_a_refused_refresh_token_is_presented_no_second_time(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    signed_in(config)
    server.access.clear()
    server.refresh.clear()
    for _ in range(3):
        with pytest.raises(SignInError, match="login notes"):
            asyncio.run(status_of(config, SignInManager(config).get_or_create_auth(config.servers[0])))
    assert server.counts["refresh_token"] == 1
    signed_in(config)
    assert asyncio.run(status_of(config, SignInManager(config).get_or_create_auth(config.servers[0]))) == 200


def test_a_refresh_token_outlives_an_authorization_server_that_is_away(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    signed_in(config)
    server.access.clear()
    server.answers["/token"] = lambda _form, _headers: (503, {}, b"")
    with pytest.raises(SignInError, match="503"):
        asyncio.run(status_of(config, SignInManager(config).get_or_create_auth(config.servers[0])))
    del server.answers["/token"]
    assert asyncio.run(status_of(config, SignInManager(config).get_or_create_auth(config.servers[0]))) == 200


def test_a_call_that_is_given_up_does_not_lose_what_its_refresh_token_gave(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    signed_in(config)
    server.access.clear()

    async def given_up() -> None:
        came, go = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def slowly(_form: Any, _headers: Any) -> None:
            loop.call_soon_threadsafe(came.set)
            asyncio.run_coroutine_threadsafe(go.wait(), loop).result(20)

        server.answers["/token"] = slowly
        async with SignInManager(config) as sign_ins:
            call = asyncio.create_task(status_of(config, sign_ins.create_auth_hook()(config.servers[0])))
            await asyncio.wait_for(came.wait(), 60)
            call.cancel()
            await asyncio.wait([call])
            go.set()

    asyncio.run(given_up())
    assert asyncio.run(status_of(config, SignInManager(config).get_or_create_auth(config.servers[0]))) == 200
    assert server.counts["refresh_token"] == 1


def test_a_token_that_cannot_be_kept_is_used_by_whoever_has_renewed_it(
    server: SignInServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = configured(server.url, tmp_path)
    signed_in(config)
    server.access.clear()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    async def renewed() -> None:
        async with SignInManager(config) as sign_ins:
            auth = sign_ins.create_auth_hook()(config.servers[0])
            with pytest.raises(SignInError, match="cannot be stored"):
                await status_of(config, auth)
            assert await status_of(config, auth) == 200

    monkeypatch.setattr(token_store, "write_private_file", full)
    asyncio.run(renewed())
    assert server.counts["refresh_token"] == 1


def test_tokens_go_to_the_origin_of_their_server_alone(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    signed_in(config)
    with sign_in_server() as other:

        async def elsewhere() -> int:
            auth = SignInManager(config).get_or_create_auth(config.servers[0])
            async with httpx2.AsyncClient(auth=auth, timeout=60) as client:
                return (await client.post(other.url)).status_code

        assert asyncio.run(elsewhere()) == 401
        assert other.seen_tokens == [None]
        assert list(other.counts) == ["/mcp"]


def test_client_credentials_need_nobody(server: SignInServer, tmp_path: Path):
    server.clients["me"] = {"client_secret": "hunter2:ä"}
    config = configured(
        server.url, tmp_path, flow="client_credentials", clientId="me", clientSecret="hunter2:ä", scopes=["a", "b"]
    )
    assert asyncio.run(status_of(config, SignInManager(config).get_or_create_auth(config.servers[0]))) == 200
    assert asyncio.run(status_of(config, SignInManager(config).get_or_create_auth(config.servers[0]))) == 200
    assert server.counts["client_credentials"] == 1
    wrong = configured(
        server.url, tmp_path, flow="client_credentials", clientId="me", clientSecret="wrong", issuer=server.origin
    )
    with pytest.raises(SignInError, match="invalid_client"):
        asyncio.run(status_of(wrong, SignInManager(wrong).get_or_create_auth(wrong.servers[0])))


def test_configured_clients_and_scopes_are_used(server: SignInServer, tmp_path: Path):
    with_port = configured(
        server.url, tmp_path, clientId="mine", scopes="read write", redirectUri="http://127.0.0.1:9/cb"
    )
    server.clients["mine"] = {"redirect_uris": ["http://127.0.0.1:9/cb"]}
    pasted: list[str] = []

    class Elsewhere(io.StringIO):
        def write(self, text: str) -> int:
            pasted.extend(line for line in text.splitlines() if line.startswith(server.origin))
            return super().write(text)

    with pytest.raises(SignInError):  # a port that this user may not have
        asyncio.run(login(with_port, "notes", open_browser=None, out=Elsewhere(), read_line=str))
    config = configured(
        server.url, tmp_path, clientId="mine", scopes="read write", redirectUri="https://desk.example/cb"
    )
    server.clients["mine"] = {"redirect_uris": ["https://desk.example/cb"]}
    lines = iter(["https://desk.example/cb?code=1&state=2", "nonsense", "http://[", ""])

    def read_line() -> str:
        line = next(lines)
        if line:
            return line
        opener = server.answer_to(pasted[-1].removeprefix(server.origin), {}, None)
        return f" {opener[1]['Location']}\n"

    out = Elsewhere()
    asyncio.run(login(config, "notes", open_browser=None, out=out, read_line=read_line))
    assert out.getvalue().count("Try again") == 3
    assert server.asked[-1]["scope"] == "read write"
    assert server.counts["/register"] == 0
    assert asyncio.run(status_of(config, SignInManager(config).get_or_create_auth(config.servers[0]))) == 200


def test_logout_revokes_and_forgets(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    signed_in(config)
    assert asyncio.run(logout(config, "notes"))
    assert (server.access, server.refresh) == (set(), set())
    assert not records(tmp_path)
    assert not asyncio.run(logout(config, "notes"))
    assert server.counts["/revoke"] == 2


def test_logout_forgets_where_nothing_answers_and_what_an_earlier_configuration_left(
    server: SignInServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    signed_in(configured(server.url, tmp_path))
    config = configured(server.url, tmp_path, scopes="other")
    signed_in(config)
    assert len(records(tmp_path)) == 2
    server.answers["/revoke"] = lambda _form, _headers: (500, {}, b"access-token-000001")
    assert asyncio.run(logout(config, "notes"))
    assert not records(tmp_path)
    told = capsys.readouterr().err
    assert "not revoked" in told
    assert "access-token" not in told


def test_principals_and_configurations_have_tokens_of_their_own(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    signed_in(config)
    for one, principal in ((config, "other"), (configured(server.url, tmp_path, scopes="more"), "local")):
        with pytest.raises(SignInError):
            asyncio.run(status_of(one, SignInManager(one).get_or_create_auth(one.servers[0], principal)))


def test_servers_that_need_no_sign_in_of_ours_have_none(tmp_path: Path):
    config = GatewayConfig((), GatewaySettings(state_folder=tmp_path))
    hook = SignInManager(config).create_auth_hook()
    assert hook(ServerConfig("a", "stdio", command="x")) is None
    assert hook(ServerConfig("a", "http", url="https://x.example", headers={"AUTHORIZATION": "Bearer x"})) is None
    assert isinstance(hook(ServerConfig("a", "http", url="https://x.example")), UpstreamBearerAuth)


class Context:
    def __init__(self, resolution: Any = None) -> None:
        answered = AnsweredInterrupt(id="1", payload={}, resolution=resolution)
        self.interrupt = None if resolution is None else answered


def test_a_program_waits_for_whoever_signs_in(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    one = config.servers[0]

    async def run() -> tuple[dict[str, Any], list[bool], int]:
        async with SignInManager(config) as sign_ins:
            auth, signed_out = sign_ins.create_auth_hook()(one), sign_ins.create_signed_out_hook()
            with pytest.raises(SignInError):
                await status_of(config, auth)
            assert not await signed_out(one, None)
            with pytest.raises(InterruptRequested) as pause:
                await signed_out(one, Context())
            with pytest.raises(InterruptRequested) as again:
                await signed_out(one, Context())
            assert again.value.payload == pause.value.payload
            assert not await signed_out(one, Context({"action": "decline"}))
            going_on = asyncio.create_task(signed_out(one, Context({"action": "accept"})))
            await asyncio.to_thread(browse, pause.value.payload["url"])
            return pause.value.payload, [await asyncio.wait_for(going_on, 60)], await status_of(config, auth)

    payload, told, status = asyncio.run(run())
    assert (payload["kind"], payload["server"]) == (PAUSE_KIND, "notes")
    assert payload["url"].startswith(f"{server.origin}/authorize?")
    assert (told, status) == ([True], 200)


def test_the_browser_may_come_back_to_the_gateways_own_address(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    back = "https://gateway.example/oauth/callback"

    async def run() -> list[int]:
        statuses: list[int] = []

        async def call(query: str, method: str = "GET") -> None:
            scope = {"type": "http", "method": method, "query_string": query.encode(), "headers": []}

            async def send(message: dict[str, Any]) -> None:
                if "status" in message:
                    statuses.append(message["status"])

            await sign_ins.callback_app(scope, None, send)

        async with SignInManager(config, callback_url=back) as sign_ins:
            attempt = sign_ins.get_or_start_attempt(config.servers[0], "mia")
            url = await shown_url(sign_ins, config.servers[0], "mia")
            state = parse_qs(urlsplit(url).query)["state"][0]
            location = server.answer_to(url.removeprefix(server.origin), {}, None)[1]["Location"]
            assert location.startswith(back)
            query = urlsplit(location).query
            for wrong in (
                "",
                "code=1",
                f"code=1&state={state}x",
                f"state={state}",
                f"{query}&state={state}",
                "x" * 9000,
            ):
                await call(wrong)
            await call(query, "POST")
            await call(query)
            await asyncio.wait_for(attempt.wait_until_signed_in(), 60)
            statuses.append(await status_of(config, sign_ins.create_auth_hook("mia")(config.servers[0])))
        return statuses

    assert asyncio.run(run()) == [400] * 7 + [200, 200]


def test_a_redirect_that_a_dead_process_left_ends_no_other_sign_in(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    auth = SignInManager(config).get_or_create_auth(config.servers[0])
    assert auth is not None
    token_store.write_private_text(auth.folder / f"{auth.key}.brought", "code=stale&state=stale")
    signed_in(config)
    assert server.counts["authorization_code"] == 1


def test_a_declined_sign_in_ends_and_says_so(server: SignInServer, tmp_path: Path):
    def decline(query: dict[str, str], _headers: Any) -> Any:
        return 302, {"Location": f"{query['redirect_uri']}?error=access_denied&state={query['state']}"}, b""

    server.answers["/authorize"] = decline
    with pytest.raises(SignInError, match="declined"):
        signed_in(configured(server.url, tmp_path))
    assert not records(tmp_path)


def test_what_cannot_be_signed_in_to_is_said(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)
    with pytest.raises(ConfigError, match="the configuration has: notes"):
        asyncio.run(login(config, "other"))
    stdio = GatewayConfig((ServerConfig("notes", "stdio", command="x"),), config.settings)
    with pytest.raises(ConfigError, match="needs no sign-in: it is a command"):
        asyncio.run(login(stdio, "notes"))
    assert not asyncio.run(logout(stdio, "notes"))
    machine = replace(config.servers[0], auth={"flow": "client_credentials", "clientId": "a", "clientSecret": "b"})
    with pytest.raises(SignInError, match="its configuration contains its credentials"):
        SignInManager(config).get_or_start_attempt(machine)


@each_row(
    "auth, named",
    [
        ({"clientID": "x"}, "auth.clientID"),
        ({"clientId": 5}, "auth.clientId"),
        ({"flow": "device"}, "auth.flow"),
        ({"flow": []}, "auth.flow"),
        ({"flow": "client_credentials"}, "auth.clientId"),
        ({"flow": "client_credentials", "clientId": "x"}, "auth.clientSecret"),
        ({"scopes": [1]}, "auth.scopes"),
        ({"callbackPort": 70_000}, "auth.callbackPort"),
        ({"issuer": "file:///etc/passwd"}, "auth.issuer"),
        ({"redirectUri": "http://["}, "auth.redirectUri"),
        ({"storage": "cloud"}, "auth.storage"),
    ],
)
def test_wrong_settings_are_named(auth: dict[str, Any], named: str):
    server = ServerConfig("notes", "http", url="https://x.example", auth=auth)
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")):
        SignInManager(GatewayConfig()).get_or_create_auth(server)


def test_tokens_are_secrets_and_never_logged(server: SignInServer, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    config = configured(server.url, tmp_path)
    with caplog.at_level(logging.DEBUG):
        signed_in(config)
        sign_ins = SignInManager(config)
        with sign_ins.secrets.redact_logs():
            server.access.clear()
            assert asyncio.run(status_of(config, sign_ins.create_auth_hook()(config.servers[0]))) == 200
            logging.getLogger("mcp").error("%s", [*server.access, *server.refresh])
    assert "access-token" not in caplog.text
    assert "refresh-token" not in caplog.text
    assert "[secret]" in caplog.text


def test_two_gateways_open_one_page_and_both_are_signed_in(server: SignInServer, tmp_path: Path):
    config, opened = configured(server.url, tmp_path), list[str]()

    async def run() -> list[int]:
        async with (
            SignInManager(config, open_browser=opened.append) as one,
            SignInManager(config, open_browser=opened.append) as two,
        ):
            urls = [
                await shown_url(one, config.servers[0]),
                await shown_url(two, config.servers[0]),
            ]
            assert urls[0] == urls[1]
            await asyncio.to_thread(browse, urls[1])
            for each in (one, two):
                await asyncio.wait_for(each.wait_until_signed_in(config.servers[0]), 60)
            return [await status_of(config, each.create_auth_hook()(config.servers[0])) for each in (one, two)]

    assert asyncio.run(run()) == [200, 200]
    assert len(opened) == 1
    assert server.counts["authorization_code"] == 1


def test_a_sign_in_that_is_given_up_is_no_longer_waited_for(server: SignInServer, tmp_path: Path):
    config = configured(server.url, tmp_path)

    async def run() -> None:
        async with SignInManager(config) as other:
            async with SignInManager(config) as one:
                await shown_url(one, config.servers[0])
                await shown_url(other, config.servers[0])
            with pytest.raises(SignInError, match="was cancelled"):
                await asyncio.wait_for(other.wait_until_signed_in(config.servers[0]), 60)
            assert await shown_url(other, config.servers[0])

    asyncio.run(run())
    assert not list((tmp_path / "tokens").glob("*.url"))
