"""Find the configuration files of clients on each platform, and import their servers."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from codemode.data.narrowing import is_mapping, list_or_empty, mapping_or_empty

from ..config import config_file
from ..config.config_file import JsonError
from ..config.loader import find_server_containers, load_config
from ..config.locations import (
    PROGRAM_NAME,
    get_base_folder,
    get_home_folder,
    is_gateway_command,
    is_path_in_home,
)
from ..config.model import ConfigError
from ..config.server_entry import COMMAND_KEYS, CWD_KEYS, ENV_FILE_KEYS
from ..config.substitution import escape_variables, expand_workspace_variables
from .file_formats import JsonDocument, JsonServersFormat, TomlServersFormat

FileFormat = Literal["json", "toml"]

CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode", "codex")


@dataclass(frozen=True)
class ClientEnvironment:
    """The user and platform whose client files are read. ``project`` is a project folder, or None."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    platform: str = sys.platform
    project: Path | None = None

    @property
    def home(self) -> Path:
        return get_home_folder(self.environ)

    def get_settings_folder(self) -> Path:
        """Return the settings folder for applications on this platform."""
        if self.platform == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        xdg_folder = Path(self.environ.get("XDG_CONFIG_HOME", ""))
        return xdg_folder if xdg_folder.is_absolute() else self.home / ".config"


@dataclass(frozen=True)
class ClientFile:
    """One file of a client. ``keys`` is the path of its servers; ``scope`` is ``user`` or ``project``.

    ``is_literal``: the client does not substitute variables. ``entry_type``: entries name their type. ``folder`` is the
    base of relative paths, if not the project of the file.
    """

    client: str
    path: Path
    keys: tuple[str, ...] = ("mcpServers",)
    format: FileFormat = "json"
    scope: Literal["user", "project"] = "user"
    is_literal: bool = False
    entry_type: bool = False
    folder: Path | None = None


def list_client_files(client: str, machine: ClientEnvironment | None = None) -> tuple[ClientFile, ...]:
    """Return the files for servers of a client, whether they exist or not: the user's first, a project's last.

    Raises `ConfigError` for an unknown client.
    """
    if client not in _FILE_LISTS:
        raise ConfigError(f"unknown client {client!r}; use one of {', '.join(CLIENTS)}")
    return tuple(_FILE_LISTS[client](machine or ClientEnvironment()))


def _list_claude_desktop_files(machine: ClientEnvironment) -> list[ClientFile]:
    name = Path("Claude", "claude_desktop_config.json")
    folders = [machine.get_settings_folder()]
    if machine.platform == "win32" and (local := machine.environ.get("LOCALAPPDATA")):
        # Apps from the Microsoft Store see this folder instead.
        folders += [folder / "LocalCache" / "Roaming" for folder in sorted(Path(local, "Packages").glob("Claude_*"))]
    return [
        ClientFile(
            "claude-desktop", _choose_first_existing_or_first([folder / name for folder in folders]), is_literal=True
        )
    ]


def _list_claude_code_files(machine: ClientEnvironment) -> list[ClientFile]:
    folder = Path(machine.environ.get("CLAUDE_CONFIG_DIR") or machine.home)
    files = [ClientFile("claude-code", folder / ".claude.json", entry_type=True)]
    if machine.project is not None:
        files.append(ClientFile("claude-code", machine.project / ".mcp.json", scope="project", entry_type=True))
    return files


def _list_cursor_files(machine: ClientEnvironment) -> list[ClientFile]:
    folders = [machine.home] if machine.project is None else [machine.home, machine.project]
    files = [ClientFile("cursor", folder / ".cursor" / "mcp.json") for folder in folders]
    return [files[0], *(ClientFile(file.client, file.path, scope="project") for file in files[1:])]


def _list_vscode_files(machine: ClientEnvironment) -> list[ClientFile]:
    portable = machine.environ.get("VSCODE_PORTABLE")
    roots = [Path(portable, "user-data")] if portable else []
    roots += [machine.get_settings_folder() / name for name in ("Code", "Code - Insiders", "VSCodium")]
    folder = _choose_first_existing_or_first([root / "User" for root in roots])
    files = [ClientFile("vscode", folder / "mcp.json", ("servers",), entry_type=True)]
    files.append(ClientFile("vscode", folder / "settings.json", ("mcp", "servers"), entry_type=True))
    if machine.project is not None:
        path = machine.project / ".vscode" / "mcp.json"
        files.append(ClientFile("vscode", path, ("servers",), scope="project", entry_type=True))
    return files


def _list_codex_files(machine: ClientEnvironment) -> list[ClientFile]:
    folder = Path(machine.environ.get("CODEX_HOME") or machine.home / ".codex")
    files = [ClientFile("codex", folder / "config.toml", ("mcp_servers",), "toml", is_literal=True)]
    if machine.project is not None:
        path = machine.project / ".codex" / "config.toml"
        files.append(ClientFile("codex", path, ("mcp_servers",), "toml", "project", is_literal=True))
    return files


