"""A gateway starts without what only some calls need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

LATER = ("jwt", "webbrowser", "codemode.mcp.signin.flow", "codemode.mcp.approvals.asking", "codemode.stores.sqlite")


def test_serving_begins_without_what_signs_in_asks_or_keeps(tmp_path: Path):
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"one": {"command": sys.executable, "args": ["-c", ""]}}}))
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "codemode", "mcp", "--config", str(config)],
        env={**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
    assert "codemode.mcp.gateway.stdio" in imported
    assert imported.isdisjoint(LATER), imported & {*LATER}
