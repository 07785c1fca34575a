"""A message in Slack, or in what takes the same: blocks of plain text, and a button that is a link."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from codemode import Notice, Record, StoredRequest

from ..visible import json_beginning, visible_text
from .target import Post, Target
from .telling import short, waiting_of

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
