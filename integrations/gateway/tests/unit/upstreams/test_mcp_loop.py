"""What a server says never holds the event loop: it is read in turns, in a thread, or not at all."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import httpx2
import mcp_types as types
import pytest
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.upstreams import jsonrpc_lines, session_streams, stdio, upstream
from codemode_gateway.upstreams.hooks import UpstreamHooks
from codemode_gateway.upstreams.http import EventStream
from codemode_gateway.upstreams.session_streams import RequestSendState
from codemode_gateway.upstreams.stdio import StdoutReader
from codemode_gateway.upstreams.upstream import UpstreamTool, create_program_tools
from in_loop import in_loop
from mcp.shared.message import SessionMessage
from suite import full_only

PING = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n'


def answer(values: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"text": "x" * 20}] * values}}).encode()


def output() -> StdoutReader:
    def fail(reason: str) -> None:
        raise AssertionError(reason)

    return StdoutReader(fail, "s", stdio.MAX_LINE_BYTES)


@in_loop
async def test_a_flood_is_read_a_few_lines_a_turn_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = stdio.parse_message_line
    monkeypatch.setattr(stdio, "parse_message_line", lambda line: read.append(1) or real(line))
    flooded, count = output(), 1_000
    flooded.data_received(b"".join(PING % at for at in range(count)))
    most = 0
    ids: list[int] = []
    while len(ids) < count:
        most, read[:] = max(most, len(read)), []
        found: Any = await flooded.inbox.receive()
        ids.append(found.message.id)
        await asyncio.sleep(0)
    assert ids == [*range(count)]
    assert 0 < most <= stdio._LINES_PER_TURN


@in_loop
async def test_a_long_answer_is_read_in_a_thread_by_what_takes_least_time(monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[bool] = set()
    real = jsonrpc_lines.decode_json

    def watched(text: str) -> Any:
        read.add(threading.current_thread() is threading.main_thread())
        return real(text)

    monkeypatch.setattr(jsonrpc_lines, "decode_json", watched)
    heard = output()
    heard.data_received(answer(5_000) + b"\n" + PING % 7)
    long, ping = [await heard.inbox.receive() for _ in range(2)]
    assert isinstance(long, SessionMessage)
    assert isinstance(ping, SessionMessage)
    assert len(long.message.result["content"]) == 5_000  # type: ignore[union-attr]
    assert ping.message.id == 7  # type: ignore[union-attr]
    assert read == {False}


def test_an_answer_of_more_values_than_allowed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonrpc_lines, "MAX_VALUES", 6_000)
    assert jsonrpc_lines.parse_message_line(answer(2_900)).message is not None
    assert jsonrpc_lines.parse_message_line(answer(3_100)).message is None
    refused = jsonrpc_lines.unreadable_answer_error(answer(3_100))
    assert refused is not None
    assert "has more than" in refused.error.message


@in_loop
async def test_tools_are_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    real = UpstreamTool.__init__

    def watched(self: Any, *given: Any, **named: Any) -> None:
        made.append(threading.current_thread() is threading.main_thread())
        real(self, *given, **named)

    monkeypatch.setattr(UpstreamTool, "__init__", watched)
    listed = [types.Tool(name=f"t{at}", input_schema={"type": "object"}) for at in range(500)]

    async def none(*_: Any) -> None: ...

    asked: list[bool] = []

    def approval(*_: Any) -> bool:
        asked.append(threading.current_thread() is threading.main_thread())
        return False

    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    tools = await create_program_tools(
        ServerConfig("s", "stdio"), listed, UpstreamHooks(get_approval_rule=approval), none, none
    )
    beside.cancel()
    assert [one.name for one in tools] == [one.name for one in listed]
    assert (set(made), set(asked)) == ({False}, {True})
    assert turns >= len(listed) // upstream._TOOLS_PER_TURN


class Pipe(asyncio.WriteTransport):
    """A pipe that its reader has let fill up."""

    def __init__(self, box: session_streams.MessageOutbox) -> None:
        super().__init__()
        self.box = box
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))
        self.box.pause_writing()

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


@in_loop
async def test_who_asks_and_does_not_read_gets_few_answers_and_wakes_one_sender_at_a_time() -> None:
    box = session_streams.MessageOutbox()
    pipe = Pipe(box)
    box.connection_made(pipe)
    pong = types.JSONRPCResponse(jsonrpc="2.0", id=1, result={})
    sending = [
        asyncio.ensure_future(box.send(SessionMessage(pong))) for _ in range(3 * session_streams._MAX_WAITING_MESSAGES)
    ]
    await asyncio.sleep(0)
    assert sum(not one.done() for one in sending) == session_streams._MAX_WAITING_MESSAGES
    request = asyncio.ensure_future(
        box.send(SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=2, method="tools/call")))
    )
    woken = 0
    while not request.done():
        before = len(pipe.written)
        box.resume_writing()
        for _ in range(4):
            await asyncio.sleep(0)
        woken = max(woken, len(pipe.written) - before)
    assert woken == 1
    assert b"tools/call" in pipe.written[-1]
    assert len(pipe.written) == session_streams._MAX_WAITING_MESSAGES + 2


ENDS = [b"\n\n", b"\r\n\r\n", b"\r\r", b"\r\n\n"]


@pytest.mark.parametrize(
    ("ends", "pieces"),
    [
        *zip(ENDS, (50_000, 7, 1, 7), strict=True),
        *full_only(*product(ENDS, (1, 7, 50_000))),
    ],
)
@in_loop
async def test_an_event_of_more_values_than_the_loop_can_read_ends_the_stream(
    ends: bytes, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonrpc_lines, "MAX_VALUES_ON_THE_LOOP", 500)
    small, large = answer(200), answer(300)
    quoted = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"text": "[1,2]," * 1_000}}).encode()
    line = ends[: len(ends) // 2]
    halves = large.split(b", ", 300)
    split = line.join(b"data: " + part + b", " for part in halves[:-1]) + line + b"data: " + halves[-1]

    async def heard(*events: bytes) -> int:
        text = b"".join(events)
        size = max(1, len(text) // pieces)

        class Stream(httpx2.AsyncByteStream):
            async def __aiter__(self) -> AsyncIterator[bytes]:
                for at in range(0, len(text), size):
                    yield text[at : at + size]

        return len([event async for event in EventStream(Stream(), RequestSendState(), 1 << 20, lambda: None)])

    innocent = [b"event: message" + line + b"data: " + one + ends for one in (small, quoted, small)]
    assert await heard(*innocent) == len(innocent)
    for one in (b"data: " + large, b': "' + line + b"data: " + large, split):
        assert await heard(*innocent, one, ends) == len(innocent)
