"""Notices as signed webhooks and as messages in Slack."""

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

from ..visible import json_beginning, visible_text
from .target import MOST_REQUESTS, Post, Target, short, waiting_of

ID_HEADER = "Codemode-Notice-Id"
TIME_HEADER = "Codemode-Time"
SIGNATURE_HEADER = "Codemode-Signature"
_VERSION = "v1="
_MAX_DIGITS = 15
Key: TypeAlias = str | bytes


def key_bytes(secret: Any) -> bytes:
    """Return a secret as bytes. Raises `ValueError` for what is none, and never tells it."""
    if not isinstance(secret, str | bytes):
        raise WrongTypeError(f"secret must be a text or bytes, got {type(secret).__name__}")
    if not secret:
        raise ValueError("secret must not be empty: whoever knows the URL could send notices")
    return secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret


def signed_headers(key: bytes, notice_id: str, now: float, body: bytes) -> dict[str, str]:
    """Return the headers of a webhook that is sent now, in Unix time."""
    said = str(int(now))
    return {ID_HEADER: notice_id, TIME_HEADER: said, SIGNATURE_HEADER: _signature(key, said, body)}


def verify_signature(
    secret: Key | Sequence[Key],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_seconds: float = 300,
    clock: Callable[[], float] = time.time,
) -> bool:
    """Say whether a webhook is from the console: signed with the secret, or one of several, and not too long ago.

    ``headers`` are those that came, in any case, ``body`` the bytes that came. Raises `ValueError` for what can be no
    secret, tolerance or body.
    """
    secrets = [secret] if isinstance(secret, str | bytes) else list(secret)
    keys = [key_bytes(one) for one in secrets]
    if not keys or tolerance_seconds <= 0:
        raise ValueError("verify_signature needs a secret, and a tolerance_seconds above 0")
    if not isinstance(cast("object", body), bytes):
        raise WrongTypeError(f"body must be the bytes that came, got {type(body).__name__}")
    came = {name.lower(): value for name, value in headers.items()}
    said, signature = came.get(TIME_HEADER.lower(), ""), came.get(SIGNATURE_HEADER.lower(), "")
    if not (said.isascii() and said.isdigit() and len(said) <= _MAX_DIGITS):
        return False
    given = signature.encode("utf-8", "surrogatepass")
    # All of them: how long it takes tells nobody which one it was.
    matches = [hmac.compare_digest(_signature(key, said, body).encode(), given) for key in keys]
    return any(matches) and abs(clock() - int(said)) <= tolerance_seconds


def _signature(key: bytes, said: str, body: bytes) -> str:
    return _VERSION + hmac.new(key, said.encode() + b"." + body, hashlib.sha256).hexdigest()


MAX_INPUT_CHARACTERS = 16_384


class Webhook(Target):
    """A URL that is posted JSON, signed with ``secret`` so that the receiver knows who sent it and when.

    ``include_input`` puts the inputs of calls into it. ``name`` is what pages and the audit call it. Raises
    `ValueError` for what is no URL, and without a secret.
    """

    kind = "webhook"

    def __init__(self, url: str, *, secret: Key, include_input: bool = False, name: str | None = None) -> None:
        super().__init__(url, include_input=include_input, name=name)
        self._key = key_bytes(secret)

    def post(self, notice: Notice, link: str, now: float) -> Post:
        """See `Target.post`."""
        body = json.dumps(_said(notice, link, self._include_input), allow_nan=False).encode()
        return Post({"Content-Type": "application/json", **signed_headers(self._key, notice.id, now, body)}, body)


def _said(notice: Notice, link: str, include_input: bool) -> dict[str, Any]:
    waiting = waiting_of(notice.record)
    requests = [_request(one, include_input) for one in waiting[:MOST_REQUESTS]]
    about = {"record": _record(notice.record), "count": len(waiting), "requests": requests}
    return {"id": notice.id, "kind": "waiting", "link": link, **about}


