"""Records that are lost, and those that a host cannot resume: what they come to, and because of whom."""

from __future__ import annotations

import asyncio

import pytest
from stored_pauses import HOUR_MS, NO, OK, paused
from waiting import within

from codemode import CodeModeAbortedError, CodeModeError, CodeModeProtocolError
from codemode.continuations.guard import Claim
from codemode.stores import ALL_TENANTS, RecordExpiredError, RequestSettledError, Resumer, UnknownRequestError

ALL = ALL_TENANTS


def through(make, scenario):
    async def run():
        async with make() as store:
            return await scenario(store)

    return within(run())


async def lost(store, *, age_ms=30 * HOUR_MS, tenant=""):
    """A record whose host died over it, as far as anybody knows, and its interrupt."""
    record_id = await store.put(interrupt := paused("a", "b", age_ms=age_ms), tenant=tenant)
    await store.decide({"a": OK}, actor="ana", tenant=ALL)
    lease = await store.claim(owner="dead", tenant=ALL)
    assert await store.mark_lost(lease)
    return record_id, interrupt, lease


async def seen(store, kind, times=1):
    changes, left = store.changes(tenant=ALL), times
    async for change in changes:
        left -= change.kind == kind
        if not left:
            await changes.aclose()
            return


async def lines(store, record_id):
    return [line async for line in store.audit(tenant=ALL, record_id=record_id)]


def test_a_lost_record_is_run_again_with_its_answers_because_somebody_said_so(make):
    async def scenario(store):
        record_id, interrupt, dead = await lost(store, tenant="acme")
        with pytest.raises(UnknownRequestError):
            await store.run_again(record_id, actor="ana", tenant="evil")
        assert await store.claim(owner="o", tenant=ALL) is None
        await store.run_again(record_id, actor="ana", reason="the provider has none", address="::1", tenant="acme")
        record = await store.record(record_id, tenant=ALL)
        assert (record.state, [one.state for one in record.requests]) == ("pending", ["decided", "waiting"])
        line = (await lines(store, record_id))[-1]
        assert (line.kind, line.actor, line.reason, line.address) == (
            "run_again",
            "ana",
            "the provider has none",
            "::1",
        )
        lease = await store.claim(owner="o", tenant=ALL)
        assert (lease.interrupt, lease.resolutions, lease.is_takeover) == (interrupt, {"a": OK}, False)
        assert not await store.settle(dead, "late")
        assert await store.settle(lease, 1)
        assert await store.outcome(record_id, tenant=ALL) == 1
        with pytest.raises(RequestSettledError):
            await store.run_again(record_id, actor="ana")

    through(make, scenario)


def test_what_the_guard_knows_of_the_one_that_died_is_forgotten(make):
    async def scenario(store):
        record_id, interrupt, _ = await lost(store)
        claim = Claim(interrupt.continuation["auth"]["nonce"], "answers", interrupt.continuation["auth"]["expiresAtMs"])
        assert await store.guard.claim(claim) is None
        await store.run_again(record_id, actor="ana")
        assert await asyncio.wait_for(store.guard.claim(claim), 20) is None

    through(make, scenario)


def test_what_it_came_to_is_not_forgotten(make):
    async def scenario(store):
        record_id, interrupt, _ = await lost(store)
        claim = Claim(interrupt.continuation["auth"]["nonce"], "answers", interrupt.continuation["auth"]["expiresAtMs"])
        assert await store.guard.claim(claim) is None
        await store.guard.record(claim.key, "its outcome")
        await store.run_again(record_id, actor="ana")
        assert await store.guard.claim(claim) == "its outcome"

    through(make, scenario)


def test_only_what_is_lost_is_run_again_and_only_while_it_holds(make, clock):
    async def scenario(store):
        waits = await store.put(paused("x"))
        rests = (await store.put_suspended(paused(), owner="o")).record.id
        record_id, _, _ = await lost(store, age_ms=HOUR_MS)
        for one in (waits, rests):
            with pytest.raises(CodeModeError, match=r"pending|resting"):
                await store.run_again(one, actor="ana")
        clock.moved_ms = HOUR_MS
        with pytest.raises(RecordExpiredError, match="expired"):
            await store.run_again(record_id, actor="ana")
        await store.close_lost(record_id, actor="ana")  # that is what is left
        before = await lines(store, record_id)
        for one in (record_id, "0" * 32):
            with pytest.raises(CodeModeError):
                await store.run_again(one, actor="ana")
        assert await lines(store, record_id) == before

    through(make, scenario)


def refused(message, **details):
    return CodeModeProtocolError(message, details={"origin": "continuation", **details})


def foreign(message="it is not for this host"):
    return refused(message, not_resumable=True)


def test_what_a_host_cannot_resume_says_why_and_keeps_its_answers(make, clock):
    async def scenario(store):
        record_id = await store.put(paused("a", "b"), tenant="acme")
        await store.decide({"a": OK}, actor="ana", tenant=ALL)
        assert await store.release(await store.claim(owner="o", tenant=ALL), not_resumable="another key\0")
        record = await store.record(record_id, tenant="acme")
        assert (record.state, record.not_resumable) == ("pending", "another key\0")
        assert [one.state for one in record.requests] == ["decided", "waiting"]
        assert (await store.list(tenant="acme")).records[0].not_resumable == "another key\0"
        assert await store.claim(owner="o", tenant=ALL) is None
        clock.moved_ms = 5_000
        lease = await store.claim(owner="better", tenant=ALL)
        assert lease.resolutions == {"a": OK}
        assert await store.settle(lease, paused("b"))
        assert (await store.record(record_id, tenant=ALL)).not_resumable is None

    through(make, scenario)


