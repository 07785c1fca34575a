"""Lines of a pipe, of bounded length, and what they say as messages of JSON-RPC. Reads no pipe itself."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from pydantic_core import from_json

from codemode.data.narrowing import is_object

MAX_LINE_BYTES = 16 * 1024 * 1024


class TooLong:
    """A line that was longer than any message may be; nothing of it was kept."""


class Lines:
    """Cuts bytes into lines. A line that is too long is dropped as it comes, and told of once it ends."""

    def __init__(self, most: int = MAX_LINE_BYTES) -> None:
        self._most = most
        self._begun = bytearray()  # of a line; a list of its parts could cost many times their bytes
        self._size = 0

    def of(self, data: bytes) -> list[bytes | TooLong]:
        """Return the lines that end in ``data``."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes | TooLong] = []
        for part in ended:
            self._add(part)
            lines.append(TooLong() if self._size > self._most else bytes(self._begun))
            self._begun, self._size = bytearray(), 0
        self._add(rest)
        return lines

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._most:
            self._begun += part
        else:
            self._begun = bytearray()


def said_by(line: bytes | TooLong) -> SessionMessage | types.JSONRPCError | None:
    """Return the message that a line is, the error to answer it with, or None where there is nothing to say."""
    if isinstance(line, TooLong):
        return _error(types.INVALID_REQUEST, f"a message may have {MAX_LINE_BYTES} bytes; this one has more")
    if not line.strip():
        return None
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        # One with an id that is none is read as a notification, and owed an error all the same.
        is_owed = isinstance(message, types.JSONRPCNotification) and b'"id"' in line and _refused(line)
        return is_owed or SessionMessage(message)
    except (ValidationError, ValueError, RecursionError):
        return _refused(line)


def _refused(line: bytes) -> types.JSONRPCError | None:
    try:
        value: Any = from_json(line)
    except (ValueError, RecursionError):
        return _error(types.PARSE_ERROR, "this line is no JSON; each message is one line of JSON")
    if isinstance(value, list):
        return _error(types.INVALID_REQUEST, "batches are not supported; send each message in a line of its own")
    if not is_object(value):
        return _error(types.INVALID_REQUEST, "this line is no message of JSON-RPC 2.0")
    if "method" not in value or "id" not in value:
        return None  # a notification or a response, to which there is no answer
    request_id: Any = value["id"]
    is_id = isinstance(request_id, str | int) and not isinstance(request_id, bool)
    return _error(types.INVALID_REQUEST, "this is no request of JSON-RPC 2.0", request_id if is_id else None)


def _error(code: int, message: str, request_id: str | int | None = None) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message))
