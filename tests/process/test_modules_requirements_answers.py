"""M1 to M15 and M32: the one tool, its input, its answer, what a program finds around it. A test for each item."""

from __future__ import annotations

import json
from typing import Any

import pytest
from module_servers import answer, codes, drive, github, over, result_of
from suite import each_row
from waiting import within

from codemode import WorkerPool, create_modules_tool
from codemode.execution import runner

SET = "globalThis.__codemode_result__ = "
ENDLESS = "for (;;) {}"


def test_one_tool_and_a_fresh_sandbox_per_call():
    run = over()
    assert run.name == "codemode.run"
    assert result_of("globalThis.left = 1;" + SET + "1;", run) == 1
    assert result_of(SET + "[typeof left, globalThis.__codemode_result__ === undefined];", run) == ["undefined", True]


def test_input_and_what_is_documented_of_it():
    run = over()
    schema = run.input_schema
    assert schema["required"] == ["code"]
    assert set(schema["properties"]) == {"code", "limits", "requestedCapabilities"}
    assert run.output_schema["required"] == ["logs", "result", "diagnostics"]
    for key in (
        *schema["properties"]["limits"]["properties"],
        "timeoutMs",
        "maxMemoryBytes",
        "maxLogBytes",
        "maxToolCalls",
        "maxConcurrentToolCalls",
        "maxResultBytes",
    ):
        assert key in run.description
    assert "github" in run.description
    assert "google-drive" in run.description
    assert result_of(SET + "1", run, limits={}, requestedCapabilities=[]) == 1


def test_a_program_has_the_semantics_of_a_module():
    code = """
    import { ping } from "@codemode/servers/github";
    export const one = await ping();
    export default one;
    const own = { self: this, strict: (function () { return this === undefined; })() };
    globalThis.__codemode_result__ = [one, own.self === undefined, own.strict, typeof arguments];
    """
    assert result_of(code, over()) == ["pong", True, True, "undefined"]
    for text in ("return 1;", "with ({}) {}", "await = 1;", "export { nothing };"):
        response = answer(text, over())
        assert codes(response) == ["SYNTAX_ERROR"], text
        assert response["result"] is None


def test_result_is_what_was_assigned_last():
    assert result_of(SET + "1; " + SET + "{ ok: true };", over()) == {"ok": True}
    assert codes(answer("42;", over())) == ["NO_RESULT"]
    assert answer("export default 42;", over())["result"] == 42
    assert codes(answer(SET + "undefined;", over())) == ["NO_RESULT"]
    assert codes(answer(SET + "() => 1;", over())) == ["RESULT_NOT_JSON"]
    assert codes(answer(SET + "'x'.repeat(2000);", over(), limits={"maxResultBytes": 1000})) == ["RESULT_TOO_LARGE"]


def test_known_limits_hold_and_unknown_ones_are_ignored():
    assert answer(SET + "1;", over(), limits={"unheardOf": "x", "timeoutMs": 60_000})["diagnostics"] == []
    response = answer(ENDLESS, over(), limits={"timeoutMs": 100})
    assert codes(response) == ["SANDBOX_LIMIT"]
    assert "timeoutMs" in response["diagnostics"][0]["message"]
    response = answer(
        "const all = []; for (;;) all.push('x'.repeat(99999) + all.length);", over(), limits={"maxMemoryBytes": 8 << 20}
    )
    assert codes(response) == ["SANDBOX_LIMIT"]
    assert "maxMemoryBytes" in response["diagnostics"][0]["message"]
    calls = 'import { ping } from "@codemode/servers/github"; for (let i = 0; i < 3; i++) await ping();'
    response = answer(calls, over(), limits={"maxToolCalls": 2})
    assert codes(response) == ["SANDBOX_LIMIT"]
    assert "maxToolCalls" in response["diagnostics"][0]["message"]
    assert response["diagnostics"][0]["errorClass"] == "SandboxLimitError"


def test_requested_capabilities_are_granted_or_reported():
    response = answer(SET + "1;", over(), requestedCapabilities=["github", "Google  Drive!", "slack"])
    assert codes(response) == ["CAPABILITY_UNAVAILABLE"]
    assert "slack" in response["diagnostics"][0]["message"]
    assert response["diagnostics"][0]["severity"] == "warning"
    assert response["result"] == 1
    response = answer('import * as slack from "@codemode/servers/slack";', over(), requestedCapabilities=["slack"])
    assert codes(response)[0] == "IMPORT_FAILURE"
    assert response["diagnostics"][0]["severity"] == "error"


