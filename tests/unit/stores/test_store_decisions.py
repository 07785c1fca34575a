"""What every store promises of decisions: each is made once, fits what was asked, and is taken with a lease."""

from __future__ import annotations

import asyncio

import pytest
from stored_pauses import HOUR_MS, NO, OK, Catalog, paused, request
from test_store_contract import SCHEMA, claimed, decided, through

from codemode import CodeModeError
from codemode.stores import (
    ALL_TENANTS,
    AlreadyDecidedError,
    AnswerRefusedError,
    RecordExpiredError,
    RequestSettledError,
    RequestSupersededError,
    UnknownRequestError,
)


def test_a_decision_is_made_once(make):
    async def scenario(store):
        record_id = await store.put(paused("a", "b"))
        edited = {"approved": True, "input": {"cents": 1, "order": "z"}}
        first = await store.decide({"a": edited}, actor="ana", tenant=ALL_TENANTS)
        again = await make().decide({"a": edited}, actor="bob", tenant=ALL_TENANTS)
        assert first == again
        assert (first["a"].actor, first["a"].decision, first["a"].state) == ("ana", edited, "decided")
        with pytest.raises(ValueError, match="at most 1000"):
            await store.decide({str(one): OK for one in range(1001)}, actor="bob", tenant=ALL_TENANTS)
        # All or none: the new one of two is not recorded beside one that is refused.
        with pytest.raises(AlreadyDecidedError, match="ana") as raised:
            await store.decide({"b": OK, "a": NO}, actor="bob", tenant=ALL_TENANTS)
        assert (raised.value.details["actor"], raised.value.details["decision"]) == ("ana", edited)
        states = [one.state for one in (await store.record(record_id, tenant=ALL_TENANTS)).requests]
        assert states == ["decided", "waiting"]

    through(make, scenario)


def test_an_answer_to_what_waits_again_meanwhile_is_looked_at_anew(make, monkeypatch):
    wrong = {"approved": True, "input": {"order": 5}}

    async def scenario(store):
        record_id = await store.put(paused("a"), tool=Catalog(SCHEMA))
        lease, looked = None, store._validate_and_encode_decisions

        async def before_it_waits_again(*asked):
            nonlocal lease
            found = await looked(*asked)
            if lease is not None:
                given_back, lease = lease, None
                await store.release(given_back, refusals={"a": "no"})
            return found

        monkeypatch.setattr(store, "_validate_and_encode_decisions", before_it_waits_again)
        for decide in (
            lambda: store.decide({"a": wrong}, actor="bob", tenant=ALL_TENANTS),
            lambda: store.answer("a", wrong, lambda *_: None, actor="bob"),
        ):
            await decided(store, "a")
            lease = await claimed(store)
            with pytest.raises(AnswerRefusedError):
                await decide()
            (one,) = (await store.record(record_id, tenant=ALL_TENANTS)).requests
            assert (one.state, one.decision) == ("waiting", None)
        assert [line.decision async for line in store.audit(tenant=ALL_TENANTS) if line.kind == "decided"] == [
            "approved"
        ] * 2

    through(make, scenario)


def test_two_people_who_decide_at_once_decide_once(make):
    async def scenario(store):
        await store.put(paused("a"))
        stores = [store, make(), make()]
        answers = [{"approved": True, "reason": str(number)} for number in range(9)]
        work = [
            stores[number % 3].decide({"a": answer}, actor=f"p{number}", tenant=ALL_TENANTS)
            for number, answer in enumerate(answers)
        ]
        done = await asyncio.gather(*work, return_exceptions=True)
        (won,) = [one for one in done if isinstance(one, dict)]
        assert all(isinstance(one, AlreadyDecidedError) for one in done if one is not won)
        assert won["a"].decision == answers[int(won["a"].actor[1:])]
        for one in stores[1:]:
            await one.aclose()

    through(make, scenario)


def test_what_was_shown_is_what_is_decided(make):
    async def scenario(store):
        record_id = await store.put(paused(request("a", given={"x": 1})))
        (stored,) = (await store.record(record_id, tenant=ALL_TENANTS)).requests
        shown = store.compute_display_digest(stored)
        assert shown == store.compute_display_digest(request("a", given={"x": 1}))
        for other in (
            request("a", given={"x": 2}),
            request("a", given={"x": True}),
            request("a", given={"x": 1}, kind="k"),
        ):
            with pytest.raises(RequestSupersededError):
                await store.decide(
                    {"a": OK}, actor="ana", tenant=ALL_TENANTS, seen={"a": store.compute_display_digest(other)}
                )
        for nothing in (None, "", 5):  # a form that has lost what it was given
            with pytest.raises(RequestSupersededError):
                await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS, seen={"a": nothing})
        await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS, seen={"a": shown})

    through(make, scenario)


