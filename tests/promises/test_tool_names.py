"""Every name that a tool can have is one that a program can call, and no reading of the language becomes a call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import each_row, rounds

from codemode import Interrupt, Tool, create_code_mode_tool, run_code_mode_sync
from codemode.tools.catalog import JAVASCRIPT_NAMES
from codemode.tools.tool import require_callable_name

NASTY = [
    *sorted(JAVASCRIPT_NAMES), "__proto__", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "arguments",
    "caller", "length", "name", "call", "apply", "bind", "__defineGetter__", "__lookupSetter__", "ns.toString",
    "constructor.prototype.x", "a.b.toJSON", "tools", "return", "class", "await", " ", "a b", '"', "'", "`", "x${y}",
    "\\", "0", "1.5", "-", "null",
    "undefined", "NaN", "日本", "🙂", "é", "e\u0301", "then.x", "ns.then", "a..b", ".", "..", "eval",
    "Symbol.iterator", "@@iterator", "asyncIterator", "catch", "finally", "next", "inspect", "nodeType",
    "ζ" * 64, "\U0001d4b3" * 128, "x" * 128,
]  # fmt: skip


def echo(name: str, **given: Any) -> Tool:
    return Tool(name, execute=lambda value: [name, value], **given)


ALL = create_code_mode_tool([echo(name) for name in NASTY])
READS = """
  String(tools), `${tools}`, tools + "", JSON.stringify([tools, { tools }]), [tools].toLocaleString(), [tools].join(),
  Object.prototype.toLocaleString.call(tools), Date.prototype[Symbol.toPrimitive].call(tools, "string"), `${tools.x}`,
  typeof tools, typeof tools.then, typeof (await Promise.resolve(tools)), Object.prototype.toString.call(tools),
  new Date(tools) instanceof Date, tools == "x", isNaN(+tools), JSON.stringify(tools)
"""


@each_row("name", NASTY[:: rounds(2, 1)])
def test_a_tool_of_any_name_can_be_called(name):
    js = f"return await tools[{json.dumps(name)}]({{ a: 1 }})"
    assert ALL.execute_sync({"js": js}) == [name, {"a": 1}]
    assert run_code_mode_sync(js, [echo(name)]) == [name, {"a": 1}]
    hidden = f"const name = JSON.parse({json.dumps(json.dumps(name))}); return await tools[name]({{ a: 1 }})"
    assert run_code_mode_sync(hidden, [echo(name)]) == [name, {"a": 1}]


@each_row("name", [name for name in NASTY if all(map(str.isidentifier, name.split("."))) and "then" not in name])
def test_a_tool_of_any_name_can_be_called_as_a_member(name):
    assert ALL.execute_sync({"js": f"return await tools.{name}({{ a: 1 }})"}) == [name, {"a": 1}]


@settings(max_examples=rounds(10, 60), deadline=None)
@given(st.text(min_size=1, max_size=12) | st.sampled_from(NASTY).map(lambda name: f"{name}.{name}"[:128]))
def test_a_name_is_refused_or_can_be_called(name):
    try:
        require_callable_name(name)
    except ValueError:
        return
    assert run_code_mode_sync(f"return await tools[{json.dumps(name)}](1)", [echo(name)]) == [name, 1]


def test_reading_tools_is_no_call_and_gives_the_same_with_such_names():
    js = f"return [{READS}]"
    expected = run_code_mode_sync(js, [echo("plain")])
    assert ALL.execute_sync({"js": js}) == expected
    js = "return await tools.plain({ a: tools, b: [tools.x], c: 1 })"
    assert run_code_mode_sync(js, [echo("plain"), echo("toJSON")]) == ["plain", {"b": [None], "c": 1}]


def test_tools_is_unchanged_without_such_names():
    js = "return [...LANGUAGE.map((name) => typeof tools[name]), typeof tools[Symbol.toPrimitive], tools.toString()]"
    js = js.replace("LANGUAGE", json.dumps(sorted(JAVASCRIPT_NAMES)))
    told = run_code_mode_sync(js, [echo("plain")], options={"execution_policy": {"check_program": False}})
    assert told == ["undefined", "undefined", "undefined", "function", "function", "function", "undefined", "[tool]"]


@each_row(
    "way",
    [
        "[1, 2].map(tools.NAME)",
        "[1, 2].map((n) => tools.NAME(n))",
        "[1, 2].map((n) => Reflect.apply(tools.NAME, null, [n]))",
    ],
)
@each_row("name", sorted(JAVASCRIPT_NAMES))
def test_every_way_to_call_is_a_call(name, way):
    js = f"return await Promise.all({way.replace('NAME', name)})"
    assert run_code_mode_sync(js, [echo(name)]) == [[name, 1], [name, 2]]


def test_a_call_by_an_odd_name_is_checked_approved_and_replayed():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    ran: list[Any] = []
    tools = [
        Tool(
            "constructor", execute=lambda value: ran.append(value) or "built", input_schema=schema, needs_approval=True
        ),
        echo("valueOf"),
    ]
    code_mode = create_code_mode_tool(tools, {"approval": {"mode": "interrupt"}})
    js = """
    const before = await tools.valueOf(1);
    return [before, await tools.constructor({ n: 2 }), String(tools)];
    """
    interrupt = code_mode.execute_sync({"js": js})
    assert isinstance(interrupt, Interrupt)
    assert (interrupt.tool_name, interrupt.input) == ("constructor", {"n": 2})
    # A host that has other tools by then: what the program could read is as it was.
    assert code_mode.resume_sync(interrupt.to_dict(), {"approved": True}) == [["valueOf", 1], "built", "[tool]"]
    assert ran == [{"n": 2}]


def test_a_tool_named_then_stays_refused():
    with pytest.raises(ValueError, match="then"):
        create_code_mode_tool([echo("then")])
    assert " constructor(input" in create_code_mode_tool([echo("constructor")]).description
