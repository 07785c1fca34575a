"""What a module program imports, and the text that the engine evaluates for it."""

import json
import sysconfig
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from module_engine import authors_text, checked, evaluate
from suite import each_row, rounds

from codemode.guest.analysis import analyse, modules

SITE_PATHS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
LONG_MS = 60_000
EXPORTS = {"m": {"a": 1, "b": 2, "default": 3, "x y": 4, "type": 5, "as": 6}, "n": {"a": 10}}
_analyser = analyse.load_analyser(SITE_PATHS)


def result_of(source):
    return checked(_analyser(source, LONG_MS, analyse.MODULE))


def facts_of(source):
    return result_of(source)["facts"]["module"]


def names_of(source):
    return [(one["from"], *map(tuple, one["names"])) for one in facts_of(source)["imports"]]


def value_of(source):
    result = result_of(source)
    return evaluate(result["js"], result["facts"]["module"], EXPORTS).get("value")


def problems_of(source):
    return [(one["message"], one["line"], one["column"]) for one in result_of(source)["problems"]]


@each_row(
    "source, expected",
    [
        ('import "m"', [("m",)]),
        ("import {} from 'm';", [("m",)]),
        ('import d from "m"', [("m", ("default", "d"))]),
        ('import { a } from "m"', [("m", ("a", "a"))]),
        ('import { a as b, b as a, } from "m"', [("m", ("a", "b"), ("b", "a"))]),
        ('import { a as x, a as y } from "m"', [("m", ("a", "x"), ("a", "y"))]),
        ('import { default as d, "x y" as e } from "m"', [("m", ("default", "d"), ("x y", "e"))]),
        ('import * as ns from "m"', [("m", ("*", "ns"))]),
        ('import d, * as ns from "m"', [("m", ("default", "d"), ("*", "ns"))]),
        ('import d, { a as b } from "m"', [("m", ("default", "d"), ("a", "b"))]),
        ('import{a}from"m";import{b}from"n"', [("m", ("a", "a")), ("n", ("b", "b"))]),
        ('import { if as x, class as y, await as z } from "m"', [("m", ("if", "x"), ("class", "y"), ("await", "z"))]),
        ('import { "a" as b } from "\\x6d\\u{6e}\\u006f\\\n"', [("mno", ("a", "b"))]),
        ('import { "\\ud83d\\ude00" as b } from "m"', [("m", ("\U0001f600", "b"))]),
        ('import { \\u0061 as \\u{62} } from "m"', [("m", ("a", "b"))]),
        ('import { größe as ナ } from "m"', [("m", ("größe", "ナ"))]),
        ('import/**/{a/*}*/,//,\nb}/*from "x"*/from/**/"m"/**/', [("m", ("a", "a"), ("b", "b"))]),
        ('import\ra\u2028from\u2029"m"\r[1]', [("m", ("default", "a"))]),
        ('import of from "m"; import async from "n"', [("m", ("default", "of")), ("n", ("default", "async"))]),
        ('import from from "m"', [("m", ("default", "from"))]),
        ('import * as as from "m"', [("m", ("*", "as"))]),
        ('import { as as as, from } from "m"', [("m", ("as", "as"), ("from", "from"))]),
        ('import { a } from "m" with { type: "json" }', [("m", ("a", "a"))]),
        ('import "m"\nwith\n{ "type": "json" }\n;[1]', [("m",)]),
        ('export * from "m"', [("m", ("*", ""))]),
        ('export * as ns from "m"', [("m", ("*", ""))]),
        ('export * as "x y" from "m" with {}', [("m", ("*", ""))]),
        (
            'export { a, b as c, default, "x y" as "z" } from "m"',
            [("m", ("a", ""), ("b", ""), ("default", ""), ("x y", ""))],
        ),
        ("const a = 1; export { a, a as b, a as default, a as 'c d' }", []),
        ('import { a } from "m"; export { a }; export default a', [("m", ("a", "a"))]),
    ],
)
def test_statements(source, expected):
    assert names_of(source) == expected


