"""``codemode mcp types``: the TypeScript of the servers, as programs see them."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from codemode.cli.exits import DONE, FAILED
from codemode.trace.visible_text import visible

from .setup import configuration, server_named, typed, usable, warn

if TYPE_CHECKING:
    from ..config.values import GatewayConfig


def run(options: argparse.Namespace) -> int:
    """Print the declarations of all servers, or of one."""
    config = usable(configuration(options))
    name = None if options.name is None else server_named(config, options.name)
    if name is not None:
        config = replace(config, servers=tuple(one for one in config.servers if one.name == name))
    text, failures = asyncio.run(_declared(config, typed(options), name))
    if text:
        print(visible(text, keep="\n\t"))
    for failure in failures:
        warn(failure)
    return FAILED if failures else DONE


async def _declared(config: GatewayConfig, command: str, name: str | None) -> tuple[str, list[str]]:
    from .in_process import listed, opened, told_once

    known: list[str] = []
    with told_once(known):
        async with opened(config, command) as (_, seat):
            upstreams = seat.connected.upstreams
            reasons = await asyncio.gather(*(listed(one, anew=False) for one in upstreams))
            known += [text for text in (*reasons, *(one.failure for one in upstreams)) if text]
            await seat.run_tool.refresh()
            text = seat.run_tool.declarations(name)
            failures = seat.run_tool.failures
    whys = [why or failures.get(one.server_id) for one, why in zip(upstreams, reasons, strict=True)]
    failed = [(one, why) for one, why in zip(upstreams, whys, strict=True) if why is not None]
    return text, [f"{one.config.name}: {why}" for one, why in failed]
