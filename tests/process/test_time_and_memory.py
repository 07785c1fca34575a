"""The clock, the engine's own limits, cancellation, and many invocations at once."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest
from suite import each_row, full_only

from codemode import (
    CodeModeAbortedError,
    CodeModeError,
    CodeModeTimeoutError,
    Tool,
    create_code_mode_tool,
    run_code_mode,
)
from codemode.errors import CodeModeConcurrencyError


async def echo(value):
    return value


ECHO = Tool("echo", execute=echo)
MINUTE = {"execution_policy": {"timeout_ms": 60_000}}


# --- time ---

FOR_EVER = [
    "for (;;);",
    "try { for (;;); } catch { return 1 } finally { return 2 }",
    "for (;;) try { for (;;); } catch {}",
    "async function f() { for (;;) await null } await f()",
    "const again = () => { Promise.resolve().then(again) }; again(); await new Promise(() => {})",
    "function* g() { for (;;) yield 1 } for (const x of g());",
    "/^(a+)+$/.test('a'.repeat(40) + 'b')",
    "for (;;) [...'x'.repeat(1 << 16)].sort(() => 0.5)",
    "'x'.repeat(1 << 18).split('').sort(() => { for (;;); })",
    "await tools.echo(1); for (;;);",
    "throw {toString() { for (;;); }}",
    "return {toJSON() { for (;;); }}",
    "for (;;) { try { await tools.never() } catch {} }",
]


@each_row("js", [*FOR_EVER[1::3], *full_only(*FOR_EVER[::3], *FOR_EVER[2::3])])
def test_the_clock_ends_every_program(fails, js):
    began = time.monotonic()
    tools = [ECHO, Tool("never", execute=lambda: asyncio.Event().wait())]
    error = fails(CodeModeTimeoutError, js, tools, timeout_ms=250)
    assert error.code == "CODE_MODE_TIMEOUT"
    assert error.details["timeout_ms"] == 250
    assert time.monotonic() - began > 0.24


def test_a_long_computation_within_the_timeout_is_left_alone(run):
    assert run("let n = 0; for (let i = 0; i < 2e6; i++) n++; return n", timeout_ms=20_000) == 2_000_000


def test_a_timeout_aborts_and_cancels_the_running_tools(fails, passing_time):
    seen = []

    async def wait(value, context):
        if value == 2:
            passing_time.skip(61)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append((value, context.aborted.is_set()))
            raise

    program = "await Promise.all([tools.wait(1), tools.wait(2)])"
    error = fails(CodeModeTimeoutError, program, [Tool("wait", execute=wait)], timeout_ms=60_000)
    assert sorted(seen) == [(1, True), (2, True)]
    assert [call["status"] for call in error.calls] == ["unknown", "unknown"]


def test_a_thread_sees_the_abort(fails, passing_time):
    entered, ended = threading.Event(), threading.Event()

    def wait(value, context):
        entered.set()
        passing_time.skip(61)
        for _ in range(6000):
            if context.aborted.is_set():
                ended.set()
                return
            time.sleep(0.01)

    fails(CodeModeTimeoutError, "await tools.wait(1)", [Tool("wait", execute=wait)], timeout_ms=60_000)
    assert entered.is_set()
    assert ended.wait(60)


@pytest.mark.parametrize(
    "js", ["for (;;);", "await tools.wait(1)", "for (;;) { try { await tools.wait(1) } catch {} }"]
)
def test_cancelling_the_caller_aborts_the_invocation(within, make_pool, js):
    async def scenario():
        started, seen, traces = asyncio.Event(), [], []

        async def wait(value, context):
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                seen.append(context.aborted.is_set())

        async def mark():
            started.set()

        pool = make_pool()
        tools = [Tool("wait", execute=wait), Tool("mark", execute=mark)]
        options = {"lifecycle": {"on_trace": traces.append}}
        program = f"await tools.mark(); {js}"
        task = asyncio.create_task(run_code_mode(program, tools, options=options, pool=pool))
        await started.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await task
        cause = cancelled.value.__cause__
        assert type(cause) is CodeModeAbortedError
        assert cause.code == "CODE_MODE_ABORTED"
        assert [trace.status for trace in traces] == ["failed"]
        assert all(seen)
        assert pool.active == 0
        assert await run_code_mode("return 1", [], pool=pool) == 1

    within(scenario())


def test_cancelled_before_it_started_nothing_runs(within):
    async def scenario():
        ran = []
        task = asyncio.create_task(run_code_mode("await tools.hit()", [Tool("hit", execute=lambda: ran.append(1))]))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ran == []

    within(scenario())


# --- the engine's own limits ---

SMALL = {"memory_limit_bytes": 8 << 20, "timeout_ms": 60_000}


@pytest.mark.parametrize(
    "js",
    [
        "const a = []; for (;;) a.push(new Array(1000).fill(1))",
        "let s = 'x'; for (;;) s += s + Math.random()",
        "new Uint8Array(1 << 30)",
        "return 'x'.repeat(1 << 28)",
        "const m = new Map(); for (let i = 0; ; i++) m.set(i, [i])",
        "return 'x'.repeat(3 << 20).split('')",
        "for (let i = 0; ; i++) globalThis['g' + i] = i",  # where the engine has none left to say it with
    ],
)
def test_memory_that_runs_out_is_an_error_of_the_program(fails, run, js):
    error = fails(CodeModeError, js, **SMALL)
    assert error.code == "CODE_MODE_ERROR"
    assert error.details["name"] in ("InternalError", "RangeError")
    assert run("return 1") == 1


def test_memory_that_runs_out_can_be_caught(run):
    program = "try { const a = []; for (;;) a.push(new Array(1000).fill(1)) } catch (e) { return String(e) }"
    # The engine throws null when there is no memory left for an error.
    assert run(program, **SMALL) in ("InternalError: out of memory", "null")


def test_memory_that_runs_out_in_a_job_ends_at_once(fails):
    program = "await Promise.resolve().then(() => { const a = []; for (;;) a.push(new Array(1000).fill(1)) })"
    assert fails(CodeModeError, program, **SMALL).code in ("CODE_MODE_ERROR", "CODE_MODE_DEADLOCK")


@pytest.mark.parametrize(
    "js",
    [
        "const f = () => f() + 1; f()",
        "const o = {get x() { return this.x }}; o.x",
        "const a = []; a[0] = a; const p = {toJSON() { return {p} }}; JSON.stringify(p)",
        "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; JSON.stringify(a)",
        "new RegExp('('.repeat(20000) + ')'.repeat(20000)).test('x')",
    ],
)
def test_a_stack_that_overflows_is_an_error_of_the_program(fails, run, js):
    error = fails(CodeModeError, js, timeout_ms=60_000)
    assert error.details["name"] in ("RangeError", "InternalError", "SyntaxError")
    assert run("return 1") == 1


def test_the_stack_limit_counts(run):
    program = "let n = 0; const f = () => { n++; f() }; try { f() } catch {} return n"
    assert run(program, max_stack_size_bytes=128 << 10) < run(program, max_stack_size_bytes=4 << 20)


def test_a_stack_overflow_around_a_call_is_caught_like_any_other(run):
    program = """
      let failed = 0;
      const deep = () => { deep(); tools.echo('never') };
      try { deep() } catch { failed++ }
      return [failed, await tools.echo(1)];
    """
    assert run(program, [ECHO]) == [1, 1]


# --- many at once ---


def test_many_invocations_at_once_keep_their_own_values(within, make_pool):
    async def scenario():
        pool = make_pool(max_workers=8, on_saturation="wait")
        programs = (run_code_mode(f"return [await tools.echo({n}), {n}]", [ECHO], pool=pool) for n in range(60))
        return await asyncio.gather(*programs)

    assert within(scenario()) == [[n, n] for n in range(60)]


def test_a_full_pool_refuses_at_once(within, make_pool):
    async def scenario():
        pool = make_pool(max_workers=2, on_saturation="fail")
        gate, entered = asyncio.Event(), asyncio.Semaphore(0)

        async def hold():
            entered.release()
            await gate.wait()

        tools = [Tool("hold", execute=hold)]
        running = [asyncio.create_task(run_code_mode("await tools.hold()", tools, pool=pool)) for _ in range(2)]
        for _ in running:
            await entered.acquire()
        with pytest.raises(CodeModeConcurrencyError) as refused:
            await run_code_mode("return 1", [], pool=pool)
        assert refused.value.code == "CODE_MODE_CONCURRENCY_LIMIT"
        assert refused.value.details == {"max_workers": 2}
        assert refused.value.trace.status == "failed"
        gate.set()
        await asyncio.gather(*running)
        assert await run_code_mode("return 1", [], pool=pool) == 1

    within(scenario())


def test_a_slot_is_taken_until_the_tools_have_ended(within, make_pool, passing_time):
    async def scenario():
        pool = make_pool(max_workers=1, on_saturation="fail")
        stubborn, ended = asyncio.Event(), asyncio.Event()

        async def hold():
            passing_time.skip(61)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                assert pool.active == 1
                stubborn.set()
                raise
            finally:
                ended.set()

        with pytest.raises(CodeModeTimeoutError):
            await run_code_mode("await tools.hold()", [Tool("hold", execute=hold)], options=MINUTE, pool=pool)
        assert stubborn.is_set()
        assert ended.is_set()
        assert pool.active == 0

    within(scenario())


def test_a_tool_that_ignores_its_cancellation_keeps_the_slot_but_not_the_caller(within, make_pool, passing_time):
    async def scenario():
        pool = make_pool(max_workers=1)
        let_go, ended = asyncio.Event(), asyncio.Event()

        async def stubborn():
            passing_time.skip(61)
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    asyncio.current_task().uncancel()
            ended.set()

        tools = [Tool("stubborn", execute=stubborn)]
        program = run_code_mode("await tools.stubborn()", tools, options=MINUTE, pool=pool)
        try:
            with pytest.raises(CodeModeTimeoutError):
                await program
            still_taken = pool.active
        finally:
            let_go.set()  # else the loop could not be closed
        await ended.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (still_taken, pool.active) == (1, 0)

    within(scenario())


def test_two_event_loops_in_two_threads_share_the_pool(within):
    results = {}

    def work(name):
        async def programs():
            runs = (run_code_mode(f"return await tools.echo('{name}{n}')", [ECHO]) for n in range(10))
            return await asyncio.gather(*runs)

        results[name] = within(programs())

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {name: [f"{name}{n}" for n in range(10)] for name in "ab"}


def test_nothing_leaks_from_run_to_run(run):
    run("globalThis.left = 1; Object.leak = 1; tools.left; undeclared = 2")
    assert run("return [typeof left, typeof Object.leak, typeof undeclared]") == ["undefined"] * 3


def test_a_run_leaves_nothing_for_the_garbage_collector(within, make_pool):
    # Else every few runs would pay for all of them, and hold what the tools were given until then.
    async def scenario():
        others = gc.get_objects()  # held: a thread may just let go of what another test had
        code_mode = create_code_mode_tool([ECHO], pool=make_pool())
        for js in ("return 1", "return await tools.echo({ n: 1 })") * 2:
            gc.collect()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                await code_mode.execute({"js": js})
                await asyncio.sleep(0)  # handles are closed after the caller has its value
                gc.collect()
            finally:
                gc.set_debug(0)
                left, gc.garbage[:] = list(gc.garbage), []
            ours = {type(one).__qualname__ for one in left if type(one).__module__.startswith("codemode.")}
            assert ours == set(), js
        others.clear()

    within(scenario())
