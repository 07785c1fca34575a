"""Connect to the MCP servers of a configuration, and serve them as one MCP tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode.host.imports import create_lazy_getattr

if TYPE_CHECKING:
    from .config.loader import load_config, watch_config
    from .config.locations import state_folder
    from .config.model import ConfigError, ConfigProblem, GatewayConfig, GatewaySettings, ServerConfig
    from .config.patterns import matches
    from .gateway.gateway import Gateway
    from .gateway.options import GatewayOptions
    from .oauth.login_manager import SignInManager, login, logout
    from .upstreams.connected import ConnectedUpstreams, connect
    from .upstreams.hooks import UpstreamHooks
    from .upstreams.upstream import Upstream

__all__ = [
    "ConfigError",
    "ConfigProblem",
    "ConnectedUpstreams",
    "Gateway",
    "GatewayConfig",
    "GatewayOptions",
    "GatewaySettings",
    "ServerConfig",
    "SignInManager",
    "Upstream",
    "UpstreamHooks",
    "connect",
    "load_config",
    "login",
    "logout",
    "matches",
    "state_folder",
    "watch_config",
]

# The module of each name; the imports above are for type checkers.
_LATE = {
    "config.patterns": "matches",
    "config.locations": "state_folder",
    "config.loader": "load_config watch_config",
    "config.model": "ConfigError ConfigProblem GatewayConfig GatewaySettings ServerConfig",
    "gateway.gateway": "Gateway",
    "gateway.options": "GatewayOptions",
    "upstreams.connected": "ConnectedUpstreams connect",
    "upstreams.hooks": "UpstreamHooks",
    "upstreams.upstream": "Upstream",
    "oauth.login_manager": "login logout SignInManager",
}
__getattr__ = create_lazy_getattr(__name__, _LATE)
