"""A program over two MCP servers wants to delete something; a person changes what, and lets it. No network, no key.

`codemode mcp` is started as a client starts it, with the two servers of ``examples/servers``. This script is the
client, and its person: the gateway asks about the one call that its server declares destructive, not about the program.
What runs is what the person has written, and the calls before it are not made again.

Needs the gateway: ``pip install . ./integrations/gateway`` in the root of the repository, or ``make demo``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

try:
    import mcp_types as types
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    import codemode
except ImportError as error:
    sys.exit(f"{error}. This example needs what `pip install . ./integrations/gateway` brings.")

SERVERS = Path(__file__).parent / "servers"

PROGRAM = """\
import { list_backups, delete_backups } from "@codemode/servers/backups";
import { add_entry } from "@codemode/servers/logbook";

const old = (await list_backups()).backups.filter((one) => one.age_days > 30);
const done = await delete_backups({ names: old.map((one) => one.name) });
await add_entry({ text: `deleted ${done.deleted.join(", ")}: ${done.freed_megabytes} MB` });
globalThis.__codemode_result__ = done;
"""


def say(text: str) -> None:
    """Print, until nobody reads any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def person(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Keep the backup from before the migration, and let the rest go."""
    del context
    if not isinstance(params, types.ElicitRequestFormParams):
        return types.ElicitResult(action="decline")
    say("=== What a person is asked ===\n")
    say(params.message)
    fields: dict[str, Any] = params.requested_schema["properties"]
    shown = json.loads(fields["input"]["default"])
    edited = {"names": [name for name in shown["names"] if name != "before-migration"]}
    say(f"\n=== What the person answers ===\n\nonce, with {json.dumps(edited)}\n")
    return types.ElicitResult(action="accept", content={"decision": "once", "input": json.dumps(edited)})


def gateway(folder: Path) -> StdioServerParameters:
    """Return how a client starts the gateway: the line that stands in its configuration."""
    servers = {
        name: {"command": sys.executable, "args": [str(SERVERS / f"{name}_server.py")]}
        for name in ("backups", "logbook")
    }
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    # What the gateway keeps belongs into the user's folder for state: here into one that goes with the example.
    state = {"XDG_STATE_HOME": str(folder / "state")}
    arguments = ["-m", codemode.__name__, "mcp", "--config", str(config)]
    return StdioServerParameters(command=sys.executable, args=arguments, env={**os.environ, **state})


async def main() -> None:
    """Connect, show what the client is given, send the program, show the answer."""
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "gateway.log").open("w") as log:
        started = stdio_client(gateway(Path(folder)), errlog=log)
        async with Client(started, elicitation_callback=person) as client:
            (tool,) = (await client.list_tools()).tools
            say(f"=== What the client is given: one tool, {tool.name} ===\n")
            say((tool.description or "")[:900] + " ...\n")
            say("=== The program that its model sends ===\n")
            say(PROGRAM)
            answer = await client.call_tool(tool.name, {"code": PROGRAM})
            say("=== What the model is answered ===\n")
            say(json.dumps(answer.structured_content, indent=2))
            say("\nSaved against direct calls: 2 model turns instead of 4, and one call edited before it ran.")


if __name__ == "__main__":
    asyncio.run(main())
