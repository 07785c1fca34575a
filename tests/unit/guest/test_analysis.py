"""The analysis of a program as a whole: deadline, hostile shapes, how it is loaded, and what it answers."""

import json
import subprocess
import sys
import sysconfig
import time
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import each_row, rounds

from codemode.guest.analysis import analyse

SITE_PATHS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
LONG_MS = 60_000


@pytest.fixture(scope="module")
def analyser():
    return analyse.load_analyser(SITE_PATHS)


def test_types_become_blanks(analyser):
    result = analyser("const x: number = 1;\nreturn x as any;", LONG_MS)
    assert result["js"] == "const x         = 1;\nreturn x       ;"
    assert result["facts"] == {"calls": [], "modules": [], "shadowed": False}


def test_refused_constructs_are_listed_with_their_places(analyser):
    result = analyser("enum A { B }\n/* é😀 */ const x = <T>y;\nclass C { constructor(private d) {} }", LONG_MS)
    places = [(problem["line"], problem["column"]) for problem in result["problems"]]
    # The character beyond the basic plane counts as two.
    assert places == [(1, 1), (2, 21), (3, 23)]
    words = ["enums", "angle-bracket casts", "parameter properties"]
    assert all(word in problem["message"] for word, problem in zip(words, result["problems"], strict=True))
    assert "js" not in result


def test_problems_are_bounded(analyser):
    assert len(analyser("enum A {}\n" * 500, LONG_MS)["problems"]) == 64


def test_a_syntax_error_is_left_to_the_engine(analyser):
    source = "const x: number = 1;\nlet = = 2;\nenum A {}"
    result = analyser(source, LONG_MS)
    assert result["js"] == source
    assert result["draft"]["js"].startswith("const x         = 1;\nlet = = 2;")
    assert (result["draft"]["line"], result["draft"]["is_ambiguous"]) == (2, False)
    assert result["facts"] is None


def test_the_real_mistake_is_what_remains(analyser):
    source = "async function f(a: string): Promise<void> {\n  await tools.x({ a: );\n}\nconst y: number = 1;"
    result = analyser(source, LONG_MS)
    assert result["facts"] is None
    assert result["js"] == source
    assert "({ a: );" in result["draft"]["js"]
    assert ": number" not in result["draft"]["js"]


def test_past_the_deadline_nothing_is_concluded():
    ticks = count()
    late = analyse.load_analyser(SITE_PATHS, lambda: next(ticks) * 0.02)
    source = "const x: number = 1;\n" * 2000
    assert late(source, 50) == {"js": source, "facts": None}


def test_time_in_which_the_machine_does_something_else_counts_for_nothing(monkeypatch):
    hours = count()
    monkeypatch.setattr(time, "monotonic", lambda: next(hours) * 3600.0)
    assert analyse.load_analyser(SITE_PATHS)("const x: number = 1;\n" * 20, LONG_MS)["facts"] is not None


def test_a_short_text_with_which_the_parser_comes_to_no_end_is_left_to_the_engine(analyser):
    source = "function*?import<<else`<!--[c}m.{.."  # found by random words of the grammar; no error recovery ends it
    assert analyser(source, 50) == {"js": source, "facts": None}
    assert analyser("return 1", LONG_MS)["facts"] is not None


def test_a_cancelled_parse_leaves_nothing_behind():
    ticks = count()
    analyser = analyse.load_analyser(SITE_PATHS, lambda: next(ticks) * 0.01)
    # Read whole at once, so that only the progress callback can end it, in the middle of the parse.
    assert analyser("!>" * 4096, 50)["facts"] is None
    result = analyser("let b: string;", LONG_MS)
    assert result == {"js": "let b        ;", "facts": {"calls": [], "modules": [], "shadowed": False}}


def test_a_quadratic_program_is_answered_in_time(analyser):
    source = "!>" * 131_072
    start = time.perf_counter()
    assert analyser(source, 50) == {"js": source, "facts": None}
    # It would take hours; the allowance is for a busy machine.
    assert time.perf_counter() - start < 60


LONG = rounds(20_000, 100_000)


@each_row(
    "source",
    [
        "(" * LONG,
        "[" * LONG + "]" * LONG,
        "let a: " + "[" * LONG + "]" * LONG,
        "a" + ".b" * LONG + "()",
        "x" + " as y" * LONG,
        "tools.a(" * LONG + ")" * LONG,
        "tools.a(" + "{a:" * LONG + "1" + "}" * LONG + ")",
        "(" * LONG + "tools.a" + ")" * LONG + "({})",
        "if (a) " * LONG + ";",
        "`${" * LONG,
        "type A = 1\n" * LONG,
    ],
)
def test_deep_and_wide_programs(analyser, source):
    result = analyser(source, LONG_MS)
    assert len(result["js"]) == len(source)


def test_a_very_long_line(analyser):
    """What passes the deadline is not stripped."""
    source = "let a: b; " * 30_000
    assert analyser(source, LONG_MS)["js"] == "let a   ; " * 30_000
    assert analyser("x" * 1_000_000, LONG_MS)["js"] == "x" * 1_000_000


@settings(max_examples=rounds(20, 200), deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_text_gives_text_or_problems(source):
    result = _shared(source, LONG_MS)
    assert set(result) in ({"js", "facts"}, {"js", "facts", "draft"}, {"problems"})
    json.dumps(result, allow_nan=False)


_shared = analyse.load_analyser(SITE_PATHS)

BY_PATH = """
import json, sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
path, sites = sys.argv[1], json.loads(sys.argv[2])
module = ModuleType("analyse")
module.__file__ = path
SourceFileLoader("analyse", path).exec_module(module)
analyser = module.load_analyser(sites)
print(json.dumps([analyser("const x: number = 1; await tools.a({});", 5000), sorted(sys.modules)]))
"""


def test_loads_by_path_in_a_bare_interpreter():
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", BY_PATH, analyse.__file__, json.dumps(SITE_PATHS)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    result, modules = json.loads(ended.stdout)
    assert result["js"] == "const x         = 1; await tools.a({});"
    assert [call["name"] for call in result["facts"]["calls"]] == ["a"]
    # Each of these is memory that every fork of the worker's zygote would pay for.
    assert not {"typing", "dataclasses", "pathlib", "tempfile", "importlib.resources", "tree_sitter"} & set(modules)


def test_a_missing_parser_is_an_import_error(tmp_path):
    with pytest.raises(ImportError, match="tree_sitter"):
        analyse.load_analyser([str(tmp_path)])
