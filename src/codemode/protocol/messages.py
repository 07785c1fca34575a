"""What host and worker say to each other. Pure: frozen values, their wire form, and a strict reader.

Messages to the worker are imperative, messages from it past tense. Everything that comes from a worker is hostile: a
shape that is not exactly the expected one is a `CodeModeProtocolError`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Literal, NoReturn, TypeAlias, cast

from ..data.json_shape import find_excess
from ..data.json_values import decode_json
from ..data.records import record
from ..errors import CodeModeProtocolError
from .framing import PIECE_CHARACTERS, encode_frame, frame_in_pieces

RequestKind: TypeAlias = Literal["tool", "fetch", "catalog"]
REQUEST_KINDS = ("tool", "fetch", "catalog")
CONSOLE_LEVELS = ("debug", "log", "info", "warn", "error")
_MAX_TEXT = 20_000  # characters of an error's name, message or stack; the kernel clips far below
_MAX_PROBLEMS = 1000
_MAX_REQUESTS = 200_000
_MAX_FACTS_DEPTH = 64
_MAX_CONTAINERS = 32_768  # arrays and objects in one message: facts have by far the most, some ten thousand
# What the guest says travels as text inside a text, so most messages are one flat object.
_MAX_DEPTHS = {b"a": _MAX_FACTS_DEPTH, b"V": 2}
_MAX_VALUES = {b"a": 8 * _MAX_CONTAINERS, b"V": _MAX_REQUESTS}
_MAX_MEMBERS = 64
_CONTAINERS = frozenset({dict, list})
_SHORT_BYTES = 4096
_MAX_SMALL_BYTES = 4 * 6 * _MAX_TEXT
_SMALL_KINDS = (b"L", b"T", b"X", b"F")

# What the worker itself looks at stands in front of the text, as numbers.
_DEADLINE = Struct(">I")
_LIMITS = Struct(">II")

_ENCODER = json.JSONEncoder(separators=(",", ":"))

# --- to the worker ---


@record
class AnalyseProgram:
    """Parse the program, strip its types and report facts about it, within ``deadline_ms``.

    ``source`` has no lone surrogates.
    """

    source: str
    deadline_ms: int

    def frame(self) -> bytes:
        """Return the wire form."""
        return encode_frame(b"A", _DEADLINE.pack(self.deadline_ms) + self.source.encode())


@record
class Draft:
    """What types could be blanked of a program that was not understood at ``line`` and ``column``; it never runs.

    The engine's error about it is about the real mistake. ``is_ambiguous``: as JavaScript the program may mean
    something else than it says, so that it does not run either.
    """

    js: str
    line: int
    column: int
    is_ambiguous: bool


@record
class RunProgram:
    """Start the program. ``settings`` holds profile, seed, clock and the limits that worker and kernel enforce."""

    js: str
    settings: Mapping[str, Any]
    draft: Draft | None = None

    def frame(self) -> bytes:
        """Return the wire form."""
        limits = _LIMITS.pack(self.settings["memory_limit_bytes"], self.settings["max_stack_size_bytes"])
        draft = {} if self.draft is None else {"draft": _members(self.draft)}
        return encode_frame(b"R", limits + _json({"js": self.js, **self.settings, **draft}))


@record
class DeliverValue:
    """Answer a request with a JSON text; None is JavaScript's undefined."""

    id: int
    now_ms: int
    value_json: str | None

    def frame(self) -> bytes:
        """Return the wire form. The value's text goes in as it is: one encoding per value."""
        text = "" if self.value_json is None else f',"value":{self.value_json}'
        return encode_frame(b"D", f'{{"id":{self.id},"now":{self.now_ms}{text}}}'.encode())

    @property
    def is_long(self) -> bool:
        """Whether it is better sent piece by piece."""
        return self.value_json is not None and len(self.value_json) > PIECE_CHARACTERS

    def pieces(self) -> Iterator[bytes]:
        """Return the same piece by piece."""
        head = f'{{"id":{self.id},"now":{self.now_ms},"value":'.encode()
        return frame_in_pieces(b"D", head, self.value_json or "null", b"}")


