"""Errors in results, inputs, console output and state: name, message, code and own fields, on every surface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from codemode import (
    CodeModeToolError,
    ModuleServer,
    Tool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
)

LOCKED = "order a is locked"


def pay(order: str) -> str:
    """Pay an order."""
    raise CodeModeToolError(f"order {order} is locked", code="LOCKED")


def echo(value: Any) -> Any:
    """Give back the input."""
    return value


TOOLS = [pay, Tool("echo", execute=echo)]


def _code_mode(body: str) -> Any:
    return create_code_mode_tool(TOOLS).execute_sync({"js": body.replace("@", "tools.")})


def _exec(body: str) -> Any:
    return create_exec_wait_tools(TOOLS).exec.execute_sync({"code": body.replace("@", "tools.")})["value"]


def _code_call(body: str) -> Any:
    script = body.replace("@pay(", "callTool('pay', ").replace("@echo(", "callTool('echo', ")
    return create_code_call_tools(TOOLS).execute_sync({"script": script})["result"]


def _modules(body: str) -> Any:
    code = 'import { pay, echo } from "@codemode/servers/shop";\n'
    code += f"globalThis.__codemode_result__ = await (async () => {{ {body.replace('@', '')} }})();"
    return create_modules_tool([ModuleServer("shop", TOOLS)]).execute_sync({"code": code})["result"]


SURFACES: tuple[Callable[[str], Any], ...] = (_code_mode, _exec, _code_call, _modules)


def test_what_a_tool_said_is_in_a_settled_reason_and_in_a_returned_error():
    for surface in SURFACES:
        settled = surface("return await Promise.allSettled([@pay({ order: 'a' })])")
        caught = surface("try { await @pay({ order: 'a' }) } catch (error) { return { ok: false, error } }")
        for error in (settled[0]["reason"], caught["error"]):
            assert (error["message"], error["code"]) == (LOCKED, "LOCKED"), surface
            assert error["name"], surface
            assert "stack" not in error, surface


PLAIN: dict[str, Any] = {
    "new TypeError('no')": {"name": "TypeError", "message": "no"},
    "Object.assign(new Error('no'), { code: 7, at: [1], stack: 's', f() {} })": {
        "name": "Error",
        "message": "no",
        "code": 7,
        "at": [1],
    },
    "new Error('a', { cause: new RangeError('b', { cause: { c: 1 } }) })": {
        "name": "Error",
        "message": "a",
        "cause": {"name": "RangeError", "message": "b", "cause": {"c": 1}},
    },
    "new AggregateError([new Error('a'), 5], 'm')": {
        "name": "AggregateError",
        "message": "m",
        "errors": [{"name": "Error", "message": "a"}, 5],
    },
    "new (class Mine extends Error { name = 'Mine'; status = 404 })('m')": {
        "name": "Mine",
        "message": "m",
        "status": 404,
    },
}


def test_an_error_is_its_name_message_code_and_fields_in_results_and_in_inputs():
    for surface in SURFACES:
        for js, fields in PLAIN.items():
            value = surface(
                f"const e = {js}; return [e, {{ e }}, await @echo({{ e }}), JSON.stringify(new Error('x'))]"
            )
            assert value == [fields, {"e": fields}, {"e": fields}, "{}"], (surface, js)


def test_a_field_of_an_error_that_cannot_be_written_is_left_out_alone():
    cases = {
        "const e = new Error('m'); e.self = e; e.within = { e }; e.ok = { b: 1 }": {"ok": {"b": 1}},
        "const e = new Error('m'); const ring = {}; ring.ring = ring; e.ring = ring; e.n = 1": {"n": 1},
        "const e = new Error('m'); e.x = { toJSON() { throw new Error('no') } }; e.cause = new Error('c')": {
            "cause": {"name": "Error", "message": "c"}
        },
        "const e = new Error('m'); Object.defineProperty(e, 'x', { enumerable: true, get() { throw 1 } })": {},
    }
    for js, fields in cases.items():
        value = _code_mode(f"{js}; return {{ e }}")
        assert value == {"e": {"name": "Error", "message": "m", **fields}}, js


def test_an_error_that_says_its_own_json_is_taken_at_its_word():
    assert _code_mode("return Object.assign(new Error('m'), { toJSON() { return 'mine' } })") == "mine"


def test_the_console_shows_the_code_and_fields_of_an_error_and_never_its_stack():
    js = "console.log(new Error('m'), Object.assign(new TypeError('t'), { code: 'C' }), { e: new Error('in') });"
    text = 'Error: m TypeError: t {"code":"C"} {"e":{"name":"Error","message":"in"}}'
    lines: list[str] = []
    options = {"lifecycle": {"on_console": lambda event: lines.append(event.text)}}
    create_code_mode_tool([], options).execute_sync({"js": js})
    assert lines == [text]
    said = create_modules_tool([]).execute_sync({"code": js})
    # Modules sort keys, so that the same values are the same text.
    assert said["logs"][0]["message"] == text.replace('"name":"Error","message":"in"', '"message":"in","name":"Error"')


def test_output_items_hold_the_fields_of_an_error():
    js = "text(new Error('m', { cause: 1 })); json({ e: new Error('m') })"
    answer = create_exec_wait_tools([]).exec.execute_sync({"code": js})
    text, item = answer["output"][:2]
    assert text["text"] == 'Error: m {"cause":1}'
    assert item["value"] == {"e": {"name": "Error", "message": "m"}}


def test_state_holds_the_fields_of_an_error():
    js = "await state.set('e', Object.assign(new Error('kept'), { code: 'C' })); return state.get('e')"
    value = create_code_mode_tool([], {"state": {}}).execute_sync({"js": js})
    assert value == {"name": "Error", "message": "kept", "code": "C"}


def test_promise_any_names_the_errors_behind_it():
    js = "[@pay({ order: 'a' }), Promise.reject(new RangeError('r')), Promise.reject({ a: 1 })]"
    for surface in SURFACES:
        message, error = surface(f"try {{ await Promise.any({js}) }} catch (e) {{ return [e.message, e] }}")
        for told in (LOCKED, "RangeError: r", '{"a":1}'):
            assert told in message, surface
        assert [one.get("message") for one in error["errors"]] == [LOCKED, "r", None], surface
    assert _code_mode("return Promise.any([Promise.reject(1), Promise.resolve(2)])") == 2
    assert _code_mode("return Promise.any([]).catch((e) => [e.name, e.message])") == [
        "AggregateError",
        "All promises were rejected",
    ]


def test_a_thrown_value_is_shown_with_its_json():
    thrown = {
        "{ sku: 'A1', left: 0 }": '{"sku":"A1","left":0}',
        "{ message: 'none', sku: 'A1' }": '"sku":"A1"',
        "'text'": "text",
        "42": "42",
        "[1, { a: 2 }]": '[1,{"a":2}]',
        "new Error('outer', { cause: new Error('inner') })": "outer (cause: Error: inner)",
        "Object.assign(new Error('m'), { rows: [1] })": 'm {"rows":[1]}',
    }
    for js, told in thrown.items():
        pair, call = create_exec_wait_tools([]), create_code_call_tools([])
        run = create_modules_tool([])
        answers = [
            pair.exec.execute_sync({"code": f"throw {js}"})["error"],
            call.execute_sync({"script": f"throw {js}"})["error"]["message"],
            run.execute_sync({"code": f"throw {js}"})["diagnostics"][0]["message"],
        ]
        for answer in answers:
            assert told in answer, (js, answer)
