"""Run ``codemode mcp``: serve the gateway over stdio or HTTP. Messages go to stderr."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from codemode.cli.databases import throttle_postgres_log
from codemode.cli.exits import SUCCEEDED, UsageError

from .command_context import (
    get_portable_command_prefix,
    load_configuration_and_warn,
    require_servers,
    warn,
    warn_about_problems,
)

if TYPE_CHECKING:
    from ..config.model import GatewayConfig
    from ..gateway.gateway import Gateway

_DEFAULT_HOST = "127.0.0.1"
_PR_SET_DUMPABLE = 4
_CONSOLE_MISSING = (
    "--http needs codemode-gateway[http] with the package codemode-console: in a clone of the repository run"
    " pip install ./integrations/console"
)


def run_serve_command(options: argparse.Namespace) -> int:
    """Serve until the client disconnects or a signal arrives."""
    # Servers run as this user, and keys and tokens are in the environment.
    disable_process_inspection()
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("codemode.mcp").setLevel(logging.INFO)
    throttle_postgres_log()
    address = None if options.http is None else parse_http_address(options.http)
    if address is not None and find_spec("codemode_console") is None:
        raise UsageError(_CONSOLE_MISSING)
    config = apply_command_line_overrides(require_servers(load_configuration_and_warn(options)), options)
    asyncio.run(_serve_gateway(config, options, address))
    return SUCCEEDED


def apply_command_line_overrides(config: GatewayConfig, options: argparse.Namespace) -> GatewayConfig:
    """Return the configuration with the overrides of the command line. Raises `ValueError` for an invalid name."""
    from ..config import codemode_section

    field_names = ("tool_name", "output", "pass_through")
    overrides = {name: value for name in field_names if (value := getattr(options, name)) is not None}
    if "tool_name" in overrides:
        codemode_section.SECTION_CHECKS["toolName"](overrides["tool_name"], "--tool-name")
    return replace(config, settings=replace(config.settings, **overrides)) if overrides else config


def parse_http_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, ``[HOST]:PORT`` or ``PORT``. Raises `UsageError` for anything else."""
    host, colon, port = text.rpartition(":")
    host_name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if (
        not port.isascii()
        or not port.isdigit()
        or (colon and not host_name)
        or (":" in host_name and host_name == host)
    ):
        raise UsageError(f"--http takes HOST:PORT, such as 127.0.0.1:8765, not {text!r}")
    if int(port) > 65535:
        raise UsageError(f"--http {text}: a port is a number up to 65535")
    return host_name or _DEFAULT_HOST, int(port)


def disable_process_inspection() -> bool:
    """Prevent other processes of this user from reading this process's memory and environment.

    Also prevents core dumps and debuggers. Child processes are not affected. Returns whether it worked: only Linux
    supports it.
    """
    if sys.platform != "linux":
        return False
    try:
        import ctypes  # late import: only needed here

        return ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False


async def _serve_gateway(config: GatewayConfig, options: argparse.Namespace, address: tuple[str, int] | None) -> None:
    from ..gateway.gateway import Gateway
    from ..gateway.options import GatewayOptions
    from ..oauth.browser import open_in_browser

    if address is None:  # the user is at this machine; remote users must not see local paths
        gateway_options = GatewayOptions(open_browser=open_in_browser, command=get_portable_command_prefix(options))
    else:
        gateway_options = GatewayOptions(over_http=True)
    async with Gateway(config, gateway_options) as gateway:
        watch_task = asyncio.create_task(_reload_on_change(gateway, config, options))
        try:
            if address is None:
                await gateway.serve_stdio()
            else:
                from ..gateway.http_app import serve_http

                await serve_http(gateway, *address)
        finally:
            watch_task.cancel()
            await asyncio.wait([watch_task])


async def _reload_on_change(gateway: Gateway, config: GatewayConfig, options: argparse.Namespace) -> None:
    """Apply changes of the configuration file; command line options stay."""
    from ..config.loader import watch_config

    if config.path is None:
        return
    async for new_config in watch_config(config.path, on_error=lambda problem: warn(str(problem))):
        warn_about_problems(new_config)
        if new_config.servers:
            await gateway.replace_config(apply_command_line_overrides(new_config, options))
        else:
            warn(f"{config.path} has no usable server any more; the previous servers stay")
