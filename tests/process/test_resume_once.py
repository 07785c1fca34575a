"""A continuation is resumed once: the same answers get its outcome, other answers are refused."""

from __future__ import annotations

import asyncio
import threading

import pytest
from pausing import NO, OK, PAUSING, go_on, start, through_json
from suite import full_only
from waiting import within

from codemode import (
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeToolError,
    Tool,
    WorkerPool,
    continue_interrupt,
    create_code_mode_tool,
)
from codemode.errors import CodeModeConcurrencyError, CodeModeWorkerError
from codemode.stores import MemoryResumeGuard, SqliteInterruptStore

TWO = "return (await Promise.allSettled([tools.refund(1), tools.refund(2)])).map(one => one.status)"


@pytest.fixture(params=["memory", *full_only("sqlite")])
def options(request, tmp_path):
    guard = MemoryResumeGuard() if request.param == "memory" else SqliteInterruptStore(tmp_path / "claims.sqlite").guard
    return {**PAUSING, "continuation": {"guard": guard}}


def refused(interrupt, tools, answer, options=PAUSING):
    with pytest.raises(CodeModeProtocolError) as caught:
        go_on(interrupt, tools, answer, options=options)
    return caught.value


def test_a_repeat_gets_the_recorded_value(spy, options):
    tools = [spy.guarded()]
    interrupt = start("return [await tools.refund(1), Math.random()]", tools, options)
    first = go_on(interrupt, tools, OK, options=options)
    assert [go_on(interrupt, tools, OK, options=options) for _ in range(3)] == [first] * 3
    assert spy.ran == [("refund", 1)]
    # Not even the tool is needed: nothing is run.
    assert go_on(interrupt, [spy.guarded("refund")], OK, options=options) == first


def test_other_answers_are_refused_when_it_is_over(spy, options):
    tools = [spy.guarded()]
    interrupt = start("return await tools.refund(1)", tools, options)
    go_on(interrupt, tools, OK, options=options)
    for other in (NO, {**OK, "input": 5}, {**OK, "reason": "x"}):
        assert refused(interrupt, tools, other, options).details["superseded"] is True
    assert spy.ran == [("refund", 1)]


def test_a_repeat_of_a_partial_answer_gets_the_same_next_interrupt(spy, options):
    tools = [spy.guarded()]
    interrupt = start(TWO, tools, options)
    rest = go_on(interrupt, tools, OK, options=options)
    assert go_on(interrupt, tools, OK, options=options) == rest
    both = {one.interrupt_id: OK for one in interrupt.requests}
    with pytest.raises(CodeModeProtocolError, match="other answers"):
        go_on(interrupt, tools, resolutions=both, options=options)
    assert go_on(rest, tools, OK, options=options) == ["fulfilled", "fulfilled"]
    assert spy.ran == [("refund", 1), ("refund", 2)]


@pytest.mark.parametrize(
    ("js", "error_class"),
    [
        ("await tools.refund(1); throw new TypeError('guest')", CodeModeError),
        ("await tools.refund(1); await tools.broken(1)", CodeModeToolError),
        ("await tools.refund(1); return Symbol()", CodeModeError),
    ],
)
def test_a_repeat_gets_the_recorded_error(spy, options, js, error_class):
    tools = [spy.guarded(), spy.tool("broken", lambda *_: 1 / 0)]
    interrupt = start(js, tools, options)
    errors = []
    for _ in range(3):
        with pytest.raises(error_class) as caught:
            go_on(interrupt, tools, OK, options=options)
        error = caught.value
        errors.append((type(error), error.code, error.message, error.details, error.calls))
    assert errors == [errors[0]] * 3
    assert spy.ran.count(("refund", 1)) == 1


def test_a_denial_that_ends_the_program_is_recorded_too(spy, options):
    interrupt = start("return await tools.refund(1)", [spy.guarded()], options)
    for _ in range(2):
        with pytest.raises(CodeModeToolError, match="denied"):
            go_on(interrupt, [spy.guarded()], NO, options=options)
    assert refused(interrupt, [spy.guarded()], OK, options).details["superseded"] is True
    assert spy.ran == []


def test_a_double_click_runs_once_and_both_get_the_outcome(spy, options):
    async def clicks():
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def refund(value, context):
            begun.set()
            await go_on.wait()
            return "refunded"

        tools = [spy.tool("refund", refund, needs_approval=True)]
        interrupt = start_in_thread(tools, options)
        clicks = [
            asyncio.create_task(continue_interrupt(through_json(interrupt), OK, tools=tools, options=options))
            for _ in range(4)
        ]
        await begun.wait()
        with pytest.raises(CodeModeProtocolError) as caught:
            await continue_interrupt(interrupt, NO, tools=tools, options=options)
        assert caught.value.details["superseded"] is True
        go_on.set()
        return await asyncio.gather(*clicks)

    assert within(clicks()) == ["refunded"] * 4
    assert spy.ran == [("refund", 1)]


def start_in_thread(tools, options):
    return create_code_mode_tool(tools, options).execute_sync({"js": "return await tools.refund(1)"})


