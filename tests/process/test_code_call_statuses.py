"""What execute answers: six statuses, each with its fields, and what the host alone is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from suite import each_row
from waiting import within

from codemode import (
    CodeModeAbortedError,
    CodeModeTimeoutError,
    CodeModeToolError,
    Interrupt,
    PoolOptions,
    Tool,
    WorkerPool,
    create_code_call_tools,
)
from codemode.errors import CodeModeConcurrencyError, CodeModeWorkerError
from codemode.types import CodeCallResult


def refuse(value: Any) -> None:
    raise CodeModeToolError("no stock for " + value["sku"], code=value.get("code"), details={"left": 0})


def fail(_value: Any) -> None:
    raise RuntimeError("cannot open /srv/books/ledger.db on line 7")


async def hang(_value: Any) -> None:
    await asyncio.Event().wait()


NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
TOOLS = [
    Tool("echo", execute=lambda value: value),
    Tool("add", execute=lambda value: value["n"] + 1, input_schema=NUMBERS),
    Tool("stock.take", execute=refuse),
    Tool("books/ledger/close", execute=fail),
    Tool("hang", execute=hang),
    Tool("broken", execute=lambda value: "text", output_schema={"type": "integer"}, output_validation="strict"),
    Tool("asks", execute=lambda value: "done", needs_approval=True),
]


def run(script: str, options: Any = None, **given: Any) -> Any:
    return create_code_call_tools(TOOLS, options).execute_sync({"script": script, **given})


def status(script: str, options: Any = None, **given: Any) -> tuple[str, dict[str, Any]]:
    answer = run(script, options, **given)
    assert isinstance(answer, CodeCallResult)
    assert json.loads(json.dumps(answer)) == answer
    assert answer.keys() <= {"status", "result", "error", "logs", "warnings"}
    return answer["status"], answer.get("error", {})


# --- ok ---


@each_row(
    "script, result",
    [
        ("return 1", 1),
        ("return null", None),
        ("return { a: [1, 'b', true, null], c: undefined }", {"a": [1, "b", True, None]}),
        ("return 12345678901234567890n", 12345678901234567890),
        ("const n: number = 2; return n as any", 2),
        ("return await callTool('add', { n: 1 })", 2),
        ("return (await Promise.all([1, 2].map((n) => callTool('add', { n })))).join()", "2,3"),
        ("return typeof fetchers", "undefined"),
        ("return (function () { return this === undefined })()", True),
        ("return await callTool('nope', {}, { throwOnError: false }).then((one) => one.error.code)", "UnknownTool"),
        ("try { return await callTool('stock.take', { sku: 'a' }) } catch (e) { return e.details }", {"left": 0}),
        ("return '/srv/books/ledger.db'", "/srv/books/ledger.db"),
    ],
)
def test_ok(script: str, result: Any):
    assert run(script) == {"status": "ok", "result": result}


def test_a_namespace_calls_its_tools():
    answer = run("return await stock.take({ sku: 'a' }).catch((error) => [error.code, error.message, error.toolName])")
    assert answer["result"] == ["EXECUTION", "no stock for a", "stock.take"]


def test_each_console_call_is_one_entry():
    answer = run("console.log('a', { b: 1 }); console.warn('two\\nlines'); console.error(''); return 1")
    assert answer["logs"] == [
        {"level": "log", "message": 'a {"b":1}'},
        {"level": "warn", "message": "two\nlines"},
        {"level": "error", "message": ""},
    ]
    failed = run("console.log('before'); throw new Error('after')")
    assert (failed["status"], failed["logs"]) == ("runtime_error", [{"level": "log", "message": "before"}])


def test_what_is_too_deep_or_too_much_is_cut_and_told_of():
    deep = "let a = 1; [...Array(20)].forEach(() => { a = [a] }); return a"
    answer = run(deep, {"vm": {"maxSanitizeDepth": 3}})
    assert answer["status"] == "ok"
    assert json.dumps(answer["result"]).count("[[") <= 3
    assert answer["warnings"]
    wide = run("return [...Array(50)].map((_, at) => ({ at }))", {"vm": {"maxSanitizeProperties": 20}})
    assert wide["warnings"]
    assert len(json.dumps(wide["result"])) < 600


def test_unknown_names_that_are_allowed_are_warned_of():
    answer = run("return 1", allowedTools=["echo", "nope", "codecall.search"])
    assert (answer["status"], len(answer["warnings"])) == ("ok", 1)
    assert "'nope', 'codecall.search'" in answer["warnings"][0]


# --- syntax_error ---


@each_row(
    "script, place",
    [
        ("return [1, 2;", {"line": 1, "column": 13}),
        ("let 9lives", None),
        ("\n\nreturn )", {"line": 3, "column": 8}),
        ("const a = 1; const a = 2", None),
        ("with ({}) {}", None),
        ("return (", None),
        ("```js\nreturn 1 +\n```", {"line": 2, "column": 11}),
        ("enum A { B }", None),
    ],
)
def test_syntax_error(script: str, place: Any):
    said, error = status(script)
    assert said == "syntax_error"
    assert error["message"]
    if place is not None:
        assert error["location"] == place


def test_a_script_that_is_too_large():
    said, error = status("return '" + "\u00e9" * 40_000 + "'")
    assert said == "syntax_error"
    assert error["name"] == "ScriptTooLargeError"
    assert "80009" in error["message"]
    assert "65536" in error["message"]
    assert status("return 1 //" + "x" * 70_000, {"sidecar": {"maxScriptLengthWhenDisabled": None}})[0] == "ok"


# --- tool_error ---

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("return await callTool('add', { n: 'x' })", {"toolName": "add", "toolInput": {"n": "x"}, "code": "VALIDATION"}),
    (
        "return await callTool('stock.take', { sku: 'a' })",
        {
            "toolName": "stock.take",
            "toolInput": {"sku": "a"},
            "message": "no stock for a",
            "code": "EXECUTION",
            "details": {"left": 0},
        },
    ),
    ("return await stock.take({ sku: 'a', code: 'SOLD_OUT' })", {"code": "SOLD_OUT", "details": {"left": 0}}),
    (
        "return await callTool('books/ledger/close', {})",
        {"toolName": "books/ledger/close", "message": "the tool failed", "code": "EXECUTION"},
    ),
    ("return await callTool('broken', {})", {"toolName": "broken", "code": "EXECUTION"}),
    ("return await callTool('no' + 'pe', {})", {"toolName": "nope", "code": "UnknownTool"}),
    ("return await callTool('code' + 'call.search', {})", {"toolName": "codecall.search", "code": "SELF_REFERENCE"}),
    ("return await callTool('asks', {})", {"toolName": "asks", "code": "APPROVAL_REQUIRED"}),
    ("try { await callTool('add', {}) } catch (error) { throw error }", {"toolName": "add", "code": "VALIDATION"}),
    ("await Promise.all([callTool('add', {}), callTool('echo', 1)])", {"toolName": "add", "code": "VALIDATION"}),
]


@each_row("script, expected", CALLS, ids=range(len(CALLS)))
def test_tool_error(script: str, expected: dict[str, Any]):
    said, error = status(script)
    assert said == "tool_error"
    assert error["source"] == "tool"
    assert {key: error.get(key) for key in expected} == expected
    assert error.keys() <= {"source", "toolName", "toolInput", "message", "code", "details"}


def test_a_call_that_is_not_allowed():
    for allowed in ([], ["add"], ["nope"]):
        _, error = status("return await callTool('ec' + 'ho', 1)", allowedTools=allowed)
        assert (error["code"], error["toolName"]) == ("ACCESS_DENIED", "echo")
        assert run("return getTool('ec' + 'ho') === undefined", allowedTools=allowed)["result"] is True
    assert run("return await callTool('echo', 1)", allowedTools=["echo"])["result"] == 1


def test_a_large_input_is_told_by_its_size():
    _, error = status("return await callTool('add', { n: 'x'.repeat(9000) })")
    assert error["toolInput"] == {"bytes": 9008}


@pytest.mark.parametrize("name", ["add", "nope", "asks", "echo"])
def test_an_input_that_is_too_deep_is_told_by_its_size(name: str):
    deep = "let deep = 1; [...Array(600)].forEach(() => { deep = [deep] });"
    said, error = status(f"{deep} return await callTool('{name}' + '', deep)")
    assert (said, error["toolName"], error["toolInput"]) == ("tool_error", name, {"bytes": 1201})


@pytest.mark.parametrize(
    "script",
    [
        "const ring = {}; ring.self = ring; return await callTool('echo', ring)",
        "return await callTool('echo', () => 1)",
        "try { await callTool('echo', Symbol('a')) } catch (error) { throw error }",
        "const kept = await callTool('echo', () => 1).catch((error) => error); await callTool('echo'); throw kept",
    ],
)
def test_an_input_that_is_no_json_is_the_error_of_its_call(script: str):
    kind, error = status(script)
    assert (kind, error["source"], error["toolName"], error["code"]) == ("tool_error", "tool", "echo", "VALIDATION")
    assert "toolInput" not in error
    assert error["message"].startswith('callTool("echo", input): the input ')
    # Another error with the same fields is the script's own.
    own = "const made = new Error('x'); made.code = 'VALIDATION'; made.toolName = 'echo'; throw made"
    assert status(own)[0] == "runtime_error"


def test_a_wrapped_error_is_the_scripts_own():
    for script in (
        "try { await callTool('add', {}) } catch (error) { throw new Error(error.message) }",
        "await callTool('add', {}).catch((error) => { throw { ...error } })",
        "try { await callTool('add', {}) } catch (error) { throw Object.assign(new Error('x'), error) }",
    ):
        assert status(script)[0] == "runtime_error"


def test_what_tools_raise_is_hidden_unless_it_is_asked_for():
    script = "return await callTool('books/ledger/close', {})"
    assert status(script)[1]["message"] == "the tool failed"
    shown = status(script, {"tool_errors": "message"})[1]["message"]
    assert "cannot open" in shown
    assert "srv" not in shown
    assert "7" not in shown


# --- runtime_error and timeout ---


@each_row(
    "script, name",
    [
        ("throw new TypeError('not like this')", "TypeError"),
        ("return missing + 1", "ReferenceError"),
        ("null.x", "TypeError"),
        ("throw 'text'", None),
        ("throw undefined", None),
        ("await new Promise(() => {})", None),
        ("callTool('echo', 1); return 'gone'", "CodeModeDetachedBridgeRequestError"),
        ("return [() => 1][0]", None),
        ("return Symbol('s')", None),
        ("return 'x'.repeat(2 ** 21)", "CodeModeSerializationError"),
        ("const f = () => f() + 1; return f()", None),
        ("return [...Array(2 ** 25)].map(() => 'x'.repeat(1000))", None),
        ("const f = (n) => callTool('echo', n).then(() => f(n + 1)); await f(0)", None),
    ],
)
def test_runtime_error(script: str, name: str | None):
    said, error = status(script, {"vm": {"maxSteps": 20}})
    assert said == "runtime_error"
    assert error["source"] == "script"
    assert error["name"] == name or (name is None and error["name"])
    assert isinstance(error["message"], str)
    assert error.keys() <= {"source", "name", "message", "stack", "hint"}


def test_the_words_of_a_limit_are_caught_and_uncaught():
    many = (
        "return (await Promise.all([...Array(40)].map(() => callTool('echo', 1).catch((error) => error.code)))).join()"
    )
    fails = {"settings": {"execution_policy": {"in_flight_limit": "fail"}}}
    assert run(many, fails)["result"] == ",".join(["1"] * 32 + ["LIMIT"] * 8)
    said, error = status("await Promise.all([...Array(40)].map(() => callTool('echo', 1)))", fails)
    assert said == "runtime_error"
    assert "32" in error["message"]
    assert error["message"].endswith("Await some before making more")


def test_what_a_script_throws_is_never_changed():
    said, error = status("throw new Error('cannot read /srv/secret/keys.pem now')")
    assert said == "runtime_error"
    assert error["message"] == "cannot read /srv/secret/keys.pem now"
    assert run("console.log('/srv/secret/keys.pem'); return 1")["logs"][0]["message"] == "/srv/secret/keys.pem"


@pytest.mark.parametrize("end", ["const f = () => Promise.resolve().then(f); await f()", "await callTool('hang')"])
def test_timeout(end: str, passing_time: Any):
    async def begun(_value: Any) -> None:
        # A script that a busy machine has not begun by then leaves nothing to go on from.
        asyncio.get_running_loop().call_later(0.05, passing_time.skip, 61)

    clock = {"settings": {"execution_policy": {"timeout_includes_tools": True}}, "vm": {"timeoutMs": 60_000}}
    tools = create_code_call_tools([*TOOLS, Tool("begun", execute=begun)], clock)
    answer = tools.execute_sync({"script": f"await callTool('begun'); {end}"})
    assert answer["status"] == "timeout"
    assert answer["error"].keys() == {"message"}
    assert "60000 ms" in answer["error"]["message"]
    assert isinstance(answer.exception, CodeModeTimeoutError)
    assert isinstance(answer.recovery, Interrupt)
    assert answer.trace is not None


def test_what_the_host_is_told_beside_the_answer():
    answer = run("return await callTool('add', { n: 1 })")
    assert answer.exception is None
    assert answer.recovery is None
    assert [call.tool_name for call in answer.trace.bridge_requests] == ["add"]
    failed = run("return await callTool('books/ledger/close', {})")
    assert "ledger.db" in str(failed.exception.__cause__)
    assert "ledger.db" not in json.dumps(failed)


# --- the host's own trouble ---


async def while_one_runs(then: Callable[[Any, asyncio.Task[Any]], Any], pool: WorkerPool | None = None) -> Any:
    """Do something while a script waits for its tool, and end that script."""
    begun = asyncio.Event()

    async def begin(_value: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    tools = create_code_call_tools([Tool("begin", execute=begin)], pool=pool)
    task = asyncio.ensure_future(tools.execute({"script": "await callTool('begin')"}))
    await begun.wait()
    try:
        return await then(tools, task)
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_a_pool_that_is_full_raises():
    async def another(tools: Any, _task: Any) -> None:
        with pytest.raises(CodeModeConcurrencyError):
            await tools.execute({"script": "return 1"})

    with WorkerPool(PoolOptions(max_workers=1)) as pool:
        within(while_one_runs(another, pool))


def test_a_cancelled_script_raises():
    async def cancelled(_tools: Any, task: asyncio.Task[Any]) -> None:
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert isinstance(caught.value.__cause__, CodeModeAbortedError)
        assert isinstance(caught.value.__cause__.recovery, Interrupt)

    within(while_one_runs(cancelled))


def test_a_host_without_workers_raises():
    with WorkerPool(PoolOptions(worker_command=("/nonexistent/python",), start_method="exec")) as pool:
        tools = create_code_call_tools(TOOLS, pool=pool)
        with pytest.raises(CodeModeWorkerError):
            tools.execute_sync({"script": "return 1"})
