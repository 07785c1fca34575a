"""What an invocation is told and what it answers: settings, events, effects, endings. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import CodeModeError
from .ledger import LedgerEntry, Outcome
from .messages import HostMessage


@dataclass(frozen=True, slots=True)
class Settings:
    """What an invocation depends on beside its program. All of it is stored in a continuation."""

    outer_tool_call_id: str
    salt: str  # the random part of this invocation's request ids
    seed: str
    started_ms: int
    timeout_ms: int
    max_result_bytes: int
    max_tool_input_bytes: int
    max_bridge_requests: int
    max_in_flight_bridge_requests: int
    max_catalog_requests: int
    max_console_bytes: int
    memory_limit_bytes: int
    max_stack_size_bytes: int
    profile: str
    fetch: bool = False  # whether the guest has it

    def for_worker(self) -> dict[str, Any]:
        """Return the part that the worker is told."""
        names = (
            "profile", "seed", "max_result_bytes", "max_tool_input_bytes", "max_bridge_requests",
            "max_in_flight_bridge_requests", "max_catalog_requests", "max_console_bytes", "memory_limit_bytes",
            "max_stack_size_bytes", "fetch",
        )  # fmt: skip
        return {"now_ms": self.started_ms, **{name: getattr(self, name) for name in names}}


# --- events ---


@dataclass(frozen=True, slots=True)
class ProgramAccepted:
    """The host has checked the program, which is now plain JavaScript."""

    js: str


@dataclass(frozen=True, slots=True)
class ProgramRefused:
    """The program has problems, each ``{"message", "line", "column"}``; nothing of it may run."""

    problems: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class CallSettled:
    """The host has done (or refused) what a request asked for. ``error`` is the host's own view of a rejection."""

    id: int
    outcome: Outcome
    now_ms: int
    error: CodeModeError | None = None


@dataclass(frozen=True, slots=True)
class ExecutionStarted:
    """The tool itself is about to run, with ``executed_input_json`` when a person allowed that input."""

    id: int
    executed_input_json: str | None
    is_approved: bool


@dataclass(frozen=True, slots=True)
class PersonAsked:
    """A person has been asked to decide about a request."""

    id: int


@dataclass(frozen=True, slots=True)
class PersonAnswered:
    """The person has decided."""

    id: int


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The wall clock passed ``timeout_ms``."""


@dataclass(frozen=True, slots=True)
class AbortRequested:
    """The host wants the invocation to stop."""


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """The worker is gone."""

    reason: str


@dataclass(frozen=True, slots=True)
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
    | AbortRequested
    | WorkerEnded
    | HostFailed
)

# --- effects ---


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to the worker."""

    message: HostMessage


@dataclass(frozen=True, slots=True)
class CheckProgram:
    """Compare what the worker found in the program with the tools."""

    js: str
    facts: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Invoke:
    """Do what a request asks for. Its outcome is None, or `Waiting` when it was recorded so and has an answer now."""

    entry: LedgerEntry


@dataclass(frozen=True, slots=True)
class Replayed:
    """A request was answered from the ledger."""

    entry: LedgerEntry


@dataclass(frozen=True, slots=True)
class WriteConsole:
    """The guest wrote to its console."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class PauseClock:
    """Nothing but a person's decision is outstanding: the deadline stands still."""


@dataclass(frozen=True, slots=True)
class ResumeClock:
    """The deadline runs again."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The program returned a JSON text; None is undefined."""

    value_json: str | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The invocation ended with an error."""

    error: CodeModeError


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Everything is done or waits for somebody: the ledger says what."""


Ending: TypeAlias = Completed | Failed | Interrupted


@dataclass(frozen=True, slots=True)
class Finish:
    """The invocation has ended: kill the worker, abort what still runs, settle the caller."""

    ending: Ending


Effect: TypeAlias = Send | CheckProgram | Invoke | Replayed | WriteConsole | PauseClock | ResumeClock | Finish
