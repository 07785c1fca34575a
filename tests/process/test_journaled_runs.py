"""Programs with a journal: whenever their host dies, the same call goes on, and nothing that was done is done twice."""

from __future__ import annotations

import asyncio

import pytest
from fast_clock import Fast
from journaled_shop import JS, RESULT, Host, Shop, call, go_on, operations_of, options, paid_already, to_the_end
from pausing import through_json
from recovering import UNKNOWN
from waiting import until, within

from codemode import (
    CallContext,
    CodeModeAbortedError,
    CodeModeError,
    CodeModeTimeoutError,
    Tool,
    continue_interrupt,
    run_code_mode,
)
from codemode.continuations.journal import MemoryJournal
from codemode.execution import journal as journaled
from codemode.execution.recovery import RecoveryPoint
from codemode.stores import MemoryResumeGuard


@pytest.mark.parametrize("is_done", [True, False])
def test_a_host_that_dies_at_any_operation_of_its_journal_loses_nothing_and_repeats_nothing(is_done):
    async def scenario(dies_after):
        shop, journal = Shop(), MemoryJournal(clock=Fast())
        with pytest.raises(CodeModeAbortedError) as caught:
            await call(Host(journal, dies_after=dies_after, is_done=is_done), shop.tools)
        assert caught.value.details["origin"] == "journal"
        result, asked = await to_the_end(journal, shop.tools, paid_already(shop))
        assert result == RESULT
        assert sorted(shop.paid) == sorted(RESULT)
        assert set(asked) <= {UNKNOWN}

    for dies_after in range(1, operations_of() + 1):
        within(scenario(dies_after))


@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
def test_what_may_run_twice_runs_again_by_itself(hint):
    async def scenario(dies_after):
        shop, journal = Shop(annotations={hint: True}), MemoryJournal(clock=Fast())
        with pytest.raises(CodeModeAbortedError):
            await call(Host(journal, dies_after=dies_after), shop.tools)
        assert await call(journal, shop.tools) == RESULT

    for dies_after in range(1, operations_of() + 1):
        within(scenario(dies_after))


def test_a_call_that_had_not_begun_is_made_and_one_that_had_is_asked_about():
    async def scenario():
        shop, journal = Shop(), MemoryJournal(clock=Fast())
        with pytest.raises(CodeModeAbortedError):  # open, begins
            await call(Host(journal, dies_after=2, is_done=False), shop.tools)
        assert shop.paid == []
        assert await call(journal, shop.tools) == RESULT

        shop, journal = Shop(), MemoryJournal(clock=Fast())
        with pytest.raises(CodeModeAbortedError):  # open, begins, ends
            await call(Host(journal, dies_after=3, is_done=False), shop.tools)
        assert shop.paid == [1]
        paused = await call(journal, shop.tools)
        (request,) = paused.requests
        assert (request.payload["kind"], request.input) == (UNKNOWN, {"amount": 1})
        again = await call(journal, shop.tools)
        assert again.to_dict() == paused.to_dict()
        assert await go_on(again, {request.interrupt_id: {"value": 1}}, journal, shop.tools) == RESULT
        assert sorted(shop.paid) == sorted(RESULT)

    within(scenario())


def test_the_same_call_while_its_owner_lives_waits_for_what_it_comes_to():
    async def scenario():
        shop, journal, gate = Shop(), MemoryJournal(), asyncio.Event()

        async def slow(value, context):
            shop.paid.append(value["amount"])
            await gate.wait()
            return value["amount"]

        tools = [Tool("pay", execute=slow)]
        calls = [asyncio.create_task(call(journal, tools)) for _ in range(3)]
        await until(lambda: shop.paid)
        await asyncio.wait(calls, timeout=0.05)
        assert not any(one.done() for one in calls)
        gate.set()
        assert await asyncio.gather(*calls) == [RESULT] * 3
        assert sorted(shop.paid) == sorted(RESULT)
        assert await call(journal, tools) == RESULT
        assert sorted(shop.paid) == sorted(RESULT)

    within(scenario())


