"""Call one tool without a program, through a stand-in for a worker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..data.json_values import (
    NOT_GIVEN,
    count_stringified_bytes,
    count_utf8_bytes,
    decode_json,
    encode_json,
    replace_lone_surrogates,
)
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


_MAX_SAFE_INTEGER = 2**53
_MAX_ARRAY_INDEX = 2**32 - 2
_DIFFERENT_IN_LITERAL = re.compile("[0-9]{16}|__proto__")
# Python's encoder writes these types as the engine does, and faster.
_PLAIN_SCALARS = frozenset({str, int, bool, type(None)})
_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_engine_json_and_literal(value: Any) -> tuple[str, str]:
    """Return a value as the engine's JSON, which a replay compares, and as a JavaScript literal.

    In the literal a large integer is a BigInt, and ``__proto__`` an ordinary key.
    """
    text = _encode_for_engine(value, is_literal=False)
    return text, _encode_for_engine(value, is_literal=True) if _DIFFERENT_IN_LITERAL.search(text) else text


def _encode_for_engine(value: Any, *, is_literal: bool) -> str:
    parts: list[str] = []
    _append_encoded_value(value, parts.append, is_literal=is_literal)
    return "".join(parts)


def _append_encoded_value(value: Any, append: Callable[[str], object], *, is_literal: bool) -> None:
    if is_object(value) and not (
        _are_plain_scalars(value.values(), is_literal=is_literal) and _is_in_engine_order(value)
    ):
        append("{")
        for index, key in enumerate(_sort_keys_in_engine_order(value)):
            key_text = quote_js_string(key)
            append(f"{',' if index else ''}{f'[{key_text}]' if is_literal and key == '__proto__' else key_text}:")
            _append_encoded_value(value[key], append, is_literal=is_literal)
        append("}")
    elif is_array(value) and not _are_plain_scalars(value, is_literal=is_literal):
        append("[")
        for index, item in enumerate(value):
            if index:
                append(",")
            _append_encoded_value(item, append, is_literal=is_literal)
        append("]")
    elif isinstance(value, float):
        append(_format_ecmascript_number(value))
    elif is_literal and type(value) is int and abs(value) > _MAX_SAFE_INTEGER:
        append(f"{value}n")
    else:
        append(_encode_json(value))


def _are_plain_scalars(values: Collection[Any], *, is_literal: bool) -> bool:
    """Return True if Python and the engine encode all values the same way."""
    kinds = set(map(type, values))
    if not kinds <= _PLAIN_SCALARS:
        return False
    return not (
        is_literal and int in kinds and any(type(value) is int and abs(value) > _MAX_SAFE_INTEGER for value in values)
    )


def _is_in_engine_order(value: Mapping[str, Any]) -> bool:
    """Return True if the members are in the engine's order and no key needs another literal."""
    return "__proto__" not in value and not any(map(str.isdigit, value))


def _sort_keys_in_engine_order(value: Mapping[str, Any]) -> list[str]:
    """Return the keys in the engine's order: array indices first, by number."""
    indices = [key for key in value if _is_array_index(key)]
    return sorted(indices, key=int) + [key for key in value if not _is_array_index(key)] if indices else list(value)


def _is_array_index(key: str) -> bool:
    is_plain = key.isascii() and key.isdigit() and (key == "0" or key[0] != "0")
    return is_plain and len(key) <= 10 and int(key) <= _MAX_ARRAY_INDEX


def quote_js_string(text: str) -> str:
    """Return a text as a JSON string, which is also a JavaScript string."""
    return json.dumps(text, ensure_ascii=False)


def _format_ecmascript_number(value: float) -> str:
    """Format a number as ECMAScript does (Number::toString), from the digits of Python."""
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


_MAX_BYTES_PER_CHARACTER = 4


