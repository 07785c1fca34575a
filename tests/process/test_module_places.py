"""Lines and columns of `codemode.run` are the author's, whatever the engine reads in place of imports."""

from __future__ import annotations

import re

import pytest
from module_servers import RESULT, answer, result_of, run_tool
from suite import each_row

HUB = "@codemode/servers/git-hub"
HEAD = f'import * as hub from "{HUB}"'
LINES = re.compile("\r\n|\n|\r")


def diagnosed(code: str) -> list[tuple[str, str | None]]:
    response = answer(code, run_tool())
    assert response["result"] is None
    return [(one["code"], one.get("path")) for one in response["diagnostics"]]


def marked(code: str) -> tuple[str, list[str]]:
    """A program without its marks, and where they stood."""
    places: list[str] = []
    while "§" in code:
        at = code.index("§")
        lines = LINES.split(code[:at])
        places.append(f"{len(lines)}:{len(lines[-1].encode('utf-16-le')) // 2 + 1}")
        code = code[:at] + code[at + 1 :]
    return code, places


@each_row(
    "code",
    [
        "§gone.x",
        f"{HEAD}; §gone.x",
        f"{HEAD}\n§gone.x",
        f"{HEAD}\r\n  §gone.x",
        f"{HEAD}\r\t§gone.x",
        f"/* é😀 */ {HEAD}; §gone.x",
        f"{HEAD}; await import('nope').catch(() => 1); §gone.x",
        f"import type {{ A }} from 'é'; {HEAD};const x: A = §gone.x",
        f"#!/usr/bin/env node\n{HEAD}\n`é😀`; §gone.x",
        f"/*\r*/\r\n\r{HEAD}\n\n§gone.x",
        f"export * from '{HUB}'; export default §gone.x",
    ],
)
def test_places_of_errors_at_run_time(code: str):
    program, (place,) = marked(code)
    assert diagnosed(program) == [("UNCAUGHT_EXCEPTION", place)]


@each_row(
    "code",
    [
        "const §= 1",
        f"{HEAD}; const §= 1",
        f"/* é😀 */ {HEAD}\r/* é😀 */ const §= 1",
        # The engine means the end of the name.
        f"{HEAD}; let hub§",
        f"{HEAD}\n\nexport {{ §zz }}",
        f"{HEAD}\nconst é = §/(/",
        f"{HEAD}; let s: string = 'é'; const §= 1",
        "import { §await } from 'x'",
        "if (1) { import §'x' }",
        "a§\0",
    ],
)
def test_places_of_syntax_errors(code: str):
    program, (place,) = marked(code)
    assert diagnosed(program) == [("SYNTAX_ERROR", place)]


def test_places_of_imports_and_calls_that_cannot_be():
    wrong = f'/* é😀 */ import §d, {{\n  §nope as a }} from "{HUB}"\n§import x from "fs"; {HEAD}\nawait §hub.no_such()'
    program, places = marked(wrong)
    assert diagnosed(program) == [*(("IMPORT_FAILURE", place) for place in places[:3]), ("TOOL_NOT_FOUND", places[3])]


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (f"let x = [1, 2]\n{HEAD}\n[0].length; {RESULT}x", [1, 2]),
        (f"{RESULT}typeof f(); function f() {{ return hub }}\n{HEAD}", "object"),
        (f"let $codemode = 1, impo$_ = 2; {HEAD}; await import('{HUB}'); {RESULT}[$codemode, impo$_]", [1, 2]),
        (f"{HEAD}; {RESULT}[typeof $codemode, '$codemode' in globalThis]", ["undefined", False]),
        (f"{RESULT}await import('<input>').catch((e) => e.name)", "CodemodeError"),
        (f"{RESULT}'import(1)' + /import/.source + ({{ import: 1 }}).import", "import(1)import1"),
    ],
)
def test_what_stands_in_their_place_is_not_seen(code: str, result: object):
    assert result_of(code, run_tool()) == result


def test_what_may_be_read_in_another_way_does_not_run():
    (one,) = answer("let x = 1; var of; x = of / 2 / 1\nimport('x')", run_tool())["diagnostics"]
    assert one["code"] == "NOT_ANALYSABLE"
