"""Hold the outcome of a run, and encode it for guards and journals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from ..continuations.sealing import seal_text_for_continuation, unseal_text_for_continuation
from ..continuations.signing import SignatureInfo
from ..data.content import ContentResult, resolve_content_references
from ..data.json_shape import estimate_json_length
from ..data.json_values import MAX_DEPTH, decode_json, encode_json
from ..data.narrowing import is_object
from ..data.plain_json import encode_strict_json
from ..errors import (
    CUT_OFF_ERRORS,
    CallSummary,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    Resumable,
    error_from_guest_fields,
)
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..interrupts.interrupt import Interrupt
from ..options.parts import ContinuationOptions
from ..protocol.call_status import get_displayed_call_id, summarize_calls
from ..protocol.continuation import encode_content_parts, read_content_parts
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
    """Output of a program: "text", "json", "content", or a console line with its ``level``."""

    kind: Literal["text", "json", "content", "console"]
    value: Any
    level: str = ""


@record
class PendingCall:
    """A call of a suspended program that runs or waits for a person."""

    id: str
    name: str
    kind: RequestKind
    status: Literal["running", "waiting"]


def list_pending_calls(entries: Iterable[LedgerEntry]) -> tuple[PendingCall, ...]:
    """Return the calls to tools and fetch without an answer, in issue order."""
    return tuple(
        PendingCall(
            get_displayed_call_id(entry),
            entry.name,
            entry.kind,
            "waiting" if isinstance(entry.outcome, Waiting) else "running",
        )
        for entry in entries
        if entry.kind not in ("catalog", *UNREPORTED_KINDS) and (entry.is_open or isinstance(entry.outcome, Waiting))
    )


class SuspendedRun(Protocol):
    """Continues a suspended program; implemented by `SuspendableExecution`.

    ``on_change`` is called on the run's own loop if an outcome arrives or the run ends while suspended.
    """

    on_change: Callable[[], None]

    @property
    def has_started(self) -> bool:
        """True once `abort` ends it; before that, cancel its start."""
        ...

    @property
    def is_suspended(self) -> bool:
        """True while it can be continued."""
        ...

    @property
    def is_warm(self) -> bool:
        """True while it holds a worker and a slot."""
        ...

    @property
    def has_pending_deliveries(self) -> bool:
        """True if it is suspended and has outcomes to deliver."""
        ...

    @property
    def is_event_loop_closed(self) -> bool:
        """True once the event loop of its start, which runs its calls, is closed."""
        ...

    @property
    def size_bytes(self) -> int:
        """The bytes of program, invocation data, ledger and output that no caller has taken."""
        ...

    @property
    def pending_calls(self) -> tuple[PendingCall, ...]:
        """The calls that run or wait for a person."""
        ...

    async def continue_run(self, wait_ms: int | None = None) -> RunOutcome:
        """Continue it and return its next outcome, which may be another suspension."""
        ...

    def release_worker(self) -> None:
        """Release worker and slot; the result stays the same."""
        ...

    async def abort(self, reason: str = ...) -> RunOutcome:
        """End it, with its calls."""
        ...

    async def store_content_and_sign_interrupt(self) -> Interrupt:
        """Return it as an interrupt, in which the outcome of running calls is unknown."""
        ...


def replace_outcome_fields(outcome: RunOutcome, **changes: Any) -> RunOutcome:
    """Return an outcome with some fields changed."""
    fields = {name: getattr(outcome, name) for name in RunOutcome.__match_args__ if name != "trace"}
    return RunOutcome(**{"trace": get_stored_value(outcome, "trace"), **fields, **changes})


@record
class Suspension:
    """Why a program is suspended, its pending calls, and ``run`` to continue it; None in a recorded outcome.

    ``output_bytes`` counts its output since the last suspension.
    """

    reason: SuspensionReason
    pending_calls: Sequence[PendingCall]
    run: SuspendedRun | None = None
    output_bytes: int = 0


@with_lazy_fields("trace")
@record
class RunOutcome:
    """The outcome of a run: by ``status`` a ``value`` (None for undefined), an ``interrupt`` or an ``error``.

    A "resting" program is continued with ``suspension``. ``output`` is what the program wrote since its last
    outcome. ``trace`` is set if the outer call asks for one, if a hook listens, and after every pause or failure of
    a program that started. ``warnings`` name cut parts of the value and problems before the run,
    ``output_warnings`` the outputs of tools that were passed on though they violate their schemas. A recorded
    outcome is ``is_replayed``: it has no trace, calls only with an error, and console lines only if the profile
    cuts results. ``ended_calls`` are the recorded calls of tools and fetch. ``abandoned`` are the calls that the
    program did not await, each with id, kind, name and status: pending, waiting, not sent, or failed.
    ``unhandled_failures`` are the summaries of the failed ones, whose errors the program did not handle.
    ``began_at_ms`` is the start of a recorded run. ``result_bytes`` counts the JSON of the result, if known.
    ``returned_nothing`` distinguishes undefined from null; ``last_value`` is then the value of the last statement
    as text, if it is an expression. ``summaries`` describe the calls, with texts where they are used.
    ``is_tagged``: the value has tags for dates, bytes and sets.
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
    unhandled_failures: tuple[CallSummary, ...] = ()
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
        """Summaries of the calls, as in `CodeModeError.calls`."""
        if self.error is not None:
            return self.error.calls
        if self.summaries:
            return self.summaries
        return () if self.ledger is None else summarize_calls(self.ledger.entries)


