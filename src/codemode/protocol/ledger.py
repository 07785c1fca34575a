"""The ledger: an invocation's bridge requests and how each ended."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from ..data.json_values import decode_json, utf8_length
from ..data.large_strings import may_have_places
from ..records import record
from .messages import CallRequested, DeliverError, DeliverValue, Place, RequestKind

if TYPE_CHECKING:
    from ..data.large_strings import LargeStrings
    from .references import Contents, Sidecar


_MAX_COMPARED_CHARACTERS = 1 << 18  # a few milliseconds of the event loop
_STRING_OR_FRACTION = re.compile(r'"(?:[^"\\]|\\.)*"|[0-9]+(?:\.[0-9]+(?:e[+-]?[0-9]+)?|e[+-]?[0-9]+)')


def means_the_same(recorded: str | None, now: str | None) -> bool:
    """Compare two inputs. A host that wrote one itself and the engine may write a number with other digits."""
    if recorded == now or recorded is None or now is None:
        return recorded == now
    if max(len(recorded), len(now)) > _MAX_COMPARED_CHARACTERS:
        return False
    first, second = (_STRING_OR_FRACTION.sub(_shortest, text) for text in (recorded, now))
    return first == second


def _shortest(found: re.Match[str]) -> str:
    text = found[0]
    return text if text.startswith('"') else repr(float(text))


# Two orders matter and both are kept. Requests stand in the order in which the guest issued them, which the guest's own
# code decides. ``deliveries`` is the order in which outcomes were handed in, which the outside world decided once: a
# replay hands them in again in exactly that order, so races, interleaved branches, the clock and the limits come out
# the same.

OF_PROGRAMS = ("timer", "yield")
"""Kinds of requests that are calls of nobody: what is told of calls leaves them out."""

UNTOLD = (*OF_PROGRAMS, "state")
"""Kinds of requests that nobody outside is told of as calls; those about state count as calls all the same."""

_MOST_MEASURED_CHARACTERS = 1 << 14
_DIGEST_CHARACTERS = 16
_HEXADECIMAL = frozenset("0123456789abcdef")
_Why: TypeAlias = Literal["interrupt", "unknown"]


@record
class Fulfilled:
    """The request was answered with a JSON text; None is undefined.

    ``large`` are the strings of it that the guest gets as references. They follow from the text.
    """

    value_json: str | None
    large: LargeStrings | None = None


@record
class Rejected:
    """The request was answered with an error: exactly what the guest may see of it.

    ``fields_json`` is the JSON text of the fields that a face makes public: the guest then sees these alone, and name
    and code are by what the host knows the error.
    """

    name: str
    message: str
    code: str
    fields_json: str | None = None


@record
class Waiting:
    """The request waits for somebody outside.

    ``payload_json`` says for what, with a ``kind``; ``input_json`` is the validated input that was shown. ``attempt``
    counts from 1 the times that this request has waited.
    """

    interrupt_id: str
    payload_json: str
    input_json: str | None
    attempt: int


Outcome: TypeAlias = Fulfilled | Rejected | Waiting


class LedgerEntry(NamedTuple):
    """One bridge request. ``id`` counts from 1 in issue order; ``input_json`` is the text the guest issued.

    A named tuple, for each call makes three of them, and they take a fifth of a frozen dataclass's time.
    ``place`` are line and column of the call, where somebody may be asked about it, and the name of the saved program
    that they are in; no replay looks at it.

    ``outcome`` None means that the outcome is not known (yet); ``is_started`` that the tool itself may have begun.
    ``is_approved``: a person has allowed it, and is not asked again. ``executed_input_json`` is the validated, possibly
    edited input that a person allowed, or that a call ran with which is made again, or what may be seen of that of a
    call that was refused; None: what the guest issued.
    ``now_ms`` is the host time that was handed in with the outcome. ``waits`` is how often it has waited, for a request
    whose outcome is not known. ``sidecar`` has the large strings whose places are in ``input_json``, if there are any.
    ``is_withdrawn``: the guest has cleared this timer before it fired, and it never has an outcome.
    ``lasted_us`` is how many microseconds the call took, for those who are shown it; no replay looks at it.
    """

    id: int
    kind: RequestKind
    name: str
    input_json: str | None
    input_bytes: int | None = None
    tool_call_id: str | None = None
    place: Place | None = None
    outcome: Outcome | None = None
    executed_input_json: str | None = None
    now_ms: int | None = None
    is_approved: bool = False
    is_started: bool = False
    waits: int = 0
    sidecar: Sidecar | None = None
    is_withdrawn: bool = False
    lasted_us: int | None = None

    @property
    def is_open(self) -> bool:
        """True while the request is still to come to an outcome, which is not known."""
        return self.outcome is None and not self.is_withdrawn

    @property
    def attempts(self) -> int:
        """How often the request has waited for somebody, this time included."""
        return self.outcome.attempt if isinstance(self.outcome, Waiting) else self.waits

    def issued(self) -> Any:
        """Decode the input that the guest issued, with its large strings. Raises as `Sidecar.value` does."""
        text = self.input_json or "null"
        return decode_json(text) if self.sidecar is None else self.sidecar.value(text, self._what)

    @property
    def issued_json(self) -> str | None:
        """The input that the guest issued, with large strings in their places."""
        text = self.input_json
        return text if text is None or self.sidecar is None else self.sidecar.text(text, self._what)

    @property
    def issued_bytes(self) -> int:
        """The UTF-8 bytes of that; of a long text those that the guest sent, for this may be asked on the loop."""
        text = self.input_json
        if self.input_bytes is not None or text is None:
            return self.input_bytes or 0
        is_short = self.sidecar is not None and len(text) <= _MOST_MEASURED_CHARACTERS
        return self.sidecar.length(text) if is_short and self.sidecar is not None else utf8_length(text)

    @property
    def _what(self) -> str:
        return f"the input of tool {self.name!r}"

    def same_request(self, request: CallRequested) -> bool:
        """True when a replaying guest issued exactly this request."""
        is_same_call = (self.kind, self.name, self.input_bytes) == (request.kind, request.name, request.input_bytes)
        return is_same_call and means_the_same(self.input_json, request.input_json)

    def delivery(self) -> DeliverValue | DeliverError:
        """Return the message that hands the outcome in."""
        outcome, now_ms = self.outcome, self.now_ms or 0
        if isinstance(outcome, Fulfilled):
            return DeliverValue(self.id, now_ms, outcome.value_json, outcome.large)
        if isinstance(outcome, Rejected):
            return DeliverError(self.id, now_ms, outcome.name, outcome.message, outcome.code, outcome.fields_json)
        raise ValueError(f"request {self.id} has no outcome to deliver")


def shown_text(entry: LedgerEntry) -> str | None:
    """Return the JSON text of the input that was allowed or shown before; None: nobody has decided about it yet."""
    if entry.executed_input_json is None and isinstance(entry.outcome, Waiting):
        return entry.outcome.input_json
    return entry.executed_input_json


class Progress(NamedTuple):
    """How far a program that may rest has come beside its calls, all of it counts.

    ``output`` is how much of what it has written was handed over, items and lines; ``own_ms`` how long it has computed;
    ``turns`` how many turns it had, which a replay takes again.
    """

    output: int = 0
    own_ms: int = 0
    turns: int = 0


_NO_PROGRESS = Progress()


@dataclass(slots=True)
class Ledger:
    """All requests of an invocation in issue order, and the order in which their outcomes were delivered.

    ``notices`` is how much the program has told the host's listeners, who are told nothing twice. ``contents`` are the
    images, audio and files that it was given.
    """

    entries: list[LedgerEntry] = field(default_factory=list[LedgerEntry])
    deliveries: list[int] = field(default_factory=list[int])
    notices: int = 0
    sidecar: Sidecar | None = None
    progress: Progress = _NO_PROGRESS
    contents: Contents | None = None

    def __getitem__(self, request_id: int) -> LedgerEntry:
        return self.entries[request_id - 1]

    def __contains__(self, request_id: int) -> bool:
        return 1 <= request_id <= len(self.entries)

    def start(self, request_id: int, executed_input_json: str | None, *, is_approved: bool) -> LedgerEntry:
        """Record that the tool itself is about to run, and return the new entry.

        From here on the outcome is unknown until it is settled.
        """
        was = self.entries[request_id - 1]  # of which the first seven are the request
        waits = was.waits if was.outcome is None else was.attempts
        more = was.now_ms, is_approved, True, waits, was.sidecar
        entry = LedgerEntry(*was[:7], None, executed_input_json, *more)
        self.entries[request_id - 1] = entry
        return entry

    def settle(
        self,
        request_id: int,
        outcome: Outcome,
        now_ms: int,
        shown_json: str | None = None,
        lasted_us: int | None = None,
    ) -> LedgerEntry:
        """Record how a request ended and return its new entry. The rest is as `CallSettled` has it."""
        was = self.entries[request_id - 1]
        lasted_us = None if isinstance(outcome, Waiting) else lasted_us
        more = now_ms, was.is_approved, was.is_started, 0, was.sidecar, False, lasted_us
        executed = shown_json if was.executed_input_json is None else was.executed_input_json
        entry = LedgerEntry(*was[:7], outcome, executed, *more)
        self.entries[request_id - 1] = entry
        return entry

    def withdraw(self, request_id: int) -> None:
        """Record that a timer was cleared before it fired."""
        self.entries[request_id - 1] = self[request_id]._replace(is_withdrawn=True)

    def issue(self, request: CallRequested, tool_call_id: str | None) -> LedgerEntry:
        """Return the entry of a new request."""
        text, place = request.input_json, request.place
        entry = LedgerEntry(request.id, request.kind, request.name, text, request.input_bytes, tool_call_id, place)
        if self.sidecar is None or request.kind != "tool" or not may_have_places(text):
            return entry
        return entry._replace(sidecar=self.sidecar)

    def handed(self, entry: LedgerEntry) -> LedgerEntry:
        """Keep the large strings of an outcome that the guest is handed next; return its entry, as it is handed in."""
        outcome = entry.outcome
        if self.sidecar is None or not isinstance(outcome, Fulfilled) or outcome.large is None:
            return entry
        entry = entry._replace(outcome=Fulfilled(outcome.value_json, self.sidecar.add(outcome.large)))
        self.entries[entry.id - 1] = entry
        return entry

    @property
    def fired(self) -> int:
        """How many timers have fired."""
        return sum(entry.kind == "timer" and entry.outcome is not None for entry in self.entries)

    @property
    def waiting(self) -> list[LedgerEntry]:
        """The requests that wait for somebody, in issue order."""
        return [entry for entry in self.entries if isinstance(entry.outcome, Waiting)]


def called_names(ledger: Ledger) -> set[str]:
    """Return the names of the tools that a program has called."""
    return {entry.name for entry in ledger.entries if entry.kind == "tool"}


UNKNOWN_OUTCOME_KIND = "code-mode/unknown-outcome"
_UNKNOWN_OUTCOME_JSON = f'{{"kind":"{UNKNOWN_OUTCOME_KIND}"}}'


def goes_on(entry: LedgerEntry) -> bool:
    """Tell whether a request that is made waited for somebody before, and not because its outcome was unknown."""
    return isinstance(entry.outcome, Waiting) and entry.outcome.payload_json != _UNKNOWN_OUTCOME_JSON


def recovery_ledger(
    ledger: Ledger,
    salt: str,
    runs_again: Callable[[LedgerEntry], bool],
    input_json: Callable[[LedgerEntry], str | None],
    runs_again_with: Callable[[LedgerEntry], str | None],
) -> Ledger:
    """Return the ledger from which a run that was cut off can go on.

    Calls whose outcome is unknown wait for somebody to say it, unless ``runs_again``: those are simply made again, with
    the input that ``runs_again_with`` gives, or as the guest issued them. ``input_json`` gives the validated input that
    a call of unknown outcome ran with.
    """

    def recovered(entry: LedgerEntry) -> LedgerEntry:
        if not entry.is_open:
            return entry
        if runs_again(entry):
            return entry._replace(executed_input_json=runs_again_with(entry))
        return _waiting_for_outcome(entry, salt, input_json(entry))

    entries = [recovered(entry) for entry in ledger.entries]
    return Ledger(entries, list(ledger.deliveries), ledger.notices, progress=ledger.progress, contents=ledger.contents)


def _waiting_for_outcome(entry: LedgerEntry, salt: str, input_json: str | None) -> LedgerEntry:
    return entry._replace(outcome=waiting(entry, "unknown", salt, _UNKNOWN_OUTCOME_JSON, input_json), waits=0)


def waiting(entry: LedgerEntry, why: _Why, salt: str, payload_json: str, input_json: str | None) -> Waiting:
    """Return that a request waits (once more), under an id of its own.

    The id follows from all that a person is shown: where an engine runs a step again and the same call comes with
    another input, an answer to the first must not fit the second.
    """
    attempt = entry.attempts + 1
    digest = _digest(salt, why, entry.name, payload_json, input_json)
    interrupt_id = f"{entry.tool_call_id or entry.id}:{why}-{digest}-{attempt}"
    return Waiting(interrupt_id, payload_json, input_json, attempt)


def outer_id_of(waiting_id: str) -> str | None:
    """Return the id of the outer call in which a call waits under this id; None for one that `waiting` has not made."""
    call_id, _, why = waiting_id.rpartition(":")
    outer_id, _, number = call_id.rpartition(":tool-")
    kind, _, rest = why.partition("-")
    digest, _, attempt = rest.partition("-")
    is_made_here = kind in get_args(_Why) and len(digest) == _DIGEST_CHARACTERS and _HEXADECIMAL.issuperset(digest)
    is_counted = number.isdecimal() and attempt.isdecimal()
    return outer_id if outer_id and is_made_here and is_counted else None


def _digest(*texts: str | None) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = b"" if text is None else b"=" + text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8))
        digest.update(data)
    return digest.hexdigest()[:_DIGEST_CHARACTERS]
