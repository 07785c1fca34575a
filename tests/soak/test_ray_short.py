"""Ray in an environment of its own, which `make ray` makes: a short run, and what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from postgres_cluster import binaries
from required import missing

TREE = Path(__file__).parents[2]
BOUND = 600.0
pytestmark = pytest.mark.full
_BLOCK = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def python() -> Path:
    """The Python that has Ray."""
    folder = Path(sys.prefix) / "ray"
    if not (folder / ".installed").exists():
        missing("ray", "Ray is not installed: `make ray` installs it")
    return folder / "bin" / "python"


def ran(home: Path, *command: str | Path) -> str:
    environment = {**os.environ, "HOME": str(home)}  # Ray writes a token into it
    done = subprocess.run(
        command, cwd=TREE, env=environment, capture_output=True, text=True, timeout=BOUND, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_node_that_dies_loses_no_call_and_repeats_none(kind: str, python: Path, tmp_path: Path) -> None:
    if kind == "postgres":
        binaries()
    told = ran(tmp_path, python, "-m", "tests.soak.ray_rollouts", "200", "2", kind)
    assert "seccomp" in told
    assert len(re.findall(r"200 programs, \d+ orders, each once", told)) == 2
    assert "left afterwards    no process" in told


def test_what_the_page_shows_of_ray_runs(python: Path, tmp_path: Path) -> None:
    (block,) = _BLOCK.findall((TREE / "docs" / "durable.md").read_text(encoding="utf-8"))
    script = tmp_path / "page.py"
    script.write_text(block, encoding="utf-8")
    ran(tmp_path, python, script)
