"""A gateway with one server, ``disk``, whose tool wipes a folder: runs, decisions and what has been wiped."""

import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from approval_world import answer_of
from codemode_gateway import Gateway, load_config

from codemode.stores import ALL_TENANTS

SCRIPT = Path(__file__).parents[4] / "tests" / "support" / "mcp_servers" / "changing_server.py"
WIPE = 'import { wipe } from "@codemode/servers/disk";\nglobalThis.__codemode_result__ = await wipe({});'


def lists_at(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    listed = [{"name": "wipe", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": True}}]
    (folder / "tools.json").write_text(json.dumps(listed))


@asynccontextmanager
async def gateway_at(folder: Path, **said: Any) -> Any:
    """Give a gateway whose server ``disk`` works in this folder, over the store that all of one test share."""
    lists_at(folder)
    server = {"command": sys.executable, "args": [str(SCRIPT), str(folder)], **said}
    config = {"mcpServers": {"disk": server}, "codemode": {"approvalWaitMs": 0}}
    async with Gateway(load_config(config, state_folder=folder.parent / "state")) as gateway:
        yield gateway


def wiped(folder: Path) -> int:
    log = folder / "log"
    return log.read_text().count("call wipe") if log.exists() else 0


async def run(client: Any, **arguments: Any) -> Any:
    return answer_of(await client.call_tool("codemode_run", arguments))


async def approve_all(store: Any) -> None:
    page = await store.list(tenant=ALL_TENANTS, state="waiting")
    asked = [one for record in page.records for one in record.requests]
    await store.decide({one.interrupt_id: {"approved": True} for one in asked}, actor="ana", tenant=ALL_TENANTS)


async def until(store: Any, record_id: str, what: Any) -> Any:
    with store.watch() as watch:
        while not what(record := await store.record(record_id, tenant=ALL_TENANTS)):
            await watch.wait(0.2)
    return record
