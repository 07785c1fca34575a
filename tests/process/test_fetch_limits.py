"""How much of a response is taken, and how an exchange fails or is ended (A141, A144)."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib

import pytest
from fetching import HIDDEN, endless, refusal, run_with, silent, trickling
from http_server import HttpServer, response

from codemode import CodeModeTimeoutError, run_code_mode
from codemode.errors import CodeModeFetchError

TOO_LARGE = "fetch: the response is larger than max_response_bytes allows (100000)"


def test_an_endless_body_is_cut_off(ask, server):
    server.on("/endless", endless)
    assert ask(refusal('fetch("ORIGIN/endless")'), max_response_bytes=100_000)[2] == TOO_LARGE
    assert server.hung_up.wait(60)


def test_a_declared_length_is_enough_to_refuse(ask, server):
    server.on("/long", b"HTTP/1.1 200 OK\r\ncontent-length: 100001\r\n\r\n")
    server.on("/huge", b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 19 + b"\r\n\r\n")
    assert ask(refusal('fetch("ORIGIN/long")'), max_response_bytes=100_000)[2] == TOO_LARGE
    assert ask(refusal('fetch("ORIGIN/huge")'), max_response_bytes=100_000)[2] == TOO_LARGE


def test_the_limit_itself_is_allowed(ask, server):
    server.on("/full", response(b"x" * 100_000))
    assert ask('return (await (await fetch("ORIGIN/full")).text()).length', max_response_bytes=100_000) == 100_000


def test_lengths_that_lie(ask, server):
    server.on("/short", b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nonly this")
    server.on("/long", b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nthis and more")
    server.on("/negative", b"HTTP/1.1 200 OK\r\ncontent-length: -4\r\n\r\nthis")
    assert ask(refusal('fetch("ORIGIN/short")')) == HIDDEN
    assert ask('return (await fetch("ORIGIN/long")).text()') == "this"
    assert ask(refusal('fetch("ORIGIN/negative")')) == HIDDEN


def test_a_compressed_body_counts_as_what_it_becomes(ask, server):
    server.on("/gzip", response(gzip.compress(b"small" * 1000), Content_Encoding="gzip"))
    server.on("/bomb", response(gzip.compress(b"\0" * 40_000_000, 9), Content_Encoding="gzip"))
    server.on("/cut", response(gzip.compress(b"small" * 1000)[:-9], Content_Encoding="gzip"))
    server.on("/not", response(b"not compressed", Content_Encoding="gzip"))
    server.on("/none", response(b"", Content_Encoding="gzip"))
    assert ask('return (await (await fetch("ORIGIN/gzip")).text()).length') == 5000
    assert ask('return (await (await fetch("ORIGIN/none")).text()).length') == 0
    tracemalloc.start()
    try:
        assert ask(refusal('fetch("ORIGIN/bomb")'), max_response_bytes=100_000)[2] == TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
    assert ask(refusal('fetch("ORIGIN/cut")')) == HIDDEN
    assert ask(refusal('fetch("ORIGIN/not")')) == HIDDEN
    assert server.requests[0].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip"])
def test_an_encoding_that_was_not_asked_for_is_refused(ask, server, encoding):
    server.on("/x", response(zlib.compress(b"x"), Content_Encoding=encoding))
    assert "content-encoding" in ask(refusal('fetch("ORIGIN/x")'))[2]


def test_the_response_as_json_is_limited_like_a_result(ask, server):
    server.on("/x", response(b"\x01" * 5000))
    name, code, *_ = ask(refusal('fetch("ORIGIN/x")'), max_result_bytes=20_000)
    assert (name, code) == ("CodeModeSerializationError", "CODE_MODE_SERIALIZATION_ERROR")


def test_responses_without_a_body(ask, server):
    server.on("/head", b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n")
    server.on("/204", b"HTTP/1.1 204 No Content\r\n\r\n")
    server.on("/304", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 999999999\r\n\r\n")
    js = """
      const r = await fetch("ORIGIN/PATH", { method: "METHOD" });
      return [r.status, await r.text(), r.headers.get("content-length")]
    """
    assert ask(js.replace("PATH", "head").replace("METHOD", "HEAD")) == [200, "", "999999999"]
    assert ask(js.replace("PATH", "204").replace("METHOD", "GET")) == [204, "", None]
    assert ask(js.replace("PATH", "304").replace("METHOD", "GET")) == [304, "", "999999999"]


# --- failures and the end of an invocation ---


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 999999 Odd\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
    ],
)
def test_a_broken_exchange_tells_the_guest_nothing(ask, server, answer):
    server.on("/x", answer)
    assert ask(refusal('fetch("ORIGIN/x")')) == HIDDEN


def test_a_port_where_nobody_listens_tells_the_guest_nothing(run, server):
    gone = HttpServer().start()
    gone.stop()
    policy = {"allowed_origins": [gone.origin]}
    assert run_with(refusal(f'fetch("{gone.origin}")'), {"fetch_policy": policy}) == HIDDEN


def test_an_uncaught_failure_keeps_its_cause_for_the_host(ask, server):
    server.on("/x", b"garbage\r\n\r\n")
    with pytest.raises(CodeModeFetchError) as caught:
        ask('await fetch("ORIGIN/x")')
    assert caught.value.code == "CODE_MODE_HOST_FETCH_ERROR"
    assert type(caught.value.__cause__).__name__ == "RemoteProtocolError"
    assert caught.value.details["line"] == 1
    with pytest.raises(CodeModeFetchError, match="may not reach"):
        ask('await fetch("http://other.test")')


@pytest.mark.parametrize("responder", [trickling, silent, endless])
def test_the_deadline_ends_a_slow_exchange(ask, server, responder, passing_time):
    async def late(*asked):
        responding = asyncio.ensure_future(responder(*asked))
        await asyncio.sleep(0)  # in which what it has to say is sent
        passing_time.skip(61)
        await responding

    server.on("/slow", late)
    with pytest.raises(CodeModeTimeoutError):
        ask('await fetch("ORIGIN/slow")', timeout_ms=60_000, max_response_bytes=2**40)
    assert server.hung_up.wait(60)


def test_cancelling_ends_the_exchange(within, server):
    arrived = []

    async def main():
        began, loop = asyncio.Event(), asyncio.get_running_loop()

        async def stall(request, reader, writer):
            arrived.append(request.target)
            loop.call_soon_threadsafe(began.set)
            await trickling(request, reader, writer)

        url = server.on("/slow", stall)
        policy = {"fetch_policy": {"allowed_origins": [server.origin]}}
        running = asyncio.create_task(run_code_mode(f'await fetch("{url}")', [], options=policy))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    within(main())
    assert arrived == ["/slow"]
    assert server.hung_up.wait(60)
