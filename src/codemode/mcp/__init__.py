"""MCP in both directions: the servers of a configuration, and a gateway that makes one tool of them.

Needs the extra ``mcp``. What is named here is imported when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..host.imports import importing

if TYPE_CHECKING:
    from .config.patterns import matches
    from .config.places import state_folder
    from .config.reading import load_config
    from .config.values import ConfigError, ConfigProblem, GatewayConfig, GatewaySettings, ServerConfig
    from .config.watching import watched
    from .gateway.gateway import Gateway
    from .gateway.options import GatewayOptions
    from .signin.logins import login, logout
    from .signin.sign_ins import SignIns
    from .upstreams.connected import Connected, connect
    from .upstreams.hooks import UpstreamHooks
    from .upstreams.upstream import Upstream

__all__ = [
    "ConfigError",
    "ConfigProblem",
    "Connected",
    "Gateway",
    "GatewayConfig",
    "GatewayOptions",
    "GatewaySettings",
    "ServerConfig",
    "SignIns",
    "Upstream",
    "UpstreamHooks",
    "connect",
    "load_config",
    "login",
    "logout",
    "matches",
    "state_folder",
    "watched",
]

# Where each of them lives; the imports above tell type checkers the same.
_LATE = {
    "config.patterns": "matches",
    "config.places": "state_folder",
    "config.reading": "load_config",
    "config.values": "ConfigError ConfigProblem GatewayConfig GatewaySettings ServerConfig",
    "config.watching": "watched",
    "gateway.gateway": "Gateway",
    "gateway.options": "GatewayOptions",
    "upstreams.connected": "Connected connect",
    "upstreams.hooks": "UpstreamHooks",
    "upstreams.upstream": "Upstream",
    "signin.logins": "login logout",
    "signin.sign_ins": "SignIns",
}
_MODULE_OF = {name: module for module, names in _LATE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with importing:
        value = globals()[name] = getattr(import_module(f".{_MODULE_OF[name]}", __package__), name)
    return value
