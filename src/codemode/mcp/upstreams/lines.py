"""A line of a server as a message of the protocol. Reads hostile text; does no I/O."""

from __future__ import annotations

import re
from typing import Any

from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from ...data.json_values import check_values, decode_json

MAX_VALUES = 1 << 20
MAX_ASKED_VALUES = 10_000
"""Of what a server asks or tells, which the SDK reads on the event loop."""

_LONG = 1 << 16
_ID = re.compile(rb'"id"\s*:\s*(\d{1,15}|"[^"\\]{1,64}")')
_LOOKED_AT = 2048


def parsed(line: bytes) -> Any | None:
    """Return a line as a message, None where it is none."""
    if line[:1] != b"{":
        return None
    try:
        if len(line) > _LONG:
            most = MAX_ASKED_VALUES if _is_asked(line[:_LOOKED_AT]) else MAX_VALUES
            check_values(line.decode("utf-8", "replace"), most, "a message")
        try:
            return jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            # Half a pair of surrogates, or bytes that are no UTF-8, cost an answer no more than that character.
            return jsonrpc_message_adapter.validate_python(decode_json(line.decode("utf-8", "replace")), by_name=False)
    except Exception:  # noqa: BLE001 - a text of a stranger: whatever is wrong with it, it is no message
        return None


def _is_asked(head: bytes) -> bool:
    """Tell whether a line is a request or notification, as far as its beginning says so."""
    method, result = head.find(b'"method"'), head.find(b'"result"')
    return method >= 0 and not 0 <= result < method


def unreadable_answer(line: bytes) -> JSONRPCError | None:
    """Return, for what was meant as an answer and cannot be read, that: whoever waits need not wait for longer."""
    if not line.startswith(b"{") or b'"jsonrpc"' not in line[:_LOOKED_AT] + line[-_LOOKED_AT:]:
        return None
    if b'"method"' in line[:_LOOKED_AT]:
        return None
    found = _ID.search(line[:_LOOKED_AT]) or _ID.search(line[-_LOOKED_AT:])
    if found is None:
        return None
    text = found[1].decode("utf-8", "replace")
    one: int | str = int(text) if text.isdigit() else text[1:-1]
    return JSONRPCError(
        jsonrpc="2.0", id=one, error=ErrorData(code=INTERNAL_ERROR, message=UNREADABLE, data={UNREADABLE: True})
    )


UNREADABLE = "the server's answer cannot be read"
