"""Makes sure that an edit of a client's file has changed its servers as was meant, and nothing else."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from ..config.jsonc import JsonError
from ..config.values import ConfigError
from .importing import servers_in
from .json_edits import JsonEdits
from .machines import ClientFile


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
