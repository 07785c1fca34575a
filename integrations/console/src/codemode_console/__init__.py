"""Web console on which people approve or deny the calls of paused programs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .application import Console, ConsoleOptions, approval_console, serve
    from .auth import ProxyHeaderAuth, TokenAuth, User, new_token, token_hash
    from .notices import SlackWebhook, Webhook, verify_signature

__all__ = [
    "Console",
    "ConsoleOptions",
    "ProxyHeaderAuth",
    "SlackWebhook",
    "TokenAuth",
    "User",
    "Webhook",
    "approval_console",
    "new_token",
    "serve",
    "token_hash",
    "verify_signature",
]

_LATE = {
    "application": "Console ConsoleOptions approval_console serve",
    "auth": "ProxyHeaderAuth TokenAuth User new_token token_hash",
    "notices": "SlackWebhook Webhook verify_signature",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that the command's help loads no web framework."""
    for module, names in _LATE.items():
        if name in names.split():
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
