"""Writes large plain values as JSON in pieces: the encoder keeps the interpreter to itself for as long as it writes.

What comes out is to the byte what the encoder would have written at once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, cast

from . import steps
from .json_shape import SCALARS, holds_more_values_than

# Some two milliseconds, where every value is a long number.
PIECE_VALUES = 1 << 12
_STEPS_FOR_A_PIECE = 500
_LOOKED_AT = 20_000


def encode_in_pieces(encoder: json.JSONEncoder, value: Any) -> str:
    """Write a value with a compact ``encoder``. Raises what the encoder raises."""
    if not holds_more_values_than(value, PIECE_VALUES):
        return encoder.encode(value)
    sizes = _sizes(value)
    if sizes is None:
        return encoder.encode(value)
    return "".join(_Pieces(encoder, sizes).of(value))


def holds_itself(value: Any) -> bool:
    """Tell whether a container holds itself, at any depth, as far as a look at some thousands of them tells."""
    return _sizes(value, _LOOKED_AT) is None


def _sizes(value: Any, most: int = 1 << 62) -> dict[int, int] | None:
    """Return how many values each container holds, by identity; None when it holds itself, of which the encoder tells.

    A container that stands in several places counts in each. After ``most`` containers no more are looked at.
    """
    sizes: dict[int, int] = {}
    open_ones: dict[int, list[Any]] = {}
    pending: list[Any] = [value]
    while pending and len(sizes) + len(open_ones) <= most:
        item = pending[-1]
        if id(item) in sizes:
            pending.pop()
        elif (inside := open_ones.pop(id(item), None)) is not None:
            sizes[id(item)] = len(item) + sum([sizes[id(one)] for one in inside])
            pending.pop()
        else:
            inside = _containers(item)
            steps.take(1 + (len(item) >> 5))
            if not inside:
                sizes[id(item)] = len(item)
                pending.pop()
                continue
            open_ones[id(item)] = inside
            if any(id(one) in open_ones for one in inside):
                return None
            pending += inside
    return sizes


def _containers(item: Any) -> list[Any]:
    inside = cast("Collection[Any]", item.values() if isinstance(item, dict) else item)
    if SCALARS.issuperset(map(type, inside)):
        return []
    return [one for one in inside if isinstance(one, dict | list | tuple)]


class _Pieces:
    def __init__(self, encoder: json.JSONEncoder, sizes: dict[int, int]) -> None:
        self._encoder = encoder
        self._sizes = sizes

    def of(self, value: Any) -> list[str]:
        written: list[str] = []
        self._write(value, written)
        return written

    def _write(self, value: Any, written: list[str]) -> None:
        if self._sizes.get(id(value), 0) <= PIECE_VALUES:
            written.append(self._encoder.encode(value))
        elif isinstance(value, dict):
            self._write_dict(cast("dict[Any, Any]", value), written)
        else:
            self._write_list(value, written)

    def _write_list(self, items: Iterable[Any], written: list[str]) -> None:
        run: list[Any] = []
        size, before = 0, "["
        for item in items:
            inside = self._sizes.get(id(item), 0)
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
            inside = self._sizes.get(id(item), 0)
            if run and size + inside > PIECE_VALUES:
                steps.take(_STEPS_FOR_A_PIECE)
                written += before, self._encoder.encode(run)[1:-1]
                run, size, before = {}, 0, ","
            if inside > PIECE_VALUES:
                written += before, self._encoder.encode({key: None})[1:-5]
                self._write(item, written)
                before = ","
            else:
                run[key] = item
                size += inside + 1
        written += [before, self._encoder.encode(run)[1:-1], "}"] if run else ["}"]
