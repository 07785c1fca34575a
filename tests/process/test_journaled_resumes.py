"""Resumes with a journal: it decides how far a program has come, whatever continuation and guard say."""

from __future__ import annotations

import asyncio

import pytest
from pausing import NO, OK
from recovering import UNKNOWN
from suite import full_only
from test_journaled_runs import Fast, Host, Shop, call, go_on, options
from waiting import until, within

from codemode import CallContext, CodeModeAbortedError, CodeModeProtocolError, Interrupt, Tool, run_code_mode
from codemode.continuations.journal import MemoryJournal
from codemode.host.clock import now_ms
from codemode.stores import MemoryResumeGuard

JS = """
const a = await tools.pay({amount: 1});
const [b, c] = await Promise.all([tools.refund({amount: a + 1}), tools.pay({amount: a + 2})]);
return [a, b, c, await tools.pay({amount: b + c})];
"""
RESULT = [1, 2, 3, 5]


class GatedShop(Shop):
    """Payments, and refunds that need an approval."""

    def __init__(self):
        super().__init__()
        self.tools.append(Tool("refund", execute=self._pay, needs_approval=True))


async def paused_at_refund(journal, shop, **more):
    paused = await call(journal, shop.tools, JS, **more)
    assert isinstance(paused, Interrupt)
    assert shop.paid == [1, 3]
    return paused, {paused.interrupt_id: OK}


async def answered(result, journal, shop, guard):
    """Say of calls of unknown outcome how they really ended, until there is a value."""
    while isinstance(result, Interrupt):
        assert {request.payload["kind"] for request in result.requests} == {UNKNOWN}
        answers = {
            one.interrupt_id: {"value": one.input["amount"]} if one.input["amount"] in shop.paid else {"runAgain": True}
            for one in result.requests
        }
        result = await go_on(result, answers, journal, shop.tools, guard=guard)
    return result


@pytest.mark.parametrize("is_done", [True, *full_only(False)])
def test_a_resume_whose_host_dies_at_any_operation_of_its_journal_goes_on_with_the_same_answers(is_done):
    async def operations():
        journal, shop = MemoryJournal(), GatedShop()
        paused, answers = await paused_at_refund(journal, shop)
        host = Host(journal)
        assert await go_on(paused, answers, host, shop.tools, guard=MemoryResumeGuard()) == RESULT
        return host.operations

    async def scenario(dies_after):
        journal, shop, guard = MemoryJournal(clock=Fast()), GatedShop(), MemoryResumeGuard()
        paused, answers = await paused_at_refund(journal, shop)
        dying = Host(journal, dies_after=dies_after, is_done=is_done)
        with pytest.raises(CodeModeAbortedError) as caught:
            await go_on(paused, answers, dying, shop.tools, guard=DeadGuard(guard))
        assert caught.value.recovery is None
        # The guard's claim still holds: the lease of the journal decides.
        result = await go_on(paused, answers, journal, shop.tools, guard=guard)
        assert await answered(result, journal, shop, guard) == RESULT
        assert sorted(shop.paid) == sorted(RESULT)
        assert await go_on(paused, answers, journal, shop.tools, guard=guard) is not None
        assert sorted(shop.paid) == sorted(RESULT)

    for dies_after in range(1, within(operations()) + 1):
        within(scenario(dies_after))


class DeadGuard:
    """A guard as a host that dies leaves it: what it has claimed it neither records nor gives back."""

    is_shared_between_processes = True

    def __init__(self, guard):
        self._guard = guard

    async def claim(self, claim):
        return await self._guard.claim(claim)

    async def renew(self, key):
        return True

    async def record(self, key, outcome):
        return outcome

    async def release(self, key):
        pass


def test_the_same_answers_get_the_same_outcome_and_others_are_refused():
    async def scenario():
        journal, shop, guard = MemoryJournal(), GatedShop(), MemoryResumeGuard()
        paused, answers = await paused_at_refund(journal, shop)
        both = [go_on(paused, answers, journal, shop.tools, guard=guard) for _ in range(2)]
        assert await asyncio.gather(*both) == [RESULT] * 2
        assert await go_on(paused, answers, journal, shop.tools, guard=guard) == RESULT
        assert await go_on(paused, answers, journal, shop.tools, guard=MemoryResumeGuard()) == RESULT
        for which in (guard, MemoryResumeGuard()):
            with pytest.raises(CodeModeProtocolError) as caught:
                await go_on(paused, {paused.interrupt_id: NO}, journal, shop.tools, guard=which)
            assert caught.value.details["superseded"] is True
        assert sorted(shop.paid) == sorted(RESULT)

    within(scenario())


def test_of_two_continuations_of_one_state_only_one_goes_on():
    """A host that is cut off leaves a recovery, and the call that is made again pauses with the same request."""

    async def scenario():
        journal, shop, began = MemoryJournal(), GatedShop(), asyncio.Event()
        hangs = [True]

        async def pay(value, context):
            if value["amount"] == 3 and hangs:
                hangs.clear()
                began.set()
                await asyncio.Event().wait()
            shop.paid.append(value["amount"])
            return value["amount"]

        tools = [Tool("pay", execute=pay), shop.tools[1]]
        given = options(journal)
        first = asyncio.create_task(run_code_mode(JS, tools, options=given, call=CallContext(tool_call_id="call_1")))
        await began.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await first
        recovery = cancelled.value.__cause__.recovery
        retried = await run_code_mode(JS, tools, options=given, call=CallContext(tool_call_id="call_1"))
        ids = {one.interrupt_id: one.payload["kind"] for one in retried.requests}
        assert {one.interrupt_id for one in recovery.requests} == set(ids)
        answers = {one: {"runAgain": True} if kind == UNKNOWN else OK for one, kind in ids.items()}
        ends = [go_on(one, answers, journal, tools, guard=MemoryResumeGuard()) for one in (recovery, retried)]
        ended = await asyncio.gather(*ends, return_exceptions=True)
        assert RESULT in ended
        (refused,) = [one for one in ended if one != RESULT]
        assert refused.details["superseded"] is True
        assert sorted(shop.paid) == sorted(RESULT)

    within(scenario())


