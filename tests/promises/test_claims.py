"""Claims are renewed while their owner lives, lapse when it is gone, are judged by one clock, kept for a day."""

from __future__ import annotations

import asyncio
import time

import pytest
from claim_clocks import DAY_MS, NOW_MS, Clock, Following, Standing, claim
from suite import full_only
from waiting import within

from codemode import CodeModeProtocolError
from codemode.continuations.guard import LAPSED, RENEW_SECONDS, Claim
from codemode.stores import MemoryResumeGuard, SqliteInterruptStore


def test_a_claim_that_nobody_renews_lapses_after_a_minute_and_goes_to_one(made):
    guard, clock = made

    async def scenario():
        assert await guard.claim(claim()) is None
        assert await guard.claim(claim()) is LAPSED
        assert 60 <= clock.waited < 62
        await guard.record("k", "recovery")
        assert [await guard.claim(claim()) for _ in range(2)] == ["recovery", "recovery"]

    within(scenario())


def test_of_several_that_wait_one_takes_over_and_the_others_get_its_outcome(made):
    guard, _ = made

    async def scenario():
        assert await guard.claim(claim()) is None
        waiting = [asyncio.create_task(guard.claim(claim())) for _ in range(4)]
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [LAPSED]
        await guard.record("k", "recovery")
        assert await asyncio.gather(*rest) == ["recovery"] * 3

    within(scenario())


@pytest.mark.parametrize(
    "make",
    [
        lambda clock, _: MemoryResumeGuard(clock=clock),
        lambda clock, path: SqliteInterruptStore(path, clock=clock).guard,
    ],
)
def test_a_claim_that_is_renewed_is_waited_for(make, tmp_path):
    clock = Standing()
    guard = make(clock, tmp_path / "claims")

    async def scenario():
        assert await guard.claim(claim()) is None
        waiting = asyncio.create_task(guard.claim(claim()))
        while clock.waited < 600:
            await clock.sleep(RENEW_SECONDS)
            clock.stands = True  # a busy machine may take longer for it than whoever waits for a minute to go by
            assert await guard.renew("k")
            clock.stands = False
        assert not waiting.done()
        await guard.record("k", "outcome")
        assert await waiting == "outcome"

    within(scenario())


@pytest.mark.parametrize("waits_before", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda clock, _: MemoryResumeGuard(clock=clock),
        lambda clock, path: SqliteInterruptStore(path, clock=clock).guard,
    ],
)
def test_who_stood_still_beside_its_owner_takes_nothing_over(make, tmp_path, waits_before):
    """In one process both stand still, and who waits may be the first to go on."""
    clock = Standing()
    guard = make(clock, tmp_path / "claims")

    async def passed(seconds: float) -> None:
        until = clock.waited + seconds
        while clock.waited < until:  # noqa: ASYNC110 - time here is made by the waiting ones
            await asyncio.sleep(0)

    async def scenario():
        assert await guard.claim(claim()) is None
        before = [asyncio.create_task(guard.claim(claim()))] * waits_before
        await passed(RENEW_SECONDS if waits_before else 0)
        clock.waited += 600
        waiting = [*before, asyncio.create_task(guard.claim(claim()))]
        await passed(RENEW_SECONDS / 2)
        clock.stands = True
        assert not any(one.done() for one in waiting)
        assert await guard.renew("k")
        await guard.record("k", "outcome")
        clock.stands = False
        assert await asyncio.gather(*waiting) == ["outcome"] * len(waiting)

    within(scenario())


def test_an_owner_that_comes_back_too_late_is_told_and_changes_nothing(made):
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


def test_other_answers_are_refused_however_long_ago(made):
    guard, clock = made

    async def scenario():
        await guard.claim(claim())
        await clock.sleep(3000)
        with pytest.raises(CodeModeProtocolError, match="other answers"):
            await guard.claim(claim(answers="no"))
        assert not await guard.renew("unknown")

    within(scenario())


def test_a_claim_is_kept_for_a_day_after_its_continuation_has_expired(made):
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


def test_a_full_memory_forgets_what_has_surely_expired_before_it_refuses(made):
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


@pytest.mark.parametrize("fast_by_ms", [3_600_000, *full_only(300_000, -300_000, -3_600_000)])
def test_a_peer_with_another_clock_neither_forgets_nor_takes_over_what_is_alive(tmp_path, fast_by_ms):
    """Both wait by the speed of time; only what they think the time is differs."""
    right = Clock()
    wrong = Following(right, fast_by_ms)
    owner = SqliteInterruptStore(tmp_path / "claims", clock=right).guard
    peer = SqliteInterruptStore(tmp_path / "claims", clock=wrong).guard

    async def scenario():
        assert await owner.claim(claim(expires_at_ms=NOW_MS)) is None
        assert await peer.claim(claim("another")) is None  # cleans up, by its own clock
        waiting = asyncio.create_task(peer.claim(claim(expires_at_ms=NOW_MS)))
        while right.waited < 300:
            await wrong.caught_up()
            await right.sleep(RENEW_SECONDS)
            assert await owner.renew("k")
        assert not waiting.done()
        await owner.record("k", "outcome")
        while not waiting.done():  # its next look may be later than all the time that has been made
            await right.sleep(RENEW_SECONDS)
        return waiting.result()

    assert within(scenario()) == "outcome"


@pytest.mark.parametrize(("after_seconds", "at_most"), [(0, 61), (3600, 16)])
def test_an_owner_that_is_gone_is_found_out_in_a_minute_or_sooner(tmp_path, after_seconds, at_most):
    clock = Clock()

    async def scenario():
        assert await SqliteInterruptStore(tmp_path / "claims", clock=clock).guard.claim(claim()) is None
        await clock.sleep(after_seconds)
        before = clock.waited
        assert await SqliteInterruptStore(tmp_path / "claims", clock=clock).guard.claim(claim()) is LAPSED
        assert clock.waited - before <= at_most

    within(scenario())


def test_claims_are_timed_by_the_clock_of_the_database(tmp_path, monkeypatch):
    """A process whose own idea of the time is wrong forgets nothing."""
    guard = SqliteInterruptStore(tmp_path / "claims").guard
    expired = Claim("k", "yes", time.time_ns() // 1_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: (NOW_MS + 3 * DAY_MS) * 1_000_000)
    monkeypatch.setattr(time, "time", lambda: (NOW_MS + 3 * DAY_MS) / 1000)

    async def scenario():
        assert await guard.claim(expired) is None
        await guard.record("k", "outcome")
        await guard.claim(claim("another"))
        return await guard.claim(expired)

    assert within(scenario()) == "outcome"
