"""What a module imports, on a worker with the real kernel and no host: namespaces, and `import()`."""

from __future__ import annotations

import json
import sys

import pytest
from module_pieces import ALL, GH, GITHUB, GIVEN, RESULT, server
from suite import each_row

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")


# --- namespaces ---


@pytest.mark.parametrize("name", ["gh", "discovery", "errors"])
def test_namespaces_are_as_the_language_says(kernel, name):
    js = f"""
    const ns = {name}, keys = Object.keys(ns);
    const refused = (change) => {{
      try {{ change() }} catch (error) {{ return error instanceof TypeError }}
      return false;
    }};
    const all = keys.map((key) => Object.getOwnPropertyDescriptor(ns, key));
    {RESULT}{{
      sorted: keys.join() === [...keys].sort().join() && keys.length > 2,
      descriptors: all.every((one) => one.writable && one.enumerable && !one.configurable),
      tag: [Object.prototype.toString.call(ns), Object.getOwnPropertyDescriptor(ns, Symbol.toStringTag)],
      prototype: [Object.getPrototypeOf(ns), Reflect.setPrototypeOf(ns, null), Reflect.setPrototypeOf(ns, {{}})],
      levels: [Object.isExtensible(ns), Object.isSealed(ns), Object.isFrozen(ns), Reflect.preventExtensions(ns)],
      absent: [typeof ns.nope, 'nope' in ns, typeof ns.toString, typeof ns.then, typeof ns.__proto__, ns.constructor],
      refused: [() => {{ ns[keys[0]] = 1 }}, () => {{ ns.nope = 1 }}, () => {{ delete ns[keys[0]] }}, () => String(ns),
        () => Object.freeze(ns), () => Object.defineProperty(ns, 'nope', {{ value: 1 }}),
          () => Object.setPrototypeOf(ns, []),
        () => Object.defineProperty(ns, keys[0], {{ value: 1 }}), () => Object.defineProperty(ns, keys[0],
          {{ get() {{}} }}),
        () => Object.defineProperty(ns, keys[0], {{ writable: false }}), () => {{ ns[Symbol.toStringTag] = 'x' }},
        () => Object.defineProperty(ns, keys[0], {{ configurable: true }}), () => Object.assign(ns, {{ [keys[0]]: 1 }}),
      ].map(refused),
      reflect: [Reflect.set(ns, keys[0], 1), Reflect.deleteProperty(ns, keys[0]), Reflect.deleteProperty(ns, 'nope'),
        Reflect.defineProperty(ns, keys[0], {{ enumerable: true, configurable: false }}),
        Reflect.defineProperty(ns, keys[0], {{}}), Reflect.set(ns, 'x', 1, {{}})],
      members: keys.every((key) => Object.isFrozen(ns[key])),
    }};
    """
    said = kernel.module(js, imports=ALL, given=GIVEN).value
    tag = {"value": "Module", "writable": False, "enumerable": False, "configurable": False}
    assert [said["sorted"], said["descriptors"], said["members"]] == [True] * 3
    assert said["tag"] == ["[object Module]", tag]
    assert said["prototype"] == [None, True, False]
    assert said["levels"] == [False, True, False, True]
    assert said["absent"] == ["undefined", False, "undefined", "undefined", "undefined", None]
    assert said["refused"] == [True] * 13
    assert said["reflect"] == [False, False, True, True, True, False]


def test_what_a_server_exports(kernel):
    js = RESULT + "{ keys: Object.keys(gh), names: [gh.get_user.name, gh.a_b_c.name], meta: gh.__meta__ }"
    said = kernel.module(js, imports=ALL, given=GIVEN).value
    assert said["keys"] == ["__meta__", "a_b_c", "get_user", "then_"]
    assert said["names"] == ["get_user", "a_b_c"]
    assert said["meta"] == GITHUB


@each_row("first",
    [
        "gh.then_", "gh.nope", "gh.__meta__", "gh.toString", "gh[Symbol.iterator]",
        "Object.keys(gh)", "'get_user' in gh",
        "delete gh.nope", "Reflect.deleteProperty(gh, 'get_user')", "Reflect.setPrototypeOf(gh, {})",
        "Object.preventExtensions(gh)", "Object.isExtensible(gh)", "Reflect.set(gh, 'get_user', 1)",
        "Reflect.defineProperty(gh, 'new', { value: 1 })", "Reflect.defineProperty(gh, 'get_user', { value: 1 })",
        "Object.getOwnPropertyDescriptor(gh, 'a_b_c')", "JSON.stringify(gh)", "({ ...gh })",
        "Object.getPrototypeOf(gh)",
        "Object.setPrototypeOf({}, gh).get_user", "Reflect.set(Object.create(gh), 'get_user', 1)", "await gh",
    ],
)  # fmt: skip
def test_a_namespace_is_the_same_whatever_is_looked_at_first(kernel, first):
    js = f"""
    {first};
    const known = gh.get_user, all = Reflect.ownKeys(gh).map(String), entries = Object.entries(gh);
    {RESULT}[all, gh.get_user === known, entries.every(([key, value]) => gh[key] === value), Object.isSealed(gh),
      Object.getPrototypeOf(gh), typeof gh.nope, await gh.get_user(1)];
    """
    keys = ["__meta__", "a_b_c", "get_user", "then_", "Symbol(Symbol.toStringTag)"]
    assert kernel.module(js, imports=ALL, given=GIVEN).value == [keys, True, True, True, None, "undefined", 1]


