"""The one entry that a client has for the gateway: what it starts, and what it hands on to it."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from codemode.data.narrowing import is_mapping, list_or_empty

from ..config.variables import input_variable
from .importing import GATEWAY, is_gateway
from .machines import ClientFile

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
