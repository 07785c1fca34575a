"""The pair exec and wait: results, rests, and what is refused; with workers kept at rest and without."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from calls import with_call
from pausing import PAUSING, Spy
from resting_surface import Slow
from suite import each_row, full_only
from waiting import until

from codemode import CallContext, Interrupt, Tool
from codemode.surfaces.exec_wait.exec_wait_tools import ExecWaitTools, create_exec_wait_tools

SCOPE = "a conversation"


@pytest.fixture(params=[4, *full_only(0)], ids=["warm", "cold"])
def options(request) -> dict[str, Any]:
    """Options of a pair whose programs keep workers at rest, and of one whose programs keep none."""
    return {"maxWarmRuns": request.param, "waitTimeoutMs": 20_000}


def held(work: Any, pair: ExecWaitTools) -> Any:
    """Do some work with a pair that is closed after it."""

    async def main():
        try:
            return await work
        finally:
            await pair.aclose()

    return main()


def echo() -> Tool:
    return Tool("echo", execute=lambda value, _: value, description="Gives back what it gets.")


async def run(pair: ExecWaitTools, code: str, **more: Any) -> Any:
    return await pair.exec.execute({"code": code}, **with_call(more, conversation_id=SCOPE))


async def wait(pair: ExecWaitTools, result: Any, **more: Any) -> Any:
    return await pair.wait.execute({"runId": result["runId"]}, **with_call(more, conversation_id=SCOPE))


def told(result: Any) -> Any:
    """A result without its telemetry."""
    return {name: value for name, value in result.items() if name != "telemetry"}


def test_a_program_that_awaits_twelve_quick_tools_is_one_exec_and_no_wait(within, pool, options):
    spy = Spy()
    pair = create_exec_wait_tools([spy.tool("quick", lambda value, _: value)], options, pool=pool)
    code = "let n = 0; for (let i = 0; i < 12; i++) n += await tools.quick(i); text(n); json({n}); return n"
    result = within(held(run(pair, code), pair))
    output = [{"type": "text", "text": "66"}, {"type": "json", "value": {"n": 66}}]
    assert told(result) == {"status": "completed", "value": 66, "output": output}
    assert result["telemetry"]["calledTools"] == ["host:core:quick"]
    assert len(spy.ran) == 12
    assert pool.active == 0


def test_what_a_program_sees_of_the_catalog(within, pool, options):
    pair = create_exec_wait_tools([echo()], options, pool=pool)
    entry = {"id": "host:core:echo", "name": "echo", "description": "Gives back what it gets.", "source": "host"}
    code = """const id = ALL_TOOLS[0].id;
        return [ALL_TOOLS, Object.isFrozen(ALL_TOOLS) && Object.isFrozen(ALL_TOOLS[0]), ALL_TOOLS === ALL_TOOLS,
            await tools.search("gives back", {limit: 3}), await tools.describe(id),
            await tools.call(id, {x: 1}), await tools.echo(2), Object.keys(tools), typeof tools.nothing]"""
    seen = within(held(run(pair, code), pair))["value"]
    assert seen[:5] == [[entry], True, True, [entry], {**entry, "parameters": {}}]
    assert seen[5:] == [{"x": 1}, 2, ["search", "describe", "call", "echo"], "undefined"]
    assert {name: pair.telemetry[name] for name in ("exec", "search", "describe")} == {
        "exec": 1, "search": 1, "describe": 1
    }  # fmt: skip


def test_a_yield_hands_over_what_there_is_and_wait_goes_on(within, pool, options):
    pair = create_exec_wait_tools([], options, pool=pool)

    async def main():
        first = await run(
            pair, "text('one'); await yield_control('look'); text('two'); await yield_control(); return 3"
        )
        second = await wait(pair, first)
        info = pair.runs(SCOPE)
        return first, second, await wait(pair, second), info

    first, second, third, info = within(held(main(), pair))
    assert (first["status"], first["reason"], first["output"]) == (
        "waiting",
        "yield",
        [{"type": "text", "text": "one"}],
    )
    assert (second["runId"], second["output"]) == (first["runId"], [{"type": "text", "text": "two"}])
    assert told(third) == {"status": "completed", "value": 3}
    assert [(one.run_id, one.state, one.reason, one.warm) for one in info] == [
        (first["runId"], "waiting", "yield", options["maxWarmRuns"] > 0)
    ]
    assert pool.active == 0


def test_slow_calls_go_on_while_the_program_waits(within, pool, options):
    slow = Slow()
    pair = create_exec_wait_tools([slow.tool], {**options, "waitTimeoutMs": 100}, pool=pool)

    async def main():
        first = await run(pair, "const a = await Promise.all([tools.slow(1), tools.slow(2)]); text('after'); return a")
        again = await wait(pair, first)
        slow.end(2)
        slow.end(1)
        await until(lambda: not pair.runs(SCOPE)[0].pending)
        return first, again, await wait(pair, again)

    first, again, last = within(held(main(), pair))
    assert (first["status"], first["reason"]) == ("waiting", "pending_tools")
    assert [(one["tool"], one["status"]) for one in first["pendingToolCalls"]] == [("host:core:slow", "running")] * 2
    assert (again["runId"], again["reason"]) == (first["runId"], "pending_tools")
    assert told(last) == {"status": "completed", "value": [1, 2], "output": [{"type": "text", "text": "after"}]}
    assert slow.calls == [1, 2]


def test_calls_that_nobody_awaited_are_waited_for(within, pool, options):
    spy = Spy()
    pair = create_exec_wait_tools([spy.tool("quick", lambda value, _: value)], options, pool=pool)
    assert told(within(held(run(pair, "tools.quick(1); return 2"), pair))) == {"status": "completed", "value": 2}
    assert len(spy.ran) == 1


FAILING = [
    ("return null.x", "internal_error", "TypeError: cannot read property 'x' of null"),
    ("await new Promise(() => {})", "internal_error", "waits for something that cannot happen"),
    ("const a = []; a.push(a); return a", "internal_error", "circular"),
    ("return }", "internal_error", "SyntaxError"),
    ("import x from 'y'; return x", "module_access_denied", "`import`"),
    ("return require('fs')", "module_access_denied", "`require()`"),
    ("return `${await import('x')}`", "module_access_denied", "`import()`"),
    ("return import.meta", "module_access_denied", "line 1, column 8: `import.meta`"),
    ("enum A {B}\nreturn A.B", "typescript_transform_failed", "line 1"),
    ("return 1;\nclass A { constructor(private b: number) {} }", "typescript_transform_failed", "line 2"),
    ("grep -r foo .", "invalid_input", "JavaScript"),
    ("ls -la /tmp", "invalid_input", "tools.search"),
    ("text('a'.repeat(70000))", "output_limit_exceeded", "65536"),
    ("try { text('a'.repeat(70000)) } catch {} return 1", "output_limit_exceeded", "65536"),
    ("return 'a'.repeat(70000)", "output_limit_exceeded", "65536"),
    ("text('a'.repeat(70000)); await yield_control()", "output_limit_exceeded", "65536"),
    ("await tools.call('host:core:ecko', 1)", "nested_tool_failed", "'host:core:echo'"),
    ("await tools.fail()", "nested_tool_failed", "host:core:fail"),
    ("await Promise.all(Array.from({length: 20}, (_, i) => tools.echo(i)))", "too_many_pending_tool_calls", "16"),
    ("const a = []; for (;;) a.push('x'.repeat(100000) + a.length)", "memory_limit_exceeded", "out of memory"),
    ("throw new InternalError('out of memory')", "internal_error", "out of memory"),
    ("throw Reflect.construct(Error, ['out of memory'], InternalError)", "internal_error", "out of memory"),
    ("throw Object.assign(new Error('out of memory'), {name: 'InternalError'})", "internal_error", "out of memory"),
]


@each_row("code, failure, text", FAILING, ids=[one[0][:30] for one in FAILING])
def test_a_failure_has_its_code(within, pool, code, failure, text):
    def fail(_value: Any, _context: Any) -> None:
        raise ValueError("a secret of the host")

    pair = create_exec_wait_tools([echo(), Tool("fail", execute=fail)], pool=pool)
    result = within(held(run(pair, code), pair))
    assert (result["status"], result["code"]) == ("failed", failure), result
    assert text in result["error"]
    assert "secret" not in result["error"]
    assert pair.runs(SCOPE) == ()


def test_what_a_tool_raised_is_shown_where_the_host_says_so(within, pool):
    def fail(_value: Any, _context: Any) -> None:
        raise ValueError("no https://ana:word@host/a in /home/ana/key.pem\nsecond line")

    pair = create_exec_wait_tools([Tool("fail", execute=fail)], {"hostErrorDetail": "message"}, pool=pool)

    async def main():
        code = "return await tools.fail().catch((error) => error.message)"
        return (await run(pair, code))["value"], (await run(pair, "await tools.fail()"))["error"]

    for text in within(held(main(), pair)):
        assert "no https://host/a in" in text
        for hidden in ("word", "key.pem", "second line"):
            assert hidden not in text


def test_a_guest_that_computes_is_stopped(within, pool):
    pair = create_exec_wait_tools([], {"timeoutMs": 100}, pool=pool)
    result = within(held(run(pair, "text('begun'); for (;;);"), pair))
    assert result["code"] == "timeout"


@pytest.mark.parametrize(
    ("code", "value"),
    [("return 12n", "12"), ("return () => 1", "() => 1"), ("return NaN", None)],
)
def test_what_is_no_json_at_the_top_becomes_text(within, pool, code, value):
    pair = create_exec_wait_tools([], pool=pool)
    result = within(held(run(pair, code), pair))
    assert told(result) == {"status": "completed", "value": value}


def test_a_run_is_its_scopes_and_one_waits_for_it(within, pool, options):
    slow = Slow()
    pair = create_exec_wait_tools([slow.tool], {**options, "waitTimeoutMs": 100}, pool=pool)

    async def main():
        first = await run(pair, "return await tools.slow(1)")
        stranger = await wait(pair, first, conversation_id="another")
        other = asyncio.ensure_future(wait(pair, first))
        await asyncio.sleep(0)
        second = await wait(pair, first)
        await other
        slow.end(1)
        return stranger, second, await wait(pair, first), await wait(pair, first)

    stranger, second, last, again = within(held(main(), pair))
    assert (stranger["code"], "no waiting run" in stranger["error"]) == ("invalid_input", True)
    assert (second["code"], "another wait" in second["error"]) == ("invalid_input", True)
    assert last["value"] == 1
    assert (again["code"], "has ended" in again["error"]) == ("invalid_input", True)


def test_aborted_runs_give_their_places_back(within, pool, options):
    slow = Slow()
    places = {"maxWaitingRuns": 2, "maxWaitingRunsPerConversation": 2}
    pair = create_exec_wait_tools([slow.tool], {**options, "waitTimeoutMs": 100, **places}, pool=pool)

    async def main():
        code = "await tools.slow(1)"
        first = [await run(pair, code), await run(pair, code)]
        full = await run(pair, code)
        other = await run(pair, code, conversation_id="another")
        ended = await pair.abort(conversation_id=SCOPE)
        after = [await wait(pair, one) for one in first]
        return full, other, ended, after, await run(pair, "return 1")

    full, other, ended, after, last = within(held(main(), pair))
    assert (full["code"], other["code"], ended) == ("runtime_unavailable", "runtime_unavailable", 2)
    assert "2 programs" in full["error"]
    assert [one["code"] for one in after] == ["aborted", "aborted"]
    assert last["value"] == 1
    assert slow.cancelled == [1, 1]


def test_one_conversation_leaves_places_for_the_others(within, pool, options):
    pair = create_exec_wait_tools([], {**options, "maxWaitingRuns": 4}, pool=pool)

    async def main():
        code = "await yield_control(); return 1"
        resting = [await run(pair, code) for _ in range(2)]
        full = await run(pair, code)
        other = await run(pair, "return 2", conversation_id="another")
        ended = await wait(pair, resting[0])
        return full, other, ended, await run(pair, code)

    full, other, ended, last = within(held(main(), pair))
    assert full["code"] == "runtime_unavailable"
    assert "2 programs of this conversation run or wait already" in full["error"]
    assert (other["value"], ended["value"], last["status"]) == (2, 1, "waiting")


def test_what_takes_too_much_at_rest_is_ended(within, pool, options):
    pair = create_exec_wait_tools([], {**options, "maxSnapshotBytes": 2048}, pool=pool)
    code = f"text('so far'); await yield_control(); // {'x' * 3000}"
    result = within(held(run(pair, code), pair))
    assert result["code"] == "snapshot_limit_exceeded"
    assert result["output"] == [{"type": "text", "text": "so far"}]


@pytest.mark.parametrize("settings", [None, PAUSING, {"approval": {"show_denial_reason": True}}])
def test_a_person_is_asked_by_an_interrupt_that_resume_answers(within, pool, options, settings):
    spy = Spy()
    pay = spy.tool("pay", lambda value, _: value, needs_approval=True)
    pair = create_exec_wait_tools([pay], options, settings=settings, pool=pool)

    async def main():
        interrupt = await run(pair, "text('before'); const v = await tools.pay(1); await yield_control(); return v")
        assert isinstance(interrupt, Interrupt)
        assert spy.ran == []
        rest = await pair.resume(interrupt, {"approved": True}, call=CallContext(conversation_id=SCOPE))
        return rest, await wait(pair, rest)

    rest, last = within(held(main(), pair))
    assert (rest["status"], rest["output"]) == ("waiting", [{"type": "text", "text": "before"}])
    assert last["value"] == 1
    assert len(spy.ran) == 1


def test_a_callback_decides_where_the_host_has_one_and_nobody_where_it_says_so(within, pool):
    pay = Tool("pay", execute=lambda value, _: value, needs_approval=True)
    ended: list[Any] = []
    for policy in ({"on_approval_required": lambda _: "approved"}, {"mode": "callback"}):
        pair = create_exec_wait_tools([pay], settings={"approval": policy}, pool=pool)
        ended.append(within(held(run(pair, "return await tools.pay(1)"), pair)))
    assert (ended[0]["value"], ended[1]["code"]) == (1, "nested_tool_failed")


def test_sync_callers_share_a_loop_on_which_calls_go_on(within, pool, options):
    async def doubled(value: Any, _context: Any) -> Any:
        await asyncio.sleep(0.15)
        return value * 2

    pair = create_exec_wait_tools([Tool("double", execute=doubled)], {**options, "waitTimeoutMs": 100}, pool=pool)
    result = pair.exec.execute_sync({"code": "return await tools.double(2)"}, call=CallContext(conversation_id=SCOPE))
    assert result["status"] == "waiting"
    while result["status"] == "waiting":
        result = pair.wait.execute_sync({"runId": result["runId"]}, call=CallContext(conversation_id=SCOPE))
    assert result["value"] == 4
    within(pair.aclose())
