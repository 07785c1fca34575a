"""Install the gateway into a client's configuration with a backup, and undo it."""

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
from ..config.redaction import Secrets
from ..config.substitution import input_variable
from .file_formats import JsonEdits
from .importing import (
    GATEWAY,
    MAX_BYTES,
    ClientFile,
    Machine,
    as_ours,
    dialect,
    found,
    is_gateway,
    servers_in,
    text_of,
    unusable,
)
from .text_files import OWNER_ALONE, FileText, initial, remove, with_servers, write_whole

_KEPT = "codemode-backup"
_MADE = "codemode-created"
"""Says of a file, which it is named after, that the installation has made it."""


def keep(file: FileText) -> Path:
    """Keep a file as it is and return where: bytes and rights are the same, and no earlier one is written over."""
    kind = _KEPT if file.is_there else _MADE
    path = file.path.with_name(f"{file.path.name}.{kind}")
    number = 1
    while path.exists():
        number += 1
        path = file.path.with_name(f"{file.path.name}.{kind}-{number}")
    mode = stat.S_IMODE(file.path.stat().st_mode) if file.is_there else OWNER_ALONE
    write_whole(path, file.content or b"", mode=mode)
    return path


def of(path: Path) -> list[Path]:
    """Return the backups of a file, the oldest first; one that says that the file was made comes before all."""
    found = [one for one in path.parent.glob("*") if _number(path, one, _KEPT) or _number(path, one, _MADE)]
    return sorted(found, key=lambda one: (_number(path, one, _KEPT) or 0, _number(path, one, _MADE)))


def read_backup(backup: Path) -> bytes | None:
    """Return what a file was, None where it was not there."""
    return None if f".{_MADE}" in backup.name else config_file.content_of(backup, MAX_BYTES)


def forget(used: Iterable[Path]) -> None:
    """Remove backups that were put back."""
    for one in used:
        remove(one)


def _number(path: Path, one: Path, kind: str) -> int:
    """Return which backup of ``path`` this is, from 1; 0 for none."""
    first = f"{path.name}.{kind}"
    rest = one.name.removeprefix(f"{first}-")
    if one.name == first:
        return 1
    return int(rest) if rest != one.name and rest.isascii() and rest.isdigit() else 0


@dataclass(frozen=True)
class Change:
    """What was done to a client's file, or, in a dry run, would be. ``diff`` shows no secret.

    ``moved`` are the servers that went, or came back, by the names that the client has for them. ``backup`` is the
    file as it was, where one was made. ``notes`` are for the person who asked.
    """

    client: str
    path: Path
    is_changed: bool
    diff: str = ""
    moved: tuple[str, ...] = ()
    backup: Path | None = None
    notes: tuple[str, ...] = ()


def difference(texts: Iterable[tuple[FileText, str | None]], servers: Iterable[Any]) -> str:
    """Return the difference of files to their new texts, None for one that goes, without the secrets of servers."""
    lines = list[str]()
    for file, new in texts:
        names = (str(file.path) if file.is_there else "/dev/null", "/dev/null" if new is None else str(file.path))
        lines += difflib.unified_diff(file.text.splitlines(), (new or "").splitlines(), *names, lineterm="")
    shown = "\n".join(lines)
    return Secrets(_secrets(servers)).text(shown)


def _secrets(servers: Iterable[Any]) -> set[str]:
    found = set[str]()
    for entry in filter(is_mapping, servers):
        for key in ("headers", "http_headers", "httpHeaders"):
            found |= secret_detection.of_headers(_texts(entry.get(key)))
        for key in ("env", "environment"):
            found |= secret_detection.of_env(_texts(entry.get(key)), ())
        for key in ("auth", "oauth"):
            found |= secret_detection.long_enough(_texts(entry.get(key)).values())
        found |= secret_detection.of_args([one for one in list_or_empty(entry.get("args")) if isinstance(one, str)])
        urls = [entry.get(key) for key in ("url", "serverUrl", "httpUrl")]
        found |= {part for url in urls if isinstance(url, str) for part in secret_detection.of_url(url)}
    return found


def _texts(value: Any) -> dict[str, str]:
    return {key: one for key, one in value.items() if isinstance(one, str)} if is_mapping(value) else {}


def check_the_rest(target: ClientFile, old: str, new: str, servers: Mapping[str, Any]) -> None:
    """Raise `ConfigError` unless ``new`` has these servers, and for the rest says what ``old`` says."""
    try:
        is_right = servers_in(target, new) == servers and _rest(target, old) == _rest(target, new)
    except (ConfigError, JsonError, ValueError):
        is_right = False
    if not is_right:
        raise ConfigError(
            f"{target.path}: its servers are written in a way that cannot be changed without touching other things; "
            f"give each a place of its own under {'.'.join(target.keys)}, and try again"
        )


