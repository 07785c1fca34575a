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
from ..config.config_file import JsonError, JsonNode, quote_name
from ..config.loader import SERVER_CONTAINER_KEYS, find_server_containers, load_config
from ..config.model import ConfigError
from .file_formats import JsonDocument

OWNER_ONLY_MODE = 0o600


def write_atomically(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Put ``content`` at ``path`` at once, so that a reader sees the old or the new. Keeps mode and symbolic links.

    A new file is its owner's alone, unless ``mode`` says else. Raises `ConfigError` where the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(target, content, _get_mode(target, mode))
    except OSError as problem:
        raise ConfigError(f"{path}: this file cannot be written: {problem.strerror}") from None


def remove_file(path: Path) -> None:
    """Remove a file, or what a link leads to, if it is there. Raises `ConfigError` where it cannot be."""
    try:
        Path(os.path.realpath(path)).unlink(missing_ok=True)
    except OSError as problem:
        raise ConfigError(f"{path}: this file cannot be removed: {problem.strerror}") from None


def _get_mode(target: Path, wanted: int | None) -> int:
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    return OWNER_ONLY_MODE if wanted is None else wanted


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


_UTF8_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class FileText:
    """The content of the file at ``path``, None where there is none."""

    path: Path
    content: bytes | None

    @classmethod
    def read(cls, path: Path, max_bytes: int = config_file.MAX_BYTES) -> FileText:
        """Read it. Raises `ConfigError` where it is there and cannot be read, or is no text."""
        if not config_file.is_present(path):
            return cls(path, None)
        found = cls(path, config_file.read_content(path, max_bytes))
        _ = found.text
        return found

    def __repr__(self) -> str:
        return f"<FileText {str(self.path)!r}>"

    @property
    def is_present(self) -> bool:
        return self.content is not None

    @property
    def text(self) -> str:
        return config_file.decode_text(self.content or b"", self.path)

    def encode(self, text: str) -> bytes:
        """Return a new text as bytes, marked as UTF-8 where the old one is."""
        return (_UTF8_BOM if (self.content or b"").startswith(_UTF8_BOM) else b"") + text.encode()

    def write(self, text: str) -> None:
        """Put a new text in place of the old one. Raises `ConfigError` where somebody else has changed it by now."""
        self.check_unchanged()
        write_atomically(self.path, self.encode(text))

    def check_unchanged(self) -> None:
        """Raise `ConfigError` unless the file is as it was read."""
        current = (
            config_file.read_content(self.path, len(self.content or b"") + 1)
            if config_file.is_present(self.path)
            else None
        )
        if current != self.content:
            raise ConfigError(f"{self.path}: this file was changed just now by something else; try again")


_INPUTS_KEY = "inputs"
_INPUT_VARIABLE = re.compile(r"\$\{input:([^}]*)\}")
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


def create_config_text(servers: Mapping[str, Any] | None = None) -> str:
    """Return a configuration with these servers."""
    text = _TEMPLATE
    for name, entry in (servers or {}).items():
        text = add_server(text, name, entry)
    return text


def add_server(config_text: str, name: str, entry: Mapping[str, Any]) -> str:
    """Return the text of a configuration with the server ``name`` added, beside those that are there.

    Raises `ConfigError` where the text is none, where it has a server of that name, or where the entry is a mistake.
    """
    document = _parse(config_text)
    if name in parse_config_servers(config_text):
        raise ConfigError(f"there is a server {quote_name(name)} already; give the new one another name")
    for problem in load_config({"mcpServers": {name: entry}}).problems:
        if problem.server is not None and not problem.lacks_value:
            raise ConfigError(str(problem))
    return document.add_member(_find_container(document), name, entry)


def add_servers(config_text: str, servers: Mapping[str, Mapping[str, Any]], client: str) -> tuple[str, dict[str, str]]:
    """Return the text with the servers of a client added, and under which name each of them is there now.

    One that is there already, but for our keys, is not added again; one whose name another has is called by its client
    too. Raises `ConfigError` where that is taken as well.
    """
    names = dict[str, str]()
    for name, entry in servers.items():
        existing = parse_config_servers(config_text)
        usable_names = (
            candidate
            for candidate in (name, f"{name}-{client}")
            if candidate not in existing or _without_own_section(existing[candidate]) == _without_own_section(entry)
        )
        names[name] = next(usable_names, name)
        if names[name] not in existing or _without_own_section(existing[names[name]]) != _without_own_section(entry):
            config_text = add_server(config_text, names[name], entry)
    return config_text, names


def add_inputs(config_text: str, inputs: Sequence[Any], servers: Mapping[str, Any]) -> str:
    """Return the text with those inputs of VS Code declared that these servers name, as VS Code has them declared.

    One that is declared already stays as it is. Raises `ConfigError` where the text's own are no list.
    """
    document = _parse(config_text)
    node = document.root.get(_INPUTS_KEY)
    if node is not None and node.kind != "array":
        raise ConfigError("inputs must be a list; mend it by hand")
    declared_ids = {mapping_or_empty(item).get("id") for item in (node.to_python() if node else ())}
    used_ids = set(_INPUT_VARIABLE.findall(json.dumps(servers, ensure_ascii=False))) - declared_ids
    new_inputs = {item["id"]: item for item in map(mapping_or_empty, inputs) if item.get("id") in used_ids}
    return document.add_items(_INPUTS_KEY, [*new_inputs.values()]) if new_inputs else config_text


def _without_own_section(entry: Any) -> Any:
    return {key: value for key, value in entry.items() if key != "codemode"} if is_mapping(entry) else entry


def parse_config_servers(config_text: str) -> dict[str, Any]:
    """Return the servers that a configuration's text has. Raises `ConfigError` where it is none."""
    found: dict[str, Any] = {}
    for _, entries in find_server_containers(_parse(config_text).root.to_python()):
        found = {**mapping_or_empty(entries), **found}
    return found


def _parse(text: str) -> JsonDocument:
    try:
        document = JsonDocument.parse(text)
    except JsonError as mistake:
        raise ConfigError(f"the configuration, {mistake}") from None
    if document.root.kind != "object":
        raise ConfigError('the configuration must be an object, as in {"mcpServers": {}}')
    return document


def _find_container(document: JsonDocument) -> tuple[str, ...]:
    for key in SERVER_CONTAINER_KEYS:
        keys = tuple(key.split("."))
        node: JsonNode | None = document.find(keys)
        if node is not None:
            if node.kind != "object":
                raise ConfigError(f"{key} must be an object; mend it by hand")
            return keys
    return (SERVER_CONTAINER_KEYS[0],)
