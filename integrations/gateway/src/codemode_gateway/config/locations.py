"""The user's folders, paths in configurations, and the command that starts the gateway."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_EDITOR_FOLDERS = frozenset({".vscode", ".cursor", ".codex"})


def get_home_folder(environ: Mapping[str, str]) -> Path:
    """Return the user's home folder according to ``environ``."""
    home = environ.get("HOME") or environ.get("USERPROFILE")
    return Path(home) if home else Path.home()


def state_folder(environ: Mapping[str, str] | None = None, *, platform: str = sys.platform) -> Path:
    """Return the folder of the gateway's store, caches, keys and tokens; it may not exist yet.

    An absolute ``XDG_STATE_HOME`` counts on every platform.
    """
    variables = os.environ if environ is None else environ
    if Path(xdg_folder := variables.get("XDG_STATE_HOME", "")).is_absolute():
        return Path(xdg_folder) / "codemode"
    if platform == "win32":
        local = variables.get("LOCALAPPDATA")
        return (Path(local) if local else get_home_folder(variables) / "AppData" / "Local") / "codemode"
    if platform == "darwin":
        return get_home_folder(variables) / "Library" / "Application Support" / "codemode"
    return get_home_folder(variables) / ".local" / "state" / "codemode"


def get_base_folder(path: Path | None) -> Path:
    """Return the base of relative paths in the file at ``path``: its folder, or the project of an editor folder."""
    if path is None:
        return Path.cwd()
    folder = path.absolute().parent
    return folder.parent if folder.name in _EDITOR_FOLDERS else folder


def get_workspace_folder(path: Path | None) -> Path:
    """Return the value of ``${workspaceFolder}``: the project of the file, else the current folder."""
    is_of_project = path is not None and (path.name == ".mcp.json" or path.absolute().parent.name in _EDITOR_FOLDERS)
    return get_base_folder(path) if is_of_project else Path.cwd()


def is_path_in_home(written_path: str) -> bool:
    """Return whether a path in a configuration begins with the home folder ``~``."""
    return written_path == "~" or written_path.startswith(("~/", "~\\"))


def resolve_path(folder: Path, written_path: str, environ: Mapping[str, str]) -> Path:
    """Return the path for ``written_path`` in a configuration with the base folder ``folder``."""
    if is_path_in_home(written_path):
        return get_home_folder(environ) / written_path[2:]
    return folder / written_path


PROGRAM_NAME = "codemode"
GATEWAY_COMMAND = f"{PROGRAM_NAME} mcp"
"""The command before a subcommand, by default."""


def format_login_command(server: str, command: str = GATEWAY_COMMAND) -> str:
    """Return the shell command that signs in to a server."""
    return f"{command} login {shlex.quote(server)}"


def is_gateway_command(command: str | None, args: Sequence[str]) -> bool:
    """Return whether a command starts this gateway: ``codemode mcp ...``, also through a path or a module."""
    arguments = [Path((command or "").replace("\\", "/")).stem, *args]
    program_indexes = [
        index for index, word in enumerate(arguments) if Path(word.replace("\\", "/")).stem == PROGRAM_NAME
    ]
    return any("mcp" in arguments[index + 1 :] for index in program_indexes)


def get_config_argument(args: Sequence[str]) -> str | None:
    """Return the ``--config`` of a gateway command, or None for the default."""
    for index, argument in enumerate(args):
        if argument == "--config" and index + 1 < len(args):
            return args[index + 1]
        if argument.startswith("--config="):
            return argument.partition("=")[2]
    return None
