"""Programs as models send them, in wrong forms: each gives the value that was meant, on every surface."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pytest
from suite import IS_FULL, rounds

from codemode import (
    CodeModeError,
    ModuleServer,
    WorkerPool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
    tool,
)


@tool
async def stock(product: str) -> int:
    """How many of a product are in stock."""
    return {"bolt": 120, "nut": 7}[product]


# Statements, the expression that is the result, and its value; `@stock` stands for the call as a surface writes it.
PROGRAMS: list[tuple[str, str, Any]] = [
    ("const a = await @stock({ product: 'nut' });", "a", 7),
    ('const a = await @stock({ product: "bolt" });\nconst b = a > 100 && a < 200;', "b", True),
    (
        "const names = ['nut', 'bolt'];\nconst all = await Promise.all(names.map((product) => @stock({ product })));",
        "all",
        [7, 120],
    ),
    (
        "let sum = 0;\nfor (const product of ['nut', 'bolt']) {\n  sum += await @stock({ product });\n}",
        "{ sum }",
        {"sum": 127},
    ),
    ("const n = await @stock({ product: 'nut' });\nconst text = `${n} nuts`;", "text", "7 nuts"),
    ("// how many\nconst n = await @stock({ product: 'nut' }); /* and */\nconst m = n & 3;", "[n, m]", [7, 3]),
    (
        "const rows = [{ id: 1, name: 'a < b' }, { id: 2, name: 'c & d' }];",
        "rows.filter((row) => row.id >= 2)",
        [{"id": 2, "name": "c & d"}],
    ),
    ("const é = 'ü😀';\nconst n = await @stock({ product: 'nut' });", "é + n", "ü😀7"),
    (
        "function double(n) {\n  return n * 2;\n}\nconst n = double(await @stock({ product: 'nut' }));",
        "n",
        14,
    ),
    ("const n: number = await @stock({ product: 'nut' });", "n as number", 7),
]

Form = Callable[[str, str], str]


def whole(statements: str, result: str) -> str:
    return f"{statements}\nreturn {result};"


def block(statements: str, result: str) -> str:
    return "{\n" + whole(statements, f"({result})") + "\n}"


MARKDOWN: dict[str, Form] = {
    "fenced": lambda s, r: f"```js\n{whole(s, r)}\n```",
    "fenced as TypeScript": lambda s, r: f"\n```typescript\n{whole(s, r)}\n```\n",
    "fenced without a language": lambda s, r: f"```\n{whole(s, r)}\n```",
    "prose around a fence": lambda s, r: f"Here's the program:\n\n```javascript\n{whole(s, r)}\n```\n\nIt counts.",
    "a label before a fence": lambda s, r: f"Program:\n```js\n{whole(s, r)}\n```",
    "two fences": lambda s, r: f"First\n```js\nreturn 'wrong';\n```\nbetter:\n```js\n{whole(s, r)}\n```",
    "another language beside it": lambda s, r: f"```js\n{whole(s, r)}\n```\nprints\n```json\n{{}}\n```",
    "a fence that is not closed": lambda s, r: f"Sure:\n```js\n{whole(s, r)}",
    "indented fence": lambda s, r: f"  ```js\n{whole(s, r)}\n  ```",
    "in JSON as js": lambda s, r: json.dumps({"js": whole(s, r)}),
    "in JSON as code": lambda s, r: json.dumps({"code": whole(s, r)}, indent=2, ensure_ascii=False),
    "in JSON as script": lambda s, r: json.dumps({"script": whole(s, r), "why": "to count"}),
    "JSON in a fence": lambda s, r: f"```json\n{json.dumps({'js': whole(s, r)})}\n```",
}
FUNCTIONS: dict[str, Form] = {
    "arrow": lambda s, r: f"async () => {block(s, r)}",
    "arrow with tools": lambda s, r: f"async (tools) => {block(s, r)}",
    "arrow in parentheses": lambda s, r: f"(async () => {block(s, r)});",
    "function": lambda s, r: f"async function main() {block(s, r)}",
    "function with a comment": lambda s, r: f"// counts\nasync function countAll() {block(s, r)}\n// that is all",
    "function that is called": lambda s, r: f"async function main() {block(s, r)}\n\nmain();",
    "function that is awaited": lambda s, r: f"async function main() {block(s, r)}\nawait main()",
    "function with catch": lambda s, r: (
        f"async function main() {block(s, r)}\nmain().catch((error) => {{ throw error; }});"
    ),
    "arrow with a name": lambda s, r: f"const run = async () => {block(s, r)};\nrun();",
    "arrow with a name that nothing calls": lambda s, r: f"const run = async () => {block(s, r)};",
    "called in place": lambda s, r: f"(async () => {block(s, r)})();",
    "called in place and awaited": lambda s, r: f"await (async function () {block(s, r)})();",
    "function exported by default": lambda s, r: f"export default async function main() {block(s, r)}",
    "function without a name exported": lambda s, r: f"export default async function () {block(s, r)}",
    "arrow exported by default": lambda s, r: f"export default async () => {block(s, r)};",
    "name exported by default": lambda s, r: f"async function go() {block(s, r)}\nexport default go;",
    "function in a fence": lambda s, r: f"```js\nasync () => {block(s, r)}\n```",
}
ESCAPES: dict[str, Form] = {
    "HTML entities": lambda s, r: html.escape(whole(s, r)),
    "written line breaks": lambda s, r: whole(s, r).replace("\n", "\\n"),
    "escaped backticks": lambda s, r: whole(s, r).replace("`", "\\`").replace("${", "\\${"),
}
OF_MODULES: dict[str, Form] = {
    "result exported": lambda s, r: f"{s}\nexport const result = {r};",
    "result exported by name": lambda s, r: f"{s}\nconst found = {r};\nexport {{ found as result }};",
    "value exported by default": lambda s, r: f"{s}\nexport default {r};",
    "result beside another export": lambda s, r: f"export const other = 1;\n{s}\nexport const result = {r};",
    "exported function that takes something": lambda s, r: (
        f"export default (one) => one;\n{s}\nglobalThis.__codemode_result__ = {r};"
    ),
}


def wrong_programs(forms: dict[str, Form]) -> Iterator[tuple[str, str, Any]]:
    for name, form in forms.items():
        for at, (statements, result, value) in enumerate(PROGRAMS):
            if IS_FULL or at in (0, 5, 7):
                yield f"{name}, program {at}", form(statements, f"({result})" if ":" in result else result), value


def on_surfaces(pool: WorkerPool) -> tuple[dict[str, Callable[[str], Any]], Any]:
    code_mode = create_code_mode_tool([stock], pool=pool)
    code_call = create_code_call_tools([stock], pool=pool)
    pair = create_exec_wait_tools([stock], {"wait_timeout_ms": 60_000}, pool=pool)
    modules = create_modules_tool([ModuleServer("shop", [stock])], pool=pool)

    def as_module(text: str) -> Any:
        head = 'import { stock } from "@codemode/servers/shop";\n'
        answer = modules.execute_sync({"code": _with_import(text, head)})
        return answer["result"] if answer["result"] is not None else answer["diagnostics"]

    def as_script(text: str) -> Any:
        answer = code_call.execute_sync({"script": text.replace("@stock(", "callTool('stock', ")})
        return answer.get("result", answer)

    def as_exec(text: str) -> Any:
        answer = pair.exec.execute_sync({"code": text.replace("@", "tools.")})
        return answer.get("value", answer)

    found = {
        "codeMode": lambda text: code_mode.execute_sync({"js": text.replace("@", "tools.")}),
        "CodeCall": as_script,
        "exec": as_exec,
        "modules": as_module,
    }
    return found, pair


def _with_import(text: str, head: str) -> str:
    fence = re.search(r"```(?:js|javascript|typescript)?\n(?!return 'wrong')", text)
    at = 0 if fence is None else fence.end()
    return (text[:at] + head + text[at:]).replace("@stock", "stock")


@pytest.fixture(scope="module")
def surfaces() -> Iterator[dict[str, Callable[[str], Any]]]:
    with WorkerPool({"max_workers": 2}) as pool:
        found, pair = on_surfaces(pool)
        yield found
        asyncio.run(pair.aclose())


def each_on_one(programs: Iterable[tuple[str, str, Any]], at: int, surfaces: int) -> Iterator[tuple[str, str, Any]]:
    """Return what a surface is tried with: all programs in the full suite, and else those that no other one has."""
    return islice(programs, rounds(at, 0), None, rounds(surfaces, 1))


def test_functions_give_their_value_on_every_surface(surfaces: dict[str, Callable[[str], Any]]) -> None:
    for at, (surface, run) in enumerate(surfaces.items()):
        for name, text, value in each_on_one(wrong_programs(FUNCTIONS), at, len(surfaces)):
            if (surface == "modules" and "tools" in name) or (surface == "CodeCall" and "for (" in text):
                continue  # a module has no `tools`, and the preset of CodeCall no loops
            assert run(text) == value, (surface, name, text)


def test_wrapped_and_escaped_programs_give_their_value(surfaces: dict[str, Callable[[str], Any]]) -> None:
    names = ("codeMode", "CodeCall", "exec")
    for at, surface in enumerate(names):
        for name, text, value in each_on_one(wrong_programs(MARKDOWN | ESCAPES), at, len(names)):
            if surface == "CodeCall" and ("script" in name.split() or "for (" in text):
                continue  # this test writes no quotes in quotes, and the preset has no loops
            assert surfaces[surface](text) == value, (surface, name, text)


def test_modules_give_what_they_export(surfaces: dict[str, Callable[[str], Any]]) -> None:
    for name, text, value in wrong_programs(OF_MODULES):
        assert surfaces["modules"](text) == value, (name, text)


def test_a_module_in_a_fence_gives_its_result(surfaces: dict[str, Callable[[str], Any]]) -> None:
    text = "Here:\n```js\nglobalThis.__codemode_result__ = await @stock({ product: 'nut' });\n```"
    assert surfaces["modules"](text) == 7


def test_an_assigned_result_of_a_module_counts_before_its_exports(surfaces: dict[str, Callable[[str], Any]]) -> None:
    answer = create_modules_tool([]).execute_sync({"code": "globalThis.__codemode_result__ = null;\nexport default 1;"})
    assert answer["result"] is None
    assert not any(one["code"] == "NO_RESULT" for one in answer["diagnostics"])


def test_the_program_may_come_under_another_usual_name(surfaces: dict[str, Callable[[str], Any]]) -> None:
    assert create_code_mode_tool([stock]).execute_sync({"code": "return 1"}) == 1
    assert create_code_call_tools([stock]).execute_sync({"code": "return 1"})["result"] == 1
    pair = create_exec_wait_tools([stock])
    assert pair.exec.execute_sync({"script": "return 1"})["value"] == 1
    asyncio.run(pair.aclose())
    assert create_modules_tool([]).execute_sync({"js": "globalThis.__codemode_result__ = 1"})["result"] == 1


def test_what_was_done_is_told_where_a_surface_has_a_place_for_it(surfaces: dict[str, Callable[[str], Any]]) -> None:
    fenced = "```js\nreturn 1\n```"
    note = "took the program out of its Markdown fence"
    traces: list[Any] = []
    options: Any = {"lifecycle": {"on_trace": traces.append}}
    create_code_mode_tool([stock], options).execute_sync({"js": fenced})
    assert traces[0].notes == (note,)
    assert note in traces[0].to_text()
    assert create_code_call_tools([stock]).execute_sync({"script": fenced})["warnings"] == [note]
    pair = create_exec_wait_tools([stock])
    assert pair.exec.execute_sync({"code": fenced})["telemetry"]["warnings"] == [note]
    asyncio.run(pair.aclose())
    module = "```js\nglobalThis.__codemode_result__ = 1\n```"
    (diagnostic,) = create_modules_tool([]).execute_sync({"code": module})["diagnostics"]
    assert (diagnostic["severity"], diagnostic["message"]) == ("info", note)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Here it is:\n```js\nconst a = 1;\n  null.x;\n```", (4, 3)),
        ("```js\nconst a = 1;\n  throw new Error('no')\n```", (3, 13)),
        ('{"js": "const a = 1;\\n  throw new Error(\'no\')"}', (1, 35)),
        ("const a = 1;\\n  throw new Error('no');", (1, 27)),
        ("if (1 &gt; 0) throw new Error(&#39;no&#39;)", (1, 25)),
        ("const t = \\`a\\`; throw new Error('no')", (1, 28)),
        ("async function main() {\n  throw new Error('no');\n}", (2, 13)),
    ],
)
def test_errors_name_the_place_in_the_text_that_was_sent(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(CodeModeError) as caught:
        create_code_mode_tool([stock]).execute_sync({"js": text})
    details = caught.value.details
    assert (details["line"], details["column"]) == place


def test_mistakes_name_the_place_in_the_text_that_was_sent() -> None:
    with pytest.raises(CodeModeError, match="line 1, column 28"):
        create_code_mode_tool([stock]).execute_sync(
            {"js": "const a = 1;\\nreturn await tools.stok({ product: 'nut' });"}
        )
