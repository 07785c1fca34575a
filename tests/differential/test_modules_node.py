"""Modules are what Node takes for modules: the same programs, names, values and places, though nothing is linked."""

import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from module_engine import checked, evaluate
from module_forms import EXPORTS, MISTAKES, MODULES, SAME_PLACE, STATEMENTS, program
from node_answers import NodeAnswers
from required import missing, node_path
from suite import each_row, rounds

from codemode.guest.analysis import analyse

pytestmark = pytest.mark.node
SITE_PATHS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
PARSE_MS = 10_000
_analyser = analyse.load_analyser(SITE_PATHS)


@pytest.fixture(scope="module")
def node() -> Iterator[NodeAnswers]:
    script = Path(__file__).with_name("module_runs.js")
    with NodeAnswers(script, "--expose-internals", "--experimental-vm-modules") as started:
        yield started


def ours(source: str) -> dict[str, Any]:
    """What becomes of a program here, told as `module_runs.js` tells it."""
    result = checked(_analyser(source, PARSE_MS, analyse.MODULE))
    if "problems" in result:
        return {"stage": "syntax", **result["problems"][0]}
    if result["facts"] is None:
        return {"stage": "unknown"}
    module = result["facts"]["module"]
    requests = list(dict.fromkeys(one["from"] for one in module["imports"]))
    for one in module["imports"]:
        known = MODULES.get(one["from"])
        if known is None or any(name != "*" and name not in known for name, _ in one["names"]):
            return {"stage": "link", "requests": requests}
    ended = evaluate(result["js"], module, MODULES)
    found = {"requests": requests, "log": ended["log"]}
    if "error" not in ended:
        return {"stage": "done", **found}
    (place, *_) = re.findall(r"<input>:([0-9]+):", ended["stack"])
    return {"stage": "run", **found, "name": ended["error"], "line": int(place)}


def compared(node: NodeAnswers, source: str, *, strip: bool = False) -> str:
    """Compares a program with Node's reading of it; how far it came, in a word."""
    theirs, mine = node({"source": source, "modules": MODULES, "strip": strip}), ours(source)
    if mine["stage"] != "unknown":
        assert mine["stage"] == theirs["stage"], (source, mine, theirs)
        if mine["stage"] != "syntax":
            # Of what a module throws before its first call V8 may know no place, and says 1:1; of what is missing where
            # `export default` calls it, the place of the statement before.
            is_before = "default" in source and (theirs.get("line") or 0) < mine.get("line", 0)
            has_place = (theirs.get("line"), theirs.get("column")) != (1, 1) and not is_before
            same = {key: theirs[key] for key in mine.keys() & theirs.keys() if has_place or key != "line"}
            assert {**mine, **same} == mine, (source, mine, theirs)
    return mine["stage"]


def test_each_form_by_itself(node: NodeAnswers):
    head = "import { a } from 'm'\nimport * as b from 'n'\n"
    for piece in (*STATEMENTS, *EXPORTS):
        for name in ("a", "b", "c"):
            source = head + piece.replace("@", name) + "\nlog(1)"
            assert compared(node, source) != "unknown", source


@each_row("mistake", MISTAKES)
def test_each_mistake_by_itself(node: NodeAnswers, mistake: str):
    for source in (mistake, f"import {{ a as z }} from 'm';\n/* é😀 */ {mistake}", f"log(1)\n;{mistake}\nlog(2)"):
        found, theirs = ours(source), node({"source": source, "modules": MODULES})
        assert theirs["stage"] == "syntax", (source, theirs)
        assert found["stage"] == "syntax", (source, found)
        # Elsewhere the engine's place is the token behind the mistake, and Node's the end of the text, for instance.
        if mistake in SAME_PLACE:
            assert found["line"] == theirs["line"], (source, found, theirs)
            assert theirs["column"] <= found["column"] <= theirs["column"] + theirs["width"] + 1, (
                source,
                found,
                theirs,
            )