def is_repeatable_error(error: BaseException) -> bool:
    """Return True for an error that the same program would raise again."""
    return isinstance(error, CodeModeError) and not isinstance(error, (*CUT_OFF_ERRORS, CodeModeProtocolError))


def get_outcome_contents(outcome: RunOutcome) -> ContentRegistry | None:
    """Return the content that the program received, or None."""
    contents = None if outcome.ledger is None else outcome.ledger.contents
    return contents if contents is not None and len(contents) else None


def to_value_with_media(outcome: RunOutcome) -> Any:
    """Return the value of a run with `MediaContent` in place of handles; a `ContentResult` if it displayed some."""
    contents, value = get_outcome_contents(outcome), outcome.value
    if contents is None or isinstance(value, ContentResult):
        return value
    try:
        value = resolve_content_references(value, contents)
    except CodeModeSerializationError:  # the content of a recorded outcome is gone: keep the description
        return value
    displayed = tuple(contents.get(part_id) for part_id in contents.displayed_names if part_id in contents)
    return ContentResult(value, displayed) if displayed else value


async def to_value_with_descriptions(outcome: RunOutcome) -> Any:
    """Return the value of a run with descriptions in place of handles, for results that outlive the content."""
    contents = get_outcome_contents(outcome)
    if contents is None:
        return outcome.value
    with suppress(CodeModeSerializationError):  # as above
        size = estimate_json_length(outcome.value, LARGE_CHARACTERS)
        return await run_in_thread_if_large_or_slow(
            size, lambda: resolve_content_references(outcome.value, contents, lambda part: part.description)
        )
    return outcome.value


def replace_handles_with_media(result: Any, outcome: RunOutcome) -> Any:
    """Return the model's result, plain JSON or an interrupt, with `MediaContent` in place of handles."""
    contents = get_outcome_contents(outcome)
    if contents is None or not is_object(result):
        return result
    try:
        return resolve_content_references(result, contents)
    except CodeModeSerializationError:  # as above
        return result


# A line of JSON, followed by the texts of a continuation as they are: escaping and parsing them would cost as much as
# they are long.

_EXTRA_DEPTH = 8  # of a value in an interrupt in an outcome
_LIST_FIELDS = ("warnings", "output_warnings", "abandoned", "unhandled_failures")  # of `RunOutcome`


