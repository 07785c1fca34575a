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
from ..data.content import ContentResult, with_parts
from ..data.json_shape import weigh
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


def pending_calls(entries: Iterable[LedgerEntry]) -> tuple[PendingCall, ...]:
    """Return the calls without an answer, in issue order: tools and fetches."""
    return tuple(
        PendingCall(call_id(one), one.name, one.kind, "waiting" if isinstance(one.outcome, Waiting) else "running")
        for one in entries
        if one.kind not in ("catalog", *UNREPORTED_KINDS) and (one.is_open or isinstance(one.outcome, Waiting))
    )


class RestingRun(Protocol):
    """What goes on with a program at rest, as `RestingExecution` does.

    ``on_news`` is called on the run's own loop when the outcome of a call has come at rest, or it has ended there.
    """

    on_news: Callable[[], None]

    @property
    def has_begun(self) -> bool:
        """True once `abort` ends it; before, whoever starts it is to be cancelled."""
        ...

    @property
    def is_resting(self) -> bool:
        """True while somebody can go on with it."""
        ...

    @property
    def is_warm(self) -> bool:
        """True while it keeps a worker and a slot."""
        ...

    @property
    def has_news(self) -> bool:
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

    async def go_on(self, wait_ms: int | None = None) -> RunOutcome:
        """Go on, and return what it has come to, which may be another rest."""
        ...

    def drop_worker(self) -> None:
        """Give up worker and slot; it makes no difference to what comes."""
        ...

    async def abort(self, reason: str = ...) -> RunOutcome:
        """End it, with its calls."""
        ...

    async def kept(self) -> Interrupt:
        """Return what is to be kept of it, in which the outcome of what runs now is unknown."""
        ...


def changed(outcome: RunOutcome, **changes: Any) -> RunOutcome:
    """Return an outcome with other values of some of its fields."""
    fields = {name: getattr(outcome, name) for name in RunOutcome.__match_args__ if name != "trace"}
    return RunOutcome(**{"trace": get_stored_value(outcome, "trace"), **fields, **changes})


@record
class AtRest:
    """Why a program rests, what is in flight, and ``run``, which goes on with it; None where this was recorded.

    ``output_bytes`` are those of what it has written since the rest before.
    """

    reason: SuspensionReason
    pending: Sequence[PendingCall]
    run: RestingRun | None = None
    output_bytes: int = 0


