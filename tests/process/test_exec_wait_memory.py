"""How a program of exec that has no memory left is told from one that only says so; and the largest heap."""

from __future__ import annotations

from typing import Any

import pytest
from suite import each_row, full_only, rounds

from codemode import CallContext, Tool, create_exec_wait_tools

SMALL = {"memoryLimitBytes": 8 << 20, "maxOutputBytes": 1 << 20}
FILLING = {
    "arrays": "const a = []; for (;;) a.push(new Array(1000).fill(1))",
    "lists": "let h = null; for (;;) h = {h}",
    "maps": "const m = new Map(); for (let i = 0; ; i++) m.set(i, [i])",
    "functions": "const a = []; for (;;) a.push(() => 1)",
    "texts": "const a = []; for (;;) a.push('x'.repeat(1000) + a.length)",
    "one text": "let s = 'x'; for (;;) s += s + Math.random()",
    "one buffer": "new Uint8Array(900_000_000)",
    "symbols": "const a = []; for (;;) a.push(Symbol())",
    "promises": "const a = []; for (;;) a.push(Promise.resolve(1))",
}
"""Programs that fill their memory in ways after which the engine says so with an error, and with null."""
AROUND = {
    "at once": "{0}",
    "in a function": "const f = () => {{ {0} }}; f()",
    "after a call": "await tools.echo(1); {0}",
    "with a call in flight": "tools.echo(2); await tools.echo(1); {0}",
    "in a callback": "await Promise.resolve().then(() => {{ {0} }})",
    "in a callback after a call": "await tools.echo(1).then(() => {{ {0} }})",
    "in a timer": "await new Promise((go) => setTimeout(() => {{ {0} }}, 1))",
    "beside an error of its own": 'if (tools.nothing) throw new Error("no {{" + 1); {0}',
    "after a rest": "await yield_control(); {0}",
    "with keys that are made": "const keyed = {{['a' + 1]: 1, b: [2]}}; keyed['c' + 1] = [3]; {0}",
    "with a class": "class Own {{ get a() {{ return 1 }} }} new Own(); {0}",
}
FORGED = [
    "throw null",
    "throw undefined",
    "return Promise.reject(null)",
    "await new Promise((_, no) => no(null))",
    "await {then(_, no) { no(null) }}",
    "const n = null, k = 'th' + 'en', o = {}; o[k] = (_, no) => no(n); await o",
    "const n = null, k = 'th' + 'en'; await {[k]: (_, no) => no(n)}",
    "const n = null, k = 'th' + 'en'; await {async [k](_, no) { no(n) }}",
    "const n = null, k = 'th' + 'en'; class Own { [k](_, no) { no(n) } } await new Own()",
    "const n = null; await new Proxy({}, {get: () => (_, no) => no(n)})",
    "const n = null, k = 'rej' + 'ect'; await Promise[k](n)",
    "const n = null; const {promise, ...rest} = Promise.withResolvers(); rest.reject(n); await promise",
    "const n = null; await new (async () => {})().constructor((_, no) => no(n))",
    "function* g() { yield 1 } g().throw(null)",
    "const k = 'thr' + 'ow'; function* g() { yield 1 } g()[k](null)",
    "for await (const one of (async function* () { throw null })());",
    "throw new Error('x'), null",
    'throw new Error(");"), null',
    "const s = \"throw new E('\"; const x = null; throw x; //');\n",
    "throw/**/null",
    "return {toJSON() { throw null }}",
    "json({get a() { throw null }})",
    "try { {fill} } catch { throw null }",
    "throw new InternalError('out of memory')",
    "throw InternalError('out of memory')",
    "throw Object.assign(new Error('out of memory'), {name: 'InternalError'})",
    "throw Reflect.construct(Error, ['out of memory'], InternalError)",
    "throw {name: 'InternalError', message: 'out of memory', origin: 'memory', is_out_of_memory: true}",
    "class Own extends InternalError {} throw new Own('out of memory')",
    "const f = () => f() + 1; f()",
    "let e; try { const f = () => f() + 1; f() } catch (caught) { e = caught } e.message = 'out of memory'; throw e",
    *(
        f"let e; try {{ new Uint8Array(900_000_000) }} catch (caught) {{ e = caught }} {rest}"
        for rest in (
            "throw Object.setPrototypeOf(new Error('out of memory'), Object.getPrototypeOf(e))",
            "throw Object.setPrototypeOf(new Error('out of memory'), Reflect.getPrototypeOf(e))",
            "throw Object.setPrototypeOf(new Error('out of memory'), e.__proto__)",
            "throw Object.setPrototypeOf(new Error('out of memory'), Object.getPrototypeOf(new Proxy(e, {})))",
            "throw {__proto__: e.__proto__, message: 'out of memory'}",
            "throw {__proto__: e, message: 'out of memory'}",
            "throw new e.constructor('out of memory')",
            "function F() {} F.prototype = e.__proto__; throw Reflect.construct(Error, ['out of memory'], F)",
            "const p = Object.getOwnPropertyDescriptor({}.__proto__, '__proto__'); throw {__proto__: p.get.call(e)}",
            "const of = ({}).__lookupGetter__('__proto__'); throw {__proto__: of.call(e), message: 'out of memory'}",
            "throw new Proxy(e, {})",
            "throw Object.create(e)",
            "throw new Error('out of memory', {cause: e})",
            "throw new AggregateError([e], 'out of memory')",
        )
    ),
]


