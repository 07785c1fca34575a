"""Whoever waits for a journal that is another's has no worker meanwhile: else two could wait for each other."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from suite import full_only
from test_journaled_runs import Shop, options
from waiting import until, within

from codemode import CallContext, Tool, WorkerPool, run_code_mode
from codemode.continuations.journal import MemoryJournal
from codemode.errors import CodeModeConcurrencyError

HOLDS = "return await tools.hold({})"


class Held:
    """A tool that is at it until it is released, in a program that runs in a pool of its own."""

    def __init__(self):
        self.journal = MemoryJournal()
        self.entered = 0
        self.released = asyncio.Event()
        self.tools = [Tool("hold", execute=self._hold)]

    async def _hold(self, value, context):
        self.entered += 1
        await self.released.wait()
        return "held"

    def call(self, pool, tool_call_id="c", js=HOLDS):
        return asyncio.ensure_future(
            run_code_mode(
                js, self.tools, options=options(self.journal), call=CallContext(tool_call_id=tool_call_id), pool=pool
            )
        )


async def lets_go(pool, task):
    """Wait until a call has taken the only worker and given it up again."""
    await until(lambda: pool.active == 1 or task.done())
    await until(lambda: pool.active == 0)


async def ended(*tasks):
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


@pytest.mark.parametrize("js", [HOLDS, *full_only("return  await tools.hold({}) // read anew")])
def test_another_program_runs_on_the_only_worker_while_one_waits_for_its_journal(js):
    async def scenario():
        held = Held()
        with WorkerPool({"max_workers": 1}) as first, WorkerPool({"max_workers": 1}) as second:
            owner = held.call(first, js=js)
            await until(lambda: held.entered == 1)
            again = held.call(second, js=js)
            await lets_go(second, again)
            assert not again.done()
            assert await run_code_mode("return 1", {}, pool=second) == 1
            held.released.set()
            assert [await owner, await again] == ["held", "held"]
            assert (held.entered, second.active) == (1, 0)

    within(scenario())


def test_what_goes_on_behind_a_journal_that_came_free_does_not_run_what_had_ended():
    async def scenario():
        held, shop = Held(), Shop()
        held.tools += shop.tools
        js = "await tools.pay({amount: 7}); return [await tools.hold({}), await tools.pay({amount: 8})]"
        with WorkerPool({"max_workers": 1}) as first, WorkerPool({"max_workers": 1}) as second:
            owner = held.call(first, js=js)
            await until(lambda: held.entered == 1)
            again = held.call(second, js=js)
            await lets_go(second, again)
            await ended(owner)  # gives the journal up, in the middle of a call that says nothing of itself
            interrupt = await again
            assert [request.tool_name for request in interrupt.requests] == ["hold"]
            assert (shop.paid, held.entered) == ([7], 1)

    within(scenario())


def test_one_that_is_cancelled_while_it_waits_leaves_nothing_behind():
    async def scenario():
        held = Held()
        with WorkerPool({"max_workers": 1}) as first, WorkerPool({"max_workers": 1}) as second:
            owner = held.call(first)
            await until(lambda: held.entered == 1)
            again = held.call(second)
            await lets_go(second, again)
            await ended(again)
            held.released.set()
            assert await owner == "held"
            assert await held.call(second) == "held"
            assert held.entered == 1

    within(scenario())


def test_one_that_finds_no_worker_afterwards_gives_the_journal_back():
    async def scenario():
        held = Held()
        refusing = options(held.journal)
        refusing["execution_policy"] = {"on_saturation": "fail"}
        with WorkerPool({"max_workers": 1}) as first, WorkerPool({"max_workers": 1}) as second:
            owner = held.call(first)
            await until(lambda: held.entered == 1)
            run = run_code_mode(HOLDS, held.tools, options=refusing, call=CallContext(tool_call_id="c"), pool=second)
            again = asyncio.ensure_future(run)
            await lets_go(second, again)
            other = Held()
            busy = other.call(second, tool_call_id="busy")
            await until(lambda: other.entered == 1)
            await ended(owner)
            with pytest.raises(CodeModeConcurrencyError):
                await again
            other.released.set()
            assert await busy == "held"
            interrupt = await held.call(second)
            assert [request.tool_name for request in interrupt.requests] == ["hold"]

    within(scenario())
