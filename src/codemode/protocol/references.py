"""Hold media and large strings that a program has by reference."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..cached_property import cached_property
from ..data.content import DistinctContents, MediaContent
from ..data.json_values import count_utf8_bytes
from ..data.large_strings import (
    LargeStrings,
    decode_json_with_large_strings,
    decode_large_string,
    expand_references,
    extract_large_strings,
    iterate_reference_numbers,
)
from ..errors import CodeModeProtocolError, CodeModeSerializationError
from ..profile import LargeStringRules

if TYPE_CHECKING:
    from ..options.parts import ExecutionPolicy


# A part is named by its id, derived from its bytes, or by a number stored with it, so that a replay has the same names.
# The tag marks an object in JSON text as a handle and is unique to this invocation: handles quoted from elsewhere are
# plain data.

CONTENT_LIMIT = "CODE_MODE_CONTENT_LIMIT"
"""The code of a call with more content than allowed, and of a pause that cannot carry its content."""

ID_CHARACTERS = 32
_NUMBER = "#"
MAX_CARRIED_BYTES = 1 << 20
"""The maximum of content in a continuation, if no store has it."""


@lru_cache(maxsize=32)  # a run needs its own several times
def get_content_tag(salt: str) -> str:
    """Return the tag of content of the invocation with this salt."""
    return "$content:" + hashlib.sha256(b"content\0" + salt.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class ContentRegistry:
    """The parts of one invocation by name, in order of registration.

    A name is the part's id if ``uses_ids``; else a number, so that no digest is computed before one is needed:
    texts that leave the run have the parts next to their names, and people see ids (`replace_names_with_ids`).
    """

    def __init__(self) -> None:
        self.parts: dict[str, MediaContent] = {}
        """By their names."""
        self._bytes = 0
        self._limits: ExecutionPolicy | None = None
        self.uses_ids = True
        self.reference_key = ""
        self.stored_names: set[str] = set()  # the names of parts in a store
        self.unloaded_ids: tuple[str, ...] = ()  # the ids of stored parts that are not loaded
        self.displayed_names: list[str] = []  # the names of parts that the program displayed

    @cached_property
    def _distinct_contents(self) -> DistinctContents[str]:
        return DistinctContents()

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[MediaContent]:
        return iter(self.parts.values())

    def __contains__(self, name: object) -> bool:
        return name in self.parts

    def items(self) -> Iterable[tuple[str, MediaContent]]:
        """Return the parts and their names."""
        return self.parts.items()

    def assign_to_invocation(
        self, limits: ExecutionPolicy, salt: str, recorded: ContentRegistry | None = None
    ) -> ContentRegistry:
        """Assign the registry to an invocation with these limits and recorded parts."""
        self._limits, self.reference_key, self.displayed_names = limits, get_content_tag(salt), []
        if recorded is not None and recorded is not self:
            for name, part in recorded.items():
                self.add_admitted_part(part, name)
            self.stored_names |= recorded.stored_names
        return self

    @property
    def limits(self) -> ExecutionPolicy | None:
        """The limits of its invocation."""
        return self._limits

    @property
    def total_bytes(self) -> int:
        """The bytes of all parts."""
        return self._bytes

    def get(self, part_id: object) -> MediaContent:
        """Return a part by its name or id. Raises `CodeModeSerializationError` for an unknown name."""
        part = self.parts.get(part_id) if isinstance(part_id, str) else None
        if part is None and isinstance(part_id, str) and len(part_id) == ID_CHARACTERS:
            part = next((candidate for candidate in self if candidate.id == part_id), None)
        if part is None:
            raise CodeModeSerializationError("a handle of content that this program did not receive")
        return part

    def register(self, part: MediaContent) -> dict[str, Any]:
        """Register a part and return its handle, an object for JSON text.

        Raises `CodeModeSerializationError` with the code `CONTENT_LIMIT`.
        """
        name = self._distinct_contents.find_name(part)
        if name is None:
            self._require_room_for_part(part)
            name = part.id if self.uses_ids else f"{_NUMBER}{len(self.parts) + 1}"
            self.add_admitted_part(part, name)
        return {self.reference_key: name, **part.description}

    def add_admitted_part(self, part: MediaContent, name: str | None = None) -> None:
        """Add a part that was admitted before, by its id if it has no name."""
        name = part.id if name is None else name
        if name not in self.parts:
            self.parts[name] = part
            self._distinct_contents.add(part, name)
            self._bytes += part.size

    def list_parts_to_hash(self, part: MediaContent) -> list[MediaContent]:
        """Return the parts whose ids are needed to register this one; computing them may take a while."""
        return [part] if self.uses_ids else self._distinct_contents.find_contents_to_compare(part)

    def replace_names_with_ids(self, text: str | None) -> str | None:
        """Return JSON text with ids in place of numbers. May compute the ids, which takes time."""
        if text is None or not self.reference_key or f'"{self.reference_key}":"{_NUMBER}' not in text:
            return text

        def replace_number(match: re.Match[str]) -> str:
            part = self.parts.get(match[2])
            return match[0] if part is None else f'{match[1]}{part.id}"'

        return re.sub(f'("{re.escape(self.reference_key)}":")({_NUMBER}[0-9]+)"', replace_number, text)

    def _require_room_for_part(self, part: MediaContent) -> None:
        self.require_within_limits(part, self._bytes + part.size, len(self.parts) + 1)

    def require_within_limits(self, part: MediaContent, all_bytes: int, count: int) -> None:
        """Raise `CodeModeSerializationError` for a part that is too large, or one too many."""
        limits = self._limits
        if limits is None:
            return
        for option, size, maximum, what in (
            ("max_content_part_bytes", part.size, limits.max_content_part_bytes, "one part of content has {} bytes"),
            ("max_content_bytes", all_bytes, limits.max_content_bytes, "all content has {} bytes"),
            ("max_content_parts", count, limits.max_content_parts, "there are {} parts of content"),
        ):
            if size > maximum:
                raise CodeModeSerializationError(
                    f"{what.format(size)} with the output of this call; execution_policy.{option} is {maximum}",
                    code=CONTENT_LIMIT,
                    details={"limit": option, "max": maximum},
                )

    def require_fits_in_continuation(self) -> None:
        """Raise `CodeModeSerializationError` for more content than a continuation carries."""
        if self._bytes > MAX_CARRIED_BYTES:
            raise CodeModeSerializationError(
                f"the program cannot pause: its content has {self._bytes} bytes, and without a store a continuation"
                f" carries at most {MAX_CARRIED_BYTES}. Give the guard of a store as continuation.guard, its journal as"
                " continuation.journal, or a continuation.content_store",
                code=CONTENT_LIMIT,
                details={"limit": "content_store", "max": MAX_CARRIED_BYTES},
            )


SIDECAR_LIMIT = "SIDECAR_LIMIT"
"""The code of a call whose strings are too large or too many for the program."""

MAX_REFERENCES = 1 << 15
"""Each is an object in the engine, however short its string."""


class LargeStringRegistry:
    """The large strings of tool outputs, numbered in the order of their delivery.

    The numbers are the same in a replay and valid in this invocation alone. Values of the program have references
    in place of the strings; one value may hold at most as much as all strings of an invocation.
    """

    def __init__(self, rules: LargeStringRules) -> None:
        self._rules = rules
        self._texts: list[str] = []
        self._sizes: list[int] = []
        self._numbers: dict[str, int] = {}  # of the first string with this text
        self._strings: dict[int, str] = {}  # already decoded
        self._bytes = 0

    @property
    def max_total_bytes(self) -> int:
        """The maximum bytes of large strings in all and in one value."""
        return self._rules.max_total_bytes

    def extract_strings(self, text: str) -> LargeStrings | None:
        """Return the large strings of an output, if any. Raises `CodeModeSerializationError` for one too large."""
        rules = self._rules
        large = extract_large_strings(text, rules.threshold_bytes, self._find_size_by_text)
        if large is not None and max(large.sizes) > rules.max_reference_bytes:
            size, maximum = max(large.sizes), rules.max_reference_bytes
            message = f"a string in the output has {size} bytes; maxReferenceSize is {maximum}"
            raise _make_limit_error(message, "maxReferenceSize", size, maximum)
        return large

    def find_limit_error(
        self, large: LargeStrings, undelivered: Sequence[LargeStrings] = ()
    ) -> CodeModeSerializationError | None:
        """Return the error of an output that exceeds the limits together with earlier strings; None if it does not.

        ``undelivered`` are the strings of earlier outputs that are not delivered yet.
        """
        maximum, size = (
            self._rules.max_total_bytes,
            self._bytes + sum(sum(other.sizes) for other in (*undelivered, large)),
        )
        if size > maximum:
            message = f"the large strings of this program have {size} bytes with this one's; maxTotalSize is {maximum}"
            return _make_limit_error(message, "maxTotalSize", size, maximum)
        if len(self._texts) + sum(len(other.texts) for other in (*undelivered, large)) > MAX_REFERENCES:
            message = f"this program has more than {MAX_REFERENCES} large strings"
            return CodeModeSerializationError(message, code=SIDECAR_LIMIT, details={"max_references": MAX_REFERENCES})
        return None

    def add_strings(self, large: LargeStrings) -> LargeStrings:
        """Add the strings of an output that is delivered now; return them with repeats marked."""
        first = len(self._texts)
        numbers = [self._numbers.setdefault(text, number) for number, text in enumerate(large.texts, first)]
        repeats = [number if number < index else None for index, number in enumerate(numbers, first)]
        self._texts += large.texts
        self._sizes += large.sizes
        self._strings |= {index: string for index, string in enumerate(large.strings, first) if string is not None}
        self._bytes += sum(large.sizes)
        return LargeStrings(large.texts, large.sizes, large.rest_json, large.strings, tuple(repeats))

    def decode_json_with_strings(self, text: str, what: str) -> Any:
        """Decode a JSON text of the program with its large strings.

        Raises `ValueError` for text that is not JSON, `CodeModeSerializationError` for too much,
        `CodeModeProtocolError` for unknown strings.
        """
        room = self._rules.max_total_bytes

        def get_string_and_spend_budget(number: int) -> str:
            nonlocal room
            room -= self._get_size_by_number(number)
            if room < 0:
                raise self._make_total_size_error(what)
            return self._get_or_decode_string(number)

        return decode_json_with_large_strings(text, get_string_and_spend_budget)

    def expand_string_references(self, text: str, what: str) -> str:
        """Return a JSON text of the program with its large strings. Raises as `decode_json_with_strings` does."""
        if self.measure_restored_bytes(text) - len(text) > self._rules.max_total_bytes:
            raise self._make_total_size_error(what)
        return expand_references(text, self._texts.__getitem__)

    def measure_restored_bytes(self, text: str) -> int:
        """Count the UTF-8 bytes of a JSON text of the program with its large strings, without escapes."""
        places = [*iterate_reference_numbers(text)]
        digits = sum(len(str(number)) for number in places)
        return (
            count_utf8_bytes(text)
            - 2 * len(places)
            - digits
            + sum(2 + self._get_size_by_number(number) for number in places)
        )

    def _get_or_decode_string(self, number: int) -> str:
        number = self._numbers[self._texts[number]]  # decoded once, however often it was delivered
        string = self._strings.get(number)
        if string is None:
            string = self._strings[number] = decode_large_string(self._texts[number])
        return string

    def _find_size_by_text(self, text: str) -> int | None:
        number = self._numbers.get(text)
        return None if number is None or number >= len(self._sizes) else self._sizes[number]

    def _get_size_by_number(self, number: int) -> int:
        if number >= len(self._sizes):
            raise CodeModeProtocolError("the worker names a large string that it was not given")
        return self._sizes[number]

    def _make_total_size_error(self, what: str) -> CodeModeSerializationError:
        maximum = self._rules.max_total_bytes
        message = f"{what} has more than {maximum} bytes of large strings in it; maxTotalSize is {maximum}"
        return _make_limit_error(message, "maxTotalSize", None, maximum)


def _make_limit_error(message: str, limit: str, size: int | None, maximum: int) -> CodeModeSerializationError:
    details = {} if size is None else {"bytes": size}
    return CodeModeSerializationError(
        message, code=SIDECAR_LIMIT, details={"limit": limit, **details, "max_bytes": maximum}
    )
