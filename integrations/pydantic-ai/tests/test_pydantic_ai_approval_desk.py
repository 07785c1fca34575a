"""The example of a support agent: asked in one process, decided in another, gone on with in two more, once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DESK = Path(__file__).parents[1] / "examples" / "approval_desk.py"
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("CODE_MODE_KEY", "USER")}


def begun(folder: Path, what: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", str(DESK), what, "sqlite:///approvals.db"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, text=True, cwd=folder, env=ENVIRONMENT, stdin=pipe, stdout=pipe, stderr=pipe)


def ended(process: subprocess.Popen[str], said: str = "") -> str:
    printed, errors = process.communicate(said, timeout=60)
    assert process.returncode == 0, errors
    assert errors == ""
    return printed


def test_an_edited_refund_is_made_once_whoever_goes_on(tmp_path: Path) -> None:
    asked = ended(begun(tmp_path, "ask"))
    assert "(looking up A-17)" in asked
    assert "It waits for a decision: record " in asked
    decided = ended(begun(tmp_path, "decide"), "9000\n")
    assert 'The agent wants: refund({"' in decided
    assert "refunding" not in asked + decided
    both = [begun(tmp_path, "resume") for _ in range(2)]
    printed = "".join(ended(one) for one in both)
    assert printed.count("(refunding A-17: 90.00)") == 1
    assert printed.count("(mail to ann@example.org: We have refunded 90.00 for A-17.)") == 1
    assert "looking up" not in printed
    assert "Done: refunded 90.00 for A-17." in printed
