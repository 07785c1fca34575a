"""Entries of a journal: what one group of writes says, encoded and decoded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from ..data.json_values import MAX_DEPTH, decode_json
from ..data.plain_json import plain_encoder
from ..errors import CodeModeProtocolError
from .continuation import (
    REPLAY_VERSION,
    body_of,
    check_ledger,
    entry_from_dict,
    entry_to_dict,
    read_count,
    read_items,
    read_optional_positive,
    read_positive,
    read_text,
    texts_of,
)
from .events import CallSettled
from .guest_errors import read_fields
from .ledger import Fulfilled, Ledger, LedgerEntry, Rejected, Waiting
from .messages import REQUEST_KINDS, Place

# A line is a group: a JSON array of steps, and behind it the long texts of them as they are, each of a length that its
# step names. Any beginning of the lines gives a ledger from which the invocation can go on: what a program was handed
# stands before whatever it made of it.
#
#     step                                        what has happened
#     ------------------------------------------  ----------------------------------------------------------------
#     i  kind, name, bytes, place, input          the guest has issued the next request
#     b  id, approved, input                      the tool itself is about to run, with this input if it was allowed
#     f  id, time, lasted, shown, value           the request is answered with a value, and the guest is handed it next
#     e  id, time, lasted, name, message, code,   the same with an error
#        shown, fields
#     w  id, time, id of the pause, attempt,      the request waits for somebody
#        shown, payload, input
#     u  id                                       what was to be handed over was not: the guest had cleared that timer
#     n  count                                    so much has the program told its listeners
#     r  key, answers                             whoever resumes with these answers goes on from here
#     x  key, answers                             it does not: the program has gone on with other answers
#     l  requests, deliveries, count              all before this is as if this had been it

_write = plain_encoder()


class Step(NamedTuple):
    """One step: plain JSON, and the long texts behind it; None stands for none."""

    said: tuple[Any, ...]
    texts: tuple[str | None, ...] = ()


Claimed: TypeAlias = tuple[str, str]
"""The key of a continuation that was resumed, and the digest of the answers."""


def issued(entry: LedgerEntry) -> Step:
    """Say that the guest has issued a request, the next in order."""
    return Step(("i", entry.kind, entry.name, entry.input_bytes, entry.place), (entry.input_json,))


def begun(request_id: int, executed_input_json: str | None, *, is_approved: bool) -> Step:
    """Say that a tool is about to run."""
    return Step(("b", request_id, is_approved), (executed_input_json,))


def settled(event: CallSettled) -> Step:
    """Say how a request has ended."""
    at = (event.id, event.now_ms)
    match event.outcome:
        case Fulfilled(value_json):
            return Step(("f", *at, event.lasted_us), (event.shown_json, value_json))
        case Rejected(name, message, code, fields_json):
            return Step(("e", *at, event.lasted_us, name, message, code), (event.shown_json, fields_json))
        case Waiting(interrupt_id, payload_json, input_json, attempt):
            return Step(("w", *at, interrupt_id, attempt), (event.shown_json, payload_json, input_json))


def not_handed(request_id: int) -> Step:
    """Say that an outcome was not handed over."""
    return Step(("u", request_id))


def noticed(count: int) -> Step:
    """Say how much the program has told its listeners."""
    return Step(("n", count))


def resumed(claim: Claimed) -> Step:
    """Say with which answers the program goes on."""
    return Step(("r", *claim))


def refused(claim: Claimed) -> Step:
    """Say that the program does not go on with these answers, as was said before."""
    return Step(("x", *claim))


def from_here(ledger: Ledger) -> Step:
    """Say that this is all that has happened."""
    plain = [entry_to_dict(entry) for entry in ledger.entries]
    body: dict[str, Any] = {"replayVersion": REPLAY_VERSION, "js": "", "source": None, "given": None}
    body |= {"ledger": plain, "contents": []}
    texts = tuple(texts_of(body))
    return Step(("l", len(texts), ledger.deliveries, ledger.notices), texts)


def line_of(steps: Iterable[Step]) -> str:
    """Write one line."""
    said: list[Any] = []
    texts: list[str] = []
    for words, step_texts in steps:
        one = [*words]
        for text in step_texts:
            if text is None:
                one.append(None)
            else:
                one.append(len(text))
                texts.append(text)
        said.append(one)
    texts[:0] = [_write(said), "\n"]
    return "".join(texts)


class Written(NamedTuple):
    """What lines have said: the ledger, and who has resumed.

    ``ended`` are the requests whose outcome was written by the run that began them: no answer has given it.
    """

    ledger: Ledger
    claims: tuple[Claimed, ...]
    ended: frozenset[int]


def read_lines(lines: Sequence[str], outer_tool_call_id: str) -> Written:
    """Return what lines say. Raises `CodeModeProtocolError` for those that no run can have written."""
    reading = _Reading(outer_tool_call_id)
    try:
        for line in lines:
            reading.take(line)
    except CodeModeProtocolError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise CodeModeProtocolError("a line of the journal is malformed") from error
    check_ledger(reading.ledger, outer_tool_call_id)
    return Written(reading.ledger, tuple(reading.claims), frozenset(reading.ended))


class _Reading:
    """A ledger that grows as the one that was written down did."""

    def __init__(self, outer_tool_call_id: str) -> None:
        self.ledger = Ledger()
        self.claims: list[Claimed] = []
        self.ended = set[int]()
        self._begun = set[int]()  # since somebody resumed last
        self._outer_id = outer_tool_call_id
        self._tools = 0
        self._line = ""
        self._at = 0

    def take(self, line: str) -> None:
        end = line.index("\n")
        self._line, self._at = line, end + 1
        for said in read_items(decode_json(line[:end], max_depth=MAX_DEPTH)):
            self._step(said)
        if self._at != len(line):
            raise ValueError("cut off")

    def _step(self, said: list[Any]) -> None:
        match said:
            case ["i", str(kind), str(name), size, place, text]:
                self._issued(kind, name, read_optional_positive(size), _place(place), self._text(text))
            case ["b", int(request_id), bool(is_approved), text]:
                self._known(request_id)
                self.ledger.start(request_id, self._text(text), is_approved=is_approved)
                self._begun.add(request_id)
            case ["f", int(request_id), int(now_ms), lasted, shown, value]:
                self._settled(request_id, now_ms, self._text(shown), Fulfilled(self._text(value)), _lasted(lasted))
            case ["e", int(request_id), int(now_ms), lasted, str(name), str(message), str(code), shown, fields]:
                shown_json, fields_json = self._text(shown), self._text(fields)
                if fields_json is not None:
                    read_fields(fields_json)
                rejected = Rejected(name, message, code, fields_json)
                self._settled(request_id, now_ms, shown_json, rejected, _lasted(lasted))
            case ["w", int(request_id), int(now_ms), str(interrupt_id), int(attempt), shown, payload, text]:
                shown_json, payload_json = self._text(shown), self._text(payload) or ""
                waiting = Waiting(interrupt_id, payload_json, self._text(text), attempt)
                self._settled(request_id, now_ms, shown_json, waiting)
            case ["u", int(request_id)]:
                self.ledger.deliveries.remove(request_id)
                was = self.ledger[request_id]
                self.ledger.entries[request_id - 1] = was._replace(outcome=None, now_ms=None, is_withdrawn=True)
            case ["n", int(count)]:
                self.ledger.notices = max(self.ledger.notices, count)
            case ["r", str(key), str(answers)]:
                self.claims.append((key, answers))
                self._begun.clear()
            case ["x", str(key), str(answers)]:
                self.claims.remove((key, answers))
            case ["l", int(count), _, int(notices), *lengths] if len(lengths) == count:
                texts = [self._text(length) or "" for length in lengths]
                self._from_here(texts, [read_positive(one) for one in read_items(said[2])], notices)
            case _:
                raise ValueError("no step")

    def _text(self, length: int | None) -> str | None:
        if length is None:
            return None
        end = self._at + length
        if not self._at <= end <= len(self._line):
            raise ValueError("cut off")
        text, self._at = self._line[self._at : end], end
        return text

    def _issued(self, kind: str, name: str, size: int | None, place: Place | None, text: str | None) -> None:
        if kind not in REQUEST_KINDS:
            raise ValueError("no request")
        self._add(LedgerEntry(len(self.ledger.entries) + 1, cast("Any", kind), name, text, size, place=place))

    def _add(self, entry: LedgerEntry) -> None:
        if entry.kind == "tool":
            self._tools += 1
            entry = entry._replace(tool_call_id=f"{self._outer_id}:tool-{self._tools}")
        self.ledger.entries.append(entry)

    def _settled(
        self, request_id: int, now_ms: int, shown: str | None, outcome: Any, lasted_us: int | None = None
    ) -> None:
        self._known(request_id)
        self.ledger.settle(request_id, outcome, now_ms, shown, lasted_us)
        if not isinstance(outcome, Waiting):
            self.ledger.deliveries.append(request_id)
            if request_id in self._begun:
                self.ended.add(request_id)

    def _known(self, request_id: int) -> None:
        if request_id not in self.ledger or isinstance(self.ledger[request_id].outcome, Fulfilled | Rejected):
            raise ValueError("no request that is open")

    def _from_here(self, texts: list[str], deliveries: list[int], notices: int) -> None:
        self.ledger = Ledger(deliveries=deliveries, notices=notices)
        self._tools = 0
        self._begun.clear()
        for position, plain in enumerate(body_of(texts)["ledger"], 1):
            self._add(entry_from_dict(plain, position))


def _lasted(value: object) -> int | None:
    return None if value is None else read_count(value)


def _place(value: object) -> Place | None:
    if value is None:
        return None
    line, column, *program = read_items(value)
    place = read_positive(line), read_positive(column)
    return (*place, read_text(program[0])) if program else place
