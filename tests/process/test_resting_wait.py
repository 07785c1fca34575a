"""How long a call of the model waits for a program that may rest: from its start, whatever the program computes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from codemode import Tool, WorkerPool, create_exec_wait_tools
from codemode.execution.suspendable_runner import SuspendableRunner

COMPUTING = "let n = 1; for (let i = 0; i < 1e6; i++) n = (n * 31 + i) % 1000003;"
ASKING = "await tools.never({}); return n"


async def never() -> None:
    """Wait for as long as somebody waits for it."""
    await asyncio.Event().wait()


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The times, in milliseconds, for which clocks of runs were set."""
    times: list[int] = []
    made = SuspendableRunner._make_clock

    def clock_of(self: SuspendableRunner, milliseconds: int, on_passed: Any) -> Any:
        times.append(milliseconds)
        return made(self, milliseconds, on_passed)

    monkeypatch.setattr(SuspendableRunner, "_make_clock", clock_of)
    return times


async def result_of(pool: WorkerPool, code: str, *tools: Any, **options: Any) -> Any:
    pair = create_exec_wait_tools([*tools], options, pool=pool)
    try:
        return await pair.exec.execute({"code": code})
    finally:
        await pair.aclose()


def test_what_a_program_computes_counts_as_waited_for(within, make_pool, clocks: list[int], model_waits):
    asked: list[int] = []

    async def asks() -> None:
        asked.append(1)
        await never()

    async def main() -> Any:
        made = result_of(make_pool(), COMPUTING + ASKING, Tool("never", execute=asks), timeoutMs=20_000)
        return await model_waits.left(made, lambda: asked and len(clocks) > 1)

    result = within(main())
    assert (result["status"], result["reason"]) == ("waiting", "pending_tools")
    computing, waiting = clocks[:2]
    assert computing == 20_000
    assert 0 < waiting < 20_000


def test_a_program_that_waits_for_nothing_has_one_clock(within, make_pool, clocks: list[int]):
    assert within(result_of(make_pool(), "return 1", timeoutMs=20_000))["value"] == 1
    assert clocks == [20_000]


def test_a_wait_that_is_shorter_is_over_as_soon_as_a_program_is_idle(within, make_pool, clocks: list[int]):
    code = COMPUTING.replace("1e6", "5e6") + ASKING
    result = within(result_of(make_pool(), code, never, timeoutMs=60_000, waitTimeoutMs=100))
    assert (result["status"], result["reason"]) == ("waiting", "pending_tools")
    assert clocks[:2] == [60_000, 100]
