"""Turns, budgets and kept pauses by themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from codemode_pydantic_ai.call_scheduling import CallBudget, CallScheduler
from codemode_pydantic_ai.pauses import Pause, PauseCache
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import RunContext, UsageLimits
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage
from suite import rounds

from codemode import Interrupt, PendingRequest


@settings(max_examples=rounds(20, 60), deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8))
def test_alone_means_alone_in_order_whoever_is_cancelled(calls: list[tuple[bool, bool]]) -> None:
    begun: list[int] = []
    running: set[int] = set()

    async def call(turns: CallScheduler, number: int, alone: bool) -> None:
        async with turns.acquire(is_sequential=alone):
            begun.append(number)
            assert not any(calls[other][0] for other in running)
            assert not (alone and running)
            running.add(number)
            try:
                await asyncio.sleep(0)
            finally:
                running.remove(number)

    async def main() -> None:
        turns = CallScheduler()
        tasks = [asyncio.create_task(call(turns, number, alone)) for number, (alone, _) in enumerate(calls)]
        await asyncio.sleep(0)
        for task, (_, is_cancelled) in zip(tasks, calls, strict=True):
            if is_cancelled:
                task.cancel()
        ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert not [one for one in ended if isinstance(one, AssertionError)]
        async with turns.acquire(is_sequential=True):
            assert turns.running == 1

    asyncio.run(main())
    assert begun == sorted(begun)


def test_a_budget_counts_what_is_in_flight() -> None:
    usage = RunUsage(tool_calls=1)
    ctx: RunContext[Any] = RunContext(
        deps=None, model=TestModel(), usage=usage, usage_limits=UsageLimits(tool_calls_limit=3)
    )
    budget = CallBudget()
    first = budget.reserve_or_raise(ctx)
    budget.reserve_or_raise(ctx)
    with pytest.raises(UsageLimitExceeded):
        budget.reserve_or_raise(ctx)
    first.release()
    first.release()
    budget.reserve_or_raise(ctx)
    assert budget.in_flight == 2


def pause(number: int, size: int) -> Pause:
    waiting_id = f"outer{number}:tool-1:interrupt-{number:016x}-1"
    request = PendingRequest(interrupt_id=waiting_id, tool_name="t", tool_call_id="", input=None, payload={})
    return Pause(
        Interrupt(requests=(request,), outer_tool_call_id=f"outer{number}", continuation={"body": "x" * size}), ""
    )


def test_kept_pauses_have_a_bound() -> None:
    kept = PauseCache(max_bytes=100)
    pauses = [pause(number, 40) for number in range(4)]
    for one in pauses:
        kept.put(one)
    ids = [one.interrupt.interrupt_id for one in pauses]
    assert [kept.get(one) is not None for one in ids] == [False, False, True, True]
    kept.put(pauses[3])  # the same again takes no more room
    assert kept.get(ids[2]) is not None


def test_only_waiting_ids_are_waiting_ids() -> None:
    assert Interrupt.find_outer_id("a:b:tool-12:interrupt-0123456789abcdef-3") == "a:b"
    assert Interrupt.find_outer_id("a:tool-1") is None
    assert Interrupt.find_outer_id("a:tool-1:interrupt-xyz-1") is None
