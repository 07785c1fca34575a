"""Install the gateway in a client's configuration with a backup, and uninstall it."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import stat
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from codemode.data.narrowing import is_mapping, list_or_empty

from ..config import config_file, secret_detection
from ..config.config_file import JsonError
from ..config.model import ConfigError
from ..config.redaction import SecretRedactor
from ..config.substitution import get_input_variable_name
from .file_formats import JsonDocument
from .importing import (
    GATEWAY_NAME,
    MAX_BYTES,
    ClientEnvironment,
    ClientFile,
    find_unusable_reason,
    get_servers_format,
    is_gateway_entry,
    list_client_files,
    make_entry_portable,
    parse_servers,
    read_client_file,
)
from .text_files import (
    OWNER_ONLY_MODE,
    TextFile,
    create_gateway_config_text,
    merge_client_servers,
    remove_file_or_link_target,
    write_atomically,
)

_BACKUP_SUFFIX = "codemode-backup"
_CREATED_SUFFIX = "codemode-created"
"""Marks a file that the installation created."""


def create_backup_or_created_mark(file: TextFile) -> Path:
    """Copy a file with its mode to a new backup, and return the backup's path."""
    kind = _BACKUP_SUFFIX if file.is_present else _CREATED_SUFFIX
    path = file.path.with_name(f"{file.path.name}.{kind}")
    number = 1
    while path.exists():
        number += 1
        path = file.path.with_name(f"{file.path.name}.{kind}-{number}")
    mode = stat.S_IMODE(file.path.stat().st_mode) if file.is_present else OWNER_ONLY_MODE
    write_atomically(path, file.content or b"", mode=mode)
    return path


def list_backups(path: Path) -> list[Path]:
    """Return the backups of a file, the oldest first. A mark for a created file comes first."""
    backups = [
        candidate
        for candidate in path.parent.glob("*")
        if _get_backup_number(path, candidate, _BACKUP_SUFFIX) or _get_backup_number(path, candidate, _CREATED_SUFFIX)
    ]
    return sorted(
        backups,
        key=lambda candidate: (
            _get_backup_number(path, candidate, _BACKUP_SUFFIX) or 0,
            _get_backup_number(path, candidate, _CREATED_SUFFIX),
        ),
    )


def read_backup(backup: Path) -> bytes | None:
    """Return the content of a backup, or None if the file did not exist."""
    return None if f".{_CREATED_SUFFIX}" in backup.name else config_file.read_bounded_bytes(backup, MAX_BYTES)


def remove_backups(used: Iterable[Path]) -> None:
    """Remove restored backups."""
    for backup in used:
        remove_file_or_link_target(backup)


def _get_backup_number(path: Path, candidate: Path, kind: str) -> int:
    """Return the number of a backup of ``path``, from 1; 0 for other files."""
    first = f"{path.name}.{kind}"
    number_text = candidate.name.removeprefix(f"{first}-")
    if candidate.name == first:
        return 1
    return int(number_text) if number_text != candidate.name and number_text.isascii() and number_text.isdigit() else 0


@dataclass(frozen=True)
class ClientFileChange:
    """A change of a client's file, or in a dry run the planned change. ``diff`` has no secrets.

    ``moved`` are the removed or restored servers, by the client's names. ``backup`` is the backup, if one was created.
    ``notes`` are for the user.
    """

    client: str
    path: Path
    is_changed: bool
    diff: str = ""
    moved: tuple[str, ...] = ()
    backup: Path | None = None
    notes: tuple[str, ...] = ()


def create_redacted_diff(texts: Iterable[tuple[TextFile, str | None]], servers: Iterable[Any]) -> str:
    """Return the diff between files and their new texts (None: removed), without the secrets of servers."""
    lines = list[str]()
    for file, new_text in texts:
        file_names = (
            str(file.path) if file.is_present else "/dev/null",
            "/dev/null" if new_text is None else str(file.path),
        )
        lines += difflib.unified_diff(file.text.splitlines(), (new_text or "").splitlines(), *file_names, lineterm="")
    diff = "\n".join(lines)
    return SecretRedactor(_find_secrets(servers)).redact_text(diff)


