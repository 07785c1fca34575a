"""What the engine says of texts that are to be modules, and where."""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader, ModuleSpec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.guest.syntax_check import check_syntax_of_analysed_module, find_syntax_problem
from codemode.workers.image import find_engine


def engine() -> Any:
    path, _ = find_engine()
    loader = ExtensionFileLoader("_quickjs", path)
    module = loader.create_module(ModuleSpec("_quickjs", loader, origin=path))
    loader.exec_module(module)
    return module.Context()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]


CONTEXT = engine()


def place(text: str) -> tuple[int, int] | None:
    problem = find_syntax_problem(CONTEXT.module, text)
    return None if problem is None else (problem["line"], problem["column"])


@each_row(
    "text, line, column",
    [
        ("const = 1", 1, 7),
        ("let x = 08", 1, 9),
        ("\n\n  let x = 08", 3, 11),
        ("/* \u00fc\U0001f600 */ let x = 08", 1, 19),
        ("let a\n/* \u00fc\U0001f600 */ let x = 08", 2, 19),
        ("return 1", 1, 1),
        ("'\0'", 1, 2),
        ("let a\n'\U0001f600\0'", 2, 4),
        ("const a = 1\r\nlet x = 08", 2, 9),
        ("export { zz }", 1, 10),
        ("const a = 1;\nexport { a,\n zz }", 3, 2),
        ("/(/", 1, 1),
        ("const a = 1;\n/* \U0001f600 */ let b = /(?<a>.)(?<a>.)/u;\nlet c", 2, 18),
        ("const a = /x/;\nconst b = [1, 2, /[b-a]/];\nconst c = 1", 2, 18),
        ("x\u2028y y", 1, 1),
    ],
)
def test_places_are_those_of_the_text(text, line, column):
    found = place(text)
    if "\u2028" in text:  # a line of the engine's own counting: some place is given, and nothing breaks
        assert found is not None
        return
    assert found == (line, column)


@each_row(
    "text",
    [
        "",
        "export const a = 1",
        "import a, { b as c } from 'x'; import * as ns from 'y'; export * from 'z'",
        "while (true) {}",
        "throw 1",
        "globalThis.x = 1",
        "await nothing",
        "#!shebang\nlet a",
        "import('x')",
        "(" * 500_000,  # too deep for the engine's stack, which says nothing about the text
    ],
)
def test_what_the_engine_takes_or_cannot_tell_is_no_problem(text):
    assert place(text) is None


def test_nothing_of_what_is_asked_about_runs():
    context = engine()
    assert find_syntax_problem(context.module, "globalThis.ran = 1; export const a = 1") is None
    assert context.eval("typeof ran") == "undefined"


@each_row(
    "text",
    [
        "import { a } from 'x'; import { a } from 'y'",
        "import a from 'x'; export { a as b }; export { a as b }",
        "if (1) { import a from 'x' }",
        "function f() { export const a = 1 }",
        "import a from x",
        "await = 1",
        "let await",
        "#!shebang\nlet let",
        "let a; #!shebang",
    ],
)
def test_early_errors_of_imports_and_exports_are_the_engines(text):
    assert find_syntax_problem(CONTEXT.module, text) is not None


@given(st.text(st.sampled_from("a \n\r\u2028\u00fc\U0001f600'/`(){}[]=;\0\\"), max_size=60))
def test_every_text_has_an_answer_with_a_place_in_it(text):
    problem = find_syntax_problem(CONTEXT.module, text)
    if problem is not None:
        assert 1 <= problem["line"] <= len(text) + 1
        assert 1 <= problem["column"] <= 2 * len(text) + 2
        assert problem["message"]


# --- what the analyser said ---


def draft(js: str, *, is_ambiguous: bool = False) -> dict[str, Any]:
    return {"js": js, "line": 1, "column": 8, "is_ambiguous": is_ambiguous}


def test_what_was_asked_about_does_not_come_back():
    assert check_syntax_of_analysed_module(CONTEXT.module, {"js": "x", "asked": "let a", "facts": {}}) == {
        "js": "x",
        "facts": {},
    }
    assert "problems" in check_syntax_of_analysed_module(CONTEXT.module, {"js": "x", "asked": "let let", "facts": {}})
    assert check_syntax_of_analysed_module(CONTEXT.module, {"problems": [1]}) == {"problems": [1]}
    assert check_syntax_of_analysed_module(CONTEXT.module, {"js": "let a", "facts": None}) == {
        "js": "let a",
        "facts": None,
    }
    assert "problems" in check_syntax_of_analysed_module(CONTEXT.module, {"js": "let let", "facts": None})


def test_a_text_that_is_not_understood_may_be_a_module_as_it_is():
    said = {"js": "let a", "facts": None, "draft": draft("let let")}
    assert check_syntax_of_analysed_module(CONTEXT.module, said) == {"js": "let a", "facts": None}


@pytest.mark.parametrize(
    ("said", "message", "column"),
    [
        ({"js": "let a: b ?!", "facts": None, "draft": draft("let a    ?!")}, "unexpected", None),
        ({"js": "let a: b", "facts": None, "draft": draft("let a")}, "is not understood", 8),
        ({"js": "let a", "facts": None, "draft": draft("let a", is_ambiguous=True)}, "is not understood", 8),
    ],
)
def test_else_the_problem_is_the_drafts_or_that_it_is_not_understood(said, message, column):
    (problem,) = check_syntax_of_analysed_module(CONTEXT.module, said)["problems"]
    assert column in (None, problem["column"])
    assert message in problem["message"] or column is None
