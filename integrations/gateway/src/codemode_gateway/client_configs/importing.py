"""Where clients have their configuration on each platform, and the import of its servers."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from codemode.data.narrowing import is_mapping, list_or_empty, mapping_or_empty

from ..config import config_file
from ..config.config_file import JsonError
from ..config.loader import containers_in, load_config
from ..config.model import ConfigError
from ..config.places import NAME, base_folder, home, starts_gateway
from .file_formats import JsonEdits, JsonFile, TomlFile

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


GATEWAY = NAME
"""The name under which a client has the gateway."""

MAX_BYTES = 64 * 1024 * 1024
"""A client that keeps its whole state in one file, as some do, may have written much."""

MAX_SERVERS = 1_000
_MAX_NAMED = 5


@dataclass(frozen=True)
class Imported:
    """What clients' files say: servers by name, VS Code's inputs, and the files in which they were found.

    ``left`` are those that the gateway cannot use, with the reason; ``notes`` say where others are, and what was read
    from an unusual place.
    """

    servers: Mapping[str, Mapping[str, Any]]
    inputs: tuple[Any, ...]
    files: tuple[Path, ...]
    left: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Imported: {', '.join(self.servers) or 'nothing'}>"


def imported(client: str, machine: Machine | None = None, *, folder: Path | None = None) -> Imported:
    """Return the servers of a client, as entries for our configuration; of one name in two files, the first.

    Claude Code keeps servers for folders too: those for the machine's project, else for ``folder`` or one that it is
    in, come first, as they do in the client. Raises `ConfigError` where a file cannot be read. A client without files
    has none.
    """
    servers, left, inputs, seen, notes = dict[str, Any](), dict[str, str](), list[Any](), list[Path](), list[str]()
    here = folder if machine is None or machine.project is None else machine.project
    for file in found(client, machine):
        text = text_of(file)
        if text is None:
            continue
        places = [*_servers_of_folders(file, text, here, notes), (file, servers_in(file, text))]
        if not any(said for _, said in places):
            places.append((file, _servers_under_other_keys(file, text, notes)))
        seen += [file.path] if any(said for _, said in places) and file.path not in seen else []
        inputs += inputs_in(file, text)
        for place, said in places:
            for name, entry in said.items():
                if is_gateway(entry) or name in servers or name in left:
                    continue
                ours = as_ours(entry, place)
                if reason := unusable(name, ours):
                    left[name] = reason
                else:
                    servers[name] = ours
    return Imported(servers, tuple(inputs), tuple(seen), left, tuple(notes))


def _servers_of_folders(
    file: ClientFile, text: str, here: Path | None, notes: list[str]
) -> list[tuple[ClientFile, dict[str, Any]]]:
    """Return the servers that Claude Code keeps for the folder ``here``; a note names the folders of others."""
    if file.client != "claude-code" or file.scope != "user":
        return []
    kept: dict[Path, dict[str, Any]] = {}
    for folder, entry in servers_in(replace(file, keys=("projects",)), text).items():
        own = mapping_or_empty(entry).get("mcpServers")
        if is_mapping(own) and own:
            kept[Path(folder)] = dict(own)
    around = [] if here is None else [here.resolve(), *here.resolve().parents]
    mine = next((path for place in around for path in kept if path.resolve() == place), None)
    others = [f"{path} ({', '.join(kept[path])})" for path in kept if path != mine]
    if others:
        more = f" and {len(others) - _MAX_NAMED} more" if len(others) > _MAX_NAMED else ""
        notes.append(
            f"{file.path} has servers for other folders, under projects, which are not taken:"
            f" {', '.join(others[:_MAX_NAMED])}{more}; --project FOLDER takes those of a folder"
        )
    if mine is None:
        return []
    notes.append(f"{', '.join(kept[mine])}: taken from what {file.client} keeps for the folder {mine}")
    return [(replace(file, scope="project", folder=mine), kept[mine])]


def _servers_under_other_keys(file: ClientFile, text: str, notes: list[str]) -> dict[str, Any]:
    """Return the servers of a file that has none where its client looks, but has some under the key of another."""
    whole = tomllib.loads(text) if file.format == "toml" else JsonEdits.of(text).root.plain()
    for place, servers in containers_in(mapping_or_empty(whole)):
        if is_mapping(servers) and servers:
            own = ".".join(file.keys)
            notes.append(f"{file.path} has its servers under {place}, where {file.client} does not look ({own})")
            return dict(servers)
    return {}


def dialect(file: ClientFile) -> JsonFile | TomlFile:
    return TomlFile(file.keys) if file.format == "toml" else JsonFile(file.keys)


def text_of(file: ClientFile) -> str | None:
    """Return the text of a client's file, None where there is no such file. Raises `ConfigError`."""
    return config_file.text_of(file.path, MAX_BYTES) if config_file.is_there(file.path) else None


def servers_in(file: ClientFile, text: str) -> dict[str, Any]:
    """Return the servers of a client's text. Raises `ConfigError` that names the file and the place."""
    try:
        said = dialect(file).servers(text)
    except JsonError as mistake:
        raise ConfigError(f"{file.path}, {mistake}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as mistake:
        place = str(mistake).rpartition("(at ")[2].rstrip(")")
        raise ConfigError(f"{file.path}, {place}: this is no TOML; mend it first") from None
    except ConfigError as problem:
        raise ConfigError(f"{file.path}: {problem}") from None
    if len(said) > MAX_SERVERS:
        raise ConfigError(f"{file.path}: it has more than {MAX_SERVERS:,} servers; take some out by hand")
    return said


def inputs_in(file: ClientFile, text: str) -> list[Any]:
    return dialect(file).inputs(text)


def is_gateway(entry: Any) -> bool:
    """Return whether an entry of a client starts this gateway."""
    if not is_mapping(entry):
        return False
    args = [one for one in list_or_empty(entry.get("args")) if isinstance(one, str)]
    command = entry.get("command")
    return isinstance(command, str) and starts_gateway(command, args)


def unusable(name: str, entry: Any) -> str | None:
    """Return why the gateway could never use a server; what only lacks a variable's value it could."""
    told = load_config({"mcpServers": {name: entry}}).problems
    return next((str(one) for one in told if one.server is not None and not one.lacks_value), None)


def as_ours(entry: Any, file: ClientFile) -> Any:
    """Return a client's entry as it means the same in another file: paths from its project, variables as they were."""
    said: Any = _escaped(entry) if file.is_literal else entry
    if file.scope == "user" or not is_mapping(said):
        return said
    folder = file.folder or base_folder(file.path)
    paths = {key: said[key] for key in ("cwd", "envFile") if isinstance(said.get(key), str)}
    if file.folder is not None and "command" in said:
        paths.setdefault("cwd", ".")  # where its client starts it
    return {**said, **{key: _from(folder, one) for key, one in paths.items()}}


def _from(folder: Path, written: str) -> str:
    return written if written.startswith(("~", "${")) else str(folder / written)


def _escaped(value: Any) -> Any:
    """Return a value in whose strings nothing is a variable: its client fills in none."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, Mapping):
        return {key: _escaped(one) for key, one in cast("Mapping[str, Any]", value).items()}
    return [_escaped(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value