@pytest.mark.parametrize(
    ("answer", "problems"),
    [
        ({"approved": True, "input": {"order": 1, "cents": "x", "more": 1}}, 3),
        ({"approved": True, "input": None}, 1),
        ({"approved": False, "input": {"order": "a", "cents": 1}}, 1),
        ({"approved": "yes"}, 1),
        ({"approved": True, "by": "me"}, 1),
        ({}, 1),
        (True, 1),
        (None, 1),
        ({"approved": True, "input": {"order": "a", "cents": object()}}, 1),
    ],
)
def test_an_answer_that_does_not_fit_uses_nothing_up(make, answer, problems):
    async def scenario(store):
        await store.put(paused("a", "b"), tool=Catalog(SCHEMA))
        with pytest.raises(AnswerRefusedError) as raised:
            await store.decide({"b": OK, "a": answer}, actor="ana", tenant=ALL_TENANTS)
        assert len(raised.value.details["problems"]["a"]) == problems
        await decided(store, "a", "b", answer={"approved": True, "input": {"order": "a", "cents": str(2**60)}})

    through(make, scenario)


def test_what_cannot_be_decided_any_more_says_why(make, clock):
    async def scenario(store):
        records = [await store.put(paused(name, age_ms=10 * HOUR_MS)) for name in "abcd"]
        await store.put(paused("e"))
        await store.put(paused("e2", "e"))
        await store.put(paused("e2"))  # the program has gone on without e
        await decided(store, "a")
        await store.settle(await claimed(store), "done")
        await store.withdraw(records[1], actor="ana", reason="no longer wanted")
        clock.moved_ms = 11 * HOUR_MS
        errors = {}
        for name in "abcdef":
            with pytest.raises(CodeModeError, match="is not pending") as raised:
                await decided(store, name)
            errors[name] = type(raised.value)
        assert errors == {
            "a": RequestSettledError,
            "b": RequestSettledError,
            "c": RecordExpiredError,
            "d": RecordExpiredError,
            "e": RequestSupersededError,
            "f": UnknownRequestError,
        }
        await store.sweep()
        with pytest.raises(RecordExpiredError):
            await decided(store, "c")
        assert len({one.default_code for one in errors.values()}) == 4

    through(make, scenario)


def test_a_lease_takes_all_answers_there_are(make):
    async def scenario(store):
        interrupt = paused("a", "b", "c")
        record_id = await store.put(interrupt)
        assert await store.claim(owner="o", tenant=ALL_TENANTS) is None
        await decided(store, "a", "b")
        lease = await claimed(store)
        assert (lease.interrupt, lease.is_takeover) == (interrupt, False)
        assert lease.resolutions == {"a": OK, "b": OK}
        assert await store.claim(owner="other", tenant=ALL_TENANTS) is None
        # What is decided while it runs is for the next.
        await decided(store, "c", answer=NO)
        assert await store.settle(lease, later := paused("c"))
        record = await store.record(record_id, tenant=ALL_TENANTS)
        assert (record.state, [one.state for one in record.requests]) == ("pending", ["applied", "applied", "decided"])
        lease = await claimed(store)
        assert (lease.interrupt, lease.resolutions) == (later, {"c": NO})
        assert await store.settle(lease, {"value": 1})
        assert await store.outcome(record_id, tenant=ALL_TENANTS) == {"value": 1}
        assert not await store.settle(lease, "another")
        assert await store.get("c", tenant=ALL_TENANTS) is None

    through(make, scenario)


def test_a_lease_that_is_over_is_taken_over_with_the_same_answers(make, clock):
    async def scenario(store):
        await store.put(paused("a", "b"))
        await decided(store, "a")
        first = await claimed(store)
        await decided(store, "b")
        clock.moved_ms = 20_000
        assert await store.renew(first)
        clock.moved_ms = 40_000
        assert await store.claim(owner="other", tenant=ALL_TENANTS) is None
        clock.moved_ms = 51_000
        second = await claimed(store)
        assert (second.is_takeover, second.resolutions) == (True, {"a": OK})
        # The first one comes back: nothing of it counts.
        assert not await store.renew(first)
        assert not await store.settle(first, 1)
        assert not await store.release(first, refusals={"a": "no"})
        assert not await store.mark_lost(first)
        assert await store.settle(second, paused("b"))
        assert (await claimed(store)).resolutions == {"b": OK}

    through(make, scenario)


def test_leases_are_measured_by_the_clock_of_the_database(kind, make):
    if kind == "memory":
        pytest.skip("this store has no clock of its own")

    async def scenario(store):
        store._database._clock = None
        await store.put(paused("a"))
        await decided(store, "a")
        await claimed(store, lease_ms=1)
        for _ in range(2000):
            lease = await store.claim(owner="other", tenant=ALL_TENANTS)
            if lease is not None:
                return lease.is_takeover
        return None

    assert through(make, scenario)


def test_a_lease_is_given_back_with_why_an_answer_waits_again(make, clock):
    async def scenario(store):
        clock.stop()
        record_id = await store.put(paused("a", "b"))
        await decided(store, "a", "b")
        assert await store.release(await claimed(store), refusals={"a": "its schema has changed"}, delay_ms=1000)
        first, second = (await store.record(record_id, tenant=ALL_TENANTS)).requests
        assert (first.state, first.refusal, first.decision, first.actor) == (
            "waiting",
            "its schema has changed",
            None,
            None,
        )
        assert second.state == "decided"
        assert await store.claim(owner="o", tenant=ALL_TENANTS) is None  # not at once
        clock.moved_ms = 1000
        assert (await claimed(store)).resolutions == {"b": OK}
        assert (await decided(store, "a"))["a"].refusal is None

    through(make, scenario)
