"""Callers who hang up while their token is checked: nobody asks for them any more, and others are checked soon."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import httpx2
import jwt
import pytest
from codemode_gateway.gateway import http_auth, http_limits
from codemode_gateway.gateway.http_app import HttpApp, create_http_app
from codemode_gateway.gateway.http_auth import IntrospectionVerifier, VerifierUnavailableError, create_token_verifier
from codemode_gateway.gateway.http_settings import parse_http_settings
from cryptography.hazmat.primitives.asymmetric import ec
from gateway_doors import BOUND, StandIn, asking, bearer, modern_call, serving, who
from mcp.server.auth.provider import AccessToken
from waiting import until

ISSUER, GATEWAY = "https://login.acme.com", "https://tools.acme.com"
BY_ASKING = {
    "issuer": ISSUER,
    "url": GATEWAY,
    "introspection": {"url": "http://127.0.0.1:9/introspect", "clientId": "gateway", "clientSecret": "secret"},
}
BY_SIGNATURE = {"issuer": ISSUER, "url": GATEWAY, "jwt": {"jwksUrl": "http://127.0.0.1:9/keys"}}


class Slow:
    """A verifier that answers a token when a test says so; "good" is somebody's at once."""

    def __init__(self) -> None:
        self.waiting: set[str] = set()
        self.let_go = asyncio.Event()

    async def verify_token(self, token: str) -> AccessToken | None:
        if token != "good":
            self.waiting.add(token)
            try:
                await self.let_go.wait()
            finally:
                self.waiting.discard(token)
        return AccessToken(token="", client_id="ana", scopes=[], subject="ana", claims={"iss": ISSUER})


class Caller:
    """A call whose body comes in parts, and whose client hangs up when a test says so."""

    def __init__(self, app: HttpApp, token: str, *, address: str = "192.0.2.1", filler: int = 0) -> None:
        call = modern_call()
        call["json"]["params"]["arguments"] = {"filler": "x" * filler}
        body = json.dumps(call["json"]).encode()
        self.parts = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
        said = {**call["headers"], **bearer(token), "host": "127.0.0.1", "content-type": "application/json"}
        said["content-length"] = str(len(body))
        headers = [(name.encode(), value.encode()) for name, value in said.items()]
        scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "client": (address, 1)}
        self.hung_up = asyncio.Event()
        self.status: int | None = None
        self.task = asyncio.create_task(app({**scope, "headers": headers}, self._receive, self._send))  # type: ignore[arg-type]

    async def _receive(self) -> dict[str, Any]:
        if self.parts:
            part = self.parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self.parts)}
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]


def test_nobody_checks_the_token_of_a_caller_who_has_hung_up() -> None:
    async def main() -> None:
        slow = Slow()
        app = create_http_app(StandIn({"url": GATEWAY}, slow))
        async with app.running():
            callers = [Caller(app, f"t{number}") for number in range(5)]
            await until(lambda: len(slow.waiting) == 5)
            for caller in callers[:4]:
                caller.hung_up.set()
            await asyncio.wait_for(asyncio.gather(*(caller.task for caller in callers[:4])), BOUND)
            assert slow.waiting == {"t4"}
            slow.let_go.set()
            await asyncio.wait_for(callers[4].task, BOUND)
            assert callers[4].status == 200

    asyncio.run(main())


def test_a_body_that_comes_while_its_token_is_checked_is_read_whole() -> None:
    async def main() -> None:
        for filler in (0, 100_000, 1_000_000):
            slow = Slow()
            app = create_http_app(StandIn({"url": GATEWAY}, slow))
            async with app.running():
                caller = Caller(app, "t", filler=filler)
                await until(lambda slow=slow: bool(slow.waiting))
                slow.let_go.set()
                await asyncio.wait_for(caller.task, BOUND)
                assert caller.status == 200, filler

    asyncio.run(main())


def test_the_tokens_of_one_address_that_are_checked_at_a_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "_MAX_TOKEN_CHECKS", 3)

    async def main() -> None:
        slow = Slow()
        app = create_http_app(StandIn({"url": GATEWAY}, slow))
        async with app.running():
            callers = [Caller(app, f"t{number}") for number in range(3)]
            await until(lambda: len(slow.waiting) == 3)
            refused, elsewhere = Caller(app, "good"), Caller(app, "good", address="192.0.2.2")
            await asyncio.wait_for(asyncio.gather(refused.task, elsewhere.task), BOUND)
            assert (refused.status, elsewhere.status) == (429, 200)
            callers[0].hung_up.set()
            await asyncio.wait_for(callers[0].task, BOUND)
            again = Caller(app, "good")
            await asyncio.wait_for(again.task, BOUND)
            assert again.status == 200
            slow.let_go.set()
            await asyncio.wait_for(asyncio.gather(*(caller.task for caller in callers)), BOUND)

    asyncio.run(main())


