"""Signed webhooks and Slack messages."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

from codemode.options.checked_fields import WrongTypeError
from codemode.stores import Notice, Record, StoredRequest

from ..visible_text import to_truncated_visible_json, to_visible_text
from .target import MAX_LISTED_REQUESTS, NoticeTarget, WebhookRequest, list_pending_requests, truncate_text

ID_HEADER = "Codemode-Notice-Id"
TIME_HEADER = "Codemode-Time"
SIGNATURE_HEADER = "Codemode-Signature"
_SIGNATURE_PREFIX = "v1="
_MAX_TIMESTAMP_DIGITS = 15
SecretKey: TypeAlias = str | bytes


def to_key_bytes(secret: Any) -> bytes:
    """Return a secret as bytes. Raises `ValueError` without showing it."""
    if not isinstance(secret, str | bytes):
        raise WrongTypeError(f"secret must be a text or bytes, got {type(secret).__name__}")
    if not secret:
        raise ValueError("secret must not be empty: whoever knows the URL could send notices")
    return secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret


def create_signed_headers(key: bytes, notice_id: str, now: float, body: bytes) -> dict[str, str]:
    """Return the headers of a webhook sent at Unix time ``now``."""
    timestamp = str(int(now))
    return {ID_HEADER: notice_id, TIME_HEADER: timestamp, SIGNATURE_HEADER: _compute_signature(key, timestamp, body)}


def verify_signature(
    secret: SecretKey | Sequence[SecretKey],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_seconds: float = 300,
    clock: Callable[[], float] = time.time,
) -> bool:
    """Return whether a webhook was signed with one of the secrets within the tolerance.

    ``headers`` may be in any case; ``body`` is the received bytes. Raises `ValueError` for invalid arguments.
    """
    secrets_or_keys = [secret] if isinstance(secret, str | bytes) else list(secret)
    keys = [to_key_bytes(secret_or_key) for secret_or_key in secrets_or_keys]
    if not keys or tolerance_seconds <= 0:
        raise ValueError("verify_signature needs a secret, and a tolerance_seconds above 0")
    if not isinstance(cast("object", body), bytes):
        raise WrongTypeError(f"body must be the bytes that came, got {type(body).__name__}")
    headers_by_name = {name.lower(): value for name, value in headers.items()}
    timestamp, signature = (
        headers_by_name.get(TIME_HEADER.lower(), ""),
        headers_by_name.get(SIGNATURE_HEADER.lower(), ""),
    )
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _MAX_TIMESTAMP_DIGITS):
        return False
    signature_bytes = signature.encode("utf-8", "surrogatepass")
    # Compares all keys, so that the time does not reveal which one matched.
    matches = [hmac.compare_digest(_compute_signature(key, timestamp, body).encode(), signature_bytes) for key in keys]
    return any(matches) and abs(clock() - int(timestamp)) <= tolerance_seconds


def _compute_signature(key: bytes, timestamp: str, body: bytes) -> str:
    return _SIGNATURE_PREFIX + hmac.new(key, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


MAX_INPUT_CHARACTERS = 16_384


class Webhook(NoticeTarget):
    """A URL that receives signed JSON.

    Args:
        secret: Signs each notice and its time.
        include_input: Add the inputs of calls.
        name: Name in pages and audit.

    Raises `ValueError`.
    """

    kind = "webhook"

    def __init__(self, url: str, *, secret: SecretKey, include_input: bool = False, name: str | None = None) -> None:
        super().__init__(url, include_input=include_input, name=name)
        self._key = to_key_bytes(secret)

    def create_request(self, notice: Notice, link: str, now: float) -> WebhookRequest:
        """See `NoticeTarget.create_request`."""
        body = json.dumps(_create_webhook_payload(notice, link, self._include_input), allow_nan=False).encode()
        return WebhookRequest(
            {"Content-Type": "application/json", **create_signed_headers(self._key, notice.id, now, body)}, body
        )


def _create_webhook_payload(notice: Notice, link: str, include_input: bool) -> dict[str, Any]:
    pending = list_pending_requests(notice.record)
    requests = [_request_to_json(request, include_input) for request in pending[:MAX_LISTED_REQUESTS]]
    content = {"record": _record_to_json(notice.record), "count": len(pending), "requests": requests}
    return {"id": notice.id, "kind": "waiting", "link": link, **content}


def _record_to_json(record: Record) -> dict[str, Any]:
    times = {"createdAtMs": record.created_at_ms, "expiresAtMs": record.expires_at_ms}
    identity = {"tenant": truncate_text(record.tenant), "app": truncate_text(record.app), "labels": dict(record.labels)}
    return {"id": record.id, "version": record.version, **identity, **times}


def _request_to_json(request: StoredRequest, include_input: bool) -> dict[str, Any]:
    values: dict[str, Any] = {"tool": truncate_text(request.tool_name), "kind": truncate_text(request.kind)}
    if include_input:
        text, is_whole = to_truncated_visible_json(request.input, MAX_INPUT_CHARACTERS, indent=None)
        values |= {"input": request.input} if is_whole else {"inputBeginning": text}
    return values


_MAX_FIELD_CHARACTERS = 1_000
_MAX_SECTION_CHARACTERS = 2_900
_MAX_NAME_CHARACTERS = 100
_MAX_LISTED_NAMES, _MAX_LISTED_INPUTS = 8, 5
_MAX_DATE_MS = 253_402_300_799_000  # the end of the year 9999
# Slack interprets these in plain text too, as in <!channel>.
_SLACK_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


class SlackWebhook(NoticeTarget):
    """An incoming webhook of Slack, whose URL is its secret.

    Args:
        include_input: Add the inputs of calls.
        name: Name in pages and audit.

    Raises `ValueError`.
    """

    kind = "slack"

    def create_request(self, notice: Notice, link: str, now: float) -> WebhookRequest:
        """See `NoticeTarget.create_request`."""
        del now
        message = _create_slack_message(notice.record, link, self._include_input)
        return WebhookRequest({"Content-Type": "application/json"}, json.dumps(message).encode())


def _create_slack_message(record: Record, link: str, include_input: bool) -> dict[str, Any]:
    pending = list_pending_requests(record)
    title = "A call waits for a decision" if len(pending) == 1 else f"{len(pending)} calls wait for a decision"
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _create_plain_text_object(title, _MAX_NAME_CHARACTERS)},
        {"type": "section", "fields": _create_slack_fields(record, pending)},
    ]
    if include_input:
        blocks += [_create_input_block(request) for request in pending[:_MAX_LISTED_INPUTS]]
    button = {"type": "button", "text": _create_plain_text_object("Open", _MAX_NAME_CHARACTERS), "url": link}
    blocks.append({"type": "actions", "elements": [button]})
    # Push notifications render this as markup, so it contains no untrusted text.
    return {"text": title, "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _create_slack_fields(record: Record, pending: list[StoredRequest]) -> list[dict[str, Any]]:
    tools = Counter(request.tool_name for request in pending)
    labels = record.labels.items()
    texts_by_title = {
        "Tools": _format_name_list(
            [(_to_visible_name(tool) or "?") + (f" ({count})" if count > 1 else "") for tool, count in tools.items()]
        ),
        "App": _to_visible_name(record.app),
        "Tenant": _to_visible_name(record.tenant),
        "Labels": _format_name_list([f"{_to_visible_name(name)}: {_to_visible_name(text)}" for name, text in labels]),
        "Expires": _format_expiry(record.expires_at_ms),
    }
    return [
        _create_plain_text_object(f"{title}\n{text}", _MAX_FIELD_CHARACTERS)
        for title, text in texts_by_title.items()
        if text
    ]


def _format_name_list(names: list[str]) -> str:
    hidden_count = len(names) - _MAX_LISTED_NAMES
    return "\n".join([*names[:_MAX_LISTED_NAMES], *([f"and {hidden_count} more"] if hidden_count > 0 else [])])


def _to_visible_name(text: str) -> str:
    return truncate_text(to_visible_text(text[: _MAX_NAME_CHARACTERS + 1], one_line=True), _MAX_NAME_CHARACTERS)


def _create_input_block(request: StoredRequest) -> dict[str, Any]:
    text, is_whole = to_truncated_visible_json(request.input, _MAX_SECTION_CHARACTERS)
    input_text = text if is_whole else f"{text}\N{HORIZONTAL ELLIPSIS}"
    return {
        "type": "section",
        "text": _create_plain_text_object(
            f"{_to_visible_name(request.tool_name)}\n{input_text}", _MAX_SECTION_CHARACTERS
        ),
    }


def _format_expiry(expires_at_ms: int) -> str:
    return (
        ""
        if expires_at_ms > _MAX_DATE_MS
        else f"{datetime.fromtimestamp(expires_at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    )


def _create_plain_text_object(text: str, max_characters: int) -> dict[str, Any]:
    """Return a plain text object of Slack with at most ``max_characters``."""
    pieces, length = list[str](), 0
    for character in text:
        piece = _SLACK_ESCAPES.get(character, character)
        length += len(piece)
        if length >= max_characters:
            pieces.append("\N{HORIZONTAL ELLIPSIS}")
            break
        pieces.append(piece)
    return {"type": "plain_text", "text": "".join(pieces), "emoji": False}
