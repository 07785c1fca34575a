"""Approval console: a web page on which people decide the calls that programs of codemode wait for."""

from __future__ import annotations

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
