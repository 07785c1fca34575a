"""A machine that stands still now and then, as the tests of this project can be run on."""

from __future__ import annotations

import asyncio
import threading

import pytest
from halts import Halts


def run(halts: Halts, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        for _ in range(20):
            await asyncio.to_thread(lambda: None)

    with monkeypatch.context() as patch:
        halts.patch(patch.setattr)
        asyncio.run(main())


def test_loops_and_threads_stand_still_for_as_long_as_a_test_may(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[tuple[str, float]] = []
    halts = Halts(1, 0.5, 5, sleep=lambda seconds: slept.append((threading.current_thread().name, seconds)))
    for _ in range(2):
        slept.clear()
        run(halts, monkeypatch)
        assert len({name == threading.current_thread().name for name, _ in slept}) == 2
        assert all(0 <= seconds <= 0.5 for _, seconds in slept)
        assert 5 <= sum(seconds for _, seconds in slept) < 6  # what begins meanwhile in another thread is finished
        slept.clear()
        run(halts, monkeypatch)
        assert slept == []
        halts.begin_test()


def test_nothing_stands_still_that_is_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    run(Halts(0, 0.5, 5, sleep=slept.append), monkeypatch)
    assert slept == []


def test_what_the_environment_says_is_read() -> None:
    halts = Halts.of("0.01,0.25,2")
    assert (halts._part, halts._seconds, halts._in_all) == (0.01, 0.25, 2)
    with pytest.raises(ValueError):  # noqa: PT011 - whoever runs the tests reads it, whatever it says
        Halts.of("often")