@with_lazy_fields("trace")
@record
class RunOutcome:
    """What a run came to: by its ``status`` a ``value`` (None for undefined), an ``interrupt`` or an ``error``.

    A program that is "resting" has come to none of these yet: ``rest`` goes on with it. ``output`` is what a program
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
    rest: AtRest | None = None
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


def is_programs_end(error: BaseException) -> bool:
    """Return True for an error that the program would come to again."""
    return isinstance(error, CodeModeError) and not isinstance(error, (*CUT_OFF_ERRORS, CodeModeProtocolError))


def contents_of(outcome: RunOutcome) -> ContentRegistry | None:
    """Return the content that the program of a run was given, if it was given any."""
    contents = None if outcome.ledger is None else outcome.ledger.contents
    return contents if contents is not None and len(contents) else None


def presented(outcome: RunOutcome) -> Any:
    """Return the value of a run, with `MediaContent` in place of handles; a `ContentResult` where it has shown some."""
    contents, value = contents_of(outcome), outcome.value
    if contents is None or isinstance(value, ContentResult):
        return value
    try:
        value = with_parts(value, contents)
    except CodeModeSerializationError:  # a recorded outcome whose content is not kept any more: it stays a description
        return value
    shown = tuple(contents.get(part_id) for part_id in contents.displayed_names if part_id in contents)
    return ContentResult(value, shown) if shown else value


async def in_words(outcome: RunOutcome) -> Any:
    """Return the value of a run with a description where a handle was, for what outlives its content."""
    contents = contents_of(outcome)
    if contents is None:
        return outcome.value
    with suppress(CodeModeSerializationError):  # as above
        size = weigh(outcome.value, LARGE_CHARACTERS)
        return await run_check(size, lambda: with_parts(outcome.value, contents, lambda part: part.described))
    return outcome.value


def with_content(result: Any, outcome: RunOutcome) -> Any:
    """Return what a model is told of a run, plain JSON or an interrupt, with a `MediaContent` in each place of one."""
    contents = contents_of(outcome)
    if contents is None or not is_object(result):
        return result
    try:
        return with_parts(result, contents)
    except CodeModeSerializationError:  # as above
        return result


# A line of JSON, and behind it the texts of a continuation as they are: escaping and parsing them again would take as
# long as they are.

_DEPTH_AROUND = 8  # of a value in an interrupt in an outcome
_LISTS = ("warnings", "output_warnings", "abandoned")  # of `RunOutcome`


@dataclass(frozen=True, slots=True)
class RecordedOutcomes:
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
    ) -> RecordedOutcomes:
        """Return those of an interrupt that was verified."""
        is_sealed = str(interrupt.continuation["encoding"]).startswith("sealed")
        return cls(options, auth, is_sealed, interrupt.outer_tool_call_id, keeps_output)

    def of_outcome(self, outcome: RunOutcome) -> str:
        """Write what a run came to."""
        output = self._output(outcome)
        if outcome.error is not None:
            return self.of_error(outcome.error, output)
        if outcome.rest is not None:
            calls = [[one.id, one.name, one.kind, one.status] for one in outcome.rest.pending]
            return self._written(f'{{"rest":{write_json([outcome.rest.reason, calls])}{output}}}', ())
        output += self._content_of(outcome) + (',"tagged":true' if outcome.is_tagged else "")
        return self.of_value(outcome.value if outcome.interrupt is None else outcome.interrupt, output)

    def of_value(self, value: Any, output: str = "") -> str:
        """Write a value, or the next interrupt."""
        if isinstance(value, Interrupt):
            plain, texts = _taken_apart(value)
            return self._written(f'{{"interrupt":{write_json(plain)}{output}}}', texts)
        return self._written(f'{{"value":{write_json(value)}{output}}}', ())

    def of_error(self, error: BaseException, output: str = "") -> str:
        """Write an error, with its recovery."""
        if not isinstance(error, CodeModeError):
            aborted = error.__cause__
            error = aborted if isinstance(aborted, CodeModeError) else CodeModeError("the resume failed")
        failure = {"name": type(error).__name__, "message": error.message, "code": error.code}
        recovery, texts = (None, ()) if error.recovery is None else _taken_apart(error.recovery)
        members = (
            f'"error":{write_json(failure)},"calls":{write_json(error.calls)},"details":{_details_json(error.details)}'
        )
        return self._written(f'{{{members},"recovery":{write_json(recovery)}{output}}}', texts)

    def _output(self, outcome: RunOutcome) -> str:
        """Return the members beside what a run came to, behind a comma; both are as bounded as the run itself."""
        if not self.keeps_output:
            return ""
        lines = [[line.invocation_id, line.level, line.text, line.written_at_ms] for line in outcome.console]
        said: dict[str, Any] = {name: list(getattr(outcome, name)) for name in _LISTS}
        if outcome.returned_nothing:
            said["nothing"] = [outcome.last_value, list(outcome.summaries)]
        if outcome.output:
            said["output"] = [[one.kind, one.value, one.level] for one in outcome.output]
        said |= {"console": lines, "began": None if outcome.trace is None else outcome.trace.started_at_ms}
        return "," + write_json(said)[1:-1]

    def _content_of(self, outcome: RunOutcome) -> str:
        """Return the content of a run, behind a comma: where a store has it by its ids alone."""
        contents = contents_of(outcome)
        if contents is None:
            return ""
        kept = [name for name, _ in contents.items() if name in contents.stored_names]
        carried = {name: part.size for name, part in contents.items() if name not in contents.stored_names}
        parts = parts_to_list(contents, carried) if sum(carried.values()) <= MAX_CARRIED_BYTES else []
        return f',"content":{write_json([contents.tag, contents.displayed_names, parts, kept])}'

    def replayed(self, text: str) -> RunOutcome:
        """Return the outcome that was recorded, what a store has of its content still ``left`` there.

        Raises `CodeModeProtocolError` when it cannot be read.
        """
        try:
            outcome, texts = self._read(text)
        except ValueError as error:
            raise CodeModeProtocolError("the recorded outcome of this continuation cannot be read") from error
        outer_id = self.outer_tool_call_id
        console = [_console_event(outer_id, *line) for line in outcome.get("console", ())]
        more: dict[str, Any] = {"is_replayed": True, "began_at_ms": outcome.get("began")}
        more |= {name: tuple(outcome.get(name, ())) for name in _LISTS}
        more["output"] = tuple(OutputItem(*one) for one in outcome.get("output", ()))
        if "rest" in outcome:
            reason, calls = outcome["rest"]
            rest = AtRest(reason, tuple(PendingCall(*one) for one in calls))
            return RunOutcome("resting", outer_id, console, rest=rest, **more)
        if "value" in outcome:
            more["ledger"] = _ledger_of(outcome.get("content"))
            more["is_tagged"] = outcome.get("tagged") is True
            if "nothing" in outcome:
                last_value, summaries = outcome["nothing"]
                more |= {"returned_nothing": True, "last_value": last_value, "summaries": tuple(summaries)}
            return RunOutcome("completed", outer_id, console, value=outcome["value"], **more)
        if "interrupt" in outcome:
            return RunOutcome(
                "interrupted", outer_id, console, interrupt=_put_together(outcome["interrupt"], texts), **more
            )
        return RunOutcome("failed", outer_id, console, error=_recorded_error(outcome, texts), **more)

    def _written(self, head: str, texts: Iterable[str]) -> str:
        text = "".join([head, "\n", *texts])
        return seal_text(text, self.options, self.auth) if self.is_sealed else text

    def _read(self, text: str) -> tuple[dict[str, Any], _Texts]:
        opened = open_text(text, self.options, self.auth) if self.is_sealed else text
        end = opened.find("\n") % (len(opened) + 1)  # to the end where no text follows
        outcome = decode_json(opened[:end], max_depth=MAX_DEPTH + _DEPTH_AROUND)
        return cast("dict[str, Any]", outcome), _Texts(opened, end + 1)


def _ledger_of(content: list[Any] | None) -> Ledger | None:
    if content is None:
        return None
    contents = read_contents(content[2]) or ContentRegistry()
    contents.tag, contents.displayed_names = content[0], content[1]
    contents.unloaded_ids = tuple(content[3]) if len(content) > 3 else ()  # of an earlier release
    return Ledger(contents=contents)


class _Texts:
    """Texts that stand one behind the other, taken by their lengths."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._at = start

    def take(self, lengths: list[int]) -> list[str]:
        taken: list[str] = []
        for length in lengths:
            taken.append(self._text[self._at : self._at + length])
            self._at += length
        return taken


