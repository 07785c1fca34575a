"""A result that is cut to what its surface allows, on a worker with the real kernel and no host."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_driver import KernelDriver, Said
from suite import each_row, rounds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")


@pytest.fixture
def cut(kernel: KernelDriver) -> Any:
    def run(js: str, depth: int = 50, properties: int = 2000, **config: Any) -> Said:
        return kernel.run(js, globals=["callTool"], result={"depth": depth, "properties": properties}, **config)

    return run


PLAIN = [
    "{ a: [1, 'x', null, true, { b: {} }] }",
    "[undefined, () => 1, Symbol('a'), NaN, Infinity, -0]",
    "{ a: undefined, b: () => 1, c: Symbol('a'), d: 1 }",
    "new Date(0)",
    "[new Date(NaN), new Map(), new Set(), /a/, new Uint8Array([1, 2])]",
    "[2n ** 70n, Object(2n ** 60n), Object(1), Object('x'), Object(false)]",
    "{ toJSON(key) { return [key, typeof this] } }",
    "{ x: { toJSON(key) { return key } }, y: [{ toJSON(key) { return key } }] }",
    "Object.assign(() => 1, { toJSON() { return 'told' } })",
    "[, 1, ,]",
    "'text'",
    "0.1 + 0.2",
    'JSON.parse(\'{"__proto__": {"a": 1}, "toJSON": 1}\')',
    "Object.create({ inherited: 1 }, { hidden: { value: 1 }, shown: { value: 2, enumerable: true } })",
    "new Proxy({ a: 1 }, {})",
    "new Proxy([1, 2], {})",
    "[shared, shared, { shared }]",
    "[[shared], [[shared]]]",
    "Object.assign(Object.create({ toJSON: 5 }), { 2: 'b', 1: 'a', z: 0 })",
    "class A { #p = 1; q = 2; get r() { return 3 } }; new A()",
]


@each_row("expression", [one for one in PLAIN if not one.startswith("class")])
def test_what_needs_no_cutting_is_as_json_has_it(kernel, cut, expression):
    js = f"const shared = {{ s: [1] }}; return {expression}"
    said, plain = cut(js), kernel.run(js, globals=["callTool"])
    assert said.body == plain.body
    # The same where another member needs cutting, so that the copy is what becomes JSON.
    beside = cut(f"const shared = {{ s: [1] }}; return [{expression}, new Set([1])]").value
    wanted = kernel.run(f"const shared = {{ s: [1] }}; return [{expression}, {{}}]", globals=["callTool"]).value
    assert beside == wanted


def test_undefined_is_told_of(cut):
    for js in ("return", "", "return undefined"):
        assert cut(js).body == {"value": None, "undefined": True, "unobserved": []}


@pytest.mark.parametrize(
    "value", ["() => 1", "Symbol('a')", "callTool", "class {}", "{ toJSON() { return undefined } }"]
)
def test_what_is_no_value_is_an_error_of_the_result(cut, value):
    error = cut(f"const value = {value}; return value").error
    assert (error["name"], error["origin"]) == ("TypeError", "result")


@pytest.mark.parametrize(
    ("js", "value", "warnings"),
    [
        ("return [[[1]]]", [["[cut: too deep]"]], ["result[0][0]: cut, deeper than 2 levels"]),
        ("return { a: { b: {} } }", {"a": {"b": "[cut: too deep]"}}, ["result.a.b: cut, deeper than 2 levels"]),
        (
            "return { a: { b: 1, 'c d': [] } }",
            {"a": {"b": 1, "c d": "[cut: too deep]"}},
            ['result.a["c d"]: cut, deeper than 2 levels'],
        ),
        ("return [[], {}]", [[], {}], None),
        ("return [1, [2, 3], new Map()]", [1, [2, 3], {}], None),
    ],
)
def test_what_is_too_deep_is_cut(cut, js, value, warnings):
    said = cut(js, depth=2)
    assert (said.value, said.body.get("warnings")) == (value, warnings)


@pytest.mark.parametrize(
    ("js", "value", "warnings"),
    [
        ("return [1, 2, 3]", [1, 2, 3], None),
        ("return [1, 2, 3, 4, 5]", [1, 2, 3], ["result: 2 of 5 items left out, over 3 members in all"]),
        (
            "return { a: 1, b: 2, c: 3, d: 4 }",
            {"a": 1, "b": 2, "c": 3},
            ["result: 1 of 4 properties left out, over 3 members in all"],
        ),
        (
            "return { rows: [1, 2, 3], n: 1 }",
            {"rows": [1, 2]},
            [
                "result.rows: 1 of 3 items left out, over 3 members in all",
                "result: 1 of 2 properties left out, over 3 members in all",
            ],
        ),
        (
            "const a = []; a.length = 4294967295; return a",
            [None] * 3,
            ["result: 4294967292 of 4294967295 items left out, over 3 members in all"],
        ),
        ("return [[], [], []]", [[], [], []], None),
    ],
)
def test_what_is_too_much_is_left_out(cut, js, value, warnings):
    said = cut(js, properties=3)
    assert (said.value, said.body.get("warnings")) == (value, warnings)


@pytest.mark.parametrize(
    ("js", "value", "place"),
    [
        ("const ring = {}; ring.self = ring; return ring", {"self": "[Circular]"}, "result.self"),
        ("const a = [1]; a.push(a); return { a }", {"a": [1, "[Circular]"]}, "result.a[1]"),
        ("const a = {}, b = { a }; a.b = b; return [a]", [{"b": {"a": "[Circular]"}}], "result[0].b.a"),
        ("const a = {}; const b = { toJSON() { return a } }; a.b = b; return a", {"b": "[Circular]"}, "result.b"),
    ],
)
def test_a_cycle_becomes_text(cut, js, value, place):
    said = cut(js)
    assert (said.value, said.body["warnings"]) == (value, [f"{place}: a cycle, shown as [Circular]"])


ERRORS = {
    "new TypeError('no')": {"name": "TypeError", "message": "no"},
    "new Error()": {"name": "Error", "message": ""},
    "Object.assign(new Error('a'), { name: 'Mine', at: [1] })": {"name": "Mine", "message": "a", "at": [1]},
    "Object.defineProperty(new Error('a'), 'message', { get() { throw 1 } })": {"name": "Error", "message": ""},
    "Object.assign(new Error('a'), { message: Symbol('s') })": {"name": "Error", "message": "Symbol()"},
    "new AggregateError([1], 'many')": {"name": "AggregateError", "message": "many", "errors": [1]},
}


def test_an_error_is_its_fields_without_a_warning_whether_or_not_something_is_cut(cut):
    for error, fields in ERRORS.items():
        said = cut(f"return {{ at: [{error}] }}")
        assert (said.value, said.body.get("warnings")) == ({"at": [fields]}, None), error
        said = cut(f"return [{error}, new Set([1])]")
        assert (said.value, said.body["warnings"]) == ([fields, {}], [f"result[1]: {A_SET}"]), error


def test_an_error_counts_and_is_cut_like_an_object(cut):
    said = cut("const e = new Error('a'); e.cause = e; return [e]")
    assert said.value == [{"name": "Error", "message": "a", "cause": "[Circular]"}]
    said = cut("return new Error('a', { cause: new Error('b') })", depth=1)
    assert said.value == {"name": "Error", "message": "a", "cause": "[cut: too deep]"}
    assert cut("return new Error('a', { cause: 1 })", properties=2).value == {"name": "Error", "message": "a"}


def test_what_an_error_says_of_itself_as_json_is_taken(cut):
    said = cut("return Object.assign(new Error('a'), { toJSON() { return { told: 1 } } })")
    assert (said.value, "warnings" in said.body) == ({"told": 1}, False)


A_MAP = "a Map, without its entries: return [...map] or Object.fromEntries(map)"
A_SET = "a Set, without its values: return [...set]"
A_PROMISE = "a Promise, without its value: await it, or Promise.all of several"
AN_ITERATOR = "an iterator, without its items: return [...iterator]"


@each_row(
    "value, warning",
    [
        ("new Map([[1, 2]])", A_MAP),
        ("new (class extends Map {})([[1, 2]])", A_MAP),
        ("Map.groupBy([1, 2], (n) => n % 2)", A_MAP),
        ("Object.setPrototypeOf(new Map([[1, 2]]), Object.create(Map.prototype, { size: { value: 0 } }))", A_MAP),
        ("new Set([1])", A_SET),
        ("new Set([1]).union(new Set([2]))", A_SET),
        ("(async () => 1)()", A_PROMISE),
        ("Promise.resolve(1)", A_PROMISE),
        ("[1].values()", AN_ITERATOR),
        ("[1].values().map((n) => n)", AN_ITERATOR),
        ("new Map([[1, 2]]).keys()", AN_ITERATOR),
        ("(function* () { yield 1 })()", AN_ITERATOR),
        ("'a'.matchAll(/a/g)", AN_ITERATOR),
    ],
)
def test_what_json_does_not_see_is_told_of(cut, value, warning):
    said = cut(f"return {{ at: [0, {value}] }}")
    assert (said.value, said.body["warnings"]) == ({"at": [0, {}]}, [f"result.at[1]: {warning}"])
    # Beside what is cut, at the edge of what is allowed, and where it is all that is returned.
    beside = cut(f"return [new Set([1]), {value}]")
    assert beside.value == [{}, {}]
    assert beside.body["warnings"][1:] == [f"result[1]: {warning}"]
    if warning != A_PROMISE:
        alone = cut(f"return {value}", depth=1, properties=1)
        assert (alone.value, alone.body["warnings"]) == ({}, [f"result: {warning}"])


def test_what_stands_on_it_beside_its_contents_is_kept(cut):
    said = cut("return Object.assign(new Map([[1, 2]]), { a: [1] })")
    assert (said.value, said.body["warnings"]) == ({"a": [1]}, [f"result: {A_MAP}"])
    said = cut("return Array.from({ length: 40 }, () => new Set([1]))")
    assert (said.value, len(said.body["warnings"])) == ([{}] * 40, 32)


@pytest.mark.parametrize(
    "value",
    [
        "new Map()",
        "new Set()",
        "Object.create(Map.prototype)",
        "Object.create(Set.prototype)",
        "Object.assign(new Map([[1, 2]]), { toJSON() { return {} } })",
        "new (class { #held = new Map([[1, 2]]) })()",
        "Object.create({})",
    ],
)
def test_of_what_holds_nothing_or_tells_it_itself_nothing_is_told(cut, value):
    assert cut(f"return {value}").body == {"value": "{}", "unobserved": []}


def test_warnings_are_few_and_short(cut):
    row = "{ ['k'.repeat(300) + i]: { ['\u00fc'.repeat(300)]: new Set([1]) } }"
    js = f"return Array.from({{ length: 100 }}, (_, i) => ({row}))"
    warnings = cut(js).body["warnings"]
    assert (len(warnings), warnings[-1]) == (32, "and 69 more")
    assert max(len(warning) for warning in warnings) <= 200
    js = "const a = new Proxy([], { get: (_, k) => (k === 'length' ? 2 ** 53 - 1 : undefined) }); return {key}"
    key = "{ " + "x" * 39 + ": { " + "y" * 39 + ": { " + "z" * 39 + ": a } } }"
    (warning, *_) = cut(js.replace("{key}", key), properties=20_000).body["warnings"]
    assert len(warning) <= 200
    assert "9007199254740991 items left out" in warning
    js = "let deep = new Set([1]); for (let i = 0; i < 45; i++) deep = { ['key' + i]: deep }; return deep"
    (warning,) = cut(js).body["warnings"]
    assert len(warning) <= 200
    assert warning.startswith("result.key44.key43.")
    assert warning.endswith(f".key1.key0: {A_SET}")


@pytest.mark.parametrize("shape", ["{ next: list }", "[list]", "{ get next() { return prior } }"])
def test_a_very_long_chain_is_cut(cut, shape):
    js = f"let list = null; for (let i = 0; i < 100000; i++) {{ const prior = list; list = {shape} }} return list"
    text = cut(js, depth=100).body["value"]
    assert (text.count("{") + text.count("["), "[cut: too deep]" in text) == (101, True)


ENDLESS_PROXY = """
const shown = { value: 1, enumerable: true, configurable: true };
const traps = { ownKeys: () => ['a', 'b'], getOwnPropertyDescriptor: () => shown };
const endless = () => new Proxy({}, { ...traps, get: (_, key) => (key === 'toJSON' ? undefined : endless()) });
return endless();
"""


@each_row(
    "js, bound",
    [
        ("const endless = () => ({ get next() { return endless() } }); return endless()", 50),
        ("const endless = () => ({ toJSON() { return { next: endless() } } }); return endless()", 50),
        (ENDLESS_PROXY, 2000),
        ("return new Proxy([], { get: (t, k) => k === 'length' ? 2 ** 40 : k === 'toJSON' ? undefined : 7 })", 2000),
        ("return new Proxy([], { get: (t, k) => k === 'length' ? 'many' : undefined })", 0),
        ("return Array.from({ length: 3000 }, () => ({ a: 1 }))", 2000),
        ("const o = {}; for (let i = 0; i < 100000; i++) o['k' + i] = i; return o", 2000),
        ("return new Uint8Array(1000000)", 2000),
        ("let n = 0; const a = [{ get x() { n++; return n } }, new Set([1])]; return [a, a]", 2000),
    ],
)
def test_hostile_values_are_bounded(cut, js, bound):
    said = cut(js)
    assert said.kind == "V"
    assert len(said.body["value"]) < 64_000
    assert json.loads(said.body["value"]) is not None
    assert bound == 0 or said.body["warnings"]


@pytest.mark.parametrize(
    ("js", "name"),
    [
        ("return { get x() { throw new EvalError('mine') } }", "EvalError"),
        ("return { toJSON() { throw new EvalError('mine') } }", "EvalError"),
        ("return new Proxy({}, { ownKeys() { throw new EvalError('mine') } })", "EvalError"),
        ("const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return [proxy]", "TypeError"),
        ("const f = () => ({ toJSON: f, x: f() }); return { get x() { return f() } }", "RangeError"),
        ("return 10n ** 1001n", "RangeError"),
        ("return [10n ** 1001n, new Set([1])]", "RangeError"),
    ],
)
def test_what_a_result_throws_ends_the_program(cut, js, name):
    error = cut(js).error
    assert (error["name"], error["origin"]) == (name, "result")


def test_the_size_limit_holds_as_for_every_result(cut):
    assert cut("return 'x'.repeat(200)", max_result_bytes=100).body["bytes"] == 202
    cut_and_long = cut("return ['x'.repeat(200), new Set([1])]", max_result_bytes=100).body
    assert cut_and_long["bytes"] == 207
    assert cut_and_long["warnings"] == [f"result[1]: {A_SET}"]


# --- against a second reading ---

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=40,
)


def cut_by_hand(value: Any, depth: int, properties: int) -> Any:
    left = properties

    def copy(one: Any, level: int) -> Any:
        nonlocal left
        if not isinstance(one, list | dict):
            return one
        if level >= depth:
            return "[cut: too deep]"
        made: list[tuple[Any, Any]] = []
        for key, item in one.items() if isinstance(one, dict) else enumerate(one):
            if left == 0:
                break
            left -= 1
            made.append((key, copy(item, level + 1)))
        return dict(made) if isinstance(one, dict) else [item for _, item in made]

    return copy(value, 0)


def integer_like(value: Any) -> bool:
    """JavaScript puts such keys in front, so that another member would be the last."""
    if isinstance(value, dict):
        return any(key.isdigit() or integer_like(item) for key, item in value.items())
    return isinstance(value, list) and any(integer_like(item) for item in value)


@settings(max_examples=rounds(20, 60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=VALUES.filter(lambda value: not integer_like(value)), depth=st.integers(1, 4), properties=st.integers(1, 12)
)
def test_cutting_equals_a_second_reading(kernel, value, depth, properties):
    js = f"return JSON.parse({json.dumps(json.dumps(value))})"
    said = kernel.run(js, result={"depth": depth, "properties": properties})
    wanted = cut_by_hand(value, depth, properties)
    assert said.value == wanted
    assert ("warnings" in said.body) == (wanted != value)
