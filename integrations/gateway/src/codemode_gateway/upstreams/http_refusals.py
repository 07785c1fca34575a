"""Read the refusals of a server over HTTP: statuses that are no success."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
from mcp_types import JSONRPCError

from codemode.data.narrowing import is_mapping
from codemode.errors import CodeModeError
from codemode.trace.visible_text import one_line

from ..config.secret_rules import is_secret_name
from ..config.values import ServerConfig
from .lines import read_body, without_bom
from .losses import Lost

SESSION_HEADER = "mcp-session-id"
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 400, 401, 403, 404
_MAX_REASON_CHARACTERS = 80
_MAX_HEADER_CHARACTERS = 200
_MAX_SAID_CHARACTERS = 300
_LOST_SESSION = re.compile(rb"session|initializ", re.IGNORECASE)
_ANSWERED = "it answered with the "
# Where services write why they refuse: of OAuth, of RFC 9457, and of most others.
_FIELDS = ("error_description", "detail", "message", "error", "title", "reason")


def describe(response: httpx2.Response, text: bytes, hide: Callable[[str], str]) -> str:
    """Return a refusal in one line: its status, the headers and the words of its body that explain it."""
    said = f"{_ANSWERED}status {response.status_code}"
    if response.reason_phrase:
        said += f" {one_line(hide(response.reason_phrase), _MAX_REASON_CHARACTERS)}"
    for name in ("Retry-After", "WWW-Authenticate"):
        if value := response.headers.get(name):
            said += f" ({name}: {one_line(hide(value), _MAX_HEADER_CHARACTERS)})"
    words = _words(text)
    return f"{said}: {one_line(hide(words), _MAX_SAID_CHARACTERS)}" if words else said


def is_lost_session(config: ServerConfig, request: httpx2.Request, response: httpx2.Response, text: bytes) -> bool:
    """Tell whether a server no longer knows the session of a request, which is in a header, or in the URL of events."""
    is_event_post = config.transport == "sse" and request.method == "POST" and b'"initialize"' not in request.content
    if SESSION_HEADER not in request.headers and not is_event_post:
        return False
    if response.status_code == NOT_FOUND:
        return True
    return response.status_code == BAD_REQUEST and _LOST_SESSION.search(text) is not None


def static_credential(config: ServerConfig) -> str | None:
    """Return the name of the header with which the entry of a server signs in, if it has one."""
    names = sorted(config.headers, key=lambda name: name.lower() != "authorization")
    return next((name for name in names if is_secret_name(name)), None)


def credential_refusal(name: str, said: str) -> Lost:
    """Return the reason for a request whose server refuses the credential of its entry."""
    why = said.removeprefix(_ANSWERED)
    reason = f"it refuses the value of the header {name!r} in its entry, {why}. Write a valid one there"
    return Lost(reason, never_arrived=True, is_final=True)


def refuses_entry(request: httpx2.Request, challenge: httpx2.Response) -> bool:
    """Tell whether a challenge refuses the credential of the entry, rather than asks for a sign-in."""
    if "authorization" in request.headers:
        return False  # the token of a sign-in
    said = challenge.headers.get("www-authenticate", "").lower()
    return "resource_metadata" not in said and (not said.startswith("bearer") or "invalid_token" in said)


def error_answer(response: httpx2.Response, text: bytes, request_id: int | str | None) -> bytes | None:
    """Return the JSON-RPC error in the body of a refusal, with ``Retry-After``; None for any other body."""
    if b'"jsonrpc"' not in text:
        return None
    try:
        message = read_body(without_bom(text), 0 if request_id is None else request_id).message
    except (ValueError, CodeModeError):
        return None
    if not isinstance(message, JSONRPCError):
        return None
    if wait := response.headers.get("Retry-After"):
        told = f"{message.error.message} (Retry-After: {one_line(wait, _MAX_REASON_CHARACTERS)})"
        message = message.model_copy(update={"error": message.error.model_copy(update={"message": told})})
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _words(text: bytes) -> str:
    """Return the words of a body that explain a refusal; none of an HTML page."""
    decoded = without_bom(text).decode("utf-8", "replace")
    if decoded.startswith("<"):
        return ""
    try:
        value: Any = json.loads(decoded)
    except (ValueError, RecursionError):
        return " ".join(decoded.split())
    return " ".join((_field(value) or decoded).split())


def _field(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    found: Mapping[str, Any] = value if is_mapping(value) else {}
    return next((text for name in _FIELDS if name in found and (text := _field(found[name]))), None)