@each_row(
    "source, expected",
    [
        ('import type { A } from "t"', []),
        ('import type A from "t"', []),
        ('import type * as A from "t"', []),
        ('import type\n{ A }\nfrom "t"', []),
        ('import type from from "t"', []),
        ('import type from "m"', [("m", ("default", "type"))]),
        ('import type, { a } from "m"', [("m", ("default", "type"), ("a", "a"))]),
        ('import { type A, a, type B as C } from "m"', [("m", ("a", "a"))]),
        ('import { type } from "m"', [("m", ("type", "type"))]),
        ('import { type as } from "m"', [("m",)]),
        ('import { type as as } from "m"', [("m", ("type", "as"))]),
        ('import { type as x } from "m"', [("m", ("type", "x"))]),
        ('import { type as as x } from "m"', [("m",)]),
        ('import { type type } from "m"', [("m",)]),
        ('import { type "x y" as z } from "m"', [("m",)]),
        ('export type { A } from "t"', []),
        ('export type * from "t"', []),
        ('export type * as T from "t"', []),
        ('export { type A, a } from "m"', [("m", ("a", ""))]),
        ("const a = 1; export { type A, a, type B }", []),
        ("export type { A }", []),
        ("export interface A { b: 1 }", []),
        ("export default interface A { b: 1 }", []),
        ("export type A<T> = { [K in T]: K }", []),
        ("export declare const a: number, b: string", []),
        ("export declare function f(): void", []),
        ("export declare namespace N { const a: 1 }", []),
        ("export namespace N { type A = 1 }", []),
        ("export function f(a: string): void;\nexport function f(a: any) {}", []),
        ("export default function f(a: string): void;\nexport default function f() {}", []),
        ("export abstract class A<T> { abstract a(): void; private b?: T }", []),
    ],
)
def test_types_go_with_their_keyword(source, expected):
    assert names_of(source) == expected
    result = result_of(source)
    if "type" not in source.replace('"type"', "").replace(":as", ""):
        assert "{ b: 1 }" not in result["js"]
    assert evaluate(result["js"], result["facts"]["module"], {"m": EXPORTS["m"]}).keys() <= {"value", "log"}


@each_row(
    "source, value",
    [
        ('globalThis.R = a; import a from "m"', 3),
        ('import { a as b, b as a } from "m"; globalThis.R = [a, b]', [2, 1]),
        ('import d, * as ns from "m"; globalThis.R = [d, ns.a, ns["x y"], ns.nope]', [3, 1, 4, None]),
        ('import { "x y" as z } from "m"; globalThis.R = z', 4),
        ('globalThis.R = f(); function f() { return a }\nimport { a } from "m"', 1),
        ('let x = [1, 2]\nimport "m"\n[0].length; globalThis.R = x', [1, 2]),
        ('let x = 1\nimport { a } from "m"\n(1); globalThis.R = x', 1),
        ('let x = "y"\nimport { a } from "m"\n`z`; globalThis.R = x', "y"),
        ('let x = 4\nexport * from "m"\n/2/g; globalThis.R = x', 4),
        ('let x = 1\nimport "m"\n++x; globalThis.R = x', 2),
        ('import "m"\n-1\nglobalThis.R = 1', 1),
        ('import { a } from "m"; let o; try { a = 2 } catch (e) { o = e.name } globalThis.R = o', "TypeError"),
        ('import { a } from "m"; a: for (;;) break a; globalThis.R = a', 1),
        ('import { a as \\u0062 } from "m"; globalThis.R = [b, \\u{62}]', [1, 1]),
        ('import { a } from "m"; { let a = 7; globalThis.R = a }', 7),
        ('import { a } from "m"; export { a as z }; export default a; globalThis.R = a', 1),
        ('globalThis.R = (await import("m")).a', 1),
        ("globalThis.R = await import(`m`).then((ns) => ns.default)", 3),
        ('globalThis.R = (await import("\\x6d", { with: { type: "x" } },)).b', 2),
        ('const n = "m"; globalThis.R = Object.keys(await import(n)).length', 6),
        ('globalThis.R = await import("nope").catch((e) => e.message)', "no such module"),
        ('globalThis.R = `${(await import("m")).a}`', "1"),
        (
            'class A { static { this.p = import("m") } static q = import("n") }\nglobalThis.R = [(await A.p).a]',
            [1],
        ),
        (
            'const o = { import(a) { return a }, x: 1 }; globalThis.R = [o.import("m"), o?.import(2), o["import"](3)]',
            ["m", 2, 3],
        ),
        ('globalThis.R = await import /* a */\n // b\n ("m").then((ns) => ns.a)', 1),
        ("globalThis.R = [typeof this, typeof import.meta]", ["undefined", "object"]),
        (
            "const s = 'import(\"m\")' + `import x from \"m\"` // import('m')\nglobalThis.R = s",
            'import("m")import x from "m"',
        ),
        (
            'let $codemode = 1, impo$_ = 2; import {a} from "m"; globalThis.R = [impo$_, a, typeof await import("n")]',
            [2, 1, "object"],
        ),
        ('let \\u0024codemode = 1; import { a } from "m"; globalThis.R = a', 1),
        ('globalThis.R = 5; let n = 3; while (n --> 0) R += (await import("m")).a', 8),
        ("globalThis.R = '<!--' + `<!--` + /<!--/.source // <!--", "<!--<!--<!--"),
        ("#!/usr/bin/env node\nglobalThis.R = 1", 1),
        ("\ufeffimport { a } from 'm'; globalThis.R = a", 1),
        ("globalThis.R = `a\rb\r\nc`", "a\nb\nc"),
    ],
)
def test_what_runs(source, value):
    assert value_of(source) == value


