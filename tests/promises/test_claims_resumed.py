"""Resumes under claims: lapsed, renewed, lost, and given up."""

from __future__ import annotations

import asyncio
import json

import pytest
from claim_clocks import Still
from pausing import NO, OK, PAUSING, Spy, go_on, start, through_json
from waiting import within

from codemode import CodeModeAbortedError, CodeModeProtocolError, continue_interrupt, run_code_mode
from codemode.continuations import guard as guards
from codemode.execution import resume_claims
from codemode.execution.resume import open_unexpired_interrupt
from codemode.execution.resume_claims import make_answers_claim
from codemode.options.parts import CodeModeOptions
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import MemoryResumeGuard, SqliteInterruptStore
from codemode.surfaces.code_mode.outcome import CODE_MODE


@pytest.fixture
def spy():
    return Spy()


def having(guard, **continuation):
    return {**PAUSING, "continuation": {"guard": guard, **continuation}}


async def abandoned(guard, interrupt, answers_of=None):
    """Claim a continuation as a host does that then dies."""
    settings = CodeModeOptions.of(having(guard))
    _, auth = open_unexpired_interrupt(interrupt, CODE_MODE, settings)
    answers = answers_of or {interrupt.interrupt_id: OK}
    assert await guard.claim(make_answers_claim(auth, answers, settings.continuation)) is None


def lapsed(interrupt, tools, options, *answer, **answers):
    with pytest.raises(CodeModeAbortedError, match="outcome is unknown") as caught:
        go_on(interrupt, tools, *(answer or ([] if answers else [OK])), options=options, **answers)
    assert caught.value.details["origin"] == "continuation"
    return caught.value


def test_a_repeat_of_a_lapsed_resume_asks_what_became_of_its_calls(spy, made):
    guard, _ = made
    tools, options = [spy.guarded()], having(guard)
    interrupt = start("return [await tools.refund(1), await tools.refund(2)]", tools, options)
    within(abandoned(guard, interrupt))
    error = lapsed(interrupt, tools, options)
    assert lapsed(interrupt, tools, options).recovery == error.recovery
    (unknown,) = error.recovery.requests
    assert (unknown.payload["kind"], unknown.input, unknown.tool_call_id) == (
        UNKNOWN_OUTCOME_KIND, 1, interrupt.tool_call_id,
    )  # fmt: skip
    assert error.calls[0]["status"] == "unknown"
    assert spy.ran == []
    with pytest.raises(CodeModeProtocolError, match="other answers"):
        go_on(interrupt, tools, NO, options=options)
    second = go_on(error.recovery, tools, {"value": "refunded"}, options=options)
    assert go_on(second, tools, OK, options=options) == ["refunded", {"done": "refund"}]
    assert spy.ran == [("refund", 2)]


def test_what_was_approved_runs_again_only_when_somebody_says_so_and_as_approved(spy, made):
    guard, _ = made
    tools, options = [spy.guarded()], having(guard)
    interrupt = start("return await tools.refund(1)", tools, options)
    edited = {**OK, "input": 5}
    within(abandoned(guard, interrupt, {interrupt.interrupt_id: edited}))
    recovery = lapsed(interrupt, tools, options, edited).recovery
    assert recovery.input == 5
    assert go_on(recovery, tools, {"runAgain": True}, options=options) == {"done": "refund"}
    assert spy.ran == [("refund", 5)]


def test_denials_and_other_requests_stay_what_they_were(spy, made):
    guard, _ = made
    tools, options = [spy.guarded(), spy.asking()], having(guard)
    calls = "[tools.refund(1), tools.login(2), tools.refund(3)]"
    js = f"return (await Promise.allSettled({calls})).map(one => one.value ?? one.status)"
    interrupt = start(js, tools, options)
    first, login, third = (one.interrupt_id for one in interrupt.requests)
    answers = {first: NO, login: "token"}
    within(abandoned(guard, interrupt, answers))
    spy.ran.clear()
    recovery = lapsed(interrupt, tools, options, resolutions=answers).recovery
    assert recovery.payload["kind"] == UNKNOWN_OUTCOME_KIND
    assert recovery.requests[1].interrupt_id == third
    answers = {recovery.requests[0].interrupt_id: {"value": "token"}, third: OK}
    assert go_on(recovery, tools, resolutions=answers, options=options) == ["rejected", "token", {"done": "refund"}]
    assert spy.ran == [("refund", 3)]


