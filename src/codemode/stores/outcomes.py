"""What records come to, as texts that are kept, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..data.json_values import decode_json, encode_json
from ..errors import CodeModeError, error_from_view
from .errors import RecordExpired, RecordLost, RecordWithdrawn
from .states import RecordState
from .values import RecordOutcome

_ENDS: dict[str, type[CodeModeError]] = {"expired": RecordExpired, "withdrawn": RecordWithdrawn, "lost": RecordLost}
_SAID = {
    "expired": "the record has expired before it was answered",
    "withdrawn": "the record was withdrawn",
    "lost": "nobody knows what became of the program",
}


def value_text(value: Any) -> str:
    """Write the value of a program. Raises `CodeModeSerializationError` for one that is no JSON."""
    return f'{{"value":{encode_json(value, what="the value")}}}'


def error_text(error: CodeModeError) -> str:
    """Write the error that a program ended with; of its details what is JSON."""
    details: dict[str, Any] = {}
    for name, detail in error.details.items():
        with suppress(Exception):  # a tool may raise an error with any details
            details[str(name)] = json.loads(encode_json(detail, what="a detail"))
    failure = {"name": type(error).__name__, "message": error.message, "code": error.code}
    return json.dumps({"error": failure, "details": details, "calls": list(error.calls)})


def end_text(state: RecordState, *, actor: str | None = None, reason: str = "") -> str:
    """Write that a record ended without its program."""
    return json.dumps({"end": state, "actor": actor, "reason": reason})


def told_of(text: str) -> RecordOutcome:
    """Return a kept outcome as a page shows it."""
    kept = decode_json(text)
    if "value" in kept:
        return RecordOutcome(value=kept["value"])
    return RecordOutcome(error=_error_of(kept).message)


def given_back(text: str) -> Any:
    """Return the value of a kept outcome, or raise its error."""
    kept = decode_json(text)
    if "value" in kept:
        return kept["value"]
    raise _error_of(kept)


def lost() -> RecordLost:
    """Return the error of a record of which nobody has said yet what is to become of it."""
    return RecordLost(_SAID["lost"], details={"actor": None, "reason": ""})


def _error_of(kept: Mapping[str, Any]) -> CodeModeError:
    if "end" in kept:
        reason = f": {kept['reason']}" if kept["reason"] else ""
        details = {"actor": kept["actor"], "reason": kept["reason"]}
        return _ENDS[kept["end"]](_SAID[kept["end"]] + reason, details=details)
    failure = kept["error"]
    error = type(error_from_view(**failure))(failure["message"], code=failure["code"], details=kept["details"])
    error.calls = tuple(kept["calls"])
    return error