def test_an_error_of_the_program_is_its_end_too():
    async def scenario():
        shop, journal = Shop(), MemoryJournal()
        js = "await tools.pay({amount: 1}); throw new RangeError('no')"
        for _ in range(2):
            with pytest.raises(CodeModeError, match="no") as caught:
                await call(journal, shop.tools, js)
            assert caught.value.details["name"] == "RangeError"
        assert shop.paid == [1]

    within(scenario())


@pytest.mark.parametrize("cut", ["cancel", "timeout"])
def test_a_run_that_is_cut_off_goes_on_when_it_is_called_again(passing_time, cut):
    async def scenario():
        shop, journal, began = Shop(), MemoryJournal(), asyncio.Event()

        async def pay(value, context):
            if value["amount"] == 2 and not began.is_set():
                began.set()
                if cut == "timeout":
                    passing_time.skip(61)
                await asyncio.Event().wait()
            shop.paid.append(value["amount"])
            return value["amount"]

        tools = [Tool("pay", execute=pay)]
        given = options(journal)
        minute = {**given, "execution_policy": {"timeout_ms": 60_000}}
        first = asyncio.create_task(run_code_mode(JS, tools, options=minute, call=CallContext(tool_call_id="call_1")))
        await began.wait()
        if cut == "cancel":
            first.cancel()
        error = (await asyncio.gather(first, return_exceptions=True))[0]
        assert isinstance(error, asyncio.CancelledError if cut == "cancel" else CodeModeTimeoutError)
        paused = await run_code_mode(JS, tools, options=given, call=CallContext(tool_call_id="call_1"))
        (request,) = paused.requests
        assert request.payload["kind"] == UNKNOWN
        answers = {request.interrupt_id: {"runAgain": True}}
        end = await continue_interrupt(through_json(paused), resolutions=answers, tools=tools, options=given)
        assert end == RESULT
        assert sorted(shop.paid) == sorted(RESULT)

    within(scenario())


def test_a_tool_that_ends_while_its_run_is_cancelled_has_ended():
    async def scenario():
        shop, journal, began = Shop(), MemoryJournal(), asyncio.Event()

        async def pay(value, context):
            shop.paid.append(value["amount"])
            if value["amount"] == 1:
                began.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    return 1
            return value["amount"]

        tools = [Tool("pay", execute=pay)]
        first = asyncio.create_task(call(journal, tools))
        await began.wait()
        first.cancel()
        await asyncio.wait([first])
        assert await call(journal, tools) == RESULT
        assert sorted(shop.paid) == sorted(RESULT)

    within(scenario())


class Slow:
    """A journal that takes its time over the first outcome: ``began`` is set meanwhile, and it waits for ``asked``."""

    def __init__(self):
        self._kept = MemoryJournal()
        self.began, self.asked = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        if name == "write_nowait":
            raise AttributeError(name)
        return getattr(self._kept, name)

    async def write(self, opened, lines):
        if '[["f",1' in lines[0]:
            self.began.set()
            await self.asked.wait()
        return await self._kept.write(opened, lines)


@pytest.mark.parametrize("answers", [{"value": 1}, {"value": 9}, {"runAgain": True}])
def test_what_is_written_as_ended_after_it_was_asked_about_has_ended_whatever_is_said_of_it(answers, monkeypatch):
    async def scenario():
        shop, journal, made = Shop(), Slow(), RecoveryPoint.get_or_create_interrupt

        async def at(*given, **named):
            try:
                return await made(*given, **named)
            finally:
                journal.asked.set()

        async def cut_off():
            try:
                return await call(journal, shop.tools)
            except asyncio.CancelledError as cancelled:
                return cancelled.__cause__

        monkeypatch.setattr(RecoveryPoint, "get_or_create_interrupt", at)
        first = asyncio.create_task(cut_off())
        await journal.began.wait()
        first.cancel()
        pause = (await first).recovery
        (request,) = pause.requests
        assert (request.payload["kind"], request.input) == (UNKNOWN, {"amount": 1})
        given, guard = {request.interrupt_id: answers}, MemoryResumeGuard()
        for _ in range(2):
            assert await go_on(pause, given, journal, shop.tools, guard=guard) == RESULT
        assert sorted(shop.paid) == sorted(RESULT)

    within(scenario())


