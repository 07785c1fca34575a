"""The example of tools of an OpenAPI document, run as it is."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "github_issues.py"


def test_the_issues_of_github():
    done = subprocess.run([sys.executable, "-W", "error", str(EXAMPLE)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert '{"labelled": [2, 4], "refused": [{"number": 3, "status": 403,' in done.stdout
