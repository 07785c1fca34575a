"""Messages between host and worker: frozen values and their wire form. Pure.

Those to the worker are imperative, those from it past tense. What comes from a worker is read in `reading`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..data.plain_json import create_encoder
from ..records import record
from .framing import encode_frame, iter_frame_chunks, large_string_frames

if TYPE_CHECKING:
    from ..data.large_strings import LargeStrings
    from ..data.program_facts import Facts, ProgramProblem

RequestKind: TypeAlias = Literal["tool", "fetch", "catalog", "timer", "yield", "state"]
NoticeKind: TypeAlias = Literal["log", "notify"]
ItemKind: TypeAlias = Literal["text", "json", "content"]
SourceLocation: TypeAlias = tuple[int, int] | tuple[int, int, str]
"""Line and column, counted from 1; the third is the name of the saved program that they are in."""
REQUEST_KINDS = ("tool", "fetch", "catalog", "timer", "yield", "state")
# What the worker itself looks at stands in front of the text, as numbers.
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

    ``source`` has no lone surrogates. ``analysis_mode`` 1 is for facts that tell of its names and loops too, 2 for an
    ES module.
    """

    source: str
    deadline_ms: int
    analysis_mode: int = 0

    def frame(self) -> bytes:
        """Return the wire form."""
        return encode_frame(b"A", _ANALYSIS_HEADER.pack(self.deadline_ms, self.analysis_mode) + self.source.encode())


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
    """Start the program. ``settings`` holds profile, seed, clock and the limits that worker and kernel enforce.

    ``invocation_data_json`` is what this invocation alone was given. With ``compile_only`` the engine reads the
    program and runs
    nothing of it.
    """

    js: str
    settings: Mapping[str, Any]
    draft: Draft | None = None
    invocation_data_json: str | None = None
    compile_only: bool = False

    def frame(self) -> bytes:
        """Return the wire form."""
        more: dict[str, Any] = {} if self.draft is None else {"draft": _draft_to_dict(self.draft)}
        if self.compile_only:
            more["compile_only"] = True
        return _start_frame(b"R", {"js": self.js, **self.settings, **more}, self.invocation_data_json)


@record
class RunModule:
    """Start the program as an ES module: as `RunProgram`, but for what need not be told of it."""

    js: str
    settings: Mapping[str, Any]
    invocation_data_json: str | None = None

    def frame(self) -> bytes:
        """Return the wire form."""
        return _start_frame(b"M", {"js": self.js, **self.settings}, self.invocation_data_json)


def _start_frame(kind: bytes, settings: Mapping[str, Any], invocation_data_json: str | None) -> bytes:
    stops = settings.get("stops", (0, False))
    limits = _LIMITS_HEADER.pack(settings["memory_limit_bytes"], settings["max_stack_size_bytes"], *stops)
    text = _dump_json(settings).encode("ascii")
    if invocation_data_json is not None:
        text = b'%b,"given":%b}' % (text[:-1], invocation_data_json.encode())
    return encode_frame(kind, limits + text)


@record
class DeliverValue:
    """Answer a request with a JSON text; None is JavaScript's undefined.

    ``large`` are its large strings, which go ahead of it, each in a frame of its own: what is handed on unread need not
    be read.
    """

    id: int
    now_ms: int
    value_json: str | None
    large: LargeStrings | None = None

    @property
    def guest_json(self) -> str | None:
        """The value as the guest is handed it, with places for its large strings."""
        return self.value_json if self.large is None else self.large.rest_json

    def frame(self) -> bytes:
        """Return the wire form. The value's text goes in as it is: one encoding per value."""
        if self.large is not None:
            return b"".join(self.iter_chunks())
        text = "" if self.value_json is None else f',"value":{self.value_json}'
        return encode_frame(b"D", f'{{"id":{self.id},"now":{self.now_ms}{text}}}'.encode())

    def iter_chunks(self) -> Iterator[bytes]:
        """Return the same piece by piece, as is better for a value of more than ``PIECE_CHARACTERS``."""
        large, text, sizes = self.large, self.value_json or "null", ""
        if large is not None:
            yield from large_string_frames(large)
            text, sizes = large.rest_json, f',"sizes":{_dump_json(large.sizes)}'
        head = f'{{"id":{self.id},"now":{self.now_ms}{sizes},"value":'.encode()
        yield from iter_frame_chunks(b"D", head, text, b"}")


