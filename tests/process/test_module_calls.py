"""Calls of a module's imports, on a worker with the real kernel and no host: tools of servers, and discovery."""

from __future__ import annotations

import json
import sys

import pytest
from module_pieces import ALL, GIVEN, RESULT, server
from suite import each_row

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")


# --- calls ---


@each_row(
    "call, sent",
    [
        ("gh.get_user({ n: [1] })", {"name": "github.get-user", "input": '{"n":[1]}'}),
        ("gh.get_user()", {"name": "github.get-user"}),
        ("gh.get_user(undefined)", {"name": "github.get-user"}),
        ("gh.get_user(null)", {"name": "github.get-user", "input": "null"}),
        ("gh.then_(1, 2, 3)", {"name": "github.then", "input": "1"}),
        ("gh.a_b_c(2n ** 64n)", {"name": "github.a.b c", "input": str(2**64)}),
        ("gh.get_user.call(null, 1)", {"name": "github.get-user", "input": "1"}),
        ("(0, gh.get_user)(1)", {"name": "github.get-user", "input": "1"}),
    ],
)
def test_a_call_of_a_server_is_a_request_of_kind_tool(kernel, call, sent):
    said = kernel.module(RESULT + f"await {call}", imports=ALL, given=GIVEN)
    assert said.of_kind("C") == [{"id": 1, "kind": "tool", **sent}]


def test_calls_are_awaited_raced_and_collected(kernel):
    js = """
    const all = await Promise.all([1, 2].map(gh.get_user)), one = gh.then_(4);
    globalThis.__codemode_result__ = [...all, await Promise.race([gh.a_b_c(3)]), one instanceof Promise,
      await one, await one];
    """
    said = kernel.module(js, imports=ALL, given=GIVEN)
    assert (said.value, said.body["unobserved"]) == ([1, 2, 3, True, 4, 4], [])
    assert kernel.module("gh.get_user(1); await gh.get_user(2)", imports=ALL, given=GIVEN).body["unobserved"] == [1]


@pytest.mark.parametrize(
    "after",
    [
        "gh.get_user(1)",
        "discovery.listServers()",
        "load('@codemode/servers/other')",
        "Promise.resolve(setTimeout(() => {}))",
        "Promise.resolve(clearTimeout(waiting))",
    ],
)
def test_nothing_is_asked_for_after_the_end(kernel, after):
    js = f"""
    const waiting = setTimeout(() => {{}}, 5);
    const later = async () => {{ for (let i = 0; i < 9; i++) await null; await {after}; }};
    for (let i = 0; i < 5; i++) later().catch(() => {{}});
    """
    said = kernel.module(js, imports=ALL, given=GIVEN)
    assert (said.kind, len(said.of_kind("C")), said.of_kind("W")) == ("V", 1, [])


@pytest.mark.parametrize(
    ("input_", "received"),
    [
        ("() => 1", "function"),
        ("Symbol('x')", "symbol"),
        ("(() => { const a = []; a.push(a); return a })()", "object"),
        ("{ get a() { throw new Error('mine') } }", "object"),
        ("{ toJSON() { throw 'mine' } }", "object"),
        ("{ toJSON() { throw { get message() { throw 1 } } } }", "object"),
        ("10n ** 1001n", "bigint"),
    ],
)
def test_what_is_no_input_is_refused_without_a_request(kernel, input_, received):
    js = f"""
    try {{ await gh.get_user({input_}) }} catch (error) {{
      {RESULT}[error instanceof errors.SchemaValidationError, Object.isFrozen(error),
        JSON.parse(JSON.stringify(error))] }}
    """
    said = kernel.module(js, imports=ALL, given=GIVEN)
    is_one, is_frozen, fields = said.value
    assert (is_one, is_frozen, said.of_kind("C")) == (True, True, [])
    message = fields.pop("message")
    assert message.startswith("get_user(input): the input ")
    assert fields == {
        "name": "SchemaValidationError",
        "code": "VALIDATION",
        "path": "",
        "expected": "a JSON value",
        "received": received,
        "serverId": "github",
        "toolName": "get-user",
        "exportName": "get_user",
        "hint": "pass plain data: no functions, symbols or cycles",
    }


def test_a_call_is_never_an_exception_but_a_rejection(kernel):
    js = """
    const calls = [() => gh.get_user(() => 1), () => discovery.listServers(10n ** 1001n), () => load(Symbol('x')),
      () => load({ toString() { throw 1 } }), () => load('nope')];
    globalThis.__codemode_result__ = calls.map((call) => { const p = call(); p.catch(() => {});
      return p instanceof Promise });
    """
    assert kernel.module(js, imports=ALL, given=GIVEN).value == [True] * 5


@pytest.mark.parametrize(
    ("limit", "shown", "js"),
    [
        ("max_bridge_requests", "maxToolCalls", "await gh.get_user(1); await gh.get_user(2);"),
        (
            "max_in_flight_bridge_requests",
            "max_in_flight_bridge_requests",
            "const w = [gh.get_user(1), gh.get_user(2)];",
        ),
        (
            "max_catalog_requests",
            "max_catalog_requests",
            "await discovery.listServers(1); await load('@codemode/servers/x');",
        ),
    ],
)
def test_a_call_beyond_a_limit_is_a_limit_error_that_names_it(kernel, limit, shown, js):
    call = "discovery.listServers()" if "catalog" in limit else "gh.get_user(3)"
    caught = (
        f"{js} try {{ await {call} }} catch (error) {{ {RESULT}[error instanceof errors.SandboxLimitError, error] }}"
    )
    is_one, error = kernel.module(caught, server, imports=ALL, given=GIVEN, **{limit: 2}).value
    assert len(error["hint"]) > 20
    assert (is_one, error["limit"], error["code"]) == (True, shown, "SANDBOX_LIMIT")
    assert f"({shown} is 2)" in error["message"]
    uncaught = kernel.module(f"{js} await {call}", server, imports=ALL, given=GIVEN, **{limit: 2}).error
    assert (uncaught["limit"], uncaught["class"]) == (limit, "SandboxLimitError")


# --- discovery ---


@pytest.mark.parametrize(
    ("call", "name", "sent"),
    [
        ("listServers()", "listServers", "[]"),
        ("listServers(undefined, undefined)", "listServers", "[]"),
        ("describeServer('github')", "describeServer", '["github"]'),
        ("listTools('github', { detail: 'name' })", "listTools", '["github",{"detail":"name"}]'),
        ("getTool(undefined, 'x')", "getTool", '[null,"x"]'),
        ("searchTools('find', { limit: 3 }, 4)", "searchTools", '["find",{"limit":3},4]'),
        ("searchTools({ toString() { throw 1 } })", "searchTools", "[{}]"),
    ],
)
def test_what_discovery_is_asked_goes_to_the_catalog(kernel, call, name, sent):
    said = kernel.module(RESULT + f"await discovery.{call}", imports=ALL, given=GIVEN)
    assert said.of_kind("C") == [{"id": 1, "kind": "catalog", "name": name, "input": sent}]
    assert said.value == json.loads(sent)


def test_the_version_is_there_and_answers_are_the_programs_own(kernel):
    js = RESULT + "[discovery.specVersion, Object.isFrozen(await discovery.listServers({}))]"
    assert kernel.module(js, imports=ALL, given=GIVEN).value == ["1.0.0", False]