def test_meta_is_frozen_through_and_through(kernel):
    js = """
    const frozen = (value) =>
      typeof value !== 'object' || (Object.isFrozen(value) && Object.values(value).every(frozen));
    globalThis.__codemode_result__ = [frozen(gh.__meta__), frozen(none.__meta__), 'serverVersion' in none.__meta__];
    """
    imports = [*ALL, ("@codemode/servers/empty", "none")]
    assert kernel.module(js, imports=imports, given=GIVEN).value == [True, True, False]


def test_one_module_is_one_namespace_however_it_is_imported(kernel):
    js = RESULT + f"[a === b, c === a.get_user, await load('{GH}') === a, (await load('@codemode/errors')) === e]"
    imports = [(GH, "a"), (GH, "b"), (GH, '{"get_user":c}'), ("@codemode/errors", "e")]
    assert kernel.module(js, imports=imports, given=GIVEN).value == [True] * 4


def test_what_the_imports_are_taken_from_can_be_read_by_nobody(kernel):
    js = """
    const found = Reflect.ownKeys(globalThis).filter((key) => String(key).startsWith('$'));
    globalThis.__codemode_result__ = [found, typeof globalThis['$code' + 'mode'], '$codemode' in globalThis];
    """
    assert kernel.module(js, imports=ALL, given=GIVEN).value == [[], "undefined", False]


def test_an_export_that_is_not_there_is_undefined(kernel):
    said = kernel.module(RESULT + "[typeof a, typeof b]", imports=[(GH, '{"nope":a,"toString":b}')], given=GIVEN)
    assert said.value == ["undefined"] * 2


@pytest.mark.parametrize(
    "name", ["__proto__", "constructor", "toString", "hasOwnProperty", "length", "name", "default"]
)
def test_a_tool_may_have_a_name_that_the_language_has(kernel, name):
    odd = {**GITHUB, "tools": [{"toolName": name, "exportName": name}]}
    js = f"""
    const f = gh[{json.dumps(name)}];
    const shape = [Object.getPrototypeOf(gh), Reflect.ownKeys(gh).length];
    {RESULT}[await f(1), f.name, same === f, ...shape, gh.__meta__.tools[0]];
    """
    said = kernel.module(js, imports=[(GH, "gh"), (GH, f'{{"{name}":same}}')], given={"github": odd})
    assert said.value == [1, name, True, None, 3, {"toolName": name, "exportName": name}]
    assert said.of_kind("C")[0]["name"] == f"github.{name}"


# --- import() ---


def test_a_server_that_was_given_needs_no_question(kernel):
    said = kernel.module(RESULT + f"await (await load('{GH}')).get_user(7)", imports=ALL, given=GIVEN)
    assert (said.value, [call["kind"] for call in said.of_kind("C")]) == (7, ["tool"])


def test_another_server_is_asked_for_once(kernel):
    js = """
    const name = '@codemode/servers/other', first = load(name), again = load(name);
    const both = await Promise.all([first, again, load(name)]);
    const { get_user, __meta__ } = both[0];
    globalThis.__codemode_result__ = [first !== again, both.every((one) => one === both[0]),
      (await load(name)) === both[0],
      await get_user(5), __meta__.serverId, first.constructor === Promise];
    """
    said = kernel.module(js, server, imports=ALL, given=GIVEN)
    assert said.value == [True, True, True, 5, "other", True]
    assert [(call["kind"], call["name"]) for call in said.of_kind("C")] == [
        ("catalog", "importServer"),
        ("tool", "other.get-user"),
    ]


def test_an_import_nobody_awaits_is_no_call_nobody_looked_at(kernel):
    said = kernel.module("load('@codemode/servers/other'); await 1", server, imports=ALL, given=GIVEN)
    assert (said.body["unobserved"], len(said.of_kind("C"))) == ([], 1)


