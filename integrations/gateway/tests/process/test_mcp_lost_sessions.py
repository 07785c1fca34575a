"""Sessions and processes of servers that are gone: one new one, and a call sent again only where it cannot have run."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import ServerConfig, connect
from codemode_gateway.upstreams.upstream import Upstream
from mcp_servers.configured import odd, of
from mcp_servers.odd_server import odd_http
from suite import full_only
from waiting import until, within

from codemode import create_modules_tool
from codemode.errors import CodeModeToolError

NOTED = 'note got {"text": "x"}'
NOTE = """import { note } from "@codemode/servers/odd";
try { globalThis.__codemode_result__ = await note({ text: "x" }) }
catch (error) { globalThis.__codemode_result__ = [error.code, error.message, error.hint] }"""


class Sessions:
    """The sessions of an odd server over HTTP; ``answer`` is how it answers a request of one that it has lost."""

    def __init__(self, answer: Callable[[Any], bool], *, loses_all: bool = False) -> None:
        self.known = "0"
        self._answer = answer
        self._loses_all = loses_all

    def __call__(self, request: Any, message: Any) -> bool:
        if message.get("method") == "initialize":
            self.known = str(int(self.known) + 1)
            request.usual(message, Mcp_Session_Id=self.known)
            return True
        is_call = message.get("method") in ("tools/call", "tools/list")
        is_known = request.headers.get("Mcp-Session-Id") == self.known and not (self._loses_all and is_call)
        return request.command == "POST" and not is_known and self._answer(request)

    def lose(self) -> None:
        """Forget the session that there is."""
        self.known += "0"


def rpc(message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": message}}


ANSWERS: list[tuple[int, Any]] = [
    (404, b""),
    (404, rpc("Session not found")),
    (404, "<html>"),
    (400, rpc("Bad Request: Server not initialized")),
    (400, rpc("Bad Request: No valid session ID provided")),
    (400, "Invalid SESSION"),
    (400, {"error": "Received request before initialization was complete"}),
]


@pytest.mark.parametrize("events", [True, *full_only(False)])
def test_a_lost_session_is_opened_once_more_and_the_call_made_once(events: bool):
    for status, body in ANSWERS:
        sessions = Sessions(lambda request, status=status, body=body: request.reply(status, body))

        async def work(url: str, sessions: Sessions = sessions) -> list[Any]:
            async with connect(of(ServerConfig("odd", "http", url=url))) as connected:
                upstream = connected.upstream("odd")
                await upstream.tools()
                sessions.lose()
                results = await asyncio.gather(*(upstream.call("note", {"text": "x"}) for _ in range(3)))
                sessions.lose()
                await upstream.refresh()
                return [one.content[0]["text"] for one in results]

        with odd_http(hook=sessions, events=events) as server:
            assert within(work(server.url)) == [NOTED] * 3, (status, body)
            assert len(server.asked("initialize")) == 3, (status, body)


def test_a_session_that_is_lost_again_and_again_costs_one_new_one_for_each_request():
    sessions = Sessions(lambda request: request.reply(400, rpc("No such session")), loses_all=True)

    async def work(url: str) -> Any:
        async with connect(of(ServerConfig("odd", "http", url=url))) as connected:
            upstream = connected.upstream("odd")
            with pytest.raises(CodeModeToolError, match=r"its session was lost: .*No such session"):
                await upstream.refresh()
            with pytest.raises(CodeModeToolError) as error:
                await upstream.call("note", {"text": "x"})
            return error.value

    with odd_http(hook=sessions) as server:
        error = within(work(server.url))
        assert error.code == "SERVER_LOST"
        assert "its session was lost: it answered with the status 400 Bad Request: No such session" in error.message
        assert len(server.asked("tools/call")) == 2
        assert len(server.asked("initialize")) == 4  # of the list and of the call, once and once more


def test_a_prompt_is_read_over_a_new_session_too():
    sessions = Sessions(lambda request: request.reply(404))
    settings = {"answers": {"prompts/get": {"result": {"messages": []}}}}

    async def work(url: str) -> Any:
        async with connect(of(ServerConfig("odd", "http", url=url))) as connected:
            await connected.upstream("odd").tools()
            sessions.lose()
            return await connected.upstream("odd").ask(lambda session: session.get_prompt("p"))

    with odd_http(settings, sessions) as server:
        assert within(work(server.url)).messages == []
        assert len(server.asked("initialize")) == 2


def test_other_refusals_and_requests_without_a_session_open_no_new_one():
    for status, words in ((400, "text is too long"), (403, "no session for you"), (500, "session store is away")):

        def hook(request: Any, message: Any, status: int = status, words: str = words) -> bool:
            if message.get("method") == "initialize":
                return (request.usual(message, Mcp_Session_Id="1"), True)[1]
            return message.get("method") == "tools/call" and request.reply(status, words)

        assert refused_calls(hook) == (1, 1), (status, words)

    def without(request: Any, message: Any) -> bool:
        return message.get("method") == "tools/call" and request.reply(400, "no session")

    assert refused_calls(without) == (1, 1)


def refused_calls(hook: Any) -> tuple[int, int]:
    """Return how often a server was connected to, and called, that refuses a call."""

    async def work(url: str) -> None:
        async with connect(of(ServerConfig("odd", "http", url=url))) as connected:
            with pytest.raises(CodeModeToolError):
                await connected.upstream("odd").call("note", {"text": "x"})

    with odd_http(hook=hook) as server:
        within(work(server.url))
        return len(server.asked("initialize")), len(server.asked("tools/call"))


def pid_of(upstream: Upstream) -> int:
    connection = upstream._link.connection_if_open
    assert connection is not None
    streams: Any = connection._transport.ended_without_reading_past
    return streams.__self__.pid


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody can tell what a process has not read")
def test_a_call_after_the_death_of_its_server_is_made_by_another_whatever_has_been_noticed(tmp_path: Path):
    async def work() -> None:
        async with connect(of(odd({"log": str(tmp_path / "log")}))) as connected:
            upstream = connected.upstream("odd")
            await upstream.tools()
            for turns in range(8):
                connection, pid = upstream._link.connection_if_open, pid_of(upstream)
                os.kill(pid, 9)
                while not is_gone(pid):  # the event loop hears of nothing meanwhile
                    os.sched_yield()
                for _ in range(turns % 5):
                    await asyncio.sleep(0)
                if turns % 4 == 3:
                    await upstream.refresh()
                else:
                    assert (await upstream.call("note", {"text": "x"})).content[0]["text"] == NOTED
                assert upstream._link.connection_if_open is not connection

    within(work())
    log = (tmp_path / "log").read_text().splitlines()
    assert log.count("tools/call") == 6
    assert log.count("start") == 9


def test_a_server_that_dies_of_a_call_says_how_and_that_the_outcome_is_unknown(tmp_path: Path):
    marks = [tmp_path / "1", tmp_path / "2"]
    for one in marks:
        one.touch()
    settings = {"die_at": "tools/call", "marks": [str(one) for one in marks], "stderr": "out of paper\n"}

    async def work() -> tuple[Any, Any]:
        async with connect(of(odd(settings))) as connected:
            tool = create_modules_tool(connected)
            first = await tool.execute({"code": NOTE})
            second = await tool.execute({"code": NOTE.replace("note", "echo")})
            return first["result"], second["result"]

    (code, message, hint), read = within(work())
    assert code == "OUTCOME_UNKNOWN"
    assert "is unknown: it ended with exit code 3: out of paper, but the call may have run" in message
    assert "Do not make this call again before it is known" in hint
    assert read == 'echo got {"text": "x"}', "what only reads is called again"


def test_a_server_that_dies_of_its_list_is_started_once_more(tmp_path: Path):
    mark, log = tmp_path / "mark", tmp_path / "log"
    mark.touch()

    async def work() -> int:
        settings = {"die_at": "tools/list", "marks": [str(mark)], "log": str(log)}
        async with connect(of(odd(settings))) as connected:
            return len(await connected.upstream("odd").tools())

    assert within(work()) == 2
    assert log.read_text().splitlines().count("start") == 2


def test_an_error_of_a_server_with_the_code_of_a_closed_connection_is_its_own():
    answers = {"tools/call": {"error": {"code": -32000, "message": "Connection closed by the bank"}}}

    async def work() -> Any:
        async with connect(of(odd({"answers": answers}))) as connected:
            response = await create_modules_tool(connected).execute({"code": NOTE})
            await until(lambda: connected.upstream("odd").state == "ready")
            return response["result"]

    code, message, hint = within(work())
    assert message == "Connection closed by the bank"
    assert code not in ("SERVER_LOST", "OUTCOME_UNKNOWN")
    assert hint == "Change the call as the message says."
