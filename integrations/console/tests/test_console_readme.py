"""The README's programs run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_runs(block: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-"]
    done = subprocess.run(command, input=block, text=True, capture_output=True, timeout=60, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
