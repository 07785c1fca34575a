"""Record the requests of an invocation and their outcomes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from ..data.json_values import count_utf8_bytes, decode_json
from ..data.large_strings import may_have_references
from ..records import record
from .messages import CallRequested, DeliverError, DeliverValue, RequestKind, SourceLocation

if TYPE_CHECKING:
    from ..data.large_strings import LargeStrings
    from .references import ContentRegistry, LargeStringRegistry


_MAX_COMPARED_CHARACTERS = 1 << 18  # a few milliseconds of the event loop
_STRING_OR_FRACTION = re.compile(r'"(?:[^"\\]|\\.)*"|[0-9]+(?:\.[0-9]+(?:e[+-]?[0-9]+)?|e[+-]?[0-9]+)')


def are_inputs_equal(recorded: str | None, current: str | None) -> bool:
    """Compare two inputs. The host and the engine may write the same number with other digits."""
    if recorded == current or recorded is None or current is None:
        return recorded == current
    if max(len(recorded), len(current)) > _MAX_COMPARED_CHARACTERS:
        return False
    first, second = (_STRING_OR_FRACTION.sub(_normalize_number, text) for text in (recorded, current))
    return first == second


def _normalize_number(match: re.Match[str]) -> str:
    text = match[0]
    return text if text.startswith('"') else repr(float(text))


# Two orders matter and both are kept. Requests are in the order in which the guest's code issued them. ``deliveries``
# is the order of delivered outcomes, which the outside world decided: a replay delivers in exactly that order, so that
# races, interleaved branches, the clock and the limits are the same.

INTERNAL_KINDS = ("timer", "yield")
"""Kinds of requests that are not calls and are omitted where calls are listed."""

UNREPORTED_KINDS = (*INTERNAL_KINDS, "state")
"""Kinds of requests that are not reported as calls; state requests still count as calls."""

_MAX_MEASURED_CHARACTERS = 1 << 14
_DIGEST_CHARACTERS = 16
_HEXADECIMAL = frozenset("0123456789abcdef")
_WaitReason: TypeAlias = Literal["interrupt", "unknown"]


@record
class Fulfilled:
    """The request was answered with a JSON text; None is undefined.

    ``large`` are its strings that the guest gets as references; they are derived from the text.
    """

    value_json: str | None
    large: LargeStrings | None = None


@record
class Rejected:
    """The request was answered with an error: exactly what the guest may see of it.

    ``fields_json`` is the JSON text of the surface's public fields: the guest then sees only these; name and code
    are the host's.
    """

    name: str
    message: str
    code: str
    fields_json: str | None = None


@record
class Waiting:
    """The request waits for an answer from outside.

    ``payload_json`` has the ``kind`` of the request; ``input_json`` is the validated input that was displayed.
    ``attempt`` counts its waits, from 1.
    """

    interrupt_id: str
    payload_json: str
    input_json: str | None
    attempt: int


Outcome: TypeAlias = Fulfilled | Rejected | Waiting


class LedgerEntry(NamedTuple):
    """One bridge request. ``id`` counts from 1 in issue order; ``input_json`` is the text that the guest issued.

    A named tuple, because each call makes three of them in a fifth of the time of a frozen dataclass. ``location``
    is line and column of the call, if approvals need it, and the name of its saved program; replays ignore it.

    ``outcome`` None: the outcome is unknown; ``is_started``: the tool itself may have started. ``is_approved``: a
    person has allowed it and is not asked again. ``executed_input_json`` is the validated, possibly edited input
    that a person allowed, that a repeated call ran with, or that may be displayed of a refused call; None: the
    issued input. ``now_ms`` is the host time delivered with the outcome. ``waits`` counts past waits of a request
    without outcome. ``sidecar`` has the large strings referenced in ``input_json``. ``is_withdrawn``: the guest
    cleared this timer before it fired, so that it never has an outcome. ``duration_us`` is the duration of the call
    in microseconds, for display; replays ignore it.
    """

    id: int
    kind: RequestKind
    name: str
    input_json: str | None
    input_bytes: int | None = None
    tool_call_id: str | None = None
    location: SourceLocation | None = None
    outcome: Outcome | None = None
    executed_input_json: str | None = None
    now_ms: int | None = None
    is_approved: bool = False
    is_started: bool = False
    waits: int = 0
    sidecar: LargeStringRegistry | None = None
    is_withdrawn: bool = False
    duration_us: int | None = None

    @property
    def is_open(self) -> bool:
        """True while an outcome is outstanding."""
        return self.outcome is None and not self.is_withdrawn

    @property
    def wait_count_including_current(self) -> int:
        """How often the request has waited, including the current wait."""
        return self.outcome.attempt if isinstance(self.outcome, Waiting) else self.waits

    def decode_full_input(self) -> Any:
        """Decode the issued input with its large strings. Raises as `LargeStringRegistry.decode_json_with_strings`."""
        text = self.input_json or "null"
        return (
            decode_json(text)
            if self.sidecar is None
            else self.sidecar.decode_json_with_strings(text, self._input_label)
        )

    @property
    def full_input_json(self) -> str | None:
        """The issued input with its large strings."""
        text = self.input_json
        return (
            text
            if text is None or self.sidecar is None
            else self.sidecar.expand_string_references(text, self._input_label)
        )

    @property
    def full_input_bytes(self) -> int:
        """The UTF-8 bytes of the full input; for a long text those that the guest sent, to spare the loop."""
        text = self.input_json
        if self.input_bytes is not None or text is None:
            return self.input_bytes or 0
        is_short = self.sidecar is not None and len(text) <= _MAX_MEASURED_CHARACTERS
        return (
            self.sidecar.measure_restored_bytes(text)
            if is_short and self.sidecar is not None
            else count_utf8_bytes(text)
        )

    @property
    def _input_label(self) -> str:
        return f"the input of tool {self.name!r}"

    def matches_request(self, request: CallRequested) -> bool:
        """Return True if a replaying guest issued exactly this request."""
        is_same_call = (self.kind, self.name, self.input_bytes) == (request.kind, request.name, request.input_bytes)
        return is_same_call and are_inputs_equal(self.input_json, request.input_json)

    def make_delivery_message(self) -> DeliverValue | DeliverError:
        """Return the message that delivers the outcome."""
        outcome, now_ms = self.outcome, self.now_ms or 0
        if isinstance(outcome, Fulfilled):
            return DeliverValue(self.id, now_ms, outcome.value_json, outcome.large)
        if isinstance(outcome, Rejected):
            return DeliverError(self.id, now_ms, outcome.name, outcome.message, outcome.code, outcome.fields_json)
        raise ValueError(f"request {self.id} has no outcome to deliver")


def get_displayed_input_json(entry: LedgerEntry) -> str | None:
    """Return the JSON text of the input that was allowed or displayed; None if there was no decision yet."""
    if entry.executed_input_json is None and isinstance(entry.outcome, Waiting):
        return entry.outcome.input_json
    return entry.executed_input_json


class ProgramProgress(NamedTuple):
    """The cumulative progress of a suspendable program, except its calls.

    ``output_count`` counts delivered items and lines; ``compute_ms`` is its compute time; ``turn_count`` counts
    turns, which a replay repeats.
    """

    output_count: int = 0
    compute_ms: int = 0
    turn_count: int = 0


_NO_PROGRESS = ProgramProgress()


@dataclass(slots=True)
class Ledger:
    """All requests of an invocation in issue order, and the order of delivered outcomes.

    ``notice_count`` counts notices sent to listeners, which are not repeated. ``contents`` are images, audio and
    files of the program.
    """

    entries: list[LedgerEntry] = field(default_factory=list[LedgerEntry])
    deliveries: list[int] = field(default_factory=list[int])
    notice_count: int = 0
    sidecar: LargeStringRegistry | None = None
    progress: ProgramProgress = _NO_PROGRESS
    contents: ContentRegistry | None = None

    def __getitem__(self, request_id: int) -> LedgerEntry:
        return self.entries[request_id - 1]

    def __contains__(self, request_id: int) -> bool:
        return 1 <= request_id <= len(self.entries)

    def record_tool_start(self, request_id: int, executed_input_json: str | None, *, is_approved: bool) -> LedgerEntry:
        """Record that the tool itself starts, and return the new entry.

        The outcome is unknown until it is settled.
        """
        previous = self.entries[request_id - 1]  # the first seven fields are the request
        waits = previous.waits if previous.outcome is None else previous.wait_count_including_current
        rest = previous.now_ms, is_approved, True, waits, previous.sidecar
        entry = LedgerEntry(*previous[:7], None, executed_input_json, *rest)
        self.entries[request_id - 1] = entry
        return entry

    def record_outcome(
        self,
        request_id: int,
        outcome: Outcome,
        now_ms: int,
        displayed_input_json: str | None = None,
        duration_us: int | None = None,
    ) -> LedgerEntry:
        """Record the outcome of a request and return its new entry. The fields are those of `CallSettled`."""
        previous = self.entries[request_id - 1]
        duration_us = None if isinstance(outcome, Waiting) else duration_us
        rest = now_ms, previous.is_approved, previous.is_started, 0, previous.sidecar, False, duration_us
        executed_input_json = (
            displayed_input_json if previous.executed_input_json is None else previous.executed_input_json
        )
        entry = LedgerEntry(*previous[:7], outcome, executed_input_json, *rest)
        self.entries[request_id - 1] = entry
        return entry

    def record_timer_withdrawal(self, request_id: int) -> None:
        """Record that a timer was cleared before it fired."""
        self.entries[request_id - 1] = self[request_id]._replace(is_withdrawn=True)

    def create_entry(self, request: CallRequested, tool_call_id: str | None) -> LedgerEntry:
        """Return the entry of a new request."""
        text, location = request.input_json, request.location
        entry = LedgerEntry(request.id, request.kind, request.name, text, request.input_bytes, tool_call_id, location)
        if self.sidecar is None or request.kind != "tool" or not may_have_references(text):
            return entry
        return entry._replace(sidecar=self.sidecar)

    def register_large_strings(self, entry: LedgerEntry) -> LedgerEntry:
        """Add the large strings of an outcome that is delivered next; return its entry with references."""
        outcome = entry.outcome
        if self.sidecar is None or not isinstance(outcome, Fulfilled) or outcome.large is None:
            return entry
        entry = entry._replace(outcome=Fulfilled(outcome.value_json, self.sidecar.add_strings(outcome.large)))
        self.entries[entry.id - 1] = entry
        return entry

    @property
    def fired_timer_count(self) -> int:
        """How many timers have fired."""
        return sum(entry.kind == "timer" and entry.outcome is not None for entry in self.entries)

    @property
    def waiting_entries(self) -> list[LedgerEntry]:
        """The requests that wait, in issue order."""
        return [entry for entry in self.entries if isinstance(entry.outcome, Waiting)]


def get_called_tool_names(ledger: Ledger) -> set[str]:
    """Return the names of the tools that a program has called."""
    return {entry.name for entry in ledger.entries if entry.kind == "tool"}


UNKNOWN_OUTCOME_KIND = "code-mode/unknown-outcome"
_UNKNOWN_OUTCOME_JSON = f'{{"kind":"{UNKNOWN_OUTCOME_KIND}"}}'


def is_waiting_on_interrupt(entry: LedgerEntry) -> bool:
    """Return True if a request waits for an answer other than its unknown outcome."""
    return isinstance(entry.outcome, Waiting) and entry.outcome.payload_json != _UNKNOWN_OUTCOME_JSON


def build_recovery_ledger(
    ledger: Ledger,
    salt: str,
    may_repeat: Callable[[LedgerEntry], bool],
    get_input_json: Callable[[LedgerEntry], str | None],
    get_repeat_input: Callable[[LedgerEntry], str | None],
) -> Ledger:
    """Return the ledger from which a run that was cut off can continue.

    Calls of unknown outcome wait for a report of it; those that ``may_repeat`` allows are made again, with the
    input from ``get_repeat_input`` or the issued one. ``get_input_json`` returns the validated input of a call of
    unknown outcome.
    """

    def recover_entry(entry: LedgerEntry) -> LedgerEntry:
        if not entry.is_open:
            return entry
        if may_repeat(entry):
            return entry._replace(executed_input_json=get_repeat_input(entry))
        return _make_entry_waiting_for_outcome(entry, salt, get_input_json(entry))

    entries = [recover_entry(entry) for entry in ledger.entries]
    return Ledger(
        entries, list(ledger.deliveries), ledger.notice_count, progress=ledger.progress, contents=ledger.contents
    )


def _make_entry_waiting_for_outcome(entry: LedgerEntry, salt: str, input_json: str | None) -> LedgerEntry:
    return entry._replace(
        outcome=make_waiting_outcome(entry, "unknown", salt, _UNKNOWN_OUTCOME_JSON, input_json), waits=0
    )


def make_waiting_outcome(
    entry: LedgerEntry, reason: _WaitReason, salt: str, payload_json: str, input_json: str | None
) -> Waiting:
    """Return the outcome of a request that waits (again), with an id of its own.

    The id is derived from everything that is displayed: if an engine repeats a step and the same call has another
    input, an answer to the first must not fit the second.
    """
    attempt = entry.wait_count_including_current + 1
    digest = _hash_texts(salt, reason, entry.name, payload_json, input_json)
    interrupt_id = f"{entry.tool_call_id or entry.id}:{reason}-{digest}-{attempt}"
    return Waiting(interrupt_id, payload_json, input_json, attempt)


def parse_outer_call_id(interrupt_id: str) -> str | None:
    """Return the id of the outer call of an interrupt id; None for an id that `make_waiting_outcome` did not make."""
    call_id, _, reason = interrupt_id.rpartition(":")
    outer_id, _, number = call_id.rpartition(":tool-")
    kind, _, rest = reason.partition("-")
    digest, _, attempt = rest.partition("-")
    is_made_here = (
        kind in get_args(_WaitReason) and len(digest) == _DIGEST_CHARACTERS and _HEXADECIMAL.issuperset(digest)
    )
    is_counted = number.isdecimal() and attempt.isdecimal()
    return outer_id if outer_id and is_made_here and is_counted else None


def _hash_texts(*texts: str | None) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = b"" if text is None else b"=" + text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8))
        digest.update(data)
    return digest.hexdigest()[:_DIGEST_CHARACTERS]
