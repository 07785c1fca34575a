"""Names that are not there are reported before anything runs, with what to use: tools without `tools`, other hosts."""

from __future__ import annotations

import pytest
from module_servers import HUB, RESULT, answer

from codemode import CodeModeError, create_code_call_tools, create_code_mode_tool, create_exec_wait_tools
from codemode.errors import CodeModeSyntaxError
from codemode.guest.analysis.free_names import LANGUAGE_NAMES

calls: list[str] = []


def stock(product: str) -> int:
    calls.append(product)
    return 7


def get_price(product: str) -> int:
    return 3


TOOLS = [stock, get_price]
# Each with a part of what is said of it in `codeMode`.
ABSENT = {
    "return await stock({ product: 'nut' })": "write `tools.stock(input)`",
    "return await getPrice({ product: 'nut' })": "write `tools.get_price(input)`",
    "return await callTool('stock', { product: 'nut' })": "write `tools.name(input)`",
    "const got = await fetch('https://example.com'); return got.status": "call a tool",
    "await new Promise((done) => setTimeout(done, 10)); return 1": "there are no timers",
    "return process.env.HOME": "this is no Node.js",
    "return Buffer.from('x').toString('base64')": "this is no Node.js",
    "return new Intl.NumberFormat('en-US').format(5)": "UTC and en-US alone",
    "return structuredClone({ a: 1 })": "JSON.parse(JSON.stringify(value))",
}
FINE = {
    "const stock = (one) => one; return stock(5)": 5,
    "function process(one) { return one } return process(5)": 5,
    "const { stock } = tools; return await stock({ product: 'nut' })": 7,
    "const run = (fetch) => fetch(5); return run((one) => one)": 5,
    "return typeof fetch === 'function' ? await fetch('x') : 5": 5,
    "return globalThis.fetch ? await fetch('x') : 5": 5,
    "if ('Buffer' in globalThis) return Buffer.from('x'); return 5": 5,
    "try { return await stock({ product: 'nut' }) } catch (error) { return error.name }": "ReferenceError",
    "return { fetch: 5, process: 6 }.fetch": 5,
    "// fetch(1)\nreturn 'fetch(1)'.length": 8,
    "class Buffer { get() { return 5 } } return new Buffer().get()": 5,
    "const made = { stock(one) { return one } }; return made.stock(5)": 5,
    "let fetch; fetch = (one) => one; return fetch(5)": 5,
    "catching: for (const document of [5]) return document": 5,
    "return parseInt('5') + Number('1') + [2].map(String).length": 7,
}


def test_each_is_reported_with_what_to_use_and_nothing_runs():
    tool = create_code_mode_tool(TOOLS)
    calls.clear()
    for js, said in ABSENT.items():
        with pytest.raises(CodeModeSyntaxError) as raised:
            tool.execute_sync({"js": f"await tools.stock({{ product: 'nut' }});\n{js}"})
        assert said in raised.value.message, js
        assert "is not defined" in raised.value.message, js
        assert raised.value.details["line"] == 2, js
    assert calls == []


def test_names_that_a_program_has_or_asks_for_are_left_alone():
    tool = create_code_mode_tool(TOOLS)
    for js, value in FINE.items():
        assert tool.execute_sync({"js": js}) == value, js


def test_a_name_that_the_surface_has_is_no_mistake():
    exec_tools = create_exec_wait_tools(TOOLS)
    timed = "await new Promise((done) => setTimeout(done, 1)); text('x'); return 5"
    assert exec_tools.exec.execute_sync({"code": timed})["value"] == 5
    fetching = create_code_mode_tool(TOOLS, {"fetch_policy": {"allowed_origins": ["https://example.com"]}})
    with pytest.raises(CodeModeError, match="evil") as raised:
        fetching.execute_sync({"js": "return await fetch('https://evil.example')"})
    assert not isinstance(raised.value, CodeModeSyntaxError)


def test_every_surface_names_how_tools_are_called_there():
    calls.clear()
    js = "return await stock({ product: 'nut' })"
    scripts = create_code_call_tools(TOOLS)
    told = scripts.execute_sync({"script": js})
    assert told["status"] == "syntax_error"
    assert 'write `callTool("stock", input)`' in told["error"]["message"]
    told = scripts.execute_sync({"script": "return await tools.stock({ product: 'nut' })"})
    assert 'write `callTool("name", input)`' in told["error"]["message"]
    ended = create_exec_wait_tools(TOOLS).exec.execute_sync({"code": js})
    assert ended["status"] == "failed"
    assert "write `tools.stock(input)`" in ended["error"]
    [said] = answer(f"{HUB}{RESULT}await echo(1);")["diagnostics"]
    assert (said["code"], said["message"]) == ("SYNTAX_ERROR", "echo is not defined")
    assert 'import { echo } from "@codemode/servers/git-hub"' in said["hint"]
    [said] = answer(f"{HUB}{RESULT}await hub.echo(1); await fetch('x');")["diagnostics"]
    assert "no network" in said["hint"]
    assert calls == []


def test_codes_of_rules_that_forbid_a_name_stay():
    told = create_code_call_tools(TOOLS).execute_sync({"script": "return await fetch('x')"})
    assert told["status"] == "illegal_access"
    ended = create_exec_wait_tools(TOOLS).exec.execute_sync({"code": "const fs = require('fs')"})
    assert (ended["status"], ended["code"]) == ("failed", "module_access_denied")


def test_the_functions_of_the_language_are_known():
    js = "return Object.getOwnPropertyNames(globalThis).filter((name) => typeof globalThis[name] === 'function')"
    exotic = {"InternalError", "SuppressedError", "Iterator", "ArrayBuffer", "DataView", "tools", "content"}
    found = {name for name in create_code_mode_tool([]).execute_sync({"js": js}) if not name.endswith("Array")}
    assert found - {name.decode() for name in LANGUAGE_NAMES} <= exotic
