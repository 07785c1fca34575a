"""What a server says by itself: that its tools are others now, that a page is to be opened, and what it logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.config.redaction import SecretRedactor
from codemode_gateway.upstreams import reconnecting
from codemode_gateway.upstreams.call_retries import get_elicitation_page_url
from codemode_gateway.upstreams.connection import Transport
from codemode_gateway.upstreams.hooks import UpstreamHooks
from codemode_gateway.upstreams.tool_listing import ListCache
from codemode_gateway.upstreams.upstream import Upstream
from mcp.client.subscriptions import listen
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.subscriptions import ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from suite import each_row
from waiting import until, within

from codemode.errors import CodeModeToolError
from codemode.interrupts.interrupt import InterruptRequested

PAGE = "https://notes.example/consent?for=1"


class Notes:
    """A server of the revision 2026-07-28, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, listens: bool = True) -> None:
        self.tools = ["write"]
        self.lists = 0
        self.wants_page = True
        self.log_level: types.LoggingLevel | None = None
        self.logged: list[Any] = []
        self.asked: list[Any] = []
        self.bus = InMemorySubscriptionBus()
        self.heard = asyncio.Event()
        more = {"on_subscriptions_listen": ListenHandler(self.bus)} if listens else {}
        self.server: Server[Any] = Server("notes", on_list_tools=self._list, on_call_tool=self._call, **more)

        def transport(*_: Any) -> Transport:
            return Transport(self._open_streams(), lambda: None, tracks_sending=False)

        monkeypatch.setattr(reconnecting, "create_transport", transport)
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set)
        hooks = UpstreamHooks(on_notification=self._notified, get_log_level=lambda _: self.log_level)
        self.upstream = Upstream(
            ServerConfig("notes", "stdio", command="x"), hooks, SecretRedactor(()), ListCache(None, "me")
        )
        self.upstream._link.era = "modern"

    @asynccontextmanager
    async def _open_streams(self) -> AsyncGenerator[Any]:
        async with create_client_server_memory_streams() as (mine, theirs):
            options = self.server.create_initialization_options(NotificationOptions(tools_changed=True))
            serving = asyncio.create_task(self.server.run(*theirs, options))
            try:
                yield mine
            finally:
                serving.cancel()
                await asyncio.wait([serving])

    async def _list(self, _ctx: Any, _params: Any) -> types.ListToolsResult:
        self.lists += 1
        return types.ListToolsResult(
            tools=[types.Tool(name=one, input_schema={"type": "object"}) for one in self.tools]
        )

    async def _set(self, _ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.asked.append(params.level)
        return types.EmptyResult()

    async def _call(self, ctx: Any, _params: Any) -> Any:
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self.asked.append((ctx.meta or {}).get(types.LOG_LEVEL_META_KEY))
        logged = types.LoggingMessageNotificationParams(level="error", data="lost")
        said = types.LoggingMessageNotification(params=logged)
        await ctx.session.send_notification(said, related_request_id=ctx.request_id)
        if self.wants_page:
            asked = {"mode": "url", "elicitationId": "1", "url": PAGE, "message": "Please agree"}
            raise MCPError(types.URL_ELICITATION_REQUIRED, "agree first", {"elicitations": [asked]})
        return types.CallToolResult(content=[types.TextContent(type="text", text="written")])

    async def _notified(self, _server: ServerConfig, notification: Any) -> None:
        if isinstance(notification, types.ToolListChangedNotification):
            self.heard.set()
        elif isinstance(notification, types.LoggingMessageNotification):
            self.logged.append(notification.params.data)

    async def names(self) -> list[str]:
        return [one.name for one in await self.upstream.tools()]

    async def told(self) -> None:
        """Say that the tools are others, until that is heard: before it is listened to, nobody hears it."""
        heard = asyncio.ensure_future(self.heard.wait())
        while not heard.done():
            await self.bus.publish(ToolsListChanged())
            await asyncio.wait([heard], timeout=0.05)


def test_other_tools_of_a_server_that_is_listened_to_are_listed_without_asking_again(monkeypatch):
    async def scenario() -> None:
        notes = Notes(monkeypatch)
        try:
            assert await notes.names() == ["write"]
            notes.tools.append("erase")
            await notes.told()
            assert await notes.names() == ["erase", "write"] or await notes.names() == ["write", "erase"]
            connection = await notes.upstream._link.get_or_open_connection()
            assert not notes.upstream._needs_polling(connection)
            assert connection.requests.in_flight == 0, "who listens keeps no server from being idle"
        finally:
            await notes.upstream.aclose()

    within(scenario())


def test_a_server_that_cannot_be_listened_to_is_asked_now_and_then(monkeypatch):
    async def scenario() -> None:
        notes = Notes(monkeypatch, listens=False)
        try:
            assert await notes.names() == ["write"]
            connection = await notes.upstream._link.get_or_open_connection()
            assert notes.upstream._needs_polling(connection)
            with pytest.raises(MCPError, match="not found"):  # in the server's words, for whoever logs it
                async with listen(connection.session, tools_list_changed=True):
                    pass
        finally:
            await notes.upstream.aclose()

    within(scenario())


def test_a_page_that_a_server_wants_opened_pauses_the_program_once(monkeypatch):
    def context(answer: Any = None) -> Any:
        return SimpleNamespace(interrupt=answer, context=None, outer_tool_call_id="o")

    async def scenario() -> None:
        notes = Notes(monkeypatch)
        try:
            await notes.names()
            with pytest.raises(InterruptRequested) as paused:
                await notes.upstream.call("write", {}, context())
            payload = paused.value.payload
            assert (payload["kind"], payload["server"], payload["url"]) == ("connection-auth", "notes", PAGE)
            assert payload["askedByServer"] is True
            answered = context(SimpleNamespace(resolution={"action": "accept"}))
            for asked in (answered, None):
                with pytest.raises(CodeModeToolError, match="agree first"):
                    await notes.upstream.call("write", {}, asked)
            notes.wants_page = False
            assert (await notes.upstream.call("write", {}, answered)).content[0]["text"] == "written"
        finally:
            await notes.upstream.aclose()

    within(scenario())


@pytest.mark.parametrize(
    ("era", "asked"),
    [("modern", [None, "info", "debug"]), ("handshake", ["info", "debug"])],
    ids=["modern", "handshake"],
)
def test_a_server_is_asked_for_its_log_in_the_words_of_its_revision(monkeypatch, era: Any, asked: list[Any]):
    async def scenario() -> None:
        notes = Notes(monkeypatch)
        notes.upstream._link.era = era
        notes.wants_page = False
        try:
            await notes.upstream.send_log_level_if_running()
            assert notes.upstream.state == "stopped", "nobody starts a server for its log"
            await notes.upstream.call("write", {})
            for level in ("info", "info", "debug"):
                is_new, notes.log_level = notes.log_level != level, level
                await notes.upstream.send_log_level_if_running()
                if is_new:
                    await notes.upstream.call("write", {})
            assert notes.asked == asked
            await notes.upstream.stop()
            await notes.upstream.call("write", {})
            await until(lambda: len(notes.asked) == len(asked) + 1)
            assert notes.asked == [*asked, "debug"], "one that is started again is asked again"
            await until(lambda: notes.logged == ["lost"] * 4)
        finally:
            await notes.upstream.aclose()

    within(scenario())


@each_row(
    "data",
    [
        None,
        7,
        {},
        {"elicitations": 7},
        {"elicitations": []},
        {"elicitations": [7]},
        {"elicitations": [{"url": 7}]},
        {"elicitations": [{"url": "javascript:alert(1)"}]},
        {"elicitations": [{"url": "https://a\u202eb"}]},
        {"elicitations": [{"url": "https://a\n"}]},
        {"elicitations": [{"url": "https://" + "a" * 10_000}]},
    ],
)
def test_what_is_no_page_is_shown_to_nobody(data: Any) -> None:
    assert get_elicitation_page_url(MCPError(types.URL_ELICITATION_REQUIRED, "x", data)) is None
    assert get_elicitation_page_url(MCPError(types.INVALID_PARAMS, "x", {"elicitations": [{"url": PAGE}]})) is None
