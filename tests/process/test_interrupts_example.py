"""The support agent of the examples runs as it stands and says what it did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "support_agent.py"


def test_the_support_agent():
    command = [sys.executable, "-W", "error", str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "It pauses once, with 2 requests" in done.stdout
    assert done.stdout.count("  findOrders(ada@example.com)") == 1
    assert done.stdout.count("  refund(A-1003, 174.50 EUR)") == 1
    assert "refund(A-1002" not in done.stdout
    assert '"A-1002: no refund, a colleague will call",\n    "A-1003: 174.5 EUR refunded"' in done.stdout
    assert 'refunds: [{"order_id": "A-1003", "amount": 174.5, "currency": "EUR"}]' in done.stdout
