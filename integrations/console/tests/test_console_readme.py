"""The README's programs run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from warm_python import WarmPython

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_runs(console_python: WarmPython, block: str, tmp_path: Path) -> None:
    done = console_python.run("-c", block, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
