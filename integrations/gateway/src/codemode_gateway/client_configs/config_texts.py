"""The text of our own configuration: one to begin with, and one with a server more. All else of it stays."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from codemode.data.narrowing import is_mapping, mapping_or_empty

from ..config.jsonc import JsonError, Node
from ..config.mistakes import short
from ..config.reading import CONTAINERS, containers_in, load_config
from ..config.values import ConfigError
from .json_edits import JsonEdits

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
