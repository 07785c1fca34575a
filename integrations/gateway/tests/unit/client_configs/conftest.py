"""A machine on which nothing is installed, and a configuration of the gateway that is not there yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from codemode_gateway.client_configs.importing import ClientEnvironment


@pytest.fixture
def machine(tmp_path: Path) -> ClientEnvironment:
    return ClientEnvironment({"HOME": str(tmp_path / "home")}, "linux")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "own" / "mcp.json"