def test_before_it_has_lapsed_a_repeat_waits(spy, made):
    guard, clock = made
    tools, options = [spy.guarded()], having(guard)
    interrupt = start("return await tools.refund(1)", tools, options)

    async def scenario():
        await abandoned(guard, interrupt)
        waiting = asyncio.create_task(continue_interrupt(interrupt, OK, tools=tools, options=options))
        while clock.waited < 55:
            assert not waiting.done()
            await asyncio.sleep(0)
        key = interrupt.continuation["auth"]["nonce"]
        await guard.record(key, json.dumps({"value": "from the other"}))
        return await waiting

    assert within(scenario()) == "from the other"
    assert spy.ran == []


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_slow_tool_outlives_a_minute_for_its_claim_is_renewed(spy, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(guards, "RENEW_SECONDS", 0.001)
    clock = Still()
    guard = (
        MemoryResumeGuard(clock=clock)
        if kind == "memory"
        else SqliteInterruptStore(tmp_path / "claims", clock=clock).guard
    )
    has_renewed, renew = asyncio.Semaphore(0), guard.renew

    async def counted(key):
        is_alive = await renew(key)
        has_renewed.release()
        return is_alive

    monkeypatch.setattr(guard, "renew", counted)

    async def scenario():
        begun, free = asyncio.Event(), asyncio.Event()

        async def slow(value, context):
            begun.set()
            await free.wait()
            return "refunded"

        tools = [spy.tool("refund", slow, needs_approval=True)]
        interrupt = await run_code_mode("return await tools.refund(1)", tools, options=having(guard))

        def click():
            resumed = continue_interrupt(through_json(interrupt), OK, tools=tools, options=having(guard))
            return asyncio.create_task(resumed)

        clicks = [click()]
        await begun.wait()
        clicks.append(click())
        for _ in range(12):
            while not has_renewed.locked():  # those of before: the first tool may begin late
                await has_renewed.acquire()
            await has_renewed.acquire()
            clock.waited += 10
        assert not any(click.done() for click in clicks)
        free.set()
        return await asyncio.gather(*clicks)

    assert within(scenario()) == ["refunded", "refunded"]
    assert spy.ran == [("refund", 1)]


def test_an_owner_that_lost_its_claim_stops_and_gives_what_stands(spy, made, monkeypatch):
    guard, _ = made
    monkeypatch.setattr(guards, "RENEW_SECONDS", 0.001)
    stopped = []

    async def scenario():
        begun = asyncio.Event()

        async def slow(value, context):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(value)

        tools = [spy.tool("refund", slow, needs_approval=True)]
        interrupt = await run_code_mode("return await tools.refund(1)", tools, options=having(guard))
        task = asyncio.create_task(continue_interrupt(interrupt, OK, tools=tools, options=having(guard)))
        await begun.wait()
        # What another host does that has seen no sign of life for a minute.
        await guard.record(interrupt.continuation["auth"]["nonce"], json.dumps({"value": "what stands"}))
        return await task

    assert within(scenario()) == "what stands"
    assert stopped == [1]


def test_a_caller_that_gives_up_is_cancelled_as_before(spy, made):
    guard, _ = made

    async def scenario():
        begun, before = asyncio.Event(), asyncio.all_tasks()

        async def slow(value, context):
            begun.set()
            await asyncio.Event().wait()

        tools = [spy.tool("refund", slow, needs_approval=True)]
        interrupt = await run_code_mode("return await tools.refund(1)", tools, options=having(guard))
        task = asyncio.create_task(continue_interrupt(interrupt, OK, tools=tools, options=having(guard)))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert isinstance(caught.value.__cause__, CodeModeAbortedError)
        assert asyncio.all_tasks() == before

    within(scenario())


class OldGuard:
    """A guard of somebody's own, as simple as it can be: no renewals, nothing given back."""

    def __init__(self):
        self.kept = {}

    async def claim(self, claim):
        answers, outcome = self.kept.setdefault(claim.key, (claim.answers, None))
        if answers != claim.answers:
            raise CodeModeProtocolError("other answers", details={"superseded": True})
        return outcome

    async def record(self, key, outcome):
        self.kept[key] = (self.kept[key][0], outcome)

    async def release(self, key):
        self.kept.pop(key, None)


def test_a_guard_with_the_required_methods_alone_is_enough(spy):
    options = having(OldGuard())
    interrupt = start("return await tools.refund(1)", [spy.guarded()], options)
    assert [go_on(interrupt, [spy.guarded()], OK, options=options) for _ in "ab"] == [{"done": "refund"}] * 2
    with pytest.raises(CodeModeProtocolError, match="other answers"):
        go_on(interrupt, [spy.guarded()], NO, options=options)
    assert spy.ran == [("refund", 1)]


@pytest.fixture
def passed(monkeypatch):
    """What hosts take for the seconds that have passed."""
    seconds = [0.0]
    for module in (guards, resume_claims):
        monkeypatch.setattr(module, "monotonic_seconds", lambda: seconds[0])
    return seconds


def test_no_call_begins_where_a_host_stood_still_and_its_claim_is_anothers(spy, made, passed):
    guard, _ = made

    async def scenario():
        async def stand_still(value, context):
            passed[0] += 61
            if value == "lost":
                await guard.record(interrupt.continuation["auth"]["nonce"], json.dumps({"value": "what stands"}))

        tools = [spy.tool("refund", stand_still, needs_approval=True), spy.tool("notify")]
        values = []
        for how in ("lost", "kept"):
            js = f"await tools.refund('{how}'); return await tools.notify('{how}')"
            interrupt = await run_code_mode(js, tools, options=having(guard))
            values.append(await continue_interrupt(interrupt, OK, tools=tools, options=having(guard)))
        return values

    assert within(scenario()) == ["what stands", {"done": "notify"}]
    assert spy.ran == [("refund", "lost"), ("refund", "kept"), ("notify", "kept")]


@pytest.mark.parametrize("is_anothers", [True, False])
def test_no_call_begins_where_a_host_stood_still_as_it_claimed(spy, made, passed, monkeypatch, is_anothers):
    guard, _ = made
    claim = guard.claim

    async def stand_still(claimed):
        standing = await claim(claimed)
        passed[0] += 61
        if is_anothers:
            await guard.record(claimed.key, json.dumps({"value": "what stands"}))
        return standing

    interrupt = start("return await tools.refund(1)", [spy.guarded()], having(guard))
    with monkeypatch.context() as patch:
        patch.setattr(guard, "claim", stand_still)
        value = go_on(interrupt, [spy.guarded()], OK, options=having(guard))
    assert (value, spy.ran) == (("what stands", []) if is_anothers else ({"done": "refund"}, [("refund", 1)]))
