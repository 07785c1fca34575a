"""Define messages between host and worker as frozen values with a wire format.

Messages to the worker are imperative, those from it past tense; `message_decoder` decodes the latter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..data.plain_json import create_encoder
from ..records import record
from .framing import encode_frame, iter_frame_chunks, iter_large_string_frames

if TYPE_CHECKING:
    from ..data.large_strings import LargeStrings
    from ..data.program_facts import ProgramFacts, ProgramProblem

RequestKind: TypeAlias = Literal["tool", "fetch", "catalog", "timer", "yield", "state"]
NoticeKind: TypeAlias = Literal["log", "notify"]
ItemKind: TypeAlias = Literal["text", "json", "content"]
SourceLocation: TypeAlias = tuple[int, int] | tuple[int, int, str]
"""Line and column, counted from 1, and optionally the name of a saved program."""
REQUEST_KINDS = ("tool", "fetch", "catalog", "timer", "yield", "state")
# Fields for the worker itself stand before the text, as numbers.
_ANALYSIS_HEADER = Struct(">IB")
_LIMITS_HEADER = Struct(">III?")
_MILLISECONDS = Struct(">I")
_PROGRAM_NUMBER = Struct(">I")
_MAX_UINT32 = 2**32 - 1

_dump_json = create_encoder()

# --- to the worker ---


@record
class AnalyseProgram:
    """Parse the program, strip its types and report facts about it, within ``deadline_ms``.

    ``source`` has no lone surrogates. ``analysis_mode`` 1 adds facts about names and loops, 2 is for an ES module, 3
    for a saved program.
    """

    source: str
    deadline_ms: int
    analysis_mode: int = 0

    def to_frame(self) -> bytes:
        """Return the wire form."""
        return encode_frame(b"A", _ANALYSIS_HEADER.pack(self.deadline_ms, self.analysis_mode) + self.source.encode())


@record
class PartiallyStrippedProgram:
    """A program that was not understood at ``line`` and ``column``, with as many types blanked as possible.

    It never runs. The engine's error about it names the real mistake. ``is_ambiguous``: as JavaScript the program may
    mean something else, so that it does not run either.
    """

    js: str
    line: int
    column: int
    is_ambiguous: bool


@record
class RunProgram:
    """Start the program. ``settings`` has profile, seed, clock and the limits that worker and guest runtime enforce.

    ``invocation_data_json`` is for this invocation alone. With ``compile_only`` the engine compiles the program and
    runs nothing.
    """

    js: str
    settings: Mapping[str, Any]
    draft: PartiallyStrippedProgram | None = None
    invocation_data_json: str | None = None
    compile_only: bool = False

    def to_frame(self) -> bytes:
        """Return the wire form."""
        more: dict[str, Any] = {} if self.draft is None else {"draft": _partially_stripped_to_dict(self.draft)}
        if self.compile_only:
            more["compile_only"] = True
        return _encode_start_frame(b"R", {"js": self.js, **self.settings, **more}, self.invocation_data_json)


@record
class RunModule:
    """Start the program as an ES module; like `RunProgram` without its other fields."""

    js: str
    settings: Mapping[str, Any]
    invocation_data_json: str | None = None

    def to_frame(self) -> bytes:
        """Return the wire form."""
        return _encode_start_frame(b"M", {"js": self.js, **self.settings}, self.invocation_data_json)


def _encode_start_frame(kind: bytes, settings: Mapping[str, Any], invocation_data_json: str | None) -> bytes:
    stops = settings.get("stops", (0, False))
    limits = _LIMITS_HEADER.pack(settings["memory_limit_bytes"], settings["max_stack_size_bytes"], *stops)
    text = _dump_json(settings).encode("ascii")
    if invocation_data_json is not None:
        text = b'%b,"given":%b}' % (text[:-1], invocation_data_json.encode())
    return encode_frame(kind, limits + text)


@record
class DeliverValue:
    """Answer a request with a JSON text; None is JavaScript's undefined.

    ``large`` are its large strings, which are sent first, each in a frame of its own: the guest need not parse
    strings that it passes on.
    """

    id: int
    now_ms: int
    value_json: str | None
    large: LargeStrings | None = None

    @property
    def guest_json(self) -> str | None:
        """The value for the guest, with references to its large strings."""
        return self.value_json if self.large is None else self.large.rest_json

    def to_frame(self) -> bytes:
        """Return the wire format. The value's text is inserted as it is, so that it is encoded once."""
        if self.large is not None:
            return b"".join(self.iter_encoded_chunks())
        text = "" if self.value_json is None else f',"value":{self.value_json}'
        return encode_frame(b"D", f'{{"id":{self.id},"now":{self.now_ms}{text}}}'.encode())

    def iter_encoded_chunks(self) -> Iterator[bytes]:
        """Return the wire format in chunks, for a value of more than ``CHUNK_CHARACTERS``."""
        large, text, sizes = self.large, self.value_json or "null", ""
        if large is not None:
            yield from iter_large_string_frames(large)
            text, sizes = large.rest_json, f',"sizes":{_dump_json(large.sizes)}'
        head = f'{{"id":{self.id},"now":{self.now_ms}{sizes},"value":'.encode()
        yield from iter_frame_chunks(b"D", head, text, b"}")


