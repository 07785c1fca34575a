"""The README's programs and the example run as they stand."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from warm_python import WarmPython

HERE = Path(__file__).parents[1]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (HERE / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
NO_KEYS = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}


Run = Callable[..., str]


@pytest.fixture
def run(pydantic_ai_python: WarmPython, tmp_path: Path) -> Run:
    def run(*arguments: str, said: str = "") -> str:
        done = pydantic_ai_python.run(*arguments, said=said, env=NO_KEYS, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_runs(run: Run, block: str) -> None:
    if "pydantic_evals" in block and find_spec("pydantic_evals") is None:
        pytest.skip("pydantic-evals fits the lowest version, with which its block is run")
    run("-c", block)


def test_the_example_with_one_refund_edited_and_one_denied(run: Run) -> None:
    printed = run(str(HERE / "examples" / "support_desk.py"), said="e\n1000\nno\n")
    assert "The program wants: refund" in printed
    assert "Note: refunded 1000 cents of order 11; the desk refused to refund order 13" in printed


def test_the_example_with_everything_approved(run: Run) -> None:
    printed = run(str(HERE / "examples" / "support_desk.py"), said="a\na\n")
    assert '"refunded": 16700' in printed
