"""The outcome of a run as one value, its media, and its record in a resume guard."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from ..continuations.sealing import open_text, seal_text
from ..continuations.signing import Auth
from ..data.content import ContentResult, replace_references
from ..data.json_shape import estimate_json_length
from ..data.json_values import MAX_DEPTH, decode_json, encode_json
from ..data.narrowing import is_object
from ..data.plain_json import write_json
from ..errors import (
    CUT_OFF_ERRORS,
    CallSummary,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    Resumable,
    error_from_view,
)
from ..host.threads import LARGE_CHARACTERS, run_check
from ..interrupts.interrupt import Interrupt
from ..options.parts import ContinuationOptions
from ..protocol.call_status import call_id, summarize_calls
from ..protocol.continuation import parts_to_list, read_contents
from ..protocol.ledger import UNREPORTED_KINDS, Ledger, LedgerEntry, Waiting
from ..protocol.messages import RequestKind
from ..protocol.references import MAX_CARRIED_BYTES, ContentRegistry
from ..records import record
from ..trace.events import ConsoleEvent
from ..trace.late_values import get_stored_value, with_lazy_fields

if TYPE_CHECKING:
    from ..observe.call_events import CallRecord
    from ..protocol.call_status import DetachedCall
    from ..protocol.events import SuspensionReason
    from ..protocol.references import ContentRegistry
    from ..trace.trace import Trace


@record
class OutputItem:
    """Something that a program has written: "text", "json", "content", or a line of the console with its ``level``."""

    kind: Literal["text", "json", "content", "console"]
    value: Any
    level: str = ""


@record
class PendingCall:
    """A call of a program at rest that is running, or waiting for a person."""

    id: str
    name: str
    kind: RequestKind
    status: Literal["running", "waiting"]


def list_pending_calls(entries: Iterable[LedgerEntry]) -> tuple[PendingCall, ...]:
    """Return the calls without an answer, in issue order: tools and fetches."""
    return tuple(
        PendingCall(
            call_id(entry), entry.name, entry.kind, "waiting" if isinstance(entry.outcome, Waiting) else "running"
        )
        for entry in entries
        if entry.kind not in ("catalog", *UNREPORTED_KINDS) and (entry.is_open or isinstance(entry.outcome, Waiting))
    )


class SuspendedRun(Protocol):
    """What goes on with a program at rest, as `RestingExecution` does.

    ``on_change`` is called on the run's own loop when the outcome of a call has come at rest, or it has ended there.
    """

    on_change: Callable[[], None]

    @property
    def has_started(self) -> bool:
        """True once `abort` ends it; before, whoever starts it is to be cancelled."""
        ...

    @property
    def is_suspended(self) -> bool:
        """True while somebody can go on with it."""
        ...

    @property
    def is_warm(self) -> bool:
        """True while it keeps a worker and a slot."""
        ...

    @property
    def has_pending_deliveries(self) -> bool:
        """True at rest when there is something to hand in."""
        ...

    @property
    def is_lost(self) -> bool:
        """True once the event loop of its start, on which its calls live, is closed."""
        ...

    @property
    def size_bytes(self) -> int:
        """The bytes of program, given values, ledger and output that nobody has taken."""
        ...

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that are in flight, or waiting for a person."""
        ...

    async def continue_run(self, wait_ms: int | None = None) -> RunOutcome:
        """Go on, and return what it has come to, which may be another rest."""
        ...

    def drop_worker(self) -> None:
        """Give up worker and slot; it makes no difference to what comes."""
        ...

    async def abort(self, reason: str = ...) -> RunOutcome:
        """End it, with its calls."""
        ...

    async def save(self) -> Interrupt:
        """Return what is to be kept of it, in which the outcome of what runs now is unknown."""
        ...


def with_changes(outcome: RunOutcome, **changes: Any) -> RunOutcome:
    """Return an outcome with other values of some of its fields."""
    fields = {name: getattr(outcome, name) for name in RunOutcome.__match_args__ if name != "trace"}
    return RunOutcome(**{"trace": get_stored_value(outcome, "trace"), **fields, **changes})


@record
class Suspension:
    """Why a program rests, what is in flight, and ``run``, which goes on with it; None where this was recorded.

    ``output_bytes`` are those of what it has written since the rest before.
    """

    reason: SuspensionReason
    pending: Sequence[PendingCall]
    run: SuspendedRun | None = None
    output_bytes: int = 0


