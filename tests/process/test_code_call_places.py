"""Where a script that cannot be parsed is told to be wrong: inside of what the model wrote."""

from __future__ import annotations

from typing import Any

import pytest

from codemode import create_code_call_tools

TOOLS = create_code_call_tools([])


def status(script: str) -> tuple[str, dict[str, Any]]:
    answer = TOOLS.execute_sync({"script": script})
    return answer["status"], answer["error"]


@pytest.mark.parametrize(
    ("script", "line", "column"),
    [
        ("return 1 +", 1, 11),
        ("const a = {", 1, 12),
        ("foo(\n\n  ", 1, 5),
        ("return 1;\r\n\r\n[1,", 3, 4),
        ("if (true) {\u2028", 1, 12),
        ("return 1 }", 1, 11),
        ("return (a) =>", 1, 14),
    ],
)
def test_what_is_not_complete_has_its_place_in_the_script(script: str, line: int, column: int):
    said, error = status(script)
    assert said == "syntax_error"
    assert error["location"] == {"line": line, "column": column}
    assert error["message"].startswith(f"line {line}, column {column}: this ends here")


@pytest.mark.parametrize(("script", "line", "column"), [("return )\n\n", 1, 8), ("return 1\nlet = = 2\n", 2, 5)])
def test_what_is_wrong_inside_keeps_its_words(script: str, line: int, column: int):
    said, error = status(script)
    assert (said, error["location"]) == ("syntax_error", {"line": line, "column": column})
    assert "ends here" not in error["message"]