def test_a_continuation_whose_journal_is_not_known_begins_one():
    async def scenario():
        shop, guard = GatedShop(), MemoryResumeGuard()
        paused, answers = await paused_at_refund(MemoryJournal(), shop)
        journal = MemoryJournal(clock=Fast())
        with pytest.raises(CodeModeAbortedError):
            await go_on(paused, answers, Host(journal, dies_after=4), shop.tools, guard=guard)
        result = await go_on(paused, answers, journal, shop.tools, guard=guard)
        assert await answered(result, journal, shop, guard) == RESULT
        assert sorted(shop.paid) == sorted(RESULT)

    within(scenario())


def test_a_claim_of_a_host_without_a_journal_that_lapses_asks_what_became_of_the_call():
    async def scenario():
        shop, guard = GatedShop(), MemoryResumeGuard(clock=Fast())
        journal = MemoryJournal()
        paused, answers = await paused_at_refund(journal, shop)
        began = asyncio.Event()

        async def hang(value, context):
            began.set()
            await asyncio.Event().wait()

        without = [shop.tools[0], Tool("refund", execute=hang, needs_approval=True)]
        lost = asyncio.create_task(go_on(paused, answers, None, without, guard=DeadGuard(guard)))
        await began.wait()
        result = await go_on(paused, answers, journal, shop.tools, guard=guard)
        (request,) = result.requests
        assert (request.payload["kind"], request.input) == (UNKNOWN, {"amount": 2})
        lost.cancel()
        await asyncio.wait([lost])
        assert await go_on(result, {request.interrupt_id: {"value": 2}}, journal, shop.tools, guard=guard) == RESULT

    within(scenario())


def test_a_host_that_cannot_go_on_does_not_forget_what_one_without_a_journal_may_have_begun(monkeypatch):
    async def scenario():
        shop, guard = GatedShop(), MemoryResumeGuard(clock=Fast())
        journal = MemoryJournal()
        paused, answers = await paused_at_refund(journal, shop)
        began = asyncio.Event()

        async def hang(value, context):
            began.set()
            await asyncio.Event().wait()

        without = [shop.tools[0], Tool("refund", execute=hang, needs_approval=True)]
        lost = asyncio.create_task(go_on(paused, answers, None, without, guard=DeadGuard(guard)))
        await began.wait()
        with monkeypatch.context() as patch:
            patch.setattr("codemode.execution.resume.find_engine_version", lambda: "0.1")
            with pytest.raises(CodeModeProtocolError, match="engine"):
                await go_on(paused, answers, journal, shop.tools, guard=guard)
        result = await go_on(paused, answers, journal, shop.tools, guard=guard)
        assert [request.payload["kind"] for request in result.requests] == [UNKNOWN]
        assert 2 not in shop.paid
        lost.cancel()
        await asyncio.wait([lost])

    within(scenario())


def test_a_pause_that_has_expired_is_made_anew_by_the_same_call():
    async def scenario():
        journal, shop = MemoryJournal(), GatedShop()
        paused, _ = await paused_at_refund(journal, shop, max_age_ms=1)
        await until(lambda: now_ms() > paused.continuation["auth"]["expiresAtMs"])
        again = await call(journal, shop.tools, JS)
        assert again.requests == paused.requests
        assert again.continuation != paused.continuation
        assert await go_on(again, {again.interrupt_id: OK}, journal, shop.tools) == RESULT
        assert sorted(shop.paid) == sorted(RESULT)

    within(scenario())


def test_lookups_and_failures_are_kept_too():
    js = """
const found = await tools.$search("pay");
const [first] = await Promise.all([tools.pay({amount: 1}), tools.boom({}).catch(e => e.name)]);
let caught = "nothing";
try { await tools.boom({}); } catch (e) { caught = e.name; }
return [found.length, first, caught, await tools.pay({amount: 2})];
"""

    async def scenario(dies_after):
        journal, shop = MemoryJournal(clock=Fast()), Shop()

        def boom(value):
            raise RuntimeError("no")

        tools = [*shop.tools, Tool("boom", execute=boom, annotations={"idempotentHint": True})]
        host = Host(journal, dies_after=dies_after)
        try:
            end = await call(host, tools, js)
        except CodeModeAbortedError:
            shop.tools = tools
            end = await answered(await call(journal, tools, js), journal, shop, MemoryResumeGuard())
        assert end[0] > 0
        assert end[1:] == [1, "Error", 2]
        assert sorted(shop.paid) == [1, 2]
        return host.operations

    most = within(scenario(None))
    for dies_after in range(1, most + 1):
        within(scenario(dies_after))


def test_a_journal_that_cannot_be_given_up_is_told_of_in_the_log(caplog):
    class Stuck(MemoryJournal):
        async def release(self, opened):
            raise OSError("away")

    async def scenario():
        began = asyncio.Event()

        async def hang(value):
            began.set()
            await asyncio.Event().wait()

        run = asyncio.create_task(call(Stuck(), [Tool("pay", execute=hang)], "return await tools.pay({amount: 1})"))
        await began.wait()
        run.cancel()
        await asyncio.wait([run])
        assert run.cancelled()

    within(scenario())
    (said,) = [one for one in caplog.records if "journal" in one.getMessage()]
    assert "could not be released" in said.getMessage()
    assert isinstance(said.exc_info[1], OSError)
