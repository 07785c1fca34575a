"""Which texts are taken for another language, and which never."""

from __future__ import annotations

from codemode.source.program_input import detect_language, make_language_hint

OTHERS = {
    "Python": [
        "def main():\n    return 1",
        "async def run(x: int) -> int:\n    return x",
        "import json\nprint(json.dumps({}))",
        "from math import sqrt, pi",
        "for x in range(3):\n    print(x)",
        "if x:\n    y = 1\nelse:\n    y = 2",
        'print(f"{x} nuts")',
        "result = await tools.stock(product='nut')\nprint(result)",
    ],
    "a shell command": ["ls -la", "$ curl https://example.org", "sudo rm -rf /", "cat notes.txt | grep nut"],
    "JSON": ['{"product": "nut"}', '[{"tool": "stock"}]', '\n{\n  "a": 1\n}\n'],
    "prose": ["I will look up the stock of all products first.", "Here is what I found so far: nothing at all"],
}
MORE = {
    "Python": [
        "# get it\nn = await tools.stock({})\nreturn n",
        "x = 5\ny = 1 if x > 3 else 0",
        'n = 3\nx = f"{n} pieces"',
        "f = lambda x: x + 1\nprint(f(2))",
        '"""Get it."""\nn = stock(product="nut")\nprint(n)',
        "return await callTool('stock', product='nut')",
        "Here:\n```python\nprint(1)\n```",
    ],
    "a shell command": ["#!/bin/bash\necho hi", "for f in *.txt; do echo $f; done", "```bash\nls -la\n```"],
    "SQL": ["SELECT * FROM orders WHERE customer = 'ann';"],
    "prose": ["please get the stock of all products", "\u8bf7\u67e5\u8be2\u87ba\u6bcd\u7684\u5e93\u5b58\u3002"],
}
JAVASCRIPT = [
    "source = await tools.read({ path }",
    "node = { a: 1 ",
    "export const a = 1 +",
    "const q = 'SELECT * FROM x'; return q +",
    "const t = `\n# a\nprint(1)\n`; return t +",
    "x = a ? 'if b else c' : (",
    "return 1 +;",
    "const x = ;",
    "class A { #count = 0; get( }",
    "for (const x of y) {",
    "const a = { b: 1 ; }",
    "if (a) { return 1 } else { return 2",
    "let s = `a\n# not Python`; return s +",
    "import { a } from 'b'; a(",
    "label: while (true) {",
    "switch (a) { case 1: default: ",
    "// I will look up the stock of all products first.\nreturn (",
    "",
]


def test_each_language_is_named():
    for language, texts in [*OTHERS.items(), *MORE.items()]:
        for text in texts:
            assert detect_language(text) == language, text
            assert language in (make_language_hint(text) or ""), text


def test_javascript_with_a_mistake_is_none_of_them():
    for text in JAVASCRIPT:
        assert detect_language(text) is None, text
        assert make_language_hint(text) is None