def _taken_apart(interrupt: Resumable) -> tuple[dict[str, Any], list[str]]:
    """Return an interrupt with the lengths of its continuation's texts, and these."""
    plain = interrupt.to_dict()
    texts = cast("list[str]", interrupt.continuation["body"])
    return {**plain, "continuation": {**plain["continuation"], "body": [*map(len, texts)]}}, texts


def _put_together(plain: dict[str, Any], texts: _Texts) -> Interrupt:
    continuation = plain["continuation"]
    return Interrupt.from_dict({**plain, "continuation": {**continuation, "body": texts.take(continuation["body"])}})


def _details_json(details: Mapping[str, Any]) -> str:
    """Write each of the details for itself: that a tool has put there what no text holds costs the others nothing."""
    written = ((json.dumps(str(name)), _detail_json(value)) for name, value in details.items())
    return "{" + ",".join(f"{name}:{text}" for name, text in written if text is not None) + "}"


def _detail_json(value: Any) -> str | None:
    # Details are for people: what is not JSON is kept as text.
    for write in (_strictly, partial(encode_json, what="a detail"), _as_text):
        with suppress(Exception):  # a tool may raise an error with any details
            text = write(value)
            decode_json(text, max_depth=MAX_DEPTH + _DEPTH_AROUND - 2)  # it stands two levels deep
            return text
    return None


def _strictly(value: Any) -> str:
    return json.dumps(value, default=str, allow_nan=False)


def _as_text(value: Any) -> str:
    return json.dumps(str(value))


def _console_event(
    outer_tool_call_id: str, invocation_id: str, level: str, text: str, written_at_ms: float = 0.0
) -> ConsoleEvent:
    ids = {"invocation_id": invocation_id, "outer_tool_call_id": outer_tool_call_id}
    return ConsoleEvent(**ids, level=level, text=text, written_at_ms=written_at_ms)


def _recorded_error(outcome: Mapping[str, Any], texts: _Texts) -> CodeModeError:
    failure = outcome["error"]
    error = type(error_from_view(**failure))(failure["message"], code=failure["code"], details=outcome["details"])
    error.calls = tuple(outcome["calls"])
    if outcome["recovery"] is not None:
        error.recovery = _put_together(outcome["recovery"], texts)
    return error
