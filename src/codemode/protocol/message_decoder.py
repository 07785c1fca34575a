"""Decode what a worker says; any unexpected shape is a `CodeModeProtocolError`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..data.json_shape import find_excess
from ..data.json_values import MAX_DEPTH, decode_json
from ..data.narrowing import is_array, is_object
from ..errors import CodeModeProtocolError
from .messages import (
    REQUEST_KINDS,
    CallRequested,
    ConsoleWritten,
    Draft,
    EngineFailed,
    GuestNotice,
    ItemWritten,
    Place,
    ProgramAnalysed,
    ProgramReturned,
    ProgramThrew,
    RequestWithdrawn,
    TurnEnded,
    WorkerMessage,
)

if TYPE_CHECKING:
    from ..data.program_facts import Facts, ProgramProblem


CONSOLE_LEVELS = ("debug", "log", "info", "warn", "error")
_MAX_LINE = 65_537  # characters of a line of the console; the kernel cuts it there, or far below
_MAX_TEXT = 20_000  # characters of an error's name, message or stack; the kernel clips far below
_MAX_PROBLEMS = 1000
_MAX_CLASS_NAME = 64
_MAX_REQUESTS = 200_000
_MAX_FACTS_DEPTH = 64
_MAX_CONTAINERS = 32_768  # arrays and objects in one message: facts have by far the most, some ten thousand
# What the guest says travels as text inside a text, so most messages are one flat object.
_MAX_DEPTHS = {b"a": _MAX_FACTS_DEPTH, b"V": 2}
_MAX_VALUES = {b"a": 8 * _MAX_CONTAINERS, b"V": _MAX_REQUESTS}
_MAX_MEMBERS = 64
_SHORT_BYTES = 4096
_MAX_SMALL_BYTES = 4 * 6 * _MAX_TEXT
_SMALL_KINDS = (b"L", b"N", b"T", b"X", b"F", b"W")
_MAX_WARNINGS = 32
_MAX_WARNING = 200
_MAX_LAST_VALUE = 2001  # the kernel cuts it there
# Of each kind of notice, the texts in it and the one that is JSON.
_NOTICES = {"log": (("level", "message"), "metadata"), "notify": (("event",), "payload")}


def read_message(message: bytes) -> WorkerMessage:
    """Return a message of the worker, a byte of kind and a payload. Raises `CodeModeProtocolError` for any other."""
    if (known := _TURN_ENDS.get(message)) is not None:
        return known
    if not message:
        _violation("an empty message")
    kind, payload = message[:1], message[1:]
    reader = _READERS.get(kind)
    if reader is None:
        _violation(f"an unknown frame {kind!r}")
    if kind in _SMALL_KINDS and len(payload) > _MAX_SMALL_BYTES:
        _violation(f"a frame {kind!r} of {len(payload)} bytes")
    try:
        text = payload.decode("utf-8")
        if len(payload) > _SHORT_BYTES:
            decoded = _decode_long(kind, text)
        else:
            # Too short to cost anything: looking at what was read is cheaper than looking at the text first.
            decoded = decode_json(text, max_depth=_MAX_FACTS_DEPTH if kind == b"a" else MAX_DEPTH)
    except ValueError as error:
        raise CodeModeProtocolError(f"the worker sent a frame {kind!r} that is not JSON") from error
    members: dict[str, Any] = decoded
    if not isinstance(decoded, dict):
        _violation(f"a frame {kind!r} that is not an object")
    types = set(map(type, members.values()))
    # What is in the lists of a result is looked at one by one.
    if kind != b"a" and (dict in types or (list in types and kind != b"V")):
        _violation(f"a frame {kind!r} that is not flat")
    return _read_analysed(members, len(payload)) if kind == b"a" else reader(members)


def _decode_long(kind: bytes, text: str) -> Any:
    depth, values = _MAX_DEPTHS.get(kind, 1), _MAX_VALUES.get(kind, _MAX_MEMBERS)
    excess = find_excess(text, max_depth=depth, max_containers=_MAX_CONTAINERS, max_values=values)
    if excess is not None:
        _violation(f"a frame {kind!r} with more {excess} than it needs")
    return decode_json(text, max_depth=len(text))


def _violation(what: str) -> NoReturn:
    raise CodeModeProtocolError(f"the worker sent {what}")


def _text(body: dict[str, Any], key: str, max_length: int = _MAX_TEXT) -> str:
    value = body.get(key)
    if not isinstance(value, str) or len(value) > max_length:
        _violation(f"a bad {key!r}")
    return value


def _optional_text(body: dict[str, Any], key: str, max_length: int = _MAX_TEXT) -> str | None:
    return None if body.get(key) is None else _text(body, key, max_length)


def _items(body: dict[str, Any], key: str, max_length: int) -> list[Any]:
    value = body.get(key)
    if not is_array(value) or len(value) > max_length:
        _violation(f"a bad {key!r}")
    return value


def _count(value: object, key: str) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        _violation(f"a bad {key!r}")
    return value


def _optional_count(body: dict[str, Any], key: str) -> int | None:
    return None if body.get(key) is None else _count(body[key], key)


def _read_analysed(body: dict[str, Any], size: int = 0) -> ProgramAnalysed:
    facts = body.get("facts")
    if facts is not None and not is_object(facts):
        _violation("bad facts")
    problems = _items(body, "problems", _MAX_PROBLEMS) if "problems" in body else []
    js = _optional_text(body, "js", 2**30)
    if js is None and not problems:
        _violation("neither a program nor a problem")
    return ProgramAnalysed(
        js,
        cast("Facts | None", facts),
        tuple(_read_problem(problem) for problem in problems),
        _read_draft(body.get("draft")),
        size,
    )


def _read_draft(item: object) -> Draft | None:
    if item is None:
        return None
    if not is_object(item):
        _violation("a bad draft")
    draft = item
    line, column = _count(draft.get("line"), "line"), _count(draft.get("column"), "column")
    return Draft(_text(draft, "js", 2**30), line, column, draft.get("is_ambiguous") is True)


def _read_problem(item: object) -> ProgramProblem:
    if not is_object(item):
        _violation("a bad problem")
    problem = item
    line, column = _count(problem.get("line"), "line"), _count(problem.get("column"), "column")
    return {"message": _text(problem, "message"), "line": line, "column": column}


def _read_call(body: dict[str, Any]) -> CallRequested:
    kind = body.get("kind")
    if kind not in REQUEST_KINDS:
        _violation("a bad request kind")
    input_json = _text(body, "input", 2**30) if body.get("input") is not None else None
    input_bytes = _optional_count(body, "bytes") if "bytes" in body else None
    if input_json is not None and input_bytes is not None:
        _violation("an input and the size of one it withheld")
    place = _read_place(body, kind) if "line" in body else None
    return CallRequested(_count(body.get("id"), "id"), kind, _text(body, "name", 512), input_json, input_bytes, place)


def _read_place(body: dict[str, Any], kind: str) -> Place:
    line, column = _count(body["line"], "line"), _count(body.get("column"), "column")
    if kind not in ("tool", "fetch") or not line or not column:
        _violation("a bad place")
    return (line, column, _text(body, "program", 64)) if "program" in body else (line, column)


def _read_withdrawn(body: dict[str, Any]) -> RequestWithdrawn:
    return RequestWithdrawn(_count(body.get("id"), "id"))


def _read_console(body: dict[str, Any]) -> ConsoleWritten:
    level = body.get("level")
    if level not in CONSOLE_LEVELS:
        _violation("a bad console level")
    return ConsoleWritten(level, _text(body, "text", _MAX_LINE))


def _read_item(body: dict[str, Any]) -> ItemWritten:
    kind = body.get("kind")
    if kind not in ("text", "json", "content"):
        _violation("a bad kind of item")
    return ItemWritten(kind, _text(body, "text", 2**30))


def _read_notice(body: dict[str, Any]) -> GuestNotice:
    kind = body.get("kind")
    if kind != "log" and kind != "notify":
        _violation("a bad kind of notice")
    texts, more = _NOTICES[kind]
    members = [f'"{name}":{json.dumps(_text(body, name), ensure_ascii=False)}' for name in texts]
    payload = _optional_text(body, more)
    if payload is not None:
        try:
            decode_json(payload)
        except ValueError:
            _violation(f"a bad {more!r}")
        members.append(f'"{more}":{payload}')
    return GuestNotice(kind, f"{{{','.join(members)}}}")


def _read_turn(body: dict[str, Any]) -> TurnEnded:
    return TurnEnded(_count(body.get("in_flight"), "in_flight"))


def _read_returned(body: dict[str, Any]) -> ProgramReturned:
    unobserved = body.get("unobserved")
    if unobserved != []:
        unobserved = _items(body, "unobserved", _MAX_REQUESTS)
    value = _text(body, "value", 2**30) if body.get("value") is not None else None
    size = _optional_count(body, "bytes") if "bytes" in body else None
    is_undefined = body.get("undefined") is True
    if (value is not None) + (size is not None) + is_undefined != 1:
        _violation("a result that is not exactly one value")
    unseen = tuple(_count(item, "unobserved") for item in unobserved) if unobserved else ()
    last = _optional_text(body, "last", _MAX_LAST_VALUE) if "last" in body else None
    if last is not None and not is_undefined:
        _violation("the value of a last statement beside a result")
    if "warnings" not in body:
        return ProgramReturned(value, is_undefined, size, unseen, last=last)
    warnings = _items(body, "warnings", _MAX_WARNINGS)
    if not all(isinstance(warning, str) and len(warning) <= _MAX_WARNING for warning in warnings):
        _violation("a bad warning")
    return ProgramReturned(value, is_undefined, size, unseen, tuple(warnings), last)


def _read_threw(body: dict[str, Any]) -> ProgramThrew:
    return ProgramThrew(
        name=_text(body, "name"),
        message=_text(body, "message"),
        error_code=_text(body, "code"),
        stack=_text(body, "stack"),
        origin=_optional_text(body, "origin") or "program",
        request=_optional_count(body, "request"),
        limit=_optional_text(body, "limit"),
        details_json=_optional_text(body, "details"),
        refused=_optional_text(body, "refused"),
        error_class=_optional_text(body, "class", _MAX_CLASS_NAME),
        fields_json=_optional_text(body, "fields"),
    )


def _read_failed(body: dict[str, Any]) -> EngineFailed:
    return EngineFailed(_text(body, "message"), _optional_text(body, "origin") or "engine")


_READERS: dict[bytes, Callable[[dict[str, Any]], WorkerMessage]] = {
    b"a": _read_analysed,
    b"C": _read_call,
    b"W": _read_withdrawn,
    b"L": _read_console,
    b"O": _read_item,
    b"N": _read_notice,
    b"T": _read_turn,
    b"V": _read_returned,
    b"X": _read_threw,
    b"F": _read_failed,
}


# Every call brings one, and there are few: these are not read again.
_TURN_ENDS = {b'T{"in_flight":%d}' % count: TurnEnded(count) for count in range(64)}
