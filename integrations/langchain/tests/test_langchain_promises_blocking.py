"""Nothing of the plugin blocks an event loop: agents run under `langgraph dev`, which forbids it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from required import missing
from suite import full_only

SCRIPT = Path(__file__).with_name("unblocked_process.py")


@pytest.mark.parametrize("watched_by", ["langgraph dev", *full_only("blockbuster")])
def test_no_call_blocks_the_loop(watched_by: str, tmp_path: Path):
    if find_spec("blockbuster") is None:
        missing("blockbuster", "blockbuster is not installed")
    # A process of its own: what is imported or started once would not be seen twice.
    done = subprocess.run(
        [sys.executable, str(SCRIPT), watched_by, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.strip() == "done", done.stdout[-4000:] + done.stderr[-4000:]
