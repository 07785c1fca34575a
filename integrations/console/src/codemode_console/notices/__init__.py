"""Notices of what waits: to whom they go, what is in them, how they are signed and sent."""

from __future__ import annotations

from .failed import failures_of
from .sender import Sender
from .signing import verify_signature
from .slack import SlackWebhook
from .target import Target, require_targets
from .webhook import Webhook

__all__ = [
    "Sender",
    "SlackWebhook",
    "Target",
    "Webhook",
    "failures_of",
    "require_targets",
    "verify_signature",
]