def _rest(target: ClientFile, text: str) -> str:
    """Return all that a text says but its servers; objects that lead to them count only for what else they have."""
    said: Any = tomllib.loads(text) if target.format == "toml" else JsonEdits.of(text).root.plain()
    chain = [said]
    for key in target.keys[:-1]:
        chain.append(chain[-1].get(key, {}))
    chain[-1].pop(target.keys[-1], None)
    for outer, key in zip(reversed(chain[:-1]), reversed(target.keys[:-1]), strict=True):
        if not outer.get(key):
            outer.pop(key, None)
    return json.dumps(said, default=str)


_INPUT = re.compile(r"(?<!\$)\$\{input:([^}]*)\}")
_SECONDS_OF_CODEX = 600


def own_command() -> tuple[str, ...]:
    """Return what starts codemode on this machine, by its full path: applications know few folders of programs."""
    beside = shutil.which(GATEWAY, path=str(Path(sys.executable).parent)) or shutil.which(GATEWAY)
    return (str(Path(beside).absolute()),) if beside else (sys.executable, "-m", GATEWAY)


def gateway_entry(
    target: ClientFile, config: Path, command: Sequence[str] | None, moved: Sequence[Mapping[str, Any]], now: Any
) -> dict[str, Any]:
    """Return what the client starts. What a user has added to the entry stays."""
    program, *args = command or own_command()
    entry: dict[str, Any] = {"type": "stdio"} if target.entry_type else {}
    entry |= {"command": program, "args": [*args, "mcp", "--config", str(config)]}
    if target.format == "toml":
        # It hands on nothing of its environment but what is named, and ends a call after a minute.
        entry |= {"env_vars": _variables(moved), "tool_timeout_sec": _SECONDS_OF_CODEX}
    elif target.client == "vscode":
        entry["env"] = {input_variable(name): f"${{input:{name}}}" for name in _inputs(moved)}
    was = cast("dict[str, Any]", now) if is_gateway(now) else {}
    return {key: one for key, one in {**was, **_joined(was, entry)}.items() if one not in ({}, [])}


