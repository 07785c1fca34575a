"""The large strings of one invocation, which its program has as references. Pure: knows no request and no worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..data.json_values import utf8_length
from ..data.large_strings import (
    LargeStrings,
    cut_large_strings,
    large_string,
    places_in,
    read_with_strings,
    text_with_strings,
)
from ..errors import CodeModeProtocolError, CodeModeSerializationError
from ..profile import SidecarRules

SIDECAR_LIMIT = "SIDECAR_LIMIT"
"""The code of a call whose strings are too large, or too many, for the program to have."""

MAX_REFERENCES = 1 << 15
"""Each is an object in the engine, however short its string."""


class Sidecar:
    """Large strings of what tools gave, numbered in the order in which the program was handed them.

    The numbers are the same in a replay, and mean something in this invocation alone. In what the program sends they
    stand where the strings go; into one value goes no more than all strings of an invocation may have.
    """

    def __init__(self, rules: SidecarRules) -> None:
        self._rules = rules
        self._texts: list[str] = []
        self._sizes: list[int] = []
        self._numbers: dict[str, int] = {}  # of the first string with this text
        self._strings: dict[int, str] = {}  # those that were read
        self._bytes = 0

    @property
    def max_total_bytes(self) -> int:
        """How much of them there may be, in all and in one value."""
        return self._rules.max_total_bytes

    def cut(self, text: str) -> LargeStrings | None:
        """Return the large strings of an output; None for none. Raises `CodeModeSerializationError` for a large one."""
        rules = self._rules
        large = cut_large_strings(text, rules.threshold_bytes, self._known_size)
        if large is not None and max(large.sizes) > rules.max_reference_bytes:
            size, maximum = max(large.sizes), rules.max_reference_bytes
            message = f"a string in the output has {size} bytes; maxReferenceSize is {maximum}"
            raise _limit_error(message, "maxReferenceSize", size, maximum)
        return large

    def refusal(self, large: LargeStrings, to_come: Sequence[LargeStrings] = ()) -> CodeModeSerializationError | None:
        """Return the error of an output whose large strings are too much beside those before, if they are.

        ``to_come`` are those of outputs before it that the program is yet to be handed.
        """
        maximum, size = self._rules.max_total_bytes, self._bytes + sum(sum(one.sizes) for one in (*to_come, large))
        if size > maximum:
            message = f"the large strings of this program have {size} bytes with this one's; maxTotalSize is {maximum}"
            return _limit_error(message, "maxTotalSize", size, maximum)
        if len(self._texts) + sum(len(one.texts) for one in (*to_come, large)) > MAX_REFERENCES:
            message = f"this program has more than {MAX_REFERENCES} large strings"
            return CodeModeSerializationError(message, code=SIDECAR_LIMIT, details={"max_references": MAX_REFERENCES})
        return None

    def add(self, large: LargeStrings) -> LargeStrings:
        """Take the strings of an output that the program is handed now, and return which of them it has already."""
        first = len(self._texts)
        numbers = [self._numbers.setdefault(text, number) for number, text in enumerate(large.texts, first)]
        repeats = [number if number < at else None for at, number in enumerate(numbers, first)]
        self._texts += large.texts
        self._sizes += large.sizes
        self._strings |= {at: one for at, one in enumerate(large.strings, first) if one is not None}
        self._bytes += sum(large.sizes)
        return LargeStrings(large.texts, large.sizes, large.rest_json, large.strings, tuple(repeats))

    def value(self, text: str, what: str) -> Any:
        """Decode a JSON text of the program's, with the strings in their places.

        Raises `ValueError` for what is no JSON, `CodeModeSerializationError` for too much, `CodeModeProtocolError` for
        strings that the program was not handed.
        """
        room = self._rules.max_total_bytes

        def string_at(number: int) -> str:
            nonlocal room
            room -= self._size_of(number)
            if room < 0:
                raise self._too_much(what)
            return self._string(number)

        return read_with_strings(text, string_at)

    def text(self, text: str, what: str) -> str:
        """Return a JSON text of the program's with the strings in their places. Raises as `value` does."""
        if self.length(text) - len(text) > self._rules.max_total_bytes:
            raise self._too_much(what)
        return text_with_strings(text, self._texts.__getitem__)

    def length(self, text: str) -> int:
        """Count the UTF-8 bytes of a JSON text of the program's with the strings in their places, escapes apart."""
        places = [*places_in(text)]
        digits = sum(len(str(number)) for number in places)
        return utf8_length(text) - 2 * len(places) - digits + sum(2 + self._size_of(number) for number in places)

    def _string(self, number: int) -> str:
        number = self._numbers[self._texts[number]]  # read once, however often it was handed out
        found = self._strings.get(number)
        if found is None:
            found = self._strings[number] = large_string(self._texts[number])
        return found

    def _known_size(self, text: str) -> int | None:
        number = self._numbers.get(text)
        return None if number is None or number >= len(self._sizes) else self._sizes[number]

    def _size_of(self, number: int) -> int:
        if number >= len(self._sizes):
            raise CodeModeProtocolError("the worker names a large string that it was not given")
        return self._sizes[number]

    def _too_much(self, what: str) -> CodeModeSerializationError:
        maximum = self._rules.max_total_bytes
        message = f"{what} has more than {maximum} bytes of large strings in it; maxTotalSize is {maximum}"
        return _limit_error(message, "maxTotalSize", None, maximum)


def _limit_error(message: str, limit: str, size: int | None, maximum: int) -> CodeModeSerializationError:
    known = {} if size is None else {"bytes": size}
    return CodeModeSerializationError(
        message, code=SIDECAR_LIMIT, details={"limit": limit, **known, "max_bytes": maximum}
    )
