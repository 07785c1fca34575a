"""Read and write text files whole, and edit the gateway's own configuration."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codemode.data.narrowing import is_mapping, mapping_or_empty

from ..config import config_file
from ..config.config_file import JsonError, Node, short
from ..config.loader import CONTAINERS, containers_in, load_config
from ..config.model import ConfigError
from .file_formats import JsonEdits

OWNER_ALONE = 0o600


def write_whole(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Put ``content`` at ``path`` at once, so that a reader sees the old or the new. Keeps mode and symbolic links.

    A new file is its owner's alone, unless ``mode`` says else. Raises `ConfigError` where the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(target, content, _mode_of(target, mode))
    except OSError as problem:
        raise ConfigError(f"{path}: this file cannot be written: {problem.strerror}") from None


def remove(path: Path) -> None:
    """Remove a file, or what a link leads to, if it is there. Raises `ConfigError` where it cannot be."""
    try:
        Path(os.path.realpath(path)).unlink(missing_ok=True)
    except OSError as problem:
        raise ConfigError(f"{path}: this file cannot be removed: {problem.strerror}") from None


def _mode_of(target: Path, wanted: int | None) -> int:
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    return OWNER_ALONE if wanted is None else wanted


def _replace(target: Path, content: bytes, mode: int) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class FileText:
    """The content of the file at ``path``, None where there is none."""

    path: Path
    content: bytes | None

    @classmethod
    def of(cls, path: Path, most: int = config_file.MAX_BYTES) -> FileText:
        """Read it. Raises `ConfigError` where it is there and cannot be read, or is no text."""
        if not config_file.is_there(path):
            return cls(path, None)
        found = cls(path, config_file.content_of(path, most))
        _ = found.text
        return found

    def __repr__(self) -> str:
        return f"<FileText {str(self.path)!r}>"

    @property
    def is_there(self) -> bool:
        return self.content is not None

    @property
    def text(self) -> str:
        return config_file.decoded(self.content or b"", self.path)

    def encoded(self, text: str) -> bytes:
        """Return a new text as bytes, marked as UTF-8 where the old one is."""
        return (_MARK if (self.content or b"").startswith(_MARK) else b"") + text.encode()

    def write(self, text: str) -> None:
        """Put a new text in place of the old one. Raises `ConfigError` where somebody else has changed it by now."""
        self.check_unchanged()
        write_whole(self.path, self.encoded(text))

    def check_unchanged(self) -> None:
        """Raise `ConfigError` unless the file is as it was read."""
        now = (
            config_file.content_of(self.path, len(self.content or b"") + 1) if config_file.is_there(self.path) else None
        )
        if now != self.content:
            raise ConfigError(f"{self.path}: this file was changed just now by something else; try again")


_INPUTS = "inputs"
_INPUT = re.compile(r"\$\{input:([^}]*)\}")
_TEMPLATE = """\
{
  // The MCP servers behind the gateway, as every client writes them. Variables such as ${TOKEN} are filled in.
  "mcpServers": {
    // "git": { "command": "uvx", "args": ["mcp-server-git", "--repository", "."] },
    // "docs": { "url": "https://mcp.example.com/mcp", "headers": { "Authorization": "Bearer ${DOCS_TOKEN}" } }
  },
  // The gateway's own settings; each server may have a "codemode" of its own.
  "codemode": {
    // Which calls a person decides: "never", "declared" (what a server declares destructive, or says nothing about),
    // "writes" (all that is not declared read-only), "always".
    "approval": "declared"
  }
}
"""


def initial(servers: Mapping[str, Any] | None = None) -> str:
    """Return a configuration with these servers."""
    text = _TEMPLATE
    for name, entry in (servers or {}).items():
        text = added(text, name, entry)
    return text


def added(config_text: str, name: str, entry: Mapping[str, Any]) -> str:
    """Return the text of a configuration with the server ``name`` added, beside those that are there.

    Raises `ConfigError` where the text is none, where it has a server of that name, or where the entry is a mistake.
    """
    doc = _read(config_text)
    if name in servers_of(config_text):
        raise ConfigError(f"there is a server {short(name)} already; give the new one another name")
    for one in load_config({"mcpServers": {name: entry}}).problems:
        if one.server is not None and not one.lacks_value:
            raise ConfigError(str(one))
    return doc.added(_container(doc), name, entry)


def with_servers(config_text: str, servers: Mapping[str, Mapping[str, Any]], client: str) -> tuple[str, dict[str, str]]:
    """Return the text with the servers of a client added, and under which name each of them is there now.

    One that is there already, but for our keys, is not added again; one whose name another has is called by its client
    too. Raises `ConfigError` where that is taken as well.
    """
    names = dict[str, str]()
    for name, entry in servers.items():
        there = servers_of(config_text)
        free = (one for one in (name, f"{name}-{client}") if one not in there or _theirs(there[one]) == _theirs(entry))
        names[name] = next(free, name)
        if names[name] not in there or _theirs(there[names[name]]) != _theirs(entry):
            config_text = added(config_text, names[name], entry)
    return config_text, names


def with_inputs(config_text: str, inputs: Sequence[Any], servers: Mapping[str, Any]) -> str:
    """Return the text with those inputs of VS Code declared that these servers name, as VS Code has them declared.

    One that is declared already stays as it is. Raises `ConfigError` where the text's own are no list.
    """
    doc = _read(config_text)
    node = doc.root.get(_INPUTS)
    if node is not None and node.kind != "array":
        raise ConfigError("inputs must be a list; mend it by hand")
    known = {mapping_or_empty(one).get("id") for one in (node.plain() if node else ())}
    named = set(_INPUT.findall(json.dumps(servers, ensure_ascii=False))) - known
    new = {one["id"]: one for one in map(mapping_or_empty, inputs) if one.get("id") in named}
    return doc.with_items(_INPUTS, [*new.values()]) if new else config_text


def _theirs(entry: Any) -> Any:
    return {key: one for key, one in entry.items() if key != "codemode"} if is_mapping(entry) else entry


def servers_of(config_text: str) -> dict[str, Any]:
    """Return the servers that a configuration's text has. Raises `ConfigError` where it is none."""
    found: dict[str, Any] = {}
    for _, said in containers_in(_read(config_text).root.plain()):
        found = {**mapping_or_empty(said), **found}
    return found


def _read(text: str) -> JsonEdits:
    try:
        doc = JsonEdits.of(text)
    except JsonError as mistake:
        raise ConfigError(f"the configuration, {mistake}") from None
    if doc.root.kind != "object":
        raise ConfigError('the configuration must be an object, as in {"mcpServers": {}}')
    return doc


def _container(doc: JsonEdits) -> tuple[str, ...]:
    for key in CONTAINERS:
        keys = tuple(key.split("."))
        node: Node | None = doc.at(keys)
        if node is not None:
            if node.kind != "object":
                raise ConfigError(f"{key} must be an object; mend it by hand")
            return keys
    return (CONTAINERS[0],)
