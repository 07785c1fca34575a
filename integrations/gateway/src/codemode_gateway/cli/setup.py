"""Which configuration a command is about, and what can be used of it."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from codemode.cli.exits import UsageError
from codemode.trace.visible_text import visible

from ..config.own_entry import COMMAND

if TYPE_CHECKING:
    from ..config.values import GatewayConfig

CONFIG_VARIABLE = "CODEMODE_MCP_CONFIG"
_NEARBY = ("mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json")


def config_path(options: argparse.Namespace, environ: Mapping[str, str] | None = None) -> Path:
    """Return where the configuration is, or would be."""
    environment = os.environ if environ is None else environ
    if given := options.config or environment.get(CONFIG_VARIABLE):
        return Path(given).expanduser()
    return _default_path(environment)


def told_config(options: argparse.Namespace) -> Path | None:
    """Return the whole path of the configuration, None where a terminal that names none takes the same."""
    path = config_path(options).absolute()
    return None if path == _default_path(os.environ) else path


def typed(options: argparse.Namespace) -> str:
    """Return what a subcommand goes behind for whoever has typed this one, about the same configuration."""
    return COMMAND if options.config is None else f"{COMMAND} --config {visible(shlex.quote(options.config))}"


def _default_path(environment: Mapping[str, str]) -> Path:
    folder = environment.get("XDG_CONFIG_HOME") or ""
    # The specification has a relative path ignored.
    home = Path(folder) if folder and Path(folder).is_absolute() else Path.home() / ".config"
    return home / "codemode" / "mcp.json"


def configuration(options: argparse.Namespace) -> GatewayConfig:
    """Return what the configuration says, its problems told on stderr. Raises `UsageError` where it cannot be read."""
    path = config_path(options)
    if not path.is_file():
        raise UsageError(_missing(path, options))
    from ..config.reading import load_config

    config = load_config(path)
    tell_problems(config)
    return config


def tell_problems(config: GatewayConfig) -> None:
    """Say which servers were left out, and why, and what is hardly meant."""
    for note in config.notes:
        warn(note)
    for problem in config.problems:
        if problem.server is not None:
            warn(str(problem))


def usable(config: GatewayConfig) -> GatewayConfig:
    """Return a configuration in which a server is left. Raises `UsageError` for another."""
    if config.servers:
        return config
    why = next((str(one) for one in config.problems if one.server is None), "no server is left")
    raise UsageError(visible(f"{config.path}: {why}"))


def server_named(config: GatewayConfig, name: str) -> str:
    """Return the name of a server that can be used. Raises `UsageError` for another, with those that there are."""
    if any(one.name == name for one in config.servers):
        return name
    if name in config.disabled:
        raise UsageError(f"{visible(name)} is disabled in {visible(str(config.path))}")
    known = ", ".join(visible(one.name) for one in config.servers)
    raise UsageError(f"there is no server {visible(name)} that can be used; there are: {known or 'none'}")


def warn(text: str) -> None:
    """Say something on stderr, on which no protocol is spoken."""
    print(f"codemode: {visible(text, keep=chr(10))}", file=sys.stderr, flush=True)


def _missing(path: Path, options: argparse.Namespace) -> str:
    if path.is_dir():
        return f"{visible(str(path))} is a folder: name the file in it"
    said = f"there is no configuration {visible(str(path))}"
    if options.config is not None:
        return f"{said}: `{typed(options)} init` writes one"
    near = next((one for one in _NEARBY if Path(one).is_file()), None)
    found = "" if near is None else f"; for {near} of this folder, if you trust it, say --config {near}"
    return f"{said}: write one with `codemode mcp init`, take over a client's with `codemode mcp import`{found}"
