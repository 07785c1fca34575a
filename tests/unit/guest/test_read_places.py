"""Places of reads that the engine does not know: the worker finds them in the program's text."""

from __future__ import annotations

import json

from codemode.guest.analysis.analyse import load_analyser
from codemode.workers.image import find_parser_site_paths

ANALYSE = load_analyser(list(find_parser_site_paths()))


def line_of(message: str, place: str) -> str:
    """Return a line of the kernel about what was thrown."""
    fields = {"name": "TypeError", "message": message, "code": "", "stack": f"    at f (program.js:{place})"}
    return "X" + json.dumps(fields, separators=(",", ":"))


def place_in(text: str, message: str, told: str) -> str:
    said = ANALYSE.correct_error_location(line_of(message, told), text, 1000)  # pyright: ignore[reportFunctionMemberAccess]
    assert said.endswith(')"}')
    return said.rpartition("program.js:")[2][:-3]


def reads(name: str) -> str:
    return f"cannot read property '{name}' of undefined"


CASES = [
    # text, name, the engine's place, the right one
    ("const a = 1;\n\nnull.x", "x", "1:1", "3:1"),
    ("\n[].a.b", "b", "1:1", "2:1"),
    ("function f() {\n  const b = 2;\n  return this.items.length;\n}\nf()", "length", "1:1", "3:10"),
    # Behind a place that the engine has recorded, and the first of several.
    ("f(1);\n\nthis.a.b;\nthis.a.b", "b", "1:1", "3:1"),
    # Where the property is on another line than the chain begins.
    ("const n =\n  this\n    .items\n    .length", "length", "1:1", "4:6"),
    # In the function of the place alone.
    ("const f = () => {\n  this.a.b\n};\nclass A {\n  m() {\n    return this.a.b\n  }\n}", "b", "5:1", "6:12"),
    ("this.a.b;\nfunction f() {\n  return this.a.b\n}", "b", "1:1", "1:1"),
    # A place in such a read is right, and one of another function's too.
    ("function f() {\n  this.a.b;\n  return q.b\n}", "b", "3:10", "3:10"),
    ("g(1);\nq[i];\nthis.a.b", "b", "2:1", "2:1"),
    ("const f = () => { g() };\nthis.a.b", "b", "1:19", "1:19"),
    # Nothing that fits.
    ("g(1);\nthis.a.c", "b", "1:1", "1:1"),
    ("g(1);\nq.a.b", "b", "1:1", "1:1"),
    ("g(1);\n'this.a.b' // this.a.b", "b", "1:1", "1:1"),
    # Columns are UTF-16 units, and a place may be none of the text's.
    ("'\U0001f600\u00e9'; f(1); this.a.b", "b", "1:8", "1:14"),
    ("this.a.b", "b", "9:9", "9:9"),
    ("this.a['b']", "b", "1:1", "1:1"),
    ("f(1);\nthis.a['b']", "b", "1:1", "2:1"),
    ("class A {\n  #b = this.a.b\n}\nnew A()", "b", "2:1", "2:8"),
    # Of the fields of a class the engine says line 0.
    ("this.a.b;\nclass A {\n  a = 1;\n  b = this.a.b\n}\nnew A()", "b", "0:1", "4:7"),
    ("this.a.b;\nclass A {\n  a = 1;\n}\nnew A()", "b", "0:1", "0:1"),
]


def test_a_read_that_the_engine_does_not_place_is_found_in_the_text():
    for text, name, told, right in CASES:
        assert place_in(text, reads(name), told) == right, text


def test_what_is_taken_apart_or_gone_through_is_found_too():
    cases = [
        ("f(1);\nconst { x } = null", "Cannot convert undefined or null to object", "2:7"),
        ("f(1);\nfor (const x of this.xs) {}", "cannot read property 'Symbol.iterator' of undefined", "2:1"),
        ("f(1);\ng([...this.xs])", "cannot read property 'Symbol.iterator' of undefined", "2:4"),
        ("f(1);\nfor (const x of 5) {}", "value is not iterable", "2:1"),
    ]
    for text, message, right in cases:
        assert place_in(text, message, "1:1") == right, text


def test_hostile_texts_and_lines_are_left_as_they_are():
    deep = "f(1);\n" + "(" * 5000 + "this.a.b"
    long = "f(1);\n" + "this" + ".b" * 20_000
    for text in (deep, long, "", "\n" * 100_000, "x" * 300_000 + "\nthis.a.b", "\ud800 this.a.b"):
        assert place_in(text, reads("b"), "1:1")
    for line in ("", "X", "V{}", line_of(reads("b"), "x:y"), line_of("thrown", "1:1"), 'X{"name":"TypeError"'):
        assert ANALYSE.correct_error_location(line, "f(1);\nthis.a.b", 1000) == line  # pyright: ignore[reportFunctionMemberAccess]
