"""Answers of the door itself: small, the same for all, and closing where a body was not read. Knows no users."""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.types import Send

_CODE = -32600


class Refused(Exception):  # noqa: N818 - an answer that is given, and no failure
    """A request that the door answers: ``status``, a sentence, and headers. Nothing behind the door has seen it.

    ``request_id`` is that of the message, where it is known.
    """

    def __init__(
        self,
        status: int,
        message: str,
        headers: Mapping[str, str] | None = None,
        *,
        request_id: str | int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})
        self.request_id = request_id


async def refuse(refused: Refused, send: Send) -> None:
    """Answer as JSON-RPC does. The connection ends, for its body may not have been read."""
    body = {"jsonrpc": "2.0", "id": refused.request_id, "error": {"code": _CODE, "message": refused.message}}
    await answer(send, refused.status, body, {**refused.headers, "connection": "close"})


async def answer(send: Send, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
    """Send JSON."""
    body = json.dumps(value).encode()
    said = {"content-type": "application/json", "cache-control": "no-store", "content-length": str(len(body))}
    listed = [(name.encode(), text.encode("latin-1")) for name, text in {**said, **(headers or {})}.items()]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": body})
