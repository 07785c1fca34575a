"""Every code of a failure that a program can bring about, each by a real program; and what limits are called."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from typing import Any

import pytest
from leftovers import children, living_children
from pool_driver import zygotes
from resting_surface import Slow
from suite import each_row
from waiting import until

from codemode import CallContext, Tool, create_exec_wait_tools

ALIKE = [
    "return import.meta",
    "return import.meta.url",
    "return `a ${import.meta} b`",
    "return `${`${(() => import . meta)()}`}`",
    "if (false) { import/* x */.meta }",
    "const tag = () => 1; return tag`${import.meta.env}`",
    "return 1;\nfunction never() { return typeof import.meta }",
    "import.meta",
    "const url: string = import.meta.url; return url",
    "return import.metadata",
    "import x from 'y'; return x",
    "import 'y'",
    "export const a = 1",
    "export default 1",
    "return require('fs')",
    "return `${require('fs')}`",
    "return `${await import('x')}`",
    "const f = () => import('x'); return 1",
]
FINE = [
    ("return 'import.meta'", "import.meta"),
    ("return `import.meta \\${import.meta}`", "import.meta ${import.meta}"),
    ("// import.meta\nreturn 1", 1),
    ("return {import: {meta: 2}}.import.meta", 2),
    ("const importMeta = 3; return importMeta", 3),
    ("return /import.meta/.test('import.meta')", True),
    ("const a = {import: {meta: 4}}; return a?.import.meta", 4),
    ("return {meta: 5, import: 6}.meta", 5),
    ("function f() { return typeof new.target } return f()", "undefined"),
    ("const o = {require: (a) => a, export: 1}; return o.require(o.export)", 1),
    ("const require = (name) => name; return require('fs')", "fs"),
    ("return 'export default, import x from y, require(z)'.length", 43),
]


@pytest.fixture
def ended(within: Any, pool: Any):
    """Run a program to its end, through every rest."""

    def end(code: str, tools: Any = (), settings: Any = None, **options: Any) -> Any:
        pair = create_exec_wait_tools(tools, options, settings=settings, pool=pool)

        async def main():
            try:
                result = await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
                while result["status"] == "waiting":
                    result = await pair.wait.execute({"runId": result["runId"]}, call=CallContext(conversation_id="s"))
                return result
            finally:
                await pair.aclose()

        return within(main())

    return end


@each_row("language", ["javascript", "typescript"])
@each_row("code", ALIKE)
def test_modules_are_denied_before_anything_runs(within, pool, code, language):
    ran: list[int] = []
    pair = create_exec_wait_tools([Tool("note", execute=lambda _, __: ran.append(1))], pool=pool)

    async def main():
        try:
            return await pair.exec.execute({"code": f"tools.note(); {code}", "language": language})
        finally:
            await pair.aclose()

    result = within(main())
    assert result["code"] == "module_access_denied", result
    assert ran == []


@each_row("code, value", FINE)
def test_their_words_are_fine_where_they_are_no_modules(ended, code, value):
    assert ended(code)["value"] == value


def fail(_value: Any, _context: Any) -> None:
    raise ValueError("what a tool raised")


FAILING = Tool("fail", execute=fail)
ECHO = Tool("echo", execute=lambda value, _: value, input_schema={"type": "object", "required": ["a"]})
ASKING = Tool("ask", execute=lambda value, _: value, needs_approval=True)
DENYING = {"approval": {"on_approval_required": lambda _: {"approved": False}}}
LARGE = "x" * 2_000
MANY = "await Promise.all(Array.from({length: 4}, () => tools.echo({a: 1})))"


@each_row("code, options, failure, named",
    [
        ("for (;;);", {"timeoutMs": 100}, "timeout", "timeoutMs is 100"),
        ("await tools.echo({a: 1}); for (;;);", {"timeoutMs": 100}, "timeout", "timeoutMs is 100"),
        ("const a = []; for (;;) a.push([])", {"memoryLimitBytes": 2 << 20}, "memory_limit_exceeded",
         f"memoryLimitBytes is {2 << 20}"),
        # Here the engine has nothing left to say it with.
        ("for (let i = 0; ; i++) globalThis['g' + i] = i", {"memoryLimitBytes": 8 << 20}, "memory_limit_exceeded",
         f"memoryLimitBytes is {8 << 20}"),
        (f"text('{LARGE}')", {"maxOutputBytes": 1024}, "output_limit_exceeded", "1024 bytes .*maxOutputBytes"),
        (f"json(['{LARGE}'])", {"maxOutputBytes": 1024}, "output_limit_exceeded", "1024 bytes .*maxOutputBytes"),
        (f"console.log('{LARGE}')", {"maxOutputBytes": 1024}, "output_limit_exceeded", "1024 bytes .*maxOutputBytes"),
        (f"return '{LARGE}'", {"maxOutputBytes": 1024}, "output_limit_exceeded", "1024 bytes .*maxOutputBytes"),
        (f"await yield_control(); return '{LARGE}'", {"maxOutputBytes": 1024}, "output_limit_exceeded", "maxOutput"),
        ("const f = () => { try { f() } finally { text('x'.repeat(2000)) } }; f()", {"maxOutputBytes": 1024},
         "output_limit_exceeded", "maxOutputBytes"),
        (f"await yield_control('{LARGE}')", {"maxSnapshotBytes": 1024}, "snapshot_limit_exceeded",
         "maxSnapshotBytes is 1024"),
        (MANY, {"maxPendingToolCalls": 3}, "too_many_pending_tool_calls", r"maxPendingToolCalls allows \(3\)"),
        (f"try {{ {MANY} }} catch {{}} throw new Error('own')", {"maxPendingToolCalls": 3}, "internal_error", "own"),
        ("for (let i = 0; i < 9; i++) await tools.echo({a: i})", {"maxToolCalls": 4}, "internal_error",
         r"maxToolCalls allows \(4\)"),
        ("await tools.fail()", {}, "nested_tool_failed", "fail"),
        ("await tools.echo(1)", {}, "nested_tool_failed", "echo"),
        ("await tools.ask(1)", {}, "nested_tool_failed", "ask"),
        ("await tools.call('host:core:nothing', 1)", {}, "nested_tool_failed", "host:core:nothing"),
        ("await tools.describe('host:core:nothing')", {}, "nested_tool_failed", "host:core:nothing"),
        ("try { await tools.fail() } catch { throw new Error('own') }", {}, "internal_error", "own"),
        ("throw Object.assign(new Error('own'), {code: 'timeout', name: 'CodeModeTimeoutError'})", {},
         "internal_error", "own"),
        ("throw {code: 'snapshot_expired'}", {}, "internal_error", ""),
        ("return {", {}, "internal_error", "SyntaxError"),
        ("await new Promise(() => {})", {}, "internal_error", "cannot happen"),
        ("const a = {}; a.a = a; return a", {}, "internal_error", "circular"),
    ],
)  # fmt: skip
def test_a_failure_has_its_code_and_names_the_option(ended, code, options, failure, named):
    result = ended(code, [FAILING, ECHO, ASKING], DENYING, **options)
    assert (result["status"], result["code"]) == ("failed", failure), result
    assert re.search(named, result["error"]), result["error"]
    assert not re.search(r"max_[a-z_]+|timeout_ms|memory_limit_bytes|execution_policy", result["error"])


def test_a_refusal_that_a_program_reads_names_the_option_too(ended):
    code = f"try {{ {MANY} }} catch (error) {{ return error.message }}"
    said = ended(code, [ECHO], maxPendingToolCalls=3)["value"]
    assert "maxPendingToolCalls is 3" in said
    assert "max_" not in said


def test_what_the_host_sets_beside_is_called_as_the_host_calls_it(ended):
    policy = {"execution_policy": {"max_tool_input_bytes": 100}}
    result = ended(f"await tools.echo({{a: '{LARGE}'}})", [ECHO], policy)
    assert result["code"] == "nested_tool_failed"


@pytest.mark.parametrize("code", ["await tools.strike(); for (;;);", "tools.strike(); await tools.slow(1)"])
def test_a_worker_that_is_killed_under_its_program_is_an_internal_error(within, make_pool, code):
    before = children()
    slow = Slow()

    async def strike() -> None:
        (zygote,) = zygotes(before)
        (worker,) = living_children(zygote)
        os.kill(worker, signal.SIGKILL)

    pool = make_pool(max_workers=1, spare_workers=0)
    pair = create_exec_wait_tools([slow.tool, strike], {"timeoutMs": 20_000}, pool=pool)

    async def main():
        try:
            return await pair.exec.execute({"code": code}), await pair.exec.execute({"code": "return 1"})
        finally:
            await pair.aclose()

    killed, after = within(main())
    assert (killed["code"], "the sandbox ended" in killed["error"]) == ("internal_error", True), killed
    assert after["value"] == 1


def test_no_worker_that_starts_is_a_runtime_that_is_not_there(within, make_pool):
    pair = create_exec_wait_tools([], pool=make_pool(worker_command=(sys.executable, "-c", "raise SystemExit(3)")))
    result = within(pair.exec.execute({"code": "return 1"}))
    assert result["code"] == "runtime_unavailable", result
    assert pair.runs() == ()
    within(pair.aclose())


def test_no_worker_that_is_free_is_one_neither(within, make_pool):
    slow = Slow()
    options = {"maxWarmRuns": 0, "waitTimeoutMs": 60_000}
    pair = create_exec_wait_tools([slow.tool], options, pool=make_pool(max_workers=1))

    async def main():
        try:
            first = asyncio.ensure_future(pair.exec.execute({"code": "return await tools.slow(1)"}))
            await until(lambda: slow.calls)
            second = await pair.exec.execute({"code": "return 2"})
            slow.end(1)
            return await first, second
        finally:
            await pair.aclose()

    first, second = within(main())
    assert (first["value"], second["code"]) == (1, "runtime_unavailable")


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("return await tools.stok({})", "tools.stok"),
        ("const a: number = 1;\nreturn [await tools.$search('x')]", "tools.$search"),
        ("const f = 3; return f()", None),
        ("return await tools.stock.run({})", None),
    ],
)
def test_who_calls_a_tool_by_a_name_that_it_has_not_is_told_how_to_find_it(ended, code, named):
    result = ended(code, [Tool("stock", execute=lambda _: 7)])
    assert "TypeError: not a function" in result["error"]
    hint = f"\nHint: {named} is no tool, or a name that several have: find ids"
    assert (hint in result["error"]) is (named is not None)
