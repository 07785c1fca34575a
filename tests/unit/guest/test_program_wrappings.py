"""Programs in wrappings and escapes: of fences, of JSON, of tags; what a correct program has of them is its own."""

from __future__ import annotations

import json
import sysconfig
from typing import Any

from codemode.guest.analysis import analyse

SITE_PATHS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
LONG_MS = 60_000
_analyse: Any = analyse.load_analyser(SITE_PATHS)
PROGRAM = "const n = 'nut';\nreturn n;"
CALL = {"name": "codeMode", "arguments": {"js": PROGRAM}}
MEANT = {
    f"```js\n{PROGRAM}```": PROGRAM,
    f"```js\n{PROGRAM}\n```<end_code>": PROGRAM,
    f"Here it is: ```js\n{PROGRAM}\n```": PROGRAM,
    f"\ufeff```js\n{PROGRAM}\n```": PROGRAM,
    f"```{{js}}\n{PROGRAM}\n```": PROGRAM,
    f"```js\n{PROGRAM}\n```\nwhich gives\n```\nnut\n```": PROGRAM,
    f"```js\n{PROGRAM}\n```".replace("\n", "\\n"): PROGRAM,
    f"javascript\n{PROGRAM}": PROGRAM,
    f"<code>\n{PROGRAM}\n</code>": PROGRAM,
    json.dumps(CALL): PROGRAM,
    json.dumps({"source": PROGRAM}): PROGRAM,
    json.dumps(PROGRAM): PROGRAM,
    PROGRAM.replace("'", '\\"'): PROGRAM.replace("'", '"'),
    PROGRAM.replace("'", "\\'").replace("\n", "\\n"): PROGRAM,
    PROGRAM.replace("'", "\u2018", 1).replace("'", "\u2019"): PROGRAM,
    f"\u200b{PROGRAM}": PROGRAM,
    "const f = (n) =\\u003e n;\nreturn f(1)": "const f = (n) => n;\nreturn f(1)",
    "const f = (n) =&amp;gt; n;\nreturn f(1)": "const f = (n) => n;\nreturn f(1)",
}
OWN = (
    "return 'It\u2019s \u201cfine\u201d'.length;",
    "// it\u2019s fine\nreturn /[\u2018\u200b]/.test(`a\u200bb\u2019`);",
    "let js\njs = 1;\nreturn js;",
    "ts\nconst ts = 1;",
    '"use strict"',
    "return '<code>return 1</code>';",
    "const s = 'Here: ```js'\nreturn s + ' ```'",
    "return 'say \\'it\\' =\\u003e &amp;gt;';",
)


def repaired(text: str) -> Any:
    return _analyse.repair_program(text, LONG_MS, _analyse(text, LONG_MS))


def test_a_program_is_taken_out_of_what_is_around_it():
    for text, program in MEANT.items():
        repair = repaired(text)
        assert repair is not None, text
        assert repair.text.strip() == program, text
        assert repair.notes, text


def test_the_same_characters_in_a_correct_program_are_its_own():
    for source in OWN:
        assert repaired(source) is None, source


def test_long_texts_of_nothing_are_looked_at_once():
    for begins, ends in (
        ("```js\n```", "`"),
        ("<code>", "x"),
        ("if (require.main === module) ", "{ {"),
        ("export { a", "b"),
        ("module.exports = { a", "b"),
        ("export default a; function", "x"),
        ("&lt; \\n \u2018 \u200b \\`", "<"),
    ):
        assert repaired(begins + " " * 200_000 + ends) is None or begins.startswith(("```", "export default")), begins
