"""Notices of pending calls: targets, content, signatures and delivery."""

from __future__ import annotations

from .sender import NoticeSender, find_failed_notices
from .target import NoticeTarget, validate_notice_targets
from .webhooks import SlackWebhook, Webhook, verify_signature

__all__ = [
    "NoticeSender",
    "NoticeTarget",
    "SlackWebhook",
    "Webhook",
    "find_failed_notices",
    "validate_notice_targets",
    "verify_signature",
]
