"""Clients of `tests.soak.gateways`: over HTTP and stdio, in both eras, some of which vanish while they are asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from tests.soak.gateway_world import World, edited, verdict_on
from tests.soak.nursery import Nursery
from tests.support.waiting import until

TOOL, MOST_TRIES, BOUND = "codemode_run", 60, 60.0
_LOST = (MCPError, httpx2.HTTPError, OSError, ConnectionError)


def is_up(port: Any) -> bool:
    """Tell whether somebody listens at a port of this machine."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.asynccontextmanager
async def _client_at(url: str, token: str, mode: Any, **options: Any) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=BOUND) as signed_in,
        Client(streamable_http_client(url, http_client=signed_in), mode=mode, **options) as client,
    ):
        yield client


def be_mute(url: str, token: str, code: str, asked: str) -> None:
    """Be a process that has a program run, and answers nothing once it is asked: then there is a file."""

    async def mute(_ctx: Any, _params: Any) -> Any:
        os.close(os.open(asked, os.O_CREAT))
        await asyncio.Event().wait()

    async def main() -> None:
        async with _client_at(url, token, "legacy", elicitation_callback=mute) as client:
            await client.call_tool(TOOL, {"code": code})

    logging.disable()
    with contextlib.suppress(*_LOST, BaseExceptionGroup):
        asyncio.run(main())


class Lost(Exception):
    """The connection was lost, which is how a client is told."""


class Gone(Exception):
    """The client has vanished, and will never know."""


