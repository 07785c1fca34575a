"""The run of an agent is gone on with by one host at a time, and what nobody can tell of is not done again."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from stored_pauses import HOUR_MS, NO, OK, Catalog, Clock, paused, request
from waiting import within

from codemode import CodeModeProtocolError, inspect_interrupt
from codemode.host.clock import now_ms
from codemode.interrupts.interrupt import APPROVAL_KIND, make_agent_interrupt
from codemode.stores import (
    ALL_TENANTS,
    AnswerRefusedError,
    MemoryInterruptStore,
    MemoryResumeGuard,
    Resumer,
    StoredPause,
)
from codemode.stores.agent_runs import hold_agent_run


class MovedClock(Clock):
    """A guard's time that a test moves."""

    def monotonic_seconds(self):
        return self.moved_ms / 1000

    async def sleep(self, seconds):
        self.moved_ms += int(seconds * 1000)
        await asyncio.sleep(0)


def held(guard, answers):
    return hold_agent_run(guard, "pause", answers, now_ms() + HOUR_MS)


async def died(guard, *, beyond):
    """Go on as a host does that dies: what it held is renewed by nobody."""
    going = held(guard, {"a": OK})
    run = await going.__aenter__()
    if beyond:
        await run.mark_unguarded()
    run.release = _nothing
    run.is_unguarded = True  # so that nothing is given back
    assert not await going.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)


async def _nothing():
    return None


def guard_and_clock():
    clock = MovedClock()
    return MemoryResumeGuard(clock=clock), clock


def test_what_it_came_to_is_given_to_whoever_asks_again():
    async def scenario():
        guard, _ = guard_and_clock()
        async with held(guard, {"a": OK}) as run:
            assert run.recorded_outcome is None
            assert await run.record_outcome({"output": 1}) == {"output": 1}
        async with held(guard, {"a": OK}) as run:
            assert run.recorded_outcome == {"output": 1}
        with pytest.raises(CodeModeProtocolError, match="other answers"):
            async with held(guard, {"a": NO}):
                pass

    within(scenario())


def test_two_at_once_are_one_after_the_other_and_the_second_gets_what_the_first_came_to():
    async def scenario():
        guard, _ = guard_and_clock()
        ran, told = [], []

        async def go_on():
            async with held(guard, {"a": OK}) as run:
                if run.recorded_outcome is None:
                    ran.append(1)
                    await asyncio.sleep(0)
                    await run.record_outcome({"output": "once"})
                told.append(run.recorded_outcome)

        await asyncio.gather(*(go_on() for _ in range(3)))
        assert ran == [1]
        assert told.count({"output": "once"}) == 2

    within(scenario())


async def fails(guard, answers):
    async with held(guard, answers) as run:
        assert run.recorded_outcome is None
        raise RuntimeError("the model is away")


def test_one_that_failed_before_it_went_beyond_is_tried_again_with_whatever_answers():
    async def scenario():
        guard, _ = guard_and_clock()
        for answers in ({"a": OK}, {"a": OK}, {"a": NO}):
            with pytest.raises(RuntimeError, match="model"):
                await fails(guard, answers)
        async with held(guard, {"a": OK}) as run:
            assert run.recorded_outcome is None

    within(scenario())


def test_after_a_death_before_it_went_beyond_somebody_else_goes_on():
    async def scenario():
        guard, _ = guard_and_clock()
        await died(guard, beyond=False)
        async with held(guard, {"a": OK}) as run:
            assert run.recorded_outcome is None
            await run.mark_unguarded()
            await run.record_outcome({"output": 2})

    within(scenario())


def test_one_that_only_stood_still_does_not_go_beyond_beside_the_one_that_has_taken_over():
    async def scenario():
        guard, _ = guard_and_clock()
        going = held(guard, {"a": OK})
        slow = await going.__aenter__()
        guard._clock.moved_ms += 120_000
        async with held(guard, {"a": OK}) as run:
            await run.mark_unguarded()
            await run.record_outcome({"output": "of the other"})
        with pytest.raises(CodeModeProtocolError, match="progress of the agent is unknown"):
            await slow.mark_unguarded()
        assert await slow.record_outcome({"output": "mine"}) == {"output": "of the other"}
        await going.__aexit__(None, None, None)

    within(scenario())


