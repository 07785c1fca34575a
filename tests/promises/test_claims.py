"""Claims: renewed while their owner lives, lapsed when it is gone, judged by one clock, kept for a day."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from pausing import PAUSING, Spy, go_on, start, through_json
from waiting import within

from codemode import (
    CodeModeAbortedError,
    CodeModeProtocolError,
    MemoryResumeGuard,
    SqliteResumeGuard,
    continue_interrupt,
    run_code_mode,
)
from codemode.continuations import renewal
from codemode.continuations.guard import LAPSED, RENEW_SECONDS, Claim, GuardClock
from codemode.options.parts import CodeModeOptions
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.run.resume import verified
from codemode.run.resume_claim import claim_of_answers
from codemode.surfaces.code_mode.profile import CODE_MODE

OK, NO = {"approved": True}, {"approved": False}
NOW_MS = time.time_ns() // 1_000_000
DAY_MS = 86_400_000


class Clock(GuardClock):
    """A clock that only waiting moves. ``fast_by_ms`` is how much it is ahead of the others'."""

    def __init__(self, fast_by_ms: int = 0) -> None:
        self.waited = 0.0
        self.fast_by_ms = fast_by_ms

    def now_ms(self) -> int:
        return NOW_MS + self.fast_by_ms + int(self.waited * 1000)

    def seconds(self) -> float:
        return self.waited

    async def sleep(self, seconds: float) -> None:
        self.waited += seconds
        await asyncio.sleep(0)


