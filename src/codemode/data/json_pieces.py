"""Writes large plain values as JSON in pieces: the encoder keeps the interpreter to itself for as long as it writes.

What comes out is to the byte what the encoder would have written at once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, cast

from ..host import steps
from .json_shape import SCALARS, members

MAX_INT_DIGITS = 1000
"""The most digits of an integer, both ways: writing and reading one takes time quadratic in them."""

# Some two milliseconds, where every value is a long number. A long text or integer stands for several values.
PIECE_VALUES = 1 << 12
_CHARACTERS_OF_A_VALUE = 128
_BITS_OF_A_VALUE = 128
_LONG_INTEGER = 1 << _BITS_OF_A_VALUE
_TOO_LONG = 10**MAX_INT_DIGITS
_STEPS_FOR_A_PIECE = 500
_LOOKED_AT = 1 << 18
_LOOKS_AT_ONCE = 1 << 10
_CONTAINERS = dict, list, tuple  # written out, a union would be made anew for each value
_SHORT_SCALARS = frozenset({float, bool, type(None)})


def encode_in_pieces(encoder: json.JSONEncoder, value: Any) -> str:
    """Write a value with a compact ``encoder``. Raises what the encoder raises, and `ValueError` for long integers."""
    if _is_one_piece(value):
        return encoder.encode(value)
    return "".join(_Pieces(encoder, _sizes(value)).of(value))


def is_long_integer(value: int) -> bool:
    """Return True for an integer of more digits than cross."""
    return not -_TOO_LONG < value < _TOO_LONG


def holds_itself(value: Any) -> bool:
    """Tell whether a container holds itself, at any depth, as far as a look at a quarter of a million values tells."""
    open_ones = {id(value): iter(members(value))}
    for number in range(_LOOKED_AT):
        if not number % _LOOKS_AT_ONCE:
            steps.take()
        inside = open_ones[next(reversed(open_ones))]
        item = next(inside, inside)
        if item is inside:
            open_ones.popitem()
            if not open_ones:
                break
        elif type(item) not in SCALARS:
            steps.take()
            if id(item) in open_ones:
                return True
            open_ones[id(item)] = iter(members(item))
    return False


def _is_one_piece(value: Any) -> bool:
    size, pending = _size(value), [] if type(value) in SCALARS else [value]
    while pending and size <= PIECE_VALUES:
        more, inside = _look(pending.pop())
        steps.take(1 + (more >> 5))
        size += more
        pending += inside
    return size <= PIECE_VALUES


def _sizes(value: Any) -> dict[int, int]:
    """Return how many values each container holds, by identity. Raises `ValueError` when one holds itself.

    A container that stands in several places counts in each.
    """
    sizes: dict[int, int] = {}
    open_ones: dict[int, tuple[int, list[Any]]] = {}
    pending: list[Any] = [] if type(value) in SCALARS else [value]
    while pending:
        item = pending[-1]
        if id(item) in sizes:
            pending.pop()
        elif (looked_at := open_ones.pop(id(item), None)) is not None:
            sizes[id(item)] = looked_at[0] + sum([sizes[id(one)] for one in looked_at[1]])
            pending.pop()
        else:
            size, inside = _look(item)
            steps.take(1 + (size >> 5))
            open_ones[id(item)] = size, inside
            if any(id(one) in open_ones for one in inside):
                raise ValueError("Circular reference detected")  # the encoder's own words
            pending += inside
    return sizes


def _look(item: Any) -> tuple[int, list[Any]]:
    """Return how many values a container holds itself, and the containers in it. Whatever is no JSON holds nothing."""
    if not isinstance(item, _CONTAINERS):
        return 0, []
    size, inside = len(cast("Collection[Any]", item)), cast("Collection[object]", item)
    if isinstance(item, dict):
        inside = cast("dict[Any, object]", item).values()
        for key in cast("dict[Any, Any]", item):
            if type(key) is not str or len(key) >= _CHARACTERS_OF_A_VALUE:
                size += _size(key)
    held: list[Any] = []
    for one in inside:
        if isinstance(one, str):
            if len(one) >= _CHARACTERS_OF_A_VALUE:
                size += len(one) // _CHARACTERS_OF_A_VALUE
        elif isinstance(one, int):
            if not -_LONG_INTEGER < one < _LONG_INTEGER:
                size += _size(one)
        elif type(one) not in SCALARS and isinstance(one, _CONTAINERS):
            held.append(one)
    return size, held


def _size(value: Any) -> int:
    """Return for how many values one stands by its own length. Raises `ValueError` for an integer that is too long."""
    if isinstance(value, str):
        return 1 + len(value) // _CHARACTERS_OF_A_VALUE
    if not isinstance(value, int) or -_LONG_INTEGER < value < _LONG_INTEGER:
        return 1
    if is_long_integer(value):
        raise ValueError(f"an integer of more than {MAX_INT_DIGITS} digits")
    return 1 + value.bit_length() // _BITS_OF_A_VALUE


class _Pieces:
    def __init__(self, encoder: json.JSONEncoder, sizes: dict[int, int]) -> None:
        self._encoder = encoder
        self._sizes = sizes

    def of(self, value: Any) -> list[str]:
        written: list[str] = []
        self._write(value, written)
        return written

    def _inside(self, item: Any) -> int:
        """Return for how many values one stands beside itself."""
        inside = self._sizes.get(id(item))
        return _size(item) - 1 if inside is None else inside

    def _write(self, value: Any, written: list[str]) -> None:
        if self._inside(value) <= PIECE_VALUES or isinstance(value, int):
            written.append(self._encoder.encode(value))
        elif isinstance(value, dict):
            self._write_dict(cast("dict[Any, Any]", value), written)
        elif isinstance(value, str):
            self._write_text(value, written)
        else:
            self._write_list(value, written)

    def _write_text(self, text: str, written: list[str]) -> None:
        written.append('"')
        length = PIECE_VALUES * _CHARACTERS_OF_A_VALUE
        for start in range(0, len(text), length):
            steps.take(_STEPS_FOR_A_PIECE)
            written.append(self._encoder.encode(text[start : start + length])[1:-1])
        written.append('"')

    def _write_list(self, items: Iterable[Any], written: list[str]) -> None:
        run: list[Any] = []
        size, before = 0, "["
        for item in items:
            inside = 0 if type(item) in _SHORT_SCALARS else self._inside(item)
            if run and size + inside > PIECE_VALUES:
                steps.take(_STEPS_FOR_A_PIECE)
                written += before, self._encoder.encode(run)[1:-1]
                run, size, before = [], 0, ","
            if inside > PIECE_VALUES:
                written.append(before)
                self._write(item, written)
                before = ","
            else:
                run.append(item)
                size += inside + 1
        written += [before, self._encoder.encode(run)[1:-1], "]"] if run else ["]"]

    def _write_dict(self, members: dict[Any, Any], written: list[str]) -> None:
        run: dict[Any, Any] = {}
        size, before = 0, "{"
        for key in sorted(members) if self._encoder.sort_keys else members:
            item = members[key]
            inside, long_key = self._inside(item), _size(key) - 1
            if run and size + inside + long_key > PIECE_VALUES:
                steps.take(_STEPS_FOR_A_PIECE)
                written += before, self._encoder.encode(run)[1:-1]
                run, size, before = {}, 0, ","
            if inside + long_key > PIECE_VALUES:
                written.append(before)
                self._write_member(key, item, written)
                before = ","
            else:
                run[key] = item
                size += inside + long_key + 1
        written += [before, self._encoder.encode(run)[1:-1], "}"] if run else ["}"]

    def _write_member(self, key: Any, item: Any, written: list[str]) -> None:
        if isinstance(key, str):
            self._write(key, written)
            written.append(":")
        else:
            written.append(self._encoder.encode({key: None})[1:-5])
        self._write(item, written)
