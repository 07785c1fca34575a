"""What every store promises of notices: each version that waits is told to each target, by one at a time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from stored_pauses import HOUR_MS, NO, OK, paused, put_as_version_2
from suite import each_row
from test_store_contract import claimed, decided, through
from waiting import within

from codemode.stores import ALL_TENANTS, MemoryInterruptStore, StoreUnavailableError, verify_audit
from codemode.stores import outbox as outboxes
from codemode.stores.transaction import Session


async def told(store, target="t", **settings):
    """Turn all changes into notices and take those that are due."""
    outbox = store.outbox(target)
    while await outbox.fill():
        pass
    return await outbox.claim(limit=100, **settings)


def versions(notices):
    return sorted((one.record.id, one.record.version) for one in notices)


def test_a_version_that_waits_is_told_to_each_target_once(make):
    async def scenario(store):
        first = await store.put(paused("a", "b"), tenant="acme", app="desk", labels={"agent": "x"}, payload=[1])
        (notice,) = await told(store)
        record = notice.record
        assert (notice.target, notice.attempts, record.id, record.version) == ("t", 0, first, 1)
        assert (record.tenant, record.app, record.labels) == ("acme", "desk", {"agent": "x"})
        assert [one.interrupt_id for one in record.requests] == ["a", "b"]
        assert (record.payload, record.source) == (None, None)
        assert await told(store) == ()
        assert await store.outbox("t").record_delivery(notice)
        assert not await store.outbox("t").record_delivery(notice)
        (other,) = await told(store, "u")
        assert len({notice.id, other.id}) == 2
        await decided(store, "a")
        assert await told(store) == ()
        await store.settle(await claimed(store), paused("b"))
        (later,) = await told(store)
        assert (later.record.version, later.id == notice.id) == (2, False)
        await store.outbox("u").record_delivery(other)
        assert versions(await told(store, "u")) == [(first, 2)]

    through(make, scenario)


def test_a_target_that_is_new_is_told_of_what_waits_now_alone(make, clock, monkeypatch):
    monkeypatch.setattr(outboxes, "_MAX_CHANGES", 3)

    async def scenario(store):
        ids = {name: await store.put(paused(name, age_ms=10 * HOUR_MS)) for name in ("done", "gone", "decided")}
        await store.put(paused("late", age_ms=HOUR_MS))
        ids["waits"] = await store.put(paused("waits", "too"))
        ids["half"] = await store.put(paused("half", "other"))
        ids["twice"] = await store.put(paused("one", "two"))
        assert await store.put(paused("two", "three")) == ids["twice"]
        await store.put_suspended(paused("rests"), owner="o")
        await decided(store, "done")
        await store.settle(await claimed(store), "v")
        await store.withdraw(ids["gone"], actor="ana")
        await decided(store, "decided", answer=NO)
        await decided(store, "half")
        clock.moved_ms += 2 * HOUR_MS
        expected = sorted([(ids["waits"], 1), (ids["half"], 1), (ids["twice"], 2)])
        assert versions(await told(store)) == expected
        assert await store.outbox("t").fill() == 0

    through(make, scenario)


def test_two_who_send_at_once_make_and_take_each_notice_once(make):
    async def scenario(store):
        stores = [store, make(), make()]
        ids = [await store.put(paused(str(number))) for number in range(12)]

        async def taken(one):
            outbox, found = one.outbox("t"), []
            await outbox.fill()
            while more := await outbox.claim(limit=2):
                found += more
            return found

        rounds = await asyncio.gather(*(taken(one) for one in stores))
        assert versions(notice for found in rounds for notice in found) == sorted((one, 1) for one in ids)
        for one in stores[1:]:
            await one.aclose()

    through(make, scenario)


def test_a_claim_whose_lease_is_over_is_taken_again_under_the_same_id(make, clock):
    async def scenario(store):
        await store.put(paused("a"))
        (first,) = await told(store, lease_ms=30_000)
        clock.moved_ms += 20_000
        assert await told(store) == ()
        clock.moved_ms += 20_000
        (second,) = await told(store, lease_ms=30_000)
        assert (second.id, second.attempts) == (first.id, 0)
        outbox = make().outbox("t")
        assert not await outbox.record_delivery(first)
        assert not await outbox.record_delivery(first, error="no", retry_ms=0)
        assert not await outbox.record_delivery(first, error="no")
        assert await outbox.record_delivery(second)
        assert await store.failed_notices([first.record.id], tenant=ALL_TENANTS) == ()
        clock.moved_ms += 40_000
        assert await told(store) == ()

    through(make, scenario)


def test_what_failed_is_tried_again_when_it_was_said_and_then_shown_as_failed(make, clock):
    async def scenario(store):
        clock.stop()
        record_id = await store.put(paused("a"), tenant="acme")
        outbox = store.outbox("t")
        for number in range(3):
            (notice,) = await told(store)
            assert notice.attempts == number
            assert await outbox.record_delivery(notice, error="it answered 500", retry_ms=15_000)
            clock.moved_ms += 14_000
            assert await told(store) == ()
            assert await store.failed_notices([record_id], tenant="acme") == ()
            clock.moved_ms += 2_000
        (notice,) = await told(store)
        assert await outbox.record_delivery(notice, error="it answered 500 \0 \ud800")
        assert await told(store) == ()
        (failed,) = await make().failed_notices([record_id, "other", "\0"], tenant="acme")
        assert (failed.target, failed.record_id, failed.version, failed.attempts) == ("t", record_id, 1, 4)
        assert failed.error.startswith("it answered 500 \0")
        assert abs(failed.failed_at_ms - clock.now_ms()) < 60_000
        for nobody in ("globex", "\0"):
            assert await store.failed_notices([record_id], tenant=nobody) == ()
        lines = [line async for line in store.audit(tenant="acme", record_id=record_id) if line.kind == "notice_failed"]
        assert [(line.actor, line.details) for line in lines] == [
            ("system", {"target": "t", "version": 1, "attempts": 4})
        ]
        assert await verify_audit(store) is None

    through(make, scenario)


def test_what_waits_no_more_is_dropped_and_told_when_it_waits_again(make, clock):
    async def scenario(store):
        names = ["decided", "withdrawn", "expired", "refused", "on"]
        ids = {}
        for name in names:
            ids[name] = await store.put(paused(name, age_ms=HOUR_MS if name == "expired" else 9 * HOUR_MS))
        outbox = store.outbox("t")
        while await outbox.fill():
            pass
        await store.withdraw(ids["withdrawn"], actor="ana")
        clock.moved_ms += 2 * HOUR_MS
        await store.put(paused("on", "more"))
        await decided(store, "decided", "refused", answer=NO)
        assert await outbox.claim(limit=1) == ()
        await store.withdraw(ids["decided"], actor="ana")
        lease = await claimed(store)
        assert lease.record.id == ids["refused"]
        await store.release(lease, refusals={"refused": "no"})
        assert versions(await told(store)) == sorted([(ids["refused"], 1), (ids["on"], 2)])

    through(make, scenario)


def test_what_was_sent_is_not_told_again_when_its_answer_is_refused(make):
    async def scenario(store):
        await store.put(paused("a"))
        (notice,) = await told(store)
        await store.outbox("t").record_delivery(notice)
        await decided(store, "a")
        await store.release(await claimed(store), refusals={"a": "no"})
        assert await told(store) == ()

    through(make, scenario)


def test_the_notices_and_how_far_was_read_are_written_together(make, monkeypatch):
    """One that dies in between has made no notice and read nothing."""

    async def scenario(store):
        record_id = await store.put(paused("a"))
        for statement in ("INSERT INTO codemode_notices", "INSERT INTO codemode_outboxes"):
            with monkeypatch.context() as patched:
                _break_behind(patched, statement)
                with pytest.raises(ZeroDivisionError):
                    await store.outbox("t").fill()
            assert await store.outbox("t").claim() == ()
        assert versions(await told(store)) == [(record_id, 1)]

    through(make, scenario)


def _break_behind(patched, beginning):
    for name in ("run", "execute_many"):
        original = getattr(Session, name)

        def broken(session, statement, *values, original=original):
            done = original(session, statement, *values)
            if statement.startswith(beginning):
                raise ZeroDivisionError
            return done

        patched.setattr(Session, name, broken)


def test_changes_that_tell_nothing_are_read_past(make, monkeypatch):
    monkeypatch.setattr(outboxes, "_MAX_CHANGES", 4)

    async def scenario(store):
        await store.put(paused(*"abcdef"))
        (notice,) = await told(store)
        await store.outbox("t").record_delivery(notice)
        for name in "abcde":
            await decided(store, name)
        assert await store.outbox("t").fill() == 4
        assert await store.outbox("t").fill() == 0
        record_id = await store.put(paused("x"))
        assert versions(await told(store)) == [(record_id, 1)]

    through(make, scenario)


def test_notices_go_with_their_record(make, clock):
    async def scenario(store):
        record_id = await store.put(paused("a"))
        (notice,) = await told(store)
        await store.outbox("t").record_delivery(notice, error="no")
        await store.withdraw(record_id, actor="ana")
        clock.moved_ms += HOUR_MS
        await store.purge(timedelta(minutes=1))
        assert await store.failed_notices([record_id], tenant=ALL_TENANTS) == ()
        assert await store._run_read(lambda session: session.fetch_all("SELECT * FROM codemode_notices")) == []
        assert not await store.outbox("t").record_delivery(notice)

    through(make, scenario)


@each_row("target", ["", "x" * 201, "\0", "\ud800", 5])
def test_what_cannot_name_a_target_is_refused(target):
    with pytest.raises(ValueError, match="target"):
        MemoryInterruptStore().outbox(target)


def test_wrong_numbers_are_refused(make):
    async def scenario(store):
        await store.put(paused("a"))
        outbox = store.outbox("t")
        for wrong in ({"limit": 0}, {"limit": 101}, {"lease_ms": 0}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                await outbox.claim(**wrong)
        (notice,) = await told(store)
        for wrong in ({"retry_ms": 5}, {"retry_ms": -1, "error": "no"}):
            with pytest.raises(ValueError, match="retry_ms"):
                await outbox.record_delivery(notice, **wrong)
        with pytest.raises(ValueError, match="at most 500"):
            await store.failed_notices(map(str, range(501)), tenant=ALL_TENANTS)
        assert await store.failed_notices([], tenant=ALL_TENANTS) == ()
        assert await outbox.record_delivery(notice)

    through(make, scenario)


def test_tables_of_the_version_before_get_their_outbox(kind, make, monkeypatch):
    from codemode.stores import tables

    if kind == "memory":
        pytest.skip("the memory store is not persistent")

    async def scenario():
        with monkeypatch.context() as before:
            before.setattr(tables, "UPGRADES", tables.UPGRADES[:2])
            before.setattr(tables, "_VERSION_3", ())
            async with make() as store:
                record_id = await asyncio.to_thread(put_as_version_2, store._database, paused("a"))
                with pytest.raises(StoreUnavailableError):
                    await store.outbox("t").fill()
        async with make() as store:
            assert versions(await told(store)) == [(record_id, 1)]
            await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)

    within(scenario())
