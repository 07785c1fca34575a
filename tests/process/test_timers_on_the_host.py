"""Timers from program to host and back: in order, in replays, and beside pauses, deadlines and ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from module_surface import go_on, run_module
from pausing import PAUSING
from waiting import within

from codemode import CodeModeAbortedError, CodeModeTimeoutError, Tool
from codemode.execution.runner import TimerQueue
from codemode.protocol.ledger import LedgerEntry

SHOP = 'import * as shop from "@codemode/servers/shop";\n'
SLEEP = "const sleep = (ms, value) => new Promise((done) => setTimeout(done, ms, value));\n"
RESULT = "globalThis.__codemode_result__ = "
KEYED = {**PAUSING, "continuation": {"keys": "a key of this test"}}


async def echo(value: Any) -> Any:
    return value


GATED = Tool("shop.gated", execute=echo, needs_approval=True)
TOOLS: dict[str, Any] = {"echo": echo, "gated": GATED}


def value_of(js: str, tools: Any = None, **options: Any) -> Any:
    outcome = within(run_module(js, TOOLS if tools is None else tools, options or None))
    assert outcome.error is None, repr(outcome.error)
    return outcome.value


def test_timers_fire_by_their_delay_and_then_by_the_order_in_which_they_were_set():
    js = """
    const order = [];
    const fired = (ms) => new Promise((done) => setTimeout(() => { order.push(ms); done() }, ms));
    await Promise.all([9, 0, 5, 0, 9, 5].map(fired));
    """
    assert value_of(js + RESULT + "order") == [0, 0, 5, 5, 9, 9]


def test_the_programs_clock_is_never_behind_a_timer_that_has_fired():
    js = SLEEP + "const from = Date.now(); await sleep(30); const first = Date.now() - from;\n"
    js += "for (let i = 0; i < 500; i++) Date.now();\n const again = Date.now(); await sleep(5);\n"
    first, second = value_of(js + RESULT + "[first, Date.now() - again]")
    assert first >= 30
    assert second >= 5


def test_a_call_wins_over_a_late_timer_and_loses_to_an_early_one():
    async def slow(_value: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    js = SHOP + SLEEP + "const first = await Promise.race([shop.echo('call'), sleep(90000, 'timer')]);\n"
    js += "const second = await Promise.race([shop.slow(1), sleep(1, 'timer')]);\n"
    outcome = within(run_module(js + RESULT + "[first, second]", {**TOOLS, "slow": slow}))
    assert outcome.value == ["call", "timer"]
    assert [(one["name"], one["status"]) for one in outcome.abandoned] == [("shop.slow", "pending")]


def test_timers_that_have_not_fired_are_dropped_without_a_word_and_are_no_calls():
    outcome = within(run_module("setTimeout(() => {}, 100000); " + RESULT + "1", {}, is_traced=True))
    assert (outcome.value, outcome.abandoned, outcome.calls) == (1, (), ())
    assert outcome.trace.bridge_requests == ()


def test_a_cleared_timer_holds_back_neither_a_deadlock_nor_a_pause():
    stuck = within(run_module("clearTimeout(setTimeout(() => {}, 60000)); await new Promise(() => {});", {}))
    assert stuck.error.code == "CODE_MODE_DEADLOCK"
    js = SHOP + "const id = setTimeout(() => {}, 60000); await shop.echo(1); clearTimeout(id); await shop.gated(1);"
    assert within(run_module(js, TOOLS, KEYED)).status == "interrupted"


def test_a_pause_waits_for_a_timer_that_runs():
    js = SHOP + SLEEP + "let fired = 0; setTimeout(() => { fired = 1; console.log('fired') }, 40);\n"
    js += RESULT + "[await shop.gated('g'), fired]"
    paused = within(run_module(js, TOOLS, KEYED))
    assert (paused.status, [line.text for line in paused.console]) == ("interrupted", ["fired"])
    assert within(go_on(paused.interrupt, TOOLS, KEYED, resolution={"approved": True})).value == ["g", 1]


def test_timers_that_had_fired_do_not_wait_again_and_races_come_out_the_same(monkeypatch):
    js = SHOP + SLEEP
    js += "const raced = [], race = (i) => Promise.race([sleep(i % 2 ? 0 : 60, 't' + i), shop.echo('c' + i)]);\n"
    js += "for (let i = 0; i < 10; i++) raced.push(await race(i));\n"
    js += "await sleep(90); await shop.gated([raced, Math.random()]); await sleep(1);\n" + RESULT + "raced"
    delays: list[list[str | None]] = []

    class Watched(TimerQueue):
        def start_timers(self, entries: Any) -> None:
            delays[-1] += [entry.input_json for entry in entries]
            super().start_timers(entries)

    monkeypatch.setattr("codemode.execution.runner.TimerQueue", Watched)

    async def both() -> Any:
        delays.append([])
        paused = await run_module(js, TOOLS, KEYED)
        delays.append([])
        return paused, await go_on(paused.interrupt, TOOLS, KEYED, resolution={"approved": True})

    paused, ended = within(both())
    assert ended.value == paused.interrupt.input[0]
    assert (len(delays[0]), delays[1]) == (11, ["1"])


@pytest.mark.parametrize("includes_tools", [True, False])
def test_time_that_a_program_waits_for_is_its_own(passing_time: Any, includes_tools: bool):
    js = SHOP + SLEEP + "await Promise.all([shop.hang(1), sleep(60000)])"

    async def hang(_value: Any) -> None:
        passing_time.skip(61)
        await asyncio.Event().wait()

    options = {"execution_policy": {"timeout_ms": 60_000, "timeout_includes_tools": includes_tools}}
    outcome = within(run_module(js, {"hang": hang}, options))
    assert type(outcome.error) is CodeModeTimeoutError
    assert [one["name"] for one in outcome.error.calls] == ["shop.hang"]


def test_a_recovery_sets_timers_again_and_asks_about_calls_alone(passing_time: Any):
    js = SHOP + SLEEP + "const [a, b] = await Promise.all([shop.once(1), sleep(250, 'timer')]);\n" + RESULT + "[a, b]"
    calls: list[Any] = []

    async def once(value: Any) -> Any:
        calls.append(value)
        if len(calls) == 1:
            passing_time.skip(61)
            await asyncio.Event().wait()
        return value

    async def both() -> Any:
        cut = await run_module(
            js, {"once": once}, {"execution_policy": {"timeout_ms": 60_000}, "continuation": KEYED["continuation"]}
        )
        (request,) = cut.error.recovery.requests
        again = await go_on(
            cut.error.recovery, {"once": once}, {"continuation": KEYED["continuation"]},
            resolutions={request.interrupt_id: {"value": "known"}},
        )  # fmt: skip
        return request.tool_name, again

    name, again = within(both())
    assert (name, again.value, calls) == ("shop.once", ["known", "timer"], [1])


def test_each_recovery_goes_on_behind_the_timers_that_had_fired(passing_time: Any, monkeypatch: pytest.MonkeyPatch):
    js = SLEEP + "for (let i = 0; i < 30; i++) await sleep(5);\n" + RESULT + "'done'"
    options = {"execution_policy": {"timeout_ms": 60_000}, "continuation": KEYED["continuation"]}
    timers: list[LedgerEntry] = []

    class Tenth(TimerQueue):
        """The time is over with each tenth timer that is set."""

        def start_timers(self, entries: Any) -> None:
            super().start_timers(entries)
            timers.extend(entries)
            if len(timers) % 10 == 0:
                passing_time.skip(61)

    monkeypatch.setattr("codemode.execution.runner.TimerQueue", Tenth)

    async def all_the_way() -> tuple[Any, list[int]]:
        outcome, fired = await run_module(js, {}, options), []
        while outcome.error is not None and len(fired) < 25:
            fired.append(sum(entry.outcome is not None for entry in outcome.ledger.entries))
            outcome = await go_on(outcome.error.recovery, {}, options)
        return outcome.value, fired

    value, fired = within(all_the_way())
    assert value == "done"
    assert fired == sorted(fired)
    assert len(fired) >= 3


def test_a_timer_of_a_program_that_is_cancelled_fires_no_more():
    async def cancelled() -> BaseException | None:
        begun = asyncio.Event()

        async def begin(_value: Any) -> None:
            begun.set()

        js = SHOP + SLEEP + "await Promise.all([sleep(60000), shop.begin(1)])"
        task = asyncio.ensure_future(run_module(js, {"begin": begin}))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value.__cause__

    assert isinstance(within(cancelled()), CodeModeAbortedError)


def test_a_flood_of_timers_is_a_limit_and_no_harm():
    js = "let n = 0; try { for (;;) { setTimeout(() => {}, 0); n++ } } catch (error) { " + RESULT + "[n, error.name] }"
    assert value_of(js) == [1000, "SandboxLimitError"]
    thousand = SLEEP + "const all = await Promise.all(Array.from({ length: 1000 }, (_, i) => sleep(i % 7, i)));\n"
    assert value_of(thousand + RESULT + "all.length") == 1000
    outcome = within(run_module("for (;;) setTimeout(() => {}, 0)", {}))
    assert outcome.error.details["limit"] == "max_timers"


def test_what_a_callback_throws_ends_the_program():
    outcome = within(
        run_module("setTimeout(() => { throw new RangeError('late') }, 1); await new Promise(() => {})", {})
    )
    assert (outcome.error.message, outcome.error.details["name"]) == ("late", "RangeError")


# --- what else a module is to a run ---


def test_errors_of_tools_are_of_the_faces_own_class_before_and_after_a_pause():
    async def fail(_value: Any) -> None:
        raise ValueError("private")

    js = 'import { ToolCallError } from "@codemode/errors";\n' + SHOP
    js += "let kept; try { await shop.fail(1) } catch (error) { kept = error }\n"
    js += "await shop.gated([kept instanceof ToolCallError, kept.code, kept.hint, kept.kind]); throw kept;"
    tools = {**TOOLS, "fail": fail}

    async def both() -> Any:
        paused = await run_module(js, tools, KEYED)
        return paused, await go_on(paused.interrupt, tools, KEYED, resolution={"approved": True})

    paused, ended = within(both())
    assert paused.interrupt.input == [True, "CODE_MODE_HOST_TOOL_ERROR", "Go on.", "tool"]
    assert ended.error.details["call"]["class"] == "ToolCallError"


def test_an_error_of_our_classes_that_the_program_makes_is_told_with_its_fields():
    js = 'import { CodemodeError } from "@codemode/errors";\nthrow new CodemodeError("mine", { hint: "own" });'
    outcome = within(run_module(js, {}))
    assert outcome.error.details["error_class"] == "CodemodeError"
    assert (outcome.error.message, outcome.error.details["fields"]["hint"]) == ("mine", "own")


@pytest.mark.parametrize("js", ["const a = ;", "import {", "export const a = 1; export const a = 2;", "return 1"])
def test_a_syntax_error_is_told_before_anything_runs(js: str):
    outcome = within(run_module("console.log(1);\n" + js, {}))
    assert outcome.error.code == "CODE_MODE_SYNTAX_ERROR"
    assert (outcome.error.details["line"], outcome.console) == (2, [])


def test_a_repeated_resume_gives_the_same_logs_and_abandoned_calls():
    js = SHOP + "console.log('a'); await shop.gated(1); console.log('b'); shop.echo(2); " + RESULT + "3"

    async def twice() -> Any:
        paused = await run_module(js, TOOLS, KEYED)
        answer = {"resolution": {"approved": True}, "is_traced": True}
        return [await go_on(paused.interrupt, TOOLS, KEYED, **answer) for _ in range(2)]

    first, second = within(twice())
    assert (first.is_replayed, second.is_replayed) == (False, True)
    assert first.value == second.value == 3
    assert list(first.console) == list(second.console)
    assert second.began_at_ms == first.trace.started_at_ms
    assert [line.text for line in first.console] == ["a", "b"]
    assert all(line.written_at_ms > 0 for line in first.console)
    assert [one["status"] for one in first.abandoned] == [one["status"] for one in second.abandoned] == ["not sent"]
