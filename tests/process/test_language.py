"""The language of programs: JavaScript as it is, TypeScript without its types, errors and their places."""

from __future__ import annotations

import pytest
from recorder import Recorder
from suite import each_row

from codemode import CodeModeError
from codemode.errors import CodeModeSyntaxError


@each_row(
    "js, value",
    [
        ("undeclared = 4; return undeclared", 4),
        ("with ({a: 1}) { return a }", 1),
        ("let n = 0; for (let i = 0; i < 10; i++) n += i; return n", 45),
        ("let n = 0; while (n < 7) n++; return n", 7),
        ("function* g() { yield 1; yield 2 } return [...g()]", [1, 2]),
        (
            "async function* g() { yield 1; yield 2 } const r = []; for await (const x of g()) r.push(x); return r",
            [1, 2],
        ),
        ("class A { #x = 1; static s = 2; get x() { return this.#x } } return [new A().x, A.s]", [1, 2]),
        ("outer: for (const a of [1, 2]) for (const b of [3, 4]) if (b === 4) continue outer; return 'done'", "done"),
        ("return [[1, 2, 3].at(-1), Object.groupBy([1, 2], x => x % 2 ? 'o' : 'e')]", [3, {"o": [1], "e": [2]}]),
        ("const {a, ...rest} = {a: 1, b: 2}; return [a ?? 0, rest?.b]", [1, {"b": 2}["b"]]),
        ("return 010 + 0o10", 16),
        ("return 1 <!-- an old comment", 1),
        ("return [arguments.length, this === globalThis]", [0, True]),
        ("#!/usr/bin/env node\nreturn 1", None),
    ],
)
def test_the_language_is_sloppy_and_whole(run, fails, js, value):
    if js.startswith("#!"):
        fails(CodeModeSyntaxError, js)
    else:
        assert run(js) == value


def test_use_strict_is_honoured(fails):
    assert fails(CodeModeError, "'use strict'; undeclared = 1").details["name"] == "ReferenceError"
    fails(CodeModeSyntaxError, "'use strict'; with ({}) {}")


CLASSES = """
interface I {}
abstract class A { abstract f(): void; protected readonly x: number = 2; get(): number { return this.x } }
class B extends A implements I { override f(): void {} }
return new B().get()
"""


@each_row("js, value",
    [
        ("const x: number = 1; return x", 1),
        ("let s: string | null = null; s = 'a' as string; return s!.length", 1),
        ("function id<T extends object = {}>(x: T): T { return x } return id<{a: number}>({a: 2})", {"a": 2}),
        ("const r = {a: 1} satisfies Record<string, number>; return r", {"a": 1}),
        ("interface A { a: number }\ntype B = A & { b?: string };\nconst b: B = {a: 1} as B; return b", {"a": 1}),
        ("declare const nothing: number; return 1", 1),
        (CLASSES, 2),
        ("const f = async (a: number, b?: string, ...c: any[]): Promise<number> => a + c.length; return await f(1)", 1),
        ("type T = { [K in 'a' | 'b']: number }; const t: Partial<T> = {a: 1}; return t", {"a": 1}),
        ("for (const [k, v] of Object.entries({a: 1} as Record<string, number>)) return [k, v]", ["a", 1]),
        ("const hit = await tools.hit<any>({a: 1} as any); return hit", {"a": 1}),
    ],
)  # fmt: skip
def test_types_are_stripped(run, js, value):
    assert run(js, [Recorder().tool]) == value


@each_row(
    "js",
    [
        "enum A { B }",
        "namespace N { export const a = 1 }",
        "class A { constructor(private x: number) {} }",
        "const x = <number>1",
        "import x from 'y'",
        "import type { X } from 'y'",
        "export const a = 1",
        "await import('y')",
        "const fs = require('fs')",
        "@decorated class A {}",
    ],
)
def test_typescript_that_has_meaning_at_run_time_is_refused(fails, js):
    recorder = Recorder()
    error = fails(CodeModeSyntaxError, f"await tools.hit(1);\n{js}", [recorder.tool])
    assert error.details["line"] == 2
    assert recorder.inputs == []


def test_positions_survive_stripping(fails):
    js = "interface A {\n  a: number\n}\nconst x: A | null = null as A | null; throw new Error('here')"
    error = fails(CodeModeError, js)
    assert (error.details["line"], js.split("\n")[3][error.details["column"] - 1 :][:5]) == (4, "Error")


@pytest.mark.parametrize(
    ("js", "line"),
    [
        ("const x = ;", 1),
        ("await tools.hit(1);\nconst const = 3;\n", 2),
        ("await tools.hit(1);\n\n  let y = [1, 2;\n", 3),
        ("await tools.hit(1); let a; let a;", 1),
        ("await tools.hit(1);\nreturn 'unterminated", 2),
        ("break;", 1),
        ("await tools.hit(1); yield 1", 1),
    ],
)
def test_a_syntax_error_names_its_line_before_any_tool_runs(fails, js, line):
    recorder = Recorder()
    error = fails(CodeModeSyntaxError, js, [recorder.tool])
    assert error.code == "CODE_MODE_SYNTAX_ERROR"
    assert error.details["line"] == line
    assert error.details["problems"][0]["line"] == line
    assert f"line {line}, column " in str(error)
    assert recorder.inputs == []


def test_the_column_of_a_syntax_error_counts_from_the_models_own_text(fails):
    assert fails(CodeModeSyntaxError, "let x = 1; )").details["column"] == 12
    assert fails(CodeModeSyntaxError, "\nlet x = 1; )").details["column"] == 12


@each_row(
    "js",
    [
        "}",
        "{",
        "}; (async function(){",
        "}); tools.hit(1); (async function(){",
        "})(); tools.hit(1); (async () => {",
        "return 1 }), (async function(){",
        "} function other() {",
        "}, function () {",
        "return 1\n})\n//",
        "})/*",
        "*/ })",
        "`",
        "/*",
        "${}",
        "\n})\n(async function(){",
        "}) ; for (const t of [1]) tools.hit(t); (function(){",
        "} , await tools.hit(1), async function () {",
        ")",
        "}catch{",
    ],
)
def test_no_program_closes_its_wrapper(fails, js):
    recorder = Recorder()
    fails(CodeModeSyntaxError, js, [recorder.tool])
    assert recorder.inputs == []


@pytest.mark.parametrize("js", ["return 1 //", "return 1 /* })( */", "return '})'.length - 1", "return `}`.length"])
def test_braces_in_comments_and_strings_are_text(run, js):
    assert run(js) == 1


def test_a_parser_bomb_ends_in_bounded_time(fails):
    fails(CodeModeSyntaxError, "!>" * 131072, timeout_ms=60_000)
