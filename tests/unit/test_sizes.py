"""No file is longer than a reader takes in, and no function longer than a screen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES_OF_A_FILE = 600
MOST_LINES_OF_A_FUNCTION = 60

SOURCES = [
    path
    for folder in [ROOT / "src", *(ROOT / "integrations").glob("*/src")]
    for path in sorted(folder.rglob("*"))
    if path.suffix in (".py", ".js")
]


def functions(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_the_sources_are_found():
    assert {
        "code_mode",
        "kernel",
        "codemode_console",
        "codemode_gateway",
        "codemode_langchain",
        "codemode_openai_agents",
        "codemode_pydantic_ai",
    } <= {path.parent.name for path in SOURCES}


def too_long(path: Path) -> Iterator[tuple[str, str, int]]:
    text, name = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
    if (lines := len(text.splitlines())) > MOST_LINES_OF_A_FILE:
        yield name, "the file", lines
    if path.suffix == ".py":
        yield from ((name, *found) for found in functions(text) if found[1] > MOST_LINES_OF_A_FUNCTION)


def test_what_is_too_long_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "long.py"
    path.write_text("def long():\n" + "    pass\n" * MOST_LINES_OF_A_FILE)
    assert [found[1] for found in too_long(path)] == ["the file", "long"]


def test_files_and_functions_are_short():
    assert [found for path in SOURCES for found in too_long(path)] == []
