"""What every store promises of content: kept beside records and journals, for its tenant, as long as these need it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from stored_pauses import HOUR_MS, Clock, paused
from waiting import within

from codemode import MediaContent
from codemode.continuations.journal import MemoryJournal
from codemode.stores import ALL_TENANTS, StoreUnavailableError, tables
from codemode.types import ContentResult

DAY_MS, LAPSED_MS = 24 * HOUR_MS, 60_000
NOW = timedelta(0)
SAID, DATA = '{"name": "\\ud800"}', bytes(range(256))


def through(make, scenario):
    async def run():
        async with make() as store:
            await scenario(store)

    within(run())


def content_of(store, tenant="acme", app="support"):
    return store.journal(tenant=tenant, app=app)


def nonce_of(interrupt):
    return interrupt.continuation["auth"]["nonce"]


def test_what_was_put_is_there_for_its_run_and_tenant_alone_and_stays_as_it_is(make):
    async def scenario(store):
        for content in (store.guard.content_store, content_of(store)):
            await content.put_content("run", "part", SAID, DATA)
            await content.put_content("run", "part", "other", b"other")
            await content.put_content("run", "empty", "{}", b"")
        again = make()
        for content in (again.guard.content_store, content_of(again)):
            assert await content.get_content("run", "part") == (SAID, DATA)
            assert await content.get_content("run", "empty") == ("{}", b"")
            assert await content.get_content("run", "none") is None
            assert await content.get_content("another", "part") is None
        for tenant, app in (("other", "support"), ("acme", "other"), ("", "support")):
            assert await content_of(again, tenant, app).get_content("run", "part") is None

    through(make, scenario)


def test_many_are_kept_at_once(make):
    async def scenario(store):
        content = content_of(store)
        numbers = [*range(12), *range(6)]
        await asyncio.gather(*(content.put_content("run", str(one), "{}", bytes([one])) for one in numbers))
        assert [await content.get_content("run", str(one)) for one in range(12)] == [
            ("{}", bytes([at])) for at in range(12)
        ]

    through(make, scenario)


def test_a_record_has_its_content_until_it_is_purged(make, clock):
    async def scenario(store):
        content, interrupt = store.guard.content_store, paused("a")
        await content.put_content("run", "part", SAID, DATA)
        await content.put_content("other", "part", SAID, DATA)
        await content.hold_content("run", nonce=nonce_of(interrupt), until_ms=clock.now_ms() + HOUR_MS)
        await store.put(interrupt, tenant="acme")
        clock.moved_ms += 2 * DAY_MS  # the pause holds no more, and is still shown
        await store.purge(NOW)
        assert await content.get_content("run", "part") == (SAID, DATA)
        assert await content.get_content("other", "part") is None
        assert await store.sweep() == 1
        await store.purge(timedelta(days=1))
        assert await content.get_content("run", "part") is not None
        await store.purge(NOW)
        assert await content.get_content("run", "part") is None

    through(make, scenario)


def test_a_pause_that_no_record_has_keeps_its_content_until_it_expires(make, clock):
    async def scenario(store):
        content = store.guard.content_store
        await content.put_content("run", "part", SAID, DATA)
        await content.hold_content("run", nonce="b" * 32, until_ms=clock.now_ms() + 3 * DAY_MS)
        clock.moved_ms += 2 * DAY_MS
        await store.purge(NOW)
        assert await content.get_content("run", "part") is not None
        await content.hold_content("run", nonce="c" * 32, until_ms=clock.now_ms() + 3 * DAY_MS)
        clock.moved_ms += 2 * DAY_MS
        await store.purge(NOW)
        assert await content.get_content("run", "part") is not None
        clock.moved_ms += 2 * DAY_MS
        await store.purge(NOW)
        assert await content.get_content("run", "part") is None

    through(make, scenario)


async def journaled(journal, purge, clock):
    opened = await journal.open("key", "head")
    await journal.put_content("run", "part", SAID, DATA)
    await journal.hold_content("run", journal="key")
    for _ in range(3):
        clock.moved_ms += DAY_MS
        assert await journal.renew(opened)
        await purge()
    assert await journal.end(opened, "outcome", is_final=True)
    assert await journal.get_content("run", "part") == (SAID, DATA)  # whoever asks again is given it
    await journal.hold_content("run", nonce="d" * 32, until_ms=clock.now_ms() + DAY_MS)
    clock.moved_ms += LAPSED_MS
    await purge()
    assert await journal.get_content("run", "part") == (SAID, DATA)  # a pause can still be gone on from
    clock.moved_ms += DAY_MS
    await purge()
    assert await journal.get_content("run", "part") is None


def test_a_journal_has_its_content_until_it_is_purged(make, clock):
    async def scenario(store):
        # Of others with a journal of the same key nothing goes.
        others = content_of(store, tenant="other")
        await others.put_content("run", "part", SAID, DATA)
        await others.hold_content("run", journal="key")
        await journaled(content_of(store, "acme"), lambda: store.purge(timedelta(minutes=1)), clock)
        assert await others.get_content("run", "part") == (SAID, DATA)

    through(make, scenario)


class Moved(Clock):
    """One by which leases are over too."""

    def monotonic_seconds(self):
        return self.now_ms() / 1000


def test_so_has_one_in_memory():
    clock = Moved()
    journal = MemoryJournal(lease_ms=30_000, clock=clock)
    within(journaled(journal, lambda: journal.purge(timedelta(minutes=1)), clock))


def test_what_nothing_holds_yet_stays_for_a_day(make, clock):
    async def scenario(store):
        content = content_of(store)
        await content.put_content("run", "part", SAID, DATA)
        clock.moved_ms += DAY_MS - HOUR_MS
        await content.put_content("run", "more", SAID, DATA)
        clock.moved_ms += DAY_MS - HOUR_MS
        await store.purge(NOW)
        assert await content.get_content("run", "part") is not None
        clock.moved_ms += 2 * HOUR_MS
        await store.purge(NOW)
        assert [await content.get_content("run", one) for one in ("part", "more")] == [None, None]

    through(make, scenario)


def test_tables_of_the_version_before_get_theirs(kind, make, monkeypatch):
    if kind == "memory":
        pytest.skip("the memory store is not persistent")

    async def scenario():
        with monkeypatch.context() as before:
            before.setattr(tables, "UPGRADES", tables.UPGRADES[:3])
            async with make() as store:
                record_id = await store.put(paused("a"))
                with pytest.raises(StoreUnavailableError):
                    await store.guard.content_store.put_content("run", "part", SAID, DATA)
        async with make() as store:
            await store.guard.content_store.put_content("run", "part", SAID, DATA)
            assert (await store.record(record_id, tenant=ALL_TENANTS)).id == record_id

    within(scenario())


def test_the_outcome_of_a_record_says_what_there_was_of_content(make):
    picture = MediaContent(b"\x89PNG\xff", "image/png")

    async def scenario(store):
        for result in ({"picture": picture}, ContentResult({"picture": picture}, (picture,))):
            record_id = await store.put(paused("a" if isinstance(result, dict) else "b"))
            request_id = (await store.record(record_id, tenant=ALL_TENANTS)).requests[0].interrupt_id

            async def resume(_interrupt, resolutions, result=result):
                return result

            await store.answer(request_id, {"approved": True}, resume)
            said = {"picture": {"content": 1, **picture.description}}
            assert await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=60_000) == said

    through(make, scenario)
