"""The table of deliberate differences names all of them, in rows that are rows to every reader of Markdown."""

from __future__ import annotations

import re
from pathlib import Path

from suite import each_row

PAGE = (Path(__file__).parents[2] / "docs" / "ai-sdk.md").read_text(encoding="utf-8")
TABLE = PAGE.split("Deliberate differences:", 1)[1].split("\n## ", 1)[0].strip().splitlines()


@each_row("difference",
    [
        "check_program", "derived", "random", "`interrupt.input`", "without an answer", "fragment",
        "nestedToolsLeftOut", "`then`", "BigInt", "bigIntegers", "one per round trip", "a continuation", "ValueError",
        "captured", "kind",
    ],
)  # fmt: skip
def test_the_table_names_every_difference(difference):
    assert any(difference in row for row in TABLE)


def test_every_row_of_differences_has_three_cells():
    cells = [re.split(r"(?<!\\)\|", row.strip())[1:-1] for row in TABLE]
    assert len(cells) >= 20
    assert {len(row) for row in cells} == {3}
    assert all(cell.strip() for row in cells[1:] for cell in row)
