"""A clock that is set back: what was decided is ready, and nobody who is gone keeps anything beyond a lease."""

from __future__ import annotations

from datetime import timedelta

import pytest
from stored_pauses import HOUR_MS, OK, paused
from waiting import within

LEASE_MS = 30_000


async def decided(store):
    record_id = await store.put(paused("a"), tenant="acme")
    await store.decide({"a": OK}, actor="ana", tenant="acme")
    return record_id


async def claimed(store, *, owner):
    lease = await store.claim(owner=owner, tenant="acme", lease_ms=LEASE_MS)
    return None if lease is None else lease.owner


def test_what_was_decided_is_ready_though_the_clock_was_set_back(make, clock):
    async def scenario(store):
        await decided(store)
        clock.moved_ms -= HOUR_MS
        await store.sweep()
        assert await claimed(store, owner="one") == "one"

    through(make, scenario)


@pytest.mark.parametrize("back_ms", [HOUR_MS, LEASE_MS // 2])
def test_a_lease_is_over_in_its_time_though_the_clock_was_set_back(make, clock, back_ms):
    async def scenario(store):
        clock.stop()
        await decided(store)
        assert await claimed(store, owner="one") == "one"
        clock.moved_ms -= back_ms
        await store.sweep()
        assert await claimed(store, owner="other") is None
        clock.moved_ms += LEASE_MS - 1000
        await store.sweep()
        assert await claimed(store, owner="other") is None
        clock.moved_ms += 2000
        assert await claimed(store, owner="other") == "other"

    through(make, scenario)


def test_who_lives_keeps_what_it_has_though_the_clock_was_set_back(make, clock):
    async def scenario(store):
        clock.stop()
        record_id = await decided(store)
        lease = await store.claim(owner="one", tenant="acme", lease_ms=LEASE_MS)
        clock.moved_ms -= HOUR_MS
        for _ in range(5):
            await store.sweep()
            assert await store.renew(lease)
            clock.moved_ms += LEASE_MS - 1000
            assert await claimed(store, owner="other") is None
        assert await store.settle(lease, 1)
        assert (await store.record(record_id, tenant="acme")).state == "completed"

    through(make, scenario)


def test_what_was_put_off_is_put_off_though_others_were_decided_before_the_clock_was_set_back(make, clock):
    async def scenario(store):
        await decided(store)
        lease = await store.claim(owner="one", tenant="acme", lease_ms=LEASE_MS)
        clock.moved_ms += 1000
        assert await store.release(lease, delay_ms=HOUR_MS)
        await store.sweep()
        assert await claimed(store, owner="other") is None

    through(make, scenario)


def test_a_journal_is_free_in_the_time_of_its_lease_though_the_clock_was_set_back(make, clock):
    async def scenario(store):
        journal = store.journal(tenant="acme", app="x", lease_ms=500)
        dead = await journal.open("program", "head")
        clock.moved_ms -= HOUR_MS
        taken = await journal.open("program", "head")
        assert taken.is_takeover
        assert not await journal.write(dead, ["too late"])
        assert await journal.write(taken, ["a line"])

    through(make, scenario)


def through(make, scenario):
    async def work():
        store = make()
        await scenario(store)
        await store.purge(timedelta(0))
        await store.aclose()

    within(work())