@record
class DeliverError:
    """Answer a request with an error: what of it the guest may see.

    ``fields_json`` are the fields that a face has. Where they name a tool or a class they are all that is told:
    name and code are the host's own.
    """

    id: int
    now_ms: int
    name: str
    message: str
    error_code: str
    fields_json: str | None = None

    def frame(self) -> bytes:
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
    """Tell a worker that stops its program itself how long the clock stood still: while a person was asked, say."""

    milliseconds: int

    def frame(self) -> bytes:
        """Return the wire form."""
        return encode_frame(b"T", _MILLISECONDS.pack(min(self.milliseconds, _MAX_UINT32)))


@record
class BeginProgram:
    """Begin the next program of a worker that has ended ``number``."""

    number: int

    def frame(self) -> bytes:
        """Return the wire form."""
        return encode_frame(b"N", _PROGRAM_NUMBER.pack(self.number))


HostMessage: TypeAlias = (
    AnalyseProgram | RunProgram | RunModule | DeliverValue | DeliverError | AddPausedTime | BeginProgram
)


def read_host_message(frame: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return kind and content of a frame to the worker, as a worker written in Python reads it."""
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


def _draft_to_dict(draft: Draft) -> dict[str, Any]:
    return {"js": draft.js, "line": draft.line, "column": draft.column, "is_ambiguous": draft.is_ambiguous}


def _encode_json(payload: Mapping[str, Any]) -> bytes:
    return _dump_json(payload).encode("ascii")


# --- from the worker ---


@record
class ProgramAnalysed:
    """The stripped program and facts about it (None: unknown) in ``size`` bytes, or the problems that forbid it."""

    js: str | None
    facts: Facts | None
    problems: tuple[ProgramProblem, ...]
    draft: Draft | None = None
    size: int = 0


@record
class CallRequested:
    """The guest asks for something. ``input_json`` None: called without an argument, or too large (``input_bytes``).

    ``location`` are line and column in the program, where the worker was to tell them; and which saved program that is.
    """

    id: int
    kind: RequestKind
    name: str
    input_json: str | None
    input_bytes: int | None
    location: SourceLocation | None = None


@record
class RequestWithdrawn:
    """The guest no longer wants the answer to a request: a timer that it has cleared."""

    id: int


@record
class ConsoleWritten:
    """One line of console output."""

    level: str
    text: str


@record
class ItemWritten:
    """The program has written an item of its output: a text, or else the JSON text of a value."""

    kind: ItemKind
    text: str


@record
class GuestNotice:
    """The program tells the host's listeners something: JSON of an object, whose members depend on ``kind``."""

    kind: NoticeKind
    payload_json: str


@record
class TurnEnded:
    """The guest has nothing left to do until it gets an answer."""

    in_flight: int


@record
class ProgramReturned:
    """The program ended. ``value_json`` None with ``value_bytes`` set: the result is too large.

    ``warnings`` say what was cut of a result that is made to fit. ``last_value`` is the beginning of the value of the
    last
    statement of a program that returned nothing, as text.
    """

    value_json: str | None
    is_undefined: bool
    value_bytes: int | None
    unobserved_ids: tuple[int, ...]
    warnings: tuple[str, ...] = ()
    last_value: str | None = None


@record
class ProgramThrew:
    """The program ended with an error. ``request_id`` is set when it is the very error that answered that request.

    ``refused_tool`` names the tool of a call that the kernel refused for its input, or with ``limit`` for that, when
    it is
    the very error of that.
    ``details_json`` is what the program put beside it: JSON text, or the beginning of a long one. ``error_class`` is
    the class of the face's own that it is an instance of, and ``fields_json`` likewise its public fields.
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
    """The engine could not go on. ``origin`` "memory": it has none left for that.

    "request": it was handed the outcome of a request that it had not made.
    """

    message: str
    origin: str = "engine"


WorkerMessage: TypeAlias = (
    ProgramAnalysed
    | CallRequested
    | RequestWithdrawn
    | ConsoleWritten
    | ItemWritten
    | GuestNotice
    | TurnEnded
    | ProgramReturned
    | ProgramThrew
    | EngineFailed
)
