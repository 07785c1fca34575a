"""Claims: one owner, the same answers get its outcome, other answers are refused; in memory and in SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from dataclasses import replace

import pytest
from pausing import current_ms
from waiting import within

from codemode import CodeModeProtocolError
from codemode.continuations.guard import Claim
from codemode.stores import MemoryResumeGuard, SqliteInterruptStore, StoreUnavailableError

LONG_AGO_MS = -2 * 86_400_000


def claim(key="k", answers="yes", *, age_ms=3_600_000):
    return Claim(key, answers, current_ms() + age_ms)


@pytest.fixture(params=["memory", "sqlite"])
def guard(request, tmp_path):
    return MemoryResumeGuard() if request.param == "memory" else SqliteInterruptStore(tmp_path / "claims.sqlite").guard


def test_the_first_owns_and_the_same_answers_get_its_outcome(guard):
    async def scenario():
        assert await guard.claim(claim()) is None
        await guard.record("k", "outcome")
        assert await guard.claim(claim()) == "outcome"
        assert await guard.claim(claim()) == "outcome"
        assert await guard.claim(claim("other")) is None

    within(scenario())


def test_an_outcome_stands_whatever_its_owner_does_afterwards(guard):
    async def scenario():
        await guard.claim(claim())
        await guard.record("k", "outcome")
        assert not await guard.renew("k")
        assert await guard.record("k", "another") == "outcome"
        await guard.release("k")
        assert await guard.claim(claim()) == "outcome"

    within(scenario())


@pytest.mark.parametrize("is_settled", [False, True])
def test_other_answers_are_refused(guard, is_settled):
    async def scenario():
        await guard.claim(claim())
        if is_settled:
            await guard.record("k", "outcome")
        with pytest.raises(CodeModeProtocolError, match="other answers") as caught:
            await guard.claim(claim(answers="no"))
        assert caught.value.details["superseded"] is True

    within(scenario())


def test_a_repeat_waits_for_the_first(guard):
    async def scenario():
        await guard.claim(claim())
        repeats = [asyncio.create_task(guard.claim(claim())) for _ in range(3)]
        await asyncio.wait(repeats, timeout=0.01)
        assert not any(repeat.done() for repeat in repeats)
        await guard.record("k", "outcome")
        assert await asyncio.gather(*repeats) == ["outcome"] * 3

    within(scenario())


def test_a_released_claim_goes_to_the_next(guard):
    async def scenario():
        await guard.claim(claim())
        repeats = [asyncio.create_task(guard.claim(claim())) for _ in range(2)]
        await asyncio.wait(repeats, timeout=0.01)
        await guard.release("k")
        done, (waiting,) = await asyncio.wait(repeats, return_when=asyncio.FIRST_COMPLETED)
        assert done.pop().result() is None
        await guard.record("k", "second")
        assert await waiting == "second"
        await guard.release("none")

    within(scenario())


def test_after_a_release_other_answers_may_come(guard):
    async def scenario():
        await guard.claim(claim())
        await guard.release("k")
        assert await guard.claim(claim(answers="no")) is None

    within(scenario())


def test_expired_claims_are_forgotten(guard):
    async def scenario():
        for number in range(3):
            await guard.claim(claim(f"old {number}", age_ms=LONG_AGO_MS))
        await guard.claim(claim("new"))
        assert await guard.claim(claim("old 0")) is None

    within(scenario())


def test_of_many_threads_one_owns(guard):
    owners, barrier = [], threading.Barrier(6)

    def click():
        barrier.wait(60)
        outcome = within(guard.claim(claim()))
        if outcome is None:
            owners.append(1)
            within(guard.record("k", "outcome"))
        else:
            assert outcome == "outcome"

    threads = [threading.Thread(target=click) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert owners == [1]


def test_a_caller_that_gives_up_owns_nothing(guard):
    async def scenario():
        for moment in range(4):
            task = asyncio.create_task(guard.claim(claim()))
            for _ in range(moment):
                await asyncio.sleep(0)
            task.cancel()
            results = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(results[0], asyncio.CancelledError):
                await guard.release("k")
        assert await asyncio.wait_for(guard.claim(claim(answers="no")), 20) is None

    within(scenario())


def test_memory_is_bounded():
    async def scenario():
        guard = MemoryResumeGuard(max_claims=3, max_outcome_bytes=10)
        for key in "abc":
            await guard.claim(claim(key))
            await guard.record(key, key * 4)
        with pytest.raises(CodeModeProtocolError, match="full"):
            await guard.claim(claim("d"))
        with pytest.raises(CodeModeProtocolError, match="was dropped"):
            await guard.claim(claim("a"))
        assert [await guard.claim(claim(key)) for key in "bc"] == ["bbbb", "cccc"]

    within(scenario())


def test_forgetting_gives_the_bytes_back():
    async def scenario():
        guard = MemoryResumeGuard(max_outcome_bytes=10)
        for number in range(20):
            await guard.claim(claim(f"{number}", age_ms=LONG_AGO_MS))
            await guard.record(f"{number}", "outcome")
        await guard.claim(claim("last"))
        await guard.record("last", "outcome")
        assert await guard.claim(claim("last")) == "outcome"

    within(scenario())


def test_a_claim_that_holds_for_long_keeps_no_place_of_those_that_have_expired():
    async def scenario():
        guard = MemoryResumeGuard(max_claims=3)
        await guard.claim(claim("long"))
        for number in range(20):  # each for a continuation that expired two minutes ago
            await guard.claim(claim(f"short {number}", age_ms=-120_000))
        assert await guard.claim(claim("new")) is None
        with pytest.raises(CodeModeProtocolError, match="other answers"):
            await guard.claim(claim("long", "no"))

    within(scenario())


def test_released_claims_are_kept_nowhere_for_long():
    async def scenario():
        guard = MemoryResumeGuard()
        await guard.claim(claim("long"))
        for number in range(1_000):
            await guard.claim(claim(f"{number}"))
            await guard.release(f"{number}")
        return max(len(one) for one in vars(guard).values() if isinstance(one, list | dict))

    assert within(scenario()) < 200


def test_a_released_claim_makes_room():
    async def scenario():
        guard = MemoryResumeGuard(max_claims=1)
        await guard.claim(claim("a"))
        await guard.release("a")
        assert await guard.claim(claim("b")) is None

    within(scenario())


def test_sqlite_claims_outlive_the_object(tmp_path):
    async def scenario():
        path = tmp_path / "claims.sqlite"
        await SqliteInterruptStore(path).guard.claim(claim())
        await SqliteInterruptStore(path).guard.record("k", "outcome \u00fc")
        assert await SqliteInterruptStore(str(path)).guard.claim(claim()) == "outcome \u00fc"
        await SqliteInterruptStore(path).guard.release("k")
        assert await SqliteInterruptStore(path).guard.claim(claim()) == "outcome \u00fc"

    within(scenario())


def test_sqlite_touches_no_file_before_it_is_needed(tmp_path):
    path = tmp_path / "later" / "claims.sqlite"
    guard = SqliteInterruptStore(path).guard
    with pytest.raises(StoreUnavailableError, match=r"the store in '.*claims.sqlite' cannot be used"):
        within(guard.claim(claim()))
    path.parent.mkdir()
    assert within(guard.claim(claim())) is None
    assert path.exists()


@pytest.mark.parametrize("kind", ["folder", "other file"])
def test_sqlite_tells_of_a_path_that_cannot_be_opened(tmp_path, kind):
    path = tmp_path / "claims"
    path.mkdir() if kind == "folder" else path.write_text("this is no database " * 100)
    guard = SqliteInterruptStore(path).guard
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="cannot be used"):
            within(guard.claim(claim()))


def test_sqlite_is_opened_once_however_many_come_at_once(tmp_path):
    guard = SqliteInterruptStore(tmp_path / "claims").guard

    async def scenario():
        return await asyncio.gather(*(guard.claim(claim(str(number))) for number in range(8)))

    assert within(scenario()) == [None] * 8


def test_sqlite_does_not_keep_expired_claims(tmp_path):
    async def scenario():
        guard = SqliteInterruptStore(tmp_path / "claims.sqlite").guard
        await guard.claim(claim("old", age_ms=LONG_AGO_MS))
        await guard.claim(claim("new"))

    within(scenario())
    connection = sqlite3.connect(tmp_path / "claims.sqlite")
    assert connection.execute("SELECT key FROM resumes").fetchall() == [("new",)]
    connection.close()


def test_a_claim_is_a_value():
    one = claim()
    assert one == replace(one)


def test_a_claim_outlives_its_continuation_for_a_slower_clock(guard):
    async def scenario():
        await guard.claim(claim(age_ms=-86_000_000))
        await guard.record("k", "outcome")
        assert await guard.claim(claim(age_ms=-86_000_000)) == "outcome"

    within(scenario())
