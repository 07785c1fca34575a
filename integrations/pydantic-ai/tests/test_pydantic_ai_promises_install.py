"""What the README tells people to type works in a clone, and the example ends as a program should."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from warm_python import WarmPython

HERE = Path(__file__).parents[1]
ROOT = HERE.parents[1]
EXAMPLE = HERE / "examples" / "support_desk.py"
NO_KEYS = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY") and key != "PYTHONPATH"}
README = (HERE / "README.md").read_text(encoding="utf-8")


def run(*command: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    given = {"stdin": subprocess.DEVNULL, "capture_output": True, "env": NO_KEYS, **settings}
    return subprocess.run(command, text=True, timeout=600, check=False, **given)


def install_line() -> list[str]:
    (line,) = re.findall(r"^\$ (pip install .*)$", README, re.MULTILINE)
    assert line in EXAMPLE.read_text(encoding="utf-8")
    return shlex.split(line)


@pytest.mark.full
def test_what_is_to_be_installed_can_be_installed_from_a_clone() -> None:
    # Nothing that is installed here may help; and nothing is installed.
    done = run(sys.executable, "-m", *install_line(), "--dry-run", "--ignore-installed", "--quiet", cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_the_install_line_works_as_it_is_written(tmp_path: Path) -> None:
    pip, *arguments = install_line()
    venv.create(tmp_path / "fresh", with_pip=True)
    programs = tmp_path / "fresh" / "bin"
    done = run(str(programs / pip), *arguments, "--quiet", "--no-compile", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    done = run(str(programs / "python"), str(EXAMPLE), input="a\nno\n", stdin=None, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Note: refunded 4200 cents of order 11; the desk refused to refund order 13" in done.stdout


def test_the_example_ends_without_a_terminal(pydantic_ai_python: WarmPython) -> None:
    done = pydantic_ai_python.run(str(EXAMPLE), env=NO_KEYS)
    assert done.returncode == 1
    assert done.stderr == "\nNobody answers, so nothing is refunded. Run this in a terminal.\n"


@pytest.mark.full
@pytest.mark.parametrize("said", ["e\nmuch\n5\nno\n", ""])
def test_the_example_ends_quietly_when_nobody_reads_on(said: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(
            sys.executable,
            str(EXAMPLE),
            input=said,
            stdin=None,
            capture_output=False,
            stdout=writer,
            stderr=subprocess.PIPE,
        )
    finally:
        os.close(writer)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_the_example_without_the_plugin_says_what_it_needs() -> None:
    done = run(sys.executable, "-I", "-S", str(EXAMPLE))
    assert done.returncode == 1
    assert "pip install . ./integrations/pydantic-ai" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_example_with_a_key_and_no_sdk_says_what_it_needs(pydantic_ai_python: WarmPython) -> None:
    hidden = (
        "import sys; sys.modules['anthropic'] = None; import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    done = pydantic_ai_python.run("-c", hidden, str(EXAMPLE), env={**NO_KEYS, "ANTHROPIC_API_KEY": "none"})
    assert done.returncode == 1
    assert "anthropic" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_lower_bound_is_said_once_everywhere() -> None:
    def bound(file: Path) -> set[str]:
        return set(re.findall(r'"pydantic-ai-slim(?:\[[^]]*\])?>=([\d.]+),<3"', file.read_text(encoding="utf-8")))

    (here,) = bound(HERE / "pyproject.toml")
    assert bound(ROOT / "pyproject.toml") == {here}
    assert f"pydantic-ai ({here} or a newer 2.x)" in README