def test_every_answer_has_the_required_fields():
    for code in (SET + "1;", "throw 1;", "}", 'import "nope";'):
        response = answer(code, over())
        assert set(response) == {"logs", "result", "diagnostics"}
        json.dumps(response)
    response = answer('import { ping } from "@codemode/servers/github"; await ping();', over())
    assert set(response) == {"logs", "result", "diagnostics", "toolTrace"}


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("1, 'a', true, null, undefined", "1 a true null undefined"),
        ("Symbol('s')", "Symbol(s)"),
        ("-0, 10n, NaN", "0 10 NaN"),
        ("{ b: 1, a: { d: [1, 'x'], c: 2 } }", '{"a":{"c":2,"d":[1,"x"]},"b":1}'),
        ("[3, 1]", "[3,1]"),
    ],
)
def test_logs_keep_order_level_and_text(argument: str, message: str):
    response = answer(f"console.log({argument});", over())
    assert [(entry["level"], entry["message"]) for entry in response["logs"]] == [("log", message)]
    assert type(response["logs"][0]["timeMs"]) is int


def test_levels_and_what_is_no_json():
    code = """
    for (const level of ["debug", "log", "info", "warn", "error"]) console[level](level);
    const circle = {}; circle.circle = circle; console.log(circle);
    console.log({ get x() { throw 1; } });
    """
    logs = answer(code, over())["logs"]
    assert [entry["level"] for entry in logs[:5]] == ["debug", "log", "log", "warn", "error"]
    assert all(isinstance(entry["message"], str) and 0 < len(entry["message"]) < 200 for entry in logs[5:])
    times = [entry["timeMs"] for entry in logs]
    assert times == sorted(times)


def test_cut_logs_end_with_a_warning():
    response = answer(
        "for (let i = 0; i < 500; i++) console.log('x'.repeat(50));" + SET + "1;", over(), limits={"maxLogBytes": 1000}
    )
    assert (response["result"], response["diagnostics"]) == (1, [])
    assert len(response["logs"]) < 30
    last = response["logs"][-1]
    assert last["level"] == "warn"
    assert "maxLogBytes" in last["message"]
    assert "1000" in last["message"]


def test_trace_without_inputs_and_outputs():
    code = """
    import * as gh from "@codemode/servers/github";
    import { list_files } from "@codemode/servers/google-drive";
    await gh["create-issue"]?.();
    await gh.create_issue({ title: "secret-in" });
    await list_files();
    try { await gh.broken(); } catch {}
    """
    trace = answer(code, over())["toolTrace"]
    assert [(one["serverId"], one["toolName"], one["ok"]) for one in trace] == [
        ("github", "create-issue", True), ("google-drive", "list-files", True), ("github", "broken", False),
    ]  # fmt: skip
    assert all(type(one["durationMs"]) is int and one["durationMs"] >= 0 for one in trace)
    assert "secret-in" not in json.dumps(trace)
    assert "quota" not in json.dumps(trace)
    assert trace[2]["error"] is not None


def test_diagnostics_have_the_required_shape():
    response = answer('const a = 1;\nthrow new TypeError("bad");', over())
    (one,) = response["diagnostics"]
    assert {key: one[key] for key in ("severity", "code", "path")} == {
        "severity": "error",
        "code": "UNCAUGHT_EXCEPTION",
        "path": "2:11",
    }
    assert "TypeError" in one["message"]
    assert "bad" in one["message"]
    assert "errorClass" not in one


def test_fatal_errors_keep_logs_and_trace():
    code = """
    import { ping, broken } from "@codemode/servers/github";
    console.log("before");
    globalThis.__codemode_result__ = await ping();
    await broken();
    """
    response = answer(code, over())
    assert response["result"] is None
    assert [entry["message"] for entry in response["logs"]] == ["before"]
    assert [one["ok"] for one in response["toolTrace"]] == [True, False]
    (one,) = response["diagnostics"]
    assert (one["code"], one["errorClass"]) == ("UNCAUGHT_EXCEPTION", "ToolCallError")
    assert one["hint"]