@settings(max_examples=rounds(30, 600), deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_programs_of_all_forms(node: NodeAnswers, seed: int):
    compared(node, program(Random(seed), may_fail=False))


@settings(max_examples=rounds(30, 300), deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_programs_with_mistakes(node: NodeAnswers, seed: int):
    source = program(Random(seed), may_fail=True)
    # Of a statement without an end the next one is the rest: what is one of them may be another's mistake.
    stages = ours(source)["stage"], node({"source": source, "modules": MODULES})["stage"]
    assert stages[0] == "unknown" or (stages[0] == "syntax") == (stages[1] == "syntax"), source


@pytest.mark.full
def test_few_programs_are_not_understood(node: NodeAnswers):
    stages = Counter(compared(node, program(Random(seed), may_fail=False)) for seed in range(400))
    assert stages["unknown"] <= 12
    assert min(stages[stage] for stage in ("done", "run", "link", "syntax")) >= 20


# `@` is where there may be blanks.
BROKEN = (
    "export@{@a@as@q@}@from@'m'@",
    "export@*@from@'m'@",
    "export@*@as@q@from@'m'@",
    "export@{@x@}@",
    "export@{@}@from@'m'",
    "export@{@x@as@default@}@",
    "export@{@x@as@from@}@",
    "import@{@a@as@q@}@from@'m'@",
    "import@*@as@q@from@'m'@",
    "import@q@from@'m'",
    "import@'m'",
    "import@q@,@{@a@}@from@'m'",
    "import@q@,@*@as@b@from@'m'",
    "export@let@z=1",
    "export@default@1",
    "export@default@function@(){}",
    "export@async@function@f(){}",
    "export@class@K{}",
    "export@const@z=1,@k=2",
)
BEHIND = ("", "\nlog(1)", ";log(2)", "\n;[1].map(log)", "\nvar from$ = 1, from\nfrom$")
# What the engine takes for no blank behind some words is not the parser's to say.
BETWEEN = ("\n", "\r", "\r\n", "//\n", "//c's\n", "//{\r\n", "/*\n*/", "/*'*/\n", "\n/*\n*/", "\n//x\n\n", " ")


@settings(max_examples=rounds(60, 600), deadline=None)
@given(st.sampled_from(BROKEN), st.sampled_from(BEHIND), st.randoms(use_true_random=False))
def test_a_line_may_break_between_any_two_words(node: NodeAnswers, form: str, behind: str, random: Random):
    first, *rest = form.split("@")
    broken = first + "".join(random.choice((*BETWEEN, " ", " ")) + word for word in rest)
    assert compared(node, f"let x = 1;{broken}{behind}") != "unknown", broken


TYPES = (
    "import type { A } from 't'",
    "import type A from 't'",
    "import type * as A from 't'",
    "import { type A, a } from 'm'; log(a)",
    "import { a, type A as B, b, } from 'm'; log(b)",
    "import { type } from 'm'; log(type)",
    "import { type as as } from 'm'; log(as)",
    "import { type as as x } from 'm'; log(typeof x)",
    "import { type as x } from 'm'; log(x)",
    "import type, { b } from 'm'; log(type)",
    "import type from 'm'; log(type)",
    "export type { A } from 't'",
    "export type { A }",
    "export type * from 't'",
    "export { type A, a as z } from 'm'",
    "const q = 1; export { type A, q, type B as C }",
    "export interface A { b: 1 }",
    "export default interface A { b: 1 }",
    "export type A<T> = { [K in T]: K }\n[log(1)]",
    "export declare const a: number, b: string",
    "export declare function f(): void",
    "export declare class C { a: string }",
    "export namespace N { type A = 1 }",
    "export function f(a: string): void;\nexport function f(a: any) { log(a) } f(1)",
    "export default function f(a: string): void;\nexport default function f() { log(2) } f('')",
    "export abstract class A<T> { abstract a(): void; private b?: T = undefined } log(typeof A)",
    "let x = 1\nexport interface A {}\n[x].map((y: number) => log(y as any))",
    "let x: typeof import('t') = 1 as unknown as import('t').Y; log(x)",
    "const f = async <T,>(x: T) => (await import('m' as string)).a as number; log(await f(1))",
)


@each_row("source", TYPES)
def test_types_are_those_that_node_strips(node: NodeAnswers, source: str):
    assert compared(node, source, strip=True) in ("done", "run")
    assert compared(node, f"import {{ a as z1 }} from 'm'\n{source}\nlog(z1)\nnull.x", strip=True) == "run"


@pytest.mark.full
def test_plain_javascript_modules_keep_their_text():
    """Every module that ships with Node's npm: behind what keeps the value of its end, all that is no import stays."""
    folder = Path(node_path()).parent.parent / "lib" / "node_modules"
    files = [path for path in sorted(folder.rglob("*.js")) if path.stat().st_size < 60_000]
    if not files:
        missing("node", "no JavaScript files beside this node")
    unknown = 0
    for path in files:
        # A script that is one function is a module too, unless it returns at the top.
        source = f"export default function () {{{path.read_text(encoding='utf-8')}\n}}"
        result = _analyser(source, PARSE_MS, analyse.MODULE)
        unknown += "problems" in result or result["facts"] is None
        if result.get("facts") and "import(" not in source:
            assert result["js"].removeprefix("const{last:$last}=$codemode;") == source, path
    assert unknown <= len(files) // 50
