"""Runs that rest: warm and without a worker, in one process. Whether there was a worker makes no difference."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pausing import PAUSING, Spy
from resting_surface import Slow, Surface, profile_of
from waiting import until

from codemode import (
    CodeModeAbortedError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    Tool,
)
from codemode.execution import suspendable_runner
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND

WAYS = [False, True]
KEYED = {"continuation": {"keys": "a key of this test"}}


@pytest.fixture(params=WAYS, ids=["warm", "cold"])
def is_cold(request) -> bool:
    return request.param


def at_rest(outcome: Any, reason: str, is_cold: bool) -> Any:
    """The run of an outcome that must be at rest, with its worker given up where that is asked for."""
    assert outcome.status == "resting", outcome.error
    assert outcome.suspension.reason == reason
    run = outcome.suspension.run
    assert (run.is_suspended, run.is_warm) == (True, True)
    if is_cold:
        run.release_worker()
        assert not run.is_warm
    return run


def texts(outcome: Any) -> list[Any]:
    return [one.value for one in outcome.output]


def test_a_program_that_awaits_quick_tools_is_one_outcome(within, pool):
    spy = Spy()

    async def main():
        surface = Surface([spy.tool("quick", lambda value, _: value)], pool=pool)
        return await surface.start(
            "let n = 0; for (let i = 0; i < 12; i++) n += await tools.quick(i); text(n); return n"
        )

    outcome = within(main())
    assert (outcome.status, outcome.value, texts(outcome)) == ("completed", 66, ["66"])
    assert len(spy.ran) == 12


def test_a_yield_rests_and_goes_on(within, pool, is_cold):
    async def main():
        surface = Surface([], pool=pool)
        outcome = await surface.start(
            "text('one'); console.log('two'); await yield_control(); json({three: 3}); await yield_control(); return 4"
        )
        seen = [texts(outcome)]
        while outcome.status == "resting":
            outcome = await at_rest(outcome, "yield", is_cold).continue_run()
            seen.append(texts(outcome))
        return outcome, seen

    outcome, seen = within(main())
    assert (outcome.value, seen) == (4, [["one", "two"], [{"three": 3}], []])
    assert pool.active == 0


def test_slow_calls_rest_and_their_outcomes_are_kept(within, pool, is_cold):
    slow = Slow()

    async def main():
        surface = Surface([slow.tool], pool=pool)
        js = "const [a, b] = await Promise.all([tools.slow(1), tools.slow(2)]); return [a, b, await tools.slow(3)]"
        outcome = await surface.start(js, wait_ms=50)
        run = at_rest(outcome, "pending_tools", is_cold)
        assert [(one.id, one.name, one.status) for one in outcome.suspension.pending_calls] == [
            ("o:tool-1", "slow", "running"), ("o:tool-2", "slow", "running")
        ]  # fmt: skip
        slow.end(2)
        await until(lambda: run.has_pending_deliveries)
        slow.end(1)
        await until(lambda: not run.pending_calls)
        outcome = await run.continue_run(50)
        run = at_rest(outcome, "pending_tools", is_cold)
        slow.end(3)
        return await run.continue_run()

    outcome = within(main())
    assert (outcome.value, slow.calls) == ([1, 2, 3], [1, 2, 3])
    assert pool.active == 0


def test_going_on_before_anything_has_come_takes_no_worker_and_waits(within, pool, is_cold):
    slow = Slow()

    async def main():
        outcome = await Surface([slow.tool], pool=pool).start("return await tools.slow(1)", wait_ms=20)
        run = at_rest(outcome, "pending_tools", is_cold)
        for _ in range(3):
            outcome = await run.continue_run(20)
            assert (outcome.suspension.reason, pool.active) == ("pending_tools", 0 if is_cold else 1)
        going_on = asyncio.ensure_future(run.continue_run())
        await asyncio.sleep(0)
        slow.end(1)
        return await going_on

    assert within(main()).value == 1


def test_a_race_goes_as_its_outcomes_came(within, pool, is_cold):
    slow = Slow()

    async def main():
        js = """const late = [1, 2, 3].map(async (n) => { const v = await tools.slow(n); text("got " + v); return v; });
                const first = await Promise.race(late);
                await yield_control();
                return [first, ...await Promise.all(late)]"""
        outcome = await Surface([slow.tool], pool=pool).start(js, wait_ms=20)
        run = at_rest(outcome, "pending_tools", is_cold)
        slow.end(3)
        await until(lambda: run.has_pending_deliveries)
        slow.end(1)
        await until(lambda: len(run.pending_calls) == 1)
        outcome = await run.continue_run()
        assert texts(outcome) == ["got 3", "got 1"]
        run = at_rest(outcome, "yield", is_cold)
        slow.end(2)
        return await run.continue_run()

    outcome = within(main())
    assert (outcome.value, texts(outcome)) == ([3, 1, 2, 3], ["got 2"])


def test_calls_nobody_awaited_are_waited_for_and_rest_too(within, pool, is_cold):
    slow = Slow()

    async def main():
        js = "tools.slow(1).then((value) => text('late ' + value)); text('end'); return 'value'"
        outcome = await Surface([slow.tool], pool=pool).start(js, wait_ms=20)
        assert texts(outcome) == ["end"]
        run = at_rest(outcome, "pending_tools", is_cold)
        slow.end(1)
        return await run.continue_run()

    outcome = within(main())
    assert (outcome.value, texts(outcome), outcome.abandoned) == ("value", ["late 1"], ())


def test_time_and_chance_are_the_same_after_a_replay(within, pool):
    def main(is_cold: bool) -> Any:
        async def go() -> Any:
            times = iter(range(1_700_000_000_000, 1_800_000_000_000, 1000))
            surface = Surface([Spy().tool("quick")], pool=pool, options=KEYED)
            js = """const seen = [Date.now(), Math.random()];
                    await tools.quick(1); seen.push(Date.now(), Math.random());
                    await yield_control(); seen.push(Date.now(), Math.random()); return seen"""
            outer = {"clock_ms": lambda: next(times), "started_at_ms": 1_600_000_000_000, "conversation_id": "c"}
            return await at_rest(await surface.start(js, **outer), "yield", is_cold).continue_run()

        return within(go()).value

    assert main(False) == main(True)


def test_timers_go_on_at_rest(within, pool, is_cold):
    async def main():
        js = "const t = new Promise((r) => setTimeout(r, 30, 'rang')); await yield_control(); return await t"
        run = at_rest(await Surface([], pool=pool).start(js), "yield", is_cold)
        await until(lambda: len(run._runner.machine.ledger.deliveries) == 1)
        return await run.continue_run()

    assert within(main()).value == "rang"


def test_a_guest_that_computes_fails_when_its_time_is_up(within, pool, is_cold):
    async def main():
        surface = Surface([], pool=pool, profile=profile_of(timeout_ms=60_000))
        run = at_rest(await surface.start("await yield_control(); for (;;);"), "yield", is_cold)
        machine = run._runner.machine  # from here on it may compute for so long and no longer
        machine.settings = replace(machine.settings, limits=replace(machine.settings.limits, timeout_ms=300))
        return await run.continue_run()

    outcome = within(main())
    assert (outcome.status, type(outcome.error)) == ("failed", CodeModeTimeoutError)
    assert pool.active == 0


def test_a_replay_does_not_count_as_the_guests_time(within, pool, monkeypatch):
    begun: list[bool] = []
    guests_clock = suspendable_runner.SuspendableRunner._make_guest_clock

    def noted(runner: Any) -> Any:
        begun.append(runner.machine.is_replaying)
        return guests_clock(runner)

    monkeypatch.setattr(suspendable_runner.SuspendableRunner, "_make_guest_clock", noted)

    async def main():
        surface = Surface([], pool=pool, profile=profile_of(timeout_ms=60_000))
        js = """const spin = () => { let n = 0; for (let i = 0; i < 3e5; i++) n += i; return n; };
                for (let i = 0; i < 4; i++) { spin(); await yield_control(); } return 1"""
        outcome = await surface.start(js)
        while outcome.status == "resting":
            run = at_rest(outcome, "yield", is_cold=True)
            own = run._runner.compute_ms
            outcome = await run.continue_run()
        return outcome, own

    outcome, own = within(main())
    assert outcome.value == 1, outcome.error
    assert own > 0
    assert begun == [False] * 4  # where each replay had ended


def test_a_replay_that_takes_too_long_is_told_as_one(within, pool, monkeypatch):
    async def main():
        js = "const n = Math.random(); await yield_control(); return n"
        run = at_rest(await Surface([], pool=pool).start(js), "yield", is_cold=True)
        monkeypatch.setattr(suspendable_runner, "_REPLAY_EXTRA_MS", 100)
        run._runner.machine.js = "for (;;);"  # in the place of a host that is too slow
        return await run.continue_run()

    error = within(main()).error
    assert type(error) is CodeModeTimeoutError
    assert error.details["origin"] == "replay"


def test_a_program_paused_for_a_person_needs_no_worker_and_goes_on_as_another_run(within, pool, is_cold):
    slow, spy = Slow(), Spy()

    async def main():
        surface = Surface([slow.tool, spy.guarded("pay")], {**PAUSING, **KEYED}, pool)
        js = "text('a'); const p = tools.pay({n: 1}); await tools.slow(1); text('b'); await p; text('c'); return 'done'"
        outcome = await surface.start(js, wait_ms=20)
        run = at_rest(outcome, "pending_tools", is_cold)
        assert {one.status for one in outcome.suspension.pending_calls} == {"running", "waiting"}
        slow.end(1)
        outcome = await run.continue_run()
        assert (outcome.status, texts(outcome), pool.active, run.is_suspended) == ("interrupted", ["b"], 0, False)
        allowed = {one.interrupt_id: {"approved": True} for one in outcome.interrupt.requests}
        return await surface.restore(outcome.interrupt, allowed)

    outcome = within(main())
    assert (outcome.value, texts(outcome), spy.ran) == ("done", ["b", "c"], [("pay", {"n": 1})])
    assert slow.calls == [1]


def test_output_of_an_interrupt_that_was_taken_is_not_given_again(within, pool):
    spy = Spy()

    async def main():
        surface = Surface([spy.guarded("pay")], {**PAUSING, **KEYED}, pool)
        outcome = await surface.start("text('a'); await tools.pay({}); text('b')", takes_output=True)
        allowed = {one.interrupt_id: {"approved": True} for one in outcome.interrupt.requests}
        return texts(outcome), texts(await surface.restore(outcome.interrupt, allowed))

    assert within(main()) == (["a"], ["b"])


def test_only_one_goes_on_at_a_time(within, pool):
    slow = Slow()

    async def main():
        outcome = await Surface([slow.tool], pool=pool).start("return await tools.slow(1)", wait_ms=20)
        run = outcome.suspension.run
        first = asyncio.ensure_future(run.continue_run())
        await asyncio.sleep(0)
        with pytest.raises(CodeModeProtocolError):
            await run.continue_run()
        slow.end(1)
        assert (await first).value == 1
        with pytest.raises(CodeModeProtocolError):
            await run.continue_run()

    within(main())


def test_who_is_cancelled_leaves_it_at_rest(within, pool, is_cold):
    slow = Slow()

    async def main():
        js = "text('a'); const v = await tools.slow(1); text('b'); for (let i = 0; i < 2e6; i++); return v"
        run = at_rest(await Surface([slow.tool], pool=pool).start(js, wait_ms=20), "pending_tools", is_cold)
        slow.end(1)
        await until(lambda: run.has_pending_deliveries)
        going_on = asyncio.ensure_future(run.continue_run())
        await until(lambda: not run.has_pending_deliveries)
        going_on.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going_on
        assert (run.is_suspended, run.is_warm, pool.active) == (True, False, 0)
        return await run.continue_run()

    outcome = within(main())
    assert (outcome.value, slow.calls, texts(outcome)) == (1, [1], ["b"])


def test_a_start_that_is_cancelled_is_over(within, pool):
    slow = Slow()

    async def main():
        run = await Surface([slow.tool], pool=pool).run()
        starting = asyncio.ensure_future(run.start("return await tools.slow(1)"))
        await until(lambda: slow.calls)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert (run.is_suspended, pool.active, slow.cancelled) == (False, 0, [1])

    within(main())


def test_an_abort_ends_it_with_its_calls(within, pool, is_cold):
    slow = Slow()

    async def main():
        run = at_rest(
            await Surface([slow.tool], pool=pool).start("return await tools.slow(1)", wait_ms=20),
            "pending_tools", is_cold,
        )  # fmt: skip
        outcome = await run.abort("enough")
        assert (type(outcome.error), outcome.error.message) == (CodeModeAbortedError, "enough")
        assert (slow.cancelled, pool.active, run.is_suspended) == ([1], 0, False)

    within(main())


def test_an_abort_while_somebody_goes_on_ends_that(within, pool):
    slow = Slow()

    async def main():
        run = (await Surface([slow.tool], pool=pool).start("return await tools.slow(1)", wait_ms=20)).suspension.run
        going_on = asyncio.ensure_future(run.continue_run())
        await asyncio.sleep(0)
        assert (await run.abort()).status == "failed"
        assert type((await going_on).error) is CodeModeAbortedError

    within(main())


def test_it_goes_on_from_another_loop_and_thread(within, pool, is_cold):
    slow = Slow()

    async def main():
        run = at_rest(
            await Surface([slow.tool], pool=pool).start("return await tools.slow(1)", wait_ms=20),
            "pending_tools", is_cold,
        )  # fmt: skip
        slow.end(1)
        return await asyncio.to_thread(lambda: asyncio.run(run.continue_run()))

    assert within(main()).value == 1


def test_what_was_kept_goes_on_elsewhere(within, pool):
    async def main():
        surface = Surface([Spy().tool("quick", lambda value, _: value)], KEYED, pool)
        js = "text('a'); const v = await tools.quick(1); await yield_control(); text('b'); return v"
        outcome = await surface.start(js)
        interrupt = await outcome.suspension.run.store_content_and_sign_interrupt()
        await outcome.suspension.run.abort()
        other = Surface([Tool("quick", execute=None)], KEYED, pool)
        again = await other.restore(interrupt)
        return texts(outcome), again

    before, again = within(main())
    assert (before, texts(again), again.value) == (["a"], ["b"], 1)


def test_calls_in_flight_of_what_was_kept_are_of_unknown_outcome_or_made_again(within, pool):
    slow, reading = Slow(), Slow("read", annotations={"readOnlyHint": True})

    async def main():
        surface = Surface([slow.tool, reading.tool], KEYED, pool)
        js = "return await Promise.all([tools.slow(1), tools.read(2)])"
        outcome = await surface.start(js, wait_ms=30)
        interrupt = await outcome.suspension.run.store_content_and_sign_interrupt()
        await outcome.suspension.run.abort()
        others = [Slow(), Slow("read", annotations={"readOnlyHint": True})]
        other = Surface([one.tool for one in others], KEYED, pool)
        going_on = asyncio.ensure_future(other.restore(interrupt))
        await until(lambda: others[1].calls)
        others[1].end(2)
        outcome = await going_on
        (asked,) = outcome.interrupt.requests
        assert (asked.payload["kind"], asked.tool_name, others[0].calls) == (UNKNOWN_OUTCOME_KIND, "slow", [])
        return await other.restore(outcome.interrupt, {asked.interrupt_id: {"value": "known"}})

    assert within(main()).value == ["known", 2]


def test_what_was_kept_goes_on_once(within, pool):
    async def main():
        surface = Surface([], KEYED, pool)
        outcome = await surface.start("await yield_control(); text('once'); await yield_control(); return 1")
        interrupt = await outcome.suspension.run.store_content_and_sign_interrupt()
        await outcome.suspension.run.abort()
        first = await surface.restore(interrupt)
        again = await surface.restore(interrupt)
        assert (first.status, again.status, again.is_replayed) == ("resting", "resting", True)
        assert (again.suspension.run, again.suspension.reason, texts(again)) == (None, "yield", ["once"])
        return await first.suspension.run.continue_run()

    assert within(main()).value == 1


def test_too_much_output_before_a_rest_ends_the_program(within, pool):
    async def main():
        surface = Surface([], pool=pool, profile=profile_of(max_output=1000))
        return await surface.start("text('x'.repeat(600)); console.log('y'.repeat(600)); await yield_control()")

    outcome = within(main())
    assert (type(outcome.error), outcome.error.code) == (CodeModeError, "CODE_MODE_OUTPUT_LIMIT")
    assert texts(outcome) == ["x" * 600]


def test_the_trace_of_the_end_has_each_call_once(within, pool, is_cold):
    slow, seen = Slow(), []

    async def main():
        options = {"lifecycle": {"on_nested_tool_call": seen.append}}
        js = "const a = await tools.slow(1); await yield_control(); return [a, await tools.slow(2)]"
        run = at_rest(
            await Surface([slow.tool], options, pool).start(js, wait_ms=20, is_traced=True), "pending_tools", is_cold
        )
        slow.end(1)
        run = at_rest(await run.continue_run(), "yield", is_cold)
        run = at_rest(await run.continue_run(20), "pending_tools", is_cold)
        slow.end(2)
        return await run.continue_run()

    outcome = within(main())
    assert [(one.tool_call_id, one.status) for one in outcome.trace.bridge_requests] == [
        ("o:tool-1", "fulfilled"), ("o:tool-2", "fulfilled")
    ]  # fmt: skip
    assert [one.tool_call_id for one in seen] == ["o:tool-1", "o:tool-2"]