@each_row(
    "source, expected",
    [
        ('import("m")', ["m"]),
        ("import(`m`)", ["m"]),
        ("import(`m${1}`)", [None]),
        ("import('m' + 'n')", [None]),
        ('import(("m") as string)', ["m"]),
        ('import("m", { with: { type: "json" } })', ["m"]),
        ('let x: typeof import("t") = 1 as import("t").Y; import("m")', ["m"]),
        ('x.import("m"); ({ import() {} }); "import(1)"; /import(1)/', []),
        ('import("\\u{110000}")', None),
        ('import("\\ud800")', ["\ufffd"]),
        ("import('m');" * 300, [*["m"] * 256, None]),
    ],
)
def test_dynamic_imports(source, expected):
    if expected is None:
        assert "problems" in result_of(source)
    else:
        assert [one["from"] for one in facts_of("let x, f;" * ("x.import" in source) + source)["dynamic"]] == expected


NS = 'import * as ns from "m"\n'


@each_row(
    "source, expected",
    [
        ("ns.a(1)", ["a"]),
        ('ns["a b"]()', ["a b"]),
        ("await ns\n  .a({})", ["a"]),
        ("ns.a().then(ns.b())", ["a", "b"]),
        ("xs.map((x) => ns.a(x))", ["a"]),
        ("const o = { ns: 1 }; o.ns; o.ns(); 'ns'; ns.a()", ["a"]),
        ("let x: ns.T = ns.a!() as ns.U", ["a"]),
        ("ns.a(); ns.a()", ["a", "a"]),
        ("ns.a() as ns.A.B; let x = 1 as unknown as ns.C[]; f<ns.D>(x satisfies ns.E)", ["a"]),
        ("let x: import('m').T = await ns.a(); type T = typeof ns", ["a"]),
        ("await Promise.all([ns.a(), ns.b().catch(() => 1)])", ["a", "b"]),
        ("ns.a; ns.b()", ["b"]),
        ("ns.a; ns.a()", []),
        ("typeof ns.a; ns.a()", []),
        ("ns.a?.()", []),
        ("ns?.a()", []),
        ("new ns.a()", []),
        ("ns.a`x`", []),
        ("ns.a(); ns[x]", []),
        ("ns.a(); f(ns)", []),
        ("ns.a(); 'a' in ns", []),
        ("ns.a(); export { ns }", []),
        ("ns.a(); ({ ns })", []),
        ("function f(ns) { ns.a() }", []),
        ("{ class ns {} } ns.a()", []),
        ("\\u006es; ns.a()", []),
        ("ns.\\u0061()", []),
        ("try { ns.a() } catch {} ns.b()", ["b"]),
        ("try { f(ns.a()) } finally { ns.b() }", []),
        ("function f() { return ns.a() } try { f() } catch {}", []),
    ],
)
def test_calls_of_what_a_namespace_must_have(source, expected):
    assert [one["name"] for one in facts_of(NS + source)["namespace_calls"]] == expected


FORMS = (
    "import a from 'm'",
    "import { a } from 'm'",
    "import * as a from 'm'",
    "import 'm'",
    "import { type A } from 'm'",
    "import type A from 'm'",
    "import { a } from 'm' with { type: 'x' }",
    "export { a } from 'm'",
    "export * from 'm'",
    "export * as a from 'm'",
    "export {} from 'm'",
    "export type { A } from 'm'",
    "export interface I {}",
    "export type A = 1",
)
BLANKS = ("\u00a0", "\ufeff", "\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u3000", "\v", "\f", "\r", "\r\n")


