"""A failed read is told at its place in the text as it was sent, whatever was around the program."""

from __future__ import annotations

import json

import pytest

from codemode import CodeModeError, create_code_mode_tool

PROGRAM = "const found = null;\nconst name = 'x';\nreturn found.name + name;"
SENT = (
    PROGRAM,
    f"Here:\n```js\n{PROGRAM}\n```",
    json.dumps({"js": PROGRAM}),
    PROGRAM.replace("\n", "\\n"),
    PROGRAM.replace("'", "\\'"),
)


def test_a_failed_read_is_placed_in_the_text_as_sent():
    tool = create_code_mode_tool([])
    for text in SENT:
        before = text[: text.index("found.name")]
        with pytest.raises(CodeModeError) as raised:
            tool.execute_sync({"js": text})
        place = (before.count("\n") + 1, len(before) - before.rfind("\n"))
        assert (raised.value.details["line"], raised.value.details["column"]) == place, text
