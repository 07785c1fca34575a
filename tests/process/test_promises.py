"""The promise that a call returns, under everything a program does with promises, and calls left alone."""

from __future__ import annotations

import asyncio

import pytest

from codemode import CodeModeError, CodeModeToolError, Tool
from codemode.errors import CodeModeDetachedBridgeRequestError


class Calls:
    """Tools that note how often they ran; `slow` ends when `release` was called with the same value, or never."""

    def __init__(self):
        self.log = []
        self.tools = [
            Tool("echo", execute=self.echo),
            Tool("fail", execute=self.fail),
            Tool("never", execute=self.never),
            Tool("slow", execute=self.slow),
            Tool("release", execute=self.release),
        ]
        self._released = {}

    async def echo(self, value):
        self.log.append(value)
        return value

    async def fail(self, value):
        self.log.append(value)
        raise RuntimeError("on purpose")

    async def never(self, value):
        self.log.append(value)
        await asyncio.Event().wait()

    async def slow(self, value):
        self.log.append(value)
        await self._released.setdefault(value, asyncio.Event()).wait()
        return value

    async def release(self, value):
        self._released.setdefault(value, asyncio.Event()).set()


@pytest.fixture
def calls():
    return Calls()


ECHO = "tools.echo(1)"


@pytest.mark.parametrize(
    ("js", "value"),
    [
        (f"return await {ECHO}", 1),
        (f"return {ECHO}", 1),
        (f"const f = async () => {ECHO}; return await f()", 1),
        (f"return await (async () => {{ return await {ECHO} }})()", 1),
        (f"return await Promise.all([{ECHO}, 2, tools.echo(3)])", [1, 2, 3]),
        ("return await Promise.all([1, 2, 3].map(n => tools.echo(n)))", [1, 2, 3]),
        (f"return await Promise.race([{ECHO}])", 1),
        (f"return await Promise.any([{ECHO}, Promise.reject(2)])", 1),
        (f"return await Promise.allSettled([{ECHO}])", [{"status": "fulfilled", "value": 1}]),
        ("const r = []; for await (const x of [tools.echo(1), tools.echo(2)]) r.push(x); return r", [1, 2]),
        ("async function* g() { yield tools.echo(1); yield* [tools.echo(2)] } return Array.fromAsync(g())", [1, 2]),
        (f"return await {ECHO}.then(x => x + 1)", 2),
        (f"return await {ECHO}.then(x => tools.echo(x + 1))", 2),
        (f"return await {ECHO}.then(undefined)", 1),
        (f"return await {ECHO}.catch(() => 2)", 1),
        (f"let seen; const v = await {ECHO}.finally(() => {{ seen = true }}); return [v, seen]", [1, True]),
        (f"return await Promise.resolve({ECHO})", 1),
        (f"const p = {ECHO}; return [Promise.resolve(p) === p, await p]", [False, 1]),
        (f"return await new Promise(resolve => resolve({ECHO}))", 1),
        (f"return await new Promise(resolve => {ECHO}.then(resolve))", 1),
        (f"const p = {ECHO}; return [p instanceof Promise, p instanceof Object, typeof p.then, await p]",
         [True, True, "function", 1]),
        (f"const p = {ECHO}; return [Object.prototype.toString.call(p), await p]", ["[object Promise]", 1]),
        (f"class P2 extends Promise {{}} const p = {ECHO}; Object.setPrototypeOf(p, P2.prototype); return await p", 1),
        (f"class P2 extends Promise {{}} return await P2.resolve({ECHO})", 1),
        (f"const {{then}} = Promise.prototype; return await {ECHO}.then(x => x)", 1),
        (f"return (await Promise.all([Promise.race([{ECHO}, new Promise(() => {{}})])]))[0]", 1),
        (f"const wrapped = {{p: {ECHO}}}; return await wrapped.p", 1),
        (f"const {{resolve, promise}} = Promise.withResolvers(); resolve({ECHO}); return await promise", 1),
        (f"return await Promise.try(() => {ECHO})", 1),
        ("return await Array.fromAsync([tools.echo(1), tools.echo(2)])", [1, 2]),
    ],
)  # fmt: skip
def test_the_promise_of_a_call_is_a_promise(run, calls, js, value):
    assert run(js, calls.tools) == value


