"""One call of a tool without a script: its text, and what stands in for a worker that would run it. Runs no code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..data.json_values import NOT_GIVEN, decode_json, encode_json, json_length, utf8_length, well_formed
from ..data.records import record
from ..errors import CodeModeProtocolError
from ..protocol.messages import (
    CallRequested,
    DeliverError,
    DeliverValue,
    HostMessage,
    ProgramReturned,
    ProgramThrew,
    RunProgram,
    TurnEnded,
    WorkerMessage,
)
from ..workers.nesting import Place
from .engine_text import engine_texts, string_text

if TYPE_CHECKING:
    from ..host.threads import InvocationThreads

_MAX_BYTES_OF_A_CHARACTER = 4


@record
class DirectCall:
    """A call, and the script ``js`` that makes it and nothing else. A pause of the one is a pause of the other.

    ``input_bytes`` stands in place of the input of one that is too large.
    """

    js: str
    name: str
    input_json: str | None
    input_bytes: int | None = None

    @classmethod
    def of(cls, name: str, value: Any) -> DirectCall:
        """Return the call with this input, plain JSON; `NOT_GIVEN` for none.

        Raises `CodeModeSerializationError` for what is no JSON.
        """
        if value is NOT_GIVEN:
            name = well_formed(name)
            return cls(f"return await callTool({string_text(name)})", name, None)
        return cls.of_text(name, encode_json(value, what=f"the input of tool {name!r}"))

    @classmethod
    def of_text(cls, name: str, text: str, max_bytes: int | None = None) -> DirectCall:
        """Return the call with an input that `encode_json` has written. One that is far too large is not even read."""
        name = well_formed(name)
        if max_bytes is not None and (size := _size_beyond(text, max_bytes)) is not None:
            return cls(f"return await callTool({string_text(name)}, {text})", name, None, size)
        text, literal = engine_texts(decode_json(text))
        return cls(f"return await callTool({string_text(name)}, {literal})", name, text)


def _size_beyond(text: str, max_characters: int) -> int | None:
    """Return the UTF-8 bytes of an input that certainly has more characters: of such a one a script sends the size."""
    most = max_characters if "\\u" not in text else _MAX_BYTES_OF_A_CHARACTER * max_characters
    if len(text) <= most:
        return None
    size = json_length(text)
    return size if size > most else None


def _utf16_units(text: str) -> int:
    """Count characters as the engine does, which compares them with the limit before anybody counts bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


class DirectSeat:
    """Stands in for the lease of a worker, and for its channel: asks for one call and ends with what it is answered.

    It takes no slot. What its tool starts is part of the invocation all the same.
    """

    may_go_on = False
    lacks_spare = False

    def __init__(self, call: DirectCall, threads: InvocationThreads) -> None:
        self.place = Place()
        self._call = call
        self._threads = threads
        self._tell: Callable[[WorkerMessage], None] | None = None
        self._max_input_bytes: int | None = None

    def channel(
        self,
        max_frame_bytes: int,  # noqa: ARG002 - as `Lease` has it
        *,
        on_message: Callable[[WorkerMessage], None],
        **_: Any,
    ) -> DirectSeat:
        """Return what a worker is spoken to through."""
        self._tell = on_message
        return self

    def send(self, message: HostMessage, *, hold: bool = False) -> None:  # noqa: ARG002 - as `WorkerChannel` has it
        """Take a message, as a worker that runs the script would."""
        match message:
            case RunProgram(_, settings):
                self._max_input_bytes = settings["max_tool_input_bytes"]
            case DeliverValue():
                text = message.handed_json
                self._say(ProgramReturned(text, text is None, None, ()))
            case DeliverError(request_id, _, name, text, code):
                self._say(ProgramThrew(name, text, code, "", "program", request_id, None))
            case _:
                raise CodeModeProtocolError("a call without a script is neither analysed nor run")

    def listen(self) -> None:
        """Ask for the call, unless the invocation has ended already."""
        if self._max_input_bytes is None:
            return
        text, size = self._call.input_json, self._call.input_bytes
        if text is not None and _utf16_units(text) > self._max_input_bytes:
            text, size = None, utf8_length(text)
        self._say(CallRequested(1, "tool", self._call.name, text, size))
        self._say(TurnEnded(1))

    def left_over(self) -> None:
        """Return None: there is nobody who could say anything."""

    def close(self) -> None:
        """Say nothing more."""
        self._tell = None

    def _say(self, message: WorkerMessage) -> None:
        if self._tell is not None:
            self._tell(message)

    def refill(self, wanted: int | None = None) -> None:
        """Do nothing: no worker was taken."""

    def ended_well(self, said: bytes) -> None:
        """Do nothing: there is no worker."""

    def kill(self) -> None:
        """Do nothing: there is no worker."""

    def leave(self) -> None:
        """End it."""
        self.give_back()

    def give_back(self) -> None:
        """End it, once no tool runs in its threads any more."""
        self._threads.call_when_free(self._ended)

    def _ended(self) -> None:
        self.place.is_taken = False
