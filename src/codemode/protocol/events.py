"""Events, effects and endings of an invocation, as pure values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import CodeModeError
from ..records import record
from .ledger import Ledger, LedgerEntry, Outcome
from .messages import HostMessage, ItemKind, NoticeKind
from .settings import InvocationSettings

if TYPE_CHECKING:
    from ..data.program_facts import ProgramFacts, ProgramProblem
    from .call_status import DetachedCall


# --- events ---


@record
class ProgramAccepted:
    """The host has checked the program, which is now plain JavaScript.

    ``invocation_data_json`` replaces the invocation data, now that the program is known. ``compile_only``: it could
    not be analysed and does not run, but the engine may find its error. ``reports_locations``: the worker reports
    the locations of calls. ``settings`` replace those of the invocation, and ``recorded`` is the ledger that an
    earlier host wrote for it.
    """

    js: str
    invocation_data_json: str | None = None
    compile_only: bool = False
    reports_locations: bool = False
    settings: InvocationSettings | None = None
    recorded: Ledger | None = None


@record
class ProgramRefused:
    """The program is refused for problems, violations or one error; nothing of it runs.

    A problem is ``{"message", "line", "column"}``, a violation ``{"kind", "name"?, "location"}``. ``is_unclear``:
    it cannot be analysed.
    """

    problems: tuple[ProgramProblem, ...] = ()
    violations: tuple[Mapping[str, Any], ...] = ()
    error: CodeModeError | None = None
    is_unclear: bool = False


@record
class CallSettled:
    """The host has performed or refused a request. ``error`` is the host's own error of a rejection.

    ``displayed_input_json`` is the displayable input of a refused call, if it is not the issued one.
    ``duration_us`` is the duration in microseconds, if measured.
    """

    id: int
    outcome: Outcome
    now_ms: int
    error: CodeModeError | None = None
    displayed_input_json: str | None = None
    duration_us: int | None = None


@record
class ToolStarted:
    """The tool itself starts, with ``executed_input_json`` if a person allowed that input."""

    id: int
    executed_input_json: str | None
    is_approved: bool


@record
class PersonAsked:
    """A person is asked about a request."""

    id: int


@record
class PersonAnswered:
    """The person has decided."""

    id: int


@record
class DeadlinePassed:
    """The deadline passed, reported ``late_ms`` later because the host's event loop was blocked."""

    late_ms: int = 0


@record
class CallerWaitExpired:
    """The caller has waited as long as it may: a suspendable program is suspended as soon as it is idle."""


@record
class ContinueRequested:
    """Continue a suspended program at this time of the host's clock."""

    now_ms: int


@record
class AbortRequested:
    """The host wants the invocation to stop."""


@record
class WorkerEnded:
    """The worker is gone."""

    reason: str


@record
class HostFailed:
    """An error outside these rules ends the invocation."""

    error: CodeModeError


HostEvent: TypeAlias = (
    ProgramAccepted
    | ProgramRefused
    | CallSettled
    | ToolStarted
    | PersonAsked
    | PersonAnswered
    | DeadlinePassed
    | CallerWaitExpired
    | ContinueRequested
    | AbortRequested
    | WorkerEnded
    | HostFailed
)

# --- effects ---


@record
class SendMessage:
    """Send a message to the worker."""

    message: HostMessage


@record
class CheckProgram:
    """Compare the program's facts with the tools. ``size`` counts the bytes of the analysis, 0 if it was known."""

    js: str
    facts: ProgramFacts | None
    size: int = 0


@record
class PerformRequest:
    """Perform a request. Its outcome is None, or `Waiting` if it was recorded so and has an answer now."""

    entry: LedgerEntry


@record
class StartTimers:
    """Start these timers together; each is settled after its delay."""

    entries: tuple[LedgerEntry, ...]


@record
class CancelTimer:
    """Cancel a timer: it is never settled."""

    id: int


@record
class ReportReplayedRequest:
    """A request was answered from the ledger."""

    entry: LedgerEntry


@record
class WriteConsole:
    """The guest wrote to its console."""

    level: str
    text: str


@record
class WriteOutputItem:
    """The guest wrote an output item: a text, or the JSON text of a value."""

    kind: ItemKind
    text: str


@record
class SendNotification:
    """Send a new notice of the program to the host's listeners."""

    kind: NoticeKind
    payload_json: str


@record
class PauseDeadlineClock:
    """Pause the deadline: the clock measures nothing that is outstanding."""


@record
class GrantGracePeriod:
    """Grant a grace period: the deadline has passed and the worker is about to stop by itself."""


@record
class ResumeDeadlineClock:
    """Resume the deadline."""


@record
class ReportReplayEnd:
    """The replay is complete: time counts from here."""


@record
class PauseWaitClock:
    """Pause the caller's wait: only a person's decision is outstanding."""


@record
class ResumeWaitClock:
    """Resume the caller's wait."""


SuspensionReason: TypeAlias = Literal["yield", "pending_tools"]


@record
class SuspendProgram:
    """The program is suspended until it is continued. It needs no worker; its calls continue."""

    reason: SuspensionReason


@record
class ReportQueuedOutcome:
    """The outcome of a request arrived while the program is suspended; it is delivered when the program continues."""

    id: int


@record
class Completed:
    """The program returned a JSON text; None is undefined. ``warnings`` name cut parts.

    ``abandoned`` are calls that it did not await, where this is no error. ``last_value`` is the value of its last
    statement as text, if it returned nothing.
    """

    value_json: str | None
    warnings: tuple[str, ...] = ()
    abandoned: tuple[DetachedCall, ...] = ()
    last_value: str | None = None


@record
class Failed:
    """The invocation ended with an error."""

    error: CodeModeError


@record
class Interrupted:
    """Every request is done or waits, by the ledger."""


Ending: TypeAlias = Completed | Failed | Interrupted


@record
class FinishInvocation:
    """The invocation has ended: kill the worker, abort what still runs, settle the caller."""

    ending: Ending


SuspensionEffect: TypeAlias = (
    WriteOutputItem | ReportReplayEnd | PauseWaitClock | ResumeWaitClock | SuspendProgram | ReportQueuedOutcome
)
"""Effects of programs that write output items or can be suspended."""

RareEffect: TypeAlias = (
    CheckProgram
    | StartTimers
    | CancelTimer
    | ReportReplayedRequest
    | WriteConsole
    | SendNotification
    | PauseDeadlineClock
    | GrantGracePeriod
    | ResumeDeadlineClock
    | SuspensionEffect
)
"""Effects that most programs have at most once."""

Effect: TypeAlias = SendMessage | PerformRequest | FinishInvocation | RareEffect
