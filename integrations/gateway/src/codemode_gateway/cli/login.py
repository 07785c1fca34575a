"""``codemode mcp login`` and ``logout``: the tokens with which the gateway calls a server."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from codemode.cli.exits import DONE
from codemode.trace.visible_text import visible

from .setup import configuration, server_named

if TYPE_CHECKING:
    from ..config.values import GatewayConfig


def run(options: argparse.Namespace) -> int:
    """Sign in, or forget what there is."""
    config = configuration(options)
    name = server_named(config, options.name)
    if options.part == "logout":
        return asyncio.run(_logout(config, name))
    return asyncio.run(_login(config, name, opens=not options.no_browser))


async def _login(config: GatewayConfig, name: str, *, opens: bool) -> int:
    from ..oauth.browser import open_in_browser
    from ..oauth.logins import login

    # Where somebody is at the terminal, the page may be opened on another machine and its end pasted here.
    reads = sys.stdin.isatty() or not opens
    await login(
        config,
        name,
        open_browser=open_in_browser if opens else None,
        read_line=sys.stdin.readline if reads else None,
    )
    print(f"signed in to {visible(name)}")
    return DONE


async def _logout(config: GatewayConfig, name: str) -> int:
    from ..oauth.logins import logout

    had = await logout(config, name)
    print(f"forgot the tokens of {visible(name)}" if had else f"there are no tokens of {visible(name)}")
    return DONE