@with_lazy_fields("trace")
@record
class RunOutcome:
    """What a run came to: by its ``status`` a ``value`` (None for undefined), an ``interrupt`` or an ``error``.

    A program that is "resting" has come to none of these yet: ``suspension`` goes on with it. ``output`` is what a
    program
    that writes items has written since its outcome before.
    ``trace`` is there when the outer call asks for one or a hook listens, and after every pause and failure of a
    program that was begun. ``warnings`` say what was cut of the value, and what was wrong before it ran,
    ``output_warnings`` which outputs of tools were passed on though they miss their schemas. An outcome
    that was recorded and comes back is a run of which nothing more is known: ``is_replayed``, without trace, without
    calls unless it is an error, and without console unless the profile cuts results. ``ended_calls`` are the calls of
    tools and fetches that have ended, as they were noted. ``abandoned`` are calls that the
    program did not wait for, each with id, kind, name and status: pending, waiting, not sent, or failed unseen.
    ``began_at_ms`` is when a recorded run began, which else its trace says. ``result_bytes`` are those of the JSON that
    it returned, where that is known. A program that ``returned_nothing`` has not returned null: ``last_value`` is then
    the value of its last statement as text, if that is an expression. ``summaries`` are of its calls, with
    their texts, where there is a use for that. ``is_tagged``: the value has tags for dates, bytes and sets.
    """

    status: Literal["completed", "interrupted", "failed", "resting"]
    outer_tool_call_id: str
    console: Sequence[ConsoleEvent] = ()
    ledger: Ledger | None = None
    ended_calls: Sequence[CallRecord] = ()
    value: Any = None
    interrupt: Interrupt | None = None
    error: CodeModeError | None = None
    trace: Trace | None = None
    is_replayed: bool = False
    warnings: tuple[str, ...] = ()
    output_warnings: tuple[str, ...] = ()
    abandoned: tuple[DetachedCall, ...] = ()
    began_at_ms: float | None = None
    output: Sequence[OutputItem] = ()
    suspension: Suspension | None = None
    result_bytes: int | None = None
    returned_nothing: bool = False
    last_value: str = ""
    summaries: tuple[CallSummary, ...] = ()
    is_tagged: bool = False

    @property
    def calls(self) -> tuple[CallSummary, ...]:
        """What the program had called, as in `CodeModeError.calls`."""
        if self.error is not None:
            return self.error.calls
        if self.summaries:
            return self.summaries
        return () if self.ledger is None else summarize_calls(self.ledger.entries)


def is_program_error(error: BaseException) -> bool:
    """Return True for an error that the program would come to again."""
    return isinstance(error, CodeModeError) and not isinstance(error, (*CUT_OFF_ERRORS, CodeModeProtocolError))


def get_contents(outcome: RunOutcome) -> ContentRegistry | None:
    """Return the content that the program of a run was given, if it was given any."""
    contents = None if outcome.ledger is None else outcome.ledger.contents
    return contents if contents is not None and len(contents) else None


def to_presented_value(outcome: RunOutcome) -> Any:
    """Return the value of a run, with `MediaContent` in place of handles; a `ContentResult` where it has shown some."""
    contents, value = get_contents(outcome), outcome.value
    if contents is None or isinstance(value, ContentResult):
        return value
    try:
        value = replace_references(value, contents)
    except CodeModeSerializationError:  # a recorded outcome whose content is not kept any more: it stays a description
        return value
    displayed = tuple(contents.get(part_id) for part_id in contents.displayed_names if part_id in contents)
    return ContentResult(value, displayed) if displayed else value


async def describe_content(outcome: RunOutcome) -> Any:
    """Return the value of a run with a description where a handle was, for what outlives its content."""
    contents = get_contents(outcome)
    if contents is None:
        return outcome.value
    with suppress(CodeModeSerializationError):  # as above
        size = estimate_json_length(outcome.value, LARGE_CHARACTERS)
        return await run_check(size, lambda: replace_references(outcome.value, contents, lambda part: part.description))
    return outcome.value


def restore_content(result: Any, outcome: RunOutcome) -> Any:
    """Return what a model is told of a run, plain JSON or an interrupt, with a `MediaContent` in each place of one."""
    contents = get_contents(outcome)
    if contents is None or not is_object(result):
        return result
    try:
        return replace_references(result, contents)
    except CodeModeSerializationError:  # as above
        return result


# A line of JSON, and behind it the texts of a continuation as they are: escaping and parsing them again would take as
# long as they are.

_EXTRA_DEPTH = 8  # of a value in an interrupt in an outcome
_LIST_FIELDS = ("warnings", "output_warnings", "abandoned")  # of `RunOutcome`


