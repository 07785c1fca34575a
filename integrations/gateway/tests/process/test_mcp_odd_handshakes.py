"""Servers that say odd things of themselves when they are connected to: read leniently, or named by field and value."""

from typing import Any

import pytest
from codemode_gateway import ServerConfig, connect
from mcp_servers.configured import odd, of
from mcp_servers.odd_server import NO_METHOD, odd_http
from waiting import within

from codemode import create_modules_tool
from codemode.errors import CodeModeToolError

ECHO = """import { echo } from "@codemode/servers/odd";
globalThis.__codemode_result__ = await echo({ text: "x" });"""
ECHOED = 'echo got {"text": "x"}'


def ran(*servers: ServerConfig, code: str = ECHO) -> Any:
    """Run a program over these servers, and return the response."""

    async def work():
        async with connect(of(*servers)) as connected:
            return await create_modules_tool(connected).execute({"code": code})

    return within(work())


def problem(server: ServerConfig) -> str:
    """Return why a server cannot be used, and see that a program is told the same."""

    async def work():
        async with connect(of(server)) as connected:
            response = await create_modules_tool(connected).execute({"code": ECHO})
            said = connected.upstream("odd").problem
            assert said is not None
            assert said in response["diagnostics"][0]["message"]
            return said

    return within(work())


LENIENT: list[tuple[str, dict[str, Any], str]] = [
    ("no capabilities at all", {"capabilities": None}, ""),
    ("nothing in them", {"capabilities": {}}, ""),
    ("tools are a list", {"capabilities": {"tools": []}}, "capabilities.tools is []"),
    ("tools are true", {"capabilities": {"tools": True, "logging": False}}, "capabilities.tools is true"),
    ("a wrong flag", {"capabilities": {"tools": {"listChanged": "often"}}}, 'capabilities.tools is {"listChanged"'),
    ("they are a list", {"capabilities": ["tools"]}, 'capabilities is ["tools"]'),
    ("no name", {"serverInfo": None}, "serverInfo is missing"),
    ("a version that is a number", {"serverInfo": {"name": "odd", "version": 2.5}}, 'serverInfo is {"name": "odd"'),
    ("instructions are a list", {"instructions": ["use", "it"]}, 'instructions is ["use", "it"]'),
    ("meta is a text", {"_meta": "x"}, ""),
]


def test_what_is_odd_in_a_handshake_costs_no_tools_and_is_logged(caplog: pytest.LogCaptureFixture):
    for name, initialize, logged in LENIENT:
        caplog.clear()
        assert ran(odd({"initialize": initialize}))["result"] == ECHOED, name
        said = [one.getMessage() for one in caplog.records if "which are ignored" in one.getMessage()]
        assert len(said) == (1 if logged else 0), (name, said)
        assert logged in "".join(said), (name, said)


def test_a_handshake_over_http_is_read_as_leniently():
    for events in (False, True):
        with odd_http({"initialize": {"capabilities": {"tools": []}, "serverInfo": None}}, events=events) as server:
            assert ran(ServerConfig("odd", "http", url=server.url))["result"] == ECHOED, events


def test_a_server_that_declares_no_tools_and_refuses_to_list_them_has_none():
    async def work():
        answers = {"tools/list": NO_METHOD}
        async with connect(of(odd({"initialize": {"capabilities": {}}, "answers": answers}))) as connected:
            assert await connected.upstream("odd").tools() == []
        async with connect(of(odd({"answers": answers}))) as connected:
            with pytest.raises(CodeModeToolError, match="its tools cannot be listed: Method not found"):
                await connected.upstream("odd").tools()

    within(work())


def test_what_cannot_be_read_in_a_handshake_is_named_with_its_value():
    hello = {"capabilities": {}, "serverInfo": {"name": "odd", "version": "1"}}
    for result, reason in (
        ({"protocolVersion": 5, **hello}, "its answer to initialize cannot be read: protocolVersion is 5"),
        ({"protocolVersion": None, **hello}, "protocolVersion is null"),
        (hello, 'protocolVersion is missing in {"capabilities": {}, "serverInfo"'),
        ({}, "protocolVersion is missing in {}"),
        (["no", "object"], 'its answer to initialize cannot be read: it is ["no", "object"]'),
        ({"protocolVersion": "1999-01-01", **hello}, "Unsupported protocol version from the server: 1999-01-01"),
    ):
        said = problem(odd({"answers": {"initialize": {"result": result}}}))
        assert reason in said, (result, said)
        for wrong in ("exit code", "validation error", "cannot be reached"):
            assert wrong not in said, (result, said)
        with odd_http({"answers": {"initialize": {"result": result}}}) as server:
            over_http = problem(ServerConfig("odd", "http", url=server.url))
        assert reason in over_http, (result, over_http)


def logged(reason: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines with this reason, and clear the log."""
    said = [one.getMessage() for one in caplog.records if reason in one.getMessage()]
    caplog.clear()
    return said


def test_an_error_in_place_of_a_handshake_keeps_its_words_and_is_logged_once(caplog: pytest.LogCaptureFixture):
    for error, reason in (
        ({"code": -32000, "message": "the licence has ended"}, "the licence has ended"),
        ({"code": "NO_LICENCE", "message": "the licence has ended"}, "the licence has ended (NO_LICENCE)"),
        ("the licence has ended", "the licence has ended"),
    ):
        said = problem(odd({"answers": {"initialize": {"error": error}, "server/discover": NO_METHOD}}))
        assert said == f"it refused to connect: {reason}", error
        assert logged(reason, caplog) == [f"server 'odd' cannot be used: {said}"], error


def test_why_tools_cannot_be_listed_reaches_the_program_and_is_logged_once(caplog: pytest.LogCaptureFixture):
    for answer, reason in (
        ({"error": {"code": "E_QUOTA", "message": "no more today"}}, "no more today (E_QUOTA)"),
        ('{"jsonrpc": "2.0", "id": $ID, "result": {"tools": [\n', "its answer cannot be read or is too large"),
    ):
        said = problem(odd({"answers": {"tools/list": answer}}))
        assert said == f"its tools cannot be listed: {reason}", answer
        assert logged(reason, caplog) == [f"server 'odd' cannot be used: {said}"], answer
