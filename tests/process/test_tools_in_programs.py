"""Tools as programs see them: how they are reached, and what crosses."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import threading

import pydantic
import pytest
from suite import each_row

from codemode import CodeModeError, Tool, continue_interrupt_sync, run_code_mode_sync
from codemode.errors import CodeModeSerializationError


async def echo(value):
    return value


ECHO = Tool("echo", execute=echo)


OBJECT_SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"default": 5}}, "required": ["a"]}


def named(*names):
    return [Tool(name, execute=functools.partial(lambda name, value: [name, value], name)) for name in names]


# --- how tools are reached ---


@each_row(
    "name, js",
    [
        ("a.b", "tools.a.b(1)"),
        ("a.b", "tools['a.b'](1)"),
        ("a.b.c", "tools.a['b'].c(1)"),
        ("a.b.c", "tools['a.b'].c(1)"),
        ("kebab-name", "tools['kebab-name'](1)"),
        ("with space", "tools['with space'](1)"),
        ("ünï", "tools.ünï(1)"),
        ("class", "tools.class(1)"),
        ("name", "tools.name(1)"),
        ("length", "tools.length(1)"),
        ("apply", "tools.apply(1)"),
        ("call", "tools.call(1)"),
        ("bind", "tools.bind(1)"),
        ("a.call", "tools.a.call(1)"),
        ("hasOwnProperty", "tools.hasOwnProperty(1)"),
        ("__proto__", "tools['__proto__'](1)"),
        ("0", "tools[0](1)"),
        ("echo", "(0, tools.echo)(1)"),
        ("echo", "(tools => tools.echo(1))(tools)"),
        ("echo", "(({echo}) => echo(1))(tools)"),
        ("echo", "[1].map(tools.echo)[0]"),
        ("echo", "tools?.echo?.(1)"),
        ("echo", "Reflect.apply(tools.echo, null, [1])"),
    ],
)
def test_a_property_chain_is_a_name(run, name, js):
    assert run(f"return await {js}", named(name)) == [name, 1]


@each_row(
    "js",
    [
        "tools.constructor({})",
        "tools['constructor']({})",
        "tools.toString().x()",
        "tools.prototype({})",
        "tools.toJSON({})",
        "tools.then(x => x)",
        "tools[Symbol.iterator]()",
        "new tools.echo(1)",
        "tools.echo.apply(null, [1])",
        "tools['__proto__']({})",
        "tools['a.__proto__']({})",
        "tools['echo.constructor']({})",
        "tools['']({})",
        "tools({})",
        "tools['x'.repeat(300)]({})",
        "tools.ECHO(1)",
        "tools['echo ']({})",
    ],
)
def test_what_is_no_tool_reaches_no_tool(run, js):
    ran = []

    async def note(value):
        ran.append(value)

    with pytest.raises(CodeModeError):
        run(f"return await {js}", [Tool("echo", execute=note)], check_program=False)
    assert ran == []


def test_the_tools_object_is_inert(run):
    js = """
      const awaited = await tools;
      return [typeof tools.then, typeof tools.a, typeof tools.a.b, typeof tools[Symbol.iterator], Object.keys(tools.a),
        'then' in tools, JSON.stringify({tools}), awaited === tools, String(tools), Object.getPrototypeOf(tools),
        tools.echo === tools.echo];
    """
    assert run(js, [ECHO]) == [
        "undefined", "function", "function", "undefined", [], False, "{}", True, "[tool]", None, True,
    ]  # fmt: skip


LISTED = """
const seen = [Object.keys(tools), Reflect.ownKeys(tools), []];
for (const name in tools) seen[2].push(name);
const calls = Object.entries(tools).map(([name, call]) => call({ name }));
const names = ['echo', 'a.b', 'a', 'then', 'toString', '__proto__', '$search', Symbol.iterator];
const some = names.filter((name) => name in tools);
return [...seen, some, await Promise.all(calls), (await { ...tools }['a.b'](7))];
"""


def test_a_program_lists_the_tools_and_nothing_else(run):
    names = ["echo", "constructor", "a.b", "größe"]
    tools = [dataclasses.replace(ECHO, name=name) for name in names]
    listed, owned, looped, some, answers, spread = run(LISTED, tools)
    assert listed == owned == looped == names
    assert some == ["echo", "a.b"]
    assert (answers, spread) == ([{"name": name} for name in names], 7)
    assert run("return Object.keys(tools)", []) == []


def test_many_are_listed_and_each_is_a_call(run):
    tools = [dataclasses.replace(ECHO, name=f"tool_{number}") for number in range(1500)]
    assert run("return [Object.entries(tools).length, await Object.values(tools).at(-1)(1)]", tools) == [1500, 1]


def test_a_pause_goes_on_with_the_names_that_it_began_with():
    js = "const before = Object.keys(tools); await tools.gated(1); return [before, Object.keys(tools)];"
    gated = dataclasses.replace(ECHO, name="gated", needs_approval=True)
    options = {"approval": {"mode": "interrupt"}}
    paused = run_code_mode_sync(js, [gated], options=options)
    later = [gated, ECHO]
    assert continue_interrupt_sync(paused, {"approved": True}, tools=later, options=options) == [["gated"], ["gated"]]
    assert run_code_mode_sync("return Object.keys(tools)", later) == ["gated", "echo"]


@pytest.mark.parametrize(
    "js",
    [
        "tools.echo = () => 1",
        "delete tools.echo",
        "Object.defineProperty(tools, 'echo', {value: 1})",
        "'use strict'; tools = 1",
        "Object.setPrototypeOf(tools, {})",
        "tools.echo.x = 1",
    ],
)
def test_the_tools_object_cannot_be_changed(fails, js):
    assert fails(CodeModeError, js, [ECHO]).details["name"] == "TypeError"


@pytest.mark.parametrize("js", ["tools()", "tools['']()", "tools(1).catch(() => 0)"])
def test_a_call_without_a_name_is_an_error(fails, js):
    assert "missing tool name" in str(fails(CodeModeError, js, [ECHO], check_program=False))


@pytest.mark.parametrize(
    "js",
    ["undefined", "() => 1", "Symbol('s')", "(() => { const a = []; a.push(a); return a })()",
     "{get x() { throw new TypeError('no') }}", "{toJSON() { throw new TypeError('no') }}", "{toJSON() {}}"],
)  # fmt: skip
def test_an_input_that_is_not_json_throws_at_the_call(run, js):
    program = f"let after = false; try {{ tools.echo({js}); after = true }} catch (e) {{ return [e.name, after] }}"
    assert run(program, [ECHO]) == ["TypeError", False]


def test_exactly_one_argument_crosses(run):
    seen = []
    tools = [Tool("note", execute=lambda value: seen.append(value))]
    assert run("return [await tools.note(), await tools.note(null), await tools.note(1, 2, 3)]", tools) == [None] * 3
    assert seen == [None, None, 1]


def test_an_absent_input_of_an_object_is_an_empty_object(run):
    schema = {"type": "object", "properties": {"b": {"default": 5}}}
    assert run("return await tools.t()", [Tool("t", execute=echo, input_schema=schema)]) == {"b": 5}


def test_undefined_comes_back_as_undefined(run):
    tools = [Tool("none", execute=lambda: None), Tool("null", execute=lambda: None, output_schema={"type": "null"})]
    assert run("return [typeof await tools.none(), (await tools.null()) === null]", tools) == ["undefined", True]


@each_row("value",
    [0, -1.5, 2**53, "", "a\0b", "\u2028", "\U0001f600", "\ufffd", [], {}, {"__proto__": {"x": 1}}, {"then": 1},
     {"": None}, [[[]]], True, {"constructor": 1, "toString": 2}, "x" * 200_000],
)  # fmt: skip
def test_values_cross_both_ways_unchanged(run, value):
    seen = []

    async def note(given):
        seen.append(given)
        return given

    tools = [Tool("note", execute=note), Tool("give", execute=lambda: value)]
    assert run("return await tools.note(await tools.give())", tools) == value
    assert seen == [value]


def test_a_returned_proto_key_changes_no_prototype(run):
    js = """
      const v = await tools.give();
      return [Object.getPrototypeOf(v) === Object.prototype, typeof v.x, Object.keys(v)];
    """
    assert run(js, [Tool("give", execute=lambda: {"__proto__": {"x": 1}})]) == [True, "undefined", ["__proto__"]]


def test_a_returned_thenable_is_data(run):
    assert run("const v = await tools.give(); return v", [Tool("give", execute=lambda: {"then": "x"})]) == {"then": "x"}


def test_what_pydantic_writes_as_json_crosses(run):
    class Model(pydantic.BaseModel):
        day: dt.date

    @dataclasses.dataclass
    class Point:
        x: int

    outputs = {"m": Model(day=dt.date(2024, 1, 2)), "p": Point(3), "s": {4}, "nan": float("nan")}
    expected = {"m": {"day": "2024-01-02"}, "p": {"x": 3}, "s": [4], "nan": None}
    assert run("return await tools.give()", [Tool("give", execute=lambda: outputs)]) == expected


@pytest.mark.parametrize("value", [object(), {"a": lambda: 1}, threading.Lock()])
def test_an_output_that_is_not_json_is_a_serialization_error(run, fails, value):
    tools = [Tool("give", execute=lambda: value)]
    error = fails(CodeModeSerializationError, "return await tools.give()", tools)
    assert "'give'" in str(error)
    caught = run("try { await tools.give() } catch (e) { return [e.name, e.code] }", tools)
    assert caught == ["CodeModeSerializationError", "CODE_MODE_SERIALIZATION_ERROR"]
