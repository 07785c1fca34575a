"""A line of a server as a message of the protocol. Reads hostile text; does no I/O."""

from __future__ import annotations

import re
from typing import Any

from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from ...data.json_values import check_values, decode_json

MAX_VALUES = 300_000
"""Of one answer. While so many are made of its text, and whenever they are looked through for circles, all stands."""
MAX_VALUES_ON_THE_LOOP = 100_000
"""Of an answer that the SDK reads on the event loop, which takes it several times as long."""
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
            text = line.decode("utf-8", "replace")
            check_values(text, most, "a message")
            return _read(text)  # in a fifth of the time in which nothing else can run
        try:
            return jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            # Half a pair of surrogates, or bytes that are no UTF-8, cost an answer no more than that character.
            return _read(line.decode("utf-8", "replace"))
    except Exception:  # noqa: BLE001 - a text of a stranger: whatever is wrong with it, it is no message
        return None


def _read(text: str) -> Any:
    return jsonrpc_message_adapter.validate_python(decode_json(text), by_name=False)


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


UNREADABLE = f"the server's answer cannot be read, or holds more than {MAX_VALUES} values"
