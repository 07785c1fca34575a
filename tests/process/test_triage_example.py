"""The example of modules over three servers, run as it is."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "triage.py"


def test_the_triage():
    done = subprocess.run([sys.executable, "-W", "error", str(EXAMPLE)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "paged: [{'service': 'checkout', 'why': '500 on payment'}]" in done.stdout
    assert '"paged": false' in done.stdout
    assert '"diagnostics": []' in done.stdout