def _choose_first_existing_or_first(paths: list[Path]) -> Path:
    return next((path for path in paths if path.exists()), paths[0])


_FILE_LISTS = {
    "claude-desktop": _list_claude_desktop_files,
    "claude-code": _list_claude_code_files,
    "cursor": _list_cursor_files,
    "vscode": _list_vscode_files,
    "codex": _list_codex_files,
}


GATEWAY_NAME = PROGRAM_NAME
"""The gateway's name in client files."""

MAX_BYTES = 64 * 1024 * 1024
"""Large, because some clients store their whole state in this file."""

MAX_SERVERS = 1_000
_MAX_LISTED_FOLDERS = 5


@dataclass(frozen=True)
class ImportableServers:
    """The imported servers by name, VS Code's inputs, and the files they come from.

    ``skipped`` are the servers that the gateway cannot use, with the reasons. ``notes`` name further servers, and
    servers read from unusual places.
    """

    servers: Mapping[str, Mapping[str, Any]]
    inputs: tuple[Any, ...]
    files: tuple[Path, ...]
    skipped: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<ImportableServers: {', '.join(self.servers) or 'nothing'}>"


_Source = tuple[ClientFile, dict[str, Any]]
"""A file, and its servers or those that it has for a folder."""


def collect_importable_servers(
    client: str, machine: ClientEnvironment | None = None, *, folder: Path | None = None
) -> ImportableServers:
    """Return the servers of a client as gateway entries.

    Claude Code also has servers for folders: those of the project, else of ``folder`` or a parent, are imported. Of
    servers with the same name one is imported, as in the clients: that of the folder, else of the project, else of the
    user. ``notes`` name the others. Raises `ConfigError` if a file is unreadable. Missing files have no servers.
    """
    sources, inputs, used_paths, notes = list[_Source](), list[Any](), list[Path](), list[str]()
    project_folder = folder if machine is None or machine.project is None else machine.project
    for file in list_client_files(client, machine):
        text = read_client_file(file)
        if text is None:
            continue
        file_sources = [*_collect_folder_servers(file, text, project_folder, notes), (file, parse_servers(file, text))]
        if not any(entries for _, entries in file_sources):
            file_sources.append((file, _collect_misplaced_servers(file, text, notes)))
        if any(entries for _, entries in file_sources) and file.path not in used_paths:
            used_paths.append(file.path)
        inputs += parse_inputs(file, text)
        sources += file_sources
    sources.sort(key=lambda source: source[0].scope == "user")
    entries_by_name = _choose_entries(client, sources, notes)
    reasons = {name: find_unusable_reason(name, entry) for name, entry in entries_by_name.items()}
    skipped = {name: reason for name, reason in reasons.items() if reason}
    servers = {name: entry for name, entry in entries_by_name.items() if name not in skipped}
    return ImportableServers(servers, tuple(inputs), tuple(used_paths), skipped, tuple(notes))


def _choose_entries(client: str, sources: Sequence[_Source], notes: list[str]) -> dict[str, Any]:
    """Return the portable entries by name; the first of a name counts, and a note names a different one."""
    chosen_entries, chosen_files = dict[str, Any](), dict[str, ClientFile]()
    for file, entries in sources:
        for name, entry in entries.items():
            if is_gateway_entry(entry):
                continue
            portable_entry = make_entry_portable(entry, file)
            if name not in chosen_entries:
                chosen_entries[name], chosen_files[name] = portable_entry, file
            elif portable_entry != chosen_entries[name]:
                notes.append(
                    f"{name} of {_describe_source(file)} is not imported, because {name} of"
                    f" {_describe_source(chosen_files[name])} takes precedence in {client}; rename one to import both"
                )
    return chosen_entries


def _describe_source(file: ClientFile) -> str:
    return str(file.path) if file.folder is None else f"{file.path} for the folder {file.folder}"


def _collect_folder_servers(
    file: ClientFile, text: str, project_folder: Path | None, notes: list[str]
) -> list[_Source]:
    """Return Claude Code's servers for ``project_folder``; a note names other folders with servers."""
    if file.client != "claude-code" or file.scope != "user":
        return []
    servers_by_folder: dict[Path, dict[str, Any]] = {}
    for folder, entry in parse_servers(replace(file, keys=("projects",)), text).items():
        project_servers = mapping_or_empty(entry).get("mcpServers")
        if is_mapping(project_servers) and project_servers:
            servers_by_folder[Path(folder)] = dict(project_servers)
    enclosing_folders = [] if project_folder is None else [project_folder.resolve(), *project_folder.resolve().parents]
    matching_folder = next(
        (
            path
            for enclosing_folder in enclosing_folders
            for path in servers_by_folder
            if path.resolve() == enclosing_folder
        ),
        None,
    )
    other_folders = [
        f"{path} ({', '.join(servers_by_folder[path])})" for path in servers_by_folder if path != matching_folder
    ]
    if other_folders:
        remainder = (
            f" and {len(other_folders) - _MAX_LISTED_FOLDERS} more" if len(other_folders) > _MAX_LISTED_FOLDERS else ""
        )
        notes.append(
            f"{file.path} has servers for other folders, under projects, which were not imported:"
            f" {', '.join(other_folders[:_MAX_LISTED_FOLDERS])}{remainder}; --project FOLDER imports those of a folder"
        )
    if matching_folder is None:
        return []
    notes.append(
        f"{', '.join(servers_by_folder[matching_folder])}: imported from the servers of {file.client} for the folder"
        f" {matching_folder}"
    )
    return [(replace(file, scope="project", folder=matching_folder), servers_by_folder[matching_folder])]


