"""Puts the gateway into a client, in the place of its servers, which move into our configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config.values import ConfigError
from . import backups
from .changes import Change, difference
from .config_texts import initial, with_servers
from .gateway_entry import gateway_entry
from .importing import GATEWAY, MAX_BYTES, as_ours, dialect, is_gateway, servers_in, text_of, unusable
from .machines import ClientFile, Machine, found
from .texts import FileText
from .unchanged import check_the_rest


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
        backup = backups.keep(old)
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
