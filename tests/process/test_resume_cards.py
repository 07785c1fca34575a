"""Two cards on two screens: each answer goes to the newest interrupt, in whatever order they come."""

from __future__ import annotations

import asyncio

import pytest
from pausing import NO, OK, PAUSING, through_json
from waiting import within

from codemode import CodeModeProtocolError, Interrupt, create_code_mode_tool
from codemode.stores import ALL_TENANTS, MemoryInterruptStore

TWO = "return (await Promise.allSettled([tools.refund(1), tools.refund(2)])).map(one => one.status)"


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_two_cards_answered_one_after_the_other(spy, order):
    async def scenario():
        code_mode = create_code_mode_tool([spy.guarded()], PAUSING)
        store = MemoryInterruptStore()
        interrupt = await code_mode.execute({"js": TWO})
        await store.put(interrupt)
        cards = [interrupt.requests[number].interrupt_id for number in order]

        def resume(paused, resolutions):
            return code_mode.resume(paused, resolutions=resolutions)

        first = await store.answer(cards[0], OK, resume)
        assert isinstance(first, Interrupt)
        assert await store.get(cards[1], tenant=ALL_TENANTS) == first
        assert await store.get(cards[0], tenant=ALL_TENANTS) is None
        assert await store.answer(cards[1], NO, resume) == [
            ["fulfilled", "rejected"][order[0]],
            ["rejected", "fulfilled"][order[0]],
        ]
        for card in cards:
            with pytest.raises(CodeModeProtocolError, match="not pending"):
                await store.answer(card, OK, resume)

    within(scenario())
    assert len(spy.ran) == 1


def test_two_cards_answered_at_once(spy):
    """Both screens show the first interrupt; each answers its own card of it, in whichever order, at the same time."""

    async def scenario(order):
        entered, go_on = asyncio.Queue(), asyncio.Event()

        async def refund(value, context):
            entered.put_nowait(value)
            await go_on.wait()
            return value

        code_mode = create_code_mode_tool([spy.tool("refund", refund, needs_approval=True)], PAUSING)
        store = MemoryInterruptStore()
        interrupt = await code_mode.execute({"js": "return Promise.all([1, 2, 3].map(n => tools.refund(n)))"})
        kept = await store.put(interrupt)

        async def resume(paused, resolutions):
            return await code_mode.resume(through_json(paused), resolutions=resolutions)

        cards = [interrupt.requests[number].interrupt_id for number in order]
        answers = [asyncio.create_task(store.answer(card, OK, resume)) for card in cards]
        first = interrupt.requests[await entered.get() - 1].interrupt_id  # whichever came to its turn
        # The same card clicked again while it is being answered waits, and then is no longer pending.
        again = asyncio.create_task(store.answer(first, OK, resume))
        await asyncio.sleep(0)
        go_on.set()
        results = await asyncio.gather(*answers)
        with pytest.raises(CodeModeProtocolError, match="not pending"):
            await again
        # One after the other, in whichever order they came to their turn.
        assert [result for result in results if not isinstance(result, Interrupt)] == [[1, 2, 3]]
        assert (await store.record(kept, tenant=ALL_TENANTS)).state == "completed"
        assert [await store.get(card, tenant=ALL_TENANTS) for card in cards] == [None, None, None]

    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        within(scenario(order))
    assert sorted(value for _, value in spy.ran) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_an_answer_that_fails_leaves_the_card_pending(spy):
    async def scenario():
        code_mode = create_code_mode_tool([spy.guarded()], PAUSING)
        store = MemoryInterruptStore()
        interrupt = await code_mode.execute({"js": "return await tools.refund(1)"})
        await store.put(interrupt)

        async def resume(paused, resolutions):
            return await code_mode.resume(paused, resolutions=resolutions)

        with pytest.raises(CodeModeProtocolError):
            await store.answer(interrupt.interrupt_id, {"approved": "yes"}, resume)
        return await store.answer(interrupt.interrupt_id, OK, resume)

    assert within(scenario()) == {"done": "refund"}


def test_a_resume_that_is_cut_off_leaves_the_other_card_pending(spy):
    async def scenario():
        running = asyncio.Event()

        async def refund(value, context):
            running.set()
            await asyncio.Event().wait()

        hanging = create_code_mode_tool([spy.tool("refund", refund, needs_approval=True)], PAUSING)
        working = create_code_mode_tool([spy.guarded()], PAUSING)
        store = MemoryInterruptStore()
        interrupt = await hanging.execute({"js": TWO})
        await store.put(interrupt)
        first, second = (one.interrupt_id for one in interrupt.requests)
        task = asyncio.create_task(
            store.answer(first, OK, lambda paused, answers: hanging.resume(paused, resolutions=answers))
        )
        await running.wait()
        task.cancel()
        await asyncio.wait([task])
        assert await store.get(first, tenant=ALL_TENANTS) is None
        rest = await store.answer(second, OK, lambda paused, answers: working.resume(paused, resolutions=answers))
        (unknown,) = rest.requests
        assert unknown.payload["kind"] == "code-mode/unknown-outcome"
        answer = {"value": "refunded"}
        return await store.answer(
            unknown.interrupt_id, answer, lambda paused, answers: working.resume(paused, resolutions=answers)
        )

    assert within(scenario()) == ["fulfilled", "fulfilled"]
    assert spy.ran == [("refund", 1), ("refund", 2)]
