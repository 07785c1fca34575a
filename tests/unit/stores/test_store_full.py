"""A tenant has a share of a store: with too many open records another one is refused, and other tenants go on."""

from __future__ import annotations

import pytest
from stored_pauses import OK, Clock, paused
from waiting import within

from codemode.stores import ALL_TENANTS, MemoryInterruptStore, SqliteInterruptStore, StoreFullError
from codemode.stores.postgres import PostgresInterruptStore


def through(scenario, tmp_path, most=2):
    async def run():
        clock = Clock()
        for store in (
            MemoryInterruptStore(max_open_per_tenant=most, clock=clock),
            SqliteInterruptStore(tmp_path / "full.sqlite", max_open_per_tenant=most, clock=clock),
        ):
            async with store:
                await scenario(store, clock)

    within(run())


async def fill(store, count=2, tenant="ana"):
    for number in range(count):
        await store.put(paused(f"{tenant} {number}"), tenant=tenant)


def test_one_record_too_many_is_refused_with_the_tenant_and_the_way_out(tmp_path):
    async def scenario(store, _clock):
        await fill(store)
        with pytest.raises(StoreFullError, match=r"'ana' has 2 programs .* raise max_open_per_tenant") as error:
            await store.put(paused("more"), tenant="ana")
        assert error.value.details == {"tenant": "ana", "limit": 2}
        with pytest.raises(StoreFullError):
            await store.put_suspended(paused(), owner="me", tenant="ana")
        await fill(store, tenant="ben")

    through(scenario, tmp_path)


def test_a_record_that_is_kept_already_can_pause_again(tmp_path):
    async def scenario(store, _clock):
        await fill(store)
        first = await store.put(paused("ana 0", "next"), tenant="ana")
        assert (await store.record(first, tenant="ana")).version == 2
        await store.decide({"ana 0": OK}, actor="ana", tenant=ALL_TENANTS)
        lease = await store.claim(owner="me", tenant="ana")
        assert await store.settle(lease, paused("another"))

    through(scenario, tmp_path)


def test_records_that_have_ended_or_expired_make_room(tmp_path):
    async def scenario(store, clock):
        first = await store.put(paused("a"), tenant="ana")
        await store.put(paused("b", age_ms=1_000), tenant="ana")
        clock.moved_ms = 2_000
        await store.put(paused("c"), tenant="ana")
        await store.withdraw(first, actor="ana")
        await store.put(paused("d"), tenant="ana")
        with pytest.raises(StoreFullError):
            await store.put(paused("e"), tenant="ana")
        clock.moved_ms = 0

    through(scenario, tmp_path)


def test_a_limit_that_is_none_is_refused():
    for wrong in (0, -1, True, "5", 1.5):
        with pytest.raises(ValueError, match="max_open_per_tenant must be an integer of at least 1"):
            MemoryInterruptStore(max_open_per_tenant=wrong)
        with pytest.raises(ValueError, match="max_open_per_tenant"):
            PostgresInterruptStore("dbname=x", max_open_per_tenant=wrong)
