"""Incidents are triaged over three servers by one ES module. All is in this process: no network, no key.

The program that a model would write imports a module for each server, looks up what nobody told it (how the pager's
tool is called), asks all services at once, goes on where one of them fails, and leaves one result.

Needs this package alone: ``pip install .`` in the root of the repository.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

try:
    from codemode import CodeModeToolError, ModuleServer, create_modules_tool
except ImportError as error:
    sys.exit(f"{error}. This example needs what `pip install .` in the root of the repository brings.")


def say(text: str) -> None:
    """Print, until nobody reads any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


INCIDENTS: list[dict[str, object]] = [
    {"id": 1, "service": "checkout", "title": "500 on payment"},
    {"id": 2, "service": "search", "title": "slow results"},
    {"id": 3, "service": "legacy", "title": "cannot log in"},
]
ERROR_RATES = {"checkout": 0.31, "search": 0.002}
PAGED: list[dict[str, str]] = []

PROGRAM = """\
import { list_open, comment } from "@codemode/servers/incidents";
import * as metrics from "@codemode/servers/metrics";
import { searchTools } from "@codemode/discovery";
import { ToolCallError } from "@codemode/errors";

const { results: [pager] } = await searchTools("page whoever is on call", { detail: "name", limit: 1 });
const { [pager.exportName]: page } = await import("@codemode/servers/" + pager.serverId);

const triaged = await Promise.all((await list_open()).map(async (incident) => {
  try {
    const { rate } = await metrics.error_rate({ service: incident.service });
    if (rate > 0.05) await page({ service: incident.service, why: incident.title });
    return { id: incident.id, rate, paged: rate > 0.05 };
  } catch (error) {
    if (!(error instanceof ToolCallError)) throw error;
    await comment({ id: incident.id, text: "no metrics: " + error.message });
    return { id: incident.id, paged: false };
  }
}));
console.log("triaged", triaged.length);
globalThis.__codemode_result__ = triaged;
"""


def list_open() -> list[dict[str, object]]:
    """List the open incidents."""
    return INCIDENTS


def comment(id: int, text: str) -> str:  # noqa: A002 - the name that the program gives
    """Comment on an incident."""
    return f"commented on {id}: {text}"


def error_rate(service: str) -> dict[str, float]:
    """How many of a service's requests fail, between 0 and 1."""
    if service not in ERROR_RATES:
        raise CodeModeToolError(f"no metrics are kept for {service}")
    return {"rate": ERROR_RATES[service]}


def page(service: str, why: str) -> str:
    """Page whoever is on call for a service."""
    PAGED.append({"service": service, "why": why})
    return "paged"


async def main() -> None:
    """Run the program, and show what a model would be shown."""
    run = create_modules_tool(
        [
            ModuleServer("incidents", [list_open, comment]),
            ModuleServer("metrics", [error_rate]),
            ModuleServer("on-call", [page]),
        ]
    )
    response = await run.execute({"code": PROGRAM})
    say(json.dumps(response, indent=1))
    say(f"paged: {PAGED}")


if __name__ == "__main__":
    asyncio.run(main())
