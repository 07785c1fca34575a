"""Read and write text files atomically, and edit the gateway's configuration."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from codemode.data.narrowing import is_mapping, list_or_empty, mapping_or_empty
from codemode.data.similar_names import find_nearest_names

from ..config import config_file
from ..config.config_file import JsonError, JsonMember, JsonNode, quote_name
from ..config.loader import SERVER_CONTAINER_KEYS, find_server_containers, load_config
from ..config.model import ConfigError
from .file_formats import JsonDocument, TomlServersFormat, apply_edits

OWNER_ONLY_MODE = 0o600


def write_atomically(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Replace the file at ``path`` atomically. Keeps its mode and symbolic links.

    ``mode`` is for a new file (default: private to the owner). Raises `ConfigError` if it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace_file(target, content, _choose_file_mode(target, mode))
    except OSError as problem:
        raise ConfigError(f"{path}: this file cannot be written: {problem.strerror}") from None


def remove_file_or_link_target(path: Path) -> None:
    """Remove a file, or the target of a link, if it exists. Raises `ConfigError` if that fails."""
    try:
        Path(os.path.realpath(path)).unlink(missing_ok=True)
    except OSError as problem:
        raise ConfigError(f"{path}: this file cannot be removed: {problem.strerror}") from None


def _choose_file_mode(target: Path, wanted: int | None) -> int:
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    return OWNER_ONLY_MODE if wanted is None else wanted


def _replace_file(target: Path, content: bytes, mode: int) -> None:
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
class TextFile:
    """The content of the file at ``path``, or None if it does not exist."""

    path: Path
    content: bytes | None

    @classmethod
    def read(cls, path: Path, max_bytes: int = config_file.MAX_BYTES) -> TextFile:
        """Read a file of at most ``max_bytes``. Raises `ConfigError` if it is unreadable or not text."""
        if not config_file.is_path_present(path):
            return cls(path, None)
        file_text = cls(path, config_file.read_bounded_bytes(path, max_bytes))
        _ = file_text.text
        return file_text

    def __repr__(self) -> str:
        return f"<TextFile {str(self.path)!r}>"

    @property
    def is_present(self) -> bool:
        return self.content is not None

    @property
    def text(self) -> str:
        return config_file.decode_text(self.content or b"", self.path)

    def encode(self, text: str) -> bytes:
        """Return a new text as bytes, with a byte order mark if the old text has one."""
        return (_UTF8_BOM if (self.content or b"").startswith(_UTF8_BOM) else b"") + text.encode()

    def write(self, text: str) -> None:
        """Write a new text. Raises `ConfigError` if the file has changed since it was read."""
        self.check_unchanged()
        write_atomically(self.path, self.encode(text))

    def check_unchanged(self) -> None:
        """Raise `ConfigError` if the file has changed since it was read."""
        current = (
            config_file.read_bounded_bytes(self.path, len(self.content or b"") + 1)
            if config_file.is_path_present(self.path)
            else None
        )
        if current != self.content:
            raise ConfigError(f"{self.path}: another program changed this file just now; try again")


_INPUTS_KEY = "inputs"
_INPUT_VARIABLE = re.compile(r"\$\{input:([^}]*)\}")
_TEMPLATE = """\
{
  // The MCP servers behind the gateway, in the format of clients. Variables such as ${TOKEN} are substituted.
  "mcpServers": {
    // "git": { "command": "uvx", "args": ["mcp-server-git", "--repository", "."] },
    // "docs": { "url": "https://mcp.example.com/mcp", "headers": { "Authorization": "Bearer ${DOCS_TOKEN}" } }
  },
  // The gateway's own settings; each server may have a "codemode" of its own.
  "codemode": {
    // Calls that need approval: "never", "declared" (what a server declares destructive, or says nothing about),
    // "writes" (all that is not declared read-only), "always".
    "approval": "declared"
  }
}
"""


def create_gateway_config_text(servers: Mapping[str, Any] | None = None) -> str:
    """Return the text of a new configuration with these servers."""
    text = _TEMPLATE
    for name, entry in (servers or {}).items():
        text = create_text_with_server(text, name, entry)
    return text


def create_text_with_server(config_text: str, name: str, entry: Mapping[str, Any]) -> str:
    """Return a configuration's text with the server ``name`` added.

    Raises `ConfigError` if the text or the entry is invalid, or if the name exists.
    """
    document = _parse_config(config_text)
    if name in parse_config_servers(config_text):
        raise ConfigError(
            f"the server {quote_name(name)} already exists; give the new one another name, or remove it first"
        )
    for problem in load_config({"mcpServers": {name: entry}}).problems:
        if problem.server is not None and not problem.lacks_value:
            raise ConfigError(str(problem))
    return document.create_text_with_member(_get_server_container_path(document), name, entry)


def merge_client_servers(
    config_text: str, servers: Mapping[str, Mapping[str, Any]], client: str
) -> tuple[str, dict[str, str]]:
    """Return the text with the servers of a client added, and the new name of each server.

    A server that exists already, ignoring the key ``codemode``, is not added again. If another server has the name, the
    client's name is appended. Raises `ConfigError` if that name exists too.
    """
    new_names = dict[str, str]()
    for name, entry in servers.items():
        existing = parse_config_servers(config_text)
        usable_names = (
            candidate
            for candidate in (name, f"{name}-{client}")
            if candidate not in existing or _drop_codemode_section(existing[candidate]) == _drop_codemode_section(entry)
        )
        new_names[name] = next(usable_names, name)
        if new_names[name] not in existing or _drop_codemode_section(
            existing[new_names[name]]
        ) != _drop_codemode_section(entry):
            config_text = create_text_with_server(config_text, new_names[name], entry)
    return config_text, new_names


def add_used_vscode_inputs(config_text: str, inputs: Sequence[Any], servers: Mapping[str, Any]) -> str:
    """Return the text with VS Code's declarations of the inputs that these servers use.

    Existing declarations stay. Raises `ConfigError` if ``inputs`` of the text is not a list.
    """
    document = _parse_config(config_text)
    node = document.root.get(_INPUTS_KEY)
    if node is not None and node.kind != "array":
        raise ConfigError("inputs must be a list; fix it by hand")
    declared_ids = {mapping_or_empty(item).get("id") for item in (node.to_python() if node else ())}
    used_ids = set(_INPUT_VARIABLE.findall(json.dumps(servers, ensure_ascii=False))) - declared_ids
    new_inputs = {item["id"]: item for item in map(mapping_or_empty, inputs) if item.get("id") in used_ids}
    return document.create_text_with_items(_INPUTS_KEY, [*new_inputs.values()]) if new_inputs else config_text


def create_text_without_server(file: TextFile, name: str) -> str:
    """Return the text of a configuration without the server ``name``, in every object that has it. Comments stay.

    Raises `ConfigError` with the nearest names if there is no such server, or if removing it would change other
    content.
    """
    text = file.text
    expected = config_file.parse_config_text(text, file.path)
    containers = list(find_server_containers(expected))
    valid_names = dict.fromkeys(known for _, container in containers for known in _list_server_names(container))
    if name not in valid_names:
        raise ConfigError(
            f"{file.path}: there is no server {quote_name(name)}{_format_name_suggestions(name, valid_names)}"
        )
    for key, container in containers:
        if name not in _list_server_names(container):
            continue
        if file.path.suffix.lower() == ".toml":
            text = TomlServersFormat((key,)).remove_servers(text, [name])
        else:
            text = _remove_server_from_json(text, key, name)
        if is_mapping(container):
            cast("dict[str, Any]", container).pop(name)
        else:
            container[:] = [item for item in container if mapping_or_empty(item).get("name") != name]
    if _drop_empty_objects(config_file.parse_config_text(text, file.path)) != _drop_empty_objects(expected):
        raise ConfigError(f"{file.path}: the server {quote_name(name)} is not an entry of its own; remove it by hand")
    return text


def _list_server_names(container: Any) -> list[str]:
    """Return the names of the servers in an object, or in an array of objects that have a name."""
    if is_mapping(container):
        return list(container)
    return [name for item in list_or_empty(container) if isinstance(name := mapping_or_empty(item).get("name"), str)]


def _format_name_suggestions(name: str, valid_names: Collection[str]) -> str:
    similar_names = [known for known in valid_names if known.lower() == name.lower()]
    similar_names = similar_names or find_nearest_names(name[:100], valid_names)
    if similar_names:
        return f"; did you mean {' or '.join(map(quote_name, similar_names))}?"
    return "; `codemode mcp list` lists the servers"


def _remove_server_from_json(text: str, key: str, name: str) -> str:
    document = _parse_config(text)
    outer_key, _, inner_key = key.rpartition(".")
    node = document.root.get(key) or document.find((outer_key, inner_key))
    if node is None:
        return text
    if node.kind == "array":
        # An item with a name is removed as if it were a member with that key.
        names = [mapping_or_empty(item.to_python()).get("name") or "" for item in node.items]
        members = (JsonMember(str(own), item.start, item) for own, item in zip(names, node.items, strict=True))
        node = replace(node, members=tuple(members))
    return apply_edits(document.text, document.create_remove_or_replace_edits(node, [name], {}))


def _drop_empty_objects(whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content without empty objects: a TOML table disappears with its last server."""
    return {key: value for key, value in whole.items() if value != {}}


def _drop_codemode_section(entry: Any) -> Any:
    return {key: value for key, value in entry.items() if key != "codemode"} if is_mapping(entry) else entry


def parse_config_servers(config_text: str) -> dict[str, Any]:
    """Return the servers in a configuration's text. Raises `ConfigError` if it is invalid."""
    servers: dict[str, Any] = {}
    for _, entries in find_server_containers(_parse_config(config_text).root.to_python()):
        servers = {**mapping_or_empty(entries), **servers}
    return servers


def _parse_config(text: str) -> JsonDocument:
    try:
        document = JsonDocument.parse(text)
    except JsonError as mistake:
        raise ConfigError(f"the configuration, {mistake}") from None
    if document.root.kind != "object":
        raise ConfigError('the configuration must be an object, as in {"mcpServers": {}}')
    return document


def _get_server_container_path(document: JsonDocument) -> tuple[str, ...]:
    for key in SERVER_CONTAINER_KEYS:
        keys = tuple(key.split("."))
        node: JsonNode | None = document.find(keys)
        if node is not None:
            if node.kind != "object":
                raise ConfigError(f"{key} must be an object; fix it by hand")
            return keys
    return (SERVER_CONTAINER_KEYS[0],)
