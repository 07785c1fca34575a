"""``codemode mcp run``: one program over the servers, as a client would send it, with a person at the terminal."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any

from codemode.cli.approvals import TerminalApprovals
from codemode.cli.exits import DONE, FAILED
from codemode.cli.run import program_text
from codemode.trace.visible_text import visible

from .setup import configuration, typed, usable, warn

if TYPE_CHECKING:
    from ..config.values import GatewayConfig


def run(options: argparse.Namespace) -> int:
    """Run the program and print the response, all of it."""
    code = program_text(options.program)
    config = usable(configuration(options))
    response = asyncio.run(_response(config, typed(options), code, TerminalApprovals(options.approve)))
    print(visible(json.dumps(response, indent=2, ensure_ascii=False), keep="\n"))
    wrong = [one for one in response.get("diagnostics", []) if one.get("severity") == "error"]
    return FAILED if wrong else DONE


async def _response(config: GatewayConfig, command: str, code: str, approvals: TerminalApprovals) -> dict[str, Any]:
    from ..own_client import response_to
    from .in_process import opened

    async def decide(shown: str) -> bool:
        return await approvals.decided(f"\n{visible(shown, keep=chr(10))}") == "approved"

    async def confirm(shown: str) -> bool:
        return await approvals.confirmed(f"\n{visible(shown, keep=chr(10))}", "Open this page? [y/N] ")

    async with opened(config, command) as (gateway, _):
        return await response_to(gateway, code, decide, warn, confirm)
