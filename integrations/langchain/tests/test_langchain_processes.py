"""A process that dies between question and answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from suite import full_only
from warm_python import WarmPython

HOST = Path(__file__).with_name("killed_process.py")


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HOST), str(directory), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(HOST.parent)}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)


@pytest.mark.full
@pytest.mark.parametrize(
    ("mode", "face"), [("async", "mode"), *full_only(("sync", "call"), ("sync", "mode"), ("async", "call"))]
)
def test_killed_between_interrupt_and_resume(langchain_python: WarmPython, tmp_path: Path, mode: str, face: str):
    started = langchain_python.run(str(HOST), str(tmp_path), "start", mode, face)
    assert started.returncode == -signal.SIGKILL, started.stderr
    assert (tmp_path / "log").read_text().split("\n") == ["before", ""]
    # Sync in one process, async in the other is fine too: the checkpoint is the same.
    resumed = run(tmp_path, "resume", "async" if mode == "sync" else "sync", face)
    assert resumed.returncode == 0, resumed.stderr
    result = json.loads(resumed.stdout)
    result = result["result"] if face == "call" else result
    assert result == ["before", "refund a", "why: because", "after"]
    assert (tmp_path / "log").read_text().split("\n") == ["before", "why: because", "refund a", "after", ""]
