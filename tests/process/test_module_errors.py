"""The classes of @codemode/errors, on a worker with the real kernel and no host."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from kernel_driver import KernelDriver, Said
from suite import each_row

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")

CLASSES = [
    "AuthenticationError",
    "CodemodeError",
    "SandboxLimitError",
    "SchemaValidationError",
    "ServerNotFoundError",
    "ToolCallError",
    "ToolNotFoundError",
]
GITHUB = {"serverId": "github", "serverName": "GitHub", "tools": [{"toolName": "get", "exportName": "get"}]}
IMPORTS = [("@codemode/servers/github", "gh"), ("@codemode/errors", "errors")]
RESULT = "globalThis.__codemode_result__ = "
CAUGHT = "let error; try { await gh.get(1) } catch (caught) { error = caught }\n"
TOLD = {
    "class": "SchemaValidationError",
    "message": "must be a number",
    "code": "VALIDATION",
    "hint": "pass a number",
    "serverId": "github",
    "toolName": "get",
    "exportName": "get",
    "path": "/a/0",
    "expected": {"type": "number"},
    "received": None,
    "example": {"a": [1]},
}


@pytest.fixture
def program(kernel: KernelDriver) -> Any:
    def run(js: str, told: dict[str, Any] | None = None, **config: Any) -> Said:
        fields = TOLD if told is None else told
        frame = {"name": "Error", "message": fields["message"], "code": fields["code"], "fields": fields}
        return kernel.module(js, lambda _: {"error": frame}, imports=IMPORTS, given={"github": GITHUB}, **config)

    return run


# --- the classes ---


def test_there_are_seven_and_each_is_one_of_the_first(program):
    js = """
    const all = Object.entries(errors).map(([name, Class]) => {
      const error = new Class('m');
      return [name, Class.name, error.name, error instanceof Class, error instanceof errors.CodemodeError,
        error instanceof Error, String(error) === name + ': m', typeof error.hint, error.stack.length > 0];
    });
    const auth = new errors.AuthenticationError();
    globalThis.__codemode_result__ = [all, auth instanceof errors.ToolCallError,
      auth instanceof errors.SandboxLimitError];
    """
    every, is_call, is_limit = program(js).value
    assert every == [[name, name, name, True, True, True, True, "string", True] for name in CLASSES]
    assert (is_call, is_limit) == (True, False)


@pytest.mark.parametrize("name", CLASSES)
def test_every_field_survives_json(program, name):
    js = f"""
    const made = new errors.{name}('m', {{ code: 'X', path: '/a', expected: {{ b: [1] }}, received: undefined,
      own: 1 }});
    {RESULT}[JSON.stringify(made), JSON.stringify(new errors.{name}()), Object.keys({{ ...made }})];
    """
    made, plain, keys = program(js).value
    told = json.loads(made)
    hint = told.pop("hint")
    assert told == {"name": name, "message": "m", "code": "X", "path": "/a", "expected": {"b": [1]}, "own": 1}
    assert json.loads(plain) == {"name": name, "message": "", "hint": hint}
    assert len(hint) > 20
    assert set(keys) == {*told, "hint", "received"}


@each_row("made, value",
    [
        ("new errors.ToolCallError('m', { hint: 'mine' }).hint", "mine"),
        ("new errors.ToolCallError('m', { name: 'x', message: 'y', stack: 'z' }).name", "ToolCallError"),
        ("new errors.ToolCallError('m', { name: 'x', message: 'y', stack: 'z' }).message", "m"),
        ("new errors.ToolCallError('m', { cause: 'c' }).cause", "c"),
        ("new errors.ToolCallError({ toString() { return 'made' } }).message", "made"),
        ("(() => { let n = 0; new errors.ToolCallError({ toString() { return n++ } }); return n })()", 1),
        ("new errors.ToolCallError('m', 'text').message", "m"),
        ("new errors.ToolCallError('m', null).message", "m"),
        (("((e) => { e.name = 'Mine'; e.hint = 'h'; e.message = 'n'; return [String(e), e.hint] })(new "
        "errors.ToolCallError('m'))"), ["Mine: n", "h"]),
        (("(() => { class Mine extends errors.ToolCallError {} Mine.prototype.name = 'Mine'; return [new "
        "Mine('m').name, new Mine('m') instanceof errors.ToolCallError] })()"), ["Mine", True]),
        (("(() => { class Mine extends errors.ToolCallError { constructor() { super('m'); this.name = 'Mine' "
        "} } return String(new Mine()) })()"), "Mine: m"),
        ("(() => { class Mine extends errors.ToolCallError { hint = 'own' } return new Mine().hint })()", "own"),
        ("(() => { try { errors.ToolCallError('m') } catch (error) { return error.name } })()", "TypeError"),
        ("(() => { try { new errors.ToolCallError(Symbol()) } catch (error) { return error.name } })()", "TypeError"),
        (("(() => { try { new errors.ToolCallError('m', { get code() { throw new RangeError('r') } }) } "
        "catch (error) { return error.name } })()"), "RangeError"),
        ("new errors.ToolCallError('m', JSON.parse('{\"__proto__\": 1}')) instanceof errors.ToolCallError", True),
        ("Object.isFrozen(new errors.ToolCallError('m'))", False),
        ("Reflect.construct(errors.ToolCallError, ['m'], Object).message", "m"),
    ],
)  # fmt: skip
def test_programs_make_errors_of_their_own(program, made, value):
    assert program(RESULT + made).value == value


# --- those of the host ---


def test_the_error_of_a_call_has_all_its_fields_frozen_and_in_json(program):
    js = """
    let refused = 0;
    for (const change of [() => { error.code = 'X' }, () => { error.expected.type = 'X' }, () => { error.more = 1 },
      () => { delete error.path }, () => Object.setPrototypeOf(error, null), () => { error.example.a.push(2) },
      () => Object.defineProperty(error, 'message', { value: 'mine' }), () => { error.stack = '' }])
      try { change() } catch { refused++ }
    const frozen = (value) => value === null || typeof value !== 'object' ||
      (Object.isFrozen(value) && Object.values(value).every(frozen));
    globalThis.__codemode_result__ = [JSON.stringify(error), refused, frozen(error),
      error instanceof errors.SchemaValidationError,
      error instanceof Error, error.constructor === errors.SchemaValidationError,
        error.stack.includes('program.js:1:')];
    """
    text, refused, *rest = program(CAUGHT + js).value
    told = {key: value for key, value in TOLD.items() if key != "class"}
    assert json.loads(text) == {"name": "SchemaValidationError", **told}
    assert list(json.loads(text))[:3] == ["name", "message", "code"]
    assert (refused, rest) == (8, [True] * 5)


@pytest.mark.parametrize("name", CLASSES)
def test_the_host_chooses_the_class(program, name):
    told = {"class": name, "message": "m", "code": "C"}
    js = (
        CAUGHT
        + RESULT
        + f"[error.constructor === errors.{name}, error.name, JSON.parse(JSON.stringify(error)).hint.length > 20]"
    )
    assert program(js, told).value == [True, name, True]


@pytest.mark.parametrize(
    "told",
    [
        {"message": "m", "code": "C"},
        {"class": "Error", "message": "m", "code": "C"},
        {"class": "__proto__", "message": "m", "code": "C"},
    ],
)
def test_without_a_class_of_ours_it_is_the_first(program, told):
    assert program(CAUGHT + RESULT + "[error.name, error.constructor === errors.CodemodeError]", told).value == [
        "CodemodeError",
        True,
    ]


def test_an_error_without_fields_has_a_class_too(kernel):
    def refuse(_request: Any) -> dict[str, Any]:
        return {"error": {"name": "CodeModeToolError", "message": "no", "code": "CODE_MODE_TOOL_ERROR"}}

    js = CAUGHT + RESULT + "[error.name, error.code, error.message, Object.isFrozen(error)]"
    said = kernel.module(js, refuse, imports=IMPORTS, given={"github": GITHUB})
    assert said.value == ["CodemodeError", "CODE_MODE_TOOL_ERROR", "no", True]


# --- what the host is told ---


@pytest.mark.parametrize("js", ["await gh.get(1)", CAUGHT + "throw error", CAUGHT + "await Promise.reject(error)"])
def test_the_very_error_ends_the_program_with_class_and_fields(program, js):
    error = program(js).error
    assert (error["request"], error["class"], error["name"]) == (1, "SchemaValidationError", "SchemaValidationError")
    fields = {key: value for key, value in TOLD.items() if key not in ("class", "message")}
    assert json.loads(error["fields"]) == fields


@each_row(
    "forged",
    [
        "Object.assign(new Error(error.message), error)",
        "Object.create(error)",
        "new Proxy(error, {})",
        "new errors.SchemaValidationError(error.message, error)",
        "Reflect.construct(errors.SchemaValidationError, [error.message, error])",
        "Object.defineProperties(new Error(), Object.getOwnPropertyDescriptors(error))",
        "JSON.parse(JSON.stringify(error))",
        "new AggregateError([error])",
        "class extends errors.CodemodeError {}",
    ],
)
def test_no_other_error_is_that_of_the_call(program, forged):
    error = program(CAUGHT + f"throw ({forged})").error
    assert "request" not in error
    assert "limit" not in error


@each_row("thrown, name",
    [
        ("new errors.ToolCallError('m', { code: 'X' })", "ToolCallError"),
        ("new (class Mine extends errors.AuthenticationError {})('m')", "AuthenticationError"),
        ("Object.create(errors.SandboxLimitError.prototype)", "SandboxLimitError"),
        ("new Error('m')", None),
        ("{ class: 'ToolCallError', name: 'ToolCallError' }", None),
        ("'ToolCallError'", None),
        ("new Proxy({}, { getPrototypeOf() { throw 1 } })", None),
        (("new Proxy(Object.create(errors.ToolCallError.prototype), { getPrototypeOf() { return "
        "errors.AuthenticationError.prototype } })"), "AuthenticationError"),
        ("(() => { let p; p = new Proxy({}, { getPrototypeOf: () => p }); return p })()", None),
        ("new Proxy(new errors.ToolCallError('m'), { get() { throw 1 } })", "ToolCallError"),
        (("new errors.ToolCallError('m', { get hint() { return 'h' }, limit: 1, path: () => 1, expected: "
        "Symbol('x') })"), "ToolCallError"),
        ("Object.defineProperty(new errors.ToolCallError('m'), 'hint', { get() { throw 1 } })", "ToolCallError"),
    ],
)  # fmt: skip
def test_the_host_is_told_the_nearest_class_of_what_was_thrown(program, thrown, name):
    error = program(f"throw ({thrown})").error
    assert error.get("class") == name
    assert isinstance(json.loads(error.get("fields", "{}")), dict)


def test_fields_are_bounded_and_stay_json(program):
    js = """
    const long = 'x'.repeat(100000), deep = { long, more: [long] };
    throw new errors.ToolCallError('m', { code: long, hint: deep, path: '\\ud83d\\ude00'.repeat(5000),
      expected: deep, received: long, example: [deep], toolName: long, exportName: long, serverId: long, limit: long });
    """
    error = program(js).error
    assert len(error["fields"]) < 20_000
    fields = json.loads(error["fields"])
    assert len(fields) == 10
    assert all(len(value) <= 1501 for value in fields.values())


def test_without_memory_for_an_error_the_program_still_ends(program):
    js = "const a = []; try { for (;;) a.push('x'.repeat(1000) + a.length) } catch {} throw new "
    "errors.ToolCallError('m')"
    said = program(js, memory_limit_bytes=6 << 20)
    assert said.kind == "X"
