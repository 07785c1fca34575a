"""One call of a tool without a script: its text, and what stands in for a worker that would run it. Runs no code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..data.json_values import NOT_GIVEN, decode_json, encode_json, utf8_length, well_formed
from ..data.narrowing import is_array, is_object
from ..data.records import record
from ..errors import CodeModeProtocolError
from ..host import steps
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

if TYPE_CHECKING:
    from ..host.threads import InvocationThreads

_LAST_EXACT = 2**53
_LAST_INDEX = 2**32 - 2


@record
class DirectCall:
    """A call, and the script ``js`` that makes it and nothing else. A pause of the one is a pause of the other."""

    js: str
    name: str
    input_json: str | None

    @classmethod
    def of(cls, name: str, value: Any) -> DirectCall:
        """Return the call with this input, plain JSON; `NOT_GIVEN` for none.

        Raises `CodeModeSerializationError` for what is no JSON.
        """
        name = well_formed(name)
        if value is NOT_GIVEN:
            return cls(f"return await callTool({_string(name)})", name, None)
        plain = decode_json(encode_json(value, what=f"the input of tool {name!r}"))
        text, literal = list[str](), list[str]()
        _write(plain, text.append, is_literal=False)
        _write(plain, literal.append, is_literal=True)
        return cls(f"return await callTool({_string(name)}, {''.join(literal)})", name, "".join(text))


def _write(value: Any, put: Callable[[str], object], *, is_literal: bool) -> None:
    """Write a value as the engine's JSON has it, which a replay compares; or as JavaScript.

    As a literal an integer that no number holds is a BigInt, and ``__proto__`` a key like any other.
    """
    steps.take()
    if is_object(value):
        put("{")
        for at, key in enumerate(_in_order(value)):
            shown = _string(key)
            put(f"{',' if at else ''}{f'[{shown}]' if is_literal and key == '__proto__' else shown}:")
            _write(value[key], put, is_literal=is_literal)
        put("}")
    elif is_array(value):
        put("[")
        for at, item in enumerate(value):
            if at:
                put(",")
            _write(item, put, is_literal=is_literal)
        put("]")
    elif isinstance(value, float):
        put(_number(value))
    elif is_literal and type(value) is int and abs(value) > _LAST_EXACT:
        put(f"{value}n")
    else:
        put(json.dumps(value, ensure_ascii=False))


def _in_order(value: Mapping[str, Any]) -> list[str]:
    """Return the keys as an object has them: first those that are indices, by number."""
    indices = [key for key in value if _is_index(key)]
    return sorted(indices, key=int) + [key for key in value if not _is_index(key)] if indices else list(value)


def _is_index(key: str) -> bool:
    is_plain = key.isascii() and key.isdigit() and (key == "0" or key[0] != "0")
    return is_plain and len(key) <= 10 and int(key) <= _LAST_INDEX


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    """Return a number as ECMAScript writes it (Number::toString): with the digits that Python has, in other forms."""
    mantissa, has_exponent, exponent_text = repr(value).partition("e")
    if not has_exponent:
        return "0" if value == 0 else mantissa.removesuffix(".0")
    sign, exponent = "-" if value < 0 else "", int(exponent_text)
    digits = mantissa.lstrip("-").replace(".", "")
    if exponent > 20 or exponent < -6:
        point = "." if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{point}{digits[1:]}e{exponent:+d}"
    zeros = "0" * (-exponent - 1)
    return f"{sign}0.{zeros}{digits}" if exponent < 0 else f"{sign}{digits}{'0' * (exponent + 1 - len(digits))}"


class DirectSeat:
    """Stands in for the lease of a worker, and for its channel: asks for one call and ends with what it is answered.

    It takes no slot. What its tool starts is part of the invocation all the same.
    """

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
        text, size = self._call.input_json, None
        if text is not None and len(text) > self._max_input_bytes:
            text, size = None, utf8_length(text)
        self._say(CallRequested(1, "tool", self._call.name, text, size))
        self._say(TurnEnded(1))

    def close(self) -> None:
        """Say nothing more."""
        self._tell = None

    def _say(self, message: WorkerMessage) -> None:
        if self._tell is not None:
            self._tell(message)

    def refill(self, wanted: int | None = None) -> None:
        """Do nothing: no worker was taken."""

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
