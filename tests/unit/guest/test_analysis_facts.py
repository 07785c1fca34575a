"""What a program certainly does, from its syntax tree."""

import json
import sysconfig

from hypothesis import given, settings
from hypothesis import strategies as st
from suite import each_row, rounds

from codemode.guest.analysis import analyse, facts

SITE_PATHS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
_analyser = analyse.load_analyser(SITE_PATHS)


UNKNOWN = {"type": "unknown"}


def known_object(keys, *, is_open=False):
    return {"type": "object", "keys": keys, "open": is_open}


def facts_of(source):
    return _analyser(source, 60_000)["facts"]


def names(source):
    return [call["name"] for call in facts_of(source)["calls"]]


def input_of(argument):
    return facts_of(f"tools.t({argument})")["calls"][0]["input"]


@each_row(
    "source, name",
    [
        ("await tools.a({})", "a"),
        ('tools["a-b"]({})', "a-b"),
        ("tools['a b']({})", "a b"),
        ("tools[`a`]({})", "a"),
        ("tools.a.b({})", "a.b"),
        ('tools.a["b"].c({})', "a.b.c"),
        ("(tools.a)({})", "a"),
        ("tools.a!({})", "a"),
        ("tools.a<{ x: 1 }>({})", "a"),
        ("(tools.a as any)({})", "a"),
        ("await tools\n  .a({})", "a"),
        ("xs.map(async (x) => tools.a({ x }))", "a"),
        ("class B { async c() { return tools.a({}); } }", "a"),
        ("tools.größe({})", "größe"),
    ],
)
def test_literal_calls(source, name):
    assert names(source) == [name]


@each_row(
    "source",
    [
        "tools[name]({})",
        "tools[`a${b}`]({})",
        "tools['\\x61']({})",
        "tools.\\u0061({})",
        "tools.a?.({})",
        "tools?.a({})",
        "tools.#a({})",
        "other.tools.a({})",
        "tools.a",
        "tools.a().b()['c']",
        "// tools.a({})",
        "'tools.a({})'",
        "/tools.a({})/",
        "tools" + ".a" * 20 + "({})",
        "tools." + "a" * 300 + "({})",
    ],
)
def test_what_is_no_certain_call(source):
    assert names(source) in ([], ["a"] if ".b()" in source else [])


@each_row(
    "source",
    [
        "const tools = {};",
        "let { tools } = x;",
        "let { a: tools } = x;",
        "const [tools] = x;",
        "function f(tools) {}",
        "function f({ tools }) {}",
        "function f(...tools) {}",
        "function tools() {}",
        "class tools {}",
        "const f = (tools) => 1;",
        "const f = tools => 1;",
        "const f = function tools() {};",
        "try {} catch (tools) {}",
        "for (const tools of x) {}",
        "for (tools in x) {}",
        "tools = x;",
        "[tools] = x;",
        "({ tools } = x);",
        "tools += x;",
        "tools++;",
        "with (x) {}",
        "const t = tools;",
        "f(tools);",
    ],
)
def test_another_meaning_of_tools_leaves_no_calls(source):
    found = facts_of(f"{source}\ntools.a({{}});")
    assert found["shadowed"] is True
    assert found["calls"] == []


@each_row(
    "source",
    [
        "return Object.keys(tools)",
        "Object.entries( tools ).map(([name, call]) => name)",
        "for (const name in tools) {}",
        "if ('a' in tools && 'b' in tools) {}",
        "Reflect.has(tools, 'a')",
        "return `${'a' in tools}`",
    ],
)
def test_reading_which_tools_there_are_is_a_fact_and_shadows_nothing(source):
    found = facts_of(f"{source}\ntools.a({{}});")
    assert (found["lists"], found["shadowed"], len(found["calls"])) == (True, False, 1)
    assert "lists" not in facts_of("tools.a({ x: 'Object.keys(tools)' })")


@each_row(
    "source",
    [
        "Object.keys(tools = x)",
        "// what is in\ntools = x",
        "/* in */ tools = x",
        "// Object.keys(\ntools = x",
        "x.Object.keys(tools = y)",
        "x.within tools",
        "begin tools",
        "Object.assign(tools, x)",
        "for (const a of [1]) in_(tools)",
        "Object.keys((tools))",
    ],
)
def test_what_only_looks_like_it_is_no_such_fact(source):
    found = facts_of(f"{source}\ntools.a({{}});")
    assert found is None or (found["shadowed"] is True and found["calls"] == [])


@each_row("source", ["tools.a = 1;", "typeof tools.a;", "const { b } = tools.a;", "x = { tools: 1 };", "x.tools;"])
def test_reading_members_shadows_nothing(source):
    assert facts_of(source)["shadowed"] is False


