"""Notices of what waits: to whom they go, what is in them, how they are signed and sent."""

from __future__ import annotations

from .sender import Sender, failures_of
from .target import Target, require_targets
from .webhooks import SlackWebhook, Webhook, verify_signature

__all__ = [
    "Sender",
    "SlackWebhook",
    "Target",
    "Webhook",
    "failures_of",
    "require_targets",
    "verify_signature",
]
