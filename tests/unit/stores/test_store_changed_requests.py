"""A request whose row was changed in the database: a decision about it runs nothing, and what is asked shows again."""

from __future__ import annotations

import json

import pytest
from stored_pauses import OK, paused, request
from waiting import within

from codemode.stores import ALL_TENANTS, RequestSupersededError

CHANGES = {
    "input and digest": 'input = \'{"order": "a", "cents": 1}\', shown = \'{shown}\'',
    "input alone": 'input = \'{"order": "a", "cents": 1}\'',
    "tool": "tool_name = 'look'",
    "payload": 'payload = \'{"kind": "x", "message": "Pay nothing"}\'',
    "digest": "shown = 'other'",
    "place": "at_line = 7, at_column = 7",
    "claimed before": "input = '{}', is_taken = 1",
}


def through(make, scenario):
    async def run():
        store = make()
        try:
            return await scenario(store)
        finally:
            await store.aclose()

    return within(run())


async def change(store, statement, interrupt_id="a"):
    record = await store.record(await record_of(store), tenant=ALL_TENANTS)
    digest = store.compute_display_digest(record.requests[0])
    with store._database.journal_transaction() as session:
        session.run(
            f"UPDATE codemode_requests SET {statement.replace('{shown}', digest)} WHERE interrupt_id = ?", interrupt_id
        )


async def record_of(store):
    return (await store.list(tenant=ALL_TENANTS)).records[0].id


async def claim(store):
    return await store.claim(owner="me", tenant=ALL_TENANTS)


@pytest.mark.parametrize("name", CHANGES)
def test_a_decision_about_a_changed_request_is_refused_with_the_reason(make, name):
    async def scenario(store):
        record_id = await store.put(paused("a"))
        asked = (await store.record(record_id, tenant=ALL_TENANTS)).requests[0]
        await change(store, CHANGES[name])
        await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)
        assert await claim(store) is None
        record = await store.record(record_id, tenant=ALL_TENANTS)
        (now,) = record.requests
        assert (record.state, now.state, now.decision, now.actor) == ("pending", "waiting", None, None)
        assert "changed in the database" in now.refusal
        assert (now.input, now.tool_name, now.payload) == (asked.input, asked.tool_name, asked.payload)
        assert store.compute_display_digest(now) == store.compute_display_digest(asked)
        refused = [line async for line in store.audit(tenant=ALL_TENANTS) if line.kind == "refused"]
        assert [line.details["decided_by"] for line in refused] == ["ana"]
        assert await claim(store) is None
        await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)
        assert (await claim(store)).resolutions == {"a": OK}

    through(make, scenario)


def test_other_answers_of_the_record_are_claimed_after_a_changed_one_was_refused(make):
    async def scenario(store):
        await store.put(paused("a", "b"))
        await change(store, "input = '[]'")
        await store.decide({"a": OK, "b": OK}, actor="ana", tenant=ALL_TENANTS)
        assert await claim(store) is None
        assert (await claim(store)).resolutions == {"b": OK}

    through(make, scenario)


def test_an_answer_about_a_changed_request_raises_and_runs_nothing(make):
    async def scenario(store):
        await store.put(paused("a"))
        await change(store, "input = '[]'")
        ran = []

        async def resume(interrupt, resolutions):
            ran.append(resolutions)
            return "done"

        with pytest.raises(RequestSupersededError, match=r"'a' was not answered: .*changed in the database"):
            await store.answer("a", OK, resume)
        assert ran == []
        assert await store.answer("a", OK, resume) == "done"

    through(make, scenario)


def test_a_takeover_refuses_what_was_changed_meanwhile(make, clock):
    async def scenario(store):
        record_id = await store.put(paused("a"))
        await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)
        assert await claim(store) is not None
        await change(store, "input = '[]'")
        clock.moved_ms = 31_000
        assert await claim(store) is None
        record = await store.record(record_id, tenant=ALL_TENANTS)
        assert (record.state, record.requests[0].state) == ("pending", "waiting")

    through(make, scenario)


def test_inputs_of_every_shape_that_were_left_alone_are_claimed(make):
    async def scenario(store):
        inputs = [2**70, -(2**60), 1.5, "\ud83d\ude00", [], {"a": [None, {"b": True}]}, 1e300, {"é": "\u2028"}]
        for number, given in enumerate(inputs):
            interrupt_id = f"i{number}"
            await store.put(paused(request(interrupt_id, given=given)))
            await store.decide({interrupt_id: OK}, actor="ana", tenant=ALL_TENANTS)
            lease = await claim(store)
            assert lease is not None, json.dumps(given)
            assert lease.resolutions == {interrupt_id: OK}

    through(make, scenario)
