"""Decode worker messages; any unexpected shape is a `CodeModeProtocolError`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..data.json_shape import find_exceeded_limit
from ..data.json_values import MAX_DEPTH, decode_json
from ..data.narrowing import is_array, is_object
from ..errors import CodeModeProtocolError
from .messages import (
    REQUEST_KINDS,
    AnalysisFacts,
    CallRequested,
    ConsoleWritten,
    EngineFailed,
    GuestNotification,
    OutputItemWritten,
    PartiallyStrippedProgram,
    ProgramAnalysed,
    ProgramReturned,
    ProgramThrew,
    RequestWithdrawn,
    SourceLocation,
    TurnEnded,
    WorkerMessage,
)

if TYPE_CHECKING:
    from ..data.program_facts import ProgramFacts, ProgramProblem


CONSOLE_LEVELS = ("debug", "log", "info", "warn", "error")
_MAX_LINE_CHARACTERS = 65_537  # of a console line; the guest runtime cuts it there or earlier
_MAX_TEXT_CHARACTERS = 20_000  # of an error's name, message or stack; the guest runtime clips them much earlier
_MAX_PROBLEMS = 1000
_MAX_CLASS_NAME_CHARACTERS = 64
_MAX_REQUESTS = 200_000
_MAX_FACTS_DEPTH = 64
_MAX_CONTAINERS = 32_768  # arrays and objects in one message: facts have the most, some ten thousand
# Guest values travel as text inside text, so most messages are one flat object.
_MAX_DEPTH_BY_KIND = {b"a": _MAX_FACTS_DEPTH, b"V": 2}
_MAX_VALUES_BY_KIND = {b"a": 8 * _MAX_CONTAINERS, b"V": _MAX_REQUESTS}
_MAX_MEMBERS = 64
_SHORT_MESSAGE_BYTES = 4096
_MAX_SMALL_MESSAGE_BYTES = 4 * 6 * _MAX_TEXT_CHARACTERS
_SMALL_KINDS = (b"L", b"N", b"T", b"X", b"F", b"W")
_MAX_WARNINGS = 32
_MAX_WARNING_CHARACTERS = 200
_MAX_LAST_VALUE_CHARACTERS = 2001  # the guest runtime cuts it there
# For each kind of notice, its text members and its JSON member.
_NOTICE_MEMBERS = {"log": (("level", "message"), "metadata"), "notify": (("event",), "payload")}


def decode_message(message: bytes) -> WorkerMessage:
    """Decode a message: a byte of kind and a payload. Raises `CodeModeProtocolError` for any other."""
    if (turn_ended := _PARSED_TURN_ENDS.get(message)) is not None:
        return turn_ended
    if not message:
        _raise_protocol_violation("an empty message")
    kind, payload = message[:1], message[1:]
    reader = _READERS.get(kind)
    if reader is None:
        _raise_protocol_violation(f"an unknown frame {kind!r}")
    if kind in _SMALL_KINDS and len(payload) > _MAX_SMALL_MESSAGE_BYTES:
        _raise_protocol_violation(f"a frame {kind!r} of {len(payload)} bytes")
    try:
        text = payload.decode("utf-8")
        if len(payload) > _SHORT_MESSAGE_BYTES:
            decoded = _decode_long_payload(kind, text)
        else:
            # For a short message, checking the decoded value is cheaper than scanning the text first.
            decoded = decode_json(text, max_depth=_MAX_FACTS_DEPTH if kind == b"a" else MAX_DEPTH)
    except ValueError as error:
        raise CodeModeProtocolError(f"the worker sent a frame {kind!r} that is not JSON") from error
    members: dict[str, Any] = decoded
    if not isinstance(decoded, dict):
        _raise_protocol_violation(f"a frame {kind!r} that is not an object")
    types = set(map(type, members.values()))
    # The items of result lists are checked one by one.
    if kind != b"a" and (dict in types or (list in types and kind != b"V")):
        _raise_protocol_violation(f"a frame {kind!r} that is not flat")
    return _read_program_analysed(members, len(payload)) if kind == b"a" else reader(members)


def _decode_long_payload(kind: bytes, text: str) -> Any:
    depth, values = _MAX_DEPTH_BY_KIND.get(kind, 1), _MAX_VALUES_BY_KIND.get(kind, _MAX_MEMBERS)
    excess = find_exceeded_limit(text, max_depth=depth, max_containers=_MAX_CONTAINERS, max_values=values)
    if excess is not None:
        _raise_protocol_violation(f"a frame {kind!r} with more {excess} than it needs")
    return decode_json(text, max_depth=len(text))


def _raise_protocol_violation(what: str) -> NoReturn:
    raise CodeModeProtocolError(f"the worker sent {what}")


def _read_text(body: dict[str, Any], key: str, max_length: int = _MAX_TEXT_CHARACTERS) -> str:
    value = body.get(key)
    if not isinstance(value, str) or len(value) > max_length:
        _raise_protocol_violation(f"a bad {key!r}")
    return value


def _read_optional_text(body: dict[str, Any], key: str, max_length: int = _MAX_TEXT_CHARACTERS) -> str | None:
    return None if body.get(key) is None else _read_text(body, key, max_length)


def _read_items(body: dict[str, Any], key: str, max_length: int) -> list[Any]:
    value = body.get(key)
    if not is_array(value) or len(value) > max_length:
        _raise_protocol_violation(f"a bad {key!r}")
    return value


def _read_count(value: object, key: str) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        _raise_protocol_violation(f"a bad {key!r}")
    return value


def _read_optional_count(body: dict[str, Any], key: str) -> int | None:
    return None if body.get(key) is None else _read_count(body[key], key)


def _read_program_analysed(body: dict[str, Any], size: int = 0) -> ProgramAnalysed:
    facts = body.get("facts")
    if facts is not None and not is_object(facts):
        _raise_protocol_violation("bad facts")
    problems = _read_items(body, "problems", _MAX_PROBLEMS) if "problems" in body else []
    js = _read_optional_text(body, "js", 2**30)
    if js is None and not problems:
        _raise_protocol_violation("neither a program nor a problem")
    return ProgramAnalysed(
        js,
        None if facts is None else cast("ProgramFacts", AnalysisFacts(facts)),
        tuple(_read_problem(problem) for problem in problems),
        _read_partially_stripped_program(body.get("draft")),
        size,
    )


def _read_partially_stripped_program(item: object) -> PartiallyStrippedProgram | None:
    if item is None:
        return None
    if not is_object(item):
        _raise_protocol_violation("a bad draft")
    draft = item
    line, column = _read_count(draft.get("line"), "line"), _read_count(draft.get("column"), "column")
    return PartiallyStrippedProgram(_read_text(draft, "js", 2**30), line, column, draft.get("is_ambiguous") is True)


def _read_problem(item: object) -> ProgramProblem:
    if not is_object(item):
        _raise_protocol_violation("a bad problem")
    problem = item
    line, column = _read_count(problem.get("line"), "line"), _read_count(problem.get("column"), "column")
    return {"message": _read_text(problem, "message"), "line": line, "column": column}


def _read_call_requested(body: dict[str, Any]) -> CallRequested:
    kind = body.get("kind")
    if kind not in REQUEST_KINDS:
        _raise_protocol_violation("a bad request kind")
    input_json = _read_text(body, "input", 2**30) if body.get("input") is not None else None
    input_bytes = _read_optional_count(body, "bytes") if "bytes" in body else None
    if input_json is not None and input_bytes is not None:
        _raise_protocol_violation("an input and the size of one it withheld")
    location = _read_location(body, kind) if "line" in body else None
    return CallRequested(
        _read_count(body.get("id"), "id"), kind, _read_text(body, "name", 512), input_json, input_bytes, location
    )


def _read_location(body: dict[str, Any], kind: str) -> SourceLocation:
    line, column = _read_count(body["line"], "line"), _read_count(body.get("column"), "column")
    if kind not in ("tool", "fetch") or not line or not column:
        _raise_protocol_violation("a bad place")
    return (line, column, _read_text(body, "program", 64)) if "program" in body else (line, column)


def _read_request_withdrawn(body: dict[str, Any]) -> RequestWithdrawn:
    return RequestWithdrawn(_read_count(body.get("id"), "id"))


def _read_console_written(body: dict[str, Any]) -> ConsoleWritten:
    level = body.get("level")
    if level not in CONSOLE_LEVELS:
        _raise_protocol_violation("a bad console level")
    return ConsoleWritten(level, _read_text(body, "text", _MAX_LINE_CHARACTERS))


def _read_output_item_written(body: dict[str, Any]) -> OutputItemWritten:
    kind = body.get("kind")
    if kind not in ("text", "json", "content"):
        _raise_protocol_violation("a bad kind of item")
    return OutputItemWritten(kind, _read_text(body, "text", 2**30))


def _read_guest_notification(body: dict[str, Any]) -> GuestNotification:
    kind = body.get("kind")
    if kind != "log" and kind != "notify":
        _raise_protocol_violation("a bad kind of notice")
    texts, json_member = _NOTICE_MEMBERS[kind]
    members = [f'"{name}":{json.dumps(_read_text(body, name), ensure_ascii=False)}' for name in texts]
    payload = _read_optional_text(body, json_member)
    if payload is not None:
        try:
            decode_json(payload)
        except ValueError:
            _raise_protocol_violation(f"a bad {json_member!r}")
        members.append(f'"{json_member}":{payload}')
    return GuestNotification(kind, f"{{{','.join(members)}}}")


def _read_turn_ended(body: dict[str, Any]) -> TurnEnded:
    return TurnEnded(_read_count(body.get("in_flight"), "in_flight"))


def _read_program_returned(body: dict[str, Any]) -> ProgramReturned:
    unobserved = body.get("unobserved")
    if unobserved != []:
        unobserved = _read_items(body, "unobserved", _MAX_REQUESTS)
    value = _read_text(body, "value", 2**30) if body.get("value") is not None else None
    size = _read_optional_count(body, "bytes") if "bytes" in body else None
    is_undefined = body.get("undefined") is True
    if (value is not None) + (size is not None) + is_undefined != 1:
        _raise_protocol_violation("a result that is not exactly one value")
    unobserved_ids = tuple(_read_count(item, "unobserved") for item in unobserved) if unobserved else ()
    last_value = _read_optional_text(body, "last", _MAX_LAST_VALUE_CHARACTERS) if "last" in body else None
    if last_value is not None and not is_undefined:
        _raise_protocol_violation("the value of a last statement beside a result")
    if "warnings" not in body:
        return ProgramReturned(value, is_undefined, size, unobserved_ids, last_value=last_value)
    warnings = _read_items(body, "warnings", _MAX_WARNINGS)
    if not all(isinstance(warning, str) and len(warning) <= _MAX_WARNING_CHARACTERS for warning in warnings):
        _raise_protocol_violation("a bad warning")
    return ProgramReturned(value, is_undefined, size, unobserved_ids, tuple(warnings), last_value)


def _read_program_threw(fields: dict[str, Any]) -> ProgramThrew:
    return ProgramThrew(
        name=_read_text(fields, "name"),
        message=_read_text(fields, "message"),
        error_code=_read_text(fields, "code"),
        stack=_read_text(fields, "stack"),
        origin=_read_optional_text(fields, "origin") or "program",
        request_id=_read_optional_count(fields, "request"),
        limit=_read_optional_text(fields, "limit"),
        details_json=_read_optional_text(fields, "details"),
        refused_tool=_read_optional_text(fields, "refused"),
        error_class=_read_optional_text(fields, "class", _MAX_CLASS_NAME_CHARACTERS),
        fields_json=_read_optional_text(fields, "fields"),
    )


def _read_engine_failed(body: dict[str, Any]) -> EngineFailed:
    return EngineFailed(_read_text(body, "message"), _read_optional_text(body, "origin") or "engine")


_READERS: dict[bytes, Callable[[dict[str, Any]], WorkerMessage]] = {
    b"a": _read_program_analysed,
    b"C": _read_call_requested,
    b"W": _read_request_withdrawn,
    b"L": _read_console_written,
    b"O": _read_output_item_written,
    b"N": _read_guest_notification,
    b"T": _read_turn_ended,
    b"V": _read_program_returned,
    b"X": _read_program_threw,
    b"F": _read_engine_failed,
}


# Every call has one, and there are few: decode them once.
_PARSED_TURN_ENDS = {b'T{"in_flight":%d}' % count: TurnEnded(count) for count in range(64)}
