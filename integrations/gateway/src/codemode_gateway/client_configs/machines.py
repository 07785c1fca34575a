"""Where each client keeps its servers, on each platform. Reads nothing but what is there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..config.places import home
from ..config.values import ConfigError

Format = Literal["json", "toml"]

CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "codex")


@dataclass(frozen=True)
class Machine:
    """Whose files are meant: the environment tells home and folders. ``project`` is a folder of theirs, or None."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    platform: str = sys.platform
    project: Path | None = None

    @property
    def home(self) -> Path:
        return home(self.environ)

    def settings_folder(self) -> Path:
        """Return where applications of this platform keep their settings."""
        if self.platform == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        said = Path(self.environ.get("XDG_CONFIG_HOME", ""))
        return said if said.is_absolute() else self.home / ".config"


@dataclass(frozen=True)
class ClientFile:
    """One file of a client. ``keys`` lead to its servers; ``scope`` is ``user`` or ``project``.

    ``is_literal`` says that the client fills in no variables, ``entry_type`` that an entry names its type. ``folder``
    is where relative paths start, where that is not the folder of the file's project.
    """

    client: str
    path: Path
    keys: tuple[str, ...] = ("mcpServers",)
    format: Format = "json"
    scope: Literal["user", "project"] = "user"
    is_literal: bool = False
    entry_type: bool = False
    folder: Path | None = None


def found(client: str, machine: Machine | None = None) -> tuple[ClientFile, ...]:
    """Return the files in which a client has servers, that of the user first, whether they are there or not.

    Those of a project, where the machine has one, come last. Raises `ConfigError` for a client that is not known.
    """
    if client not in _FILES:
        raise ConfigError(f"{client!r} is no client that is known here; known are {', '.join(CLIENTS)}")
    return tuple(_FILES[client](machine or Machine()))


def _claude_desktop(machine: Machine) -> list[ClientFile]:
    name = Path("Claude", "claude_desktop_config.json")
    folders = [machine.settings_folder()]
    if machine.platform == "win32" and (local := machine.environ.get("LOCALAPPDATA")):
        # An application of the store sees this folder in place of its own.
        folders += [one / "LocalCache" / "Roaming" for one in sorted(Path(local, "Packages").glob("Claude_*"))]
    return [ClientFile("claude-desktop", _first([one / name for one in folders]), is_literal=True)]


def _claude_code(machine: Machine) -> list[ClientFile]:
    folder = Path(machine.environ.get("CLAUDE_CONFIG_DIR") or machine.home)
    files = [ClientFile("claude-code", folder / ".claude.json", entry_type=True)]
    if machine.project is not None:
        files.append(ClientFile("claude-code", machine.project / ".mcp.json", scope="project", entry_type=True))
    return files


def _cursor(machine: Machine) -> list[ClientFile]:
    folders = [machine.home] if machine.project is None else [machine.home, machine.project]
    files = [ClientFile("cursor", folder / ".cursor" / "mcp.json") for folder in folders]
    return [files[0], *(ClientFile(one.client, one.path, scope="project") for one in files[1:])]


def _vscode(machine: Machine) -> list[ClientFile]:
    portable = machine.environ.get("VSCODE_PORTABLE")
    roots = [Path(portable, "user-data")] if portable else []
    roots += [machine.settings_folder() / name for name in ("Code", "Code - Insiders", "VSCodium")]
    folder = _first([root / "User" for root in roots])
    files = [ClientFile("vscode", folder / "mcp.json", ("servers",), entry_type=True)]
    files.append(ClientFile("vscode", folder / "settings.json", ("mcp", "servers"), entry_type=True))
    if machine.project is not None:
        path = machine.project / ".vscode" / "mcp.json"
        files.append(ClientFile("vscode", path, ("servers",), scope="project", entry_type=True))
    return files


def _codex(machine: Machine) -> list[ClientFile]:
    folder = Path(machine.environ.get("CODEX_HOME") or machine.home / ".codex")
    files = [ClientFile("codex", folder / "config.toml", ("mcp_servers",), "toml", is_literal=True)]
    if machine.project is not None:
        path = machine.project / ".codex" / "config.toml"
        files.append(ClientFile("codex", path, ("mcp_servers",), "toml", "project", is_literal=True))
    return files


def _first(paths: list[Path]) -> Path:
    return next((one for one in paths if one.exists()), paths[0])


_FILES = {
    "claude-desktop": _claude_desktop,
    "claude-code": _claude_code,
    "cursor": _cursor,
    "vscode": _vscode,
    "codex": _codex,
}
