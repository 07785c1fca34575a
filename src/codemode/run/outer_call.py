"""The model's own call, and what it brings along. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..dataclass import dataclass
from ..options.checked_fields import callable_or_none, positive, sequence, string_or_none, text_or_none

MAX_TIME_MS = 8_640_000_000_000_000
"""The last moment that a JavaScript date knows."""


@dataclass(frozen=True, slots=True)
class OuterCall:
    """What the model's own call carries. ``messages`` and ``context`` reach every tool.

    ``is_traced``: a run that completes has a trace too, whether or not somebody listens. ``started_at_ms`` is when the
    call was first made, if somebody has noted it; ``context_binding`` names the conversation that it belongs to;
    ``clock_ms`` is the clock that the program is told of with each answer, the host's when None. ``listeners`` hear
    every event of the run before the hooks of its options do, and what they raise changes as little. ``wait_ms`` is how
    long it waits for a program that may rest, as long as that may compute when None; with ``takes_output`` what such a
    program had written counts as handed over when it is interrupted. With ``keeps_output`` nothing counts so before it
    has ended: whoever goes on with what it is interrupted by is given all of it again.
    ``state`` is where programs leave values for each other, in place of what the options say.
    ``tool_kind`` and ``tool_input_kind`` are told to whoever listens, for a surface whose tool has a name that others
    have too.
    Raises `ValueError` when one of them is of a wrong kind.
    """

    tool_call_id: str | None = None
    messages: Sequence[Any] = ()
    context: Any = None
    is_traced: bool = False
    started_at_ms: int | None = None
    context_binding: str | None = None
    clock_ms: Callable[[], int] | None = None
    listeners: tuple[Callable[[Any], Any], ...] = ()
    wait_ms: int | None = None
    takes_output: bool = False
    keeps_output: bool = False
    tool_kind: str | None = None
    tool_input_kind: str | None = None
    state: Any = None

    def __post_init__(self) -> None:
        """Check what reaches tools, a signature and the guest's clock."""
        sequence(self.messages, "messages")
        if self.tool_call_id is not None:
            string_or_none(self.tool_call_id, "tool_call_id")
        if self.context_binding is not None:
            text_or_none(self.context_binding, "context_binding")
        if self.clock_ms is not None:
            callable_or_none(self.clock_ms, "clock_ms")
        if self.started_at_ms is not None:
            positive(self.started_at_ms, "started_at_ms", MAX_TIME_MS)
