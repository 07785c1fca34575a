"""Read messages of the protocol leniently from hostile text."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

from codemode.data.json_values import decode_json, require_max_values_in_json_text
from codemode.data.narrowing import is_array, is_mapping
from codemode.trace.visible_text import clip_text

MAX_VALUES = 300_000
"""Values of one answer. Parsing it and collecting garbage block the whole process."""
MAX_VALUES_ON_THE_LOOP = 100_000
"""Values of an answer that the SDK parses on the event loop, several times slower."""
MAX_REQUEST_VALUES = 10_000
"""Values of a server's request or notification, which the SDK parses on the event loop."""

REPAIRED_MESSAGE = "server %r writes malformed JSON-RPC messages: they are used where their meaning is clear"
"""Logged once for a connection."""

NON_OBJECT_FIELD = "toolResult"
"""The field for a result that is not an object, as in tool results of the first protocol revision."""

_LONG_LINE_BYTES = 1 << 16
_ID_PATTERN = re.compile(rb'"id"\s*:\s*(\d{1,15}|"[^"\\]{1,64}")')
_INSPECTED_BYTES = 2048
BOM = b"\xef\xbb\xbf"
_ANSWER_FIELDS = frozenset({"jsonrpc", "id", "result", "error"})
_MAX_SHOWN_CHARACTERS = 200
_MAX_ERROR_CHARACTERS = 20_000  # a cut may leave the beginning of a secret: the text is cut again after redaction


class ParsedMessage(NamedTuple):
    """A message, or None for other text. ``is_repaired``: the text was not quite JSON-RPC."""

    message: Any | None
    is_repaired: bool = False

    @property
    def text(self) -> bytes:
        """The message as JSON-RPC writes it."""
        return b"" if self.message is None else self.message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def strip_space_and_bom(text: bytes) -> bytes:
    """Return a text without surrounding space and byte order mark."""
    return text.strip().removeprefix(BOM).lstrip()


def parse_message_line(line: bytes) -> ParsedMessage:
    """Read a line as a message."""
    if line[:1] not in (b"{", b"["):
        return ParsedMessage(None)
    try:
        if len(line) > _LONG_LINE_BYTES:
            max_values = MAX_REQUEST_VALUES if _looks_like_request(line[:_INSPECTED_BYTES]) else MAX_VALUES
            text = line.decode("utf-8", "replace")
            require_max_values_in_json_text(text, max_values, "a message")
            return _parse_or_repair_message(text)  # blocks the loop for a fifth of the time
        try:
            return ParsedMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            # Replace lone surrogates and invalid UTF-8 instead of losing the answer.
            return _parse_or_repair_message(line.decode("utf-8", "replace"))
    except Exception:  # noqa: BLE001 - untrusted text: any error means that it is not a message
        return ParsedMessage(None)


def parse_answer_body_and_set_id(text: bytes, request_id: int | str) -> ParsedMessage:
    """Read a response body as the answer to a request; its id is replaced.

    Raises `ValueError` or `CodeModeError` for a body that is not an answer.
    """
    message, is_repaired = _parse_bounded_message(text, is_answer=True)
    if not isinstance(message, JSONRPCResponse | JSONRPCError):
        raise ValueError("neither a result nor an error")  # noqa: TRY004 - of the text, not of a type
    if message.id == request_id:
        return ParsedMessage(message, is_repaired)
    return ParsedMessage(message.model_copy(update={"id": request_id}), is_repaired=True)


def parse_event_data(data: bytes) -> ParsedMessage:
    """Read the data of an event as a message; an unreadable answer becomes an error. Raises `CodeModeError`."""
    try:
        return _parse_bounded_message(data)
    except ValueError:
        return ParsedMessage(unreadable_answer_error(data), is_repaired=True)


def _parse_bounded_message(text: bytes, *, is_answer: bool = False) -> ParsedMessage:
    decoded = text.decode("utf-8", "replace")
    require_max_values_in_json_text(decoded, MAX_VALUES_ON_THE_LOOP, "an answer")
    try:
        return ParsedMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError:
        return ParsedMessage(_parse_or_repair_message(decoded, is_answer=is_answer).message, is_repaired=True)