@each_row("blank", BLANKS)
def test_any_blank_may_stand_around_a_statement(blank):
    for form in FORMS:
        has_source = "'m'" in form and " type " not in form.partition("{")[0] and " type {" not in form
        for ended in (
            form + blank,
            form + "/**/" + blank,
            form + ";" + blank,
            form + " " + blank,
            blank + form + blank,
        ):
            for behind in ("", "\n", "\nlog(1)", "\n;(1)", "\n`x`" if has_source else "\n;`x`"):
                source = ended + blank + behind
                assert [name for name, *_ in names_of(source)] == ["m"] * has_source, source


def test_calls_on_a_namespace_that_is_loaded():
    found = facts_of('const ns = await import("m"); ns.a(); const { b } = await import("n"); b()')
    assert found["namespace_calls"] == [{"from": "m", "name": "a", "line": 1, "column": 31}]
    assert facts_of('{ const ns = await import("m"); ns.a() } const ns = 1')["namespace_calls"] == []
    assert facts_of('let ns = await import("m"); ns = await import("n"); ns.a()')["namespace_calls"] == []


def test_places_are_the_authors():
    source = "/* é😀 */ import {\r\n  a,\r  b } from 'm'\u2028import * as n from 'n'; n.x(); import('q')"
    found = facts_of(source)
    first, second = found["imports"]
    assert (first["line"], first["column"], first["places"]) == (1, 11, [[2, 3], [3, 3]])
    assert (second["line"], second["column"], second["places"]) == (4, 1, [[4, 8]])
    assert [(one["line"], one["column"]) for one in found["namespace_calls"]] == [(4, 25)]
    assert [(one["line"], one["column"]) for one in found["dynamic"]] == [(4, 32)]


@each_row(
    "source, line, column",
    [
        ("const = 1", 1, 7),
        ("import { a } from 'm'; const = 1", 1, 30),
        ("import { a } from 'm'\n/* é😀 */ const = 1", 2, 17),
        ("const s: string = 'é😀'; const = 1", 1, 32),
        ("import { a } from 'm'; let a", 1, 29),
        ("import { a } from 'é';\n  let a", 2, 8),
        ("export { nope }", 1, 10),
        ("let a;\nexport { a as b,\n  nope as a }", 3, 3),
        ("x = 1; const r = /a/g.test(/(/)", 1, 28),
        ("export const a = 1; export { a }", 1, 32),
        ("import { a } from 'm'; import { a } from 'n'", 1, 35),
        ("{ import 'm' }", 1, 10),
        ("if (1) { export let a }", 1, 10),
        ("return 1", 1, 1),
        ("import { eval } from 'm'", 1, 10),
        ("import { await } from 'm'", 1, 10),
        ("import { a as if } from 'm'", 1, 15),
        ("import { 'a' } from 'm'", 1, 10),
        ("import { '\\ud800' as a } from 'm'", 1, 10),
        ("/* a\rb */ const = 1", 2, 12),
        ("a\0b", 1, 2),
        ("\n'a\0b'", 2, 3),
        ("import x = require('m')", 1, 8),
        ("export = 1", 1, 1),
        ("1; enum A {}", 1, 4),
        ("with (1) {}", 1, 1),
        ("import defer * as a from 'm'", 1, 14),
        ("new import('m')", 1, 12),
        ("a\n--> b", 2, 3),
        ("let b = 1; '<!--'\nb <!-- b", 2, 3),
        ("import a, from 'm'", 1, 9),
        ("; import { 'a' } from 'm'", 1, 12),
    ],
)
def test_mistakes_stand_where_the_author_wrote_them(source, line, column):
    ((_, *place),) = problems_of(source)
    assert place == [line, column]


def test_what_is_not_understood_and_no_mistake_does_not_run():
    # A regular expression where the grammar sees divisions, and the other way about.
    for source in ("x = {}\n/import('m')/.test(1)", "let a = {} / import('m') / 1", "{}/'/.test(import('m'))//'"):
        result = result_of(f"let x; {source}")
        assert "problems" in result or result["facts"] is None or "import('m')" not in result["js"]