def test_a_double_click_in_two_threads_runs_once(spy, options):
    interrupt, results = start("return [await tools.refund(1), Math.random()]", [spy.guarded()], options), []
    barrier = threading.Barrier(3)

    def click():
        barrier.wait(60)
        results.append(go_on(interrupt, [spy.guarded()], OK, options=options))

    threads = [threading.Thread(target=click) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(results) == 3
    assert results[0] == results[1] == results[2]
    assert spy.ran == [("refund", 1)]


def test_within_one_process_it_is_so_by_default(spy):
    interrupt = start("return await tools.refund(1)", [spy.guarded()])
    assert go_on(interrupt, [spy.guarded()], OK) == go_on(interrupt, [spy.guarded()], OK)
    assert refused(interrupt, [spy.guarded()], NO).details["superseded"] is True
    assert spy.ran == [("refund", 1)]


def test_a_framework_may_retry_its_whole_step(spy):
    """The model call after the tool failed, so the step is run again with the same approval: nothing runs twice."""
    code_mode = create_code_mode_tool([spy.guarded()], PAUSING)
    interrupt = code_mode.execute_sync({"js": "return (await tools.refund(1)).done"}).to_dict()
    assert [code_mode.resume_sync(interrupt, OK) for _ in range(3)] == ["refund"] * 3
    assert spy.ran == [("refund", 1)]


# --- a failure before anything ran gives the claim back ---


def test_no_free_worker_is_no_attempt(spy, options, make_pool):
    async def scenario():
        busy = asyncio.Event()
        pool = make_pool(max_workers=1)
        running = asyncio.Event()

        async def wait(value, context):
            running.set()
            await busy.wait()

        tools = [spy.guarded(), Tool("wait", execute=wait)]
        interrupt = start_in_thread([spy.guarded()], options)
        waiting = create_code_mode_tool(tools, options, pool=pool)
        held = asyncio.create_task(waiting.execute({"js": "return await tools.wait(1)"}))
        await running.wait()
        resume = {"tools": tools, "options": options, "pool": pool}
        with pytest.raises(CodeModeConcurrencyError):
            await continue_interrupt(interrupt, OK, **resume)
        busy.set()
        await held
        # Even another answer may come now.
        return await continue_interrupt(interrupt, {**OK, "reason": "later"}, **resume)

    assert within(scenario()) == {"done": "refund"}
    assert spy.ran == [("refund", 1)]


def test_a_worker_that_cannot_start_is_no_attempt(spy, options, make_pool):
    interrupt = start("return await tools.refund(1)", [spy.guarded()], options)
    broken = make_pool(start_method="exec", worker_command=("/nonexistent",))
    with pytest.raises(CodeModeError) as caught:
        go_on(interrupt, [spy.guarded()], OK, options=options, pool=broken)
    assert isinstance(caught.value, CodeModeWorkerError)
    assert go_on(interrupt, [spy.guarded()], OK, options=options) == {"done": "refund"}


def test_a_timeout_before_any_tool_is_no_attempt(spy, options):
    js = "try { await tools.refund(1) } catch { for (;;); } return 'refunded'"
    short = {**options, "execution_policy": {"timeout_ms": 200}}
    interrupt = start(js, [spy.guarded()], options)
    with pytest.raises(CodeModeTimeoutError):
        go_on(interrupt, [spy.guarded()], NO, options=short)
    assert go_on(interrupt, [spy.guarded()], OK, options=options) == "refunded"
    assert spy.ran == [("refund", 1)]


def test_a_timeout_after_a_tool_has_begun_is_the_outcome(spy, options, passing_time):
    tools = [spy.guarded()]
    minute = {**options, "execution_policy": {"timeout_ms": 60_000}}
    interrupt = start("return await tools.refund(1)", tools, options)

    async def forever(value, context):
        passing_time.skip(61)
        await asyncio.Event().wait()

    slow = [spy.tool("refund", forever, needs_approval=True)]
    with pytest.raises(CodeModeTimeoutError) as caught:
        go_on(interrupt, slow, OK, options=minute)
    (unknown,) = caught.value.recovery.requests
    assert unknown.payload["kind"] == "code-mode/unknown-outcome"
    with pytest.raises(CodeModeTimeoutError) as again:
        go_on(interrupt, tools, OK, options=options)
    assert again.value.recovery == caught.value.recovery
    assert spy.ran == [("refund", 1)]
    assert go_on(again.value.recovery, tools, {"value": "refunded"}, options=options) == "refunded"


def test_a_tool_that_breaks_off_the_run_has_run(spy, options):
    def break_off(value, context):
        raise CodeModeProtocolError("broken off")

    breaking = [spy.tool("refund", break_off, needs_approval=True)]
    interrupt = start("return await tools.refund(1)", breaking, options)
    for tools in (breaking, [spy.guarded()]):
        with pytest.raises(CodeModeError, match="broken off"):
            go_on(interrupt, tools, OK, options=options)
    assert spy.ran == [("refund", 1)]


def test_a_pool_is_enough_for_a_resume(spy):
    pool = WorkerPool({"max_workers": 1})
    try:
        interrupt = start("return await tools.refund(1)", [spy.guarded()], pool=pool)
        assert go_on(interrupt, [spy.guarded()], OK, pool=pool) == {"done": "refund"}
        assert pool.active == 0
    finally:
        pool.close()
