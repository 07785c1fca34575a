"""Servers over HTTP: sessions that are lost, servers that are away, who must sign in, where headers go."""

import asyncio
import json

import httpx2
import pytest
from codemode_gateway import ServerConfig, UpstreamHooks, connect
from codemode_gateway.gateway.principals import CallOrigin
from free_ports import free_ports, is_free
from mcp_servers.configured import of, served
from suite import each_row, full_only
from waiting import until, within
from warm_commands import GATEWAYS

from codemode import ToolCallContext
from codemode.errors import CodeModeAuthenticationError, CodeModeToolError

pytestmark = pytest.mark.usefixtures("warm_gateways")


@pytest.mark.parametrize("transport", ["http", *full_only("sse")])
def test_a_server_that_was_away_is_called_again_and_its_lost_session_opened_anew(transport):
    async def work():
        (port,) = free_ports(1)  # one that nobody else is given while the server is away
        with served(transport, port, python=GATEWAYS.python) as (url, process):
            async with connect(of(ServerConfig("p", transport, url=url))) as connected:
                upstream = connected.upstream("p")
                assert {tool.name for tool in await upstream.tools()} >= {"echo", "write"}
                process.kill()
                process.wait()
                await until(lambda: is_free(port))  # the server ends a moment after its launcher
                with pytest.raises(CodeModeToolError, match=r"cannot be reached|connection was lost"):
                    await upstream.call("write", {"text": "x"})
                with served(transport, port, python=GATEWAYS.python):
                    result = await upstream.call("write", {"text": "again"})
                    assert result.structured_content == {"result": "again"}

    within(work())


def test_a_call_that_was_cut_off_has_an_unknown_outcome():
    async def work():
        arrived = asyncio.Event()

        async def progress(_said):
            arrived.set()

        with served("http", python=GATEWAYS.python) as (url, process):
            async with connect(of(ServerConfig("p", "http", url=url))) as connected:
                upstream = connected.upstream("p")
                await upstream.tools()
                origin = CallOrigin(progress=progress)
                context = ToolCallContext(tool_call_id="1", outer_tool_call_id="0", context=origin)
                call = asyncio.create_task(upstream.call("slow", {}, context))
                await arrived.wait()  # what another call is answered says nothing of this one
                process.kill()
                with pytest.raises(CodeModeToolError) as raised:
                    await call
                return raised.value.code

    assert within(work()) == "OUTCOME_UNKNOWN"


def test_who_has_not_signed_in_is_told_so_and_tokens_of_a_hook_are_used():
    class Bearer(httpx2.Auth):
        def auth_flow(self, request):
            request.headers["authorization"] = "Bearer sesame"
            yield request

    async def tools(**settings):
        hooks = settings.pop("hooks", UpstreamHooks())
        async with connect(of(ServerConfig("p", "http", **settings)), hooks=hooks) as connected:
            return len(await connected.upstream("p").tools())

    async def work():
        with served("http", token="sesame", python=GATEWAYS.python) as (url, _):
            with pytest.raises(CodeModeAuthenticationError, match="must sign in first"):
                await tools(url=url)
            assert await tools(url=url, headers={"authorization": "Bearer sesame"}) == 5
            assert await tools(url=url, hooks=UpstreamHooks(create_auth=lambda _: Bearer())) == 5

    within(work())


class Answering:
    """A server of HTTP that answers every request with the same bytes, and keeps what it was sent."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.heard = b""

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        self.heard += await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        writer.close()


def answered(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@each_row(
    "answer, reason",
    [
        (answered("502 Bad Gateway", b"<html>"), "502 Bad Gateway"),
        (answered("403 Forbidden"), "403 Forbidden"),
        (
            answered("200 OK", b"x", "Content-Type: text/html"),
            "text/html that starts with 'x' is not JSON-RPC",
        ),
        (answered("200 OK", b"{", "Content-Type: application/json"), "cannot be read"),
        (answered("200 OK", b"[" * 100_000, "Content-Type: application/json"), "cannot be read"),
        (answered("200 OK", b"\x1f\x8b", "Content-Type: application/json", "Content-Encoding: gzip"), "compresses"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{", "cannot be read"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "connection was lost"),
        (b"", "connection was lost"),
    ],
)
def test_what_is_no_answer_is_a_reason(answer, reason):
    async def work():
        async with Answering(answer) as server, connect(of(ServerConfig("p", "http", url=server.url))) as connected:
            with pytest.raises(CodeModeToolError, match=reason):
                await connected.upstream("p").tools()

    within(work())


def test_headers_go_to_no_other_host():
    async def work():
        async with Answering(answered("404 Not Found")) as other:
            moved = answered("307 Temporary Redirect", b"", f"Location: http://localhost:{other.port}/mcp")
            async with Answering(moved) as server:
                headers = {"authorization": "Bearer sesame"}
                async with connect(of(ServerConfig("p", "http", url=server.url, headers=headers))) as connected:
                    with pytest.raises(CodeModeToolError):
                        await connected.upstream("p").tools()
                assert b"sesame" in server.heard
                assert other.heard == b""

    within(work())


class Choosing(Answering):
    """A server that answers by the method of a request."""

    def __init__(self, **answers: bytes) -> None:
        super().__init__(b"")
        self._answers = answers

    async def _serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next((int(one.partition(":")[2]) for one in head.splitlines() if one.startswith("content-length:")), 0)
        asked = json.loads(await reader.readexactly(length) or b"{}")
        method = asked.get("method", "").replace("/", "_")
        found = self._answers.get(method, answered("202 Accepted"))
        writer.write(found)
        await writer.drain()
        writer.close()


def result(value) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, **value}).encode()
    status = "400 Bad Request" if "error" in value else "200 OK"
    return answered(status, body, "Content-Type: application/json")


WELCOME = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "late", "version": "1"},
}
SIGN_IN = answered("401 Unauthorized", b"", 'WWW-Authenticate: Bearer scope="all"')
NOT_SO = result({"error": {"code": -32600, "message": "Missing MCP-Protocol-Version header"}})


@pytest.mark.parametrize(
    "answers",
    [
        {"initialize": SIGN_IN, "server_discover": SIGN_IN},
        {"initialize": NOT_SO, "server_discover": SIGN_IN},
        {"initialize": result({"result": WELCOME}), "tools_list": SIGN_IN},
    ],
    ids=["at once", "in the newer era alone", "once tools are listed"],
)
def test_a_server_that_asks_for_a_sign_in_is_not_told_as_broken_whenever_it_asks(answers):
    async def work():
        async with Choosing(**answers) as server, connect(of(ServerConfig("p", "http", url=server.url))) as connected:
            with pytest.raises(CodeModeAuthenticationError):
                await connected.upstream("p").tools()
            assert connected.upstream("p").needs_sign_in

    within(work())
