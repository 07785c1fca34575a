"""What servers log: told from the level on for which a client has asked, in either era, bounded and without secrets."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway.config.redaction import SecretRedactor
from codemode_gateway.passthrough import logs
from codemode_gateway.passthrough.logs import LogForwarder
from codemode_gateway.upstreams.connection import LOG_LEVELS_BY_VERBOSITY
from in_loop import in_loop
from mcp import Client
from mcp.server.lowlevel.server import Server
from passing_world import LEGACY, MODERN, FakeUpstream, Listener, gateway, prompts, resources

KEY = "sk-0123456789-abcdef"


class Logged:
    """A server that logs something of each of these levels whenever its resource is read."""

    def __init__(self, *levels: types.LoggingLevel, data: Any = "said", logger: str | None = "db") -> None:
        self.asked: list[str] = []
        self._says = [types.LoggingMessageNotificationParams(level=level, data=data, logger=logger) for level in levels]
        self.server: Server[Any] = resources("L", "l://1", on_read_resource=self._read_file)
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set)

    async def _set(self, _ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.asked.append(params.level)
        return types.EmptyResult()

    async def _read_file(self, ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        for one in self._says:
            said = types.LoggingMessageNotification(params=one)
            await ctx.session.send_notification(said, related_request_id=ctx.request_id)
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text="read")])


class Told:
    """What a client was told."""

    def __init__(self) -> None:
        self.all: list[types.LoggingMessageNotificationParams] = []
        self._news = asyncio.Condition()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, types.LoggingMessageNotification):
            async with self._news:
                self.all.append(message.params)
                self._news.notify_all()

    async def levels(self, count: int) -> list[str]:
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(lambda: len(self.all) >= count)
        return [one.level for one in self.all]


def said(level: types.LoggingLevel = "error", data: Any = "said", logger: str | None = None) -> Any:
    return types.LoggingMessageNotificationParams(level=level, data=data, logger=logger)


def set_level(client: Client, level: types.LoggingLevel) -> Any:
    params = types.SetLevelRequestParams(level=level)
    return client.session.send_request(types.SetLevelRequest(params=params), types.EmptyResult)


@in_loop
async def test_a_client_hears_from_the_level_on_for_which_it_asks_and_nothing_before() -> None:
    first, second = Logged(*LOG_LEVELS_BY_VERBOSITY), Logged("alert", logger=None)
    a, b = FakeUpstream("a", first.server), FakeUpstream("b", second.server)
    told = Told()
    async with gateway(a, b) as (server, _), Client(server, mode=LEGACY, message_handler=told) as client:
        session = await a.session()
        await session.read_resource("l://1")
        assert first.asked == []
        await set_level(client, "error")
        assert (first.asked, second.asked, b.starts) == (["error"], [], 0)
        await session.read_resource("l://1")
        assert await told.levels(4) == ["error", "critical", "alert", "emergency"]
        assert {(one.logger, one.data) for one in told.all} == {("a.db", "said")}
        await client.read_resource("l://1#server=b")
        assert second.asked == ["error"], "a server that is started later is asked then"
        assert (await told.levels(5))[4] == "alert"
        assert told.all[4].logger == "b"
        await set_level(client, "emergency")
        await session.read_resource("l://1")
        assert (await told.levels(6))[5] == "emergency"


@in_loop
async def test_a_request_of_the_newer_era_hears_until_it_is_answered_where_it_asks() -> None:
    logged = Logged("info", "notice", "error")
    upstream = FakeUpstream("a", logged.server)
    told, deaf = Told(), Told()
    async with gateway(upstream) as (server, passed):
        async with (
            Client(server, mode=MODERN, message_handler=told, log_level="notice") as client,
            Client(server, mode=MODERN, message_handler=deaf) as other,
        ):
            await other.read_resource("l://1")
            assert logged.asked == []
            await client.read_resource("l://1")
            assert await told.levels(2) == ["notice", "error"]
            assert (logged.asked, told.all[0].logger) == (["notice"], "a.db")
            assert passed.logs.subscribed_level is None, "nobody hears once it is answered"
            await other.read_resource("l://1")
        assert (len(told.all), deaf.all) == (2, [])


@in_loop
async def test_a_server_is_asked_for_the_lowest_level_and_each_client_hears_from_its_own_on() -> None:
    logged = Logged("debug", "error")
    upstream = FakeUpstream("a", logged.server)
    told = [Told(), Told()]
    async with gateway(upstream) as (server, passed):
        await upstream.session()
        async with Client(server, mode=LEGACY, message_handler=told[0]) as one:
            async with Client(server, mode=LEGACY, message_handler=told[1]) as two:
                await set_level(one, "error")
                await set_level(two, "debug")
                await set_level(two, "debug")
                assert logged.asked == ["error", "debug"]
                await one.read_resource("l://1")
                assert await told[1].levels(2) == ["debug", "error"]
                assert await told[0].levels(1) == ["error"]
            async with asyncio.timeout(60):
                while passed.logs.subscribed_level != "error":  # who has left hears nothing any more
                    await one.send_ping()


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
@in_loop
async def test_logging_is_announced_where_some_server_may_have_it(mode: str) -> None:
    a, b = FakeUpstream("a", prompts("x")), FakeUpstream("b", Logged().server)
    async with gateway(a) as (server, _):
        async with Client(server, mode=mode) as client:
            assert client.server_capabilities.logging is not None, "nobody knows yet"
        await a.session()
        async with Client(server, mode=mode) as client:
            assert client.server_capabilities.logging is None
    async with gateway(a, b) as (server, _):
        await a.session()
        await b.session()
        async with Client(server, mode=mode) as client:
            assert client.server_capabilities.logging is not None


@in_loop
async def test_no_secret_is_told_wherever_it_stands() -> None:
    data = {"sent": {KEY: f"Bearer {KEY}"}, "codes": [7, None, True]}
    upstream = FakeUpstream("a", Logged("info", data=data, logger=f"db\x1b[2J {KEY}").server)
    told = Told()
    hide = SecretRedactor((KEY,)).redact_off_loop
    through = gateway(upstream, hide_in=hide)
    async with through as (server, _), Client(server, mode=MODERN, message_handler=told, log_level="debug") as client:
        await client.read_resource("l://1")
        await told.levels(1)
    assert told.all[0].data == {"sent": {"[secret]": "Bearer [secret]"}, "codes": [7, None, True]}
    assert told.all[0].logger == "a.db\\u001b[2J [secret]"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("data", "least", "most"),
    [
        ("x" * 50_000, 10_000, 10_000),
        ({"x": "y" * 50_000}, 10, 100),
        (deep(300), 10, 100),
        (f"{'x' * 9_990}{KEY}{'x' * 50_000}", 9_990, 10_000),
    ],
    ids=["a long text", "much", "deep", "a secret at the end"],
)
@in_loop
async def test_what_is_told_is_bounded(data: Any, least: int, most: int) -> None:
    heard = LogForwarder(lambda: (), SecretRedactor((KEY,)).redact_off_loop)
    connection = Listener()
    await heard.subscribe_client(connection, "debug")
    heard.on_log_message("a", said(data=data, logger="l" * 50_000))
    async with asyncio.timeout(60):
        await connection.news.wait()
    (one,) = connection.told
    assert least <= len(one["data"]) <= most
    assert "sk-" not in one["data"]
    assert len(one["logger"]) == 202
    await heard.aclose()


@in_loop
async def test_a_flood_is_left_out_with_one_note_of_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "WINDOW_SECONDS", 3600.0)
    monkeypatch.setattr(logs, "MAX_MESSAGES_PER_WINDOW", 3)
    flood, other = FakeUpstream("a", Logged(*["critical"] * 10).server), FakeUpstream("b", Logged("error").server)
    told = Told()
    through = gateway(flood, other)
    async with through as (server, _), Client(server, mode=MODERN, message_handler=told, log_level="error") as client:
        await client.read_resource("l://1")
        assert await told.levels(4) == ["critical"] * 3 + ["error"], "the note has a level that is asked for"
    note = "7 messages of this server were dropped: too many at once"
    assert (told.all[3].logger, told.all[3].data) == ("a", note)


@in_loop
async def test_a_flood_for_a_client_that_stays_is_told_of_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "WINDOW_SECONDS", 0.2)
    monkeypatch.setattr(logs, "MAX_MESSAGES_PER_WINDOW", 3)
    heard = LogForwarder(lambda: ())
    connection = Listener()
    await heard.subscribe_client(connection, "info")
    for _ in range(1_000):
        heard.on_log_message("a", said(data="once"))
    async with asyncio.timeout(60):
        while connection.told[-1:] == [] or connection.told[-1]["level"] != "warning":
            connection.news.clear()
            await connection.news.wait()
    notes = [one["data"] for one in connection.told if one["level"] == "warning"]
    told = sum(one["data"] == "once" for one in connection.told)
    assert told + sum(int(one.split()[0].replace(",", "")) for one in notes) == 1_000
    assert told < 1_000
    await heard.aclose()


@in_loop
async def test_a_client_that_reads_nothing_costs_little_and_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING", 5)
    heard = LogForwarder(lambda: ())
    stuck, reads = Listener(), Listener()
    stuck.reads.clear()
    await heard.subscribe_client(stuck, "info")
    await heard.subscribe_client(reads, "info")
    for number in range(20):
        heard.on_log_message("a", said(data=number))
        async with asyncio.timeout(60):
            while len(reads.told) <= number:
                reads.news.clear()
                await reads.news.wait()
    assert [one["data"] for one in reads.told] == [*range(20)]
    assert len(heard._subscribers[stuck]._waiting) <= 5
    await stuck.exit_stack.aclose()
    assert [*heard._subscribers] == [reads]
    await heard.aclose()
