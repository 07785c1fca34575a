"""What nobody has said the end of goes on as it was begun, and what was not begun is tried again."""

from __future__ import annotations

import pytest
from stored_pauses import NO, OK, Clock, paused
from waiting import until, within

from codemode import CodeModeAbortedError, CodeModeError, CodeModeProtocolError
from codemode.errors import CodeModeWorkerError
from codemode.stores import ALL_TENANTS, MemoryInterruptStore, Resumer, StoreUnavailableError


def through(make, scenario):
    async def run():
        store = make()
        try:
            return await scenario(store)
        finally:
            await store.aclose()

    return within(run())


async def claimed(store):
    lease = await store.claim(owner="me", tenant=ALL_TENANTS)
    assert lease is not None
    return lease


async def taken_over(store, clock):
    """A record whose owner died with the first of two answers, and what was decided meanwhile."""
    record_id = await store.put(paused("a", "b"))
    await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)
    await claimed(store)
    await store.decide({"b": NO}, actor="ana", tenant=ALL_TENANTS)
    clock.moved_ms = 31_000
    return record_id, await claimed(store)


@pytest.mark.parametrize("refusals", [{}, {"a": "no"}])
def test_whoever_gives_a_takeover_back_leaves_its_answers_together(make, clock, refusals):
    async def scenario(store):
        _, second = await taken_over(store, clock)
        assert await store.release(second, refusals=refusals, delay_ms=1000)
        clock.moved_ms += 1000
        # With more answers, or others, the guard would refuse what it may have under these alone.
        third = await claimed(store)
        assert (third.is_takeover, third.resolutions) == (True, {"a": OK})
        assert await store.settle(third, paused("b"))
        last = await claimed(store)
        assert (last.is_takeover, last.resolutions) == (False, {"b": NO})

    through(make, scenario)


def test_the_very_pause_that_was_resumed_gives_the_record_back(make, clock):
    async def scenario(store):
        clock.stop()
        interrupt = paused("a", "b")
        record_id = await store.put(interrupt)
        await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)
        error = CodeModeWorkerError("it was killed before anything began")
        error.recovery = interrupt
        for result in (error, interrupt):
            assert await store.settle(await claimed(store), result)
            record = await store.record(record_id, tenant=ALL_TENANTS)
            assert (record.state, record.version) == ("pending", 1)
            assert [one.state for one in record.requests] == ["decided", "waiting"]
            assert await store.claim(owner="me", tenant=ALL_TENANTS) is None  # not at once
            clock.moved_ms += 6000
        assert (await claimed(store)).resolutions == {"a": OK}

    through(make, scenario)


def resumed_with(*endings):
    """Resume one record until nothing fails any more, and return it with its last value."""

    async def scenario():
        clock, tries = Clock(), []
        store = MemoryInterruptStore(clock=clock)

        async def resume(interrupt, resolutions):
            tries.append(resolutions)
            if len(tries) <= len(endings):
                raise endings[len(tries) - 1]
            return "done"

        record_id = await store.put(paused("a"))
        await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)
        async with Resumer(store, tenant=ALL_TENANTS, resume=resume):
            for number in range(len(endings)):
                await until(lambda number=number: len(tries) > number)
                clock.moved_ms += 6000
            return await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=30_000), tries

    return within(scenario())


@pytest.mark.full
def test_a_database_that_is_away_before_anything_ran_ends_nothing():
    assert resumed_with(StoreUnavailableError("away"), StoreUnavailableError("away")) == ("done", [{"a": OK}] * 3)


def test_what_a_journal_alone_knows_goes_on_with_the_same_answers_once_the_lease_is_over():
    async def scenario():
        clock, tries = Clock(), []
        store = MemoryInterruptStore(clock=clock)

        async def resume(interrupt, resolutions):
            tries.append(resolutions)
            if len(tries) <= 2:
                raise CodeModeAbortedError("it cannot be written", details={"origin": "journal", "is_lost": False})
            return paused("b") if len(tries) == 3 else "done"

        record_id = await store.put(paused("a", "b"))
        await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)
        async with Resumer(store, tenant=ALL_TENANTS, resume=resume):
            await until(lambda: len(tries) == 1)
            await store.decide({"b": NO}, actor="ana", tenant=ALL_TENANTS)
            for number in (2, 3):
                clock.moved_ms += 31_000
                await until(lambda number=number: len(tries) == number)
            return await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=30_000), tries

    assert within(scenario()) == ("done", [{"a": OK}] * 3 + [{"b": NO}])


def test_a_journal_that_another_host_can_read_ends_nothing():
    error = CodeModeProtocolError("it is of another engine", details={"origin": "journal"})
    assert taken_over_with(error) == "pending"


def test_a_call_that_could_not_use_a_database_ends_its_program():
    error = StoreUnavailableError("away")
    error.calls = ({"name": "look"},)
    with pytest.raises(CodeModeError, match="away"):
        resumed_with(error)


@pytest.mark.parametrize(
    "error",
    [
        CodeModeAbortedError("the claim was lost", details={"origin": "continuation"}),
        CodeModeProtocolError("its schema has changed", details={"origin": "continuation"}),
    ],
)
def test_a_takeover_that_can_neither_go_on_nor_ask_is_lost(error):
    assert taken_over_with(error) == "lost"


def taken_over_with(error):
    """Take a record over, fail with this, and return its state."""

    async def scenario():
        clock = Clock()
        store = MemoryInterruptStore(clock=clock)

        async def resume(interrupt, resolutions):
            raise error

        record_id, second = await taken_over(store, clock)
        assert second.is_takeover
        clock.moved_ms += 31_000
        async with Resumer(store, tenant=ALL_TENANTS, resume=resume):
            changes = store.changes(tenant=ALL_TENANTS)
            while (await anext(changes)).kind not in ("lost", "released"):
                pass
            await changes.aclose()
        return (await store.record(record_id, tenant=ALL_TENANTS)).state

    return within(scenario())