def test_another_program_binding_or_id_is_another_invocation():
    async def scenario():
        shop, journal = Shop(), MemoryJournal()
        js = "return await tools.pay({amount: 1})"
        await call(journal, shop.tools, js)
        await call(journal, shop.tools, js + ";")
        await call(journal, shop.tools, js, conversation_id="another")
        await run_code_mode(js, shop.tools, options=options(journal), call=CallContext(tool_call_id="call_2"))
        for _ in range(2):  # without an id no call is the same again
            await run_code_mode(js, shop.tools, options=options(journal))
        assert shop.paid == [1] * 6
        await call(journal, shop.tools, js)
        assert shop.paid == [1] * 6

    within(scenario())


@pytest.mark.parametrize("seal", [False, True])
def test_what_is_kept_can_be_read_by_nobody_else_where_it_is_sealed(seal):
    class Seen(MemoryJournal):
        texts = ""

        async def open(self, key, head, *, again=False):
            self.texts += head
            return await super().open(key, head, again=again)

        def write_nowait(self, opened, lines):
            self.texts += "".join(lines)
            return super().write_nowait(opened, lines)

        async def end(self, opened, outcome, *, is_final):
            self.texts += outcome
            return await super().end(opened, outcome, is_final=is_final)

    async def scenario():
        if seal:
            pytest.importorskip("cryptography")
        journal = Seen()
        tools = [Tool("pay", execute=lambda value: "a-secret-value")]
        js = "return await tools.pay({card: 'a-secret-input'})"
        for _ in range(2):
            assert await call(journal, tools, js, seal=seal) == "a-secret-value"
        assert ("a-secret-value" in journal.texts) is not seal
        assert ("a-secret-input" in journal.texts) is not seal

    within(scenario())


def test_a_host_that_has_lost_its_lease_tells_nothing_and_has_no_way_on():
    async def scenario():
        shop, journal, began, gate = (
            Shop(),
            MemoryJournal(clock=Fast()),
            asyncio.Event(),
            asyncio.Event(),
        )

        async def pay(value, context):
            shop.paid.append(value["amount"])
            if not began.is_set():
                began.set()
                await gate.wait()
            return value["amount"]

        tools = [Tool("pay", execute=pay)]
        slow = asyncio.create_task(call(journal, tools))
        await began.wait()
        paused = await call(journal, tools)  # by its clock the lease of the first is over
        (request,) = paused.requests
        gate.set()
        with pytest.raises(CodeModeAbortedError, match="now belongs to another host") as caught:
            await slow
        assert caught.value.recovery is None
        assert caught.value.details["is_lost"] is True
        assert await go_on(paused, {request.interrupt_id: {"value": 1}}, journal, tools) == RESULT
        assert sorted(shop.paid) == sorted(RESULT)

    within(scenario())


def test_a_program_that_calls_itself_does_not_wait_for_itself():
    async def scenario():
        journal = MemoryJournal()

        async def again(value, context):
            return await call(journal, tools, "return await tools.again({})")

        tools = [Tool("again", execute=again)]
        with pytest.raises(CodeModeError, match="it would wait for itself"):
            await call(journal, tools, "return await tools.again({})")

    within(scenario())


@pytest.mark.parametrize("is_taken", [True, False])
def test_no_call_begins_where_its_host_stood_still_unless_the_journal_is_its_own_still(is_taken, monkeypatch):
    clock, passed, shop = Fast(), [0.0], Shop()
    journal = MemoryJournal(clock=clock)
    monkeypatch.setattr(journaled, "monotonic_seconds", lambda: passed[0])

    class Still(Host):
        async def write(self, opened, lines):
            is_written = await super().write(opened, lines)
            passed[0] += 31
            if is_taken:
                await journal.open(opened.key, opened.head)
            return is_written

    if is_taken:
        with pytest.raises(CodeModeAbortedError, match="belongs to another host"):
            within(call(Still(journal), shop.tools))
        assert shop.paid == []
    else:
        assert within(call(Still(journal), shop.tools)) == RESULT
        assert shop.paid == RESULT
