"""The bridge between a stdio client and a gateway over HTTP: both ways, over connections that are lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from codemode_gateway import ConfigError
from codemode_gateway.gateway.bridge import Bridge
from codemode_gateway.gateway.http_peer import HttpPeer, peer_url
from codemode_gateway.gateway.http_serving import serve_http
from codemode_gateway.gateway.http_settings import HttpLimits
from free_ports import free_ports
from gateway_doors import ANA, BOUND, MODERN, TOKENS, StandIn, modern_call, serving
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from suite import each_row


class Client:
    """A stdio client without pipes: lines go in, lines come out."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def received(self) -> AsyncIterator[SessionMessage]:
        while (one := await self.said.get()) is not None:
            yield SessionMessage(jsonrpc_message_adapter.validate_python(one, by_name=False))

    async def take(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        self.heard.put_nowait(json.loads(line))

    def say(self, method: str, params: Any = None, *, number: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}
        self.said.put_nowait(message if number is None else {**message, "id": number})

    async def next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.heard.get(), BOUND)

    async def open(self, capabilities: Any = None) -> dict[str, Any]:
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": capabilities or {}, "clientInfo": info}
        self.say("initialize", params, number=0)
        answer = await self.next()
        self.say("notifications/initialized")
        return answer

    async def called(self, name: str, number: int = 1) -> dict[str, Any]:
        self.say("tools/call", {"name": name, "arguments": {}}, number=number)
        return await self.next()


@contextlib.asynccontextmanager
async def bridged(url: str, token: str | None = None) -> AsyncGenerator[Client]:
    client = Client()
    task = asyncio.create_task(Bridge(HttpPeer(url, token), client.take).run(client.received()))
    try:
        yield client
    finally:
        client.said.put_nowait(None)
        await asyncio.wait_for(task, BOUND)


def text_of(answer: dict[str, Any]) -> Any:
    return json.loads(answer["result"]["content"][0]["text"])


def test_messages_pass_both_ways_with_the_token():
    async def main() -> None:
        async with serving(StandIn({"tokens": TOKENS})) as url, bridged(url, ANA) as client:
            assert (await client.open({"elicitation": {}}))["result"]["protocolVersion"] == "2025-06-18"
            assert text_of(await client.called("who")) == {"id": "ana", "session": True}
            asked = await client.called("asks", 2)
            assert asked["method"] == "elicitation/create"
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"name": "Ana"}}}
            client.said.put_nowait(answer)
            assert text_of(await client.next()) == {"action": "accept", "name": "Ana"}

    asyncio.run(main())


def test_requests_of_the_revision_without_sessions_pass_and_are_cancelled_by_their_notification():
    async def main() -> None:
        gateway = StandIn()
        async with serving(gateway) as url, bridged(url) as client:
            client.said.put_nowait(modern_call()["json"])
            assert text_of(await client.next()) == {"id": "local", "session": False}
            client.said.put_nowait(modern_call("held")["json"])
            await asyncio.wait_for(gateway.held.wait(), BOUND)
            client.say("notifications/cancelled", {"requestId": 1})
            await asyncio.wait_for(gateway.cancelled.wait(), BOUND)
            assert client.heard.empty()
            meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
            client.say("tools/nothing", {"_meta": meta}, number=5)
            answer = await client.next()
            assert (answer["id"], answer["error"]["code"]) == (5, -32601)

    asyncio.run(main())


def test_a_gateway_that_was_started_anew_is_joined_again_without_the_client_noticing():
    async def main() -> None:
        (port,) = free_ports(1)

        @contextlib.asynccontextmanager
        async def served() -> AsyncGenerator[None]:
            there = asyncio.Event()
            limits = HttpLimits(stop_seconds=0)
            serve = serve_http(
                StandIn(), "127.0.0.1", port, limits=limits, say=lambda _: None, listening=lambda _: there.set()
            )
            task = asyncio.create_task(serve)
            await asyncio.wait_for(there.wait(), BOUND)
            yield
            task.cancel()
            await asyncio.wait([task])

        async with bridged(f"http://127.0.0.1:{port}") as client:
            async with served():
                await client.open()
                assert text_of(await client.called("who"))["session"]
            async with served():
                assert text_of(await client.called("who", 2))["session"]
                for number in (3, 4, 5):
                    client.say("tools/call", {"name": "who", "arguments": {}}, number=number)
                answers = [await client.next() for _ in range(3)]
                assert sorted(one["id"] for one in answers) == [3, 4, 5]

    asyncio.run(main())


def test_where_nothing_listens_the_client_is_told_where_and_what_to_do():
    async def main() -> None:
        (port,) = free_ports(1)
        async with bridged(f"http://127.0.0.1:{port}/mcp") as client:
            for number in (1, 2):
                client.say("tools/list", number=number)
                answer = await client.next()
                assert answer["id"] == number
                assert f"nothing listens at http://127.0.0.1:{port}/mcp" in answer["error"]["message"]
                assert "codemode mcp --http" in answer["error"]["message"]

    asyncio.run(main())


@pytest.mark.parametrize(("token", "words"), [(None, "needs a token: set CODEMODE_MCP_TOKEN"), ("x", "does not take")])
def test_without_its_token_the_client_is_told_so(token: str | None, words: str):
    async def main() -> None:
        async with serving(StandIn({"tokens": TOKENS})) as url, bridged(url, token) as client:
            client.say("tools/list", number=1)
            assert words in (await client.next())["error"]["message"]

    asyncio.run(main())


def test_a_call_whose_gateway_ends_is_not_sent_again():
    async def main() -> None:
        gateway = StandIn()
        async with contextlib.AsyncExitStack() as stack:
            client = None
            async with serving(gateway, limits=HttpLimits(stop_seconds=0)) as url:
                client = await stack.enter_async_context(bridged(url))
                await client.open()
                client.say("tools/call", {"name": "held", "arguments": {}}, number=1)
                await asyncio.wait_for(gateway.held.wait(), BOUND)
            answer = await client.next()
            assert answer["id"] == 1
            assert "unknown" in answer["error"]["message"]

    asyncio.run(main())


@each_row(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 307 Go\r\nLocation: http://evil.example.com/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\r\n\r\n",
        b"HTTP/1.1 202 OK\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-none\r\n",
        b"",
    ],
)
def test_what_is_no_gateway_is_an_error_of_the_call_and_not_of_the_bridge(answer: bytes):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with bridged(f"http://127.0.0.1:{port}") as client:
                for number in (1, 2):
                    client.say("tools/list", number=number)
                    answer = await client.next()
                    assert (answer["id"], "error" in answer) == (number, True)

    asyncio.run(main())


@each_row("url", ["127.0.0.1:8765", "ftp://host", "http://", "http://u:p@host", "http://host:0", "x", ""])
def test_what_is_no_url_is_refused(url: str):
    with pytest.raises(ConfigError, match="--bridge"):
        peer_url(url)


def test_a_url_without_a_path_is_that_of_a_gateway_there():
    assert peer_url("http://127.0.0.1:8765/") == peer_url("http://127.0.0.1:8765/mcp")
    assert peer_url("https://tools.acme.com/a/mcp") == "https://tools.acme.com/a/mcp"
