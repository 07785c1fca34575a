"""What a hostile server can make the gateway keep, read at once, wait for, or write into its logs."""

import asyncio
import logging
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.config.redaction import SecretRedactor
from codemode_gateway.gateway.stdio import LineSplitter
from codemode_gateway.upstreams import http as http_client
from codemode_gateway.upstreams import session_streams, stdio
from codemode_gateway.upstreams.connected import WarningLimiter
from codemode_gateway.upstreams.connection_errors import UpstreamUnavailableError
from codemode_gateway.upstreams.http import EventStream, UpstreamHttpClient
from codemode_gateway.upstreams.reconnecting import ReconnectingConnection
from codemode_gateway.upstreams.session_streams import SENDING, RequestSendState
from suite import full_only


def test_a_server_that_reads_no_answers_is_given_up(monkeypatch: Any):
    monkeypatch.setattr(session_streams, "MAX_UNREAD", 3)

    async def work():
        write, read = anyio.create_memory_object_stream[str](0)
        ended = asyncio.Event()
        told = session_streams.BoundedSender(write, ended)
        waiting = [asyncio.ensure_future(told.send("pong")) for _ in range(3)]
        await asyncio.sleep(0)
        assert not ended.is_set()
        with pytest.raises(anyio.ClosedResourceError):
            await told.send("pong")
        assert ended.is_set()
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        await told.aclose()
        await read.aclose()

    asyncio.run(work())


class Pieces(httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b": \n\n"


def test_what_nobody_waits_for_is_read_no_further():
    async def work():
        sending, count = RequestSendState(), 0
        async for _ in EventStream(Pieces(), sending, 1000, lambda: None):
            count += 1
            if count == 3:
                sending.end_caller_wait()
        assert count == 3

    asyncio.run(work())


@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 400 No\r\ncontent-length: 9\r\n\r\n"])
def test_a_request_that_was_given_up_leaves_no_connection(begins: bytes):
    async def work():
        asked, left = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(begins)
            asked.set()
            await reader.read()
            left.set()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            sending = RequestSendState()
            SENDING.set(sending)
            async with UpstreamHttpClient(ServerConfig("evil", "http", url=url), None, 1000) as client:
                posting = asyncio.ensure_future(client.post(url, json={"id": 1}))
                await asyncio.wait_for(asked.wait(), 60)
                sending.end_caller_wait()
                assert (await asyncio.wait_for(posting, 60)).status_code == 503
                await asyncio.wait_for(left.wait(), 60)
                assert not client.broken.is_set()

    asyncio.run(work())


class Read(asyncio.ReadTransport):
    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


@pytest.mark.parametrize("length", [7, *full_only(1, 2, 50)])
def test_a_line_that_comes_in_pieces_takes_no_more_room_than_its_bytes(length: int):
    """Whichever end of a pipe is read: a server's output, or what a client says to the gateway."""
    said = 100_000

    async def work() -> None:
        failed: list[str] = []
        output = stdio.StdoutReader(failed.append, "evil", said)
        output.connection_made(Read())
        for takes in (output.data_received, LineSplitter().feed):
            tracemalloc.start()
            try:
                for number in range(said // length):
                    takes((b"%050d" % number)[-length:])
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert said <= held < 1.5 * said
        assert failed == []
        output.data_received(b"x" * 50)
        assert failed == [f"it wrote a line of more than {said} bytes"]

    asyncio.run(work())


def test_a_server_cannot_choose_how_often_it_is_listened_to(monkeypatch: Any):
    async def work():
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        monkeypatch.setattr(http_client.asyncio, "sleep", sleep)
        async with UpstreamHttpClient(ServerConfig("evil", "http", url="http://127.0.0.1"), None, 1000) as client:
            for _ in range(3):
                await client._throttle_listen_request()
        assert slept[0] == 0
        assert slept[1] > 0
        assert slept[2] > slept[1]

    asyncio.run(work())


def test_what_the_sdk_logs_of_a_flood_is_its_beginning_without_stacks():
    few = WarningLimiter()
    passed: list[logging.LogRecord] = []
    for number in range(100):
        try:
            raise ValueError("input_value='x'")
        except ValueError as error:
            info = (ValueError, error, error.__traceback__)
        record = logging.LogRecord("client", logging.WARNING, "", 1, "no notification: %s", (f"{number}\x1b",), info)
        if few.filter(record):
            passed.append(record)
    assert 0 < len(passed) < 50
    assert logging.Formatter().format(passed[0]) == "no notification: 0\\u001b (ValueError)"
    assert few.filter(logging.LogRecord("client", logging.INFO, "", 1, "x", (), None))


def test_what_a_server_complains_of_moves_no_cursor(caplog: pytest.LogCaptureFixture):
    async def work():
        with caplog.at_level(logging.INFO, "codemode.mcp"):
            stdio.StderrReader("evil", SecretRedactor()).data_received(b"\x1b]0;title\x07\xe2\x80\xae\n")
        nothing: Any = lambda *_: None  # noqa: E731
        link = ReconnectingConnection(ServerConfig("evil", "stdio"), SecretRedactor(), nothing, nothing, nothing)
        link._record_failure_and_set_backoff(UpstreamUnavailableError("it said \x1b[2J"))
        return link.failure, link.record_and_create_unavailable_error("it said \x1b[2J").message

    told = asyncio.run(work())
    assert all("it said \\u001b[2J" in (one or "") for one in told)
    assert "\\u001b]0;title\\u0007\\u202e" in caplog.text
    assert not {"\x1b", "\x07", "\u202e"} & set(caplog.text)