@dataclass(frozen=True, slots=True)
class OutcomeCodec:
    """Writes and reads the outcomes of resumes of one continuation, which ``auth`` has signed.

    ``keeps_output``: with what was written to the console, what was cut of the value, and which calls were abandoned.
    """

    options: ContinuationOptions
    auth: Auth
    is_sealed: bool
    outer_tool_call_id: str
    keeps_output: bool = False

    @classmethod
    def of(
        cls, interrupt: Interrupt, auth: Auth, options: ContinuationOptions, *, keeps_output: bool = False
    ) -> OutcomeCodec:
        """Return those of an interrupt that was verified."""
        is_sealed = str(interrupt.continuation["encoding"]).startswith("sealed")
        return cls(options, auth, is_sealed, interrupt.outer_tool_call_id, keeps_output)

    def encode_outcome(self, outcome: RunOutcome) -> str:
        """Write what a run came to."""
        output = self._encode_output(outcome)
        if outcome.error is not None:
            return self.encode_error(outcome.error, output)
        if outcome.suspension is not None:
            calls = [[call.id, call.name, call.kind, call.status] for call in outcome.suspension.pending]
            return self._encode(f'{{"rest":{write_json([outcome.suspension.reason, calls])}{output}}}', ())
        output += self._encode_content(outcome) + (',"tagged":true' if outcome.is_tagged else "")
        return self.encode_value(outcome.value if outcome.interrupt is None else outcome.interrupt, output)

    def encode_value(self, value: Any, output: str = "") -> str:
        """Write a value, or the next interrupt."""
        if isinstance(value, Interrupt):
            plain, texts = _split_interrupt(value)
            return self._encode(f'{{"interrupt":{write_json(plain)}{output}}}', texts)
        return self._encode(f'{{"value":{write_json(value)}{output}}}', ())

    def encode_error(self, error: BaseException, output: str = "") -> str:
        """Write an error, with its recovery."""
        if not isinstance(error, CodeModeError):
            aborted = error.__cause__
            error = aborted if isinstance(aborted, CodeModeError) else CodeModeError("the resume failed")
        failure = {"name": type(error).__name__, "message": error.message, "code": error.code}
        recovery, texts = (None, ()) if error.recovery is None else _split_interrupt(error.recovery)
        details = _encode_details(error.details)
        members = f'"error":{write_json(failure)},"calls":{write_json(error.calls)},"details":{details}'
        return self._encode(f'{{{members},"recovery":{write_json(recovery)}{output}}}', texts)

    def _encode_output(self, outcome: RunOutcome) -> str:
        """Return the members beside what a run came to, behind a comma; both are as bounded as the run itself."""
        if not self.keeps_output:
            return ""
        lines = [[line.invocation_id, line.level, line.text, line.written_at_ms] for line in outcome.console]
        members: dict[str, Any] = {name: list(getattr(outcome, name)) for name in _LIST_FIELDS}
        if outcome.returned_nothing:
            members["nothing"] = [outcome.last_value, list(outcome.summaries)]
        if outcome.output:
            members["output"] = [[item.kind, item.value, item.level] for item in outcome.output]
        members |= {"console": lines, "began": None if outcome.trace is None else outcome.trace.started_at_ms}
        return "," + write_json(members)[1:-1]

    def _encode_content(self, outcome: RunOutcome) -> str:
        """Return the content of a run, behind a comma: where a store has it by its ids alone."""
        contents = get_contents(outcome)
        if contents is None:
            return ""
        stored = [name for name, _ in contents.items() if name in contents.stored_names]
        carried = {name: part.size for name, part in contents.items() if name not in contents.stored_names}
        parts = parts_to_list(contents, carried) if sum(carried.values()) <= MAX_CARRIED_BYTES else []
        return f',"content":{write_json([contents.tag, contents.displayed_names, parts, stored])}'

    def decode_outcome(self, text: str) -> RunOutcome:
        """Return the outcome that was recorded, what a store has of its content still ``left`` there.

        Raises `CodeModeProtocolError` when it cannot be read.
        """
        try:
            outcome, texts = self._decode(text)
        except ValueError as error:
            raise CodeModeProtocolError("the recorded outcome of this continuation cannot be read") from error
        outer_id = self.outer_tool_call_id
        console = [_make_console_event(outer_id, *line) for line in outcome.get("console", ())]
        fields: dict[str, Any] = {"is_replayed": True, "began_at_ms": outcome.get("began")}
        fields |= {name: tuple(outcome.get(name, ())) for name in _LIST_FIELDS}
        fields["output"] = tuple(OutputItem(*item) for item in outcome.get("output", ()))
        if "rest" in outcome:
            reason, calls = outcome["rest"]
            rest = Suspension(reason, tuple(PendingCall(*item) for item in calls))
            return RunOutcome("resting", outer_id, console, suspension=rest, **fields)
        if "value" in outcome:
            fields["ledger"] = _read_content_ledger(outcome.get("content"))
            fields["is_tagged"] = outcome.get("tagged") is True
            if "nothing" in outcome:
                last_value, summaries = outcome["nothing"]
                fields |= {"returned_nothing": True, "last_value": last_value, "summaries": tuple(summaries)}
            return RunOutcome("completed", outer_id, console, value=outcome["value"], **fields)
        if "interrupt" in outcome:
            return RunOutcome(
                "interrupted", outer_id, console, interrupt=_join_interrupt(outcome["interrupt"], texts), **fields
            )
        return RunOutcome("failed", outer_id, console, error=_read_error(outcome, texts), **fields)

    def _encode(self, head: str, texts: Iterable[str]) -> str:
        text = "".join([head, "\n", *texts])
        return seal_text(text, self.options, self.auth) if self.is_sealed else text

    def _decode(self, text: str) -> tuple[dict[str, Any], _TextReader]:
        opened = open_text(text, self.options, self.auth) if self.is_sealed else text
        end = opened.find("\n") % (len(opened) + 1)  # to the end where no text follows
        outcome = decode_json(opened[:end], max_depth=MAX_DEPTH + _EXTRA_DEPTH)
        return cast("dict[str, Any]", outcome), _TextReader(opened, end + 1)