@record
class DeliverError:
    """Answer a request with an error, as the guest may see it.

    ``fields_json`` are the fields of a surface. If they name a tool or a class, the guest sees nothing else.
    """

    id: int
    now_ms: int
    name: str
    message: str
    error_code: str
    fields_json: str | None = None

    def to_frame(self) -> bytes:
        """Return the wire form."""
        error: dict[str, Any] = {"name": self.name, "message": self.message, "code": self.error_code}
        if self.fields_json is not None:
            fields = json.loads(self.fields_json)
            is_whole = "toolName" in fields or "class" in fields
            error = {
                "name": "Error" if is_whole else self.name,
                "message": fields["message"],
                "code": fields["code"],
                "fields": fields,
            }
        return encode_frame(b"D", _encode_json({"id": self.id, "now": self.now_ms, "error": error}))


@record
class AddPausedTime:
    """Report paused time, such as the wait for a person, to a worker that enforces the timeout itself."""

    milliseconds: int

    def to_frame(self) -> bytes:
        """Return the wire form."""
        return encode_frame(b"T", _MILLISECONDS.pack(min(self.milliseconds, _MAX_UINT32)))


@record
class AnnounceNextProgram:
    """Start the next program of a worker that has ended ``number``."""

    number: int

    def to_frame(self) -> bytes:
        """Return the wire form."""
        return encode_frame(b"N", _PROGRAM_NUMBER.pack(self.number))


HostMessage: TypeAlias = (
    AnalyseProgram | RunProgram | RunModule | DeliverValue | DeliverError | AddPausedTime | AnnounceNextProgram
)


def decode_host_message(frame: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return kind and content of a frame to the worker, for workers written in Python."""
    kind, payload = frame[:1], frame[1:]
    if kind == b"A":
        deadline_ms, analysis_mode = _ANALYSIS_HEADER.unpack_from(payload)
        source = payload[_ANALYSIS_HEADER.size :].decode()
        return kind, {"deadline_ms": deadline_ms, "face": analysis_mode, "source": source}
    if kind == b"T":
        return kind, {"milliseconds": _MILLISECONDS.unpack(payload)[0]}
    if kind == b"N":
        return kind, {"number": _PROGRAM_NUMBER.unpack(payload)[0]}
    return kind, json.loads(payload[_LIMITS_HEADER.size :] if kind in (b"R", b"M") else payload)


def _partially_stripped_to_dict(draft: PartiallyStrippedProgram) -> dict[str, Any]:
    return {"js": draft.js, "line": draft.line, "column": draft.column, "is_ambiguous": draft.is_ambiguous}


def _encode_json(payload: Mapping[str, Any]) -> bytes:
    return _dump_json(payload).encode("ascii")


# --- from the worker ---


class AnalysisFacts(dict[str, Any]):
    """The facts of one analysis, which do not change. ``parsed`` is set by the surface that parses them."""

    parsed: Any = None


@record
class ProgramAnalysed:
    """The stripped program and its facts (None: unknown) in ``size`` bytes, or the problems that forbid it."""

    js: str | None
    facts: ProgramFacts | None
    problems: tuple[ProgramProblem, ...]
    draft: PartiallyStrippedProgram | None = None
    size: int = 0


@record
class CallRequested:
    """The guest issues a request. ``input_json`` None: no argument, or one that is too large (``input_bytes``).

    ``location`` is line and column in the program or saved program, if locations are reported.
    """

    id: int
    kind: RequestKind
    name: str
    input_json: str | None
    input_bytes: int | None
    location: SourceLocation | None = None


@record
class RequestWithdrawn:
    """The guest cleared a timer and does not need its outcome."""

    id: int


@record
class ConsoleWritten:
    """One line of console output."""

    level: str
    text: str


@record
class OutputItemWritten:
    """The program wrote an output item: a text, or the JSON text of a value."""

    kind: ItemKind
    text: str


@record
class GuestNotification:
    """The program sends a notice to the host's listeners: JSON of an object whose members depend on ``kind``."""

    kind: NoticeKind
    payload_json: str


@record
class TurnEnded:
    """The guest is idle until it gets an outcome."""

    in_flight: int


@record
class ProgramReturned:
    """The program ended. ``value_json`` None with ``value_bytes`` set: the result is too large.

    ``warnings`` name cut parts of a result. ``last_value`` is the start of the last statement's value as text, if
    the program returned nothing.
    """

    value_json: str | None
    is_undefined: bool
    value_bytes: int | None
    unobserved_ids: tuple[int, ...]
    warnings: tuple[str, ...] = ()
    last_value: str | None = None


@record
class ProgramThrew:
    """The program ended with an error. ``request_id`` is set if the error is the answer to that request.

    ``refused_tool`` names the tool of a call that the guest runtime refused for its input, or for ``limit``, if the
    error is that refusal. ``details_json`` are the program's own details: JSON text, or the start of a long one.
    ``error_class`` is the surface's class of the error, and ``fields_json`` its public fields.
    """

    name: str
    message: str
    error_code: str
    stack: str
    origin: str
    request_id: int | None
    limit: str | None
    details_json: str | None = None
    refused_tool: str | None = None
    error_class: str | None = None
    fields_json: str | None = None


@record
class EngineFailed:
    """The engine failed. ``origin`` "memory": it has no memory left.

    "request": it got the outcome of a request that it did not issue.
    """

    message: str
    origin: str = "engine"


WorkerMessage: TypeAlias = (
    ProgramAnalysed
    | CallRequested
    | RequestWithdrawn
    | ConsoleWritten
    | OutputItemWritten
    | GuestNotification
    | TurnEnded
    | ProgramReturned
    | ProgramThrew
    | EngineFailed
)
