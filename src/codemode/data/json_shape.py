"""Count depth and values of JSON text or host values before anything is built from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from dataclasses import fields, is_dataclass
from itertools import accumulate
from typing import Any, Literal, TypeVar, cast

from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow

UNLIMITED = 1 << 62
ResultT = TypeVar("ResultT")

_SLICE_CHARACTERS = 1 << 16
_WHITESPACE = b" \t\r\n"
_STRUCTURAL = b'[]{},"'
# Everything else is part of a scalar or a key, and which of them does not matter but for digits.
_CHARACTER_CLASSES = bytes(
    byte if byte in _STRUCTURAL else 0x30 if 0x30 <= byte <= 0x39 else 0x76 for byte in range(256)
)
_LEVEL_CHANGES = bytes.maketrans(b"[{]}", bytes([1, 1, 255, 255]))  # read as signed: up or down by one

Excess = Literal["depth", "containers", "values"]


def find_exceeded_limit(
    text: str, *, max_depth: int = UNLIMITED, max_containers: int = UNLIMITED, max_values: int = UNLIMITED
) -> Excess | None:
    """Return the limit that a JSON text exceeds, if any.

    A valid prefix is counted exactly; the parser never gets behind the first error.
    """
    brackets = text.count("[") + text.count("{")
    # Two characters at the least for each value.
    values = brackets + 1 + (text.count(",") if len(text) >= 2 * max_values else 0)
    if brackets <= max_depth and brackets <= max_containers and (len(text) < 2 * max_values or values <= max_values):
        return None
    return _ShapeCounter(max_depth, max_containers, max_values).find_exceeded_limit(text)


class _ShapeCounter:
    """The counts of one text so far."""

    def __init__(self, max_depth: int, max_containers: int, max_values: int) -> None:
        self._limits = max_depth, max_containers, max_values
        self._depth = self._containers = 0
        self._values = 1
        self._last_mark = b""  # last structural character of the previous slice

    def find_exceeded_limit(self, text: str) -> Excess | None:
        max_depth, max_containers, max_values = self._limits
        for marks in _iterate_structural_marks(text):
            if self._update_depth_and_compare(marks, max_depth):
                return "depth"
            containers = marks.count(b"[") + marks.count(b"{")
            joined = self._last_mark + marks
            self._last_mark = marks[-1:]
            self._containers += containers
            # Each comma has one more value behind it, and so has each bracket that is not closed at once.
            self._values += marks.count(b",") + containers - joined.count(b"[]") - joined.count(b"{}")
            if self._containers > max_containers:
                return "containers"
            # The last bracket may still turn out to be an empty one.
            if self._values > max_values + 1:
                return "values"
        return "values" if self._values > max_values else None

    def _update_depth_and_compare(self, marks: bytes, max_depth: int) -> bool:
        brackets = marks.translate(None, b',v0"')
        opened = brackets.count(b"[") + brackets.count(b"{")
        depth_before, self._depth = self._depth, self._depth + 2 * opened - len(brackets)
        if depth_before + opened <= max_depth:
            return False
        # Taking out innermost pairs lowers the depth by one at most, and leaves little of wide, flat data.
        rest = brackets.replace(b"{}", b"").replace(b"[]", b"").replace(b"{}", b"")
        if depth_before + rest.count(b"[") + rest.count(b"{") + 3 <= max_depth:
            return False
        levels = memoryview(brackets.translate(_LEVEL_CHANGES)).cast("b")
        return depth_before + max(accumulate(levels), default=0) > max_depth


def has_longer_digit_run(text: str, max_digits: int) -> bool:
    """Return whether a JSON text has more than ``max_digits`` digits in a row outside strings."""
    width = (max_digits + 1) // 2
    # So many digits fill a piece of half the length from end to end; hardly any other text does.
    if not any(text[start : start + width].isdigit() for start in range(0, len(text) - width + 1, width)):
        return False
    run, trailing_digits = b"0" * (max_digits + 1), b""
    for marks in _iterate_structural_marks(text):
        joined = trailing_digits + marks
        if run in joined:
            return True
        trailing_digits = joined[len(joined.rstrip(b"0")) :]
    return False


def _iterate_structural_marks(text: str) -> Iterator[bytes]:
    """Yield what stands outside strings, slice by slice: brackets, commas, digits as ``0``, ``v`` for the rest."""
    start, in_string = 0, False
    while start < len(text):
        end = start + _SLICE_CHARACTERS
        piece = text[start:end]
        if (len(piece) - len(piece.rstrip("\\"))) % 2:
            piece, end = text[start : end + 1], end + 1
        start = end
        if "\\" in piece:
            piece = piece.replace("\\\\", "").replace('\\"', "")
        parts = piece.encode("utf-8", "surrogatepass").translate(_CHARACTER_CLASSES, _WHITESPACE).split(b'"')
        outside = b"v".join(parts[in_string::2])
        if in_string:
            outside = b"v" + outside
        in_string ^= len(parts) % 2 == 0
        yield outside + b"v" if in_string else outside


# --- values of the host ---

SCALARS = frozenset({str, int, float, bool, type(None), bytes})

_TEXT_TYPES = str, bytes  # a constant: a union in the code would be created for each value
_type_of: Callable[[Any], type[Any]] = type
_keys_of: Callable[[Any], Iterator[Any]] = iter


def has_more_values_than(value: Any, maximum: int) -> bool:
    """Return whether a value has more than ``maximum`` values as JSON; counting stops there."""
    return count_values(value, maximum + 1) > maximum


def count_values(value: Any, limit: int) -> int:
    """Count the containers and scalars of a value, up to ``limit``."""
    count, pending = 1, [] if type(value) in SCALARS else [value]
    while pending and count < limit:
        children = get_child_values(pending.pop())
        count += len(children)
        if count < limit and not SCALARS.issuperset(map(type, children)):
            pending += [item for item in children if type(item) not in SCALARS]
    return count


async def run_off_loop_if_large(value: Any, work: Callable[[], ResultT]) -> ResultT:
    """Run host work on a value: on the event loop if it is small, else in a thread, one at a time.

    ``work`` may be started twice and must have no side effects.
    """
    return await run_in_thread_if_large_or_slow(estimate_json_length(value, LARGE_CHARACTERS), work)


def estimate_json_length(value: Any, limit: int) -> int:
    """Estimate the number of characters of a value as JSON, up to ``limit``."""
    weight, pending = 0, [value]
    while pending and weight < limit:
        item = pending.pop()
        kind = _type_of(item)
        if kind is float or kind is bool or item is None:
            weight += 8
        elif kind is int or (kind is not str and isinstance(item, int)):
            weight += 8 + item.bit_length() // 3
        elif kind is str or isinstance(item, _TEXT_TYPES):
            weight += 2 + len(item)
        else:
            children = item.values() if kind is dict else item if kind is list else get_child_values(item)
            weight += 8 + 2 * len(children)
            if not children and isinstance(item, Iterable) and not isinstance(item, Sized):
                return limit  # its length is unknown
            if (kind is dict or isinstance(item, dict)) and weight < limit:
                for key in _keys_of(item):
                    weight += len(key) if type(key) is str else estimate_json_length(key, limit)
            if weight < limit:
                pending += children
    return weight


def get_child_values(value: Any) -> Collection[Any]:
    """Return the values of a mapping, the items of a collection or the fields of a model; else nothing."""
    kind = _type_of(value)
    if kind is list:
        return cast("list[Any]", value)
    if kind is dict or isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value).values()
    if isinstance(value, list | tuple | set | frozenset):
        return cast("Collection[Any]", value)
    if hasattr(kind, "__pydantic_fields__"):
        named = cast("dict[str, Any]", getattr(value, "__dict__", {})).values()
        extra = cast("dict[str, Any] | None", getattr(value, "__pydantic_extra__", None))
        return [*named, *extra.values()] if extra else named
    if is_dataclass(kind):
        return [getattr(value, field.name, None) for field in fields(kind)]  # some have no dict, but slots
    return cast("Collection[Any]", value) if isinstance(value, deque) else ()
