"""The example of a program that waits, run as it is: for a slow tool, at a yield, for a refund decided elsewhere."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "slow_triage.py"


@pytest.mark.full
def test_the_slow_triage():
    done = subprocess.run([sys.executable, "-W", "error", str(EXAMPLE)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("exec gives:") == 1
    for reason in ('"reason": "pending_tools"', '"reason": "yield"', '"status": "approval"'):
        assert reason in done.stdout
    assert "workers that are kept: 0" in done.stdout
    assert 'asks for {"cents": 4200, "ticket": "T-2"}' in done.stdout
    assert "it came to ['refunded 3000 cents for T-2']" in done.stdout
