"""User code that is written as the pages show it type-checks, strictly and without a cast."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from required import missing  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "tests" / "typing", *sorted((ROOT / "integrations").glob("*/tests/typing"))]
FILES = sorted(path for folder in FOLDERS for path in folder.glob("*.py") if not path.name.startswith("test_"))


def pyright(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module", autouse=True)
def _needs_pyright() -> None:  # pyright: ignore[reportUnusedFunction]
    if find_spec("pyright") is None:
        missing("pyright", "pyright is not installed")
    if (said := pyright("--version")).returncode != 0:
        missing("pyright", f"pyright cannot be started: {said.stderr[-200:]}")


def test_the_check_of_the_whole_tree_reads_these_folders() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pyright"]
    folders = {folder for folder in FOLDERS if any(path.parent == folder for path in FILES)}
    assert {str(folder.relative_to(ROOT)) for folder in folders} <= set(settings["include"])
    assert settings["typeCheckingMode"] == "strict"


@pytest.mark.full  # `make check` reads the same files
def test_it_type_checks_and_its_mistakes_are_found() -> None:
    assert len(FILES) >= 5
    done = pyright(*map(str, FILES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("0 errors, 0 warnings"), done.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_cast_and_no_unnamed_ignore_is_needed(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    body, _, refused = text.partition("# What must be refused.")
    assert "cast(" not in text
    assert "ignore" not in body
    assert all("# pyright: ignore[" in line for line in refused.splitlines() if "ignore" in line)


def test_a_mistake_that_nothing_marks_fails_the_check(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from codemode import ExecutionPolicy\nExecutionPolicy(timeout_ms='5 s')\n", encoding="utf-8")
    done = pyright(str(wrong))
    assert done.returncode == 1
    assert "reportArgumentType" in done.stdout
