"""A gateway starts without what only some calls need."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from codemode_gateway import load_config
from codemode_gateway.upstreams.tool_listing import ListCache, restore_listing

LATER = (
    "jwt",
    "webbrowser",
    "codemode_gateway.oauth.flow",
    "codemode_gateway.approvals.approval_flow",
    "codemode.stores.sqlite",
)


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
    assert "codemode_gateway.gateway.stdio" in imported
    assert imported.isdisjoint(LATER), imported & {*LATER}


RUNS_ALONE = (
    "codemode.interrupts", "codemode_gateway.approvals.approval_flow", "codemode.observe.telemetry",
    "codemode.protocol",
    "codemode.execution.execution", "codemode.execution.starting", "codemode.schemas.python_types", "codemode.source",
    "codemode.stores", "codemode.surfaces.modules.catalog", "codemode.surfaces.modules.executor",
    "codemode.tools.search",
    "codemode.workers", "jsonschema", "jsonschema_specifications", "referencing",
)  # fmt: skip
LISTING = """
import asyncio, json, sys
from pathlib import Path
import codemode_gateway.gateway.gateway as module
from codemode_gateway import Gateway, load_config
from mcp import Client

module._MOMENT_SECONDS = 3600  # after which it gets ready for programs

async def main():
    config = load_config(Path(sys.argv[1]), state_folder=Path(sys.argv[2]))
    async with Gateway(config) as gateway:
        async with Client(gateway.server) as client:
            (tool,) = (await client.list_tools()).tools
        modules = sorted(sys.modules)
        (upstream,) = (await gateway.get_or_create_workspace()).connected.upstreams
        print(json.dumps([tool.description, upstream.state, modules]))

asyncio.run(main())
"""


@pytest.mark.full
def test_the_first_list_comes_from_the_cache_without_what_runs_programs_and_starts_no_server(tmp_path: Path):
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"clock": {"command": "no-such-command"}}}))
    schema = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
    listing = restore_listing({}, [{"name": "tell_the_time", "inputSchema": schema}])
    (server,) = load_config(config, state_folder=tmp_path).servers
    asyncio.run(ListCache(tmp_path / "lists", "local").write(server, listing))
    command = [sys.executable, "-c", LISTING, str(config), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    description, state, modules = json.loads(done.stdout)
    assert "tell_the_time" in description
    assert state == "stopped"
    assert "codemode.surfaces.modules.description" in modules
    assert not [one for one in modules if any(f"{one}.".startswith(f"{room}.") for room in RUNS_ALONE)]