def test_after_a_death_beyond_nobody_goes_on_until_somebody_says_so():
    async def scenario():
        guard, _ = guard_and_clock()
        await died(guard, beyond=True)
        for _ in range(2):
            with pytest.raises(CodeModeProtocolError, match="progress of the agent is unknown") as refused:
                async with held(guard, {"a": OK}):
                    pass
            assert refused.value.details["origin"] == "continuation"
        await guard.release("pause")  # as `run_again` of a store does
        async with held(guard, {"a": OK}) as run:
            assert run.recorded_outcome is None
            await run.mark_unguarded()

    within(scenario())


def test_a_guard_that_is_away_leaves_the_run_as_it_is(monkeypatch, caplog):
    async def scenario():
        asked = asyncio.Event()

        class Away(MemoryResumeGuard):
            async def renew(self, key):
                asked.set()
                raise OSError("away")

        monkeypatch.setattr("codemode.stores.agent_runs.RENEW_SECONDS", 0)
        async with held(Away(), {"a": OK}) as run:
            await asked.wait()
            assert run.recorded_outcome is None

    within(scenario())
    assert "could not be renewed" in caplog.text


# --- what a store makes of it


def an_agents_pause(*requests, key="k", **more):
    waiting = paused(*requests).requests
    pause = make_agent_interrupt(
        waiting, framework="somebody", key=key, outer_tool_call_id="o", expires_at_ms=now_ms() + 30 * HOUR_MS
    )
    own = {"requests": pause.requests, "outer_tool_call_id": "o", "continuation": pause.continuation}
    return StoredPause(**own, **more)


def test_a_pause_with_more_to_say_changes_what_its_record_says(make):
    async def scenario():
        store = make()
        try:
            record_id = await store.put(an_agents_pause("a"), payload={"at": 1}, source="one", tenant="acme")
            await store.decide({"a": OK}, actor="ana", tenant="acme")
            lease = await store.claim(owner="me", tenant="acme")
            assert await store.settle(lease, an_agents_pause("b", key="l", payload={"at": 2}, source="two"))
            record = await store.record(record_id, tenant="acme")
            assert (record.payload, record.source, record.version) == ({"at": 2}, "two", 2)
            await store.decide({"b": OK}, actor="ana", tenant="acme")
            lease = await store.claim(owner="me", tenant="acme")
            assert await store.settle(lease, an_agents_pause("c", key="m"))
            record = await store.record(record_id, tenant="acme")
            assert (record.payload, record.source, record.version) == ({"at": 2}, "two", 3)
        finally:
            await store.aclose()

    within(scenario())


def test_a_pause_that_waits_for_all_is_given_to_nobody_before_there_is_another_answer(make, clock):
    async def scenario():
        store = make()
        try:
            pause = an_agents_pause("a", "b", "c", waits_for_all=True)
            await store.put(pause, tenant="acme")
            await store.decide({"a": OK}, actor="ana", tenant="acme")
            lease = await store.claim(owner="me", tenant="acme")
            assert await store.settle(lease, pause)
            clock.moved_ms += HOUR_MS
            assert await store.claim(owner="me", tenant="acme") is None
            await store.decide({"b": OK}, actor="ana", tenant="acme")
            lease = await store.claim(owner="me", tenant="acme")
            await store.decide({"c": NO}, actor="ana", tenant="acme")  # meanwhile
            assert await store.settle(lease, pause)
            lease = await store.claim(owner="me", tenant="acme")
            assert lease.resolutions == {"a": OK, "b": OK, "c": NO}
        finally:
            await store.aclose()

    within(scenario())


