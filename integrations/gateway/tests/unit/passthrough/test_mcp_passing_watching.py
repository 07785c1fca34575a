"""Subscriptions and changes: told to those who asked, in the words of either era, once however often they are said."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway.passthrough import subscriptions as keeping
from codemode_gateway.passthrough import subscriptions as watching
from in_loop import in_loop
from mcp import Client
from mcp.server.lowlevel.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError
from passing_world import LEGACY, MODERN, FakeUpstream, gateway, resources


class Watched:
    """A server whose resources change when a test says so."""

    def __init__(self, *uris: str, mode: str = LEGACY, **more: Any) -> None:
        self.log: list[str] = []
        self.sessions: list[Any] = []
        self.bus = InMemorySubscriptionBus()
        ways: dict[str, Any] = {"on_subscribe_resource": self._on, "on_unsubscribe_resource": self._off, **more}
        if mode != LEGACY:
            ways = {"on_subscriptions_listen": ListenHandler(self.bus)}
        self.mode = mode
        self.server: Server[Any] = resources("W", *uris, **ways)

    async def _on(self, ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        if "secret" in params.uri:
            raise MCPError(-32000, "not this one")
        self.log.append(f"+{params.uri}")
        self.sessions.append(ctx.session)
        return types.EmptyResult()

    async def _off(self, _ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self.log.append(f"-{params.uri}")
        return types.EmptyResult()

    async def update(self, uri: str) -> None:
        if self.mode == LEGACY:
            await self.sessions[-1].send_resource_updated(uri)
        else:
            await self.bus.publish(ResourceUpdated(uri))


class Heard:
    """What a client was told, one after the other."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._told = asyncio.Condition()

    async def __call__(self, message: Any) -> None:
        async with self._told:
            self.all.append(message)
            self._told.notify_all()

    async def updates(self, count: int) -> list[str]:
        return [one.params.uri for one in await self.of(types.ResourceUpdatedNotification, count)]

    async def of(self, kind: type[Any], count: int) -> list[Any]:
        def found() -> list[Any]:
            return [one for one in self.all if isinstance(one, kind)]

        async with asyncio.timeout(60), self._told:
            await self._told.wait_for(lambda: len(found()) >= count)
        return found()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "NOTIFY_INTERVAL_SECONDS", 0.001)


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
@in_loop
async def test_a_client_hears_of_what_it_watches_under_the_uri_that_it_knows(mode: str) -> None:
    first, second = Watched("t://same"), Watched("t://same", mode=mode)
    upstreams = FakeUpstream("a", first.server), FakeUpstream("b", second.server, mode)
    heard, other = Heard(), Heard()
    async with gateway(*upstreams) as (server, _):
        async with (
            Client(server, mode=LEGACY, message_handler=heard) as client,
            Client(server, mode=LEGACY, message_handler=other) as idle,
        ):
            uris = [one.uri for one in (await client.list_resources()).resources]
            await idle.list_resources()
            await client.session.send_request(
                types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uris[1])), types.EmptyResult
            )
            assert first.log == []
            await second.update("t://same")
            await second.update("t://same/part")
            await second.update("t://samething")
            assert await heard.updates(1) == [uris[1]]
        assert not other.all


@in_loop
async def test_a_client_that_listens_hears_the_same() -> None:
    watched = Watched("t://1", "t://2")
    async with gateway(FakeUpstream("a", watched.server)) as (server, _), Client(server, mode=MODERN) as client:
        async with client.listen(resource_subscriptions=["t://1"], prompts_list_changed=True) as stream:
            assert watched.log == ["+t://1"]
            await watched.update("t://2")
            await watched.update("t://1")
            async with asyncio.timeout(60):
                assert await anext(stream) == ResourceUpdated("t://1")
            await watched.sessions[-1].send_prompt_list_changed()
            async with asyncio.timeout(60):
                assert await anext(stream) == PromptsListChanged()
        async with asyncio.timeout(60):
            while "-t://1" not in watched.log:
                await client.list_resources()
                await asyncio.sleep(0)


def subscribe(client: Client, uri: str) -> Any:
    params = types.SubscribeRequestParams(uri=uri)
    return client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)


def unsubscribe(client: Client, uri: str) -> Any:
    params = types.UnsubscribeRequestParams(uri=uri)
    return client.session.send_request(types.UnsubscribeRequest(params=params), types.EmptyResult)


