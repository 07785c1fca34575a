"""The outcome of a run, as one value: every surface words it for itself. Knows no surface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..data.records import record
from ..errors import CallSummary, CodeModeError
from ..protocol.call_status import call_id, call_summaries
from ..protocol.ledger import UNTOLD, Ledger, LedgerEntry, Waiting
from ..protocol.messages import RequestKind
from ..trace.late_values import held, late

if TYPE_CHECKING:
    from ..interrupts.interrupt import Interrupt
    from ..observe.call_events import CallRecord
    from ..protocol.call_status import DetachedCall
    from ..protocol.events import RestReason
    from ..trace.events import ConsoleEvent
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
        if one.kind not in ("catalog", *UNTOLD) and (one.is_open or isinstance(one.outcome, Waiting))
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
    return RunOutcome(**{"trace": held(outcome, "trace"), **fields, **changes})


@record
class AtRest:
    """Why a program rests, what is in flight, and ``run``, which goes on with it; None where this was recorded.

    ``output_bytes`` are those of what it has written since the rest before.
    """

    reason: RestReason
    pending: Sequence[PendingCall]
    run: RestingRun | None = None
    output_bytes: int = 0


@late("trace")
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
    their texts, where there is a use for that.
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

    @property
    def calls(self) -> tuple[CallSummary, ...]:
        """What the program had called, as in `CodeModeError.calls`."""
        if self.error is not None:
            return self.error.calls
        if self.summaries:
            return self.summaries
        return () if self.ledger is None else call_summaries(self.ledger.entries)