@pytest.mark.parametrize(
    "js",
    [
        "const p = tools.echo(1); return [await p, await p]",
        "const p = tools.echo(1); return await Promise.all([p, p])",
        "const p = tools.echo(1); return [await p, await p.then(x => x)]",
        "const p = tools.echo(1); const a = p.then(x => x), b = p.finally(() => {}); return [await a, await b]",
    ],
)
def test_awaiting_twice_runs_the_call_once(run, calls, js):
    assert run(js, calls.tools) == [1, 1]
    assert calls.log == [1]


@pytest.mark.parametrize(
    "js",
    [
        "try { await tools.fail(1) } catch (e) { return e.message }",
        "return await tools.fail(1).catch(e => e.message)",
        "return await tools.fail(1).then(() => 0, e => e.message)",
        "return await tools.fail(1).finally(() => 0).catch(e => e.message)",
        "try { await Promise.all([tools.echo(2), tools.fail(1)]) } catch (e) { return e.message }",
        "return (await Promise.allSettled([tools.fail(1)]))[0].reason.message",
        "return await Promise.any([tools.fail(1)]).catch(e => e.errors[0].message)",
        "return await Promise.race([tools.fail(1)]).catch(e => e.message)",
        "try { for await (const x of [tools.fail(1)]) return x } catch (e) { return e.message }",
    ],
)
def test_a_failed_call_rejects_wherever_it_is_looked_at(run, calls, js):
    assert run(js, calls.tools) == "the tool failed"


def test_a_call_catches_in_the_callers_own_try(run, calls):
    js = """
      const f = async () => { try { return await tools.fail(1) } catch { return await tools.echo('again') } };
      return f();
    """
    assert run(js, calls.tools) == "again"


def test_calls_start_before_they_are_awaited(run, calls):
    # Both are under way before the first is awaited: `slow` would otherwise never be released.
    js = "const a = tools.slow('x'); const b = tools.release('x'); return [await a, (await b) === undefined]"
    assert run(js, calls.tools) == ["x", True]


def test_a_loser_that_finished_before_the_end_is_no_error(run, calls):
    js = """
      const a = tools.slow('a'), b = tools.echo('b');
      const first = await Promise.race([a, b]);
      await tools.release('a');
      return [first, await a];
    """
    assert run(js, calls.tools) == ["b", "a"]


def test_outcomes_are_delivered_one_at_a_time(run, calls):
    js = """
      const order = [];
      const step = async (name) => { await tools.echo(name); order.push(name) };
      const branch = async (name) => { await step(name); await step(name + 2) };
      await Promise.all([branch('a'), branch('b')]);
      return order;
    """
    order = run(js, calls.tools)
    assert sorted(order) == ["a", "a2", "b", "b2"]
    assert order.index("a") < order.index("a2")
    assert order.index("b") < order.index("b2")


# --- detached calls ---


@pytest.mark.parametrize(
    ("js", "status"),
    [
        ("tools.echo(1); return 2", "unobserved"),
        ("const p = tools.echo(1); return 2", "unobserved"),
        (
            "const p = tools.echo(1); await tools.echo(2); await tools.echo(3); return p instanceof Promise",
            "unobserved",
        ),
        ("tools.fail(1); await tools.echo(2); return 1", "unobserved"),
        ("return {p: tools.echo(1)}", "unobserved"),
        ("tools.echo(1).then(() => {}); return 2", "pending"),
        ("tools.never(1).catch(() => {}); await tools.echo(1); return 2", "pending"),
        ("await Promise.race([tools.never(1), tools.echo(2)]); return 1", "pending"),
        ("try { await Promise.all([tools.fail(1), tools.never(2)]) } catch {} return 1", "pending"),
        ("(async () => { await tools.never(1) })(); await tools.echo(0); return 1", "pending"),
        ("tools.never(1); await tools.echo(2); return 1", "pending"),
        (
            "const p = Promise.prototype.then.call(tools.echo(1), x => x); await tools.echo(2); return await p",
            "unobserved",
        ),
    ],
)
def test_a_call_nobody_waits_for_fails_the_program(fails, calls, js, status):
    error = fails(CodeModeDetachedBridgeRequestError, js, calls.tools)
    assert error.code == "CODE_MODE_DETACHED_BRIDGE_REQUEST"
    assert error.details["status"] == status
    assert error.details["kind"] == "tool"
    assert error.details["calls"][0]["id"].endswith(f":tool-{error.details['id'].rpartition('-')[2]}")


