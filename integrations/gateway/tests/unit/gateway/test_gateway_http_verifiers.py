"""Tokens of an authorization server: introspected, or by their signature, for this gateway and for nobody else."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jwt
import pytest
from authorization_server import SignInServer, as_json, sign_in_server
from codemode_gateway import ConfigError, load_config
from codemode_gateway.gateway import http_auth
from codemode_gateway.gateway.http_auth import VerifierUnavailableError, create_token_verifier
from codemode_gateway.gateway.http_settings import parse_http_settings
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from gateway_doors import ANA, TOKENS, asking, bearer, modern_call, who
from suite import each_row

ISSUER, GATEWAY = "https://login.acme.com", "https://tools.acme.com"
SECRET = "secret of the gateway: %&"
CLAIMS = {"iss": f"{ISSUER}/", "aud": f"{GATEWAY}/mcp", "sub": "ana", "client_id": "editor", "scope": "run more"}


@cache
def ec_key() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def rsa_key(bits: int = 2048) -> Any:
    return rsa.generate_private_key(65537, bits)


def public(key: Any, **more: Any) -> dict[str, Any]:
    algorithm = jwt.algorithms.ECAlgorithm if key is ec_key() else jwt.algorithms.RSAAlgorithm
    return {**json.loads(algorithm.to_jwk(key.public_key())), **more}


def signed(key: Any = None, algorithm: str = "ES256", headers: dict[str, Any] | None = None, **claims: Any) -> str:
    said = {**CLAIMS, "exp": time.time() + 600, **claims}
    kept = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(kept, key or ec_key(), algorithm=algorithm, headers={"kid": "one", **(headers or {})})


@pytest.fixture
def server() -> Iterator[SignInServer]:
    with sign_in_server() as one:
        yield one


def serve_keys(server: SignInServer, *keys: dict[str, Any]) -> None:
    server.answers["/keys"] = lambda _form, _headers: as_json({"keys": [*keys]})


def by_signature(server: SignInServer, **more: Any) -> dict[str, Any]:
    return {"issuer": ISSUER, "url": GATEWAY, "jwt": {"jwksUrl": f"{server.origin}/keys", **more}}


def by_asking(server: SignInServer) -> dict[str, Any]:
    how = {"url": f"{server.origin}/introspect", "clientId": "gate way", "clientSecret": SECRET}
    return {"issuer": ISSUER, "url": GATEWAY, "introspection": how}


def verified(auth: dict[str, Any], *tokens: str) -> list[Any]:
    async def main() -> list[Any]:
        verifier = create_token_verifier(parse_http_settings(auth).token_verification)
        assert verifier is not None
        found: list[Any] = []
        for token in tokens:
            try:
                found.append(await verifier.verify_token(token))
            except VerifierUnavailableError as error:
                found.append(error)
        return found

    return asyncio.run(main())


def test_a_signed_token_is_its_subjects(server: SignInServer):
    serve_keys(server, public(ec_key(), kid="one"), public(rsa_key(), kid="two", alg="PS256"))
    tokens = [
        signed(),
        signed(headers={"typ": "at+jwt"}, aud=["x", f"{GATEWAY}/"], scope=None, scp=["run"]),
        signed(rsa_key(), "PS256", {"kid": "two"}),
        jwt.encode({**CLAIMS, "exp": time.time() + 60}, ec_key(), algorithm="ES256"),
    ]
    found = verified(by_signature(server), *tokens)
    assert [(one.subject, one.client_id, one.claims, one.token) for one in found] == [
        ("ana", "editor", {"iss": ISSUER}, "")
    ] * 4
    assert [one.scopes for one in found] == [["run", "more"], ["run"], ["run", "more"], ["run", "more"]]
    assert server.counts["/keys"] == 1


WRONG: dict[str, Callable[[], str]] = {
    "expired": lambda: signed(exp=time.time() - 60),
    "without an end": lambda: signed(exp=None),
    "not yet": lambda: signed(nbf=time.time() + 600),
    "of another issuer": lambda: signed(iss="https://login.evil.com"),
    "of no issuer": lambda: signed(iss=None),
    "for another server": lambda: signed(aud="https://other.acme.com/mcp"),
    "for all that begin like it": lambda: signed(aud=f"{GATEWAY}/mcp/x"),
    "for nobody": lambda: signed(aud=None),
    "of nobody": lambda: signed(sub=None, client_id=None),
    "of something else": lambda: signed(sub=7),
    "bound to a key": lambda: signed(cnf={"jkt": "x"}),
    "an id": lambda: signed(headers={"typ": "id+jwt"}),
    "with a condition": lambda: signed(headers={"crit": ["b64"], "b64": True}),
    "of another key": lambda: signed(headers={"kid": "three"}),
    "signed by somebody": lambda: signed(ec.generate_private_key(ec.SECP256R1())),
    "signed by nobody": lambda: jwt.encode(CLAIMS, None, algorithm="none", headers={"kid": "one"}),
    "signed with the public key": lambda: hmac_token(),
    "a small key's": lambda: signed(rsa_key(1024), "RS256", {"kid": "small"}),
    "a key's for other ways": lambda: signed(rsa_key(), "RS256", {"kid": "two"}),
    "a shared key's": lambda: jwt.encode({**CLAIMS, "exp": time.time() + 60}, "k" * 64, "HS256", {"kid": "shared"}),
    "broken": lambda: signed()[:-6] + "AAAAAA",
    "deep": lambda: f"{base64.urlsafe_b64encode(b'[' * 9000).decode().rstrip('=')}.e30.AA",
    "empty": lambda: "..",
    "no token": lambda: "x",
}


def hmac_token() -> str:
    part = [{"alg": "HS256", "kid": "one"}, {**CLAIMS, "exp": time.time() + 60}]
    text = b".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in part)
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = algorithm.sign(text, json.dumps(public(ec_key(), kid="one")).encode())
    return (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits long")
def test_no_other_signed_token_is_anybodys(server: SignInServer):
    shared = {"kty": "oct", "kid": "shared", "k": base64.urlsafe_b64encode(b"k" * 64).decode()}
    keys = [public(ec_key(), kid="one"), public(rsa_key(), kid="two", alg="PS256"), shared, {"kty": "EC"}, 7]
    serve_keys(server, *keys, public(rsa_key(1024), kid="small"))
    found = verified(by_signature(server), *(make() for make in WRONG.values()), signed())
    assert dict(zip(WRONG, found, strict=False)) == dict.fromkeys(WRONG)
    assert found[-1] is not None  # the same keys let others in
    assert server.counts["/keys"] == 1  # whoever makes names of keys up makes nobody look again and again
    assert verified(by_signature(server, algorithms=["RS256"]), signed()) == [None]


def test_new_keys_are_found_and_known_ones_outlast_a_server_that_is_away(
    server: SignInServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http_auth, "_MIN_FETCH_INTERVAL_SECONDS", -1.0)
    serve_keys(server, public(rsa_key(), kid="old"))

    async def main() -> None:
        verifier = create_token_verifier(parse_http_settings(by_signature(server)).token_verification)
        assert verifier is not None
        assert await verifier.verify_token(signed()) is None
        serve_keys(server, public(ec_key(), kid="one"))
        assert await verifier.verify_token(signed()) is not None
        server.answers["/keys"] = lambda _form, _headers: as_json({}, 500)
        monkeypatch.setattr(http_auth, "_KEYS_REFRESH_SECONDS", -1.0)
        assert await verifier.verify_token(signed()) is not None
        monkeypatch.setattr(http_auth, "_MAX_KEYS_AGE_SECONDS", -1.0)
        with pytest.raises(VerifierUnavailableError):
            await verifier.verify_token(signed())

    asyncio.run(main())


ANSWERS: dict[str, Any] = {
    "active": {**CLAIMS, "active": True},
    "without an issuer": {**CLAIMS, "active": True, "iss": None},
    "inactive": {"active": False},
    "active in words": {**CLAIMS, "active": "true"},
    "for others": {**CLAIMS, "active": True, "aud": "https://other.acme.com"},
    "for nobody": {**CLAIMS, "active": True, "aud": None},
    "of others": {**CLAIMS, "active": True, "iss": "https://login.evil.com"},
    "bound": {**CLAIMS, "active": True, "token_type": "DPoP"},
    "with an end that is none": {**CLAIMS, "active": True, "exp": "soon"},
}


def test_an_introspected_token_is_whom_the_server_says(server: SignInServer):
    def told(form: dict[str, str], headers: Any) -> Any:
        said = f"gate%20way:{SECRET.replace(' ', '%20').replace(':', '%3A').replace('%&', '%25%26')}"
        assert headers["Authorization"] == f"Basic {base64.b64encode(said.encode()).decode()}"
        answer = ANSWERS[form["token"]]
        return as_json({name: value for name, value in answer.items() if value is not None})

    server.answers["/introspect"] = told
    found = verified(by_asking(server), *ANSWERS, "active")
    assert [one and one.subject for one in found] == ["ana", "ana", *[None] * 7, "ana"]
    assert server.counts["/introspect"] == len(ANSWERS)  # what it has said holds for a while


@pytest.mark.parametrize(
    "answer",
    [
        as_json(CLAIMS, 401),
        as_json([]),
        (200, {}, b"x"),
        (200, {}, b"[" * 100_000),
        (302, {"Location": "/elsewhere"}, b""),
        (200, {}, b" " * (1 << 20)),
        (200, {"Content-Encoding": "gzip"}, b"x"),
    ],
)
def test_a_server_that_gives_no_answer_lets_nobody_in(server: SignInServer, answer: Any):
    server.answers["/introspect"] = lambda _form, _headers: answer
    found = verified(by_asking(server), "token-of-somebody")
    assert isinstance(found[0], VerifierUnavailableError)
    assert "token-of-somebody" not in str(found[0])
    assert server.counts["/elsewhere"] == 0


def test_many_at_once_ask_once_and_the_end_of_a_token_ends_what_is_known(server: SignInServer):
    ends = time.time() - 1
    server.answers["/introspect"] = lambda _form, _headers: as_json({**CLAIMS, "active": True, "exp": ends})

    async def main() -> None:
        verifier = create_token_verifier(parse_http_settings(by_asking(server)).token_verification)
        assert verifier is not None
        await asyncio.gather(*(verifier.verify_token("x") for _ in range(20)))
        assert server.counts["/introspect"] == 1
        await verifier.verify_token("x")
        assert server.counts["/introspect"] == 2

    asyncio.run(main())


def test_the_gateway_lets_holders_in_and_tells_others_where_tokens_come_from(server: SignInServer):
    serve_keys(server, public(ec_key(), kid="one"))
    auth = {**by_signature(server), "scopes": ["run"], "tokens": TOKENS}

    async def main() -> None:
        call = modern_call()
        async with asking(auth, base=GATEWAY, client=("203.0.113.7", 4)) as client:

            async def post(token: str | None) -> Any:
                headers = {**call["headers"], **({} if token is None else bearer(token))}
                return await client.post("/mcp", json=call["json"], headers=headers)

            assert (await who(await post(signed())))["id"] == f"oauth:{ISSUER} user ana"
            assert (await who(await post(ANA)))["id"] == "ana"
            place = f'resource_metadata="{GATEWAY}/.well-known/oauth-protected-resource/mcp"'
            for token, status in ((None, 401), ("x", 401), (signed(aud="x"), 401), (signed(scope="more"), 403)):
                answer = await post(token)
                assert answer.status_code == status
                said = answer.headers["www-authenticate"]
                assert said.startswith("Bearer ")
                assert place in said
                assert 'scope="run"' in said
                assert ('error="' in said) == (token is not None)
            told = (await client.get("/.well-known/oauth-protected-resource/mcp")).json()
            assert (told["resource"], told["authorization_servers"]) == (f"{GATEWAY}/mcp", [ISSUER])
            assert (await client.get("/.well-known/oauth-protected-resource/other")).status_code == 404

    asyncio.run(main())


HOW = {"jwksUrl": "https://login.acme.com/keys"}


@each_row(
    "auth, words",
    [
        ({"jwt": HOW, "url": GATEWAY}, "codemode.auth.issuer"),
        ({"jwt": HOW, "issuer": ISSUER}, "codemode.auth.audience"),
        ({"jwt": HOW, "introspection": {}, "issuer": ISSUER}, "exclude each other"),
        ({"jwt": {}, "issuer": ISSUER, "url": GATEWAY}, "codemode.auth.jwt.jwksUrl"),
        ({"jwt": {"jwksUrl": "http://login.acme.com/keys"}, "issuer": ISSUER, "url": GATEWAY}, "must be https"),
        ({"jwt": {**HOW, "algorithms": ["HS256"]}, "issuer": ISSUER, "url": GATEWAY}, "codemode.auth.jwt.algorithms"),
        ({"jwt": {**HOW, "keys": 1}, "issuer": ISSUER, "url": GATEWAY}, "codemode.auth.jwt.keys"),
        ({"introspection": HOW, "issuer": ISSUER, "url": GATEWAY}, "codemode.auth.introspection.jwksUrl"),
        ({"introspection": {"url": "https://x"}, "issuer": ISSUER, "url": GATEWAY}, "clientId and clientSecret"),
        ({"introspection": "x", "issuer": ISSUER, "url": GATEWAY}, "codemode.auth.introspection must be an object"),
        ({"audience": "x"}, "codemode.auth.audience"),
        ({"scopes": ['a"b']}, "codemode.auth.scopes"),
    ],
)
def test_a_check_that_cannot_be_meant_is_refused_by_its_full_path(auth: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        parse_http_settings(auth)


def test_the_file_takes_it_and_what_the_gateway_asks_with_is_a_secret():
    how = {"url": "https://login.acme.com/introspect", "clientId": "gateway", "clientSecret": "hunter2-hunter2"}
    auth = {"issuer": ISSUER, "audience": ["tools"], "introspection": how}
    config = load_config({"mcpServers": {"x": {"command": "x"}}, "codemode": {"auth": auth}})
    assert "hunter2-hunter2" in config.secrets
    settings = parse_http_settings(config.settings.auth)
    assert settings.token_verification is not None
    assert settings.token_verification.audiences == ("tools",)
    assert "hunter2" not in repr(settings)
