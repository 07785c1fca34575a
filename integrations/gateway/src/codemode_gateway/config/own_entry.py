"""How the gateway is started: its words, and its entry in a client, told from those of servers. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

NAME = "codemode"
COMMAND = f"{NAME} mcp"
"""What its subcommands go behind, where nothing else is known of who types them."""


def login_command(server: str, command: str = COMMAND) -> str:
    """Return what signs in to a server, typed in a shell."""
    return f"{command} login {shlex.quote(server)}"


def starts_gateway(command: str | None, args: Sequence[str]) -> bool:
    """Return whether a command starts this gateway: ``codemode mcp ...``, however codemode is found."""
    words = [Path((command or "").replace("\\", "/")).stem, *args]
    places = [index for index, word in enumerate(words) if Path(word.replace("\\", "/")).stem == NAME]
    return any("mcp" in words[place + 1 :] for place in places)


def configuration_of(args: Sequence[str]) -> str | None:
    """Return the configuration that a command of the gateway names, None where it takes the one of its user."""
    for index, one in enumerate(args):
        if one == "--config" and index + 1 < len(args):
            return args[index + 1]
        if one.startswith("--config="):
            return one.partition("=")[2]
    return None