class Still(Clock):
    """A clock that nobody's waiting moves."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Following(Clock):
    """A clock that is never more than a renewal ahead of another one: time goes by for both."""

    def __init__(self, other: Clock, fast_by_ms: int) -> None:
        super().__init__(fast_by_ms)
        self.other = other

    async def sleep(self, seconds: float) -> None:
        while self.waited + seconds > self.other.waited + RENEW_SECONDS:  # noqa: ASYNC110 - time here is made by the test
            await asyncio.sleep(0)
        await super().sleep(seconds)


@pytest.fixture(params=["memory", "sqlite"])
def made(request, tmp_path):
    """Return guard and clock: of one process, and of a file."""
    clock = Clock()
    if request.param == "memory":
        return MemoryResumeGuard(clock=clock), clock
    return SqliteResumeGuard(tmp_path / "claims", clock=clock), clock


def claim(key="k", answers="yes", *, expires_at_ms=NOW_MS + 3_600_000):
    return Claim(key, answers, expires_at_ms)


# --- the guards ---


def test_10_a_claim_that_nobody_renews_lapses_after_a_minute_and_goes_to_one(made):
    guard, clock = made

    async def scenario():
        assert await guard.claim(claim()) is None
        assert await guard.claim(claim()) is LAPSED
        assert 60 <= clock.waited < 62
        await guard.record("k", "recovery")
        assert [await guard.claim(claim()) for _ in range(2)] == ["recovery", "recovery"]

    within(scenario())


def test_10_of_several_that_wait_one_takes_over_and_the_others_get_its_outcome(made):
    guard, _ = made

    async def scenario():
        assert await guard.claim(claim()) is None
        waiting = [asyncio.create_task(guard.claim(claim())) for _ in range(4)]
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [LAPSED]
        await guard.record("k", "recovery")
        assert await asyncio.gather(*rest) == ["recovery"] * 3

    within(scenario())


def test_10_a_claim_that_is_renewed_is_waited_for(made):
    guard, clock = made

    async def scenario():
        assert await guard.claim(claim()) is None
        waiting = asyncio.create_task(guard.claim(claim()))
        while clock.waited < 600:
            await clock.sleep(RENEW_SECONDS)
            assert await guard.renew("k")
        assert not waiting.done()
        await guard.record("k", "outcome")
        assert await waiting == "outcome"

    within(scenario())


def test_10_an_owner_that_comes_back_too_late_is_told_and_changes_nothing(made):
    guard, _ = made

    async def scenario():
        assert await guard.claim(claim()) is None
        assert await guard.claim(claim()) is LAPSED
        assert await guard.record("k", "recovery") == "recovery"
        assert not await guard.renew("k")
        assert await guard.record("k", "the owner's own") == "recovery"
        await guard.release("k")
        assert await guard.claim(claim()) == "recovery"

    within(scenario())


def test_10_other_answers_are_refused_however_long_ago(made):
    guard, clock = made

    async def scenario():
        await guard.claim(claim())
        await clock.sleep(3000)
        with pytest.raises(CodeModeProtocolError, match="other answers"):
            await guard.claim(claim(answers="no"))
        assert not await guard.renew("unknown")

    within(scenario())


def test_10_a_claim_is_kept_for_a_day_after_its_continuation_has_expired(made):
    guard, clock = made

    async def scenario():
        await guard.claim(claim("old", expires_at_ms=NOW_MS))
        await guard.record("old", "outcome")
        await clock.sleep(DAY_MS / 1000 - 10)
        assert await guard.claim(claim("new")) is None
        assert await guard.claim(claim("old", expires_at_ms=NOW_MS)) == "outcome"
        await clock.sleep(20)
        assert await guard.claim(claim("newer")) is None
        assert await guard.claim(claim("old", expires_at_ms=NOW_MS)) is None

    within(scenario())


def test_10_a_full_memory_forgets_what_has_surely_expired_before_it_refuses(made):
    clock = Clock()
    guard = MemoryResumeGuard(max_claims=2, clock=clock)

    async def scenario():
        await guard.claim(claim("a", expires_at_ms=NOW_MS))
        await guard.claim(claim("b"))
        with pytest.raises(CodeModeProtocolError, match="full"):
            await guard.claim(claim("c"))
        await clock.sleep(61)
        assert await guard.claim(claim("c")) is None

    within(scenario())


@pytest.mark.parametrize("fast_by_ms", [300_000, 3_600_000, -300_000, -3_600_000])
def test_10_a_peer_with_another_clock_neither_forgets_nor_takes_over_what_is_alive(tmp_path, fast_by_ms):
    """Both wait by the speed of time; only what they think the time is differs."""
    right = Clock()
    wrong = Following(right, fast_by_ms)
    owner = SqliteResumeGuard(tmp_path / "claims", clock=right)
    peer = SqliteResumeGuard(tmp_path / "claims", clock=wrong)

    async def scenario():
        assert await owner.claim(claim(expires_at_ms=NOW_MS)) is None
        assert await peer.claim(claim("another")) is None  # cleans up, by its own clock
        waiting = asyncio.create_task(peer.claim(claim(expires_at_ms=NOW_MS)))
        while right.waited < 300:
            await right.sleep(RENEW_SECONDS)
            assert await owner.renew("k")
        assert not waiting.done()
        await owner.record("k", "outcome")
        return await waiting

    assert within(scenario()) == "outcome"


@pytest.mark.parametrize(("after_seconds", "at_most"), [(0, 61), (3600, 16)])
def test_10_an_owner_that_is_gone_is_found_out_in_a_minute_or_sooner(tmp_path, after_seconds, at_most):
    clock = Clock()

    async def scenario():
        assert await SqliteResumeGuard(tmp_path / "claims", clock=clock).claim(claim()) is None
        await clock.sleep(after_seconds)
        before = clock.waited
        assert await SqliteResumeGuard(tmp_path / "claims", clock=clock).claim(claim()) is LAPSED
        assert clock.waited - before <= at_most

    within(scenario())


def test_10_time_is_the_databases_own(tmp_path, monkeypatch):
    """A process whose own idea of the time is wrong forgets nothing."""
    guard = SqliteResumeGuard(tmp_path / "claims")
    expired = Claim("k", "yes", time.time_ns() // 1_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: (NOW_MS + 3 * DAY_MS) * 1_000_000)
    monkeypatch.setattr(time, "time", lambda: (NOW_MS + 3 * DAY_MS) / 1000)

    async def scenario():
        assert await guard.claim(expired) is None
        await guard.record("k", "outcome")
        await guard.claim(claim("another"))
        return await guard.claim(expired)

    assert within(scenario()) == "outcome"


# --- resumes ---


@pytest.fixture
def spy():
    return Spy()


def having(guard, **continuation):
    return {**PAUSING, "continuation": {"guard": guard, **continuation}}


async def abandoned(guard, interrupt, answers_of=None):
    """Claim a continuation as a host does that then dies."""
    settings = CodeModeOptions.of(having(guard))
    _, auth = verified(interrupt, CODE_MODE, settings)
    answers = answers_of or {interrupt.interrupt_id: OK}
    assert await guard.claim(claim_of_answers(auth, answers, settings.continuation)) is None


def lapsed(interrupt, tools, options, *answer, **answers):
    with pytest.raises(CodeModeAbortedError, match="outcome is unknown") as caught:
        go_on(interrupt, tools, *(answer or ([] if answers else [OK])), options=options, **answers)
    assert caught.value.details["origin"] == "continuation"
    return caught.value


def test_10_a_repeat_of_a_lapsed_resume_asks_what_became_of_its_calls(spy, made):
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


def test_10_what_was_approved_runs_again_only_when_somebody_says_so_and_as_approved(spy, made):
    guard, _ = made
    tools, options = [spy.guarded()], having(guard)
    interrupt = start("return await tools.refund(1)", tools, options)
    edited = {**OK, "input": 5}
    within(abandoned(guard, interrupt, {interrupt.interrupt_id: edited}))
    recovery = lapsed(interrupt, tools, options, edited).recovery
    assert recovery.input == 5
    assert go_on(recovery, tools, {"runAgain": True}, options=options) == {"done": "refund"}
    assert spy.ran == [("refund", 5)]


def test_10_denials_and_other_requests_stay_what_they_were(spy, made):
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


def test_10_before_it_has_lapsed_a_repeat_waits(spy, made):
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
def test_10_a_slow_tool_outlives_a_minute_for_its_claim_is_renewed(spy, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(renewal, "RENEW_SECONDS", 0.001)
    clock = Still()
    guard = MemoryResumeGuard(clock=clock) if kind == "memory" else SqliteResumeGuard(tmp_path / "claims", clock=clock)
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
            await has_renewed.acquire()
            clock.waited += 10
        assert not any(click.done() for click in clicks)
        free.set()
        return await asyncio.gather(*clicks)

    assert within(scenario()) == ["refunded", "refunded"]
    assert spy.ran == [("refund", 1)]


def test_10_an_owner_that_lost_its_claim_stops_and_gives_what_stands(spy, made, monkeypatch):
    guard, _ = made
    monkeypatch.setattr(renewal, "RENEW_SECONDS", 0.001)
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


def test_10_a_caller_that_gives_up_is_cancelled_as_before(spy, made):
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


def test_10_a_simple_guard_of_somebodys_own_will_do(spy):
    options = having(OldGuard())
    interrupt = start("return await tools.refund(1)", [spy.guarded()], options)
    assert [go_on(interrupt, [spy.guarded()], OK, options=options) for _ in "ab"] == [{"done": "refund"}] * 2
    with pytest.raises(CodeModeProtocolError, match="other answers"):
        go_on(interrupt, [spy.guarded()], NO, options=options)
    assert spy.ran == [("refund", 1)]