@pytest.mark.parametrize("result", [{"done": True}, CodeModeAbortedError("it was stopped")])
def test_an_end_that_one_host_has_come_to_says_no_more_that_another_could_not(make, result):
    async def scenario(store):
        record_id = await store.put(paused("a"), tenant="acme")
        await store.decide({"a": OK}, actor="ana", tenant=ALL)
        assert await store.release(await store.claim(owner="o", tenant=ALL), not_resumable="another key")
        await store.run_again(record_id, actor="ana")
        assert await store.settle(await store.claim(owner="better", tenant=ALL), result)
        record = await store.record(record_id, tenant="acme")
        assert (record.state in ("completed", "failed"), record.not_resumable) == (True, None)

    through(make, scenario)


def test_it_is_tried_less_and_less_often_and_at_once_where_somebody_says_so(make, clock):
    async def scenario(store):
        clock.stop()
        record_id = await store.put(paused("a", age_ms=1000 * HOUR_MS))
        await store.decide({"a": OK}, actor="ana", tenant=ALL)
        waits = []
        for _ in range(10):
            assert await store.release(await store.claim(owner="o", tenant=ALL), not_resumable="no")
            before = clock.moved_ms
            while await store.claim(owner="o", tenant=ALL, lease_ms=1) is None:
                clock.moved_ms += 5_000
            waits.append((clock.moved_ms - before) // 1000)
            clock.moved_ms += 1000
        assert waits == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]
        assert await store.release(await store.claim(owner="o", tenant=ALL), not_resumable="no")
        await store.run_again(record_id, actor="ana")
        assert (await store.claim(owner="o", tenant=ALL)).resolutions == {"a": OK}

    through(make, scenario)


def test_a_takeover_that_no_host_can_resume_is_lost_when_it_expires(make, clock):
    async def scenario(store):
        begun, waits = [await store.put(paused(one, age_ms=HOUR_MS)) for one in ("a", "b")]
        await store.decide({"a": OK}, actor="ana", tenant=ALL)
        await store.claim(owner="dead", tenant=ALL)
        clock.moved_ms = 31_000
        assert await store.release(await store.claim(owner="o", tenant=ALL), not_resumable="another key")
        assert (await store.record(begun, tenant=ALL)).requests[0].state == "decided"
        clock.moved_ms = HOUR_MS
        assert await store.sweep() == 2
        states = [(await store.record(one, tenant=ALL)).state for one in (begun, waits)]
        assert states == ["lost", "expired"]

    through(make, scenario)


def test_a_resumer_tells_a_host_that_cannot_from_answers_that_do_not_fit(make):
    async def scenario(store):
        tried = []
        errors = {"a": foreign(), "b": refused("it does not fit"), "c": foreign("no recovery")}

        async def resume(interrupt, resolutions):
            tried.append(interrupt)
            raise errors[next(iter(resolutions), "c")]

        ids = [await store.put(paused("a")), await store.put(paused("b")), await store.put(paused())]
        await store.decide({"a": NO, "b": NO}, actor="ana", tenant=ALL)
        async with Resumer(store, tenant=ALL, resume=resume):
            await seen(store, "released", 3)
        first, second, third = [await store.record(one, tenant=ALL) for one in ids]
        assert (first.not_resumable, first.requests[0].state) == ("it is not for this host", "decided")
        assert (second.not_resumable, second.requests[0].state) == (None, "waiting")
        assert second.requests[0].refusal == "it does not fit"
        # Of a recovery that asks nobody the end would be that of the program.
        assert (third.not_resumable, third.state) == ("no recovery", "pending")
        assert len(tried) == 3

    through(make, scenario)


def test_whoever_answers_there_is_told_and_the_request_waits_again(make):
    async def scenario(store):
        record_id = await store.put(paused("a"))

        async def resume(interrupt, resolutions):
            raise foreign()

        with pytest.raises(CodeModeProtocolError, match="not for this host"):
            await store.answer("a", OK, resume, actor="ana")
        record = await store.record(record_id, tenant=ALL)
        assert (record.not_resumable, record.requests[0].state) == ("it is not for this host", "waiting")

        async def other(interrupt, resolutions):
            return 1

        assert await store.answer("a", OK, other, actor="ana") == 1

    through(make, scenario)


def test_a_takeover_that_cannot_say_is_lost_and_not_run_again_by_itself(make, clock):
    async def scenario(store):
        record_id = await store.put(paused("a"))
        await store.decide({"a": OK}, actor="ana", tenant=ALL)
        await store.claim(owner="dead", tenant=ALL)
        clock.moved_ms = 31_000

        async def resume(interrupt, resolutions):
            raise CodeModeAbortedError("nobody knows", details={"origin": "continuation"})

        async with Resumer(store, tenant=ALL, resume=resume):
            await seen(store, "lost")
        assert (await store.record(record_id, tenant=ALL)).state == "lost"
        assert [line.kind for line in await lines(store, record_id)][-1] == "lost"

    through(make, scenario)