def test_each_failure_has_its_code():
    programs = {
        "let = 1;": "SYNTAX_ERROR",
        "throw 1;": "UNCAUGHT_EXCEPTION",
        'import "@codemode/servers/nope";': "IMPORT_FAILURE",
        ENDLESS: "SANDBOX_LIMIT",
        "await new Promise(() => {});": "DEADLOCK",
    }
    for code, expected in programs.items():
        limits = {"timeoutMs": 300 if code == ENDLESS else 60_000}
        assert codes(answer(code, over(), limits=limits)) == [expected], code


PRESENT = """
JSON Math Date URL URLSearchParams Promise Map Set WeakMap WeakSet Symbol Proxy Reflect RegExp Error Array
Object String Number Boolean BigInt parseInt parseFloat isNaN isFinite TextEncoder TextDecoder ArrayBuffer
DataView Uint8Array Int8Array Uint16Array Int16Array Uint32Array Int32Array Float32Array Float64Array
setTimeout clearTimeout console
"""
ABSENT = """
fetch XMLHttpRequest WebSocket EventSource setInterval setImmediate process require module exports Buffer
global window tools callTool eval importScripts Worker navigator
"""


def test_the_listed_built_ins_are_there():
    code = f"""
    globalThis.__codemode_result__ = [{PRESENT.split()}.filter((name) => !(name in globalThis)),
      {ABSENT.split()}.filter((name) => name in globalThis), Infinity > 0, NaN !== NaN];"""
    assert result_of(code, over()) == [[], [], True, True]
    code = """
    const tried = [];
    for (const make of [() => (0, eval)("1"), () => Function("return 1")(), () => (async () => {}).constructor("1")(),
      () => (function* () {}).constructor("1")(), () => setTimeout("1", 0), () => new (class extends Function {})("1")])
      try { tried.push(["ran", make()]); } catch (error) { tried.push(error instanceof Error); }
    globalThis.__codemode_result__ = tried;
    """
    assert result_of(code, over()) == [True] * 6


def test_only_calls_leave_the_sandbox():
    code = """
    const found = [];
    for (const name of ["fs", "node:fs", "http", "https://example.com/x.js", "data:text/javascript,1",
      "file:///etc/passwd", "./x.js", "<input>"])
      try { await import(name); found.push(name); }
      catch (error) { if (!(error instanceof Error)) found.push("not an error"); }
    globalThis.__codemode_result__ = found;
    """
    assert result_of(code, over()) == []
    response = answer('import fs from "node:fs";', over())
    assert codes(response) == ["IMPORT_FAILURE"]


def test_limits_are_errors_in_the_program_and_logs_are_kept(
    computing_pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runner, "_DEADLINE_GRACE_MS", 60_000)  # a worker may be slow to say what it has written
    code = """
    import { ping } from "@codemode/servers/github";
    import { SandboxLimitError, CodemodeError } from "@codemode/errors";
    console.log("kept");
    const ended = await Promise.allSettled([ping(), ping(), ping()]);
    const error = ended[2].reason;
    globalThis.__codemode_result__ = [ended.map((one) => one.status),
      error instanceof SandboxLimitError, error instanceof CodemodeError, !!error.hint];
    """
    response = answer(code, over(), limits={"maxToolCalls": 2})
    assert response["result"] == [["fulfilled", "fulfilled", "rejected"], True, True, True]
    assert response["logs"][0]["message"] == "kept"
    for endless in (ENDLESS, "for (;;) await 1;"):
        tool = create_modules_tool([github(), drive()], pool=computing_pool)
        response = answer(f"console.log('kept'); {endless}", tool, limits={"timeoutMs": 300})
        assert codes(response) == ["SANDBOX_LIMIT"]
        assert [entry["message"] for entry in response["logs"]] == ["kept"]
        assert response["result"] is None


@each_row(
    "given",
    [
        None,
        1,
        [],
        {},
        {"code": 1},
        {"code": None},
        {"code": "1", "limits": 3},
        {"code": "1", "requestedCapabilities": "x"},
        {"code": "1", "requestedCapabilities": [1]},
    ],
)
def test_a_wrong_input_is_an_answer(given: Any):
    response = within(over().execute(given))
    assert set(codes(response)) == {"BAD_REQUEST"}
    assert (response["logs"], response["result"]) == ([], None)
