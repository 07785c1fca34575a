"""Odd servers of the older transport, with one stream of events: the same rules as over streamable HTTP hold."""

from typing import Any

from codemode_gateway import ServerConfig, connect
from mcp_servers.configured import of
from mcp_servers.odd_server import odd_http
from waiting import within

from codemode.errors import CodeModeToolError

NOTED = 'note got {"text": "x"}'


def called(url: str, lose: Any = None, **settings: Any) -> str:
    """Call a tool, once more after ``lose``, and return the text of the last answer, or what has failed."""

    async def work():
        async with connect(of(ServerConfig("odd", "sse", url=url, **settings))) as connected:
            try:
                result = await connected.upstream("odd").call("note", {"text": "x"})
                if lose is not None:
                    lose()
                    result = await connected.upstream("odd").call("note", {"text": "x"})
            except CodeModeToolError as error:
                return error.message
            return result.content[0]["text"]

    return within(work())


def test_odd_answers_are_read():
    for settings in (
        {},
        {"initialize": {"capabilities": {"tools": []}, "serverInfo": None}},
        {"answers": {"tools/call": '[{"id": $ID, "result": {"content": [{"type": "text", "text": "%s"}]}}]'}},
    ):
        expected = "%s" if "answers" in settings else NOTED
        with odd_http(settings) as server:
            assert called(server.origin + "/sse") == expected, settings
    answers = {"tools/call": {"error": {"code": "FULL", "message": "no room"}}}
    with odd_http({"answers": answers}) as server:
        assert called(server.origin + "/sse") == "no room (FULL)"


def test_redirects_within_the_origin_are_followed():
    def hook(request: Any, _message: Any) -> bool:
        moved = {"/sse": "/sse/", "/messages?sessionId=1": "/messages/?sessionId=1"}
        return request.path in moved and request.reply(307, Location=moved[request.path])

    with odd_http(hook=hook) as server:
        assert called(server.origin + "/sse") == NOTED
        assert {one[1] for one in server.asked("tools/call")} == {"/messages?sessionId=1", "/messages/?sessionId=1"}
    with (
        odd_http() as other,
        odd_http(hook=lambda request, _: request.reply(307, Location=other.origin + "/sse")) as server,
    ):
        assert f"it redirects to {other.origin}/sse, another origin" in called(server.origin + "/sse")
        assert other.requests == []


def test_a_lost_session_is_opened_once_more():
    lost = set[str]()

    def hook(request: Any, _message: Any) -> bool:
        return request.path in lost and request.reply(404, "Could not find session")

    with odd_http(hook=hook) as server:
        assert called(server.origin + "/sse", lambda: lost.add("/messages?sessionId=1")) == NOTED
        assert len(server.asked("initialize")) == 2
        assert len(server.asked("tools/call")) == 3


def test_a_refused_token_is_said_to_be_refused():
    with odd_http(hook=lambda request, _: request.reply(401, "who are you?")) as server:
        said = called(server.origin + "/sse", headers={"Authorization": "Bearer sesame-sesame"})
    assert "it rejects the header 'Authorization' of its entry: status 401 Unauthorized: who are" in said