@record
class DirectCall:
    """A call and the script ``js`` that only makes this call. Pauses of both are interchangeable.

    ``input_bytes`` replaces an input that is too large.
    """

    js: str
    name: str
    input_json: str | None
    input_bytes: int | None = None

    @classmethod
    def from_value(cls, name: str, value: Any) -> DirectCall:
        """Return the call with a plain JSON input; `NOT_GIVEN` for none.

        Raises `CodeModeSerializationError` for an input that is not JSON.
        """
        if value is NOT_GIVEN:
            name = replace_lone_surrogates(name)
            return cls(f"return await callTool({quote_js_string(name)})", name, None)
        return cls.from_json(name, encode_json(value, what=f"the input of tool {name!r}"))

    @classmethod
    def from_json(cls, name: str, text: str, max_bytes: int | None = None) -> DirectCall:
        """Return the call with an input encoded by `encode_json`. An input far too large is not read."""
        name = replace_lone_surrogates(name)
        if max_bytes is not None and (size := _measure_if_too_long(text, max_bytes)) is not None:
            return cls(f"return await callTool({quote_js_string(name)}, {text})", name, None, size)
        text, literal = to_engine_json_and_literal(decode_json(text))
        return cls(f"return await callTool({quote_js_string(name)}, {literal})", name, text)


def _measure_if_too_long(text: str, max_characters: int) -> int | None:
    """Return the UTF-8 bytes of an input that is surely too long; a script sends only its size."""
    max_length = max_characters if "\\u" not in text else _MAX_BYTES_PER_CHARACTER * max_characters
    if len(text) <= max_length:
        return None
    size = count_stringified_bytes(text)
    return size if size > max_length else None


def _count_utf16_units(text: str) -> int:
    """Count characters as the engine does, which checks the limit in UTF-16 units first."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


class DirectCallWorkerStandIn:
    """Replaces the lease and the channel of a worker: issues one call and ends with its outcome.

    It takes no slot. Code that its tool starts is still part of the invocation.
    """

    is_reusable = False
    needs_spare = False

    def __init__(self, call: DirectCall, threads: InvocationThreads) -> None:
        self.slot = InvocationSlot()
        self._call = call
        self._threads = threads
        self._on_message: Callable[[WorkerMessage], None] | None = None
        self._max_input_bytes: int | None = None

    def open_channel(
        self,
        max_frame_bytes: int,  # noqa: ARG002 - as `WorkerLease` has it
        *,
        on_message: Callable[[WorkerMessage], None],
        **_: Any,
    ) -> DirectCallWorkerStandIn:
        """Return the channel of the stand-in worker."""
        self._on_message = on_message
        return self

    def send(self, message: HostMessage, *, hold: bool = False) -> None:  # noqa: ARG002 - as `MessageChannel` has it
        """Handle a message as a worker that runs the script would."""
        match message:
            case RunProgram(_, settings):
                self._max_input_bytes = settings["max_tool_input_bytes"]
            case DeliverValue():
                text = message.guest_json
                self._emit_message(ProgramReturned(text, text is None, None, ()))
            case DeliverError(request_id, _, name, text, code):
                self._emit_message(ProgramThrew(name, text, code, "", "program", request_id, None))
            case _:
                raise CodeModeProtocolError("a call without a script is neither analysed nor run")

    def start_receiving(self) -> None:
        """Issue the call, unless the invocation has ended."""
        if self._max_input_bytes is None:
            return
        text, size = self._call.input_json, self._call.input_bytes
        if text is not None and _count_utf16_units(text) > self._max_input_bytes:
            text, size = None, count_utf8_bytes(text)
        self._emit_message(CallRequested(1, "tool", self._call.name, text, size))
        self._emit_message(TurnEnded(1))

    def take_undelivered_frame(self) -> None:
        """Return None: there is no worker."""

    def close(self) -> None:
        """Emit nothing more."""
        self._on_message = None

    def _emit_message(self, message: WorkerMessage) -> None:
        if self._on_message is not None:
            self._on_message(message)

    def refill_spares(self, wanted: int | None = None) -> None:
        """Do nothing: no worker was taken."""

    def offer_for_reuse(self, frame: bytes) -> None:
        """Do nothing: there is no worker."""

    def kill(self) -> None:
        """Do nothing: there is no worker."""

    def kill_and_release(self) -> None:
        """Release it."""
        self.release()

    def release(self) -> None:
        """Release it once no tool runs in its threads."""
        self._threads.call_when_idle(self._release_slot)

    def _release_slot(self) -> None:
        self.slot.is_held = False
