"""Encode and decode the lines of a journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from ..data.json_values import MAX_DEPTH, decode_json
from ..data.plain_json import create_encoder
from ..errors import CodeModeProtocolError
from .continuation import (
    REPLAY_VERSION,
    continuation_from_texts,
    continuation_to_texts,
    entry_from_dict,
    entry_to_dict,
    read_count,
    read_list,
    read_optional_positive_integer,
    read_positive_integer,
    read_text,
    validate_ledger,
)
from .events import CallSettled
from .guest_errors import read_error_fields
from .ledger import Fulfilled, Ledger, LedgerEntry, Rejected, Waiting
from .messages import REQUEST_KINDS, SourceLocation

# A line is a group: a JSON array of steps, followed by their long texts, whose lengths the steps have. Every prefix of
# the lines gives a ledger from which the invocation can continue: deliveries stand before what the program made of
# them.
#
# i (kind, name, bytes, location, input): the guest has issued the next request.
# b (id, approved, input): the tool itself starts, with this input if it was allowed.
# f (id, time, duration, displayed, value): the request is answered with a value, which is delivered next.
# e (id, time, duration, name, message, code, displayed, fields): the same with an error.
# w (id, time, interrupt id, attempt, displayed, payload, input): the request waits.
# u (id): an outcome was not delivered, because the guest had cleared that timer.
# n (count): the number of notices sent to listeners.
# r (key, answers): a resume with these answers continues from here.
# x (key, answers): it does not; the program continued with other answers.
# l (requests, deliveries, count): a snapshot that replaces all before it.

_dump_json = create_encoder()


class JournalStep(NamedTuple):
    """One step: plain JSON, and its long texts; None for an absent text."""

    values: tuple[Any, ...]
    texts: tuple[str | None, ...] = ()


ClaimRecord: TypeAlias = tuple[str, str]
"""The key of a resumed continuation and the digest of its answers."""


def make_request_step(entry: LedgerEntry) -> JournalStep:
    """Return the step for an issued request, the next in order."""
    return JournalStep(("i", entry.kind, entry.name, entry.input_bytes, entry.location), (entry.input_json,))


def make_tool_start_step(request_id: int, executed_input_json: str | None, *, is_approved: bool) -> JournalStep:
    """Return the step for a started tool."""
    return JournalStep(("b", request_id, is_approved), (executed_input_json,))


def make_outcome_step(event: CallSettled) -> JournalStep:
    """Return the step for the outcome of a request."""
    prefix = (event.id, event.now_ms)
    match event.outcome:
        case Fulfilled(value_json):
            return JournalStep(("f", *prefix, event.duration_us), (event.displayed_input_json, value_json))
        case Rejected(name, message, code, fields_json):
            return JournalStep(
                ("e", *prefix, event.duration_us, name, message, code), (event.displayed_input_json, fields_json)
            )
        case Waiting(interrupt_id, payload_json, input_json, attempt):
            return JournalStep(
                ("w", *prefix, interrupt_id, attempt), (event.displayed_input_json, payload_json, input_json)
            )


def make_undelivered_outcome_step(request_id: int) -> JournalStep:
    """Return the step for an outcome that was not delivered."""
    return JournalStep(("u", request_id))


def make_notification_count_step(count: int) -> JournalStep:
    """Return the step for the number of notices."""
    return JournalStep(("n", count))


def make_resume_step(claim: ClaimRecord) -> JournalStep:
    """Return the step for a resume with these answers."""
    return JournalStep(("r", *claim))


def make_resume_withdrawal_step(claim: ClaimRecord) -> JournalStep:
    """Return the step that withdraws a resume with these answers."""
    return JournalStep(("x", *claim))


def make_snapshot_step(ledger: Ledger) -> JournalStep:
    """Return the step that restates the whole ledger."""
    entries = [entry_to_dict(entry) for entry in ledger.entries]
    body: dict[str, Any] = {"replayVersion": REPLAY_VERSION, "js": "", "source": None, "given": None}
    body |= {"ledger": entries, "contents": []}
    texts = tuple(continuation_to_texts(body))
    return JournalStep(("l", len(texts), ledger.deliveries, ledger.notice_count), texts)


def encode_journal_line(steps: Iterable[JournalStep]) -> str:
    """Write one line."""
    rows: list[Any] = []
    texts: list[str] = []
    for values, step_texts in steps:
        row = [*values]
        for text in step_texts:
            if text is None:
                row.append(None)
            else:
                row.append(len(text))
                texts.append(text)
        rows.append(row)
    texts[:0] = [_dump_json(rows), "\n"]
    return "".join(texts)


class JournalContents(NamedTuple):
    """The content of lines: the ledger and its resumes.

    ``ended_ids`` are requests whose outcome was written by the run that started them, not by an answer.
    """

    ledger: Ledger
    claims: tuple[ClaimRecord, ...]
    ended_ids: frozenset[int]


def decode_journal_lines(lines: Sequence[str], outer_tool_call_id: str) -> JournalContents:
    """Decode lines. Raises `CodeModeProtocolError` for lines that no run can have written."""
    reader = _LedgerRebuilder(outer_tool_call_id)
    try:
        for line in lines:
            reader.apply_line(line)
    except CodeModeProtocolError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise CodeModeProtocolError("a line of the journal is malformed") from error
    validate_ledger(reader.ledger, outer_tool_call_id)
    return JournalContents(reader.ledger, tuple(reader.claims), frozenset(reader.ended_ids))


class _LedgerRebuilder:
    """Rebuilds a ledger from its steps."""

    def __init__(self, outer_tool_call_id: str) -> None:
        self.ledger = Ledger()
        self.claims: list[ClaimRecord] = []
        self.ended_ids = set[int]()
        self._started_ids = set[int]()  # since the last resume
        self._outer_id = outer_tool_call_id
        self._tools = 0
        self._line = ""
        self._offset = 0

    def apply_line(self, line: str) -> None:
        end = line.index("\n")
        self._line, self._offset = line, end + 1
        for values in read_list(decode_json(line[:end], max_depth=MAX_DEPTH)):
            self._apply_step(values)
        if self._offset != len(line):
            raise ValueError("cut off")

    def _apply_step(self, values: list[Any]) -> None:
        match values:
            case ["i", str(kind), str(name), size, location, text]:
                self._apply_issued_request(
                    kind, name, read_optional_positive_integer(size), _read_location(location), self._take_text(text)
                )
            case ["b", int(request_id), bool(is_approved), text]:
                self._require_unsettled_request(request_id)
                self.ledger.record_tool_start(request_id, self._take_text(text), is_approved=is_approved)
                self._started_ids.add(request_id)
            case ["f", int(request_id), int(now_ms), duration, displayed, value]:
                self._apply_outcome(
                    request_id,
                    now_ms,
                    self._take_text(displayed),
                    Fulfilled(self._take_text(value)),
                    _read_duration_us(duration),
                )
            case ["e", int(request_id), int(now_ms), duration, str(name), str(message), str(code), displayed, fields]:
                displayed_input_json, fields_json = self._take_text(displayed), self._take_text(fields)
                if fields_json is not None:
                    read_error_fields(fields_json)
                rejected = Rejected(name, message, code, fields_json)
                self._apply_outcome(request_id, now_ms, displayed_input_json, rejected, _read_duration_us(duration))
            case ["w", int(request_id), int(now_ms), str(interrupt_id), int(attempt), displayed, payload, text]:
                displayed_input_json, payload_json = self._take_text(displayed), self._take_text(payload) or ""
                waiting = Waiting(interrupt_id, payload_json, self._take_text(text), attempt)
                self._apply_outcome(request_id, now_ms, displayed_input_json, waiting)
            case ["u", int(request_id)]:
                self.ledger.deliveries.remove(request_id)
                entry = self.ledger[request_id]
                self.ledger.entries[request_id - 1] = entry._replace(outcome=None, now_ms=None, is_withdrawn=True)
            case ["n", int(count)]:
                self.ledger.notice_count = max(self.ledger.notice_count, count)
            case ["r", str(key), str(answers)]:
                self.claims.append((key, answers))
                self._started_ids.clear()
            case ["x", str(key), str(answers)]:
                self.claims.remove((key, answers))
            case ["l", int(count), _, int(notices), *lengths] if len(lengths) == count:
                texts = [self._take_text(length) or "" for length in lengths]
                self._apply_snapshot(
                    texts, [read_positive_integer(request_id) for request_id in read_list(values[2])], notices
                )
            case _:
                raise ValueError("no step")

    def _take_text(self, length: int | None) -> str | None:
        if length is None:
            return None
        end = self._offset + length
        if not self._offset <= end <= len(self._line):
            raise ValueError("cut off")
        text, self._offset = self._line[self._offset : end], end
        return text

    def _apply_issued_request(
        self, kind: str, name: str, size: int | None, location: SourceLocation | None, text: str | None
    ) -> None:
        if kind not in REQUEST_KINDS:
            raise ValueError("no request")
        self._append_entry(
            LedgerEntry(len(self.ledger.entries) + 1, cast("Any", kind), name, text, size, location=location)
        )

    def _append_entry(self, entry: LedgerEntry) -> None:
        if entry.kind == "tool":
            self._tools += 1
            entry = entry._replace(tool_call_id=f"{self._outer_id}:tool-{self._tools}")
        self.ledger.entries.append(entry)

    def _apply_outcome(
        self, request_id: int, now_ms: int, displayed_json: str | None, outcome: Any, duration_us: int | None = None
    ) -> None:
        self._require_unsettled_request(request_id)
        self.ledger.record_outcome(request_id, outcome, now_ms, displayed_json, duration_us)
        if not isinstance(outcome, Waiting):
            self.ledger.deliveries.append(request_id)
            if request_id in self._started_ids:
                self.ended_ids.add(request_id)

    def _require_unsettled_request(self, request_id: int) -> None:
        if request_id not in self.ledger or isinstance(self.ledger[request_id].outcome, Fulfilled | Rejected):
            raise ValueError("no request that is open")

    def _apply_snapshot(self, texts: list[str], deliveries: list[int], notices: int) -> None:
        self.ledger = Ledger(deliveries=deliveries, notice_count=notices)
        self._tools = 0
        self._started_ids.clear()
        for position, plain in enumerate(continuation_from_texts(texts)["ledger"], 1):
            self._append_entry(entry_from_dict(plain, position))


def _read_duration_us(value: object) -> int | None:
    return None if value is None else read_count(value)


def _read_location(value: object) -> SourceLocation | None:
    if value is None:
        return None
    line, column, *program = read_list(value)
    location = read_positive_integer(line), read_positive_integer(column)
    return (*location, read_text(program[0])) if program else location
