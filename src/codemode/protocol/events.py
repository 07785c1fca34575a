"""Events that an invocation is told; effects and endings that it answers. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import CodeModeError
from ..records import record
from .ledger import Ledger, LedgerEntry, Outcome
from .messages import HostMessage, ItemKind, NoticeKind
from .settings import Settings

if TYPE_CHECKING:
    from ..data.program_facts import Facts, ProgramProblem
    from .call_status import DetachedCall


# --- events ---


@record
class ProgramAccepted:
    """The host has checked the program, which is now plain JavaScript.

    ``invocation_data_json`` is what the invocation is given, now that its program is known; None: what it was given
    before.
    ``compile_only``: it could not be checked, and does not run; but the engine may know what is wrong with it.
    ``reports_locations``: the worker is to tell where the program makes its calls. ``settings``, where there are any,
    are
    those under which it runs, and ``recorded`` is what an earlier host has written of this very invocation.
    """

    js: str
    invocation_data_json: str | None = None
    compile_only: bool = False
    reports_locations: bool = False
    settings: Settings | None = None
    recorded: Ledger | None = None


@record
class ProgramRefused:
    """The program has problems, or breaks rules of its surface, or must fail for one reason; nothing of it may run.

    A problem is ``{"message", "line", "column"}``, a violation ``{"kind", "name"?, "location"}``. ``is_unclear``: it
    cannot be told what the program does.
    """

    problems: tuple[ProgramProblem, ...] = ()
    violations: tuple[Mapping[str, Any], ...] = ()
    error: CodeModeError | None = None
    is_unclear: bool = False


@record
class CallSettled:
    """The host has done (or refused) what a request asked for. ``error`` is the host's own view of a rejection.

    ``displayed_input_json`` is what may be seen of the input of a call that was refused before it ran, where that is
    not what the
    guest issued. ``duration_us`` is how long it took, in microseconds, where somebody measured it.
    """

    id: int
    outcome: Outcome
    now_ms: int
    error: CodeModeError | None = None
    displayed_input_json: str | None = None
    duration_us: int | None = None


@record
class ExecutionStarted:
    """The tool itself is about to run, with ``executed_input_json`` when a person allowed that input."""

    id: int
    executed_input_json: str | None
    is_approved: bool


@record
class PersonAsked:
    """A person has been asked to decide about a request."""

    id: int


@record
class PersonAnswered:
    """The person has decided."""

    id: int


@record
class DeadlinePassed:
    """The clock passed ``timeout_ms``, and told of it so much later, for the host's event loop did something else."""

    late_ms: int = 0


@record
class WaitExpired:
    """The call of the model has waited as long as it may: a program that may rest does so as soon as it is idle."""


@record
class ContinueRun:
    """Somebody goes on with a program at rest, at this time of the host's clock."""

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
    """Something outside the rules of this table ends the invocation with this error."""

    error: CodeModeError


HostEvent: TypeAlias = (
    ProgramAccepted
    | ProgramRefused
    | CallSettled
    | ExecutionStarted
    | PersonAsked
    | PersonAnswered
    | DeadlinePassed
    | WaitExpired
    | ContinueRun
    | AbortRequested
    | WorkerEnded
    | HostFailed
)

# --- effects ---


@record
class Send:
    """Send a message to the worker."""

    message: HostMessage


@record
class CheckProgram:
    """Compare what the worker found in the program with the tools. ``size``: in so many bytes, 0 of what was known."""

    js: str
    facts: Facts | None
    size: int = 0


@record
class Invoke:
    """Do what a request asks for. Its outcome is None, or `Waiting` when it was recorded so and has an answer now."""

    entry: LedgerEntry


@record
class SetTimers:
    """Let these timers run, all from this moment; each is settled once its delay has passed."""

    entries: tuple[LedgerEntry, ...]


@record
class StopTimer:
    """Let a timer run no more: it is never settled."""

    id: int


@record
class ReportReplay:
    """A request was answered from the ledger."""

    entry: LedgerEntry


@record
class WriteConsole:
    """The guest wrote to its console."""

    level: str
    text: str


@record
class WriteItem:
    """The guest wrote an item of its output: a text, or else the JSON text of a value."""

    kind: ItemKind
    text: str


@record
class SendNotice:
    """The program tells the host's listeners something that they have not been told."""

    kind: NoticeKind
    payload_json: str


@record
class PauseClock:
    """Nothing is outstanding that the clock measures: the deadline stands still."""


@record
class GrantGracePeriod:
    """The deadline has passed, and the worker is about to stop by itself: it passes once more, a little later."""


@record
class ResumeClock:
    """The deadline runs again."""


@record
class ReplayEnded:
    """The program has come as far as before: from here on its time counts."""


@record
class PauseWaitClock:
    """Nothing is outstanding but what a person decides: the time of the model's call stands still."""


@record
class ResumeWaitClock:
    """The time of the model's call runs again."""


SuspensionReason: TypeAlias = Literal["yield", "pending_tools"]


@record
class Suspend:
    """The program rests until somebody goes on with it. It needs no worker; its calls go on."""

    reason: SuspensionReason


@record
class OutcomeQueued:
    """The outcome of a request came while the program rests: it is handed in when it goes on."""

    id: int


@record
class Completed:
    """The program returned a JSON text; None is undefined. ``warnings`` say what was cut of it.

    ``abandoned`` are the calls that it did not wait for, where that is no error. ``last_value`` is the value of its
    last
    statement as text, where it returned nothing.
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
    """Everything is done or waits for somebody: the ledger says what."""


Ending: TypeAlias = Completed | Failed | Interrupted


@record
class Finish:
    """The invocation has ended: kill the worker, abort what still runs, settle the caller."""

    ending: Ending


SuspensionEffect: TypeAlias = WriteItem | ReplayEnded | PauseWaitClock | ResumeWaitClock | Suspend | OutcomeQueued
"""Effects that there are only where a program writes items, or may rest."""

RareEffect: TypeAlias = (
    CheckProgram
    | SetTimers
    | StopTimer
    | ReportReplay
    | WriteConsole
    | SendNotice
    | PauseClock
    | GrantGracePeriod
    | ResumeClock
    | SuspensionEffect
)
"""Effects of which most programs have none, or one."""

Effect: TypeAlias = Send | Invoke | Finish | RareEffect
