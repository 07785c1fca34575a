"""What is done to a text that is no program; a program that is correct is never changed."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode.guest.analysis import analyse, program_repair

SITE_PATHS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
LONG_MS = 60_000
HOSTILE = Path(__file__).parents[2] / "hostile" / "programs"
_analyse: Any = analyse.load_analyser(SITE_PATHS)


def repaired(text: str) -> Any:
    return _analyse.repair_program(text, LONG_MS, _analyse(text, LONG_MS))


def test_programs_that_parse_are_left_as_they_are():
    sources = [path.read_text(encoding="utf-8") for path in sorted(HOSTILE.rglob("*.js"))]
    assert len(sources) > 500
    for source in sources:
        if _analyse(source, LONG_MS).get("facts") is not None:
            assert repaired(source) is None, source


def test_what_looks_like_a_fence_or_an_escape_in_a_program_is_its_own():
    for source in (
        "const md = '```js';\nreturn md;",
        "const md = `\\`\\`\\`js\ncode\n\\`\\`\\``;\nreturn md;",
        "/*\n```js\nexample()\n```\n*/\nreturn 1;",
        '// {"js": "return 1"}\nreturn 1;',
        "return '&lt;b&gt;';",
        "return 'a\\nb';",
        'return "a\\\\nb";',
        "return { js: 'return 1' };",
        "let a = 1;\n~~~a;\nreturn a;",
    ):
        assert repaired(source) is None, source


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```js\nreturn 1\n```", "return 1"),
        ("~~~js\nreturn 1\n~~~", "return 1"),
        ("````js\nreturn '```'\n````", "return '```'"),
        ("```js return 1 ```", "return 1"),
        ("```bash\nls\n```\n```ts\nreturn 1\n```", "return 1"),
        ("```js\nreturn 1\n```\n```js\nreturn 2", "return 1"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("return 1 +;", None),
        ("return &lt;;", None),
        ('{"js": 1}', None),
        ("", None),
    ],
)
def test_the_program_is_taken_out_of_what_is_around_it(text: str, program: str | None):
    found = repaired(text)
    assert (None if found is None else found.text.strip()) == program


def test_a_wrapped_program_may_still_be_wrong_and_says_so_at_its_place():
    text = "Here:\n```js\nreturn 1 +;\n```"
    found = repaired(text)
    assert found.text == "     \n     \nreturn 1 +;\n   "
    assert found.notes == [program_repair.FENCED]


@given(st.text(alphabet="`~{}\"'\\n&lt;gt:js /*\n", max_size=60))
def test_no_text_breaks_the_repair(text: str):
    found = repaired(text)
    if found is not None:
        assert len(found.origins) == len(found.text) + 1
        assert all(0 <= origin <= len(text) for origin in found.origins)


@given(st.text(alphabet="aé😀\n", max_size=30))
def test_places_lead_back_to_the_character_they_come_from(text: str):
    source = text.replace("\n", "\\n").replace("a", "&#97;") + "!"
    current = program_repair.MappedText(source, range(len(source) + 1))
    decoded = current.replace_matches(program_repair.ENTITY, lambda match: "a")
    decoded = decoded.replace_matches(program_repair.ESCAPED_BREAK_OR_QUOTE, lambda match: "\n")
    assert decoded.text == f"{text}!"
    rows = program_repair.build_location_rows(decoded.text, decoded.origins, source)
    line, column = decoded.text.count("\n") + 1, len(decoded.text.split("\n")[-1].encode("utf-16-le")) // 2
    expected = (1, len(source.encode("utf-16-le")) // 2)
    found = (line, column) if rows is None else program_repair.to_source_location(line, column, rows)
    assert found == expected
