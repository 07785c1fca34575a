"""Mistakes that models make in programs that are modules: each answer says the one thing to do about its own."""

from __future__ import annotations

import pytest
from module_servers import HUB, RESULT, answer, run_tool
from suite import each_row

TOOL = run_tool()
FENCED = ["```js\n{}\n```", "Here it is:\n\n```ts\n{}\n```\nThat is all.", "{}\n```", "1. first\n   ```\n{}"]


@pytest.mark.parametrize("around", FENCED)
def test_a_program_is_taken_out_of_the_markdown_around_it(around: str):
    response = answer(around.replace("{}", f"const found = 1;\n{RESULT}found;"), TOOL)
    assert response["result"] == 1
    assert {one["code"] for one in response["diagnostics"]} == {"PROGRAM_REPAIRED"}


def test_markdown_in_a_string_is_none_around_a_program():
    assert answer(f"const text = `\n```js\n`; {RESULT}1;".replace("```", "\\`\\`\\`"), TOOL)["result"] == 1
    response = answer("const text = 'a\n", TOOL)
    assert "Markdown" not in response["diagnostics"][0]["hint"]


HINTS = {
    f"{HUB}const r = await hub.echo({{}});\nreturn r;": "globalThis.__codemode_result__",
    "module.exports.a = 1;": "globalThis.__codemode_result__",
    "exports.a = 1;": "globalThis.__codemode_result__",
    'const hub = require("git-hub");': "import * as",
    "await fetch('https://example.com');": "no network",
    "new XMLHttpRequest();": "no network",
    "setInterval(() => {}, 1);": "setTimeout",
    "eval('1');": "never run",
    "new Function('return 1')();": "never run",
    "process.env.HOME;": "no Node.js",
    "crypto.randomUUID();": "no Node.js",
    "new AbortController();": "no Node.js",
    "structuredClone({});": "JSON.parse",
    "performance.now();": "Date.now",
    "await tools.echo({});": "import",
    "await echo({});": "import { echo }",
    f"{HUB}const {{ absent }} = hub; await absent();": "it is not a function",
    f"{HUB}hub.echo([1]).map((one) => one);": "Await the result of a tool",
    f"{HUB}(await hub.echo({{}})).a.b;": "console.log",
    "throw new Error('mine');": "catch",
    "throw new RangeError('mine is not defined');": "catch",
}


@each_row("code", HINTS)
def test_what_the_engine_says_comes_with_what_to_do(code: str):
    [said] = [one for one in answer(code, TOOL)["diagnostics"] if one["severity"] == "error"]
    assert HINTS[code] in said["hint"], said


@pytest.mark.parametrize("written", ["Git-Hub", "GIT-HUB", "Git Hub", "git_hub", "GitHub", "githubb"])
def test_a_server_in_other_letters_is_found(written: str):
    response = answer(f'import * as hub from "@codemode/servers/{written}";', TOOL)
    assert "@codemode/servers/git-hub" in response["diagnostics"][0]["hint"]


def test_a_wrong_input_says_in_its_hint_what_was_expected():
    [said] = answer(f"{HUB}await hub.create_issue({{ title: 'a', count: 'b' }});", TOOL)["diagnostics"]
    assert (said["path"], said["hint"]) == ("/count", "Change the value at /count: expected integer.")
