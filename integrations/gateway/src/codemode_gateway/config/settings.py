"""The gateway's own settings, of the checked keys at the top of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import secret_rules
from .values import GatewaySettings

SQLITE = "sqlite:///"
"""How the URL of a store in a file begins."""

_FIELDS = {
    "store": "store",
    "keys": "keys",
    "journal": "journal",
    "auth": "auth",
    "learn": "learn",
    "toolName": "tool_name",
    "output": "output",
    "passThrough": "pass_through",
    "limits": "limits",
    "clients": "clients",
    "approvalWaitMs": "approval_wait_ms",
    "maxWaiting": "max_waiting",
}


def settings_of(
    top: Mapping[str, Any], filled_in: set[str], state_folder: Path, at: Callable[[str], Path]
) -> GatewaySettings:
    """Return the settings; ``filled_in`` are secrets that variables brought in, ``at`` gives the path that is meant."""
    fields = {field: top[key] for key, field in _FIELDS.items() if key in top}
    if fields.get("store", "").startswith(SQLITE):  # a client starts the gateway in any folder
        fields["store"] = f"{SQLITE}{at(fields['store'].removeprefix(SQLITE))}"
    auth: Mapping[str, Any] = top.get("auth", {})
    console = auth.get("console")
    asking: Any = auth.get("introspection", {}).get("clientSecret")
    of_auth = [one for one in (console, asking) if isinstance(one, str)]
    secrets = secret_rules.long_enough({*filled_in, *top.get("keys", ()), *of_auth})
    secrets |= secret_rules.of_url(top.get("store", ""))
    return GatewaySettings(**fields, state_folder=state_folder, secrets=tuple(sorted(secrets, key=len, reverse=True)))
