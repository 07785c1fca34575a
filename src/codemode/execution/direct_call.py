"""Call one tool without a program: its text, and the stand-in for a worker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..data.json_values import NOT_GIVEN, decode_json, encode_json, json_length, utf8_length, well_formed
from ..data.narrowing import is_array, is_object
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
from ..records import record
from ..workers.lease import InvocationSlot

if TYPE_CHECKING:
    from ..host.threads import InvocationThreads


_LAST_EXACT = 2**53
_LAST_INDEX = 2**32 - 2
_SAID_OTHERWISE = re.compile("[0-9]{16}|__proto__")
# What Python's own encoder writes as the engine does, at once where a container holds nothing else.
_ALIKE = frozenset({str, int, bool, type(None)})
_encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def engine_texts(value: Any) -> tuple[str, str]:
    """Return a value as the engine's JSON has it, which a replay compares; and as a literal, nearly always the same.

    In the literal an integer that no number holds is a BigInt, and ``__proto__`` a key like any other.
    """
    text = _text(value, is_literal=False)
    return text, _text(value, is_literal=True) if _SAID_OTHERWISE.search(text) else text


def _text(value: Any, *, is_literal: bool) -> str:
    parts: list[str] = []
    _write(value, parts.append, is_literal=is_literal)
    return "".join(parts)


def _write(value: Any, put: Callable[[str], object], *, is_literal: bool) -> None:
    if is_object(value) and not (_is_alike(value.values(), is_literal=is_literal) and _is_in_order(value)):
        put("{")
        for at, key in enumerate(_in_order(value)):
            shown = string_text(key)
            put(f"{',' if at else ''}{f'[{shown}]' if is_literal and key == '__proto__' else shown}:")
            _write(value[key], put, is_literal=is_literal)
        put("}")
    elif is_array(value) and not _is_alike(value, is_literal=is_literal):
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
        put(_encoded(value))


def _is_alike(values: Collection[Any], *, is_literal: bool) -> bool:
    """Tell whether values are scalars that are written as Python writes them."""
    kinds = set(map(type, values))
    if not kinds <= _ALIKE:
        return False
    return not (is_literal and int in kinds and any(type(one) is int and abs(one) > _LAST_EXACT for one in values))


def _is_in_order(value: Mapping[str, Any]) -> bool:
    """Tell whether an object has its members as they stand, and no key that a literal says otherwise."""
    return "__proto__" not in value and not any(map(str.isdigit, value))


def _in_order(value: Mapping[str, Any]) -> list[str]:
    """Return the keys as an object has them: first those that are indices, by number."""
    indices = [key for key in value if _is_index(key)]
    return sorted(indices, key=int) + [key for key in value if not _is_index(key)] if indices else list(value)


def _is_index(key: str) -> bool:
    is_plain = key.isascii() and key.isdigit() and (key == "0" or key[0] != "0")
    return is_plain and len(key) <= 10 and int(key) <= _LAST_INDEX


def string_text(text: str) -> str:
    """Return a text as a string of JSON, and of JavaScript."""
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

    is_reusable = False
    needs_spare = False

    def __init__(self, call: DirectCall, threads: InvocationThreads) -> None:
        self.slot = InvocationSlot()
        self._call = call
        self._threads = threads
        self._tell: Callable[[WorkerMessage], None] | None = None
        self._max_input_bytes: int | None = None

    def open_channel(
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
                text = message.guest_json
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

    def take_unread_frame(self) -> None:
        """Return None: there is nobody who could say anything."""

    def close(self) -> None:
        """Say nothing more."""
        self._tell = None

    def _say(self, message: WorkerMessage) -> None:
        if self._tell is not None:
            self._tell(message)

    def refill(self, wanted: int | None = None) -> None:
        """Do nothing: no worker was taken."""

    def mark_reusable(self, frame: bytes) -> None:
        """Do nothing: there is no worker."""

    def kill(self) -> None:
        """Do nothing: there is no worker."""

    def kill_and_release(self) -> None:
        """End it."""
        self.release()

    def release(self) -> None:
        """End it, once no tool runs in its threads any more."""
        self._threads.call_when_free(self._ended)

    def _ended(self) -> None:
        self.slot.is_held = False
