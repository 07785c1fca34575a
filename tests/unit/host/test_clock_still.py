"""How long a clock has stood still: whatever stopped it, and whether or not it runs now."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode.host import clock


@dataclass
class Told:
    """A loop that is at the time it was told, and a tally of what hooks took."""

    at: float = 100.0
    seconds: float = 0.0

    def time(self) -> float:
        return self.at

    def call_at(self, *_: object) -> None:
        """Set no timer."""

    def call_soon(self, *_: object) -> None:
        """Call nothing."""


@given(st.integers(1, 50), st.integers(0, 50), st.integers(0, 50))
def test_it_tells_how_late_it_has_rung_and_no_time_that_does_not_count(limit: int, late: int, hooks: int):
    told, passed = Told(), list[float]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "get_running_loop", lambda: told)
        measured = clock.PausableTimer(limit, lambda: passed.append(measured.late_seconds), uncounted=told)
    measured.start()
    told.at += limit + late + hooks
    told.seconds += hooks
    measured._on_timer()
    assert passed == [late]


@given(st.lists(st.tuples(st.sampled_from(["run", "stand", "hooks"]), st.integers(0, 50)), max_size=12))
def test_it_adds_up_what_it_stood_and_what_hooks_took_while_it_ran(steps: list[tuple[str, int]]):
    told = Told()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "get_running_loop", lambda: told)
        measured = clock.PausableTimer(1000, lambda: None, uncounted=told)
    assert measured.paused_seconds == 0
    measured.start()
    stood = 0
    for what, seconds in steps:
        if what == "stand":
            measured.pause()
        else:
            measured.start()
        told.at += seconds
        told.seconds += seconds if what == "hooks" else 0
        stood += seconds if what != "run" else 0
        assert measured.paused_seconds == stood


def test_time_that_is_used_up_at_the_end_of_a_turn_has_passed_before_the_next_turn_can_end() -> None:
    passed = list[int]()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        measured = clock.PausableTimer(0.001, lambda: passed.append(1), uncounted=Told(seconds=0.0))
        measured.start()
        begun = loop.time()
        while loop.time() < begun + 0.002:
            pass
        measured.pause()
        measured.start()
        loop.call_soon(measured.pause)  # as what a worker has sent is read before timers are looked at
        for _ in range(3):
            await asyncio.sleep(0)
        assert passed == [1]

    asyncio.run(main())
