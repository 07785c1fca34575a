"""Gives a client back the servers that it had before the gateway took their place."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..config.values import ConfigError
from . import backups
from .changes import Change, difference
from .importing import GATEWAY, MAX_BYTES, dialect, is_gateway, servers_in
from .machines import ClientFile, Machine, found
from .texts import FileText
from .unchanged import check_the_rest
from .writing import remove, write_whole


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
    kept = backups.of(target.path)
    content, used = now.content, list[Path]()
    while content is not None and is_gateway(servers_in(target, FileText(now.path, content).text).get(GATEWAY)):
        if not kept:
            raise ConfigError(_NO_BACKUP.format(path=target.path))
        used.append(kept.pop())
        content = _before(target, FileText(now.path, content), backups.content(used[-1]))
    text = "" if content is None else FileText(now.path, content).text
    back = tuple(name for name in servers_in(target, text) if name not in servers_in(target, now.text))
    shown = difference([(now, None if content is None else text)], servers_in(target, text).values())
    if not dry_run:
        now.check_unchanged()
        remove(now.path) if content is None else write_whole(now.path, content)
        backups.forget(used)
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
