"""What the README and the example show works."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from required import missing
from thoroughness import more_of_the_same
from warm_python import WarmPython

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"(<!-- continues -->\n)?```python\n(.*?)```", re.DOTALL)


def blocks() -> list[str]:
    """Each block of the README, after those that it continues."""
    found: list[str] = []
    for continues, code in _BLOCK.findall((ROOT / "README.md").read_text()):
        found.append((found[-1] + code) if continues else code)
    return found


@pytest.mark.filterwarnings("ignore:`langchain.mcp` is in beta")
@pytest.mark.parametrize("number", range(11))
def test_readme(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if "deepagents" in blocks()[number] and find_spec("deepagents") is None:
        missing("deepagents", "deepagents is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(blocks()[number], f"README block {number}", "exec", dont_inherit=True), names)


def test_every_block_is_run():
    assert len(blocks()) == 11


EXAMPLE = str(ROOT / "examples" / "approvals.py")
Terminal = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def terminal(langchain_python: WarmPython, tmp_path: Path) -> Terminal:
    """Run the example over one file, with these answers."""
    return lambda answers: langchain_python.run(EXAMPLE, str(tmp_path / "approvals.db"), said=answers)


def test_the_example_in_two_sittings(terminal: Terminal):
    first = terminal("y\n")  # the input ends at the second question
    assert first.stdout.count("(looking") == 1
    assert "(refunding A-1: 12.50)" in first.stdout
    second = terminal("no\n100\n")
    assert second.returncode == 0, second.stderr
    assert "(looking" not in second.stdout
    assert "(refunding A-1" not in second.stdout
    assert '"A-3: refunded 1.00"' in second.stdout
    assert "A-2: approval of tool 'refund' was denied" in second.stdout


def install_lines() -> list[str]:
    """What the README and the example say to install, as they say it."""
    texts = [(ROOT / "README.md").read_text(), (ROOT / "examples" / "approvals.py").read_text()]
    return [line for text in texts for line in re.findall(r"^(?:\$| {4}) ?(pip install [^#\n]*)", text, re.MULTILINE)]


def test_33_what_is_to_be_installed_can_be_installed_from_a_clone():
    words, others = (shlex.split(line) for line in install_lines())
    assert words == others
    assert words[:2] == ["pip", "install"]
    # Nothing that is installed here may help; and nothing is installed.
    command = [sys.executable, "-m", *words, "--dry-run", "--ignore-installed", "--quiet"]
    done = subprocess.run(command, cwd=ROOT.parent.parent, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode and "hatchling" in done.stderr:
        missing("index", "pip reaches no package index")
    assert done.returncode == 0, done.stderr


def test_33_the_example_says_what_it_needs(tmp_path: Path):
    bare = [sys.executable, "-I", "-S", EXAMPLE]
    done = subprocess.run(bare, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "pip install . './integrations/langchain[agents]'" in done.stderr
    assert "Traceback" not in done.stderr
    # As if the checkpoints of SQLite were not installed.
    hidden = (
        "import runpy, sys, importlib.util as u; find = u.find_spec;"
        "u.find_spec = lambda name, *rest: None if name.endswith('.sqlite') else find(name, *rest);"
        "sys.modules['langgraph.checkpoint.sqlite'] = None; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", hidden, EXAMPLE],
        input="y\nno\n100\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "what you leave undecided is forgotten" in done.stdout
    assert '"A-3: refunded 1.00"' in done.stdout
    # Only the guard's file: what was decided once is not decided again.
    assert [one.name for one in tmp_path.iterdir()] == ["approvals.db.resumed"]


def test_33_the_example_without_a_terminal(terminal: Terminal):
    done = terminal("")
    assert done.returncode == 1
    assert "A-1? [y]es" in done.stdout
    assert "Stopped at a question" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", *more_of_the_same("1")])
def test_33_the_example_when_nobody_reads_any_more(terminal: Terminal, tmp_path: Path, unbuffered: str):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, EXAMPLE, str(tmp_path / "approvals.db")]
    done = subprocess.run(
        command,
        input="y\ny\ny\n",
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr.strip().startswith("Stopped at a question")
    again = terminal("no\nno\nno\n")
    assert "(refunding" not in again.stdout
    assert again.stdout.count("was denied") == 3