def _find_secrets(servers: Iterable[Any]) -> set[str]:
    secrets = set[str]()
    for entry in filter(is_mapping, servers):
        for key in ("headers", "http_headers", "httpHeaders"):
            secrets |= secret_detection.collect_header_secrets(_select_texts(entry.get(key)))
        for key in ("env", "environment"):
            secrets |= secret_detection.find_env_secrets(_select_texts(entry.get(key)), ())
        for key in ("auth", "oauth"):
            secrets |= secret_detection.drop_short_texts(_select_texts(entry.get(key)).values())
        secrets |= secret_detection.find_argument_secrets(
            [argument for argument in list_or_empty(entry.get("args")) if isinstance(argument, str)]
        )
        urls = [entry.get(key) for key in ("url", "serverUrl", "httpUrl")]
        secrets |= {part for url in urls if isinstance(url, str) for part in secret_detection.find_url_secrets(url)}
    return secrets


def _select_texts(value: Any) -> dict[str, str]:
    return {key: text for key, text in value.items() if isinstance(text, str)} if is_mapping(value) else {}


def check_only_servers_changed(target: ClientFile, old: str, new: str, servers: Mapping[str, Any]) -> None:
    """Raise `ConfigError` unless ``new`` has these servers and otherwise equals ``old``."""
    try:
        is_only_change = parse_servers(target, new) == servers and _serialize_without_servers(
            target, old
        ) == _serialize_without_servers(target, new)
    except (ConfigError, JsonError, ValueError):
        is_only_change = False
    if not is_only_change:
        raise ConfigError(
            f"{target.path}: its servers cannot be changed without changing other content; "
            f"write each as its own entry under {'.'.join(target.keys)}, and try again"
        )


def _serialize_without_servers(target: ClientFile, text: str) -> str:
    """Return the content of a text without its servers and without objects that only contain them."""
    content: Any = tomllib.loads(text) if target.format == "toml" else JsonDocument.parse(text).root.to_python()
    chain = [content]
    for key in target.keys[:-1]:
        chain.append(chain[-1].get(key, {}))
    chain[-1].pop(target.keys[-1], None)
    for outer, key in zip(reversed(chain[:-1]), reversed(target.keys[:-1]), strict=True):
        if not outer.get(key):
            outer.pop(key, None)
    return json.dumps(content, default=str)


_INPUT_VARIABLE = re.compile(r"(?<!\$)\$\{input:([^}]*)\}")
_CODEX_TIMEOUT_SECONDS = 600


def find_codemode_command() -> tuple[str, ...]:
    """Return the command that starts codemode, with its full path, because apps have a short PATH."""
    program = shutil.which(GATEWAY_NAME, path=str(Path(sys.executable).parent)) or shutil.which(GATEWAY_NAME)
    return (str(Path(program).absolute()),) if program else (sys.executable, "-m", GATEWAY_NAME)


def create_gateway_entry(
    target: ClientFile,
    config: Path,
    command: Sequence[str] | None,
    moved: Sequence[Mapping[str, Any]],
    current_entry: Any,
) -> dict[str, Any]:
    """Return the client's entry for the gateway. Additions by the user stay."""
    program, *args = command or find_codemode_command()
    entry: dict[str, Any] = {"type": "stdio"} if target.entry_type else {}
    entry |= {"command": program, "args": [*args, "mcp", "--config", str(config)]}
    if target.format == "toml":
        # Codex forwards only named variables, and ends a call after a minute.
        entry |= {"env_vars": _list_forwarded_variables(moved), "tool_timeout_sec": _CODEX_TIMEOUT_SECONDS}
    elif target.client == "vscode":
        entry["env"] = {get_input_variable_name(name): f"${{input:{name}}}" for name in _list_input_ids(moved)}
    old_entry = cast("dict[str, Any]", current_entry) if is_gateway_entry(current_entry) else {}
    return {
        key: value for key, value in {**old_entry, **_merge_entry(old_entry, entry)}.items() if value not in ({}, [])
    }


