"""The seat of a runner: a place to run on, the way to a worker, and who checks the program. Runs nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ..errors import CodeModeProtocolError
from ..options.parts import MAX_SOURCE_BYTES
from ..protocol import events
from ..protocol.messages import HostMessage, WorkerMessage
from ..protocol.settings import Settings
from ..workers.nesting import Place

if TYPE_CHECKING:
    from ..data.program_facts import Facts

# What a worker says of a program: its text and its facts, each escaped to at most six bytes a byte.
_MAX_ANALYSIS_BYTES = 12 * MAX_SOURCE_BYTES
_FRAME_SLACK_BYTES = 1 << 20


class ProgramCheck(Protocol):
    """Compares an analysed program with the tools."""

    def __call__(self, js: str, facts: Facts | None, size: int, /) -> events.ProgramAccepted | events.ProgramRefused:
        """Return that it may run, or what is certainly wrong with it."""
        ...


Preparation: TypeAlias = "Callable[[Facts | None], Awaitable[None] | None]"
"""Returns what the tools have to do before a program is checked, if there is anything."""


class Channel(Protocol):
    """The way to a worker, as `WorkerChannel` is."""

    def listen(self) -> None:
        """Begin to hear it."""
        ...

    def send(self, message: HostMessage, *, hold: bool = False) -> None:
        """Send one message; with ``hold`` more may follow at once."""
        ...

    def left_over(self) -> bytes | None:
        """Return the one frame that was heard and not told, empty for none; None: more, or something was not sent."""
        ...

    def close(self) -> None:
        """Hear and send nothing more."""
        ...


class Seat(Protocol):
    """What an invocation runs on, as `Lease` is."""

    @property
    def place(self) -> Place:
        """The place that what it starts is part of."""
        ...

    @property
    def may_go_on(self) -> bool:
        """True where a worker may have another program when this one has ended well."""
        ...

    @property
    def lacks_spare(self) -> bool:
        """True when the next one is to be made ready at once."""
        ...

    def channel(
        self,
        max_frame_bytes: int,
        *,
        on_message: Callable[[WorkerMessage], None],
        on_end: Callable[[str], None],
        on_violation: Callable[[CodeModeProtocolError], None],
        on_failure: Callable[[Exception], None],
    ) -> Channel:
        """Open the way to the worker."""
        ...

    def refill(self, wanted: int | None = None) -> None:
        """Let the next one be made ready."""
        ...

    def ended_well(self, said: bytes) -> None:
        """Let the worker have another program, where there are such. ``said``: what it has said since."""
        ...

    def kill(self) -> None:
        """End the worker at once."""
        ...

    def leave(self) -> None:
        """End the worker at once, and give all back."""
        ...

    def give_back(self) -> None:
        """Give all back."""
        ...


def max_frame_bytes(settings: Settings) -> int:
    """Return how long a frame of a worker may be that runs under these settings."""
    # A text travels as a JSON string: escaping at most doubles ASCII, and the kernel counts UTF-16 units.
    value_bytes = 3 * max(settings.limits.max_result_bytes, settings.limits.max_tool_input_bytes)
    return max(value_bytes, _MAX_ANALYSIS_BYTES) + _FRAME_SLACK_BYTES


def said_since(ending: events.Ending, channel: Channel, *, is_idle: bool) -> bytes | None:
    """Return what a worker has said since its program ended well, None where that has not ended so.

    Well: it has given its result and left nothing behind. No call is under way (``is_idle``) or was abandoned, and
    nothing is left to be sent or read, but for the one frame in which a worker may say that it is ready for another.
    """
    is_well = is_idle and isinstance(ending, events.Completed) and not ending.abandoned
    return channel.left_over() if is_well else None
