"""Runs whose worker dies: what may have happened is asked of people, in the same three ways, and nothing runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import mcp_types as types
import pytest
from approval_world import IMPORT, RESULT, Shop, accept, answer_of, codes, hosts, kept, mute
from leftovers import kill_workers
from mcp import Client
from suite import each_row, full_only
from waiting import within

from codemode import PoolOptions, WorkerPool
from codemode.stores import ALL_TENANTS, resumer

CODE = f"{IMPORT}await stock({{}});\n{RESULT}await lose({{}}).catch((error) => error.message);"
LOST = types.ToolAnnotations(destructive_hint=False)
ONLY_READS = types.ToolAnnotations(read_only_hint=True)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    # A spare worker that is killed too would be met by whoever goes on.
    with WorkerPool(PoolOptions(spare_workers=0)) as made:
        yield made


async def call(client: Any, **arguments: Any) -> dict[str, Any]:
    return answer_of(await client.call_tool("codemode_run", arguments))


@each_row("mode", ["auto", "legacy"])
@each_row(
    "said, result, runs",
    [
        ({"decision": "happened", "value": '"sent"'}, "sent", 1),
        ({"decision": "happened"}, None, 1),
        ({"decision": "failed", "reason": "the line was dead"}, "the line was dead", 1),
        ({"decision": "run_again"}, "late", 2),
    ],
)
def test_a_person_says_what_became_of_a_call_and_the_program_goes_on(
    mode: str, said: dict[str, Any], result: Any, runs: int, pool: WorkerPool
) -> None:
    async def scenario() -> None:
        messages: list[str] = []

        async def person(_ctx: Any, params: Any) -> Any:
            messages.append(params.message)
            return accept(**said)

        async with hosts(pool=pool, shop=Shop(on_lose=kill_workers)) as (shop, _, host):
            async with Client(host.server, mode=mode, elicitation_callback=person) as client:
                cut_off = await call(client, code=CODE)
                assert codes(cut_off)[-1] == "OUTCOME_UNKNOWN"
                assert [one["toolName"] for one in cut_off["waiting"]["calls"]] == ["lose"]
                assert messages == []
                for _ in range(2):
                    assert (await call(client, resume=cut_off["waiting"]["id"]))["result"] == result
            assert "Did this call happen?" in messages[0]
            assert (len(messages), shop.done.count("lose"), shop.done.count("stock")) == (1, runs, 1)

    within(scenario())


def test_nobody_who_does_not_say_decides_and_the_store_takes_the_answer_later(pool: WorkerPool) -> None:
    async def scenario() -> None:
        replies = iter([types.ElicitResult(action="decline"), accept("perhaps"), accept("happened", value=5.5)])

        async def person(_ctx: Any, _params: Any) -> Any:
            return next(replies)

        async with hosts(pool=pool, shop=Shop(on_lose=kill_workers), wait_ms=1) as (shop, store, host):
            async with Client(host.server, mode="legacy", elicitation_callback=person) as client:
                waits = (await call(client, code=CODE))["waiting"]
                for _ in range(3):
                    told = await call(client, resume=waits["id"])
                    assert codes(told) == ["OUTCOME_UNKNOWN"]
                    assert told["waiting"] == waits
                (record,) = (await store.list(tenant=ALL_TENANTS, state="waiting")).records
                (asked,) = record.requests
                await store.decide({asked.interrupt_id: {"value": "by hand"}}, actor="ana", tenant=ALL_TENANTS)
                await store.outcome(record.id, tenant="local", timeout_ms=60_000)
                assert (await call(client, resume=waits["id"]))["result"] == "by hand"
            assert shop.done.count("lose") == 1

    within(scenario())


def test_calls_that_only_read_need_nobody(pool: WorkerPool) -> None:
    async def scenario() -> None:
        shop = Shop(on_lose=kill_workers)
        shop.tools["lose"].annotations = ONLY_READS
        async with hosts(pool=pool, shop=shop) as (_, _, host), mute(host) as client:
            cut_off = await call(client, code=CODE)
            assert cut_off["waiting"]["calls"] == []
            assert (await call(client, resume=cut_off["waiting"]["id"]))["result"] == "late"
            assert (shop.done.count("lose"), shop.done.count("stock")) == (2, 1)

    within(scenario())


def test_a_run_that_is_cut_off_after_an_approval_asks_what_happened_and_runs_nothing_twice(pool: WorkerPool) -> None:
    async def scenario() -> None:
        shop = Shop(on_lose=kill_workers)
        shop.tools["lose"].annotations = types.ToolAnnotations(destructive_hint=True)
        async with hosts(pool=pool, shop=shop, wait_ms=1) as (_, store, host), mute(host) as client:
            waits = (await call(client, code=CODE))["waiting"]
            (record,) = (await store.list(tenant=ALL_TENANTS, state="waiting")).records
            await store.decide({record.requests[0].interrupt_id: {"approved": True}}, actor="ana", tenant=ALL_TENANTS)
            with store.watch() as watch:
                while (record := await store.record(record.id, tenant="local")).version == 1:
                    await watch.wait(0.5)
            told = await call(client, resume=waits["id"])
            assert codes(told) == ["OUTCOME_UNKNOWN"]
            assert told["waiting"]["id"] == waits["id"]
            (doubt,) = (one for one in record.requests if one.state == "waiting")
            await store.decide({doubt.interrupt_id: {"value": "done"}}, actor="ana", tenant=ALL_TENANTS)
            await store.outcome(record.id, tenant="local", timeout_ms=60_000)
            assert (await call(client, resume=waits["id"]))["result"] == "done"
            assert shop.done == ["stock", "lose"]

    within(scenario())


@pytest.mark.parametrize("journal", [False, True])
def test_a_client_that_leaves_while_what_it_has_approved_is_under_way_leaves_the_question_to_the_store(
    journal: bool, pool: WorkerPool
) -> None:
    async def person(_ctx: Any, _params: Any) -> Any:
        return accept()

    async def scenario() -> None:
        under_way = asyncio.Event()
        shop = Shop(on_lose=under_way.set)
        shop.tools["lose"].annotations = types.ToolAnnotations(destructive_hint=True)
        async with hosts(pool=pool, shop=shop, wait_ms=1, journal=journal) as (_, store, host):

            async def leaving() -> None:
                async with Client(host.server, elicitation_callback=person) as client:
                    await call(client, code=CODE)

            left = asyncio.create_task(leaving())
            await under_way.wait()
            left.cancel()
            await asyncio.wait([left])
            record = await kept(store)
            async with mute(host) as other:
                # Whoever sends the same program again is told of it, and does not begin a second one.
                told = await call(other, code=CODE)
                assert (codes(told), told["waiting"]["id"]) == (["OUTCOME_UNKNOWN"], record.id)
                (doubt,) = record.requests
                await store.decide({doubt.interrupt_id: {"value": "done"}}, actor="ana", tenant=ALL_TENANTS)
                await store.outcome(record.id, tenant="local", timeout_ms=60_000)
                assert (await call(other, resume=record.id))["result"] == "done"
            assert shop.done == ["stock", "lose"]

    within(scenario())


@pytest.mark.parametrize("mode", ["auto", *full_only("legacy")])
def test_what_was_answered_while_no_worker_was_free_goes_on_once_there_is_one(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(resumer, "_RETRY_MS", 100)
    asks = f'{IMPORT}{RESULT}await refund({{ order: "a" }});'
    held = f"{IMPORT}{RESULT}await lose({{}});"

    async def scenario(pool: WorkerPool) -> None:
        is_held, shop = asyncio.Event(), Shop(on_lose=lambda: is_held.set())
        holding: list[asyncio.Task[Any]] = []

        async with hosts(pool=pool, shop=shop, wait_ms=1) as (_, store, host), mute(host) as other:

            async def person(_ctx: Any, _params: Any) -> Any:
                holding.append(asyncio.create_task(call(other, code=held)))
                await is_held.wait()
                return accept()

            async with Client(host.server, mode=mode, elicitation_callback=person) as client:
                full = await call(client, code=asks)
                assert codes(full) == ["WAITING_FOR_APPROVAL"], full
                waits = full["waiting"]
                assert waits["calls"] == []
                assert ("a", 500) not in shop.done
                holding[0].cancel()
                await asyncio.wait(holding)
                outcome = await store.outcome(waits["id"], tenant="local", timeout_ms=60_000)
                told = [await call(client, resume=waits["id"]) for _ in range(2)]
                assert [one["result"] for one in (outcome, *told)] == ["refunded 500 for a"] * 3
            assert shop.done.count(("a", 500)) == 1

    with WorkerPool(PoolOptions(max_workers=1, spare_workers=0, on_saturation="fail")) as only_one:
        within(scenario(only_one))
