"""Every Python block of the README runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_readme_has_examples() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_runs(block: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-"], input=block, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
