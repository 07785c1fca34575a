"""Runs of exec outlive their process: another one gets their outcome, or takes them over, and nothing runs twice."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from exec_wait_processes import Process, Processes
from exec_wait_world import SCOPE, Shop, executed, pair_of, run, store_of, wait
from postgres_cluster import cluster, new_database
from stored_pauses import Clock
from suite import full_only

from codemode import CallContext, Interrupt
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND

LEASE_MS = 31_000
YIELDING = (
    "text('a'); const one = await tools.pay(1); await yield_control(); text('b'); return [one, await tools.pay(2)]"
)


@pytest.fixture(scope="module")
def postgres_folder():
    with cluster() as folder:
        yield folder


@pytest.fixture(params=["sqlite-cold", *full_only("postgres-warm")])
def world(request, tmp_path, pool) -> World:
    kind, warmth = request.param.split("-")
    where = str(tmp_path / "runs.db")
    if kind == "postgres":
        where = new_database(request.getfixturevalue("postgres_folder"), f"t{secrets.token_hex(6)}")
    warm = 4 if warmth == "warm" else 0
    return World((kind, where), tmp_path / "notes", pool, maxWarmRuns=warm, waitTimeoutMs=20_000)


class World:
    """One store, processes on it, and the pair of this one, whose clock the test moves.

    ``hasty`` is another pair, for what is to be left waiting.
    """

    def __init__(self, place: tuple[str, str], notes: Path, pool: Any, **options: Any) -> None:
        self.place, self.notes, self.pool, self.options = place, notes, pool, options
        self.clock = Clock()

    @asynccontextmanager
    async def open(self, **of_hosts: Any) -> AsyncIterator[tuple[Processes, Any]]:
        store = store_of(*self.place, clock=self.clock)
        pair = pair_of(Shop(self.notes), store, self.pool, **self.options)
        self.hasty = pair_of(Shop(self.notes), store, self.pool, **{**self.options, "waitTimeoutMs": 100})
        try:
            async with Processes(*self.place, self.notes, **{**self.options, **of_hosts}) as processes:
                yield processes, pair
        finally:
            for one in (pair, self.hasty):
                await one.aclose()
            await store.aclose()

    def executed(self) -> list[str]:
        return executed(self.notes)


async def killed(host: Process, world: World) -> None:
    """Kill the owner, and let its leases be over."""
    await host.kill()
    world.clock.moved_ms += LEASE_MS


def unknown(result: Any) -> list[str]:
    """The calls that an interrupt asks about, for nobody knows what became of them."""
    assert isinstance(result, Interrupt), result
    assert {one.payload["kind"] for one in result.requests} == {UNKNOWN_OUTCOME_KIND}
    return sorted(f"{one.tool_name} {one.input}" for one in result.requests)


def test_a_run_outlives_the_process_that_is_killed_while_it_rests(within, world):
    async def main():
        async with world.open() as (processes, pair):
            host = await processes.start()
            result = await host.run(YIELDING)
            early = await wait(world.hasty, result)
            assert (early["status"], early["reason"], "note" in early) == ("waiting", "yield", True)
            await killed(host, world)
            last = await wait(pair, result)
            return last, await wait(pair, result)

    last, again = within(main())
    assert (last["value"], last["output"]) == (["pay 1", "pay 2"], [{"type": "text", "text": "b"}])
    assert again == last
    assert world.executed() == ["pay 1", "pay 2"]


def test_calls_that_were_in_flight_when_the_process_died_are_asked_about_or_made_again(within, world):
    async def main():
        async with world.open(waitTimeoutMs=100) as (processes, pair):
            host = await processes.start("pay", "look", "put")
            result = await host.run("return await Promise.all([tools.pay(1), tools.look(2), tools.put(3)])")
            await host.until_began(3)
            assert (result["status"], len(result["pendingToolCalls"])) == ("waiting", 3)
            await killed(host, world)
            asked = await wait(pair, result)
            assert unknown(asked) == ["host:core:pay 1"]
            twice = await wait(pair, result)
            assert unknown(twice) == unknown(asked)
            last = await pair.resume(asked, {"value": "paid"}, call=CallContext(conversation_id=SCOPE))
            return last, await wait(pair, result)

    last, again = within(main())
    assert last["value"] == again["value"] == ["paid", "look 2", "put 3"]
    assert world.executed() == ["look 2", "look 2", "pay 1", "put 3", "put 3"]


def test_a_process_that_dies_in_the_middle_of_a_wait_leaves_its_calls_to_be_gone_on_with(within, world):
    code = "await tools.look(1); await yield_control(); text('b'); await tools.pay(2); return await tools.put(3)"

    async def main():
        async with world.open() as (processes, pair):
            host = await processes.start("put")
            result = await host.run(code)
            going_on = host.ask("wait", {"runId": result["runId"]})
            await host.until_began(3)
            await killed(host, world)
            assert not going_on.done()
            return await wait(pair, result)

    last = within(main())
    assert (last["value"], last["output"]) == ("put 3", [{"type": "text", "text": "b"}])
    assert world.executed() == ["look 1", "pay 2", "put 3", "put 3"]


def test_exec_that_is_repeated_after_its_process_died_goes_on_where_it_was(within, world):
    call = {"tool_call_id": "call_1"}
    code = "text('a'); await tools.look(1); return await tools.pay(2)"

    async def main():
        async with world.open() as (processes, pair):
            host = await processes.start("pay")
            host.ask("exec", {"code": code}, **call)
            await host.until_began(2)
            busy = await run(world.hasty, code, **call)
            assert (busy["status"], busy["code"]) == ("failed", "runtime_unavailable")
            await killed(host, world)
            asked = await run(pair, code, **call)
            assert unknown(asked) == ["host:core:pay 2"]
            return await pair.resume(asked, {"runAgain": True}, call=CallContext(conversation_id=SCOPE))

    assert within(main())["value"] == "pay 2"
    assert world.executed() == ["look 1", "pay 2", "pay 2"]


@pytest.mark.full
def test_one_that_takes_a_run_over_and_dies_before_it_could_store_its_rest_leaves_it_to_the_next(within, world):
    code = "text('a'); await yield_control(); await tools.pay(1); text('b'); await yield_control(); return tools.pay(2)"

    async def main():
        async with world.open() as (processes, pair):
            host = await processes.start()
            result = await host.run(code)
            await killed(host, world)
            next_host = await processes.start(moved_ms=LEASE_MS, dies_at_rest=True)
            next_host.ask("wait", {"runId": result["runId"]})
            await next_host.gone()
            await killed(next_host, world)
            second = await wait(pair, result)
            return second, await wait(pair, second)

    second, last = within(main())
    assert (second["reason"], second["output"]) == ("yield", [{"type": "text", "text": "b"}])
    assert last["value"] == "pay 2"
    assert world.executed() == ["pay 1", "pay 2"]


def test_while_its_owner_lives_others_get_what_it_comes_to(within, world):
    async def main():
        async with world.open() as (processes, pair):
            host = await processes.start()
            result = await host.run(YIELDING)
            waiting = asyncio.ensure_future(wait(pair, result))
            return await host.wait(result), await waiting

    last, told = within(main())
    assert last["value"] == ["pay 1", "pay 2"]
    assert told == last
    assert world.executed() == ["pay 1", "pay 2"]


def test_an_owner_that_stood_still_too_long_writes_nothing_any_more(within, world):
    async def main():
        async with world.open() as (processes, pair):
            host = await processes.start()
            result = await host.run(
                "await tools.pay(1); await yield_control(); await tools.pay(2); await yield_control()"
            )
            host.stop()
            world.clock.moved_ms += LEASE_MS
            second = await wait(pair, result)
            assert (second["status"], second["reason"]) == ("waiting", "yield")
            host.go_on()
            refused = await host.wait(result)
            return refused, await wait(pair, second)

    refused, last = within(main())
    assert refused["status"] == "failed", refused
    assert refused["code"] == "snapshot_restore_failed", refused
    assert (last["status"], last["value"]) == ("completed", None)
    assert world.executed() == ["pay 1", "pay 2"]


def test_of_several_processes_that_find_a_dead_ones_run_one_goes_on_and_the_others_hear_of_it(within, world):
    async def main():
        async with world.open() as (processes, pair):
            host = await processes.start()
            result = await host.run(YIELDING)
            await killed(host, world)
            stores = [store_of(*world.place, clock=world.clock) for _ in range(2)]
            others = [pair_of(Shop(world.notes), one, world.pool, waitTimeoutMs=20_000) for one in stores]
            told = await asyncio.gather(*(wait(one, result) for one in (pair, *others)))
            for one, store in zip(others, stores, strict=True):
                await one.aclose()
                await store.aclose()
            return told

    told = within(main())
    assert [one["value"] for one in told] == [["pay 1", "pay 2"]] * 3
    assert world.executed() == ["pay 1", "pay 2"]