@in_loop
async def test_a_server_is_asked_once_for_all_clients_and_told_when_the_last_has_gone() -> None:
    gone = asyncio.Event()

    async def off(_ctx: Any, _params: Any) -> types.EmptyResult:
        gone.set()
        return types.EmptyResult()

    watched = Watched("t://1", on_unsubscribe_resource=off)
    async with gateway(FakeUpstream("a", watched.server)) as (server, passed):
        async with Client(server, mode=LEGACY) as one:
            await subscribe(one, "t://1")
            async with Client(server, mode=LEGACY) as two:
                await subscribe(two, "t://1")
                await unsubscribe(two, "t://1")
            assert not gone.is_set()
        async with asyncio.timeout(60):
            await gone.wait()
        assert not passed.subscriptions._watched
    assert watched.log == ["+t://1"]


@in_loop
async def test_what_a_server_refuses_is_refused_and_what_nobody_has_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MAX_SUBSCRIBED_RESOURCES", 1)
    watched = Watched("t://secret", "t://1", "t://2")
    through = gateway(FakeUpstream("a", watched.server), FakeUpstream("b", resources("B", "b://1")))
    async with through as (server, _), Client(server, mode=LEGACY) as client:
        for uri, why in (("t://secret", "a: not this one"), ("none://x", "no server has the resource")):
            for _ in range(2):
                with pytest.raises(MCPError, match=why):
                    await subscribe(client, uri)
        await subscribe(client, "t://1")
        with pytest.raises(MCPError, match="at most 1 resources"):
            await subscribe(client, "t://2")


@in_loop
async def test_what_a_client_watches_is_bounded_in_number_and_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MAX_SUBSCRIBED_RESOURCES", 2)
    watched = Watched()
    long = "t://" + "x" * watching.MAX_URI_CHARACTERS
    async with gateway(FakeUpstream("a", watched.server)) as (server, passed):
        async with Client(server, mode=LEGACY) as client:
            with pytest.raises(MCPError, match="at most 8,192 characters"):
                await subscribe(client, long)
            await subscribe(client, long[:-4])
            assert watched.log == [f"+{long[:-4]}"]
        async with Client(server, mode=MODERN) as client:
            for wanted in ([long], ["t://1", "t://2", "t://3"]):
                with pytest.raises(MCPError, match="at most"):
                    async with client.listen(resource_subscriptions=wanted):
                        pass
        assert not passed.subscriptions._watched


@in_loop
async def test_subscriptions_outlive_their_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "RESUBSCRIBE_SECONDS", 0.01)
    watched = Watched("t://1")
    upstream = FakeUpstream("a", watched.server)
    heard = Heard()
    async with gateway(upstream) as (server, _), Client(server, mode=LEGACY, message_handler=heard) as client:
        await subscribe(client, "t://1")
        upstream.failure = OSError("away")
        await upstream.aclose()
        await asyncio.sleep(0)
        upstream.failure = None
        assert await heard.updates(1) == ["t://1"]  # it may have changed meanwhile
        await watched.update("t://1")
        assert await heard.updates(2) == ["t://1", "t://1"]
        assert watched.log == ["+t://1", "+t://1"]


@in_loop
async def test_changes_are_told_to_those_who_have_listed_and_a_flood_of_them_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "NOTIFY_INTERVAL_SECONDS", 3600.0)
    watched = Watched("t://1")
    upstream = FakeUpstream("a", watched.server)
    heard, other = Heard(), Heard()
    async with gateway(upstream) as (server, passed):
        async with (
            Client(server, mode=LEGACY, message_handler=heard) as client,
            Client(server, mode=LEGACY, message_handler=other),
        ):
            await client.list_resources()
            await subscribe(client, "t://1")
            for _ in range(300):
                await watched.sessions[-1].send_resource_list_changed()
            assert len(await heard.of(types.ResourceListChangedNotification, 1)) == 1
            await client.list_resources()
            assert len(heard.all) == 1
            assert len(passed.subscriptions._pending) <= 1
        assert not other.all


@in_loop
async def test_a_client_that_reads_nothing_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    watched = Watched("t://1")

    class Stuck:
        protocol_version = "2025-11-25"

        async def notify(self, *_: Any) -> None:
            await asyncio.Event().wait()

    async def tell(connection: Any, event: Any, real: Any = watching._notify_client) -> None:
        monkeypatch.setattr(watching, "NOTIFY_TIMEOUT_SECONDS", 0.01 if isinstance(connection, Stuck) else 60.0)
        await real(connection, event)

    monkeypatch.setattr(watching, "_notify_client", tell)
    upstream = FakeUpstream("a", watched.server)
    async with gateway(upstream) as (server, passed), Client(server, mode=LEGACY, message_handler=heard) as client:
        await passed.subscriptions.subscribe(upstream, "t://1", "t://1", Stuck())
        await subscribe(client, "t://1")
        for number in range(1, 4):
            await watched.update("t://1")
            assert len(await heard.updates(number)) == number