@each_row(
    "argument, known",
    [
        ("", None),
        ("1", {"type": "number", "value": 1}),
        ("-1.5", {"type": "number", "value": -1.5}),
        ("0x10", {"type": "number"}),
        ("1e400", {"type": "unknown"}),
        ("1n", {"type": "unknown"}),
        ("1e300", {"type": "number", "value": 1e300}),
        ("9007199254740993", {"type": "number", "value": 9007199254740992.0, "written": "9007199254740993"}),
        ("-9007199254740993", {"type": "number", "value": -9007199254740992.0, "written": "-9007199254740993"}),
        ("9007199254740994", {"type": "number", "value": 9007199254740994.0}),
        ("1e18", {"type": "number", "value": 1e18}),
        ("'a'", {"type": "string", "value": "a"}),
        ("''", {"type": "string", "value": ""}),
        ("'\\n'", {"type": "string"}),
        ("`a`", {"type": "string", "value": "a"}),
        ("`a${b}`", {"type": "string"}),
        ("'" + "a" * 400 + "'", {"type": "string"}),
        ("true", {"type": "boolean"}),
        ("null", {"type": "null"}),
        ("undefined", {"type": "undefined"}),
        ("[1, x]", {"type": "array", "items": [{"type": "number", "value": 1}, UNKNOWN]}),
        ("[1, ...x]", {"type": "array"}),
        ("x", {"type": "unknown"}),
        ("...x", {"type": "unknown"}),
        ("a ? {} : 1", {"type": "unknown"}),
        ("/* c */ (({} as T)!)", known_object({})),
        (
            "{ a: 1, 'b c': 'x' }",
            known_object({"a": {"type": "number", "value": 1}, "b c": {"type": "string", "value": "x"}}),
        ),
        ("{ a }", known_object({"a": UNKNOWN})),
        ("{ a() {}, get b() { return 1; } }", known_object({"a": UNKNOWN, "b": UNKNOWN})),
        ("{ ...x }", known_object({}, is_open=True)),
        ("{ [x]: 1 }", known_object({}, is_open=True)),
        ("{ 1: 1 }", known_object({}, is_open=True)),
        ("{ __proto__: x }", known_object({}, is_open=True)),
        ("{ toJSON() { return 1; } }", UNKNOWN),
        ("{ a: { b: [] } }", known_object({"a": known_object({"b": {"type": "array"}})})),
    ],
)
def test_literal_input(argument, known):
    assert input_of(argument) == known


@each_row(
    "source, kinds",
    [
        ("import x from 'y';", ["import"]),
        ("import type { X } from 'y';", ["import"]),
        ("import 'y';", ["import"]),
        ("export const x = 1;", ["export"]),
        ("export type X = 1;", ["export"]),
        ("export { x };", ["export"]),
        ("export default 1;", ["export"]),
        ("await import('x');", ["import()"]),
        ("const x = require('x');", ["require()"]),
        ("function require() {}\nrequire('x');", []),
        ("const require = tools.a; require('x');", []),
        ("x.require('y'); x.import('y'); x = { import: 1, export: 2 };", []),
        ("// import x from 'y'\n'import(1)';", []),
        ("return import.meta", ["import.meta"]),
        ("`a ${`${import . meta.url}`}`", ["import.meta"]),
        ("import.meta.env; import/* x */.meta", ["import.meta", "import.meta"]),
        ("'import.meta'; `import.meta`; /import.meta/; x.import.meta; importMeta; new.target", []),
    ],
)
def test_module_uses(source, kinds):
    assert [use["kind"] for use in facts_of(source)["modules"]] == kinds


def test_places_count_lines_and_utf16_units():
    found = facts_of("/* é😀 */ tools.a();\r\n\n  tools.b(tools.c());\n  require('x')")
    places = {call["name"]: (call["line"], call["column"]) for call in found["calls"]}
    assert places == {"a": (1, 11), "b": (3, 3), "c": (3, 11)}
    assert found["modules"] == [{"kind": "require()", "line": 4, "column": 3}]


def test_facts_are_bounded():
    many = facts_of("tools.a({ b: { c: 'x' } });\n" * 5000 + "import('x');\n" * 500)
    assert len(many["calls"]) == facts.MAX_CALLS
    assert len(many["modules"]) == facts.MAX_MODULE_USES
    wide = input_of("{" + ",".join(f"k{index}: 1" for index in range(5000)) + "}")
    assert len(wide["keys"]) == facts.MAX_KEYS
    assert wide["open"] is True
    keys = ",".join(f"k{index}: '{'x' * 200}'" for index in range(64))
    heavy = facts_of(f"tools.a({{{keys}}});" * 600)
    assert len(json.dumps(heavy)) < 2_000_000
    deep = input_of("{a:" * 50 + "1" + "}" * 50)
    assert json.dumps(deep).count("keys") <= facts.MAX_LITERAL_DEPTH + 1


@settings(max_examples=rounds(15, 60), deadline=None)
@given(
    st.dictionaries(
        st.text(st.sampled_from("abc_"), min_size=1),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text("xyz"),
            lambda inner: st.lists(inner) | st.dictionaries(st.text("ab", min_size=1), inner),
            max_leaves=8,
        ),
    )
)
def test_json_is_known_exactly(value):
    known = input_of(json.dumps(value))
    assert set(known["keys"]) == set(value)
    assert known["open"] is False
    kinds = {type(None): "null", bool: "boolean", int: "number", str: "string", list: "array", dict: "object"}
    for key, item in value.items():
        assert known["keys"][key]["type"] == kinds[type(item)]
        if isinstance(item, str) or type(item) is int:
            assert known["keys"][key]["value"] == item
