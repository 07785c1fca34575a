"""Calls of a CodeCall script by callTool and by namespaces, on a worker with the real kernel and no host."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from kernel_driver import KernelDriver
from suite import each_row

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")

DENIED = {"code": "ACCESS_DENIED", "message": "not for you", "toolName": "a.b"}


@pytest.fixture
def script(kernel: KernelDriver) -> Any:
    return kernel.run_code_call


def refusing(**fields: Any) -> Any:
    told = {**DENIED, **fields}
    frame = {"name": "Error", "message": told["message"], "code": told["code"], "fields": told}
    return lambda _request: {"error": frame}


CAUGHT = "let error; try { await callTool('a.b', 1) } catch (caught) { error = caught }\n"


# --- callTool ---


@each_row(
    "js, sent",
    [
        ("return callTool('a.b', { x: [1] })", {"name": "a.b", "input": '{"x":[1]}'}),
        ("return callTool('a')", {"name": "a"}),
        ("return callTool('a', undefined)", {"name": "a"}),
        ("return callTool('a', null)", {"name": "a", "input": "null"}),
        ("return callTool('a', 2n ** 70n)", {"name": "a", "input": str(2**70)}),
        ("return callTool('$search', 'x')", {"name": "$search", "input": '"x"'}),
        ("return callTool('')", {"name": ""}),
        ("return callTool('__proto__', 1)", {"name": "__proto__", "input": "1"}),
        ("return callTool('n'.repeat(300))", {"name": "n" * 256}),
        ("return callTool.call(null, 'a', 1)", {"name": "a", "input": "1"}),
    ],
)
def test_a_call_is_a_request_of_kind_tool(script, js, sent):
    said = script(js)
    assert said.of_kind("C") == [{"id": 1, "kind": "tool", **sent}]
    assert said.kind == "V"


def test_calls_are_awaited_raced_and_collected(script):
    js = """
    const all = await Promise.all([1, 2].map((n) => callTool('e', n)));
    const raced = await Promise.race([callTool('e', 3)]);
    const one = callTool('e', 4);
    return [...all, raced, one instanceof Promise, await one, await one, await one.then((n) => n + 1)];
    """
    said = script(js)
    assert (said.value, said.body["unobserved"]) == ([1, 2, 3, True, 4, 4, 5], [])
    assert script("callTool('e', 1); await callTool('e', 2)").body["unobserved"] == [1]


def test_without_throwing_success_and_failure_are_values(script):
    js = "return callTool('a.b', { x: 1 }, { throwOnError: false })"
    assert script(js).value == {"success": True, "data": {"x": 1}}
    assert script(js, refusing()).value == {"success": False, "error": DENIED}
    told = refusing(details={"ids": [1]})
    assert script(js, told).value == {"success": False, "error": {**DENIED, "details": {"ids": [1]}}}


@pytest.mark.parametrize("options", ["undefined", "null", "{}", "{ throwOnError: true }", "{ throwOnError: 0 }"])
def test_else_a_failure_throws(script, options):
    said = script(f"return callTool('a.b', 1, {options})", refusing())
    assert (said.error["code"], said.error["message"], said.error["request"]) == ("ACCESS_DENIED", "not for you", 1)


def test_the_error_of_a_call_has_frozen_fields(script):
    js = """
    const own = ['name', 'message', 'code', 'toolName', 'details', 'stack'].map((key) => {
      const { writable, configurable } = Object.getOwnPropertyDescriptor(error, key);
      return writable || configurable;
    });
    let refused = 0;
    for (const change of [() => { error.code = 'X' }, () => { error.details.ids.push(2) }, () => { error.more = 1 },
      () => { delete error.toolName }, () => Object.setPrototypeOf(error, null), () => { error.details.deep.a.b = 2 },
      () => Object.defineProperty(error, 'message', { value: 'mine' })]) try { change() } catch { refused++ }
    const { name, message, code, toolName, details } = error;
    return [own, refused, Object.isFrozen(error), error instanceof Error, { name, message, code, toolName, details },
      error.stack.includes('program.js:1:')];
    """
    details = {"ids": [1], "deep": {"a": {"b": 1}}}
    said = script(CAUGHT + js, refusing(details=details))
    fields = {"name": "Error", **DENIED, "details": details}
    assert said.value == [[False] * 6, 7, True, True, fields, True]
    assert script(CAUGHT + "return 'details' in error", refusing()).value is False


def test_the_very_error_ends_the_program_thrown_again_or_not(script):
    for js in ("await callTool('a.b', 1)", CAUGHT + "throw error", CAUGHT + "await Promise.reject(error)"):
        error = script(js, refusing(details={"n": 1})).error
        assert (error["request"], error["code"], error["details"]) == (1, "ACCESS_DENIED", '{"n":1}')


@each_row(
    "forged",
    [
        "Object.assign(new Error(error.message), error)",
        "Object.create(error)",
        "new Proxy(error, {})",
        "structured(error)",
        "new Error('x', { cause: error })",
        "new AggregateError([error])",
        "{ ...error, message: error.message, name: 'Error' }",
        "Object.defineProperties(new Error(), Object.getOwnPropertyDescriptors(error))",
        "Reflect.construct(Error, [error.message], error.constructor)",
        "JSON.parse(JSON.stringify(error))",
        "(await callTool('a.b', 1, { throwOnError: false })).error",
    ],
)
def test_no_other_error_is_the_error_of_a_call(script, forged):
    js = CAUGHT + f"const structured = (e) => Object.assign(Object.create(Error.prototype), e); throw ({forged})"
    error = script(js, refusing()).error
    assert "request" not in error
    assert "limit" not in error


@each_row(
    "call, says",
    [
        ("callTool()", "callTool(name, input, options): the name must be a string, not undefined"),
        ("callTool({ toString() { return 'a' } })", "the name must be a string, not object"),
        ("callTool(null)", "not null"),
        ("callTool(Symbol('a'))", "not symbol"),
        ("callTool(['a'])", "not object"),
        ("callTool('a', () => 1)", 'callTool("a", input): the input must be a JSON value, not function'),
        ("callTool('a', Symbol.iterator)", "the input must be a JSON value, not symbol"),
        ("callTool('a', ring)", "the input is no JSON value: circular"),
        ("callTool('a', { get x() { throw new Error('mine') } })", "the input is no JSON value: mine"),
        ("callTool('a', { toJSON() { throw null ?? 7 } })", "the input is no JSON value: 7"),
        ("callTool('a', 10n ** 1001n)", "an integer of more than 1000 digits"),
        ("callTool('a', 1, false)", "the options must be an object such as {throwOnError: false}, not boolean"),
        ("callTool('a', 1, () => 1)", "not function"),
    ],
)
def test_a_call_that_cannot_be_made_is_refused_without_a_request(script, call, says):
    js = f"""
    const ring = {{}}; ring.self = ring;
    try {{ await {call} }} catch (error) {{ return [error.code, error.message, Object.isFrozen(error)] }}
    """
    said = script(js)
    code, message, is_frozen = said.value
    assert (code, is_frozen, said.of_kind("C")) == ("VALIDATION", True, [])
    assert says in message
    uncaught = script(f"const ring = {{}}; ring.self = ring; await {call}").error
    assert (uncaught["code"], "request" in uncaught, "limit" in uncaught) == ("VALIDATION", False, False)


def test_refusals_without_throwing_are_values_too(script):
    js = "return [await callTool('a', () => 1, { throwOnError: false }), await callTool(1, 1, { throwOnError: false })]"
    first, second = script(js).value
    assert (first["success"], first["error"]["code"], first["error"]["toolName"]) == (False, "VALIDATION", "a")
    assert (second["success"], second["error"]["toolName"]) == (False, "")


def test_options_are_read_once_and_what_they_throw_is_the_programs(script):
    js = """
    let read = 0;
    const options = { get throwOnError() { return read++ === 0 ? false : true } };
    const first = await callTool('a.b', 1, options);
    let thrown;
    const hostile = { get throwOnError() { throw new RangeError('mine') } };
    try { await callTool('a.b', 1, hostile) } catch (e) { thrown = e.name }
    const inherited = await callTool('a.b', 1, Object.create({ throwOnError: false }));
    return [read, first.success, thrown, inherited.success];
    """
    said = script(js, refusing())
    assert (said.value, len(said.of_kind("C"))) == ([1, False, "RangeError", False], 2)


@pytest.mark.parametrize(
    ("limit", "js"),
    [
        ("max_bridge_requests", "await callTool('e', 1); await callTool('e', 2); "),
        ("max_in_flight_bridge_requests", "const waiting = [callTool('e', 1), callTool('e', 2)]; "),
    ],
)
def test_a_call_beyond_a_limit_has_the_code_limit(script, limit, js):
    caught = js + "let error; try { await callTool('x.y', 3) } catch (e) { error = e }\n"
    told = caught + "return [error.code, error.toolName, error.message, Object.isFrozen(error)]"
    code, name, message, is_frozen = script(told, **{limit: 2}).value
    assert (code, name, is_frozen, "at most 2" in message) == ("LIMIT", "x.y", True, True)
    error = script(js + "await callTool('x.y', 3)", **{limit: 2}).error
    assert (error["limit"], error["code"], "request" in error) == (limit, "LIMIT", False)
    assert error["refused"] == "x.y"
    assert script(caught + "throw error", **{limit: 2}).error["limit"] == limit
    quiet = script(js + "return callTool('x.y', 3, { throwOnError: false })", **{limit: 2}).value
    assert quiet == {"success": False, "error": {"code": "LIMIT", "message": message, "toolName": "x.y"}}
    again = script(js + "throw (await callTool('x.y', 3, { throwOnError: false })).error", **{limit: 2}).error
    assert "limit" not in again


def test_an_input_that_makes_calls_itself_is_counted_in_their_order(script):
    js = """
    const inner = [];
    const input = { toJSON() { inner.push(callTool('inner', 1)); return 'outer' } };
    const outer = callTool('outer', input);
    return [await outer, await inner[0]];
    """
    said = script(js)
    assert [call["name"] for call in said.of_kind("C")] == ["inner", "outer"]
    assert said.value == ["outer", 1]


def test_a_face_without_fields_has_the_errors_it_had(kernel):
    def refuse(_request: Any) -> dict[str, Any]:
        return {"error": {"name": "CodeModeToolError", "message": "no", "code": "CODE_MODE_TOOL_ERROR"}}

    js = "try { await tools.a(1) } catch (e) { return [e.name, e.code, Object.isFrozen(e), (e.code = 'mine', e.code)] }"
    assert kernel.run(js, refuse).value == ["CodeModeToolError", "CODE_MODE_TOOL_ERROR", False, "mine"]


# --- namespaces ---


def test_tools_of_a_namespace_are_called_as_its_members(script):
    js = "return [await crm.find({ n: 1 }), await crm.user.tags.add(2), await crm['odd name'](), typeof crm, `${crm}`]"
    said = script(js, given={"namespaces": ["crm"]})
    assert [(call["name"], call.get("input")) for call in said.of_kind("C")] == [
        ("crm.find", '{"n":1}'),
        ("crm.user.tags.add", "2"),
        ("crm.odd name", None),
    ]
    assert said.value == [{"n": 1}, 2, None, "function", "[tool]"]


@pytest.mark.parametrize(
    ("js", "name"),
    [
        ("crm({})", "Error"),
        ("crm.x = 1", "TypeError"),
        ("delete crm.x", "TypeError"),
        ("new crm.x()", "TypeError"),
        ("crm = 1", "TypeError"),
        ("Object.defineProperty(crm, 'x', { value: 1 })", "TypeError"),
        ("Object.setPrototypeOf(crm, {})", "TypeError"),
    ],
)
def test_a_namespace_is_no_tool_and_read_only(script, js, name):
    error = script(js, given={"namespaces": ["crm"]}).error
    assert error["name"] == name
    assert "tools" not in error["message"]


def test_the_refusals_of_a_namespaces_calls_are_those_of_callTool(script):
    given = {"namespaces": ["crm"]}
    js = "try { await crm.find(() => 1) } catch (e) { return [e.code, e.toolName, e.message] }"
    said = script(js, given=given)
    assert said.value == ["VALIDATION", "crm.find", "crm.find(input): the input must be a JSON value, not function"]
    js = "try { await crm.find(1) } catch (e) { return [e.code, e.toolName, Object.isFrozen(e)] }"
    assert script(js, given=given, max_bridge_requests=0).value == ["LIMIT", "crm.find", True]
    assert script(js, refusing(toolName="crm.find"), given=given).value == ["ACCESS_DENIED", "crm.find", True]


def test_a_namespace_takes_nothings_place(script):
    names = [
        "Map",
        "JSON",
        "console",
        "callTool",
        "process",
        "eval",
        "Function",
        "globalThis",
        "undefined",
        "$search",
        "os",
    ]
    js = """
    return [typeof Map.groupBy, typeof JSON.parse, typeof console.log, callTool.name, typeof process, typeof Function,
      typeof globalThis, typeof globalThis['ev' + 'al'], globalThis['proc' + 'ess'], undefined === void 0, typeof os.x];
    """
    plain = [
        "function",
        "function",
        "function",
        "callTool",
        "undefined",
        "undefined",
        "object",
        "undefined",
        None,
        True,
    ]
    said = script(js, given={"namespaces": names})
    assert said.value == [*plain, "function"]
    said = script("return [await $search.x(1), await $search.$search(2)]", given={"namespaces": names})
    assert [(call["kind"], call["name"]) for call in said.of_kind("C")] == [
        ("tool", "$search.x"),
        ("tool", "$search.$search"),
    ]
    assert script("return $search(1)", given={"namespaces": names}).error["name"] == "Error"
