"""The names and loops of a program, and when nothing certain is known of them."""

import sysconfig

from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.guest.analysis import analyse

_SITE_PATHS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
_analyser = analyse.load_analyser(_SITE_PATHS)


def facts_of(source):
    return _analyser(source, 60_000, True)["facts"]


def names(source):
    found = facts_of(source)["names"]
    return None if found is None else set(found)


@each_row(
    "source",
    [
        "eval",
        "\\u0065val(1)",
        "\\u{65}v\\u{000061}l(1)",
        "({ eval })",
        "({ eval } = x)",
        "({ eval = 1 } = x)",
        "({ a: eval } = x)",
        "[...eval] = x",
        "function eval() {}",
        "function f(eval) {}",
        "function f({ a: [eval = 1] }) {}",
        "const f = (...eval) => 1",
        "eval => 1",
        "try {} catch (eval) {}",
        "class eval {}",
        "class A extends eval {}",
        "class A { [eval]() {} }",
        "class A { static { eval } }",
        "class A { x = eval }",
        "x = class eval {}",
        "`${`${eval}`}`",
        "tag`${eval}`",
        "f<eval>= 1",
        "eval as any",
        "(<T,>(eval: T) => eval)(1)",
        "eval!.x",
        "1.\neval",
        "// c\reval(1)",
        "// c\u2028eval(1)",
        "a = b\n/* */ eval(1)",
        "import { x as eval } from 'y'",
        "label: { eval(x)\n{ y } }",
        "x => { eval(x)\n{ y } }",
        "a ? (eval) : b => c",
        "/a/.test(eval)",
        "a / eval / b",
        "eval\u00a0(1)",
        "n --> eval",
    ],
)
def test_every_place_of_a_name(source):
    assert "eval" in names(source)


@each_row(
    "source",
    [
        "a.eval",
        "a?.eval",
        "a.\\u0065val",
        "({ eval: 1 })",
        "({ eval() {} })",
        "({ get eval() { return 1 } })",
        "({ 'eval': 1 })",
        "class A { eval() {} }",
        "class A { static eval = 1 }",
        "class A { #eval = 1; f() { return this.#eval } }",
        "({ eval: x } = y)",
        "'eval'",
        "`eval`",
        "/eval/",
        "// eval",
        "/* eval */",
        "eval: for (;;) { continue eval }",
        "let x: eval",
        "type T = eval | typeof eval",
        "interface eval { a: eval }",
        "declare const eval: any",
        "x as eval",
        "x as unknown as A.eval.B",
        "x satisfies eval<eval>",
        "f<eval>(1)",
        "function f<eval>(a: eval): a is eval {}",
        "\uff45val(1)",
        "evaluate(1)",
        "$eval(1)",
        "if (a) /eval/.test(b)",
        "return /eval/",
    ],
)
def test_what_is_no_name(source):
    assert "eval" not in names(source)


@each_row(
    "source",
    [
        # What follows is no string, and calls eval.
        'x => {}\n/"/; eval(1)//"',
        'x => {}\n/"/; y = 1; eval(1)//"',
        'a(b)\n// c\nx => {}\n/"/; eval(1)//"',
        "<!-- c\reval(1)",
        "x <!--y/*\n; eval(1) /**/",
        "a\n--> eval(1)\nb",
        "/* */ --> eval(1)",
        "b = async\n{ eval(this)\n{} }",
        "{ get\neval(this)\n{} }",
        "a => { eval(this)\n{} }",
        "a: { b: { eval(this)\n{} } }",
        "return\n{ eval(this)\n{} }",
        "a++\n{ eval(this)\n{} }",
        "return /a//*\n*/eval(1)",
        "function f() { return await /* c */ / eval(1) / g / 2 }",
        'let\na\n/"/; eval(1)//"',
        "let // c\na, b\n/'/; eval(1)//'",
        "b = 1; let\n\n_a\n/`/; eval(1)//`",
        'x = {}\n/"/; eval(1)//"',
        'x = { if(a) {} }\n/"/; eval(1)//"',
        'x = class {}\n/"/; eval(1)//"',
        'x = function () {}\n/"/; eval(1)//"',
        'a: {}\n/"/; eval(1)//"',
        'if (x) y = {}\n/"/; eval(1)//"',
        'if (x) y => {}\n/"/; eval(1)//"',
        'for (;;) x = class {}\n/"/; eval(1)//"',
        'x = { a }\n/"/; eval(1)//"',
        'x = {} /* c\n*/ /"/; eval(1)//"',
        'x = {}\u2028/"/; eval(1)//"',
        'x = () => {}\n/"/; eval(1)//"',
        'x = (() => {})\n{}\n/"/; eval(1)//"',
        'x = a => {} / "/; eval(1)//"',
        '{}\n/"/; eval(1)//"',
        '(b) => {}\n/"/; eval(1)//"',
        'of\n/"/; eval(1)//"',
        'x = of /"/; eval(1)//"',
        'for (of /"/; eval(1)//"\n;) ;',
        'for (x.of /"/; eval(1)//"\n;) ;',
        'for (let of /"/; eval(1)//"\n;) ;',
        'for (let i = of /"/; eval(1)//"\n;) ;',
    ],
)
def test_what_the_engine_may_read_otherwise_leaves_the_names_unknown(source):
    facts = facts_of(source)
    assert facts is None or facts["names"] is None or "eval" in facts["names"]


