"""The context of one tool call of the model, as a host passes it to any surface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from ..dataclass import dataclass
from ..options.checked_fields import WrongTypeError, callable_or_none, positive, sequence, string_or_none, text_or_none

MAX_TIME_MS = 8_640_000_000_000_000
"""The last moment that a JavaScript date knows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallContext:
    """What one tool call of a model carries into a program: who calls, in which conversation, and when.

    ``tool_call_id`` names the call; a random id when None. ``messages`` and ``context`` reach every tool.
    ``conversation_id`` names the conversation, thread or workflow: a pause resumes only under the same one, and runs of
    exec and wait belong to it. With a signing key that was set, a ``tool_call_id`` and a ``conversation_id``, request
    ids and random numbers of a program are the same whenever it runs with the same ``started_at_ms``: an engine that
    repeats a step finds the pause it knows.

    ``started_at_ms`` is Unix time in milliseconds, where the clock of the program starts. ``clock_ms`` returns the time
    with which that clock continues after each answer, the host's when None; an engine that repeats steps returns times
    that it has recorded. ``state`` is where the programs of this call keep values for later ones, in place of
    ``CodeModeOptions.state``. Raises `ValueError` for a field of a wrong kind.
    """

    tool_call_id: str | None = None
    messages: Sequence[Any] = ()
    context: Any = None
    conversation_id: str | None = None
    started_at_ms: int | None = None
    clock_ms: Callable[[], int] | None = None
    state: Any = None

    def __post_init__(self) -> None:
        """Check what reaches tools, a signature and the guest's clock."""
        sequence(self.messages, "messages")
        if self.tool_call_id is not None:
            string_or_none(self.tool_call_id, "tool_call_id")
        if self.conversation_id is not None:
            text_or_none(self.conversation_id, "conversation_id")
        if self.clock_ms is not None:
            callable_or_none(self.clock_ms, "clock_ms")
        if self.started_at_ms is not None:
            positive(self.started_at_ms, "started_at_ms", MAX_TIME_MS)


_EMPTY = CallContext()


def check_call(call: CallContext | None) -> CallContext:
    """Return the context of a call, an empty one for None. Raises `ValueError` for anything else."""
    if call is None:
        return _EMPTY
    if isinstance(cast("Any", call), CallContext):
        return call
    raise WrongTypeError(f"call must be a CallContext or None, got {call!r:.100}; write CallContext(tool_call_id=...)")


@dataclass(frozen=True, kw_only=True, slots=True)
class OuterCall:
    """The call of a model as a surface starts it: its context, and how the surface runs its programs.

    ``is_traced``: a completed run has a trace even without listeners. ``listeners`` hear each event of the run before
    the hooks of the options; what they raise changes nothing. ``wait_ms`` is how long to wait for a program that may
    rest, None for as long as it may compute; with ``takes_output`` its output counts as delivered when it is
    interrupted, with ``keeps_output`` only when it has ended. ``tool_kind`` and ``tool_input_kind`` are for listeners
    of a surface whose tool name is not unique.
    """

    call: CallContext = _EMPTY
    is_traced: bool = False
    listeners: tuple[Callable[[Any], Any], ...] = ()
    wait_ms: int | None = None
    takes_output: bool = False
    keeps_output: bool = False
    tool_kind: str | None = None
    tool_input_kind: str | None = None