def test_a_host_that_died_over_some_answers_keeps_nobody_from_all_of_them(make, clock):
    async def scenario():
        store = make()
        try:
            pause = an_agents_pause("a", "b", waits_for_all=True)
            await store.put(pause, tenant="acme")
            await store.decide({"a": OK}, actor="ana", tenant="acme")
            assert await store.claim(owner="dead", tenant="acme") is not None
            clock.moved_ms += 60_000
            await store.decide({"b": OK}, actor="ana", tenant="acme")
            lease = await store.claim(owner="me", tenant="acme")
            assert (lease.is_takeover, lease.resolutions) == (True, {"a": OK})
            assert await store.settle(lease, pause)
            lease = await store.claim(owner="me", tenant="acme")
            assert (lease.is_takeover, lease.resolutions) == (False, {"a": OK, "b": OK})
        finally:
            await store.aclose()

    within(scenario())


def test_a_resume_of_one_app_is_given_records_of_that_app_alone():
    async def scenario():
        store = MemoryInterruptStore()
        seen = []

        class Pauses:
            app = "agents"

            async def resume(self, record, answers):
                seen.append((record.app, dict(answers)))
                return "done"

            resume.takes_record = True

        ids = [await store.put(paused(app), app=app, tenant="acme") for app in ("others", "agents")]
        await store.decide({"others": OK, "agents": OK}, actor="ana", tenant="acme")
        async with Resumer(store, tenant=ALL_TENANTS, resume=Pauses().resume):
            assert await store.outcome(ids[1], tenant="acme", timeout_ms=20_000) == "done"
        assert seen == [("agents", {"agents": OK})]
        assert (await store.record(ids[0], tenant="acme")).state == "pending"

        await store.decide({}, actor="ana", tenant="acme")
        assert await store.answer("others", OK, Pauses().resume, tenant="acme") == "done"
        assert seen[1] == ("others", {"others": OK})

    within(scenario())


def test_nobody_can_look_into_the_pause_of_an_agent_and_all_can_see_what_it_asks():
    view = inspect_interrupt(an_agents_pause("a"))
    assert (view.js, view.calls) == (None, ())
    assert [one.interrupt_id for one in view.requests] == ["a"]
    assert "somebody" in (view.unreadable or "")
    forged = an_agents_pause("a")
    forged.continuation["body"] = []  # type: ignore[index]
    with pytest.raises(CodeModeProtocolError):
        inspect_interrupt(forged)


def test_what_a_framework_asks_in_its_own_words_is_an_approval_of_what_it_shows(make, clock):
    async def scenario():
        store = make()
        try:
            payload = {"kind": "framework/approval", "asksApproval": True, "args": {"cents": 1}}
            own = dataclasses.replace(request("a", given={"euros": 1}), payload=payload)
            other = dataclasses.replace(request("b"), payload={**payload, "asksApproval": "yes"})
            pause = paused(own, other, age_ms=HOUR_MS)
            record_id = await store.put(pause, tool=Catalog({"properties": {"cents": {"type": "integer"}}}), tenant="t")
            first, second = (await store.record(record_id, tenant="t")).requests
            assert (first.kind, first.input) == (APPROVAL_KIND, {"cents": 1})
            assert (second.kind, second.input) == ("framework/approval", second.input)
            assert [store.compute_display_digest(one) for one in (first, second)] == [
                store.compute_display_digest(one) for one in pause.requests
            ]
            for wrong in ("yes", {"approved": 1}, {"approved": True, "input": {"cents": "x"}}):
                with pytest.raises(AnswerRefusedError):
                    await store.decide({"a": wrong}, actor="ana", tenant="t")
            await store.decide({"b": "anything"}, actor="ana", tenant="t")
            clock.moved_ms += HOUR_MS - 30_000
            assert await store.sweep(deny_before_expiry_ms=60_000) == 1
            assert (await store.record(record_id, tenant="t")).requests[0].decision["approved"] is False
        finally:
            await store.aclose()

    within(scenario())