def _collect_misplaced_servers(file: ClientFile, text: str, notes: list[str]) -> dict[str, Any]:
    """Return the servers of a file that has them under the key of another client."""
    content = tomllib.loads(text) if file.format == "toml" else JsonDocument.parse(text).root.to_python()
    for container_key, servers in find_server_containers(mapping_or_empty(content)):
        if is_mapping(servers) and servers:
            expected_key = ".".join(file.keys)
            notes.append(
                f"{file.path} has its servers under {container_key}; {file.client} itself only reads {expected_key}"
            )
            return dict(servers)
    return {}


def get_servers_format(file: ClientFile) -> JsonServersFormat | TomlServersFormat:
    return TomlServersFormat(file.keys) if file.format == "toml" else JsonServersFormat(file.keys)


def read_client_file(file: ClientFile) -> str | None:
    """Return the text of a client's file, or None if it does not exist. Raises `ConfigError`."""
    return config_file.read_text(file.path, MAX_BYTES) if config_file.is_path_present(file.path) else None


def parse_servers(file: ClientFile, text: str) -> dict[str, Any]:
    """Return the servers in a client's text. Raises `ConfigError` with file and position."""
    try:
        entries = get_servers_format(file).parse_servers(text)
    except JsonError as mistake:
        raise ConfigError(f"{file.path}, {mistake}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as mistake:
        position = str(mistake).rpartition("(at ")[2].rstrip(")")
        raise ConfigError(f"{file.path}, {position}: this is not TOML; fix it first") from None
    except ConfigError as problem:
        raise ConfigError(f"{file.path}: {problem}") from None
    if len(entries) > MAX_SERVERS:
        raise ConfigError(f"{file.path}: it has more than {MAX_SERVERS:,} servers; remove some by hand")
    return entries


def parse_inputs(file: ClientFile, text: str) -> list[Any]:
    return get_servers_format(file).parse_inputs(text)


def is_gateway_entry(entry: Any) -> bool:
    """Return whether a client's entry starts this gateway."""
    if not is_mapping(entry):
        return False
    args = [argument for argument in list_or_empty(entry.get("args")) if isinstance(argument, str)]
    command = entry.get("command")
    return isinstance(command, str) and is_gateway_command(command, args)


def find_unusable_reason(name: str, entry: Any) -> str | None:
    """Return why the gateway cannot use a server, or None. A missing variable value is no reason."""
    problems = load_config({"mcpServers": {name: entry}}).problems
    return next((str(problem) for problem in problems if problem.server is not None and not problem.lacks_value), None)


def make_entry_portable(entry: Any, file: ClientFile) -> Any:
    """Return a client's entry with the same meaning in another file: absolute paths, escaped literals.

    As `load_config` does for the file itself, a project's server starts in the project unless it has another folder.
    """
    folder = file.folder or get_base_folder(file.path)
    if file.is_literal:
        entry = _replace_texts(entry, escape_variables)
    if file.scope == "project":
        entry = _replace_texts(entry, partial(expand_workspace_variables, workspace=folder))
    if not is_mapping(entry):
        return entry
    paths = {key: entry[key] for key in (*CWD_KEYS, *ENV_FILE_KEYS) if isinstance(entry.get(key), str)}
    if file.scope == "project" and _has_value(entry, COMMAND_KEYS) and not _has_value(entry, CWD_KEYS):
        paths["cwd"] = "."
    return {**entry, **{key: _resolve_path(folder, written_path) for key, written_path in paths.items()}}


def _has_value(entry: Mapping[str, Any], keys: Sequence[str]) -> bool:
    return any(entry.get(key) is not None for key in keys)


def _resolve_path(folder: Path, written_path: str) -> str:
    if is_path_in_home(written_path) or written_path.startswith("${"):
        return written_path
    return str(Path(escape_variables(str(folder)), written_path))


def _replace_texts(value: Any, replace_text: Callable[[str], str]) -> Any:
    """Return a value with ``replace_text`` applied to all its strings except keys."""
    if isinstance(value, str):
        return replace_text(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: _replace_texts(item, replace_text) for key, item in items}
    if isinstance(value, list):
        return [_replace_texts(item, replace_text) for item in cast("list[Any]", value)]
    return value
