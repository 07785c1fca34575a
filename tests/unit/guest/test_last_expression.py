"""Where the expression stands that is a program's last statement."""

from __future__ import annotations

import sysconfig

from codemode.guest.analysis import analyse

_analyser = analyse.load_analyser(sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))


def kept(source: str, face: int = analyse.FUNCTION_BODY) -> str | None:
    result = _analyser(source, 60_000, face)
    last = result["facts"].get("last")
    if last is None:
        return None
    data = result["js"].encode("utf-16-le")
    return data[2 * last[0] : 2 * last[1]].decode("utf-16-le")


def test_the_last_statement_is_found():
    table = [
        ("a.b;", "a.b"),
        ("const a = 1;\nawait f(a) // done\n// really", "await f(a)"),
        ("a, b;;", "a, b"),
        ("const é = '😀'; é + 1", "é + 1"),
        ("let n = 1 as number; n as any;", "n       "),
        ("f();\n[1, 2].map(g)", "[1, 2].map(g)"),
        ("function f() {}\n(f)", "(f)"),
        ("a = b", "a = b"),
    ]
    for source, expected in table:
        for face in (analyse.FUNCTION_BODY, analyse.FUNCTION_BODY_WITH_NAMES):
            assert kept(source, face) == expected, source


def test_other_last_statements_have_none():
    for source in (
        "",
        "// nothing",
        "return a",
        "const a = 1",
        "if (a) { b }",
        "class A { f(a) { return a } }",
        "{ a }",
        "try { a } catch {}",
        "a: b",
        "throw a",
    ):
        assert kept(source) is None, source


def test_a_function_that_nothing_calls_is_reported_by_its_name():
    for source in ("function f(a) { return a }", "const f = (a, b) => a + b;\nf"):
        facts = _analyser(source, 60_000)["facts"]
        assert (facts["ends"], facts["last_name"], facts["last"]) == ("report", "f", [len(source)] * 2), source


def test_what_might_be_read_with_the_line_before_is_left_alone():
    for source in ("const a = b\n`c`", "interface A {}\n(a)", "a = {}\n!b"):
        assert kept(source) is None, source


def test_a_module_that_gives_a_result_keeps_no_other_value():
    def last_of(source: str) -> object:
        return _analyser(source, 60_000, analyse.MODULE)["facts"]["module"].get("last")

    assert last_of("import { a } from 'm';\na()") == [23, len("$last.value=(")]
    assert last_of("globalThis.__codemode_result__ = 1; 2") is None
    assert last_of("const $last = 1; $last")[1] > len("$last.value=(")  # another name
    assert last_of("export const a = 1") is None