@each_row(
    "source",
    [
        "a / b / c",
        "(a + b) / 2",
        "a[0] / a.length / f()",
        "i++ / 2 + i-- / 2",
        "'a' / 2",
        "`a` / 2",
        "1 / 2 / 3.5 / 0x1f",
        "this.x /= 2",
        "x.replace(/a\\/[/'\"]b/g, '') / 2",
        "[/a/, /b/].map((x) => /c/.test(x))",
        "x = a ? /b/ : /c/",
        "if (x) /a/.test(x)",
        "while (x) /a/.test(x)",
        "for (const a of b) /a/.test(x)",
        "typeof /a/",
        "case_ = { a: /b/ }",
        "!/a/.test(b) && /c/.test(d)",
        "`${/a/.source / 2}`",
        "π / 2",
        "a.return / 2",
        "/* c */ /a/.test(b)",
        "a /* c */ / b // d / e",
        "(x as number) / (y as number)",
        "x! / 2",
        "`-->` + '<!--'",
        "f({ a: { b() {} } })",
        "const a = { get b() { return { c() {} } } }",
        "return { async a() {} }",
        "class A { b() {} c() {} }",
        "x => ({ a() {} })",
        "// -->\nx",
        "while (n --> 0) f(n)",
        "if (x) {}\n/a/.test(x)",
        "if (x) {} else if (y) {} /* c */ else { x = {} }\n/a/.test(x)",
        "for (const a of b) { f(a) }\n// c\n/a/.test(x)",
        "while (x) {} /a/.test(x)",
        "do {} while (x)\n/a/.test(x)",
        "try { f() } catch {}\n/a/.test(x)",
        "try { f() } finally {} /a/.test(x)",
        "switch (x) { case 1: }\n/a/.test(x)",
        "function f() {}\n/a/.test(x)",
        "const x = 1\nasync function f() {}\n/a/.test(x)",
        "class A { b() {} }\n/a/.test(x)",
        "x();\n{ f() }\n/a/.test(x)",
        "interface A {}\n/a/.test(x)",
        "let\n  a = 1,\n  b = 2;",
        "const get = a / b, set = get / 2, as = set / 2, async = as / 2",
        "x = { a: 1 } / 2",
        "f({ a: { b } } / 2 / 3)",
        "x = [{} / 2, a ? {} / 2 : 1, a && {} / 2, a || {} / 2]",
        "return { a } / b",
        "x = { a() {} } /* c */ / 2",
        "const x = { a: 1 }\n/ 2",
        "const x = { a: 1 } // c\n  / 2 + 1",
        "x = function () {} / 2",
        "x = async function* () {} / 2",
        "f(class A {} / 2)",
        "for (x of /re/) f(x)",
        "for (const x of /re/g.exec(y)) f(x)",
        "for (const [x, { y }] of /* c */ /[/]/[Symbol.split](z)) {}",
        "for await (x of\n/re/) {}",
        "for (of of /re/) {}",
    ],
)
def test_ordinary_slashes_and_arrows_leave_no_doubt(source):
    assert names(source) is not None


def test_places_are_offsets_of_the_first_uses():
    assert facts_of("const é = a; a = \\u0061")["names"] == {"é": [6], "a": [11, 14, 18]}
    assert len(facts_of("a;" * 500)["names"]["a"]) == 64


def test_too_many_names_are_unknown():
    assert names(";".join(f"a{index}" for index in range(5000))) is None
    assert names("a;" * 20_000) is None


def test_loops_of_every_kind_and_depth():
    source = "for (;;) { x = () => { for (a in b) do { for (a of b) ; } while (c) } }\nfor await (a of b) while (1) ;"
    loops = [(loop["kind"], loop["line"], loop["column"]) for loop in facts_of(source)["loops"]]
    assert loops == [
        ("for", 1, 1),
        ("for-in", 1, 24),
        ("do", 1, 37),
        ("for-of", 1, 42),
        ("for-await", 2, 1),
        ("while", 2, 20),
    ]
    assert facts_of("a.for; ({ while: 1, do() {} }); 'for'; while_; type T = { for: 1 }")["loops"] == []


