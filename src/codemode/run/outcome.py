"""The outcome of a run, as one value: every surface words it for itself. Knows no surface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..data.records import record
from ..errors import CallSummary, CodeModeError
from ..protocol.call_status import call_summaries
from ..protocol.ledger import Ledger
from ..trace.late_values import late

if TYPE_CHECKING:
    from ..interrupts.interrupt import Interrupt
    from ..observe.call_events import CallRecord
    from ..protocol.call_status import DetachedCall
    from ..trace.events import ConsoleEvent
    from ..trace.trace import Trace


@late("trace")
@record
class RunOutcome:
    """What a run came to: by its ``status`` a ``value`` (None for undefined), an ``interrupt`` or an ``error``.

    ``trace`` is there when the outer call asks for one or a hook listens, and after every pause and failure of a
    program that was begun. ``warnings`` say what was cut of the value, and what was wrong before it ran. An outcome
    that was recorded and comes back is a run of which nothing more is known: ``is_replayed``, without trace, without
    calls unless it is an error, and without console unless the profile cuts results. ``ended_calls`` are the calls of
    tools and fetches that have ended, as they were noted. ``abandoned`` are calls that the
    program did not wait for, each with id, kind, name and status: pending, waiting, not sent, or failed unseen.
    ``began_at_ms`` is when a recorded run began, which else its trace says.
    """

    status: Literal["completed", "interrupted", "failed"]
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
    abandoned: tuple[DetachedCall, ...] = ()
    began_at_ms: float | None = None

    @property
    def calls(self) -> tuple[CallSummary, ...]:
        """What the program had called, as in `CodeModeError.calls`."""
        if self.error is not None:
            return self.error.calls
        return () if self.ledger is None else call_summaries(self.ledger.entries)