@dataclass(frozen=True, slots=True)
class OutcomeCodec:
    """Encodes and decodes outcomes of the resumes of one continuation, signed with ``auth``.

    ``keeps_output``: include console lines, warnings about cut values, and abandoned calls.
    """

    options: ContinuationOptions
    auth: SignatureInfo
    is_sealed: bool
    outer_tool_call_id: str
    keeps_output: bool = False

    @classmethod
    def for_interrupt(
        cls, interrupt: Interrupt, auth: SignatureInfo, options: ContinuationOptions, *, keeps_output: bool = False
    ) -> OutcomeCodec:
        """Return the codec of a verified interrupt."""
        is_sealed = str(interrupt.continuation["encoding"]).startswith("sealed")
        return cls(options, auth, is_sealed, interrupt.outer_tool_call_id, keeps_output)

    def encode_outcome(self, outcome: RunOutcome) -> str:
        """Encode an outcome."""
        output = self._encode_output_members(outcome)
        if outcome.error is not None:
            return self.encode_error(outcome.error, output)
        if outcome.suspension is not None:
            calls = [[call.id, call.name, call.kind, call.status] for call in outcome.suspension.pending_calls]
            return self._join_and_seal(
                f'{{"rest":{encode_strict_json([outcome.suspension.reason, calls])}{output}}}', ()
            )
        output += self._encode_content_member(outcome) + (',"tagged":true' if outcome.is_tagged else "")
        return self.encode_value(outcome.value if outcome.interrupt is None else outcome.interrupt, output)

    def encode_value(self, value: Any, output: str = "") -> str:
        """Write a value, or the next interrupt."""
        if isinstance(value, Interrupt):
            plain, texts = _split_interrupt(value)
            return self._join_and_seal(f'{{"interrupt":{encode_strict_json(plain)}{output}}}', texts)
        return self._join_and_seal(f'{{"value":{encode_strict_json(value)}{output}}}', ())

    def encode_error(self, error: BaseException, output: str = "") -> str:
        """Write an error, with its recovery."""
        if not isinstance(error, CodeModeError):
            aborted = error.__cause__
            error = aborted if isinstance(aborted, CodeModeError) else CodeModeError("the resume failed")
        failure = {"name": type(error).__name__, "message": error.message, "code": error.code}
        recovery, texts = (None, ()) if error.recovery is None else _split_interrupt(error.recovery)
        details = _encode_details(error.details)
        members = f'"error":{encode_strict_json(failure)},"calls":{encode_strict_json(error.calls)},"details":{details}'
        return self._join_and_seal(f'{{{members},"recovery":{encode_strict_json(recovery)}{output}}}', texts)

    def _encode_output_members(self, outcome: RunOutcome) -> str:
        """Return further members of the encoded outcome, after a comma; they are as bounded as the run."""
        if not self.keeps_output:
            return ""
        lines = [[line.invocation_id, line.level, line.text, line.written_at_ms] for line in outcome.console]
        members: dict[str, Any] = {name: list(getattr(outcome, name)) for name in _LIST_FIELDS}
        if outcome.returned_nothing:
            members["nothing"] = [outcome.last_value, list(outcome.summaries)]
        if outcome.output:
            members["output"] = [[item.kind, item.value, item.level] for item in outcome.output]
        members |= {"console": lines, "began": None if outcome.trace is None else outcome.trace.started_at_ms}
        return "," + encode_strict_json(members)[1:-1]

    def _encode_content_member(self, outcome: RunOutcome) -> str:
        """Return the content of a run, after a comma; only ids if a store has it."""
        contents = get_outcome_contents(outcome)
        if contents is None:
            return ""
        stored = [name for name, _ in contents.items() if name in contents.stored_names]
        carried = {name: part.size for name, part in contents.items() if name not in contents.stored_names}
        parts = encode_content_parts(contents, carried) if sum(carried.values()) <= MAX_CARRIED_BYTES else []
        return f',"content":{encode_strict_json([contents.reference_key, contents.displayed_names, parts, stored])}'

    def decode_outcome(self, text: str) -> RunOutcome:
        """Return the recorded outcome; content in a store is not loaded.

        Raises `CodeModeProtocolError` if it cannot be read.
        """
        try:
            outcome, texts = self._open_and_parse(text)
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
            fields["ledger"] = _decode_content_ledger(outcome.get("content"))
            fields["is_tagged"] = outcome.get("tagged") is True
            if "nothing" in outcome:
                last_value, summaries = outcome["nothing"]
                fields |= {"returned_nothing": True, "last_value": last_value, "summaries": tuple(summaries)}
            return RunOutcome("completed", outer_id, console, value=outcome["value"], **fields)
        if "interrupt" in outcome:
            return RunOutcome(
                "interrupted", outer_id, console, interrupt=_join_interrupt(outcome["interrupt"], texts), **fields
            )
        return RunOutcome("failed", outer_id, console, error=_decode_error(outcome, texts), **fields)

    def _join_and_seal(self, head: str, texts: Iterable[str]) -> str:
        text = "".join([head, "\n", *texts])
        return seal_text_for_continuation(text, self.options, self.auth) if self.is_sealed else text

    def _open_and_parse(self, text: str) -> tuple[dict[str, Any], _TextReader]:
        opened = unseal_text_for_continuation(text, self.options, self.auth) if self.is_sealed else text
        end = opened.find("\n") % (len(opened) + 1)  # to the end if no text follows
        outcome = decode_json(opened[:end], max_depth=MAX_DEPTH + _EXTRA_DEPTH)
        return cast("dict[str, Any]", outcome), _TextReader(opened, end + 1)