def test_uses_of_modules():
    source = "import a from 'b'; export { a }; import('c'); import.meta.url; function f() { return new.target }"
    kinds = [use["kind"] for use in facts_of(source)["modules"]]
    assert kinds == ["import", "export", "import()", "import.meta"]
    assert facts_of('const x = y as import("z").Z')["modules"] == []


def test_the_other_facts_are_the_same():
    for source in ("tools.a({ n: 1 }); require('x')", "const tools = 1; tools.a()", "f(tools); function require() {}"):
        plain = _analyser(source, 60_000)["facts"]
        plain.pop("free", None)  # with names it is asked about `tools` too
        assert {key: value for key, value in facts_of(source).items() if key in plain} == plain


def named(source):
    return [(call["name"], call["caught"]) for call in facts_of(source)["named_calls"]]


@each_row(
    "source, caught",
    [
        ("await callTool('a')", False),
        ("return callTool('a', { b: 1 })", False),
        ("await callTool(`a`, {}); try { f() } catch {}", False),
        ("try { f() } catch {} return await /* c */ callTool('a')", False),
        ("await Promise.all([callTool('a')])", False),
        ("async function f() { await callTool('a') }", False),
        ("await callTool('a'); const company = 'Athens'; brace(company)", False),
        ("const x: any = await callTool('a')", False),
        ("try { await callTool('a') } finally { b() }", True),
        ("try { b() } catch { await callTool('a') }", True),
        ("try { (() => callTool('a'))() } catch {}", True),
        ("await callTool('a', {}, { throwOnError: false })", True),
        ("await callTool('a', {}, { throwOnError: true })", False),
        ("await callTool('a', {}, {})", False),
        ("await callTool('a', {}, null)", False),
        ("await callTool('a', {}, { throwOnError: !0 })", True),
        ("await callTool('a', {}, { throwOnError: true, ...b })", True),
        ("await callTool('a', {}, { throwOnError })", True),
        ("await callTool('a', {}, { throwOnError: true, throwOnError: false })", True),
        ("await callTool('a', {}, options)", True),
        ("await callTool('a', ...rest)", True),
        ("await callTool('a').catch(() => 1)", True),
        ("await callTool('a')\n  .catch(() => 1)", True),
        ("await callTool('a') /* c */ ['catch'](f)", True),
        ("await callTool('a').then(f, g)", True),
        ("const p = callTool('a'); await p.catch(f)", True),
        ("const p = callTool('a'); await p['c\\u0061tch'](f)", True),
        ("await Promise.allSettled([callTool('a')])", True),
        ("await Promise.any([callTool('a'), b])", True),
        ("await Promise.race([callTool('a'), b])", True),
        ("const f = async () => await callTool('a'); try { await f() } catch {}", True),
        ("const f = async () => await callTool('a'); f().catch(g)", True),
        ("class A { async b() { await callTool('a') } } new A().b().then(f, g)", True),
    ],
)
def test_whether_something_could_catch_a_call(source, caught):
    assert named(source) == [("a", caught)]


@each_row(
    "source",
    [
        "callTool(name)",
        "callTool('a' + b)",
        "callTool(`a${b}`)",
        "callTool('\\x61')",
        "callTool()",
        "callTool`a`",
        "tools.callTool('a')",
        "callTool('a'); function callTool() {}",
        "callTool('a'); const { callTool } = x",
        "((callTool) => callTool('a'))(x)",
        "callTool('a'); c\\u0061llTool = x",
        "'callTool(\"a\")'",
    ],
)
def test_calls_by_name_that_are_not_certain(source):
    assert named(source) == []


def test_definitions_asked_for_by_name():
    assert facts_of("getTool('a'); getTool(`b`); getTool('a'); getTool(c)")["definitions"] == ["a", "b"]


PROGRAMS = (
    "return 1",
    "const a: number = await callTool('a', { n: 1 } as any) /* x */; for (const b of c) getTool('d')",
    "enum A { B }",
    "import x from 'y'; require('z'); import('w'); with (tools) {}",
    "try { await callTool('a') } catch {} function f() { callTool(x) } await tools.a({ n: [1] })",
    "return (",
    "f<T>(x); a / b /c/ d; <!-- e",
    "x = { get a() { return /r/ } }; while (1) do {} while (eval)",
)


@given(st.lists(st.tuples(st.sampled_from(PROGRAMS), st.booleans(), st.booleans()), min_size=2))
def test_nothing_of_one_program_is_in_what_is_known_of_the_next(programs):
    analyser = analyse.load_analyser(_SITE_PATHS)
    for source, wants_names, is_rehearsal in programs:
        fresh = analyse.load_analyser(_SITE_PATHS)
        assert analyser(source, 60_000, wants_names, is_rehearsal) == fresh(source, 60_000, wants_names)