@record
class DeliverError:
    """Answer a request with an error: what of it the guest may see."""

    id: int
    now_ms: int
    name: str
    message: str
    error_code: str

    def frame(self) -> bytes:
        """Return the wire form."""
        error = {"name": self.name, "message": self.message, "code": self.error_code}
        return encode_frame(b"D", _json({"id": self.id, "now": self.now_ms, "error": error}))


HostMessage: TypeAlias = AnalyseProgram | RunProgram | DeliverValue | DeliverError


def read_host_message(frame: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return kind and content of a frame to the worker, as a worker written in Python reads it."""
    kind, payload = frame[:1], frame[1:]
    if kind == b"A":
        return kind, {"deadline_ms": _DEADLINE.unpack_from(payload)[0], "source": payload[_DEADLINE.size :].decode()}
    return kind, json.loads(payload[_LIMITS.size :] if kind == b"R" else payload)


def _members(draft: Draft) -> dict[str, Any]:
    return {"js": draft.js, "line": draft.line, "column": draft.column, "is_ambiguous": draft.is_ambiguous}


def _json(payload: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(payload).encode("ascii")


# --- from the worker ---


@record
class ProgramAnalysed:
    """The stripped program and facts about it (None: unknown), or the problems that forbid running it."""

    js: str | None
    facts: Mapping[str, Any] | None
    problems: tuple[Mapping[str, Any], ...]
    draft: Draft | None = None


@record
class CallRequested:
    """The guest asks for something. ``input_json`` None: called without an argument, or too large (``input_bytes``)."""

    id: int
    kind: RequestKind
    name: str
    input_json: str | None
    input_bytes: int | None


@record
class ConsoleWritten:
    """One line of console output."""

    level: str
    text: str


@record
class TurnEnded:
    """The guest has nothing left to do until it gets an answer."""

    in_flight: int


@record
class ProgramReturned:
    """The program ended. ``value_json`` None with ``value_bytes`` set: the result is too large."""

    value_json: str | None
    is_undefined: bool
    value_bytes: int | None
    unobserved: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProgramThrew:
    """The program ended with an error. ``request`` is set when it is the very error that answered that request.

    ``details_json`` is what the program put beside it: JSON text, or the beginning of a long one.
    """

    name: str
    message: str
    error_code: str
    stack: str
    origin: str
    request: int | None
    limit: str | None
    details_json: str | None = None


@record
class EngineFailed:
    """The engine could not go on."""

    message: str


WorkerMessage: TypeAlias = (
    ProgramAnalysed | CallRequested | ConsoleWritten | TurnEnded | ProgramReturned | ProgramThrew | EngineFailed
)


def read_message(kind: bytes, payload: bytes) -> WorkerMessage:
    """Return the message in a frame from the worker. Raises `CodeModeProtocolError` for anything else."""
    if kind == b"T" and payload in _TURN_ENDS:
        return _TURN_ENDS[payload]
    reader = _READERS.get(kind)
    if reader is None:
        _violation(f"an unknown frame {kind!r}")
    if kind in _SMALL_KINDS and len(payload) > _MAX_SMALL_BYTES:
        _violation(f"a frame {kind!r} of {len(payload)} bytes")
    try:
        body = (_decode_short if len(payload) <= _SHORT_BYTES else _decode_long)(kind, payload.decode("utf-8"))
    except ValueError as error:
        raise CodeModeProtocolError(f"the worker sent a frame {kind!r} that is not JSON") from error
    if not isinstance(body, dict):
        _violation(f"a frame {kind!r} that is not an object")
    return reader(cast("dict[str, Any]", body))


def _decode_short(kind: bytes, text: str) -> object:
    # Too short to cost anything: looking at what was read is cheaper than looking at the text first.
    depth = _MAX_DEPTHS.get(kind, 1)
    if depth > 1:
        return decode_json(text, max_depth=depth)
    body: Any = decode_json(text)
    _require_flat(kind, body)
    return body


def _require_flat(kind: bytes, body: Any) -> None:
    if type(body) is dict and not _CONTAINERS.isdisjoint(map(type, cast("dict[str, Any]", body).values())):
        _violation(f"a frame {kind!r} that is not flat")


def _decode_long(kind: bytes, text: str) -> object:
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
    if not isinstance(value, list) or len(cast("list[Any]", value)) > max_length:
        _violation(f"a bad {key!r}")
    return cast("list[Any]", value)


def _count(value: object, key: str) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        _violation(f"a bad {key!r}")
    return value


def _optional_count(body: dict[str, Any], key: str) -> int | None:
    return None if body.get(key) is None else _count(body[key], key)


def _read_analysed(body: dict[str, Any]) -> ProgramAnalysed:
    facts = body.get("facts")
    if facts is not None and not isinstance(facts, dict):
        _violation("bad facts")
    problems = _items(body, "problems", _MAX_PROBLEMS) if "problems" in body else []
    js = _optional_text(body, "js", 2**30)
    if js is None and not problems:
        _violation("neither a program nor a problem")
    return ProgramAnalysed(
        js,
        cast("Mapping[str, Any] | None", facts),
        tuple(_read_problem(problem) for problem in problems),
        _read_draft(body.get("draft")),
    )


def _read_draft(item: object) -> Draft | None:
    if item is None:
        return None
    if not isinstance(item, dict):
        _violation("a bad draft")
    draft = cast("dict[str, Any]", item)
    line, column = _count(draft.get("line"), "line"), _count(draft.get("column"), "column")
    return Draft(_text(draft, "js", 2**30), line, column, draft.get("is_ambiguous") is True)


def _read_problem(item: object) -> dict[str, Any]:
    if not isinstance(item, dict):
        _violation("a bad problem")
    problem = cast("dict[str, Any]", item)
    line, column = _count(problem.get("line"), "line"), _count(problem.get("column"), "column")
    return {"message": _text(problem, "message"), "line": line, "column": column}


def _read_call(body: dict[str, Any]) -> CallRequested:
    kind = body.get("kind")
    if kind not in REQUEST_KINDS:
        _violation("a bad request kind")
    input_json, input_bytes = _optional_text(body, "input", 2**30), _optional_count(body, "bytes")
    if input_json is not None and input_bytes is not None:
        _violation("an input and the size of one it withheld")
    return CallRequested(_count(body.get("id"), "id"), kind, _text(body, "name", 512), input_json, input_bytes)


def _read_console(body: dict[str, Any]) -> ConsoleWritten:
    level = body.get("level")
    if level not in CONSOLE_LEVELS:
        _violation("a bad console level")
    return ConsoleWritten(level, _text(body, "text"))


def _read_turn(body: dict[str, Any]) -> TurnEnded:
    return TurnEnded(_count(body.get("in_flight"), "in_flight"))


def _read_returned(body: dict[str, Any]) -> ProgramReturned:
    unobserved = _items(body, "unobserved", _MAX_REQUESTS)
    value, size = _optional_text(body, "value", 2**30), _optional_count(body, "bytes")
    is_undefined = body.get("undefined") is True
    if (value is not None) + (size is not None) + is_undefined != 1:
        _violation("a result that is not exactly one value")
    return ProgramReturned(value, is_undefined, size, tuple(_count(item, "unobserved") for item in unobserved))


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
    )


def _read_failed(body: dict[str, Any]) -> EngineFailed:
    return EngineFailed(_text(body, "message"))


_READERS: dict[bytes, Callable[[dict[str, Any]], WorkerMessage]] = {
    b"a": _read_analysed,
    b"C": _read_call,
    b"L": _read_console,
    b"T": _read_turn,
    b"V": _read_returned,
    b"X": _read_threw,
    b"F": _read_failed,
}
# Every call brings one, and there are few: these are not read again.
_TURN_ENDS = {b'{"in_flight":%d}' % count: TurnEnded(count) for count in range(64)}
