"""What the README and the example show works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"(<!-- continues -->\n)?```python\n(.*?)```", re.DOTALL)


def blocks() -> list[str]:
    """Each block of the README, after those that it continues."""
    found: list[str] = []
    for continues, code in _BLOCK.findall((ROOT / "README.md").read_text()):
        found.append((found[-1] + code) if continues else code)
    return found


@pytest.mark.parametrize("number", range(3))
def test_readme(number: int):
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(blocks()[number], f"README block {number}", "exec", dont_inherit=True), names)


def test_every_block_is_run():
    assert len(blocks()) == 3


def terminal(directory: Path, answers: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / "approvals.py"), str(directory / "approvals.db")]
    return subprocess.run(command, input=answers, capture_output=True, text=True, timeout=60, check=False)


def test_the_example_in_two_sittings(tmp_path: Path):
    first = terminal(tmp_path, "y\n")  # the input ends at the second question
    assert first.stdout.count("(looking") == 1
    assert "(refunding A-1: 12.50)" in first.stdout
    second = terminal(tmp_path, "no\n100\n")
    assert second.returncode == 0, second.stderr
    assert "(looking" not in second.stdout
    assert "(refunding A-1" not in second.stdout
    assert '"A-3: refunded 1.00"' in second.stdout
    assert "A-2: approval of tool 'refund' was denied" in second.stdout
