"""Requests that come slowly, and what has changed by the time that they are here: they count, and they end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from codemode_gateway import GatewayConfig
from codemode_gateway.gateway.http_app import HttpApp, create_http_app
from codemode_gateway.gateway.http_settings import HttpLimits
from gateway_doors import ANA, BOB, BOUND, TOKENS, StandIn, bearer, modern_call
from mcp.server.auth.provider import AccessToken


class Asked:
    """A call of 2026-07-28 whose body comes when a test says so."""

    def __init__(self, app: HttpApp, token: str, name: str = "who") -> None:
        call = modern_call(name)
        said = {**call["headers"], **bearer(token), "host": "127.0.0.1", "content-type": "application/json"}
        self._body = json.dumps(call["json"]).encode()
        self._scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), value.encode()) for name, value in said.items()],
        }
        self.is_read, self.comes = asyncio.Event(), asyncio.Event()
        self.status: int | None = None
        self.task = asyncio.create_task(app(self._scope, self._receive, self._send))  # type: ignore[arg-type]

    async def answered(self) -> int | None:
        """Let the body come, and return the status of the answer."""
        self.comes.set()
        await asyncio.wait_for(self.task, BOUND)
        return self.status

    async def _receive(self) -> dict[str, Any]:
        if self.is_read.is_set():
            await asyncio.Event().wait()  # there is nothing more, and nobody hangs up
        self.is_read.set()
        await self.comes.wait()
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]


def test_a_body_that_has_not_come_counts_as_a_request_of_its_user():
    async def main() -> None:
        app = create_http_app(StandIn({"tokens": TOKENS}), limits=HttpLimits(requests=1))
        async with app.running():
            slow = Asked(app, ANA)
            await asyncio.wait_for(slow.is_read.wait(), BOUND)
            assert await Asked(app, ANA).answered() == 429
            assert await Asked(app, BOB).answered() == 200
            assert await slow.answered() == 200
            assert await Asked(app, ANA).answered() == 200

    asyncio.run(main())


def test_what_a_user_began_to_send_is_not_taken_once_they_are_none():
    async def main() -> None:
        gateway = StandIn({"tokens": TOKENS})
        app = create_http_app(gateway)
        async with app.running():
            slow = Asked(app, ANA, "held")
            await asyncio.wait_for(slow.is_read.wait(), BOUND)
            only_bob = {key: user for key, user in TOKENS.items() if user["name"] == "bob"}
            gateway.config = GatewayConfig(settings=replace(gateway.config.settings, auth={"tokens": only_bob}))
            assert await Asked(app, BOB).answered() == 200
            gateway.let_go.set()
            assert await slow.answered() == 503
            assert not gateway.held.is_set()

    asyncio.run(main())


class Slow:
    """A verifier that answers when a test says so."""

    def __init__(self) -> None:
        self.is_asked, self.says = asyncio.Event(), asyncio.Event()

    async def verify_token(self, token: str) -> AccessToken | None:
        self.is_asked.set()
        await self.says.wait()
        return AccessToken(token=token, client_id="client", scopes=["use"], subject="ana")


@pytest.mark.parametrize("wanted", ["use", "more"])
def test_a_token_that_was_verified_while_the_settings_changed_is_held_to_the_new_ones(wanted: str):
    async def main() -> None:
        verifier = Slow()
        gateway = StandIn({"scopes": ["use"]}, verifier)
        app = create_http_app(gateway)
        async with app.running():
            asked = Asked(app, ANA)
            await asyncio.wait_for(verifier.is_asked.wait(), BOUND)
            gateway.config = GatewayConfig(settings=replace(gateway.config.settings, auth={"scopes": [wanted]}))
            verifier.says.set()
            assert await asked.answered() == (200 if wanted == "use" else 403)

    asyncio.run(main())
