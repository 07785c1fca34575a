"""Convert host errors to what a program sees: codes or classes of its surface."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from ..data.json_values import count_utf8_bytes, decode_json, encode_json
from ..data.narrowing import is_object
from ..errors import (
    HIDDEN_CODES,
    HTTP_FIELDS,
    MAX_GUEST_MESSAGE_CHARACTERS,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeToolError,
    error_from_guest_fields,
    get_http_error_fields,
    to_guest_error_fields,
)
from ..profile import ErrorFields, HostErrorRules
from ..trace.failures import get_exception_text
from ..trace.public_message import to_public_first_line, to_public_message
from ..trace.visible_text import clip_text
from .ledger import LedgerEntry, Rejected

REQUIRED_FIELDS = ("class", "message", "code", "hint")
"""Present in each error."""
MAX_FIELDS_BYTES = 64 << 10
_MAX_VALUES = 5_000
_MAX_FIELDS = 32
_MAX_TEXT_CHARACTERS = 1_000  # of other fields, and of names that no surface uses
_DEFAULT_MESSAGE = "the call failed"


def encode_surface_error_fields(
    error: CodeModeError, kind: str, name: str, describe: ErrorFields, *, is_raised: bool
) -> str:
    """Return the fields of an error as JSON text, without fields that are too large or not JSON."""
    try:
        described: Mapping[str, Any] = {**get_http_error_fields(error), **describe(error, kind, name, is_raised)}
    except Exception:  # noqa: BLE001 - an exception of host code may raise again
        described = {"message": _DEFAULT_MESSAGE, "code": error.code}
    required_fields = {key: _clip_field(described.get(key), key) for key in REQUIRED_FIELDS}
    optional_fields = {key: value for key, value in described.items() if key not in required_fields}
    fields = {**required_fields, **dict(list(optional_fields.items())[: _MAX_FIELDS - len(required_fields)])}
    try:
        return _encode_error_fields(fields)
    except Exception:  # noqa: BLE001 - as above
        return _encode_required_and_small_fields(required_fields, optional_fields)


def _encode_error_fields(value: Any, max_bytes: int = MAX_FIELDS_BYTES) -> str:
    return encode_json(value, max_bytes=max_bytes, max_values=_MAX_VALUES, what="the fields of an error")


def _encode_required_and_small_fields(required_fields: Mapping[str, str], optional_fields: Mapping[str, Any]) -> str:
    """Return the required fields and the small optional ones."""
    fields: dict[str, Any] = dict(required_fields)
    for key, value in optional_fields.items():
        try:
            if len(fields) < _MAX_FIELDS and len(_encode_error_fields({key: value}, _MAX_TEXT_CHARACTERS)):
                fields[key] = value
        except Exception:  # noqa: BLE001, S112 - one that no text holds costs the others nothing
            continue
    return _encode_error_fields(fields)


def _clip_field(value: Any, key: str) -> str:
    text = value if isinstance(value, str) else ""
    max_characters = MAX_GUEST_MESSAGE_CHARACTERS if key == "message" else _MAX_TEXT_CHARACTERS
    return clip_text(text, max_characters)


def validate_surface_error_fields(text: str, fields: object) -> dict[str, Any]:
    """Return the fields in ``text``. Raises `CodeModeProtocolError` for other fields."""
    if (
        not is_object(fields)
        or len(fields) > _MAX_FIELDS
        or not all(isinstance(fields.get(key), str) for key in REQUIRED_FIELDS)
    ):
        raise CodeModeProtocolError("the continuation holds an error with other fields than errors have")
    if count_utf8_bytes(text) > 6 * MAX_FIELDS_BYTES:  # every character escaped
        raise CodeModeProtocolError("the continuation holds an error with larger fields than errors have")
    return fields


MAX_DETAILS_BYTES = 64 << 10
MAX_DISPLAYED_INPUT_BYTES = 8 << 10
_MAX_DETAILS_VALUES = 5_000
_TOOL_ERROR_FIELDS = {"code", "message", "toolName"}
_DESCRIBED_KINDS = ("tool", "catalog")
# Details that the end of an invocation added to its error.
_ENDING_DETAILS = {"line", "column", "stack", "call", "is_resumed"}


def make_rejection(
    entry: LedgerEntry, error: CodeModeError, host_errors: HostErrorRules, *, is_raised: bool = False
) -> Rejected:
    """Return the rejection of a request with this error. ``is_raised``: host code of the call raised it.

    The reason of an error that host code raised counts only if this package set it.
    """
    name, message, code = to_guest_error_fields(error)
    if host_errors.error_fields is not None and entry.kind in _DESCRIBED_KINDS:
        fields_json = encode_surface_error_fields(
            error, entry.kind, entry.name, host_errors.error_fields, is_raised=is_raised
        )
        return Rejected(name, message, code, fields_json)
    if host_errors.codes is None or entry.kind != "tool":
        if host_errors.detail == "message" and code in HIDDEN_CODES and error.__cause__ is not None:
            message = to_public_first_line(get_exception_text(error.__cause__), message)
        return Rejected(
            name, message, code, _encode_fields_with_http_fields_or_none({"code": code, "message": message}, error)
        )
    is_hidden, has_reason = code in HIDDEN_CODES, not is_raised and error.reason != "execution"
    if is_hidden and host_errors.detail == "message" and error.__cause__ is not None:
        displayed_message = to_public_message(get_exception_text(error.__cause__), message)
    else:
        displayed_message = message
    surface_code = _choose_surface_code(error, host_errors.codes, has_reason=has_reason, is_hidden=is_hidden)
    fields_json = json.dumps(
        {"code": surface_code, "message": displayed_message, "toolName": entry.name}, separators=(",", ":")
    )
    fields_json = (
        _encode_fields_with_http_fields_or_none(
            {"code": surface_code, "message": displayed_message, "toolName": entry.name}, error
        )
        or fields_json
    )
    details = _encode_tool_error_details(error) if is_raised and not is_hidden else None
    if details is not None:
        fields_json = f'{fields_json[:-1]},"details":{details}}}'
    return Rejected(name, message, code, fields_json)


def _choose_surface_code(error: CodeModeError, codes: Mapping[str, str], *, has_reason: bool, is_hidden: bool) -> str:
    if has_reason:
        return codes.get(error.reason, codes["execution"])
    keeps_its_own = not is_hidden and error.code != type(error).default_code
    return error.code if keeps_its_own else codes["execution"]


def _encode_fields_with_http_fields_or_none(fields: Mapping[str, Any], error: CodeModeError) -> str | None:
    """Return fields with those of an API error as JSON text; None if it is not an API error."""
    api_fields = get_http_error_fields(error)
    try:
        return _encode_small_json({**fields, **api_fields}) if api_fields else None
    except Exception:  # noqa: BLE001 - what writes a host's values is host code
        return None


def _encode_small_json(value: Any) -> str:
    what = "the details of an error"
    return encode_json(value, max_bytes=MAX_DETAILS_BYTES, max_values=_MAX_DETAILS_VALUES, what=what)


def _encode_tool_error_details(error: CodeModeError) -> str | None:
    """Return the details that a tool put into its error; None without details, or if they are not small JSON."""
    details = _get_tool_error_details(error)
    if not details or not isinstance(error, CodeModeToolError):
        return None
    try:
        return _encode_small_json(details)
    except Exception:  # noqa: BLE001 - what writes a host's values is host code
        return None


def _get_tool_error_details(error: CodeModeError) -> dict[str, Any]:
    """Return the details of an error without those added by an earlier run."""
    return {key: value for key, value in error.details.items() if error.trace is None or key not in _ENDING_DETAILS}


def copy_error_for_run(error: CodeModeError) -> CodeModeError:
    """Return a copy of a host error for this run: a tool may raise the same object in all runs."""
    try:
        copied = type(error).__new__(type(error), *error.args)
        copied.__dict__.update(error.__dict__)
        copied.details, copied.trace, copied.calls, copied.recovery = _get_tool_error_details(error), None, (), None
    except Exception:  # noqa: BLE001 - a class of the host's may want anything
        copied = CodeModeToolError(error.message, code=error.code, details=_get_tool_error_details(error))
    copied.__cause__, copied.__context__ = error.__cause__, error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied.with_traceback(error.__traceback__)


def read_error_fields(text: str) -> dict[str, Any]:
    """Return the fields of an error that a program received. Raises `CodeModeProtocolError` for other values."""
    try:
        fields = decode_json(text)
    except ValueError:
        fields = None
    if is_object(fields) and "class" in fields:
        return validate_surface_error_fields(text, fields)
    if not is_object(fields) or not _are_error_field_names(fields):
        raise CodeModeProtocolError("the continuation holds an error with other fields than errors have")
    if not all(isinstance(fields[name], str) for name in _TOOL_ERROR_FIELDS & fields.keys()):
        raise CodeModeProtocolError("the continuation holds an error with a field that is not text")
    return fields


def _are_error_field_names(names: Collection[str]) -> bool:
    """Return True if an error may have these fields: those of an API error occur with or without a tool name."""
    other_names = {*names} - {"details", *HTTP_FIELDS}
    return other_names == _TOOL_ERROR_FIELDS or (
        other_names == _TOOL_ERROR_FIELDS - {"toolName"} and "status" in names and "details" not in names
    )


def restore_host_error(outcome: Rejected) -> CodeModeError:
    """Return the host error of a recorded rejection, as far as it was recorded."""
    error = error_from_guest_fields(outcome.name, outcome.message, outcome.code)
    if outcome.fields_json is not None:
        fields = read_error_fields(outcome.fields_json)
        details = None if "class" in fields else fields.get("details")
        error.details |= details if is_object(details) else {}
        error.details |= {name: fields[name] for name in HTTP_FIELDS if name in fields}
    return error


def describe_failed_call(entry: LedgerEntry, *, hides_input: bool = False) -> dict[str, Any] | None:
    """Return the fields and the input of the call whose error ended a program.

    None on surfaces whose errors have no fields. A large input is ``{"bytes": n}``. ``hides_input``: include only
    an executed or displayable input.
    """
    outcome = entry.outcome
    if not isinstance(outcome, Rejected) or outcome.fields_json is None:
        return None
    if "toolName" not in (fields := read_error_fields(outcome.fields_json)) and "class" not in fields:
        return None
    if hides_input and entry.executed_input_json is None:
        return fields
    return {**fields, **_describe_input(entry)}


def _describe_input(entry: LedgerEntry) -> dict[str, Any]:
    executed_json, issued_json = entry.executed_input_json, entry.input_json
    if executed_json is None and issued_json is None and entry.input_bytes is None:
        return {}
    size = entry.input_bytes or count_utf8_bytes(executed_json or issued_json or "")
    try:
        size = entry.full_input_bytes if executed_json is None else count_utf8_bytes(executed_json)
        if size <= MAX_DISPLAYED_INPUT_BYTES and (executed_json is not None or issued_json is not None):
            return {"toolInput": entry.decode_full_input() if executed_json is None else decode_json(executed_json)}
    except (ValueError, CodeModeError):  # too deep or too large with its large strings, which is why it was refused
        pass
    return {"toolInput": {"bytes": size}}
