"""Programs that rest: held by one owner, listed on demand alone, taken over by whoever waits for them elsewhere."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_pauses import HOUR_MS, NO, OK, Catalog, Clock, paused
from suite import rounds
from waiting import within

from codemode import CodeModeError, CodeModeToolError
from codemode.errors import CodeModeWorkerError
from codemode.stores import (
    ALL_TENANTS,
    AlreadyDecidedError,
    MemoryInterruptStore,
    RecordExpiredError,
    RecordLostError,
    RecordWithdrawnError,
    RequestSettledError,
    RequestSupersededError,
    Resumer,
    UnknownRequestError,
)

ALL = ALL_TENANTS


def through(make, scenario):
    async def run():
        async with make() as store:
            return await scenario(store)

    return within(run())


async def taken(store, record_id, owner="other"):
    return await store.claim(owner=owner, tenant=ALL, record_id=record_id)


async def state(store, record_id):
    return (await store.record(record_id, tenant=ALL)).state


def test_a_rest_is_kept_with_its_owner_and_asks_nobody(make):
    async def scenario(store):
        unknown = paused("a")
        lease = await store.put_suspended(
            unknown, owner="o", tool="exec", tenant="acme", app="x", labels={"scope": "s"}, source="js", payload=[1]
        )
        record = await store.record(lease.record.id, tenant="acme")
        assert record == lease.record
        assert (record.state, record.version, record.versions, record.requests) == ("resting", 0, (), ())
        assert (record.outer_tool, record.labels, record.source, record.payload) == ("exec", {"scope": "s"}, "js", [1])
        assert (lease.interrupt, lease.resolutions, lease.is_takeover, lease.owner) == (unknown, {}, False, "o")
        assert (await store.list(tenant=ALL)).records == ()
        assert [one.id for one in (await store.list(tenant="acme", state="resting")).records] == [record.id]
        assert await store.get("a", tenant=ALL) is None
        for ask in (store.record(record.id, tenant="evil"), store.decide({"a": OK}, actor="x", tenant=ALL)):
            with pytest.raises(UnknownRequestError):
                await ask
        with pytest.raises(UnknownRequestError):
            await store.claim(owner="o", tenant="evil", record_id=record.id)

    through(make, scenario)


def test_each_rest_replaces_what_is_gone_on_from(make, clock):
    async def scenario(store):
        lease = await store.put_suspended(paused(), owner="o", payload=[1])
        clock.moved_ms = 20_000
        second = await store.put_suspended(later := paused("a"), lease=lease, payload=[2])
        clock.moved_ms = 45_000  # the lease begins anew with each
        third = await store.put_suspended(latest := paused(), lease=second)
        assert await taken(store, lease.record.id) is None
        assert (second.interrupt, third.interrupt, third.number) == (later, latest, lease.number)
        record = await store.record(lease.record.id, tenant=ALL)
        assert (record.payload, record.version, record.requests) == ([2], 0, ())
        clock.moved_ms = 80_000
        assert (await taken(store, record.id)).interrupt == latest
        assert [one.kind for one in await first_changes(store, 2)] == ["rested", "claimed"]

    through(make, scenario)


async def first_changes(store, count):
    changes, found = store.changes(tenant=ALL), []
    async for change in changes:
        found.append(change)
        if len(found) == count:
            await changes.aclose()
            return found
    raise AssertionError("changes never end")


def test_a_program_is_taken_over_once_its_owner_is_gone(make, clock):
    async def scenario(store):
        clock.stop()
        lease = await store.put_suspended(interrupt := paused("a"), owner="o")
        record_id = lease.record.id
        clock.moved_ms = 29_000
        assert await store.renew(lease)
        clock.moved_ms = 58_000
        assert await taken(store, record_id) is None
        clock.moved_ms = 60_000
        second = await taken(store, record_id)
        assert (second.is_takeover, second.interrupt, second.resolutions) == (True, interrupt, {})
        assert (second.owner, second.record.state) == ("other", "resting")
        assert await taken(store, record_id, "third") is None
        # The first one comes back: nothing of it counts.
        assert not await store.renew(lease)
        assert await store.put_suspended(paused("x"), lease=lease) is None
        assert not await store.settle(lease, 1)
        assert not await store.release(lease)
        assert not await store.mark_lost(lease)
        assert (await store.record(record_id, tenant=ALL)).state == "resting"
        assert await store.settle(second, [2])
        assert await store.outcome(record_id, tenant=ALL) == [2]
        with pytest.raises(RequestSettledError):
            await taken(store, record_id)

    through(make, scenario)


def test_no_resumer_takes_one(make, clock):
    async def scenario(store):
        resumed = []

        async def resume(interrupt, resolutions):
            resumed.append(interrupt)

        lease = await store.put_suspended(paused(), owner="o")
        clock.moved_ms = HOUR_MS
        assert await store.claim(owner="r", tenant=ALL) is None
        waits = await store.put(paused("b"))
        await store.decide({"b": OK}, actor="ana", tenant=ALL)
        async with Resumer(store, tenant=ALL, resume=resume):
            await store.outcome(waits, tenant=ALL, timeout_ms=30_000)
        assert len(resumed) == 1
        assert await state(store, lease.record.id) == "resting"

    through(make, scenario)


def test_whoever_waits_elsewhere_has_what_the_owner_settles(make):
    async def scenario(store):
        other = make()
        for result in ({"n": 2**70}, CodeModeToolError("no")):
            lease = await store.put_suspended(paused(), owner="o", tenant="acme")
            waits = asyncio.create_task(other.outcome(lease.record.id, tenant="acme", timeout_ms=60_000))
            with pytest.raises(TimeoutError):
                await other.outcome(lease.record.id, tenant="acme", timeout_ms=1)
            assert await store.settle(lease, result)
            if isinstance(result, Exception):
                with pytest.raises(CodeModeToolError, match=r"^no$"):
                    await waits
            else:
                assert await waits == result
        await other.aclose()

    through(make, scenario)


SCHEMA = {"type": "object", "properties": {"order": {"type": "string"}}}


def test_it_becomes_pending_when_it_comes_to_ask(make):
    async def scenario(store):
        lease = await store.put_suspended(paused("x"), owner="o", tenant="acme")
        record_id = lease.record.id
        assert await store.settle(lease, asks := paused("a", "b"), tool=Catalog(SCHEMA))
        record = await store.record(record_id, tenant="acme")
        assert (record.state, record.version) == ("pending", 1)
        assert [(one.interrupt_id, one.state) for one in record.requests] == [("a", "waiting"), ("b", "waiting")]
        assert [one.interrupt_ids for one in record.versions] == [("a", "b")]
        assert record.requests[0].input_schema == SCHEMA  # of the tool that was named
        assert await store.get("a", tenant="acme") == asks
        assert not await store.renew(lease)
        # By its id too nobody takes what waits for a person.
        assert await taken(store, record_id) is None
        await store.decide({"a": OK}, actor="ana", tenant="acme")
        resuming = await taken(store, record_id)
        assert (resuming.record.state, resuming.is_takeover, resuming.resolutions) == ("resuming", False, {"a": OK})
        assert await store.claim(owner="r", tenant=ALL) is None

    through(make, scenario)


def test_a_recovery_that_asks_nobody_goes_on_by_itself(make):
    async def scenario(store):
        lease = await store.put_suspended(paused(), owner="o")
        cut_off = CodeModeWorkerError("the worker died")
        cut_off.recovery = paused()
        assert await store.settle(lease, cut_off)
        assert (await store.claim(owner="r", tenant=ALL)).record.id == lease.record.id

    through(make, scenario)


def test_what_is_resumed_may_rest_and_loses_no_decision(make, clock):
    async def scenario(store):
        record_id = await store.put(paused("a", "b", "c"))
        await store.decide({"a": OK}, actor="ana", tenant=ALL)
        lease = await store.claim(owner="o", tenant=ALL)
        await store.decide({"b": NO}, actor="bob", tenant=ALL)  # meanwhile
        lease = await store.put_suspended(paused("b", "c"), lease=lease)
        record = await store.record(record_id, tenant=ALL)
        assert (record.state, [one.state for one in record.requests]) == ("resting", ["applied", "decided", "waiting"])
        with pytest.raises(AlreadyDecidedError):
            await store.decide({"a": NO}, actor="bob", tenant=ALL)
        await store.decide({"c": OK}, actor="eve", tenant=ALL)
        assert await store.claim(owner="r", tenant=ALL) is None  # none of it is applied while it rests
        with pytest.raises(RequestSupersededError):
            await store.put(paused("b", "d"))
        with pytest.raises(CodeModeError, match="suspended"):
            await store.answer("c", OK, None, actor="eve")
        assert await store.renew(lease)
        assert await store.settle(lease, paused("b", "c", "e"))
        assert (await store.claim(owner="r", tenant=ALL)).resolutions == {"b": NO, "c": OK}

    through(make, scenario)


def test_an_answer_to_what_is_not_asked_any_more_is_refused(make):
    async def scenario(store):
        await store.put(paused("a", "b"))
        await store.put(paused("b"))
        await store.decide({"b": OK}, actor="ana", tenant=ALL)
        lease = await store.claim(owner="o", tenant=ALL)
        await store.put_suspended(paused(), lease=lease)
        with pytest.raises(RequestSupersededError):
            await store.decide({"a": OK}, actor="ana", tenant=ALL)
        assert (await store.decide({"b": OK}, actor="ana", tenant=ALL))["b"].state == "applied"  # the first decision

    through(make, scenario)


def test_an_owner_that_leaves_lets_others_have_it_at_once(make, clock):
    async def scenario(store):
        clock.stop()
        lease = await store.put_suspended(paused(), owner="o")
        assert await store.release(lease)
        assert not await store.renew(lease)
        second = await taken(store, lease.record.id)
        assert (second.owner, second.number > lease.number) == ("other", True)
        assert await store.release(second, delay_ms=5_000)
        assert await taken(store, lease.record.id) is None
        clock.moved_ms = 5_000
        assert await taken(store, lease.record.id) is not None

    through(make, scenario)


def test_rests_come_to_ends_that_are_none_of_the_program(make, clock):
    async def scenario(store):
        gone = await store.put_suspended(paused("a"), owner="o")
        lost = await store.put_suspended(paused("b"), owner="o")
        expires = await store.put_suspended(paused("c", age_ms=HOUR_MS), owner="o")
        await store.withdraw(gone.record.id, actor="ana", reason="aborted")
        assert not await store.renew(gone)
        with pytest.raises(RecordWithdrawnError, match="aborted"):
            await store.outcome(gone.record.id, tenant=ALL)
        assert await store.mark_lost(lost)
        with pytest.raises(RecordLostError):
            await taken(store, lost.record.id)
        clock.moved_ms = HOUR_MS
        for sweeps in (0, 1):
            with pytest.raises(RecordExpiredError):
                await taken(store, expires.record.id)
            assert await store.sweep() == 1 - sweeps
        assert not await store.renew(expires)
        assert await store.put_suspended(paused(), lease=expires) is None
        clock.moved_ms = 3 * HOUR_MS
        assert await store.purge(timedelta(hours=1)) == 2

    through(make, scenario)


def test_wrong_arguments(make):
    async def scenario(store):
        lease = await store.put_suspended(paused(), owner="o")
        for wrong in ({}, {"owner": "o", "lease": lease}, {"owner": "\0"}, {"owner": "o", "lease_ms": 0}):
            with pytest.raises(ValueError, match=r"owner|lease"):
                await store.put_suspended(paused(), **wrong)
        for more in ({"owner": "o"}, {"lease": lease}):
            with pytest.raises(CodeModeError, match="payload"):
                await store.put_suspended(paused(), payload="x" * ((16 << 20) + 1), **more)
        assert len((await store.list(tenant=ALL, state="resting")).records) == 1

    through(make, scenario)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["rest", "renew", "take", "take", "settle", "ask", "decide", "claim", "release"]),
        st.integers(0, 2),
        st.sampled_from([0, 0, 10_000, 31_000]),
    ),
    min_size=4,
    max_size=30,
)


class Hosts:
    """Three hosts that go on with one program, each with the last lease that it was given."""

    def __init__(self, store, clock):
        self.store, self.clock = store, clock
        self.leases = {}
        self.holder, self.until_ms = None, 0
        self.ended = 0

    def held(self, host, lease):
        if lease is None:
            return
        # Nobody is given what another one holds.
        now_ms = self.clock.moved_ms
        assert self.holder in (None, host) or self.until_ms <= now_ms
        self.leases[host], self.holder, self.until_ms = lease, host, now_ms + lease.lease_ms

    async def step(self, what, host, record_id):
        store, lease = self.store, self.leases.get(host)
        if what == "take":
            self.held(host, await store.claim(owner=str(host), tenant=ALL, record_id=record_id))
        elif what == "claim":
            self.held(host, await store.claim(owner=str(host), tenant=ALL))
        elif what == "decide":
            await store.decide({"a": OK}, actor="ana", tenant=ALL)
        elif lease is not None:
            await self.go_on(what, host, lease)

    async def go_on(self, what, host, lease):
        store = self.store
        if what == "rest":
            rested = await store.put_suspended(paused(), lease=lease)
            assert (rested is not None) == (self.holder == host)
            self.held(host, rested)
            return
        does = {
            "renew": lambda: store.renew(lease),
            "settle": lambda: store.settle(lease, host),
            "ask": lambda: store.settle(lease, paused("a")),
            "release": lambda: store.release(lease),
        }
        done = await does[what]()
        assert done == (self.holder == host)
        if done and what == "renew":
            self.until_ms = self.clock.moved_ms + lease.lease_ms
        elif done:
            self.holder = None
            self.ended += what == "settle"


@settings(max_examples=rounds(25, 60), deadline=None)
@given(STEPS)
def test_whatever_hosts_do_one_holds_a_program_and_it_ends_once(steps):
    async def scenario():
        clock = Clock()
        start_ms = clock.now_ms()
        clock.now_ms = lambda: start_ms + clock.moved_ms
        store = MemoryInterruptStore(clock=clock)
        hosts = Hosts(store, clock)
        hosts.held(0, await store.put_suspended(paused(age_ms=1000 * HOUR_MS), owner="0"))
        record_id = hosts.leases[0].record.id
        for what, host, more_ms in steps:
            clock.moved_ms += more_ms
            try:
                await hosts.step(what, host, record_id)
            except CodeModeError as error:
                assert isinstance(error, RequestSettledError | UnknownRequestError | AlreadyDecidedError), error
        assert hosts.ended <= 1
        assert (await state(store, record_id) == "completed") == (hosts.ended == 1)

    within(scenario())
