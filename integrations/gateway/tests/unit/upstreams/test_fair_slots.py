"""Calls of one server are shared fairly: no user and no program takes all of its places or the whole queue."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.gateway.principals import CallOrigin, Principal, get_call_or_current_origin
from codemode_gateway.upstreams.call_retries import FairCallSlots, ToolCall
from waiting import within


class Server:
    """Calls that hold a slot until the test ends them."""

    def __init__(self, limit, share):
        self.slots = FairCallSlots(limit, share)
        self.begun = []
        self._ends = {}
        self.tasks = {}

    def call(self, name, caller):
        async def work():
            async with self.slots.hold_slot(caller):
                self.begun.append(name)
                await self._ends[name].wait()

        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.get_running_loop().create_task(work())

    async def settle(self):
        for _ in range(5):
            await asyncio.sleep(0)

    async def end(self, *names):
        for name in names:
            self._ends[name].set()
        await self.settle()

    async def end_all_servers(self):
        for event in self._ends.values():
            event.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


def shared(limit, share, scenario):
    async def run():
        server = Server(limit, share)
        try:
            await scenario(server)
        finally:
            await server.end_all_servers()
        assert server.slots._free == limit
        assert not server.slots._held
        assert not server.slots._waiting

    within(run())


def test_another_program_finds_a_place_while_one_has_64_calls():
    async def scenario(server):
        for number in range(64):
            server.call(number, ("local", "greedy"))
        await server.settle()
        assert len(server.begun) == 24
        server.call("other", ("local", "other"))
        await server.settle()
        assert server.begun[-1] == "other"

    shared(32, 24, scenario)


def test_another_user_finds_a_place_while_many_programs_of_one_wait():
    async def scenario(server):
        for number in range(20):
            server.call(number, ("ana", f"program {number}"))
        await server.settle()
        assert len(server.begun) == 3
        server.call("ben", ("ben", "p"))
        await server.settle()
        assert server.begun[-1] == "ben"

    shared(4, 3, scenario)


def test_the_programs_of_one_local_user_have_all_places_together():
    async def scenario(server):
        for number in range(4):
            server.call(number, ("local", f"program {number}"))
        await server.settle()
        assert len(server.begun) == 4

    shared(4, 3, scenario)


def test_those_that_wait_get_a_free_place_in_turn():
    async def scenario(server):
        server.call("first", ("ana", "p"))
        await server.settle()
        for number in range(3):
            server.call(f"ana {number}", ("ana", "p"))
        server.call("ana q", ("ana", "q"))
        for number in range(2):
            server.call(f"ben {number}", ("ben", "p"))
        await server.settle()
        for expected in ("ana 0", "ben 0", "ana q", "ben 1", "ana 1", "ana 2"):
            await server.end(server.begun[-1])
            assert server.begun[-1] == expected

    shared(1, 1, scenario)


def test_a_cancelled_call_gives_up_its_turn_and_its_place():
    async def scenario(server):
        for name in ("a", "b", "c"):
            server.call(name, ("ana", "p"))
        await server.settle()
        server.tasks["b"].cancel()
        await server.settle()
        await server.end("a")
        assert server.begun == ["a", "c"]
        server.call("d", ("ana", "p"))
        await server.settle()
        server._ends["c"].set()
        server.tasks["c"].cancel()  # it may have been given its place in the same moment
        await server.settle()
        assert server.begun[-1] == "d"

    shared(1, 1, scenario)


def test_a_call_that_is_cancelled_when_its_turn_has_come_passes_the_place_on():
    async def scenario(server):
        server.call("a", ("ana", "p"))
        await server.settle()
        server.call("b", ("ana", "p"))
        server.call("c", ("ana", "p"))
        await server.settle()
        server._ends["a"].set()
        await server.tasks["a"]
        server.tasks["b"].cancel()  # before it could begin
        await server.settle()
        assert server.begun[-1] == "c"

    shared(1, 1, scenario)


def test_a_share_is_three_quarters_unless_the_configuration_says():
    for limit, said, expected in [(32, None, 24), (1, None, 1), (2, None, 2), (4, None, 3), (8, 2, 2), (8, 100, 8)]:
        config = ServerConfig("s", "stdio", max_concurrency=limit, max_concurrency_per_program=said)
        assert config.program_concurrency_limit == expected, (limit, said)


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (SimpleNamespace(context=CallOrigin(Principal("ana"), "outer")), ("ana", "outer")),
        (SimpleNamespace(context=None, outer_tool_call_id="call"), ("local", "call")),
        (None, ("local", "")),
    ],
)
def test_a_call_is_counted_for_its_user_and_program(context, expected):
    assert ToolCall("t", None, {}, context, get_call_or_current_origin(context)).caller == expected
