"""The public fields of a host's error in a face whose errors are classes of its own: made, bounded, read back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..data.json_values import encode_json, utf8_length
from ..data.narrowing import is_object
from ..errors import MAX_GUEST_MESSAGE_CHARACTERS, CodeModeError, CodeModeProtocolError, http_fields
from ..profile import Words
from ..trace.visible_text import clipped

TEXTS = ("class", "message", "code", "hint")
"""Of each error, always there."""
MAX_FIELDS_BYTES = 64 << 10
_MAX_VALUES = 5_000
_MAX_FIELDS = 32
_MAX_TEXT_CHARACTERS = 1_000  # of the others, and of names that no face gives in earnest
_NOTHING_SAID = "the call failed"


def worded(error: CodeModeError, kind: str, name: str, words: Words, *, is_raised: bool) -> str:
    """Return the fields of an error as JSON text: what is too large of them, or no JSON, is left out."""
    try:
        said: Mapping[str, Any] = {**http_fields(error), **words(error, kind, name, is_raised)}
    except Exception:  # noqa: BLE001 - they are told what host code has raised, which may raise again
        said = {"message": _NOTHING_SAID, "code": error.code}
    texts = {key: _clipped(said.get(key), key) for key in TEXTS}
    rest = {key: value for key, value in said.items() if key not in texts}
    fields = {**texts, **dict(list(rest.items())[: _MAX_FIELDS - len(texts)])}
    try:
        return _written(fields)
    except Exception:  # noqa: BLE001 - as above
        return _without_the_rest(texts, rest)


def _written(value: Any, max_bytes: int = MAX_FIELDS_BYTES) -> str:
    return encode_json(value, max_bytes=max_bytes, max_values=_MAX_VALUES, what="the fields of an error")


def _without_the_rest(texts: Mapping[str, str], rest: Mapping[str, Any]) -> str:
    """Return the texts, and of the rest what is small."""
    fields: dict[str, Any] = dict(texts)
    for key, value in rest.items():
        try:
            if len(fields) < _MAX_FIELDS and len(_written({key: value}, _MAX_TEXT_CHARACTERS)):
                fields[key] = value
        except Exception:  # noqa: BLE001, S112 - one that no text holds costs the others nothing
            continue
    return _written(fields)


def _clipped(value: Any, key: str) -> str:
    text = value if isinstance(value, str) else ""
    most = MAX_GUEST_MESSAGE_CHARACTERS if key == "message" else _MAX_TEXT_CHARACTERS
    return clipped(text, most)


def require_worded(text: str, fields: object) -> dict[str, Any]:
    """Return the fields that ``text`` holds, as they were written. Raises `CodeModeProtocolError` for anything else."""
    if not is_object(fields) or len(fields) > _MAX_FIELDS or not all(isinstance(fields.get(key), str) for key in TEXTS):
        raise CodeModeProtocolError("the continuation holds an error with other fields than errors have")
    if utf8_length(text) > 6 * MAX_FIELDS_BYTES:  # every character escaped
        raise CodeModeProtocolError("the continuation holds an error with larger fields than errors have")
    return fields
