"""Runs that rest and have a journal: whoever finds it goes on from there, and nothing that was done is done twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fast_clock import Fast
from pausing import Spy
from resting_surface import Slow, Surface
from waiting import until

from codemode import CodeModeAbortedError
from codemode.continuations.journal import MemoryJournal
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import MemoryResumeGuard


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal(clock=Fast())


@pytest.fixture(params=[False, True], ids=["warm", "cold"])
def is_cold(request) -> bool:
    return request.param


def surface(journal: Any, pool: Any, *tools: Any) -> Surface:
    keeping = {"keys": "a key", "journal": journal, "guard": MemoryResumeGuard()}
    return Surface(tools, {"approval": {"mode": "interrupt"}, "continuation": keeping}, pool)


JS = """
text('a'); const one = await tools.quick(1); await yield_control(); text('b');
const two = await tools.slow(2); text('c'); await yield_control(); return [one, two, await tools.quick(3)];
"""
CALL = {"conversation_id": "c", "started_at_ms": 1_700_000_000_000}


def texts(outcome: Any) -> list[Any]:
    return [one.value for one in outcome.output]


def quick(spy: Spy) -> Any:
    return spy.tool("quick", lambda value, _: value)


async def rested(outcome: Any, is_cold: bool) -> Any:
    assert outcome.status == "resting", outcome.error
    if is_cold:
        outcome.suspension.run.release_worker()
    return outcome.suspension.run


def test_a_run_with_a_journal_rests_and_goes_on_as_without(within, journal, pool, is_cold):
    spy, slow = Spy(), Slow()

    async def main():
        one = surface(journal, pool, quick(spy), slow.tool)
        run = await rested(await one.start(JS, **CALL), is_cold)
        run = await rested(await run.continue_run(50), is_cold)
        slow.end(2)
        run = await rested(await run.continue_run(), is_cold)
        outcome = await run.continue_run()
        again = await one.start(JS, **CALL)
        return outcome, again

    outcome, again = within(main())
    assert (outcome.value, again.value, again.is_replayed) == ([1, 2, 3], [1, 2, 3], True)
    assert spy.ran == [("quick", 1), ("quick", 3)]
    assert slow.calls == [2]


def test_who_finds_what_was_kept_goes_on_from_the_journal_once_its_owner_is_gone(within, journal, pool):
    """The owner's host has died at its second rest: what was kept at the first is behind the journal."""
    spy, slow = Spy(), Slow()

    async def main():
        one = surface(journal, pool, quick(spy), slow.tool)
        first = await one.start(JS, **CALL)
        kept = await first.suspension.run.store_content_and_sign_interrupt()
        second = await first.suspension.run.continue_run(50)
        run = second.suspension.run
        run._journaling.journal._writer_task.cancel()  # it neither renews nor writes any more
        run._journaling.journal._timer.cancel()
        other = surface(journal, pool, quick(spy), Slow().tool)
        outcome = await other.restore(kept, conversation_id="c")
        (asked,) = outcome.interrupt.requests
        assert (asked.payload["kind"], asked.tool_name, texts(outcome)) == (UNKNOWN_OUTCOME_KIND, "slow", ["b"])
        await run.abort()
        outcome = await other.restore(outcome.interrupt, {asked.interrupt_id: {"value": 2}}, conversation_id="c")
        return await (await rested(outcome, False)).continue_run()

    outcome = within(main())
    assert (outcome.value, spy.ran) == ([1, 2, 3], [("quick", 1), ("quick", 3)])


def test_who_asks_for_what_was_kept_after_it_has_ended_gets_its_outcome(within, journal, pool):
    spy = Spy()

    async def main():
        one = surface(journal, pool, quick(spy))
        first = await one.start("await yield_control(); text('b'); return await tools.quick(1)", **CALL)
        kept = await first.suspension.run.store_content_and_sign_interrupt()
        outcome = await first.suspension.run.continue_run()
        return outcome, await surface(journal, pool, quick(spy)).restore(kept, conversation_id="c")

    outcome, other = within(main())
    assert (outcome.value, other.value, other.is_replayed, texts(other)) == (1, 1, True, ["b"])
    assert spy.ran == [("quick", 1)]


def test_the_same_call_again_waits_for_a_run_at_rest_and_goes_on_when_its_owner_lets_go(within, journal, pool, is_cold):
    spy = Spy()

    async def main():
        one = surface(journal, pool, quick(spy))
        run = await rested(
            await one.start("const a = await tools.quick(1); await yield_control(); return a", **CALL), is_cold
        )
        outcome = await run.abort()
        assert type(outcome.error) is CodeModeAbortedError
        again = await surface(journal, pool, quick(spy)).start(
            "const a = await tools.quick(1); await yield_control(); return a", **CALL
        )
        return await (await rested(again, is_cold)).continue_run()

    outcome = within(main())
    assert (outcome.value, spy.ran) == (1, [("quick", 1)])


def test_a_lost_journal_ends_a_run_at_rest_and_its_calls(within, journal, pool, is_cold):
    slow, later, js = Slow(), Slow("later"), "return await Promise.all([tools.slow(1), tools.later(2)])"

    async def main():
        one = surface(journal, pool, slow.tool, later.tool)
        run = await rested(await one.start(js, wait_ms=30, **CALL), is_cold)
        journal._clock.now += 1000.0
        outcome = await surface(journal, pool, slow.tool, later.tool).start(js, **CALL)
        assert [one.payload["kind"] for one in outcome.interrupt.requests] == [UNKNOWN_OUTCOME_KIND] * 2
        told = asyncio.Event()
        run.on_change = told.set
        later.end(2)
        await told.wait()
        await until(lambda: slow.cancelled)
        assert not run.is_suspended
        return await run.abort()

    outcome = within(main())
    assert (type(outcome.error), slow.calls, slow.cancelled) == (CodeModeAbortedError, [1], [1])


def test_who_is_cancelled_keeps_the_journal_of_what_rests(within, journal, pool):
    spy, slow = Spy(), Slow()

    async def main():
        run = await rested(await surface(journal, pool, quick(spy), slow.tool).start(JS, **CALL), False)
        going_on = asyncio.ensure_future(run.continue_run())
        await until(lambda: slow.calls)
        going_on.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going_on
        assert run.is_suspended
        slow.end(2)
        run = await rested(await run.continue_run(), False)
        return await run.continue_run()

    outcome = within(main())
    assert (outcome.value, spy.ran) == ([1, 2, 3], [("quick", 1), ("quick", 3)])