@each_row("specifier",
    [
        "nope", "", "@codemode/servers/", "@codemode/nope", "./x", "<input>", "std", "os", "__proto__", "toString",
        "@codemode/servers", "https://example.com/x.js", "@codemode/servers/" + "x" * 300, "@CODEMODE/errors",
        "codemode:never", "node:fs", "@codemode/errors ", "data:text/javascript,1",
    ],
)  # fmt: skip
def test_there_is_no_other_module(kernel, specifier):
    js = f"""
    try {{ await load({json.dumps(specifier)}); {RESULT}'imported' }} catch (error) {{
      {RESULT}[error.constructor === errors.CodemodeError, error.code, error.message, Object.isFrozen(error),
        !!error.hint] }}
    """
    said = kernel.module(js, imports=ALL, given=GIVEN)
    is_one, code, message, is_frozen, has_hint = said.value
    assert (is_one, code, is_frozen, has_hint, said.of_kind("C")) == (True, "IMPORT_FAILURE", True, True, [])
    assert message.startswith("there is no module ")
    assert len(message) < 150


@pytest.mark.parametrize("name", ["__proto__", "constructor", "GitHub", "a/b", "\\u0000", "\\ud800", "then"])
def test_odd_servers_are_the_hosts_to_refuse(kernel, name):
    said = kernel.module(f"await load('@codemode/servers/{name}'); {RESULT}1", server, imports=ALL, given=GIVEN)
    assert [call["name"] for call in said.of_kind("C")] == ["importServer"]
    assert said.value == 1


def test_a_server_that_is_not_there_rejects_every_import_of_it(kernel):
    js = """
    const name = '@codemode/servers/gone', seen = [];
    for (let i = 0; i < 3; i++) try { await load(name) } catch (error) { seen.push(error) }
    globalThis.__codemode_result__ = [seen[0] instanceof errors.ServerNotFoundError, seen[1] === seen[0], seen.length];
    """
    said = kernel.module(js, server, imports=ALL, given=GIVEN)
    assert (said.value, len(said.of_kind("C"))) == ([True, True, 3], 1)
    uncaught = kernel.module("await load('@codemode/servers/gone')", server, imports=ALL, given=GIVEN).error
    assert (uncaught["request"], uncaught["class"]) == (1, "ServerNotFoundError")


@each_row(
    "specifier, ends",
    [
        (f"new String('{GH}')", "imported"),
        (f"['{GH}']", "imported"),
        (f"{{ toString() {{ return '{GH}' }}, valueOf() {{ return 'nope' }} }}", "imported"),
        (f"new Proxy({{}}, {{ get: (t, key) => key === Symbol.toPrimitive ? () => '{GH}' : undefined }})", "imported"),
        ("Symbol('x')", "TypeError"),
        ("{ toString() { throw new RangeError('mine') } }", "RangeError"),
        ("Object.create(null)", "TypeError"),
        ("{ [Symbol.toPrimitive]() { return {} } }", "TypeError"),
        ("undefined", "CodemodeError"),
        ("null", "CodemodeError"),
        ("1n", "CodemodeError"),
        ("{ then(resolve) { resolve(1) } }", "CodemodeError"),
    ],
)
def test_a_specifier_is_made_a_text_as_the_language_does(kernel, specifier, ends):
    js = f"try {{ await load({specifier}); {RESULT}'imported' }} catch (error) {{ {RESULT}error.name }}"
    assert kernel.module(js, imports=ALL, given=GIVEN).value == ends


def test_a_flood_of_imports_ends_at_the_limit(kernel):
    js = """
    const all = await Promise.allSettled(Array.from({ length: 5000 }, (_, i) => load('@codemode/servers/s' + i)));
    const limits = all.filter((one) => one.reason instanceof errors.SandboxLimitError).length;
    globalThis.__codemode_result__ = [all.filter((one) => one.status === 'fulfilled').length, limits];
    """
    said = kernel.module(js, server, imports=ALL, given=GIVEN)
    assert (said.value, len(said.of_kind("C"))) == ([64, 4936], 64)


# --- what none of it hands out ---


@each_row(
    "js",
    [
        "gh.get_user.constructor('return 1')()",
        "load.constructor('return 1')()",
        "errors.CodemodeError.constructor('return 1')()",
        "Object.getPrototypeOf(errors.ToolCallError)('x')",
        "new gh.get_user()",
        "new load('x')",
        "gh.get_user.caller",
        "load.arguments",
        "errors.CodemodeError.prototype.name = 'x'",
        "errors.CodemodeError.prototype.x = 1",
        "errors.ToolCallError.x = 1",
        "Object.setPrototypeOf(errors.ToolCallError, null)",
        "Object.setPrototypeOf(errors.ToolCallError.prototype, null)",
        "gh.get_user.x = 1",
        "delete errors.ToolCallError.prototype.constructor",
        "discovery.listServers.bind = 1",
        "load.x = 1",
        "console.log = 1",
        "setTimeout = 1",
        "globalThis.setTimeout = 1",
        "clearTimeout.x = 1",
    ],
)
def test_nothing_can_be_changed(kernel, js):
    assert kernel.module(js, imports=ALL, given=GIVEN).error["name"] in ("TypeError", "EvalError")
