"""``codemode mcp check``: everything that can be wrong, found beforehand, and what a model would be given."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..trace.visible_text import aligned, counted, one_line, visible
from .exits import DONE, FAILED
from .mcp_setup import configuration, server_named, typed, usable

if TYPE_CHECKING:
    from ..mcp.config.values import GatewayConfig

_CHARACTERS_PER_TOKEN = 4
_MAX_REASON_CHARACTERS = 400


def run(options: argparse.Namespace) -> int:
    """Start every server, print the findings; the exit code says whether all is well."""
    config = usable(configuration(options))
    if options.name is not None:
        name = server_named(config, options.name)
        config = replace(config, servers=tuple(one for one in config.servers if one.name == name), problems=())
    found = asyncio.run(_found(config, typed(options)))
    if options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _print(found)
    return FAILED if found["problems"] or any(one["problem"] for one in found["servers"]) else DONE


async def _found(config: GatewayConfig, command: str) -> dict[str, Any]:
    from ..mcp.own_client import listed_tool
    from .mcp_gateway import listed, opened, told_once

    known: list[str] = []
    with told_once(known):
        async with opened(config, command) as (gateway, seat):
            upstreams = seat.connected.upstreams
            reasons = await asyncio.gather(*(listed(one, anew=True) for one in upstreams))
            known += [text for text in (*reasons, *(one.failure for one in upstreams)) if text]
            tool = await listed_tool(gateway)
            problems = [str(one) for one in config.problems if one.server is not None]
            problems += await _store_problems(gateway)
            problems += _sign_in_problems(config)
    rows = [
        {"name": one.config.name, "tools": len(one.listed), "problem": reason}
        for one, reason in zip(upstreams, reasons, strict=True)
    ]
    listed = [tool for one in upstreams for tool in one.listed]
    return {"servers": rows, "problems": problems, "given": tool, "sizes": _sizes(tool, listed)}


async def _store_problems(gateway: Any) -> list[str]:
    from ..errors import CodeModeError
    from ..stores.values import ALL_TENANTS

    try:
        await gateway.store.list(tenant=ALL_TENANTS, limit=1)
    except (CodeModeError, OSError, ValueError) as error:
        return [f"codemode.store: {error}"]
    return []


def _sign_in_problems(config: GatewayConfig) -> list[str]:
    """Return what the gateway would refuse to serve HTTP with."""
    from ..mcp.config.values import ConfigError
    from ..mcp.gateway.http_settings import http_settings

    try:
        http_settings(config.settings.auth)
    except ConfigError as error:
        return [str(error)]
    return []


def _sizes(tool: dict[str, Any], listed: list[Any]) -> dict[str, Any]:
    direct = [one.model_dump_json(by_alias=True, exclude_none=True) for one in listed]
    return {
        "given": _size(len(json.dumps(tool, ensure_ascii=False, separators=(",", ":")))),
        "direct": _size(sum(map(len, direct))),
        "tools": len(direct),
    }


def _size(characters: int) -> dict[str, int]:
    return {"characters": characters, "tokens": characters // _CHARACTERS_PER_TOKEN}


def _print(found: dict[str, Any]) -> None:
    tool, sizes = found["given"], found["sizes"]
    print(f"A model is given one tool, {visible(tool['name'])}:\n")
    print(visible(tool.get("description", ""), keep="\n\t"))
    print()
    print("\n".join(aligned(map(_row, found["servers"]))))
    for problem in found["problems"]:
        print(f"FAILED  {one_line(problem, _MAX_REASON_CHARACTERS)}")
    print()
    rows = [
        ("given to a model", _told(sizes["given"])),
        (f"{counted(sizes['tools'], 'tool')} listed directly", _told(sizes["direct"])),
    ]
    print("\n".join(aligned(rows)))
    wrong = sum(one["problem"] is not None for one in found["servers"]) + len(found["problems"])
    print("\nAll is well." if not wrong else f"\nNot well: {counted(wrong, 'problem')}, marked FAILED above.")


def _row(one: dict[str, Any]) -> tuple[str, str, str]:
    name = one_line(one["name"], 60)
    if one["problem"] is not None:
        return "FAILED", name, one_line(one["problem"], _MAX_REASON_CHARACTERS)
    return "ok", name, counted(one["tools"], "tool")


def _told(size: dict[str, int]) -> str:
    return f"{counted(size['characters'], 'character')}, about {counted(size['tokens'], 'token')}"
