"""The time that tests let pass is what deadlines go by, and nothing else changes it for them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from waiting import within

from codemode.host.clock import PausableTimer

MINUTE = 60  # so that a machine that stands still for seconds moves no deadline by much


def test_a_deadline_rings_once_as_much_has_passed_as_it_was_set_for(passing_time: Any):
    async def told() -> list[str]:
        rung: list[str] = []
        running, still, later = (
            PausableTimer(seconds, lambda name=name: rung.append(name), uncounted=SimpleNamespace(seconds=0.0))
            for name, seconds in (("running", 60 * MINUTE), ("still", 60 * MINUTE), ("later", 120 * MINUTE))
        )
        for clock in (running, still, later):
            clock.start()
        still.pause()
        passing_time.skip(59 * MINUTE)
        await asyncio.sleep(0)
        assert rung == []
        passing_time.skip(2 * MINUTE)
        await asyncio.sleep(0)
        assert rung == ["running"]
        still.start()
        passing_time.skip(58 * MINUTE)
        await asyncio.sleep(0)
        assert rung == ["running"]
        passing_time.skip(3 * MINUTE)
        await asyncio.sleep(0)
        assert sorted(rung) == ["later", "running", "still"]
        for clock in (running, still, later):
            clock.close()
        return rung

    assert len(within(told())) == 3