def _joined(was: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(entry)
    if isinstance(was.get("env"), Mapping):
        joined["env"] = {**was["env"], **entry.get("env", {})}
    if isinstance(was.get("env_vars"), list):
        joined["env_vars"] = list(dict.fromkeys([*was["env_vars"], *entry.get("env_vars", [])]))
    if "tool_timeout_sec" in was and "tool_timeout_sec" in entry:
        joined["tool_timeout_sec"] = was["tool_timeout_sec"]
    return joined


def _variables(moved: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the variables that Codex would have handed to its servers, for the gateway to do so."""
    found = list[str]()
    for entry in moved:
        listed = entry.get("env_vars", [])
        found += [one for one in listed if isinstance(one, str)]
        found += [entry["bearer_token_env_var"]] if "bearer_token_env_var" in entry else []
        found += cast("Mapping[str, str]", entry.get("env_http_headers", {})).values()
    return list(dict.fromkeys(found))


def _inputs(moved: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the inputs that the servers name: VS Code goes on to ask for them, and tells the gateway."""
    found = list[str]()

    def look(value: Any) -> None:
        if isinstance(value, str):
            found.extend(_INPUT.findall(value))
        for one in value.values() if is_mapping(value) else list_or_empty(value):
            look(one)

    look(list(moved))
    return list(dict.fromkeys(found))


def installed(
    client: str,
    config_path: str | Path,
    *,
    dry_run: bool = False,
    machine: Machine | None = None,
    file: ClientFile | None = None,
    command: Sequence[str] | None = None,
) -> Change:
    """Move the servers of a client into the configuration at ``config_path``, and the gateway into their place.

    ``file`` is another one of the client than that of its user; ``command`` what starts codemode. Servers that the
    gateway cannot use stay. Twice is as once. Raises `ConfigError` where a file cannot be read, written or changed.
    """
    target = file or found(client, machine)[0]
    old, config = FileText.of(target.path, MAX_BYTES), FileText.of(Path(config_path).absolute())
    if os.path.realpath(config.path) == os.path.realpath(target.path):
        raise ConfigError(f"{config.path}: the gateway's configuration must be another file than that of the client")
    said = servers_in(target, old.text)
    others = {name: as_ours(entry, target) for name, entry in said.items() if not is_gateway(entry)}
    left = {name: reason for name, entry in others.items() if (reason := unusable(name, entry))}
    moved = {name: entry for name, entry in others.items() if name not in left}
    if GATEWAY in left:
        raise ConfigError(f"{target.path}: a server that the gateway cannot use is called {GATEWAY}; rename it first")
    config_text, names = _taken_over(config, moved, client)
    entry = gateway_entry(target, config.path, command, [moved[name] for name in moved], said.get(GATEWAY))
    text = _put(target, old.text, list(moved), entry)
    notes = [f"{name} stays in {client}: {reason}" for name, reason in left.items()]
    notes += [f"{name} is called {names[name]} in the configuration" for name in names if names[name] != name]
    notes += _elsewhere(target, machine)
    shown = difference([(old, text), (config, config_text)], said.values())
    backup = None
    if text != old.text and not dry_run:
        old.check_unchanged()
        if config_text != config.text:
            config.write(config_text)
        backup = keep(old)
        old.write(text)
    return Change(client, target.path, text != old.text, shown, tuple(moved), backup, tuple(notes))


def _elsewhere(target: ClientFile, machine: Machine | None) -> list[str]:
    """Return what is to be said of servers that the same user has in another file of the client."""
    places = [one for one in found(target.client, machine) if one.scope == "user" and one.path != target.path]
    texts = [(one.path, servers_in(one, text)) for one in places if (text := text_of(one))]
    return [f"{path} has servers too, which stay there: {', '.join(said)}" for path, said in texts if said]


def _taken_over(config: FileText, moved: Mapping[str, Any], client: str) -> tuple[str, dict[str, str]]:
    try:
        return with_servers(config.text if config.is_there else initial(), moved, client)
    except ConfigError as problem:
        raise ConfigError(f"{config.path}: {problem}") from None


def _put(target: ClientFile, text: str, moved: Sequence[str], entry: Mapping[str, Any]) -> str:
    said = servers_in(target, text)
    expected = {name: one for name, one in said.items() if name not in moved}
    new = dialect(target).put(text, moved, GATEWAY, entry)
    check_the_rest(target, text, new, {**expected, GATEWAY: entry})
    return new


def undone(
    client: str, *, dry_run: bool = False, machine: Machine | None = None, file: ClientFile | None = None
) -> Change:
    """Give a client back the servers that it had before the gateway was installed, byte for byte if it can be.

    Where the client's file has changed since, its other changes stay and the servers come back beside them. The
    configuration keeps its copies. Raises `ConfigError` where nothing is installed, no backup is left, or a server has
    changed on both sides.
    """
    target = file or found(client, machine)[0]
    now = FileText.of(target.path, MAX_BYTES)
    if not now.is_there or not is_gateway(servers_in(target, now.text).get(GATEWAY)):
        raise ConfigError(f"{target.path}: the gateway is not installed here, so that there is nothing to undo")
    kept = of(target.path)
    content, used = now.content, list[Path]()
    while content is not None and is_gateway(servers_in(target, FileText(now.path, content).text).get(GATEWAY)):
        if not kept:
            raise ConfigError(_NO_BACKUP.format(path=target.path))
        used.append(kept.pop())
        content = _before(target, FileText(now.path, content), read_backup(used[-1]))
    text = "" if content is None else FileText(now.path, content).text
    back = tuple(name for name in servers_in(target, text) if name not in servers_in(target, now.text))
    shown = difference([(now, None if content is None else text)], servers_in(target, text).values())
    if not dry_run:
        now.check_unchanged()
        remove(now.path) if content is None else write_whole(now.path, content)
        forget(used)
    return Change(client, target.path, True, shown, back, notes=_NOTES)


_NOTES = ("the servers are in the configuration of the gateway too; take them out there if nobody uses it",)
_NO_BACKUP = (
    "{path}: there is no backup beside this file any more; take its entry codemode out by hand, and copy the "
    "servers back from the configuration that it names"
)


def _before(target: ClientFile, now: FileText, before: bytes | None) -> bytes | None:
    """Return what the file was before one installation: as it was, where nothing else has changed, else merged."""
    old_text = "" if before is None else FileText(now.path, before).text
    said, old = servers_in(target, now.text), servers_in(target, old_text)
    gone = [name for name in old if name not in said]
    entry = said[GATEWAY]
    moved = [name for name in gone if name != GATEWAY]
    if _is_made_of(target, old_text, moved, entry, now.text):
        return before
    for name in old:
        if name in said and name != GATEWAY and old[name] != said[name]:
            raise ConfigError(f"{now.path}: the server {name} was changed since; rename or remove it, then undo again")
    again = [*gone, GATEWAY] if GATEWAY in old else gone
    try:
        text = dialect(target).restored(now.text, old_text, GATEWAY, again)
    except ConfigError as problem:
        raise ConfigError(f"{now.path}: {problem}") from None
    kept = {name: one for name, one in said.items() if name != GATEWAY}
    check_the_rest(target, now.text, text, {**{name: old[name] for name in again}, **kept})
    return now.encoded(text)


def _is_made_of(target: ClientFile, old_text: str, moved: Collection[str], entry: Any, now: str) -> bool:
    return dialect(target).put(old_text, moved, GATEWAY, entry) == now
