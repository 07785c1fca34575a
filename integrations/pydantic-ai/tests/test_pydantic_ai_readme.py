"""The README's programs and the example run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (HERE / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
NO_KEYS = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}


def run(*arguments: str, said: str = "", folder: Path | None = None) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, input=said, text=True, capture_output=True, timeout=60, env=NO_KEYS, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_runs(block: str, tmp_path: Path) -> None:
    run("-", said=block, folder=tmp_path)


def test_the_example_with_one_refund_edited_and_one_denied() -> None:
    printed = run(str(HERE / "examples" / "support_desk.py"), said="e\n1000\nno\n")
    assert "The program wants: refund" in printed
    assert "Note: refunded 1000 cents of order 11; the desk refused to refund order 13" in printed


def test_the_example_with_everything_approved() -> None:
    printed = run(str(HERE / "examples" / "support_desk.py"), said="a\na\n")
    assert '"refunded": 16700' in printed