class Visitor:
    """One client after the other. ``manner`` says of each what it can do.

    ``rounds``: it goes on with what it was given, wherever a gateway answers. ``session``: it is asked in its session.
    ``vanish``: it is gone once it is asked. ``console``: nobody can ask it. ``piped``: it starts a gateway of its own.
    ``eras`` are the modes of its SDK, the first one that of ``rounds``.
    """

    def __init__(
        self,
        urls: Sequence[str],
        piped: Sequence[str],
        tokens: Mapping[str, str],
        world: World,
        folder: Path,
        nursery: Nursery,
        chance: random.Random,
        eras: Sequence[str] = ("auto", "legacy"),
    ) -> None:
        self._urls, self._command, self._tokens, self._world, self._chance = urls, piped, tokens, world, chance
        self._folder, self._nursery, self._eras = folder, nursery, eras
        self._token, self._url, self._is_piped = "", "", False

    async def visit(self, manner: str, code: str) -> dict[str, Any]:
        """Have a program run, and return what the client is told in the end. Raises `Lost` and `Gone`."""
        self._token = self._chance.choice([*self._tokens.values()])
        self._is_piped = manner == "piped"
        return await getattr(self, f"_{manner}")(code)

    async def _rounds(self, code: str) -> dict[str, Any]:
        mode = self._eras[0]
        answer = await self._asked(mode, code=code)
        while isinstance(answer, types.InputRequiredResult):
            answer = await self._again(mode, await self._replies(answer), code=code)
        return await self._to_its_end(answer, mode)

    async def _piped(self, code: str) -> dict[str, Any]:
        mode = self._chance.choice(self._eras)
        return await (self._rounds(code) if mode == "auto" else self._session(code))

    async def _session(self, code: str) -> dict[str, Any]:
        return await self._to_its_end(await self._asked("legacy", code=code), "legacy")

    async def _console(self, code: str) -> dict[str, Any]:
        mode = self._chance.choice(self._eras)
        return await self._to_its_end(await self._asked(mode, asks=False, code=code), mode, asks=False)

    async def _vanish(self, code: str) -> dict[str, Any]:
        await until(self._finds_one)
        asked = self._folder / f"asked-{self._chance.getrandbits(64):x}"
        host = self._nursery.start(__name__, "be_mute", self._url, self._token, code, str(asked))
        await until(lambda: asked.exists() or host.has_ended())
        host.send(signal.SIGKILL)
        self._nursery.buried(host)
        if not asked.exists():
            raise Lost("nobody was asked")
        asked.unlink()
        raise Gone

    async def _to_its_end(self, answer: Any, mode: str, *, asks: bool = True) -> dict[str, Any]:
        """Come back for what waits until it has come to something."""
        while "waiting" in (told := json.loads(answer.content[0].text)):
            answer = await self._again(mode, {}, asks=asks, resume=told["waiting"]["id"])
            while isinstance(answer, types.InputRequiredResult):
                answer = await self._again(mode, await self._replies(answer), resume=told["waiting"]["id"])
        return told

    async def _again(self, mode: str, going_on: Mapping[str, Any], *, asks: bool = True, **arguments: str) -> Any:
        """Ask until somebody answers: what is kept is lost with nobody."""
        for _ in range(MOST_TRIES):
            with contextlib.suppress(Lost):
                return await self._asked(mode, asks=asks, going_on=going_on, **arguments)
            await asyncio.sleep(0.1)
        raise AssertionError(f"nobody answered {MOST_TRIES} times")

    async def _asked(
        self,
        mode: str,
        callback: Any = None,
        *,
        asks: bool = True,
        going_on: Mapping[str, Any] | None = None,
        **arguments: str,
    ) -> Any:
        """Call the tool of some gateway; where nobody listens just now, a moment later. Raises `Lost`."""
        can = {"elicitation_callback": callback or self._person} if asks else {}
        if not self._is_piped:
            await until(self._finds_one)
        try:
            async with self._client(mode, **can) as client:
                return await client.session.call_tool(TOOL, arguments, allow_input_required=True, **(going_on or {}))
        except _LOST as error:
            raise Lost(repr(error)) from error
        except BaseExceptionGroup as group:
            if group.split(_LOST)[1] is not None:
                raise
            raise Lost(repr(group)) from group

    def _finds_one(self) -> bool:
        self._url = self._chance.choice(self._urls)
        return is_up(urlsplit(self._url).port)

    @contextlib.asynccontextmanager
    async def _client(self, mode: Any, **options: Any) -> AsyncGenerator[Client]:
        if self._is_piped:
            parameters = StdioServerParameters(command=sys.executable, args=[*self._command], env={**os.environ})
            with (self._folder / "log").open("a") as log:
                async with Client(stdio_client(parameters, errlog=log), mode=mode, **options) as client:
                    yield client
            return
        async with _client_at(self._url, self._token, mode, **options) as client:
            yield client

    async def _person(self, _ctx: Any, params: Any) -> Any:
        await asyncio.sleep(self._chance.choice((0, 0.01, 0.1)))
        return await self._reply(params)

    async def _reply(self, params: Any) -> types.ElicitResult:
        """Answer as everybody would; of a call in doubt once it is known."""
        if isinstance(params, types.ElicitRequestURLParams):  # the page on which somebody else decides
            return types.ElicitResult(action="accept")
        value = json.loads(next(line for line in params.message.splitlines() if line.startswith("Input: "))[7:])
        if "happened?" not in params.message:
            said = {"decision": "deny" if verdict_on(value) == "deny" else "once", "input": json.dumps(edited(value))}
            return types.ElicitResult(action="accept", content=said)
        found: dict[str, Any] = {}
        await until(lambda: found.update(self._world.found_out(value) or {}) or found)
        if "value" in found:
            said = {"decision": "happened", "value": json.dumps(found["value"])}
        elif "runAgain" in found:
            said = {"decision": "run_again"}
        else:
            said = {"decision": "failed", "reason": found["error"]["message"]}
        return types.ElicitResult(action="accept", content=said)

    async def _replies(self, answer: types.InputRequiredResult) -> dict[str, Any]:
        replies = {key: await self._reply(one.params) for key, one in (answer.input_requests or {}).items()}
        return {"input_responses": replies, "request_state": answer.request_state}