def _read_content_ledger(content: list[Any] | None) -> Ledger | None:
    if content is None:
        return None
    contents = read_contents(content[2]) or ContentRegistry()
    contents.tag, contents.displayed_names = content[0], content[1]
    contents.unloaded_ids = tuple(content[3]) if len(content) > 3 else ()  # of an earlier release
    return Ledger(contents=contents)


class _TextReader:
    """Texts that stand one behind the other, taken by their lengths."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._offset = start

    def take(self, lengths: list[int]) -> list[str]:
        texts: list[str] = []
        for length in lengths:
            texts.append(self._text[self._offset : self._offset + length])
            self._offset += length
        return texts


def _split_interrupt(interrupt: Resumable) -> tuple[dict[str, Any], list[str]]:
    """Return an interrupt with the lengths of its continuation's texts, and these."""
    plain = interrupt.to_dict()
    texts = cast("list[str]", interrupt.continuation["body"])
    return {**plain, "continuation": {**plain["continuation"], "body": [*map(len, texts)]}}, texts


def _join_interrupt(plain: dict[str, Any], texts: _TextReader) -> Interrupt:
    continuation = plain["continuation"]
    return Interrupt.from_dict({**plain, "continuation": {**continuation, "body": texts.take(continuation["body"])}})


def _encode_details(details: Mapping[str, Any]) -> str:
    """Write each of the details for itself: that a tool has put there what no text holds costs the others nothing."""
    written = ((json.dumps(str(name)), _encode_detail(value)) for name, value in details.items())
    return "{" + ",".join(f"{name}:{text}" for name, text in written if text is not None) + "}"


def _encode_detail(value: Any) -> str | None:
    # Details are for people: what is not JSON is kept as text.
    for write in (_encode_strict, partial(encode_json, what="a detail"), _encode_text):
        with suppress(Exception):  # a tool may raise an error with any details
            text = write(value)
            decode_json(text, max_depth=MAX_DEPTH + _EXTRA_DEPTH - 2)  # it stands two levels deep
            return text
    return None


def _encode_strict(value: Any) -> str:
    return json.dumps(value, default=str, allow_nan=False)


def _encode_text(value: Any) -> str:
    return json.dumps(str(value))


def _make_console_event(
    outer_tool_call_id: str, invocation_id: str, level: str, text: str, written_at_ms: float = 0.0
) -> ConsoleEvent:
    ids = {"invocation_id": invocation_id, "outer_tool_call_id": outer_tool_call_id}
    return ConsoleEvent(**ids, level=level, text=text, written_at_ms=written_at_ms)


def _read_error(outcome: Mapping[str, Any], texts: _TextReader) -> CodeModeError:
    failure = outcome["error"]
    error = type(error_from_view(**failure))(failure["message"], code=failure["code"], details=outcome["details"])
    error.calls = tuple(outcome["calls"])
    if outcome["recovery"] is not None:
        error.recovery = _join_interrupt(outcome["recovery"], texts)
    return error