def _parse_or_repair_message(text: str, *, is_answer: bool = False) -> ParsedMessage:
    value = decode_json(text)
    try:
        return ParsedMessage(jsonrpc_message_adapter.validate_python(value, by_name=False))
    except ValueError:
        repaired = _repair_message(value, is_answer=is_answer)
        return ParsedMessage(jsonrpc_message_adapter.validate_python(repaired, by_name=False), is_repaired=True)


def _repair_message(value: Any, *, is_answer: bool) -> Any:
    """Return a value that is clearly meant as a message as valid JSON-RPC, or None.

    Accepts an array of one message, a missing ``jsonrpc``, an error that is a text or has no numeric code, and a result
    that is not an object. ``is_answer``: the request is known, so the id may be missing.
    """
    if is_array(value) and len(value) == 1:
        value = value[0]
    # Log lines may be JSON too, with the fields id and error.
    if not is_mapping(value) or not ("jsonrpc" in value or value.keys() <= _ANSWER_FIELDS):
        return None
    if isinstance(value.get("method"), str):
        params = value.get("params")
        return {**value, "jsonrpc": "2.0", "params": params if is_mapping(params) else {}}
    request_id = value.get("id")
    if isinstance(request_id, float) and request_id.is_integer():
        request_id = int(request_id)
    if request_id is None and is_answer:
        request_id = 0
    message = {"jsonrpc": "2.0", "id": request_id}
    if value.get("error") not in (None, False):
        return {**message, "error": _repair_error(value["error"])}
    if "result" not in value:
        return None
    result: Any = {} if value["result"] is None else value["result"]
    return {**message, "result": result if is_mapping(result) else {NON_OBJECT_FIELD: result}}


def _repair_error(error: Any) -> dict[str, Any]:
    """Return an error whose code is a number; any other code is appended to the message."""
    if not is_mapping(error):
        return {"code": INTERNAL_ERROR, "message": to_short_text(error, _MAX_ERROR_CHARACTERS)}
    code, message = error.get("code"), error.get("message")
    if message is None:
        message = {name: value for name, value in error.items() if name != "code"}
    text = to_short_text(message, _MAX_ERROR_CHARACTERS)
    if isinstance(code, str) and re.fullmatch(r"-?\d{1,9}", code):
        code = int(code)
    elif not isinstance(code, int) or isinstance(code, bool):
        text = text if code is None or str(code) in text else f"{text} ({to_short_text(code)})"
        code = INTERNAL_ERROR
    return {"code": code, "message": text, **({"data": error["data"]} if "data" in error else {})}


def to_short_text(value: Any, max_characters: int = _MAX_SHOWN_CHARACTERS) -> str:
    """Return a text unchanged and other values as JSON, cut to a number of characters."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return clip_text(text, max_characters)


def _looks_like_request(head: bytes) -> bool:
    """Return whether a line is a request or notification, judged by its beginning."""
    method, result = head.find(b'"method"'), head.find(b'"result"')
    return method >= 0 and not 0 <= result < method


def unreadable_answer_error(line: bytes) -> JSONRPCError | None:
    """Return an error for an unreadable answer, so that its request ends at once."""
    if not line.startswith(b"{") or b'"jsonrpc"' not in line[:_INSPECTED_BYTES] + line[-_INSPECTED_BYTES:]:
        return None
    if b'"method"' in line[:_INSPECTED_BYTES]:
        return None
    found = _ID_PATTERN.search(line[:_INSPECTED_BYTES]) or _ID_PATTERN.search(line[-_INSPECTED_BYTES:])
    if found is None:
        return None
    text = found[1].decode("utf-8", "replace")
    request_id: int | str = int(text) if text.isdigit() else text[1:-1]
    return JSONRPCError(
        jsonrpc="2.0",
        id=request_id,
        error=ErrorData(code=INTERNAL_ERROR, message=UNREADABLE_MESSAGE, data={UNREADABLE_MESSAGE: True}),
    )


UNREADABLE_MESSAGE = f"the server's answer cannot be read, or has more than {MAX_VALUES} values"