@pytest.fixture
def ended(within: Any, pool: Any):
    """Run a program to its end, through every rest."""

    def end(code: str, **options: Any) -> Any:
        tools = [Tool("echo", execute=lambda value, _: value), Tool("large", execute=lambda _, __: "x" * 1_000_000)]
        pair = create_exec_wait_tools(tools, {**SMALL, **options}, pool=pool)

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


@each_row("around", AROUND)
def test_memory_that_runs_out_is_told_by_its_code(ended, around):
    for name in ("maps", "arrays", "lists")[: rounds(1, 3)]:
        result = ended(AROUND[around].format(FILLING[name]))
        assert result.get("code") == "memory_limit_exceeded", (name, result)
        assert f"memoryLimitBytes is {8 << 20}" in result["error"]
        assert "threw null" not in result["error"]
        assert result["telemetry"]["cap"] == "memory_limit_exceeded"


@each_row("filling", FILLING)
def test_whatever_fills_it(ended, filling):
    assert ended(FILLING[filling])["code"] == "memory_limit_exceeded"


@pytest.mark.parametrize(
    "code",
    ["const a = []; for (;;) a.push(await tools.large(a.length))", "return 'x'.repeat(5 << 20).split('')"],
)
def test_an_answer_or_a_result_for_which_there_is_no_room(ended, code):
    assert ended(code, maxPendingToolCalls=1)["code"] == "memory_limit_exceeded"


@each_row("code", FORGED, ids=range(len(FORGED)))
def test_a_program_that_only_says_so_is_an_internal_error(ended, code):
    result = ended(code.replace("{fill}", FILLING["lists"]))
    assert (result["status"], result["code"]) == ("failed", "internal_error"), result
    assert "cap" not in result["telemetry"]


@pytest.mark.parametrize("rest", ["throw e", "await tools.echo(1); throw e", "await yield_control(); throw e"])
def test_the_engines_own_error_tells_when_it_is_thrown_again(ended, rest):
    code = f"let e; try {{ new Uint8Array(900_000_000) }} catch (caught) {{ e = caught }} {rest}"
    assert ended(code)["code"] == "memory_limit_exceeded"


def test_memory_that_runs_out_and_is_caught_ends_nothing(ended):
    code = f"let n = 0; for (let i = 0; i < 3; i++) try {{ {FILLING['lists']} }} catch {{ n++ }} return n"
    assert ended(code)["value"] == 3


def test_what_a_program_sees_of_such_an_error_is_a_class_of_its_own(ended):
    code = """let e; try { new Uint8Array(900_000_000) } catch (caught) { e = caught }
        return [e instanceof InternalError, e instanceof Error, Object.getPrototypeOf(e) === InternalError.prototype,
            e.__proto__ === InternalError.prototype, e.constructor === InternalError, String(e),
            Object.getPrototypeOf(1) === Number.prototype, ({}).__proto__ === Object.prototype,
            Object.getPrototypeOf.name + Object.getPrototypeOf.length]"""
    seen = [*[True] * 5, "InternalError: out of memory", True, True, "getPrototypeOf1"]
    assert ended(code)["value"] == seen


LARGEST = {"memoryLimitBytes": 1 << 30, "timeoutMs": 60_000}


def test_the_largest_heap_holds_what_it_says(ended):
    code = "const all = []; for (let i = 0; i < 61; i++) all.push(new Uint8Array(16 << 20)); return all.length"
    assert ended(code, **LARGEST)["value"] == 61


@pytest.mark.parametrize(
    "code",
    [
        "const all = []; for (;;) all.push(new Uint8Array(16 << 20))",
        *full_only("const all = []; for (;;) all.push('x'.repeat(1 << 20) + all.length)"),
        "let all = new Uint8Array(1 << 20); for (;;) { const more = new Uint8Array(all.length * 2); all = more }",
    ],
)
def test_the_engine_notices_the_largest_heap_first(ended, code):
    result = ended(code, **LARGEST)
    assert result["code"] == "memory_limit_exceeded", result
    assert f"memoryLimitBytes is {1 << 30}" in result["error"]
