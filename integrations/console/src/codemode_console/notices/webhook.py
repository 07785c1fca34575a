"""A signed webhook: what waits as JSON, for a program of the receiver's."""

from __future__ import annotations

import json
from typing import Any

from codemode import Notice, Record, StoredRequest

from ..visible import json_beginning
from .signing import Key, key_bytes, signed_headers
from .target import Post, Target
from .telling import MOST_REQUESTS, short, waiting_of

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