def _merge_entry(old_entry: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(entry)
    if isinstance(old_entry.get("env"), Mapping):
        merged["env"] = {**old_entry["env"], **entry.get("env", {})}
    if isinstance(old_entry.get("env_vars"), list):
        merged["env_vars"] = list(dict.fromkeys([*old_entry["env_vars"], *entry.get("env_vars", [])]))
    if "tool_timeout_sec" in old_entry and "tool_timeout_sec" in entry:
        merged["tool_timeout_sec"] = old_entry["tool_timeout_sec"]
    return merged


def _list_forwarded_variables(moved: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the variables that Codex forwarded to the moved servers."""
    names = list[str]()
    for entry in moved:
        forwarded = entry.get("env_vars", [])
        names += [name for name in forwarded if isinstance(name, str)]
        names += [entry["bearer_token_env_var"]] if "bearer_token_env_var" in entry else []
        names += cast("Mapping[str, str]", entry.get("env_http_headers", {})).values()
    return list(dict.fromkeys(names))


def _list_input_ids(moved: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the inputs of the moved servers. VS Code still asks for them, and passes them to the gateway."""
    names = list[str]()

    def collect(value: Any) -> None:
        if isinstance(value, str):
            names.extend(_INPUT_VARIABLE.findall(value))
        for item in value.values() if is_mapping(value) else list_or_empty(value):
            collect(item)

    collect(list(moved))
    return list(dict.fromkeys(names))


def install_gateway(
    client: str,
    config_path: str | Path,
    *,
    dry_run: bool = False,
    machine: ClientEnvironment | None = None,
    file: ClientFile | None = None,
    command: Sequence[str] | None = None,
) -> ClientFileChange:
    """Move a client's servers into the configuration at ``config_path``, and add the gateway to the client.

    ``file`` is the client's file (default: the user's); ``command`` starts codemode. Servers that the gateway cannot
    use stay. Idempotent. Raises `ConfigError` if a file cannot be read, written or changed.
    """
    target = file or list_client_files(client, machine)[0]
    client_text, config = TextFile.read(target.path, MAX_BYTES), TextFile.read(Path(config_path).absolute())
    if os.path.realpath(config.path) == os.path.realpath(target.path):
        raise ConfigError(f"{config.path}: the gateway's configuration must be another file than the client's")
    entries = parse_servers(target, client_text.text)
    converted = {
        name: make_entry_portable(entry, target) for name, entry in entries.items() if not is_gateway_entry(entry)
    }
    skipped = {name: reason for name, entry in converted.items() if (reason := find_unusable_reason(name, entry))}
    moved = {name: entry for name, entry in converted.items() if name not in skipped}
    if GATEWAY_NAME in skipped:
        raise ConfigError(
            f"{target.path}: a server that the gateway cannot use has the name {GATEWAY_NAME}; rename it first"
        )
    config_text, names = _create_config_text_with_servers(config, moved, client)
    entry = create_gateway_entry(
        target, config.path, command, [moved[name] for name in moved], entries.get(GATEWAY_NAME)
    )
    new_text = _create_text_with_gateway(target, client_text.text, list(moved), entry)
    notes = [f"{name} stays in {client}: {reason}" for name, reason in skipped.items()]
    notes += [f"{name} is called {names[name]} in the configuration" for name in names if names[name] != name]
    notes += _describe_other_files(target, machine)
    diff = create_redacted_diff([(client_text, new_text), (config, config_text)], entries.values())
    backup = None
    if new_text != client_text.text and not dry_run:
        client_text.check_unchanged()
        if config_text != config.text:
            config.write(config_text)
        backup = create_backup_or_created_mark(client_text)
        client_text.write(new_text)
    return ClientFileChange(client, target.path, new_text != client_text.text, diff, tuple(moved), backup, tuple(notes))


def _describe_other_files(target: ClientFile, machine: ClientEnvironment | None) -> list[str]:
    """Return notes about the user's servers in other files of the client."""
    other_files = [
        file for file in list_client_files(target.client, machine) if file.scope == "user" and file.path != target.path
    ]
    texts = [(file.path, parse_servers(file, text)) for file in other_files if (text := read_client_file(file))]
    return [f"{path} also has servers, which stay there: {', '.join(entries)}" for path, entries in texts if entries]


def _create_config_text_with_servers(
    config: TextFile, moved: Mapping[str, Any], client: str
) -> tuple[str, dict[str, str]]:
    try:
        return merge_client_servers(config.text if config.is_present else create_gateway_config_text(), moved, client)
    except ConfigError as problem:
        raise ConfigError(f"{config.path}: {problem}") from None


def _create_text_with_gateway(target: ClientFile, text: str, moved: Sequence[str], entry: Mapping[str, Any]) -> str:
    entries = parse_servers(target, text)
    expected = {name: value for name, value in entries.items() if name not in moved}
    new_text = get_servers_format(target).replace_servers_with_gateway(text, moved, GATEWAY_NAME, entry)
    check_only_servers_changed(target, text, new_text, {**expected, GATEWAY_NAME: entry})
    return new_text


def uninstall_gateway(
    client: str, *, dry_run: bool = False, machine: ClientEnvironment | None = None, file: ClientFile | None = None
) -> ClientFileChange:
    """Restore the servers that a client had before the installation, byte for byte if the file is unchanged.

    Later changes of the client's file stay. The gateway's configuration keeps its copies of the servers. Raises
    `ConfigError` if nothing is installed, no backup exists, or a server has changed on both sides.
    """
    target = file or list_client_files(client, machine)[0]
    client_text = TextFile.read(target.path, MAX_BYTES)
    if not client_text.is_present or not is_gateway_entry(parse_servers(target, client_text.text).get(GATEWAY_NAME)):
        raise ConfigError(f"{target.path}: the gateway is not installed here; there is nothing to undo")
    backups = list_backups(target.path)
    content, used_backups = client_text.content, list[Path]()
    while content is not None and is_gateway_entry(
        parse_servers(target, TextFile(client_text.path, content).text).get(GATEWAY_NAME)
    ):
        if not backups:
            raise ConfigError(_NO_BACKUP_MESSAGE.format(path=target.path))
        used_backups.append(backups.pop())
        content = _compute_content_before_install(
            target, TextFile(client_text.path, content), read_backup(used_backups[-1])
        )
    text = "" if content is None else TextFile(client_text.path, content).text
    restored_names = tuple(
        name for name in parse_servers(target, text) if name not in parse_servers(target, client_text.text)
    )
    diff = create_redacted_diff(
        [(client_text, None if content is None else text)], parse_servers(target, text).values()
    )
    if not dry_run:
        client_text.check_unchanged()
        remove_file_or_link_target(client_text.path) if content is None else write_atomically(client_text.path, content)
        remove_backups(used_backups)
    return ClientFileChange(client, target.path, True, diff, restored_names, notes=_UNDO_NOTES)


_UNDO_NOTES = ("the servers are still in the gateway's configuration; `codemode mcp remove NAME` removes one there",)
_NO_BACKUP_MESSAGE = (
    "{path}: the backup next to this file is missing; remove its entry codemode by hand, and copy the servers back "
    "from the configuration that the entry names"
)


def _compute_content_before_install(
    target: ClientFile, current: TextFile, backup_content: bytes | None
) -> bytes | None:
    """Return the content before one installation: the backup if nothing else changed, else a merge."""
    old_text = "" if backup_content is None else TextFile(current.path, backup_content).text
    current_entries, old_entries = parse_servers(target, current.text), parse_servers(target, old_text)
    missing_names = [name for name in old_entries if name not in current_entries]
    entry = current_entries[GATEWAY_NAME]
    moved = [name for name in missing_names if name != GATEWAY_NAME]
    if _is_unchanged_since_install(target, old_text, moved, entry, current.text):
        return backup_content
    for name in old_entries:
        if name in current_entries and name != GATEWAY_NAME and old_entries[name] != current_entries[name]:
            raise ConfigError(
                f"{current.path}: the server {name} has changed since; rename or remove it, then undo again"
            )
    restored_names = [*missing_names, GATEWAY_NAME] if GATEWAY_NAME in old_entries else missing_names
    try:
        text = get_servers_format(target).restore_servers(current.text, old_text, GATEWAY_NAME, restored_names)
    except ConfigError as problem:
        raise ConfigError(f"{current.path}: {problem}") from None
    kept_entries = {name: value for name, value in current_entries.items() if name != GATEWAY_NAME}
    check_only_servers_changed(
        target, current.text, text, {**{name: old_entries[name] for name in restored_names}, **kept_entries}
    )
    return current.encode(text)


def _is_unchanged_since_install(
    target: ClientFile, old_text: str, moved: Collection[str], entry: Any, current_text: str
) -> bool:
    return get_servers_format(target).replace_servers_with_gateway(old_text, moved, GATEWAY_NAME, entry) == current_text
