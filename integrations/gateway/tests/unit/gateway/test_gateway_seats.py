"""Seats and connections: who shares a server, what a changed configuration leaves alone, what is given back when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from codemode_gateway import GatewayConfig, ServerConfig
from codemode_gateway.config.redaction import SecretRedactor
from codemode_gateway.gateway import workspaces
from codemode_gateway.gateway.principals import LOCAL, Principal, SharingScope, get_sharing_scope
from codemode_gateway.gateway.workspaces import ConnectionPool, Workspaces

ANA, BOB = Principal("ana"), Principal("bob")


def server(name: str = "one", **said: Any) -> ServerConfig:
    return ServerConfig(name, "stdio", command="none", **said)


class World:
    """Connections that note when they open and close, and seats over them."""

    def __init__(self, *servers: ServerConfig, most: int = 256) -> None:
        self.config = GatewayConfig(servers)
        self.opened: list[tuple[str, SharingScope]] = []
        self.closed: list[tuple[str, SharingScope]] = []
        self.asked_for: list[Principal] = []
        self.fails: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.secrets = SecretRedactor()
        self.seats = Workspaces(ConnectionPool(self.connect), self, self.config, most)

    @asynccontextmanager
    async def connect(self, config: GatewayConfig, scope: SharingScope) -> AsyncGenerator[Any]:
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        (one,) = config.servers
        self.opened.append((one.name, scope))
        upstream = SimpleNamespace(config=one, server_id=one.name, listed_tools=(), capabilities=None)
        try:
            yield _Connected(upstream)
        finally:
            self.closed.append((one.name, scope))

    def create_run_tool(self, config: GatewayConfig, connected: Any, principal: Principal) -> Any:
        return SimpleNamespace(servers=[one.config.name for one in connected.upstreams])

    def create_approval_flow(self, run_tool: Any, config: GatewayConfig, caller: Principal) -> Any:
        self.asked_for.append(caller)
        return SimpleNamespace(aclose=self._nothing, caller=caller)

    async def take(self, *servers: ServerConfig) -> None:
        self.config = GatewayConfig(servers)
        await self.seats.apply_config(self.config)

    async def settled(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    async def _nothing(self) -> None: ...


class _Connected(list[Any]):
    def __init__(self, upstream: Any) -> None:
        super().__init__([upstream])
        self.upstreams = (upstream,)


def run(main: Any) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize(("sharing", "connections"), [(None, 2), ("user", 2), ("shared", 1), ("session", 3)], ids=str)
def test_who_shares_a_connection_is_what_the_server_says(sharing: Any, connections: int):
    async def main() -> None:
        world = World(server(sharing=sharing))
        for caller in (Principal("ana", "1"), Principal("ana", "2"), Principal("bob", "1"), Principal("ana", "1")):
            await world.seats.get_or_create(caller)
        assert len(world.opened) == connections
        await world.seats.aclose()
        assert sorted(map(str, world.closed)) == sorted(map(str, world.opened))

    run(main)


def test_no_name_of_a_user_is_that_of_all():
    shared = get_sharing_scope(server(sharing="shared"), ANA)
    for name in ("shared", "local", "", "None", "*"):
        assert get_sharing_scope(server(), Principal(name)) != shared
        assert get_sharing_scope(server(sharing="session"), Principal(name)) != shared
    assert shared.owner_id == LOCAL.id
    assert shared.includes(ANA)
    assert shared.includes(BOB)
    assert not get_sharing_scope(server(), ANA).includes(BOB)
    assert get_sharing_scope(server(), ANA).includes(Principal("ana", "1"))


def test_what_a_server_of_all_says_by_itself_is_about_no_user_who_has_signed_in():
    shared = get_sharing_scope(server(sharing="shared"), ANA)
    assert not shared.is_unshared_or_principal_local(ANA)
    assert shared.is_unshared_or_principal_local(LOCAL)
    for sharing in (None, "user", "session"):
        assert get_sharing_scope(server(sharing=sharing), ANA).is_unshared_or_principal_local(ANA)


def test_a_changed_configuration_leaves_alone_what_it_does_not_change():
    async def main() -> None:
        kept, gone, changed = server("kept"), server("gone"), server("changed")
        world = World(kept, gone, changed)
        seat = await world.seats.get_or_create(ANA)
        await world.take(server("kept"), server("changed", args=("other",)), server("new"))
        await world.settled()
        assert [name for name, _ in world.opened] == ["kept", "gone", "changed", "changed", "new"]
        assert sorted(name for name, _ in world.closed) == ["changed", "gone"]
        assert seat.run_tool.servers == ["kept", "changed", "new"]
        await world.seats.aclose()
        assert len(world.closed) == len(world.opened)

    run(main)


def test_a_run_keeps_what_it_has_until_it_ends():
    async def main() -> None:
        world = World(server("old"))
        seat = await world.seats.get_or_create(ANA)
        async with seat.use_environment() as outfit:
            await world.take(server("new"))
            await world.settled()
            assert outfit.run_tool.servers == ["old"]
            assert seat.run_tool.servers == ["new"]
            assert world.closed == [], "its program still calls it"
        await world.settled()
        assert [name for name, _ in world.closed] == ["old"]
        await world.seats.aclose()

    run(main)


def test_a_run_that_goes_on_behind_its_request_keeps_what_the_request_had():
    async def main() -> None:
        world = World(server("old"))
        seat = await world.seats.get_or_create(ANA)
        async with AsyncExitStack() as behind:
            async with seat.use_environment() as outfit:
                await world.take(server("new"))
                await behind.enter_async_context(seat.use_environment(outfit))
            await world.settled()
            assert world.closed == []
        await world.settled()
        assert [name for name, _ in world.closed] == ["old"]
        await world.seats.aclose()

    run(main)


def test_who_comes_at_once_shares_what_is_being_made_and_nobodys_leaving_ends_it():
    async def main() -> None:
        world = World(server())
        world.gate.clear()
        coming = [asyncio.create_task(world.seats.get_or_create(ANA)) for _ in range(3)]
        await world.settled()
        coming[0].cancel()
        world.gate.set()
        found = await asyncio.gather(*coming[1:])
        assert found[0] is found[1]
        assert len(world.opened) == 1
        await world.seats.aclose()

    run(main)


def test_a_connection_that_fails_costs_the_next_try_nothing():
    async def main() -> None:
        world = World(server())
        world.fails = OSError("no room")
        with pytest.raises(OSError, match="no room"):
            await world.seats.get_or_create(ANA)
        world.fails = None
        await world.seats.get_or_create(ANA)
        await world.seats.aclose()
        assert len(world.opened) == len(world.closed) == 1

    run(main)


def test_seats_are_bounded_and_those_that_run_stay():
    async def main() -> None:
        world = World(server(), most=2)
        busy = await world.seats.get_or_create(ANA)
        async with busy.use_environment():
            for at in range(5):
                await world.seats.get_or_create(Principal(f"user-{at}"))
            assert len(world.seats) == 2
            assert await world.seats.get_or_create(ANA) is busy
        await world.seats.aclose()
        assert len(world.opened) == len(world.closed)

    run(main)


def test_a_user_with_many_sessions_drives_nobody_else_out():
    async def main() -> None:
        world = World(server(sharing="session"), most=4)
        bobs = await world.seats.get_or_create(Principal("bob", "1"))
        for at in range(20):
            await world.seats.get_or_create(Principal("ana", str(at)))
        assert await world.seats.get_or_create(Principal("bob", "1")) is bobs
        assert len(world.seats) == 4
        assert {scope.owner_id for _, scope in world.closed} == {"ana"}
        await world.seats.aclose()

    run(main)


def test_what_one_session_is_allowed_is_asked_for_in_another():
    async def main() -> None:
        world = World(server())
        one, other = Principal("ana", "1"), Principal("ana", "2")
        seat = await world.seats.get_or_create(one)
        assert await world.seats.get_or_create(other) is seat
        async with seat.use_environment() as outfit:
            assert (
                outfit.get_or_create_approval_flow(one)
                is outfit.get_or_create_approval_flow(one)
                is not outfit.get_or_create_approval_flow(other)
            )
        assert world.asked_for == [one, other]
        await world.seats.end_session(one)
        async with seat.use_environment() as outfit:
            outfit.get_or_create_approval_flow(one)
        assert world.asked_for == [one, other, one]
        await world.seats.aclose()

    run(main)


def test_the_seat_of_a_session_ends_with_it():
    async def main() -> None:
        world = World(server(sharing="session"))
        one, other = Principal("ana", "1"), Principal("ana", "2")
        await world.seats.get_or_create(one)
        await world.seats.get_or_create(other)
        await world.seats.end_session(one)
        assert world.closed == [("one", SharingScope("ana", "1"))]
        assert len(world.seats) == 1
        await world.seats.end_session(Principal("nobody", "7"))
        await world.seats.aclose()

    run(main)


def test_an_unhashable_configuration_is_compared_by_what_it_says():
    environment: Mapping[str, str] = {"A": "1"}

    async def main() -> None:
        world = World(server(env=dict(environment)))
        await world.seats.get_or_create(ANA)
        await world.take(server(env=dict(environment)))
        await world.settled()
        assert len(world.opened) == 1
        assert not world.closed
        await world.take(server(env={"A": "2"}))
        await world.settled()
        assert len(world.opened) == 2
        assert len(world.closed) == 1
        await world.seats.aclose()

    run(main)


def test_who_was_answered_before_all_was_listed_is_told_though_the_listing_began_late(monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []
    answered = asyncio.Event()

    async def prepare(servers: Any = None) -> None:
        if servers is None:
            await answered.wait()

    async def shown(*_: Any) -> Any:
        told.append("answered")

    async def main() -> None:
        monkeypatch.setattr(workspaces, "LISTING_TIMEOUT_SECONDS", 0.05)
        monkeypatch.setattr(workspaces, "create_tool_definition", shown)
        world = World(server())
        seat = await world.seats.get_or_create(ANA)
        monkeypatch.setattr(seat, "notify_tools_changed", lambda: told.append("changed"))
        seat.run_tool.prepare = prepare  # type: ignore[method-assign]
        known: Any = None
        asyncio.get_running_loop().call_soon(time.sleep, 0.1)  # nothing gets its turn meanwhile
        await seat.get_tool_after_listing(known)
        answered.set()
        await world.settled()
        assert told == ["answered", "changed"]
        await world.seats.aclose()

    run(main)