def _record(record: Record) -> dict[str, Any]:
    times = {"createdAtMs": record.created_at_ms, "expiresAtMs": record.expires_at_ms}
    named = {"tenant": short(record.tenant), "app": short(record.app), "labels": dict(record.labels)}
    return {"id": record.id, "version": record.version, **named, **times}


def _request(request: StoredRequest, include_input: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"tool": short(request.tool_name), "kind": short(request.kind)}
    if include_input:
        text, is_whole = json_beginning(request.input, MAX_INPUT_CHARACTERS, indent=None)
        said |= {"input": request.input} if is_whole else {"inputBeginning": text}
    return said


_MAX_FIELD_CHARACTERS = 1_000
_MAX_SECTION_CHARACTERS = 2_900
_MAX_NAME_CHARACTERS = 100
_MOST_NAMED, _MOST_INPUTS = 8, 5
_LAST_MS = 253_402_300_799_000  # of the last year that has four digits
# Slack reads these itself, in plain text too: <!channel>.
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


class SlackWebhook(Target):
    """An incoming webhook of Slack, whose URL is its secret.

    ``include_input`` puts the inputs of calls into the message. ``name`` is what pages and the audit call it. Raises
    `ValueError` for what is no URL.
    """

    kind = "slack"

    def post(self, notice: Notice, link: str, now: float) -> Post:
        """See `Target.post`."""
        del now
        said = _message(notice.record, link, self._include_input)
        return Post({"Content-Type": "application/json"}, json.dumps(said).encode())


def _message(record: Record, link: str, include_input: bool) -> dict[str, Any]:
    waiting = waiting_of(record)
    title = "A call waits for a decision" if len(waiting) == 1 else f"{len(waiting)} calls wait for a decision"
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(title, _MAX_NAME_CHARACTERS)},
        {"type": "section", "fields": _fields(record, waiting)},
    ]
    if include_input:
        blocks += [_input(one) for one in waiting[:_MOST_INPUTS]]
    button = {"type": "button", "text": _plain("Open", _MAX_NAME_CHARACTERS), "url": link}
    blocks.append({"type": "actions", "elements": [button]})
    # What a phone shows of it is marked up: nothing of a stranger's is in there.
    return {"text": title, "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _fields(record: Record, waiting: list[StoredRequest]) -> list[dict[str, Any]]:
    tools = Counter(one.tool_name for one in waiting)
    labels = record.labels.items()
    lists = {
        "Tools": _lines([(_name(tool) or "?") + (f" ({count})" if count > 1 else "") for tool, count in tools.items()]),
        "App": _name(record.app),
        "Tenant": _name(record.tenant),
        "Labels": _lines([f"{_name(name)}: {_name(text)}" for name, text in labels]),
        "Waits until": _until(record.expires_at_ms),
    }
    return [_plain(f"{title}\n{text}", _MAX_FIELD_CHARACTERS) for title, text in lists.items() if text]


def _lines(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return "\n".join([*names[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])


def _name(text: str) -> str:
    return short(visible_text(text[: _MAX_NAME_CHARACTERS + 1], one_line=True), _MAX_NAME_CHARACTERS)


def _input(request: StoredRequest) -> dict[str, Any]:
    text, is_whole = json_beginning(request.input, _MAX_SECTION_CHARACTERS)
    said = text if is_whole else f"{text}\N{HORIZONTAL ELLIPSIS}"
    return {"type": "section", "text": _plain(f"{_name(request.tool_name)}\n{said}", _MAX_SECTION_CHARACTERS)}


def _until(expires_at_ms: int) -> str:
    return "" if expires_at_ms > _LAST_MS else f"{datetime.fromtimestamp(expires_at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _plain(text: str, most: int) -> dict[str, Any]:
    """Return a text that is shown as it is, in at most so many characters."""
    pieces, length = list[str](), 0
    for character in text:
        piece = _ESCAPES.get(character, character)
        length += len(piece)
        if length >= most:
            pieces.append("\N{HORIZONTAL ELLIPSIS}")
            break
        pieces.append(piece)
    return {"type": "plain_text", "text": "".join(pieces), "emoji": False}