def test_a_doubt_behind_the_imports_is_none():
    assert names_of("import { a } from 'm'\nfor (;;) { break }\nlet x = {}\n/ 2 / 1") == [("m", ("a", "a"))]
    assert result_of("let x = {}\n/ 2 / 1\nimport('m')")["facts"] is None


def test_past_the_deadline_the_engine_alone_says_what_is_wrong():
    assert checked(_analyser("import 'm'", -1, analyse.MODULE)) == {"js": "import 'm'", "facts": None}
    late = checked(_analyser("import 'm'\nconst = 1", -1, analyse.MODULE))
    assert late == {"problems": [{"message": "variable name expected", "line": 2, "column": 7}]}


def test_without_an_engine_what_to_ask_it_comes_with_the_result():
    source = "import { type A, a } from 'm'; const x: A = import('n')"
    result = _analyser(source, LONG_MS, analyse.MODULE)
    assert result["asked"] == "import {         a } from 'm'; const x    = import('n')"
    assert result["js"].startswith('const{0:{"a":a},load:impo$_}=$codemode;;')
    unclear = _analyser("const x: A = 1\nconst = 1", LONG_MS, analyse.MODULE)
    assert (unclear["asked"], unclear["facts"]) == ("const x: A = 1\nconst = 1", None)
    assert unclear["draft"]["js"] == "const x    = 1\nconst = 1"
    assert (unclear["draft"]["line"], unclear["draft"]["is_ambiguous"]) == (2, False)


def test_facts_of_a_function_body_are_as_ever():
    assert _analyser("return tools.a()", LONG_MS)["facts"].keys() == {"calls", "modules", "shadowed"}
    assert result_of("let x = 1; tools.a()")["facts"].keys() == {"calls", "modules", "shadowed", "module", "free"}


def test_floods_are_refused_or_bounded():
    assert problems_of('import "m";\n' * 1500) == [(modules.TOO_MANY, 1025, 1)]
    many = ", ".join(f"a as a{number}" for number in range(5000))
    assert problems_of(f'import {{ {many} }} from "m"') == [(modules.TOO_MANY, 1, 1)]
    names = "".join(f"$codemode{number:05}, impo${number}, " for number in range(2000))
    found = facts_of(f"let $codemode, impo$_, {names} z; import('m')")
    assert found["take"] not in names


def test_modules_of_a_megabyte():
    start = time.perf_counter()
    many = rounds(5_000, 60_000)
    filler = "/* import x from 'y' */ " * 44_000
    assert names_of(f"{filler}\nimport {{ a }} from 'm'\n`{filler}`") == [("m", ("a", "a"))]
    deep = checked(_analyser("(" * 8 * many, LONG_MS, analyse.MODULE))
    assert deep["facts"] is None
    assert len(facts_of("import('m');" * (many // 3))["dynamic"]) == 257
    assert facts_of(NS + "ns.a();" * many)["namespace_calls"] == []
    # The allowance is for a busy machine.
    assert time.perf_counter() - start < 120


PIECES = (
    *(
        "import ",
        "export ",
        "from ",
        "default ",
        "* ",
        "as ",
        "type ",
        "{",
        "}",
        ",",
        "a",
        "b",
        " ",
        "\n",
        ";",
        "'m'",
        '"n"',
    ),
    *(
        "(",
        ")",
        "await ",
        "const ",
        "let ",
        "=",
        "1",
        "function f() {}",
        "class A {}",
        "/",
        "/*",
        "*/",
        "//",
        "`",
        "${",
        "\r",
    ),
    *(
        "import('m')",
        "with { type: 'json' }",
        "interface I {}",
        ": T",
        "\\u0061",
        "\u2028",
        "é😀",
        "<!--",
        "-->",
        "#!",
        "[1]",
    ),
    *(
        "import a from 'm'\n",
        "export * from 'm'\n",
        "export { a }\n",
        "$codemode",
        "impo$_",
        ".meta",
        "declare ",
        "async ",
    ),
)


@settings(max_examples=rounds(40, 400), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_pieces_of_modules(source):
    result = result_of(source)
    json.dumps(result, allow_nan=False)
    assert ("problems" in result) != ("js" in result)
    if result.get("facts") is not None:
        module = result["facts"]["module"]
        assert module["prefix"] == 0 or module["take"] is not None
        plain = source.replace("\r\n", "\n\n").replace("\r", "\n")
        assert len(authors_text(result).encode("utf-16-le")) == len(plain.encode("utf-16-le"))