class Asked:
    """What stands in for the requests to the authorization server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
        self.begun = self.under_way = 0
        self.let_go = asyncio.Event()
        self._answer = answer
        monkeypatch.setattr(http_auth, "_fetch_json_object", self._fetched)

    async def _fetched(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.begun += 1
        self.under_way += 1
        try:
            await self.let_go.wait()
        finally:
            self.under_way -= 1
        return self._answer


def test_a_question_ends_with_the_last_caller_who_waits_for_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        asked = Asked(monkeypatch, {"active": True, "sub": "ana", "aud": GATEWAY})
        verifier = create_token_verifier(parse_http_settings(BY_ASKING).token_verification)
        assert isinstance(verifier, IntrospectionVerifier)
        one, two, other = (asyncio.create_task(verifier.verify_token(token)) for token in ("a", "a", "b"))
        await until(lambda: asked.under_way == 2)
        one.cancel()
        other.cancel()
        await asyncio.wait([one, other])
        await until(lambda: asked.under_way == 1)
        again = asyncio.create_task(verifier.verify_token("b"))
        await until(lambda: asked.under_way == 2)
        asked.let_go.set()
        found = await asyncio.gather(two, again)
        assert [access.subject for access in found if access is not None] == ["ana", "ana"]
        assert asked.begun == 3

    asyncio.run(main())


def test_abandoned_questions_leave_the_queue_and_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        asked = Asked(monkeypatch, {"active": True, "sub": "ana", "aud": GATEWAY})
        verifier = create_token_verifier(parse_http_settings(BY_ASKING).token_verification)
        assert verifier is not None
        flood = [asyncio.create_task(verifier.verify_token(f"t{number}")) for number in range(600)]
        await until(lambda: sum(task.done() for task in flood) == 600 - 512)
        refused = [task.exception() for task in flood if task.done()]
        assert all(isinstance(error, VerifierUnavailableError) for error in refused)
        for task in flood:
            task.cancel()
        await asyncio.wait(flood)
        await until(lambda: asked.under_way == 0)
        good = asyncio.create_task(verifier.verify_token("good"))
        await until(lambda: asked.under_way == 1)
        asked.let_go.set()
        assert (await good) is not None
        assert asked.begun == 17, "no abandoned question is asked later"

    asyncio.run(main())


def test_a_look_at_the_keys_goes_on_when_the_first_who_needs_it_hangs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        asked = Asked(monkeypatch, {"keys": []})
        verifier = create_token_verifier(parse_http_settings(BY_SIGNATURE).token_verification)
        assert verifier is not None
        token = jwt.encode({}, ec.generate_private_key(ec.SECP256R1()), algorithm="ES256")
        first, second = (asyncio.create_task(verifier.verify_token(token)) for _ in range(2))
        await until(lambda: asked.under_way == 1)
        first.cancel()
        await asyncio.wait([first])
        assert asked.under_way == 1
        asked.let_go.set()
        assert await asyncio.wait_for(second, BOUND) is None
        assert asked.begun == 1

    asyncio.run(main())


def test_clients_that_hang_up_lock_no_new_token_out() -> None:
    async def main() -> None:
        slow = Slow()
        async with serving(StandIn({"url": GATEWAY}, slow)) as url:
            place = urlsplit(url)
            call = modern_call()
            body = json.dumps(call["json"])
            for number in range(40):
                _, writer = await asyncio.open_connection(place.hostname, place.port)
                head = {**call["headers"], **bearer(f"t{number}"), "host": place.netloc, "content-length": len(body)}
                lines = [f"POST {place.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", body]
                writer.write("\r\n".join([*lines[:-1], "", lines[-1]]).encode())
                await writer.drain()
                await until(lambda number=number: f"t{number}" in slow.waiting)
                writer.close()
            await until(lambda: not slow.waiting)
            async with httpx2.AsyncClient(timeout=BOUND) as client:
                answer = await client.post(url, json=call["json"], headers={**call["headers"], **bearer("good")})
            assert (await who(answer))["id"].endswith("user ana")

    asyncio.run(main())


def test_ten_wrong_tokens_from_an_address_do_not_refuse_the_right_one() -> None:
    async def main() -> None:
        async with asking({"url": GATEWAY}, verifier=Only("good")) as client:
            call = modern_call()
            for number in range(30):
                answer = await client.post(
                    "/mcp", json=call["json"], headers={**call["headers"], **bearer(f"{number}")}
                )
                assert answer.status_code == 401
            await who(await client.post("/mcp", json=call["json"], headers={**call["headers"], **bearer("good")}))
            statuses: list[int] = []
            for token in [*map(str, range(12)), "good"]:
                headers = {"sec-fetch-site": "same-origin", "accept": "application/json"}
                answer = await client.post("/console/sign-in", data={"token": token}, headers=headers)
                statuses.append(answer.status_code)
            assert statuses == [401] * 10 + [429] * 2 + [200]

    asyncio.run(main())


class Only:
    """A verifier that knows one token."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def verify_token(self, token: str) -> AccessToken | None:
        if token != self._token:
            return None
        return AccessToken(token="", client_id="ana", scopes=[], subject="ana", claims={"iss": ISSUER})