def test_pending_calls_come_before_unobserved_ones(fails, calls):
    js = "tools.echo(1); tools.never(2).then(() => 0); await tools.echo(3); return 1"
    error = fails(CodeModeDetachedBridgeRequestError, js, calls.tools)
    assert [(call["name"], call["status"]) for call in error.details["calls"]] == [("never", "pending")]


def test_every_unobserved_call_is_named(fails, calls):
    error = fails(CodeModeDetachedBridgeRequestError, "tools.echo(1); tools.echo(2); await tools.echo(3)", calls.tools)
    assert [call["id"].rpartition(":")[2] for call in error.details["calls"]] == ["tool-1", "tool-2"]
    assert {call["status"] for call in error.details["calls"]} == {"unobserved"}


def test_a_call_of_the_last_turn_is_never_made(fails, calls):  # DESIGN "Calls start early"
    fails(CodeModeDetachedBridgeRequestError, "await tools.echo(1); tools.echo(2); return 3", calls.tools)
    assert calls.log == [1]


@pytest.mark.parametrize(
    "js",
    [
        "try { tools.echo(1); return 1 } catch { return 'caught' } finally { }",
        "return await (async () => { tools.echo(1); return 1 })().catch(() => 'caught')",
        "try { tools.echo(1).then(() => 0); return 1 } catch (e) { return 'caught' }",
    ],
)
def test_the_guest_cannot_catch_a_detached_call(fails, calls, js):
    fails(CodeModeDetachedBridgeRequestError, js, calls.tools)


def test_an_error_of_the_program_wins_over_a_detached_call(fails, calls):
    assert str(fails(CodeModeError, "tools.echo(1); throw new Error('mine')", calls.tools)) == "mine"
    js = "tools.never(1).then(() => 0); await tools.echo(2); throw new Error('mine')"
    assert str(fails(CodeModeError, js, calls.tools)) == "mine"


def test_a_detached_call_wins_over_the_result(fails, calls):
    fails(CodeModeDetachedBridgeRequestError, "tools.echo(1); return 'x'.repeat(100)", calls.tools, max_result_bytes=10)


def test_a_failing_call_nobody_looked_at_is_a_detached_call(fails, calls):
    error = fails(
        CodeModeDetachedBridgeRequestError, "const p = tools.fail(1); await tools.echo(1); return 1", calls.tools
    )
    assert error.details["name"] == "fail"


def test_a_pending_call_is_cancelled_at_the_end(fails, within):
    seen = []

    async def wait(value, context):
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(context.aborted.is_set())

    js = "tools.wait(1).then(() => 0); await tools.ready(2); return 1"
    fails(CodeModeDetachedBridgeRequestError, js, [Tool("wait", execute=wait), Tool("ready", execute=lambda v: v)])
    assert seen == [True]


def test_the_catalog_counts_as_a_call_too(fails, calls):
    error = fails(CodeModeDetachedBridgeRequestError, "tools.$search('x'); return 1", calls.tools)
    assert error.details["kind"] == "catalog"


# --- deadlock ---


@pytest.mark.parametrize(
    "js",
    [
        "await new Promise(() => {})",
        "try { await new Promise(() => {}) } catch { return 1 } finally { return 2 }",
        "await tools.echo(1); await new Promise(() => {})",
        "const p = tools.echo(1); await new Promise(() => {})",
        "await {then() {}}",
        "let go; const gate = new Promise(r => { go = r }); await Promise.all([gate.then(() => go()), tools.echo(1)])",
        "return new Promise(() => {})",
    ],
)
def test_waiting_for_nothing_is_reported_at_once(fails, calls, js):
    error = fails(CodeModeError, js, calls.tools, timeout_ms=60_000)
    assert error.code == "CODE_MODE_DEADLOCK"


def test_unhandled_rejections_and_leftover_jobs_are_ignored(run, calls):
    assert run("Promise.reject(new Error('ignored')); return 1") == 1
    assert run("Promise.resolve().then(() => { throw new Error('ignored') }); return 1") == 1
    assert run("(async () => { for (;;) await null })(); return 1", timeout_ms=60_000) == 1
    assert run("queueMicrotask(() => { throw new Error('ignored') }); await null; return 1") == 1


def test_an_uncaught_failure_keeps_its_class_on_the_host(fails, calls):
    error = fails(CodeModeToolError, "await Promise.all([tools.fail(1), tools.echo(2)])", calls.tools)
    assert error.code == "CODE_MODE_HOST_TOOL_ERROR"
    assert isinstance(error.__cause__, RuntimeError)
