"""A journal in memory: one owner at a time, writes fenced by its opening, what waits, what an end leaves."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import within

from codemode.continuations.guard import GuardClock
from codemode.continuations.journal import JOURNAL_LEASE_MS, MemoryJournal


class StoodClock(GuardClock):
    """A clock that goes on when somebody waits by it, or a test says so."""

    def __init__(self):
        self.now = 1000.0

    def monotonic_seconds(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock():
    return StoodClock()


@pytest.fixture
def journal(clock):
    return MemoryJournal(clock=clock)


def test_the_first_opening_makes_it_and_a_released_one_goes_on_from_its_lines(journal):
    async def scenario():
        first = await journal.open("k", "head")
        assert (first.number, first.head, first.lines, first.outcome, first.is_takeover) == (1, "head", (), None, False)
        assert await journal.write(first, ["a", "b"])
        assert await journal.write(first, ["c"])
        assert await journal.release(first)
        second = await journal.open("k", "another head")
        assert (second.number, second.head, second.lines) == (2, "head", ("a", "b", "c"))
        assert not second.is_takeover

    within(scenario())


def test_keys_are_apart(journal):
    async def scenario():
        one, other = await journal.open("a", "A"), await journal.open("b", "B")
        await journal.write(one, ["1"])
        await journal.release(other)
        assert (await journal.open("b", "x")).lines == ()

    within(scenario())


def test_whoever_comes_while_it_is_held_waits_until_it_is_given_up(journal):
    async def scenario():
        held = await journal.open("k", "head")
        waiting = asyncio.create_task(journal.open("k", "head"))
        for _ in range(3):
            await asyncio.sleep(0)
            await journal.renew(held)
        assert not waiting.done()
        await journal.write(held, ["a"])
        await journal.release(held)
        assert (await waiting).lines == ("a",)

    within(scenario())


def test_whoever_waits_gets_the_outcome_and_takes_nothing(journal):
    async def scenario():
        held = await journal.open("k", "head")
        waiting = [asyncio.create_task(journal.open("k", "head")) for _ in range(3)]
        await asyncio.sleep(0)
        await journal.end(held, "done", is_final=True)
        for one in await asyncio.gather(*waiting):
            assert (one.number, one.outcome, one.lines) == (0, "done", ())
            assert not await journal.write(one, ["a"])

    within(scenario())


def test_a_lease_that_nobody_renews_lapses_and_what_its_owner_writes_then_is_refused(journal, clock):
    async def scenario():
        dead = await journal.open("k", "head")
        await journal.write(dead, ["a"])
        began = clock.now
        heir = await journal.open("k", "head")
        assert clock.now - began >= JOURNAL_LEASE_MS / 1000
        assert (heir.number, heir.lines, heir.is_takeover) == (2, ("a",), True)
        assert not await journal.write(dead, ["b"])
        assert not await journal.renew(dead)
        assert not await journal.end(dead, "x", is_final=True)
        assert not await journal.release(dead)
        assert await journal.write(heir, ["c"])
        await journal.release(heir)
        assert (await journal.open("k", "head")).lines == ("a", "c")

    within(scenario())


def test_an_owner_whose_lease_is_over_and_that_nobody_has_replaced_still_writes(journal, clock):
    async def scenario():
        late = await journal.open("k", "head")
        clock.now += JOURNAL_LEASE_MS
        assert await journal.write(late, ["a"])
        assert await journal.renew(late)

    within(scenario())


def test_a_renewed_lease_holds(journal, clock):
    async def scenario():
        held = await journal.open("k", "head")
        waiting = asyncio.create_task(journal.open("k", "head"))
        began = clock.now
        while clock.now - began < 3 * JOURNAL_LEASE_MS / 1000:
            await journal.renew(held)
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    within(scenario())


def test_the_outcome_of_a_pause_stands_until_somebody_goes_on(journal):
    async def scenario():
        first = await journal.open("k", "head")
        await journal.write(first, ["a"])
        assert await journal.end(first, "paused", is_final=False)
        repeated = await journal.open("k", "head")
        assert (repeated.number, repeated.outcome) == (0, "paused")
        on = await journal.open("k", "head", again=True)
        assert (on.number, on.outcome, on.lines, on.is_takeover) == (2, None, ("a",), False)
        await journal.write(on, ["b"])
        await journal.release(on)
        assert (await journal.open("k", "head")).lines == ("a", "b")

    within(scenario())


def test_a_final_outcome_stands_for_ever_and_its_lines_are_gone(journal):
    async def scenario():
        opened = await journal.open("k", "head")
        await journal.write(opened, ["a"])
        await journal.end(opened, "done", is_final=True)
        again = await journal.open("k", "head", again=True)
        assert (again.number, again.outcome, again.lines) == (0, "done", ())
        assert not await journal.write(opened, ["b"])

    within(scenario())


def test_purge_forgets_what_is_old_and_nobody_has(journal, clock):
    async def scenario():
        ended, left, held = [await journal.open(key, "head") for key in ("ended", "left", "held")]
        await journal.end(ended, "done", is_final=True)
        await journal.write(left, ["a"])
        clock.now += 100
        await journal.renew(held)
        assert await journal.purge(timedelta(seconds=200)) == 0
        assert await journal.purge(timedelta(seconds=50)) == 2
        assert await journal.write(held, ["b"])
        assert not await journal.write(left, ["b"])
        assert (await journal.open("ended", "head")).number == 1

    within(scenario())


def test_a_lease_must_have_a_length():
    with pytest.raises(ValueError, match="lease_ms must be at least 1"):
        MemoryJournal(lease_ms=0)


_STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["write", "renew", "release", "pause", "finish", "lapse"])),
    max_size=30,
)


@given(_STEPS)
def test_only_the_last_opening_ever_writes(steps):
    """Three hosts in any order: what stands is what owners wrote, each while it was the last to have opened."""

    async def scenario():
        clock = StoodClock()
        journal = MemoryJournal(clock=clock)
        openings, expected, owner, is_final = {}, [], None, False
        for number, (host, step) in enumerate(steps):
            if owner is None and not is_final:
                openings[host] = await journal.open("k", "head", again=True)
                assert list(openings[host].lines) == expected
                owner = host
            mine = openings.get(host)
            if step == "lapse":
                clock.now += JOURNAL_LEASE_MS
                owner = None
            elif mine is not None:
                done = await _step(journal, mine, step, str(number))
                assert done == (host == owner)
                if done and step == "write":
                    expected.append(str(number))
                if done and step in ("release", "pause", "finish"):
                    owner, is_final = None, step == "finish"

    within(scenario())


async def _step(journal, opened, step, text):
    match step:
        case "write":
            return await journal.write(opened, [text])
        case "renew":
            return await journal.renew(opened)
        case "release":
            return await journal.release(opened)
        case _:
            return await journal.end(opened, text, is_final=step == "finish")
