"""The example of a store asks, decides and resumes in three processes, in at most 15 lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "approvals-hosts.md"
KEY = "CODEMODE_SIGNING_KEY"


def example() -> str:
    page = PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(r"^```py\n# refunds\.py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return found


def test_it_has_at_most_fifteen_lines():
    assert len([line for line in example().splitlines() if line.strip()]) <= 15


def test_it_asks_decides_and_resumes_in_three_processes(tmp_path: Path):
    (tmp_path / "refunds.py").write_text(example(), encoding="utf-8")
    environment = {**os.environ, KEY: "a key that the three of them share"}

    def run(*arguments: str, **more: str | None) -> subprocess.CompletedProcess[str]:
        given = {name: value for name, value in {**environment, **more}.items() if value is not None}
        command = [sys.executable, "refunds.py", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=120)

    asked = run("ask")
    assert (asked.returncode, asked.stderr) == (0, "")
    record_id = asked.stdout.strip()
    for step, said in (("decide", ""), ("resume", "refunded a-17")):
        done = run(step, record_id)
        assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", said), step
    refused = run("ask", **{KEY: None})
    assert refused.returncode == 1
    assert f"set the environment variable {KEY}" in refused.stderr
