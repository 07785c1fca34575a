"""What a CodeCall script is given and may tell: getTool, codecallContext, mcpLog and mcpNotify, in the real kernel."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from kernel_driver import KernelDriver
from suite import each_row

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")
WEATHER = {"name": "weather.now", "description": "Says it.", "inputSchema": {"type": "object"}, "outputSchema": None}


@pytest.fixture
def script(kernel: KernelDriver) -> Any:
    return kernel.run_code_call


# --- getTool ---


def test_get_tool_knows_what_was_given(script):
    js = """
    const found = getTool('weather.now');
    let refused = 0;
    for (const change of [() => { found.name = 'x' }, () => { found.inputSchema.type = 'x' }, () => { found.y = 1 }])
      try { change() } catch { refused++ }
    return [found, refused, Object.keys(found), getTool('weather.now') === found];
    """
    found, refused, keys, is_same = script(js, given={"definitions": {"weather.now": WEATHER}}).value
    assert (found, refused, is_same) == (WEATHER, 3, True)
    assert keys == ["name", "description", "inputSchema", "outputSchema"]


def test_a_definition_has_no_more_than_its_four_fields(script):
    given = {"definitions": {"a": {"name": "a", "description": "", "inputSchema": {"n": 2**60}, "secret": 1}}}
    said = script("const a = getTool('a'); return [a, typeof a.inputSchema.n]", given=given)
    assert said.value == [{"name": "a", "description": "", "inputSchema": {"n": 2**60}, "outputSchema": None}, "bigint"]


ODD_NAMES = [
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    "valueOf",
    "",
    "weather",
    "length",
    "WEATHER.NOW",
]


@each_row("name", ODD_NAMES)
def test_other_names_are_undefined_when_all_were_given(script, name):
    given = {"definitions": {"weather.now": WEATHER}}
    assert script(f"return getTool({name!r}) === undefined", given=given).value is True


@each_row("name", ODD_NAMES)
def test_other_names_throw_when_not_all_were_given(script, name):
    given = {"definitions": {"weather.now": WEATHER, "gone": None}, "all": False}
    error = script(f"getTool({name!r})", given=given).error
    assert error["name"] == "Error"
    assert 'getTool("name")' in error["message"]
    assert script("return [getTool('gone') === undefined, getTool('weather.now').name]", given=given).value == [
        True,
        "weather.now",
    ]


def test_odd_names_are_found_when_there_are_tools_of_them(script):
    given = {"definitions": {name: {**WEATHER, "name": name} for name in ODD_NAMES}}
    js = f"return {ODD_NAMES!r}.map((name) => getTool(name).name)"
    assert script(js, given=given).value == ODD_NAMES


@pytest.mark.parametrize("name", ["undefined", "1", "null", "{}", "Symbol.iterator", "['weather.now']"])
def test_what_is_no_name_is_a_type_error(script, name):
    assert script(f"getTool({name})").error["name"] == "TypeError"


# --- codecallContext ---


def test_the_context_is_frozen_through_and_through(script):
    context = {"a": {"b": [{"c": 1}]}, "__proto__": {"d": 1}, "big": 2**60, "constructor": "x"}
    js = """
    const frozen = (value) => value === null || typeof value !== 'object' ||
      (Object.isFrozen(value) && Object.getOwnPropertyNames(value).every((key) => frozen(value[key])));
    let refused = 0;
    for (const change of [() => { codecallContext.a.b[0].c = 2 }, () => { codecallContext.a.b.push(1) },
      () => { codecallContext.n = 1 }, () => { codecallContext = 1 }, () => { delete codecallContext.a }])
      try { change() } catch { refused++ }
    return [codecallContext, frozen(codecallContext), refused, typeof codecallContext.big,
      Object.getPrototypeOf(codecallContext) === Object.prototype];
    """
    value = script(js, given={"context": context}).value
    assert value == [context, True, 5, "bigint", True]
    assert script("return codecallContext", given={"context": {}}).value == {}


def test_a_deep_context_is_frozen_too(script):
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    js = "let n = 0, at = codecallContext.deep; for (; Object.isFrozen(at) && at !== 1; n++) at = at[0]; return n"
    assert script(js, given={"context": {"deep": deep}}).value == 900


# --- mcpLog and mcpNotify ---


def test_what_a_script_tells_is_a_frame_of_its_own(script):
    js = """
    mcpLog('info', 'half', { n: [1] }); mcpLog('warning', { an: 'object' }); mcpNotify('done', null); mcpNotify('none');
    return [typeof mcpLog('debug', ''), typeof mcpNotify('big', 2n ** 60n)];
    """
    said = script(js)
    assert said.of_kind("N") == [
        {"kind": "log", "level": "info", "message": "half", "metadata": '{"n":[1]}'},
        {"kind": "log", "level": "warning", "message": '{"an":"object"}'},
        {"kind": "notify", "event": "done", "payload": "null"},
        {"kind": "notify", "event": "none"},
        {"kind": "log", "level": "debug", "message": ""},
        {"kind": "notify", "event": "big", "payload": str(2**60)},
    ]
    assert said.value == ["undefined", "undefined"]


@each_row(
    "js, name, says",
    [
        ("mcpLog(1, 'x')", "TypeError", "the level must be a string, not number"),
        ("mcpLog()", "TypeError", "the level must be a string, not undefined"),
        ("mcpLog({ toString() { return 'info' } }, 'x')", "TypeError", "the level must be a string, not object"),
        ("mcpNotify(null)", "TypeError", "the event must be a string, not null"),
        ("mcpNotify('e', () => 1)", "TypeError", "the payload must be a JSON value, not function"),
        ("mcpLog('info', 'x', Symbol.iterator)", "TypeError", "the metadata must be a JSON value, not symbol"),
        ("mcpNotify('e', { get x() { throw new EvalError('mine') } })", "EvalError", "mine"),
        ("mcpNotify('e', 'x'.repeat(16000))", "RangeError", "the payload is longer than 16000 characters of JSON"),
        ("mcpNotify('e'.repeat(101))", "RangeError", "the event is longer than 100 characters"),
        ("for (let i = 0; i < 4097; i++) mcpNotify('e')", "RangeError", "more than 4096 messages"),
        ("for (;;) mcpLog('info', 'x'.repeat(1000))", "RangeError", "max_console_bytes is 200000"),
        ("for (;;) mcpNotify('e', '\\u00fc'.repeat(1000))", "RangeError", "max_console_bytes is 200000"),
    ],
)
def test_what_cannot_be_told_throws(script, js, name, says):
    error = script(js, max_console_bytes=200_000).error
    assert error["name"] == name
    assert says in error["message"]


@pytest.mark.parametrize("shape", ["[value]", "{ a: 1, value }", "[1, { value }]"])
@pytest.mark.parametrize("filler", ["", ", 'x'.repeat(300)"])
def test_what_is_told_nests_no_deeper_than_a_host_reads(script, shape, filler):
    js = f"""
    const told = (count) => {{
      let value = 1;
      for (let i = 0; i < count; i++) value = {shape};
      try {{ mcpNotify('e', [value{filler}]); return 'told' }} catch (e) {{ return e.name + ': ' + e.message }}
    }};
    return [told(49), told(101), told(600)];
    """
    said = script(js)
    too_deep = "RangeError: mcpNotify(event, payload): the payload nests deeper than 100 levels"
    assert said.value == ["told", too_deep, too_deep]
    assert len(said.of_kind("N")) == 1


def test_notices_are_bounded_whatever_is_caught(script):
    js = "for (let i = 0; i < 9000; i++) try { mcpLog('info', 'x'.repeat(100)) } catch {} return 1"
    frames = script(js, max_console_bytes=200_000).of_kind("N")
    assert sum(len(str(frame)) for frame in frames) < 210_000
    js = "for (let i = 0; i < 9000; i++) try { mcpNotify('e') } catch {} return 1"
    assert len(script(js, max_console_bytes=1 << 20).of_kind("N")) == 4096


def test_a_long_message_is_cut_like_a_line_of_the_console(script):
    (notice,) = script("mcpLog('info', 'x'.repeat(9000))").of_kind("N")
    assert notice["message"] == "x" * 8000 + "\u2026"


# --- what none of them hands out ---


@each_row(
    "js",
    [
        "return [callTool, getTool, mcpLog, mcpNotify].every((f) => Object.isFrozen(f) && f.prototype === undefined)",
        "try { callTool.constructor('return 1')() } catch (e) { return e.name === 'EvalError' }",
        "try { new callTool('a') } catch (e) { return e.name === 'TypeError' }",
        "try { callTool.caller } catch (e) { return e.name === 'TypeError' }",
        "try { callTool = 1 } catch (e) { return e.name === 'TypeError' }",
        "try { globalThis.callTool = 1 } catch (e) { return e.name === 'TypeError' }",
        "return getTool.call({ definitions: { x: {} }, all: false }, 'x') === undefined",
        "return Object.getOwnPropertyNames(getTool).sort().join() === 'length,name'",
        "let a; const p = callTool('e', 1); Promise.prototype.then.call(p, (v) => { a = v }); await p; return a === 1",
        "class P extends Promise {} ; return await P.resolve(callTool('e', 1)) === 1",
        "const p = callTool('e', 1); return p.constructor !== undefined && await p.finally(() => {}) === 1",
    ],
)
def test_the_functions_are_closed(script, js):
    assert script(js).value is True