def _decode_content_ledger(content: list[Any] | None) -> Ledger | None:
    if content is None:
        return None
    contents = read_content_parts(content[2]) or ContentRegistry()
    contents.reference_key, contents.displayed_names = content[0], content[1]
    contents.unloaded_ids = tuple(content[3]) if len(content) > 3 else ()  # of an earlier release
    return Ledger(contents=contents)


class _TextReader:
    """Reads texts that follow each other, by their lengths."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._offset = start

    def take_texts(self, lengths: list[int]) -> list[str]:
        texts: list[str] = []
        for length in lengths:
            texts.append(self._text[self._offset : self._offset + length])
            self._offset += length
        return texts


def _split_interrupt(interrupt: Resumable) -> tuple[dict[str, Any], list[str]]:
    """Return an interrupt with the lengths of its continuation's texts, and those texts."""
    plain = interrupt.to_dict()
    texts = cast("list[str]", interrupt.continuation["body"])
    return {**plain, "continuation": {**plain["continuation"], "body": [*map(len, texts)]}}, texts


def _join_interrupt(plain: dict[str, Any], texts: _TextReader) -> Interrupt:
    continuation = plain["continuation"]
    return Interrupt.from_dict(
        {**plain, "continuation": {**continuation, "body": texts.take_texts(continuation["body"])}}
    )


def _encode_details(details: Mapping[str, Any]) -> str:
    """Encode each detail separately: one that is not JSON does not cost the others."""
    written = ((json.dumps(str(name)), _encode_detail(value)) for name, value in details.items())
    return "{" + ",".join(f"{name}:{text}" for name, text in written if text is not None) + "}"


def _encode_detail(value: Any) -> str | None:
    # Details are for people: a value that is not JSON becomes text.
    for write in (_encode_with_str_fallback, partial(encode_json, what="a detail"), _encode_as_text):
        with suppress(Exception):  # a tool may raise an error with any details
            text = write(value)
            decode_json(text, max_depth=MAX_DEPTH + _EXTRA_DEPTH - 2)  # two levels deep
            return text
    return None


def _encode_with_str_fallback(value: Any) -> str:
    return json.dumps(value, default=str, allow_nan=False)


def _encode_as_text(value: Any) -> str:
    return json.dumps(str(value))


def _make_console_event(
    outer_tool_call_id: str, invocation_id: str, level: str, text: str, written_at_ms: float = 0.0
) -> ConsoleEvent:
    ids = {"invocation_id": invocation_id, "outer_tool_call_id": outer_tool_call_id}
    return ConsoleEvent(**ids, level=level, text=text, written_at_ms=written_at_ms)


def _decode_error(outcome: Mapping[str, Any], texts: _TextReader) -> CodeModeError:
    failure = outcome["error"]
    error = type(error_from_guest_fields(**failure))(
        failure["message"], code=failure["code"], details=outcome["details"]
    )
    error.calls = tuple(outcome["calls"])
    if outcome["recovery"] is not None:
        error.recovery = _join_interrupt(outcome["recovery"], texts)
    return error
