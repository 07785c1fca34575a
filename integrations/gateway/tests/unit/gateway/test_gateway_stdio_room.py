"""Requests over standard input that nobody has answered yet: so many at a time, and one of an id."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway.gateway import stdio
from codemode_gateway.gateway.stdio import _OpenRequests
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

BOUND = 30.0


def request(number: int | str, method: str = "tools/call") -> types.JSONRPCRequest:
    return types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method)


class Client:
    """A client at the other end of two pipes: it says what a test says, and keeps what it is told."""

    def __init__(self) -> None:
        self.has_reader = True
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._says: asyncio.Queue[types.JSONRPCMessage | None] = asyncio.Queue()

    def says(self, *messages: types.JSONRPCMessage) -> None:
        for one in messages:
            self._says.put_nowait(one)

    async def receive_messages(self) -> AsyncIterator[SessionMessage]:
        while (said := await self._says.get()) is not None:
            yield SessionMessage(said)

    async def send(self, data: bytes) -> None:
        self.told.put_nowait(json.loads(data))

    def end_input(self) -> None:
        self.has_reader = False
        self._says.put_nowait(None)

    async def hears(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.told.get(), BOUND)


def test_a_request_too_many_is_refused_and_the_others_are_answered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stdio, "MAX_REQUESTS", 2)

    async def main() -> None:
        client = Client()
        async with stdio._open_streams(client) as (read, write):  # type: ignore[arg-type]
            client.says(request(1), request(2, "subscriptions/listen"), request(3), request("1"))
            taken = [(await read.receive()).message.id for _ in range(2)]
            assert taken == [1, 2]
            too_many, again = await client.hears(), await client.hears()
            assert (too_many["id"], again["id"]) == (3, "1")
            assert "At most 2 requests are answered at a time" in too_many["error"]["message"]
            assert "with this id is still open" in again["error"]["message"]
            await write.send(SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=1, result={})))
            assert await client.hears() == {"jsonrpc": "2.0", "id": 1, "result": {}}
            client.says(request(4))
            assert (await read.receive()).message.id == 4
            for stream in (read, write):
                await stream.aclose()

    asyncio.run(main())


@given(st.lists(st.tuples(st.sampled_from(["ask", "answer", "cancel"]), st.integers(0, 8), st.booleans()), max_size=80))
def test_whatever_is_asked_answered_and_taken_back_no_more_are_open_than_may_be(steps: list[tuple[str, int, bool]]):
    under_way, most, ids = _OpenRequests(), 3, set[str]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stdio, "MAX_REQUESTS", most)
        for step, number, is_text in steps:
            name: int | str = str(number) if is_text else number
            if step == "ask":
                refused = under_way.register_or_refuse(request(name))
                assert (refused is None) == (str(name) not in ids and len(ids) < most)
                ids |= {str(name)} if refused is None else set()
            elif step == "answer":
                under_way.on_answer(types.JSONRPCResponse(jsonrpc="2.0", id=name, result={}))
                ids.discard(str(name))
            else:
                params = {"requestId": name}
                note = types.JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)
                assert under_way.register_or_refuse(note) is None
                ids.discard(str(name))
            assert set(under_way._has_end_by_id) == ids
